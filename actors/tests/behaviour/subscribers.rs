//! Subscribers at any cursor and any speed receive every item exactly once (E2 to E4).

use crate::{ReceivedItem, completed_messages, received_event, received_items};
use greenroom_actors::{
    feed::FeedItem,
    limits::{SUBSCRIBER_BACKLOG_MAX, SUBSCRIBER_MAILBOX_MAX},
    runtime::CursorError,
    testing::{
        FakeTools, Gate, JournalFault, JournalOperation, ModelReply, ScriptedModel, TestRuntime,
        TestSubscriber, ToolScript, wait_until,
    },
};
use greenroom_core::{
    cursor::Cursor,
    ids::{Seq, SessionId},
    policy::Risk,
    session::SessionEvent,
};
use serde_json::json;

const TEXT: &str = "Grüße, 世界 👋 — ende";

/// Returns the items after `cursor`, for a client that has received `items` up to it.
fn items_after(items: &[FeedItem], cursor: Cursor) -> Vec<ReceivedItem> {
    let start = items.iter().position(|item| item.cursor > cursor).unwrap_or(items.len());
    received_items(&items[start..])
}

fn head(world: &TestRuntime, session: SessionId) -> Seq {
    world.journal.events(session).last().expect("there are events").seq
}

/// Runs a session with two messages, a call, a discarded message and an empty one.
async fn finished_session() -> (TestRuntime, SessionId, Vec<FeedItem>) {
    let model = ScriptedModel::with_replies([
        TEXT.chars()
            .fold(ModelReply::new(), |reply, piece| reply.delta(&piece.to_string()))
            .finished_with_calls([("look", json!({}))]),
        ModelReply::new().delta("cut "),
        ModelReply::new().finished_with_calls([("look", json!({}))]),
        ModelReply::text(TEXT),
    ]);
    let tools = FakeTools::new().with_tool("look", Risk::ReadOnly, |_| ToolScript::new());
    let world = TestRuntime::start(model, tools).await;
    let session = world.create_session().await;
    let listener = world.subscribe(session, Cursor::default());
    listener.outlet.wait_for("the creation", received_event(Seq(1))).await;
    let run = world.submit(session, "hello").await;
    world.wait_for_run_end(session, run).await;
    listener.outlet.wait_for("the end", received_event(head(&world, session))).await;
    let items = listener.outlet.items();
    (world, session, items)
}

#[actix::test]
async fn e2_e3_finished_session_resumes_at_every_cursor() {
    let (world, session, items) = finished_session().await;
    let head = head(&world, session);
    let cursors = std::iter::once(Cursor::default()).chain(items.iter().map(|item| item.cursor));
    let mut checked = 0;
    for cursor in cursors.filter(|cursor| cursor.seq < head) {
        world.runtime.validate_cursor(session, cursor).await.expect("an issued cursor");
        let listener = world.subscribe(session, cursor);
        listener.outlet.wait_for("the end", received_event(head)).await;
        let received = received_items(&listener.outlet.items());
        let mut expected = items_after(&items, cursor);
        // The text of a discarded message is not sent again; its discarding follows.
        expected.retain(
            |item| !matches!(item, ReceivedItem::Text { text, .. } if "cut ".ends_with(text)),
        );
        assert_eq!(received, expected, "from {cursor}");
        listener.stop().await;
        checked += 1;
    }
    assert!(checked > 40, "{checked}");
    // At the head, the next item is the next new event.
    let listener = world.subscribe(session, Cursor::after_seq(head));
    world.model.push(ModelReply::text("more"));
    let run = world.submit(session, "again").await;
    world.wait_for_run_end(session, run).await;
    listener.outlet.wait_for("the new end", received_event(self::head(&world, session))).await;
    assert_eq!(received_items(&listener.outlet.items())[0], ReceivedItem::Event(head.next()));
}

#[actix::test]
async fn e3_invalid_cursors_are_rejected() {
    let (world, session, items) = finished_session().await;
    let started = items.iter().find(|item| item.cursor.offset > 0).expect("there is text").cursor;
    let validate =
        |offset| world.runtime.validate_cursor(session, Cursor { seq: started.seq, offset });
    // `Grü`: the third character has two bytes.
    assert!(validate(2).await.is_ok());
    assert!(matches!(validate(3).await, Err(CursorError::Invalid)));
    assert!(validate(4).await.is_ok());
    let length = u64::try_from(TEXT.len()).expect("short");
    assert!(validate(length).await.is_ok());
    assert!(matches!(validate(length + 1).await, Err(CursorError::BeyondHead { .. })));
    let ahead = Cursor::after_seq(head(&world, session).next());
    assert!(matches!(
        world.runtime.validate_cursor(session, ahead).await,
        Err(CursorError::BeyondHead { .. })
    ));
    let nothing_open = Cursor { seq: Seq(1), offset: 1 };
    assert!(matches!(
        world.runtime.validate_cursor(session, nothing_open).await,
        Err(CursorError::Invalid)
    ));
}

#[actix::test]
async fn e2_e3_open_message_resumes_at_every_cursor() {
    let gates: Vec<_> = TEXT.chars().map(|_| Gate::closed()).collect();
    let reply = TEXT
        .chars()
        .zip(&gates)
        .fold(ModelReply::new(), |reply, (piece, gate)| reply.delta(&piece.to_string()).wait(gate));
    let world =
        TestRuntime::start(ScriptedModel::with_replies([reply.finished()]), FakeTools::new()).await;
    let session = world.create_session().await;
    let reference = world.subscribe(session, Cursor::default());
    let run = world.submit(session, "hello").await;
    let mut late_subscribers = Vec::new();
    let mut length = 0;
    for (piece, gate) in TEXT.chars().zip(&gates) {
        length += u64::try_from(piece.len_utf8()).expect("small");
        let received =
            |items: &[FeedItem]| (items.last()?.cursor.offset == length).then(|| items.to_vec());
        let items = reference.outlet.wait_for("the piece", received).await;
        // One subscriber at every cursor so far, and one from the start.
        let cursors = items.iter().map(|item| item.cursor);
        for cursor in std::iter::once(Cursor::default()).chain(cursors) {
            world.runtime.validate_cursor(session, cursor).await.expect("a cursor of this message");
            late_subscribers.push((cursor, world.subscribe(session, cursor)));
        }
        gate.release_one();
    }
    world.wait_for_run_end(session, run).await;
    let head = head(&world, session);
    reference.outlet.wait_for("the end", received_event(head)).await;
    let items = reference.outlet.items();
    for (cursor, listener) in &late_subscribers {
        listener.outlet.wait_for("the end", received_event(head)).await;
        assert_eq!(
            received_items(&listener.outlet.items()),
            items_after(&items, *cursor),
            "from {cursor}"
        );
    }
    assert_eq!(world.runtime.subscriber_count(session), late_subscribers.len() + 1);
    for (_, listener) in late_subscribers {
        listener.stop().await;
    }
    wait_until("the subscribers to stop", || world.runtime.subscriber_count(session) == 1).await;
}

/// Grants capacity in portions until the subscriber has received `head`.
async fn drain_in_portions(listener: &TestSubscriber, portion: usize, head: Seq) {
    let mut capacity = portion;
    loop {
        let full = |items: &[FeedItem]| {
            let finished = items.last().is_some_and(|item| item.cursor.seq >= head);
            (finished || items.len() >= capacity).then_some(finished)
        };
        if listener.outlet.wait_for("a full outlet", full).await {
            return;
        }
        listener.add_capacity(portion).await;
        capacity += portion;
    }
}

#[actix::test]
async fn e2_e4_slow_clients_receive_every_item_once_without_delaying_others() {
    let gate = Gate::closed();
    let long = "äöü".repeat(100);
    let reply = |text: &str| {
        text.chars().fold(ModelReply::new(), |reply, piece| reply.delta(&piece.to_string()))
    };
    let model = ScriptedModel::with_replies([
        reply(&long).wait(&gate).finished_with_calls([("look", json!({}))]),
        reply(&long).finished(),
    ]);
    let tools = FakeTools::new().with_tool("look", Risk::ReadOnly, |_| ToolScript::new());
    let world = TestRuntime::start(model, tools).await;
    let session = world.create_session().await;
    let stalled = world.subscribe_with_capacity(session, Cursor::default(), 1);
    let slow: Vec<_> = [1, 2, 7]
        .map(|portion| {
            (portion, world.subscribe_with_capacity(session, Cursor::default(), portion))
        })
        .into();
    let quick = world.subscribe(session, Cursor::default());
    let run = world.submit(session, "hello").await;
    gate.wait_for_arrivals(1).await;
    gate.open();
    // No slow client has granted capacity yet, but the run ends.
    world.wait_for_run_end(session, run).await;
    let head = head(&world, session);
    quick.outlet.wait_for("the end", received_event(head)).await;
    for (portion, listener) in &slow {
        drain_in_portions(listener, *portion, head).await;
        assert!(listener.outlet.rejected_count() > 0, "the outlet was never full");
        assert_eq!(
            received_items(&listener.outlet.items()),
            received_items(&quick.outlet.items()),
            "{portion}"
        );
    }
    assert_eq!(stalled.outlet.items().len(), 1);
}

#[actix::test]
async fn e4_client_with_capacity_of_one_keeps_up_with_a_stream() {
    let pieces = 40;
    let gates: Vec<_> = (0..pieces).map(|_| Gate::closed()).collect();
    let reply =
        gates.iter().fold(ModelReply::new(), |reply, gate| reply.delta("é—").wait(gate)).finished();
    let world = TestRuntime::start(ScriptedModel::with_replies([reply]), FakeTools::new()).await;
    let session = world.create_session().await;
    let listener = world.subscribe_with_capacity(session, Cursor::default(), 1);
    let run = world.submit(session, "hello").await;
    for gate in &gates {
        gate.wait_for_arrivals(1).await;
        gate.release_one();
        listener.add_capacity(1).await;
    }
    world.wait_for_run_end(session, run).await;
    let head = head(&world, session);
    loop {
        let all = |items: &[FeedItem]| items.last().is_some_and(|item| item.cursor.seq >= head);
        if all(&listener.outlet.items()) {
            break;
        }
        listener.add_capacity(1).await;
        tokio::task::yield_now().await;
    }
    let complete = world.subscribe(session, Cursor::default());
    complete.outlet.wait_for("the end", received_event(head)).await;
    assert_eq!(received_items(&listener.outlet.items()), received_items(&complete.outlet.items()));
}

#[actix::test]
async fn e4_subscriber_detached_for_full_mailbox_resubscribes() {
    let gate = Gate::closed();
    let pieces = SUBSCRIBER_MAILBOX_MAX * 4;
    let reply = (0..pieces).fold(ModelReply::new().wait(&gate), |reply, _| reply.delta("é"));
    let world =
        TestRuntime::start(ScriptedModel::with_replies([reply.finished()]), FakeTools::new()).await;
    let session = world.create_session().await;
    let listener = world.subscribe(session, Cursor::default());
    world.submit(session, "hello").await;
    gate.wait_for_arrivals(1).await;
    listener.outlet.wait_for("the open message", received_event(head(&world, session))).await;
    let before = listener.outlet.items().len();
    gate.open();
    // The subscriber runs on this thread: while the thread is busy, its mailbox is not processed.
    let ended = |event: &SessionEvent| matches!(event, SessionEvent::RunCompleted { .. });
    let started = std::time::Instant::now();
    while crate::count_events(&world.journal.events(session), ended) == 0 {
        assert!(
            started.elapsed() < greenroom_actors::testing::TEST_TIMEOUT,
            "the run does not end"
        );
        std::thread::yield_now();
    }
    listener.outlet.wait_for("the end", received_event(head(&world, session))).await;
    let (message_id, text, _) = completed_messages(&world.journal.events(session)).remove(0);
    assert_eq!(text.len(), pieces * 2);
    assert_eq!(listener.outlet.text_of(&message_id), text);
    let items = listener.outlet.items().len() - before;
    assert!(items < pieces, "received in {items} items; the stream had {pieces} pieces");
}

#[actix::test]
async fn e4_replay_backlog_is_bounded_and_loses_nothing() {
    let (first, reading) = (Gate::closed(), Gate::closed());
    let pieces = SUBSCRIBER_BACKLOG_MAX * 3;
    let reply = (0..pieces).fold(ModelReply::new().wait(&first), |reply, _| reply.delta("世"));
    let world =
        TestRuntime::start(ScriptedModel::with_replies([reply.finished()]), FakeTools::new()).await;
    let session = world.create_session().await;
    let run = world.submit(session, "hello").await;
    first.wait_for_arrivals(1).await;
    world.journal.inject_session_fault(
        session,
        JournalOperation::Read,
        JournalFault::Wait(reading.clone()),
        1,
    );
    // A subscriber at cursor 0 does not load the open message: its first read is the replay.
    let listener = world.subscribe(session, Cursor::default());
    reading.wait_for_arrivals(1).await;
    first.open();
    world.wait_for_run_end(session, run).await;
    reading.open();
    listener.outlet.wait_for("the end", received_event(head(&world, session))).await;
    let (message_id, text, _) = completed_messages(&world.journal.events(session)).remove(0);
    assert_eq!(listener.outlet.text_of(&message_id), text);
    assert_eq!(listener.outlet.events(), world.journal.events(session));
}

#[actix::test]
async fn e2_many_sessions_and_subscribers_do_not_mix() {
    let model = ScriptedModel::with_handler(|request| {
        let text = format!("{:?}", request.messages.last());
        ModelReply::text(&text)
    });
    let world = TestRuntime::builder().model(model).shard_count(3).start().await;
    let mut all = Vec::new();
    for index in 0..20 {
        let session = world.create_session().await;
        let listeners = [(); 3].map(|()| world.subscribe(session, Cursor::default()));
        let run = world.submit(session, &format!("message {index}")).await;
        all.push((session, run, listeners));
    }
    for (session, run, listeners) in &all {
        world.wait_for_run_end(*session, *run).await;
        let head = head(&world, *session);
        for listener in listeners {
            listener.outlet.wait_for("the end", received_event(head)).await;
            assert_eq!(listener.outlet.events(), world.journal.events(*session));
        }
    }
}

#[actix::test]
async fn e4_subscriber_stops_after_its_client_disconnects() {
    let world =
        TestRuntime::start(ScriptedModel::with_replies([ModelReply::text("x")]), FakeTools::new())
            .await;
    let session = world.create_session().await;
    let listener = world.subscribe(session, Cursor::default());
    listener.outlet.wait_for("the creation", received_event(Seq(1))).await;
    listener.outlet.close();
    let run = world.submit(session, "a").await;
    world.wait_for_run_end(session, run).await;
    wait_until("the subscriber to stop", || !listener.address.connected()).await;
    assert_eq!(world.runtime.subscriber_count(session), 0);
}
