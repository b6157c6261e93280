//! How an attempt of a tool call can end, as its executor saw it (R1).
//!
//! The variants say what is *known of the effect*, because that decides whether another attempt
//! is safe. Texts are read only where a tool's own error text is all there is.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a tool gave back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolOutput {
    /// What the model reads. At most the tool's `result_bytes_max`, marker included.
    pub text: String,
    /// The structured content, where the tool has it and it fits the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
    /// Whether the result was longer than the limit and `text` was cut (T4).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Whether it is that of an earlier call with the same arguments (T6).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cached: bool,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolOutcome {
    /// The tool answered.
    Completed(ToolOutput),
    /// The tool answered that it failed.
    Failed {
        /// Its words, cut to a limit.
        error: String,
        /// What the tool itself says about repeating.
        hint: RetryHint,
    },
    /// The call never reached the tool: nothing happened.
    NotSent {
        /// Why.
        error: String,
    },
    /// There is no answer within the time, and the call had been sent.
    TimedOut {
        /// The limit, in milliseconds.
        after_ms: u64,
    },
    /// The connection or the tool's process died after the call had been sent.
    Crashed {
        /// What was seen.
        error: String,
    },
}

/// What a tool's error says about trying again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RetryHint {
    /// Nothing; its text has to do.
    #[default]
    Unspecified,
    /// The tool marked the failure as passing.
    Temporary,
    /// The tool says that it did not run (rate-limited, refused before the effect).
    DidNotRun,
    /// Another attempt would end the same.
    Permanent,
}
