//! What a session does while the log can't be written (D1, D8): commands are refused, workers'
//! results are kept in the order they came and tried again, and nothing new starts meanwhile.

use super::{CommandError, End, ReplySender, Session, respond};
use crate::{limits::STORE_RETRY_DELAY, ports::JournalError};
use actix::{ActorFutureExt, AsyncContext, Context, SpawnHandle, WrapFuture};
use greenroom_core::{ids::Seq, session::Input};
use std::{collections::VecDeque, time::Duration};

/// What is known of an outage.
#[derive(Default)]
pub(super) struct Outage {
    /// At most one end and a bounded number of questions for each worker, one turn for each call,
    /// and wake-ups.
    kept: VecDeque<Input>,
    /// Whether what failed may have been stored all the same.
    in_doubt: bool,
    retry: Option<SpawnHandle>,
}

impl Outage {
    /// Whether nothing is kept.
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Something was stored, so nothing was stored behind our back.
    pub(super) fn is_over(&mut self) {
        self.in_doubt = false;
    }
}

/// The answer to commands while results wait to be stored.
pub(super) fn not_storing() -> CommandError {
    CommandError::Unavailable("what has happened before can't be stored yet".to_owned())
}

impl Session {
    /// Takes a fact, after those that came before it.
    pub(super) fn hear(&mut self, input: Input, ctx: &mut Context<Self>) {
        if self.outage.is_empty() {
            self.take(input, None, ctx);
        } else if !matches!(input, Input::ToolProgressed { .. }) {
            // Progress may be lost, and would be the only thing here without a bound.
            self.outage.kept.push_back(input);
        }
    }

    pub(super) fn not_appended(
        &mut self,
        error: JournalError,
        kept: Option<Input>,
        reply: Option<ReplySender>,
        ctx: &mut Context<Self>,
    ) {
        self.watch.fail(&error.to_string());
        respond(reply, Err(CommandError::Unavailable(error.to_string())));
        match error {
            // Somebody else wrote: the log is the truth.
            JournalError::Conflict => self.end(End::Outdated(error.to_string()), ctx),
            JournalError::Corrupt(_) => self.end(End::Failed(error.to_string()), ctx),
            JournalError::Unavailable(_) | JournalError::OverBudget => {
                // The oldest of what is kept, if it came from there.
                if let Some(input) = kept.or_else(|| self.cut_in_vain()) {
                    self.outage.kept.push_front(input);
                }
                self.outage.in_doubt = true;
                self.watch.set_state("not storing", Some("the database".to_owned()));
                self.retry_in(STORE_RETRY_DELAY, ctx);
            }
        }
    }

    /// Goes on with the next of what is kept.
    pub(super) fn store_what_is_kept(&mut self, ctx: &mut Context<Self>) {
        if !self.outage.is_empty() {
            self.retry_in(Duration::ZERO, ctx);
        }
    }

    fn retry_in(&mut self, delay: Duration, ctx: &mut Context<Self>) {
        if let Some(retry) = self.outage.retry.take() {
            ctx.cancel_future(retry);
        }
        self.outage.retry = Some(ctx.run_later(delay, |actor, ctx| {
            actor.outage.retry = None;
            if ctx.waiting() {
                actor.retry_in(Duration::ZERO, ctx);
            } else if actor.outage.in_doubt {
                actor.look_at_the_log(ctx);
            } else {
                actor.store_next(ctx);
            }
        }));
    }

    /// A failed append may have been stored: then the log knows more than we do.
    fn look_at_the_log(&mut self, ctx: &mut Context<Self>) {
        let (journal, session_id) = (self.around.journal.clone(), self.state.session_id);
        let head = async move { journal.head(session_id).await };
        ctx.wait(head.into_actor(self).map(|head: Result<Seq, _>, actor, ctx| match head {
            Ok(head) if head == actor.state.head => {
                actor.outage.in_doubt = false;
                actor.store_next(ctx);
            }
            Ok(_) => {
                let error = "what could not be stored was stored after all".to_owned();
                actor.end(End::Outdated(error), ctx);
            }
            Err(_) => actor.retry_in(STORE_RETRY_DELAY, ctx),
        }));
    }

    fn store_next(&mut self, ctx: &mut Context<Self>) {
        match self.outage.kept.pop_front() {
            Some(input) => self.take(input, None, ctx),
            None => self.settle(ctx),
        }
    }
}
