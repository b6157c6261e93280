//! Plans: bundling the calls of a step that need a person, and taking the person's word on each
//! (G8, G9).

use super::{
    Deciding, Rejection, Reply,
    approvals::Person,
    judging::{Found, Judged},
};
use crate::{
    approval::{
        ApprovalEnd, ClosedApproval, Edit, GrantWish, OpenApproval, PlanStep, Question,
        Replacement, StepDecision, refuse_replacements,
    },
    call::FailReason,
    ids::{ApprovalId, CallId, UserId},
    json::Digest,
    policy::{Cost, Denial, Risk, Tool, Verdict},
    session::{Allowance, ApprovalAnswer, SessionEvent, StepAnswer},
};
use serde_json::Value;
use std::{collections::BTreeSet, sync::Arc};

/// A call to ask for.
pub(super) struct Ask {
    pub(super) call_id: CallId,
    pub(super) tool: Arc<Tool>,
    /// Why a person is asked.
    pub(super) why: String,
    /// What it costs.
    pub(super) cost: Option<Cost>,
    /// Whether that is more than a budget has left.
    pub(super) exceeds_budget: bool,
    /// What a person made of its arguments, where it is asked for once more.
    pub(super) edited: Option<Value>,
}

impl Deciding<'_> {
    /// Bundles the calls that need a person into one plan.
    pub(super) fn ask_for_plan(&mut self, asks: Vec<Ask>) {
        let steps: Vec<_> = asks.into_iter().filter_map(|ask| self.plan_step(ask)).collect();
        if steps.is_empty() {
            return;
        }
        let noun = if steps.len() == 1 { "tool" } else { "tools" };
        let purpose = format!("Execute {} {noun}", steps.len());
        let risk = steps.iter().map(|step| step.risk).max().unwrap_or(Risk::ReadOnly);
        self.ask(Question::Plan { steps }, purpose, risk);
    }

    fn plan_step(&self, ask: Ask) -> Option<PlanStep> {
        let Ask { call_id, tool, why, cost, exceeds_budget, edited } = ask;
        let call = self.call(call_id)?;
        let arguments = edited.unwrap_or_else(|| call.passed().to_value());
        Some(PlanStep {
            call_id,
            tool: call.tool.clone(),
            digest: Digest::of(&arguments),
            arguments,
            risk: tool.risk,
            description: tool.description.clone(),
            why,
            cost,
            exceeds_budget,
        })
    }

    pub(super) fn decide_plan(
        &mut self,
        open: &OpenApproval,
        answer: ApprovalAnswer,
        for_session: Option<GrantWish>,
        person: &Person,
    ) -> Result<Reply, Rejection> {
        let approval_id = open.approval.approval_id;
        let answers = new_answers(open, answer, for_session.as_ref(), &person.by)?;
        if answers.is_empty() {
            return Ok(Reply::Decided { closed: false, repeated: true });
        }
        self.must_be_theirs(open, person.role)?;
        let decisions = answers
            .into_iter()
            .map(|(step, answer)| {
                let for_session = for_session.clone();
                let decision = self.decision_on(step, answer, person)?;
                Ok((step, StepDecision { for_session, ..decision }))
            })
            .collect::<Result<Vec<_>, Rejection>>()?;
        let steps: Vec<_> = decisions.iter().map(|(_, decision)| decision.clone()).collect();
        let grants = self.wished_grants(for_session.as_ref(), &steps, &person.by)?;
        let closed = open.decisions.len() + steps.len() == open.approval.steps().len();
        self.emit(SessionEvent::ApprovalDecided { approval_id, steps, word: None, closed });
        for grant in grants {
            self.emit_for(None, None, SessionEvent::GrantAdded { grant });
        }
        let carried_out = |(step, decision): (&PlanStep, StepDecision)| {
            (step.call_id, self.carry_out(approval_id, step, decision))
        };
        let judged = decisions.into_iter().map(carried_out).collect();
        self.ask_about(judged);
        Ok(Reply::Decided { closed, repeated: false })
    }

    /// A person's word on one step; arguments they changed are validated and judged anew.
    fn decision_on(
        &self,
        step: &PlanStep,
        answer: StepAnswer,
        person: &Person,
    ) -> Result<StepDecision, Rejection> {
        let edited = changed_arguments(step, &answer).map_err(|replacement| {
            let problem = replacement.to_string();
            Rejection::InvalidEdit { call_id: step.call_id, problem }
        })?;
        if let Some(arguments) = &edited {
            self.check_edit(step, &answer, arguments)?;
        }
        let StepAnswer { call_id, approved, reason, arguments: _ } = answer;
        Ok(StepDecision {
            call_id,
            approved,
            reason,
            by: person.by.clone(),
            surface: person.surface,
            at: self.env.now,
            digest: edited.as_ref().map_or(step.digest, Digest::of),
            edited,
            for_session: None,
        })
    }

    fn check_edit(
        &self,
        step: &PlanStep,
        answer: &StepAnswer,
        arguments: &Value,
    ) -> Result<(), Rejection> {
        let call_id = step.call_id;
        let invalid = |problem: String| Err(Rejection::InvalidEdit { call_id, problem });
        if !answer.approved {
            return invalid("they belong to an approval, and this is a rejection".to_owned());
        }
        let Some(tool) = self.tool(&step.tool) else {
            return invalid("the tool is not there any more".to_owned());
        };
        if let Err(problem) = tool.validate(arguments) {
            return invalid(problem);
        }
        match self.verdict(&tool, arguments) {
            Verdict::Deny(denial) => invalid(denial.reason),
            // Nobody was told of what an edit would cost beyond a budget.
            Verdict::Ask { exceeds_budget: true, why, .. } if !step.exceeds_budget => invalid(why),
            Verdict::OverBudget { why, .. } => invalid(why),
            Verdict::Allow { .. } | Verdict::Ask { .. } => Ok(()),
        }
    }

    /// Lets an approved call run, and ends a rejected one. What the policy denies by now is denied,
    /// whatever a person says; what is of a higher risk by now than they were told is asked for once
    /// more, and what a budget has no room for by now is given back, to be asked for.
    fn carry_out(
        &mut self,
        approval_id: ApprovalId,
        step: &PlanStep,
        decision: StepDecision,
    ) -> Judged {
        let StepDecision { call_id, approved, reason, edited, .. } = decision.clone();
        if !approved {
            let error = match reason {
                Some(reason) => format!("a person rejected this call: {reason}"),
                None => "a person rejected this call".to_owned(),
            };
            self.fail_call(call_id, FailReason::Rejected, error, false);
            return Judged::Settled;
        }
        let Some(call) = self.call(call_id).cloned() else { return Judged::Settled };
        let arguments = edited.unwrap_or_else(|| step.arguments.clone());
        let tool = match self.tool_of(&call) {
            Found::Tool(tool) => tool,
            Found::Gone => {
                self.fail_gone(call_id);
                return Judged::Settled;
            }
            // The word holds; the call is judged anew when its server is back.
            Found::Away => return self.let_run(approval_id, step, decision, step.cost.clone()),
        };
        if let Err(error) = tool.validate(&arguments) {
            self.fail_call(call_id, FailReason::InvalidArguments, error, false);
            return Judged::Settled;
        }
        let cost = match self.verdict_beside(&tool, &arguments, call.reserved.as_ref()) {
            Verdict::Deny(denial) => {
                self.deny(call_id, denial);
                return Judged::Settled;
            }
            Verdict::Ask { why, cost, exceeds_budget } if tool.risk > step.risk => {
                let edited = Some(arguments);
                return Judged::Ask(Ask { call_id, tool, why, cost, exceeds_budget, edited });
            }
            Verdict::Allow { cost, .. }
            | Verdict::Ask { cost, .. }
            | Verdict::OverBudget { cost, .. } => cost,
        };
        self.let_run(approval_id, step, decision, cost)
    }

    /// Lets an approved call run, and sets aside what it costs.
    fn let_run(
        &mut self,
        approval_id: ApprovalId,
        step: &PlanStep,
        decision: StepDecision,
        cost: Option<Cost>,
    ) -> Judged {
        let StepDecision { call_id, reason, by, edited, .. } = decision;
        let arguments = edited.unwrap_or_else(|| step.arguments.clone());
        // Edited now, or before it was asked for once more.
        let is_edited = self.call(call_id).is_some_and(|it| it.digest != Digest::of(&arguments));
        let edit = is_edited.then(|| Edit { arguments: arguments.clone(), reason });
        self.allow(call_id, &arguments, Allowance::Approval { approval_id, by }, edit);
        let is_paid = self.call(call_id).is_some_and(|call| call.reserved.is_some());
        match cost.filter(|_| !is_paid) {
            Some(cost) if !step.exceeds_budget && !self.has_room_for(&cost) => {
                Judged::Unfunded(cost)
            }
            Some(cost) => {
                self.reserve(call_id, cost, !step.exceeds_budget);
                Judged::Settled
            }
            None => Judged::Settled,
        }
    }

    /// Ends a call whose tool the agent lost while people were asked: nothing can be said of it now.
    pub(super) fn fail_gone(&mut self, call_id: CallId) {
        let error = "the tool is not there any more".to_owned();
        self.fail_call(call_id, FailReason::Unavailable, error, false);
    }

    /// Ends a call that the policy does not let run (G7), or not once more.
    pub(super) fn deny(&mut self, call_id: CallId, denial: Denial) {
        let Some(call) = self.call(call_id) else { return };
        let Denial { reason, required_level } = denial;
        if call.maybe_ran {
            return self.fail_call(call_id, FailReason::OutcomeUnknown, reason, false);
        }
        let tool = call.tool.clone();
        self.emit(SessionEvent::AuthorizationDenied { call_id, tool, reason, required_level });
    }
}

/// The steps that `answer` decides anew, each with its word. Steps that the same person decided
/// the same way before are left out; others that are decided are a conflict.
fn new_answers<'a>(
    open: &'a OpenApproval,
    answer: ApprovalAnswer,
    for_session: Option<&GrantWish>,
    by: &UserId,
) -> Result<Vec<(&'a PlanStep, StepAnswer)>, Rejection> {
    let answers = match answer {
        ApprovalAnswer::Whole { approved, reason } => {
            let word = |step: &'a PlanStep| {
                let (call_id, reason) = (step.call_id, reason.clone());
                (step, StepAnswer { call_id, approved, reason, arguments: None })
            };
            return Ok(open.undecided().map(word).collect());
        }
        ApprovalAnswer::Steps(answers) => answers,
        ApprovalAnswer::Resolve { .. } => return Err(Rejection::UnclearAnswer),
    };
    must_be_clear(&answers)?;
    let mut fresh = Vec::new();
    for answer in answers {
        let call_id = answer.call_id;
        let step = open.approval.steps().iter().find(|step| step.call_id == call_id);
        let step = step.ok_or(Rejection::UnknownStep { call_id })?;
        match open.decisions.get(&call_id) {
            None => fresh.push((step, answer)),
            Some(first) if is_the_same(first, step, &answer, for_session, by) => {}
            Some(first) => {
                return Err(Rejection::AlreadyDecided { first: vec![first.clone()], word: None });
            }
        }
    }
    Ok(fresh)
}

/// The arguments as the person changed them, if they are others than those of the plan.
fn changed_arguments(step: &PlanStep, answer: &StepAnswer) -> Result<Option<Value>, Replacement> {
    let Some(arguments) = answer.arguments.clone() else { return Ok(None) };
    refuse_replacements(&step.arguments, &arguments)?;
    Ok((Digest::of(&arguments) != step.digest).then_some(arguments))
}

/// Whether `answer` is what `first` was: the same person's same word on the same arguments, which
/// shall hold for the session as much.
fn is_the_same(
    first: &StepDecision,
    step: &PlanStep,
    answer: &StepAnswer,
    for_session: Option<&GrantWish>,
    by: &UserId,
) -> bool {
    let Ok(changed) = changed_arguments(step, answer) else { return false };
    let digest = changed.as_ref().map_or(step.digest, Digest::of);
    let is_word = first.approved == answer.approved && first.by == *by;
    is_word && first.digest == digest && first.for_session.as_ref() == for_session
}

/// An answer decides something, and no step twice.
fn must_be_clear(answers: &[StepAnswer]) -> Result<(), Rejection> {
    let mut seen = BTreeSet::new();
    if answers.is_empty() || !answers.iter().all(|answer| seen.insert(answer.call_id)) {
        return Err(Rejection::UnclearAnswer);
    }
    Ok(())
}

/// Whether `answer` is what that person had said before of a closed plan.
pub(super) fn is_repeated(
    closed: &ClosedApproval,
    answer: &ApprovalAnswer,
    for_session: Option<&GrantWish>,
    by: &UserId,
) -> Result<bool, Rejection> {
    let steps = closed.approval.steps();
    match answer {
        // It was the last word if it was taken: it left no step undecided.
        ApprovalAnswer::Whole { approved, .. } => {
            let mut last = closed.decisions.values().filter(|first| first.at == closed.closed_at);
            let is_wish = |first: &StepDecision| first.for_session.as_ref() == for_session;
            let plain =
                |first: &StepDecision| first.by == *by && first.edited.is_none() && is_wish(first);
            let is_decided = closed.end == ApprovalEnd::Decided && !steps.is_empty();
            Ok(is_decided && last.all(|first| plain(first) && first.approved == *approved))
        }
        ApprovalAnswer::Steps(answers) => {
            must_be_clear(answers)?;
            Ok(answers.iter().all(|answer| {
                let step = steps.iter().find(|step| step.call_id == answer.call_id);
                let first = closed.decisions.get(&answer.call_id).zip(step);
                first.is_some_and(|(first, step)| is_the_same(first, step, answer, for_session, by))
            }))
        }
        ApprovalAnswer::Resolve { .. } => Ok(false),
    }
}

/// Why `answer` comes too late: it was decided otherwise.
pub(super) fn decided_otherwise(closed: &ClosedApproval, answer: &ApprovalAnswer) -> Rejection {
    if let ApprovalAnswer::Steps(answers) = answer {
        let is_unknown = |answer: &&StepAnswer| !closed.decisions.contains_key(&answer.call_id);
        if let Some(unknown) = answers.iter().find(is_unknown) {
            return Rejection::UnknownStep { call_id: unknown.call_id };
        }
    }
    let decided = |step: &PlanStep| closed.decisions.get(&step.call_id).cloned();
    let first = closed.approval.steps().iter().filter_map(decided).collect();
    Rejection::AlreadyDecided { first, word: closed.word.clone().map(Box::new) }
}
