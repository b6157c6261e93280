//! `[limits]`: limits on client requests and sessions (X4).

use greenroom_core::{duration::ConfigDuration, limits as core};
use serde::{Deserialize, Serialize};
use std::{num::NonZeroUsize, time::Duration};

/// Limits. Each number is at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Maximum bytes of a request body.
    pub request_body_bytes: NonZeroUsize,
    /// Maximum bytes of a user message.
    pub message_bytes: NonZeroUsize,
    /// Maximum open sessions of a user.
    pub open_sessions_per_user: NonZeroUsize,
    /// Maximum running runs of a user.
    pub running_runs_per_user: NonZeroUsize,
    /// Maximum live subscribers of a session.
    pub subscribers_per_session: NonZeroUsize,
    /// Maximum queued messages of a session.
    pub queued_messages: NonZeroUsize,
    /// Maximum requests per second of a principal.
    pub requests_per_second: NonZeroUsize,
    /// Maximum running tool calls of a session (S3).
    pub parallel_calls: NonZeroUsize,
    /// Maximum tool calls of one model message; further calls fail.
    pub calls_per_step: NonZeroUsize,
    /// Maximum bytes of text of one model message; further text is cut off.
    pub model_text_bytes: NonZeroUsize,
    /// Maximum running child sessions of a run (S8).
    pub children_per_run: NonZeroUsize,
    /// Maximum depth of child sessions below a root session (S8).
    pub delegation_depth: NonZeroUsize,
    /// Idle time after which a session is passivated (D6).
    pub idle_timeout: ConfigDuration,
    /// Interval of heartbeats on a stream (E4).
    pub heartbeat: ConfigDuration,
}

const fn at_least_one(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).expect("a default limit is not zero")
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            request_body_bytes: at_least_one(1024 * 1024),
            message_bytes: at_least_one(core::MESSAGE_BYTES_MAX),
            open_sessions_per_user: at_least_one(1_000),
            running_runs_per_user: at_least_one(32),
            subscribers_per_session: at_least_one(256),
            queued_messages: at_least_one(core::QUEUED_MESSAGES_MAX),
            requests_per_second: at_least_one(100),
            parallel_calls: at_least_one(core::PARALLEL_CALLS_DEFAULT),
            calls_per_step: at_least_one(core::CALLS_PER_STEP_DEFAULT),
            model_text_bytes: at_least_one(core::MODEL_TEXT_BYTES_DEFAULT),
            children_per_run: at_least_one(core::CHILDREN_PER_RUN_DEFAULT),
            delegation_depth: at_least_one(core::DELEGATION_DEPTH_DEFAULT as usize),
            idle_timeout: ConfigDuration(Duration::from_secs(300)),
            heartbeat: ConfigDuration(Duration::from_secs(15)),
        }
    }
}

impl Limits {
    /// Validates the relations that the types do not express.
    pub(super) fn validate(&self) -> Result<(), String> {
        if self.message_bytes > self.request_body_bytes {
            return Err(format!(
                "limits.message_bytes must be at most limits.request_body_bytes ({}), not {}",
                self.request_body_bytes, self.message_bytes
            ));
        }
        for (key, value, highest) in [
            ("delegation_depth", self.delegation_depth, core::DELEGATION_DEPTH_MAX as usize),
            ("calls_per_step", self.calls_per_step, core::CALLS_PER_STEP_MAX),
            ("model_text_bytes", self.model_text_bytes, core::MODEL_TEXT_BYTES_MAX),
        ] {
            if value.get() > highest {
                return Err(format!("limits.{key} must be at most {highest}, not {value}"));
            }
        }
        for (key, span) in [("idle_timeout", self.idle_timeout), ("heartbeat", self.heartbeat)] {
            if span.0.is_zero() {
                return Err(format!("limits.{key} must be longer than 0"));
            }
        }
        Ok(())
    }
}
