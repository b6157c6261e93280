//! The session's behaviour while the log can't be written (D1, D8): commands are rejected, workers'
//! results are deferred in order and retried, and nothing new starts.

use super::{CommandError, ReplySender, Session, SessionExitStatus, respond};
use crate::{limits::STORE_RETRY_DELAY, ports::JournalError};
use actix::{ActorFutureExt, AsyncContext, Context, SpawnHandle, WrapFuture};
use greenroom_core::{ids::Seq, session::Input};
use std::{collections::VecDeque, time::Duration};

/// Inputs and timers of a storage outage.
#[derive(Default)]
pub(super) struct Outage {
    /// Worker results to store once the log is available. Bounded: at most one end and a limited
    /// number of elicitations for each worker, one lock grant for each call, and wake-ups.
    deferred_inputs: VecDeque<Input>,
    /// True if the failed append may have been stored.
    append_uncertain: bool,
    retry: Option<SpawnHandle>,
}

impl Outage {
    /// True if no input is deferred.
    pub(super) fn is_empty(&self) -> bool {
        self.deferred_inputs.is_empty()
    }

    /// Records that an append succeeded, so no earlier append was stored unnoticed.
    pub(super) fn clear_uncertainty(&mut self) {
        self.append_uncertain = false;
    }
}

/// Returns the error for commands while results wait to be stored.
pub(super) fn storage_unavailable() -> CommandError {
    CommandError::Unavailable("earlier results can't be stored yet".to_owned())
}

impl Session {
    /// Handles a worker's result after the results that were deferred before it.
    pub(super) fn handle_fact(&mut self, input: Input, ctx: &mut Context<Self>) {
        if self.outage.is_empty() {
            self.handle_input(input, None, ctx);
        } else if !matches!(input, Input::ToolProgressed { .. }) {
            // Progress may be dropped. Deferring it would make the queue unbounded.
            self.outage.deferred_inputs.push_back(input);
        }
    }

    pub(super) fn handle_append_error(
        &mut self,
        error: JournalError,
        deferred: Option<Input>,
        reply: Option<ReplySender>,
        ctx: &mut Context<Self>,
    ) {
        self.status_entry.record_failure(&error.to_string());
        respond(reply, Err(CommandError::Unavailable(error.to_string())));
        match error {
            // Another writer appended: the log is authoritative.
            JournalError::Conflict => {
                self.stop_with(SessionExitStatus::NeedsRebuild(error.to_string()), ctx)
            }
            JournalError::Corrupt(_) => {
                self.stop_with(SessionExitStatus::Failed(error.to_string()), ctx)
            }
            JournalError::Unavailable(_) | JournalError::BudgetExceeded => {
                // Goes to the front: if the input was deferred before, it was the oldest one.
                if let Some(input) = deferred.or_else(|| self.take_stopped_stream_failure()) {
                    self.outage.deferred_inputs.push_front(input);
                }
                self.outage.append_uncertain = true;
                self.status_entry.set_state("not storing", Some("the database".to_owned()));
                self.schedule_retry(STORE_RETRY_DELAY, ctx);
            }
        }
    }

    /// Schedules the next deferred input, if there is one.
    pub(super) fn schedule_deferred_inputs(&mut self, ctx: &mut Context<Self>) {
        if !self.outage.is_empty() {
            self.schedule_retry(Duration::ZERO, ctx);
        }
    }

    fn schedule_retry(&mut self, delay: Duration, ctx: &mut Context<Self>) {
        if let Some(retry) = self.outage.retry.take() {
            ctx.cancel_future(retry);
        }
        self.outage.retry = Some(ctx.run_later(delay, |actor, ctx| {
            actor.outage.retry = None;
            if ctx.waiting() {
                actor.schedule_retry(Duration::ZERO, ctx);
            } else if actor.outage.append_uncertain {
                actor.verify_head(ctx);
            } else {
                actor.handle_next_deferred(ctx);
            }
        }));
    }

    /// Checks if the failed append was stored after all. If so, the session is rebuilt.
    fn verify_head(&mut self, ctx: &mut Context<Self>) {
        let (journal, session_id) = (self.deps.journal.clone(), self.state.session_id);
        let head = async move { journal.load_head(session_id).await };
        ctx.wait(head.into_actor(self).map(|head: Result<Seq, _>, actor, ctx| match head {
            Ok(head) if head == actor.state.last_seq => {
                actor.outage.append_uncertain = false;
                actor.handle_next_deferred(ctx);
            }
            Ok(_) => {
                let error = "a failed append was stored after all".to_owned();
                actor.stop_with(SessionExitStatus::NeedsRebuild(error), ctx);
            }
            Err(_) => actor.schedule_retry(STORE_RETRY_DELAY, ctx),
        }));
    }

    fn handle_next_deferred(&mut self, ctx: &mut Context<Self>) {
        match self.outage.deferred_inputs.pop_front() {
            Some(input) => self.handle_input(input, None, ctx),
            None => self.after_input(ctx),
        }
    }
}
