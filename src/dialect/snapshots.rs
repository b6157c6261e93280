//! Every event in every dialect, as it is on file in `snapshots/`, and what holds of any sequence of
//! events. `GREENROOM_WRITE_SNAPSHOTS=1` writes the files anew; read what changed.

use super::{Dialect, FlatFrame, Frame, gateway, samples};
use crate::redaction::Redactor;
use greenroom_actors::feed::{FeedItem, FeedKind};
use greenroom_core::{
    Timestamp,
    approval::ApprovalSubject,
    cursor::Cursor,
    ids::{MessageId, Seq},
    session::{EventRecord, SessionEvent},
};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::{collections::BTreeSet, path::Path};
use utoipa::PartialSchema as _;

/// When what has no time of its own is sent.
const SENT_AT: Timestamp = Timestamp(1_000);

/// A frame, and what was written of it.
struct EncodedFrame {
    kind: &'static str,
    seq: Option<Seq>,
    cursor: Option<Cursor>,
    flat: Value,
    nested: Value,
}

impl EncodedFrame {
    fn from_frame(frame: &Frame<'_>) -> Self {
        let flat = serde_json::to_value(frame.flat()).unwrap();
        let mut text = Vec::new();
        frame.write_flat(&mut text).unwrap();
        assert_eq!(text, serde_json::to_vec(&frame.flat()).unwrap(), "the same by hand");
        let nested = serde_json::to_value(frame.nested()).unwrap();
        let Frame { kind, seq, cursor, .. } = *frame;
        Self { kind, seq, cursor, flat, nested }
    }

    /// As SSE and pages have it, and what a WebSocket has besides.
    fn both_forms(&self) -> Value {
        json!({
            "flat": self.flat, "payload": self.nested["payload"], "cursor": self.nested["cursor"],
        })
    }
}

fn encode_in_dialect(dialect: Dialect, item: &FeedItem) -> Vec<EncodedFrame> {
    let (mut frames, redactor) = (Vec::new(), Redactor::default());
    dialect.encode(item, SENT_AT, &redactor, |frame| frames.push(EncodedFrame::from_frame(&frame)));
    frames
}

fn followed_run(taken: Seq, details: bool) -> gateway::FollowedRun {
    gateway::FollowedRun {
        request_id: MessageId::parse("r-1").unwrap(),
        accepted_seq: taken,
        model: "small".to_owned(),
        include_native: details,
        approvals: gateway::ApprovalSnapshot::default(),
    }
}

fn encode_for_run(item: &FeedItem, following: &gateway::FollowedRun) -> Vec<gateway::GatewayFrame> {
    let mut frames = Vec::new();
    let redactor = Redactor::default();
    gateway::encode(item, following, SENT_AT, &redactor, &mut |frame| frames.push(frame));
    frames
}

/// With the sample of a message that is accepted as the one that was taken.
fn encode_in_gateway(item: &FeedItem, details: bool) -> Vec<gateway::GatewayFrame> {
    encode_for_run(item, &followed_run(Seq(6), details))
}

/// Everything a subscriber may tell.
fn items() -> Vec<(String, FeedItem)> {
    let name = |record: &EventRecord| serde_json::to_value(record).unwrap()["type"].to_string();
    let events = samples::all().into_iter();
    let mut items: Vec<_> =
        events.map(|record| (name(&record), samples::feed_item(record))).collect();
    let control = |kind| samples::item(kind, Cursor::default());
    items.push(("text".to_owned(), samples::text(7, 3, "hé")));
    items.push(("draining".to_owned(), control(FeedKind::Draining)));
    items.push(("purged".to_owned(), control(FeedKind::Purged)));
    items.push(("broken".to_owned(), control(FeedKind::Broken("why".to_owned()))));
    items
}

fn check(dialect: &str, frames: impl Fn(&FeedItem) -> Vec<Value>) {
    let line = |(name, item): (String, FeedItem)| {
        json!({"of": name.trim_matches('"'), "frames": frames(&item)}).to_string()
    };
    compare(dialect, items().into_iter().map(line).collect());
}

/// Holds these lines against those on file under that name.
pub(super) fn compare(name: &str, found: Vec<String>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/dialect/snapshots");
    let path = path.join(name).with_extension("jsonl");
    if std::env::var_os("GREENROOM_WRITE_SNAPSHOTS").is_some() {
        std::fs::write(&path, found.join("\n") + "\n").unwrap();
    }
    let recorded = std::fs::read_to_string(&path).unwrap();
    let recorded: Vec<_> = recorded.lines().collect();
    for (found, recorded) in found.iter().zip(&recorded) {
        assert_eq!(found, recorded, "{name}");
    }
    assert_eq!(found.len(), recorded.len(), "{name}");
}

#[test]
fn e1_every_event_in_the_dialect_agent() {
    check("agent", |item| {
        encode_in_dialect(Dialect::Agent, item).iter().map(EncodedFrame::both_forms).collect()
    });
}

#[test]
fn e1_every_event_in_the_dialect_task() {
    check("task", |item| {
        encode_in_dialect(Dialect::Task, item).iter().map(EncodedFrame::both_forms).collect()
    });
}

#[test]
fn e1_every_event_in_the_dialect_gateway() {
    let json = |frame: &gateway::GatewayFrame| serde_json::to_value(frame).unwrap();
    check("gateway", |item| encode_in_gateway(item, false).iter().map(json).collect());
    check("gateway-details", |item| encode_in_gateway(item, true).iter().map(json).collect());
}

/// Any events and texts one after the other, as if they were a session.
fn streams() -> impl Strategy<Value = Vec<FeedItem>> {
    let samples = samples::all();
    let one = prop_oneof![
        4 => (0..samples.len()).prop_map(Some),
        1 => Just(None),
    ];
    proptest::collection::vec(one, 0..80).prop_map(move |picked| {
        let (mut seq, mut offset) = (0, 0);
        let tell = |picked: Option<usize>| match picked {
            Some(index) => {
                (seq, offset) = (seq + 1, 0);
                samples::feed_item(EventRecord { seq: Seq(seq), ..samples[index].clone() })
            }
            None => {
                offset += 3;
                samples::text(seq, offset, "hé")
            }
        };
        picked.into_iter().map(tell).collect()
    })
}

proptest! {
    /// One item, one frame at its place.
    #[test]
    fn e1_native_dialect_encodes_each_item_once(stream in streams()) {
        for item in &stream {
            let frames = encode_in_dialect(Dialect::Agent, item);
            prop_assert_eq!(frames.len(), 1);
            prop_assert_eq!(frames[0].cursor, Some(item.cursor));
            prop_assert_eq!(frames[0].seq, Some(item.cursor.seq));
        }
    }

    /// What is no tool call is as in the native dialect; each proposal is one `tool_call`, each end
    /// one `tool_result`, in their order.
    #[test]
    fn e1_task_dialect_encodes_each_item_once(stream in streams()) {
        for item in &stream {
            let native = encode_in_dialect(Dialect::Agent, item);
            let mut frames = encode_in_dialect(Dialect::Task, item);
            prop_assert_eq!(frames.last().unwrap().cursor, Some(item.cursor));
            let tool = match native[0].kind {
                "tool_call_started" => Some("tool_call"),
                "tool_call_completed" | "tool_call_failed" | "authorization_denied" => {
                    Some("tool_result")
                }
                _ => None,
            };
            if let Some(kind) = tool {
                let last = frames.pop().unwrap();
                prop_assert_eq!(last.kind, kind);
                for (ours, theirs) in [("call_id", "call_id"), ("tool_name", "tool")] {
                    prop_assert_eq!(&last.flat[ours], &native[0].flat[theirs]);
                }
                if native[0].kind == "authorization_denied" {
                    let first = frames.pop().unwrap();
                    prop_assert_eq!(first.cursor, Some(Cursor::after_seq(Seq(item.cursor.seq.0 - 1))));
                    prop_assert_eq!(&first.flat, &native[0].flat);
                }
            } else {
                let only = frames.pop().unwrap();
                prop_assert_eq!(only.both_forms(), native[0].both_forms());
            }
            prop_assert!(frames.is_empty());
        }
    }

    /// With details every item is told, by its own words or by the native frame and never by both;
    /// without, only the latter are missing.
    #[test]
    fn e1_gateway_dialect_encodes_each_item_once(stream in streams()) {
        for item in &stream {
            let detailed = encode_in_gateway(item, true);
            prop_assert!(!detailed.is_empty());
            prop_assert_eq!(detailed.last().unwrap().cursor, Some(item.cursor));
            let is_native =
                |frame: &gateway::GatewayFrame| matches!(frame.message, gateway::ServerMessage::AgentEvent { .. });
            let native = detailed.iter().filter(|frame| is_native(frame)).count();
            prop_assert!(native == 0 || (native == 1 && detailed.len() == 1));
            let plain = encode_in_gateway(item, false);
            prop_assert_eq!(&plain[..], if native == 0 { &detailed[..] } else { &[] });
            prop_assert_eq!(plain.len(), expected_frame_count(item), "{:?}", item);
        }
    }
}

/// A whole session, as it was recorded: every call has its pair in order, and what is streamed of a
/// run is between its start and its one end.
#[test]
fn e1_a_recorded_session_keeps_its_order_in_every_dialect() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/histories/v0_1_every_event.jsonl");
    let log = std::fs::read_to_string(path).unwrap();
    let log: Vec<EventRecord> =
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (mut calls, mut results) = (Vec::new(), Vec::new());
    for record in &log {
        for frame in encode_in_dialect(Dialect::Task, &samples::feed_item(record.clone())) {
            let call_id = frame.flat.get("call_id").cloned();
            if frame.kind == "tool_call" {
                calls.push(call_id);
            } else if frame.kind == "tool_result" {
                assert!(calls.contains(&call_id), "its call comes before {}", frame.flat);
                results.push(call_id);
            }
        }
    }
    assert!(!calls.is_empty() && calls.len() == results.len());
    results.sort_by_key(|id| calls.iter().position(|call| call == id));
    assert_eq!(results, calls, "each has one result");

    let runs: BTreeSet<_> = log.iter().filter_map(|record| record.run_id).collect();
    for run_id in runs {
        let run: Vec<_> = log.iter().filter(|record| record.run_id == Some(run_id)).collect();
        let frames: Vec<_> = run
            .iter()
            .flat_map(|record| {
                let following = followed_run(run[0].seq, false);
                encode_for_run(&samples::feed_item((*record).clone()), &following)
            })
            .map(|frame| serde_json::to_value(&frame).unwrap()["type"].clone())
            .collect();
        let count = |kind: &str| frames.iter().filter(|frame| **frame == kind).count();
        assert_eq!(
            (frames.first().unwrap(), count("chat.stream.start")),
            (&json!("chat.stream.start"), 1)
        );
        assert_eq!(
            (frames.last().unwrap(), count("chat.stream.end")),
            (&json!("chat.stream.end"), 1)
        );
        assert_eq!(count("tool.call"), count("tool.result"));
    }
}

/// How many frames of its own the dialect `gateway` has for an item.
fn expected_frame_count(item: &FeedItem) -> usize {
    let FeedKind::Event(record) = &item.kind else { return 1 };
    // Calls and questions are told of children, too.
    let event = record.event.source_event();
    if let SessionEvent::ApprovalRequested { approval } = event {
        return match &approval.subject {
            ApprovalSubject::Plan { steps } => steps.len(),
            // Told as an `error` with the question in it.
            ApprovalSubject::Budget(_)
            | ApprovalSubject::Preflight(_)
            | ApprovalSubject::UnknownOutcome(_)
            | ApprovalSubject::Elicitation(_) => 1,
        };
    } else if let SessionEvent::RunFailed { .. } = &record.event {
        return 2;
    }
    let taken = matches!(
        record.event,
        SessionEvent::MessageQueued { .. } | SessionEvent::MessageAccepted { .. }
    );
    let ends = matches!(
        record.event,
        SessionEvent::MessageDiscarded { .. }
            | SessionEvent::RunCompleted { .. }
            | SessionEvent::RunCancelled { .. }
    );
    let of_call = matches!(
        event,
        SessionEvent::ToolCallStarted { .. }
            | SessionEvent::ToolCallCompleted { .. }
            | SessionEvent::ToolCallFailed { .. }
            | SessionEvent::AuthorizationDenied { .. }
    );
    usize::from(ends || of_call || (taken && record.seq == Seq(6)))
}

/// `/openapi.json` knows every type of frame, and no other.
#[test]
fn e1_openapi_lists_every_frame_type() {
    let schema = json!(FlatFrame::schema());
    let known: BTreeSet<_> = schema["properties"]["type"]["enum"]
        .as_array()
        .unwrap()
        .iter()
        .map(|kind| kind.as_str().unwrap().to_owned())
        .collect();
    let dialects = [Dialect::Agent, Dialect::Task];
    let told: BTreeSet<_> = dialects
        .into_iter()
        .flat_map(|dialect| {
            items().into_iter().flat_map(move |(_, item)| encode_in_dialect(dialect, &item))
        })
        .map(|frame| frame.kind.to_owned())
        .collect();
    assert_eq!(told, known);
}
