//! Tool calls: proposes and schedules them, and handles the end of an attempt (S3, R1 to R3).
//! [`super::authorization`] decides if a call may run.

use super::{DecisionBuilder, Reply, authorization::AuthorizationOutcome};
use crate::{
    call::{
        Call, CallFailureReason, CallPhase, RetryPolicy, ToolOutcome,
        retry::{CallFailure, FailureAction, classify_failure},
    },
    ids::{AttemptId, CallId, RunId},
    json::Digest,
    limits,
    message::{Message, ProposedCall},
    model::delta::StopReason,
    policy::{Risk, Tool},
    session::{Effect, Lifecycle, SessionEvent},
    text::truncate,
};
use std::{sync::Arc, time::Duration};

/// Appended to the error of a call if an earlier attempt may have taken effect.
const EARLIER_ATTEMPT_NOTE: &str = ". An earlier attempt may have taken effect";

/// The calls of a complete message.
pub(super) struct ProposedCalls {
    /// The calls, in the model's order.
    pub(super) calls: Vec<ProposedCall>,
    /// The number of further calls, which were not kept.
    pub(super) dropped: usize,
    /// The reason why the model stopped.
    pub(super) stop_reason: StopReason,
}

impl ProposedCalls {
    /// Returns the error of calls beyond `limit`. It counts the calls that were not kept.
    fn describe_excess(&self, limit: usize) -> String {
        let (kept, total) = (self.calls.len(), self.calls.len() + self.dropped);
        let mut text = format!("the message has {total} calls; the limit is {limit}");
        if self.dropped > 0 {
            text.push_str(&format!(", and only the first {kept} are recorded"));
        }
        text
    }
}

impl DecisionBuilder<'_> {
    /// Records the calls of a complete message, authorizes each, and requests the approvals they
    /// need, all in one commit. Calls of a refused message and calls beyond the limit end at once.
    pub(super) fn propose_calls(&mut self, proposed: ProposedCalls) {
        let limit = self.env.rules.message_limits.calls;
        let excess = proposed.describe_excess(limit);
        let refusal = describe_refusal(proposed.stop_reason);
        let propose = |(position, call): (usize, ProposedCall)| {
            let call_id = CallId(self.env.uuid());
            let tool = self.tool(&call.tool);
            self.emit_call_started(call_id, &call, tool.as_deref());
            let failure = match refusal {
                // The message is partial, so the call may not be what the model intended.
                Some(error) => Some((CallFailureReason::Refused, error.to_owned())),
                None if position < limit => None,
                None => Some((CallFailureReason::LimitExceeded, excess.clone())),
            };
            let outcome = match failure {
                Some((reason, error)) => {
                    self.fail_call(call_id, reason, error, false);
                    AuthorizationOutcome::Settled
                }
                None => self.authorize_call(call_id, &call, tool),
            };
            (call_id, outcome)
        };
        let outcomes = proposed.calls.into_iter().enumerate().map(propose).collect();
        self.request_approvals(outcomes);
    }

    /// Requests what the calls still need: approval, or a budget raise.
    pub(super) fn request_approvals(&mut self, outcomes: Vec<(CallId, AuthorizationOutcome)>) {
        let (mut drafts, mut over_budget) = (Vec::new(), Vec::new());
        for (call_id, outcome) in outcomes {
            match outcome {
                AuthorizationOutcome::Settled => {}
                AuthorizationOutcome::NeedsApproval(draft) => drafts.push(draft),
                AuthorizationOutcome::NeedsBudget(cost) => over_budget.push((call_id, cost)),
            }
        }
        self.request_plan_approval(drafts);
        self.request_budget_raises(over_budget);
    }

    fn emit_call_started(&mut self, call_id: CallId, call: &ProposedCall, tool: Option<&Tool>) {
        self.emit(SessionEvent::ToolCallStarted {
            call_id,
            provider_id: call.provider_id.clone(),
            tool: call.tool.clone(),
            server: tool.map(|tool| tool.server.clone()),
            arguments: Arc::new(call.arguments.clone()),
            digest: Digest::hash_json(&call.arguments.to_value()),
            risk: tool.map_or(Risk::default(), |tool| tool.risk),
            parallel: tool.is_some_and(|tool| tool.parallel),
            repeatable: tool.is_some_and(|tool| tool.repeatable),
        });
    }

    /// Starts the calls that may start now: parallel calls while slots are free, and of the other
    /// calls only the first that is not finished (S3). A call that waits for an exclusive lock
    /// keeps its slot (T8).
    pub(super) fn schedule_calls(&mut self) {
        loop {
            let (mut all_started, mut unmet) = (true, Vec::new());
            for (call_id, attempt) in self.due_calls() {
                match self.recheck_before_attempt(call_id) {
                    None => all_started &= self.start_or_acquire_lock(call_id, attempt),
                    Some(outcome) => {
                        all_started = false;
                        unmet.push((call_id, outcome));
                    }
                }
            }
            self.request_approvals(unmet);
            // A call that could not start has ended or waits for approval; its slot is free again.
            if all_started {
                return;
            }
        }
    }

    /// Returns the calls that are due, each with the number of its next attempt.
    fn due_calls(&self) -> Vec<(CallId, u32)> {
        let Some(run) = &self.active.run else { return Vec::new() };
        // A call in backoff keeps its slot for the next attempt.
        let mut slots_taken = run.calls.iter().filter(|call| call.is_in_progress()).count();
        let slots = self.env.rules.parallel_calls_max.max(1);
        let mut child_slots = self.free_child_slots();
        let mut serial_taken = false;
        let mut due = Vec::new();
        for call in &run.calls {
            let may_start = call.parallel || !serial_taken;
            serial_taken |= !call.parallel && !call.is_finished();
            match call.phase {
                CallPhase::Allowed if may_start && slots_taken < slots => {
                    if self.is_delegation(call) {
                        let Some(remaining) = child_slots.checked_sub(1) else { continue };
                        child_slots = remaining;
                    }
                    slots_taken += 1;
                    due.push((call.call_id, call.attempts + 1));
                }
                CallPhase::BackingOff { until, attempts, .. } if until <= self.env.now => {
                    due.push((call.call_id, attempts + 1));
                }
                CallPhase::Proposed
                | CallPhase::AwaitingApproval { .. }
                | CallPhase::Allowed
                | CallPhase::Running { .. }
                | CallPhase::BackingOff { .. }
                | CallPhase::Finished(_) => {}
            }
        }
        due
    }

    /// Starts an attempt; returns false if it can't start and the call has ended.
    pub(super) fn start_call(&mut self, call_id: CallId, attempt: u32) -> bool {
        let Some(call) = self.call(call_id) else { return true };
        let Some(run_id) = self.active.run.as_ref().map(|run| run.run_id) else { return true };
        if self.is_delegation(call) {
            let call = call.clone();
            if self.start_child(&call, run_id, attempt).is_none() {
                let error = "`agent` and `task` are required".to_owned();
                self.fail_call(call_id, CallFailureReason::InvalidArguments, error, false);
                return false;
            }
            return true;
        }
        let (tool, arguments) = (call.tool.clone(), call.effective_arguments());
        let attempt_id = AttemptId(self.env.uuid());
        let child = None;
        self.emit(SessionEvent::ToolCallAttemptStarted { call_id, attempt_id, attempt, child });
        self.effects.push(Effect::StartTool { run_id, call_id, attempt_id, tool, arguments });
        true
    }

    pub(super) fn decide_tool_finished(
        &mut self,
        call_id: CallId,
        finished_attempt_id: AttemptId,
        outcome: ToolOutcome,
    ) -> Reply {
        let Some(call) = self.call(call_id) else {
            return self.record_late_result(call_id, finished_attempt_id, &outcome);
        };
        let (tool, repeatable) = (call.tool.clone(), call.repeatable);
        let (attempt, failures) = match call.phase {
            CallPhase::Running { attempt_id, attempt, failures }
                if attempt_id == finished_attempt_id =>
            {
                (attempt, failures + 1)
            }
            CallPhase::Proposed
            | CallPhase::AwaitingApproval { .. }
            | CallPhase::Allowed
            | CallPhase::Running { .. }
            | CallPhase::BackingOff { .. }
            | CallPhase::Finished(_) => {
                let summary = summarize_outcome(&outcome);
                let attempt_id = finished_attempt_id;
                self.emit(SessionEvent::LateResult { call_id, attempt_id, summary });
                return Reply::Done;
            }
        };
        self.cancel_elicitations_of(finished_attempt_id);
        match classify_failure(&outcome, repeatable) {
            None => {
                let ToolOutcome::Completed(output) = outcome else { return Reply::Done };
                self.emit(SessionEvent::ToolCallCompleted { call_id, tool, output });
            }
            Some(FailureAction::Fail(CallFailure { reason, error })) => {
                self.fail_call(call_id, reason, error, false);
            }
            Some(FailureAction::OutcomeUnknown { reason }) => {
                self.request_outcome(call_id, &reason)
            }
            Some(FailureAction::Retry { reason, final_failure }) => {
                let policy = self.retry_policy(&tool);
                if policy.allows_retry_after(failures) {
                    let delay = policy.delay(failures, self.env.random_fraction());
                    let maybe_ran = final_failure.reason.leaves_effect_unknown();
                    self.retry_call(call_id, attempt, failures, delay, reason, maybe_ran);
                } else {
                    let exhausted = policy.retries_max > 0;
                    self.fail_call(call_id, final_failure.reason, final_failure.error, exhausted);
                }
            }
        }
        self.close_child_of_finished_call(call_id);
        self.advance();
        Reply::Done
    }

    /// Records the result of a call whose step or run has ended (R1). It may be the only
    /// information about a call whose outcome is unknown.
    fn record_late_result(
        &mut self,
        call_id: CallId,
        attempt_id: AttemptId,
        outcome: &ToolOutcome,
    ) -> Reply {
        let run_id = self.find_run_of_ended_call(call_id);
        if run_id.is_some() && self.active.lifecycle == Lifecycle::Open {
            let summary = summarize_outcome(outcome);
            self.emit_for(run_id, None, SessionEvent::LateResult { call_id, attempt_id, summary });
        }
        Reply::Done
    }

    fn find_run_of_ended_call(&self, call_id: CallId) -> Option<RunId> {
        // A late result usually belongs to a recent call, so the newest messages are searched
        // first.
        let mut messages = self.session.conversation.newest_first_from(0);
        let proposes = |message: &Message| match message {
            Message::Assistant(message) => message.calls.iter().any(|call| call.call_id == call_id),
            Message::User { .. } | Message::ToolResults(_) => false,
        };
        messages.find(|message| proposes(message))?;
        let user_message_id = messages.find_map(|message| match message {
            Message::User { message_id, .. } => Some(message_id),
            Message::Assistant(_) | Message::ToolResults(_) => None,
        })?;
        self.session.submissions.get(user_message_id).map(|submission| submission.run_id)
    }

    pub(super) fn retry_call(
        &mut self,
        call_id: CallId,
        ended_attempt: u32,
        failures: u32,
        delay: Duration,
        reason: String,
        maybe_ran: bool,
    ) {
        let Some(tool) = self.call(call_id).map(|call| call.tool.clone()) else { return };
        let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        let until = self.env.now.saturating_add(delay);
        self.emit(SessionEvent::ToolCallRetrying {
            call_id,
            tool,
            attempt: ended_attempt,
            failures,
            delay_ms,
            until,
            reason,
            maybe_ran,
        });
    }

    /// Ends a call without a result. If an earlier attempt may have taken effect, the error says
    /// so, and a definite failure of the last attempt becomes an unknown outcome (D3).
    pub(super) fn fail_call(
        &mut self,
        call_id: CallId,
        reason: CallFailureReason,
        error: String,
        retries_exhausted: bool,
    ) {
        use CallFailureReason as R;
        let Some(call) = self.call(call_id) else { return };
        let was_cut_off = reason == R::Cancelled
            && (matches!(call.phase, CallPhase::Running { .. })
                || self.active.child_for_call(call_id).is_some());
        let maybe_ran = call.maybe_ran || reason.leaves_effect_unknown() || was_cut_off;
        let (tool, attempts) = (call.tool.clone(), call.attempts);
        let (reason, error) = match reason {
            reason if !call.maybe_ran || call.risk == Risk::ReadOnly => (reason, error),
            // The error texts of these reasons already say that the call may have taken effect.
            R::Timeout | R::Crashed | R::Cancelled => (reason, error),
            R::Rejected | R::Expired => (reason, format!("{error}{EARLIER_ATTEMPT_NOTE}")),
            R::Error
            | R::InvalidArguments
            | R::UnknownTool
            | R::Unavailable
            | R::OutcomeUnknown
            | R::Refused
            | R::LimitExceeded => (R::OutcomeUnknown, format!("{error}{EARLIER_ATTEMPT_NOTE}")),
        };
        self.emit(SessionEvent::ToolCallFailed {
            call_id,
            tool,
            reason,
            error,
            retries_exhausted,
            attempts,
            maybe_ran,
        });
    }

    pub(super) fn decide_tool_progressed(
        &mut self,
        call_id: CallId,
        reporting_attempt_id: AttemptId,
        progress: f64,
        total: Option<f64>,
        message: Option<String>,
    ) -> Reply {
        let Some(call) = self.call(call_id) else { return Reply::Done };
        let tool = call.tool.clone();
        if matches!(
            call.phase,
            CallPhase::Running { attempt_id, .. } if attempt_id == reporting_attempt_id
        ) {
            let shorten =
                |text: String| truncate(&text, limits::PROGRESS_MESSAGE_BYTES_MAX).to_owned();
            let message = message.map(shorten);
            // JSON has no infinity and no NaN.
            let progress = if progress.is_finite() { progress } else { 0.0 };
            let total = total.filter(|total| total.is_finite());
            let event = SessionEvent::ToolCallProgress { call_id, tool, progress, total, message };
            self.emit(event);
        }
        Reply::Done
    }

    pub(super) fn call(&self, call_id: CallId) -> Option<&Call> {
        let mut calls = self.active.run.iter().flat_map(|run| &run.calls);
        calls.find(|call| call.call_id == call_id)
    }

    pub(super) fn all_calls_finished(&self) -> bool {
        self.active.run.iter().flat_map(|run| &run.calls).all(Call::is_finished)
    }

    fn retry_policy(&self, tool: &str) -> RetryPolicy {
        self.env.rules.tool(tool).map(|tool| tool.retry).unwrap_or_default()
    }
}

/// Returns the error of the calls of a refused message; `None` for other messages.
fn describe_refusal(stop_reason: StopReason) -> Option<&'static str> {
    match stop_reason {
        StopReason::Refusal => Some("the model refused while it wrote the message of this call"),
        StopReason::ContentFilter => {
            Some("the provider's content filter cut off the message of this call")
        }
        StopReason::EndTurn
        | StopReason::ToolUse
        | StopReason::MaxTokens
        | StopReason::TextLimit
        | StopReason::StopSequence => None,
    }
}

fn summarize_outcome(outcome: &ToolOutcome) -> String {
    let text = match outcome {
        ToolOutcome::Completed(output) => format!("completed: {}", output.text),
        ToolOutcome::Failed { error, .. } => format!("failed: {error}"),
        ToolOutcome::NotSent { error } => format!("not sent: {error}"),
        ToolOutcome::TimedOut { after_ms } => format!("no answer within {after_ms} ms"),
        ToolOutcome::Crashed { error } => format!("crashed: {error}"),
    };
    truncate(&text, limits::PROGRESS_MESSAGE_BYTES_MAX).to_owned()
}
