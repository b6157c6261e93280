//! The messages that the server sends in the dialect `gateway`.

use greenroom_core::{
    amount::Amount,
    cursor::Cursor,
    ids::{CallId, MessageId, RunId, SessionId},
    session::RunStopReason,
    usage::ModelUsage,
};
use serde::Serialize;
use serde_json::{Map, Value};

/// A message with the client's cursor after it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GatewayFrame {
    /// The message.
    #[serde(flatten)]
    pub message: ServerMessage,
    /// The child session in which the event occurred; `None` for the request's own session (S8).
    #[serde(rename = "sessionId", skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The cursor at which `chat.send` can resume; `None` for a message outside of the stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Cursor>,
}

/// A message of the server. Members of type [`Value`] are copied from the client view of an approval.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
pub enum ServerMessage {
    /// The request was accepted; its stream starts.
    #[serde(rename = "chat.stream.start")]
    ChatStreamStart {
        /// The request.
        request_id: MessageId,
        /// Its session.
        session_id: SessionId,
        /// Its run.
        run_id: Option<RunId>,
        /// The name of the model that answers first.
        model: String,
        /// True if the request waits for another request of the session.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        queued: bool,
    },
    /// A text delta.
    #[serde(rename = "chat.stream.delta")]
    ChatStreamDelta {
        /// The request.
        request_id: MessageId,
        /// The text.
        delta: String,
        /// The model's message that the text belongs to; `None` for a notice.
        #[serde(skip_serializing_if = "Option::is_none")]
        message_id: Option<MessageId>,
        /// True if the message is discarded, with all its text that was sent. The delta states this
        /// for clients that only append deltas.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        discarded: bool,
        /// True if the text is a notice of the server and no part of the answer.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        notice: bool,
    },
    /// The end of the request's stream.
    #[serde(rename = "chat.stream.end")]
    ChatStreamEnd {
        /// The request.
        request_id: MessageId,
        /// The outcome of the request.
        outcome: GatewayOutcome,
        /// The way in which the last message of a completed request ended.
        #[serde(skip_serializing_if = "Option::is_none")]
        stop_reason: Option<RunStopReason>,
        /// The usage of the request.
        usage: GatewayUsage,
    },
    /// The model proposed a call.
    #[serde(rename = "tool.call")]
    ToolCall {
        /// The request.
        request_id: MessageId,
        /// The call.
        tool_call_id: CallId,
        /// The tool.
        tool_name: String,
        /// The arguments; empty if the model wrote no JSON object.
        args: Value,
        /// The model's text in place of a JSON object.
        #[serde(skip_serializing_if = "Option::is_none")]
        arguments_text: Option<String>,
    },
    /// The end of a call.
    #[serde(rename = "tool.result")]
    ToolResult {
        /// The request.
        request_id: MessageId,
        /// The call.
        tool_call_id: CallId,
        /// The tool.
        tool_name: String,
        /// The result; `{error, reason}` if the call failed.
        result: Value,
        /// True if the call did not complete, for example because it failed or was denied.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    /// A request for approval of a call.
    #[serde(rename = "tool.approval.request")]
    ToolApprovalRequest {
        /// The request.
        request_id: MessageId,
        /// The call.
        tool_call_id: Value,
        /// The tool.
        tool_name: String,
        /// The arguments.
        args: Value,
        /// The risk of the call.
        risk: GatewayRisk,
        /// True if an approval can cover later calls of the tool in the session.
        grantable: bool,
        /// The approval that contains the call.
        approval_id: Value,
        /// The description of the tool.
        description: String,
        /// The reason why the call needs approval.
        why: String,
        /// The cost of the call, if known.
        #[serde(skip_serializing_if = "Value::is_null")]
        cost: Value,
        /// The deadline of the approval; `null` if there is none.
        deadline: Value,
    },
    /// A request for approval of a plan that the model made before it acts.
    #[serde(rename = "preflight.checklist")]
    PreflightChecklist {
        /// The request.
        request_id: MessageId,
        /// The steps: `{description, toolName?, arguments?, risk, needsApproval}`.
        steps: Value,
        /// `{inputTokens, outputTokens, estimatedUSD, costKnown}`; `estimatedUSD` is 0 if a price is
        /// unknown.
        estimated_cost: Value,
        /// The required permissions, as texts.
        required_permissions: Value,
        /// The warnings, as texts.
        warnings: Value,
        /// The approval.
        approval_id: Value,
        /// The deadline of the approval; `null` if there is none.
        deadline: Value,
    },
    /// A request for input by a running tool.
    #[serde(rename = "elicitation.request")]
    ElicitationRequest {
        /// The request.
        request_id: MessageId,
        /// The approval.
        approval_id: Value,
        /// The call that requests the input.
        tool_call_id: Value,
        /// The tool of the call.
        tool_name: String,
        /// The tool's server.
        server: String,
        /// The text of the request.
        message: String,
        /// `form` or `url`.
        mode: String,
        /// The JSON Schema of a form.
        #[serde(skip_serializing_if = "Value::is_null")]
        requested_schema: Value,
        /// The URL of the page to visit.
        #[serde(skip_serializing_if = "Value::is_null")]
        url: Value,
        /// The deadline of the approval; `null` if there is none.
        deadline: Value,
    },
    /// An error, or an approval of a kind that has no message in this dialect.
    #[serde(rename = "error")]
    Error {
        /// The request, or the id of the client message that failed.
        #[serde(skip_serializing_if = "Option::is_none")]
        request_id: Option<MessageId>,
        /// A stable, machine-readable code.
        code: &'static str,
        /// A human-readable message.
        message: String,
        /// Further members, machine-readable.
        #[serde(flatten)]
        extra: Map<String, Value>,
    },
    /// The native frame of an event that has no message in this dialect; only if details were
    /// requested.
    #[serde(rename = "agent.event")]
    AgentEvent {
        /// The request.
        request_id: MessageId,
        /// The frame.
        event: Value,
    },
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GatewayOutcome {
    /// Ended with a final answer.
    Completed,
    /// Cancelled by a user.
    Cancelled,
    /// Failed without an answer, after an `error` message.
    Failed,
}

/// The risk of a call, on three levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GatewayRisk {
    /// Reads and writes of low risk.
    Low,
    /// Writes of high risk.
    Medium,
    /// Critical or unknown.
    High,
}

impl GatewayRisk {
    /// Maps the name of a risk to its level.
    pub fn from_risk_name(name: &str) -> Self {
        match name {
            "read_only" | "write_low_risk" | "low" => Self::Low,
            "write_high_risk" | "moderate" => Self::Medium,
            _ => Self::High,
        }
    }
}

/// The usage of a request, summed over all its steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayUsage {
    /// Input tokens, including cached ones.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Sum of input and output tokens.
    pub total_tokens: u64,
    /// Input tokens that the provider's cache served.
    pub cached_tokens: u64,
    /// True if the provider's report of some tokens was lost, so that they are an estimate.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
    /// Cost in US dollars; absent if it is unknown.
    #[serde(rename = "costUSD", skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<Amount>,
}

impl From<&ModelUsage> for GatewayUsage {
    fn from(usage: &ModelUsage) -> Self {
        let tokens = usage.tokens;
        Self {
            input_tokens: tokens.input_tokens,
            output_tokens: tokens.output_tokens,
            total_tokens: tokens.input_tokens.saturating_add(tokens.output_tokens),
            cached_tokens: tokens.cached_tokens,
            estimated: tokens.estimated,
            cost_usd: usage.cost_usd,
        }
    }
}
