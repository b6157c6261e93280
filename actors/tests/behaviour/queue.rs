//! Changes and withdrawals of queued messages race with the start of their run (S10).

use crate::completed_messages;
use greenroom_actors::{
    session::CommandError,
    testing::{
        FakeTools, Gate, JournalFault, JournalOperation, ModelReply, ScriptedModel, TestRuntime,
    },
};
use greenroom_core::{
    ids::MessageId,
    json::Digest,
    session::{Input, QueuedMessageChange, Rejection, Reply, SessionEvent},
};

fn change(message_id: &str, text: &str) -> Input {
    Input::ChangeQueuedMessage {
        message_id: MessageId::parse(message_id).expect("the id is valid"),
        change: QueuedMessageChange {
            text: text.into(),
            digest: Digest::hash_bytes(text.as_bytes()),
            preflight: None,
        },
        by: TestRuntime::user(),
    }
}

fn withdraw(message_id: &str) -> Input {
    let message_id = MessageId::parse(message_id).expect("the id is valid");
    Input::WithdrawQueuedMessage { message_id, by: TestRuntime::user() }
}

/// Starts a session whose first run waits at the gate, with the queued message `b`.
async fn start_with_queued_message(gate: &Gate) -> (TestRuntime, greenroom_core::ids::SessionId) {
    let model = ScriptedModel::with_replies([
        ModelReply::new().delta("one").wait(gate).finished(),
        ModelReply::text("two"),
    ]);
    let world = TestRuntime::start(model, FakeTools::new()).await;
    let session = world.create_session().await;
    world.submit(session, "a").await;
    world.submit(session, "b").await;
    gate.wait_for_arrivals(1).await;
    (world, session)
}

#[actix::test]
async fn s10_withdrawal_during_the_commit_of_the_runs_start_is_rejected() {
    let (model_gate, log_gate) = (Gate::closed(), Gate::closed());
    let (world, session) = start_with_queued_message(&model_gate).await;
    // The end of the first run and the start of the second are one commit.
    world.journal.inject_fault(JournalOperation::Append, JournalFault::Wait(log_gate.clone()), 1);
    model_gate.open();
    log_gate.wait_for_arrivals(1).await;
    let send = |input| {
        let runtime = world.runtime.clone();
        actix::spawn(async move { runtime.execute(session, input).await })
    };
    let (withdrawal, change) = (send(withdraw("b")), send(change("b", "c")));
    log_gate.open();
    for reply in [withdrawal.await.unwrap(), change.await.unwrap()] {
        let is_started =
            matches!(reply, Err(CommandError::Rejected(Rejection::MessageStarted { .. })));
        assert!(is_started, "{reply:?}");
    }
    let second = world.submit(session, "b").await;
    world.wait_for_run_end(session, second).await;
    let texts: Vec<_> = completed_messages(&world.journal.events(session))
        .into_iter()
        .map(|message| message.1)
        .collect();
    assert_eq!(texts, ["one", "two"]);
}

#[actix::test]
async fn d1_s10_change_and_withdrawal_have_no_effect_unless_they_are_stored() {
    let gate = Gate::closed();
    let (world, session) = start_with_queued_message(&gate).await;
    for input in [change("b", "c"), withdraw("b")] {
        world.journal.inject_fault(JournalOperation::Append, JournalFault::Unavailable, 1);
        let reply = world.execute(session, input).await;
        assert!(matches!(reply, Err(CommandError::Unavailable(_))), "{reply:?}");
    }
    let reply = world.execute(session, change("b", "d")).await;
    assert!(matches!(reply, Ok(Reply::QueueUpdated { repeated: false, .. })), "{reply:?}");
    // The rehydrated session runs the message with its new text.
    let world = world.crash_and_restart().await;
    gate.open();
    let accepted = world
        .wait_for(session, "the changed message", |events| {
            events.iter().find_map(|record| match &record.event {
                SessionEvent::MessageAccepted { message_id, text, .. }
                    if message_id.as_str() == "b" =>
                {
                    Some(text.clone())
                }
                _other => None,
            })
        })
        .await;
    assert_eq!(&*accepted, "d");
}
