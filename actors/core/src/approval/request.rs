//! An approval: its subject, its state while open, and its outcome (G8, G10, G11).

use super::{DeadlineAction, PlanStep, PlanStepDecision, RecordedAnswer, Role, ToolElicitation};
use crate::{
    amount::Amount,
    budget::{Budget, Expense},
    ids::{ApprovalId, CallId, RunId},
    json::Digest,
    policy::Risk,
    preflight::Checklist,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};
use utoipa::ToSchema;

/// An approval as it was requested. Immutable under its id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Approval {
    /// The id; on the wire also `plan_id`.
    pub approval_id: ApprovalId,
    /// The matter to decide.
    #[serde(flatten)]
    pub subject: ApprovalSubject,
    /// A one-line summary for humans.
    pub purpose: String,
    /// The highest risk among the calls of the subject.
    pub max_risk_level: Risk,
    /// The time of the request.
    pub requested_at: Timestamp,
    /// The time at which the deadline passes; `None` means never (G10).
    pub deadline: Option<Timestamp>,
    /// The action when the deadline passes.
    #[serde(default)]
    pub on_deadline: DeadlineAction,
}

/// The matter to decide, by kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ApprovalSubject {
    /// Decides on the calls of a step.
    Plan {
        /// The calls, in proposed order.
        steps: Vec<PlanStep>,
    },
    /// Decides on raising an exhausted budget (G6).
    Budget(BudgetRaiseRequest),
    /// Decides on a call that may or may not have taken effect (D3).
    UnknownOutcome(UnknownOutcome),
    /// Decides on the plan that the model submitted for the run (G14).
    Preflight(Checklist),
    /// Provides the input that a running tool requested (T1).
    Elicitation(ToolElicitation),
}

/// A budget whose remainder does not cover the next calls or the next step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BudgetRaiseRequest {
    /// The budget, with the limit in force.
    pub budget: Budget,
    /// The amount spent or reserved.
    pub spent: Amount,
    /// The amount needed next; 0 if it is not known in advance (tokens, money).
    pub needed: Amount,
    /// The expenses, largest first.
    pub spent_on: Vec<Expense>,
    /// The calls that wait for the budget; empty if the next step waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallId>,
}

/// A call that was sent, is not safe to repeat, and whose outcome is unknown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UnknownOutcome {
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub tool: String,
    /// The arguments that were passed.
    pub arguments: Value,
    /// The digest of the arguments; a retry passes the same arguments.
    pub digest: Digest,
    /// The tool's risk.
    pub risk: Risk,
    /// The number of attempts so far.
    pub attempts: u32,
    /// The reason why the outcome is unknown.
    pub why: String,
}

/// The kind of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalKind {
    /// Decides on the calls of a step.
    Plan,
    /// Decides on raising a budget.
    Budget,
    /// Decides on a call with an unknown outcome.
    UnknownOutcome,
    /// Decides on the plan of a run.
    Preflight,
    /// Provides the input that a running tool requested.
    Elicitation,
}

impl ApprovalKind {
    /// All kinds.
    pub const ALL: [Self; 5] =
        [Self::Plan, Self::Budget, Self::UnknownOutcome, Self::Preflight, Self::Elicitation];

    /// Returns the wire name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Budget => "budget",
            Self::UnknownOutcome => "unknown_outcome",
            Self::Preflight => "preflight",
            Self::Elicitation => "elicitation",
        }
    }

    /// Returns the answers that this kind accepts, as text for error messages.
    pub fn allowed_answers(self) -> &'static str {
        match self {
            Self::Plan => "`approve` or `reject`",
            Self::Budget => "`raise` or `stop`",
            Self::UnknownOutcome => "`retry`, `done` or `failed`",
            Self::Preflight => "`approve`, with `steps` by `position`, or `reject`",
            Self::Elicitation => "`answer`, with `value`, or `reject`",
        }
    }
}

impl ApprovalSubject {
    /// Returns the kind of the approval.
    pub fn kind(&self) -> ApprovalKind {
        match self {
            Self::Plan { .. } => ApprovalKind::Plan,
            Self::Budget(_) => ApprovalKind::Budget,
            Self::UnknownOutcome(_) => ApprovalKind::UnknownOutcome,
            Self::Preflight(_) => ApprovalKind::Preflight,
            Self::Elicitation(_) => ApprovalKind::Elicitation,
        }
    }

    /// Returns the calls that don't run until the approval is answered. Excludes a call that
    /// requests input while it runs.
    pub fn blocked_calls(&self) -> Vec<CallId> {
        match self {
            Self::Plan { steps } => steps.iter().map(|step| step.call_id).collect(),
            Self::Budget(request) => request.calls.clone(),
            Self::UnknownOutcome(outcome) => vec![outcome.call_id],
            Self::Preflight(_) | Self::Elicitation(_) => Vec::new(),
        }
    }
}

impl Approval {
    /// Returns the kind of the approval.
    pub fn kind(&self) -> ApprovalKind {
        self.subject.kind()
    }

    /// Returns the steps of a plan; empty for other kinds.
    pub fn steps(&self) -> &[PlanStep] {
        match &self.subject {
            ApprovalSubject::Plan { steps } => steps,
            ApprovalSubject::Budget(_)
            | ApprovalSubject::UnknownOutcome(_)
            | ApprovalSubject::Preflight(_)
            | ApprovalSubject::Elicitation(_) => &[],
        }
    }

    /// Returns the tool of a call, if the approval names it.
    pub fn tool_for_call(&self, call_id: CallId) -> Option<&str> {
        match &self.subject {
            ApprovalSubject::Plan { steps } => {
                let step = steps.iter().find(|step| step.call_id == call_id);
                step.map(|step| step.tool.as_str())
            }
            ApprovalSubject::UnknownOutcome(outcome) if outcome.call_id == call_id => {
                Some(&outcome.tool)
            }
            ApprovalSubject::Elicitation(elicitation) if elicitation.call_id == call_id => {
                Some(&elicitation.tool)
            }
            ApprovalSubject::UnknownOutcome(_)
            | ApprovalSubject::Budget(_)
            | ApprovalSubject::Preflight(_)
            | ApprovalSubject::Elicitation(_) => None,
        }
    }

    /// Returns the time at which the deadline requires an action; `None` if it never does.
    pub fn deadline_action_at(&self) -> Option<Timestamp> {
        match self.on_deadline {
            DeadlineAction::Deny | DeadlineAction::Escalate { .. } => self.deadline,
            DeadlineAction::Wait => None,
        }
    }
}

/// An approval that waits for an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenApproval {
    /// The approval as requested.
    pub approval: Arc<Approval>,
    /// The run that waits.
    pub run_id: RunId,
    /// The decisions on steps of a plan so far.
    pub decisions: BTreeMap<CallId, PlanStepDecision>,
    /// The escalation, once the first deadline has passed.
    pub escalation: Option<Escalation>,
}

/// The escalation of an approval to users of another role (G10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Escalation {
    /// The lowest role that may answer now.
    pub to: Role,
    /// The time of the escalation.
    pub at: Timestamp,
    /// The time at which the escalated approval expires; `None` means never.
    pub deadline: Option<Timestamp>,
}

impl OpenApproval {
    /// Returns the steps without a decision.
    pub fn undecided(&self) -> impl Iterator<Item = &PlanStep> {
        self.approval.steps().iter().filter(|step| !self.decisions.contains_key(&step.call_id))
    }

    /// Returns the time at which the current deadline requires an action; `None` if it never does.
    pub fn deadline_action_at(&self) -> Option<Timestamp> {
        match &self.escalation {
            Some(escalation) => escalation.deadline,
            None => self.approval.deadline_action_at(),
        }
    }
}

/// The way an approval ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalOutcome {
    /// Every part was answered.
    Decided,
    /// The deadline passed without an answer.
    Expired,
    /// The request no longer applies, for example because its run ended.
    Cancelled,
}

/// An approval that no longer waits.
#[derive(Clone, Debug, PartialEq)]
pub struct ClosedApproval {
    /// The approval as requested.
    pub approval: Arc<Approval>,
    /// The run that requested the approval.
    pub run_id: RunId,
    /// The outcome.
    pub outcome: ApprovalOutcome,
    /// The time at which the approval was closed.
    pub closed_at: Timestamp,
    /// The decisions on steps of a plan.
    pub decisions: BTreeMap<CallId, PlanStepDecision>,
    /// The answer to an approval without steps.
    pub answer: Option<RecordedAnswer>,
    /// The escalation, if there was one.
    pub escalation: Option<Escalation>,
}
