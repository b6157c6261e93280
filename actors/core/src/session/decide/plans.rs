//! Plans: bundles the calls of a step that need approval, and handles the answers to each (G8, G9).

use super::{
    DecisionBuilder, Rejection, Reply,
    approvals::Respondent,
    authorization::{AuthorizationOutcome, ToolLookup},
};
use crate::{
    approval::{
        ApprovalOutcome, ApprovalSubject, ArgumentEdit, ClosedApproval, GrantRequest, OpenApproval,
        PlanStep, PlanStepDecision, RedactionPlaceholderError, Role, validate_no_placeholders,
    },
    call::CallFailureReason,
    ids::{ApprovalId, CallId, UserId},
    json::Digest,
    limits::EDITORS_MAX,
    policy::{Cost, Denial, Risk, Tool, Verdict},
    session::{ApprovalAnswer, CallAuthorization, PlanStepAnswer, SessionEvent},
};
use serde_json::Value;
use std::{collections::BTreeSet, sync::Arc};

/// A call that needs approval; becomes a step of a plan.
pub(super) struct PlanStepDraft {
    pub(super) call_id: CallId,
    pub(super) tool: Arc<Tool>,
    /// The policy's reason for the approval.
    pub(super) reason: String,
    /// The call's cost.
    pub(super) cost: Option<Cost>,
    /// True if the cost exceeds what a budget has left.
    pub(super) exceeds_budget: bool,
    /// The arguments as edited by a human, if the edited call needs a second approval.
    pub(super) edited: Option<Value>,
}

impl DecisionBuilder<'_> {
    /// Requests one plan approval for all calls that need approval.
    pub(super) fn request_plan_approval(&mut self, drafts: Vec<PlanStepDraft>) {
        let steps: Vec<_> =
            drafts.into_iter().filter_map(|draft| self.to_plan_step(draft)).collect();
        if steps.is_empty() {
            return;
        }
        let noun = if steps.len() == 1 { "tool" } else { "tools" };
        let purpose = format!("Execute {} {noun}", steps.len());
        let risk = steps.iter().map(|step| step.risk).max().unwrap_or(Risk::ReadOnly);
        self.request_approval(ApprovalSubject::Plan { steps }, purpose, risk);
    }

    fn to_plan_step(&self, draft: PlanStepDraft) -> Option<PlanStep> {
        let PlanStepDraft { call_id, tool, reason: why, cost, exceeds_budget, edited } = draft;
        let call = self.call(call_id)?;
        let arguments = edited.unwrap_or_else(|| call.effective_arguments().to_value());
        Some(PlanStep {
            call_id,
            tool: call.tool.clone(),
            digest: Digest::hash_json(&arguments),
            arguments,
            risk: tool.risk,
            description: tool.description.clone(),
            why,
            cost,
            exceeds_budget,
        })
    }

    pub(super) fn decide_plan_answer(
        &mut self,
        open: &OpenApproval,
        answer: ApprovalAnswer,
        for_session: Option<GrantRequest>,
        respondent: &Respondent,
    ) -> Result<Reply, Rejection> {
        let approval_id = open.approval.approval_id;
        let answers = undecided_answers(open, answer, for_session.as_ref(), &respondent.by)?;
        if answers.is_empty() {
            return Ok(Reply::Answered { closed: false, repeated: true });
        }
        self.ensure_can_answer(open, respondent.role)?;
        let decisions = answers
            .into_iter()
            .map(|(step, answer)| {
                let for_session = for_session.clone();
                let decision = self.to_step_decision(step, answer, respondent)?;
                Ok((step, PlanStepDecision { for_session, ..decision }))
            })
            .collect::<Result<Vec<_>, Rejection>>()?;
        let steps: Vec<_> = decisions.iter().map(|(_, decision)| decision.clone()).collect();
        let grants = self.requested_grants(for_session.as_ref(), &steps, &respondent.by)?;
        let closed = open.decisions.len() + steps.len() == open.approval.steps().len();
        self.emit(SessionEvent::ApprovalDecided { approval_id, steps, answer: None, closed });
        for grant in grants {
            self.emit_for(None, None, SessionEvent::GrantAdded { grant });
        }
        let apply = |(step, decision): (&PlanStep, PlanStepDecision)| {
            (step.call_id, self.apply_step_decision(approval_id, step, decision, respondent.role))
        };
        let outcomes = decisions.into_iter().map(apply).collect();
        self.request_approvals(outcomes);
        Ok(Reply::Answered { closed, repeated: false })
    }

    /// Converts the answer to one step into a decision. Edited arguments are validated and
    /// evaluated by the policy.
    fn to_step_decision(
        &self,
        step: &PlanStep,
        answer: PlanStepAnswer,
        respondent: &Respondent,
    ) -> Result<PlanStepDecision, Rejection> {
        let edited = changed_arguments(step, &answer).map_err(|placeholder| {
            let problem = placeholder.to_string();
            Rejection::InvalidEdit { call_id: step.call_id, problem }
        })?;
        if answer.approved {
            self.ensure_may_approve_step(step, edited.is_some(), respondent)?;
        }
        if let Some(arguments) = &edited {
            self.validate_edit(step, &answer, arguments, &respondent.by)?;
        }
        let PlanStepAnswer { call_id, approved, reason, arguments: _ } = answer;
        Ok(PlanStepDecision {
            call_id,
            approved,
            reason,
            by: respondent.by.clone(),
            surface: respondent.surface,
            at: self.env.now,
            digest: edited.as_ref().map_or(step.digest, Digest::hash_json),
            edited,
            for_session: None,
        })
    }

    fn validate_edit(
        &self,
        step: &PlanStep,
        answer: &PlanStepAnswer,
        arguments: &Value,
        editor: &UserId,
    ) -> Result<(), Rejection> {
        let call_id = step.call_id;
        let invalid = |problem: String| Err(Rejection::InvalidEdit { call_id, problem });
        if !answer.approved {
            return invalid("a rejection can't have edited arguments".to_owned());
        }
        if self.is_editor_limit_reached(call_id, editor) {
            return invalid(format!("{EDITORS_MAX} users edited the call; this is the limit"));
        }
        let Some(tool) = self.tool(&step.tool) else {
            return invalid("the tool is no longer available".to_owned());
        };
        if let Err(problem) = tool.validate(arguments) {
            return invalid(problem);
        }
        match self.verdict(&tool, arguments) {
            Verdict::Deny(denial) => invalid(denial.reason),
            // The plan did not show that the edited call would exceed a budget.
            Verdict::Ask { exceeds_budget: true, reason: why, .. } if !step.exceeds_budget => {
                invalid(why)
            }
            Verdict::OverBudget { reason: why, .. } => invalid(why),
            Verdict::Allow { .. } | Verdict::Ask { .. } => Ok(()),
        }
    }

    /// Applies the decision on a step: allows an approved call, or fails a rejected one. An
    /// approved call that the policy now denies is denied. If its risk is now higher than shown, or
    /// an edit needs a second user (G12), it needs another approval; if its cost no longer fits a
    /// budget, it needs a raise.
    fn apply_step_decision(
        &mut self,
        approval_id: ApprovalId,
        step: &PlanStep,
        decision: PlanStepDecision,
        role: Role,
    ) -> AuthorizationOutcome {
        let PlanStepDecision { call_id, approved, reason, edited, .. } = decision.clone();
        if !approved {
            let error = match reason {
                Some(reason) => format!("a human rejected this call: {reason}"),
                None => "a human rejected this call".to_owned(),
            };
            self.fail_call(call_id, CallFailureReason::Rejected, error, false);
            return AuthorizationOutcome::Settled;
        }
        let Some(call) = self.call(call_id).cloned() else { return AuthorizationOutcome::Settled };
        let is_edited = edited.is_some();
        let arguments = edited.unwrap_or_else(|| step.arguments.clone());
        let tool = match self.lookup_tool(&call) {
            ToolLookup::Available(tool) => tool,
            ToolLookup::Removed => {
                self.fail_removed_tool(call_id);
                return AuthorizationOutcome::Settled;
            }
            // The approval holds; the call is authorized again when its server is back.
            ToolLookup::Unavailable => {
                let cost = step.cost.clone();
                return self.allow_approved_call(approval_id, step, decision, role, cost);
            }
        };
        if let Err(error) = tool.validate(&arguments) {
            self.fail_call(call_id, CallFailureReason::InvalidArguments, error, false);
            return AuthorizationOutcome::Settled;
        }
        let cost = match self.verdict_with_reservation(&tool, &arguments, call.reservation.as_ref())
        {
            Verdict::Deny(denial) => {
                self.deny_call(call_id, denial);
                return AuthorizationOutcome::Settled;
            }
            Verdict::Ask { reason: why, cost, exceeds_budget } if tool.risk > step.risk => {
                let edited = Some(arguments);
                return AuthorizationOutcome::NeedsApproval(PlanStepDraft {
                    call_id,
                    tool,
                    reason: why,
                    cost,
                    exceeds_budget,
                    edited,
                });
            }
            Verdict::Ask { reason: why, cost, exceeds_budget }
                if is_edited && self.requires_second_user(&tool) =>
            {
                let by = &decision.by;
                let reason = format!("{why}; the arguments were edited by {by}");
                return AuthorizationOutcome::NeedsApproval(PlanStepDraft {
                    call_id,
                    tool,
                    reason,
                    cost,
                    exceeds_budget,
                    edited: Some(arguments),
                });
            }
            Verdict::Allow { cost, .. }
            | Verdict::Ask { cost, .. }
            | Verdict::OverBudget { cost, .. } => cost,
        };
        self.allow_approved_call(approval_id, step, decision, role, cost)
    }

    /// Allows an approved call and reserves its cost.
    fn allow_approved_call(
        &mut self,
        approval_id: ApprovalId,
        step: &PlanStep,
        decision: PlanStepDecision,
        role: Role,
        cost: Option<Cost>,
    ) -> AuthorizationOutcome {
        let PlanStepDecision { call_id, reason, by, edited, .. } = decision;
        let arguments = edited.unwrap_or_else(|| step.arguments.clone());
        // The arguments were edited in this answer, or before the call needed another approval.
        let is_edited = self.call(call_id).is_some_and(|call| !call.digest.matches(&arguments));
        let edit = is_edited.then(|| ArgumentEdit { arguments: arguments.clone(), reason });
        let by = CallAuthorization::Approval { approval_id, by, role: Some(role) };
        self.allow_call(call_id, &arguments, by, edit);
        let is_reserved = self.call(call_id).is_some_and(|call| call.reservation.is_some());
        match cost.filter(|_| !is_reserved) {
            Some(cost) if !step.exceeds_budget && !self.has_room_for(&cost) => {
                AuthorizationOutcome::NeedsBudget(cost)
            }
            Some(cost) => {
                self.reserve_cost(call_id, cost, !step.exceeds_budget);
                AuthorizationOutcome::Settled
            }
            None => AuthorizationOutcome::Settled,
        }
    }

    /// Fails a call whose tool was removed while its approval was open: the policy can't evaluate
    /// it.
    pub(super) fn fail_removed_tool(&mut self, call_id: CallId) {
        let error = "the tool is no longer available".to_owned();
        self.fail_call(call_id, CallFailureReason::Unavailable, error, false);
    }

    /// Ends a call that the policy denies (G7). If the call may have run before, its outcome is
    /// unknown instead.
    pub(super) fn deny_call(&mut self, call_id: CallId, denial: Denial) {
        let Some(call) = self.call(call_id) else { return };
        let Denial { reason, required_level } = denial;
        if call.maybe_ran {
            return self.fail_call(call_id, CallFailureReason::OutcomeUnknown, reason, false);
        }
        let tool = call.tool.clone();
        self.emit(SessionEvent::AuthorizationDenied { call_id, tool, reason, required_level });
    }
}

/// Returns the steps that `answer` decides for the first time, each with its answer. Steps that the
/// same user already decided in the same way are left out; a different decision is a conflict.
fn undecided_answers<'a>(
    open: &'a OpenApproval,
    answer: ApprovalAnswer,
    for_session: Option<&GrantRequest>,
    user: &UserId,
) -> Result<Vec<(&'a PlanStep, PlanStepAnswer)>, Rejection> {
    let answers = match answer {
        ApprovalAnswer::Overall { approved, reason } => {
            let step_answer = |step: &'a PlanStep| {
                let (call_id, reason) = (step.call_id, reason.clone());
                (step, PlanStepAnswer { call_id, approved, reason, arguments: None })
            };
            return Ok(open.undecided().map(step_answer).collect());
        }
        ApprovalAnswer::Steps(answers) => answers,
        ApprovalAnswer::Resolve { .. } => return Err(Rejection::AmbiguousAnswer),
    };
    validate_step_answers(&answers)?;
    let mut undecided = Vec::new();
    for answer in answers {
        let call_id = answer.call_id;
        let step = open.approval.steps().iter().find(|step| step.call_id == call_id);
        let step = step.ok_or(Rejection::UnknownStep { call_id })?;
        match open.decisions.get(&call_id) {
            None => undecided.push((step, answer)),
            Some(first) if is_same_answer(first, step, &answer, for_session, user) => {}
            Some(first) => {
                return Err(Rejection::AlreadyDecided {
                    decisions: vec![first.clone()],
                    answer: None,
                });
            }
        }
    }
    Ok(undecided)
}

/// Returns the edited arguments, if they differ from those of the plan.
fn changed_arguments(
    step: &PlanStep,
    answer: &PlanStepAnswer,
) -> Result<Option<Value>, RedactionPlaceholderError> {
    let Some(arguments) = answer.arguments.clone() else { return Ok(None) };
    validate_no_placeholders(&step.arguments, &arguments)?;
    Ok((!step.digest.matches(&arguments)).then_some(arguments))
}

/// Returns true if `answer` repeats `first`: the same user, decision, arguments and `for_session`.
fn is_same_answer(
    first: &PlanStepDecision,
    step: &PlanStep,
    answer: &PlanStepAnswer,
    for_session: Option<&GrantRequest>,
    user: &UserId,
) -> bool {
    let Ok(changed) = changed_arguments(step, answer) else { return false };
    let has_same_arguments = match &changed {
        Some(arguments) => first.digest.matches(arguments),
        None => first.digest == step.digest,
    };
    let is_same_decision = first.approved == answer.approved && first.by == *user;
    is_same_decision && has_same_arguments && first.for_session.as_ref() == for_session
}

/// Checks that an answer decides at least one step, and no step twice.
fn validate_step_answers(answers: &[PlanStepAnswer]) -> Result<(), Rejection> {
    let mut seen = BTreeSet::new();
    if answers.is_empty() || !answers.iter().all(|answer| seen.insert(answer.call_id)) {
        return Err(Rejection::AmbiguousAnswer);
    }
    Ok(())
}

/// Returns true if `answer` repeats what the same user answered to a plan that is now closed.
pub(super) fn is_repeated(
    closed: &ClosedApproval,
    answer: &ApprovalAnswer,
    for_session: Option<&GrantRequest>,
    user: &UserId,
) -> Result<bool, Rejection> {
    let steps = closed.approval.steps();
    match answer {
        // An accepted overall answer closed the plan, because it decided every open step.
        ApprovalAnswer::Overall { approved, .. } => {
            let mut last = closed.decisions.values().filter(|first| first.at == closed.closed_at);
            let is_same_grant =
                |first: &PlanStepDecision| first.for_session.as_ref() == for_session;
            let is_overall = |first: &PlanStepDecision| {
                first.by == *user && first.edited.is_none() && is_same_grant(first)
            };
            let is_decided = closed.outcome == ApprovalOutcome::Decided && !steps.is_empty();
            Ok(is_decided && last.all(|first| is_overall(first) && first.approved == *approved))
        }
        ApprovalAnswer::Steps(answers) => {
            validate_step_answers(answers)?;
            Ok(answers.iter().all(|answer| {
                let step = steps.iter().find(|step| step.call_id == answer.call_id);
                let first = closed.decisions.get(&answer.call_id).zip(step);
                first.is_some_and(|(first, step)| {
                    is_same_answer(first, step, answer, for_session, user)
                })
            }))
        }
        ApprovalAnswer::Resolve { .. } => Ok(false),
    }
}

/// Returns the rejection of an answer that conflicts with the decisions on a closed plan.
pub(super) fn conflict_rejection(closed: &ClosedApproval, answer: &ApprovalAnswer) -> Rejection {
    if let ApprovalAnswer::Steps(answers) = answer {
        let is_unknown = |answer: &&PlanStepAnswer| !closed.decisions.contains_key(&answer.call_id);
        if let Some(unknown) = answers.iter().find(is_unknown) {
            return Rejection::UnknownStep { call_id: unknown.call_id };
        }
    }
    let first_decision = |step: &PlanStep| closed.decisions.get(&step.call_id).cloned();
    let decisions = closed.approval.steps().iter().filter_map(first_decision);
    let decisions = decisions.filter(|first| answer.decides(first.call_id)).collect();
    Rejection::AlreadyDecided { decisions, answer: closed.answer.clone().map(Box::new) }
}
