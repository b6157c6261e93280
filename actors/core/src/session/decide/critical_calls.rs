//! Checks who may approve critical calls (G12). The policy evaluation decides that they need
//! approval.

use super::{DecisionBuilder, Rejection, approvals::Respondent};
use crate::{
    approval::{PlanStep, UnknownOutcome},
    call::Call,
    ids::{CallId, UserId},
    limits::EDITORS_MAX,
    policy::{Approver, CallParties, CriticalApprovalError, InvolvedParty, Risk, Tool},
};

impl DecisionBuilder<'_> {
    /// Returns true if the rule for critical calls applies to calls of `tool`.
    pub(super) fn is_subject_to_critical_rule(&self, tool: &Tool) -> bool {
        tool.risk == Risk::Critical && self.env.rules.critical.requires_approval()
    }

    /// Returns true if an edited call of `tool` needs the approval of a user who did not edit it.
    pub(super) fn requires_second_user(&self, tool: &Tool) -> bool {
        tool.risk == Risk::Critical && self.env.rules.critical.four_eyes
    }

    /// Checks that the respondent may approve a step of a plan. A user who edited the call earlier
    /// may edit it again, because each edit needs another approval.
    pub(super) fn ensure_may_approve_step(
        &self,
        step: &PlanStep,
        is_edited: bool,
        respondent: &Respondent,
    ) -> Result<(), Rejection> {
        if step.risk != Risk::Critical {
            return Ok(());
        }
        match self.check_approver(step.call_id, &respondent.to_approver()) {
            Err(CriticalApprovalError::SecondUserRequired(InvolvedParty::Editor)) if is_edited => {
                Ok(())
            }
            checked @ (Ok(()) | Err(_)) => checked.map_err(|error| to_rejection(error, &step.tool)),
        }
    }

    /// Returns true if the call has the maximum number of editors, and `user` is not one of them.
    pub(super) fn is_editor_limit_reached(&self, call_id: CallId, user: &UserId) -> bool {
        let editors = self.call(call_id).map(|call| &call.editors);
        editors.is_some_and(|editors| editors.len() >= EDITORS_MAX && !editors.contains(user))
    }

    /// Checks that the respondent may resolve the unknown outcome of a call.
    pub(super) fn ensure_may_resolve(
        &self,
        request: &UnknownOutcome,
        respondent: &Respondent,
    ) -> Result<(), Rejection> {
        let current_risk = self.tool(&request.tool).map(|tool| tool.risk);
        if current_risk.unwrap_or_default().max(request.risk) != Risk::Critical {
            return Ok(());
        }
        let checked = self.check_approver(request.call_id, &respondent.to_approver());
        checked.map_err(|error| to_rejection(error, &request.tool))
    }

    /// Returns true if the recorded approval of the call, which now has this risk, meets the current
    /// rule. The rule can change between the approval and the start of an attempt.
    pub(super) fn is_approval_sufficient(&self, call: &Call, risk: Risk) -> bool {
        let is_subject = risk == Risk::Critical && self.env.rules.critical.requires_approval();
        let is_met = |approver| self.check_approver(call.call_id, approver).is_ok();
        !is_subject || call.approver.as_ref().is_some_and(is_met)
    }

    fn check_approver(
        &self,
        call_id: CallId,
        approver: &Approver,
    ) -> Result<(), CriticalApprovalError> {
        let owner = self.owner();
        let run = self.active.run.as_ref();
        let authors = run.map(|run| run.authors.clone()).unwrap_or_default();
        let editors = run.zip(self.call(call_id)).map(|(run, call)| run.editors(call));
        let editors = editors.unwrap_or_default();
        let parties = CallParties { owner: owner.as_ref(), authors: &authors, editors: &editors };
        self.env.rules.critical.authorize(approver, &parties)
    }
}

impl Respondent {
    fn to_approver(&self) -> Approver {
        Approver { user: self.by.clone(), role: Some(self.role) }
    }
}

fn to_rejection(error: CriticalApprovalError, tool: &str) -> Rejection {
    let tool = tool.to_owned();
    match error {
        CriticalApprovalError::RoleTooLow { role } => Rejection::ApproverRequired { tool, role },
        CriticalApprovalError::SecondUserRequired(party) => Rejection::FourEyes { tool, party },
    }
}
