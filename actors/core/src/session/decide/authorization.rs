//! Whether a call may run: when it is proposed, and once more before each attempt that an earlier
//! decision let run (G4 to G9, S8).

use super::{DecisionBuilder, plans::PlanStepDraft};
use crate::{
    approval::{ArgumentEdit, Grant},
    call::{AuthorizationSource, Call, CallFailureReason, CallPhase, Reservation},
    ids::{CallId, GrantId},
    json::Digest,
    message::{Arguments, ProposedCall},
    policy::{
        Cost, Denial, Expression, ExpressionContext, JudgeContext, Risk, Tool, Verdict, judge_call,
        judge_tool,
    },
    session::{CallAuthorization, SessionEvent},
    text::truncate,
};
use serde_json::Value;
use std::sync::Arc;

/// What became of a call when it was judged.
pub(super) enum AuthorizationOutcome {
    /// It may run, or it has ended.
    Settled,
    /// A person must be asked.
    NeedsApproval(PlanStepDraft),
    /// It may run, but no budget has room for what it costs.
    NeedsBudget(Cost),
}

/// What there is of a call's tool.
pub(super) enum ToolLookup {
    /// It is there.
    Available(Arc<Tool>),
    /// Nobody lists it now; its server may be away.
    Unavailable,
    /// The agent may not use it any more, or it is another server's.
    Removed,
}

impl DecisionBuilder<'_> {
    /// Allows or ends the call, or says what it lacks.
    pub(super) fn authorize_call(
        &mut self,
        call_id: CallId,
        call: &ProposedCall,
        tool: Option<Arc<Tool>>,
    ) -> AuthorizationOutcome {
        let arguments = match &call.arguments {
            Arguments::Json(value) => value,
            Arguments::Malformed { error, .. } => {
                self.fail_call(call_id, CallFailureReason::InvalidArguments, error.clone(), false);
                return AuthorizationOutcome::Settled;
            }
        };
        let Some(tool) = tool else {
            let error = format!("there is no tool named `{}`", truncate(&call.tool, 128));
            self.fail_call(call_id, CallFailureReason::UnknownTool, error, false);
            return AuthorizationOutcome::Settled;
        };
        if let Err(error) = tool.validate(arguments) {
            self.fail_call(call_id, CallFailureReason::InvalidArguments, error, false);
            return AuthorizationOutcome::Settled;
        }
        match self.verdict(&tool, arguments) {
            Verdict::Allow { reason: why, cost } => {
                self.allow_call(call_id, arguments, CallAuthorization::Policy { why }, None);
                self.try_reserve(call_id, cost)
            }
            Verdict::OverBudget { reason: why, cost } => {
                self.allow_call(call_id, arguments, CallAuthorization::Policy { why }, None);
                cost.map_or(AuthorizationOutcome::Settled, AuthorizationOutcome::NeedsBudget)
            }
            Verdict::Ask { reason: why, cost, exceeds_budget } => {
                match self.prior_approval(&tool, arguments) {
                    Some(by) => {
                        self.allow_call(call_id, arguments, by, None);
                        self.try_reserve(call_id, cost)
                    }
                    None => {
                        let edited = None;
                        AuthorizationOutcome::NeedsApproval(PlanStepDraft {
                            call_id,
                            tool,
                            reason: why,
                            cost,
                            exceeds_budget,
                            edited,
                        })
                    }
                }
            }
            Verdict::Deny(denial) => {
                self.deny_call(call_id, denial);
                AuthorizationOutcome::Settled
            }
        }
    }

    /// What a call lacks by now that an earlier decision let run, if anything. Rules, settings and
    /// tools change while it waits for its turn or for its next attempt (G4, S8).
    pub(super) fn recheck_before_attempt(
        &mut self,
        call_id: CallId,
    ) -> Option<AuthorizationOutcome> {
        let before = self.session.active.run.iter().flat_map(|run| &run.calls);
        let before = before.into_iter().find(|call| call.call_id == call_id)?;
        let was_let_run = before.is_in_progress() || before.phase == CallPhase::Allowed;
        // What a child does is judged there.
        if !was_let_run || self.active.child_for_call(call_id).is_some() {
            return None;
        }
        let call = self.call(call_id)?.clone();
        let arguments = call.effective_arguments().to_value();
        let tool = match self.lookup_tool(&call) {
            ToolLookup::Available(tool) => tool,
            // It may be back when the attempt reaches it.
            ToolLookup::Unavailable => return None,
            ToolLookup::Removed => {
                let reason = format!("{} is not among this agent's tools any more", call.tool);
                self.deny_call(call_id, Denial { reason, required_level: None });
                return Some(AuthorizationOutcome::Settled);
            }
        };
        if let Err(error) = tool.validate(&arguments) {
            self.fail_call(call_id, CallFailureReason::InvalidArguments, error, false);
            return Some(AuthorizationOutcome::Settled);
        }
        match self.verdict_with_reservation(&tool, &arguments, call.reservation.as_ref()) {
            Verdict::Deny(denial) => {
                self.deny_call(call_id, denial);
                Some(AuthorizationOutcome::Settled)
            }
            Verdict::Allow { cost, .. } | Verdict::OverBudget { cost, .. } => {
                self.try_reserve_once(&call, cost)
            }
            Verdict::Ask { cost, .. }
                if call.authorized_by == AuthorizationSource::Human && tool.risk <= call.risk =>
            {
                self.try_reserve_once(&call, cost)
            }
            Verdict::Ask { reason: why, cost, exceeds_budget } => {
                match self.prior_approval(&tool, &arguments) {
                    Some(by) => {
                        if !by.is_by_same_grant(call.authorized_by) {
                            self.allow_call(call_id, &arguments, by, None);
                        }
                        self.try_reserve_once(&call, cost)
                    }
                    None => {
                        let edited = None;
                        Some(AuthorizationOutcome::NeedsApproval(PlanStepDraft {
                            call_id,
                            tool,
                            reason: why,
                            cost,
                            exceeds_budget,
                            edited,
                        }))
                    }
                }
            }
        }
    }

    /// What a person said before that lets the call run: to its run's plan (G14), or for the
    /// session (G9).
    fn prior_approval(&self, tool: &Tool, arguments: &Value) -> Option<CallAuthorization> {
        let planned = self.preflight_authorization(tool, arguments);
        let granted = || self.find_grant(tool, arguments);
        planned.or_else(|| granted().map(|grant_id| CallAuthorization::Grant { grant_id }))
    }

    /// A person's standing word that covers the call (G9). A condition that can't be evaluated
    /// covers nothing.
    fn find_grant(&self, tool: &Tool, arguments: &Value) -> Option<GrantId> {
        if tool.risk == Risk::Critical {
            return None;
        }
        let session = self.session.session_id.to_string();
        let holds = |condition: &String| {
            let facts = ExpressionContext::new(arguments, &self.judge_context(&session))?;
            Expression::compile(condition)?.evaluate_bool(&facts)
        };
        let covers = |grant: &&Grant| {
            grant.tool == tool.name.as_str()
                && *grant.server == *tool.server
                && grant.condition.as_ref().is_none_or(|it| holds(it).unwrap_or(false))
        };
        self.active.grants.iter().find(covers).map(|grant| grant.grant_id)
    }

    /// Sets aside what an allowed call costs, if budgets have room for it.
    fn try_reserve(&mut self, call_id: CallId, cost: Option<Cost>) -> AuthorizationOutcome {
        match cost {
            Some(cost) if !self.has_room_for(&cost) => AuthorizationOutcome::NeedsBudget(cost),
            Some(cost) => {
                self.reserve_cost(call_id, cost, true);
                AuthorizationOutcome::Settled
            }
            None => AuthorizationOutcome::Settled,
        }
    }

    /// Sets aside what a call costs by now that has nothing set aside yet; what is, is for all of
    /// its attempts.
    fn try_reserve_once(
        &mut self,
        call: &Call,
        cost: Option<Cost>,
    ) -> Option<AuthorizationOutcome> {
        let cost = cost.filter(|_| call.reservation.is_none());
        match self.try_reserve(call.call_id, cost) {
            AuthorizationOutcome::Settled => None,
            lacking @ (AuthorizationOutcome::NeedsApproval(_)
            | AuthorizationOutcome::NeedsBudget(_)) => Some(lacking),
        }
    }

    pub(super) fn allow_call(
        &mut self,
        call_id: CallId,
        arguments: &Value,
        by: CallAuthorization,
        edit: Option<ArgumentEdit>,
    ) {
        let digest = Digest::hash_json(arguments);
        self.emit(SessionEvent::ToolCallAllowed { call_id, digest, by, edit });
    }

    /// The tool of that name, if the agent may use it.
    pub(super) fn tool(&self, name: &str) -> Option<Arc<Tool>> {
        let rules = self.env.rules;
        let in_run = self.active.run.as_ref().is_none_or(|run| run.can_use_tool(name));
        rules.tool(name).filter(|_| rules.agent.can_use_tool(name) && in_run).cloned()
    }

    /// The tool of that call, as far as it is there and the agent may still use it.
    pub(super) fn lookup_tool(&self, call: &Call) -> ToolLookup {
        let rules = self.env.rules;
        let in_run = self.active.run.as_ref().is_none_or(|run| run.can_use_tool(&call.tool));
        if !(in_run && rules.agent.can_use_tool(&call.tool)) {
            return ToolLookup::Removed;
        }
        match rules.tool(&call.tool) {
            None => ToolLookup::Unavailable,
            Some(tool) if call.server.as_ref().is_none_or(|it| *it == tool.server) => {
                ToolLookup::Available(tool.clone())
            }
            Some(_) => ToolLookup::Removed,
        }
    }

    /// What the policy says of a call of `tool` with these arguments now.
    pub(super) fn verdict(&self, tool: &Tool, arguments: &Value) -> Verdict {
        self.verdict_with_reservation(tool, arguments, None)
    }

    /// The same, of a call for which that much is set aside.
    pub(super) fn verdict_with_reservation(
        &self,
        tool: &Tool,
        arguments: &Value,
        reserved: Option<&Reservation>,
    ) -> Verdict {
        let session = self.session.session_id.to_string();
        let of_unit = |unit: &str| {
            let own = reserved.filter(|own| own.cost.unit == unit);
            self.remaining_budget(unit, own.map_or(0.0, |own| own.cost.amount))
        };
        let remaining = tool.cost.as_ref().and_then(|rule| of_unit(&rule.unit));
        judge_call(
            tool,
            arguments,
            &JudgeContext { remaining_budget: remaining, ..self.judge_context(&session) },
        )
    }

    /// What the policy says of `tool` where it is not known what is passed.
    pub(super) fn verdict_without_arguments(&self, tool: &Tool) -> Verdict {
        let session = self.session.session_id.to_string();
        judge_tool(tool, &self.judge_context(&session))
    }

    pub(super) fn judge_context<'b>(&'b self, session: &'b str) -> JudgeContext<'b> {
        let rules = self.env.rules;
        JudgeContext {
            settings: self.active.effective_settings(),
            matrix: &rules.matrix,
            headless: rules.agent.headless,
            user: self.session.metadata.as_ref().map_or("", |identity| identity.owner.as_str()),
            session,
            agent: rules.agent.name.as_str(),
            remaining_budget: None,
        }
    }
}
