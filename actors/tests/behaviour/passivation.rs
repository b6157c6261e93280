//! Passivation without loss of state or messages (D6).

use crate::{completed_messages, count_events};
use greenroom_actors::testing::{
    Gate, JournalFault, JournalOperation, ModelReply, ScriptedModel, TestRuntime, wait_until,
    with_timeout,
};
use greenroom_core::{
    ids::SessionId,
    session::{Input, Reply, SessionEvent},
};
use std::time::Duration;

#[actix::test]
async fn d6_idle_session_is_passivated_and_rehydrated_with_its_state() {
    let model = ScriptedModel::with_replies([ModelReply::text("one"), ModelReply::text("two")]);
    let world = TestRuntime::builder().model(model).idle_timeout(Duration::ZERO).start().await;
    let session = world.create_session().await;
    let path = format!("/sessions/{session}");
    for text in ["a", "b"] {
        let run = world.submit(session, text).await;
        world.wait_for_run_end(session, run).await;
        let is_passivated = || world.runtime.status_board.snapshot(&path).is_none();
        wait_until("the session to be passivated", is_passivated).await;
    }
    let request = world.model.requests().pop().expect("a request was sent");
    assert_eq!(request.messages.len(), 3, "the model reads the complete conversation");
    assert_eq!(world.runtime.live_session_count().await, 0);
}

#[actix::test]
async fn d6_session_with_only_rejected_commands_is_passivated() {
    let world = TestRuntime::builder().idle_timeout(Duration::from_millis(5)).start().await;
    let session = world.create_session().await;
    for _ in 0..50 {
        assert!(world.cancel(session).await.is_err(), "no run is active");
    }
    // A session that does not exist is not kept in memory either.
    assert!(world.cancel(SessionId(world.runtime.new_id())).await.is_err());
    let live = || world.runtime.status_board.snapshots("/sessions/");
    wait_until("all sessions to be passivated", || live().is_empty()).await;
    assert_eq!(world.runtime.live_session_count().await, 0);
}

#[actix::test]
async fn d6_no_message_is_lost_during_passivation() {
    for idle_timeout in [Duration::ZERO, Duration::from_micros(300)] {
        let model = ScriptedModel::with_handler(|_| ModelReply::text("x"));
        let world = TestRuntime::builder()
            .model(model)
            .idle_timeout(idle_timeout)
            .shard_count(2)
            .start()
            .await;
        let mut sessions = Vec::new();
        for _ in 0..8 {
            sessions.push(world.create_session().await);
        }
        for round in 0..30 {
            for session in &sessions {
                // Right after the end of the previous run, when the session may be passivating.
                let run = world.submit(*session, &format!("message {round}")).await;
                world.wait_for_run_end(*session, run).await;
            }
        }
        for session in sessions {
            let events = world.journal.events(session);
            assert_eq!(completed_messages(&events).len(), 30);
            let restarted =
                |event: &SessionEvent| matches!(event, SessionEvent::StepRetrying { .. });
            assert_eq!(count_events(&events, restarted), 0, "passivated during a run");
        }
    }
}

#[actix::test]
async fn d6_command_arriving_during_passivation_is_answered() {
    let world = TestRuntime::builder().idle_timeout(Duration::ZERO).shard_count(2).start().await;
    let session = world.create_session().await;
    let mut answers = Vec::new();
    for round in 0..300 {
        let change = Input::ChangeSettings {
            patch: Default::default(),
            title: Some(Some(format!("title {round}"))),
            by: TestRuntime::user(),
        };
        let runtime = world.runtime.clone();
        answers.push(actix::spawn(async move { runtime.execute(session, change).await }));
        if round % 3 == 0 {
            tokio::task::yield_now().await;
        }
        if answers.len() == 20 {
            for answer in answers.drain(..) {
                let answer = with_timeout("the answer", answer).await.unwrap();
                assert_eq!(answer.expect("the settings are changed"), Reply::Done);
            }
        }
    }
    let changed =
        |event: &SessionEvent| matches!(event, SessionEvent::SessionSettingsChanged { .. });
    assert_eq!(count_events(&world.journal.events(session), changed), 300);
}

#[actix::test]
async fn d6_burst_of_commands_fits_the_mailbox_during_rehydration() {
    let world = TestRuntime::builder().idle_timeout(Duration::ZERO).start().await;
    let session = world.create_session().await;
    let path = format!("/sessions/{session}");
    let is_passivated = || world.runtime.status_board.snapshot(&path).is_none();
    wait_until("the session to be passivated", is_passivated).await;
    let gate = Gate::closed();
    world.journal.inject_session_fault(
        session,
        JournalOperation::Read,
        JournalFault::Wait(gate.clone()),
        1,
    );
    let burst: Vec<_> = (0..100)
        .map(|_| {
            let runtime = world.runtime.clone();
            let cancel = Input::CancelRun { run_id: None, by: TestRuntime::user(), partial: None };
            actix::spawn(async move { runtime.execute(session, cancel).await })
        })
        .collect();
    gate.wait_for_arrivals(1).await;
    gate.open();
    for answer in burst {
        let answer = with_timeout("the answer", answer).await.unwrap();
        let refused = answer.expect_err("no run is active").to_string();
        assert_eq!(refused, "no run is active");
    }
}

#[actix::test]
async fn a3_passivation_does_not_count_as_failure() {
    let world = TestRuntime::builder().idle_timeout(Duration::ZERO).shard_count(2).start().await;
    let mut sessions = Vec::new();
    for _ in 0..8 {
        sessions.push(world.create_session().await);
    }
    for round in 0..60 {
        for session in &sessions {
            let change = Input::ChangeSettings {
                patch: Default::default(),
                title: Some(Some(format!("title {round}"))),
                by: TestRuntime::user(),
            };
            let answer = world.runtime.execute(*session, change).await;
            assert_eq!(answer.expect("the session is not parked"), Reply::Done);
        }
    }
    let live = || world.runtime.status_board.snapshots("/sessions/");
    wait_until("all sessions to be passivated", || live().is_empty()).await;
    let registry = world.runtime.status_board.snapshot("/registry").expect("it is live");
    assert_eq!(registry.last_error, None);
}
