//! What a model stream says, piece by piece, in no provider's words (M2).
//!
//! A provider's parser ([`super::anthropic::Parser`], [`super::openai::Parser`]) turns stream
//! bytes into [`Delta`]s; [`MessageBuilder`] folds them into the complete message.

use crate::{
    limits,
    message::{Arguments, AssistantMessage, ProposedCall, Reasoning},
    usage::Usage,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One piece of a streamed message.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta {
    /// More text for the reader.
    Text(String),
    /// A thinking block begins; `index` tells blocks apart.
    ReasoningStarted {
        /// The provider's index of the block.
        index: u32,
        /// Opaque payload of a redacted block, whole.
        redacted: Option<String>,
    },
    /// More thinking.
    Reasoning {
        /// The block it belongs to.
        index: u32,
        /// The piece.
        text: String,
    },
    /// The signature over a thinking block (a piece of it).
    ReasoningSignature {
        /// The block it belongs to.
        index: u32,
        /// The piece.
        signature: String,
    },
    /// A tool call begins. A later one with the same index adds to it what is not empty.
    CallStarted {
        /// The provider's index of the call; calls may interleave.
        index: u32,
        /// The provider's id, possibly empty.
        provider_id: String,
        /// The tool's name (a piece of it, with some providers).
        tool: String,
    },
    /// More of a call's arguments, as JSON text cut anywhere.
    CallArguments {
        /// The call it belongs to.
        index: u32,
        /// The piece.
        fragment: String,
    },
    /// Tokens so far: replaces what was said before, field by field where it is greater.
    Usage(Usage),
    /// Why the model stopped. The last one counts.
    Stopped(StopReason),
    /// The stream is complete: nothing follows. A stream without it was cut.
    Finished,
}

/// Why the model stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It was done.
    #[default]
    EndTurn,
    /// It wants tools to run.
    ToolUse,
    /// It reached the token limit.
    MaxTokens,
    /// It, or its provider's filter, declined.
    Refusal,
    /// It met a stop sequence.
    StopSequence,
}

/// Why a model call failed (M3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ModelFailure {
    /// What can be done about it.
    pub kind: FailureKind,
    /// The provider's words, or ours; no secrets.
    pub message: String,
    /// The HTTP status, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// How long the provider asks to wait (`retry-after`), in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

/// What can be done about a failed model call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// It may work later: 408, 409, 429, 5xx, overloaded, connection failed or cut.
    Temporary,
    /// It will not work: 400, 401, 403, 404, a stream that is no stream.
    Permanent,
}

impl ModelFailure {
    /// A failure that may pass.
    pub fn temporary(message: impl Into<String>) -> Self {
        Self {
            kind: FailureKind::Temporary,
            message: message.into(),
            status: None,
            retry_after_ms: None,
        }
    }

    /// A failure that will not pass.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self {
            kind: FailureKind::Permanent,
            message: message.into(),
            status: None,
            retry_after_ms: None,
        }
    }

    /// The failure an HTTP answer with an error status tells of.
    pub fn of_status(
        status: u16,
        message: impl Into<String>,
        retry_after: Option<Duration>,
    ) -> Self {
        let temporary = matches!(status, 408 | 409 | 429 | 500..=599);
        Self {
            kind: if temporary { FailureKind::Temporary } else { FailureKind::Permanent },
            message: message.into(),
            status: Some(status),
            retry_after_ms: retry_after.map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

/// A complete message with what it cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Completion {
    /// The message. Its calls have nil `call_id`s; the session names them.
    pub message: AssistantMessage,
    /// Tokens.
    pub usage: Usage,
    /// Why it ended.
    pub stop_reason: StopReason,
}

/// Folds deltas into a message.
#[derive(Debug, Default)]
pub struct MessageBuilder {
    text: String,
    reasoning: Vec<(u32, Reasoning)>,
    calls: Vec<(u32, CallDraft)>,
    usage: Usage,
    stop_reason: StopReason,
    finished: bool,
}

#[derive(Debug, Default)]
struct CallDraft {
    provider_id: String,
    tool: String,
    arguments: String,
}

impl MessageBuilder {
    /// Adds one piece. Errs when the message outgrows its limits; it is then of no more use.
    pub fn push(&mut self, delta: Delta) -> Result<(), ModelFailure> {
        match delta {
            Delta::Text(text) => {
                self.text.push_str(&text);
                return bounded("text", self.text.len(), limits::MODEL_TEXT_BYTES_MAX);
            }
            Delta::ReasoningStarted { index, redacted } => {
                let block = match redacted {
                    Some(payload) => Reasoning::Redacted { payload },
                    None => Reasoning::Thinking { text: String::new(), signature: None },
                };
                self.reasoning.push((index, block));
                return bounded("thinking blocks", self.reasoning.len(), limits::MODEL_BLOCKS_MAX);
            }
            Delta::Reasoning { index, text: piece } => {
                if let Reasoning::Thinking { text, .. } = self.thinking(index) {
                    text.push_str(&piece);
                    let length = text.len();
                    return bounded("thinking", length, limits::MODEL_TEXT_BYTES_MAX);
                }
            }
            Delta::ReasoningSignature { index, signature: piece } => {
                if let Reasoning::Thinking { signature, .. } = self.thinking(index) {
                    let signature = signature.get_or_insert_default();
                    signature.push_str(&piece);
                    let length = signature.len();
                    return bounded("signature", length, limits::MODEL_TEXT_BYTES_MAX);
                }
            }
            Delta::CallStarted { index, provider_id, tool } => {
                let call = self.call(index);
                call.provider_id.push_str(&provider_id);
                call.tool.push_str(&tool);
                let length = call.tool.len() + call.provider_id.len();
                bounded("tool name", length, limits::TOOL_NAME_BYTES_MAX)?;
                return bounded("tool calls", self.calls.len(), limits::CALLS_PER_STEP_MAX);
            }
            Delta::CallArguments { index, fragment } => {
                let call = self.call(index);
                call.arguments.push_str(&fragment);
                let length = call.arguments.len();
                return bounded("tool arguments", length, limits::ARGUMENTS_BYTES_MAX);
            }
            Delta::Usage(usage) => {
                self.usage.input_tokens = self.usage.input_tokens.max(usage.input_tokens);
                self.usage.output_tokens = self.usage.output_tokens.max(usage.output_tokens);
                self.usage.cached_tokens = self.usage.cached_tokens.max(usage.cached_tokens);
            }
            Delta::Stopped(reason) => self.stop_reason = reason,
            Delta::Finished => self.finished = true,
        }
        Ok(())
    }

    /// Whether the provider said that the message is complete.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// The text so far.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The message as it stands. Calls whose arguments are not JSON are malformed, not dropped.
    pub fn complete(self) -> Completion {
        let calls = self.calls.into_iter().map(|(_, draft)| draft.propose()).collect();
        let reasoning = self.reasoning.into_iter().map(|(_, block)| block).collect();
        let message = AssistantMessage { text: self.text, reasoning, calls };
        Completion { message, usage: self.usage, stop_reason: self.stop_reason }
    }

    /// What is kept of a message that was stopped: its text and usage. Half a thinking block has
    /// no signature yet, and half a call must not run.
    pub fn stopped(self) -> Completion {
        let message = AssistantMessage { text: self.text, ..AssistantMessage::default() };
        Completion { message, usage: self.usage, stop_reason: self.stop_reason }
    }

    fn thinking(&mut self, index: u32) -> &mut Reasoning {
        // A piece without its start opens the block: some compatible servers send no start.
        let found = self.reasoning.iter().rposition(|(other, _)| *other == index);
        let position = found.unwrap_or_else(|| {
            let block = Reasoning::Thinking { text: String::new(), signature: None };
            self.reasoning.push((index, block));
            self.reasoning.len() - 1
        });
        &mut self.reasoning[position].1
    }

    fn call(&mut self, index: u32) -> &mut CallDraft {
        let found = self.calls.iter().position(|(other, _)| *other == index);
        let position = found.unwrap_or_else(|| {
            self.calls.push((index, CallDraft::default()));
            self.calls.len() - 1
        });
        &mut self.calls[position].1
    }
}

impl CallDraft {
    fn propose(self) -> ProposedCall {
        // A call without arguments is a call with none, not a broken one: providers send no
        // fragment at all for an empty object.
        let text = if self.arguments.trim().is_empty() { "{}" } else { &self.arguments };
        let arguments = match serde_json::from_str(text) {
            Ok(value) => Arguments::Json(value),
            Err(error) => Arguments::Malformed {
                raw: crate::text::cut(text, limits::MALFORMED_ARGUMENTS_KEPT_BYTES).to_owned(),
                error: format!("the arguments are not valid JSON: {error}"),
            },
        };
        let call_id = crate::ids::CallId(uuid::Uuid::nil());
        ProposedCall { call_id, provider_id: self.provider_id, tool: self.tool, arguments }
    }
}

fn bounded(what: &str, size: usize, most: usize) -> Result<(), ModelFailure> {
    if size <= most {
        return Ok(());
    }
    Err(ModelFailure::permanent(format!("the model's {what} exceed the limit of {most}")))
}
