//! Processing of a message, from its submission to the final answer.

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
async fn s2_s3_e2_message_is_answered_using_tools() {
    let model = ScriptedModel::with_replies([
        ModelReply::new()
            .delta("Ich ")
            .delta("prüfe. ")
            .finished_with_calls([("look", json!({"at": 1})), ("look", json!({"at": 2}))]),
        ModelReply::text("Fertig ✓"),
    ]);
    let tools = FakeTools::new().with_tool("look", Risk::ReadOnly, |call| {
        ToolScript::new().finished(&format!("seen {}", call.arguments["at"]))
    });
    let world = TestRuntime::start(model, tools).await;
    let session = world.create_session().await;
    let listener = world.subscribe(session, Cursor::default());
    let run = world.submit(session, "hello").await;
    let end = world.wait_for_run_end(session, run).await;
    let events = world.journal.events(session);
    let messages = completed_messages(&events);
    let answer_id = &messages[1].0;
    assert!(
        matches!(end, SessionEvent::RunCompleted { message_id, .. } if message_id == *answer_id)
    );

    let mut results: Vec<_> = completed_calls(&events).into_iter().map(|call| call.2).collect();
    results.sort();
    assert_eq!(results, ["seen 1", "seen 2"]);
    let last = world.model.requests().pop().expect("a request was sent");
    let Some(Message::ToolResults(results)) = last.messages.last() else {
        panic!("the model reads the results: {last:?}");
    };
    let texts: Vec<_> = results.iter().map(|result| &*result.text).collect();
    assert_eq!(texts, ["seen 1", "seen 2"], "in proposed order");
    assert_eq!(world.model.requests().len(), 2);

    // Subscribers receive the committed events in order, and the deltas form the text.
    let head = events.last().expect("there are events").seq;
    listener.outlet.wait_for("the last event", received_event(head)).await;
    assert_eq!(listener.outlet.events(), events);
    for (message_id, text, stopped) in &messages {
        assert_eq!(listener.outlet.text_of(message_id), *text);
        assert!(!stopped);
    }
    assert_eq!(messages[0].1, "Ich prüfe. ");
    let items = listener.outlet.items();
    assert!(items.windows(2).all(|pair| pair[0].cursor < pair[1].cursor), "cursors only grow");
    assert!(
        items.iter().all(|item| item.session_id == session && item.agent == TestRuntime::agent())
    );
    assert!(items.iter().any(|item| matches!(item.kind, FeedKind::Delta { .. })));
}

#[actix::test]
async fn s4_s5_queued_messages_run_in_order_and_repetitions_are_recognised() {
    let gate = greenroom_actors::testing::Gate::closed();
    let model = ScriptedModel::with_replies([
        ModelReply::new().delta("one").wait(&gate).finished(),
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
    let messages = completed_messages(&world.journal.events(session));
    let texts: Vec<_> = messages.into_iter().map(|message| message.1).collect();
    assert_eq!(texts, ["one", "two"]);
}

#[actix::test]
async fn m3_cut_stream_restarts_step_and_permanent_error_fails_run() {
    let model = ScriptedModel::with_replies([
        ModelReply::new().delta("half"),
        ModelReply::text("whole"),
        ModelReply::new().with_action(StreamAction::Fail(ModelFailure::from_status(
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
    let texts: Vec<_> = completed_messages(&events).into_iter().map(|message| message.1).collect();
    assert_eq!(texts, ["whole", "still usable"]);
    // Clients receive the partial message, its discarding, and then a new message.
    let head = events.last().expect("there are events").seq;
    listener.outlet.wait_for("the last event", received_event(head)).await;
    let discarded = events.iter().find_map(|record| match &record.event {
        SessionEvent::MessageDiscarded { message_id, .. } => Some(message_id.clone()),
        _other => None,
    });
    let discarded = discarded.expect("the partial message was discarded");
    assert_eq!(listener.outlet.text_of(&discarded), "half");
    assert_eq!(listener.outlet.text_of(&completed_messages(&events)[0].0), "whole");
    assert!(!received_items(&listener.outlet.items()).is_empty());
}

#[actix::test]
async fn d8_draining_rejects_new_messages_and_notifies_subscribers() {
    let gate = greenroom_actors::testing::Gate::closed();
    let model = ScriptedModel::with_replies([ModelReply::new().delta("x").wait(&gate).finished()]);
    let world = TestRuntime::start(model, FakeTools::new()).await;
    let session = world.create_session().await;
    let listener = world.subscribe(session, Cursor::default());
    let run = world.submit(session, "a").await;
    listener.outlet.wait_for("the first text", |items| (items.len() > 5).then_some(())).await;
    world.runtime.drain();
    let result = world.execute(session, TestRuntime::submit_input("b")).await;
    assert!(matches!(result, Err(greenroom_actors::session::CommandError::Draining)));
    let is_draining = |items: &[greenroom_actors::feed::FeedItem]| {
        items.iter().any(|item| item.kind == FeedKind::Draining).then_some(())
    };
    listener.outlet.wait_for("the draining notice", is_draining).await;
    gate.open();
    // An active run may finish.
    assert!(matches!(
        world.wait_for_run_end(session, run).await,
        SessionEvent::RunCompleted { .. }
    ));
}
