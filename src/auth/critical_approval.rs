//! The rule for approving critical steps and for retrying critical calls (G12). Pure. Rejections and
//! steps of lower risk are not subject to the rule.

use super::{Principal, Role};
use greenroom_core::{
    approval::{ApprovalSubject, PlanStep, Resolution},
    policy::Risk,
    preflight::{Checklist, ChecklistStep, ChecklistStepEdit},
    session::{ApprovalAnswer, ApprovalRow, ApprovalState},
};

/// The requirements for approving a critical step, in addition to the right to answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CriticalApprovalRule {
    /// The minimum role.
    pub min_role: Option<Role>,
    /// True if the approver must not be the owner of the session.
    pub four_eyes: bool,
}

/// The reason why a principal may not approve a critical step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CriticalApprovalError {
    /// The role is too low.
    #[error("`{tool}` is critical: approval requires the role `{role}`")]
    ApproverRequired {
        /// The step's tool.
        tool: String,
        /// The minimum role.
        role: Role,
    },
    /// The principal owns the session.
    #[error("`{tool}` is critical: approval requires a user other than the session's owner")]
    FourEyes {
        /// The step's tool.
        tool: String,
    },
}

impl CriticalApprovalRule {
    /// Returns an error if `principal` may not give this answer. Steps that are already decided are
    /// ignored.
    pub fn authorize(
        &self,
        principal: &Principal,
        row: &ApprovalRow,
        answer: &ApprovalAnswer,
    ) -> Result<(), CriticalApprovalError> {
        let is_undecided =
            |step: &&PlanStep| row.decisions.iter().all(|first| first.call_id != step.call_id);
        let mut critical = row.approval.steps().iter().filter(|step| {
            step.risk == Risk::Critical && is_undecided(step) && approves_step(answer, step)
        });
        let plan_tool = critical.next().map(|step| step.tool.clone());
        let resolution_tool = || critical_tool_of_resolution(row, answer);
        let Some(tool) = plan_tool.or_else(resolution_tool) else { return Ok(()) };
        if let Some(role) = self.min_role.filter(|role| principal.role < *role) {
            return Err(CriticalApprovalError::ApproverRequired { tool, role });
        }
        if self.four_eyes && principal.user == row.owner {
            return Err(CriticalApprovalError::FourEyes { tool });
        }
        Ok(())
    }
}

/// Returns the critical tool that an answer to an approval without steps allows to run.
fn critical_tool_of_resolution(row: &ApprovalRow, answer: &ApprovalAnswer) -> Option<String> {
    let ApprovalAnswer::Resolve { resolution, .. } = answer else { return None };
    if row.state != ApprovalState::Pending {
        return None;
    }
    match (&row.approval.subject, resolution) {
        (ApprovalSubject::Preflight(checklist), Resolution::Approve(edits)) => {
            critical_tool_of_preflight(checklist, edits)
        }
        // A retry may run the call twice; `done` and `failed` run nothing.
        (ApprovalSubject::UnknownOutcome(outcome), Resolution::Retry) => {
            (outcome.risk == Risk::Critical).then(|| outcome.tool.clone())
        }
        _ => None,
    }
}

/// Returns the tool of the first critical step that is not skipped (G14). Edits cannot make a step
/// critical.
fn critical_tool_of_preflight(
    checklist: &Checklist,
    edits: &[ChecklistStepEdit],
) -> Option<String> {
    let is_skipped =
        |step: &ChecklistStep| edits.iter().any(|edit| edit.position == step.position && edit.skip);
    let mut steps = checklist.steps.iter();
    let critical = steps.find(|step| step.risk == Risk::Critical && !is_skipped(step))?;
    critical.tool_name.clone()
}

/// True if the answer approves the step.
fn approves_step(answer: &ApprovalAnswer, step: &PlanStep) -> bool {
    match answer {
        ApprovalAnswer::Overall { approved, .. } => *approved,
        ApprovalAnswer::Steps(steps) => {
            steps.iter().any(|decision| decision.call_id == step.call_id && decision.approved)
        }
        ApprovalAnswer::Resolve { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::AuthMethod;
    use greenroom_core::{
        Timestamp,
        approval::{Approval, DeadlineAction, PlanStepDecision, Surface, UnknownOutcome},
        ids::{ApprovalId, CallId, RunId, SessionId, UserId},
        json::Digest,
        session::PlanStepAnswer,
    };
    use serde_json::json;
    use uuid::Uuid;

    fn call(n: u128) -> CallId {
        CallId(Uuid::from_u128(n))
    }

    fn user(name: &str) -> UserId {
        UserId::parse(name).unwrap()
    }

    /// An approval of a session of `ada`: call 1 is critical, call 2 is not.
    fn row() -> ApprovalRow {
        let step = |n, tool: &str, risk| PlanStep {
            call_id: call(n),
            tool: tool.to_owned(),
            arguments: json!({}),
            digest: Digest::hash_json(&json!({})),
            risk,
            description: String::new(),
            why: String::new(),
            cost: None,
            exceeds_budget: false,
        };
        let approval = Approval {
            approval_id: ApprovalId(Uuid::nil()),
            purpose: String::new(),
            subject: ApprovalSubject::Plan {
                steps: vec![step(1, "wire", Risk::Critical), step(2, "note", Risk::WriteHighRisk)],
            },
            max_risk_level: Risk::Critical,
            requested_at: Timestamp(0),
            deadline: None,
            on_deadline: DeadlineAction::Deny,
        };
        ApprovalRow {
            root: None,
            approval: approval.into(),
            session_id: SessionId(Uuid::nil()),
            run_id: RunId(Uuid::nil()),
            owner: user("ada"),
            state: ApprovalState::Pending,
            decisions: Vec::new(),
            answer: None,
            escalation: None,
            closed_at: None,
        }
    }

    fn principal(name: &str, role: Role) -> Principal {
        Principal { user: user(name), role, auth_method: AuthMethod::Bearer, key_id: None }
    }

    fn overall_answer(approved: bool) -> ApprovalAnswer {
        ApprovalAnswer::Overall { approved, reason: None }
    }

    fn steps(decisions: &[(u128, bool)]) -> ApprovalAnswer {
        let step = |(n, approved): &(u128, bool)| PlanStepAnswer {
            call_id: call(*n),
            approved: *approved,
            reason: None,
            arguments: None,
        };
        ApprovalAnswer::Steps(decisions.iter().map(step).collect())
    }

    #[test]
    fn g12_only_approving_a_critical_step_requires_the_role() {
        let role = Some(Role::Approver);
        let rule = CriticalApprovalRule { min_role: role, four_eyes: true };
        let ada = principal("ada", Role::User);
        for (answer, refused) in [
            (overall_answer(true), true),
            (overall_answer(false), false),
            (steps(&[(1, true)]), true),
            (steps(&[(1, false), (2, true)]), false),
            (steps(&[(2, true)]), false),
            (steps(&[(2, true), (1, true)]), true),
        ] {
            let checked = rule.authorize(&ada, &row(), &answer);
            let role = Role::Approver;
            let expected =
                CriticalApprovalError::ApproverRequired { tool: "wire".to_owned(), role };
            assert_eq!(checked.err(), refused.then_some(expected), "{answer:?}");
        }
    }

    #[test]
    fn g12_role_and_four_eyes_apply_independently() {
        let needs_role = CriticalApprovalRule { min_role: Some(Role::Approver), four_eyes: false };
        let four_eyes = CriticalApprovalRule { min_role: None, four_eyes: true };
        let role_and_four_eyes = CriticalApprovalRule { four_eyes: true, ..needs_role };
        let required = || {
            let (tool, role) = ("wire".to_owned(), Role::Approver);
            Err(CriticalApprovalError::ApproverRequired { tool, role })
        };
        let not_owner = || Err(CriticalApprovalError::FourEyes { tool: "wire".to_owned() });
        for (name, role, rule, expected) in [
            ("ada", Role::User, CriticalApprovalRule::default(), Ok(())),
            ("ada", Role::User, needs_role, required()),
            ("ada", Role::Approver, needs_role, Ok(())),
            ("ada", Role::Admin, needs_role, Ok(())),
            ("ada", Role::User, four_eyes, not_owner()),
            ("ada", Role::Admin, four_eyes, not_owner()),
            ("bob", Role::Approver, four_eyes, Ok(())),
            ("ada", Role::Approver, role_and_four_eyes, not_owner()),
            ("bob", Role::Approver, role_and_four_eyes, Ok(())),
            ("admin", Role::Admin, role_and_four_eyes, Ok(())),
        ] {
            let checked = rule.authorize(&principal(name, role), &row(), &overall_answer(true));
            assert_eq!(checked, expected, "{name} {role} {rule:?}");
        }
    }

    #[test]
    fn g12_owner_decides_remaining_steps_after_the_critical_step() {
        let mut row = row();
        row.decisions.push(PlanStepDecision {
            call_id: call(1),
            approved: true,
            reason: None,
            by: user("bob"),
            surface: Surface::Rest,
            at: Timestamp(0),
            digest: Digest::hash_json(&json!({})),
            edited: None,
            for_session: None,
        });
        let rule = CriticalApprovalRule { min_role: Some(Role::Approver), four_eyes: true };
        assert_eq!(
            rule.authorize(&principal("ada", Role::User), &row, &overall_answer(true)),
            Ok(())
        );
    }

    #[test]
    fn g12_retrying_a_critical_call_requires_the_role_and_four_eyes() {
        let row_with_risk = |risk| {
            let mut row = row();
            let mut approval = Approval::clone(&row.approval);
            approval.subject = ApprovalSubject::UnknownOutcome(UnknownOutcome {
                call_id: call(1),
                tool: "wire".to_owned(),
                arguments: json!({}),
                digest: Digest::hash_json(&json!({})),
                risk,
                attempts: 1,
                why: String::new(),
            });
            row.approval = approval.into();
            row
        };
        let resolve = |resolution| ApprovalAnswer::Resolve { resolution, reason: None };
        let role = Role::Approver;
        let rule = CriticalApprovalRule { min_role: Some(role), four_eyes: true };
        let (ada, bob) = (principal("ada", Role::User), principal("bob", role));
        let critical = row_with_risk(Risk::Critical);
        let tool = "wire".to_owned();
        let refused = Err(CriticalApprovalError::ApproverRequired { tool, role });
        assert_eq!(rule.authorize(&ada, &critical, &resolve(Resolution::Retry)), refused);
        let (owner, tool) = (principal("ada", role), "wire".to_owned());
        let refused = Err(CriticalApprovalError::FourEyes { tool });
        assert_eq!(rule.authorize(&owner, &critical, &resolve(Resolution::Retry)), refused);
        assert_eq!(rule.authorize(&bob, &critical, &resolve(Resolution::Retry)), Ok(()));
        for resolution in [Resolution::Failed, Resolution::Done(json!("it did"))] {
            assert_eq!(
                rule.authorize(&ada, &critical, &resolve(resolution)),
                Ok(()),
                "runs nothing"
            );
        }
        let lower = row_with_risk(Risk::WriteHighRisk);
        assert_eq!(rule.authorize(&ada, &lower, &resolve(Resolution::Retry)), Ok(()));
    }

    #[test]
    fn g14_approving_a_critical_preflight_step_requires_the_role() {
        let mut row = row();
        let mut approval = Approval::clone(&row.approval);
        approval.subject = serde_json::from_value(json!({
            "kind": "preflight",
            "steps": [
                {"position": 1, "description": "d", "toolName": "note", "risk": "write_high_risk",
                    "needsApproval": true},
                {"position": 2, "description": "d", "toolName": "wire", "risk": "critical",
                    "needsApproval": true},
            ],
            "estimatedCost": {"inputTokens": 1, "outputTokens": 1, "estimatedUSD": null},
            "requiredPermissions": [], "warnings": [],
        }))
        .unwrap();
        row.approval = approval.into();
        let rule = CriticalApprovalRule { min_role: Some(Role::Approver), four_eyes: false };
        let ada = principal("ada", Role::User);
        let authorize = |edits| {
            let answer =
                ApprovalAnswer::Resolve { resolution: Resolution::Approve(edits), reason: None };
            rule.authorize(&ada, &row, &answer)
        };
        let tool = "wire".to_owned();
        let refused = Err(CriticalApprovalError::ApproverRequired { tool, role: Role::Approver });
        assert_eq!(authorize(vec![]), refused);
        let skip = |position| {
            vec![ChecklistStepEdit { position, skip: true, ..ChecklistStepEdit::default() }]
        };
        assert_eq!(authorize(skip(1)), refused);
        assert_eq!(authorize(skip(2)), Ok(()));
        let rejection = ApprovalAnswer::Resolve { resolution: Resolution::Reject, reason: None };
        assert_eq!(rule.authorize(&ada, &row, &rejection), Ok(()));
    }
}
