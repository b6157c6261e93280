//! The dialect `task`: the native one, but that a tool call is a `tool_call` and a `tool_result`,
//! in the words of who runs several agents on tasks. A task is a run.
//!
//! Each call has one of both, in that order, since its proposal comes before its one end. A denial
//! is told twice: by its own name, and as the result that the model reads, too.

use super::{Frame, agent};
use crate::redaction::Redactor;
use greenroom_actors::feed::{FeedItem, FeedKind};
use greenroom_core::{
    Timestamp,
    call::FailReason,
    cursor::Cursor,
    ids::Seq,
    session::{EventRecord, SessionEvent},
};
use serde_json::{Map, Value, json};

/// A call that is proposed.
pub const TOOL_CALL: &str = "tool_call";
/// The one end of a call.
pub const TOOL_RESULT: &str = "tool_result";

/// Tells what the dialect says of `item`: one frame; of a denial two.
pub fn encode(
    item: &FeedItem,
    sent_at: Timestamp,
    redactor: &Redactor,
    tell: &mut impl FnMut(Frame),
) {
    let frame = agent::encode(item, sent_at, redactor);
    let FeedKind::Event(record) = &item.kind else { return tell(frame) };
    match part(record) {
        None => tell(frame),
        Some(Part::Call) => tell(renamed(TOOL_CALL, frame)),
        Some(Part::Completed) => tell(result(frame, true)),
        Some(Part::Failed { blocked_by }) => {
            let mut frame = result(frame, false);
            if let Some(blocked_by) = blocked_by {
                frame.payload.insert("blocked_by".to_owned(), blocked_by.into());
            }
            tell(frame);
        }
        Some(Part::Denied) => {
            // A client that is cut off between the two gets both again.
            let cursor = frame.cursor.map(|_| Cursor::after(Seq(record.seq.0.saturating_sub(1))));
            tell(Frame { cursor, ..frame.clone() });
            let mut frame = result(frame, false);
            let reason = frame.payload.remove("reason").unwrap_or_default();
            frame.payload.insert("error".to_owned(), reason);
            frame.payload.insert("blocked_by".to_owned(), "authorization".into());
            tell(frame);
        }
    }
}

/// What an event is to a call.
enum Part {
    Call,
    Completed,
    Failed { blocked_by: Option<&'static str> },
    Denied,
}

fn part(record: &EventRecord) -> Option<Part> {
    if let SessionEvent::ToolCallFailed { reason, .. } = &record.event {
        let asked = matches!(reason, FailReason::Rejected | FailReason::Expired);
        return Some(Part::Failed { blocked_by: asked.then_some("approval") });
    } else if let SessionEvent::ToolCallStarted { .. } = &record.event {
        return Some(Part::Call);
    } else if let SessionEvent::ToolCallCompleted { .. } = &record.event {
        return Some(Part::Completed);
    }
    matches!(record.event, SessionEvent::AuthorizationDenied { .. }).then_some(Part::Denied)
}

fn result(frame: Frame, success: bool) -> Frame {
    let mut frame = renamed(TOOL_RESULT, frame);
    frame.payload.insert("success".to_owned(), success.into());
    frame
}

/// The frame in the words of this dialect.
fn renamed(kind: &'static str, frame: Frame) -> Frame {
    let word = |name: String| match name.as_str() {
        "tool" => "tool_name".to_owned(),
        "arguments" => "tool_input".to_owned(),
        "result" => "tool_output".to_owned(),
        _ => name,
    };
    let said = frame.payload.into_iter().map(|(name, value)| (word(name), value));
    let mut payload: Map<String, Value> = said.collect();
    payload.insert("task_id".to_owned(), json!(frame.run_id));
    payload.insert("timestamp".to_owned(), json!(frame.at));
    Frame { kind, payload, ..frame }
}
