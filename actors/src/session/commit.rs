//! One input: decided, committed, and only then published and acted upon (D1).

use super::{ReplySender, Session, respond};
use crate::{
    limits::BUDGET_RACES_MAX,
    ports::{Commit, JournalError},
};
use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use greenroom_core::{
    Env, Rules,
    budget::{Account, Scope},
    session::{Decision, EventRecord, Input, Projection, decide, evolve},
};
use std::sync::{Arc, atomic::Ordering::Relaxed};

/// An input on its way through, and how often another session has been faster with the last of
/// their user's budget.
pub(super) struct Taking {
    pub(super) input: Input,
    pub(super) reply: Option<ReplySender>,
    pub(super) races_lost: u32,
}

impl Session {
    /// Decides `input`, and commits what was decided before anything else happens.
    pub(super) fn take(
        &mut self,
        input: Input,
        reply: Option<ReplySender>,
        ctx: &mut Context<Self>,
    ) {
        self.go_on_with(Taking { input, reply, races_lost: 0 }, ctx);
    }

    /// Decides, with what the user has spent elsewhere where a budget of theirs counts (G6).
    pub(super) fn go_on_with(&mut self, taking: Taking, ctx: &mut Context<Self>) {
        let rules = self.rules_for(&taking.input);
        if !self.counts_spending(&taking.input, &rules) {
            return self.decide_and_commit(taking, Account::default(), &rules, ctx);
        }
        let Some(identity) = &self.state.identity else { return };
        let (journal, user) = (self.around.journal.clone(), identity.owner.clone());
        let today = self.around.clock.now().day();
        let defaults = self.around.governance.settings.clone();
        let account = async move {
            let stored = journal.settings(&user).await?;
            let limit = stored.map_or_else(|| defaults.budget_limit.clone(), |it| it.budget_limit);
            Ok(Account { limit, spent: journal.spent(&user, today).await? })
        };
        ctx.wait(account.into_actor(self).map(
            move |account: Result<Account, JournalError>, actor, ctx| match account {
                Ok(account) => actor.decide_and_commit(taking, account, &rules, ctx),
                Err(error) => {
                    let kept = taking.reply.is_none().then_some(taking.input);
                    actor.not_appended(error, kept, taking.reply, ctx);
                }
            },
        ));
    }

    /// Whether what `input` leads to may depend on what the user has spent.
    fn counts_spending(&self, input: &Input, rules: &Rules) -> bool {
        let has_budget = self.state.active.settings.budget_limit.is_some()
            || rules.agent.budgets.iter().any(|budget| budget.scope == Scope::User);
        let spends = match input {
            Input::SubmitMessage { .. }
            | Input::Interrupt { .. }
            | Input::Cancel { .. }
            | Input::DecideApproval { .. }
            | Input::StepFinished { .. }
            | Input::ToolFinished { .. }
            | Input::TurnGranted { .. }
            | Input::Wake
            | Input::Rehydrated { .. } => true,
            Input::CreateSession { .. }
            | Input::ForkSession { .. }
            | Input::CreateChild { .. }
            | Input::Narrow { .. }
            | Input::ChildAdvanced { .. }
            | Input::ChildGone { .. }
            | Input::ChangeSettings { .. }
            | Input::Close { .. }
            | Input::RevokeGrants { .. }
            | Input::GiveFeedback { .. }
            | Input::ToolProgressed { .. }
            | Input::ToolAsked { .. }
            | Input::ToolAskWithdrawn { .. } => false,
        };
        has_budget && spends && self.state.identity.is_some()
    }

    fn decide_and_commit(
        &mut self,
        taking: Taking,
        account: Account,
        rules: &Rules,
        ctx: &mut Context<Self>,
    ) {
        let Taking { input, reply, races_lost } = taking;
        let clock = &self.around.clock;
        let is_draining = self.around.draining.load(Relaxed);
        let env = Env::new(clock.now(), clock.seed(), rules)
            .with_account(account)
            .while_draining(is_draining);
        let kept = input.clone();
        let decided = match decide(&self.state, input, &env) {
            Ok(decided) => decided,
            Err(rejection) => {
                respond(reply, Err(rejection.into()));
                return self.settle(ctx);
            }
        };
        let Decision { events, claims, effects, reply: answer } = decided;
        if events.is_empty() {
            // Nothing to wait for: what needs no record, as waiting for a turn, begins.
            self.turns.was_told(&kept);
            self.dispatch(effects, rules, ctx);
            respond(reply, Ok(answer));
            return self.settle(ctx);
        }
        let next = events.iter().fold(self.state.clone(), evolve);
        let records: Arc<[EventRecord]> = events.into();
        let mut projection = Projection::between(&self.state, &next).with_claims(claims);
        if self.around.governance.counts_models_for_users() {
            projection = projection.with_models(&self.state, &next, env.now.day());
        }
        let commit = Commit {
            session_id: self.state.session_id,
            expected_head: self.state.head,
            records: records.clone(),
            projection,
        };
        let (journal, rules) = (self.around.journal.clone(), rules.clone());
        let append = async move { journal.append(commit).await };
        ctx.wait(append.into_actor(self).map(move |appended, actor, ctx| match appended {
            Ok(()) => {
                actor.state = next;
                actor.outage.is_over();
                actor.stopped = None;
                actor.turns.was_told(&kept);
                actor.publish(&records);
                actor.dispatch(effects, &rules, ctx);
                respond(reply, Ok(answer));
                actor.settle(ctx);
            }
            // Another session of the user was faster: decided anew, with what is left.
            Err(JournalError::OverBudget) if races_lost < BUDGET_RACES_MAX => {
                let races_lost = races_lost + 1;
                actor.go_on_with(Taking { input: kept, reply, races_lost }, ctx);
            }
            Err(error) => {
                let kept = reply.is_none().then_some(kept);
                actor.not_appended(error, kept, reply, ctx);
            }
        }));
    }
}
