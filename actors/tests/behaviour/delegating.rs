//! Tasks in other sessions' hands (S8): what parent, child and grandchild promise together, and after
//! a crash.

use crate::{asked, completed_calls, count};
use greenroom_actors::{
    ports::{ApprovalQuery, Descent, Journal, SessionQuery},
    session::CommandError,
    testing::{
        Beat, FakeTools, Fault, Gate, Operation, Reply, ScriptedModel, Turn, World, WorldBuilder,
    },
};
use greenroom_core::{
    agent::AgentProfile,
    approval::{Role, Surface},
    call::FailReason,
    ids::{AgentName, CallId, Seq, SessionId},
    message::Message,
    model::{failure::ModelFailure, request::ModelRequest},
    policy::{Autonomy, Risk, Settings},
    session::{
        ApprovalAnswer, EventRecord, Input, Rejection, SessionEvent, SessionRow, SessionStatus,
    },
};
use serde_json::json;
use std::sync::Arc;

fn named(agent: &str) -> AgentName {
    AgentName::parse(agent).expect("a plain word is an agent's name")
}

/// A world whose agent `default` may ask `lead`, and that one `researcher`; each is told its own name.
fn world(model: ScriptedModel, tools: FakeTools) -> WorldBuilder {
    let profile = |name: &str, delegates: &[&str]| AgentProfile {
        models: vec!["scripted".to_owned()],
        system: format!("You are {name}."),
        delegates: delegates.iter().map(|name| named(name)).collect(),
        ..AgentProfile::named(named(name))
    };
    let tools = tools.with_delegate();
    World::builder().model(model).tools(tools).governance(|governance| {
        for agent in [
            profile("default", &["lead", "researcher"]),
            profile("lead", &["researcher"]),
            profile("researcher", &[]),
        ] {
            governance.agents.insert(agent.name.clone(), Arc::new(agent));
        }
    })
}

fn is(request: &ModelRequest, agent: &str) -> bool {
    request.system.lasting.contains(&format!("You are {agent}."))
}

/// Whether it was asked before any result came.
fn is_first(request: &ModelRequest) -> bool {
    !request.messages.iter().any(|message| matches!(message, Message::ToolResults(_)))
}

fn ask(agent: &str, task: &str) -> Reply {
    Reply::calls([("delegate", json!({"agent": agent, "task": task}))])
}

/// `default` asks `researcher`, which answers as `answer` says; then it answers itself.
fn asking_once(mut answer: impl FnMut(&ModelRequest) -> Reply + Send + 'static) -> ScriptedModel {
    ScriptedModel::answering(move |request| match request {
        request if is(request, "researcher") => answer(request),
        request if is_first(request) => ask("researcher", "Find the price"),
        _after_the_result => Reply::text("done"),
    })
}

/// The session's children, oldest first.
async fn children(world: &World, parent: SessionId) -> Vec<SessionRow> {
    let descent = Descent::ChildrenOf(parent);
    let query = SessionQuery { descent, limit: 10, ..SessionQuery::default() };
    let mut rows = world.journal.sessions(query).await.expect("the journal can be read");
    rows.reverse();
    rows
}

/// The child that is recorded first.
async fn child(world: &World, parent: SessionId) -> SessionId {
    world
        .wait_for(parent, "a child", |events| {
            events.iter().find_map(|record| match &record.event {
                SessionEvent::ToolCallAttemptStarted { child, .. } => {
                    child.as_ref().map(|child| child.session_id)
                }
                _other => None,
            })
        })
        .await
}

/// The events of that session that the log above it tells of, whatever it is told through.
fn mirrored(events: &[EventRecord], of: SessionId) -> Vec<Seq> {
    fn told(record: &EventRecord, of: SessionId) -> Option<Seq> {
        let SessionEvent::ChildEvent { session_id, event, .. } = &record.event else { return None };
        if *session_id == of { Some(event.seq) } else { told(event, of) }
    }
    events.iter().filter_map(|record| told(record, of)).collect()
}

/// Waits until the parent's log has the child's, whole.
async fn whole(world: &World, parent: SessionId, child: SessionId) {
    let expected: Vec<_> = world.journal.events(child).iter().map(|record| record.seq).collect();
    world
        .wait_for(parent, "the child's whole log", |events| {
            let found = mirrored(events, child);
            assert!(found.len() <= expected.len(), "{found:?}");
            (found == expected).then_some(())
        })
        .await;
}

fn decide(events: &[EventRecord], approved: bool) -> Input {
    Input::DecideApproval {
        approval_id: asked(events).expect("somebody was asked").approval_id,
        answer: ApprovalAnswer::Whole { approved, reason: None },
        for_session: None,
        by: World::user(),
        role: Role::User,
        surface: Surface::Rest,
    }
}

fn failures(events: &[EventRecord]) -> Vec<(FailReason, String)> {
    let failure = |record: &EventRecord| match &record.event {
        SessionEvent::ToolCallFailed { reason, error, .. } => Some((*reason, error.clone())),
        _other => None,
    };
    events.iter().filter_map(failure).collect()
}

#[actix::test]
async fn s8_a_childs_answer_is_the_calls_result() {
    let model = asking_once(|_| Reply::text("5 ISK"));
    let world = world(model, FakeTools::none()).arbiters(2).start().await;
    let session = world.create().await;
    let run = world.submit(session, "go").await;
    assert!(matches!(world.run_end(session, run).await, SessionEvent::RunCompleted { .. }));
    let results = completed_calls(&world.journal.events(session));
    assert_eq!(results.len(), 1);
    assert_eq!((results[0].1.as_str(), results[0].2.as_str()), ("delegate", "5 ISK"));
    let row = children(&world, session).await.remove(0);
    assert_eq!((row.status, row.agent.as_str()), (SessionStatus::Closed, "researcher"));
    assert_eq!(row.owner, World::user());
    whole(&world, session, row.session_id).await;
    // It knows of its task, and of nothing else.
    let asked = world.model.requests();
    let of_child = asked.iter().find(|request| is(request, "researcher")).unwrap();
    let [Message::User { text, .. }] = &of_child.messages[..] else { panic!("{of_child:?}") };
    assert_eq!(&**text, "Find the price");
}

#[actix::test]
async fn s8_what_goes_wrong_in_a_child_is_an_error_result_that_says_so() {
    let fails = |_: &ModelRequest| {
        Reply::new().then(Beat::Fail(ModelFailure::permanent("temporarily no such model")))
    };
    let world = world(asking_once(fails), FakeTools::none()).start().await;
    let session = world.create().await;
    let run = world.submit(session, "go").await;
    world.run_end(session, run).await;
    let events = world.journal.events(session);
    let error = "researcher failed: temporarily no such model".to_owned();
    assert_eq!(failures(&events), [(FailReason::Error, error)]);
    let attempts = |event: &SessionEvent| matches!(event, SessionEvent::ToolCallRetrying { .. });
    assert_eq!(count(&events, attempts), 0, "another attempt would find the same child");
}

#[actix::test]
async fn s8_a_child_that_is_cancelled_by_itself_leaves_its_parent_an_error() {
    let world = world(asking_once(|_| Reply::new().then(Beat::Hang)), FakeTools::none());
    let world = world.start().await;
    let session = world.create().await;
    let run = world.submit(session, "go").await;
    let child = child(&world, session).await;
    world.wait_for(child, "its run", |events| (events.len() >= 5).then_some(())).await;
    world.cancel(child).await.unwrap();
    assert!(matches!(world.run_end(session, run).await, SessionEvent::RunCompleted { .. }));
    let error = "ada cancelled the work of researcher".to_owned();
    assert_eq!(failures(&world.journal.events(session)), [(FailReason::Error, error)]);
    whole(&world, session, child).await;
}

/// `default` asks `lead`, that asks `researcher`, and that buys something.
fn chain() -> (ScriptedModel, FakeTools) {
    let model = ScriptedModel::answering(|request| match request {
        request if is(request, "researcher") && is_first(request) => {
            Reply::calls([("buy", json!({"n": 1}))])
        }
        request if is(request, "lead") && is_first(request) => ask("researcher", "Buy one"),
        request if is(request, "default") && is_first(request) => ask("lead", "Have one bought"),
        _after_the_result => Reply::text("done"),
    });
    let tools = FakeTools::none().with("buy", Risk::WriteHighRisk, |_| Turn::new().done("bought"));
    (model, tools)
}

/// Starts it, and waits until the grandchild asks; the root, the child and the grandchild.
async fn asking_grandchild(world: &World) -> [SessionId; 3] {
    let settings = Settings { autonomy_level: Autonomy::Assisted, ..Settings::default() };
    let root = world.create_with(settings).await;
    world.submit(root, "go").await;
    let lead = child(world, root).await;
    let researcher = child(world, lead).await;
    world.wait_for(researcher, "a question", |events| asked(events).map(drop)).await;
    [root, lead, researcher]
}

#[actix::test]
async fn s8_a_grandchilds_question_is_asked_at_the_root() {
    let (model, tools) = chain();
    let world = world(model, tools).arbiters(2).start().await;
    let [root, lead, researcher] = asking_grandchild(&world).await;
    let question = world
        .wait_for(root, "the question at the root", |events| {
            events.iter().find_map(|record| match record.event.innermost() {
                SessionEvent::ApprovalRequested { approval } => Some(approval.clone()),
                _other => None,
            })
        })
        .await;
    let query = ApprovalQuery { session_id: Some(root), limit: 9, ..ApprovalQuery::default() };
    let rows = world.journal.approvals(query).await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].session_id, researcher);
    assert_eq!(rows[0].approval.approval_id, question.approval_id);
    let row = world.journal.session(researcher).await.unwrap().unwrap();
    let parent = row.parent.unwrap();
    assert_eq!((parent.session_id, parent.root.session_id, parent.depth), (lead, root, 2));

    let answer = decide(&world.journal.events(researcher), true);
    world.command(researcher, answer).await.unwrap();
    let run = rows[0].root.unwrap().run_id;
    assert!(matches!(world.run_end(root, run).await, SessionEvent::RunCompleted { .. }));
    assert_eq!(world.tools.calls().len(), 1);
    for child in [lead, researcher] {
        whole(&world, root, child).await;
    }
}

#[actix::test]
async fn s8_cancelling_the_root_cancels_everything_below_it_with_its_questions() {
    let (model, tools) = chain();
    let world = world(model, tools).start().await;
    let [root, lead, researcher] = asking_grandchild(&world).await;
    world.cancel(root).await.unwrap();
    for child in [lead, researcher] {
        world
            .wait_for(child, "its end", |events| {
                let last = &events.last()?.event;
                matches!(last, SessionEvent::SessionClosed { .. }).then_some(())
            })
            .await;
    }
    for child in [researcher, lead] {
        whole(&world, root, child).await;
    }
    let cancelled = |event: &SessionEvent| matches!(event, SessionEvent::ApprovalCancelled { .. });
    assert_eq!(count(&world.journal.events(researcher), cancelled), 1);
    let told = |event: &SessionEvent| cancelled(event.innermost());
    assert_eq!(count(&world.journal.events(root), told), 1, "whoever watches the root sees it go");
    let (reason, error) = failures(&world.journal.events(root)).remove(0);
    assert_eq!(reason, FailReason::Cancelled);
    assert!(error.contains("may have taken effect"), "{error}");
    assert!(world.tools.calls().is_empty());
    let row = world.journal.session(root).await.unwrap().unwrap();
    assert_eq!(row.status, SessionStatus::Idle);
}

#[actix::test]
async fn s8_d2_after_a_crash_each_call_finds_its_child_again() {
    let (model, tools) = chain();
    let world = world(model, tools).start().await;
    let [root, lead, researcher] = asking_grandchild(&world).await;
    let world = world.crash_and_restart().await;
    let run = world.journal.session(researcher).await.unwrap().unwrap().parent.unwrap().root.run_id;
    let answer = decide(&world.journal.events(researcher), true);
    world.command(researcher, answer).await.unwrap();
    assert!(matches!(world.run_end(root, run).await, SessionEvent::RunCompleted { .. }));
    assert_eq!(world.tools.calls().len(), 1);
    assert_eq!(children(&world, root).await.len(), 1);
    assert_eq!(children(&world, lead).await.len(), 1);
    for child in [lead, researcher] {
        whole(&world, root, child).await;
    }
}

#[actix::test]
async fn s8_d2_a_child_that_works_while_the_process_dies_goes_on() {
    let gate = Gate::closed();
    let waits = gate.clone();
    let model = asking_once(move |_| Reply::new().say("5 I").wait(&waits).say("SK").done());
    let world = world(model, FakeTools::none()).start().await;
    let session = world.create().await;
    let run = world.submit(session, "go").await;
    gate.arrivals(1).await;
    let child = child(&world, session).await;
    gate.open();
    let world = world.crash_and_restart().await;
    assert!(matches!(world.run_end(session, run).await, SessionEvent::RunCompleted { .. }));
    assert_eq!(completed_calls(&world.journal.events(session))[0].2, "5 ISK");
    assert_eq!(children(&world, session).await.len(), 1);
    whole(&world, session, child).await;
}

#[actix::test]
async fn s8_an_interrupt_that_a_child_refuses_leaves_its_answer_alone() {
    let gate = Gate::closed();
    let waits = gate.clone();
    let model = asking_once(move |_| Reply::new().say("5 I").wait(&waits).say("SK").done());
    let world = world(model, FakeTools::none()).start().await;
    let session = world.create().await;
    let run = world.submit(session, "go").await;
    gate.arrivals(1).await;
    let child = child(&world, session).await;
    let Input::SubmitMessage { message, .. } = World::message("stop that") else { unreachable!() };
    let interrupt = Input::Interrupt { message, by: World::user(), partial: None };
    let refused = world.command(child, interrupt).await;
    assert!(
        matches!(refused, Err(CommandError::Rejected(Rejection::WorksForAnother { .. }))),
        "{refused:?}"
    );
    gate.open();
    assert!(matches!(world.run_end(session, run).await, SessionEvent::RunCompleted { .. }));
    assert_eq!(completed_calls(&world.journal.events(session))[0].2, "5 ISK");
}

#[actix::test]
async fn s8_a_cancel_that_the_child_did_not_hear_before_a_crash_reaches_it_after() {
    let gate = Gate::closed();
    let waits = gate.clone();
    let model = asking_once(move |_| Reply::new().wait(&waits).then(Beat::Hang));
    let world = world(model, FakeTools::none()).start().await;
    let session = world.create().await;
    world.submit(session, "go").await;
    let child = child(&world, session).await;
    gate.arrivals(1).await;
    whole(&world, session, child).await;
    // The parent's cancel is stored; whoever is to tell the child dies with the process.
    world.journal.fault(Operation::Append, Fault::WaitAfterStoring(Gate::closed()), 1);
    let runtime = world.runtime.clone();
    let cancel = Input::Cancel { run_id: None, by: World::user(), partial: None };
    drop(actix::spawn(async move { runtime.command(session, cancel).await }));
    world
        .wait_for(session, "the cancel", |events| {
            let last = &events.last()?.event;
            matches!(last, SessionEvent::RunCancelled { .. }).then_some(())
        })
        .await;
    let world = world.crash_and_restart().await;
    world
        .wait_for(child, "its end", |events| {
            let last = &events.last()?.event;
            matches!(last, SessionEvent::SessionClosed { .. }).then_some(())
        })
        .await;
    whole(&world, session, child).await;
}

#[actix::test]
async fn s8_purging_a_session_purges_its_children() {
    let (model, tools) = chain();
    let world = world(model, tools).start().await;
    let sessions = asking_grandchild(&world).await;
    world.runtime.purge(sessions[0], World::user()).await.unwrap();
    for session in sessions {
        assert_eq!(world.journal.events(session), []);
        assert_eq!(world.journal.session(session).await.unwrap(), None);
    }
}

#[actix::test]
async fn s8_settings_that_narrow_reach_a_child_that_works() {
    let (model, tools) = chain();
    let world = world(model, tools).start().await;
    let [root, _, researcher] = asking_grandchild(&world).await;
    let settings = Settings { autonomy_level: Autonomy::ReadOnly, ..Settings::default() };
    let narrow = Input::ChangeSettings { change: settings.into(), title: None, by: World::user() };
    world.command(root, narrow).await.unwrap();
    world
        .wait_for(researcher, "its settings", |events| {
            events.iter().rev().find_map(|record| match &record.event {
                SessionEvent::SessionSettingsChanged { settings, .. } => {
                    (settings.autonomy_level == Autonomy::ReadOnly).then_some(())
                }
                _other => None,
            })
        })
        .await;
    let widen = Settings { autonomy_level: Autonomy::Supervised, ..Settings::default() };
    let widen = Input::ChangeSettings { change: widen.into(), title: None, by: World::user() };
    let refused = world.command(researcher, widen).await;
    assert!(
        matches!(refused, Err(CommandError::Rejected(Rejection::WidensChild { .. }))),
        "{refused:?}"
    );
    let message = world.command(researcher, World::message("and then?")).await;
    assert!(
        matches!(message, Err(CommandError::Rejected(Rejection::WorksForAnother { .. }))),
        "{message:?}"
    );
}

#[actix::test]
async fn s8_several_tasks_are_worked_on_side_by_side() {
    let gate = Gate::closed();
    let waits = gate.clone();
    let model = ScriptedModel::answering(move |request| match request {
        request if is(request, "researcher") => Reply::new().wait(&waits).say("found").done(),
        request if is_first(request) => Reply::calls(
            ["one", "two", "three"]
                .map(|task| ("delegate", json!({"agent": "researcher", "task": task}))),
        ),
        _after_the_results => Reply::text("done"),
    });
    let world = world(model, FakeTools::none()).start().await;
    let session = world.create().await;
    let run = world.submit(session, "go").await;
    gate.arrivals(3).await;
    gate.open();
    world.run_end(session, run).await;
    let events = world.journal.events(session);
    let calls: Vec<CallId> = completed_calls(&events).into_iter().map(|call| call.0).collect();
    assert_eq!(calls.len(), 3);
    for row in children(&world, session).await {
        whole(&world, session, row.session_id).await;
    }
}
