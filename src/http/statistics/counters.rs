//! What is counted, and how it is told. Must not know events.

use super::timeline::{Timeline, TimelineFigures};
use greenroom_core::{Timestamp, usage::ModelUsage};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Different names of a kind that are counted; further ones are counted together.
const NAMES_MAX: usize = 1_000;
/// What stands for further ones.
const OTHERS: &str = "(others)";

/// Everything, as it is told: by name, of agents, workflows, models, tools and kinds of questions; and
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

/// Everything.
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
    /// Counts for the agent, and for the workflow if there is one.
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

    /// By the name in configuration.
    pub(super) fn model_mut(&mut self, name: &str) -> &mut ModelCounters {
        self.models.entry(name)
    }

    /// Names come from models, too: those of tools that there never were count as one.
    pub(super) fn tool_mut(&mut self, name: &str) -> &mut ToolCounters {
        self.tools.entry(name)
    }

    /// Of that kind.
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
        let is_room = self.0.len() < NAMES_MAX || self.0.contains_key(name);
        self.0.entry(if is_room { name } else { OTHERS }.to_owned()).or_default()
    }

    fn view<V>(self, view: impl Fn(T) -> V) -> BTreeMap<String, V> {
        self.0.into_iter().map(|(name, of)| (name, view(of))).collect()
    }
}

/// What became of runs.
#[derive(Default)]
pub(super) struct RunCounters {
    pub(super) completed: u64,
    pub(super) failed: u64,
    pub(super) cancelled: u64,
    pub(super) steps: u64,
    pub(super) step_retries: u64,
    pub(super) run_ms: DurationSamples,
    pub(super) usage: ModelUsage,
    /// How often each number of stars was given.
    pub(super) stars: [u64; 5],
}

/// What became of a model's attempts.
#[derive(Default)]
pub(super) struct ModelCounters {
    pub(super) completed: u64,
    pub(super) failed: u64,
    pub(super) step_ms: DurationSamples,
    pub(super) usage: ModelUsage,
}

/// What became of a tool's calls.
#[derive(Default)]
pub(super) struct ToolCounters {
    pub(super) completed: u64,
    pub(super) failed: u64,
    pub(super) denied: u64,
    /// Ended by people: rejected, not answered in time, or cancelled.
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

/// What became of questions to people.
#[derive(Default)]
pub(super) struct ApprovalCounters {
    pub(super) asked: u64,
    pub(super) decided: u64,
    pub(super) expired: u64,
    pub(super) cancelled: u64,
    /// Until they were decided.
    pub(super) wait_ms: DurationSamples,
}

/// How long things took, in milliseconds. As many as there are events at most.
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
        let sum = self.0.iter().fold(0, |sum: u64, took| sum.saturating_add(*took));
        Durations {
            count: self.0.len(),
            average: rate(sum, self.0.len() as u64).map(f64::round),
            p50: self.percentile(50),
            p95: self.percentile(95),
            longest: self.0.last().copied().unwrap_or(0),
        }
    }

    /// The least that `percent` of them do not exceed (the nearest rank); they are in order.
    fn percentile(&self, percent: usize) -> Option<u64> {
        let rank = (self.0.len() * percent).div_ceil(100);
        self.0.get(rank.checked_sub(1)?).copied()
    }
}

/// `part` of `whole`; `None` where there is nothing of it.
fn rate(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// What became of runs. A rate of nothing is `null`.
#[derive(Serialize, ToSchema)]
struct RunFigures {
    runs: u64,
    completed: u64,
    failed: u64,
    cancelled: u64,
    failure_rate: Option<f64>,
    steps: u64,
    step_retries: u64,
    run_ms: Durations,
    usage: ModelUsage,
    rating: Ratings,
}

/// What people think of answers.
#[derive(Serialize, ToSchema)]
struct Ratings {
    count: u64,
    average: Option<f64>,
    /// How often each number of stars was given, from one to five.
    stars: [u64; 5],
}

/// What became of a model's steps, each failed attempt counted.
#[derive(Serialize, ToSchema)]
struct ModelFigures {
    steps: u64,
    completed: u64,
    failed: u64,
    failure_rate: Option<f64>,
    step_ms: Durations,
    usage: ModelUsage,
}

/// What became of a tool's calls.
#[derive(Serialize, ToSchema)]
struct ToolFigures {
    calls: u64,
    completed: u64,
    failed: u64,
    failure_rate: Option<f64>,
    denied: u64,
    denial_rate: Option<f64>,
    /// Ended by people: rejected, not answered in time, or cancelled.
    refused: u64,
    /// How often a person was asked.
    asked: u64,
    approved: u64,
    rejected: u64,
    expired: u64,
    approval_rate: Option<f64>,
    retries: u64,
    /// Waiting for people included.
    call_ms: Durations,
    verdicts: CallRatings,
}

/// What people think of calls.
#[derive(Serialize, ToSchema)]
struct CallRatings {
    good: u64,
    unnecessary: u64,
    wrong: u64,
}

/// What became of questions to people.
#[derive(Serialize, ToSchema)]
struct ApprovalFigures {
    asked: u64,
    decided: u64,
    expired: u64,
    cancelled: u64,
    /// Until they were decided.
    wait_ms: Durations,
}

/// How long things took, in milliseconds.
#[derive(Serialize, ToSchema)]
pub(super) struct Durations {
    count: usize,
    average: Option<f64>,
    p50: Option<u64>,
    p95: Option<u64>,
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
    fn percentiles_are_by_the_nearest_rank() {
        for (took, p50, p95, average) in [
            (vec![], json!(null), json!(null), json!(null)),
            (vec![7], json!(7), json!(7), json!(7.0)),
            (vec![40, 10], json!(10), json!(40), json!(25.0)),
            ((1..=100).rev().collect(), json!(50), json!(95), json!(51.0)),
        ] {
            let mut times = DurationSamples::default();
            took.iter().for_each(|ms| times.add(Timestamp(1_000), Timestamp(1_000 + ms)));
            let view = json!(times.view());
            assert_eq!((&view["p50"], &view["p95"]), (&p50, &p95), "{took:?}");
            assert_eq!((&view["average"], &view["count"]), (&average, &json!(took.len())));
        }
    }

    #[test]
    fn further_names_are_counted_together() {
        let mut counted = StatisticsCounters::default();
        (0..NAMES_MAX + 5).for_each(|n| counted.tool_mut(&format!("t{n}")).completed += 1);
        let view = json!(counted.view());
        assert_eq!(view["tools"].as_object().unwrap().len(), NAMES_MAX + 1);
        assert_eq!(view["tools"][OTHERS]["calls"], 5);
    }
}
