//! What the snapshots don't show: the same question seen by clients that come at different times,
//! and kinds of questions.

use super::*;
use crate::dialect::{samples, snapshots};
use greenroom_core::ids::RunId;

fn following(asked: Asked) -> Following {
    Following {
        request_id: MessageId::parse("r-1").unwrap(),
        taken: Seq(2),
        model: "small".to_owned(),
        details: false,
        asked,
    }
}

fn told(item: &FeedItem, asked: Asked) -> Vec<Frame> {
    let mut frames = Vec::new();
    let (following, redactor) = (following(asked), Redactor::default());
    encode(item, &following, Timestamp(0), &redactor, &mut |frame| frames.push(frame));
    frames
}

fn calls(frames: &[Frame]) -> Vec<&str> {
    let call = |frame: &'_ Frame| {
        let ServerMessage::ToolApprovalRequest { tool_call_id, .. } = &frame.message else {
            panic!("{:?}", frame.message);
        };
        Some(tool_call_id.clone())
    };
    let all = [samples::CALL, samples::SECOND_CALL];
    let found: Vec<_> = frames.iter().filter_map(call).collect();
    all.into_iter().filter(|call| found.iter().any(|found| found == call)).collect()
}

#[test]
fn g11_what_was_answered_before_the_client_came_is_not_asked_again() {
    let record = samples::record(7, "approval_requested", &json!({"approval": samples::plan()}));
    let item = samples::told(record);
    let (one, two) = (samples::CALL, samples::SECOND_CALL);
    let waiting = || BTreeSet::from([samples::ID.parse().unwrap()]);
    let decided = BTreeSet::from([one.parse().unwrap()]);
    for (asked, expected) in [
        // It comes while the client listens.
        (Asked { head: Seq(6), ..Asked::default() }, vec![one, two]),
        (
            Asked { head: Seq(6), waiting: BTreeSet::new(), decided: decided.clone() },
            vec![one, two],
        ),
        // It is replayed, and waits, or does not.
        (Asked { head: Seq(9), waiting: waiting(), ..Asked::default() }, vec![one, two]),
        (Asked { head: Seq(9), waiting: waiting(), decided }, vec![two]),
        (Asked { head: Seq(9), ..Asked::default() }, vec![]),
    ] {
        assert_eq!(calls(&told(&item, asked)), expected);
    }
}

#[test]
fn e3_of_several_frames_of_one_event_only_the_last_is_past_it() {
    let record = samples::record(7, "approval_requested", &json!({"approval": samples::plan()}));
    let frames = told(&samples::told(record), Asked::default());
    let cursors: Vec<_> = frames.iter().map(|frame| frame.cursor.unwrap().to_string()).collect();
    assert_eq!(cursors, ["6", "7"]);
}

#[test]
fn a_request_starts_where_its_message_was_taken_and_nowhere_else() {
    let taken = json!({"message_id": "r-1", "text": "hi", "digest": samples::DIGEST});
    for (seq, kind, start) in [
        (2, "message_queued", Some(true)),
        (2, "message_accepted", Some(false)),
        (3, "message_accepted", None),
    ] {
        let frames = told(&samples::told(samples::record(seq, kind, &taken)), Asked::default());
        let expected = start.map(|queued| ServerMessage::ChatStreamStart {
            request_id: MessageId::parse("r-1").unwrap(),
            session_id: samples::SESSION.parse().unwrap(),
            run_id: Some(samples::RUN.parse::<RunId>().unwrap()),
            model: "small".to_owned(),
            queued,
        });
        assert_eq!(frames.into_iter().map(|frame| frame.message).next(), expected);
    }
}

/// Questions that no sample of an event has, as clients see them.
fn views() -> Vec<Value> {
    let of_kind = |kind: &str, more: Value| {
        let mut view = json!({
            "approval_id": samples::ID, "kind": kind, "purpose": "What now?", "deadline": null,
        });
        view.as_object_mut().unwrap().extend(into_map(more));
        view
    };
    vec![
        of_kind(
            "preflight",
            json!({
                "steps": [
                    {"description": "look", "risk": "read_only", "needsApproval": false},
                    {"description": "buy", "toolName": "buy", "arguments": {"n": 1},
                        "risk": "critical", "needsApproval": true},
                ],
                "estimatedCost": {"inputTokens": 100, "outputTokens": 20, "estimatedUSD": null},
                "requiredPermissions": ["write_high_risk"], "warnings": ["it is late"],
            }),
        ),
        of_kind("budget", json!({"budget": {"scope": "run"}, "spent": 5, "needed": 1})),
        of_kind("unknown_outcome", json!({"call": {"tool": "buy"}, "why": "it crashed"})),
        of_kind(
            "elicitation",
            json!({
                "call_id": samples::CALL, "tool": "t", "server": "s", "message": "Who?",
                "mode": "form", "schema": {"type": "object"},
            }),
        ),
        of_kind("something_new", json!({})),
    ]
}

/// A preflight is a checklist; a question without a frame of its own is told whole.
#[test]
fn g6_g14_d3_questions_of_every_kind() {
    let request_id = MessageId::parse("r-1").unwrap();
    let line = |view: Value| {
        let said = question(&view, &request_id, |_| false);
        let frames =
            said.into_iter().map(|message| Frame { cursor: None, session_id: None, message });
        json!({"of": view["kind"], "frames": frames.collect::<Vec<_>>()}).to_string()
    };
    snapshots::compare("gateway-questions", views().into_iter().map(line).collect());
}

#[test]
fn risks_have_three_words() {
    let words = |name| serde_json::to_value(Risk::of(name)).unwrap();
    for (name, word) in [
        ("read_only", "low"),
        ("write_low_risk", "low"),
        ("write_high_risk", "medium"),
        ("critical", "high"),
        ("who knows", "high"),
    ] {
        assert_eq!(words(name), word);
    }
}
