//! Coming back from the log (D2, D3): what ran before does not run any more. What may safely
//! repeat does; of the rest nobody knows, and a person is asked.

use super::{DecisionBuilder, Reply};
use crate::{call::CallPhase, policy::Settings, session::StepPhase, usage::ModelUsage};
use std::time::Duration;

/// What people read as the reason.
const RESTART_REASON: &str = "the server restarted";

impl DecisionBuilder<'_> {
    pub(super) fn decide_rehydrated(&mut self, within: Option<&Settings>) -> Reply {
        if let Some(within) = within {
            self.decide_narrow_settings(within);
        }
        let run = self.active.run.clone();
        if let Some(run) = run {
            if let StepPhase::Streaming { attempt, failures, .. } = run.phase {
                // How much of it clients saw is not known: they get a new one.
                self.discard_message(RESTART_REASON);
                // What it had cost by then nobody told.
                let usage = ModelUsage::default();
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
                // A child goes on by itself, and the next attempt finds it.
                let has_child = self.active.child_for_call(call.call_id).is_some();
                if call.repeatable || has_child {
                    let (id, reason) = (call.call_id, RESTART_REASON.to_owned());
                    self.retry_call(id, attempt, failures, Duration::ZERO, reason, !has_child);
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
