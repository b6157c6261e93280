//! The dialect `task`: the native dialect, but a tool call is a `tool_call` and a `tool_result`, with
//! the member names of multi-agent task runners. A task is a run.
//!
//! Each call has exactly one `tool_call` and then one `tool_result`, because its proposal precedes
//! its single end. A denial is encoded twice: as its native frame and as the `tool_result` that the
//! model receives.

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
    ids::Seq,
    session::{EventRecord, SessionEvent},
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
    let frame = agent::encode(item, sent_at, redactor);
    let FeedKind::Event(record) = &item.kind else { return emit(frame) };
    let Some(call_event) = CallEventKind::from_record(record) else { return emit(frame) };
    if let CallEventKind::Denied = call_event {
        // A client that disconnects between the two frames receives both again.
        let cursor = frame.cursor.map(|_| Cursor::after_seq(Seq(record.seq.0.saturating_sub(1))));
        emit(Frame { cursor, ..frame.clone() });
    }
    let kind = if let CallEventKind::Proposed = call_event { TOOL_CALL } else { TOOL_RESULT };
    emit(Frame { kind, naming: MemberNaming::Task(call_event), ..frame });
}

/// The kind of an event in the life cycle of a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum CallEventKind {
    Proposed,
    Completed,
    Failed,
    /// Rejected by a human, or the approval expired.
    NotApproved,
    Denied,
}

impl CallEventKind {
    fn from_record(record: &EventRecord) -> Option<Self> {
        if let SessionEvent::ToolCallFailed { reason, .. } = &record.event {
            let is_not_approved =
                matches!(reason, CallFailureReason::Rejected | CallFailureReason::Expired);
            return Some(if is_not_approved { Self::NotApproved } else { Self::Failed });
        } else if let SessionEvent::ToolCallStarted { .. } = &record.event {
            return Some(Self::Proposed);
        } else if let SessionEvent::ToolCallCompleted { .. } = &record.event {
            return Some(Self::Completed);
        }
        matches!(record.event, SessionEvent::AuthorizationDenied { .. }).then_some(Self::Denied)
    }

    /// Returns the name in this dialect of the native dialect's member `name`.
    pub(super) fn member_name(self, name: &str) -> &str {
        match (self, name) {
            (_, "tool") => "tool_name",
            (_, "arguments") => "tool_input",
            (_, "result") => "tool_output",
            (Self::Denied, "reason") => "error",
            (_, name) => name,
        }
    }

    /// Writes the members that the native dialect does not have.
    pub(super) fn write_extra_members<M: SerializeMap>(
        self,
        frame: &Frame<'_>,
        members: &mut MemberWriter<'_, '_, M>,
    ) -> Result<(), M::Error> {
        members.write_member("task_id", &frame.run_id)?;
        members.write_member("timestamp", &frame.at)?;
        let (success, blocked_by) = match self {
            Self::Proposed => return Ok(()),
            Self::Completed => (true, None),
            Self::Failed => (false, None),
            Self::NotApproved => (false, Some("approval")),
            Self::Denied => (false, Some("authorization")),
        };
        members.write_member("success", &success)?;
        blocked_by.map_or(Ok(()), |by| members.write_member("blocked_by", by))
    }
}
