//! One short history a feature, so that a change that reads old logs otherwise shows which feature it
//! breaks. Each is told as `tests/histories/v0_1_NAME.jsonl`; what it must say stands in [`FEATURES`].

use super::{Story, fork_of, name_of, read, rules, write_log};
use crate::world::{World, user};
use greenroom_core::{
    Rules,
    agent::AgentProfile,
    approval::{ApprovalRules, Overdue, Resolution, Role, Timing},
    budget::{Budget, Measure, Scope},
    call::{ToolOutcome, ToolOutput},
    ids::MessageId,
    json::Digest,
    message::Arguments,
    model::{completion::Completion, failure::ModelFailure},
    policy::{Matrix, Period, Settings},
    preflight::{SUBMIT_PLAN, StepEdit},
    session::{ApprovalAnswer, EventRecord, Input, NewMessage, OnBusy, StepAnswer, StepFailure},
    usage::Usage,
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

pub(super) fn write(folder: &Path) {
    for (name, tell, _) in FEATURES {
        write_log(folder, &file(name), &tell());
    }
    write_log(folder, &file("fork_of_a_plan"), &fork_of(&plan_in_parts()));
}

#[test]
fn d7_each_feature_has_its_history() {
    for (name, tell, shows) in FEATURES {
        let on_file = read(&super::folder().join(file(name)).with_extension("jsonl"));
        for log in [on_file, tell()] {
            let mut kinds = log.iter().map(|record| name_of(&record.event));
            let in_order = shows.iter().all(|shown| kinds.any(|kind| kind == *shown));
            assert!(in_order, "{name} does not show {shows:?}");
        }
    }
}

/// A session of that agent, with one message.
fn asked(change: impl FnOnce(&mut AgentProfile)) -> Story {
    let mut agent = AgentProfile::named(rules::agent_name());
    agent.models = vec!["small".to_owned()];
    change(&mut agent);
    let tools = Arc::new(rules::book(1, false));
    let rules = Rules::new(Arc::new(agent), Arc::new(Matrix::default()), tools);
    let mut story = Story { world: World::with_rules(3, rules) };
    story.world.limit = None;
    let (owner, agent) = (user("ann"), rules::agent_name());
    let settings = Settings::default();
    story.take(Input::CreateSession { owner, agent, title: None, settings });
    story.submit("u1");
    story
}

/// Calls these tools, each with its own arguments.
fn calling(story: &mut Story, tools: &[&str]) {
    let arguments = |at: usize| Arguments::Json(json!({"n": at}));
    let calls = tools.iter().enumerate().map(|(at, tool)| (*tool, arguments(at)));
    story.says("Calling.", calls.collect());
}

/// The tool did it.
fn did(story: &mut Story, tool: &str) {
    let structured = Some(json!({"did": tool}));
    let output = ToolOutput { text: format!("did {tool}"), structured, ..ToolOutput::default() };
    story.ends(tool, ToolOutcome::Completed(output));
}

fn told(mut story: Story) -> Vec<EventRecord> {
    story.says("It is done.", vec![]);
    story.world.log
}

fn answer() -> Vec<EventRecord> {
    told(asked(|_| ()))
}

fn parallel() -> Vec<EventRecord> {
    let mut story = asked(|_| ());
    calling(&mut story, &["read", "read_guessed", "low"]);
    for tool in ["read_guessed", "low", "read"] {
        did(&mut story, tool);
    }
    told(story)
}

fn word(story: &Story, tool: &str, approved: bool, arguments: Option<Value>) -> StepAnswer {
    let reason = Some("I looked".to_owned());
    StepAnswer { call_id: story.call(tool), approved, reason, arguments }
}

fn plan_edited() -> Vec<EventRecord> {
    let mut story = asked(|_| ());
    calling(&mut story, &["high"]);
    let edited = word(&story, "high", true, Some(json!({"n": 10, "note": "less"})));
    story.decide(ApprovalAnswer::Steps(vec![edited]), false);
    did(&mut story, "high");
    told(story)
}

fn plan_in_parts() -> Vec<EventRecord> {
    let mut story = asked(|_| ());
    calling(&mut story, &["high", "high_again", "high_beside"]);
    let no = word(&story, "high", false, None);
    story.decide(ApprovalAnswer::Steps(vec![no]), false);
    story.decide(ApprovalAnswer::Whole { approved: true, reason: None }, false);
    for tool in ["high_beside", "high_again"] {
        did(&mut story, tool);
    }
    told(story)
}

fn grant() -> Vec<EventRecord> {
    let mut story = asked(|_| ());
    story.says("", vec![("high", Arguments::Json(json!({"quantity": 5})))]);
    story.decide(ApprovalAnswer::Whole { approved: true, reason: None }, true);
    did(&mut story, "high");
    story.says("", vec![("high", Arguments::Json(json!({"quantity": 6})))]);
    did(&mut story, "high");
    story.take(Input::RevokeGrants { grant_id: None, by: user("ann") });
    told(story)
}

fn denied() -> Vec<EventRecord> {
    let mut story = asked(|_| ());
    calling(&mut story, &["critical"]);
    told(story)
}

fn at_deadline(then: Overdue) -> Story {
    let mut story = asked(|agent| {
        agent.approvals = ApprovalRules::always(Timing { then, ..Timing::default() });
    });
    calling(&mut story, &["high"]);
    story.world.now = story.world.now.after(Duration::from_secs(60));
    story.take(Input::Wake);
    story
}

fn deadline() -> Vec<EventRecord> {
    told(at_deadline(Overdue::Deny))
}

fn escalated() -> Vec<EventRecord> {
    let to = Role::Approver;
    let mut story = at_deadline(Overdue::Escalate { to, within_ms: Some(90_000) });
    story.decide(ApprovalAnswer::Whole { approved: true, reason: None }, false);
    did(&mut story, "high");
    told(story)
}

fn budget() -> Vec<EventRecord> {
    let mut story = asked(|agent| {
        let (scope, period) = (Scope::Session, Period::Total);
        let measure = Measure::unit(rules::UNIT);
        agent.budgets = vec![Budget { scope, period, measure, limit: 0.5 }];
    });
    calling(&mut story, &["low"]);
    story.resolve(Resolution::Raise(20.0));
    did(&mut story, "low");
    told(story)
}

fn unknown_outcome() -> Vec<EventRecord> {
    let mut story = asked(|_| ());
    calling(&mut story, &["low"]);
    story.take(Input::Rehydrated { within: None });
    story.resolve(Resolution::Retry);
    story.take(Input::Rehydrated { within: None });
    story.resolve(Resolution::Done(json!({"done": "by hand"})));
    calling(&mut story, &["low"]);
    story.take(Input::Rehydrated { within: None });
    story.resolve(Resolution::Failed);
    told(story)
}

fn preflight() -> Vec<EventRecord> {
    let mut story = asked(|_| ());
    story.says("Here I am.", vec![]);
    story.submit_with("u2", Some(true));
    let step = |tool: &str| json!({"description": tool, "tool": tool, "arguments": {"n": 0}});
    let plan = json!({"steps": [step("high"), step("critical")], "warnings": []});
    story.says("My plan.", vec![(SUBMIT_PLAN, Arguments::Json(plan))]);
    let skipped = StepEdit { position: 2, skip: true, ..StepEdit::default() };
    story.resolve(Resolution::Approve(vec![skipped]));
    calling(&mut story, &["high"]);
    did(&mut story, "high");
    told(story)
}

fn retries() -> Vec<EventRecord> {
    let mut story = asked(|_| ());
    let failure = ModelFailure::temporary("overloaded");
    let usage = Usage::default();
    story.model(Err(StepFailure { failure, streamed: true, usage }));
    story.wake_at_next();
    calling(&mut story, &["read"]);
    story.ends("read", ToolOutcome::TimedOut { after_ms: 30_000 });
    story.wake_at_next();
    story.ends("read", ToolOutcome::TimedOut { after_ms: 30_000 });
    told(story)
}

/// A message while another run is going, of that kind.
fn meanwhile(story: &mut Story, message_id: &str, on_busy: OnBusy) {
    let digest = Digest::of_bytes(message_id.as_bytes());
    let message_id = MessageId::parse(message_id).expect("it is short");
    let text = "And that too.".into();
    let preflight = None;
    let workflow = None;
    let input = Input::SubmitMessage {
        message: NewMessage { message_id, text, digest, preflight, workflow, traceparent: None },
        on_busy,
    };
    story.take(input);
}

/// One comes in time, one too late.
fn steered() -> Vec<EventRecord> {
    let mut story = asked(|_| ());
    meanwhile(&mut story, "waits", OnBusy::Queue);
    meanwhile(&mut story, "in-time", OnBusy::Steer);
    calling(&mut story, &["read"]);
    did(&mut story, "read");
    meanwhile(&mut story, "too-late", OnBusy::Steer);
    for _ in 0..2 {
        story.says("It is done.", vec![]);
    }
    told(story)
}

fn interrupted() -> Vec<EventRecord> {
    let mut story = asked(|_| ());
    meanwhile(&mut story, "waits", OnBusy::Queue);
    let mut partial = Completion::default();
    partial.message.text = "The pri".to_owned();
    story.take(Input::Interrupt {
        message: NewMessage::new(
            MessageId::parse("at-once").expect("it is short"),
            "No, this.".into(),
            Digest::of_bytes(b"at-once"),
        ),
        by: user("ann"),
        partial: Some(partial),
    });
    story.says("That instead.", vec![]);
    told(story)
}

/// With calls of every fate: done, running, asked about, and not begun.
fn cancelled() -> Vec<EventRecord> {
    let mut story = asked(|_| ());
    meanwhile(&mut story, "waits", OnBusy::Queue);
    calling(&mut story, &["read", "low", "high", "read_guessed"]);
    did(&mut story, "read");
    story.take(Input::Cancel { run_id: None, by: user("ann"), partial: None });
    told(story)
}
