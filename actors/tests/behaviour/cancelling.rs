//! Cancelling whatever goes on, at any moment (S6).

use crate::{asked, completed_calls, count, messages, once, was_told};
use greenroom_actors::{
    feed::FeedItem,
    session::CommandError,
    testing::{
        Act, Beat, FakeTools, Fault, Gate, Operation, Reply, ScriptedModel, Turn, World,
        within_patience,
    },
};
use greenroom_core::{
    call::{FailReason, ToolOutcome, ToolOutput},
    cursor::Cursor,
    ids::Seq,
    model::{delta::Delta, failure::ModelFailure},
    policy::{Autonomy, Risk, Settings},
    session::{Input, NewMessage, Rejection, Reply as Answer, SessionEvent},
};
use serde_json::json;
use std::time::Duration;

/// The session answers one more message.
async fn assert_usable(world: &World, session: greenroom_core::ids::SessionId, text: &str) {
    world.model.push(Reply::text("still here"));
    let run = world.submit(session, text).await;
    let end = world.run_end(session, run).await;
    assert!(matches!(end, SessionEvent::RunCompleted { .. }), "{end:?}");
}

fn failures(world: &World, session: greenroom_core::ids::SessionId) -> Vec<(FailReason, String)> {
    let failure = |event: &SessionEvent| match event {
        SessionEvent::ToolCallFailed { reason, error, .. } => Some((*reason, error.clone())),
        _other => None,
    };
    world.journal.events(session).iter().filter_map(|record| failure(&record.event)).collect()
}

#[actix::test]
async fn s6_a_cancelled_stream_keeps_what_clients_have_seen() {
    let model = ScriptedModel::saying([Reply::new().say("Größ").say("e 世").then(Beat::Hang)]);
    let world = World::start(model, FakeTools::none()).await;
    let session = world.create().await;
    let listener = world.listen(session, Cursor::default());
    let run = world.submit(session, "a").await;
    let length = u64::try_from("Größe 世".len()).unwrap();
    let seen = |items: &[FeedItem]| {
        items.last().is_some_and(|it| it.cursor.offset == length).then_some(())
    };
    listener.outlet.wait_for("the text so far", seen).await;
    assert_eq!(world.cancel(session).await.unwrap(), Answer::Cancelled { run_id: run });
    let events = world.journal.events(session);
    let (message_id, text, stopped) = messages(&events).remove(0);
    assert!(stopped);
    assert_eq!(text, "Größe 世");
    listener.outlet.wait_for("the end", was_told(events.last().unwrap().seq)).await;
    assert_eq!(listener.outlet.text_of(&message_id), text);
    assert!(matches!(world.run_end(session, run).await, SessionEvent::RunCancelled {
        message_id: Some(kept), ..
    } if kept == message_id));
    assert!(matches!(world.cancel(session).await, Err(CommandError::Rejected(Rejection::NoRun))));
    assert_usable(&world, session, "b").await;
}

#[actix::test]
async fn s6_cancelling_stops_running_tools_and_says_what_they_may_have_done() {
    let model = ScriptedModel::saying([Reply::calls([
        ("look", json!({})),
        ("note", json!({})),
        ("note", json!({"second": true})),
    ])]);
    let tools = FakeTools::none()
        .with("look", Risk::ReadOnly, |_| Turn::new().then(Act::Hang))
        .with("note", Risk::WriteLowRisk, |_| Turn::new().then(Act::Hang));
    let world = World::start(model, tools).await;
    let session = world.create().await;
    let run = world.submit(session, "a").await;
    let calls = world.tools.wait_for_calls(2).await;
    world.cancel(session).await.unwrap();
    for call in &calls {
        within_patience("the cancellation", call.cancel.cancelled()).await;
    }
    world.run_end(session, run).await;
    let failures = failures(&world, session);
    assert_eq!(failures.len(), 3);
    assert!(failures.iter().all(|failure| failure.0 == FailReason::Cancelled));
    assert!(failures[1].1.contains("may have taken effect"), "{failures:?}");
    assert!(failures[2].1.contains("did not take effect"), "{failures:?}");
    assert_eq!(world.tools.calls().len(), 2, "the third never started");
    assert_usable(&world, session, "b").await;
}

#[actix::test]
async fn s6_cancelling_ends_backoffs_of_steps_and_calls() {
    let long = Duration::from_secs(600);
    let model = ScriptedModel::saying([
        Reply::new().then(Beat::Fail(ModelFailure::temporary("overloaded")))
    ]);
    let world = World::builder()
        .model(model)
        .governance(|governance| {
            (governance.model_retry.base, governance.model_retry.cap) = (long, long);
        })
        .start()
        .await;
    let session = world.create().await;
    let run = world.submit(session, "a").await;
    let retrying = |event: &SessionEvent| matches!(event, SessionEvent::StepRetrying { .. });
    world.wait_for(session, "the backoff", once(1, retrying)).await;
    world.cancel(session).await.unwrap();
    assert!(matches!(world.run_end(session, run).await, SessionEvent::RunCancelled { .. }));
    assert_usable(&world, session, "b").await;
}

#[actix::test]
async fn s6_cancelling_closes_questions() {
    let model = ScriptedModel::saying([Reply::calls([("send", json!({}))])]);
    let tools = FakeTools::none().with("send", Risk::WriteHighRisk, |_| Turn::new());
    let world = World::start(model, tools).await;
    let session = world.create().await;
    world.submit(session, "a").await;
    world.wait_for(session, "the question", asked).await;
    world.cancel(session).await.unwrap();
    let cancelled = |event: &SessionEvent| matches!(event, SessionEvent::ApprovalCancelled { .. });
    assert_eq!(count(&world.journal.events(session), cancelled), 1);
    assert!(world.tools.calls().is_empty());
    assert_usable(&world, session, "b").await;
}

#[actix::test]
async fn s6_closing_keeps_what_was_said_too() {
    let model = ScriptedModel::saying([Reply::new().say("half").then(Beat::Hang)]);
    let world = World::start(model, FakeTools::none()).await;
    let session = world.create().await;
    let listener = world.listen(session, Cursor::default());
    world.submit(session, "a").await;
    let seen =
        |items: &[FeedItem]| items.last().is_some_and(|it| it.cursor.offset == 4).then_some(());
    listener.outlet.wait_for("the text so far", seen).await;
    let close = Input::Close { by: World::user(), partial: None };
    assert_eq!(world.command(session, close).await.unwrap(), Answer::Done);
    assert_eq!(messages(&world.journal.events(session))[0].1, "half");
    let refused = world.command(session, World::message("b")).await;
    assert!(matches!(refused, Err(CommandError::Rejected(Rejection::SessionClosed))));
}

#[actix::test]
async fn s6_a_stream_that_ended_before_the_cancel_was_looked_at_counts_as_ended() {
    let (model_gate, log_gate) = (Gate::closed(), Gate::closed());
    let last = vec![Delta::Text("whole".to_owned()), Delta::Finished];
    let model =
        ScriptedModel::saying([Reply::new().say("the ").wait(&model_gate).then(Beat::Say(last))]);
    let world = World::start(model, FakeTools::none()).await;
    let session = world.create().await;
    let listener = world.listen(session, Cursor::default());
    let run = world.submit(session, "a").await;
    model_gate.arrivals(1).await;
    // The session is busy storing; the cancel waits in its mailbox, before the stream's end.
    world.journal.fault(Operation::Append, Fault::Wait(log_gate.clone()), 1);
    let change = Input::ChangeSettings {
        change: Settings::default().into(),
        title: Some(Some("new".to_owned())),
        by: World::user(),
    };
    let busy = actix::spawn({
        let runtime = world.runtime.clone();
        async move { runtime.command(session, change).await }
    });
    log_gate.arrivals(1).await;
    let cancel = actix::spawn({
        let runtime = world.runtime.clone();
        let cancel = Input::Cancel { run_id: None, by: World::user(), partial: None };
        async move { runtime.command(session, cancel).await }
    });
    let path = format!("/sessions/{session}");
    let waits = || world.runtime.board.snapshot(&path).is_some_and(|it| it.mailbox_depth > 0);
    greenroom_actors::testing::eventually("the cancel to wait", waits).await;
    model_gate.open();
    let whole =
        |items: &[FeedItem]| items.last().is_some_and(|it| it.cursor.offset == 9).then_some(());
    listener.outlet.wait_for("the whole text", whole).await;
    log_gate.open();
    busy.await.unwrap().expect("the settings change");
    let cancelled = within_patience("the answer", cancel).await.unwrap();
    assert!(matches!(cancelled, Err(CommandError::Rejected(Rejection::NoRun))), "{cancelled:?}");
    let end = world.run_end(session, run).await;
    assert!(matches!(end, SessionEvent::RunCompleted { .. }), "{end:?}");
    let said = messages(&world.journal.events(session));
    assert_eq!((said[0].1.as_str(), said[0].2), ("the whole", false));
    assert_usable(&world, session, "b").await;
}

#[actix::test]
async fn s6_d8_a_cancel_that_cannot_be_stored_leaves_a_session_that_goes_on() {
    let model =
        ScriptedModel::saying([Reply::new().say("half").then(Beat::Hang), Reply::text("whole")]);
    let world = World::start(model, FakeTools::none()).await;
    let session = world.create().await;
    let listener = world.listen(session, Cursor::default());
    let run = world.submit(session, "a").await;
    let seen =
        |items: &[FeedItem]| items.last().is_some_and(|it| it.cursor.offset == 4).then_some(());
    listener.outlet.wait_for("the text so far", seen).await;
    world.journal.fault(Operation::Append, Fault::Unavailable, 1);
    let refused = world.cancel(session).await;
    assert!(matches!(refused, Err(CommandError::Unavailable(_))), "{refused:?}");
    // It was not cancelled, so it goes on: with a new message, since the stream was stopped.
    let end = world.run_end(session, run).await;
    assert!(matches!(end, SessionEvent::RunCompleted { .. }), "{end:?}");
    assert_eq!(messages(&world.journal.events(session))[0].1, "whole");
}

#[actix::test]
async fn s6_a_cancel_that_races_with_the_end_is_answered_and_leaves_the_session_usable() {
    let world = World::start(ScriptedModel::saying([]), FakeTools::none()).await;
    let session = world.create().await;
    let listener = world.listen(session, Cursor::default());
    listener.outlet.wait_for("the creation", was_told(Seq(1))).await;
    let (mut cancelled, mut completed) = (0, 0);
    for round in 0..150 {
        let gate = Gate::closed();
        world.model.push(Reply::new().say("one ").wait(&gate).say("two ").say("three").done());
        let run = world.submit(session, &format!("message {round}")).await;
        gate.arrivals(1).await;
        // The race: whoever is first wins, and both are fine.
        if round % 2 == 0 {
            gate.open();
        }
        let answer = actix::spawn({
            let runtime = world.runtime.clone();
            let cancel = Input::Cancel { run_id: None, by: World::user(), partial: None };
            async move { runtime.command(session, cancel).await }
        });
        tokio::task::yield_now().await;
        gate.open();
        match within_patience("the answer", answer).await.unwrap() {
            Ok(Answer::Cancelled { run_id }) => assert_eq!(run_id, run),
            Err(CommandError::Rejected(Rejection::NoRun)) => {}
            other => panic!("neither cancelled nor over: {other:?}"),
        }
        match world.run_end(session, run).await {
            SessionEvent::RunCancelled { .. } => cancelled += 1,
            SessionEvent::RunCompleted { .. } => completed += 1,
            other => panic!("neither cancelled nor completed: {other:?}"),
        }
    }
    assert_eq!(cancelled + completed, 150);
    let events = world.journal.events(session);
    listener.outlet.wait_for("the end", was_told(events.last().unwrap().seq)).await;
    assert_eq!(listener.outlet.events(), events);
    for (message_id, text, _) in messages(&events) {
        assert_eq!(listener.outlet.text_of(&message_id), text, "clients saw what was kept");
    }
    let discarded = |event: &SessionEvent| matches!(event, SessionEvent::MessageDiscarded { .. });
    assert_eq!(count(&events, discarded), 0, "what was said is never thrown away");
    assert!(completed_calls(&events).is_empty());
}

#[actix::test]
async fn s4_s6_an_interrupting_message_keeps_what_was_said_and_runs_before_those_that_wait() {
    let model = ScriptedModel::saying([
        Reply::new().say("half").then(Beat::Hang),
        Reply::text("interrupted"),
        Reply::text("queued"),
    ]);
    let world = World::start(model, FakeTools::none()).await;
    let session = world.create().await;
    let listener = world.listen(session, Cursor::default());
    let first = world.submit(session, "a").await;
    let queued = world.submit(session, "b").await;
    let seen = |items: &[FeedItem]| items.iter().any(|item| item.cursor.offset == 4).then_some(());
    listener.outlet.wait_for("the text so far", seen).await;
    let Input::SubmitMessage { message: NewMessage { message_id, text, digest, .. }, .. } =
        World::message("c")
    else {
        panic!("a message is submitted");
    };
    let interrupt = Input::Interrupt {
        message: NewMessage::new(message_id, text, digest),
        by: World::user(),
        partial: None,
    };
    let taken = world.command(session, interrupt).await;
    assert!(matches!(taken, Ok(Answer::Submitted { repeated: false, .. })), "{taken:?}");
    assert!(matches!(world.run_end(session, first).await, SessionEvent::RunCancelled { .. }));
    world.run_end(session, queued).await;
    let said: Vec<_> = messages(&world.journal.events(session))
        .into_iter()
        .map(|(_, text, stopped)| (text, stopped))
        .collect();
    let expected = [("half", true), ("interrupted", false), ("queued", false)];
    assert_eq!(said, expected.map(|(text, stopped)| (text.to_owned(), stopped)));
}

#[actix::test]
async fn r1_what_a_tool_answers_after_a_cancel_is_noted() {
    let late =
        ToolOutcome::Completed(ToolOutput { text: "order 17".to_owned(), ..Default::default() });
    let order = move |_: &_| Turn::new().then(Act::Late(late.clone()));
    let tools = FakeTools::none().with("order", Risk::WriteLowRisk, order);
    let model = ScriptedModel::saying([Reply::calls([("order", json!({}))])]);
    let world = World::start(model, tools).await;
    let assisted = Settings { autonomy_level: Autonomy::Assisted, ..Settings::default() };
    let session = world.create_with(assisted).await;
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
