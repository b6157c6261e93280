//! The outcomes of an attempt of a tool call, as seen by its executor (R1).
//!
//! The variants state what is known of the effect, because the effect determines if another attempt
//! is safe. The error text is evaluated only if the tool gives no other hint.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The result of a tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolOutput {
    /// The text that the model reads. At most the tool's `result_bytes_max` bytes, including the
    /// truncation marker.
    pub text: String,
    /// The structured content, if the tool returned it and it fits the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
    /// True if the result exceeded the limit and `text` was cut (T4).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// True if the result is the cached result of an earlier call with the same arguments (T6).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cached: bool,
}

/// The outcome of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolOutcome {
    /// The tool returned a result.
    Completed(ToolOutput),
    /// The tool returned an error.
    Failed {
        /// The tool's error text, cut to a limit.
        error: String,
        /// The tool's own statement about retries.
        hint: RetryHint,
    },
    /// The call never reached the tool and had no effect.
    NotSent {
        /// The reason.
        error: String,
    },
    /// The call was sent, and no result arrived within the time limit.
    TimedOut {
        /// The time limit, in milliseconds.
        after_ms: u64,
    },
    /// The connection or the tool's process ended after the call had been sent.
    Crashed {
        /// The observed failure.
        error: String,
    },
}

/// The statement of a tool's error about retries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RetryHint {
    /// None. The error text is evaluated instead.
    #[default]
    Unspecified,
    /// The failure is temporary.
    Temporary,
    /// The tool did not run (rate-limited, rejected before the effect).
    DidNotRun,
    /// Another attempt would fail the same way.
    Permanent,
}
