//! Changing and withdrawing queued messages (S10).

use super::*;
use crate::{
    context::StartedWorkflow,
    session::{QueuedMessageChange, SessionEvent},
};

fn change(message_id: &str, text: &str) -> Input {
    change_with(message_id, text, None)
}

fn change_with(message_id: &str, text: &str, preflight: Option<bool>) -> Input {
    let digest = Digest::hash_bytes(text.as_bytes());
    let change = QueuedMessageChange { text: text.into(), digest, preflight };
    let message_id = MessageId::parse(message_id).unwrap();
    Input::ChangeQueuedMessage { message_id, change, by: user("ann") }
}

fn withdraw(message_id: &str) -> Input {
    let message_id = MessageId::parse(message_id).unwrap();
    Input::WithdrawQueuedMessage { message_id, by: user("ann") }
}

fn steer(message_id: &str) -> Input {
    submit_with(message_id, message_id, OnBusy::Steer)
}

/// A session whose first run streams, with the queued message `u2`.
fn with_queued_message() -> SessionHarness {
    let mut harness = SessionHarness::with_streaming_step();
    harness.apply(submit("u2")).unwrap();
    harness
}

#[test]
fn s10_changed_message_runs_with_its_new_text() {
    let mut harness = with_queued_message();
    harness.apply(submit("u3")).unwrap();
    harness.check(
        change("u2", "buy less"),
        "
        queued_message_changed u2 'buy less' by ann @r2
        = queue updated r2
    ",
    );
    harness.apply(harness.model_answers("one")).unwrap();
    harness.check_conversation(
        "
        user: u1
        assistant: one
        user: buy less
    ",
    );
    let run = harness.state.active.run.as_ref().unwrap();
    assert_eq!(run.run_id, harness.run("r2"), "the message keeps its place and its run");
}

#[test]
fn s10_withdrawn_message_never_runs() {
    let mut harness = with_queued_message();
    harness.check(
        withdraw("u2"),
        "
        queued_message_withdrawn u2 by ann @r2
        run_cancelled by ann @r2
        = queue updated r2
    ",
    );
    harness.check(
        harness.model_answers("one"),
        "
        message_completed M1 'one' @r1.1
        step_completed EndTurn 10 @r1.1
        run_completed M1 10 @r1.1
    ",
    );
    assert!(harness.state.is_idle());
}

#[test]
fn s10_steering_message_is_changed_and_withdrawn_until_its_delivery() {
    let mut harness = SessionHarness::with_proposed_calls(&[scripted_call("read")]);
    harness.apply(steer("also")).unwrap();
    harness.apply(steer("never")).unwrap();
    harness.check(
        change("also", "also this"),
        "
        queued_message_changed also 'also this' by ann @r1.1
        = queue updated r1
    ",
    );
    harness.check(
        withdraw("never"),
        "
        queued_message_withdrawn never by ann @r1.1
        = queue updated r1
    ",
    );
    harness.apply(harness.tool_finishes("c1", completed())).unwrap();
    harness.check_conversation(
        "
        user: u1
        assistant:  [read]
        results: read: 42
        user: also this
    ",
    );
    harness.check(change("also", "too late"), "! message also was already delivered to the model");
    harness.check(withdraw("also"), "! message also was already delivered to the model");
}

#[test]
fn s10_steering_message_that_was_not_delivered_can_be_withdrawn_from_the_queue() {
    let mut harness = SessionHarness::with_streaming_step();
    harness.apply(steer("also")).unwrap();
    harness.is_draining = true;
    harness.apply(harness.model_answers("one")).unwrap();
    harness.check(
        withdraw("also"),
        "
        queued_message_withdrawn also by ann @r2
        run_cancelled by ann @r2
        = queue updated r2
    ",
    );
    harness.check(steer("also"), "= submitted r2 seq 6 repeated withdrawn");
}

#[test]
fn s10_message_that_is_not_queued_is_rejected_with_its_status() {
    let mut harness = with_queued_message();
    let missing = "! message not found: u9";
    harness.check(change("u9", "x"), missing);
    harness.check(withdraw("u9"), missing);
    let started = "! message u1 was already delivered to the model";
    harness.check(change("u1", "x"), started);
    harness.check(withdraw("u1"), started);

    harness.apply(withdraw("u2")).unwrap();
    harness.check(change("u2", "x"), "! message u2 was withdrawn");

    harness.apply(submit("u3")).unwrap();
    harness.apply(close()).unwrap();
    let cancelled = "! message u3 was cancelled before its run started";
    harness.check(change("u3", "x"), cancelled);
    harness.check(withdraw("u3"), cancelled);
}

#[test]
fn s10_repeated_change_and_withdrawal_have_no_further_effect() {
    let mut harness = with_queued_message();
    harness.check(change("u2", "u2"), "= queue updated r2 repeated");
    harness.apply(change("u2", "less")).unwrap();
    harness.check(change("u2", "less"), "= queue updated r2 repeated");
    harness.apply(submit("u3")).unwrap();
    harness.apply(withdraw("u3")).unwrap();
    harness.check(withdraw("u3"), "= queue updated r3 repeated");
    harness.apply(harness.model_answers("one")).unwrap();
    // The reply to the first change may have been lost.
    harness.check(change("u2", "less"), "= queue updated r2 repeated");
    harness.check(change("u2", "more"), "! message u2 was already delivered to the model");
    harness.check(withdraw("u3"), "= queue updated r3 repeated");
}

#[test]
fn s5_s10_repeated_submission_states_the_status_of_the_message() {
    let mut harness = with_queued_message();
    harness.apply(change("u2", "less")).unwrap();
    harness.apply(change("u2", "least")).unwrap();
    harness.check(submit("u2"), "= submitted r2 seq 6 repeated changed");
    // The body of the latest change is the message's body now.
    harness
        .check(submit_with("u2", "least", OnBusy::Queue), "= submitted r2 seq 6 repeated changed");
    let reused = "! `message_id` u2 was already used with a different body";
    harness.check(submit_with("u2", "less", OnBusy::Queue), reused);
    harness.apply(withdraw("u2")).unwrap();
    harness.check(submit("u2"), "= submitted r2 seq 6 repeated withdrawn");
    harness.apply(harness.model_answers("one")).unwrap();
    harness.check(submit("u2"), "= submitted r2 seq 6 repeated withdrawn");
}

#[test]
fn s10_change_keeps_workflow_and_its_preflight() {
    let workflow = StartedWorkflow {
        name: "restock".to_owned(),
        inputs: serde_json::Map::new(),
        text: "Buy ore.".into(),
        tools: None,
        autonomy: Some(Autonomy::Recommendations),
        preflight: true,
    };
    let mut input = submit("u2");
    if let Input::SubmitMessage { message, .. } = &mut input {
        message.workflow = Some(Arc::new(workflow));
    }
    let mut harness = SessionHarness::with_streaming_step();
    harness.apply(input).unwrap();
    harness.check(
        change_with("u2", "all of it", Some(false)),
        "
        queued_message_changed u2 'all of it' preflight by ann @r2
        = queue updated r2
    ",
    );
    harness.check(
        harness.model_answers("one"),
        "
        message_completed M1 'one' @r1.1
        step_completed EndTurn 10 @r1.1
        run_completed M1 10 @r1.1
        message_accepted u2 @r2
        run_started u2 preflight workflow restock @r2
        step_started a2 #1 small planning @r2
        > start_model a2 - @r2.0
    ",
    );
    assert_eq!(harness.state.active.effective_settings().autonomy_level, Autonomy::Recommendations);
}

#[test]
fn s10_change_sets_preflight_only_if_it_names_it() {
    let preflight_of = |requested: Option<bool>, changed: Option<bool>| {
        let mut input = submit("u2");
        if let Input::SubmitMessage { message, .. } = &mut input {
            message.preflight = requested;
        }
        let mut harness = SessionHarness::with_streaming_step();
        harness.apply(input).unwrap();
        harness.apply(change_with("u2", "less", changed)).unwrap();
        harness.state.active.queue[0].preflight
    };
    assert!(preflight_of(Some(true), None));
    assert!(!preflight_of(Some(true), Some(false)));
    assert!(preflight_of(None, Some(true)));
    assert!(!preflight_of(None, None));
}

#[test]
fn e7_changed_message_with_new_placeholder_is_rejected() {
    let mut harness = with_queued_message();
    harness.check(
        change("u2", "use [redacted]"),
        "! `message`: contains `[redacted]`, but the queued message does not; enter the value itself",
    );
}

#[test]
fn s10_mirrored_change_has_no_text() {
    let mut harness = with_queued_message();
    let decision = harness.apply(change("u2", "less")).unwrap();
    let mirrored = crate::delegation::mirror_event(&decision.events[0]);
    let SessionEvent::QueuedMessageChanged { text, .. } = &mirrored.event else {
        panic!("{mirrored:?}");
    };
    assert_eq!(&**text, "");
}
