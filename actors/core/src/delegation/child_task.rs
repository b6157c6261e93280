//! What a child is started with.

use super::Parent;
use crate::{
    ids::{AgentName, MessageId, SessionId, UserId},
    json::Digest,
    policy::Settings,
    text::headline,
    trace_context::TraceContext,
};
use serde_json::json;
use std::sync::Arc;

/// A task on its way to a child session.
#[derive(Clone, Debug, PartialEq)]
pub struct ChildTask {
    /// The session that is to do it. The same for every attempt of one call.
    pub child: SessionId,
    /// Its agent.
    pub agent: AgentName,
    /// What it is to do.
    pub prompt: Arc<str>,
    /// Whose it is: the parent's user.
    pub owner: UserId,
    /// What it allows: what the parent allows now.
    pub settings: Arc<Settings>,
    /// Where it comes from.
    pub parent: Arc<Parent>,
    /// The attempt in its run's trace: what the child does is done in it (A4).
    pub traceparent: TraceContext,
}

impl ChildTask {
    /// The id of the message that the task is: there is one for each call.
    pub fn message_id(&self) -> MessageId {
        MessageId::from_uuid(self.parent.call_id.0)
    }

    /// The digest of that message, as of any other of that text (S5).
    pub fn digest(&self) -> Digest {
        Digest::hash_json(&json!({ "message": self.prompt }))
    }

    /// The task's beginning, for lists.
    pub fn title(&self) -> String {
        headline(&self.prompt)
    }
}
