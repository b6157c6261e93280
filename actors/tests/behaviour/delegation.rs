//! Delegation to child sessions (S8): parents, children and grandchildren, in normal operation and
//! after a crash.

use crate::{completed_calls, count_events, last_approval};
use greenroom_actors::{
    ports::{ApprovalQuery, Journal, ParentFilter, SessionQuery},
    session::CommandError,
    testing::{
        FakeTools, Gate, JournalFault, JournalOperation, ModelReply, ScriptedModel, StreamAction,
        TestRuntime, TestRuntimeBuilder, ToolScript,
    },
};
use greenroom_core::{
    agent::AgentProfile,
    approval::{Role, Surface},
    call::CallFailureReason,
    ids::{AgentName, CallId, Seq, SessionId},
    message::Message,
    model::{delta::StopReason, failure::ModelFailure, request::ModelRequest},
    policy::{Autonomy, Risk, Settings},
    session::{
        ApprovalAnswer, EventRecord, Input, Rejection, SessionEvent, SessionRow, SessionStatus,
    },
};
use serde_json::json;
use std::sync::Arc;

fn agent_name(agent: &str) -> AgentName {
    AgentName::parse(agent).expect("the name is valid")
}

/// Creates a runtime in which agent `default` may delegate to `lead`, and `lead` to `researcher`. The
/// system prompt of each agent contains its name.
fn runtime_with_agents(model: ScriptedModel, tools: FakeTools) -> TestRuntimeBuilder {
    let profile = |name: &str, delegates: &[&str]| AgentProfile {
        models: vec!["scripted".to_owned()],
        system: format!("You are {name}."),
        delegates: delegates.iter().map(|name| agent_name(name)).collect(),
        ..AgentProfile::new(agent_name(name))
    };
    let tools = tools.with_delegate();
    TestRuntime::builder().model(model).tools(tools).governance(|governance| {
        for agent in [
            profile("default", &["lead", "researcher"]),
            profile("lead", &["researcher"]),
            profile("researcher", &[]),
        ] {
            governance.agents.insert(agent.name.clone(), Arc::new(agent));
        }
    })
}

fn is_from_agent(request: &ModelRequest, agent: &str) -> bool {
    request.system.stable.contains(&format!("You are {agent}."))
}

/// True if the request contains no tool results.
fn is_first_step(request: &ModelRequest) -> bool {
    !request.messages.iter().any(|message| matches!(message, Message::ToolResults(_)))
}

fn delegate_reply(agent: &str, task: &str) -> ModelReply {
    ModelReply::with_calls([("delegate", json!({"agent": agent, "task": task}))])
}

/// Creates a model in which `default` delegates to `researcher`, which replies with `answer`.
fn delegating_model(
    mut answer: impl FnMut(&ModelRequest) -> ModelReply + Send + 'static,
) -> ScriptedModel {
    ScriptedModel::with_handler(move |request| match request {
        request if is_from_agent(request, "researcher") => answer(request),
        request if is_first_step(request) => delegate_reply("researcher", "Find the price"),
        _after_the_result => ModelReply::text("done"),
    })
}

/// Returns the session's children, oldest first.
async fn children(world: &TestRuntime, parent: SessionId) -> Vec<SessionRow> {
    let parent_filter = ParentFilter::ChildrenOf(parent);
    let query = SessionQuery { parent_filter, limit: 10, ..SessionQuery::default() };
    let mut rows = world.journal.list_sessions(query).await.expect("the journal can be read");
    rows.reverse();
    rows
}

/// Returns the first recorded child.
async fn wait_for_child(world: &TestRuntime, parent: SessionId) -> SessionId {
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

/// Returns the events of `session` that `events` mirror, at any level of nesting.
fn mirrored_seqs(events: &[EventRecord], session: SessionId) -> Vec<Seq> {
    fn mirrored_seq(record: &EventRecord, session: SessionId) -> Option<Seq> {
        let SessionEvent::ChildEvent { session_id, event, .. } = &record.event else { return None };
        if *session_id == session { Some(event.seq) } else { mirrored_seq(event, session) }
    }
    events.iter().filter_map(|record| mirrored_seq(record, session)).collect()
}

/// Waits until the parent's log mirrors every event of the child.
async fn wait_for_full_mirror(world: &TestRuntime, parent: SessionId, child: SessionId) {
    let expected: Vec<_> = world.journal.events(child).iter().map(|record| record.seq).collect();
    world
        .wait_for(parent, "the child's complete log", |events| {
            let mirrored = mirrored_seqs(events, child);
            assert!(mirrored.len() <= expected.len(), "{mirrored:?}");
            (mirrored == expected).then_some(())
        })
        .await;
}

fn decide(events: &[EventRecord], approved: bool) -> Input {
    Input::AnswerApproval {
        approval_id: last_approval(events).expect("an approval was requested").approval_id,
        answer: ApprovalAnswer::Overall { approved, reason: None },
        for_session: None,
        by: TestRuntime::user(),
        role: Role::User,
        surface: Surface::Rest,
    }
}

fn failures(events: &[EventRecord]) -> Vec<(CallFailureReason, String)> {
    let failure = |record: &EventRecord| match &record.event {
        SessionEvent::ToolCallFailed { reason, error, .. } => Some((*reason, error.clone())),
        _other => None,
    };
    events.iter().filter_map(failure).collect()
}

#[actix::test]
async fn s8_child_answer_is_result_of_the_call() {
    let model = delegating_model(|_| ModelReply::text("5 ISK"));
    let world = runtime_with_agents(model, FakeTools::new()).shard_count(2).start().await;
    let session = world.create_session().await;
    let run = world.submit(session, "go").await;
    assert!(matches!(
        world.wait_for_run_end(session, run).await,
        SessionEvent::RunCompleted { .. }
    ));
    let results = completed_calls(&world.journal.events(session));
    assert_eq!(results.len(), 1);
    assert_eq!((results[0].1.as_str(), results[0].2.as_str()), ("delegate", "5 ISK"));
    let row = children(&world, session).await.remove(0);
    assert_eq!((row.status, row.agent.as_str()), (SessionStatus::Closed, "researcher"));
    assert_eq!(row.owner, TestRuntime::user());
    wait_for_full_mirror(&world, session, row.session_id).await;
    // The child reads its task only.
    let requests = world.model.requests();
    let request = requests.iter().find(|request| is_from_agent(request, "researcher")).unwrap();
    let [Message::User { text, .. }] = &request.messages[..] else { panic!("{request:?}") };
    assert_eq!(&**text, "Find the price");
}

#[actix::test]
async fn m3_s8_incomplete_answer_of_child_is_marked_for_its_parent() {
    for (text, reason, result) in [
        (
            "5 I",
            StopReason::MaxTokens,
            "[researcher: the answer was truncated at a length limit]\n5 I",
        ),
        ("No.", StopReason::Refusal, "[researcher: the model refused]\nNo."),
        (
            "5",
            StopReason::ContentFilter,
            "[researcher: the provider's content filter cut off the answer]\n5",
        ),
        ("", StopReason::EndTurn, "[researcher: the model returned no text]"),
    ] {
        let answer = move |_: &ModelRequest| ModelReply::new().delta(text).complete(reason);
        let world = runtime_with_agents(delegating_model(answer), FakeTools::new()).start().await;
        let session = world.create_session().await;
        let run = world.submit(session, "go").await;
        world.wait_for_run_end(session, run).await;
        let results = completed_calls(&world.journal.events(session));
        assert_eq!(results[0].2, result);
    }
}

#[actix::test]
async fn s8_failed_child_is_error_result_with_reason() {
    let fails = |_: &ModelRequest| {
        ModelReply::new()
            .with_action(StreamAction::Fail(ModelFailure::permanent("temporarily no such model")))
    };
    let world = runtime_with_agents(delegating_model(fails), FakeTools::new()).start().await;
    let session = world.create_session().await;
    let run = world.submit(session, "go").await;
    world.wait_for_run_end(session, run).await;
    let events = world.journal.events(session);
    let error = "researcher failed: temporarily no such model".to_owned();
    assert_eq!(failures(&events), [(CallFailureReason::Error, error)]);
    let attempts = |event: &SessionEvent| matches!(event, SessionEvent::ToolCallRetrying { .. });
    assert_eq!(count_events(&events, attempts), 0, "another attempt would find the same child");
}

#[actix::test]
async fn s8_cancelled_child_is_error_result_of_parent() {
    let world = runtime_with_agents(
        delegating_model(|_| ModelReply::new().with_action(StreamAction::Hang)),
        FakeTools::new(),
    );
    let world = world.start().await;
    let session = world.create_session().await;
    let run = world.submit(session, "go").await;
    let child = wait_for_child(&world, session).await;
    world.wait_for(child, "its run", |events| (events.len() >= 5).then_some(())).await;
    world.cancel(child).await.unwrap();
    assert!(matches!(
        world.wait_for_run_end(session, run).await,
        SessionEvent::RunCompleted { .. }
    ));
    let error = "ada cancelled the task of researcher".to_owned();
    assert_eq!(failures(&world.journal.events(session)), [(CallFailureReason::Error, error)]);
    wait_for_full_mirror(&world, session, child).await;
}

/// Creates a model in which `default` delegates to `lead`, `lead` to `researcher`, and `researcher`
/// calls `buy`.
fn three_level_chain() -> (ScriptedModel, FakeTools) {
    let model = ScriptedModel::with_handler(|request| match request {
        request if is_from_agent(request, "researcher") && is_first_step(request) => {
            ModelReply::with_calls([("buy", json!({"n": 1}))])
        }
        request if is_from_agent(request, "lead") && is_first_step(request) => {
            delegate_reply("researcher", "Buy one")
        }
        request if is_from_agent(request, "default") && is_first_step(request) => {
            delegate_reply("lead", "Have one bought")
        }
        _after_the_result => ModelReply::text("done"),
    });
    let tools = FakeTools::new()
        .with_tool("buy", Risk::WriteHighRisk, |_| ToolScript::new().finished("bought"));
    (model, tools)
}

/// Runs the chain until the grandchild requests approval. Returns root, child and grandchild.
async fn start_chain_until_approval(world: &TestRuntime) -> [SessionId; 3] {
    let settings = Settings { autonomy_level: Autonomy::Assisted, ..Settings::default() };
    let root = world.create_session_with(settings).await;
    world.submit(root, "go").await;
    let lead = wait_for_child(world, root).await;
    let researcher = wait_for_child(world, lead).await;
    world.wait_for(researcher, "an approval", |events| last_approval(events).map(drop)).await;
    [root, lead, researcher]
}

#[actix::test]
async fn s8_grandchild_approval_is_requested_at_the_root() {
    let (model, tools) = three_level_chain();
    let world = runtime_with_agents(model, tools).shard_count(2).start().await;
    let [root, lead, researcher] = start_chain_until_approval(&world).await;
    let approval = world
        .wait_for(root, "the approval at the root", |events| {
            events.iter().find_map(|record| match record.event.source_event() {
                SessionEvent::ApprovalRequested { approval } => Some(approval.clone()),
                _other => None,
            })
        })
        .await;
    let query = ApprovalQuery { session_id: Some(root), limit: 9, ..ApprovalQuery::default() };
    let rows = world.journal.list_approvals(query).await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].session_id, researcher);
    assert_eq!(rows[0].approval.approval_id, approval.approval_id);
    let row = world.journal.load_session(researcher).await.unwrap().unwrap();
    let parent = row.parent.unwrap();
    assert_eq!((parent.session_id, parent.root.session_id, parent.depth), (lead, root, 2));

    let answer = decide(&world.journal.events(researcher), true);
    world.execute(researcher, answer).await.unwrap();
    let run = rows[0].root.unwrap().run_id;
    assert!(matches!(world.wait_for_run_end(root, run).await, SessionEvent::RunCompleted { .. }));
    assert_eq!(world.tools.recorded_calls().len(), 1);
    for child in [lead, researcher] {
        wait_for_full_mirror(&world, root, child).await;
    }
}

#[actix::test]
async fn s8_cancelling_the_root_cancels_descendants_and_their_approvals() {
    let (model, tools) = three_level_chain();
    let world = runtime_with_agents(model, tools).start().await;
    let [root, lead, researcher] = start_chain_until_approval(&world).await;
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
        wait_for_full_mirror(&world, root, child).await;
    }
    let cancelled = |event: &SessionEvent| matches!(event, SessionEvent::ApprovalCancelled { .. });
    assert_eq!(count_events(&world.journal.events(researcher), cancelled), 1);
    let mirrored = |event: &SessionEvent| cancelled(event.source_event());
    assert_eq!(
        count_events(&world.journal.events(root), mirrored),
        1,
        "the root's log mirrors the cancellation"
    );
    let (reason, error) = failures(&world.journal.events(root)).remove(0);
    assert_eq!(reason, CallFailureReason::Cancelled);
    assert!(error.contains("may have taken effect"), "{error}");
    assert!(world.tools.recorded_calls().is_empty());
    let row = world.journal.load_session(root).await.unwrap().unwrap();
    assert_eq!(row.status, SessionStatus::Idle);
}

#[actix::test]
async fn s8_d2_call_finds_its_child_after_a_crash() {
    let (model, tools) = three_level_chain();
    let world = runtime_with_agents(model, tools).start().await;
    let [root, lead, researcher] = start_chain_until_approval(&world).await;
    let world = world.crash_and_restart().await;
    let run =
        world.journal.load_session(researcher).await.unwrap().unwrap().parent.unwrap().root.run_id;
    let answer = decide(&world.journal.events(researcher), true);
    world.execute(researcher, answer).await.unwrap();
    assert!(matches!(world.wait_for_run_end(root, run).await, SessionEvent::RunCompleted { .. }));
    assert_eq!(world.tools.recorded_calls().len(), 1);
    assert_eq!(children(&world, root).await.len(), 1);
    assert_eq!(children(&world, lead).await.len(), 1);
    for child in [lead, researcher] {
        wait_for_full_mirror(&world, root, child).await;
    }
}

#[actix::test]
async fn s8_d2_working_child_continues_after_a_crash() {
    let gate = Gate::closed();
    let model_gate = gate.clone();
    let model = delegating_model(move |_| {
        ModelReply::new().delta("5 I").wait(&model_gate).delta("SK").finished()
    });
    let world = runtime_with_agents(model, FakeTools::new()).start().await;
    let session = world.create_session().await;
    let run = world.submit(session, "go").await;
    gate.wait_for_arrivals(1).await;
    let child = wait_for_child(&world, session).await;
    gate.open();
    let world = world.crash_and_restart().await;
    assert!(matches!(
        world.wait_for_run_end(session, run).await,
        SessionEvent::RunCompleted { .. }
    ));
    assert_eq!(completed_calls(&world.journal.events(session))[0].2, "5 ISK");
    assert_eq!(children(&world, session).await.len(), 1);
    wait_for_full_mirror(&world, session, child).await;
}

#[actix::test]
async fn s8_interrupt_rejected_by_child_does_not_affect_its_answer() {
    let gate = Gate::closed();
    let model_gate = gate.clone();
    let model = delegating_model(move |_| {
        ModelReply::new().delta("5 I").wait(&model_gate).delta("SK").finished()
    });
    let world = runtime_with_agents(model, FakeTools::new()).start().await;
    let session = world.create_session().await;
    let run = world.submit(session, "go").await;
    gate.wait_for_arrivals(1).await;
    let child = wait_for_child(&world, session).await;
    let Input::SubmitMessage { message, .. } = TestRuntime::submit_input("stop that") else {
        unreachable!()
    };
    let interrupt = Input::Interrupt { message, by: TestRuntime::user(), partial: None };
    let result = world.execute(child, interrupt).await;
    assert!(
        matches!(result, Err(CommandError::Rejected(Rejection::IsChildSession { .. }))),
        "{result:?}"
    );
    gate.open();
    assert!(matches!(
        world.wait_for_run_end(session, run).await,
        SessionEvent::RunCompleted { .. }
    ));
    assert_eq!(completed_calls(&world.journal.events(session))[0].2, "5 ISK");
}

#[actix::test]
async fn s8_cancellation_lost_in_a_crash_reaches_child_afterwards() {
    let gate = Gate::closed();
    let model_gate = gate.clone();
    let model = delegating_model(move |_| {
        ModelReply::new().wait(&model_gate).with_action(StreamAction::Hang)
    });
    let world = runtime_with_agents(model, FakeTools::new()).start().await;
    let session = world.create_session().await;
    world.submit(session, "go").await;
    let child = wait_for_child(&world, session).await;
    gate.wait_for_arrivals(1).await;
    wait_for_full_mirror(&world, session, child).await;
    // The parent's cancellation is stored; the process crashes before the child is notified.
    world.journal.inject_fault(
        JournalOperation::Append,
        JournalFault::WaitAfterStoring(Gate::closed()),
        1,
    );
    let runtime = world.runtime.clone();
    let cancel = Input::CancelRun { run_id: None, by: TestRuntime::user(), partial: None };
    drop(actix::spawn(async move { runtime.execute(session, cancel).await }));
    world
        .wait_for(session, "the cancellation", |events| {
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
    wait_for_full_mirror(&world, session, child).await;
}

#[actix::test]
async fn s8_purging_a_session_purges_its_children() {
    let (model, tools) = three_level_chain();
    let world = runtime_with_agents(model, tools).start().await;
    let sessions = start_chain_until_approval(&world).await;
    world.runtime.purge(sessions[0], TestRuntime::user()).await.unwrap();
    for session in sessions {
        assert_eq!(world.journal.events(session), []);
        assert_eq!(world.journal.load_session(session).await.unwrap(), None);
    }
}

#[actix::test]
async fn s8_narrowed_settings_reach_a_working_child() {
    let (model, tools) = three_level_chain();
    let world = runtime_with_agents(model, tools).start().await;
    let [root, _, researcher] = start_chain_until_approval(&world).await;
    let settings = Settings { autonomy_level: Autonomy::ReadOnly, ..Settings::default() };
    let narrow =
        Input::ChangeSettings { patch: settings.into(), title: None, by: TestRuntime::user() };
    world.execute(root, narrow).await.unwrap();
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
    let widen = Input::ChangeSettings { patch: widen.into(), title: None, by: TestRuntime::user() };
    let result = world.execute(researcher, widen).await;
    assert!(
        matches!(result, Err(CommandError::Rejected(Rejection::ChildSettingsWidened { .. }))),
        "{result:?}"
    );
    let message = world.execute(researcher, TestRuntime::submit_input("and then?")).await;
    assert!(
        matches!(message, Err(CommandError::Rejected(Rejection::IsChildSession { .. }))),
        "{message:?}"
    );
}

#[actix::test]
async fn s8_several_children_work_in_parallel() {
    let gate = Gate::closed();
    let model_gate = gate.clone();
    let model = ScriptedModel::with_handler(move |request| match request {
        request if is_from_agent(request, "researcher") => {
            ModelReply::new().wait(&model_gate).delta("found").finished()
        }
        request if is_first_step(request) => ModelReply::with_calls(
            ["one", "two", "three"]
                .map(|task| ("delegate", json!({"agent": "researcher", "task": task}))),
        ),
        _after_the_results => ModelReply::text("done"),
    });
    let world = runtime_with_agents(model, FakeTools::new()).start().await;
    let session = world.create_session().await;
    let run = world.submit(session, "go").await;
    gate.wait_for_arrivals(3).await;
    gate.open();
    world.wait_for_run_end(session, run).await;
    let events = world.journal.events(session);
    let calls: Vec<CallId> = completed_calls(&events).into_iter().map(|call| call.0).collect();
    assert_eq!(calls.len(), 3);
    for row in children(&world, session).await {
        wait_for_full_mirror(&world, session, row.session_id).await;
    }
}
