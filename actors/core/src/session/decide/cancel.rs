//! Cancelling (S6): everything open gets an end, and the session is usable at once.

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
        wanted: Option<RunId>,
        by: UserId,
        partial: Option<Completion>,
    ) -> Result<Reply, Rejection> {
        let running = self.active.run.as_ref().map(|run| run.run_id);
        let run_id = wanted.or(running).ok_or(Rejection::NoActiveRun)?;
        if running == Some(run_id) {
            self.cancel_run(&by, partial);
        } else if self.active.queue.iter().any(|queued| queued.run_id == run_id) {
            let usage = ModelUsage::default();
            let event = SessionEvent::RunCancelled { by, message_id: None, usage };
            self.emit_for(Some(run_id), None, event);
        } else {
            return Err(Rejection::RunNotActive { run_id });
        }
        self.advance();
        Ok(Reply::Cancelled { run_id })
    }

    /// Ends the run that is going, if one is: its questions, its calls, its message, itself.
    pub(super) fn cancel_run(&mut self, by: &UserId, partial: Option<Completion>) {
        if self.active.run.is_none() {
            return;
        }
        let message_id = self.end_open_work("the run was cancelled", by, partial);
        let usage = self.active.run.as_ref().map(|run| run.usage).unwrap_or_default();
        self.emit(SessionEvent::RunCancelled { by: by.clone(), message_id, usage });
    }

    /// Ends the run that is going, because it can't go on: its questions, its calls, itself.
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

    /// Ends all that is open in the run; tells which message was stopped.
    fn end_open_work(
        &mut self,
        why: &str,
        by: &UserId,
        partial: Option<Completion>,
    ) -> Option<MessageId> {
        let run = self.active.run.clone()?;
        let open: Vec<_> = self.active.approvals.iter().map(|o| o.approval.approval_id).collect();
        for approval_id in open {
            self.emit(SessionEvent::ApprovalCancelled { approval_id });
        }
        for call in run.calls.iter().filter(|call| !call.is_finished()) {
            self.cancel_call(call, why, by);
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

    fn cancel_call(&mut self, call: &Call, why: &str, by: &UserId) {
        let call_id = call.call_id;
        self.close_child_for_call(call_id, by);
        let error = match call.phase {
            CallPhase::Running { .. } | CallPhase::BackingOff { .. }
                if let Some(child) = self.active.child_for_call(call_id) =>
            {
                let (agent, child) = (&child.agent, child.session_id);
                format!(
                    "{why} while {agent} worked on it in session {child}; what that did before \
                         may have taken effect"
                )
            }
            CallPhase::Running { attempt_id, .. } => {
                self.effects.push(Effect::StopTool { call_id, attempt_id });
                // That it could be repeated does not say that it did not happen.
                if call.may_have_taken_effect() {
                    format!("{why} while the call ran; it may have taken effect")
                } else {
                    format!("{why} while the call ran")
                }
            }
            CallPhase::BackingOff { .. } if call.may_have_taken_effect() => format!(
                "{why} before the call was tried again; an earlier attempt may have taken effect"
            ),
            // A person was asked what became of it.
            CallPhase::AwaitingApproval { .. } | CallPhase::Allowed
                if call.may_have_taken_effect() =>
            {
                format!(
                    "{why} before anybody knew what became of the call; it may have taken effect"
                )
            }
            CallPhase::Proposed
            | CallPhase::AwaitingApproval { .. }
            | CallPhase::Allowed
            | CallPhase::BackingOff { .. }
            | CallPhase::Finished(_) => format!("{why}; the call did not take effect"),
        };
        self.fail_call(call_id, CallFailureReason::Cancelled, error, false);
    }

    /// Keeps what was said so far as a stopped message; without a word of it, there is none. What
    /// it cost counts either way.
    fn stop_message(&mut self, partial: Option<Completion>) -> Option<MessageId> {
        let Completion { message, usage, stop_reason } = partial.unwrap_or_default();
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
