//! Cancellation in every phase of a run (S6).

use crate::{
    at_least, completed_calls, completed_messages, count_events, last_approval, received_event,
};
use greenroom_actors::{
    feed::FeedItem,
    session::CommandError,
    testing::{
        FakeTools, Gate, JournalFault, JournalOperation, ModelReply, ScriptedModel, StreamAction,
        TestRuntime, ToolAction, ToolScript, with_timeout,
    },
};
use greenroom_core::{
    call::{CallFailureReason, ToolOutcome, ToolOutput},
    cursor::Cursor,
    ids::Seq,
    model::{delta::Delta, failure::ModelFailure},
    policy::{Autonomy, Risk, Settings},
    session::{Input, NewMessage, Rejection, Reply, SessionEvent},
};
use serde_json::json;
use std::time::Duration;

/// Asserts that the session answers one more message.
async fn assert_usable(world: &TestRuntime, session: greenroom_core::ids::SessionId, text: &str) {
    world.model.push(ModelReply::text("still here"));
    let run = world.submit(session, text).await;
    let end = world.wait_for_run_end(session, run).await;
    assert!(matches!(end, SessionEvent::RunCompleted { .. }), "{end:?}");
}

fn failures(
    world: &TestRuntime,
    session: greenroom_core::ids::SessionId,
) -> Vec<(CallFailureReason, String)> {
    let failure = |event: &SessionEvent| match event {
        SessionEvent::ToolCallFailed { reason, error, .. } => Some((*reason, error.clone())),
        _other => None,
    };
    world.journal.events(session).iter().filter_map(|record| failure(&record.event)).collect()
}

#[actix::test]
async fn s6_cancelled_stream_keeps_the_text_that_clients_received() {
    let model = ScriptedModel::with_replies([ModelReply::new()
        .delta("Größ")
        .delta("e 世")
        .with_action(StreamAction::Hang)]);
    let world = TestRuntime::start(model, FakeTools::new()).await;
    let session = world.create_session().await;
    let listener = world.subscribe(session, Cursor::default());
    let run = world.submit(session, "a").await;
    let length = u64::try_from("Größe 世".len()).unwrap();
    let received = |items: &[FeedItem]| {
        items.last().is_some_and(|item| item.cursor.offset == length).then_some(())
    };
    listener.outlet.wait_for("the text so far", received).await;
    assert_eq!(world.cancel(session).await.unwrap(), Reply::Cancelled { run_id: run });
    let events = world.journal.events(session);
    let (message_id, text, stopped) = completed_messages(&events).remove(0);
    assert!(stopped);
    assert_eq!(text, "Größe 世");
    listener.outlet.wait_for("the end", received_event(events.last().unwrap().seq)).await;
    assert_eq!(listener.outlet.text_of(&message_id), text);
    assert!(matches!(world.wait_for_run_end(session, run).await, SessionEvent::RunCancelled {
        message_id: Some(kept), ..
    } if kept == message_id));
    assert!(matches!(
        world.cancel(session).await,
        Err(CommandError::Rejected(Rejection::NoActiveRun))
    ));
    assert_usable(&world, session, "b").await;
}

#[actix::test]
async fn s6_cancellation_stops_tools_and_reports_possible_effects() {
    let model = ScriptedModel::with_replies([ModelReply::with_calls([
        ("look", json!({})),
        ("note", json!({})),
        ("note", json!({"second": true})),
    ])]);
    let tools = FakeTools::new()
        .with_tool("look", Risk::ReadOnly, |_| ToolScript::new().with_action(ToolAction::Hang))
        .with_tool("note", Risk::WriteLowRisk, |_| ToolScript::new().with_action(ToolAction::Hang));
    let world = TestRuntime::start(model, tools).await;
    let session = world.create_session().await;
    let run = world.submit(session, "a").await;
    let calls = world.tools.wait_for_calls(2).await;
    world.cancel(session).await.unwrap();
    for call in &calls {
        with_timeout("the cancellation", call.cancel.cancelled()).await;
    }
    world.wait_for_run_end(session, run).await;
    let failures = failures(&world, session);
    assert_eq!(failures.len(), 3);
    assert!(failures.iter().all(|failure| failure.0 == CallFailureReason::Cancelled));
    assert!(failures[1].1.contains("may have taken effect"), "{failures:?}");
    assert!(failures[2].1.contains("did not take effect"), "{failures:?}");
    assert_eq!(world.tools.recorded_calls().len(), 2, "the third call never started");
    assert_usable(&world, session, "b").await;
}

#[actix::test]
async fn s6_cancellation_ends_backoff_of_steps_and_calls() {
    let long = Duration::from_secs(600);
    let model =
        ScriptedModel::with_replies([ModelReply::new()
            .with_action(StreamAction::Fail(ModelFailure::temporary("overloaded")))]);
    let world = TestRuntime::builder()
        .model(model)
        .governance(|governance| {
            (governance.model_retry.initial_delay, governance.model_retry.max_delay) = (long, long);
        })
        .start()
        .await;
    let session = world.create_session().await;
    let run = world.submit(session, "a").await;
    let retrying = |event: &SessionEvent| matches!(event, SessionEvent::StepRetrying { .. });
    world.wait_for(session, "the backoff", at_least(1, retrying)).await;
    world.cancel(session).await.unwrap();
    assert!(matches!(
        world.wait_for_run_end(session, run).await,
        SessionEvent::RunCancelled { .. }
    ));
    assert_usable(&world, session, "b").await;
}

#[actix::test]
async fn s6_cancellation_closes_approvals() {
    let model = ScriptedModel::with_replies([ModelReply::with_calls([("send", json!({}))])]);
    let tools = FakeTools::new().with_tool("send", Risk::WriteHighRisk, |_| ToolScript::new());
    let world = TestRuntime::start(model, tools).await;
    let session = world.create_session().await;
    world.submit(session, "a").await;
    world.wait_for(session, "the approval", last_approval).await;
    world.cancel(session).await.unwrap();
    let cancelled = |event: &SessionEvent| matches!(event, SessionEvent::ApprovalCancelled { .. });
    assert_eq!(count_events(&world.journal.events(session), cancelled), 1);
    assert!(world.tools.recorded_calls().is_empty());
    assert_usable(&world, session, "b").await;
}

#[actix::test]
async fn s6_closing_keeps_the_text_received_so_far() {
    let model = ScriptedModel::with_replies([ModelReply::new()
        .delta("half")
        .with_action(StreamAction::Hang)]);
    let world = TestRuntime::start(model, FakeTools::new()).await;
    let session = world.create_session().await;
    let listener = world.subscribe(session, Cursor::default());
    world.submit(session, "a").await;
    let received =
        |items: &[FeedItem]| items.last().is_some_and(|item| item.cursor.offset == 4).then_some(());
    listener.outlet.wait_for("the text so far", received).await;
    let close = Input::CloseSession { by: TestRuntime::user(), partial: None };
    assert_eq!(world.execute(session, close).await.unwrap(), Reply::Done);
    assert_eq!(completed_messages(&world.journal.events(session))[0].1, "half");
    let result = world.execute(session, TestRuntime::submit_input("b")).await;
    assert!(matches!(result, Err(CommandError::Rejected(Rejection::SessionClosed))));
}

#[actix::test]
async fn s6_stream_that_ended_before_cancellation_was_handled_is_completed() {
    let (model_gate, log_gate) = (Gate::closed(), Gate::closed());
    let last = vec![Delta::Text("whole".to_owned()), Delta::Finished];
    let model = ScriptedModel::with_replies([ModelReply::new()
        .delta("the ")
        .wait(&model_gate)
        .with_action(StreamAction::Emit(last))]);
    let world = TestRuntime::start(model, FakeTools::new()).await;
    let session = world.create_session().await;
    let listener = world.subscribe(session, Cursor::default());
    let run = world.submit(session, "a").await;
    model_gate.wait_for_arrivals(1).await;
    // The session is storing; the cancellation waits in its mailbox, before the end of the stream.
    world.journal.inject_fault(JournalOperation::Append, JournalFault::Wait(log_gate.clone()), 1);
    let change = Input::ChangeSettings {
        patch: Settings::default().into(),
        title: Some(Some("new".to_owned())),
        by: TestRuntime::user(),
    };
    let busy = actix::spawn({
        let runtime = world.runtime.clone();
        async move { runtime.execute(session, change).await }
    });
    log_gate.wait_for_arrivals(1).await;
    let cancel = actix::spawn({
        let runtime = world.runtime.clone();
        let cancel = Input::CancelRun { run_id: None, by: TestRuntime::user(), partial: None };
        async move { runtime.execute(session, cancel).await }
    });
    let path = format!("/sessions/{session}");
    let waits = || {
        let snapshot = world.runtime.status_board.snapshot(&path);
        snapshot.is_some_and(|snapshot| snapshot.mailbox_depth > 0)
    };
    greenroom_actors::testing::wait_until("the cancellation to wait", waits).await;
    model_gate.open();
    let complete =
        |items: &[FeedItem]| items.last().is_some_and(|item| item.cursor.offset == 9).then_some(());
    listener.outlet.wait_for("the complete text", complete).await;
    log_gate.open();
    busy.await.unwrap().expect("the settings change");
    let cancelled = with_timeout("the answer", cancel).await.unwrap();
    assert!(
        matches!(cancelled, Err(CommandError::Rejected(Rejection::NoActiveRun))),
        "{cancelled:?}"
    );
    let end = world.wait_for_run_end(session, run).await;
    assert!(matches!(end, SessionEvent::RunCompleted { .. }), "{end:?}");
    let messages = completed_messages(&world.journal.events(session));
    assert_eq!((messages[0].1.as_str(), messages[0].2), ("the whole", false));
    assert_usable(&world, session, "b").await;
}

#[actix::test]
async fn s6_d8_cancellation_that_cannot_be_stored_lets_the_session_continue() {
    let model = ScriptedModel::with_replies([
        ModelReply::new().delta("half").with_action(StreamAction::Hang),
        ModelReply::text("whole"),
    ]);
    let world = TestRuntime::start(model, FakeTools::new()).await;
    let session = world.create_session().await;
    let listener = world.subscribe(session, Cursor::default());
    let run = world.submit(session, "a").await;
    let received =
        |items: &[FeedItem]| items.last().is_some_and(|item| item.cursor.offset == 4).then_some(());
    listener.outlet.wait_for("the text so far", received).await;
    world.journal.inject_fault(JournalOperation::Append, JournalFault::Unavailable, 1);
    let result = world.cancel(session).await;
    assert!(matches!(result, Err(CommandError::Unavailable(_))), "{result:?}");
    // The run continues with a new message, because the stream was stopped.
    let end = world.wait_for_run_end(session, run).await;
    assert!(matches!(end, SessionEvent::RunCompleted { .. }), "{end:?}");
    assert_eq!(completed_messages(&world.journal.events(session))[0].1, "whole");
}

#[actix::test]
async fn s6_cancellation_racing_with_the_end_is_answered_and_session_stays_usable() {
    let world = TestRuntime::start(ScriptedModel::with_replies([]), FakeTools::new()).await;
    let session = world.create_session().await;
    let listener = world.subscribe(session, Cursor::default());
    listener.outlet.wait_for("the creation", received_event(Seq(1))).await;
    let (mut cancelled, mut completed) = (0, 0);
    for round in 0..150 {
        let gate = Gate::closed();
        world.model.push(
            ModelReply::new().delta("one ").wait(&gate).delta("two ").delta("three").finished(),
        );
        let run = world.submit(session, &format!("message {round}")).await;
        gate.wait_for_arrivals(1).await;
        // The race: the first one wins; both results are valid.
        if round % 2 == 0 {
            gate.open();
        }
        let answer = actix::spawn({
            let runtime = world.runtime.clone();
            let cancel = Input::CancelRun { run_id: None, by: TestRuntime::user(), partial: None };
            async move { runtime.execute(session, cancel).await }
        });
        tokio::task::yield_now().await;
        gate.open();
        match with_timeout("the answer", answer).await.unwrap() {
            Ok(Reply::Cancelled { run_id }) => assert_eq!(run_id, run),
            Err(CommandError::Rejected(Rejection::NoActiveRun)) => {}
            other => panic!("neither cancelled nor over: {other:?}"),
        }
        match world.wait_for_run_end(session, run).await {
            SessionEvent::RunCancelled { .. } => cancelled += 1,
            SessionEvent::RunCompleted { .. } => completed += 1,
            other => panic!("neither cancelled nor completed: {other:?}"),
        }
    }
    assert_eq!(cancelled + completed, 150);
    let events = world.journal.events(session);
    listener.outlet.wait_for("the end", received_event(events.last().unwrap().seq)).await;
    assert_eq!(listener.outlet.events(), events);
    for (message_id, text, _) in completed_messages(&events) {
        assert_eq!(listener.outlet.text_of(&message_id), text, "clients received the kept text");
    }
    let discarded = |event: &SessionEvent| matches!(event, SessionEvent::MessageDiscarded { .. });
    assert_eq!(count_events(&events, discarded), 0, "received text is never discarded");
    assert!(completed_calls(&events).is_empty());
}

#[actix::test]
async fn s4_s6_interrupting_message_keeps_text_and_runs_before_queued_messages() {
    let model = ScriptedModel::with_replies([
        ModelReply::new().delta("half").with_action(StreamAction::Hang),
        ModelReply::text("interrupted"),
        ModelReply::text("queued"),
    ]);
    let world = TestRuntime::start(model, FakeTools::new()).await;
    let session = world.create_session().await;
    let listener = world.subscribe(session, Cursor::default());
    let first = world.submit(session, "a").await;
    let queued = world.submit(session, "b").await;
    let received =
        |items: &[FeedItem]| items.iter().any(|item| item.cursor.offset == 4).then_some(());
    listener.outlet.wait_for("the text so far", received).await;
    let Input::SubmitMessage { message: NewMessage { message_id, text, digest, .. }, .. } =
        TestRuntime::submit_input("c")
    else {
        panic!("a message is submitted");
    };
    let interrupt = Input::Interrupt {
        message: NewMessage::new(TestRuntime::user(), message_id, text, digest),
        by: TestRuntime::user(),
        partial: None,
    };
    let result = world.execute(session, interrupt).await;
    assert!(matches!(result, Ok(Reply::Submitted { .. })), "{result:?}");
    assert!(matches!(
        world.wait_for_run_end(session, first).await,
        SessionEvent::RunCancelled { .. }
    ));
    world.wait_for_run_end(session, queued).await;
    let messages: Vec<_> = completed_messages(&world.journal.events(session))
        .into_iter()
        .map(|(_, text, stopped)| (text, stopped))
        .collect();
    let expected = [("half", true), ("interrupted", false), ("queued", false)];
    assert_eq!(messages, expected.map(|(text, stopped)| (text.to_owned(), stopped)));
}

#[actix::test]
async fn r1_tool_result_after_cancellation_is_recorded() {
    let late_outcome =
        ToolOutcome::Completed(ToolOutput { text: "order 17".to_owned(), ..Default::default() });
    let order =
        move |_: &_| ToolScript::new().with_action(ToolAction::LateResult(late_outcome.clone()));
    let tools = FakeTools::new().with_tool("order", Risk::WriteLowRisk, order);
    let model = ScriptedModel::with_replies([ModelReply::with_calls([("order", json!({}))])]);
    let world = TestRuntime::start(model, tools).await;
    let assisted = Settings { autonomy_level: Autonomy::Assisted, ..Settings::default() };
    let session = world.create_session_with(assisted).await;
    world.submit(session, "go").await;
    world.tools.wait_for_calls(1).await;
    world.cancel(session).await.unwrap();
    let summary = world
        .wait_for(session, "the late result", |events| {
            events.iter().find_map(|record| match &record.event {
                SessionEvent::LateResult { summary, .. } => Some(summary.clone()),
                _other => None,
            })
        })
        .await;
    assert_eq!(summary, "completed: order 17");
    assert_usable(&world, session, "b").await;
}
