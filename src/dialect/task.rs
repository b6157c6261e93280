//! The dialect `task`: the native dialect, but a tool call is a `tool_call` and a `tool_result`, with
//! the member names of multi-agent task runners. A task is a run.
//!
//! Each call has exactly one `tool_call` and then one `tool_result`, because its proposal precedes
//! its single end. A denial is encoded twice: as its native frame and as the `tool_result` that the
//! model receives.
//!
//! The calls of child sessions have the same frames, in place of their `child_event` frames (S8).
//! `agent_id`, `agent_type`, `task_id` and `timestamp` are then those of the child's event; the
//! position is that of its mirror in the streamed session.

use super::{
    Frame, agent,
    member_writer::{MemberNaming, MemberWriter},
};
use crate::redaction::Redactor;
use greenroom_actors::feed::{FeedItem, FeedKind};
use greenroom_core::{
    Timestamp,
    call::CallFailureReason,
    cursor::Cursor,
    delegation::resolve_source_event,
    ids::{CallId, RunId, Seq},
    session::SessionEvent,
};
use serde::ser::SerializeMap;

/// The frame type of a proposed call.
pub const TOOL_CALL: &str = "tool_call";
/// The frame type of the end of a call.
pub const TOOL_RESULT: &str = "tool_result";

/// Encodes `item` and passes each frame to `emit`: two frames for a denial, else one.
pub fn encode<'a>(
    item: &'a FeedItem,
    sent_at: Timestamp,
    redactor: &'a Redactor,
    emit: &mut impl FnMut(Frame<'a>),
) {
    let FeedKind::Event(record) = &item.kind else {
        return emit(agent::encode(item, sent_at, redactor));
    };
    let source = resolve_source_event(item.session_id, &item.agent, record);
    let Some(event_kind) = CallEventKind::from_event(&source.record.event) else {
        return emit(agent::encode(item, sent_at, redactor));
    };
    let call_frame = CallFrame {
        event_kind,
        task_id: source.record.run_id,
        timestamp: source.record.at,
        parent_call_id: source.parent_call_id,
    };
    let frame = agent::encode_source_event(item, record, source, redactor);
    if let CallEventKind::Denied = event_kind {
        // A client that disconnects between the two frames receives both again.
        let seq = Seq(record.seq.0.saturating_sub(1));
        let cursor = frame.cursor.map(|cursor| Cursor { seq, ..cursor });
        emit(Frame { cursor, ..frame.clone() });
    }
    let kind = if let CallEventKind::Proposed = event_kind { TOOL_CALL } else { TOOL_RESULT };
    emit(Frame { kind, naming: MemberNaming::Task(call_frame), ..frame });
}

/// The members that a `tool_call` or `tool_result` frame has in this dialect only.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallFrame {
    event_kind: CallEventKind,
    /// The run of the acting session.
    task_id: Option<RunId>,
    /// The time of the acting session's event.
    timestamp: Timestamp,
    /// The call that a child session works for.
    parent_call_id: Option<CallId>,
}

/// The kind of an event in the life cycle of a call.
#[derive(Clone, Copy, Debug)]
enum CallEventKind {
    Proposed,
    Completed,
    Failed,
    /// Rejected by a human, or the approval expired.
    NotApproved,
    Denied,
}

impl CallEventKind {
    fn from_event(event: &SessionEvent) -> Option<Self> {
        if let SessionEvent::ToolCallFailed { reason, .. } = event {
            let is_not_approved =
                matches!(reason, CallFailureReason::Rejected | CallFailureReason::Expired);
            return Some(if is_not_approved { Self::NotApproved } else { Self::Failed });
        } else if let SessionEvent::ToolCallStarted { .. } = event {
            return Some(Self::Proposed);
        } else if let SessionEvent::ToolCallCompleted { .. } = event {
            return Some(Self::Completed);
        }
        matches!(event, SessionEvent::AuthorizationDenied { .. }).then_some(Self::Denied)
    }
}

impl CallFrame {
    /// Returns the name in this dialect of the native dialect's member `name`.
    pub(super) fn member_name(self, name: &str) -> &str {
        match (self.event_kind, name) {
            (_, "tool") => "tool_name",
            (_, "arguments") => "tool_input",
            (_, "result") => "tool_output",
            (CallEventKind::Denied, "reason") => "error",
            (_, name) => name,
        }
    }

    /// Writes the members that the native dialect does not have.
    pub(super) fn write_extra_members<M: SerializeMap>(
        self,
        members: &mut MemberWriter<'_, '_, M>,
    ) -> Result<(), M::Error> {
        members.write_member("task_id", &self.task_id)?;
        members.write_member("timestamp", &self.timestamp)?;
        if let Some(parent_call_id) = self.parent_call_id {
            members.write_member("parent_call_id", &parent_call_id)?;
        }
        let (success, blocked_by) = match self.event_kind {
            CallEventKind::Proposed => return Ok(()),
            CallEventKind::Completed => (true, None),
            CallEventKind::Failed => (false, None),
            CallEventKind::NotApproved => (false, Some("approval")),
            CallEventKind::Denied => (false, Some("authorization")),
        };
        members.write_member("success", &success)?;
        blocked_by.map_or(Ok(()), |by| members.write_member("blocked_by", by))
    }
}
