//! Recorded logs and their replay (D7): a log that was recorded once has the same meaning today.
//!
//! `tests/histories/NAME.jsonl` is a log in its stored form, one event per line;
//! `NAME.summary.json` is the summary of its replay when it was recorded.
//! `GREENROOM_WRITE_HISTORIES=1` records the histories of this version again; those of released
//! versions never change.

mod features;

use crate::{
    rules,
    session_simulation::{SessionSimulation, user},
};
use greenroom_core::{
    Rules,
    agent::AgentProfile,
    amount::Amount,
    approval::{
        ApprovalDeadlines, ApprovalKind, DeadlineAction, DeadlineRule, GrantRequest, Resolution,
        Role, Surface,
    },
    call::{CallPhase, ToolOutcome, ToolOutput, outcome::RetryHint},
    delegation::{ChildBounds, DELEGATE_TOOL, Parent, RootRun},
    feedback::{Feedback, MessageRating},
    ids::{AgentName, AttemptId, CallId, MessageId, Seq, SessionId, ToolName},
    json::{Digest, decimal::Decimal},
    message::{Arguments, AssistantMessage, Message, ProposedCall, Reasoning},
    model::{completion::Completion, delta::StopReason, failure::ModelFailure},
    policy::{Autonomy, BudgetLimit, BudgetPeriod, Matrix, Settings},
    preflight::{ChecklistStepEdit, SUBMIT_PLAN_TOOL},
    session::{
        ApprovalAnswer, ApprovalRow, EventRecord, Input, ModelAttemptFailure, NewMessage, OnBusy,
        PlanStepAnswer, SessionEvent, SessionRow, SessionState,
    },
    usage::{ModelUsage, TokenUsage},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use uuid::Uuid;

/// The history that this version records.
const CURRENT: &str = "v0_1_every_event";
/// The history of a fork of [`CURRENT`], which starts with another event.
const FORK: &str = "v0_1_fork";

/// All event types.
const TYPES: [&str; 45] = [
    "approval_cancelled",
    "approval_decided",
    "approval_escalated",
    "approval_expired",
    "approval_requested",
    "authorization_denied",
    "budget_raised",
    "budget_reached",
    "budget_reserved",
    "child_event",
    "child_gone",
    "context_compacted",
    "context_compaction_failed",
    "feedback_given",
    "grant_added",
    "grant_revoked",
    "late_result",
    "message_accepted",
    "message_completed",
    "message_discarded",
    "message_queued",
    "message_started",
    "preflight_approved",
    "preflight_skipped",
    "queued_message_changed",
    "queued_message_withdrawn",
    "run_cancelled",
    "run_completed",
    "run_failed",
    "run_started",
    "session_closed",
    "session_created",
    "session_forked",
    "session_settings_changed",
    "step_completed",
    "step_model_fallback",
    "step_retrying",
    "step_started",
    "tool_call_allowed",
    "tool_call_attempt_started",
    "tool_call_completed",
    "tool_call_failed",
    "tool_call_progress",
    "tool_call_retrying",
    "tool_call_started",
];

#[test]
fn d7_recorded_histories_replay_to_recorded_summary() {
    let folder = histories_folder();
    if std::env::var_os("GREENROOM_WRITE_HISTORIES").is_some() {
        write_histories(&folder);
    }
    let mut replayed = 0;
    for entry in fs::read_dir(&folder).expect("the histories are in the repository") {
        let path = entry.expect("the folder can be read").path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            let log = read_log(&path);
            let recorded = fs::read_to_string(path.with_extension("summary.json")).unwrap();
            let recorded: Value = serde_json::from_str(&recorded).unwrap();
            let summary = by_value(&summary(&log));
            assert_eq!(summary, by_value(&recorded), "{}", path.display());
            replayed += 1;
        }
    }
    assert!(replayed > 0);
}

#[test]
fn d7_history_of_this_version_contains_every_event_type() {
    let path = histories_folder().join(CURRENT).with_extension("jsonl");
    let fork = histories_folder().join(FORK).with_extension("jsonl");
    let queue = histories_folder().join(features::QUEUE).with_extension("jsonl");
    let stored = [read_log(&path), read_log(&fork), read_log(&queue)];
    let recorded = [record_every_event(), record_fork(), features::queue()];
    for logs in [stored, recorded] {
        let types: BTreeSet<_> = logs.iter().flatten().map(type_of).collect();
        assert_eq!(types, TYPES.map(str::to_owned).into());
    }
    // The stored lines equal what this version would store.
    for path in [path, fork, queue] {
        for line in fs::read_to_string(path).unwrap().lines() {
            let record: EventRecord = serde_json::from_str(line).unwrap();
            // Version 0.1 wrote a whole amount as `2.0`.
            let recorded = by_value(&serde_json::from_str(line).unwrap());
            assert_eq!(by_value(&serde_json::to_value(&record).unwrap()), recorded);
        }
    }
}

pub(crate) fn histories_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/histories")
}

pub(crate) fn read_log(path: &Path) -> Vec<EventRecord> {
    let text = fs::read_to_string(path).expect("the history can be read");
    let record = |line| serde_json::from_str(line).expect("an old event can be read");
    text.lines().map(record).collect()
}

/// Returns the value with each number in one notation.
fn by_value(value: &Value) -> Value {
    match value {
        Value::Number(number) => Decimal::new(number).map(|value| value.to_string()).into(),
        Value::Array(items) => items.iter().map(by_value).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, member)| (name.clone(), by_value(member))).collect()
        }
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}

fn write_histories(folder: &Path) {
    write_log(folder, CURRENT, &record_every_event());
    write_log(folder, FORK, &record_fork());
    write_log(
        folder,
        crate::elicitation_history::HISTORY,
        &crate::elicitation_history::record_history(),
    );
    features::write_feature_histories(folder);
}

fn write_log(folder: &Path, name: &str, log: &[EventRecord]) {
    let line = |record| serde_json::to_string(record).expect("events can be written") + "\n";
    let lines: String = log.iter().map(line).collect();
    let summary = serde_json::to_string_pretty(&summary(log)).expect("it is JSON") + "\n";
    fs::create_dir_all(folder).expect("the folder can be created");
    let path = folder.join(name);
    fs::write(path.with_extension("jsonl"), lines).expect("the log can be written");
    fs::write(path.with_extension("summary.json"), summary).expect("the summary can be written");
}

fn type_of(record: &EventRecord) -> String {
    let value = serde_json::to_value(record).expect("events can be written");
    assert_eq!(value["type"], event_type(&record.event));
    event_type(&record.event).to_owned()
}

/// Returns the stored type of an event, which never changes. A new event type also needs an entry in
/// [`TYPES`] and a place in [`record_every_event`].
fn event_type(event: &SessionEvent) -> &'static str {
    use SessionEvent as E;
    match event {
        E::ApprovalCancelled { .. } => "approval_cancelled",
        E::ChildEvent { .. } => "child_event",
        E::ChildGone { .. } => "child_gone",
        E::ApprovalDecided { .. } => "approval_decided",
        E::ApprovalEscalated { .. } => "approval_escalated",
        E::BudgetRaised { .. } => "budget_raised",
        E::BudgetReached { .. } => "budget_reached",
        E::BudgetReserved { .. } => "budget_reserved",
        E::ApprovalExpired { .. } => "approval_expired",
        E::ApprovalRequested { .. } => "approval_requested",
        E::AuthorizationDenied { .. } => "authorization_denied",
        E::LateResult { .. } => "late_result",
        E::MessageAccepted { .. } => "message_accepted",
        E::MessageCompleted { .. } => "message_completed",
        E::MessageDiscarded { .. } => "message_discarded",
        E::MessageQueued { .. } => "message_queued",
        E::MessageStarted { .. } => "message_started",
        E::PreflightApproved { .. } => "preflight_approved",
        E::PreflightSkipped { .. } => "preflight_skipped",
        E::QueuedMessageChanged { .. } => "queued_message_changed",
        E::QueuedMessageWithdrawn { .. } => "queued_message_withdrawn",
        E::RunCancelled { .. } => "run_cancelled",
        E::RunCompleted { .. } => "run_completed",
        E::FeedbackGiven { .. } => "feedback_given",
        E::GrantAdded { .. } => "grant_added",
        E::GrantRevoked { .. } => "grant_revoked",
        E::RunFailed { .. } => "run_failed",
        E::RunStarted { .. } => "run_started",
        E::SessionClosed { .. } => "session_closed",
        E::SessionCreated { .. } => "session_created",
        E::SessionForked { .. } => "session_forked",
        E::SessionSettingsChanged { .. } => "session_settings_changed",
        E::StepCompleted { .. } => "step_completed",
        E::ContextCompacted { .. } => "context_compacted",
        E::ContextCompactionFailed { .. } => "context_compaction_failed",
        E::StepModelFallback { .. } => "step_model_fallback",
        E::StepRetrying { .. } => "step_retrying",
        E::StepStarted { .. } => "step_started",
        E::ToolCallAllowed { .. } => "tool_call_allowed",
        E::ToolCallAttemptStarted { .. } => "tool_call_attempt_started",
        E::ToolCallCompleted { .. } => "tool_call_completed",
        E::ToolCallFailed { .. } => "tool_call_failed",
        E::ToolCallProgress { .. } => "tool_call_progress",
        E::ToolCallRetrying { .. } => "tool_call_retrying",
        E::ToolCallStarted { .. } => "tool_call_started",
    }
}

/// Summarises the replay of a log in a form that does not depend on the code.
fn summary(log: &[EventRecord]) -> Value {
    let session_id = SessionId(Uuid::from_u128(1));
    let statuses = (1..=log.len()).map(|count| {
        let state = SessionState::replay(session_id, &log[..count]);
        let row = SessionRow::from_state(&state).expect("the first event creates the session");
        json!([state.last_seq, type_of(&log[count - 1]), row.status, state.next_wake()])
    });
    let statuses: Vec<_> = statuses.collect();
    let state = SessionState::replay(session_id, log);
    let conversation: Vec<_> =
        state.conversation.messages().into_iter().map(message_json).collect();
    let submissions: Vec<_> = state
        .submissions
        .iter()
        .map(|(id, submission)| json!([id, submission.run_id, submission.seq, submission.digest]))
        .collect();
    json!({
        "session": SessionRow::from_state(&state),
        "approvals": ApprovalRow::all_from_state(&state),
        "conversation": conversation,
        "submissions": submissions,
        "statuses": statuses,
    })
}

fn message_json(message: &Message) -> Value {
    match message {
        Message::User { message_id, text } => json!({"user": message_id, "text": text}),
        Message::Assistant(message) => json!({"assistant": **message}),
        Message::ToolResults(results) => {
            let result_json = |result: &greenroom_core::message::CallResult| {
                json!([result.call_id, result.tool, result.is_error, result.text])
            };
            json!({"results": results.iter().map(result_json).collect::<Vec<_>>()})
        }
    }
}

/// Records a session in which every event type occurs.
fn record_every_event() -> Vec<EventRecord> {
    let mut agent = AgentProfile::new(rules::agent_name());
    agent.models = vec!["small".to_owned(), "spare".to_owned()];
    agent.approval_deadlines = ApprovalDeadlines::from_fn(|kind, _| {
        let escalate = DeadlineAction::Escalate { to: Role::Approver, within_ms: Some(90_000) };
        let action = if kind == ApprovalKind::Budget { escalate } else { DeadlineAction::Deny };
        DeadlineRule { action, ..DeadlineRule::default() }
    });
    agent.delegates = vec![AgentName::parse("researcher").expect("the name is valid")];
    let tools = Arc::new(rules::build_registry_with_delegate(3));
    let rules = Rules::new(Arc::new(agent), Arc::new(Matrix::default()), tools);
    let mut builder = HistoryBuilder { simulation: SessionSimulation::with_rules(1, rules) };
    builder.create_session();
    builder.first_run();
    builder.budget_run();
    builder.preflight_runs();
    builder.compaction_runs();
    builder.delegation_runs();
    builder.unsuccessful_runs();
    builder.simulation.log
}

/// Records a fork from the middle of [`record_every_event`], with open calls and a pending plan.
fn record_fork() -> Vec<EventRecord> {
    fork_at_first_approval(&record_every_event())
}

/// Records a fork at the first approval of `log`.
fn fork_at_first_approval(log: &[EventRecord]) -> Vec<EventRecord> {
    let is_request =
        |record: &&EventRecord| matches!(record.event, SessionEvent::ApprovalRequested { .. });
    let at_seq = log.iter().find(is_request).expect("an approval was requested").seq;
    let source = SessionId(Uuid::from_u128(1));
    let past = log.iter().take_while(|record| record.seq <= at_seq);
    let conversation = SessionState::replay(source, past).conversation_so_far();
    let rules = Rules::new(
        Arc::new(AgentProfile::new(rules::agent_name())),
        Arc::new(Matrix::default()),
        Arc::new(rules::build_registry(3, rules::ServerSet::All)),
    );
    let mut builder = HistoryBuilder { simulation: SessionSimulation::with_rules(2, rules) };
    builder.apply_input(Input::ForkSession {
        from: source,
        at_seq,
        owner: user("ann"),
        agent: rules::agent_name(),
        title: Some("Otherwise".to_owned()),
        settings: Settings::default(),
        conversation,
        spent: Vec::new(),
    });
    builder.submit("u1");
    builder.complete_step("Then so.", vec![]);
    builder.simulation.log
}

pub(crate) struct HistoryBuilder {
    pub(crate) simulation: SessionSimulation,
}

impl HistoryBuilder {
    pub(crate) fn create_session(&mut self) {
        let (owner, agent) = (user("ann"), rules::agent_name());
        let (title, settings) = (Some("Prices".to_owned()), Settings::default());
        self.apply_input(Input::CreateSession { owner, agent, title, settings });
        let mut settings = Settings { autonomy_level: Autonomy::Assisted, ..Settings::default() };
        let blocked = ToolName::parse("read_guessed").expect("the name is valid");
        settings.blocked_tools.insert(blocked);
        settings.budget_limit = Some(BudgetLimit {
            amount: 2.into(),
            unit: rules::UNIT.to_owned(),
            period: BudgetPeriod::Month,
        });
        let title = Some("Prices é😀".to_owned());
        self.apply_input(Input::ChangeSettings {
            patch: settings.into(),
            title: Some(title),
            by: user("ann"),
        });
    }

    /// Records a cut stream, a restart, calls of every outcome, a plan that is decided in part and
    /// expires, an approved plan, and a final answer.
    fn first_run(&mut self) {
        self.submit("u1");
        let failure = ModelFailure::temporary("the stream was cut");
        self.finish_step(Err(ModelAttemptFailure {
            failure,
            streamed: true,
            usage: TokenUsage::default(),
        }));
        self.advance_to_next_wake();
        self.apply_input(Input::Rehydrated { user_settings: None });
        let malformed = Arguments::Malformed { raw: "{\"n\":".into(), error: "not JSON".into() };
        let json = |value: Value| Arguments::Json(value);
        self.complete_step(
            "Let me see.",
            vec![
                ("read", json(json!({"type": 34, "price": 0.1, "name": "Tritanium \u{2028}é"}))),
                ("low", json(json!({"note": "first"}))),
                ("high", json(json!({"quantity": 1000}))),
                ("critical", json(json!({"all": true}))),
                ("read_guessed", json(json!({}))),
                ("strict", malformed),
                ("nothing_like_it", json(json!([1, null]))),
            ],
        );
        let (call_id, attempt_id) = self.running_attempt("read");
        let message = Some("half".to_owned());
        let (progress, total) = (0.5, Some(1.0));
        self.apply_input(Input::ToolProgressed { call_id, attempt_id, progress, total, message });
        self.finish_tool("read", ToolOutcome::TimedOut { after_ms: 30_000 });
        let outcome = ToolOutcome::Completed(ToolOutput::default());
        self.apply_input(Input::ToolFinished { call_id, attempt_id, outcome });
        self.advance_to_next_wake();
        self.finish_tool(
            "read",
            ToolOutcome::Completed(ToolOutput {
                text: "5.01".to_owned(),
                structured: Some(json!({"price": 5.01})),
                truncated: true,
                cached: true,
            }),
        );
        self.finish_tool("low", ToolOutcome::Crashed { error: "the child died".to_owned() });
        self.resolve_approval(Resolution::Done(json!({"noted": "first"})));
        let call_id = self.call("high");
        let reason = Some("fine".to_owned());
        let arguments = Some(json!({"quantity": 10}));
        let answer = PlanStepAnswer { call_id, approved: true, reason, arguments };
        self.answer_approval(ApprovalAnswer::Steps(vec![answer]), true);
        self.simulation.now = self.simulation.now.saturating_add(Duration::from_secs(60));
        self.apply_input(Input::Wake);
        self.finish_tool("high", ToolOutcome::Completed(ToolOutput::default()));

        self.complete_step("", vec![("high_again", json(json!({})))]);
        self.answer_approval(ApprovalAnswer::Overall { approved: true, reason: None }, false);
        self.apply_input(Input::RevokeGrants { grant_id: None, by: user("ann") });
        self.finish_tool("high_again", ToolOutcome::NotSent { error: "no connection".to_owned() });
        self.apply_input(Input::Rehydrated { user_settings: None });
        self.advance_to_next_wake();
        self.finish_tool("high_again", ToolOutcome::Completed(ToolOutput::default()));
        self.complete_step("It is done.", vec![]);
    }

    /// Records a budget that is reached, whose approval escalates and is answered with a raise; and a
    /// call of unknown outcome that is repeated after a `retry` answer.
    fn budget_run(&mut self) {
        self.submit("dear");
        self.complete_step("", vec![("low", Arguments::Json(json!({"n": 0.5})))]);
        self.simulation.now = self.simulation.now.saturating_add(Duration::from_secs(60));
        self.apply_input(Input::Wake);
        self.resolve_approval(Resolution::Raise(Amount::parse("10.5").expect("a valid amount")));
        self.finish_tool("low", ToolOutcome::TimedOut { after_ms: 30_000 });
        self.resolve_approval(Resolution::Retry);
        let error = "it is forbidden".to_owned();
        self.finish_tool("low", ToolOutcome::Failed { error, hint: RetryHint::Unspecified });
        self.complete_step("It can't be done.", vec![]);
    }

    /// Records a plan that is approved with edits and used once; and a run without a plan.
    fn preflight_runs(&mut self) {
        self.submit_with("planned", Some(true));
        let step = |tool: &str, n: u64| json!({"description": format!("Do {tool}"), "tool": tool, "arguments": {"n": n}});
        let steps = [step("high_again", 1), step("high_beside", 1), step("critical", 1)];
        let plan = json!({"steps": steps, "warnings": ["It is dear."]});
        self.complete_step("Here is my plan.", vec![(SUBMIT_PLAN_TOOL, Arguments::Json(plan))]);
        let edited = ChecklistStepEdit {
            position: 2,
            arguments: Some(json!({"n": 2})),
            ..Default::default()
        };
        let skipped = ChecklistStepEdit { position: 3, skip: true, ..Default::default() };
        self.resolve_approval(Resolution::Approve(vec![edited, skipped]));
        self.complete_step("", vec![("high_again", Arguments::Json(json!({"n": 1})))]);
        self.finish_tool("high_again", ToolOutcome::Completed(ToolOutput::default()));
        self.complete_step("It is done.", vec![]);

        self.submit_with("unplanned", Some(true));
        self.complete_step("I have no plan.", vec![]);
        self.complete_step("It is done.", vec![]);
    }

    /// Records a successful and a failed compaction.
    fn compaction_runs(&mut self) {
        self.simulation.rules.context.compact_at = Some(1);
        self.simulation.rules.context.context_windows = Arc::new([("small".to_owned(), 1)].into());
        self.submit("long");
        self.complete_step("They asked for prices.", vec![]);
        self.complete_step("It is done.", vec![]);
        self.submit("longer");
        self.complete_step(" ", vec![]);
        self.complete_step("It is done.", vec![]);
        self.simulation.rules.context.compact_at = None;
    }

    /// Records a child session that completes its task, and one that is cancelled before it starts.
    fn delegation_runs(&mut self) {
        let arguments =
            || Arguments::Json(json!({"agent": "researcher", "task": "Find the price"}));
        self.submit("delegated");
        self.complete_step("", vec![(DELEGATE_TOOL, arguments())]);
        let child = self.simulation.state.active.children[0].session_id;
        let call_id = self.call(DELEGATE_TOOL);
        let run_id = self.simulation.state.active.run.as_ref().expect("a run is active").run_id;
        let session_id = self.simulation.state.session_id;
        let root = RootRun { session_id, run_id };
        let parent =
            Parent { session_id, run_id, call_id, root, depth: 1, bounds: ChildBounds::default() };
        let at = self.simulation.now;
        let record =
            |seq, event| EventRecord { seq: Seq(seq), at, run_id: None, step: None, event };
        let settings = Arc::default();
        let (owner, agent) =
            (user("ann"), AgentName::parse("researcher").expect("the name is valid"));
        let (title, parent) = (Some("Find the price".to_owned()), Some(Arc::new(parent)));
        let created = SessionEvent::SessionCreated { owner, agent, title, settings, parent };
        let tokens =
            TokenUsage { input_tokens: 7, output_tokens: 3, cached_tokens: 0, estimated: false };
        let cost_usd = Some(Amount::parse("0.25").expect("a valid amount"));
        let usage = ModelUsage { tokens, cost_usd, estimated_cost_usd: None };
        let stop_reason = StopReason::EndTurn;
        let completed = SessionEvent::StepCompleted { usage, stop_reason };
        let closed = SessionEvent::SessionClosed { by: user("ann") };
        let records = [record(1, created), record(2, completed), record(3, closed)].into();
        self.apply_input(Input::ChildEventsReceived { child, records });
        self.apply_input(Input::Rehydrated { user_settings: None });
        self.finish_tool(DELEGATE_TOOL, ToolOutcome::Completed(ToolOutput::default()));
        self.complete_step("It is done.", vec![]);

        self.submit("undone");
        self.complete_step("", vec![(DELEGATE_TOOL, arguments())]);
        let child = self.simulation.state.active.children[0].session_id;
        self.apply_input(Input::CancelRun { run_id: None, by: user("ann"), partial: None });
        self.apply_input(Input::ChildGone { child });
    }

    /// Records runs that are cancelled during streaming, cancelled while waiting, and failed; closes
    /// the session.
    fn unsuccessful_runs(&mut self) {
        for message_id in ["u2", "u3", "u4", "u5"] {
            self.submit(message_id);
        }
        let mut partial = Completion::default();
        partial.message.text = "The pri".to_owned();
        self.apply_input(Input::CancelRun {
            run_id: None,
            by: user("ann"),
            partial: Some(partial),
        });
        self.complete_step("", vec![("high", Arguments::Json(json!({})))]);
        self.apply_input(Input::CancelRun { run_id: None, by: user("bob"), partial: None });
        let open = ModelFailure::circuit_open("it is left alone", Duration::from_secs(1));
        self.finish_step(Err(ModelAttemptFailure {
            failure: open,
            streamed: false,
            usage: TokenUsage::default(),
        }));
        self.finish_step(Err(ModelAttemptFailure {
            failure: ModelFailure::permanent("no such model"),
            streamed: false,
            usage: TokenUsage::default(),
        }));
        let rating = MessageRating::try_from(5).expect("the rating is valid");
        let message_id = MessageId::parse("m1").expect("the id is valid");
        let feedback = Feedback::Message { message_id, rating, comment: Some("just so".into()) };
        self.apply_input(Input::GiveFeedback { feedback, run_id: None, by: user("ann") });
        self.apply_input(Input::CloseSession { by: user("ann"), partial: None });
    }

    pub(crate) fn apply_input(&mut self, input: Input) {
        self.simulation.now = self.simulation.now.saturating_add(Duration::from_millis(250));
        self.simulation.apply_input(input).expect("the input is accepted");
    }

    pub(crate) fn submit(&mut self, message_id: &str) {
        self.submit_with(message_id, None);
    }

    fn submit_with(&mut self, message_id: &str, preflight: Option<bool>) {
        let digest = Digest::hash_bytes(message_id.as_bytes());
        let message_id = MessageId::parse(message_id).expect("the id is valid");
        let on_busy = OnBusy::Queue;
        let text = "How much is it?".into();
        let workflow = (message_id.as_str() == "u3").then(|| Arc::new(rules::full_workflow()));
        let author = user("ann");
        let message =
            NewMessage { preflight, workflow, ..NewMessage::new(author, message_id, text, digest) };
        self.apply_input(Input::SubmitMessage { message, on_busy });
    }

    fn finish_step(&mut self, result: Result<Completion, ModelAttemptFailure>) {
        let attempt_id =
            *self.simulation.model_attempts.last().expect("a model attempt is in progress");
        self.apply_input(Input::ModelFinished { attempt_id, result });
    }

    pub(crate) fn complete_step(&mut self, text: &str, calls: Vec<(&str, Arguments)>) {
        let thinking = Reasoning::Thinking { text: "hm".into(), signature: Some("sig".into()) };
        let redacted = Reasoning::Redacted { payload: "opaque".into() };
        let stop_reason = if calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
        let calls = calls.into_iter().map(|(tool, arguments)| ProposedCall {
            call_id: CallId(Uuid::nil()),
            provider_id: format!("toolu_{tool}"),
            tool: tool.to_owned(),
            arguments,
        });
        let message = AssistantMessage {
            text: text.to_owned(),
            reasoning: vec![thinking, redacted],
            calls: calls.collect(),
        };
        let usage = TokenUsage {
            input_tokens: 120,
            output_tokens: 30,
            cached_tokens: 100,
            estimated: false,
        };
        self.finish_step(Ok(Completion { message, usage, stop_reason, dropped_calls: 0 }));
    }

    fn call(&self, tool: &str) -> CallId {
        let run = self.simulation.state.active.run.as_ref().expect("a run is active");
        run.calls.iter().find(|call| call.tool == tool).expect("the tool was called").call_id
    }

    pub(crate) fn running_attempt(&self, tool: &str) -> (CallId, AttemptId) {
        let run = self.simulation.state.active.run.as_ref().expect("a run is active");
        let call = run.calls.iter().find(|call| call.tool == tool).expect("the tool was called");
        let CallPhase::Running { attempt_id, .. } = call.phase else {
            panic!("{tool} does not run: {:?}", call.phase);
        };
        (call.call_id, attempt_id)
    }

    pub(crate) fn finish_tool(&mut self, tool: &str, outcome: ToolOutcome) {
        let (call_id, attempt_id) = self.running_attempt(tool);
        self.apply_input(Input::ToolFinished { call_id, attempt_id, outcome });
    }

    fn answer_approval(&mut self, answer: ApprovalAnswer, grants: bool) {
        let open = self.simulation.state.active.approvals.first().expect("an approval is open");
        let approval_id = open.approval.approval_id;
        let (by, role, surface) = (user("ann"), Role::Approver, Surface::Dashboard);
        let condition = Some("args.quantity < 100".to_owned());
        let for_session = grants.then_some(GrantRequest { condition });
        self.apply_input(Input::AnswerApproval {
            approval_id,
            answer,
            for_session,
            by,
            role,
            surface,
        });
    }

    /// Answers the open approval that has no steps.
    pub(crate) fn resolve_approval(&mut self, resolution: Resolution) {
        let mut open = self.simulation.state.active.approvals.iter();
        let open = open.find(|open| open.approval.steps().is_empty()).expect("an approval is open");
        let approval_id = open.approval.approval_id;
        let reason = Some("I looked".to_owned());
        let answer = ApprovalAnswer::Resolve { resolution, reason };
        let (by, role, surface) = (user("bob"), Role::Approver, Surface::Cli);
        let for_session = None;
        self.apply_input(Input::AnswerApproval {
            approval_id,
            answer,
            for_session,
            by,
            role,
            surface,
        });
    }

    fn advance_to_next_wake(&mut self) {
        if let Some(next) = self.simulation.state.next_wake() {
            self.simulation.now = self.simulation.now.max(next);
            self.apply_input(Input::Wake);
        }
    }
}
