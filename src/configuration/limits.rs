//! `[limits]`: bounds on what clients may ask for (X4).

use greenroom_core::{duration::ConfigDuration, limits as core};
use serde::{Deserialize, Serialize};
use std::{num::NonZeroUsize, time::Duration};

/// Bounds; each is at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Bytes of a request's body.
    pub request_body_bytes: NonZeroUsize,
    /// Bytes of a user's message.
    pub message_bytes: NonZeroUsize,
    /// Open sessions of one user.
    pub open_sessions_per_user: NonZeroUsize,
    /// Runs of one user going on at once.
    pub running_runs_per_user: NonZeroUsize,
    /// Live subscribers of one session.
    pub subscribers_per_session: NonZeroUsize,
    /// Messages waiting behind a run.
    pub queued_messages: NonZeroUsize,
    /// Requests a second of one principal.
    pub requests_per_second: NonZeroUsize,
    /// Tool calls of one session running at once (S3).
    pub parallel_calls: NonZeroUsize,
    /// Children of one run working at once (S8).
    pub children_per_run: NonZeroUsize,
    /// Sessions below one that people started, from parent to child (S8).
    pub delegation_depth: NonZeroUsize,
    /// Time after which a session that does nothing leaves memory (D6).
    pub idle_timeout: ConfigDuration,
    /// Time between two signs of life on a stream (E4).
    pub heartbeat: ConfigDuration,
}

const fn at_least_one(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).expect("defaults are not zero")
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
            children_per_run: at_least_one(core::CHILDREN_PER_RUN_DEFAULT),
            delegation_depth: at_least_one(core::DELEGATION_DEPTH_DEFAULT as usize),
            idle_timeout: ConfigDuration(Duration::from_secs(300)),
            heartbeat: ConfigDuration(Duration::from_secs(15)),
        }
    }
}

impl Limits {
    /// What the types don't check.
    pub(super) fn validate(&self) -> Result<(), String> {
        if self.message_bytes > self.request_body_bytes {
            return Err("limits.message_bytes must be at most limits.request_body_bytes".to_owned());
        }
        if self.delegation_depth.get() > core::DELEGATION_DEPTH_MAX as usize {
            let most = core::DELEGATION_DEPTH_MAX;
            return Err(format!("limits.delegation_depth must be at most {most}"));
        }
        for (key, span) in [("idle_timeout", self.idle_timeout), ("heartbeat", self.heartbeat)] {
            if span.0.is_zero() {
                return Err(format!("limits.{key} must be longer than 0"));
            }
        }
        Ok(())
    }
}
