//! Resumes a session whose state was rebuilt from the log (D2, D3). Attempts that were in progress
//! no longer run: repeatable ones are repeated, and for the others the outcome is unknown.

use super::{DecisionBuilder, Reply};
use crate::{call::CallPhase, policy::Settings, session::StepPhase, usage::TokenUsage};
use std::time::Duration;

/// The reason recorded for attempts that a restart ended.
const RESTART_REASON: &str = "the server restarted";

impl DecisionBuilder<'_> {
    pub(super) fn decide_rehydrated(&mut self, user_settings: Option<&Settings>) -> Reply {
        if let Some(user_settings) = user_settings {
            self.decide_narrow_settings(user_settings);
        }
        let run = self.active.run.clone();
        if let Some(run) = run {
            if let StepPhase::Streaming { attempt, failures, .. } = run.phase {
                // The text that clients received is not known, so they get a new message.
                self.discard_message(RESTART_REASON);
                // The usage of the interrupted attempt was not reported.
                let usage =
                    self.price_usage(TokenUsage { estimated: true, ..TokenUsage::default() });
                self.retry_step(
                    attempt,
                    failures,
                    Duration::ZERO,
                    RESTART_REASON.to_owned(),
                    usage,
                );
            }
            for call in &run.calls {
                let CallPhase::Running { attempt_id, attempt, failures } = call.phase else {
                    continue;
                };
                self.cancel_elicitations_of(attempt_id);
                // The child continues by itself, and the next attempt finds it.
                let has_child = self.active.child_for_call(call.call_id).is_some();
                if call.repeatable || has_child {
                    let (call_id, reason) = (call.call_id, RESTART_REASON.to_owned());
                    let delay = Duration::ZERO;
                    self.retry_call(call_id, attempt, failures, delay, reason, !has_child);
                } else {
                    self.request_outcome(call.call_id, "the server restarted while the call ran");
                }
            }
        }
        self.close_orphaned_children();
        self.expire_overdue();
        self.advance();
        Reply::Done
    }
}
