//! Messages that do not wait their turn: steering and interrupting (S4).

use super::*;

fn steer(message_id: &str) -> Input {
    submit_with(message_id, message_id, OnBusy::Steer)
}

fn interrupt(message_id: &str, said: Option<&str>) -> Input {
    let digest = Digest::hash_bytes(message_id.as_bytes());
    let text = message_id.into();
    let message_id = MessageId::parse(message_id).unwrap();
    let partial = said.map(|text| Completion {
        message: AssistantMessage { text: text.to_owned(), ..Default::default() },
        usage: USAGE,
        stop_reason: StopReason::EndTurn,
    });
    Input::Interrupt {
        message: NewMessage::new(message_id, text, digest),
        by: user("ann"),
        partial,
    }
}

#[test]
fn s4_steering_is_included_in_the_next_step() {
    let mut scene = SessionHarness::with_proposed_calls(&[scripted_call("read")]);
    scene.check(
        steer("also"),
        "
        message_queued also @r1.1
        = steers r1 seq 11
    ",
    );
    scene.check(
        scene.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        step_started a3 #1 small @r1.2
        message_accepted also @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
    ",
    );
    scene.check_conversation(
        "
        user: u1
        assistant:  [read]
        results: read: 42
        user: also
    ",
    );
    // The same message again starts nothing (S5).
    scene.check(steer("also"), "= submitted r1 seq 11 repeated");
}

#[test]
fn s4_steering_that_comes_too_late_starts_the_next_run_before_what_waits() {
    let mut scene = SessionHarness::with_streaming_step();
    scene.apply(submit("waits")).unwrap();
    scene.apply(steer("also")).unwrap();
    scene.check(
        scene.model_answers("one"),
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
    assert_eq!(scene.state.active.queue.len(), 1);
}

#[test]
fn s4_steering_during_a_plan_is_included_after_the_decision() {
    let mut scene = SessionHarness::with_proposed_calls(&[scripted_call("high")]);
    scene.check(
        steer("also"),
        "
        message_queued also @r1.1
        = steers r1 seq 10 after the decision
    ",
    );
}

#[test]
fn s4_steering_an_idle_session_is_a_message_like_any_other() {
    let mut scene = SessionHarness::new();
    scene.check(
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
fn s4_steering_counts_against_the_queue() {
    let mut scene =
        SessionHarness::with_streaming_step().with_rules(|rules| rules.queued_messages_max = 1);
    scene.apply(steer("one")).unwrap();
    scene.check(steer("two"), "! 1 messages wait already");
    scene.check(submit("three"), "! 1 messages wait already");
}

#[test]
fn s4_an_interrupt_cancels_and_runs_before_what_waits() {
    let mut scene = SessionHarness::with_streaming_step();
    scene.apply(submit("waits")).unwrap();
    scene.check(
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
    scene.check(interrupt("now", None), "= submitted r3 seq 10 repeated");
    scene.check(
        scene.model_answers("done"),
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
fn s4_an_interrupt_closes_the_plan_that_waits() {
    let mut scene = SessionHarness::with_proposed_calls(&[scripted_call("high")]);
    let decision = scene.apply(interrupt("now", None)).unwrap();
    let cancelled = |record: &EventRecord| {
        matches!(record.event, crate::session::SessionEvent::ApprovalCancelled { .. })
    };
    assert!(decision.events.iter().any(cancelled));
    assert!(scene.state.active.approvals.is_empty());
}

#[test]
fn s4_an_interrupt_of_a_closed_session_is_refused() {
    let mut scene = SessionHarness::new();
    scene.apply(Input::CloseSession { by: user("ann"), partial: None }).unwrap();
    let refused = scene.apply(interrupt("now", None)).unwrap_err();
    assert_eq!(refused, Rejection::SessionClosed);
}
