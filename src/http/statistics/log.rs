//! One session's log, read into figures.

use super::figures::Counted;
use greenroom_core::{
    Timestamp,
    approval::Question,
    call::FailReason,
    feedback::{Feedback, Verdict},
    ids::{ApprovalId, CallId, MessageId, RunId, UserId},
    session::{EventRecord, SessionEvent, SessionRow},
    usage::Spending,
};
use std::collections::HashMap;

/// What is remembered of a session while its log is read.
pub(super) struct Log {
    agent: String,
    since: Option<Timestamp>,
    runs: HashMap<RunId, Run>,
    calls: HashMap<CallId, Call>,
    questions: HashMap<ApprovalId, (&'static str, Timestamp)>,
    /// Who says something anew takes back what they said before.
    ratings: HashMap<(UserId, MessageId), (u8, Option<RunId>)>,
    verdicts: HashMap<(UserId, CallId), Verdict>,
}

struct Run {
    began: Timestamp,
    workflow: Option<String>,
    /// The attempt of a step that is going: of which model, and since when.
    step: Option<(String, Timestamp)>,
}

struct Call {
    tool: String,
    began: Option<Timestamp>,
}

impl Log {
    /// Of that session, of which what happened before `since` is read and not counted.
    pub(super) fn of(row: &SessionRow, since: Option<Timestamp>) -> Self {
        Self {
            agent: row.agent.to_string(),
            since,
            runs: HashMap::new(),
            calls: HashMap::new(),
            questions: HashMap::new(),
            ratings: HashMap::new(),
            verdicts: HashMap::new(),
        }
    }

    pub(super) fn take(&mut self, record: &EventRecord, counted: &mut Counted) {
        self.remember(record);
        if self.since.is_none_or(|since| record.at >= since) {
            self.count_run(record, counted);
            self.count_step(record, counted);
            self.count_call(record, counted);
            self.count_question(record, counted);
        }
        self.forget(record);
    }

    /// What later events are about.
    fn remember(&mut self, record: &EventRecord) {
        use SessionEvent as E;
        let at = record.at;
        if let E::ToolCallStarted { call_id, tool, .. } = &record.event {
            self.calls.insert(*call_id, Call { tool: tool.clone(), began: None });
        } else if let E::ToolCallAttemptStarted { call_id, .. } = &record.event {
            if let Some(call) = self.calls.get_mut(call_id) {
                call.began.get_or_insert(at);
            }
        } else if let E::ApprovalRequested { approval } = &record.event {
            self.questions.insert(approval.approval_id, (approval.kind().name(), at));
        }
        let Some(run_id) = record.run_id else { return };
        if let E::RunStarted { workflow, .. } = &record.event {
            let workflow = workflow.as_ref().map(|workflow| workflow.name.clone());
            self.runs.insert(run_id, Run { began: at, workflow, step: None });
        } else if let E::StepStarted { model, .. } = &record.event
            && let Some(run) = self.runs.get_mut(&run_id)
        {
            run.step = Some((model.clone(), at));
        }
    }

    /// A step that has ended takes no more time.
    fn forget(&mut self, record: &EventRecord) {
        let run = record.run_id.and_then(|run_id| self.runs.get_mut(&run_id));
        if let Some(run) = run.filter(|_| attempt_of(&record.event).is_some()) {
            run.step = None;
        }
    }

    fn run(&self, record: &EventRecord) -> Option<&Run> {
        self.runs.get(&record.run_id?)
    }

    fn workflow(&self, record: &EventRecord) -> Option<&str> {
        self.run(record)?.workflow.as_deref()
    }

    fn count_run(&mut self, record: &EventRecord, counted: &mut Counted) {
        use SessionEvent as E;
        let (run, workflow) = (self.run(record), self.workflow(record));
        if let E::RunCompleted { .. } | E::RunFailed { .. } | E::RunCancelled { .. } = &record.event
        {
            let bucket = counted.timeline.at(record.at);
            let (completed, failed) = (
                matches!(record.event, E::RunCompleted { .. }),
                matches!(record.event, E::RunFailed { .. }),
            );
            bucket.runs_completed += u64::from(completed);
            bucket.runs_failed += u64::from(failed);
            bucket.runs_cancelled += u64::from(!completed && !failed);
            counted.runs(&self.agent, workflow, |runs| {
                runs.completed += u64::from(completed);
                runs.failed += u64::from(failed);
                runs.cancelled += u64::from(!completed && !failed);
                if let Some(run) = run {
                    runs.run_ms.add(run.began, record.at);
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

    fn count_step(&self, record: &EventRecord, counted: &mut Counted) {
        let workflow = self.workflow(record);
        if let SessionEvent::StepStarted { .. } = &record.event {
            counted.runs(&self.agent, workflow, |runs| runs.steps += 1);
        } else if let SessionEvent::StepRetrying { .. } = &record.event {
            counted.runs(&self.agent, workflow, |runs| runs.step_retries += 1);
            counted.timeline.at(record.at).retries += 1;
        }
        let Some((usage, has_worked)) = attempt_of(&record.event) else { return };
        counted.runs(&self.agent, workflow, |runs| runs.usage = runs.usage.plus(usage));
        let bucket = counted.timeline.at(record.at);
        bucket.usage = bucket.usage.plus(usage);
        let Some((model, began)) = self.run(record).and_then(|run| run.step.as_ref()) else {
            return;
        };
        if has_worked {
            bucket.step_ms.add(*began, record.at);
        }
        let model = counted.model(model);
        model.usage = model.usage.plus(usage);
        if has_worked {
            model.completed += 1;
            model.step_ms.add(*began, record.at);
        } else {
            model.failed += 1;
        }
    }

    fn count_call(&self, record: &EventRecord, counted: &mut Counted) {
        use SessionEvent as E;
        if let E::ToolCallRetrying { tool, .. } = &record.event {
            counted.tool(tool).retries += 1;
            counted.timeline.at(record.at).retries += 1;
        } else if let E::ToolCallCompleted { call_id, tool, .. } = &record.event {
            counted.tool(tool).completed += 1;
            counted.timeline.at(record.at).calls_completed += 1;
            self.took(*call_id, record.at, counted);
        } else if let E::ToolCallFailed { call_id, tool, reason, .. } = &record.event {
            let is_known = *reason != FailReason::UnknownTool;
            let tool = counted.tool(if is_known { tool } else { "(unknown)" });
            tool.expired += u64::from(*reason == FailReason::Expired);
            let by_people =
                [FailReason::Rejected, FailReason::Expired, FailReason::Cancelled].contains(reason);
            tool.refused += u64::from(by_people);
            tool.failed += u64::from(!by_people);
            let bucket = counted.timeline.at(record.at);
            bucket.calls_refused += u64::from(by_people);
            bucket.calls_failed += u64::from(!by_people);
            self.took(*call_id, record.at, counted);
        } else if let E::AuthorizationDenied { tool, .. } = &record.event {
            counted.tool(tool).denied += 1;
            counted.timeline.at(record.at).calls_denied += 1;
        }
    }

    fn count_question(&self, record: &EventRecord, counted: &mut Counted) {
        use SessionEvent as E;
        let known = |approval_id| self.questions.get(approval_id);
        if let E::ApprovalRequested { approval } = &record.event {
            counted.questions(approval.kind().name()).asked += 1;
            if let Question::Plan { steps } = &approval.question {
                steps.iter().for_each(|step| counted.tool(&step.tool).asked += 1);
            }
        } else if let E::ApprovalDecided { approval_id, steps, closed, .. } = &record.event {
            for step in steps {
                let Some(call) = self.calls.get(&step.call_id) else { continue };
                let tool = counted.tool(&call.tool);
                let said = if step.approved { &mut tool.approved } else { &mut tool.rejected };
                *said += 1;
            }
            if let Some((kind, asked_at)) = known(approval_id).filter(|_| *closed) {
                let questions = counted.questions(kind);
                questions.decided += 1;
                questions.wait_ms.add(*asked_at, record.at);
            }
        } else if let E::ApprovalExpired { approval_id } = &record.event {
            if let Some((kind, _)) = known(approval_id) {
                counted.questions(kind).expired += 1;
            }
        } else if let E::ApprovalCancelled { approval_id } = &record.event
            && let Some((kind, _)) = known(approval_id)
        {
            counted.questions(kind).cancelled += 1;
        }
    }

    fn took(&self, call_id: CallId, ended: Timestamp, counted: &mut Counted) {
        if let Some(Call { tool, began: Some(began) }) = self.calls.get(&call_id) {
            counted.tool(tool).call_ms.add(*began, ended);
        }
    }

    /// What people thought of it in the end.
    pub(super) fn end(self, counted: &mut Counted) {
        for (stars, run_id) in self.ratings.values() {
            let run = run_id.and_then(|run_id| self.runs.get(&run_id));
            counted.runs(&self.agent, run.and_then(|run| run.workflow.as_deref()), |runs| {
                if let Some(count) = runs.stars.get_mut(usize::from(*stars).wrapping_sub(1)) {
                    *count += 1;
                }
            });
        }
        for ((_, call_id), verdict) in self.verdicts {
            let Some(call) = self.calls.get(&call_id) else { continue };
            let tool = counted.tool(&call.tool);
            match verdict {
                Verdict::Good => tool.good += 1,
                Verdict::Unnecessary => tool.unnecessary += 1,
                Verdict::Wrong => tool.wrong += 1,
            }
        }
    }
}

/// What an attempt of a step has spent and whether it worked, if the event is the end of one.
fn attempt_of(event: &SessionEvent) -> Option<(Spending, bool)> {
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
