//! A question to a person, as clients see it, whatever the dialect; not yet redacted.

use greenroom_core::{
    Timestamp,
    approval::{
        Approval, ApprovalSubject, BudgetRaiseRequest, Elicitation, PlanStep, UnknownOutcome,
    },
    ids::{ApprovalId, CallId},
    json::Digest,
    policy::Risk,
    preflight::Checklist,
};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// A question to a person. `plan_id` and `approval_id` are the same.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ApprovalRequestView {
    plan_id: ApprovalId,
    approval_id: ApprovalId,
    #[serde(flatten)]
    subject: ApprovalSubjectView,
    /// What for.
    purpose: String,
    /// The highest risk in it.
    max_risk_level: Risk,
    /// When it was asked.
    requested_at: Timestamp,
    /// Until when it can be answered.
    pub deadline: Option<Timestamp>,
    /// What happens then: `deny`, `escalate` or `wait`.
    on_deadline: &'static str,
}

/// What is asked, by kind.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum ApprovalSubjectView {
    /// Whether calls may run.
    Plan {
        /// The calls.
        steps: Vec<PlanStep>,
        /// How many they are.
        tool_count: usize,
    },
    /// Whether more may be spent.
    Budget(BudgetRaiseRequest),
    /// What became of a call.
    UnknownOutcome {
        /// The call.
        call: UnknownOutcomeCallView,
        /// Why it is not known.
        why: String,
    },
    /// Whether what the model means to do is right.
    Preflight(Checklist),
    /// What a running tool wants to know.
    Elicitation(ElicitationRequestView),
}

/// A call of which nobody knows what became of it.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct UnknownOutcomeCallView {
    call_id: CallId,
    tool: String,
    arguments: Value,
    digest: Digest,
    risk: Risk,
    /// How often it was tried.
    attempts: u32,
}

/// A question of a running tool. Which attempt asks is ours.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct ElicitationRequestView {
    call_id: CallId,
    tool: String,
    server: String,
    #[serde(flatten)]
    elicitation: Elicitation,
}

impl From<&Approval> for ApprovalRequestView {
    fn from(approval: &Approval) -> Self {
        Self {
            plan_id: approval.approval_id,
            approval_id: approval.approval_id,
            subject: ApprovalSubjectView::from(&approval.subject),
            purpose: approval.purpose.clone(),
            max_risk_level: approval.max_risk_level,
            requested_at: approval.requested_at,
            deadline: approval.deadline,
            on_deadline: approval.on_deadline.name(),
        }
    }
}

impl From<&ApprovalSubject> for ApprovalSubjectView {
    fn from(question: &ApprovalSubject) -> Self {
        match question {
            ApprovalSubject::Plan { steps } => {
                Self::Plan { steps: steps.clone(), tool_count: steps.len() }
            }
            ApprovalSubject::Budget(asked) => Self::Budget(asked.clone()),
            ApprovalSubject::Preflight(checklist) => Self::Preflight(checklist.clone()),
            ApprovalSubject::Elicitation(asked) => Self::Elicitation(ElicitationRequestView {
                call_id: asked.call_id,
                tool: asked.tool.clone(),
                server: asked.server.clone(),
                elicitation: asked.elicitation.clone(),
            }),
            ApprovalSubject::UnknownOutcome(asked) => {
                let UnknownOutcome { call_id, tool, arguments, digest, risk, attempts, why } =
                    asked.clone();
                Self::UnknownOutcome {
                    call: UnknownOutcomeCallView {
                        call_id,
                        tool,
                        arguments,
                        digest,
                        risk,
                        attempts,
                    },
                    why,
                }
            }
        }
    }
}
