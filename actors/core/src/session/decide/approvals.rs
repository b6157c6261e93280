//! Requests approvals, handles answers to them, and handles passed deadlines (G10, G11).
//!
//! [`super::plans`], [`super::budgets`], [`super::preflight`], [`super::unknown_outcomes`] and
//! [`super::elicitations`] define the effect of an answer to each kind of approval.

use super::{DecisionBuilder, Rejection, Reply, plans};
use crate::{
    approval::{
        Approval, ApprovalOutcome, ApprovalSubject, ClosedApproval, DeadlineAction, DeadlineRule,
        ElicitationAnswer, GrantRequest, OpenApproval, RecordedAnswer, Resolution, Role, Surface,
    },
    call::CallFailureReason,
    ids::{ApprovalId, UserId},
    policy::Risk,
    session::{ApprovalAnswer, RunFailureCode, SessionEvent},
};
use std::{sync::Arc, time::Duration};

/// The human who answers an approval: user, role and surface.
#[derive(Clone, Debug)]
pub(super) struct Respondent {
    pub(super) by: UserId,
    pub(super) role: Role,
    pub(super) surface: Surface,
}

impl DecisionBuilder<'_> {
    /// Requests an approval. The calls that it concerns wait for the answer.
    pub(super) fn request_approval(
        &mut self,
        subject: ApprovalSubject,
        purpose: String,
        max_risk_level: Risk,
    ) {
        let now = self.env.now;
        let rule = self.env.rules.agent.approval_deadlines.rule(subject.kind(), max_risk_level);
        let DeadlineRule { timeout, action: on_deadline } = rule;
        let approval = Approval {
            approval_id: ApprovalId(self.env.uuid()),
            subject,
            purpose,
            max_risk_level,
            requested_at: now,
            deadline: timeout.map(|timeout| now.saturating_add(timeout)),
            on_deadline,
        };
        self.emit(SessionEvent::ApprovalRequested { approval: Arc::new(approval) });
    }

    pub(super) fn decide_answer_approval(
        &mut self,
        approval_id: ApprovalId,
        answer: ApprovalAnswer,
        for_session: Option<GrantRequest>,
        respondent: &Respondent,
    ) -> Result<Reply, Rejection> {
        let Some(open) = self.active.open_approval(approval_id).cloned() else {
            let closed = self.session.closed_approval(approval_id);
            let closed = closed.ok_or(Rejection::UnknownApproval { approval_id })?;
            let answer = answer.normalized_for(&closed.approval.subject);
            return answer_closed_approval(closed, &answer, for_session.as_ref(), &respondent.by);
        };
        let answer = answer.normalized_for(&open.approval.subject);
        let reply = match (&open.approval.subject, answer) {
            (
                ApprovalSubject::Plan { .. },
                answer @ (ApprovalAnswer::Overall { .. } | ApprovalAnswer::Steps(_)),
            ) => self.decide_plan_answer(&open, answer, for_session, respondent)?,
            (subject, ApprovalAnswer::Resolve { resolution, reason })
                if subject.accepts(&resolution) =>
            {
                self.ensure_can_answer(&open, respondent.role)?;
                if for_session.is_some() {
                    let problem = "only steps of a plan can be approved for the session";
                    return Err(Rejection::InvalidGrant { problem: problem.to_owned() });
                }
                if let ApprovalSubject::UnknownOutcome(request) = subject {
                    self.ensure_may_resolve(request, respondent)?;
                }
                let Respondent { by, surface, role } = respondent.clone();
                let answer = RecordedAnswer { resolution, reason, by, surface, at: self.env.now };
                self.resolve(&open, answer, role)?
            }
            (subject, _) => {
                let allowed = subject.kind().allowed_answers();
                return Err(Rejection::UnsupportedAnswer { allowed });
            }
        };
        self.advance();
        Ok(reply)
    }

    /// Checks that the deadline has not passed and that `role` may answer.
    pub(super) fn ensure_can_answer(
        &self,
        open: &OpenApproval,
        role: Role,
    ) -> Result<(), Rejection> {
        let is_late = open.deadline_action_at().is_some_and(|due| due <= self.env.now);
        // For an overdue approval, the wake-up that records the passed deadline is on its way.
        let role_min = match (&open.escalation, open.approval.on_deadline) {
            (Some(_), _) | (None, DeadlineAction::Deny) if is_late => {
                return Err(Rejection::ApprovalExpired);
            }
            (None, DeadlineAction::Escalate { to, .. }) if is_late => Some(to),
            (escalation, _) => escalation.map(|escalation| escalation.to),
        };
        match role_min.filter(|role_min| role < *role_min) {
            Some(role) => Err(Rejection::RoleRequired { role }),
            None => Ok(()),
        }
    }

    /// Applies an answer to an approval without steps, which it decides completely. `role` is the
    /// role of the human who answers.
    fn resolve(
        &mut self,
        open: &OpenApproval,
        answer: RecordedAnswer,
        role: Role,
    ) -> Result<Reply, Rejection> {
        let approval_id = open.approval.approval_id;
        match &open.approval.subject {
            ApprovalSubject::Budget(request) => {
                self.resolve_budget_raise(approval_id, request, answer)?
            }
            ApprovalSubject::UnknownOutcome(request) => {
                self.resolve_unknown_outcome(approval_id, request, answer, role)?
            }
            ApprovalSubject::Preflight(checklist) => {
                self.resolve_preflight(approval_id, checklist, answer)?;
            }
            ApprovalSubject::Elicitation(request) => {
                self.resolve_elicitation(approval_id, request, answer)?
            }
            ApprovalSubject::Plan { .. } => {}
        }
        Ok(Reply::Answered { closed: true, repeated: false })
    }

    /// Records the answer that decides an approval without steps.
    pub(super) fn emit_answer(&mut self, approval_id: ApprovalId, answer: RecordedAnswer) {
        let event = SessionEvent::ApprovalDecided {
            approval_id,
            steps: Vec::new(),
            answer: Some(Box::new(answer)),
            closed: true,
        };
        self.emit(event);
    }

    /// Escalates or expires the approvals whose deadline has passed.
    pub(super) fn expire_overdue(&mut self) {
        let now = self.env.now;
        let is_due = |open: &&OpenApproval| open.deadline_action_at().is_some_and(|due| due <= now);
        let due: Vec<_> = self.active.approvals.iter().filter(is_due).cloned().collect();
        for open in due {
            match (open.escalation, open.approval.on_deadline) {
                (None, DeadlineAction::Escalate { to, within_ms }) => {
                    self.escalate(&open, to, within_ms)
                }
                (Some(_), _) | (None, DeadlineAction::Deny | DeadlineAction::Wait) => {
                    self.expire(&open)
                }
            }
        }
    }

    /// Escalates an approval to another role. The role's deadline counts from the first deadline,
    /// not from now, because the process may have been down.
    fn escalate(&mut self, open: &OpenApproval, to: Role, within_ms: Option<u64>) {
        let approval_id = open.approval.approval_id;
        let since = open.approval.deadline.unwrap_or(self.env.now);
        let deadline = within_ms.map(|within| since.saturating_add(Duration::from_millis(within)));
        self.emit(SessionEvent::ApprovalEscalated { approval_id, to, deadline });
        if deadline.is_some_and(|deadline| deadline <= self.env.now) {
            self.expire(open);
        }
    }

    /// Expires an approval: fails the undecided calls or the run, or cancels the elicitation.
    fn expire(&mut self, open: &OpenApproval) {
        let approval_id = open.approval.approval_id;
        // Another approval that expired in this decision may have ended the run.
        if self.active.open_approval(approval_id).is_none() {
            return;
        }
        self.emit(SessionEvent::ApprovalExpired { approval_id });
        match &open.approval.subject {
            ApprovalSubject::Plan { .. } => {
                for step in open.undecided() {
                    let error = "the approval expired without an answer".to_owned();
                    self.fail_call(step.call_id, CallFailureReason::Expired, error, false);
                }
            }
            ApprovalSubject::Budget(request) => {
                let error = format!(
                    "the approval to raise the {} expired without an answer",
                    request.budget
                );
                self.fail_run(RunFailureCode::ApprovalExpired, error);
            }
            ApprovalSubject::Preflight(_) => {
                let error = "the approval of the plan expired without an answer";
                self.fail_run(RunFailureCode::ApprovalExpired, error.to_owned());
            }
            ApprovalSubject::Elicitation(request) => {
                self.answer_elicitation(request, ElicitationAnswer::Cancelled);
            }
            // An unknown outcome has no deadline.
            ApprovalSubject::UnknownOutcome(_) => {}
        }
    }
}

impl ApprovalSubject {
    /// Returns true if `resolution` fits the approval's kind.
    fn accepts(&self, resolution: &Resolution) -> bool {
        match resolution {
            Resolution::Retry | Resolution::Done(_) | Resolution::Failed => {
                matches!(self, Self::UnknownOutcome(_))
            }
            Resolution::Raise(_) | Resolution::Stop => matches!(self, Self::Budget(_)),
            Resolution::Approve(_) => matches!(self, Self::Preflight(_)),
            Resolution::Reject => matches!(self, Self::Preflight(_) | Self::Elicitation(_)),
            Resolution::Answer(_) => matches!(self, Self::Elicitation(_)),
        }
    }
}

/// Handles an answer to a closed approval: accepts the same answer by the same user, and rejects
/// any other.
fn answer_closed_approval(
    closed: &ClosedApproval,
    answer: &ApprovalAnswer,
    for_session: Option<&GrantRequest>,
    user: &UserId,
) -> Result<Reply, Rejection> {
    let is_decided = closed.outcome == ApprovalOutcome::Decided;
    let repeated = match answer {
        ApprovalAnswer::Resolve { resolution, reason: _ } => {
            let is_same =
                |first: &RecordedAnswer| first.by == *user && first.resolution == *resolution;
            for_session.is_none() && closed.answer.as_ref().is_some_and(is_same)
        }
        ApprovalAnswer::Overall { .. } | ApprovalAnswer::Steps(_) => {
            plans::is_repeated(closed, answer, for_session, user)?
        }
    };
    if repeated {
        return Ok(Reply::Answered { closed: is_decided, repeated: true });
    }
    match closed.outcome {
        ApprovalOutcome::Expired => Err(Rejection::ApprovalExpired),
        ApprovalOutcome::Cancelled => Err(Rejection::ApprovalCancelled),
        ApprovalOutcome::Decided => Err(plans::conflict_rejection(closed, answer)),
    }
}
