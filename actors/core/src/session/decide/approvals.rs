//! Asking people, and taking their answers (G8, G10, G11).

use super::{Deciding, Rejection, Reply};
use crate::{
    approval::{
        Approval, ApprovalEnd, ApprovalKind, ClosedApproval, Edit, GrantWish, OpenApproval,
        PlanStep, StepDecision, Surface, restored,
    },
    call::FailReason,
    ids::{ApprovalId, CallId, UserId},
    json::Digest,
    policy::{Risk, Tool, Verdict},
    session::{Allowance, ApprovalAnswer, SessionEvent, StepAnswer},
};
use serde_json::Value;
use std::{collections::BTreeSet, sync::Arc};

/// A call to ask for, why, and its tool.
pub(super) type Ask = (CallId, String, Option<Arc<Tool>>);

impl Deciding<'_> {
    /// Bundles the calls that need a person into one plan.
    pub(super) fn request_approval(&mut self, asks: Vec<Ask>) {
        let steps: Vec<_> = asks.into_iter().filter_map(|ask| self.plan_step(ask)).collect();
        if steps.is_empty() {
            return;
        }
        let noun = if steps.len() == 1 { "tool" } else { "tools" };
        let now = self.env.now;
        let approval = Approval {
            approval_id: ApprovalId(self.env.uuid()),
            kind: ApprovalKind::Plan,
            purpose: format!("Execute {} {noun}", steps.len()),
            max_risk_level: steps.iter().map(|step| step.risk).max().unwrap_or(Risk::ReadOnly),
            steps,
            requested_at: now,
            deadline: self.env.rules.agent.approval_deadline.map(|time| now.after(time)),
        };
        self.emit(SessionEvent::ApprovalRequested { approval: Arc::new(approval) });
    }

    fn plan_step(&self, (call_id, why, tool): Ask) -> Option<PlanStep> {
        let call = self.call(call_id)?;
        Some(PlanStep {
            call_id,
            tool: call.tool.clone(),
            arguments: call.arguments.to_value(),
            digest: call.digest,
            risk: call.risk,
            description: tool.map(|tool| tool.description.clone()).unwrap_or_default(),
            why,
        })
    }

    pub(super) fn decide_approval(
        &mut self,
        approval_id: ApprovalId,
        answer: ApprovalAnswer,
        for_session: Option<GrantWish>,
        by: &UserId,
        surface: Surface,
    ) -> Result<Reply, Rejection> {
        let Some(open) = self.active.open_approval(approval_id).cloned() else {
            let closed = self.session.closed_approval(approval_id);
            let closed = closed.ok_or(Rejection::UnknownApproval { approval_id })?;
            return repeated_or_refused(closed, &answer, by);
        };
        let answers = new_answers(&open, answer, by)?;
        if answers.is_empty() {
            return Ok(Reply::Decided { closed: false, repeated: true });
        }
        if open.approval.deadline.is_some_and(|deadline| deadline <= self.env.now) {
            // The desk's wake-up, which records the expiry, is on its way.
            return Err(Rejection::ApprovalExpired);
        }
        let decisions = answers
            .into_iter()
            .map(|(step, answer)| self.decision_on(step, answer, by, surface))
            .collect::<Result<Vec<_>, _>>()?;
        let grants = self.wished_grants(for_session.as_ref(), &decisions, by)?;
        let closed = open.decisions.len() + decisions.len() == open.approval.steps.len();
        let steps = decisions.clone();
        self.emit(SessionEvent::ApprovalDecided { approval_id, steps, closed });
        for grant in grants {
            self.emit_for(None, None, SessionEvent::GrantAdded { grant });
        }
        for decision in decisions {
            self.carry_out(approval_id, decision);
        }
        self.advance();
        Ok(Reply::Decided { closed, repeated: false })
    }

    /// A person's word on one step; arguments they changed are validated and judged anew.
    fn decision_on(
        &self,
        step: &PlanStep,
        answer: StepAnswer,
        by: &UserId,
        surface: Surface,
    ) -> Result<StepDecision, Rejection> {
        let edited = changed_arguments(step, &answer);
        if let Some(arguments) = &edited {
            self.check_edit(step, &answer, arguments)?;
        }
        let StepAnswer { call_id, approved, reason, arguments: _ } = answer;
        Ok(StepDecision {
            call_id,
            approved,
            reason,
            by: by.clone(),
            surface,
            at: self.env.now,
            digest: edited.as_ref().map_or(step.digest, Digest::of),
            edited,
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
            Verdict::Allow { .. } | Verdict::Ask { .. } => Ok(()),
            Verdict::Deny(denial) => invalid(denial.reason),
        }
    }

    fn carry_out(&mut self, approval_id: ApprovalId, decision: StepDecision) {
        let StepDecision { call_id, approved, reason, by, digest, edited, .. } = decision;
        if approved {
            let by = Allowance::Approval { approval_id, by };
            let edit = edited.map(|arguments| Edit { arguments, reason });
            self.emit(SessionEvent::ToolCallAllowed { call_id, digest, by, edit });
            return;
        }
        let error = match reason {
            Some(reason) => format!("a person rejected this call: {reason}"),
            None => "a person rejected this call".to_owned(),
        };
        self.fail_call(call_id, FailReason::Rejected, error, false);
    }

    /// Closes the questions whose deadline has passed. What was not decided does not run.
    pub(super) fn expire_due(&mut self) {
        let now = self.env.now;
        let is_due = |open: &&OpenApproval| open.approval.deadline.is_some_and(|end| end <= now);
        let due: Vec<_> = self.active.approvals.iter().filter(is_due).cloned().collect();
        for open in due {
            let approval_id = open.approval.approval_id;
            self.emit(SessionEvent::ApprovalExpired { approval_id });
            for step in open.undecided() {
                let error = "nobody answered in time whether this call may run".to_owned();
                self.fail_call(step.call_id, FailReason::Expired, error, false);
            }
        }
    }
}

/// The steps that `answer` decides anew, each with its word. Steps that the same person decided
/// the same way before are left out; others that are decided are a conflict.
fn new_answers<'a>(
    open: &'a OpenApproval,
    answer: ApprovalAnswer,
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
    };
    must_be_clear(&answers)?;
    let mut fresh = Vec::new();
    for answer in answers {
        let call_id = answer.call_id;
        let step = open.approval.steps.iter().find(|step| step.call_id == call_id);
        let step = step.ok_or(Rejection::UnknownStep { call_id })?;
        match open.decisions.get(&call_id) {
            None => fresh.push((step, answer)),
            Some(first) if is_the_same(first, step, &answer, by) => {}
            Some(first) => return Err(Rejection::AlreadyDecided { first: vec![first.clone()] }),
        }
    }
    Ok(fresh)
}

/// The arguments as the person changed them, if they are others than those of the plan.
fn changed_arguments(step: &PlanStep, answer: &StepAnswer) -> Option<Value> {
    let arguments = restored(&step.arguments, answer.arguments.clone()?);
    (Digest::of(&arguments) != step.digest).then_some(arguments)
}

/// Whether `answer` is what `first` was: the same person's same word on the same arguments.
fn is_the_same(first: &StepDecision, step: &PlanStep, answer: &StepAnswer, by: &UserId) -> bool {
    let digest = changed_arguments(step, answer).as_ref().map_or(step.digest, Digest::of);
    first.approved == answer.approved && first.by == *by && first.digest == digest
}

/// An answer decides something, and no step twice.
fn must_be_clear(answers: &[StepAnswer]) -> Result<(), Rejection> {
    let mut seen = BTreeSet::new();
    if answers.is_empty() || !answers.iter().all(|answer| seen.insert(answer.call_id)) {
        return Err(Rejection::UnclearAnswer);
    }
    Ok(())
}

/// An answer to a closed question: the same person's same answer is fine, any other is refused.
fn repeated_or_refused(
    closed: &ClosedApproval,
    answer: &ApprovalAnswer,
    by: &UserId,
) -> Result<Reply, Rejection> {
    let step_of = |answer: &StepAnswer| {
        closed.approval.steps.iter().find(|step| step.call_id == answer.call_id)
    };
    let is_decided = closed.end == ApprovalEnd::Decided;
    let repeated = match answer {
        // It was the last word if it was taken: it left no step undecided.
        ApprovalAnswer::Whole { approved, .. } => {
            let mut last = closed.decisions.values().filter(|first| first.at == closed.closed_at);
            let plain = |first: &StepDecision| first.by == *by && first.edited.is_none();
            is_decided && last.all(|first| plain(first) && first.approved == *approved)
        }
        ApprovalAnswer::Steps(answers) => {
            must_be_clear(answers)?;
            answers.iter().all(|answer| {
                let first = closed.decisions.get(&answer.call_id).zip(step_of(answer));
                first.is_some_and(|(first, step)| is_the_same(first, step, answer, by))
            })
        }
    };
    if repeated {
        return Ok(Reply::Decided { closed: is_decided, repeated: true });
    }
    match closed.end {
        ApprovalEnd::Expired => return Err(Rejection::ApprovalExpired),
        ApprovalEnd::Cancelled => return Err(Rejection::ApprovalCancelled),
        ApprovalEnd::Decided => {}
    }
    if let ApprovalAnswer::Steps(answers) = answer {
        let is_unknown = |answer: &&StepAnswer| !closed.decisions.contains_key(&answer.call_id);
        if let Some(unknown) = answers.iter().find(is_unknown) {
            return Err(Rejection::UnknownStep { call_id: unknown.call_id });
        }
    }
    let decided = |step: &PlanStep| closed.decisions.get(&step.call_id).cloned();
    let first = closed.approval.steps.iter().filter_map(decided).collect();
    Err(Rejection::AlreadyDecided { first })
}
