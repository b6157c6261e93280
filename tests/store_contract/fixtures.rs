//! Commits, events and rows for tests of a journal.

use greenroom_actors::ports::{Commit, Journal, JournalError};
use greenroom_core::{
    Timestamp,
    amount::Amount,
    approval::{
        Approval, ApprovalSubject, ArgumentEdit, DeadlineAction, Grant, GrantRequest, PlanStep,
        PlanStepDecision, Role, Surface,
    },
    call::{CallFailureReason, ToolOutput},
    delegation::{ChildBounds, Parent, RootRun},
    ids::{ApprovalId, AttemptId, CallId, GrantId, MessageId, RunId, Seq, SessionId, UserId},
    json::Digest,
    message::{Arguments, Reasoning},
    model::delta::StopReason,
    policy::{Autonomy, Risk, Settings},
    session::{
        ApprovalRow, ApprovalState, CallAuthorization, EventRecord, Projection, RunFailureCode,
        RunStopReason, SessionEvent, SessionRow, SessionStatus,
    },
    usage::{ModelUsage, TokenUsage},
};
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// 2026-01-01T00:00:00Z, in milliseconds.
pub(crate) const NEW_YEAR: i64 = 1_767_225_600_000;

/// Returns the id of test session `n`. A higher `n` sorts as created later.
pub(crate) fn session_id(n: u32) -> SessionId {
    SessionId(uuid(1, n))
}

/// Returns the id of test approval `n`. A higher `n` sorts as requested later.
pub(crate) fn approval_id(n: u32) -> ApprovalId {
    ApprovalId(uuid(2, n))
}

fn uuid(kind: u128, n: u32) -> Uuid {
    let millis = u128::try_from(NEW_YEAR).unwrap() + u128::from(n);
    Uuid::from_u128((millis << 80) | (0x7 << 76) | (0x2 << 62) | kind)
}

pub(crate) fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

pub(crate) fn record(seq: u64, event: SessionEvent) -> EventRecord {
    let at = Timestamp(NEW_YEAR + i64::try_from(seq).unwrap());
    EventRecord { seq: Seq(seq), at, run_id: None, step: None, event }
}

/// Returns a message event that is distinguished by its text.
pub(crate) fn message_event(seq: u64, text: &str) -> EventRecord {
    let message_id = MessageId::parse(&format!("m-{seq}")).unwrap();
    let digest = Digest::hash_bytes(text.as_bytes());
    let authors = user("ann").into();
    record(seq, SessionEvent::MessageAccepted { message_id, text: text.into(), digest, authors })
}

/// Returns a commit after event `head` that changes only the log, no rows.
pub(crate) fn commit(session_id: SessionId, head: u64, records: Vec<EventRecord>) -> Commit {
    let projection = Projection::default();
    Commit { session_id, expected_head: Seq(head), records: records.into(), projection }
}

/// Returns a commit of `count` events after event `head`; each text is `text` and the event's
/// number.
pub(crate) fn message_commit(session_id: SessionId, head: u64, count: u64, text: &str) -> Commit {
    let numbered_event = |seq| message_event(seq, &format!("{text} {seq}"));
    commit(session_id, head, (head + 1..=head + count).map(numbered_event).collect())
}

pub(crate) fn with_rows(
    mut commit: Commit,
    session: Option<SessionRow>,
    approvals: Vec<ApprovalRow>,
) -> Commit {
    commit.projection = Projection { session, approvals, spending_update: None };
    commit
}

pub(crate) fn session_row(n: u32, owner: &str, status: SessionStatus) -> SessionRow {
    SessionRow {
        session_id: session_id(n),
        parent: None,
        owner: user(owner),
        agent: "assistant".parse().unwrap(),
        title: Some(format!("Nr. {n}: \"Γειά\" 'x'\u{1F980}")),
        settings: Arc::default(),
        status,
        created_at: Timestamp(NEW_YEAR + i64::from(n)),
        updated_at: Timestamp(NEW_YEAR + i64::from(n) + 5),
        grants: vec![grant()],
        usage: ModelUsage {
            tokens: TokenUsage {
                input_tokens: 12,
                output_tokens: 3,
                cached_tokens: 4,
                estimated: false,
            },
            cost_usd: Some(Amount::parse("0.1").unwrap()),
            estimated_cost_usd: None,
        },
    }
}

pub(crate) fn approval_row(n: u32, session: u32, owner: &str, state: ApprovalState) -> ApprovalRow {
    ApprovalRow {
        approval: approval(n).into(),
        session_id: session_id(session),
        run_id: RunId(uuid(3, 1)),
        root: None,
        owner: user(owner),
        state,
        decisions: Vec::new(),
        answer: None,
        escalation: None,
        closed_at: None,
    }
}

/// Returns the parent of a child session: a call of session `parent`, whose run is also the root
/// run.
pub(crate) fn parent(parent: u32) -> Parent {
    let (session_id, run_id) = (session_id(parent), RunId(uuid(3, parent)));
    Parent {
        session_id,
        run_id,
        call_id: CallId(uuid(4, parent)),
        root: RootRun { session_id, run_id },
        depth: 1,
        bounds: ChildBounds { headless: true, ..ChildBounds::default() },
    }
}

pub(crate) fn approval(n: u32) -> Approval {
    let arguments = json!({"region_id": 10_000_002, "price": 0.1 + 0.2, "note": "ünïcödé"});
    Approval {
        approval_id: approval_id(n),
        purpose: "Execute 1 tools".to_owned(),
        subject: ApprovalSubject::Plan {
            steps: vec![PlanStep {
                call_id: CallId(uuid(4, n)),
                tool: "place_order".to_owned(),
                digest: Digest::hash_json(&arguments),
                arguments,
                risk: Risk::WriteHighRisk,
                description: "Places an order".to_owned(),
                cost: None,
                exceeds_budget: false,
                why: "L1 asks for write_high_risk".to_owned(),
            }],
        },
        max_risk_level: Risk::WriteHighRisk,
        requested_at: Timestamp(NEW_YEAR),
        deadline: Some(Timestamp(NEW_YEAR + 60_000)),
        on_deadline: DeadlineAction::Deny,
    }
}

pub(crate) fn decision(n: u32) -> PlanStepDecision {
    PlanStepDecision {
        call_id: CallId(uuid(4, n)),
        approved: false,
        reason: Some("too dear".to_owned()),
        by: user("bob"),
        surface: Surface::Websocket,
        at: Timestamp(NEW_YEAR + 9),
        digest: Digest::hash_json(&json!({})),
        edited: Some(json!({"n": 1})),
        for_session: Some(GrantRequest { condition: Some("args.n < 2".to_owned()) }),
    }
}

/// Returns one event of each type; some types occur twice, with different optional fields.
pub(crate) fn all_events() -> Vec<EventRecord> {
    let sessions_and_runs = session_events().into_iter().chain(run_events());
    let calls_and_approvals = call_events().into_iter().chain(approval_events());
    let events = sessions_and_runs.chain(calls_and_approvals);
    let mut records: Vec<EventRecord> =
        (1..).zip(events).map(|(seq, event)| record(seq, event)).collect();
    for record in records.iter_mut().skip(4) {
        record.run_id = Some(RunId(uuid(3, 1)));
        record.step = Some(2);
    }
    records
}

fn session_events() -> Vec<SessionEvent> {
    use SessionEvent as E;
    let message_id = || MessageId::parse("Nachricht-ä").unwrap();
    let digest = Digest::hash_json(&json!({"text": "Hi"}));
    let mut settings = Settings { autonomy_level: Autonomy::Supervised, ..Settings::default() };
    settings.blocked_tools.insert("rm".parse().unwrap());
    settings.allowed_regions = Some([1, -2].into());
    let (owner, agent) = (user("alice"), "assistant".parse().unwrap());
    let special_characters =
        "\0 \u{1} \" \\ \u{7f} \u{2028} e\u{301} \u{1F980} \u{10FFFF} ' ; -- %s";
    let reasoning = vec![
        Reasoning::Thinking { text: "hm".to_owned(), signature: Some("c2ln".to_owned()) },
        Reasoning::Redacted { payload: "b3BhcXVl".to_owned() },
    ];
    vec![
        E::SessionCreated { owner, agent, title: None, settings: Arc::default(), parent: None },
        E::SessionSettingsChanged {
            settings: settings.into(),
            title: Some("T".to_owned()),
            by: user("alice"),
        },
        E::MessageQueued {
            message_id: message_id(),
            text: "".into(),
            digest,
            steers: None,
            preflight: true,
            workflow: None,
            traceparent: None,
            authors: user("alice").into(),
        },
        E::QueuedMessageChanged {
            message_id: message_id(),
            text: special_characters.into(),
            digest,
            preflight: true,
            by: user("alice"),
        },
        E::QueuedMessageWithdrawn { message_id: message_id(), by: user("alice") },
        E::MessageAccepted {
            message_id: message_id(),
            text: special_characters.into(),
            digest,
            authors: user("alice").into(),
        },
        E::MessageStarted { message_id: message_id() },
        E::MessageCompleted {
            message_id: message_id(),
            text: special_characters.to_owned(),
            reasoning,
            stop_reason: StopReason::ToolUse,
            stopped: false,
        },
        E::MessageCompleted {
            message_id: message_id(),
            text: String::new(),
            reasoning: Vec::new(),
            stop_reason: StopReason::EndTurn,
            stopped: true,
        },
        E::MessageDiscarded { message_id: message_id(), reason: "cut".to_owned() },
        E::SessionClosed { by: user("alice") },
    ]
}

fn run_events() -> Vec<SessionEvent> {
    use SessionEvent as E;
    let message_id = || MessageId::parse("m").unwrap();
    let tokens =
        TokenUsage { input_tokens: u64::MAX, output_tokens: 1, cached_tokens: 0, estimated: false };
    let usage = ModelUsage { tokens, cost_usd: None, estimated_cost_usd: None };
    let until = Timestamp(NEW_YEAR + 1);
    vec![
        E::RunStarted {
            message_id: message_id(),
            preflight: true,
            workflow: None,
            title: Some("hello".to_owned()),
            traceparent: None,
        },
        E::StepStarted {
            attempt_id: AttemptId(uuid(5, 1)),
            attempt: 1,
            model: "m".to_owned(),
            planning: true,
            compacting: Some(7),
        },
        E::PreflightSkipped { warning: "there is no plan".to_owned() },
        E::StepRetrying {
            attempt: 1,
            failures: 1,
            delay_ms: 1000,
            usage,
            until,
            reason: "529".to_owned(),
        },
        E::FeedbackGiven {
            feedback: greenroom_core::feedback::Feedback::Call {
                call_id: CallId(uuid(4, 1)),
                verdict: greenroom_core::feedback::CallRating::Wrong,
                comment: Some("é".to_owned()),
            },
            by: user("bob"),
        },
        E::StepModelFallback {
            attempt: 4,
            from: "m".to_owned(),
            to: "n".to_owned(),
            reason: "529".to_owned(),
            usage,
        },
        E::ContextCompacted { through: 7, summary: "s".into(), usage },
        E::ContextCompactionFailed { reason: "529".to_owned(), usage },
        E::StepCompleted { usage, stop_reason: StopReason::MaxTokens },
        E::RunCompleted { message_id: message_id(), usage, stop_reason: None },
        E::RunCompleted {
            message_id: message_id(),
            usage,
            stop_reason: Some(RunStopReason::Length),
        },
        E::RunFailed { code: RunFailureCode::MaxIterations, error: "e".to_owned(), usage },
        E::RunCancelled { by: user("bob"), message_id: Some(message_id()), usage },
        E::RunCancelled { by: user("bob"), message_id: None, usage },
    ]
}

fn call_events() -> Vec<SessionEvent> {
    use SessionEvent as E;
    let call_id = CallId(uuid(4, 1));
    let attempt_id = AttemptId(uuid(5, 2));
    let tool = || "search".to_owned();
    // Numbers and strings that are easily changed by encoding and decoding.
    let value: Value = json!({
        "f": [0.1 + 0.2, 1.0, 1e300, 5e-324, -0.0, 123_456_789.123_456_79],
        "i": [u64::MAX, i64::MIN, 0], "": null, "b": [true, {"ключ": []}],
    });
    let digest = Digest::hash_json(&value);
    let proposed = |arguments: Arguments| E::ToolCallStarted {
        call_id,
        provider_id: "toolu_1".to_owned(),
        tool: tool(),
        server: Some("market".into()),
        arguments: arguments.into(),
        digest,
        risk: Risk::Critical,
        parallel: true,
        repeatable: false,
    };
    let malformed = Arguments::Malformed { raw: "{\"a".to_owned(), error: "eof".to_owned() };
    let output = ToolOutput {
        text: "t".to_owned(),
        structured: Some(value.clone()),
        truncated: true,
        cached: true,
    };
    vec![
        proposed(Arguments::Json(value)),
        proposed(malformed),
        E::ToolCallAllowed {
            call_id,
            digest,
            by: CallAuthorization::Policy { why: "L3".to_owned() },
            edit: None,
        },
        E::ToolCallAttemptStarted { call_id, attempt_id, attempt: 2, child: None },
        E::ToolCallProgress {
            call_id,
            tool: tool(),
            progress: 0.1,
            total: Some(3.0),
            message: None,
        },
        E::ToolCallRetrying {
            call_id,
            tool: tool(),
            attempt: 1,
            failures: 1,
            delay_ms: 7,
            until: Timestamp(NEW_YEAR),
            reason: "timeout".to_owned(),
            maybe_ran: true,
        },
        E::LateResult { call_id, attempt_id, summary: "s".to_owned() },
        E::ToolCallCompleted { call_id, tool: tool(), output },
        E::ToolCallFailed {
            call_id,
            tool: tool(),
            reason: CallFailureReason::OutcomeUnknown,
            error: "gone".to_owned(),
            retries_exhausted: true,
            attempts: 4,
            maybe_ran: true,
        },
        E::AuthorizationDenied {
            call_id,
            tool: tool(),
            reason: "requires".to_owned(),
            required_level: Some(Autonomy::Assisted),
        },
    ]
}

fn approval_events() -> Vec<SessionEvent> {
    use SessionEvent as E;
    let approval_id = approval_id(1);
    let role = Some(Role::Approver);
    let by = CallAuthorization::Approval { approval_id, by: user("bob"), role };
    vec![
        E::ApprovalRequested { approval: approval(1).into() },
        E::ApprovalDecided { approval_id, steps: vec![decision(1)], answer: None, closed: true },
        E::ApprovalExpired { approval_id },
        E::ApprovalCancelled { approval_id },
        E::ToolCallAllowed {
            call_id: CallId(uuid(4, 1)),
            digest: Digest::hash_json(&json!(1)),
            by,
            edit: Some(ArgumentEdit { arguments: json!(1), reason: None }),
        },
        E::GrantAdded { grant: grant() },
        E::GrantRevoked { grant_id: grant().grant_id, by: user("bob") },
    ]
}

/// Returns a grant in which every field is set.
pub(crate) fn grant() -> Grant {
    Grant {
        grant_id: GrantId(uuid(6, 1)),
        tool: "t".to_owned(),
        server: "s".to_owned(),
        condition: Some("args.n < 10".to_owned()),
        by: user("bob"),
        at: Timestamp(NEW_YEAR),
    }
}

/// Reads all events of a session.
pub(crate) async fn read_log(journal: &dyn Journal, session_id: SessionId) -> Vec<EventRecord> {
    journal.load_events(session_id, Seq(0), usize::MAX).await.unwrap()
}

pub(crate) fn is_conflict(result: &Result<(), JournalError>) -> bool {
    matches!(result, Err(JournalError::Conflict))
}

pub(crate) fn is_unavailable(result: &Result<(), JournalError>) -> bool {
    matches!(result, Err(JournalError::Unavailable(_)))
}
