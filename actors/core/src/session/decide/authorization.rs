//! Authorizes calls when they are proposed, and again before each attempt of a call that was
//! allowed earlier (G4 to G9, S8).

use super::{DecisionBuilder, plans::PlanStepDraft};
use crate::{
    amount::Amount,
    approval::{ArgumentEdit, Grant},
    call::{AuthorizationSource, Call, CallFailureReason, CallPhase, Reservation},
    ids::{CallId, GrantId},
    json::Digest,
    message::{Arguments, ProposedCall},
    policy::{
        Cost, Denial, EffectiveCeiling, Expression, ExpressionContext, JudgeContext, Risk,
        Settings, Tool, Verdict, judge_call, judge_tool,
    },
    session::{CallAuthorization, SessionEvent},
    text::truncate,
};
use serde_json::Value;
use std::{borrow::Cow, sync::Arc};

/// The outcome of authorizing a call.
pub(super) enum AuthorizationOutcome {
    /// Decided: the call is allowed or has ended.
    Settled,
    /// The call needs approval.
    NeedsApproval(PlanStepDraft),
    /// Allowed, but its cost exceeds what a budget has left.
    NeedsBudget(Cost),
}

/// The result of looking up the tool of a call.
pub(super) enum ToolLookup {
    /// The tool is available to the agent.
    Available(Arc<Tool>),
    /// No server lists the tool now; its server may be disconnected.
    Unavailable,
    /// The agent may no longer use the tool, or the name now belongs to another server's tool.
    Removed,
}

/// The computed inputs of an evaluation by the policy.
pub(super) struct JudgeInputs<'a> {
    session: String,
    ceiling: EffectiveCeiling,
    /// The settings in force, narrowed to the ceiling.
    settings: Cow<'a, Settings>,
}

impl DecisionBuilder<'_> {
    /// Authorizes a call: emits its allowance or its denial, or returns what it still needs.
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
                    Some(authorization) => {
                        self.allow_call(call_id, arguments, authorization, None);
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

    /// Authorizes an allowed call again before its next attempt; returns `None` if it may start.
    /// Rules, settings and tools can change while a call waits to start or to be retried (G4, S8).
    pub(super) fn recheck_before_attempt(
        &mut self,
        call_id: CallId,
    ) -> Option<AuthorizationOutcome> {
        let calls_before = self.session.active.run.iter().flat_map(|run| &run.calls);
        let before = calls_before.into_iter().find(|call| call.call_id == call_id)?;
        let was_allowed = before.is_in_progress() || before.phase == CallPhase::Allowed;
        // The calls of a child are authorized in the child.
        if !was_allowed || self.active.child_for_call(call_id).is_some() {
            return None;
        }
        let call = self.call(call_id)?.clone();
        let arguments = call.effective_arguments().to_value();
        let tool = match self.lookup_tool(&call) {
            ToolLookup::Available(tool) => tool,
            // The tool may be available again when the attempt reaches its server.
            ToolLookup::Unavailable if self.is_approval_sufficient(&call, call.risk) => {
                return None;
            }
            // An approval can't be requested without the tool.
            ToolLookup::Unavailable => {
                let error = "the tool is unavailable, and its call needs another approval";
                let reason = CallFailureReason::Unavailable;
                self.fail_call(call_id, reason, error.to_owned(), false);
                return Some(AuthorizationOutcome::Settled);
            }
            ToolLookup::Removed => {
                let reason = format!("{} is no longer one of this agent's tools", call.tool);
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
                if call.authorized_by == AuthorizationSource::Human
                    && tool.risk <= call.risk
                    && self.is_approval_sufficient(&call, tool.risk) =>
            {
                self.try_reserve_once(&call, cost)
            }
            Verdict::Ask { reason: why, cost, exceeds_budget } => {
                match self.prior_approval(&tool, &arguments) {
                    Some(authorization) => {
                        if !authorization.is_by_same_grant(call.authorized_by) {
                            self.allow_call(call_id, &arguments, authorization, None);
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

    /// Returns the earlier human decision that allows the call: the approved preflight plan of its
    /// run (G14), or a session grant (G9).
    fn prior_approval(&self, tool: &Tool, arguments: &Value) -> Option<CallAuthorization> {
        let preflight = self.preflight_authorization(tool, arguments);
        let grant = || self.find_grant(tool, arguments);
        preflight.or_else(|| grant().map(|grant_id| CallAuthorization::Grant { grant_id }))
    }

    /// Returns the grant that covers the call (G9). A grant whose condition can't be evaluated
    /// covers nothing.
    fn find_grant(&self, tool: &Tool, arguments: &Value) -> Option<GrantId> {
        if tool.risk == Risk::Critical {
            return None;
        }
        let inputs = self.judge_inputs(None);
        let holds = |condition: &String| {
            let context = ExpressionContext::new(arguments, &self.judge_context(&inputs))?;
            Expression::compile(condition)?.evaluate_bool(&context)
        };
        let covers = |grant: &&Grant| {
            grant.tool == tool.name.as_str()
                && *grant.server == *tool.server
                && grant
                    .condition
                    .as_ref()
                    .is_none_or(|condition| holds(condition).unwrap_or(false))
        };
        self.active.grants.iter().find(covers).map(|grant| grant.grant_id)
    }

    /// Reserves the cost of an allowed call, if every budget has room for it.
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

    /// Reserves the cost of a call that has no reservation yet; a reservation covers all attempts
    /// of the call.
    fn try_reserve_once(
        &mut self,
        call: &Call,
        cost: Option<Cost>,
    ) -> Option<AuthorizationOutcome> {
        let cost = cost.filter(|_| call.reservation.is_none());
        match self.try_reserve(call.call_id, cost) {
            AuthorizationOutcome::Settled => None,
            unmet @ (AuthorizationOutcome::NeedsApproval(_)
            | AuthorizationOutcome::NeedsBudget(_)) => Some(unmet),
        }
    }

    pub(super) fn allow_call(
        &mut self,
        call_id: CallId,
        arguments: &Value,
        authorization: CallAuthorization,
        edit: Option<ArgumentEdit>,
    ) {
        let digest = Digest::hash_json(arguments);
        let by = authorization;
        self.emit(SessionEvent::ToolCallAllowed { call_id, digest, by, edit });
    }

    /// Returns the tool with that name, if the agent and the run's workflow may use it.
    pub(super) fn tool(&self, name: &str) -> Option<Arc<Tool>> {
        let rules = self.env.rules;
        let in_run = self.active.run.as_ref().is_none_or(|run| run.can_use_tool(name));
        rules.tool(name).filter(|_| rules.agent.can_use_tool(name) && in_run).cloned()
    }

    /// Looks up the tool of a call.
    pub(super) fn lookup_tool(&self, call: &Call) -> ToolLookup {
        let rules = self.env.rules;
        let in_run = self.active.run.as_ref().is_none_or(|run| run.can_use_tool(&call.tool));
        if !(in_run && rules.agent.can_use_tool(&call.tool)) {
            return ToolLookup::Removed;
        }
        match rules.tool(&call.tool) {
            None => ToolLookup::Unavailable,
            Some(tool) if call.server.as_ref().is_none_or(|server| *server == tool.server) => {
                ToolLookup::Available(tool.clone())
            }
            Some(_) => ToolLookup::Removed,
        }
    }

    /// Returns the policy's verdict on a call of `tool` with these arguments.
    pub(super) fn verdict(&self, tool: &Tool, arguments: &Value) -> Verdict {
        self.verdict_with_reservation(tool, arguments, None)
    }

    /// Returns the policy's verdict on a call whose cost may already be reserved. Its own
    /// reservation does not reduce the remaining budget.
    pub(super) fn verdict_with_reservation(
        &self,
        tool: &Tool,
        arguments: &Value,
        reserved: Option<&Reservation>,
    ) -> Verdict {
        let inputs = self.judge_inputs(reserved);
        let remaining_for = |unit: &str| {
            let own_reservation = reserved.filter(|reservation| reservation.cost.unit == unit);
            let own_amount =
                own_reservation.map_or(Amount::ZERO, |reservation| reservation.cost.amount);
            self.remaining_budget(unit, own_amount)
        };
        let remaining = tool.cost.as_ref().and_then(|rule| remaining_for(&rule.unit));
        judge_call(
            tool,
            arguments,
            &JudgeContext { remaining_budget: remaining, ..self.judge_context(&inputs) },
        )
    }

    /// Returns the policy's verdict on `tool` if the arguments are not known.
    pub(super) fn verdict_without_arguments(&self, tool: &Tool) -> Verdict {
        judge_tool(tool, &self.judge_context(&self.judge_inputs(None)))
    }

    /// Returns the inputs of an evaluation by the policy. A reservation of the call itself does not
    /// reduce what the ceiling's budgets have left.
    pub(super) fn judge_inputs(&self, reserved: Option<&Reservation>) -> JudgeInputs<'_> {
        let ceiling = self.ceiling_with_spending(reserved);
        let settings = ceiling.narrow(self.active.effective_settings());
        JudgeInputs { session: self.session.session_id.to_string(), ceiling, settings }
    }

    pub(super) fn judge_context<'b>(&'b self, inputs: &'b JudgeInputs<'_>) -> JudgeContext<'b> {
        let JudgeInputs { session, ceiling, settings } = inputs;
        let rules = self.env.rules;
        JudgeContext {
            settings,
            ceiling,
            matrix: &rules.matrix,
            critical: rules.critical,
            headless: rules.agent.headless,
            user: self.session.metadata.as_ref().map_or("", |metadata| metadata.owner.as_str()),
            session,
            agent: rules.agent.name.as_str(),
            remaining_budget: None,
        }
    }
}
