//! The status board (A1) and the firehose (W2).

use crate::{last_approval, received_event};
use greenroom_actors::{
    feed::{FeedItem, FeedKind},
    ports::Progress,
    status_board::ActorSnapshot,
    testing::{
        CollectingOutlet, FakeTools, Gate, ManualClock, ModelReply, ScriptedModel, TEST_TIMEOUT,
        TestRuntime, ToolAction, ToolScript, wait_until,
    },
};
use greenroom_core::{
    cursor::Cursor,
    ids::{Seq, SessionId},
    policy::Risk,
    session::SessionEvent,
};
use serde_json::json;
use std::time::Duration;

fn snapshot(world: &TestRuntime, path: &str) -> Option<ActorSnapshot> {
    world.runtime.status_board.snapshot(path)
}

/// Waits until the actor at `path` waits for something whose description contains `subject`.
async fn wait_until_waiting_for(world: &TestRuntime, path: &str, subject: &str) -> ActorSnapshot {
    let waits = || {
        let waiting = snapshot(world, path)?.waiting?;
        waiting.awaited.contains(subject).then_some(())
    };
    wait_until(&format!("{path} to wait for {subject}"), || waits().is_some()).await;
    snapshot(world, path).expect("it is on the status board")
}

fn paths(world: &TestRuntime, session: SessionId) -> Vec<String> {
    let prefix = format!("/sessions/{session}");
    world.runtime.status_board.snapshots(&prefix).into_iter().map(|shown| shown.path).collect()
}

#[actix::test]
async fn a1_status_board_shows_what_each_actor_waits_for() {
    let (model_gate, tool_gate) = (Gate::closed(), Gate::closed());
    let model = ScriptedModel::with_replies([
        ModelReply::new().delta("x").wait(&model_gate).finished_with_calls([("look", json!({}))]),
        ModelReply::with_calls([("send", json!({}))]),
    ]);
    let call_gate = tool_gate.clone();
    let tools = FakeTools::new()
        .with_tool("look", Risk::ReadOnly, move |_| ToolScript::new().wait(&call_gate))
        .with_tool("send", Risk::WriteHighRisk, |_| ToolScript::new());
    let world =
        TestRuntime::builder().model(model).tools(tools).clock(ManualClock::paused()).start().await;
    let session = world.create_session().await;
    let path = format!("/sessions/{session}");
    let is_idle = || snapshot(&world, &path).is_some_and(|shown| shown.state == "idle");
    wait_until("the session to be idle", is_idle).await;
    assert_eq!(snapshot(&world, &path).unwrap().waiting, None);

    world.submit(session, "a").await;
    model_gate.wait_for_arrivals(1).await;
    let started_at = ManualClock::START;
    let streaming = wait_until_waiting_for(&world, &path, "the model").await;
    assert_eq!((streaming.state.as_str(), streaming.kind), ("streaming", "Session"));
    let step = format!("{path}/steps/1");
    assert_eq!(wait_until_waiting_for(&world, &step, "scripted").await.kind, "LlmStream");
    assert_eq!(paths(&world, session), [path.clone(), step.clone()]);

    // `since` does not change while the session waits for the same thing.
    world.clock.advance(Duration::from_secs(7));
    world.submit(session, "queued").await;
    let streaming = wait_until_waiting_for(&world, &path, "the model").await;
    assert_eq!(streaming.waiting.map(|waiting| waiting.since), Some(started_at));

    model_gate.open();
    let calling = wait_until_waiting_for(&world, &path, "look").await;
    assert_eq!(calling.state, "calling");
    let since = calling.waiting.map(|waiting| waiting.since);
    assert_eq!(since, Some(started_at.saturating_add(Duration::from_secs(7))));
    let paths_now = || paths(&world, session);
    wait_until("the stream to be removed", || !paths_now().contains(&step)).await;
    let executors = world.runtime.status_board.snapshots(&format!("{path}/calls/"));
    assert_eq!(executors.len(), 1);
    assert_eq!(executors[0].kind, "ToolExecutor");
    assert_eq!(
        wait_until_waiting_for(&world, &executors[0].path, "tool look").await.state,
        "running"
    );

    tool_gate.open();
    world.wait_for(session, "the approval", last_approval).await;
    assert_eq!(wait_until_waiting_for(&world, &path, "approval").await.state, "waiting");
    wait_until_waiting_for(&world, "/desk", "1 pending approval").await;
    wait_until("the workers to be removed", || paths_now() == [path.clone()]).await;
    wait_until("the mailboxes to be empty", || {
        world.runtime.status_board.snapshots("/").iter().all(|shown| shown.mailbox_depth == 0)
    })
    .await;
    let session = snapshot(&world, &path).expect("it is live");
    assert!(session.handled >= 5 && session.failed == 0 && session.mailbox_depth_max >= 1);
    assert_eq!((session.restarts, session.current_message), (0, None));
}

#[actix::test]
async fn t5_progress_is_published_as_rate_limited_events() {
    let report = Progress { progress: 1.0, total: Some(2.0), message: Some("half".to_owned()) };
    let gate = Gate::closed();
    let (tool_gate, reported) = (gate.clone(), report.clone());
    let model = ScriptedModel::with_replies([
        ModelReply::with_calls([("look", json!({}))]),
        ModelReply::text("done"),
    ]);
    let tools = FakeTools::new().with_tool("look", Risk::ReadOnly, move |_| {
        let flood = (0..100).fold(ToolScript::new(), |script, _| {
            script.with_action(ToolAction::Progress(reported.clone()))
        });
        flood.wait(&tool_gate)
    });
    let world = TestRuntime::start(model, tools).await;
    let session = world.create_session().await;
    let run = world.submit(session, "a").await;
    let progress = world
        .wait_for(session, "progress", |events| {
            events.iter().find_map(|record| match &record.event {
                SessionEvent::ToolCallProgress { progress, total, message, .. } => {
                    Some((*progress, *total, message.clone()))
                }
                _other => None,
            })
        })
        .await;
    assert_eq!(progress, (1.0, Some(2.0), report.message));
    gate.open();
    world.wait_for_run_end(session, run).await;
    let is_progress = |event: &SessionEvent| matches!(event, SessionEvent::ToolCallProgress { .. });
    assert_eq!(
        crate::count_events(&world.journal.events(session), is_progress),
        1,
        "a flood is not recorded completely"
    );
}

#[actix::test]
async fn w2_firehose_publishes_events_of_all_sessions() {
    let model = ScriptedModel::with_handler(|_| ModelReply::text("x"));
    let world = TestRuntime::builder().model(model).shard_count(2).start().await;
    let outlet = CollectingOutlet::with_capacity(usize::MAX);
    let address = world.runtime.subscribe_all(Box::new(outlet.clone()));
    let attached = |bus| snapshot(&world, bus).is_some_and(|bus| bus.handled > 0);
    wait_until("the firehose to attach", || attached("/bus/0") && attached("/bus/1")).await;
    let mut sessions = Vec::new();
    for _ in 0..6 {
        let session = world.create_session().await;
        let run = world.submit(session, "a").await;
        world.wait_for_run_end(session, run).await;
        sessions.push(session);
    }
    for session in sessions {
        let events = world.journal.events(session);
        let session_items = |items: &[FeedItem]| {
            let items = items.iter().filter(|item| item.session_id == session);
            let kinds: Vec<_> = items.map(|item| item.kind.clone()).collect();
            (kinds.len() == events.len()).then_some(kinds)
        };
        let kinds = outlet.wait_for("all of its events", session_items).await;
        for (kind, record) in kinds.iter().zip(&events) {
            assert!(matches!(kind, FeedKind::Event(published) if **published == *record));
        }
    }
    outlet.close();
    world.create_session().await;
    wait_until("the firehose to stop", || !address.connected()).await;
}

#[actix::test]
async fn w2_slow_firehose_subscriber_is_closed_with_an_error() {
    // Together, these sessions commit more events than a mailbox holds.
    const SESSIONS: usize = 40;
    let gate = Gate::closed();
    let model_gate = gate.clone();
    // The model never gives a final answer, so each run commits as many events as its steps allow.
    let model = ScriptedModel::with_handler(move |_| {
        ModelReply::new().wait(&model_gate).finished_with_calls([("look", json!({}))])
    });
    let tools = FakeTools::new().with_tool("look", Risk::ReadOnly, |_| ToolScript::new());
    let world = TestRuntime::start(model, tools).await;
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        let session = world.create_session().await;
        world.submit(session, "a").await;
        sessions.push(session);
    }
    gate.wait_for_arrivals(SESSIONS).await;
    let outlet = CollectingOutlet::with_capacity(usize::MAX);
    let address = world.runtime.subscribe_all(Box::new(outlet.clone()));
    // The firehose must be attached before it falls behind.
    let before = snapshot(&world, "/bus/0").expect("there is a bus").handled;
    let is_attached = || snapshot(&world, "/bus/0").unwrap().handled > before;
    wait_until("the firehose to attach", is_attached).await;
    world.create_session().await;
    outlet.wait_for("the creation", |items: &[FeedItem]| items.first().cloned()).await;
    gate.open();
    // The firehose runs on this thread: while the thread is busy, its mailbox is not processed.
    let ended = |event: &SessionEvent| matches!(event, SessionEvent::RunFailed { .. });
    let started = std::time::Instant::now();
    for session in &sessions {
        while crate::count_events(&world.journal.events(*session), ended) == 0 {
            assert!(started.elapsed() < TEST_TIMEOUT, "the runs do not end");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let is_broken = |item: &&FeedItem| matches!(item.kind, FeedKind::Broken(_));
    let broken = |items: &[FeedItem]| items.iter().find(is_broken).cloned();
    outlet.wait_for("the overflow error", broken).await;
    wait_until("the firehose to stop", || !address.connected()).await;
    let items = outlet.items();
    assert!(is_broken(&items.last().unwrap()), "an item follows the error");
}

#[actix::test]
async fn a1_passivated_session_is_removed_from_the_status_board() {
    let world = TestRuntime::builder().idle_timeout(Duration::ZERO).start().await;
    let session = world.create_session().await;
    let listener = world.subscribe(session, Cursor::default());
    listener.outlet.wait_for("the creation", received_event(Seq(1))).await;
    let is_removed = || paths(&world, session).is_empty();
    wait_until("the session to be passivated", is_removed).await;
}

#[actix::test]
async fn a1_status_board_shows_what_subscribers_wait_for() {
    let world = TestRuntime::start(
        ScriptedModel::with_replies([ModelReply::text("Hello.")]),
        FakeTools::new(),
    )
    .await;
    let session = world.create_session().await;
    let all = || world.runtime.status_board.snapshots(&format!("/subscribers/{session}/"));
    let reader = world.subscribe(session, Cursor::default());
    wait_until("the subscriber to tail", || all().iter().any(|shown| shown.state == "tailing"))
        .await;
    let slow = world.subscribe_with_capacity(session, Cursor::default(), 0);
    wait_until("the subscriber to stall", || all().iter().any(|shown| shown.state == "stalled"))
        .await;
    let stalled = all().into_iter().find(|shown| shown.state == "stalled").unwrap();
    assert_eq!(stalled.kind, "Subscriber");
    assert_eq!(stalled.waiting.unwrap().awaited, "the client to read");
    let run = world.submit(session, "hi").await;
    world.wait_for_run_end(session, run).await;
    wait_until("empty mailboxes", || all().iter().all(|shown| shown.mailbox_depth == 0)).await;
    reader.stop().await;
    slow.stop().await;
    wait_until("the subscribers to be removed", || all().is_empty()).await;
}
