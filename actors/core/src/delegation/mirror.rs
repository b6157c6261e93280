//! What a parent's log tells of its children.

use crate::{
    call::ToolOutput,
    ids::{AgentName, SessionId},
    session::{EventRecord, SessionEvent},
};
use std::sync::Arc;

/// The event as a parent's log has it: without what was said, and without what a tool's result says
/// twice.
pub fn mirrored(record: &EventRecord) -> Arc<EventRecord> {
    use SessionEvent as E;
    let mut record = record.clone();
    if let E::MessageQueued { text, .. } | E::MessageAccepted { text, .. } = &mut record.event {
        *text = Arc::from("");
    } else if let E::MessageCompleted { text, reasoning, .. } = &mut record.event {
        text.clear();
        reasoning.clear();
    } else if let E::ContextCompacted { summary, .. } = &mut record.event {
        *summary = Arc::from("");
    } else if let E::ToolCallCompleted { output: ToolOutput { structured, .. }, .. } =
        &mut record.event
    {
        *structured = None;
    }
    Arc::new(record)
}

impl SessionEvent {
    /// What happened, through however many mirrors it is told: itself, where through none.
    pub fn innermost(&self) -> &Self {
        let mut found = self;
        while let Self::ChildEvent { event, .. } = found {
            found = &event.event;
        }
        found
    }
}

/// An event, and the session it happened in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Innermost<'a> {
    /// The session.
    pub session_id: SessionId,
    /// Its agent profile.
    pub agent: &'a AgentName,
    /// The event.
    pub record: &'a EventRecord,
}

/// The event that `record` of a session tells of, through however many mirrors it came: itself, where
/// it came through none.
pub fn innermost<'a>(
    session_id: SessionId,
    agent: &'a AgentName,
    record: &'a EventRecord,
) -> Innermost<'a> {
    let mut found = Innermost { session_id, agent, record };
    while let SessionEvent::ChildEvent { session_id, agent, event, .. } = &found.record.event {
        found = Innermost { session_id: *session_id, agent, record: event };
    }
    found
}
