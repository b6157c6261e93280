//! Tasks for other agents (S8): a parent's side, and a child's.

use super::*;
use crate::{
    delegation::{self, ChildTask},
    ids::Seq,
    policy::{BUILT_IN_SERVER, Catalog, ServerProfile},
    session::{Effect, Lifecycle, SessionEvent, SessionRow, SessionStatus},
};

/// The tool of an agent that may ask these agents.
fn delegate(agents: &[&str]) -> Tool {
    let named = |name: &&str| AgentProfile::new(AgentName::parse(name).unwrap());
    let agents: Vec<_> = agents.iter().map(named).collect();
    let remote = delegation::delegate_tool(&agents);
    let server =
        ServerProfile { name: BUILT_IN_SERVER.to_owned(), trusted: true, unavailable_reason: None };
    let name = crate::ids::ToolName::parse(delegation::DELEGATE_TOOL).unwrap();
    Catalog::default().resolve_tool(&server, &remote, name)
}

/// Lets the agent ask `researcher` and `writer`.
pub(super) fn with_delegates(scene: SessionHarness) -> SessionHarness {
    let agents = ["researcher", "writer"];
    scene
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

/// What is to be done, by the effects of the decision.
pub(super) fn child_tasks(decision: &Decision) -> Vec<Arc<ChildTask>> {
    let of = |effect: &Effect| match effect {
        Effect::StartChild { task: errand, .. } => Some(errand.clone()),
        Effect::StartModel { .. }
        | Effect::StopModel { .. }
        | Effect::StartTool { .. }
        | Effect::AcquireExclusiveLock { .. }
        | Effect::AnswerElicitation { .. }
        | Effect::NarrowChild { .. }
        | Effect::CloseChild { .. }
        | Effect::StopTool { .. } => None,
    };
    decision.effects.iter().filter_map(of).collect()
}

/// A session that has handed on one task, and the child that does it.
fn with_child() -> (SessionHarness, SessionHarness) {
    let mut scene = with_delegates(SessionHarness::with_streaming_step());
    let calls = scene.model_calls(&[delegate_call("researcher", "Find the price")]);
    let decision = scene.apply(calls).unwrap();
    let errand = child_tasks(&decision).remove(0);
    (scene, create_child(&errand))
}

/// The child that does it, under the same rules.
pub(super) fn create_child(errand: &Arc<ChildTask>) -> SessionHarness {
    let mut child = SessionHarness::not_created();
    child.state = SessionState::new(errand.child);
    child.rules = child.rules.for_child(&errand.parent);
    child.apply(Input::CreateChild { task: errand.clone() }).unwrap();
    child
}

impl SessionHarness {
    /// What the parent is told of this session's events after that one.
    pub(super) fn child_events_after(&self, after: u64) -> Input {
        let new = self.log.iter().filter(|record| record.seq > Seq(after)).cloned();
        Input::ChildEventsReceived { child: self.state.session_id, records: new.collect() }
    }

    fn close_by(&mut self, by: &str) {
        self.apply(Input::CloseSession { by: user(by), partial: None }).unwrap();
    }
}

#[test]
fn s8_a_task_starts_a_child_and_its_answer_is_the_result() {
    let mut scene = with_delegates(SessionHarness::with_streaming_step());
    scene.check(
        scene.model_calls(&[delegate_call("researcher", "Find the price")]),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 delegate read_only @r1.1
        tool_call_allowed c1 by policy @r1.1
        tool_call_attempt_started c1 a2 #1 by researcher s1 @r1.1
        > start_child s1 c1 a2 researcher 'Find the price' after 0
    ",
    );
    assert!(!scene.state.is_waiting_for_approval());
    let answer = ToolOutput { text: "5 ISK".to_owned(), ..ToolOutput::default() };
    scene.check(
        scene.tool_finishes("c1", ToolOutcome::Completed(answer)),
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
fn s8_a_child_begins_with_its_task_and_ends_with_it() {
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
    child.check(submit("u1"), "! the session is closed and can only be read");
}

#[test]
fn s8_whatever_ends_its_run_ends_the_child() {
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
fn s8_a_childs_tasks_are_its_parents_and_people_may_steer() {
    let (_, mut child) = with_child();
    child.check(submit("u1"), "! works for another");
    let digest = Digest::hash_bytes(b"u1");
    let interrupt = Input::Interrupt {
        message: NewMessage::new(MessageId::parse("u1").unwrap(), "u1".into(), digest),
        by: user("ann"),
        partial: None,
    };
    child.check(interrupt, "! works for another");
    child.check(
        submit_with("u2", "Only today's", OnBusy::Steer),
        "
        message_queued u2 @r1.1
        = steers r1 seq 6
    ",
    );
}

#[test]
fn s8_there_is_one_child_however_often_it_is_created() {
    let (_, mut child) = with_child();
    let mut scene = with_delegates(SessionHarness::with_streaming_step());
    let calls = scene.model_calls(&[delegate_call("researcher", "Find the price")]);
    let errand = child_tasks(&scene.apply(calls).unwrap()).remove(0);
    child.check(Input::CreateChild { task: errand }, "! the session exists already");
}

#[test]
fn s8_delegating_to_unlisted_agents_fails() {
    let mut scene = with_delegates(SessionHarness::with_streaming_step());
    let calls = scene.model_calls(&[delegate_call("boss", "Raise my pay")]);
    let decision = scene.apply(calls).unwrap();
    assert_eq!(child_tasks(&decision), []);
    let failed = |record: &EventRecord| {
        matches!(&record.event,
        SessionEvent::ToolCallFailed { error, .. } if error.contains("`/agent`"))
    };
    assert!(decision.events.iter().any(failed), "{:?}", decision.events);

    let mut scene = SessionHarness::with_streaming_step();
    let calls = scene.model_calls(&[delegate_call("researcher", "Find the price")]);
    assert_eq!(child_tasks(&scene.apply(calls).unwrap()), []);
}

/// The events of children that the decision mirrors: `seq type`, in brackets those of a child's child.
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
fn s8_what_happens_in_a_child_is_mirrored_once_and_in_order() {
    let (mut scene, mut child) = with_child();
    let first = child.child_events_after(0);
    assert_eq!(mirrored_events(&scene.apply(first.clone()).unwrap()), CHILD_START_EVENTS);
    scene.check(first, "");
    child.apply(child.model_answers("a secret price")).unwrap();
    // Some of it is known; and what does not follow is not taken.
    scene.check(child.child_events_after(7), "");
    let rest = scene.apply(child.child_events_after(3)).unwrap();
    let expected =
        ["6 message_completed", "7 step_completed", "8 run_completed", "9 session_closed"];
    assert_eq!(mirrored_events(&rest), expected);
    let log = serde_json::to_string(&scene.log).unwrap();
    assert!(!log.contains("a secret price"), "what was said is the child's: {log}");
    // It is over, and its call is not: another attempt would find it.
    assert_eq!(scene.state.active.children.len(), 1);
    scene.apply(scene.tool_finishes("c1", completed())).unwrap();
    assert_eq!(scene.state.active.children, []);
    scene.check(child.child_events_after(0), "");
}

#[test]
fn t8_delegate_calls_take_no_exclusive_lock() {
    let mut scene = with_delegates(SessionHarness::with_streaming_step());
    let exclusive = crate::policy::Expression::compile("'all'").ok();
    let delegate = Tool { exclusive, ..delegate(&["researcher"]) };
    scene.rules.delegate = Some(Arc::new(delegate));
    let calls = scene.model_calls(&[delegate_call("researcher", "Find the price")]);
    let decision = scene.apply(calls).unwrap();
    assert_eq!(child_tasks(&decision).len(), 1, "{:?}", decision.effects);
}

#[test]
fn s8_grandchild_events_are_mirrored_to_the_root() {
    let (mut scene, child) = with_child();
    let mut child = with_delegates(child);
    let asks = child.model_calls(&[delegate_call("writer", "Write it down")]);
    let errand = child_tasks(&child.apply(asks).unwrap()).remove(0);
    assert_eq!(errand.parent.depth, 2);
    assert_eq!(errand.parent.root.session_id, scene.state.session_id);
    let grandchild = create_child(&errand);
    let before = child.log.len() as u64;
    child.apply(grandchild.child_events_after(0)).unwrap();
    scene.apply(child.child_events_after(0)).unwrap();
    let told: Vec<_> = scene.log.iter().rev().take(5).collect();
    for record in told {
        let agent = AgentName::parse("trader").unwrap();
        let inner = delegation::resolve_source_event(scene.state.session_id, &agent, record);
        assert_eq!(inner.session_id, grandchild.state.session_id);
        assert_eq!(inner.agent.as_str(), "writer");
        assert!(inner.record.seq <= Seq(5));
    }
    assert_eq!(scene.state.active.children[0].mirrored_seq, Seq(before + 5));
}

#[test]
fn s8_a_cancel_is_kept_until_the_child_has_closed() {
    let (mut scene, mut child) = with_child();
    scene.apply(child.child_events_after(0)).unwrap();
    let id = scene.state.active.children[0].session_id;
    scene.check(
        cancel(),
        &format!(
            "
        tool_call_failed c1 Cancelled (the run was cancelled while researcher worked on it in \
         session {id}; what that did before may have taken effect) @r1.1
        run_cancelled by ann @r1.1
        > close_child s1 c1 after 5 by ann
        = cancelled r1
    "
        ),
    );
    assert!(!scene.state.is_idle(), "somebody must see to the child");
    let status = |scene: &SessionHarness| SessionRow::from_state(&scene.state).unwrap().status;
    assert_eq!(status(&scene), SessionStatus::Running);
    // The process dies before the child has heard it.
    scene.check(Input::Rehydrated { user_settings: None }, "> close_child s1 c1 after 5 by ann");
    // Whoever closes it, it is mirrored to the end.
    child.close_by("ann");
    let rest = scene.apply(child.child_events_after(5)).unwrap();
    assert_eq!(
        mirrored_events(&rest),
        ["6 message_discarded", "7 run_cancelled", "8 session_closed"]
    );
    assert!(rest.events.iter().all(|record| record.run_id == Some(scene.run("r1"))));
    assert_eq!(status(&scene), SessionStatus::Idle);
    scene.check(Input::Rehydrated { user_settings: None }, "");
}

#[test]
fn s8_closing_the_parent_closes_the_child() {
    let (mut scene, mut child) = with_child();
    scene.close_by("ann");
    let status = |scene: &SessionHarness| SessionRow::from_state(&scene.state).unwrap().status;
    assert_eq!(status(&scene), SessionStatus::Running, "it comes back to tell the child");
    child.close_by("ann");
    scene.apply(child.child_events_after(0)).unwrap();
    assert_eq!(status(&scene), SessionStatus::Closed);
}

#[test]
fn s8_a_child_closes_after_those_that_work_for_it() {
    let (mut scene, child) = with_child();
    let mut child = with_delegates(child);
    let asks = child.model_calls(&[delegate_call("writer", "Write it down")]);
    let errand = child_tasks(&child.apply(asks).unwrap()).remove(0);
    let mut grandchild = create_child(&errand);
    scene.apply(cancel()).unwrap();
    child.close_by("ann");
    assert_eq!(child.state.active.lifecycle, Lifecycle::Open);
    assert!(child.state.active.run.is_none());
    let status = SessionRow::from_state(&child.state).unwrap().status;
    assert_eq!(status, SessionStatus::Running, "a restart must bring it back");
    grandchild.close_by("ann");
    child.apply(grandchild.child_events_after(0)).unwrap();
    assert_eq!(child.state.active.lifecycle, Lifecycle::Closed);
    // Its end is the last that the root hears.
    let told = mirrored_events(&scene.apply(child.child_events_after(0)).unwrap());
    assert!(told.last().unwrap().ends_with(" session_closed"), "{told:?}");
    assert!(told[told.len() - 2].ends_with("[8 session_closed]"), "{told:?}");
    assert!(scene.state.is_idle());
}

#[test]
fn s8_a_child_without_a_log_is_removed() {
    let (mut scene, _) = with_child();
    scene.apply(cancel()).unwrap();
    let gone = Input::ChildGone { child: scene.state.active.children[0].session_id };
    scene.check(gone.clone(), "child_gone s1 c1 @r1");
    assert!(scene.state.is_idle());
    scene.check(gone, "");
}

#[test]
fn s8_d3_after_a_restart_the_call_finds_its_child_again() {
    let (mut scene, child) = with_child();
    scene.apply(child.child_events_after(0)).unwrap();
    let before = scene.state.active.children.clone();
    scene.check(
        Input::Rehydrated { user_settings: None },
        "
        tool_call_retrying c1 #1 failures 0 (the server restarted) @r1.1
        tool_call_attempt_started c1 a4 #2 by researcher s1 @r1.1
        > start_child s1 c1 a4 researcher 'Find the price' after 5
    ",
    );
    assert_eq!(scene.state.active.children, before);
    scene.apply(scene.tool_finishes("c1", completed())).unwrap();
    assert_eq!(scene.state.active.run.as_ref().unwrap().step, 2);
}

#[test]
fn s8_as_many_children_as_allowed_work_side_by_side() {
    let mut scene = with_delegates(SessionHarness::with_streaming_step())
        .with_rules(|rules| rules.children_max = 2);
    let wanted = ["one", "two", "three"].map(|task| delegate_call("researcher", task));
    let started = scene.apply(scene.model_calls(&wanted)).unwrap();
    let tasks = |decision: &Decision| -> Vec<String> {
        child_tasks(decision).iter().map(|errand| errand.prompt.to_string()).collect()
    };
    assert_eq!(tasks(&started), ["one", "two"]);
    // Its result is there, and it works no more only once it has closed.
    let mut second = create_child(&child_tasks(&started)[1]);
    second.apply(second.model_answers("2")).unwrap();
    scene.apply(second.child_events_after(0)).unwrap();
    let next = scene.apply(scene.tool_finishes("c2", completed())).unwrap();
    assert_eq!(tasks(&next), ["three"]);
}

#[test]
fn s8_a_child_is_bounded_as_its_parent_is() {
    let scene = with_delegates(SessionHarness::with_streaming_step()).with_agent(|agent| {
        agent.headless = true;
        agent.inherited_tools = Some(["read*".to_owned(), "delegate".to_owned()].into());
    });
    let mut scene = scene.with_rules(|rules| rules.delegation_depth_max = 1);
    let calls = scene.model_calls(&[delegate_call("researcher", "Find the price")]);
    let errand = child_tasks(&scene.apply(calls).unwrap()).remove(0);
    assert_eq!(errand.settings, scene.state.active.settings);
    let mut child = with_delegates(create_child(&errand));
    let mut rules = child.rules.clone();
    rules.delegation_depth_max = 1;
    child.rules = rules.for_child(&errand.parent);
    assert!(child.rules.agent.headless);
    let may = ["read", "high", "delegate"].map(|tool| child.rules.agent.can_use_tool(tool));
    assert_eq!(may, [true, false, false]);
}

#[test]
fn s8_settings_that_narrow_while_a_child_works_narrow_the_child() {
    let (mut scene, mut child) = with_child();
    let level = |level| Settings { autonomy_level: level, ..Settings::default() };
    let settings = level(Autonomy::ReadOnly);
    scene.check(
        Input::ChangeSettings { patch: settings.clone().into(), title: None, by: user("ann") },
        "
        session_settings_changed L0 u1 by ann
        > narrow_child s1 L0
    ",
    );
    let narrow = Input::NarrowSettings { parent_settings: settings.into() };
    child.check(narrow.clone(), "session_settings_changed L0 Find the price by ann");
    child.check(narrow, "");
    // It is not widened again, by nobody.
    child.check(Input::NarrowSettings { parent_settings: level(Autonomy::Supervised).into() }, "");
    let widen = Input::ChangeSettings {
        patch: level(Autonomy::Supervised).into(),
        title: None,
        by: user("ann"),
    };
    assert!(matches!(child.apply(widen), Err(Rejection::ChildSettingsWidened { .. })));
}
