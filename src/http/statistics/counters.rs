//! The counters of the statistics and their view in the response. Does not know events.

use super::timeline::{Timeline, TimelineFigures};
use greenroom_core::{Timestamp, usage::ModelUsage};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Maximum number of names per map; further names are counted under [`OTHERS`].
const NAMES_MAX: usize = 1_000;
/// The name under which further names are counted.
const OTHERS: &str = "(others)";

/// The figures of the response: by name of the agent, workflow, model, tool or kind of approval, and
/// over time.
#[derive(Serialize, ToSchema)]
pub(super) struct Figures {
    agents: BTreeMap<String, RunFigures>,
    workflows: BTreeMap<String, RunFigures>,
    models: BTreeMap<String, ModelFigures>,
    tools: BTreeMap<String, ToolFigures>,
    approvals: BTreeMap<String, ApprovalFigures>,
    timeline: TimelineFigures,
}

/// All counters.
#[derive(Default)]
pub(super) struct StatisticsCounters {
    agents: ByName<RunCounters>,
    workflows: ByName<RunCounters>,
    models: ByName<ModelCounters>,
    tools: ByName<ToolCounters>,
    approvals: ByName<ApprovalCounters>,
    pub(super) timeline: Timeline,
}

impl StatisticsCounters {
    /// Applies `count` to the counters of the agent and, if there is one, of the workflow.
    pub(super) fn count_run(
        &mut self,
        agent: &str,
        workflow: Option<&str>,
        count: impl Fn(&mut RunCounters),
    ) {
        count(self.agents.entry(agent));
        if let Some(workflow) = workflow {
            count(self.workflows.entry(workflow));
        }
    }

    /// Returns the counters of the model with this name in the configuration.
    pub(super) fn model_mut(&mut self, name: &str) -> &mut ModelCounters {
        self.models.entry(name)
    }

    /// Returns the counters of a tool. Names can come from models; the caller passes one common name
    /// for all tools that do not exist.
    pub(super) fn tool_mut(&mut self, name: &str) -> &mut ToolCounters {
        self.tools.entry(name)
    }

    /// Returns the counters of a kind of approval.
    pub(super) fn approvals_mut(&mut self, kind: &str) -> &mut ApprovalCounters {
        self.approvals.entry(kind)
    }

    pub(super) fn view(self) -> Figures {
        Figures {
            agents: self.agents.view(RunCounters::view),
            workflows: self.workflows.view(RunCounters::view),
            models: self.models.view(ModelCounters::view),
            tools: self.tools.view(ToolCounters::view),
            approvals: self.approvals.view(ApprovalCounters::view),
            timeline: self.timeline.view(),
        }
    }
}

#[derive(Default)]
struct ByName<T>(BTreeMap<String, T>);

impl<T: Default> ByName<T> {
    fn entry(&mut self, name: &str) -> &mut T {
        let has_room = self.0.len() < NAMES_MAX || self.0.contains_key(name);
        self.0.entry(if has_room { name } else { OTHERS }.to_owned()).or_default()
    }

    fn view<V>(self, view: impl Fn(T) -> V) -> BTreeMap<String, V> {
        self.0.into_iter().map(|(name, counters)| (name, view(counters))).collect()
    }
}

/// Counters of runs.
#[derive(Default)]
pub(super) struct RunCounters {
    pub(super) completed: u64,
    pub(super) failed: u64,
    pub(super) cancelled: u64,
    pub(super) steps: u64,
    pub(super) step_retries: u64,
    pub(super) run_ms: DurationSamples,
    pub(super) usage: ModelUsage,
    /// Number of ratings with 1 to 5 stars.
    pub(super) stars: [u64; 5],
}

/// Counters of a model's step attempts.
#[derive(Default)]
pub(super) struct ModelCounters {
    pub(super) completed: u64,
    pub(super) failed: u64,
    pub(super) step_ms: DurationSamples,
    pub(super) usage: ModelUsage,
}

/// Counters of a tool's calls.
#[derive(Default)]
pub(super) struct ToolCounters {
    pub(super) completed: u64,
    pub(super) failed: u64,
    pub(super) denied: u64,
    /// Rejected or cancelled by a user, or expired without an answer.
    pub(super) refused: u64,
    pub(super) asked: u64,
    pub(super) approved: u64,
    pub(super) rejected: u64,
    pub(super) expired: u64,
    pub(super) retries: u64,
    pub(super) call_ms: DurationSamples,
    pub(super) good: u64,
    pub(super) unnecessary: u64,
    pub(super) wrong: u64,
}

/// Counters of approvals of one kind.
#[derive(Default)]
pub(super) struct ApprovalCounters {
    pub(super) asked: u64,
    pub(super) decided: u64,
    pub(super) expired: u64,
    pub(super) cancelled: u64,
    /// Time from the request to the decision.
    pub(super) wait_ms: DurationSamples,
}

/// Samples of durations, in milliseconds. Their number is bounded by the number of events.
#[derive(Clone, Default)]
pub(super) struct DurationSamples(Vec<u64>);

impl DurationSamples {
    pub(super) fn add(&mut self, from: Timestamp, to: Timestamp) {
        self.0.push(u64::try_from(to.0.saturating_sub(from.0)).unwrap_or(0));
    }

    pub(super) fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    pub(super) fn view(mut self) -> Durations {
        self.0.sort_unstable();
        let sum = self.0.iter().fold(0, |sum: u64, duration| sum.saturating_add(*duration));
        Durations {
            count: self.0.len(),
            average: rate(sum, self.0.len() as u64).map(f64::round),
            p50: self.percentile(50),
            p95: self.percentile(95),
            longest: self.0.last().copied().unwrap_or(0),
        }
    }

    /// Returns the percentile by nearest rank. The samples must be sorted.
    fn percentile(&self, percent: usize) -> Option<u64> {
        let rank = (self.0.len() * percent).div_ceil(100);
        self.0.get(rank.checked_sub(1)?).copied()
    }
}

/// Returns `part` divided by `total`, or `None` if `total` is 0.
fn rate(part: u64, total: u64) -> Option<f64> {
    (total > 0).then(|| part as f64 / total as f64)
}

/// The figures of runs. A rate or average without data is `null`.
#[derive(Serialize, ToSchema)]
struct RunFigures {
    /// Number of ended runs.
    runs: u64,
    completed: u64,
    failed: u64,
    cancelled: u64,
    /// Share of failed runs, 0 to 1.
    failure_rate: Option<f64>,
    /// Number of started step attempts.
    steps: u64,
    /// Number of step retries.
    step_retries: u64,
    /// Durations of ended runs.
    run_ms: Durations,
    /// Model usage.
    usage: ModelUsage,
    /// Users' ratings of the answers.
    rating: Ratings,
}

/// The ratings of answers.
#[derive(Serialize, ToSchema)]
struct Ratings {
    /// Number of ratings.
    count: u64,
    /// Average number of stars.
    average: Option<f64>,
    /// Number of ratings with 1 to 5 stars.
    stars: [u64; 5],
}

/// The figures of a model's step attempts.
#[derive(Serialize, ToSchema)]
struct ModelFigures {
    /// Number of ended step attempts.
    steps: u64,
    completed: u64,
    failed: u64,
    /// Share of failed attempts, 0 to 1.
    failure_rate: Option<f64>,
    /// Durations of completed attempts.
    step_ms: Durations,
    /// Model usage.
    usage: ModelUsage,
}

/// The figures of a tool's calls.
#[derive(Serialize, ToSchema)]
struct ToolFigures {
    /// Number of ended calls.
    calls: u64,
    completed: u64,
    failed: u64,
    /// Share of failed calls, 0 to 1.
    failure_rate: Option<f64>,
    /// Calls that were denied by policy.
    denied: u64,
    /// Share of denied calls, 0 to 1.
    denial_rate: Option<f64>,
    /// Rejected or cancelled by a user, or expired without an answer.
    refused: u64,
    /// Number of requested approvals.
    asked: u64,
    /// Number of approved steps.
    approved: u64,
    /// Number of rejected steps.
    rejected: u64,
    /// Number of calls whose approval expired.
    expired: u64,
    /// Share of approved steps among approved, rejected and expired ones, 0 to 1.
    approval_rate: Option<f64>,
    /// Number of retries.
    retries: u64,
    /// Durations of calls, including the time spent waiting for answers while the call runs.
    call_ms: Durations,
    /// Users' ratings of the calls.
    verdicts: CallRatings,
}

/// Numbers of ratings of calls.
#[derive(Serialize, ToSchema)]
struct CallRatings {
    good: u64,
    unnecessary: u64,
    wrong: u64,
}

/// The figures of approvals of one kind.
#[derive(Serialize, ToSchema)]
struct ApprovalFigures {
    /// Number of requested approvals.
    asked: u64,
    /// Number of decided approvals.
    decided: u64,
    expired: u64,
    cancelled: u64,
    /// Time from the request to the decision.
    wait_ms: Durations,
}

/// Durations in milliseconds.
#[derive(Serialize, ToSchema)]
pub(super) struct Durations {
    /// Number of samples.
    count: usize,
    /// Average.
    average: Option<f64>,
    /// Median.
    p50: Option<u64>,
    /// 95th percentile.
    p95: Option<u64>,
    /// Maximum.
    longest: u64,
}

impl RunCounters {
    fn view(self) -> RunFigures {
        let runs = self.completed + self.failed + self.cancelled;
        let count = self.stars.iter().sum();
        let sum = (1..).zip(self.stars).map(|(stars, count): (u64, u64)| stars * count).sum();
        RunFigures {
            runs,
            completed: self.completed,
            failed: self.failed,
            cancelled: self.cancelled,
            failure_rate: rate(self.failed, runs),
            steps: self.steps,
            step_retries: self.step_retries,
            run_ms: self.run_ms.view(),
            usage: self.usage,
            rating: Ratings { count, average: rate(sum, count), stars: self.stars },
        }
    }
}

impl ModelCounters {
    fn view(self) -> ModelFigures {
        let steps = self.completed + self.failed;
        ModelFigures {
            steps,
            completed: self.completed,
            failed: self.failed,
            failure_rate: rate(self.failed, steps),
            step_ms: self.step_ms.view(),
            usage: self.usage,
        }
    }
}

impl ToolCounters {
    fn view(self) -> ToolFigures {
        let calls = self.completed + self.failed + self.denied + self.refused;
        let answered = self.approved + self.rejected + self.expired;
        ToolFigures {
            calls,
            completed: self.completed,
            failed: self.failed,
            failure_rate: rate(self.failed, calls),
            denied: self.denied,
            denial_rate: rate(self.denied, calls),
            refused: self.refused,
            asked: self.asked,
            approved: self.approved,
            rejected: self.rejected,
            expired: self.expired,
            approval_rate: rate(self.approved, answered),
            retries: self.retries,
            call_ms: self.call_ms.view(),
            verdicts: CallRatings {
                good: self.good,
                unnecessary: self.unnecessary,
                wrong: self.wrong,
            },
        }
    }
}

impl ApprovalCounters {
    fn view(self) -> ApprovalFigures {
        ApprovalFigures {
            asked: self.asked,
            decided: self.decided,
            expired: self.expired,
            cancelled: self.cancelled,
            wait_ms: self.wait_ms.view(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn percentiles_use_nearest_rank() {
        for (durations, p50, p95, average) in [
            (vec![], json!(null), json!(null), json!(null)),
            (vec![7], json!(7), json!(7), json!(7.0)),
            (vec![40, 10], json!(10), json!(40), json!(25.0)),
            ((1..=100).rev().collect(), json!(50), json!(95), json!(51.0)),
        ] {
            let mut samples = DurationSamples::default();
            durations.iter().for_each(|ms| samples.add(Timestamp(1_000), Timestamp(1_000 + ms)));
            let view = json!(samples.view());
            assert_eq!((&view["p50"], &view["p95"]), (&p50, &p95), "{durations:?}");
            assert_eq!((&view["average"], &view["count"]), (&average, &json!(durations.len())));
        }
    }

    #[test]
    fn further_names_are_counted_as_others() {
        let mut counters = StatisticsCounters::default();
        (0..NAMES_MAX + 5).for_each(|n| counters.tool_mut(&format!("t{n}")).completed += 1);
        let view = json!(counters.view());
        assert_eq!(view["tools"].as_object().unwrap().len(), NAMES_MAX + 1);
        assert_eq!(view["tools"][OTHERS]["calls"], 5);
    }
}
