//! Counts the events of one session's log.

use super::counters::StatisticsCounters;
use greenroom_core::{
    Timestamp,
    approval::ApprovalSubject,
    call::CallFailureReason,
    feedback::{CallRating, Feedback},
    ids::{ApprovalId, CallId, MessageId, RunId, UserId},
    session::{EventRecord, SessionEvent, SessionRow},
    usage::ModelUsage,
};
use std::collections::HashMap;

/// The state of scanning one session's log.
pub(super) struct LogScanner {
    agent: String,
    since: Option<Timestamp>,
    runs: HashMap<RunId, TrackedRun>,
    calls: HashMap<CallId, TrackedCall>,
    approvals: HashMap<ApprovalId, (&'static str, Timestamp)>,
    /// The latest rating of each user and message; it replaces earlier ones.
    ratings: HashMap<(UserId, MessageId), (u8, Option<RunId>)>,
    verdicts: HashMap<(UserId, CallId), CallRating>,
}

struct TrackedRun {
    started_at: Timestamp,
    workflow: Option<String>,
    /// Model and start time of the active step attempt.
    step: Option<(String, Timestamp)>,
    /// Usage of the ended step attempts.
    usage: ModelUsage,
}

struct TrackedCall {
    tool: String,
    started_at: Option<Timestamp>,
}

impl LogScanner {
    /// Creates a scanner for the session. Events before `since` are tracked but not counted.
    pub(super) fn new(row: &SessionRow, since: Option<Timestamp>) -> Self {
        Self {
            agent: row.agent.to_string(),
            since,
            runs: HashMap::new(),
            calls: HashMap::new(),
            approvals: HashMap::new(),
            ratings: HashMap::new(),
            verdicts: HashMap::new(),
        }
    }

    pub(super) fn apply_event(&mut self, record: &EventRecord, counted: &mut StatisticsCounters) {
        self.track_event(record);
        if self.since.is_none_or(|since| record.at >= since) {
            self.count_run(record, counted);
            self.count_step(record, counted);
            self.count_call(record, counted);
            self.count_approval(record, counted);
        }
        self.clear_ended_step(record);
    }

    /// Records the data that later events refer to.
    fn track_event(&mut self, record: &EventRecord) {
        use SessionEvent as E;
        let at = record.at;
        if let E::ToolCallStarted { call_id, tool, .. } = &record.event {
            self.calls.insert(*call_id, TrackedCall { tool: tool.clone(), started_at: None });
        } else if let E::ToolCallAttemptStarted { call_id, .. } = &record.event {
            if let Some(call) = self.calls.get_mut(call_id) {
                call.started_at.get_or_insert(at);
            }
        } else if let E::ApprovalRequested { approval } = &record.event {
            self.approvals.insert(approval.approval_id, (approval.kind().name(), at));
        }
        let Some(run_id) = record.run_id else { return };
        if let E::RunStarted { workflow, .. } = &record.event {
            let workflow = workflow.as_ref().map(|workflow| workflow.name.clone());
            self.runs.insert(
                run_id,
                TrackedRun { started_at: at, workflow, step: None, usage: ModelUsage::default() },
            );
        } else if let E::StepStarted { model, .. } = &record.event
            && let Some(run) = self.runs.get_mut(&run_id)
        {
            run.step = Some((model.clone(), at));
        }
    }

    /// Clears the active step attempt when the event ends it.
    fn clear_ended_step(&mut self, record: &EventRecord) {
        let Some((usage, _)) = self.attempt_end(record) else { return };
        let run = record.run_id.and_then(|run_id| self.runs.get_mut(&run_id));
        if let Some(run) = run {
            run.step = None;
            run.usage = run.usage.plus(usage);
        }
    }

    /// Returns the usage of a step attempt and true if it completed, if the event ends an attempt. A
    /// run that fails ends its active attempt, whose usage is only in the total of the run.
    fn attempt_end(&self, record: &EventRecord) -> Option<(ModelUsage, bool)> {
        if let SessionEvent::RunFailed { usage, .. } = &record.event {
            let run = self.find_run(record).filter(|run| run.step.is_some())?;
            return Some((usage.minus(run.usage), false));
        }
        attempt_end(&record.event)
    }

    fn find_run(&self, record: &EventRecord) -> Option<&TrackedRun> {
        self.runs.get(&record.run_id?)
    }

    fn find_workflow(&self, record: &EventRecord) -> Option<&str> {
        self.find_run(record)?.workflow.as_deref()
    }

    fn count_run(&mut self, record: &EventRecord, counted: &mut StatisticsCounters) {
        use SessionEvent as E;
        let (run, workflow) = (self.find_run(record), self.find_workflow(record));
        if let E::RunCompleted { .. } | E::RunFailed { .. } | E::RunCancelled { .. } = &record.event
        {
            let bucket = counted.timeline.bucket_mut(record.at);
            let (completed, failed) = (
                matches!(record.event, E::RunCompleted { .. }),
                matches!(record.event, E::RunFailed { .. }),
            );
            bucket.runs_completed += u64::from(completed);
            bucket.runs_failed += u64::from(failed);
            bucket.runs_cancelled += u64::from(!completed && !failed);
            counted.count_run(&self.agent, workflow, |runs| {
                runs.completed += u64::from(completed);
                runs.failed += u64::from(failed);
                runs.cancelled += u64::from(!completed && !failed);
                if let Some(run) = run {
                    runs.run_ms.add(run.started_at, record.at);
                }
            });
        } else if let E::FeedbackGiven { feedback, by } = &record.event {
            match feedback {
                Feedback::Message { message_id, rating, .. } => {
                    let rated = (u8::from(*rating), record.run_id);
                    self.ratings.insert((by.clone(), message_id.clone()), rated);
                }
                Feedback::Call { call_id, verdict, .. } => {
                    self.verdicts.insert((by.clone(), *call_id), *verdict);
                }
            }
        }
    }

    fn count_step(&self, record: &EventRecord, counted: &mut StatisticsCounters) {
        let workflow = self.find_workflow(record);
        if let SessionEvent::StepStarted { .. } = &record.event {
            counted.count_run(&self.agent, workflow, |runs| runs.steps += 1);
        } else if let SessionEvent::StepRetrying { .. } = &record.event {
            counted.count_run(&self.agent, workflow, |runs| runs.step_retries += 1);
            counted.timeline.bucket_mut(record.at).retries += 1;
        }
        let Some((usage, has_worked)) = self.attempt_end(record) else { return };
        counted.count_run(&self.agent, workflow, |runs| runs.usage = runs.usage.plus(usage));
        let bucket = counted.timeline.bucket_mut(record.at);
        bucket.usage = bucket.usage.plus(usage);
        let Some((model, started_at)) = self.find_run(record).and_then(|run| run.step.as_ref())
        else {
            return;
        };
        if has_worked {
            bucket.step_ms.add(*started_at, record.at);
        }
        let model = counted.model_mut(model);
        model.usage = model.usage.plus(usage);
        if has_worked {
            model.completed += 1;
            model.step_ms.add(*started_at, record.at);
        } else {
            model.failed += 1;
        }
    }

    fn count_call(&self, record: &EventRecord, counted: &mut StatisticsCounters) {
        use SessionEvent as E;
        if let E::ToolCallRetrying { tool, .. } = &record.event {
            counted.tool_mut(tool).retries += 1;
            counted.timeline.bucket_mut(record.at).retries += 1;
        } else if let E::ToolCallCompleted { call_id, tool, .. } = &record.event {
            counted.tool_mut(tool).completed += 1;
            counted.timeline.bucket_mut(record.at).calls_completed += 1;
            self.record_call_duration(*call_id, record.at, counted);
        } else if let E::ToolCallFailed { call_id, tool, reason, .. } = &record.event {
            let is_known = *reason != CallFailureReason::UnknownTool;
            let tool = counted.tool_mut(if is_known { tool } else { "(unknown)" });
            tool.expired += u64::from(*reason == CallFailureReason::Expired);
            let is_refused = [
                CallFailureReason::Rejected,
                CallFailureReason::Expired,
                CallFailureReason::Cancelled,
                CallFailureReason::Refused,
            ]
            .contains(reason);
            tool.refused += u64::from(is_refused);
            tool.failed += u64::from(!is_refused);
            let bucket = counted.timeline.bucket_mut(record.at);
            bucket.calls_refused += u64::from(is_refused);
            bucket.calls_failed += u64::from(!is_refused);
            self.record_call_duration(*call_id, record.at, counted);
        } else if let E::AuthorizationDenied { tool, .. } = &record.event {
            counted.tool_mut(tool).denied += 1;
            counted.timeline.bucket_mut(record.at).calls_denied += 1;
        }
    }

    fn count_approval(&self, record: &EventRecord, counted: &mut StatisticsCounters) {
        use SessionEvent as E;
        let find_approval = |approval_id| self.approvals.get(approval_id);
        if let E::ApprovalRequested { approval } = &record.event {
            counted.approvals_mut(approval.kind().name()).asked += 1;
            if let ApprovalSubject::Plan { steps } = &approval.subject {
                steps.iter().for_each(|step| counted.tool_mut(&step.tool).asked += 1);
            }
        } else if let E::ApprovalDecided { approval_id, steps, closed, .. } = &record.event {
            for step in steps {
                let Some(call) = self.calls.get(&step.call_id) else { continue };
                let tool = counted.tool_mut(&call.tool);
                let count = if step.approved { &mut tool.approved } else { &mut tool.rejected };
                *count += 1;
            }
            if let Some((kind, requested_at)) = find_approval(approval_id).filter(|_| *closed) {
                let approvals = counted.approvals_mut(kind);
                approvals.decided += 1;
                approvals.wait_ms.add(*requested_at, record.at);
            }
        } else if let E::ApprovalExpired { approval_id } = &record.event {
            if let Some((kind, _)) = find_approval(approval_id) {
                counted.approvals_mut(kind).expired += 1;
            }
        } else if let E::ApprovalCancelled { approval_id } = &record.event
            && let Some((kind, _)) = find_approval(approval_id)
        {
            counted.approvals_mut(kind).cancelled += 1;
        }
    }

    fn record_call_duration(
        &self,
        call_id: CallId,
        ended_at: Timestamp,
        counted: &mut StatisticsCounters,
    ) {
        if let Some(TrackedCall { tool, started_at: Some(started_at) }) = self.calls.get(&call_id) {
            counted.tool_mut(tool).call_ms.add(*started_at, ended_at);
        }
    }

    /// Counts the latest ratings of the session's messages and calls.
    pub(super) fn finish(self, counted: &mut StatisticsCounters) {
        for (stars, run_id) in self.ratings.values() {
            let run = run_id.and_then(|run_id| self.runs.get(&run_id));
            counted.count_run(&self.agent, run.and_then(|run| run.workflow.as_deref()), |runs| {
                if let Some(count) = runs.stars.get_mut(usize::from(*stars).wrapping_sub(1)) {
                    *count += 1;
                }
            });
        }
        for ((_, call_id), verdict) in self.verdicts {
            let Some(call) = self.calls.get(&call_id) else { continue };
            let tool = counted.tool_mut(&call.tool);
            match verdict {
                CallRating::Good => tool.good += 1,
                CallRating::Unnecessary => tool.unnecessary += 1,
                CallRating::Wrong => tool.wrong += 1,
            }
        }
    }
}

/// Returns the usage of a step attempt and true if it completed, if the event ends an attempt.
fn attempt_end(event: &SessionEvent) -> Option<(ModelUsage, bool)> {
    use SessionEvent as E;
    if let E::StepCompleted { usage, .. } | E::ContextCompacted { usage, .. } = event {
        Some((*usage, true))
    } else if let E::StepRetrying { usage, .. }
    | E::StepModelFallback { usage, .. }
    | E::ContextCompactionFailed { usage, .. } = event
    {
        Some((*usage, false))
    } else {
        None
    }
}
