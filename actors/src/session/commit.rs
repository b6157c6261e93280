//! Handles one input: decides it, commits the decision, then publishes and dispatches it (D1).

use super::{ReplySender, Session, respond};
use crate::{
    limits::BUDGET_CONFLICT_RETRIES_MAX,
    ports::{Commit, JournalError},
};
use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use greenroom_core::{
    Env, Rules,
    budget::{BudgetScope, UserSpending},
    session::{Decision, EventRecord, Input, Projection, decide, evolve},
};
use std::sync::{Arc, atomic::Ordering::Relaxed};

/// An input being processed, and the number of times another session spent the rest of the user's
/// budget before this one.
pub(super) struct InFlightInput {
    pub(super) input: Input,
    pub(super) reply: Option<ReplySender>,
    pub(super) budget_conflicts: u32,
}

impl Session {
    /// Decides `input` and commits the decision before any effect is performed.
    pub(super) fn handle_input(
        &mut self,
        input: Input,
        reply: Option<ReplySender>,
        ctx: &mut Context<Self>,
    ) {
        self.load_spending_then_decide(InFlightInput { input, reply, budget_conflicts: 0 }, ctx);
    }

    /// Loads the user's spending in all sessions if a user budget applies (G6), then decides.
    pub(super) fn load_spending_then_decide(
        &mut self,
        in_flight: InFlightInput,
        ctx: &mut Context<Self>,
    ) {
        let rules = self.rules_for(&in_flight.input);
        if !self.depends_on_spending(&in_flight.input, &rules) {
            return self.decide_and_commit(in_flight, UserSpending::default(), &rules, ctx);
        }
        let Some(identity) = &self.state.metadata else { return };
        let (journal, user) = (self.deps.journal.clone(), identity.owner.clone());
        let today = self.deps.clock.now().day();
        let defaults = self.deps.governance.default_settings.clone();
        let spending = async move {
            let stored = journal.load_settings(&user).await?;
            let limit = stored
                .map_or_else(|| defaults.budget_limit.clone(), |settings| settings.budget_limit);
            Ok(UserSpending { limit, totals: journal.load_spending(&user, today).await? })
        };
        ctx.wait(spending.into_actor(self).map(
            move |spending: Result<UserSpending, JournalError>, actor, ctx| match spending {
                Ok(spending) => actor.decide_and_commit(in_flight, spending, &rules, ctx),
                Err(error) => {
                    let deferred = in_flight.reply.is_none().then_some(in_flight.input);
                    actor.handle_append_error(error, deferred, in_flight.reply, ctx);
                }
            },
        ));
    }

    /// True if the decision on `input` may depend on the user's spending.
    fn depends_on_spending(&self, input: &Input, rules: &Rules) -> bool {
        let has_budget = self.state.active.settings.budget_limit.is_some()
            || rules.ceilings.has_budgets()
            || rules.agent.budgets.iter().any(|budget| budget.scope == BudgetScope::User);
        let may_spend = match input {
            Input::SubmitMessage { .. }
            | Input::Interrupt { .. }
            | Input::CancelRun { .. }
            | Input::AnswerApproval { .. }
            | Input::ModelFinished { .. }
            | Input::ToolFinished { .. }
            | Input::ExclusiveLockGranted { .. }
            | Input::Wake
            | Input::Rehydrated { .. } => true,
            Input::CreateSession { .. }
            | Input::ForkSession { .. }
            | Input::CreateChild { .. }
            | Input::NarrowSettings { .. }
            | Input::ChildEventsReceived { .. }
            | Input::ChildGone { .. }
            | Input::ChangeSettings { .. }
            | Input::ChangeQueuedMessage { .. }
            | Input::WithdrawQueuedMessage { .. }
            | Input::CloseSession { .. }
            | Input::RevokeGrants { .. }
            | Input::GiveFeedback { .. }
            | Input::ToolProgressed { .. }
            | Input::ElicitationRequested { .. }
            | Input::ElicitationWithdrawn { .. } => false,
        };
        has_budget && may_spend && self.state.metadata.is_some()
    }

    fn decide_and_commit(
        &mut self,
        in_flight: InFlightInput,
        spending: UserSpending,
        rules: &Rules,
        ctx: &mut Context<Self>,
    ) {
        let InFlightInput { input, reply, budget_conflicts } = in_flight;
        let clock = &self.deps.clock;
        let is_draining = self.deps.draining.load(Relaxed);
        let env = Env::new(clock.now(), clock.seed(), rules)
            .with_user_spending(spending)
            .with_draining(is_draining);
        let original_input = input.clone();
        let decision = match decide(&self.state, input, &env) {
            Ok(decision) => decision,
            Err(rejection) => {
                respond(reply, Err(rejection.into()));
                return self.after_input(ctx);
            }
        };
        let Decision { events, preconditions, effects, reply: reply_value } = decision;
        if events.is_empty() {
            // Effects that need no record, such as acquiring a lock, are dispatched at once.
            self.locks.mark_held(&original_input);
            self.dispatch(effects, rules, ctx);
            respond(reply, Ok(reply_value));
            return self.after_input(ctx);
        }
        let next = events.iter().fold(self.state.clone(), evolve);
        let records: Arc<[EventRecord]> = events.into();
        let mut projection = Projection::diff(&self.state, &next).with_preconditions(preconditions);
        if self.deps.governance.has_user_model_budget() {
            projection = projection.with_model_usage(&self.state, &next, env.now.day());
        }
        let commit = Commit {
            session_id: self.state.session_id,
            expected_head: self.state.last_seq,
            records: records.clone(),
            projection,
        };
        let (journal, rules) = (self.deps.journal.clone(), rules.clone());
        let append = async move { journal.append(commit).await };
        ctx.wait(append.into_actor(self).map(move |result, actor, ctx| match result {
            Ok(()) => {
                actor.state = next;
                actor.outage.clear_uncertainty();
                actor.stopped_stream = None;
                actor.locks.mark_held(&original_input);
                actor.publish(&records);
                actor.dispatch(effects, &rules, ctx);
                respond(reply, Ok(reply_value));
                actor.after_input(ctx);
            }
            // Another session spent the user's budget first: decide again with what remains.
            Err(JournalError::BudgetExceeded) if budget_conflicts < BUDGET_CONFLICT_RETRIES_MAX => {
                let budget_conflicts = budget_conflicts + 1;
                actor.load_spending_then_decide(
                    InFlightInput { input: original_input, reply, budget_conflicts },
                    ctx,
                );
            }
            Err(error) => {
                let deferred = reply.is_none().then_some(original_input);
                actor.handle_append_error(error, deferred, reply, ctx);
            }
        }));
    }
}
