//! One short history a feature, so that a change that reads old logs otherwise shows which feature it
//! breaks. Each is told as `tests/histories/v0_1_NAME.jsonl`; what it must say stands in [`FEATURES`].

use super::{HistoryBuilder, fork_at_first_approval, name_of, read_log, rules, write_log};
use crate::session_simulation::{SessionSimulation, user};
use greenroom_core::{
    Rules,
    agent::AgentProfile,
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
        ApprovalAnswer, EventRecord, Input, ModelAttemptFailure, NewMessage, OnBusy, PlanStepAnswer,
    },
    usage::TokenUsage,
};
use serde_json::{Value, json};
use std::{path::Path, sync::Arc, time::Duration};

/// A feature: its name, its story, and the types of events that show it, in their order.
type Feature = (&'static str, fn() -> Vec<EventRecord>, &'static [&'static str]);

const FEATURES: [Feature; 15] = [
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
];

fn file(name: &str) -> String {
    format!("v0_1_{name}")
}

pub(super) fn write_feature_histories(folder: &Path) {
    for (name, tell, _) in FEATURES {
        write_log(folder, &file(name), &tell());
    }
    write_log(folder, &file("fork_of_a_plan"), &fork_at_first_approval(&plan_in_parts()));
}

#[test]
fn d7_each_feature_has_its_history() {
    for (name, tell, shows) in FEATURES {
        let on_file = read_log(&super::folder().join(file(name)).with_extension("jsonl"));
        for log in [on_file, tell()] {
            let mut kinds = log.iter().map(|record| name_of(&record.event));
            let in_order = shows.iter().all(|shown| kinds.any(|kind| kind == *shown));
            assert!(in_order, "{name} does not show {shows:?}");
        }
    }
}

/// A session of that agent, with one message.
fn session_with_message(change: impl FnOnce(&mut AgentProfile)) -> HistoryBuilder {
    let mut agent = AgentProfile::new(rules::agent_name());
    agent.models = vec!["small".to_owned()];
    change(&mut agent);
    let tools = Arc::new(rules::build_registry(1, false));
    let rules = Rules::new(Arc::new(agent), Arc::new(Matrix::default()), tools);
    let mut story = HistoryBuilder { simulation: SessionSimulation::with_rules(3, rules) };
    story.simulation.budget_limit = None;
    let (owner, agent) = (user("ann"), rules::agent_name());
    let settings = Settings::default();
    story.apply_input(Input::CreateSession { owner, agent, title: None, settings });
    story.submit("u1");
    story
}

/// Calls these tools, each with its own arguments.
fn call_tools(story: &mut HistoryBuilder, tools: &[&str]) {
    let arguments = |at: usize| Arguments::Json(json!({"n": at}));
    let calls = tools.iter().enumerate().map(|(at, tool)| (*tool, arguments(at)));
    story.complete_step("Calling.", calls.collect());
}

/// The tool did it.
fn complete_tool(story: &mut HistoryBuilder, tool: &str) {
    let structured = Some(json!({"did": tool}));
    let output = ToolOutput { text: format!("did {tool}"), structured, ..ToolOutput::default() };
    story.finish_tool(tool, ToolOutcome::Completed(output));
}

fn finish(mut story: HistoryBuilder) -> Vec<EventRecord> {
    story.complete_step("It is done.", vec![]);
    story.simulation.log
}

fn answer() -> Vec<EventRecord> {
    finish(session_with_message(|_| ()))
}

fn parallel() -> Vec<EventRecord> {
    let mut story = session_with_message(|_| ());
    call_tools(&mut story, &["read", "read_guessed", "low"]);
    for tool in ["read_guessed", "low", "read"] {
        complete_tool(&mut story, tool);
    }
    finish(story)
}

fn step_answer(
    story: &HistoryBuilder,
    tool: &str,
    approved: bool,
    arguments: Option<Value>,
) -> PlanStepAnswer {
    let reason = Some("I looked".to_owned());
    PlanStepAnswer { call_id: story.call(tool), approved, reason, arguments }
}

fn plan_edited() -> Vec<EventRecord> {
    let mut story = session_with_message(|_| ());
    call_tools(&mut story, &["high"]);
    let edited = step_answer(&story, "high", true, Some(json!({"n": 10, "note": "less"})));
    story.answer_approval(ApprovalAnswer::Steps(vec![edited]), false);
    complete_tool(&mut story, "high");
    finish(story)
}

fn plan_in_parts() -> Vec<EventRecord> {
    let mut story = session_with_message(|_| ());
    call_tools(&mut story, &["high", "high_again", "high_beside"]);
    let no = step_answer(&story, "high", false, None);
    story.answer_approval(ApprovalAnswer::Steps(vec![no]), false);
    story.answer_approval(ApprovalAnswer::Overall { approved: true, reason: None }, false);
    for tool in ["high_beside", "high_again"] {
        complete_tool(&mut story, tool);
    }
    finish(story)
}

fn grant() -> Vec<EventRecord> {
    let mut story = session_with_message(|_| ());
    story.complete_step("", vec![("high", Arguments::Json(json!({"quantity": 5})))]);
    story.answer_approval(ApprovalAnswer::Overall { approved: true, reason: None }, true);
    complete_tool(&mut story, "high");
    story.complete_step("", vec![("high", Arguments::Json(json!({"quantity": 6})))]);
    complete_tool(&mut story, "high");
    story.apply_input(Input::RevokeGrants { grant_id: None, by: user("ann") });
    finish(story)
}

fn denied() -> Vec<EventRecord> {
    let mut story = session_with_message(|_| ());
    call_tools(&mut story, &["critical"]);
    finish(story)
}

fn past_deadline(then: DeadlineAction) -> HistoryBuilder {
    let mut story = session_with_message(|agent| {
        agent.approval_deadlines =
            ApprovalDeadlines::uniform(DeadlineRule { action: then, ..DeadlineRule::default() });
    });
    call_tools(&mut story, &["high"]);
    story.simulation.now = story.simulation.now.saturating_add(Duration::from_secs(60));
    story.apply_input(Input::Wake);
    story
}

fn deadline() -> Vec<EventRecord> {
    finish(past_deadline(DeadlineAction::Deny))
}

fn escalated() -> Vec<EventRecord> {
    let to = Role::Approver;
    let mut story = past_deadline(DeadlineAction::Escalate { to, within_ms: Some(90_000) });
    story.answer_approval(ApprovalAnswer::Overall { approved: true, reason: None }, false);
    complete_tool(&mut story, "high");
    finish(story)
}

fn budget() -> Vec<EventRecord> {
    let mut story = session_with_message(|agent| {
        let (scope, period) = (BudgetScope::Session, BudgetPeriod::Total);
        let measure = BudgetMeasure::from_unit(rules::UNIT);
        agent.budgets = vec![Budget { scope, period, measure, limit: 0.5 }];
    });
    call_tools(&mut story, &["low"]);
    story.resolve_approval(Resolution::Raise(20.0));
    complete_tool(&mut story, "low");
    finish(story)
}

fn unknown_outcome() -> Vec<EventRecord> {
    let mut story = session_with_message(|_| ());
    call_tools(&mut story, &["low"]);
    story.apply_input(Input::Rehydrated { user_settings: None });
    story.resolve_approval(Resolution::Retry);
    story.apply_input(Input::Rehydrated { user_settings: None });
    story.resolve_approval(Resolution::Done(json!({"done": "by hand"})));
    call_tools(&mut story, &["low"]);
    story.apply_input(Input::Rehydrated { user_settings: None });
    story.resolve_approval(Resolution::Failed);
    finish(story)
}

fn preflight() -> Vec<EventRecord> {
    let mut story = session_with_message(|_| ());
    story.complete_step("Here I am.", vec![]);
    story.submit_with("u2", Some(true));
    let step = |tool: &str| json!({"description": tool, "tool": tool, "arguments": {"n": 0}});
    let plan = json!({"steps": [step("high"), step("critical")], "warnings": []});
    story.complete_step("My plan.", vec![(SUBMIT_PLAN_TOOL, Arguments::Json(plan))]);
    let skipped = ChecklistStepEdit { position: 2, skip: true, ..ChecklistStepEdit::default() };
    story.resolve_approval(Resolution::Approve(vec![skipped]));
    call_tools(&mut story, &["high"]);
    complete_tool(&mut story, "high");
    finish(story)
}

fn retries() -> Vec<EventRecord> {
    let mut story = session_with_message(|_| ());
    let failure = ModelFailure::temporary("overloaded");
    let usage = TokenUsage::default();
    story.finish_step(Err(ModelAttemptFailure { failure, streamed: true, usage }));
    story.advance_to_next_wake();
    call_tools(&mut story, &["read"]);
    story.finish_tool("read", ToolOutcome::TimedOut { after_ms: 30_000 });
    story.advance_to_next_wake();
    story.finish_tool("read", ToolOutcome::TimedOut { after_ms: 30_000 });
    finish(story)
}

/// A message while another run is going, of that kind.
fn submit_while_busy(story: &mut HistoryBuilder, message_id: &str, on_busy: OnBusy) {
    let digest = Digest::hash_bytes(message_id.as_bytes());
    let message_id = MessageId::parse(message_id).expect("it is short");
    let text = "And that too.".into();
    let preflight = None;
    let workflow = None;
    let input = Input::SubmitMessage {
        message: NewMessage { message_id, text, digest, preflight, workflow, traceparent: None },
        on_busy,
    };
    story.apply_input(input);
}

/// One comes in time, one too late.
fn steered() -> Vec<EventRecord> {
    let mut story = session_with_message(|_| ());
    submit_while_busy(&mut story, "waits", OnBusy::Queue);
    submit_while_busy(&mut story, "in-time", OnBusy::Steer);
    call_tools(&mut story, &["read"]);
    complete_tool(&mut story, "read");
    submit_while_busy(&mut story, "too-late", OnBusy::Steer);
    for _ in 0..2 {
        story.complete_step("It is done.", vec![]);
    }
    finish(story)
}

fn interrupted() -> Vec<EventRecord> {
    let mut story = session_with_message(|_| ());
    submit_while_busy(&mut story, "waits", OnBusy::Queue);
    let mut partial = Completion::default();
    partial.message.text = "The pri".to_owned();
    story.apply_input(Input::Interrupt {
        message: NewMessage::new(
            MessageId::parse("at-once").expect("it is short"),
            "No, this.".into(),
            Digest::hash_bytes(b"at-once"),
        ),
        by: user("ann"),
        partial: Some(partial),
    });
    story.complete_step("That instead.", vec![]);
    finish(story)
}

/// With calls of every fate: done, running, asked about, and not begun.
fn cancelled() -> Vec<EventRecord> {
    let mut story = session_with_message(|_| ());
    submit_while_busy(&mut story, "waits", OnBusy::Queue);
    call_tools(&mut story, &["read", "low", "high", "read_guessed"]);
    complete_tool(&mut story, "read");
    story.apply_input(Input::CancelRun { run_id: None, by: user("ann"), partial: None });
    finish(story)
}
