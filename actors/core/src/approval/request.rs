//! A question: what is asked, whether it waits, and how it ended (G8, G10, G11).

use super::{DeadlineAction, PlanStep, PlanStepDecision, RecordedAnswer, Role, ToolElicitation};
use crate::{
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

/// A question as it was asked. Never changes under its id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Approval {
    /// Its id; on the wire also `plan_id`.
    pub approval_id: ApprovalId,
    /// What is asked.
    #[serde(flatten)]
    pub subject: ApprovalSubject,
    /// One line for people.
    pub purpose: String,
    /// The highest risk of what it is about.
    pub max_risk_level: Risk,
    /// When it was asked.
    pub requested_at: Timestamp,
    /// When its time is up; `None` means never (G10).
    pub deadline: Option<Timestamp>,
    /// What happens then.
    #[serde(default)]
    pub on_deadline: DeadlineAction,
}

/// What is asked, of each kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ApprovalSubject {
    /// Whether calls of a step may run.
    Plan {
        /// The calls, in proposed order.
        steps: Vec<PlanStep>,
    },
    /// Whether a budget that is reached shall be raised (G6).
    Budget(BudgetRaiseRequest),
    /// What became of a call that may or may not have taken effect (D3).
    UnknownOutcome(UnknownOutcome),
    /// Whether a run may go about it as its model plans (G14).
    Preflight(Checklist),
    /// What a running tool wants to know of a person (T1).
    Elicitation(ToolElicitation),
}

/// A budget that has no room for what comes next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BudgetRaiseRequest {
    /// Which, with its limit in force.
    pub budget: Budget,
    /// What is spent or reserved of it.
    pub spent: f64,
    /// What comes next needs so much; 0 where that is not known before (tokens, money).
    pub needed: f64,
    /// What it was spent on, the largest first.
    pub spent_on: Vec<Expense>,
    /// The calls that wait for it; none where the next step does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallId>,
}

/// A call that was sent, that may not safely repeat, and of whose end nothing is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UnknownOutcome {
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub tool: String,
    /// What was passed.
    pub arguments: Value,
    /// The digest of what was passed; a retry passes the same.
    pub digest: Digest,
    /// The tool's risk.
    pub risk: Risk,
    /// Attempts so far.
    pub attempts: u32,
    /// Why nothing is known.
    pub why: String,
}

/// The kinds of questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalKind {
    /// Whether calls of a step may run.
    Plan,
    /// Whether a budget shall be raised.
    Budget,
    /// What became of a call.
    UnknownOutcome,
    /// Whether a plan may be carried out.
    Preflight,
    /// What a running tool wants to know.
    Elicitation,
}

impl ApprovalKind {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Plan, Self::Budget, Self::UnknownOutcome, Self::Preflight, Self::Elicitation];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Budget => "budget",
            Self::UnknownOutcome => "unknown_outcome",
            Self::Preflight => "preflight",
            Self::Elicitation => "elicitation",
        }
    }

    /// The decisions that answer it, as people read them.
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
    /// Its kind.
    pub fn kind(&self) -> ApprovalKind {
        match self {
            Self::Plan { .. } => ApprovalKind::Plan,
            Self::Budget(_) => ApprovalKind::Budget,
            Self::UnknownOutcome(_) => ApprovalKind::UnknownOutcome,
            Self::Preflight(_) => ApprovalKind::Preflight,
            Self::Elicitation(_) => ApprovalKind::Elicitation,
        }
    }

    /// The calls that don't run until there is an answer. One that asks while it runs is none.
    pub fn blocked_calls(&self) -> Vec<CallId> {
        match self {
            Self::Plan { steps } => steps.iter().map(|step| step.call_id).collect(),
            Self::Budget(asked) => asked.calls.clone(),
            Self::UnknownOutcome(asked) => vec![asked.call_id],
            Self::Preflight(_) | Self::Elicitation(_) => Vec::new(),
        }
    }
}

impl Approval {
    /// Its kind.
    pub fn kind(&self) -> ApprovalKind {
        self.subject.kind()
    }

    /// The steps of a plan; other questions have none.
    pub fn steps(&self) -> &[PlanStep] {
        match &self.subject {
            ApprovalSubject::Plan { steps } => steps,
            ApprovalSubject::Budget(_)
            | ApprovalSubject::UnknownOutcome(_)
            | ApprovalSubject::Preflight(_)
            | ApprovalSubject::Elicitation(_) => &[],
        }
    }

    /// The call's tool, where the question tells it.
    pub fn tool_for_call(&self, call_id: CallId) -> Option<&str> {
        match &self.subject {
            ApprovalSubject::Plan { steps } => {
                let step = steps.iter().find(|step| step.call_id == call_id);
                step.map(|step| step.tool.as_str())
            }
            ApprovalSubject::UnknownOutcome(asked) if asked.call_id == call_id => Some(&asked.tool),
            ApprovalSubject::Elicitation(asked) if asked.call_id == call_id => Some(&asked.tool),
            ApprovalSubject::UnknownOutcome(_)
            | ApprovalSubject::Budget(_)
            | ApprovalSubject::Preflight(_)
            | ApprovalSubject::Elicitation(_) => None,
        }
    }

    /// When something must happen about it, if nobody answers.
    pub fn due_at(&self) -> Option<Timestamp> {
        match self.on_deadline {
            DeadlineAction::Deny | DeadlineAction::Escalate { .. } => self.deadline,
            DeadlineAction::Wait => None,
        }
    }
}

/// A question that waits.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenApproval {
    /// What was asked.
    pub approval: Arc<Approval>,
    /// The run that waits.
    pub run_id: RunId,
    /// What was decided so far of a plan.
    pub decisions: BTreeMap<CallId, PlanStepDecision>,
    /// Whom it went to when nobody had answered in time.
    pub escalation: Option<Escalation>,
}

/// A question that went to people of another role (G10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Escalation {
    /// The least role that may answer now.
    pub to: Role,
    /// When it went there.
    pub at: Timestamp,
    /// When their time is up; `None` means never.
    pub deadline: Option<Timestamp>,
}

impl OpenApproval {
    /// The steps nobody decided yet.
    pub fn undecided(&self) -> impl Iterator<Item = &PlanStep> {
        self.approval.steps().iter().filter(|step| !self.decisions.contains_key(&step.call_id))
    }

    /// When something must happen about it, if nobody answers.
    pub fn due_at(&self) -> Option<Timestamp> {
        match &self.escalation {
            Some(escalation) => escalation.deadline,
            None => self.approval.due_at(),
        }
    }
}

/// How a question ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalOutcome {
    /// People decided all of it.
    Decided,
    /// Nobody answered in time.
    Expired,
    /// The run ended otherwise.
    Cancelled,
}

/// A question that no longer waits.
#[derive(Clone, Debug, PartialEq)]
pub struct ClosedApproval {
    /// What was asked.
    pub approval: Arc<Approval>,
    /// The run that asked.
    pub run_id: RunId,
    /// How it ended.
    pub outcome: ApprovalOutcome,
    /// When it ended.
    pub closed_at: Timestamp,
    /// What people decided of a plan.
    pub decisions: BTreeMap<CallId, PlanStepDecision>,
    /// What a person said to a question without steps.
    pub answer: Option<RecordedAnswer>,
    /// Whom it had gone to.
    pub escalation: Option<Escalation>,
}
