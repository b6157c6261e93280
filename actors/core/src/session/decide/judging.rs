//! Whether a call may run: when it is proposed, and once more before each attempt that an earlier
//! decision let run (G4 to G9, S8).

use super::{Deciding, plans::Ask};
use crate::{
    approval::{Edit, Grant},
    call::{Call, CallPhase, FailReason, LetBy, Reservation},
    ids::{CallId, GrantId},
    json::Digest,
    message::{Arguments, ProposedCall},
    policy::{
        Cost, Denial, Expression, Facts, JudgeContext, Risk, Tool, Verdict, judge, judge_any,
    },
    session::{Allowance, SessionEvent},
    text::cut,
};
use serde_json::Value;
use std::sync::Arc;

/// What became of a call when it was judged.
pub(super) enum Judged {
    /// It may run, or it has ended.
    Settled,
    /// A person must be asked.
    Ask(Ask),
    /// It may run, but no budget has room for what it costs.
    Unfunded(Cost),
}

/// What there is of a call's tool.
pub(super) enum Found {
    /// It is there.
    Tool(Arc<Tool>),
    /// Nobody lists it now; its server may be away.
    Away,
    /// The agent may not use it any more, or it is another server's.
    Gone,
}

impl Deciding<'_> {
    /// Allows or ends the call, or says what it lacks.
    pub(super) fn judge_call(
        &mut self,
        call_id: CallId,
        call: &ProposedCall,
        tool: Option<Arc<Tool>>,
    ) -> Judged {
        let arguments = match &call.arguments {
            Arguments::Json(value) => value,
            Arguments::Malformed { error, .. } => {
                self.fail_call(call_id, FailReason::InvalidArguments, error.clone(), false);
                return Judged::Settled;
            }
        };
        let Some(tool) = tool else {
            let error = format!("there is no tool named `{}`", cut(&call.tool, 128));
            self.fail_call(call_id, FailReason::UnknownTool, error, false);
            return Judged::Settled;
        };
        if let Err(error) = tool.validate(arguments) {
            self.fail_call(call_id, FailReason::InvalidArguments, error, false);
            return Judged::Settled;
        }
        match self.verdict(&tool, arguments) {
            Verdict::Allow { why, cost } => {
                self.allow(call_id, arguments, Allowance::Policy { why }, None);
                self.fund(call_id, cost)
            }
            Verdict::OverBudget { why, cost } => {
                self.allow(call_id, arguments, Allowance::Policy { why }, None);
                cost.map_or(Judged::Settled, Judged::Unfunded)
            }
            Verdict::Ask { why, cost, exceeds_budget } => {
                match self.standing_word(&tool, arguments) {
                    Some(by) => {
                        self.allow(call_id, arguments, by, None);
                        self.fund(call_id, cost)
                    }
                    None => {
                        let edited = None;
                        Judged::Ask(Ask { call_id, tool, why, cost, exceeds_budget, edited })
                    }
                }
            }
            Verdict::Deny(denial) => {
                self.deny(call_id, denial);
                Judged::Settled
            }
        }
    }

    /// What a call lacks by now that an earlier decision let run, if anything. Rules, settings and
    /// tools change while it waits for its turn or for its next attempt (G4, S8).
    pub(super) fn lacks_by_now(&mut self, call_id: CallId) -> Option<Judged> {
        let before = self.session.active.run.iter().flat_map(|run| &run.calls);
        let before = before.into_iter().find(|call| call.call_id == call_id)?;
        let was_let_run = before.is_under_way() || before.phase == CallPhase::Allowed;
        // What a child does is judged there.
        if !was_let_run || self.active.child_of(call_id).is_some() {
            return None;
        }
        let call = self.call(call_id)?.clone();
        let arguments = call.passed().to_value();
        let tool = match self.tool_of(&call) {
            Found::Tool(tool) => tool,
            // It may be back when the attempt reaches it.
            Found::Away => return None,
            Found::Gone => {
                let reason = format!("{} is not among this agent's tools any more", call.tool);
                self.deny(call_id, Denial { reason, required_level: None });
                return Some(Judged::Settled);
            }
        };
        if let Err(error) = tool.validate(&arguments) {
            self.fail_call(call_id, FailReason::InvalidArguments, error, false);
            return Some(Judged::Settled);
        }
        match self.verdict_beside(&tool, &arguments, call.reserved.as_ref()) {
            Verdict::Deny(denial) => {
                self.deny(call_id, denial);
                Some(Judged::Settled)
            }
            Verdict::Allow { cost, .. } | Verdict::OverBudget { cost, .. } => {
                self.fund_by_now(&call, cost)
            }
            Verdict::Ask { cost, .. } if call.let_by == LetBy::Person && tool.risk <= call.risk => {
                self.fund_by_now(&call, cost)
            }
            Verdict::Ask { why, cost, exceeds_budget } => {
                match self.standing_word(&tool, &arguments) {
                    Some(by) => {
                        if !by.is_of_grant(call.let_by) {
                            self.allow(call_id, &arguments, by, None);
                        }
                        self.fund_by_now(&call, cost)
                    }
                    None => {
                        let edited = None;
                        Some(Judged::Ask(Ask { call_id, tool, why, cost, exceeds_budget, edited }))
                    }
                }
            }
        }
    }

    /// What a person said before that lets the call run: to its run's plan (G14), or for the
    /// session (G9).
    fn standing_word(&self, tool: &Tool, arguments: &Value) -> Option<Allowance> {
        let planned = self.approved_step_for(tool, arguments);
        let granted = || self.grant_for(tool, arguments);
        planned.or_else(|| granted().map(|grant_id| Allowance::Grant { grant_id }))
    }

    /// A person's standing word that covers the call (G9). A condition that can't be evaluated
    /// covers nothing.
    fn grant_for(&self, tool: &Tool, arguments: &Value) -> Option<GrantId> {
        if tool.risk == Risk::Critical {
            return None;
        }
        let session = self.session.session_id.to_string();
        let holds = |condition: &String| {
            let facts = Facts::of(arguments, &self.judging(&session))?;
            Expression::compile(condition)?.is_true(&facts)
        };
        let covers = |grant: &&Grant| {
            grant.tool == tool.name.as_str()
                && *grant.server == *tool.server
                && grant.condition.as_ref().is_none_or(|it| holds(it).unwrap_or(false))
        };
        self.active.grants.iter().find(covers).map(|grant| grant.grant_id)
    }

    /// Sets aside what an allowed call costs, if budgets have room for it.
    fn fund(&mut self, call_id: CallId, cost: Option<Cost>) -> Judged {
        match cost {
            Some(cost) if !self.has_room_for(&cost) => Judged::Unfunded(cost),
            Some(cost) => {
                self.reserve(call_id, cost, true);
                Judged::Settled
            }
            None => Judged::Settled,
        }
    }

    /// Sets aside what a call costs by now that has nothing set aside yet; what is, is for all of
    /// its attempts.
    fn fund_by_now(&mut self, call: &Call, cost: Option<Cost>) -> Option<Judged> {
        let cost = cost.filter(|_| call.reserved.is_none());
        match self.fund(call.call_id, cost) {
            Judged::Settled => None,
            lacking @ (Judged::Ask(_) | Judged::Unfunded(_)) => Some(lacking),
        }
    }

    pub(super) fn allow(
        &mut self,
        call_id: CallId,
        arguments: &Value,
        by: Allowance,
        edit: Option<Edit>,
    ) {
        let digest = Digest::of(arguments);
        self.emit(SessionEvent::ToolCallAllowed { call_id, digest, by, edit });
    }

    /// The tool of that name, if the agent may use it.
    pub(super) fn tool(&self, name: &str) -> Option<Arc<Tool>> {
        let rules = self.env.rules;
        let in_run = self.active.run.as_ref().is_none_or(|run| run.may_use(name));
        rules.tool(name).filter(|_| rules.agent.may_use(name) && in_run).cloned()
    }

    /// The tool of that call, as far as it is there and the agent may still use it.
    pub(super) fn tool_of(&self, call: &Call) -> Found {
        let rules = self.env.rules;
        let in_run = self.active.run.as_ref().is_none_or(|run| run.may_use(&call.tool));
        if !(in_run && rules.agent.may_use(&call.tool)) {
            return Found::Gone;
        }
        match rules.tool(&call.tool) {
            None => Found::Away,
            Some(tool) if call.server.as_ref().is_none_or(|it| *it == tool.server) => {
                Found::Tool(tool.clone())
            }
            Some(_) => Found::Gone,
        }
    }

    /// What the policy says of a call of `tool` with these arguments now.
    pub(super) fn verdict(&self, tool: &Tool, arguments: &Value) -> Verdict {
        self.verdict_beside(tool, arguments, None)
    }

    /// The same, of a call for which that much is set aside.
    pub(super) fn verdict_beside(
        &self,
        tool: &Tool,
        arguments: &Value,
        reserved: Option<&Reservation>,
    ) -> Verdict {
        let session = self.session.session_id.to_string();
        let of_unit = |unit: &str| {
            let own = reserved.filter(|own| own.cost.unit == unit);
            self.remaining(unit, own.map_or(0.0, |own| own.cost.amount))
        };
        let remaining = tool.cost.as_ref().and_then(|rule| of_unit(&rule.unit));
        judge(tool, arguments, &JudgeContext { remaining, ..self.judging(&session) })
    }

    /// What the policy says of `tool` where it is not known what is passed.
    pub(super) fn verdict_on_any(&self, tool: &Tool) -> Verdict {
        let session = self.session.session_id.to_string();
        judge_any(tool, &self.judging(&session))
    }

    pub(super) fn judging<'b>(&'b self, session: &'b str) -> JudgeContext<'b> {
        let rules = self.env.rules;
        JudgeContext {
            settings: self.active.settings_in_force(),
            matrix: &rules.matrix,
            headless: rules.agent.headless,
            user: self.session.identity.as_ref().map_or("", |identity| identity.owner.as_str()),
            session,
            agent: rules.agent.name.as_str(),
            remaining: None,
        }
    }
}
