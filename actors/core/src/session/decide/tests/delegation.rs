//! Child sessions: the parent's side and the child's side (S8).

use super::*;
use crate::{
    delegation::{self, ChildTask},
    ids::Seq,
    policy::{BUILT_IN_SERVER, Catalog, ServerProfile},
    session::{Effect, Lifecycle, SessionEvent, SessionRow, SessionStatus},
};

/// Returns the `delegate` tool of an agent that may delegate to these agents.
pub(super) fn delegate(agents: &[&str]) -> Tool {
    let profile = |name: &&str| AgentProfile::new(AgentName::parse(name).unwrap());
    let agents: Vec<_> = agents.iter().map(profile).collect();
    let remote = delegation::delegate_tool(&agents);
    let server =
        ServerProfile { name: BUILT_IN_SERVER.to_owned(), trusted: true, unavailable_reason: None };
    let name = crate::ids::ToolName::parse(delegation::DELEGATE_TOOL).unwrap();
    Catalog::default().resolve_tool(&server, &remote, name)
}

/// Allows the agent to delegate to `researcher` and `writer`.
pub(super) fn with_delegates(harness: SessionHarness) -> SessionHarness {
    let agents = ["researcher", "writer"];
    harness
        .with_agent(|agent| {
            agent.delegates = agents.map(|name| AgentName::parse(name).unwrap()).to_vec();
        })
        .with_rules(|rules| {
            rules.tools = Arc::new(ToolRegistry::new(tools().into_iter().chain([delegate(&[])])));
            rules.delegate = Some(Arc::new(delegate(&agents)));
        })
}

pub(super) fn delegate_call(agent: &str, task: &str) -> ScriptedCall {
    ScriptedCall::Valid(delegation::DELEGATE_TOOL, json!({"agent": agent, "task": task}))
}

/// Returns the tasks of the children that the decision starts.
pub(super) fn child_tasks(decision: &Decision) -> Vec<Arc<ChildTask>> {
    let started_task = |effect: &Effect| match effect {
        Effect::StartChild { task, .. } => Some(task.clone()),
        Effect::StartModel { .. }
        | Effect::StopModel { .. }
        | Effect::StartTool { .. }
        | Effect::AcquireExclusiveLock { .. }
        | Effect::AnswerElicitation { .. }
        | Effect::NarrowChild { .. }
        | Effect::CloseChild { .. }
        | Effect::StopTool { .. } => None,
    };
    decision.effects.iter().filter_map(started_task).collect()
}

/// Returns a session that has delegated one task, and the child that works on it.
fn with_child() -> (SessionHarness, SessionHarness) {
    let mut harness = with_delegates(SessionHarness::with_streaming_step());
    let calls = harness.model_calls(&[delegate_call("researcher", "Find the price")]);
    let decision = harness.apply(calls).unwrap();
    let task = child_tasks(&decision).remove(0);
    (harness, create_child(&task))
}

/// Creates the child of a task, under the parent's rules.
pub(super) fn create_child(task: &Arc<ChildTask>) -> SessionHarness {
    let mut child = SessionHarness::not_created();
    child.state = SessionState::new(task.child);
    child.rules = child.rules.for_child(&task.parent);
    child.apply(Input::CreateChild { task: task.clone() }).unwrap();
    child
}

impl SessionHarness {
    /// Returns the input that mirrors this session's events after that sequence number.
    pub(super) fn child_events_after(&self, after: u64) -> Input {
        let new = self.log.iter().filter(|record| record.seq > Seq(after)).cloned();
        Input::ChildEventsReceived { child: self.state.session_id, records: new.collect() }
    }

    fn close_by(&mut self, user_name: &str) {
        self.apply(Input::CloseSession { by: user(user_name), partial: None }).unwrap();
    }
}

#[test]
fn s8_delegate_call_returns_answer_of_child() {
    let mut harness = with_delegates(SessionHarness::with_streaming_step());
    harness.check(
        harness.model_calls(&[delegate_call("researcher", "Find the price")]),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 delegate read_only @r1.1
        tool_call_allowed c1 by policy @r1.1
        tool_call_attempt_started c1 a2 #1 by researcher s1 @r1.1
        > start_child s1 c1 a2 researcher 'Find the price' after 0
    ",
    );
    assert!(!harness.state.is_waiting_for_approval());
    let answer = ToolOutput { text: "5 ISK".to_owned(), ..ToolOutput::default() };
    harness.check(
        harness.tool_finishes("c1", ToolOutcome::Completed(answer)),
        "
        tool_call_completed c1 '5 ISK' @r1.1
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > close_child s1 c1 after 0 by ann
        > start_model a3 M2 @r1.2
    ",
    );
}

#[test]
fn s8_child_starts_with_its_task_and_closes_after_it() {
    let (_, mut child) = with_child();
    let identity = child.state.metadata.clone().unwrap();
    let parent = identity.parent.unwrap();
    assert_eq!((identity.owner, parent.depth), (user("ann"), 1));
    assert_eq!(parent.root.session_id, parent.session_id);
    let task = child.state.conversation.messages()[0].clone();
    assert!(matches!(task, Message::User { text, .. } if &*text == "Find the price"));
    assert_eq!(child.state.active.title.as_deref(), Some("Find the price"));

    child.check(
        child.model_answers("5 ISK"),
        "
        message_completed M1 '5 ISK' @r1.1
        step_completed EndTurn 10 @r1.1
        run_completed M1 10 @r1.1
        session_closed by ann
    ",
    );
    assert_eq!(child.state.active.lifecycle, Lifecycle::Closed);
    child.check(submit("u1"), "! the session is closed and read-only");
}

#[test]
fn s8_child_closes_when_its_run_ends() {
    let (_, mut child) = with_child();
    child.apply(submit_with("s1", "Only today's", OnBusy::Steer)).unwrap();
    child.check(
        cancel(),
        "
        message_discarded M1 (the run was cancelled) @r1.1
        run_cancelled by ann @r1.1
        run_cancelled by ann @r2
        session_closed by ann
        > stop_model a1
        = cancelled r1
    ",
    );
    let (_, mut child) = with_child();
    child.apply(child.model_fails(ModelFailure::permanent("no such model"), false)).unwrap();
    assert_eq!(child.state.active.lifecycle, Lifecycle::Closed);
}

#[test]
fn s8_child_accepts_only_steering_messages() {
    let (_, mut child) = with_child();
    child.check(submit("u1"), "! is a child session");
    let digest = Digest::hash_bytes(b"u1");
    let interrupt = Input::Interrupt {
        message: NewMessage::new(user("ann"), MessageId::parse("u1").unwrap(), "u1".into(), digest),
        by: user("ann"),
        partial: None,
    };
    child.check(interrupt, "! is a child session");
    child.check(
        submit_with("u2", "Only today's", OnBusy::Steer),
        "
        message_queued u2 @r1.1
        = steers r1 seq 6
    ",
    );
}

#[test]
fn s8_repeated_creation_of_child_is_rejected() {
    let (_, mut child) = with_child();
    let mut harness = with_delegates(SessionHarness::with_streaming_step());
    let calls = harness.model_calls(&[delegate_call("researcher", "Find the price")]);
    let task = child_tasks(&harness.apply(calls).unwrap()).remove(0);
    child.check(Input::CreateChild { task }, "! the session already exists");
}

#[test]
fn s8_delegation_to_unlisted_agent_fails() {
    let mut harness = with_delegates(SessionHarness::with_streaming_step());
    let calls = harness.model_calls(&[delegate_call("boss", "Raise my pay")]);
    let decision = harness.apply(calls).unwrap();
    assert_eq!(child_tasks(&decision), []);
    let failed = |record: &EventRecord| {
        matches!(&record.event,
        SessionEvent::ToolCallFailed { error, .. } if error.contains("`/agent`"))
    };
    assert!(decision.events.iter().any(failed), "{:?}", decision.events);

    let mut harness = SessionHarness::with_streaming_step();
    let calls = harness.model_calls(&[delegate_call("researcher", "Find the price")]);
    assert_eq!(child_tasks(&harness.apply(calls).unwrap()), []);
}

/// Returns the child events that the decision mirrors as `seq type`, with an inner event of a
/// grandchild in brackets.
fn mirrored_events(decision: &Decision) -> Vec<String> {
    fn format_mirrored(record: &EventRecord) -> Option<String> {
        let SessionEvent::ChildEvent { event, .. } = &record.event else { return None };
        let kind = serde_json::to_value(&event.event).unwrap()["type"].clone();
        let inner = format_mirrored(event).map(|inner| format!(" [{inner}]")).unwrap_or_default();
        Some(format!("{} {}{inner}", event.seq, kind.as_str().unwrap()))
    }
    decision.events.iter().filter_map(format_mirrored).collect()
}

const CHILD_START_EVENTS: [&str; 5] = [
    "1 session_created",
    "2 message_accepted",
    "3 run_started",
    "4 step_started",
    "5 message_started",
];

#[test]
fn s8_child_events_are_mirrored_once_in_order() {
    let (mut harness, mut child) = with_child();
    let first = child.child_events_after(0);
    assert_eq!(mirrored_events(&harness.apply(first.clone()).unwrap()), CHILD_START_EVENTS);
    harness.check(first, "");
    child.apply(child.model_answers("a secret price")).unwrap();
    // A gap is ignored, and known events are skipped.
    harness.check(child.child_events_after(7), "");
    let rest = harness.apply(child.child_events_after(3)).unwrap();
    let expected =
        ["6 message_completed", "7 step_completed", "8 run_completed", "9 session_closed"];
    assert_eq!(mirrored_events(&rest), expected);
    let log = serde_json::to_string(&harness.log).unwrap();
    assert!(!log.contains("a secret price"), "message text stays in the child: {log}");
    // The child has closed, but its call is open: another attempt must find the child.
    assert_eq!(harness.state.active.children.len(), 1);
    harness.apply(harness.tool_finishes("c1", completed())).unwrap();
    assert_eq!(harness.state.active.children, []);
    harness.check(child.child_events_after(0), "");
}

#[test]
fn t8_delegate_calls_take_no_exclusive_lock() {
    let mut harness = with_delegates(SessionHarness::with_streaming_step());
    let exclusive = crate::policy::Expression::compile("'all'").ok();
    let delegate = Tool { exclusive, ..delegate(&["researcher"]) };
    harness.rules.delegate = Some(Arc::new(delegate));
    let calls = harness.model_calls(&[delegate_call("researcher", "Find the price")]);
    let decision = harness.apply(calls).unwrap();
    assert_eq!(child_tasks(&decision).len(), 1, "{:?}", decision.effects);
}

#[test]
fn s8_grandchild_events_are_mirrored_to_root() {
    let (mut harness, child) = with_child();
    let mut child = with_delegates(child);
    let delegation = child.model_calls(&[delegate_call("writer", "Write it down")]);
    let task = child_tasks(&child.apply(delegation).unwrap()).remove(0);
    assert_eq!(task.parent.depth, 2);
    assert_eq!(task.parent.root.session_id, harness.state.session_id);
    let grandchild = create_child(&task);
    let before = child.log.len() as u64;
    child.apply(grandchild.child_events_after(0)).unwrap();
    harness.apply(child.child_events_after(0)).unwrap();
    let mirrored: Vec<_> = harness.log.iter().rev().take(5).collect();
    for record in mirrored {
        let agent = AgentName::parse("trader").unwrap();
        let inner = delegation::resolve_source_event(harness.state.session_id, &agent, record);
        assert_eq!(inner.session_id, grandchild.state.session_id);
        assert_eq!(inner.agent.as_str(), "writer");
        assert!(inner.record.seq <= Seq(5));
    }
    assert_eq!(harness.state.active.children[0].mirrored_seq, Seq(before + 5));
}

#[test]
fn s8_cancelled_child_is_kept_until_closed() {
    let (mut harness, mut child) = with_child();
    harness.apply(child.child_events_after(0)).unwrap();
    let id = harness.state.active.children[0].session_id;
    harness.check(
        cancel(),
        &format!(
            "
        tool_call_failed c1 Cancelled (the run was cancelled while researcher worked on the \
         task in session {id}; its earlier actions may have taken effect) @r1.1
        run_cancelled by ann @r1.1
        > close_child s1 c1 after 5 by ann
        = cancelled r1
    "
        ),
    );
    assert!(!harness.state.is_idle(), "the child must be closed");
    let status = |harness: &SessionHarness| SessionRow::from_state(&harness.state).unwrap().status;
    assert_eq!(status(&harness), SessionStatus::Running);
    // The process dies before the child is closed.
    harness.check(Input::Rehydrated { user_settings: None }, "> close_child s1 c1 after 5 by ann");
    // The rest of the child's events is mirrored, no matter which user closed the child.
    child.close_by("ann");
    let rest = harness.apply(child.child_events_after(5)).unwrap();
    assert_eq!(
        mirrored_events(&rest),
        ["6 message_discarded", "7 run_cancelled", "8 session_closed"]
    );
    assert!(rest.events.iter().all(|record| record.run_id == Some(harness.run("r1"))));
    assert_eq!(status(&harness), SessionStatus::Idle);
    harness.check(Input::Rehydrated { user_settings: None }, "");
}

#[test]
fn s8_closing_parent_closes_child() {
    let (mut harness, mut child) = with_child();
    harness.close_by("ann");
    let status = |harness: &SessionHarness| SessionRow::from_state(&harness.state).unwrap().status;
    assert_eq!(
        status(&harness),
        SessionStatus::Running,
        "a restart must resume it to close the child"
    );
    child.close_by("ann");
    harness.apply(child.child_events_after(0)).unwrap();
    assert_eq!(status(&harness), SessionStatus::Closed);
}

#[test]
fn s8_child_closes_after_its_own_children() {
    let (mut harness, child) = with_child();
    let mut child = with_delegates(child);
    let delegation = child.model_calls(&[delegate_call("writer", "Write it down")]);
    let task = child_tasks(&child.apply(delegation).unwrap()).remove(0);
    let mut grandchild = create_child(&task);
    harness.apply(cancel()).unwrap();
    child.close_by("ann");
    assert_eq!(child.state.active.lifecycle, Lifecycle::Open);
    assert!(child.state.active.run.is_none());
    let status = SessionRow::from_state(&child.state).unwrap().status;
    assert_eq!(status, SessionStatus::Running, "a restart must resume the child");
    grandchild.close_by("ann");
    child.apply(grandchild.child_events_after(0)).unwrap();
    assert_eq!(child.state.active.lifecycle, Lifecycle::Closed);
    // The child's end is the last event that is mirrored to the root.
    let mirrored = mirrored_events(&harness.apply(child.child_events_after(0)).unwrap());
    assert!(mirrored.last().unwrap().ends_with(" session_closed"), "{mirrored:?}");
    assert!(mirrored[mirrored.len() - 2].ends_with("[8 session_closed]"), "{mirrored:?}");
    assert!(harness.state.is_idle());
}

#[test]
fn s8_child_without_log_is_removed() {
    let (mut harness, _) = with_child();
    harness.apply(cancel()).unwrap();
    let child_gone_input = Input::ChildGone { child: harness.state.active.children[0].session_id };
    harness.check(child_gone_input.clone(), "child_gone s1 c1 @r1");
    assert!(harness.state.is_idle());
    harness.check(child_gone_input, "");
}

#[test]
fn s8_d3_restart_reattaches_call_to_child() {
    let (mut harness, child) = with_child();
    harness.apply(child.child_events_after(0)).unwrap();
    let before = harness.state.active.children.clone();
    harness.check(
        Input::Rehydrated { user_settings: None },
        "
        tool_call_retrying c1 #1 failures 0 (the server restarted) @r1.1
        tool_call_attempt_started c1 a4 #2 by researcher s1 @r1.1
        > start_child s1 c1 a4 researcher 'Find the price' after 5
    ",
    );
    assert_eq!(harness.state.active.children, before);
    harness.apply(harness.tool_finishes("c1", completed())).unwrap();
    assert_eq!(harness.state.active.run.as_ref().unwrap().step, 2);
}

#[test]
fn s8_children_run_in_parallel_up_to_limit() {
    let mut harness = with_delegates(SessionHarness::with_streaming_step())
        .with_rules(|rules| rules.children_max = 2);
    let calls = ["one", "two", "three"].map(|task| delegate_call("researcher", task));
    let started = harness.apply(harness.model_calls(&calls)).unwrap();
    let tasks = |decision: &Decision| -> Vec<String> {
        child_tasks(decision).iter().map(|task| task.prompt.to_string()).collect()
    };
    assert_eq!(tasks(&started), ["one", "two"]);
    // The second child frees its slot once it has closed, not when its result arrives.
    let mut second = create_child(&child_tasks(&started)[1]);
    second.apply(second.model_answers("2")).unwrap();
    harness.apply(second.child_events_after(0)).unwrap();
    let next = harness.apply(harness.tool_finishes("c2", completed())).unwrap();
    assert_eq!(tasks(&next), ["three"]);
}

#[test]
fn s8_child_inherits_bounds_of_parent() {
    let harness = with_delegates(SessionHarness::with_streaming_step()).with_agent(|agent| {
        agent.headless = true;
        agent.inherited_tools = Some(["read*".to_owned(), "delegate".to_owned()].into());
    });
    let mut harness = harness.with_rules(|rules| rules.delegation_depth_max = 1);
    let calls = harness.model_calls(&[delegate_call("researcher", "Find the price")]);
    let task = child_tasks(&harness.apply(calls).unwrap()).remove(0);
    assert_eq!(task.settings, harness.state.active.settings);
    let mut child = with_delegates(create_child(&task));
    let mut rules = child.rules.clone();
    rules.delegation_depth_max = 1;
    child.rules = rules.for_child(&task.parent);
    assert!(child.rules.agent.headless);
    let may = ["read", "high", "delegate"].map(|tool| child.rules.agent.can_use_tool(tool));
    assert_eq!(may, [true, false, false]);
}

#[test]
fn s8_narrowed_settings_narrow_running_child() {
    let (mut harness, mut child) = with_child();
    let level = |level| Settings { autonomy_level: level, ..Settings::default() };
    let settings = level(Autonomy::ReadOnly);
    harness.check(
        Input::ChangeSettings { patch: settings.clone().into(), title: None, by: user("ann") },
        "
        session_settings_changed L0 u1 by ann
        > narrow_child s1 L0
    ",
    );
    let narrow = Input::NarrowSettings { parent_settings: settings.into() };
    child.check(narrow.clone(), "session_settings_changed L0 Find the price by ann");
    child.check(narrow, "");
    // The child's settings can't be widened again.
    child.check(Input::NarrowSettings { parent_settings: level(Autonomy::Supervised).into() }, "");
    let widen = Input::ChangeSettings {
        patch: level(Autonomy::Supervised).into(),
        title: None,
        by: user("ann"),
    };
    assert!(matches!(child.apply(widen), Err(Rejection::ChildSettingsWidened { .. })));
}
