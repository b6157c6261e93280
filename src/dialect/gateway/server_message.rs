//! What the server says in the dialect `gateway`.

use greenroom_core::{
    cursor::Cursor,
    ids::{CallId, MessageId, RunId, SessionId},
    usage::ModelUsage,
};
use serde::Serialize;
use serde_json::{Map, Value};

/// One message, with the client's place once it has it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GatewayFrame {
    /// What is said.
    #[serde(flatten)]
    pub message: ServerMessage,
    /// The session it happened in, where that is not the request's own but one that works for it (S8).
    #[serde(rename = "sessionId", skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Where `chat.send` can go on; `None` for what has no place in the stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Cursor>,
}

/// What is said. Members whose type is [`Value`] are taken from a question as clients see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
pub enum ServerMessage {
    /// The request was taken; its stream begins.
    #[serde(rename = "chat.stream.start")]
    ChatStreamStart {
        /// The request.
        request_id: MessageId,
        /// Its session.
        session_id: SessionId,
        /// Its run.
        run_id: Option<RunId>,
        /// The model that is to answer.
        model: String,
        /// Whether it waits behind another request of the session.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        queued: bool,
    },
    /// More text.
    #[serde(rename = "chat.stream.delta")]
    ChatStreamDelta {
        /// The request.
        request_id: MessageId,
        /// The piece.
        delta: String,
        /// The model's message that it belongs to.
        message_id: MessageId,
        /// The message is void, and so is all text of it that was sent.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        discarded: bool,
    },
    /// The request is over; nothing more comes.
    #[serde(rename = "chat.stream.end")]
    ChatStreamEnd {
        /// The request.
        request_id: MessageId,
        /// How it ended.
        outcome: GatewayOutcome,
        /// What it took.
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
        /// What it is to be passed.
        args: Value,
    },
    /// The one end of a call.
    #[serde(rename = "tool.result")]
    ToolResult {
        /// The request.
        request_id: MessageId,
        /// The call.
        tool_call_id: CallId,
        /// The tool.
        tool_name: String,
        /// What came of it; of a call that failed, `{error, reason}`.
        result: Value,
        /// Whether it failed, was denied, rejected …
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    /// A person is asked whether a call may run.
    #[serde(rename = "tool.approval.request")]
    ToolApprovalRequest {
        /// The request.
        request_id: MessageId,
        /// The call.
        tool_call_id: Value,
        /// The tool.
        tool_name: String,
        /// What it would be passed.
        args: Value,
        /// How bad it could be.
        risk: GatewayRisk,
        /// The question it is a step of.
        approval_id: Value,
        /// What the tool does.
        description: String,
        /// Why a person is asked.
        why: String,
        /// What it costs, where that is known.
        #[serde(skip_serializing_if = "Value::is_null")]
        cost: Value,
        /// When it expires; `null` is never.
        deadline: Value,
    },
    /// A person is asked whether a plan made beforehand may be carried out.
    #[serde(rename = "preflight.checklist")]
    PreflightChecklist {
        /// The request.
        request_id: MessageId,
        /// The steps: `{description, toolName?, arguments?, risk, needsApproval}`.
        steps: Value,
        /// `{inputTokens, outputTokens, estimatedUSD}`, the last `null` where a price is unknown.
        estimated_cost: Value,
        /// In words.
        required_permissions: Value,
        /// In words.
        warnings: Value,
        /// The question.
        approval_id: Value,
        /// When it expires; `null` is never.
        deadline: Value,
    },
    /// A running tool asks a person something.
    #[serde(rename = "elicitation.request")]
    ElicitationRequest {
        /// The request.
        request_id: MessageId,
        /// The question.
        approval_id: Value,
        /// The call that asks.
        tool_call_id: Value,
        /// Its tool.
        tool_name: String,
        /// The server that the tool lives on.
        server: String,
        /// What it says.
        message: String,
        /// `form` or `url`.
        mode: String,
        /// Of a form: the JSON Schema of what is to be filled in.
        #[serde(skip_serializing_if = "Value::is_null")]
        requested_schema: Value,
        /// The page to visit.
        #[serde(skip_serializing_if = "Value::is_null")]
        url: Value,
        /// When it expires; `null` is never.
        deadline: Value,
    },
    /// Something is wrong, or waits for an answer that this dialect has no frame for.
    #[serde(rename = "error")]
    Error {
        /// The request; or the id of the client's frame that was not carried out.
        #[serde(skip_serializing_if = "Option::is_none")]
        request_id: Option<MessageId>,
        /// Stable, for programs.
        code: &'static str,
        /// For people.
        message: String,
        /// More, for programs.
        #[serde(flatten)]
        extra: Map<String, Value>,
    },
    /// What the dialect has no word for, as the native frame; only for who asked for details.
    #[serde(rename = "agent.event")]
    AgentEvent {
        /// The request.
        request_id: MessageId,
        /// The frame.
        event: Value,
    },
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GatewayOutcome {
    /// With its final answer.
    Completed,
    /// By a person.
    Cancelled,
    /// Without an answer; an `error` came before.
    Failed,
}

/// How bad a call could be, in three words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GatewayRisk {
    /// Reading, and writes of low risk.
    Low,
    /// Writes of high risk.
    Medium,
    /// Critical; and what nobody has a word for.
    High,
}

impl GatewayRisk {
    /// That of a risk's name.
    pub fn from_risk_name(name: &str) -> Self {
        match name {
            "read_only" | "write_low_risk" | "low" => Self::Low,
            "write_high_risk" | "moderate" => Self::Medium,
            _ => Self::High,
        }
    }
}

/// What a request took, of all its steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayUsage {
    /// Tokens read, cached ones included.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// Both together.
    pub total_tokens: u64,
    /// Those of `input_tokens` that the provider's cache served.
    pub cached_tokens: u64,
    /// US dollars; `null` where a price is unknown.
    #[serde(rename = "costUSD")]
    pub cost_usd: Option<f64>,
}

impl From<&ModelUsage> for GatewayUsage {
    fn from(spending: &ModelUsage) -> Self {
        let tokens = spending.tokens;
        Self {
            input_tokens: tokens.input_tokens,
            output_tokens: tokens.output_tokens,
            total_tokens: tokens.input_tokens.saturating_add(tokens.output_tokens),
            cached_tokens: tokens.cached_tokens,
            cost_usd: spending.cost_usd,
        }
    }
}
