//! Messages that bypass the queue: steering and interrupting (S4).

use super::*;

fn steer(message_id: &str) -> Input {
    submit_with(message_id, message_id, OnBusy::Steer)
}

fn interrupt(message_id: &str, partial_text: Option<&str>) -> Input {
    let digest = Digest::hash_bytes(message_id.as_bytes());
    let text = message_id.into();
    let message_id = MessageId::parse(message_id).unwrap();
    let partial = partial_text.map(|text| Completion {
        message: AssistantMessage { text: text.to_owned(), ..Default::default() },
        usage: USAGE,
        stop_reason: StopReason::EndTurn,
        dropped_calls: 0,
    });
    Input::Interrupt {
        message: NewMessage::new(user("ann"), message_id, text, digest),
        by: user("ann"),
        partial,
    }
}

#[test]
fn s4_steering_is_included_in_the_next_step() {
    let mut harness = SessionHarness::with_proposed_calls(&[scripted_call("read")]);
    harness.check(
        steer("also"),
        "
        message_queued also @r1.1
        = steers r1 seq 11
    ",
    );
    harness.check(
        harness.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        step_started a3 #1 small @r1.2
        message_accepted also @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
    ",
    );
    harness.check_conversation(
        "
        user: u1
        assistant:  [read]
        results: read: 42
        user: also
    ",
    );
    // A repetition starts nothing (S5).
    harness.check(steer("also"), "= submitted r1 seq 11 repeated");
}

#[test]
fn s4_late_steering_starts_next_run_before_queue() {
    let mut harness = SessionHarness::with_streaming_step();
    harness.apply(submit("waits")).unwrap();
    harness.apply(steer("also")).unwrap();
    harness.check(
        harness.model_answers("one"),
        "
        message_completed M1 'one' @r1.1
        step_completed EndTurn 10 @r1.1
        run_completed M1 10 @r1.1
        message_accepted also @r3
        run_started also @r3
        step_started a2 #1 small @r3.1
        message_started M2 @r3.1
        > start_model a2 M2 @r3.1
    ",
    );
    assert_eq!(harness.state.active.queue.len(), 1);
}

#[test]
fn s4_steering_during_plan_is_included_after_decision() {
    let mut harness = SessionHarness::with_proposed_calls(&[scripted_call("high")]);
    harness.check(
        steer("also"),
        "
        message_queued also @r1.1
        = steers r1 seq 10 after the decision
    ",
    );
}

#[test]
fn s4_steering_of_idle_session_starts_run() {
    let mut harness = SessionHarness::new();
    harness.check(
        steer("u1"),
        "
        message_accepted u1 @r1
        run_started u1 @r1
        step_started a1 #1 small @r1.1
        message_started M1 @r1.1
        > start_model a1 M1 @r1.1
        = submitted r1 seq 2
    ",
    );
}

#[test]
fn s4_steering_counts_against_queue_limit() {
    let mut harness =
        SessionHarness::with_streaming_step().with_rules(|rules| rules.queued_messages_max = 1);
    harness.apply(steer("one")).unwrap();
    harness.check(steer("two"), "! the queue is full; the limit is 1");
    harness.check(submit("three"), "! the queue is full; the limit is 1");
}

#[test]
fn s4_interrupt_cancels_run_and_runs_before_queue() {
    let mut harness = SessionHarness::with_streaming_step();
    harness.apply(submit("waits")).unwrap();
    harness.check(
        interrupt("now", Some("I was say")),
        "
        message_completed M1 'I was say' stopped @r1.1
        step_completed EndTurn 10 @r1.1
        run_cancelled by ann M1 @r1.1
        message_accepted now @r3
        run_started now @r3
        step_started a2 #1 small @r3.1
        message_started M2 @r3.1
        > stop_model a1
        > start_model a2 M2 @r3.1
        = submitted r3 seq 10
    ",
    );
    harness.check(interrupt("now", None), "= submitted r3 seq 10 repeated");
    harness.check(
        harness.model_answers("done"),
        "
        message_completed M2 'done' @r3.1
        step_completed EndTurn 10 @r3.1
        run_completed M2 10 @r3.1
        message_accepted waits @r2
        run_started waits @r2
        step_started a3 #1 small @r2.1
        message_started M3 @r2.1
        > start_model a3 M3 @r2.1
    ",
    );
}

#[test]
fn s4_interrupt_cancels_open_plan() {
    let mut harness = SessionHarness::with_proposed_calls(&[scripted_call("high")]);
    let decision = harness.apply(interrupt("now", None)).unwrap();
    let cancelled = |record: &EventRecord| {
        matches!(record.event, crate::session::SessionEvent::ApprovalCancelled { .. })
    };
    assert!(decision.events.iter().any(cancelled));
    assert!(harness.state.active.approvals.is_empty());
}

#[test]
fn s4_interrupt_of_closed_session_is_rejected() {
    let mut harness = SessionHarness::new();
    harness.apply(Input::CloseSession { by: user("ann"), partial: None }).unwrap();
    let refused = harness.apply(interrupt("now", None)).unwrap_err();
    assert_eq!(refused, Rejection::SessionClosed);
}
