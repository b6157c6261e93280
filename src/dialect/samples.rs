//! Sample events of each type, used by the tests of all dialects. The compiler requires a new event
//! type in [`event_index`], and `every_event_has_a_sample` reports the type that has no sample.

use crate::redaction::{DigestKey, Redactor};
use greenroom_actors::feed::{FeedItem, FeedKind};
use greenroom_core::{
    cursor::Cursor,
    ids::{AgentName, MessageId, Seq},
    session::{EventRecord, SessionEvent},
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(super) const ID: &str = "0198c0de-0000-7000-8000-000000000001";
pub(super) const CALL: &str = "0198c0de-0000-7000-8000-0000000000c1";
pub(super) const SECOND_CALL: &str = "0198c0de-0000-7000-8000-0000000000c2";
pub(super) const CHILD: &str = "0198c0de-0000-7000-8000-00000000000c";
pub(super) const GRANDCHILD: &str = "0198c0de-0000-7000-8000-00000000000d";
pub(super) const SECOND_RUN: &str = "0198c0de-0000-7000-8000-00000000000e";
pub(super) const SESSION: &str = "0198c0de-0000-7000-8000-00000000000a";
pub(super) const RUN: &str = "0198c0de-0000-7000-8000-00000000000b";
pub(super) const AT: &str = "2026-11-21T20:00:00.123Z";
pub(super) const DIGEST: &str = "0101010101010101010101010101010101010101010101010101010101010101";

/// Returns a redactor with a key of digests.
pub(super) fn redactor() -> Redactor {
    Redactor::default().with_digest_key(digest_key())
}

fn digest_key() -> DigestKey {
    DigestKey::from_bytes(&[7; DigestKey::BYTES])
}

/// Returns the value with each [`DIGEST`] replaced by its keyed form.
pub(super) fn with_keyed_digests(value: &Value) -> Value {
    let digest = serde_json::from_value(json!(DIGEST)).unwrap();
    let keyed = digest_key().apply(digest).to_string();
    serde_json::from_str(&value.to_string().replace(DIGEST, &keyed)).unwrap()
}

/// Returns all samples, with `seq` from 1.
pub(crate) fn all() -> Vec<EventRecord> {
    let numbered = (1..).zip(payloads());
    numbered.map(|(seq, (kind, payload))| record(seq, kind, &payload)).collect()
}

/// Creates an event of type `kind`.
pub(super) fn record(seq: u64, kind: &str, payload: &Value) -> EventRecord {
    serde_json::from_value(json!({
        "seq": seq, "at": AT, "run_id": RUN, "step": 2, "type": kind, "payload": payload,
    }))
    .unwrap_or_else(|error| panic!("{kind}: {error}"))
}

/// Returns the feed item of an event.
pub(super) fn feed_item(record: EventRecord) -> FeedItem {
    let cursor = Cursor::after_seq(record.seq);
    item(FeedKind::Event(record.into()), cursor)
}

/// Returns the feed item of a text delta.
pub(super) fn text(seq: u64, offset: u64, text: &str) -> FeedItem {
    let delta = FeedKind::Delta {
        run_id: RUN.parse().unwrap(),
        step: 2,
        message_id: MessageId::parse("m").unwrap(),
        text: text.into(),
    };
    item(delta, Cursor { seq: Seq(seq), offset })
}

pub(super) fn item(kind: FeedKind, cursor: Cursor) -> FeedItem {
    let agent = AgentName::parse("trader").unwrap();
    FeedItem { session_id: SESSION.parse().unwrap(), agent, cursor, kind }
}

/// A plan with two calls.
pub(super) fn plan() -> Value {
    let step = |call: &str, risk: &str| {
        json!({
            "call_id": call, "tool": "buy", "arguments": {"n": 1, "api_key": "k"},
            "digest": DIGEST, "risk": risk, "description": "Buys", "why": "level L1",
        })
    };
    json!({
        "approval_id": ID, "kind": "plan", "purpose": "Execute 2 tools",
        "steps": [step(CALL, "write_high_risk"), step(SECOND_CALL, "critical")],
        "max_risk_level": "critical", "requested_at": AT, "deadline": AT,
    })
}

fn budget() -> Value {
    json!({"scope": "user", "period": "day", "measure": "ISK", "limit": 8.0})
}

fn budget_approval() -> Value {
    json!({
        "approval_id": ID, "kind": "budget", "budget": budget(), "spent": 4.0, "needed": 4.5,
        "spent_on": [{"what": "buy", "amount": 4.0}], "calls": [CALL],
        "purpose": "Raise the budget", "max_risk_level": "write_high_risk", "requested_at": AT,
        "deadline": AT, "on_deadline": {"escalate": {"to": "approver", "within_ms": null}},
    })
}

fn unknown_outcome_approval() -> Value {
    json!({
        "approval_id": ID, "kind": "unknown_outcome", "call_id": CALL, "tool": "buy",
        "arguments": {"n": 1, "api_key": "k"}, "digest": DIGEST, "risk": "write_high_risk",
        "attempts": 1, "why": "the server restarted", "purpose": "Say what became of buy",
        "max_risk_level": "write_high_risk", "requested_at": AT, "deadline": null,
        "on_deadline": "wait",
    })
}

fn elicitation_approval(elicitation: &Value) -> Value {
    let mut approval = json!({
        "approval_id": ID, "kind": "elicitation", "call_id": CALL, "attempt_id": ID, "ask": 1,
        "tool": "store", "server": "market", "message": "Which hangar?",
        "purpose": "Answer store", "max_risk_level": "write_low_risk", "requested_at": AT,
        "deadline": AT,
    });
    for (name, value) in elicitation.as_object().into_iter().flatten() {
        approval[name] = value.clone();
    }
    approval
}

fn usage() -> Value {
    json!({"input_tokens": 10, "output_tokens": 5, "cached_tokens": 4, "cost_usd": 0.25})
}

fn settings() -> Value {
    json!({
        "autonomy_level": 1, "require_confirmation": true, "blocked_tools": [],
        "allowed_regions": null, "budget_limit": null,
    })
}

fn payloads() -> Vec<(&'static str, Value)> {
    let payloads = [
        session_and_message_payloads(),
        run_and_step_payloads(),
        call_payloads(),
        approval_payloads(),
    ]
    .concat();
    let children = child_payloads(&payloads);
    let calls_of_children = child_call_payloads(&payloads);
    let exhausted = json!({
        "call_id": CALL, "tool": "buy", "reason": "timeout", "error": "no answer",
        "retries_exhausted": true, "attempts": 4,
    });
    let failed = [("tool_call_failed", exhausted)];
    payloads
        .into_iter()
        .chain(children)
        .chain(calls_of_children)
        .chain(failed)
        .chain(queue_payloads())
        .collect()
}

fn session_and_message_payloads() -> Vec<(&'static str, Value)> {
    let accepted = json!({"message_id": "r-1", "text": "hi", "digest": DIGEST});
    let mut steering = accepted.clone();
    steering["steers"] = json!({"own_run_id": RUN, "after_decision": false});
    vec![
        (
            "session_created",
            json!({"owner": "u", "agent": "trader", "title": "t", "settings": settings()}),
        ),
        (
            "session_forked",
            json!({
                "from": ID, "at_seq": 7, "owner": "u", "agent": "trader", "title": "t",
                "settings": settings(),
                "conversation": [{"user": {"message_id": "r-0", "text": "hi"}}],
            }),
        ),
        ("session_settings_changed", json!({"settings": settings(), "title": "t", "by": "u"})),
        ("session_closed", json!({"by": "u"})),
        ("message_queued", accepted.clone()),
        ("message_queued", steering),
        ("message_accepted", accepted),
        ("message_started", json!({"message_id": "m"})),
        (
            "message_completed",
            json!({
                "message_id": "m", "text": "hello", "stop_reason": "end_turn",
                "reasoning": [{"kind": "thinking", "text": "hmm", "signature": "s"}],
            }),
        ),
        ("message_discarded", json!({"message_id": "m", "reason": "cut"})),
    ]
}

/// Returns events of queued messages (S10).
fn queue_payloads() -> Vec<(&'static str, Value)> {
    vec![
        (
            "queued_message_changed",
            json!({"message_id": "r-1", "text": "hello", "digest": DIGEST, "by": "u"}),
        ),
        ("queued_message_withdrawn", json!({"message_id": "r-1", "by": "u"})),
    ]
}

fn run_and_step_payloads() -> Vec<(&'static str, Value)> {
    let started = |attempt| json!({"attempt_id": ID, "attempt": attempt, "model": "small"});
    vec![
        ("run_started", json!({"message_id": "r-1"})),
        ("run_started", json!({"message_id": "r-1", "title": "Buy ore"})),
        (
            "run_started",
            json!({
                "message_id": "r-1", "preflight": true,
                "workflow": {"name": "restock", "inputs": {"n": 1}, "text": "Buy 1."},
            }),
        ),
        ("run_completed", json!({"message_id": "m", "usage": usage(), "stop_reason": "length"})),
        // Recorded before runs had a stop reason.
        ("run_completed", json!({"message_id": "m", "usage": usage()})),
        ("run_cancelled", json!({"by": "u", "usage": usage()})),
        (
            "run_failed",
            json!({"code": "max_iterations", "error": "maximum iterations", "usage": usage()}),
        ),
        ("step_started", started(1)),
        ("step_started", started(2)),
        ("step_completed", json!({"usage": usage(), "stop_reason": "tool_use"})),
        (
            "step_retrying",
            json!({
                "attempt": 1, "failures": 1, "delay_ms": 900, "until": AT, "reason": "429",
                "usage": usage(),
            }),
        ),
        (
            "step_started",
            json!({"attempt_id": ID, "attempt": 1, "model": "small", "compacting": 9}),
        ),
        ("context_compacted", json!({"through": 9, "summary": "They traded.", "usage": usage()})),
        ("context_compaction_failed", json!({"reason": "no summary", "usage": usage()})),
        (
            "step_model_fallback",
            json!({
                "attempt": 4, "from": "large", "to": "small", "reason": "overloaded",
                "usage": usage(),
            }),
        ),
    ]
}

fn call_payloads() -> Vec<(&'static str, Value)> {
    let started = |arguments: Value| {
        json!({
            "call_id": CALL, "provider_id": "toolu_1", "tool": "buy", "arguments": arguments,
            "digest": DIGEST, "risk": "write_high_risk", "parallel": false, "repeatable": false,
        })
    };
    let completed = |output: Value| json!({"call_id": CALL, "tool": "buy", "output": output});
    let failed =
        |reason: &str| json!({"call_id": CALL, "tool": "buy", "reason": reason, "error": "no"});
    vec![
        ("tool_call_started", started(json!({"json": {"n": 1, "api_key": "k"}}))),
        (
            "tool_call_started",
            started(json!({"malformed": {"raw": "{\"n\":", "error": "cut off"}})),
        ),
        (
            "tool_call_allowed",
            json!({"call_id": CALL, "digest": DIGEST, "by": {"kind": "policy", "why": "read-only"}}),
        ),
        (
            "tool_call_allowed",
            json!({
                "call_id": CALL, "digest": DIGEST,
                "by": {"kind": "approval", "approval_id": ID, "by": "u"},
                "edit": {"arguments": {"n": 2}, "reason": "fewer"},
            }),
        ),
        ("tool_call_attempt_started", json!({"call_id": CALL, "attempt_id": ID, "attempt": 1})),
        (
            "tool_call_progress",
            json!({"call_id": CALL, "tool": "buy", "progress": 0.5, "total": 1.0, "message": "half"}),
        ),
        (
            "tool_call_retrying",
            json!({
                "call_id": CALL, "tool": "buy", "attempt": 1, "failures": 1, "delay_ms": 900,
                "until": AT, "reason": "timeout",
            }),
        ),
        ("late_result", json!({"call_id": CALL, "attempt_id": ID, "summary": "ok"})),
        ("tool_call_completed", completed(json!({"text": "5", "truncated": true, "cached": true}))),
        (
            "tool_call_completed",
            completed(json!({"text": "x", "structured": {"token": "t", "n": 5}})),
        ),
        ("tool_call_failed", failed("timeout")),
        ("tool_call_failed", failed("rejected")),
        ("tool_call_failed", failed("expired")),
        (
            "authorization_denied",
            json!({"call_id": CALL, "tool": "buy", "reason": "requires …", "required_level": 2}),
        ),
    ]
}

fn approval_payloads() -> Vec<(&'static str, Value)> {
    let step = json!({
        "call_id": CALL, "approved": false, "reason": "dear", "by": "u", "surface": "rest",
        "at": AT, "digest": DIGEST,
    });
    let grant = json!({
        "grant_id": ID, "tool": "t", "server": "s", "where": "args.n < 3", "by": "u", "at": AT,
    });
    vec![
        ("approval_requested", json!({"approval": plan()})),
        ("approval_requested", json!({"approval": budget_approval()})),
        ("approval_requested", json!({"approval": unknown_outcome_approval()})),
        (
            "approval_requested",
            json!({"approval": elicitation_approval(&json!({
                "mode": "form",
                "schema": {"type": "object", "properties": {"hangar": {"type": "string"}}},
            }))}),
        ),
        (
            "approval_requested",
            json!({"approval": elicitation_approval(&json!({
                "mode": "url", "url": "https://example.org/sign",
            }))}),
        ),
        (
            "approval_decided",
            json!({
                "approval_id": ID, "closed": true,
                "answer": {
                    "decision": "answer", "value": {"hangar": "north", "password": "p"},
                    "by": "u", "surface": "rest", "at": AT,
                },
            }),
        ),
        ("approval_decided", json!({"approval_id": ID, "steps": [step], "closed": true})),
        (
            "approval_decided",
            json!({
                "approval_id": ID, "closed": true,
                "answer": {
                    "decision": "raise", "value": 9.5, "by": "u", "surface": "cli", "at": AT,
                },
            }),
        ),
        (
            "preflight_approved",
            json!({
                "approval_id": ID, "by": "u",
                "steps": [{
                    "position": 1, "description": "Buy", "toolName": "buy", "arguments": {"n": 1},
                    "digest": DIGEST, "risk": "write_high_risk",
                }],
            }),
        ),
        ("preflight_skipped", json!({"warning": "the model gave no plan"})),
        ("approval_escalated", json!({"approval_id": ID, "to": "approver", "deadline": AT})),
        (
            "budget_reserved",
            json!({"call_id": CALL, "tool": "buy", "cost": {"amount": 4.5, "unit": "ISK"}}),
        ),
        ("budget_reached", json!({"budget": budget(), "spent": 4.0, "needed": 4.5})),
        ("budget_raised", json!({"approval_id": ID, "budget": budget(), "by": "u"})),
        ("approval_expired", json!({"approval_id": ID})),
        ("approval_cancelled", json!({"approval_id": ID})),
        (
            "feedback_given",
            json!({
                "about": "message", "message_id": "m", "rating": 4, "comment": "clear", "by": "u",
            }),
        ),
        (
            "feedback_given",
            json!({"about": "call", "call_id": CALL, "verdict": "unnecessary", "by": "u"}),
        ),
        ("grant_added", json!({"grant": grant})),
        ("grant_revoked", json!({"grant_id": ID, "by": "u"})),
    ]
}

/// Returns events of a child session: a message, a call and its end, and an approval; an approval of
/// the child's own child session; and the loss of the child session.
fn child_payloads(payloads: &[(&'static str, Value)]) -> Vec<(&'static str, Value)> {
    let child_event = |event: Value| json!({"session_id": CHILD, "agent": "researcher", "call_id": CALL, "event": event});
    let kinds = [
        "message_completed",
        "tool_call_started",
        "tool_call_completed",
        "authorization_denied",
        "approval_requested",
        "step_completed",
    ];
    let child_record = |(number, kind): (usize, &&str)| {
        let (kind, payload) =
            payloads.iter().find(|(name, _)| *name == *kind).expect("a sample exists");
        json!({
            "seq": number + 1, "at": AT, "run_id": ID, "step": 1, "type": kind, "payload": payload,
        })
    };
    let events: Vec<Value> = kinds.iter().enumerate().map(child_record).collect();
    let grandchild_event = json!({
        "seq": 9, "at": AT, "run_id": ID, "step": 1, "type": "child_event",
        "payload": {
            "session_id": ID, "agent": "writer", "call_id": SECOND_CALL, "event": events[4],
        },
    });
    let events = events.into_iter().chain([grandchild_event]);
    let child_gone = json!({"session_id": CHILD, "call_id": CALL});
    events
        .map(|event| ("child_event", child_event(event)))
        .chain([("child_gone", child_gone)])
        .collect()
}

/// Returns the other ends of a child's calls, and the calls of the child's own child session.
fn child_call_payloads(own: &[(&'static str, Value)]) -> Vec<(&'static str, Value)> {
    let source_record = |run_id: &str, kind: &str, payload: &Value| {
        json!({
            "seq": 10, "at": AT, "run_id": run_id, "step": 1, "type": kind, "payload": payload,
        })
    };
    let mirror = |session_id: &str, agent: &str, call_id: &str, event: Value| json!({"session_id": session_id, "agent": agent, "call_id": call_id, "event": event});
    let is_failure = |(kind, _): &&(&str, Value)| *kind == "tool_call_failed";
    let failures = own
        .iter()
        .filter(is_failure)
        .map(|(kind, payload)| mirror(CHILD, "researcher", CALL, source_record(ID, kind, payload)));
    let ends = ["tool_call_started", "tool_call_completed", "authorization_denied"];
    let of_grandchild = ends.into_iter().map(|kind| {
        let (kind, payload) = own.iter().find(|(own, _)| *own == kind).expect("a sample exists");
        let event =
            mirror(GRANDCHILD, "writer", SECOND_CALL, source_record(SECOND_RUN, kind, payload));
        let record = source_record(ID, "child_event", &event);
        mirror(CHILD, "researcher", CALL, record)
    });
    failures.chain(of_grandchild).map(|event| ("child_event", event)).collect()
}

/// The number of event types.
const EVENT_TYPE_COUNT: usize = 45;

/// Returns the index of the event's type. A new type gets the next index.
fn event_index(event: &SessionEvent) -> usize {
    use SessionEvent as E;
    match event {
        E::SessionCreated { .. } => 0,
        E::SessionSettingsChanged { .. } => 1,
        E::SessionClosed { .. } => 2,
        E::MessageQueued { .. } => 3,
        E::MessageAccepted { .. } => 4,
        E::MessageStarted { .. } => 5,
        E::MessageCompleted { .. } => 6,
        E::MessageDiscarded { .. } => 7,
        E::RunStarted { .. } => 8,
        E::RunCompleted { .. } => 9,
        E::RunFailed { .. } => 10,
        E::RunCancelled { .. } => 11,
        E::StepStarted { .. } => 12,
        E::StepCompleted { .. } => 13,
        E::StepRetrying { .. } => 14,
        E::ToolCallStarted { .. } => 15,
        E::ToolCallAllowed { .. } => 16,
        E::ToolCallAttemptStarted { .. } => 17,
        E::ToolCallProgress { .. } => 18,
        E::ToolCallRetrying { .. } => 19,
        E::LateResult { .. } => 20,
        E::ToolCallCompleted { .. } => 21,
        E::ToolCallFailed { .. } => 22,
        E::AuthorizationDenied { .. } => 23,
        E::ApprovalRequested { .. } => 24,
        E::ApprovalDecided { .. } => 25,
        E::ApprovalExpired { .. } => 26,
        E::ApprovalCancelled { .. } => 27,
        E::GrantAdded { .. } => 28,
        E::GrantRevoked { .. } => 29,
        E::SessionForked { .. } => 30,
        E::ApprovalEscalated { .. } => 31,
        E::BudgetReserved { .. } => 32,
        E::BudgetReached { .. } => 33,
        E::BudgetRaised { .. } => 34,
        E::PreflightApproved { .. } => 35,
        E::PreflightSkipped { .. } => 36,
        E::FeedbackGiven { .. } => 40,
        E::StepModelFallback { .. } => 37,
        E::ContextCompacted { .. } => 38,
        E::ContextCompactionFailed { .. } => 39,
        E::ChildEvent { .. } => 41,
        E::ChildGone { .. } => 42,
        E::QueuedMessageChanged { .. } => 43,
        E::QueuedMessageWithdrawn { .. } => 44,
    }
}

#[test]
fn every_event_has_a_sample() {
    let indexes: BTreeSet<_> = all().iter().map(|record| event_index(&record.event)).collect();
    assert_eq!(indexes, (0..EVENT_TYPE_COUNT).collect());
}
