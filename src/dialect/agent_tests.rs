//! Tests of the exact frame of each event type.

use super::*;
use crate::dialect::samples::{AT, DIGEST, ID, RUN, SESSION, item, redactor, with_keyed_digests};
use greenroom_core::{cursor::Cursor, ids::Seq};

/// Encodes an event as a flat and a nested frame.
fn encode_flat_and_nested(kind: &str, payload: &Value) -> [Value; 2] {
    let record: EventRecord = serde_json::from_value(json!({
        "seq": 7, "at": AT, "run_id": RUN, "step": 2, "type": kind, "payload": payload,
    }))
    .unwrap_or_else(|error| panic!("{kind}: {error}"));
    let item = item(FeedKind::Event(record.into()), Cursor::after_seq(Seq(7)));
    let redactor = redactor();
    let frame = encode(&item, Timestamp(0), &redactor);
    [serde_json::to_value(frame.flat()), serde_json::to_value(frame.nested())].map(Result::unwrap)
}

/// Checks the flat frame of an event: `expected` holds the payload members, without the envelope.
fn check(kind: &str, payload: &Value, frame_kind: &str, expected: Value) {
    let mut expected = with_keyed_digests(&expected);
    for (name, value) in [
        ("type", json!(frame_kind)),
        ("seq", json!(7)),
        ("session_id", json!(SESSION)),
        ("run_id", json!(RUN)),
        ("step", json!(2)),
        ("agent_id", json!(SESSION)),
        ("agent_type", json!("trader")),
        ("at", json!(AT)),
    ] {
        expected[name] = value;
    }
    let [flat, _] = encode_flat_and_nested(kind, payload);
    assert_eq!(flat, expected, "{kind}");
}

/// Checks that the frame has the event's own type and payload.
fn assert_stored_frame(kind: &str, payload: Value) {
    check(kind, &payload, kind, payload.clone());
}

fn settings() -> Value {
    json!({
        "autonomy_level": 1, "require_confirmation": true, "blocked_tools": [],
        "allowed_regions": null, "budget_limit": null,
    })
}

fn usage() -> Value {
    json!({"input_tokens": 10, "output_tokens": 5, "cached_tokens": 0, "cost_usd": 0.25})
}

#[test]
fn e1_session_and_message_events_are_encoded() {
    assert_stored_frame(
        "session_created",
        json!({"owner": "u", "agent": "trader", "title": "t", "settings": settings()}),
    );
    assert_stored_frame(
        "session_settings_changed",
        json!({"settings": settings(), "title": "t", "by": "u"}),
    );
    assert_stored_frame("session_closed", json!({"by": "u"}));
    let accepted = json!({"message_id": "m", "text": "hi", "digest": DIGEST});
    check(
        "message_accepted",
        &accepted,
        "message_accepted",
        json!({"message_id": "m", "text": "hi"}),
    );
    for (steers, delivery) in [
        (json!(null), "next_run"),
        (json!({"own_run_id": RUN, "after_decision": false}), "next_step"),
        (json!({"own_run_id": RUN, "after_decision": true}), "after_decision"),
    ] {
        let mut queued = accepted.clone();
        queued["steers"] = steers;
        let expected = json!({"message_id": "m", "text": "hi", "delivery": delivery});
        check("message_queued", &queued, "message_queued", expected);
    }
    check(
        "queued_message_changed",
        &json!({"message_id": "m", "text": "hi", "digest": DIGEST, "preflight": true, "by": "u"}),
        "queued_message_changed",
        json!({"message_id": "m", "text": "hi", "by": "u"}),
    );
    assert_stored_frame("queued_message_withdrawn", json!({"message_id": "m", "by": "u"}));
    assert_stored_frame("message_started", json!({"message_id": "m"}));
    check(
        "message_completed",
        &json!({
            "message_id": "m", "text": "hello", "stop_reason": "end_turn",
            "reasoning": [{"kind": "thinking", "text": "hmm", "signature": "s"}],
        }),
        "message_completed",
        json!({"message_id": "m", "text": "hello", "stop_reason": "end_turn", "stopped": false}),
    );
    assert_stored_frame("message_discarded", json!({"message_id": "m", "reason": "cut"}));
}

#[test]
fn e1_run_and_step_events_are_encoded() {
    assert_stored_frame("run_started", json!({"message_id": "m"}));
    assert_stored_frame("run_started", json!({"message_id": "m", "title": "Buy ore"}));
    assert_stored_frame(
        "run_started",
        json!({"message_id": "m", "title": "Buy ore", "preflight": true}),
    );
    check(
        "run_completed",
        &json!({"message_id": "m", "usage": usage()}),
        "done",
        json!({"message_id": "m", "outcome": "completed", "usage": usage()}),
    );
    check(
        "run_cancelled",
        &json!({"by": "u", "usage": usage()}),
        "done",
        json!({"message_id": null, "outcome": "cancelled", "by": "u", "usage": usage()}),
    );
    let failed = json!({"code": "max_iterations", "error": "maximum", "usage": usage()});
    check("run_failed", &failed, "error", failed.clone());
    let started = |attempt| json!({"attempt_id": ID, "attempt": attempt, "model": "small"});
    check("step_started", &started(1), "thinking", json!({"iteration": 2, "model": "small"}));
    assert_stored_frame("step_started", started(2));
    let mut planning = started(1);
    planning["planning"] = json!(true);
    let thinking = json!({"iteration": 0, "model": "small", "planning": true});
    check("step_started", &planning, "thinking", thinking);
    assert_stored_frame("step_completed", json!({"usage": usage(), "stop_reason": "tool_use"}));
    assert_stored_frame(
        "step_retrying",
        json!({
            "attempt": 1, "failures": 1, "delay_ms": 900, "until": AT, "reason": "429",
            "usage": usage(),
        }),
    );
}

#[test]
fn g9_grant_events_are_encoded() {
    let grant = json!({
        "grant_id": ID, "tool": "t", "server": "s", "where": "args.n < 3", "by": "u", "at": AT,
    });
    assert_stored_frame("grant_added", json!({"grant": grant}));
    assert_stored_frame("grant_revoked", json!({"grant_id": ID, "by": "u"}));
}

#[test]
fn e1_call_events_are_encoded() {
    let started = |arguments: Value| {
        json!({
            "call_id": ID, "provider_id": "toolu_1", "tool": "buy", "arguments": arguments,
            "digest": DIGEST, "risk": "write_high_risk", "parallel": false, "repeatable": false,
        })
    };
    let started_frame = |arguments: Value| {
        json!({
            "call_id": ID, "tool": "buy", "arguments": arguments, "digest": DIGEST,
            "risk": "write_high_risk",
        })
    };
    let kind = "tool_call_started";
    check(kind, &started(json!({"json": {"n": 1}})), kind, started_frame(json!({"n": 1})));
    let malformed = json!({"malformed": {"raw": "{\"n\":", "error": "cut off"}});
    let unparsed_frame = |text: &str| {
        let mut frame = started_frame(json!({}));
        frame["arguments_text"] = json!(text);
        frame
    };
    check(kind, &started(malformed), kind, unparsed_frame("{\"n\":"));
    // As in logs of earlier versions.
    check(kind, &started(json!({"json": [1]})), kind, unparsed_frame("[1]"));
    assert_stored_frame(
        "tool_call_allowed",
        json!({"call_id": ID, "digest": DIGEST, "by": {"kind": "policy", "why": "read-only"}}),
    );
    assert_stored_frame(
        "tool_call_attempt_started",
        json!({"call_id": ID, "attempt_id": ID, "attempt": 1}),
    );
    assert_stored_frame(
        "tool_call_progress",
        json!({"call_id": ID, "tool": "buy", "progress": 0.5, "total": 1.0, "message": "half"}),
    );
    assert_stored_frame(
        "tool_call_retrying",
        json!({
            "call_id": ID, "tool": "buy", "attempt": 1, "failures": 1, "delay_ms": 900,
            "until": AT, "reason": "timeout",
        }),
    );
    assert_stored_frame("late_result", json!({"call_id": ID, "attempt_id": ID, "summary": "ok"}));
    let completed = |output: Value| json!({"call_id": ID, "tool": "buy", "output": output});
    let completed_frame = |result: Value, truncated| json!({"call_id": ID, "tool": "buy", "result": result, "truncated": truncated});
    let kind = "tool_call_completed";
    let truncated = completed(json!({"text": "5", "truncated": true}));
    check(kind, &truncated, kind, completed_frame(json!("5"), true));
    let structured = completed(json!({"text": "x", "structured": {"n": 5}}));
    check(kind, &structured, kind, completed_frame(json!({"n": 5}), false));
    check(
        "tool_call_failed",
        &json!({"call_id": ID, "tool": "buy", "reason": "rejected", "error": "no"}),
        "tool_call_failed",
        json!({
            "call_id": ID, "tool": "buy", "reason": "rejected", "error": "no",
            "retries_exhausted": false, "maybe_ran": false,
        }),
    );
    let exhausted = json!({
        "call_id": ID, "tool": "buy", "reason": "timeout", "error": "no", "retries_exhausted": true,
        "attempts": 4, "maybe_ran": true,
    });
    check("tool_call_failed", &exhausted, "tool_call_failed", exhausted.clone());
    assert_stored_frame(
        "authorization_denied",
        json!({"call_id": ID, "tool": "buy", "reason": "requires …", "required_level": 2}),
    );
}

fn approval() -> Value {
    json!({
        "approval_id": ID, "kind": "plan", "purpose": "Execute 1 tool",
        "steps": [{
            "call_id": ID, "tool": "buy", "arguments": {"n": 1}, "digest": DIGEST,
            "risk": "critical", "description": "Buys", "why": "critical",
        }],
        "max_risk_level": "critical", "requested_at": AT, "deadline": null,
        "on_deadline": "deny",
    })
}

#[test]
fn e1_approval_events_are_encoded() {
    let mut plan = approval();
    plan["plan_id"] = json!(ID);
    plan["tool_count"] = json!(1);
    let requested = json!({"approval": approval()});
    check(
        "approval_requested",
        &requested,
        "waiting_for_approval",
        json!({"plan_id": ID, "approval_id": ID, "plan": plan}),
    );
    let step = json!({
        "call_id": ID, "approved": false, "reason": "dear", "by": "u", "surface": "rest",
        "at": AT, "digest": DIGEST,
    });
    check(
        "approval_decided",
        &json!({"approval_id": ID, "steps": [step], "closed": true}),
        "approval_decided",
        json!({"plan_id": ID, "approval_id": ID, "steps": [step], "closed": true}),
    );
    for kind in ["approval_expired", "approval_cancelled"] {
        let ids = json!({"plan_id": ID, "approval_id": ID});
        check(kind, &json!({"approval_id": ID}), kind, ids);
    }
}

#[test]
fn g14_preflight_events_are_encoded() {
    let checklist = json!({
        "steps": [{
            "position": 1, "description": "Buys", "toolName": "buy", "arguments": {"n": 1},
            "digest": DIGEST, "risk": "write_high_risk", "needsApproval": true,
        }],
        "estimatedCost": {"inputTokens": 20, "outputTokens": 4, "estimatedUSD": null},
        "requiredPermissions": ["autonomy level ASSISTED (L2)"],
        "warnings": ["the price is not known"],
    });
    let mut approval = json!({
        "approval_id": ID, "kind": "preflight", "purpose": "Carry out a plan of 1 step",
        "max_risk_level": "write_high_risk", "requested_at": AT, "deadline": null,
    });
    for name in ["steps", "estimatedCost", "requiredPermissions", "warnings"] {
        approval[name] = checklist[name].clone();
    }
    let mut plan = approval.clone();
    plan["plan_id"] = json!(ID);
    plan["on_deadline"] = json!("deny");
    let expected = json!({"plan_id": ID, "approval_id": ID, "plan": plan});
    let requested = json!({"approval": approval});
    check("approval_requested", &requested, "waiting_for_approval", expected);
    let change = json!({"position": 1, "arguments": {"n": 2}});
    let answer = json!({
        "decision": "approve", "value": [change], "by": "u", "surface": "rest", "at": AT,
    });
    check(
        "approval_decided",
        &json!({"approval_id": ID, "answer": answer, "closed": true}),
        "approval_decided",
        json!({"plan_id": ID, "approval_id": ID, "answer": answer, "closed": true}),
    );
    let step = json!({
        "position": 1, "description": "Buys", "toolName": "buy", "arguments": {"n": 2},
        "digest": DIGEST, "risk": "write_high_risk", "edited": true,
    });
    check(
        "preflight_approved",
        &json!({"approval_id": ID, "by": "u", "reason": "less", "steps": [step]}),
        "preflight_approved",
        json!({"plan_id": ID, "approval_id": ID, "by": "u", "reason": "less", "steps": [step]}),
    );
    assert_stored_frame("preflight_skipped", json!({"warning": "the model submitted no plan"}));
    let by = json!({"kind": "preflight", "approval_id": ID, "step": 1, "by": "u"});
    assert_stored_frame("tool_call_allowed", json!({"call_id": ID, "digest": DIGEST, "by": by}));
}

#[test]
fn nested_frame_separates_payload_and_summarizes_plan() {
    let [_, nested] =
        encode_flat_and_nested("approval_requested", &json!({"approval": approval()}));
    let payload = &nested["payload"];
    assert_eq!(payload["purpose"], "Execute 1 tool");
    assert_eq!(payload["tool_count"], 1);
    assert_eq!(payload["plan"]["plan_id"], ID);
    let mut envelope = nested.clone();
    envelope.as_object_mut().unwrap().remove("payload");
    let expected = json!({
        "type": "waiting_for_approval", "session_id": SESSION, "plan_id": ID, "step_index": 2,
        "timestamp": AT, "seq": 7, "cursor": "7",
    });
    assert_eq!(envelope, expected);
}

#[test]
fn e1_text_and_control_frames_are_encoded() {
    let delta = FeedKind::Delta {
        run_id: RUN.parse().unwrap(),
        step: 2,
        message_id: greenroom_core::ids::MessageId::parse("m").unwrap(),
        text: "hé".into(),
    };
    let delta_item = item(delta, Cursor { seq: Seq(7), offset: 3 });
    let sent_at: Timestamp = serde_json::from_value(json!(AT)).unwrap();
    let redactor = Redactor::default();
    let frame = encode(&delta_item, sent_at, &redactor);
    let expected = json!({
        "type": "text", "text": "hé", "message_id": "m", "seq": 7, "session_id": SESSION,
        "run_id": RUN, "step": 2, "agent_id": SESSION, "agent_type": "trader", "at": AT,
    });
    assert_eq!(serde_json::to_value(frame.flat()).unwrap(), expected);
    assert_eq!(serde_json::to_value(frame.nested()).unwrap()["cursor"], "7.3");
    for (kind, expected) in [
        (FeedKind::Draining, json!({"type": "server_draining"})),
        (FeedKind::Purged, json!({"type": "session_purged"})),
        (FeedKind::Broken("why".into()), json!({"type": "stream_broken", "error": "why"})),
    ] {
        let item = item(kind, Cursor::default());
        let frame = encode(&item, sent_at, &redactor);
        let mut expected = expected;
        expected["session_id"] = json!(SESSION);
        expected["at"] = json!(AT);
        assert_eq!(serde_json::to_value(frame.flat()).unwrap(), expected);
    }
}

#[test]
fn e7_frames_are_redacted() {
    let redactor = Redactor::new(["hunter2hunter2".to_owned()]);
    let record: EventRecord = serde_json::from_value(json!({
        "seq": 1, "at": AT, "type": "tool_call_completed", "payload": {
            "call_id": ID, "tool": "t",
            "output": {"text": "", "structured": {"api_key": "k", "say": "hunter2hunter2!"}},
        },
    }))
    .unwrap();
    let item = item(FeedKind::Event(record.into()), Cursor::after_seq(Seq(1)));
    let frame = encode(&item, Timestamp(0), &redactor);
    let expected = json!({"api_key": "[redacted]", "say": "[redacted]!"});
    assert_eq!(serde_json::to_value(frame.flat()).unwrap()["result"], expected);
    let nested = serde_json::to_value(frame.nested()).unwrap();
    assert_eq!(nested["payload"]["result"], expected);
}
