//! Mirrored events: the events of children as a parent's log stores them.

use crate::{
    call::ToolOutput,
    ids::{AgentName, CallId, SessionId},
    json::{from_value, is_deeper},
    limits::MIRRORED_LEVELS_MAX,
    session::{EventRecord, SessionEvent},
};
use serde_json::Value;
use std::sync::Arc;

/// Returns the event as the parent's log stores it: without message texts, titles, summaries and
/// structured tool results, and with limited nesting.
pub fn mirror_event(record: &EventRecord) -> Arc<EventRecord> {
    use SessionEvent as E;
    let mut record = record.clone();
    if let E::MessageQueued { text, .. }
    | E::MessageAccepted { text, .. }
    | E::QueuedMessageChanged { text, .. } = &mut record.event
    {
        *text = Arc::from("");
    } else if let E::MessageCompleted { text, reasoning, .. } = &mut record.event {
        text.clear();
        reasoning.clear();
    } else if let E::RunStarted { title, .. } = &mut record.event {
        *title = None;
    } else if let E::ContextCompacted { summary, .. } = &mut record.event {
        *summary = Arc::from("");
    } else if let E::ToolCallCompleted { output: ToolOutput { structured, .. }, .. } =
        &mut record.event
    {
        *structured = None;
    } else if let E::ToolCallStarted { .. }
    | E::ToolCallAllowed { .. }
    | E::ApprovalRequested { .. }
    | E::ApprovalDecided { .. }
    | E::PreflightApproved { .. } = &record.event
    {
        record.event = limit_depth(record.event);
    }
    Arc::new(record)
}

/// Replaces values below [`MIRRORED_LEVELS_MAX`] levels with their JSON text. The nesting of a
/// stored event is limited, and each mirror adds levels.
fn limit_depth(event: SessionEvent) -> SessionEvent {
    let Ok(value) = serde_json::to_value(&event) else { return event };
    if !is_deeper(&value, MIRRORED_LEVELS_MAX) {
        return event;
    }
    from_value(&stringify_below(value, MIRRORED_LEVELS_MAX)).unwrap_or(event)
}

fn stringify_below(value: Value, levels: u32) -> Value {
    match value {
        Value::Array(_) | Value::Object(_) if levels == 0 => Value::String(value.to_string()),
        Value::Array(items) => {
            items.into_iter().map(|item| stringify_below(item, levels - 1)).collect()
        }
        Value::Object(members) => {
            let members = members.into_iter();
            members.map(|(name, value)| (name, stringify_below(value, levels - 1))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

impl SessionEvent {
    /// Returns the event at the source of a chain of mirrors; the event itself if it is not
    /// mirrored.
    pub fn source_event(&self) -> &Self {
        let mut source = self;
        while let Self::ChildEvent { event, .. } = source {
            source = &event.event;
        }
        source
    }
}

/// An event and the session in which it occurred.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SourceEvent<'a> {
    /// The session.
    pub session_id: SessionId,
    /// The session's agent profile.
    pub agent: &'a AgentName,
    /// The call of the parent session that the session works for; `None` if the event is not
    /// mirrored.
    pub parent_call_id: Option<CallId>,
    /// The event.
    pub record: &'a EventRecord,
}

/// Returns the event at the source of a chain of mirrors; `record` itself if it is not mirrored.
pub fn resolve_source_event<'a>(
    session_id: SessionId,
    agent: &'a AgentName,
    record: &'a EventRecord,
) -> SourceEvent<'a> {
    let mut source = SourceEvent { session_id, agent, parent_call_id: None, record };
    while let SessionEvent::ChildEvent { session_id, agent, call_id, event } = &source.record.event
    {
        let (session_id, parent_call_id) = (*session_id, Some(*call_id));
        source = SourceEvent { session_id, agent, parent_call_id, record: event };
    }
    source
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ids::{CallId, Seq},
        json::Digest,
        message::Arguments,
        policy::Risk,
        time::Timestamp,
    };
    use serde_json::json;
    use uuid::Uuid;

    fn tool_call_started(arguments: Value) -> EventRecord {
        let event = SessionEvent::ToolCallStarted {
            call_id: CallId(Uuid::nil()),
            provider_id: "p".to_owned(),
            tool: "t".to_owned(),
            server: None,
            digest: Digest::hash_json(&arguments),
            arguments: Arc::new(Arguments::Json(arguments)),
            risk: Risk::ReadOnly,
            parallel: true,
            repeatable: true,
        };
        EventRecord { seq: Seq(1), at: Timestamp(0), run_id: None, step: None, event }
    }

    #[test]
    fn s8_deeply_nested_value_is_mirrored_as_text() {
        let plain = tool_call_started(json!({"a": [1, {"b": null}]}));
        assert_eq!(*mirror_event(&plain), plain);
        let deep = (0..120).fold(json!("bottom"), |inner, _| json!([inner]));
        let mirrored = mirror_event(&tool_call_started(json!({ "a": deep })));
        let mirrored = serde_json::to_value(&mirrored.event).unwrap();
        assert!(!is_deeper(&mirrored, MIRRORED_LEVELS_MAX));
        assert!(mirrored.to_string().contains("bottom"));
    }
}
