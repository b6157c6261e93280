//! Subscribers: any cursor, any speed, nothing missing, nothing twice (E2 to E4).

use crate::{ReceivedItem, completed_messages, received_event, received_items};
use greenroom_actors::{
    feed::FeedItem,
    limits::{SUBSCRIBER_BACKLOG_MAX, SUBSCRIBER_MAILBOX_MAX},
    runtime::CursorError,
    testing::{
        FakeTools, Gate, JournalFault, JournalOperation, ModelReply, ScriptedModel, TestRuntime,
        TestSubscriber, ToolScript, eventually,
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

/// What remains to be told to a client that was told `items` up to `cursor`.
fn items_after(items: &[FeedItem], cursor: Cursor) -> Vec<ReceivedItem> {
    let at = items.iter().position(|item| item.cursor > cursor).unwrap_or(items.len());
    received_items(&items[at..])
}

fn head(world: &TestRuntime, session: SessionId) -> Seq {
    world.journal.events(session).last().expect("there are events").seq
}

/// A finished session with two messages, a call, a discarded message and an empty one.
async fn finished_session() -> (TestRuntime, SessionId, Vec<FeedItem>) {
    let model = ScriptedModel::with_replies([
        TEXT.chars()
            .fold(ModelReply::new(), |reply, piece| reply.delta(&piece.to_string()))
            .then_calls([("look", json!({}))]),
        ModelReply::new().delta("cut "),
        ModelReply::new().then_calls([("look", json!({}))]),
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
async fn e2_e3_a_finished_session_resumes_at_every_cursor() {
    let (world, session, items) = finished_session().await;
    let head = head(&world, session);
    let cursors = std::iter::once(Cursor::default()).chain(items.iter().map(|item| item.cursor));
    let mut checked = 0;
    for cursor in cursors.filter(|cursor| cursor.seq < head) {
        world.runtime.validate_cursor(session, cursor).await.expect("a cursor that was handed out");
        let listener = world.subscribe(session, cursor);
        listener.outlet.wait_for("the end", received_event(head)).await;
        let found = received_items(&listener.outlet.items());
        let mut expected = items_after(&items, cursor);
        // Of a message that was discarded no text is left: its end comes next.
        expected.retain(
            |told| !matches!(told, ReceivedItem::Text { text, .. } if "cut ".ends_with(text)),
        );
        assert_eq!(found, expected, "from {cursor}");
        listener.stop().await;
        checked += 1;
    }
    assert!(checked > 40, "{checked}");
    // From the head there is nothing yet.
    let listener = world.subscribe(session, Cursor::after_seq(head));
    world.model.push(ModelReply::text("more"));
    let run = world.submit(session, "again").await;
    world.wait_for_run_end(session, run).await;
    listener.outlet.wait_for("the new end", received_event(self::head(&world, session))).await;
    assert_eq!(received_items(&listener.outlet.items())[0], ReceivedItem::Event(head.next()));
}

#[actix::test]
async fn e3_cursors_that_cannot_be_are_refused() {
    let (world, session, items) = finished_session().await;
    let started = items.iter().find(|item| item.cursor.offset > 0).expect("there is text").cursor;
    let at = |offset| world.runtime.validate_cursor(session, Cursor { seq: started.seq, offset });
    // `Grü`: the third character takes two bytes.
    assert!(at(2).await.is_ok());
    assert!(matches!(at(3).await, Err(CursorError::Invalid)));
    assert!(at(4).await.is_ok());
    let length = u64::try_from(TEXT.len()).expect("short");
    assert!(at(length).await.is_ok());
    assert!(matches!(at(length + 1).await, Err(CursorError::BeyondHead { .. })));
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
async fn e2_e3_a_live_message_resumes_at_every_cursor() {
    let gates: Vec<_> = TEXT.chars().map(|_| Gate::closed()).collect();
    let reply = TEXT
        .chars()
        .zip(&gates)
        .fold(ModelReply::new(), |reply, (piece, gate)| reply.delta(&piece.to_string()).wait(gate));
    let world =
        TestRuntime::start(ScriptedModel::with_replies([reply.done()]), FakeTools::new()).await;
    let session = world.create_session().await;
    let reference = world.subscribe(session, Cursor::default());
    let run = world.submit(session, "hello").await;
    let mut late = Vec::new();
    let mut length = 0;
    for (piece, gate) in TEXT.chars().zip(&gates) {
        length += u64::try_from(piece.len_utf8()).expect("small");
        let heard =
            |items: &[FeedItem]| (items.last()?.cursor.offset == length).then(|| items.to_vec());
        let items = reference.outlet.wait_for("the piece", heard).await;
        // One at every cursor there has been so far, and one from the start.
        for cursor in std::iter::once(Cursor::default()).chain(items.iter().map(|it| it.cursor)) {
            world.runtime.validate_cursor(session, cursor).await.expect("a cursor of this message");
            late.push((cursor, world.subscribe(session, cursor)));
        }
        gate.release_one();
    }
    world.wait_for_run_end(session, run).await;
    let head = head(&world, session);
    reference.outlet.wait_for("the end", received_event(head)).await;
    let items = reference.outlet.items();
    for (cursor, listener) in &late {
        listener.outlet.wait_for("the end", received_event(head)).await;
        assert_eq!(
            received_items(&listener.outlet.items()),
            items_after(&items, *cursor),
            "from {cursor}"
        );
    }
    assert_eq!(world.runtime.subscriber_count(session), late.len() + 1);
    for (_, listener) in late {
        listener.stop().await;
    }
    eventually("subscribers to be gone", || world.runtime.subscriber_count(session) == 1).await;
}

/// Drains a listener in portions until it was told `head`.
async fn drain_in_steps(listener: &TestSubscriber, portion: usize, head: Seq) {
    let mut room = portion;
    loop {
        let full = |items: &[FeedItem]| {
            let finished = items.last().is_some_and(|item| item.cursor.seq >= head);
            (finished || items.len() >= room).then_some(finished)
        };
        if listener.outlet.wait_for("a full outlet", full).await {
            return;
        }
        listener.add_capacity(portion).await;
        room += portion;
    }
}

#[actix::test]
async fn e2_e4_slow_clients_get_everything_once_and_delay_nobody() {
    let gate = Gate::closed();
    let long = "äöü".repeat(100);
    let reply = |text: &str| {
        text.chars().fold(ModelReply::new(), |reply, piece| reply.delta(&piece.to_string()))
    };
    let model = ScriptedModel::with_replies([
        reply(&long).wait(&gate).then_calls([("look", json!({}))]),
        reply(&long).done(),
    ]);
    let tools = FakeTools::new().with_tool("look", Risk::ReadOnly, |_| ToolScript::new());
    let world = TestRuntime::start(model, tools).await;
    let session = world.create_session().await;
    let never = world.subscribe_with_capacity(session, Cursor::default(), 1);
    let slow: Vec<_> = [1, 2, 7]
        .map(|room| (room, world.subscribe_with_capacity(session, Cursor::default(), room)))
        .into();
    let quick = world.subscribe(session, Cursor::default());
    let run = world.submit(session, "hello").await;
    gate.wait_for_arrivals(1).await;
    gate.open();
    // Nobody drains anything yet, and the run ends all the same.
    world.wait_for_run_end(session, run).await;
    let head = head(&world, session);
    quick.outlet.wait_for("the end", received_event(head)).await;
    for (portion, listener) in &slow {
        drain_in_steps(listener, *portion, head).await;
        assert!(listener.outlet.rejected_count() > 0, "it was full at times");
        assert_eq!(
            received_items(&listener.outlet.items()),
            received_items(&quick.outlet.items()),
            "{portion}"
        );
    }
    assert_eq!(never.outlet.items().len(), 1);
}

#[actix::test]
async fn e4_a_client_with_room_for_one_keeps_up_while_it_streams() {
    let pieces = 40;
    let gates: Vec<_> = (0..pieces).map(|_| Gate::closed()).collect();
    let reply =
        gates.iter().fold(ModelReply::new(), |reply, gate| reply.delta("é—").wait(gate)).done();
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
        let all = |items: &[FeedItem]| items.last().is_some_and(|it| it.cursor.seq >= head);
        if all(&listener.outlet.items()) {
            break;
        }
        listener.add_capacity(1).await;
        tokio::task::yield_now().await;
    }
    let whole = world.subscribe(session, Cursor::default());
    whole.outlet.wait_for("the end", received_event(head)).await;
    assert_eq!(received_items(&listener.outlet.items()), received_items(&whole.outlet.items()));
}

#[actix::test]
async fn e4_subscriber_detached_for_full_mailbox_resubscribes() {
    let gate = Gate::closed();
    let pieces = SUBSCRIBER_MAILBOX_MAX * 4;
    let reply = (0..pieces).fold(ModelReply::new().wait(&gate), |reply, _| reply.delta("é"));
    let world =
        TestRuntime::start(ScriptedModel::with_replies([reply.done()]), FakeTools::new()).await;
    let session = world.create_session().await;
    let listener = world.subscribe(session, Cursor::default());
    world.submit(session, "hello").await;
    gate.wait_for_arrivals(1).await;
    listener.outlet.wait_for("the open message", received_event(head(&world, session))).await;
    let before = listener.outlet.items().len();
    gate.open();
    // The subscriber lives on this thread: as long as it is busy, nothing leaves its mailbox.
    let ended = |event: &SessionEvent| matches!(event, SessionEvent::RunCompleted { .. });
    let began = std::time::Instant::now();
    while crate::count_events(&world.journal.events(session), ended) == 0 {
        assert!(began.elapsed() < greenroom_actors::testing::TEST_TIMEOUT, "the run does not end");
        std::thread::yield_now();
    }
    listener.outlet.wait_for("the end", received_event(head(&world, session))).await;
    let (message_id, text, _) = completed_messages(&world.journal.events(session)).remove(0);
    assert_eq!(text.len(), pieces * 2);
    assert_eq!(listener.outlet.text_of(&message_id), text);
    let items = listener.outlet.items().len() - before;
    assert!(items < pieces, "it caught up in fewer items than there were pieces: {items}");
}

#[actix::test]
async fn e4_replay_backlog_is_bounded_and_loses_nothing() {
    let (first, reading) = (Gate::closed(), Gate::closed());
    let pieces = SUBSCRIBER_BACKLOG_MAX * 3;
    let reply = (0..pieces).fold(ModelReply::new().wait(&first), |reply, _| reply.delta("世"));
    let world =
        TestRuntime::start(ScriptedModel::with_replies([reply.done()]), FakeTools::new()).await;
    let session = world.create_session().await;
    let run = world.submit(session, "hello").await;
    first.wait_for_arrivals(1).await;
    world.journal.inject_session_fault(
        session,
        JournalOperation::Read,
        JournalFault::Wait(reading.clone()),
        1,
    );
    // Cursor 0 needs no look for an open message: its first read is the replay, after attaching.
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
async fn e4_a_client_that_left_ends_its_subscriber() {
    let world =
        TestRuntime::start(ScriptedModel::with_replies([ModelReply::text("x")]), FakeTools::new())
            .await;
    let session = world.create_session().await;
    let listener = world.subscribe(session, Cursor::default());
    listener.outlet.wait_for("the creation", received_event(Seq(1))).await;
    listener.outlet.close();
    let run = world.submit(session, "a").await;
    world.wait_for_run_end(session, run).await;
    eventually("the subscriber to end", || !listener.address.connected()).await;
    assert_eq!(world.runtime.subscriber_count(session), 0);
}
