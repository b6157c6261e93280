//! A plan: the calls of one step that a person must see, as one question (G8).

use super::{GrantRequest, Surface};
use crate::{
    ids::{CallId, UserId},
    json::Digest,
    policy::{Cost, Risk},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// One call of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
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
    /// What it costs, if its tool has a cost (G6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// Whether that was more than a budget had left when it was asked: an approval covers it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exceeds_budget: bool,
}

/// A person's word on one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanStepDecision {
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
    /// What the person wanted to hold for the session with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_session: Option<GrantRequest>,
}
