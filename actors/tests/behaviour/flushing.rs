//! Text and progress are buffered for a flush interval before they are published (E5).

use crate::received_event;
use greenroom_actors::{
    feed::{FeedItem, FeedKind},
    ports::Progress,
    testing::{
        FakeTools, Gate, ModelReply, ScriptedModel, TestRuntime, ToolAction, ToolScript,
        with_timeout,
    },
};
use greenroom_core::{cursor::Cursor, ids::Seq, policy::Risk, session::SessionEvent};
use serde_json::json;
use std::time::Duration;

/// A flush interval longer than any test: buffered data is flushed for another reason.
const NEVER: Duration = Duration::from_secs(3600);

/// Returns the pieces of text, as received.
fn delta_texts(items: &[FeedItem]) -> Vec<String> {
    let piece = |item: &FeedItem| match &item.kind {
        FeedKind::Delta { text, .. } => Some(text.to_string()),
        FeedKind::Event(_) | FeedKind::Draining | FeedKind::Purged | FeedKind::Broken(_) => None,
    };
    items.iter().filter_map(piece).collect()
}

#[actix::test]
async fn e5_text_is_buffered_until_interval_or_next_event() {
    let gate = Gate::closed();
    let reply = ModelReply::new()
        .delta("one ")
        .delta("two ")
        .delta("three")
        .wait(&gate)
        .delta(" four")
        .finished();
    let world = TestRuntime::builder()
        .model(ScriptedModel::with_replies([reply]))
        .flush_interval(NEVER)
        .start()
        .await;
    let session = world.create_session().await;
    let early = world.subscribe(session, Cursor::default());
    early.outlet.wait_for("the creation", received_event(Seq(1))).await;
    let run = world.submit(session, "hello").await;
    let is_open = |items: &[FeedItem]| {
        let starts = |item: &&FeedItem| {
            matches!(&item.kind, FeedKind::Event(record)
                if matches!(record.event, SessionEvent::MessageStarted { .. }))
        };
        items.iter().find(starts).map(|item| item.cursor)
    };
    let opened = early.outlet.wait_for("the message", is_open).await;
    let position = Cursor { offset: 13, ..opened };
    let wait = async {
        while world.runtime.validate_cursor(session, position).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    with_timeout("the model's text", wait).await;
    // A late subscriber receives the buffered text, which is part of the open message.
    let late_listener = world.subscribe(session, Cursor::default());
    let so_far =
        |items: &[FeedItem]| (delta_texts(items).concat() == "one two three").then_some(());
    late_listener.outlet.wait_for("the text so far", so_far).await;
    assert_eq!(delta_texts(&early.outlet.items()), [""; 0], "the text is still buffered");
    gate.release_one();
    world.wait_for_run_end(session, run).await;
    let head = world.journal.events(session).last().expect("there are events").seq;
    for listener in [&early, &late_listener] {
        listener.outlet.wait_for("the end", received_event(head)).await;
    }
    assert_eq!(delta_texts(&late_listener.outlet.items()).concat(), "one two three four");
    let items = early.outlet.items();
    assert_eq!(delta_texts(&items), ["one two three four"], "one piece before the message's end");
    let cursors: Vec<_> = items.iter().map(|item| item.cursor).collect();
    assert!(cursors.is_sorted(), "{cursors:?}");
}

#[actix::test]
async fn e5_buffered_text_is_flushed_after_the_interval() {
    let gate = Gate::closed();
    let reply = ModelReply::new().delta("one ").delta("two").wait(&gate).finished();
    let flush = Duration::from_millis(1);
    let world = TestRuntime::builder()
        .model(ScriptedModel::with_replies([reply]))
        .flush_interval(flush)
        .start()
        .await;
    let session = world.create_session().await;
    let listener = world.subscribe(session, Cursor::default());
    let run = world.submit(session, "hello").await;
    let all = |items: &[FeedItem]| (delta_texts(items).concat() == "one two").then_some(());
    listener.outlet.wait_for("the text", all).await;
    gate.release_one();
    world.wait_for_run_end(session, run).await;
}

#[actix::test]
async fn e5_progress_is_buffered_and_keeps_its_position() {
    let gate = Gate::closed();
    let report = |progress| ToolAction::Progress(Progress { progress, total: None, message: None });
    let model = ScriptedModel::with_replies([
        ModelReply::with_calls([("look", json!({}))]),
        ModelReply::text("done"),
    ]);
    let tool_gate = gate.clone();
    let tools = FakeTools::new().with_tool("look", Risk::ReadOnly, move |_| {
        ToolScript::new().with_action(report(0.5)).wait(&tool_gate)
    });
    let world =
        TestRuntime::builder().model(model).tools(tools).flush_interval(NEVER).start().await;
    let session = world.create_session().await;
    let listener = world.subscribe(session, Cursor::default());
    listener.outlet.wait_for("the creation", received_event(Seq(1))).await;
    let run = world.submit(session, "hello").await;
    let is_progress = |event: &SessionEvent| matches!(event, SessionEvent::ToolCallProgress { .. });
    let progress_seq = world
        .wait_for(session, "progress", |events| {
            events.iter().find(|record| is_progress(&record.event)).map(|record| record.seq)
        })
        .await;
    gate.release_one();
    world.wait_for_run_end(session, run).await;
    let head = world.journal.events(session).last().expect("there are events").seq;
    listener.outlet.wait_for("the end", received_event(head)).await;
    let events = listener.outlet.events();
    let seqs: Vec<_> = events.iter().map(|record| record.seq.0).collect();
    assert_eq!(seqs, (1..=head.0).collect::<Vec<_>>());
    let index = usize::try_from(progress_seq.0).expect("small") - 1;
    assert!(is_progress(&events[index].event));
}
