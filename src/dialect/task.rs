//! The dialect `task`: the native one, but that a tool call is a `tool_call` and a `tool_result`,
//! in the words of who runs several agents on tasks. A task is a run.
//!
//! Each call has one of both, in that order, since its proposal comes before its one end. A denial
//! is told twice: by its own name, and as the result that the model reads, too.

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

/// A call that is proposed.
pub const TOOL_CALL: &str = "tool_call";
/// The one end of a call.
pub const TOOL_RESULT: &str = "tool_result";

/// Tells what the dialect says of `item`: one frame; of a denial two.
pub fn encode<'a>(
    item: &'a FeedItem,
    sent_at: Timestamp,
    redactor: &'a Redactor,
    tell: &mut impl FnMut(Frame<'a>),
) {
    let frame = agent::encode(item, sent_at, redactor);
    let FeedKind::Event(record) = &item.kind else { return tell(frame) };
    let Some(part) = CallEventKind::from_record(record) else { return tell(frame) };
    if let CallEventKind::Denied = part {
        // A client that is cut off between the two gets both again.
        let cursor = frame.cursor.map(|_| Cursor::after_seq(Seq(record.seq.0.saturating_sub(1))));
        tell(Frame { cursor, ..frame.clone() });
    }
    let kind = if let CallEventKind::Proposed = part { TOOL_CALL } else { TOOL_RESULT };
    tell(Frame { kind, naming: MemberNaming::Task(part), ..frame });
}

/// What an event is to a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum CallEventKind {
    Proposed,
    Completed,
    Failed,
    /// A person let it not run, or nobody answered.
    NotApproved,
    Denied,
}

impl CallEventKind {
    fn from_record(record: &EventRecord) -> Option<Self> {
        if let SessionEvent::ToolCallFailed { reason, .. } = &record.event {
            let asked = matches!(reason, CallFailureReason::Rejected | CallFailureReason::Expired);
            return Some(if asked { Self::NotApproved } else { Self::Failed });
        } else if let SessionEvent::ToolCallStarted { .. } = &record.event {
            return Some(Self::Proposed);
        } else if let SessionEvent::ToolCallCompleted { .. } = &record.event {
            return Some(Self::Completed);
        }
        matches!(record.event, SessionEvent::AuthorizationDenied { .. }).then_some(Self::Denied)
    }

    /// What the native dialect's member `name` is called.
    pub(super) fn member_name(self, name: &str) -> &str {
        match (self, name) {
            (_, "tool") => "tool_name",
            (_, "arguments") => "tool_input",
            (_, "result") => "tool_output",
            (Self::Denied, "reason") => "error",
            (_, name) => name,
        }
    }

    /// Adds what the native dialect has no member for.
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
