//! Cancels and fails runs (S6): ends everything that is open, and leaves the session usable.

use super::{DecisionBuilder, Rejection, Reply};
use crate::{
    call::{Call, CallFailureReason, CallPhase},
    ids::{MessageId, RunId, UserId},
    model::completion::Completion,
    session::{Effect, RunFailureCode, SessionEvent, StepPhase},
    usage::{ModelUsage, TokenUsage},
};

impl DecisionBuilder<'_> {
    pub(super) fn decide_cancel_run(
        &mut self,
        requested: Option<RunId>,
        cancelled_by: UserId,
        partial: Option<Completion>,
    ) -> Result<Reply, Rejection> {
        let running = self.active.run.as_ref().map(|run| run.run_id);
        let run_id = requested.or(running).ok_or(Rejection::NoActiveRun)?;
        if running == Some(run_id) {
            self.cancel_run(&cancelled_by, partial);
        } else if self.active.queue.iter().any(|queued| queued.run_id == run_id) {
            let (by, usage) = (cancelled_by, ModelUsage::default());
            let event = SessionEvent::RunCancelled { by, message_id: None, usage };
            self.emit_for(Some(run_id), None, event);
        } else {
            return Err(Rejection::RunNotActive { run_id });
        }
        self.advance();
        Ok(Reply::Cancelled { run_id })
    }

    /// Cancels the active run, if there is one: its approvals, its calls, its message and the run.
    pub(super) fn cancel_run(&mut self, cancelled_by: &UserId, partial: Option<Completion>) {
        if self.active.run.is_none() {
            return;
        }
        let message_id = self.end_open_work("the run was cancelled", cancelled_by, partial);
        let usage = self.active.run.as_ref().map(|run| run.usage).unwrap_or_default();
        let by = cancelled_by.clone();
        self.emit(SessionEvent::RunCancelled { by, message_id, usage });
    }

    /// Fails the active run, if there is one: its approvals, its calls and the run.
    pub(super) fn fail_run(&mut self, code: RunFailureCode, error: String) {
        if self.active.run.is_none() {
            return;
        }
        if let Some(owner) = self.owner() {
            self.end_open_work("the run ended", &owner, None);
        }
        let usage = self.active.run.as_ref().map(|run| run.usage).unwrap_or_default();
        self.emit(SessionEvent::RunFailed { code, error, usage });
    }

    /// Ends all open work of the run. Returns the id of the message that was cut off and kept.
    fn end_open_work(
        &mut self,
        cause: &str,
        ended_by: &UserId,
        partial: Option<Completion>,
    ) -> Option<MessageId> {
        let run = self.active.run.clone()?;
        let open_approvals = self.active.approvals.iter();
        let open: Vec<_> = open_approvals.map(|open| open.approval.approval_id).collect();
        for approval_id in open {
            self.emit(SessionEvent::ApprovalCancelled { approval_id });
        }
        for call in run.calls.iter().filter(|call| !call.is_finished()) {
            self.cancel_call(call, cause, ended_by);
        }
        match run.phase {
            StepPhase::Streaming { attempt_id, .. } => {
                self.effects.push(Effect::StopModel { attempt_id });
                self.stop_message(partial)
            }
            StepPhase::BackingOff { .. } => self.stop_message(None),
            StepPhase::BetweenSteps | StepPhase::RunningCalls => None,
        }
    }

    fn cancel_call(&mut self, call: &Call, cause: &str, ended_by: &UserId) {
        let call_id = call.call_id;
        self.close_child_for_call(call_id, ended_by);
        let error = match call.phase {
            CallPhase::Running { .. } | CallPhase::BackingOff { .. }
                if let Some(child) = self.active.child_for_call(call_id) =>
            {
                let (agent, child) = (&child.agent, child.session_id);
                format!(
                    "{cause} while {agent} worked on the task in session {child}; its earlier \
                         actions may have taken effect"
                )
            }
            CallPhase::Running { attempt_id, .. } => {
                self.effects.push(Effect::StopTool { call_id, attempt_id });
                // A call that may safely be repeated may still have taken effect.
                if call.may_have_taken_effect() {
                    format!("{cause} while the call ran; it may have taken effect")
                } else {
                    format!("{cause} while the call ran")
                }
            }
            CallPhase::BackingOff { .. } if call.may_have_taken_effect() => format!(
                "{cause} before the call was retried; an earlier attempt may have taken effect"
            ),
            // The outcome of the call is unknown.
            CallPhase::AwaitingApproval { .. } | CallPhase::Allowed
                if call.may_have_taken_effect() =>
            {
                format!(
                    "{cause} while the outcome of the call was unknown; it may have taken effect"
                )
            }
            CallPhase::Proposed
            | CallPhase::AwaitingApproval { .. }
            | CallPhase::Allowed
            | CallPhase::BackingOff { .. }
            | CallPhase::Finished(_) => format!("{cause}; the call did not take effect"),
        };
        self.fail_call(call_id, CallFailureReason::Cancelled, error, false);
    }

    /// Completes the open message as a stopped message with the text received so far, or discards
    /// it if there is no text. Records the usage in both cases. Returns the id of a kept message.
    fn stop_message(&mut self, partial: Option<Completion>) -> Option<MessageId> {
        let Completion { message, usage, stop_reason, dropped_calls: _ } =
            partial.unwrap_or_default();
        let open = self.active.run.as_ref().and_then(|run| run.open_message()).cloned();
        let kept = open.filter(|_| !message.text.is_empty());
        match kept.clone() {
            Some(message_id) => self.emit(SessionEvent::MessageCompleted {
                message_id,
                text: message.text,
                reasoning: Vec::new(),
                stop_reason,
                stopped: true,
            }),
            None => self.discard_message("the run was cancelled"),
        }
        if kept.is_some() || usage != TokenUsage::default() {
            let usage = self.price_usage(usage);
            self.emit(SessionEvent::StepCompleted { usage, stop_reason });
        }
        kept
    }
}
