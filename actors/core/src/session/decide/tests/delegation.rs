//! Tasks for other agents (S8): a parent's side, and a child's.

use super::*;
use crate::{
    delegation::{self, Errand},
    ids::Seq,
    policy::{BUILT_IN, Catalog, ServerFacts},
    session::{Effect, Lifecycle, SessionEvent, SessionRow, SessionStatus},
};

/// The tool of an agent that may ask these agents.
fn delegate(agents: &[&str]) -> Tool {
    let named = |name: &&str| AgentProfile::named(AgentName::parse(name).unwrap());
    let agents: Vec<_> = agents.iter().map(named).collect();
    let remote = delegation::tool(&agents);
    let server = ServerFacts { name: BUILT_IN.to_owned(), trusted: true, unavailable: None };
    let name = crate::ids::ToolName::parse(delegation::DELEGATE).unwrap();
    Catalog::default().describe(&server, &remote, name)
}

/// Lets the agent ask `researcher` and `writer`.
pub(super) fn with_delegates(scene: Scene) -> Scene {
    let agents = ["researcher", "writer"];
    scene
        .agent(|agent| {
            agent.delegates = agents.map(|name| AgentName::parse(name).unwrap()).to_vec();
        })
        .rules(|rules| {
            rules.tools = Arc::new(ToolBook::new(tools().into_iter().chain([delegate(&[])])));
            rules.delegate = Some(Arc::new(delegate(&agents)));
        })
}

pub(super) fn ask(agent: &str, task: &str) -> Wanted {
    Wanted::With(delegation::DELEGATE, json!({"agent": agent, "task": task}))
}

/// What is to be done, by the effects of the decision.
pub(super) fn errands(decision: &Decision) -> Vec<Arc<Errand>> {
    let of = |effect: &Effect| match effect {
        Effect::StartChild { errand, .. } => Some(errand.clone()),
        Effect::StartModel { .. }
        | Effect::StopModel { .. }
        | Effect::StartTool { .. }
        | Effect::AwaitTurn { .. }
        | Effect::AnswerTool { .. }
        | Effect::NarrowChild { .. }
        | Effect::CloseChild { .. }
        | Effect::StopTool { .. } => None,
    };
    decision.effects.iter().filter_map(of).collect()
}

/// A session that has handed on one task, and the child that does it.
fn with_child() -> (Scene, Scene) {
    let mut scene = with_delegates(Scene::streaming());
    let calls = scene.model_calls(&[ask("researcher", "Find the price")]);
    let decision = scene.does(calls).unwrap();
    let errand = errands(&decision).remove(0);
    (scene, child_of(&errand))
}

/// The child that does it, under the same rules.
pub(super) fn child_of(errand: &Arc<Errand>) -> Scene {
    let mut child = Scene::vacant();
    child.state = SessionState::vacant(errand.child);
    child.rules = child.rules.under(&errand.parent);
    child.does(Input::CreateChild { errand: errand.clone() }).unwrap();
    child
}

impl Scene {
    /// What the parent is told of this session's events after that one.
    pub(super) fn news(&self, after: u64) -> Input {
        let new = self.log.iter().filter(|record| record.seq > Seq(after)).cloned();
        Input::ChildAdvanced { child: self.state.session_id, records: new.collect() }
    }

    fn close_by(&mut self, by: &str) {
        self.does(Input::Close { by: user(by), partial: None }).unwrap();
    }
}

#[test]
fn s8_a_task_starts_a_child_and_its_answer_is_the_result() {
    let mut scene = with_delegates(Scene::streaming());
    scene.check(
        scene.model_calls(&[ask("researcher", "Find the price")]),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 delegate read_only @r1.1
        tool_call_allowed c1 by policy @r1.1
        tool_call_attempt_started c1 a2 #1 by researcher s1 @r1.1
        > start_child s1 c1 a2 researcher 'Find the price' after 0
    ",
    );
    assert!(!scene.state.is_waiting_for_people());
    let answer = ToolOutput { text: "5 ISK".to_owned(), ..ToolOutput::default() };
    scene.check(
        scene.tool("c1", ToolOutcome::Completed(answer)),
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
    let identity = child.state.identity.clone().unwrap();
    let parent = identity.parent.unwrap();
    assert_eq!((identity.owner, parent.depth), (user("ann"), 1));
    assert_eq!(parent.root.session_id, parent.session_id);
    let task = child.state.conversation.messages()[0].clone();
    assert!(matches!(task, Message::User { text, .. } if &*text == "Find the price"));
    assert_eq!(child.state.active.title.as_deref(), Some("Find the price"));

    child.check(
        child.model_says("5 ISK"),
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
    child.does(submit_with("s1", "Only today's", OnBusy::Steer)).unwrap();
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
    child.does(child.model_fails(ModelFailure::permanent("no such model"), false)).unwrap();
    assert_eq!(child.state.active.lifecycle, Lifecycle::Closed);
}

#[test]
fn s8_a_childs_tasks_are_its_parents_and_people_may_steer() {
    let (_, mut child) = with_child();
    child.check(submit("u1"), "! works for another");
    let digest = Digest::of_bytes(b"u1");
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
    let mut scene = with_delegates(Scene::streaming());
    let calls = scene.model_calls(&[ask("researcher", "Find the price")]);
    let errand = errands(&scene.does(calls).unwrap()).remove(0);
    child.check(Input::CreateChild { errand }, "! the session exists already");
}

#[test]
fn s8_agents_that_it_may_not_ask_are_refused_by_name() {
    let mut scene = with_delegates(Scene::streaming());
    let calls = scene.model_calls(&[ask("boss", "Raise my pay")]);
    let decision = scene.does(calls).unwrap();
    assert_eq!(errands(&decision), []);
    let failed = |record: &EventRecord| {
        matches!(&record.event,
        SessionEvent::ToolCallFailed { error, .. } if error.contains("`/agent`"))
    };
    assert!(decision.events.iter().any(failed), "{:?}", decision.events);

    let mut scene = Scene::streaming();
    let calls = scene.model_calls(&[ask("researcher", "Find the price")]);
    assert_eq!(errands(&scene.does(calls).unwrap()), []);
}

/// The events of children that the decision mirrors: `seq type`, in brackets those of a child's child.
fn mirrors(decision: &Decision) -> Vec<String> {
    fn told(record: &EventRecord) -> Option<String> {
        let SessionEvent::ChildEvent { event, .. } = &record.event else { return None };
        let kind = serde_json::to_value(&event.event).unwrap()["type"].clone();
        let inner = told(event).map(|inner| format!(" [{inner}]")).unwrap_or_default();
        Some(format!("{} {}{inner}", event.seq, kind.as_str().unwrap()))
    }
    decision.events.iter().filter_map(told).collect()
}

const BEGINNING: [&str; 5] = [
    "1 session_created",
    "2 message_accepted",
    "3 run_started",
    "4 step_started",
    "5 message_started",
];

#[test]
fn s8_what_happens_in_a_child_is_mirrored_once_and_in_order() {
    let (mut scene, mut child) = with_child();
    let first = child.news(0);
    assert_eq!(mirrors(&scene.does(first.clone()).unwrap()), BEGINNING);
    scene.check(first, "");
    child.does(child.model_says("a secret price")).unwrap();
    // Some of it is known; and what does not follow is not taken.
    scene.check(child.news(7), "");
    let rest = scene.does(child.news(3)).unwrap();
    let expected =
        ["6 message_completed", "7 step_completed", "8 run_completed", "9 session_closed"];
    assert_eq!(mirrors(&rest), expected);
    let log = serde_json::to_string(&scene.log).unwrap();
    assert!(!log.contains("a secret price"), "what was said is the child's: {log}");
    // It is over, and its call is not: another attempt would find it.
    assert_eq!(scene.state.active.children.len(), 1);
    scene.does(scene.tool("c1", completed())).unwrap();
    assert_eq!(scene.state.active.children, []);
    scene.check(child.news(0), "");
}

#[test]
fn t8_a_task_takes_no_turn_which_its_own_calls_may_need() {
    let mut scene = with_delegates(Scene::streaming());
    let exclusive = crate::policy::Expression::compile("'all'").ok();
    let delegate = Tool { exclusive, ..delegate(&["researcher"]) };
    scene.rules.delegate = Some(Arc::new(delegate));
    let calls = scene.model_calls(&[ask("researcher", "Find the price")]);
    let decision = scene.does(calls).unwrap();
    assert_eq!(errands(&decision).len(), 1, "{:?}", decision.effects);
}

#[test]
fn s8_a_childs_child_is_told_of_to_the_root() {
    let (mut scene, child) = with_child();
    let mut child = with_delegates(child);
    let asks = child.model_calls(&[ask("writer", "Write it down")]);
    let errand = errands(&child.does(asks).unwrap()).remove(0);
    assert_eq!(errand.parent.depth, 2);
    assert_eq!(errand.parent.root.session_id, scene.state.session_id);
    let grandchild = child_of(&errand);
    let before = child.log.len() as u64;
    child.does(grandchild.news(0)).unwrap();
    scene.does(child.news(0)).unwrap();
    let told: Vec<_> = scene.log.iter().rev().take(5).collect();
    for record in told {
        let agent = AgentName::parse("trader").unwrap();
        let inner = delegation::innermost(scene.state.session_id, &agent, record);
        assert_eq!(inner.session_id, grandchild.state.session_id);
        assert_eq!(inner.agent.as_str(), "writer");
        assert!(inner.record.seq <= Seq(5));
    }
    assert_eq!(scene.state.active.children[0].mirrored, Seq(before + 5));
}

#[test]
fn s8_a_cancel_reaches_the_child_and_is_remembered_until_it_has() {
    let (mut scene, mut child) = with_child();
    scene.does(child.news(0)).unwrap();
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
    let status = |scene: &Scene| SessionRow::of(&scene.state).unwrap().status;
    assert_eq!(status(&scene), SessionStatus::Running);
    // The process dies before the child has heard it.
    scene.check(Input::Rehydrated { within: None }, "> close_child s1 c1 after 5 by ann");
    // Whoever closes it, it is mirrored to the end.
    child.close_by("ann");
    let rest = scene.does(child.news(5)).unwrap();
    assert_eq!(mirrors(&rest), ["6 message_discarded", "7 run_cancelled", "8 session_closed"]);
    assert!(rest.events.iter().all(|record| record.run_id == Some(scene.run("r1"))));
    assert_eq!(status(&scene), SessionStatus::Idle);
    scene.check(Input::Rehydrated { within: None }, "");
}

#[test]
fn s8_closing_the_parent_closes_the_child() {
    let (mut scene, mut child) = with_child();
    scene.close_by("ann");
    let status = |scene: &Scene| SessionRow::of(&scene.state).unwrap().status;
    assert_eq!(status(&scene), SessionStatus::Running, "it comes back to tell the child");
    child.close_by("ann");
    scene.does(child.news(0)).unwrap();
    assert_eq!(status(&scene), SessionStatus::Closed);
}

#[test]
fn s8_a_child_closes_after_those_that_work_for_it() {
    let (mut scene, child) = with_child();
    let mut child = with_delegates(child);
    let asks = child.model_calls(&[ask("writer", "Write it down")]);
    let errand = errands(&child.does(asks).unwrap()).remove(0);
    let mut grandchild = child_of(&errand);
    scene.does(cancel()).unwrap();
    child.close_by("ann");
    assert_eq!(child.state.active.lifecycle, Lifecycle::Open);
    assert!(child.state.active.run.is_none());
    let status = SessionRow::of(&child.state).unwrap().status;
    assert_eq!(status, SessionStatus::Running, "a restart must bring it back");
    grandchild.close_by("ann");
    child.does(grandchild.news(0)).unwrap();
    assert_eq!(child.state.active.lifecycle, Lifecycle::Closed);
    // Its end is the last that the root hears.
    let told = mirrors(&scene.does(child.news(0)).unwrap());
    assert!(told.last().unwrap().ends_with(" session_closed"), "{told:?}");
    assert!(told[told.len() - 2].ends_with("[8 session_closed]"), "{told:?}");
    assert!(scene.state.is_idle());
}

#[test]
fn s8_a_child_that_never_was_is_forgotten() {
    let (mut scene, _) = with_child();
    scene.does(cancel()).unwrap();
    let gone = Input::ChildGone { child: scene.state.active.children[0].session_id };
    scene.check(gone.clone(), "child_gone s1 c1 @r1");
    assert!(scene.state.is_idle());
    scene.check(gone, "");
}

#[test]
fn s8_d3_after_a_restart_the_call_finds_its_child_again() {
    let (mut scene, child) = with_child();
    scene.does(child.news(0)).unwrap();
    let before = scene.state.active.children.clone();
    scene.check(
        Input::Rehydrated { within: None },
        "
        tool_call_retrying c1 #1 failures 0 (the server restarted) @r1.1
        tool_call_attempt_started c1 a4 #2 by researcher s1 @r1.1
        > start_child s1 c1 a4 researcher 'Find the price' after 5
    ",
    );
    assert_eq!(scene.state.active.children, before);
    scene.does(scene.tool("c1", completed())).unwrap();
    assert_eq!(scene.state.active.run.as_ref().unwrap().step, 2);
}

#[test]
fn s8_as_many_children_as_allowed_work_side_by_side() {
    let mut scene = with_delegates(Scene::streaming()).rules(|rules| rules.children_max = 2);
    let wanted = ["one", "two", "three"].map(|task| ask("researcher", task));
    let started = scene.does(scene.model_calls(&wanted)).unwrap();
    let tasks = |decision: &Decision| -> Vec<String> {
        errands(decision).iter().map(|errand| errand.task.to_string()).collect()
    };
    assert_eq!(tasks(&started), ["one", "two"]);
    // Its result is there, and it works no more only once it has closed.
    let mut second = child_of(&errands(&started)[1]);
    second.does(second.model_says("2")).unwrap();
    scene.does(second.news(0)).unwrap();
    let next = scene.does(scene.tool("c2", completed())).unwrap();
    assert_eq!(tasks(&next), ["three"]);
}

#[test]
fn s8_a_child_is_bounded_as_its_parent_is() {
    let scene = with_delegates(Scene::streaming()).agent(|agent| {
        agent.headless = true;
        agent.within = Some(["read*".to_owned(), "delegate".to_owned()].into());
    });
    let mut scene = scene.rules(|rules| rules.delegation_depth_max = 1);
    let calls = scene.model_calls(&[ask("researcher", "Find the price")]);
    let errand = errands(&scene.does(calls).unwrap()).remove(0);
    assert_eq!(errand.settings, scene.state.active.settings);
    let mut child = with_delegates(child_of(&errand));
    let mut rules = child.rules.clone();
    rules.delegation_depth_max = 1;
    child.rules = rules.under(&errand.parent);
    assert!(child.rules.agent.headless);
    let may = ["read", "high", "delegate"].map(|tool| child.rules.agent.may_use(tool));
    assert_eq!(may, [true, false, false]);
}

#[test]
fn s8_settings_that_narrow_while_a_child_works_narrow_the_child() {
    let (mut scene, mut child) = with_child();
    let level = |level| Settings { autonomy_level: level, ..Settings::default() };
    let settings = level(Autonomy::ReadOnly);
    scene.check(
        Input::ChangeSettings { change: settings.clone().into(), title: None, by: user("ann") },
        "
        session_settings_changed L0 u1 by ann
        > narrow_child s1 L0
    ",
    );
    let narrow = Input::Narrow { within: settings.into() };
    child.check(narrow.clone(), "session_settings_changed L0 Find the price by ann");
    child.check(narrow, "");
    // It is not widened again, by nobody.
    child.check(Input::Narrow { within: level(Autonomy::Supervised).into() }, "");
    let widen = Input::ChangeSettings {
        change: level(Autonomy::Supervised).into(),
        title: None,
        by: user("ann"),
    };
    assert!(matches!(child.does(widen), Err(Rejection::WidensChild { .. })));
}
