//! From a message to its answer.

use crate::{completed_calls, completed_messages, received_event, received_items};
use greenroom_actors::{
    feed::FeedKind,
    testing::{FakeTools, ModelReply, ScriptedModel, StreamAction, TestRuntime, ToolScript},
};
use greenroom_core::{
    cursor::Cursor,
    ids::Seq,
    message::Message,
    model::failure::ModelFailure,
    policy::Risk,
    session::{RunFailureCode, SessionEvent},
};
use serde_json::json;

#[actix::test]
async fn s2_s3_e2_a_message_is_answered_with_the_help_of_tools() {
    let model = ScriptedModel::with_replies([
        ModelReply::new()
            .delta("Ich ")
            .delta("prüfe. ")
            .then_calls([("look", json!({"at": 1})), ("look", json!({"at": 2}))]),
        ModelReply::text("Fertig ✓"),
    ]);
    let tools = FakeTools::new().with_tool("look", Risk::ReadOnly, |call| {
        ToolScript::new().done(&format!("seen {}", call.arguments["at"]))
    });
    let world = TestRuntime::start(model, tools).await;
    let session = world.create_session().await;
    let listener = world.subscribe(session, Cursor::default());
    let run = world.submit(session, "hello").await;
    let end = world.wait_for_run_end(session, run).await;
    let events = world.journal.events(session);
    let said = completed_messages(&events);
    assert!(
        matches!(end, SessionEvent::RunCompleted { message_id, .. } if message_id == said[1].0)
    );

    let mut results: Vec<_> = completed_calls(&events).into_iter().map(|call| call.2).collect();
    results.sort();
    assert_eq!(results, ["seen 1", "seen 2"]);
    let last = world.model.requests().pop().expect("the model was asked twice");
    let Some(Message::ToolResults(read)) = last.messages.last() else {
        panic!("the model reads the results: {last:?}");
    };
    let read: Vec<_> = read.iter().map(|result| &*result.text).collect();
    assert_eq!(read, ["seen 1", "seen 2"], "in proposed order");
    assert_eq!(world.model.requests().len(), 2);

    // What was told is what was committed, in order, and the text adds up.
    let head = events.last().expect("there are events").seq;
    listener.outlet.wait_for("the last event", received_event(head)).await;
    assert_eq!(listener.outlet.events(), events);
    for (message_id, text, stopped) in &said {
        assert_eq!(listener.outlet.text_of(message_id), *text);
        assert!(!stopped);
    }
    assert_eq!(said[0].1, "Ich prüfe. ");
    let items = listener.outlet.items();
    assert!(items.windows(2).all(|pair| pair[0].cursor < pair[1].cursor), "cursors only grow");
    assert!(
        items.iter().all(|item| item.session_id == session && item.agent == TestRuntime::agent())
    );
    assert!(items.iter().any(|item| matches!(item.kind, FeedKind::Delta { .. })));
}

#[actix::test]
async fn s4_s5_queued_messages_run_in_turn_and_repeats_are_recognised() {
    let gate = greenroom_actors::testing::Gate::closed();
    let model = ScriptedModel::with_replies([
        ModelReply::new().delta("one").wait(&gate).done(),
        ModelReply::text("two"),
    ]);
    let world = TestRuntime::start(model, FakeTools::new()).await;
    let session = world.create_session().await;
    let first = world.submit(session, "a").await;
    let second = world.submit(session, "b").await;
    assert_eq!(world.submit(session, "a").await, first, "the same message is the same run");
    assert_eq!(world.submit(session, "b").await, second);
    gate.open();
    world.wait_for_run_end(session, second).await;
    let said: Vec<_> =
        completed_messages(&world.journal.events(session)).into_iter().map(|said| said.1).collect();
    assert_eq!(said, ["one", "two"]);
}

#[actix::test]
async fn m3_a_cut_stream_restarts_and_a_refusal_fails_the_run() {
    let model = ScriptedModel::with_replies([
        ModelReply::new().delta("half"),
        ModelReply::text("whole"),
        ModelReply::new().then(StreamAction::Fail(ModelFailure::from_status(
            401,
            "no such key",
            None,
        ))),
        ModelReply::text("still usable"),
    ]);
    let world = TestRuntime::start(model, FakeTools::new()).await;
    let session = world.create_session().await;
    let listener = world.subscribe(session, Cursor::default());
    listener.outlet.wait_for("the creation", received_event(Seq(1))).await;
    let run = world.submit(session, "a").await;
    world.wait_for_run_end(session, run).await;
    let run = world.submit(session, "b").await;
    let end = world.wait_for_run_end(session, run).await;
    let SessionEvent::RunFailed { code: RunFailureCode::ModelError, error, .. } = end else {
        panic!("the run fails: {end:?}");
    };
    assert_eq!(error, "no such key");
    let run = world.submit(session, "c").await;
    world.wait_for_run_end(session, run).await;

    let events = world.journal.events(session);
    let said: Vec<_> = completed_messages(&events).into_iter().map(|said| said.1).collect();
    assert_eq!(said, ["whole", "still usable"]);
    // Clients saw the half, that it is void, and then a new message.
    let head = events.last().expect("there are events").seq;
    listener.outlet.wait_for("the last event", received_event(head)).await;
    let void = events.iter().find_map(|record| match &record.event {
        SessionEvent::MessageDiscarded { message_id, .. } => Some(message_id.clone()),
        _other => None,
    });
    let void = void.expect("the half message was discarded");
    assert_eq!(listener.outlet.text_of(&void), "half");
    assert_eq!(listener.outlet.text_of(&completed_messages(&events)[0].0), "whole");
    assert!(!received_items(&listener.outlet.items()).is_empty());
}

#[actix::test]
async fn d8_draining_takes_nothing_new_and_tells_everyone() {
    let gate = greenroom_actors::testing::Gate::closed();
    let model = ScriptedModel::with_replies([ModelReply::new().delta("x").wait(&gate).done()]);
    let world = TestRuntime::start(model, FakeTools::new()).await;
    let session = world.create_session().await;
    let listener = world.subscribe(session, Cursor::default());
    let run = world.submit(session, "a").await;
    listener.outlet.wait_for("the first text", |items| (items.len() > 5).then_some(())).await;
    world.runtime.drain();
    let refused = world.execute(session, TestRuntime::submit_input("b")).await;
    assert!(matches!(refused, Err(greenroom_actors::session::CommandError::Draining)));
    let is_draining = |items: &[greenroom_actors::feed::FeedItem]| {
        items.iter().any(|item| item.kind == FeedKind::Draining).then_some(())
    };
    listener.outlet.wait_for("the news", is_draining).await;
    gate.open();
    // What runs may end.
    assert!(matches!(
        world.wait_for_run_end(session, run).await,
        SessionEvent::RunCompleted { .. }
    ));
}
