//! One input: decided, committed, and only then published and acted upon (D1).

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

/// An input on its way through, and how often another session has been faster with the last of
/// their user's budget.
pub(super) struct InFlightInput {
    pub(super) input: Input,
    pub(super) reply: Option<ReplySender>,
    pub(super) budget_conflicts: u32,
}

impl Session {
    /// Decides `input`, and commits what was decided before anything else happens.
    pub(super) fn handle_input(
        &mut self,
        input: Input,
        reply: Option<ReplySender>,
        ctx: &mut Context<Self>,
    ) {
        self.load_spending_then_decide(InFlightInput { input, reply, budget_conflicts: 0 }, ctx);
    }

    /// Decides, with what the user has spent elsewhere where a budget of theirs counts (G6).
    pub(super) fn load_spending_then_decide(
        &mut self,
        taking: InFlightInput,
        ctx: &mut Context<Self>,
    ) {
        let rules = self.rules_for(&taking.input);
        if !self.depends_on_spending(&taking.input, &rules) {
            return self.decide_and_commit(taking, UserSpending::default(), &rules, ctx);
        }
        let Some(identity) = &self.state.metadata else { return };
        let (journal, user) = (self.deps.journal.clone(), identity.owner.clone());
        let today = self.deps.clock.now().day();
        let defaults = self.deps.governance.default_settings.clone();
        let account = async move {
            let stored = journal.load_settings(&user).await?;
            let limit = stored.map_or_else(|| defaults.budget_limit.clone(), |it| it.budget_limit);
            Ok(UserSpending { limit, totals: journal.load_spending(&user, today).await? })
        };
        ctx.wait(account.into_actor(self).map(
            move |account: Result<UserSpending, JournalError>, actor, ctx| match account {
                Ok(account) => actor.decide_and_commit(taking, account, &rules, ctx),
                Err(error) => {
                    let kept = taking.reply.is_none().then_some(taking.input);
                    actor.handle_append_error(error, kept, taking.reply, ctx);
                }
            },
        ));
    }

    /// Whether what `input` leads to may depend on what the user has spent.
    fn depends_on_spending(&self, input: &Input, rules: &Rules) -> bool {
        let has_budget = self.state.active.settings.budget_limit.is_some()
            || rules.agent.budgets.iter().any(|budget| budget.scope == BudgetScope::User);
        let spends = match input {
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
            | Input::CloseSession { .. }
            | Input::RevokeGrants { .. }
            | Input::GiveFeedback { .. }
            | Input::ToolProgressed { .. }
            | Input::ElicitationRequested { .. }
            | Input::ElicitationWithdrawn { .. } => false,
        };
        has_budget && spends && self.state.metadata.is_some()
    }

    fn decide_and_commit(
        &mut self,
        taking: InFlightInput,
        account: UserSpending,
        rules: &Rules,
        ctx: &mut Context<Self>,
    ) {
        let InFlightInput { input, reply, budget_conflicts: races_lost } = taking;
        let clock = &self.deps.clock;
        let is_draining = self.deps.draining.load(Relaxed);
        let env = Env::new(clock.now(), clock.seed(), rules)
            .with_user_spending(account)
            .with_draining(is_draining);
        let kept = input.clone();
        let decided = match decide(&self.state, input, &env) {
            Ok(decided) => decided,
            Err(rejection) => {
                respond(reply, Err(rejection.into()));
                return self.after_input(ctx);
            }
        };
        let Decision { events, preconditions: claims, effects, reply: answer } = decided;
        if events.is_empty() {
            // Nothing to wait for: what needs no record, as waiting for a turn, begins.
            self.locks.mark_held(&kept);
            self.dispatch(effects, rules, ctx);
            respond(reply, Ok(answer));
            return self.after_input(ctx);
        }
        let next = events.iter().fold(self.state.clone(), evolve);
        let records: Arc<[EventRecord]> = events.into();
        let mut projection = Projection::diff(&self.state, &next).with_preconditions(claims);
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
        ctx.wait(append.into_actor(self).map(move |appended, actor, ctx| match appended {
            Ok(()) => {
                actor.state = next;
                actor.outage.clear_uncertainty();
                actor.stopped_stream = None;
                actor.locks.mark_held(&kept);
                actor.publish(&records);
                actor.dispatch(effects, &rules, ctx);
                respond(reply, Ok(answer));
                actor.after_input(ctx);
            }
            // Another session of the user was faster: decided anew, with what is left.
            Err(JournalError::BudgetExceeded) if races_lost < BUDGET_CONFLICT_RETRIES_MAX => {
                let races_lost = races_lost + 1;
                actor.load_spending_then_decide(
                    InFlightInput { input: kept, reply, budget_conflicts: races_lost },
                    ctx,
                );
            }
            Err(error) => {
                let kept = reply.is_none().then_some(kept);
                actor.handle_append_error(error, kept, reply, ctx);
            }
        }));
    }
}
