//! Asking people, taking their answers, and what happens when nobody answers (G10, G11). What
//! each kind of question is about stands in [`super::plans`], [`super::budgets`],
//! [`super::unknown`] and [`super::elicitations`].

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

/// Who answers, and through what.
#[derive(Clone, Debug)]
pub(super) struct Respondent {
    pub(super) by: UserId,
    pub(super) role: Role,
    pub(super) surface: Surface,
}

impl DecisionBuilder<'_> {
    /// Asks people; the calls that the question is about wait for the answer.
    pub(super) fn request_approval(
        &mut self,
        question: ApprovalSubject,
        purpose: String,
        max_risk_level: Risk,
    ) {
        let now = self.env.now;
        let timing = self.env.rules.agent.approval_deadlines.rule(question.kind(), max_risk_level);
        let DeadlineRule { timeout: deadline, action: on_deadline } = timing;
        let approval = Approval {
            approval_id: ApprovalId(self.env.uuid()),
            subject: question,
            purpose,
            max_risk_level,
            requested_at: now,
            deadline: deadline.map(|time| now.saturating_add(time)),
            on_deadline,
        };
        self.emit(SessionEvent::ApprovalRequested { approval: Arc::new(approval) });
    }

    pub(super) fn decide_answer_approval(
        &mut self,
        approval_id: ApprovalId,
        answer: ApprovalAnswer,
        for_session: Option<GrantRequest>,
        person: &Respondent,
    ) -> Result<Reply, Rejection> {
        let Some(open) = self.active.open_approval(approval_id).cloned() else {
            let closed = self.session.closed_approval(approval_id);
            let closed = closed.ok_or(Rejection::UnknownApproval { approval_id })?;
            let answer = answer.normalized_for(&closed.approval.subject);
            return answer_closed_approval(closed, &answer, for_session.as_ref(), &person.by);
        };
        let answer = answer.normalized_for(&open.approval.subject);
        let reply = match (&open.approval.subject, answer) {
            (
                ApprovalSubject::Plan { .. },
                answer @ (ApprovalAnswer::Overall { .. } | ApprovalAnswer::Steps(_)),
            ) => self.decide_plan_answer(&open, answer, for_session, person)?,
            (question, ApprovalAnswer::Resolve { resolution, reason })
                if question.accepts(&resolution) =>
            {
                self.ensure_can_answer(&open, person.role)?;
                if for_session.is_some() {
                    let problem = "only the steps of a plan can be approved for the session";
                    return Err(Rejection::InvalidGrant { problem: problem.to_owned() });
                }
                let at = self.env.now;
                let Respondent { by, surface, .. } = person.clone();
                let word = RecordedAnswer { resolution, reason, by, surface, at };
                self.resolve(&open, word)?
            }
            (question, _) => {
                let decisions = question.kind().allowed_answers();
                return Err(Rejection::UnsupportedAnswer { allowed: decisions });
            }
        };
        self.advance();
        Ok(reply)
    }

    /// Whether the time has not passed, and the question is for people of that role.
    pub(super) fn ensure_can_answer(
        &self,
        open: &OpenApproval,
        role: Role,
    ) -> Result<(), Rejection> {
        let is_late = open.due_at().is_some_and(|due| due <= self.env.now);
        // Where it is late, the desk's wake-up, which records that, is on its way.
        let least = match (&open.escalation, open.approval.on_deadline) {
            (Some(_), _) | (None, DeadlineAction::Deny) if is_late => {
                return Err(Rejection::ApprovalExpired);
            }
            (None, DeadlineAction::Escalate { to, .. }) if is_late => Some(to),
            (escalation, _) => escalation.map(|escalation| escalation.to),
        };
        match least.filter(|least| role < *least) {
            Some(role) => Err(Rejection::RoleRequired { role }),
            None => Ok(()),
        }
    }

    /// Takes a word on a question without steps: it is decided by it, whole.
    fn resolve(&mut self, open: &OpenApproval, word: RecordedAnswer) -> Result<Reply, Rejection> {
        let approval_id = open.approval.approval_id;
        match &open.approval.subject {
            ApprovalSubject::Budget(asked) => {
                self.resolve_budget_raise(approval_id, asked, word)?
            }
            ApprovalSubject::UnknownOutcome(asked) => {
                self.resolve_unknown_outcome(approval_id, asked, word)?
            }
            ApprovalSubject::Preflight(checklist) => {
                self.resolve_preflight(approval_id, checklist, word)?;
            }
            ApprovalSubject::Elicitation(asked) => {
                self.resolve_elicitation(approval_id, asked, word)?
            }
            ApprovalSubject::Plan { .. } => {}
        }
        Ok(Reply::Answered { closed: true, repeated: false })
    }

    /// Records the word that decides a question without steps.
    pub(super) fn emit_answer(&mut self, approval_id: ApprovalId, word: RecordedAnswer) {
        let word = Some(Box::new(word));
        let event = SessionEvent::ApprovalDecided {
            approval_id,
            steps: Vec::new(),
            answer: word,
            closed: true,
        };
        self.emit(event);
    }

    /// Does what is due about the questions whose time is up.
    pub(super) fn expire_overdue(&mut self) {
        let now = self.env.now;
        let is_due = |open: &&OpenApproval| open.due_at().is_some_and(|due| due <= now);
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

    /// Hands the question to people of another role. Their time counts from the deadline, not
    /// from when somebody noticed: the process may have been down.
    fn escalate(&mut self, open: &OpenApproval, to: Role, within_ms: Option<u64>) {
        let approval_id = open.approval.approval_id;
        let since = open.approval.deadline.unwrap_or(self.env.now);
        let deadline = within_ms.map(|within| since.saturating_add(Duration::from_millis(within)));
        self.emit(SessionEvent::ApprovalEscalated { approval_id, to, deadline });
        if deadline.is_some_and(|deadline| deadline <= self.env.now) {
            self.expire(open);
        }
    }

    /// Closes a question that nobody answered. What was not decided does not happen.
    fn expire(&mut self, open: &OpenApproval) {
        let approval_id = open.approval.approval_id;
        // Another question that expired with it may have ended the run.
        if self.active.open_approval(approval_id).is_none() {
            return;
        }
        self.emit(SessionEvent::ApprovalExpired { approval_id });
        match &open.approval.subject {
            ApprovalSubject::Plan { .. } => {
                for step in open.undecided() {
                    let error = "nobody answered in time whether this call may run".to_owned();
                    self.fail_call(step.call_id, CallFailureReason::Expired, error, false);
                }
            }
            ApprovalSubject::Budget(asked) => {
                let error =
                    format!("nobody answered in time whether to raise the {}", asked.budget);
                self.fail_run(RunFailureCode::ApprovalExpired, error);
            }
            ApprovalSubject::Preflight(_) => {
                let error = "nobody answered in time whether the plan may be carried out";
                self.fail_run(RunFailureCode::ApprovalExpired, error.to_owned());
            }
            ApprovalSubject::Elicitation(asked) => {
                self.answer_elicitation(asked, ElicitationAnswer::Cancelled);
            }
            // It has no deadline.
            ApprovalSubject::UnknownOutcome(_) => {}
        }
    }
}

impl ApprovalSubject {
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

/// An answer to a closed question: the same person's same answer is fine, any other is refused.
fn answer_closed_approval(
    closed: &ClosedApproval,
    answer: &ApprovalAnswer,
    for_session: Option<&GrantRequest>,
    by: &UserId,
) -> Result<Reply, Rejection> {
    let is_decided = closed.outcome == ApprovalOutcome::Decided;
    let repeated = match answer {
        ApprovalAnswer::Resolve { resolution, reason: _ } => {
            let is_same =
                |first: &RecordedAnswer| first.by == *by && first.resolution == *resolution;
            for_session.is_none() && closed.answer.as_ref().is_some_and(is_same)
        }
        ApprovalAnswer::Overall { .. } | ApprovalAnswer::Steps(_) => {
            plans::is_repeated(closed, answer, for_session, by)?
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
