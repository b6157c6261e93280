//! Who may agree to a critical step, or have a critical call run once more (G12). Pure. A rejection
//! harms nobody and is everybody's who may answer at all; so is a step of lesser risk.

use super::{Principal, Role};
use greenroom_core::{
    approval::{ApprovalSubject, PlanStep, Resolution},
    policy::Risk,
    preflight::{Checklist, ChecklistStep, ChecklistStepEdit},
    session::{ApprovalAnswer, ApprovalRow, ApprovalState},
};

/// What is asked of whoever agrees to a critical step, beyond that they may answer at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CriticalApprovalRule {
    /// At least this role.
    pub min_role: Option<Role>,
    /// Somebody else than the user whose session asks.
    pub four_eyes: bool,
}

/// Why somebody may not agree to a step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CriticalApprovalError {
    /// Their role does not suffice.
    #[error("`{tool}` is critical: only somebody with the role `{role}` may approve it")]
    ApproverRequired {
        /// The step's tool.
        tool: String,
        /// The least role.
        role: Role,
    },
    /// It is their own session.
    #[error("`{tool}` is critical: somebody else than who asked for it must approve it")]
    FourEyes {
        /// The step's tool.
        tool: String,
    },
}

impl CriticalApprovalRule {
    /// Whether `principal` may give that answer. Steps that are decided already are not asked
    /// about again.
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
        let of_plan = critical.next().map(|step| step.tool.clone());
        let of_word = || critical_tool_of_resolution(row, answer);
        let Some(tool) = of_plan.or_else(of_word) else { return Ok(()) };
        if let Some(role) = self.min_role.filter(|role| principal.role < *role) {
            return Err(CriticalApprovalError::ApproverRequired { tool, role });
        }
        if self.four_eyes && principal.user == row.owner {
            return Err(CriticalApprovalError::FourEyes { tool });
        }
        Ok(())
    }
}

/// The critical tool that a word on a question without steps lets run.
fn critical_tool_of_resolution(row: &ApprovalRow, answer: &ApprovalAnswer) -> Option<String> {
    let ApprovalAnswer::Resolve { resolution, .. } = answer else { return None };
    if row.state != ApprovalState::Pending {
        return None;
    }
    match (&row.approval.subject, resolution) {
        (ApprovalSubject::Preflight(checklist), Resolution::Approve(edits)) => {
            critical_tool_of_preflight(checklist, edits)
        }
        // It may run twice then; to tell what became of it runs nothing.
        (ApprovalSubject::UnknownOutcome(asked), Resolution::Retry) => {
            (asked.risk == Risk::Critical).then(|| asked.tool.clone())
        }
        _ => None,
    }
}

/// The tool of a critical step that the edits let stand (G14). A change can't make a step critical
/// that was not.
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

/// Whether the answer approves the step.
fn approves_step(answer: &ApprovalAnswer, step: &PlanStep) -> bool {
    match answer {
        ApprovalAnswer::Overall { approved, .. } => *approved,
        ApprovalAnswer::Steps(steps) => {
            steps.iter().any(|said| said.call_id == step.call_id && said.approved)
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

    /// Ada's: call 1 is critical, call 2 is not.
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

    fn whole(approved: bool) -> ApprovalAnswer {
        ApprovalAnswer::Overall { approved, reason: None }
    }

    fn steps(said: &[(u128, bool)]) -> ApprovalAnswer {
        let step = |(n, approved): &(u128, bool)| PlanStepAnswer {
            call_id: call(*n),
            approved: *approved,
            reason: None,
            arguments: None,
        };
        ApprovalAnswer::Steps(said.iter().map(step).collect())
    }

    #[test]
    fn g12_only_approving_a_critical_step_requires_the_role() {
        let role = Some(Role::Approver);
        let rule = CriticalApprovalRule { min_role: role, four_eyes: true };
        let ada = principal("ada", Role::User);
        for (answer, refused) in [
            (whole(true), true),
            (whole(false), false),
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
        let both = CriticalApprovalRule { four_eyes: true, ..needs_role };
        let required = || {
            let (tool, role) = ("wire".to_owned(), Role::Approver);
            Err(CriticalApprovalError::ApproverRequired { tool, role })
        };
        let others = || Err(CriticalApprovalError::FourEyes { tool: "wire".to_owned() });
        for (name, role, rule, expected) in [
            ("ada", Role::User, CriticalApprovalRule::default(), Ok(())),
            ("ada", Role::User, needs_role, required()),
            ("ada", Role::Approver, needs_role, Ok(())),
            ("ada", Role::Admin, needs_role, Ok(())),
            ("ada", Role::User, four_eyes, others()),
            ("ada", Role::Admin, four_eyes, others()),
            ("bob", Role::Approver, four_eyes, Ok(())),
            ("ada", Role::Approver, both, others()),
            ("bob", Role::Approver, both, Ok(())),
            ("admin", Role::Admin, both, Ok(())),
        ] {
            let checked = rule.authorize(&principal(name, role), &row(), &whole(true));
            assert_eq!(checked, expected, "{name} {role} {rule:?}");
        }
    }

    #[test]
    fn g12_once_another_has_decided_the_critical_step_the_rest_is_the_owners() {
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
        assert_eq!(rule.authorize(&principal("ada", Role::User), &row, &whole(true)), Ok(()));
    }

    #[test]
    fn g12_retrying_a_critical_call_requires_the_role_and_four_eyes() {
        let doubted = |risk| {
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
        let word = |resolution| ApprovalAnswer::Resolve { resolution, reason: None };
        let role = Role::Approver;
        let rule = CriticalApprovalRule { min_role: Some(role), four_eyes: true };
        let (ada, bob) = (principal("ada", Role::User), principal("bob", role));
        let critical = doubted(Risk::Critical);
        let tool = "wire".to_owned();
        let refused = Err(CriticalApprovalError::ApproverRequired { tool, role });
        assert_eq!(rule.authorize(&ada, &critical, &word(Resolution::Retry)), refused);
        let (own, tool) = (principal("ada", role), "wire".to_owned());
        let refused = Err(CriticalApprovalError::FourEyes { tool });
        assert_eq!(rule.authorize(&own, &critical, &word(Resolution::Retry)), refused);
        assert_eq!(rule.authorize(&bob, &critical, &word(Resolution::Retry)), Ok(()));
        for told in [Resolution::Failed, Resolution::Done(json!("it did"))] {
            assert_eq!(rule.authorize(&ada, &critical, &word(told)), Ok(()), "runs nothing");
        }
        let lesser = doubted(Risk::WriteHighRisk);
        assert_eq!(rule.authorize(&ada, &lesser, &word(Resolution::Retry)), Ok(()));
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
        let somebody = principal("ada", Role::User);
        let approves = |edits| {
            let answer =
                ApprovalAnswer::Resolve { resolution: Resolution::Approve(edits), reason: None };
            rule.authorize(&somebody, &row, &answer)
        };
        let tool = "wire".to_owned();
        let refused = Err(CriticalApprovalError::ApproverRequired { tool, role: Role::Approver });
        assert_eq!(approves(vec![]), refused);
        let skip = |position| {
            vec![ChecklistStepEdit { position, skip: true, ..ChecklistStepEdit::default() }]
        };
        assert_eq!(approves(skip(1)), refused);
        assert_eq!(approves(skip(2)), Ok(()));
        let rejects = ApprovalAnswer::Resolve { resolution: Resolution::Reject, reason: None };
        assert_eq!(rule.authorize(&somebody, &row, &rejects), Ok(()));
    }
}
