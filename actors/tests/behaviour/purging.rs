//! Purging a session (S1): the session is closed and then removed, in every state and even if the
//! process crashes in between.

use greenroom_actors::{
    feed::{FeedItem, FeedKind},
    ports::{ApprovalQuery, Journal as _},
    session::CommandError,
    testing::{Gate, ModelReply, ScriptedModel, TestRuntime, wait_until},
};
use greenroom_core::{
    cursor::Cursor,
    ids::{Seq, SessionId},
    session::Rejection,
};

fn received_purged(items: &[FeedItem]) -> Option<()> {
    items.iter().any(|item| item.kind == FeedKind::Purged).then_some(())
}

async fn assert_purged(world: &TestRuntime, session: SessionId) {
    let journal = &world.journal;
    assert_eq!(journal.load_head(session).await.expect("the journal responds"), Seq(0));
    assert_eq!(journal.load_session(session).await.expect("the journal responds"), None);
    let query = ApprovalQuery { session_id: Some(session), limit: 9, ..ApprovalQuery::default() };
    assert_eq!(journal.list_approvals(query).await.expect("the journal responds"), []);
    let result = world.execute(session, TestRuntime::submit_input("hello?")).await;
    let is_unknown = matches!(result, Err(CommandError::Rejected(Rejection::UnknownSession)));
    assert!(is_unknown, "{result:?}");
}

#[actix::test]
async fn s1_streaming_session_is_purged() {
    let gate = Gate::closed();
    let model = ScriptedModel::with_replies([ModelReply::new()
        .delta("well")
        .wait(&gate)
        .delta("!")
        .finished()]);
    let world = TestRuntime::builder().model(model).start().await;
    let session = world.create_session().await;
    let neighbour = world.create_session().await;
    let listener = world.subscribe(session, Cursor::default());
    world.submit(session, "go").await;
    gate.wait_for_arrivals(1).await;
    world.runtime.purge(session, TestRuntime::user()).await.expect("the journal responds");
    listener.outlet.wait_for("the purge", received_purged).await;
    assert_purged(&world, session).await;
    let repeated_reply = world.runtime.purge(session, TestRuntime::user()).await;
    assert!(repeated_reply.is_err(), "{repeated_reply:?}");
    gate.open();
    let path = format!("/sessions/{session}/");
    wait_until("the workers to stop", || world.runtime.status_board.snapshots(&path).is_empty())
        .await;
    assert_purged(&world, session).await;
    assert_eq!(world.journal.events(neighbour).len(), 1);
}

/// A client that was not ready when the session was purged is notified when it reads again.
#[actix::test]
async fn s1_slow_client_is_notified_of_purge_when_it_reads_again() {
    let world = TestRuntime::builder().start().await;
    let session = world.create_session().await;
    let listener = world.subscribe_with_capacity(session, Cursor::default(), 1);
    listener.outlet.wait_for("an event", |items| items.first().map(drop)).await;
    world.runtime.purge(session, TestRuntime::user()).await.expect("the journal responds");
    wait_until("the client to be full", || listener.outlet.rejected_count() > 0).await;
    listener.add_capacity(9).await;
    listener.outlet.wait_for("the purge", received_purged).await;
}

/// A crash between closing and removing leaves the session closed; it can be purged again.
#[actix::test]
async fn s1_crash_during_purge_leaves_session_closed_or_removed() {
    use greenroom_core::session::{Input, SessionEvent};
    let world = TestRuntime::builder().start().await;
    let session = world.create_session().await;
    let close = Input::CloseSession { by: TestRuntime::user(), partial: None };
    world.execute(session, close).await.expect("the journal responds");
    let world = world.crash_and_restart().await;
    let events = world.journal.events(session);
    assert!(matches!(events.last().unwrap().event, SessionEvent::SessionClosed { .. }));
    world.runtime.purge(session, TestRuntime::user()).await.expect("the journal responds");
    let world = world.crash_and_restart().await;
    assert_purged(&world, session).await;
}
