//! Plans: the calls of one step that need approval, bundled in one approval (G8).

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
    /// The arguments that would be passed.
    pub arguments: Value,
    /// The digest of `arguments` that an approval is bound to.
    pub digest: Digest,
    /// The tool's risk.
    pub risk: Risk,
    /// The tool's description.
    pub description: String,
    /// The reason why the call needs approval.
    pub why: String,
    /// The cost of the call, if its tool has a cost (G6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// True if the cost exceeded the remainder of a budget at the time of the request. An approval
    /// covers the excess.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exceeds_budget: bool,
}

/// The decision of a human on one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanStepDecision {
    /// The call.
    pub call_id: CallId,
    /// True if the call may run.
    pub approved: bool,
    /// The approver's reason, which the model reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The user who decided.
    pub by: UserId,
    /// The surface through which the decision arrived.
    pub surface: Surface,
    /// The time of the decision.
    pub at: Timestamp,
    /// The digest of the arguments that were decided on. If approved, only these may run.
    pub digest: Digest,
    /// The arguments that the approver changed before approving.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited: Option<Value>,
    /// The session grant requested with the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_session: Option<GrantRequest>,
}
