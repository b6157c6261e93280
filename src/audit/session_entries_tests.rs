use super::{AuditAction, AuditEntry};
use crate::redaction::{DigestKey, KeyedDigest};
use greenroom_core::{
    Timestamp,
    approval::{
        Approval, ApprovalSubject, ArgumentEdit, DeadlineAction, Grant, PlanStep, PlanStepDecision,
        Surface,
    },
    call::{CallFailureReason, ToolOutput},
    ids::{ApprovalId, AttemptId, CallId, GrantId, MessageId, RunId, Seq, SessionId, UserId},
    json::Digest,
    message::Arguments,
    model::delta::StopReason,
    policy::{Autonomy, Risk, Settings},
    session::{
        ApprovalRow, ApprovalState, CallAuthorization, EventRecord, RunFailureCode, RunStopReason,
        SessionEvent as E,
    },
    usage::ModelUsage,
};
use serde_json::{Value, json};
use std::{collections::BTreeSet, sync::Arc};
use uuid::Uuid;

const SECRET: &str = "hunter2";

fn call(n: u128) -> CallId {
    CallId(Uuid::from_u128(n))
}

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

fn digest() -> Digest {
    Digest::hash_json(&json!({"password": SECRET}))
}

fn digest_key() -> DigestKey {
    DigestKey::from_bytes(&[7; 32])
}

/// The form of [`digest`] in the audit log.
fn keyed_digest() -> KeyedDigest {
    digest_key().apply(digest())
}

fn entries_for_commit(
    session_id: SessionId,
    records: &[EventRecord],
    approvals: &[ApprovalRow],
) -> Vec<AuditEntry> {
    super::entries_for_commit(session_id, records, approvals, &digest_key())
}

fn session_id() -> SessionId {
    SessionId(Uuid::from_u128(0xa))
}

fn approval_id() -> ApprovalId {
    ApprovalId(Uuid::from_u128(0xb))
}

/// An approval of calls 1 and 2.
fn approval() -> Approval {
    let step = |n, tool: &str| PlanStep {
        call_id: call(n),
        tool: tool.to_owned(),
        arguments: json!({"password": SECRET}),
        digest: digest(),
        risk: Risk::Critical,
        description: "d".to_owned(),
        why: format!("{tool} is critical"),
        cost: None,
        exceeds_budget: false,
    };
    Approval {
        approval_id: approval_id(),
        purpose: "p".to_owned(),
        subject: ApprovalSubject::Plan { steps: vec![step(1, "wire"), step(2, "send")] },
        max_risk_level: Risk::Critical,
        requested_at: Timestamp(0),
        deadline: Some(Timestamp(60_000)),
        on_deadline: DeadlineAction::Deny,
    }
}

fn approval_row() -> ApprovalRow {
    ApprovalRow {
        root: None,
        approval: approval().into(),
        session_id: session_id(),
        run_id: RunId(Uuid::from_u128(0xc)),
        owner: user("ada"),
        state: ApprovalState::Pending,
        decisions: Vec::new(),
        answer: None,
        escalation: None,
        closed_at: None,
    }
}

fn record(seq: u64, event: E) -> EventRecord {
    let run_id = Some(RunId(Uuid::from_u128(0xc)));
    EventRecord { seq: Seq(seq), at: Timestamp(1_000), run_id, step: None, event }
}

fn entries(event: E, approvals: &[ApprovalRow]) -> Vec<AuditEntry> {
    entries_for_commit(session_id(), &[record(7, event)], approvals)
}

/// Returns the entries without the members that all of them have.
fn entries_json(event: E) -> Value {
    let entries = entries(event, &[approval_row()]);
    let members = entries.iter().map(|entry| {
        let Value::Object(mut entry) = json!(entry) else { panic!("an object") };
        assert_eq!(entry.remove("session_id"), Some(json!(session_id())));
        assert_eq!(entry.remove("run_id"), Some(json!(Uuid::from_u128(0xc))));
        assert_eq!(entry.remove("seq"), Some(json!(7)));
        Value::Object(entry)
    });
    members.collect()
}

#[test]
fn x6_every_decision_of_a_session_has_its_entry() {
    let at = "1970-01-01T00:00:01.000Z";
    let settings = Arc::new(Settings { autonomy_level: Autonomy::Assisted, ..Settings::default() });
    let id = |n: u128| json!(Uuid::from_u128(n));
    let agent = "default".parse().unwrap();
    assert_eq!(
        entries_json(E::SessionCreated {
            owner: user("ada"),
            agent,
            title: None,
            settings: settings.clone(),
            parent: None,
        }),
        json!([{"at": at, "action": "session_created", "outcome": "done", "user": "ada",
            "details": {"agent": "default", "settings": settings}}])
    );
    assert_eq!(
        entries_json(E::SessionSettingsChanged {
            settings: settings.clone(),
            title: None,
            by: user("bob")
        }),
        json!([{"at": at, "action": "session_settings_changed", "outcome": "done", "user": "bob",
            "details": {"settings": settings}}])
    );
    assert_eq!(
        entries_json(E::SessionClosed { by: user("ada") }),
        json!([{"at": at, "action": "session_closed", "outcome": "done", "user": "ada"}])
    );
    let usage = ModelUsage::default();
    assert_eq!(
        entries_json(E::RunCancelled { by: user("ada"), message_id: None, usage }),
        json!([{"at": at, "action": "run_cancelled", "outcome": "cancelled", "user": "ada"}])
    );
    let authorization = CallAuthorization::Policy { why: "L3 allows".to_owned() };
    assert_eq!(
        entries_json(E::ToolCallAllowed {
            call_id: call(1),
            digest: digest(),
            by: authorization,
            edit: None
        }),
        json!([{"at": at, "action": "tool_call_allowed", "outcome": "allowed", "call_id": id(1),
            "tool": "wire", "digest": keyed_digest(), "reason": "L3 allows"}])
    );
    let authorization =
        CallAuthorization::Approval { approval_id: approval_id(), by: user("bob"), role: None };
    assert_eq!(
        entries_json(E::ToolCallAllowed {
            call_id: call(2),
            digest: digest(),
            by: authorization,
            edit: None
        }),
        json!([{"at": at, "action": "tool_call_allowed", "outcome": "allowed", "user": "bob",
            "call_id": id(2), "tool": "send", "digest": keyed_digest(), "approval_id": id(0xb)}])
    );
    assert_eq!(
        entries_json(E::AuthorizationDenied {
            call_id: call(1),
            tool: "wire".to_owned(),
            reason: "requires L2".to_owned(),
            required_level: None
        }),
        json!([{"at": at, "action": "authorization_denied", "outcome": "denied",
            "call_id": id(1), "tool": "wire", "reason": "requires L2"}])
    );
    let requested = |n: u128, tool: &str| {
        json!({"at": at, "action": "approval_requested", "outcome": "asked",
        "approval_id": id(0xb), "call_id": id(n), "tool": tool, "digest": keyed_digest(),
        "reason": format!("{tool} is critical"),
        "details": {
            "kind": "plan", "risk": "critical", "deadline": "1970-01-01T00:01:00.000Z",
            "cost": null,
        }})
    };
    assert_eq!(
        entries_json(E::ApprovalRequested { approval: approval().into() }),
        json!([requested(1, "wire"), requested(2, "send")])
    );
    let decision = |n, approved, reason: Option<&str>| PlanStepDecision {
        call_id: call(n),
        approved,
        reason: reason.map(str::to_owned),
        by: user("bob"),
        surface: Surface::Websocket,
        at: Timestamp(999),
        digest: digest(),
        edited: (n == 1).then(|| json!({"password": SECRET})),
        for_session: None,
    };
    let decided = |n: u128, tool: &str, outcome: &str| {
        json!({"at": "1970-01-01T00:00:00.999Z", "action": "approval_decided",
            "outcome": outcome, "user": "bob", "surface": "websocket", "approval_id": id(0xb),
            "call_id": id(n), "tool": tool, "digest": keyed_digest()})
    };
    let mut edited = decided(1, "wire", "approved");
    edited["details"] = json!({"edited": true});
    let mut rejected = decided(2, "send", "rejected");
    rejected["reason"] = json!("too dear");
    assert_eq!(
        entries_json(E::ApprovalDecided {
            approval_id: approval_id(),
            steps: vec![decision(1, true, None), decision(2, false, Some("too dear"))],
            answer: None,
            closed: true
        }),
        json!([edited, rejected])
    );
    let (grant_id, condition) = (GrantId(Uuid::from_u128(0xd)), Some("args.n < 5".to_owned()));
    let grant = Grant {
        grant_id,
        tool: "wire".to_owned(),
        server: "bank".to_owned(),
        condition,
        by: user("bob"),
        at: Timestamp(999),
    };
    assert_eq!(
        entries_json(E::GrantAdded { grant }),
        json!([{"at": at, "action": "grant_added", "outcome": "done", "user": "bob",
            "tool": "wire",
            "details": {"grant_id": grant_id, "server": "bank", "where": "args.n < 5"}}])
    );
    assert_eq!(
        entries_json(E::GrantRevoked { grant_id, by: user("ada") }),
        json!([{"at": at, "action": "grant_revoked", "outcome": "done", "user": "ada",
            "details": {"grant_id": grant_id}}])
    );
    let authorization = CallAuthorization::Grant { grant_id };
    let edit = Some(ArgumentEdit { arguments: json!({"password": SECRET}), reason: None });
    assert_eq!(
        entries_json(E::ToolCallAllowed {
            call_id: call(1),
            digest: digest(),
            by: authorization,
            edit
        }),
        json!([{"at": at, "action": "tool_call_allowed", "outcome": "allowed", "call_id": id(1),
            "tool": "wire", "digest": keyed_digest(), "details": {"grant_id": grant_id}}])
    );
    assert_eq!(
        entries_json(E::ApprovalExpired { approval_id: approval_id() }),
        json!([{"at": at, "action": "approval_expired", "outcome": "expired",
            "approval_id": id(0xb)}])
    );
    assert_eq!(
        entries_json(E::ApprovalCancelled { approval_id: approval_id() }),
        json!([{"at": at, "action": "approval_cancelled", "outcome": "cancelled",
            "approval_id": id(0xb)}])
    );
}

#[test]
fn s10_x6_change_and_withdrawal_of_queued_message_have_entries_without_text() {
    let (at, message_id) = ("1970-01-01T00:00:01.000Z", || MessageId::parse("m").unwrap());
    let changed = E::QueuedMessageChanged {
        message_id: message_id(),
        text: SECRET.into(),
        digest: digest(),
        preflight: true,
        by: user("ada"),
    };
    assert_eq!(
        entries_json(changed),
        json!([{"at": at, "action": "queued_message_changed", "outcome": "done",
            "user": "ada", "digest": keyed_digest(),
            "details": {"message_id": "m", "preflight": true}}])
    );
    let withdrawn = E::QueuedMessageWithdrawn { message_id: message_id(), by: user("root") };
    assert_eq!(
        entries_json(withdrawn),
        json!([{"at": at, "action": "queued_message_withdrawn", "outcome": "done",
            "user": "root", "details": {"message_id": "m"}}])
    );
}

#[test]
fn x6_events_without_a_decision_make_no_audit_entry() {
    let message_id = || MessageId::parse("m").unwrap();
    let attempt_id = AttemptId(Uuid::nil());
    let (usage, until) = (ModelUsage::default(), Timestamp(0));
    let (tool, reason) = (|| "t".to_owned(), || "r".to_owned());
    let output =
        ToolOutput { text: SECRET.to_owned(), structured: None, truncated: false, cached: false };
    for event in [
        E::MessageQueued {
            message_id: message_id(),
            text: SECRET.into(),
            digest: digest(),
            steers: None,
            preflight: true,
            workflow: None,
            traceparent: None,
            authors: user("ann").into(),
        },
        E::MessageAccepted {
            message_id: message_id(),
            text: SECRET.into(),
            digest: digest(),
            authors: user("ann").into(),
        },
        E::MessageStarted { message_id: message_id() },
        E::MessageCompleted {
            message_id: message_id(),
            text: SECRET.to_owned(),
            reasoning: Vec::new(),
            stop_reason: StopReason::EndTurn,
            stopped: false,
        },
        E::MessageDiscarded { message_id: message_id(), reason: reason() },
        E::RunStarted {
            message_id: message_id(),
            preflight: true,
            workflow: None,
            title: Some(SECRET.to_owned()),
            traceparent: None,
        },
        E::PreflightSkipped { warning: SECRET.to_owned() },
        E::RunCompleted { message_id: message_id(), usage, stop_reason: Some(RunStopReason::End) },
        E::RunFailed { code: RunFailureCode::ModelError, error: reason(), usage },
        E::StepStarted {
            attempt_id,
            attempt: 1,
            model: "m".to_owned(),
            planning: false,
            compacting: None,
        },
        E::StepCompleted { usage, stop_reason: StopReason::EndTurn },
        E::StepRetrying { attempt: 1, failures: 1, delay_ms: 1, until, reason: reason(), usage },
        proposed(1),
        E::ToolCallAttemptStarted { call_id: call(1), attempt_id, attempt: 1, child: None },
        E::ToolCallProgress {
            call_id: call(1),
            tool: tool(),
            progress: 0.5,
            total: None,
            message: None,
        },
        E::ToolCallRetrying {
            call_id: call(1),
            tool: tool(),
            attempt: 1,
            failures: 1,
            delay_ms: 1,
            until,
            reason: reason(),
            maybe_ran: false,
        },
        E::LateResult { call_id: call(1), attempt_id, summary: SECRET.to_owned() },
        E::ToolCallCompleted { call_id: call(1), tool: tool(), output },
        E::ToolCallFailed {
            call_id: call(1),
            tool: tool(),
            reason: CallFailureReason::Error,
            error: reason(),
            retries_exhausted: false,
            attempts: 1,
            maybe_ran: false,
        },
    ] {
        assert_eq!(entries(event.clone(), &[]), [], "{event:?}");
    }
}

fn proposed(n: u128) -> E {
    E::ToolCallStarted {
        call_id: call(n),
        provider_id: "p".to_owned(),
        tool: "lookup".to_owned(),
        server: None,
        arguments: Arguments::Json(json!({"password": SECRET})).into(),
        digest: digest(),
        risk: Risk::ReadOnly,
        parallel: true,
        repeatable: true,
    }
}

/// Arguments are never in the audit log (E7, X6). The name of the tool is, if the commit contains it.
#[test]
fn x6_call_is_recorded_by_tool_and_digest_without_arguments() {
    let authorization = CallAuthorization::Policy { why: "read_only".to_owned() };
    let allowed =
        E::ToolCallAllowed { call_id: call(3), digest: digest(), by: authorization, edit: None };
    let requested = E::ApprovalRequested { approval: approval().into() };
    let records = [proposed(3), allowed, requested]
        .into_iter()
        .zip(1..)
        .map(|(event, seq)| record(seq, event));
    let records: Vec<_> = records.collect();
    let entries = entries_for_commit(session_id(), &records, &[]);
    let tools: Vec<_> = entries.iter().map(|entry| entry.tool.as_deref()).collect();
    assert_eq!(tools, [Some("lookup"), Some("wire"), Some("send")]);
    assert!(entries.iter().all(|entry| entry.digest == Some(keyed_digest())));
    assert!(!json!(entries).to_string().contains(&digest().to_string()), "E7: no plain digest");
    assert!(!json!(entries).to_string().contains(SECRET));
    let actions: BTreeSet<_> = entries.iter().map(|entry| entry.action.name()).collect();
    let expected =
        [AuditAction::ToolCallAllowed, AuditAction::ApprovalRequested].map(AuditAction::name);
    assert_eq!(actions, expected.into());
    // The proposal may be in an earlier commit; the entry then contains only the call's id.
    assert_eq!(entries_for_commit(session_id(), &records[1..2], &[])[0].tool, None);
}
