//! What the snapshots don't show: the same question seen by clients that come at different times,
//! and kinds of questions.

use super::*;
use crate::dialect::{samples, snapshots};
use greenroom_core::ids::RunId;

fn followed_run(asked: ApprovalSnapshot) -> FollowedRun {
    FollowedRun {
        request_id: MessageId::parse("r-1").unwrap(),
        accepted_seq: Seq(2),
        model: "small".to_owned(),
        include_native: false,
        approvals: asked,
    }
}

fn encode_item(item: &FeedItem, asked: ApprovalSnapshot) -> Vec<GatewayFrame> {
    let mut frames = Vec::new();
    let (following, redactor) = (followed_run(asked), Redactor::default());
    encode(item, &following, Timestamp(0), &redactor, &mut |frame| frames.push(frame));
    frames
}

fn calls(frames: &[GatewayFrame]) -> Vec<&str> {
    let call = |frame: &'_ GatewayFrame| {
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
    let item = samples::feed_item(record);
    let (one, two) = (samples::CALL, samples::SECOND_CALL);
    let waiting = || BTreeSet::from([samples::ID.parse().unwrap()]);
    let decided = BTreeSet::from([one.parse().unwrap()]);
    for (asked, expected) in [
        // It comes while the client listens.
        (ApprovalSnapshot { head: Seq(6), ..ApprovalSnapshot::default() }, vec![one, two]),
        (
            ApprovalSnapshot {
                head: Seq(6),
                pending: BTreeSet::new(),
                decided_calls: decided.clone(),
            },
            vec![one, two],
        ),
        // It is replayed, and waits, or does not.
        (
            ApprovalSnapshot { head: Seq(9), pending: waiting(), ..ApprovalSnapshot::default() },
            vec![one, two],
        ),
        (ApprovalSnapshot { head: Seq(9), pending: waiting(), decided_calls: decided }, vec![two]),
        (ApprovalSnapshot { head: Seq(9), ..ApprovalSnapshot::default() }, vec![]),
    ] {
        assert_eq!(calls(&encode_item(&item, asked)), expected);
    }
}

#[test]
fn e3_only_the_last_frame_of_an_event_has_its_cursor() {
    let record = samples::record(7, "approval_requested", &json!({"approval": samples::plan()}));
    let frames = encode_item(&samples::feed_item(record), ApprovalSnapshot::default());
    let cursors: Vec<_> = frames.iter().map(|frame| frame.cursor.unwrap().to_string()).collect();
    assert_eq!(cursors, ["6", "7"]);
}

#[test]
fn stream_starts_at_the_accepting_event_only() {
    let taken = json!({"message_id": "r-1", "text": "hi", "digest": samples::DIGEST});
    for (seq, kind, start) in [
        (2, "message_queued", Some(true)),
        (2, "message_accepted", Some(false)),
        (3, "message_accepted", None),
    ] {
        let frames = encode_item(
            &samples::feed_item(samples::record(seq, kind, &taken)),
            ApprovalSnapshot::default(),
        );
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
        let said = approval_messages(&view, &request_id, |_| false);
        let frames = said.into_iter().map(|message| GatewayFrame {
            cursor: None,
            session_id: None,
            message,
        });
        json!({"of": view["kind"], "frames": frames.collect::<Vec<_>>()}).to_string()
    };
    snapshots::compare("gateway-questions", views().into_iter().map(line).collect());
}

#[test]
fn risks_have_three_words() {
    let words = |name| serde_json::to_value(GatewayRisk::from_risk_name(name)).unwrap();
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
