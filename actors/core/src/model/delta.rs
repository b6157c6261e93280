//! What a model stream says, piece by piece, in no provider's words (M2).
//!
//! A provider's parser ([`super::anthropic::Parser`], [`super::openai::Parser`]) turns stream
//! bytes into [`Delta`]s; [`super::completion::MessageBuilder`] folds them into the complete
//! message.

use crate::usage::TokenUsage;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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
    Usage(TokenUsage),
    /// Why the model stopped. The last one counts.
    Stopped(StopReason),
    /// The stream is complete: nothing follows. A stream without it was cut.
    Finished,
}

impl Delta {
    /// Bytes of it that the model wrote, for which a provider counts output tokens.
    pub fn written_bytes(&self) -> usize {
        match self {
            Self::Text(text) | Self::Reasoning { text, .. } => text.len(),
            Self::ReasoningStarted { redacted, .. } => redacted.as_ref().map_or(0, String::len),
            Self::CallStarted { tool, .. } => tool.len(),
            Self::CallArguments { fragment, .. } => fragment.len(),
            Self::ReasoningSignature { .. }
            | Self::Usage(_)
            | Self::Stopped(_)
            | Self::Finished => 0,
        }
    }
}

/// Why the model stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
