//! The task with which a child session is started.

use super::Parent;
use crate::{
    authors::Authors,
    ids::{AgentName, MessageId, SessionId, UserId},
    json::Digest,
    policy::Settings,
    text::headline,
    trace_context::TraceContext,
};
use serde_json::json;
use std::sync::Arc;

/// A task that is handed to a child session.
#[derive(Clone, Debug, PartialEq)]
pub struct ChildTask {
    /// The child session. Its id is the same for every attempt of one call.
    pub child: SessionId,
    /// The child's agent profile.
    pub agent: AgentName,
    /// The text of the task.
    pub prompt: Arc<str>,
    /// The user of the parent, who also owns the child.
    pub owner: UserId,
    /// The parent's current settings.
    pub settings: Arc<Settings>,
    /// The parent session, run and call.
    pub parent: Arc<Parent>,
    /// The users who wrote a part of the task: the authors of the parent's run, and the editors of
    /// the call (G12).
    pub authors: Authors,
    /// The attempt's span in the trace of its run; the child's spans are created below it (A4).
    pub traceparent: TraceContext,
}

impl ChildTask {
    /// Returns the id of the child's first message. Derived from the call, so that every attempt
    /// uses the same id.
    pub fn message_id(&self) -> MessageId {
        MessageId::from_uuid(self.parent.call_id.0)
    }

    /// Returns the digest of the child's first message, computed as for any other message (S5).
    pub fn digest(&self) -> Digest {
        Digest::hash_canonical_text(&json!({ "message": self.prompt }))
    }

    /// Returns the beginning of the task, for session lists.
    pub fn title(&self) -> String {
        headline(&self.prompt)
    }
}
