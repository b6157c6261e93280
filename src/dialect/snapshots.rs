//! Tests of all events in all dialects against the files in `snapshots/`, and properties that hold
//! for any sequence of events. `GREENROOM_WRITE_SNAPSHOTS=1` rewrites the files.

use super::{Dialect, FlatFrame, Frame, gateway, samples};
use crate::redaction::REDACTED;
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

/// The time of sending, for frames that have no time of their own.
const SENT_AT: Timestamp = Timestamp(1_000);

/// An encoded frame with its JSON forms.
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
        assert_eq!(text, serde_json::to_vec(&frame.flat()).unwrap(), "`write_flat` equals serde");
        let nested = serde_json::to_value(frame.nested()).unwrap();
        let Frame { kind, seq, cursor, .. } = *frame;
        Self { kind, seq, cursor, flat, nested }
    }

    /// Returns the flat form, and the members that only the nested form has.
    fn both_forms(&self) -> Value {
        json!({
            "flat": self.flat, "payload": self.nested["payload"], "cursor": self.nested["cursor"],
        })
    }
}

fn encode_in_dialect(dialect: Dialect, item: &FeedItem) -> Vec<EncodedFrame> {
    let (mut frames, redactor) = (Vec::new(), samples::redactor());
    dialect.encode(item, SENT_AT, &redactor, |frame| frames.push(EncodedFrame::from_frame(&frame)));
    frames
}

fn followed_run(accepted_seq: Seq, include_native: bool) -> gateway::FollowedRun {
    gateway::FollowedRun {
        request_id: MessageId::parse("r-1").unwrap(),
        accepted_seq,
        model: "small".to_owned(),
        include_native,
        approvals: gateway::ApprovalSnapshot::default(),
    }
}

fn encode_for_run(
    item: &FeedItem,
    followed_run: &gateway::FollowedRun,
) -> Vec<gateway::GatewayFrame> {
    let mut frames = Vec::new();
    let redactor = samples::redactor();
    gateway::encode(item, followed_run, SENT_AT, &redactor, &mut |frame| frames.push(frame));
    frames
}

/// Encodes `item` for a run whose accepted message is sample number 6.
fn encode_in_gateway(item: &FeedItem, include_native: bool) -> Vec<gateway::GatewayFrame> {
    encode_for_run(item, &followed_run(Seq(6), include_native))
}

/// Returns a feed item of each kind, with its name.
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

/// Compares `lines` with the snapshot file `name`.
pub(super) fn compare(name: &str, lines: Vec<String>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/dialect/snapshots");
    let path = path.join(name).with_extension("jsonl");
    if std::env::var_os("GREENROOM_WRITE_SNAPSHOTS").is_some() {
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
    }
    let recorded = std::fs::read_to_string(&path).unwrap();
    let recorded: Vec<_> = recorded.lines().collect();
    for (line, recorded) in lines.iter().zip(&recorded) {
        assert_eq!(line, recorded, "{name}");
    }
    assert_eq!(lines.len(), recorded.len(), "{name}");
}

#[test]
fn e1_agent_dialect_matches_snapshot_for_every_event() {
    check("agent", |item| {
        encode_in_dialect(Dialect::Agent, item).iter().map(EncodedFrame::both_forms).collect()
    });
}

#[test]
fn e1_task_dialect_matches_snapshot_for_every_event() {
    check("task", |item| {
        encode_in_dialect(Dialect::Task, item).iter().map(EncodedFrame::both_forms).collect()
    });
}

#[test]
fn e1_gateway_dialect_matches_snapshot_for_every_event() {
    let json = |frame: &gateway::GatewayFrame| serde_json::to_value(frame).unwrap();
    check("gateway", |item| encode_in_gateway(item, false).iter().map(json).collect());
    check("gateway-details", |item| encode_in_gateway(item, true).iter().map(json).collect());
}

/// Appends the paths of all placeholders in `value`.
fn find_placeholders(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => members
            .iter()
            .for_each(|(key, member)| find_placeholders(member, &format!("{path}/{key}"), found)),
        Value::Array(items) => items.iter().for_each(|item| find_placeholders(item, path, found)),
        Value::String(text) if text == REDACTED => {
            found.insert(path.to_owned());
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// No member of a frame is hidden because of its own name, and no digest is plain.
#[test]
fn e7_own_members_of_frames_are_visible_and_digests_are_keyed() {
    let mut found = BTreeSet::new();
    for (name, item) in items() {
        let native = [Dialect::Agent, Dialect::Task].into_iter();
        let frames = native.flat_map(|dialect| encode_in_dialect(dialect, &item));
        let gateway = encode_in_gateway(&item, true).into_iter();
        let frames = frames.flat_map(|frame| [frame.flat, frame.nested]);
        for frame in frames.chain(gateway.map(|frame| serde_json::to_value(&frame).unwrap())) {
            find_placeholders(&frame, "", &mut found);
            assert!(!frame.to_string().contains(samples::DIGEST), "{name}");
        }
    }
    // Only the secrets in arguments, results and answers of the samples.
    let secrets = ["/api_key", "/answer/value/password", "/result/token", "/tool_output/token"];
    let hidden = found.iter().filter(|path| !secrets.iter().any(|secret| path.ends_with(secret)));
    assert_eq!(hidden.collect::<Vec<_>>(), Vec::<&String>::new());
    assert!(!found.is_empty());
}

/// Generates arbitrary sequences of events and text deltas with consecutive cursors.
fn streams() -> impl Strategy<Value = Vec<FeedItem>> {
    let samples = samples::all();
    let sample_index = prop_oneof![
        4 => (0..samples.len()).prop_map(Some),
        1 => Just(None),
    ];
    proptest::collection::vec(sample_index, 0..80).prop_map(move |indexes| {
        let (mut seq, mut offset) = (0, 0);
        let feed_item = |index: Option<usize>| match index {
            Some(index) => {
                (seq, offset) = (seq + 1, 0);
                samples::feed_item(EventRecord { seq: Seq(seq), ..samples[index].clone() })
            }
            None => {
                offset += 3;
                samples::text(seq, offset, "hé")
            }
        };
        indexes.into_iter().map(feed_item).collect()
    })
}

proptest! {
    /// Each item is encoded as one frame with the item's cursor.
    #[test]
    fn e1_native_dialect_encodes_each_item_once(stream in streams()) {
        for item in &stream {
            let frames = encode_in_dialect(Dialect::Agent, item);
            prop_assert_eq!(frames.len(), 1);
            prop_assert_eq!(frames[0].cursor, Some(item.cursor));
            prop_assert_eq!(frames[0].seq, Some(item.cursor.seq));
        }
    }

    /// Items other than tool calls are encoded as in the native dialect. Each proposal is one
    /// `tool_call` and each end one `tool_result`, in order, also of child sessions.
    #[test]
    fn e1_task_dialect_encodes_each_item_once(stream in streams()) {
        for item in &stream {
            let native = encode_in_dialect(Dialect::Agent, item);
            let mut frames = encode_in_dialect(Dialect::Task, item);
            prop_assert_eq!(frames.last().unwrap().cursor, Some(item.cursor));
            let source = match native[0].kind {
                "child_event" => &native[0].flat["event"],
                _ => &native[0].flat,
            };
            let expected_kind = match source["type"].as_str().unwrap() {
                "tool_call_started" => Some("tool_call"),
                "tool_call_completed" | "tool_call_failed" | "authorization_denied" => {
                    Some("tool_result")
                }
                _ => None,
            };
            if let Some(kind) = expected_kind {
                let last = frames.pop().unwrap();
                prop_assert_eq!(last.kind, kind);
                for (name, source_name) in [
                    ("call_id", "call_id"),
                    ("tool_name", "tool"),
                    ("agent_id", "session_id"),
                    ("agent_type", "agent_type"),
                    ("task_id", "run_id"),
                    ("timestamp", "at"),
                ] {
                    prop_assert_eq!(&last.flat[name], &source[source_name], "{}", name);
                }
                for name in ["session_id", "seq", "run_id", "step", "at"] {
                    prop_assert_eq!(&last.flat[name], &native[0].flat[name], "{}", name);
                }
                prop_assert_eq!(
                    last.flat.get("parent_call_id"),
                    native[0].flat.get("event").map(|_| &native[0].flat["call_id"])
                );
                if source["type"] == "authorization_denied" {
                    let first = frames.pop().unwrap();
                    let seq = Seq(item.cursor.seq.0 - 1);
                    prop_assert_eq!(first.cursor, Some(Cursor { seq, ..item.cursor }));
                    prop_assert_eq!(first.kind, "authorization_denied");
                    for name in ["call_id", "tool", "reason", "required_level"] {
                        prop_assert_eq!(first.flat.get(name), source.get(name), "{}", name);
                    }
                    prop_assert_eq!(&first.flat["agent_id"], &source["session_id"]);
                    prop_assert_eq!(&first.flat["session_id"], &native[0].flat["session_id"]);
                }
            } else {
                let only = frames.pop().unwrap();
                prop_assert_eq!(only.both_forms(), native[0].both_forms());
            }
            prop_assert!(frames.is_empty());
        }
    }

    /// With native frames included, each item is encoded either as frames of this dialect or as one
    /// native frame; without, only the native frames are missing.
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

/// In a recorded session, each call has its pair of frames in order, and the frames of a run are
/// between its start and its single end.
#[test]
fn e1_recorded_session_keeps_its_order_in_every_dialect() {
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
                assert!(calls.contains(&call_id), "no call before {}", frame.flat);
                results.push(call_id);
            }
        }
    }
    assert!(!calls.is_empty() && calls.len() == results.len());
    results.sort_by_key(|id| calls.iter().position(|call| call == id));
    assert_eq!(results, calls, "each call has one result");

    let runs: BTreeSet<_> = log.iter().filter_map(|record| record.run_id).collect();
    for run_id in runs {
        let run: Vec<_> = log.iter().filter(|record| record.run_id == Some(run_id)).collect();
        let frames: Vec<_> = run
            .iter()
            .flat_map(|record| {
                let followed_run = followed_run(run[0].seq, false);
                encode_for_run(&samples::feed_item((*record).clone()), &followed_run)
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

/// Returns the number of frames of the dialect `gateway` for an item, native frames excluded.
fn expected_frame_count(item: &FeedItem) -> usize {
    let FeedKind::Event(record) = &item.kind else { return 1 };
    // Calls and approvals of child sessions are encoded too.
    let event = record.event.source_event();
    if let SessionEvent::ApprovalRequested { approval } = event {
        return match &approval.subject {
            ApprovalSubject::Plan { steps } => steps.len(),
            // Encoded as one frame each.
            ApprovalSubject::Budget(_)
            | ApprovalSubject::Preflight(_)
            | ApprovalSubject::UnknownOutcome(_)
            | ApprovalSubject::Elicitation(_) => 1,
        };
    } else if let SessionEvent::RunFailed { .. } = &record.event {
        return 2;
    }
    let accepts_message = matches!(
        record.event,
        SessionEvent::MessageQueued { .. } | SessionEvent::MessageAccepted { .. }
    );
    let ends_stream = matches!(
        record.event,
        SessionEvent::MessageDiscarded { .. }
            | SessionEvent::RunCompleted { .. }
            | SessionEvent::RunCancelled { .. }
    );
    let is_call_event = matches!(
        event,
        SessionEvent::ToolCallStarted { .. }
            | SessionEvent::ToolCallCompleted { .. }
            | SessionEvent::ToolCallFailed { .. }
            | SessionEvent::AuthorizationDenied { .. }
    );
    usize::from(ends_stream || is_call_event || (accepts_message && record.seq == Seq(6)))
}

/// `/openapi.json` lists exactly the existing frame types.
#[test]
fn e1_openapi_lists_every_frame_type() {
    let schema = json!(FlatFrame::schema());
    let listed: BTreeSet<_> = schema["properties"]["type"]["enum"]
        .as_array()
        .unwrap()
        .iter()
        .map(|kind| kind.as_str().unwrap().to_owned())
        .collect();
    let dialects = [Dialect::Agent, Dialect::Task];
    let encoded: BTreeSet<_> = dialects
        .into_iter()
        .flat_map(|dialect| {
            items().into_iter().flat_map(move |(_, item)| encode_in_dialect(dialect, &item))
        })
        .map(|frame| frame.kind.to_owned())
        .collect();
    assert_eq!(encoded, listed);
}
