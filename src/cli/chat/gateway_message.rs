//! The messages of the server that the chat uses. Unknown members and message types are ignored.

use greenroom_core::{Timestamp, amount::Amount, json::from_value};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// A message of the server.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
pub(super) enum GatewayMessage {
    #[serde(rename = "chat.stream.start")]
    Start {
        request_id: String,
        session_id: String,
        #[serde(default)]
        run_id: Option<String>,
        #[serde(default)]
        queued: bool,
    },
    #[serde(rename = "chat.stream.delta")]
    Delta {
        delta: String,
        #[serde(default)]
        message_id: String,
        #[serde(default)]
        discarded: bool,
        /// True if the text is a notice of the server and no part of the answer.
        #[serde(default)]
        notice: bool,
    },
    #[serde(rename = "chat.stream.end")]
    End {
        request_id: String,
        #[serde(default)]
        outcome: RunOutcome,
        /// The way in which the last message of a completed request ended.
        #[serde(default)]
        stop_reason: Option<String>,
        #[serde(default)]
        usage: RequestUsage,
    },
    #[serde(rename = "tool.call")]
    Call {
        tool_call_id: String,
        tool_name: String,
        args: Value,
        #[serde(default)]
        arguments_text: Option<String>,
    },
    #[serde(rename = "tool.result")]
    Result {
        tool_call_id: String,
        tool_name: String,
        result: Value,
        #[serde(default)]
        is_error: bool,
    },
    #[serde(rename = "tool.approval.request")]
    CallApprovalRequested(Box<CallApprovalRequest>),
    #[serde(rename = "preflight.checklist")]
    PreflightRequested(Box<PreflightRequest>),
    /// A running tool requests input (T1).
    #[serde(rename = "elicitation.request")]
    ElicitationRequested(Box<ElicitationRequest>),
    #[serde(rename = "error")]
    Error {
        #[serde(default)]
        request_id: Option<String>,
        code: String,
        message: String,
        #[serde(flatten)]
        more: Map<String, Value>,
    },
    /// A native event that the dialect has no message for.
    #[serde(rename = "agent.event")]
    AgentEvent { event: Value },
    #[serde(other)]
    Unknown,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RunOutcome {
    #[default]
    Completed,
    Cancelled,
    #[serde(other)]
    Failed,
}

/// The tokens and the cost of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RequestUsage {
    #[serde(default)]
    pub(super) input_tokens: u64,
    #[serde(default)]
    pub(super) output_tokens: u64,
    #[serde(default)]
    pub(super) estimated: bool,
    #[serde(default, rename = "costUSD")]
    pub(super) cost_usd: Option<Amount>,
}

/// A request to approve a call.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CallApprovalRequest {
    #[serde(default)]
    pub(super) request_id: String,
    pub(super) tool_call_id: String,
    pub(super) tool_name: String,
    pub(super) args: Value,
    #[serde(default)]
    pub(super) risk: String,
    /// False if the approval can't cover later calls in the session.
    #[serde(default = "default_grantable")]
    pub(super) grantable: bool,
    #[serde(default)]
    pub(super) approval_id: String,
    #[serde(default)]
    pub(super) description: String,
    #[serde(default)]
    pub(super) why: String,
    #[serde(default)]
    pub(super) cost: Value,
    #[serde(default)]
    pub(super) deadline: Option<Timestamp>,
}

fn default_grantable() -> bool {
    true
}

/// A request for input of a running tool.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ElicitationRequest {
    approval_id: String,
    #[serde(default)]
    tool_call_id: String,
    #[serde(default)]
    tool_name: String,
    #[serde(default)]
    server: String,
    message: String,
    mode: String,
    #[serde(default)]
    requested_schema: Value,
    #[serde(default)]
    url: Value,
    #[serde(default)]
    deadline: Value,
}

impl ElicitationRequest {
    /// Converts the request to the form of the resource `/agent/approvals/{id}`.
    pub(super) fn into_view(self) -> Value {
        json!({
            "approval_id": self.approval_id, "kind": "elicitation", "call_id": self.tool_call_id,
            "tool": self.tool_name, "server": self.server, "message": self.message,
            "mode": self.mode, "schema": self.requested_schema, "url": self.url,
            "deadline": self.deadline,
        })
    }
}

/// A request to approve a preflight.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PreflightRequest {
    pub(super) request_id: String,
    pub(super) steps: Vec<PreflightStep>,
    #[serde(default)]
    pub(super) estimated_cost: Value,
    #[serde(default)]
    pub(super) required_permissions: Vec<String>,
    #[serde(default)]
    pub(super) warnings: Vec<String>,
    #[serde(default)]
    pub(super) approval_id: String,
    #[serde(default)]
    pub(super) deadline: Option<Timestamp>,
}

/// A step of a preflight, with the user's edits.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PreflightStep {
    pub(super) description: String,
    #[serde(default)]
    pub(super) tool_name: Option<String>,
    #[serde(default)]
    pub(super) arguments: Option<Value>,
    #[serde(default)]
    pub(super) risk: String,
    #[serde(default)]
    pub(super) needs_approval: bool,
    /// True if the user skips the step.
    #[serde(skip)]
    pub(super) skip: bool,
}

impl GatewayMessage {
    /// Parses a message. A message that does not fit becomes `Unknown`.
    pub(super) fn from_json(frame: Value) -> Self {
        from_value(&frame).unwrap_or(Self::Unknown)
    }
}
