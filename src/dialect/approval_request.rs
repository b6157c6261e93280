//! The client view of an approval, shared by all dialects; not redacted yet.

use super::call_arguments::object_or_empty;
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

/// A pending approval. `plan_id` and `approval_id` have the same value.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ApprovalRequestView {
    plan_id: ApprovalId,
    approval_id: ApprovalId,
    #[serde(flatten)]
    subject: ApprovalSubjectView,
    /// A one-line summary of the requested decision.
    purpose: String,
    /// The highest risk of its calls.
    max_risk_level: Risk,
    /// Time of the request.
    requested_at: Timestamp,
    /// Time until which it can be answered; `null` if there is no deadline.
    pub deadline: Option<Timestamp>,
    /// Action at the deadline: `deny`, `escalate` or `wait`.
    on_deadline: &'static str,
}

/// The subject of the decision, by kind.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum ApprovalSubjectView {
    /// Permission to run calls.
    Plan {
        /// The calls.
        steps: Vec<PlanStep>,
        /// The number of calls.
        tool_count: usize,
    },
    /// Permission to raise a budget.
    Budget(BudgetRaiseRequest),
    /// The outcome of a call whose outcome is unknown.
    UnknownOutcome {
        /// The call.
        call: UnknownOutcomeCallView,
        /// The reason why the outcome is unknown.
        why: String,
    },
    /// Permission to carry out the model's plan.
    Preflight(Checklist),
    /// Input that a running tool requests.
    Elicitation(ElicitationRequestView),
}

/// A call whose outcome is unknown.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct UnknownOutcomeCallView {
    call_id: CallId,
    tool: String,
    arguments: Value,
    digest: Digest,
    risk: Risk,
    /// The number of attempts.
    attempts: u32,
}

/// A request of a running tool for input. The requesting attempt is not published.
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
    fn from(subject: &ApprovalSubject) -> Self {
        match subject {
            ApprovalSubject::Plan { steps } => {
                let mut steps = steps.clone();
                for step in &mut steps {
                    step.arguments = object_or_empty(std::mem::take(&mut step.arguments));
                }
                Self::Plan { tool_count: steps.len(), steps }
            }
            ApprovalSubject::Budget(request) => Self::Budget(request.clone()),
            ApprovalSubject::Preflight(checklist) => {
                let mut checklist = checklist.clone();
                for step in &mut checklist.steps {
                    step.arguments = step.arguments.take().map(object_or_empty);
                }
                Self::Preflight(checklist)
            }
            ApprovalSubject::Elicitation(request) => Self::Elicitation(ElicitationRequestView {
                call_id: request.call_id,
                tool: request.tool.clone(),
                server: request.server.clone(),
                elicitation: request.elicitation.clone(),
            }),
            ApprovalSubject::UnknownOutcome(request) => {
                let UnknownOutcome { call_id, tool, arguments, digest, risk, attempts, why } =
                    request.clone();
                Self::UnknownOutcome {
                    call: UnknownOutcomeCallView {
                        call_id,
                        tool,
                        arguments: object_or_empty(arguments),
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
