//! Durability when the journal or the process fails (D1 to D3, D8).

use crate::{
    at_least, completed_calls, completed_messages, count_events, last_approval, received_event,
    submit_with_retry,
};
use greenroom_actors::{
    ports::{Commit, Journal},
    session::CommandError,
    testing::{
        FakeTools, Gate, JournalFault, JournalOperation, ManualClock, ModelReply, ScriptedModel,
        StreamAction, TestRuntime, ToolAction, ToolScript, wait_until,
    },
};
use greenroom_core::{
    approval::{Role, Surface},
    call::{CallFailureReason, ToolOutcome},
    cursor::Cursor,
    duration::ConfigDuration,
    ids::Seq,
    model::failure::ModelFailure,
    policy::{
        Risk,
        catalog::{CatalogEntry, RetryEntry},
    },
    session::{
        ApprovalAnswer, EventRecord, Input, NewMessage, OnBusy, Projection, Reply, SessionEvent,
        SessionState,
    },
};
use serde_json::json;
use std::{sync::Arc, time::Duration};

const LONG: Duration = Duration::from_secs(600);

/// Creates a repeatable tool with a long backoff between attempts.
fn retrying_tool() -> CatalogEntry {
    let delay = Some(ConfigDuration(LONG));
    let retry = Some(RetryEntry { retries_max: None, base: delay, cap: delay });
    CatalogEntry { risk: Some(Risk::ReadOnly), retry, ..CatalogEntry::default() }
}

fn is_unavailable(answer: &Result<Reply, CommandError>) -> bool {
    matches!(answer, Err(CommandError::Unavailable(_)))
}

#[actix::test]
async fn d1_command_that_cannot_be_stored_changes_nothing() {
    let world =
        TestRuntime::start(ScriptedModel::with_replies([ModelReply::text("x")]), FakeTools::new())
            .await;
    let session = world.create_session().await;
    let listener = world.subscribe(session, Cursor::default());
    world.journal.inject_fault(JournalOperation::Append, JournalFault::Unavailable, 2);
    for _ in 0..2 {
        assert!(is_unavailable(&world.execute(session, TestRuntime::submit_input("a")).await));
    }
    assert_eq!(world.journal.events(session).len(), 1);
    assert!(world.model.requests().is_empty(), "nothing was dispatched");
    listener.outlet.wait_for("the creation", received_event(Seq(1))).await;
    // The same message is accepted now, and clients receive it once.
    let run = world.submit(session, "a").await;
    world.wait_for_run_end(session, run).await;
    let events = world.journal.events(session);
    let head = events.last().expect("there are events").seq;
    listener.outlet.wait_for("the end", received_event(head)).await;
    assert_eq!(listener.outlet.events(), events);
    assert_eq!(world.model.requests().len(), 1);
}

#[actix::test]
async fn d1_nothing_is_published_or_dispatched_before_commit() {
    let world =
        TestRuntime::start(ScriptedModel::with_replies([ModelReply::text("x")]), FakeTools::new())
            .await;
    let session = world.create_session().await;
    let listener = world.subscribe(session, Cursor::default());
    listener.outlet.wait_for("the creation", received_event(Seq(1))).await;
    let gate = Gate::closed();
    world.journal.inject_fault(
        JournalOperation::Append,
        JournalFault::WaitAfterStoring(gate.clone()),
        1,
    );
    let runtime = world.runtime.clone();
    let submit =
        actix::spawn(async move { runtime.execute(session, TestRuntime::submit_input("a")).await });
    gate.wait_for_arrivals(1).await;
    assert!(world.model.requests().is_empty());
    assert_eq!(listener.outlet.items().len(), 1);
    assert!(!submit.is_finished());
    gate.open();
    let answer = submit.await.expect("the task does not panic");
    let Ok(Reply::Submitted { run_id, .. }) = answer else { panic!("accepted: {answer:?}") };
    world.wait_for_run_end(session, run_id).await;
}

#[actix::test]
async fn d1_d8_unstored_results_are_kept_in_order_and_nothing_new_starts() {
    let (first, second, third) = (Gate::closed(), Gate::closed(), Gate::closed());
    let gates = [first.clone(), second.clone(), third.clone()];
    let model = ScriptedModel::with_replies([
        ModelReply::with_calls([
            ("look", json!({"at": 0})),
            ("look", json!({"at": 1})),
            ("look", json!({"at": 2})),
        ]),
        ModelReply::text("done"),
    ]);
    let tools = FakeTools::new().with_tool("look", Risk::ReadOnly, move |call| {
        let index = call.arguments["at"].as_u64().unwrap();
        ToolScript::new().wait(&gates[usize::try_from(index).unwrap()]).finished(&index.to_string())
    });
    let world = TestRuntime::start(model, tools).await;
    let session = world.create_session().await;
    let run = world.submit(session, "a").await;
    world.tools.wait_for_calls(3).await;
    // The first result cannot be stored, neither when it arrives nor when storing is retried.
    let retry = Gate::closed();
    world.journal.inject_fault(JournalOperation::Append, JournalFault::Unavailable, 1);
    world.journal.inject_fault(JournalOperation::Append, JournalFault::Wait(retry.clone()), 1);
    let path = format!("/sessions/{session}");
    let failed = || {
        let snapshot = world.runtime.status_board.snapshot(&path);
        snapshot.is_some_and(|snapshot| snapshot.failed >= 1)
    };
    let handled = |count| {
        let board = world.runtime.status_board.clone();
        let path = path.clone();
        move || board.snapshot(&path).is_some_and(|snapshot| snapshot.handled >= count)
    };
    let before = world.runtime.status_board.snapshot(&path).expect("it is live").handled;
    first.open();
    wait_until("the failure", failed).await;
    second.open();
    wait_until("the second result", handled(before + 2)).await;
    third.open();
    wait_until("the third result", handled(before + 3)).await;
    assert!(completed_calls(&world.journal.events(session)).is_empty());
    assert!(is_unavailable(&world.execute(session, TestRuntime::submit_input("b")).await));
    assert_eq!(world.model.requests().len(), 1, "no new effect starts during the outage");
    retry.open();
    let end = world.wait_for_run_end(session, run).await;
    assert!(matches!(end, SessionEvent::RunCompleted { .. }), "{end:?}");
    let results = completed_calls(&world.journal.events(session));
    let results: Vec<_> = results.iter().map(|call| call.2.as_str()).collect();
    assert_eq!(results, ["0", "1", "2"], "in order of arrival");
    assert_eq!(world.tools.recorded_calls().len(), 3, "no call ran twice");
}

#[actix::test]
async fn d8_result_survives_an_outage_of_several_append_attempts() {
    let gate = Gate::closed();
    let model = ScriptedModel::with_replies([
        ModelReply::with_calls([("look", json!({})), ("look", json!({}))]),
        ModelReply::text("done"),
    ]);
    let tool_gate = gate.clone();
    let tools = FakeTools::new().with_tool("look", Risk::ReadOnly, move |_| {
        ToolScript::new().wait(&tool_gate).finished("seen")
    });
    let world = TestRuntime::start(model, tools).await;
    let session = world.create_session().await;
    let run = world.submit(session, "a").await;
    world.tools.wait_for_calls(2).await;
    world.journal.inject_fault(JournalOperation::Append, JournalFault::Unavailable, 3);
    gate.open();
    world.wait_for_run_end(session, run).await;
    assert_eq!(completed_calls(&world.journal.events(session)).len(), 2);
    // The session accepts commands again.
    world.model.push(ModelReply::text("more"));
    let run = world.submit(session, "b").await;
    world.wait_for_run_end(session, run).await;
}

#[actix::test]
async fn d1_session_is_rebuilt_after_an_append_conflict() {
    let world =
        TestRuntime::start(ScriptedModel::with_replies([ModelReply::text("x")]), FakeTools::new())
            .await;
    let session = world.create_session().await;
    let before = SessionState::replay(session, &world.journal.events(session));
    let event = SessionEvent::SessionSettingsChanged {
        settings: Arc::default(),
        title: Some("theirs".to_owned()),
        by: TestRuntime::user(),
    };
    let record =
        EventRecord { seq: Seq(2), at: ManualClock::START, run_id: None, step: None, event };
    let foreign = Commit {
        session_id: session,
        expected_head: before.last_seq,
        records: Arc::new([record]),
        projection: Projection::default(),
    };
    world.journal.append(foreign).await.expect("the commit is stored");
    assert!(is_unavailable(&world.execute(session, TestRuntime::submit_input("a")).await));
    let run = submit_with_retry(&world, session, "a").await;
    world.wait_for_run_end(session, run).await;
    let state = SessionState::replay(session, &world.journal.events(session));
    assert_eq!(state.active.title.as_deref(), Some("theirs"));
    assert_eq!(completed_messages(&world.journal.events(session)).len(), 1);
}

#[actix::test]
async fn d1_append_stored_despite_error_is_detected_and_dispatched() {
    let world =
        TestRuntime::start(ScriptedModel::with_replies([ModelReply::text("x")]), FakeTools::new())
            .await;
    let session = world.create_session().await;
    world.journal.inject_fault(JournalOperation::Append, JournalFault::UnavailableAfterStoring, 1);
    assert!(is_unavailable(&world.execute(session, TestRuntime::submit_input("a")).await));
    // Without a further command, the run in the log continues.
    let completed = |event: &SessionEvent| matches!(event, SessionEvent::RunCompleted { .. });
    world.wait_for(session, "the run's end", at_least(1, completed)).await;
    // A repetition of the command finds the run.
    let repeated_reply = world.execute(session, TestRuntime::submit_input("a")).await;
    assert!(matches!(repeated_reply, Ok(Reply::Repeated { .. })), "{repeated_reply:?}");
    assert_eq!(world.model.requests().len(), 1);
}

#[actix::test]
async fn d1_result_stored_despite_error_is_not_stored_twice() {
    let gate = Gate::closed();
    let model = ScriptedModel::with_replies([
        ModelReply::with_calls([("note", json!({}))]),
        ModelReply::text("done"),
    ]);
    let tool_gate = gate.clone();
    let tools = FakeTools::new().with_tool("note", Risk::WriteLowRisk, move |_| {
        ToolScript::new().wait(&tool_gate).finished("noted")
    });
    let world = TestRuntime::start(model, tools).await;
    let session = world.create_session().await;
    let run = world.submit(session, "a").await;
    world.tools.wait_for_calls(1).await;
    world.journal.inject_fault(JournalOperation::Append, JournalFault::UnavailableAfterStoring, 1);
    gate.open();
    world.wait_for_run_end(session, run).await;
    assert_eq!(completed_calls(&world.journal.events(session)).len(), 1);
    assert_eq!(world.tools.recorded_calls().len(), 1);
}

#[actix::test]
async fn d8_read_outage_does_not_park_sessions() {
    let world = TestRuntime::builder()
        .model(ScriptedModel::with_replies([ModelReply::text("x")]))
        .idle_timeout(Duration::ZERO)
        .start()
        .await;
    let session = world.create_session().await;
    let path = format!("/sessions/{session}");
    let is_passivated = || world.runtime.status_board.snapshot(&path).is_none();
    wait_until("the session to be passivated", is_passivated).await;
    world.journal.inject_fault(JournalOperation::Read, JournalFault::Unavailable, 5);
    let unavailable = world.execute(session, TestRuntime::submit_input("a")).await;
    assert!(is_unavailable(&unavailable), "{unavailable:?}");
    let run = submit_with_retry(&world, session, "a").await;
    world.wait_for_run_end(session, run).await;
}

#[actix::test]
async fn d2_streaming_step_restarts_after_a_crash() {
    let model = ScriptedModel::with_replies([
        ModelReply::new().delta("half").with_action(StreamAction::Hang),
        ModelReply::text("whole"),
    ]);
    let world = TestRuntime::start(model, FakeTools::new()).await;
    let session = world.create_session().await;
    let listener = world.subscribe(session, Cursor::default());
    let run = world.submit(session, "a").await;
    let half = |items: &[greenroom_actors::feed::FeedItem]| {
        items.last().is_some_and(|item| item.cursor.offset == 4).then_some(())
    };
    listener.outlet.wait_for("half of the text", half).await;
    let resumed = listener.outlet.items().last().expect("there are items").cursor;
    let world = world.crash_and_restart().await;
    let end = world.wait_for_run_end(session, run).await;
    assert!(matches!(end, SessionEvent::RunCompleted { .. }));
    // A client that resumes inside the discarded message is notified of the discarding first (E3).
    let listener = world.subscribe(session, resumed);
    let events = world.journal.events(session);
    listener.outlet.wait_for("the end", received_event(events.last().unwrap().seq)).await;
    let received = listener.outlet.events();
    let first = &received[0].event;
    assert!(matches!(first, SessionEvent::MessageDiscarded { .. }), "{first:?}");
    assert_eq!(listener.outlet.text_of(&completed_messages(&events)[0].0), "whole");
    assert_eq!(completed_messages(&events).len(), 1);
}

#[actix::test]
async fn d1_d2_stored_but_undispatched_effects_start_after_a_crash() {
    let model = ScriptedModel::with_replies([
        ModelReply::with_calls([("note", json!({}))]),
        ModelReply::text("done"),
    ]);
    let tools = FakeTools::new().with_tool("note", Risk::WriteLowRisk, |_| ToolScript::new());
    let world = TestRuntime::start(model, tools).await;
    let session = world.create_session().await;
    let gate = Gate::closed();
    world.journal.inject_fault(
        JournalOperation::Append,
        JournalFault::WaitAfterStoring(gate.clone()),
        1,
    );
    let runtime = world.runtime.clone();
    let submit =
        actix::spawn(async move { runtime.execute(session, TestRuntime::submit_input("a")).await });
    gate.wait_for_arrivals(1).await;
    let world = world.crash_and_restart().await;
    assert!(!submit.is_finished(), "the command was not acknowledged");
    let completed = |event: &SessionEvent| matches!(event, SessionEvent::RunCompleted { .. });
    world.wait_for(session, "the run's end", at_least(1, completed)).await;
    assert_eq!(world.model.requests().len(), 2);
    assert_eq!(world.tools.recorded_calls().len(), 1);
}

#[actix::test]
async fn d2_r2_backoff_survives_a_crash_and_resumes_when_due() {
    let failed =
        ModelReply::new().with_action(StreamAction::Fail(ModelFailure::temporary("overloaded")));
    let model = ScriptedModel::with_replies([
        failed,
        ModelReply::with_calls([("look", json!({}))]),
        ModelReply::text("done"),
    ]);
    let mut attempts = 0;
    let tools = FakeTools::new().with_catalog_entry("look", retrying_tool(), move |_| {
        attempts += 1;
        let outcome = ToolOutcome::NotSent { error: "no connection".to_owned() };
        if attempts == 1 {
            ToolScript::new().with_action(ToolAction::Finish(outcome))
        } else {
            ToolScript::new()
        }
    });
    let world = TestRuntime::builder()
        .model(model)
        .tools(tools)
        .clock(ManualClock::paused())
        .governance(|governance| {
            (governance.model_retry.initial_delay, governance.model_retry.max_delay) = (LONG, LONG);
        })
        .start()
        .await;
    let session = world.create_session().await;
    let run = world.submit(session, "a").await;
    let step_retrying = |event: &SessionEvent| matches!(event, SessionEvent::StepRetrying { .. });
    world.wait_for(session, "the step's backoff", at_least(1, step_retrying)).await;
    // Before the retry is due, the step keeps waiting.
    let world = world.crash_and_restart().await;
    let path = format!("/sessions/{session}");
    let waits = |world: &TestRuntime| {
        let shown = world.runtime.status_board.snapshot(&path);
        shown.is_some_and(|shown| shown.state == "backing off")
    };
    wait_until("the backoff to continue", || waits(&world)).await;
    assert_eq!(world.model.requests().len(), 1);
    // The retry becomes due while the process is down.
    let stopped = world.crash();
    let world = stopped.start_after(LONG).await;
    let retrying = |event: &SessionEvent| matches!(event, SessionEvent::ToolCallRetrying { .. });
    world.wait_for(session, "the call's backoff", at_least(1, retrying)).await;
    let world = world.crash().start_after(LONG).await;
    let end = world.wait_for_run_end(session, run).await;
    assert!(matches!(end, SessionEvent::RunCompleted { .. }));
    let events = world.journal.events(session);
    assert_eq!(count_events(&events, step_retrying), 1, "a restart does not count as a failure");
    assert_eq!(count_events(&events, retrying), 1);
    let keys: Vec<_> =
        world.tools.recorded_calls().into_iter().map(|call| call.idempotency_key).collect();
    assert_eq!(keys.len(), 2);
    assert_eq!(keys[0], keys[1]);
}

#[actix::test]
async fn d2_approval_survives_a_crash_with_its_deadline() {
    let model = ScriptedModel::with_replies([
        ModelReply::with_calls([("send", json!({"to": 1}))]),
        ModelReply::text("done"),
    ]);
    let tools = FakeTools::new().with_tool("send", Risk::WriteHighRisk, |_| ToolScript::new());
    let world = TestRuntime::start(model, tools).await;
    let session = world.create_session().await;
    let run = world.submit(session, "a").await;
    let before = world.wait_for(session, "the approval", last_approval).await;
    let world = world.crash_and_restart().await;
    assert!(world.tools.recorded_calls().is_empty());
    let answer = Input::AnswerApproval {
        approval_id: before.approval_id,
        answer: ApprovalAnswer::Overall { approved: true, reason: None },
        for_session: None,
        by: TestRuntime::user(),
        role: Role::User,
        surface: Surface::Rest,
    };
    let decided = world.execute(session, answer).await;
    assert!(matches!(decided, Ok(Reply::Answered { closed: true, repeated: false })));
    world.wait_for_run_end(session, run).await;
    let events = world.journal.events(session);
    assert_eq!(last_approval(&events), Some(before), "the same approval and deadline");
    assert_eq!(world.tools.recorded_calls().len(), 1);
}

#[actix::test]
async fn d2_queued_message_runs_after_a_crash() {
    let model = ScriptedModel::with_replies([
        ModelReply::new().with_action(StreamAction::Hang),
        ModelReply::text("one"),
        ModelReply::text("two"),
    ]);
    let world = TestRuntime::start(model, FakeTools::new()).await;
    let session = world.create_session().await;
    world.submit(session, "a").await;
    let queued = world.submit(session, "b").await;
    let world = world.crash_and_restart().await;
    let end = world.wait_for_run_end(session, queued).await;
    assert!(matches!(end, SessionEvent::RunCompleted { .. }));
    let messages = completed_messages(&world.journal.events(session));
    let texts: Vec<_> = messages.iter().map(|message| message.1.as_str()).collect();
    assert_eq!(texts, ["one", "two"]);
}

#[actix::test]
async fn d3_call_running_at_a_crash_is_repeated_only_if_repeatable() {
    let model = ScriptedModel::with_replies([
        ModelReply::with_calls([("look", json!({})), ("note", json!({}))]),
        ModelReply::text("done"),
    ]);
    let mut attempts = 0;
    let tools = FakeTools::new()
        .with_tool("look", Risk::ReadOnly, move |_| {
            attempts += 1;
            if attempts == 1 {
                ToolScript::new().with_action(ToolAction::Hang)
            } else {
                ToolScript::new().finished("seen")
            }
        })
        .with_tool("note", Risk::WriteLowRisk, |_| ToolScript::new().with_action(ToolAction::Hang));
    // A session that is not headless would request approval for the unknown outcome.
    let headless =
        TestRuntime::builder().model(model).tools(tools).agent(|agent| agent.headless = true);
    let world = headless.start().await;
    let session = world.create_session().await;
    let run = world.submit(session, "a").await;
    world.tools.wait_for_calls(2).await;
    let world = world.crash_and_restart().await;
    world.wait_for_run_end(session, run).await;
    let calls = world.tools.recorded_calls();
    let keys_of = |tool: &str| {
        let keys = calls.iter().filter(|call| call.tool == tool);
        keys.map(|call| call.idempotency_key.clone()).collect::<Vec<_>>()
    };
    assert_eq!(keys_of("note").len(), 1, "a call that is not repeatable is not repeated");
    assert_eq!(keys_of("look").len(), 2);
    assert_eq!(keys_of("look")[0], keys_of("look")[1]);
    let events = world.journal.events(session);
    let unknown = |event: &SessionEvent| {
        matches!(event, SessionEvent::ToolCallFailed { reason: CallFailureReason::OutcomeUnknown, tool, .. }
            if tool == "note")
    };
    assert_eq!(count_events(&events, unknown), 1);
    assert_eq!(completed_calls(&events).len(), 1);
}

#[actix::test]
async fn s5_idempotency_survives_a_crash() {
    let world =
        TestRuntime::start(ScriptedModel::with_replies([ModelReply::text("x")]), FakeTools::new())
            .await;
    let session = world.create_session().await;
    let run = world.submit(session, "a").await;
    world.wait_for_run_end(session, run).await;
    let world = world.crash_and_restart().await;
    assert_eq!(world.submit(session, "a").await, run);
    let Input::SubmitMessage { message: NewMessage { message_id, .. }, .. } =
        TestRuntime::submit_input("a")
    else {
        unreachable!()
    };
    let other = Input::SubmitMessage {
        message: NewMessage::new(
            TestRuntime::user(),
            message_id,
            "another body".into(),
            greenroom_core::json::Digest::hash_bytes(b"another body"),
        ),
        on_busy: OnBusy::Queue,
    };
    assert!(matches!(world.execute(session, other).await, Err(CommandError::Rejected(_))));
}
