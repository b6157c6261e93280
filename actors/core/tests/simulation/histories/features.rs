//! One short history per feature, so that a change in the meaning of old logs shows which feature it
//! breaks. Each is stored as `tests/histories/v0_1_NAME.jsonl`; [`FEATURES`] lists its event types.

use super::{HistoryBuilder, event_type, fork_at_first_approval, read_log, rules, write_log};
use crate::session_simulation::{SessionSimulation, user};
use greenroom_core::{
    Rules,
    agent::AgentProfile,
    amount::Amount,
    approval::{ApprovalDeadlines, DeadlineAction, DeadlineRule, Resolution, Role},
    budget::{Budget, BudgetMeasure, BudgetScope},
    call::{ToolOutcome, ToolOutput},
    ids::MessageId,
    json::Digest,
    message::Arguments,
    model::{completion::Completion, failure::ModelFailure},
    policy::{BudgetPeriod, Matrix, Settings},
    preflight::{ChecklistStepEdit, SUBMIT_PLAN_TOOL},
    session::{
        ApprovalAnswer, EventRecord, Input, ModelAttemptFailure, NewMessage, OnBusy,
        PlanStepAnswer, QueuedMessageChange,
    },
    usage::TokenUsage,
};
use serde_json::{Value, json};
use std::{path::Path, sync::Arc, time::Duration};

/// A feature: its name, the function that records its history, and event types that must occur in
/// this order.
type Feature = (&'static str, fn() -> Vec<EventRecord>, &'static [&'static str]);

const FEATURES: [Feature; 16] = [
    ("answer", answer, &["run_started", "message_completed", "run_completed"]),
    ("parallel", parallel, &["tool_call_completed", "tool_call_completed", "run_completed"]),
    ("plan_edited", plan_edited, &["approval_requested", "approval_decided", "tool_call_allowed"]),
    ("plan_in_parts", plan_in_parts, &["approval_decided", "tool_call_failed", "approval_decided"]),
    ("grant", grant, &["approval_decided", "grant_added", "tool_call_allowed", "grant_revoked"]),
    ("denied", denied, &["tool_call_started", "authorization_denied", "run_completed"]),
    ("deadline", deadline, &["approval_requested", "approval_expired", "tool_call_failed"]),
    ("escalated", escalated, &["approval_requested", "approval_escalated", "approval_decided"]),
    ("budget", budget, &["budget_reached", "approval_decided", "budget_raised", "run_completed"]),
    ("unknown_outcome", unknown_outcome, &["approval_requested", "tool_call_attempt_started"]),
    ("preflight", preflight, &["approval_requested", "preflight_approved", "tool_call_completed"]),
    ("retries", retries, &["step_retrying", "tool_call_retrying", "tool_call_failed"]),
    ("steered", steered, &["message_queued", "message_queued", "message_accepted"]),
    ("interrupted", interrupted, &["run_cancelled", "message_accepted", "run_started"]),
    ("cancelled", cancelled, &["message_queued", "approval_cancelled", "run_cancelled"]),
    ("queue", queue, &["queued_message_changed", "queued_message_withdrawn", "message_accepted"]),
];

/// The history of [`queue`].
pub(super) const QUEUE: &str = "v0_1_queue";

fn history_name(name: &str) -> String {
    format!("v0_1_{name}")
}

pub(super) fn write_feature_histories(folder: &Path) {
    for (name, record, _) in FEATURES {
        write_log(folder, &history_name(name), &record());
    }
    let fork = fork_at_first_approval(&plan_in_parts());
    write_log(folder, &history_name("fork_of_a_plan"), &fork);
}

#[test]
fn d7_each_feature_has_a_history_with_its_event_types() {
    for (name, record, expected_types) in FEATURES {
        let path = super::histories_folder().join(history_name(name)).with_extension("jsonl");
        for log in [read_log(&path), record()] {
            let mut types = log.iter().map(|record| event_type(&record.event));
            let in_order =
                expected_types.iter().all(|expected| types.any(|kind| kind == *expected));
            assert!(in_order, "{name} does not contain {expected_types:?}");
        }
    }
}

/// Creates a session with one message. `change` changes its agent.
fn session_with_message(change: impl FnOnce(&mut AgentProfile)) -> HistoryBuilder {
    let mut agent = AgentProfile::new(rules::agent_name());
    agent.models = vec!["small".to_owned()];
    change(&mut agent);
    let tools = Arc::new(rules::build_registry(1, rules::ServerSet::All));
    let rules = Rules::new(Arc::new(agent), Arc::new(Matrix::default()), tools);
    let mut builder = HistoryBuilder { simulation: SessionSimulation::with_rules(3, rules) };
    builder.simulation.budget_limit = None;
    let (owner, agent) = (user("ann"), rules::agent_name());
    let settings = Settings::default();
    builder.apply_input(Input::CreateSession { owner, agent, title: None, settings });
    builder.submit("u1");
    builder
}

/// Completes a step that calls the tools, each with its own arguments.
fn call_tools(builder: &mut HistoryBuilder, tools: &[&str]) {
    let arguments = |index: usize| Arguments::Json(json!({"n": index}));
    let calls = tools.iter().enumerate().map(|(index, tool)| (*tool, arguments(index)));
    builder.complete_step("Calling.", calls.collect());
}

/// Completes the running attempt of the tool.
fn complete_tool(builder: &mut HistoryBuilder, tool: &str) {
    let structured = Some(json!({"did": tool}));
    let output = ToolOutput { text: format!("did {tool}"), structured, ..ToolOutput::default() };
    builder.finish_tool(tool, ToolOutcome::Completed(output));
}

fn finish(mut builder: HistoryBuilder) -> Vec<EventRecord> {
    builder.complete_step("It is done.", vec![]);
    builder.simulation.log
}

fn answer() -> Vec<EventRecord> {
    finish(session_with_message(|_| ()))
}

fn parallel() -> Vec<EventRecord> {
    let mut builder = session_with_message(|_| ());
    call_tools(&mut builder, &["read", "read_guessed", "low"]);
    for tool in ["read_guessed", "low", "read"] {
        complete_tool(&mut builder, tool);
    }
    finish(builder)
}

fn step_answer(
    builder: &HistoryBuilder,
    tool: &str,
    approved: bool,
    arguments: Option<Value>,
) -> PlanStepAnswer {
    let reason = Some("I looked".to_owned());
    PlanStepAnswer { call_id: builder.call(tool), approved, reason, arguments }
}

fn plan_edited() -> Vec<EventRecord> {
    let mut builder = session_with_message(|_| ());
    call_tools(&mut builder, &["high"]);
    let edited = step_answer(&builder, "high", true, Some(json!({"n": 10, "note": "less"})));
    builder.answer_approval(ApprovalAnswer::Steps(vec![edited]), false);
    complete_tool(&mut builder, "high");
    finish(builder)
}

fn plan_in_parts() -> Vec<EventRecord> {
    let mut builder = session_with_message(|_| ());
    call_tools(&mut builder, &["high", "high_again", "high_beside"]);
    let rejected = step_answer(&builder, "high", false, None);
    builder.answer_approval(ApprovalAnswer::Steps(vec![rejected]), false);
    builder.answer_approval(ApprovalAnswer::Overall { approved: true, reason: None }, false);
    for tool in ["high_beside", "high_again"] {
        complete_tool(&mut builder, tool);
    }
    finish(builder)
}

fn grant() -> Vec<EventRecord> {
    let mut builder = session_with_message(|_| ());
    builder.complete_step("", vec![("high", Arguments::Json(json!({"quantity": 5})))]);
    builder.answer_approval(ApprovalAnswer::Overall { approved: true, reason: None }, true);
    complete_tool(&mut builder, "high");
    builder.complete_step("", vec![("high", Arguments::Json(json!({"quantity": 6})))]);
    complete_tool(&mut builder, "high");
    builder.apply_input(Input::RevokeGrants { grant_id: None, by: user("ann") });
    finish(builder)
}

fn denied() -> Vec<EventRecord> {
    let mut builder = session_with_message(|_| ());
    call_tools(&mut builder, &["critical"]);
    finish(builder)
}

fn past_deadline(action: DeadlineAction) -> HistoryBuilder {
    let mut builder = session_with_message(|agent| {
        agent.approval_deadlines =
            ApprovalDeadlines::uniform(DeadlineRule { action, ..DeadlineRule::default() });
    });
    call_tools(&mut builder, &["high"]);
    builder.simulation.now = builder.simulation.now.saturating_add(Duration::from_secs(60));
    builder.apply_input(Input::Wake);
    builder
}

fn deadline() -> Vec<EventRecord> {
    finish(past_deadline(DeadlineAction::Deny))
}

fn escalated() -> Vec<EventRecord> {
    let to = Role::Approver;
    let mut builder = past_deadline(DeadlineAction::Escalate { to, within_ms: Some(90_000) });
    builder.answer_approval(ApprovalAnswer::Overall { approved: true, reason: None }, false);
    complete_tool(&mut builder, "high");
    finish(builder)
}

fn budget() -> Vec<EventRecord> {
    let mut builder = session_with_message(|agent| {
        let (scope, period) = (BudgetScope::Session, BudgetPeriod::Total);
        let measure = BudgetMeasure::from_unit(rules::UNIT);
        agent.budgets = vec![Budget {
            scope,
            period,
            measure,
            limit: Amount::parse("0.5").expect("a valid amount"),
        }];
    });
    call_tools(&mut builder, &["low"]);
    builder.resolve_approval(Resolution::Raise(20.into()));
    complete_tool(&mut builder, "low");
    finish(builder)
}

fn unknown_outcome() -> Vec<EventRecord> {
    let mut builder = session_with_message(|_| ());
    call_tools(&mut builder, &["low"]);
    builder.apply_input(Input::Rehydrated { user_settings: None });
    builder.resolve_approval(Resolution::Retry);
    builder.apply_input(Input::Rehydrated { user_settings: None });
    builder.resolve_approval(Resolution::Done(json!({"done": "by hand"})));
    call_tools(&mut builder, &["low"]);
    builder.apply_input(Input::Rehydrated { user_settings: None });
    builder.resolve_approval(Resolution::Failed);
    finish(builder)
}

fn preflight() -> Vec<EventRecord> {
    let mut builder = session_with_message(|_| ());
    builder.complete_step("Here I am.", vec![]);
    builder.submit_with("u2", Some(true));
    let step = |tool: &str| json!({"description": tool, "tool": tool, "arguments": {"n": 0}});
    let plan = json!({"steps": [step("high"), step("critical")], "warnings": []});
    builder.complete_step("My plan.", vec![(SUBMIT_PLAN_TOOL, Arguments::Json(plan))]);
    let skipped = ChecklistStepEdit { position: 2, skip: true, ..ChecklistStepEdit::default() };
    builder.resolve_approval(Resolution::Approve(vec![skipped]));
    call_tools(&mut builder, &["high"]);
    complete_tool(&mut builder, "high");
    finish(builder)
}

fn retries() -> Vec<EventRecord> {
    let mut builder = session_with_message(|_| ());
    let failure = ModelFailure::temporary("overloaded");
    let usage = TokenUsage::default();
    builder.finish_step(Err(ModelAttemptFailure { failure, streamed: true, usage }));
    builder.advance_to_next_wake();
    call_tools(&mut builder, &["read"]);
    builder.finish_tool("read", ToolOutcome::TimedOut { after_ms: 30_000 });
    builder.advance_to_next_wake();
    builder.finish_tool("read", ToolOutcome::TimedOut { after_ms: 30_000 });
    finish(builder)
}

/// Submits a message while a run is active.
fn submit_while_busy(builder: &mut HistoryBuilder, message_id: &str, on_busy: OnBusy) {
    let digest = Digest::hash_bytes(message_id.as_bytes());
    let message_id = MessageId::parse(message_id).expect("the id is valid");
    let text = "And that too.".into();
    let preflight = None;
    let workflow = None;
    let input = Input::SubmitMessage {
        message: NewMessage {
            preflight,
            workflow,
            ..NewMessage::new(user("ann"), message_id, text, digest)
        },
        on_busy,
    };
    builder.apply_input(input);
}

/// One steering message arrives in time, another too late.
fn steered() -> Vec<EventRecord> {
    let mut builder = session_with_message(|_| ());
    submit_while_busy(&mut builder, "waits", OnBusy::Queue);
    submit_while_busy(&mut builder, "in-time", OnBusy::Steer);
    call_tools(&mut builder, &["read"]);
    complete_tool(&mut builder, "read");
    submit_while_busy(&mut builder, "too-late", OnBusy::Steer);
    for _ in 0..2 {
        builder.complete_step("It is done.", vec![]);
    }
    finish(builder)
}

/// A queued message and a steering message are changed, others are withdrawn (S10).
pub(super) fn queue() -> Vec<EventRecord> {
    let mut builder = session_with_message(|_| ());
    for (message_id, on_busy) in [
        ("changed", OnBusy::Queue),
        ("withdrawn", OnBusy::Queue),
        ("steers", OnBusy::Steer),
        ("steers-not", OnBusy::Steer),
    ] {
        submit_while_busy(&mut builder, message_id, on_busy);
    }
    let id = |message_id| MessageId::parse(message_id).expect("the id is valid");
    for message_id in ["changed", "steers"] {
        let change = QueuedMessageChange {
            text: "And only that.".into(),
            digest: Digest::hash_bytes(b"And only that."),
            preflight: None,
        };
        let (message_id, by) = (id(message_id), user("ann"));
        builder.apply_input(Input::ChangeQueuedMessage { message_id, change, by });
    }
    for message_id in ["withdrawn", "steers-not"] {
        let (message_id, by) = (id(message_id), user("root"));
        builder.apply_input(Input::WithdrawQueuedMessage { message_id, by });
    }
    call_tools(&mut builder, &["read"]);
    complete_tool(&mut builder, "read");
    builder.complete_step("It is done.", vec![]);
    finish(builder)
}

fn interrupted() -> Vec<EventRecord> {
    let mut builder = session_with_message(|_| ());
    submit_while_busy(&mut builder, "waits", OnBusy::Queue);
    let mut partial = Completion::default();
    partial.message.text = "The pri".to_owned();
    builder.apply_input(Input::Interrupt {
        message: NewMessage::new(
            user("ann"),
            MessageId::parse("at-once").expect("the id is valid"),
            "No, this.".into(),
            Digest::hash_bytes(b"at-once"),
        ),
        by: user("ann"),
        partial: Some(partial),
    });
    builder.complete_step("That instead.", vec![]);
    finish(builder)
}

/// Cancels a run with calls in every phase: completed, running, waiting for approval, not started.
fn cancelled() -> Vec<EventRecord> {
    let mut builder = session_with_message(|_| ());
    submit_while_busy(&mut builder, "waits", OnBusy::Queue);
    call_tools(&mut builder, &["read", "low", "high", "read_guessed"]);
    complete_tool(&mut builder, "read");
    builder.apply_input(Input::CancelRun { run_id: None, by: user("ann"), partial: None });
    finish(builder)
}
