//! Deltas: the pieces of a model's stream, in a form that is independent of providers (M2).
//!
//! A provider's parser ([`super::anthropic::Parser`], [`super::openai::Parser`]) converts stream
//! bytes into [`Delta`]s; [`super::completion::MessageBuilder`] folds them into the complete
//! message.

use crate::usage::TokenUsage;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One piece of a streamed message.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta {
    /// A piece of the text.
    Text(String),
    /// The start of a thinking block; `index` identifies the block.
    ReasoningStarted {
        /// The provider's index of the block.
        index: u32,
        /// The complete opaque payload of a redacted block.
        redacted: Option<String>,
    },
    /// A piece of a thinking block.
    Reasoning {
        /// The provider's index of the block.
        index: u32,
        /// The piece of text.
        text: String,
    },
    /// A piece of the signature of a thinking block.
    ReasoningSignature {
        /// The provider's index of the block.
        index: u32,
        /// The piece of the signature.
        signature: String,
    },
    /// The start of a tool call. Further starts with the same index append their non-empty fields.
    CallStarted {
        /// The provider's index of the call; calls may be interleaved.
        index: u32,
        /// The provider's id; may be empty.
        provider_id: String,
        /// The tool's name; some providers send it in pieces.
        tool: String,
    },
    /// A piece of a call's arguments: JSON text, split anywhere.
    CallArguments {
        /// The provider's index of the call.
        index: u32,
        /// The piece of JSON text.
        fragment: String,
    },
    /// The start of a call beyond the number of calls that are kept of a message. The call has no
    /// other deltas.
    CallDropped,
    /// Usage so far. Each field replaces the earlier value if it is greater.
    Usage(TokenUsage),
    /// Reason why the model stopped. The last one applies.
    Stopped(StopReason),
    /// The end of a complete stream. A stream without it was cut.
    Finished,
}

impl Delta {
    /// Returns the bytes that the model wrote, which the provider counts as output tokens.
    pub fn written_bytes(&self) -> usize {
        match self {
            Self::Text(text) | Self::Reasoning { text, .. } => text.len(),
            Self::ReasoningStarted { redacted, .. } => redacted.as_ref().map_or(0, String::len),
            Self::CallStarted { tool, .. } => tool.len(),
            Self::CallArguments { fragment, .. } => fragment.len(),
            Self::ReasoningSignature { .. }
            | Self::CallDropped
            | Self::Usage(_)
            | Self::Stopped(_)
            | Self::Finished => 0,
        }
    }
}

/// Reason why the model stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The message is complete.
    #[default]
    EndTurn,
    /// The model requests tool calls.
    ToolUse,
    /// The message reached the token limit.
    MaxTokens,
    /// Greenroom cut the text off at its own limit.
    TextLimit,
    /// The model refused. Its calls must not run.
    Refusal,
    /// The provider's content filter cut the message off. Its calls must not run.
    ContentFilter,
    /// The model produced a stop sequence.
    StopSequence,
}

impl StopReason {
    /// True if the model refused or the provider's filter cut the message off. The message is then
    /// partial: its calls must not run.
    pub fn is_refused(self) -> bool {
        match self {
            Self::Refusal | Self::ContentFilter => true,
            Self::EndTurn
            | Self::ToolUse
            | Self::MaxTokens
            | Self::TextLimit
            | Self::StopSequence => false,
        }
    }
}
