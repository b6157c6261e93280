//! Tests that the snapshots do not cover: the same approval for clients that connect at different
//! times, and the kinds of approvals.

use super::*;
use crate::dialect::{samples, snapshots};
use greenroom_core::ids::RunId;

fn followed_run(approvals: ApprovalSnapshot) -> FollowedRun {
    FollowedRun {
        request_id: MessageId::parse("r-1").unwrap(),
        accepted_seq: Seq(2),
        model: "small".to_owned(),
        include_native: false,
        approvals,
    }
}

fn encode_item(item: &FeedItem, approvals: ApprovalSnapshot) -> Vec<GatewayFrame> {
    let mut frames = Vec::new();
    let (followed_run, redactor) = (followed_run(approvals), Redactor::default());
    encode(item, &followed_run, Timestamp(0), &redactor, &mut |frame| frames.push(frame));
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
    let requested: Vec<_> = frames.iter().filter_map(call).collect();
    all.into_iter().filter(|call| requested.iter().any(|requested| requested == call)).collect()
}

#[test]
fn g11_approval_answered_before_connect_is_not_sent_again() {
    let record = samples::record(7, "approval_requested", &json!({"approval": samples::plan()}));
    let item = samples::feed_item(record);
    let (first, second) = (samples::CALL, samples::SECOND_CALL);
    let pending = || BTreeSet::from([samples::ID.parse().unwrap()]);
    let decided = BTreeSet::from([first.parse().unwrap()]);
    for (approvals, expected) in [
        // Requested after the client connected.
        (ApprovalSnapshot { head: Seq(6), ..ApprovalSnapshot::default() }, vec![first, second]),
        (
            ApprovalSnapshot {
                head: Seq(6),
                pending: BTreeSet::new(),
                decided_calls: decided.clone(),
            },
            vec![first, second],
        ),
        // Replayed: pending, partly decided, and closed.
        (
            ApprovalSnapshot { head: Seq(9), pending: pending(), ..ApprovalSnapshot::default() },
            vec![first, second],
        ),
        (
            ApprovalSnapshot { head: Seq(9), pending: pending(), decided_calls: decided },
            vec![second],
        ),
        (ApprovalSnapshot { head: Seq(9), ..ApprovalSnapshot::default() }, vec![]),
    ] {
        assert_eq!(calls(&encode_item(&item, approvals)), expected);
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
    let message = json!({"message_id": "r-1", "text": "hi", "digest": samples::DIGEST});
    for (seq, kind, start) in [
        (2, "message_queued", Some(true)),
        (2, "message_accepted", Some(false)),
        (3, "message_accepted", None),
    ] {
        let frames = encode_item(
            &samples::feed_item(samples::record(seq, kind, &message)),
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

/// Returns client views of approvals of kinds that no sample event has.
fn views() -> Vec<Value> {
    let view_of_kind = |kind: &str, extra: Value| {
        let mut view = json!({
            "approval_id": samples::ID, "kind": kind, "purpose": "What now?", "deadline": null,
        });
        view.as_object_mut().unwrap().extend(into_map(extra));
        view
    };
    vec![
        view_of_kind(
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
        view_of_kind("budget", json!({"budget": {"scope": "run"}, "spent": 5, "needed": 1})),
        view_of_kind("unknown_outcome", json!({"call": {"tool": "buy"}, "why": "it crashed"})),
        view_of_kind(
            "elicitation",
            json!({
                "call_id": samples::CALL, "tool": "t", "server": "s", "message": "Who?",
                "mode": "form", "schema": {"type": "object"},
            }),
        ),
        view_of_kind("something_new", json!({})),
    ]
}

/// A preflight is a checklist; an approval of a kind without its own message is an `error`.
#[test]
fn g6_g14_d3_approvals_of_every_kind_match_snapshot() {
    let request_id = MessageId::parse("r-1").unwrap();
    let line = |view: Value| {
        let messages = approval_messages(&view, &request_id, |_| false);
        let frames = messages.into_iter().map(|message| GatewayFrame {
            cursor: None,
            session_id: None,
            message,
        });
        json!({"of": view["kind"], "frames": frames.collect::<Vec<_>>()}).to_string()
    };
    snapshots::compare("gateway-approvals", views().into_iter().map(line).collect());
}

#[test]
fn risks_are_mapped_to_three_levels() {
    let level = |name| serde_json::to_value(GatewayRisk::from_risk_name(name)).unwrap();
    for (name, expected) in [
        ("read_only", "low"),
        ("write_low_risk", "low"),
        ("write_high_risk", "medium"),
        ("critical", "high"),
        ("who knows", "high"),
    ] {
        assert_eq!(level(name), expected);
    }
}
