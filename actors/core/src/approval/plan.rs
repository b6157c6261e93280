//! A plan: the calls of one step that a person must see, as one question (G8).

use crate::{
    ids::{ApprovalId, CallId, RunId, UserId},
    json::Digest,
    policy::Risk,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalKind {
    /// Whether calls of a step may run.
    Plan,
}

/// A question as it was asked. Never changes under its id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Approval {
    /// Its id; on the wire also `plan_id`.
    pub approval_id: ApprovalId,
    /// What is asked.
    pub kind: ApprovalKind,
    /// One line for people.
    pub purpose: String,
    /// The calls it is about, in proposed order.
    pub steps: Vec<PlanStep>,
    /// The highest risk among the steps.
    pub max_risk_level: Risk,
    /// When it was asked.
    pub requested_at: Timestamp,
    /// When it expires; `None` means never (G10).
    pub deadline: Option<Timestamp>,
}

/// One call of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanStep {
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub tool: String,
    /// What would be passed.
    pub arguments: Value,
    /// The digest of `arguments` that an approval is bound to.
    pub digest: Digest,
    /// The tool's risk.
    pub risk: Risk,
    /// What the tool does.
    pub description: String,
    /// Why a person is asked.
    pub why: String,
}

/// A person's word on one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepDecision {
    /// The call.
    pub call_id: CallId,
    /// Whether it may run.
    pub approved: bool,
    /// The person's reason, for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who decided.
    pub by: UserId,
    /// Through what.
    pub surface: Surface,
    /// When.
    pub at: Timestamp,
    /// The digest of the arguments that were decided on: those that may run, if it was approved.
    pub digest: Digest,
    /// What the person changed before approving.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited: Option<Value>,
}

/// Where an answer came from (G11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Surface {
    /// The HTTP resources.
    Rest,
    /// A WebSocket.
    Websocket,
    /// The command line.
    Cli,
    /// The dashboard.
    Dashboard,
}

/// A question that waits.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenApproval {
    /// What was asked.
    pub approval: Arc<Approval>,
    /// The run that waits.
    pub run_id: RunId,
    /// What was decided so far.
    pub decisions: BTreeMap<CallId, StepDecision>,
}

impl OpenApproval {
    /// Whether every step is decided.
    pub fn is_decided(&self) -> bool {
        self.approval.steps.iter().all(|step| self.decisions.contains_key(&step.call_id))
    }

    /// The steps nobody decided yet.
    pub fn undecided(&self) -> impl Iterator<Item = &PlanStep> {
        self.approval.steps.iter().filter(|step| !self.decisions.contains_key(&step.call_id))
    }
}

/// How a question ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalEnd {
    /// People decided every step.
    Decided,
    /// Nobody answered in time.
    Expired,
    /// The run was cancelled.
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
    pub end: ApprovalEnd,
    /// When it ended.
    pub closed_at: Timestamp,
    /// What people decided of it.
    pub decisions: BTreeMap<CallId, StepDecision>,
}
