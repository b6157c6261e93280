//! Cancellation in every phase of a run (S6).

use super::*;

/// Checks that the session starts a run for the next message.
fn check_usable(mut harness: SessionHarness) {
    assert!(harness.state.is_idle());
    assert!(harness.state.active.approvals.is_empty());
    assert_eq!(harness.state.next_wake(), None);
    let decision = harness.apply(submit("next")).unwrap();
    assert!(matches!(decision.effects[..], [crate::session::Effect::StartModel { .. }]));
}

#[test]
fn s6_cancellation_without_run_is_rejected() {
    let mut harness = SessionHarness::new();
    harness.check(cancel(), "! no run is active");
    let run_id = Some(RunId(Uuid::from_u128(3)));
    let other = Input::CancelRun { run_id, by: user("ann"), partial: None };
    assert_eq!(
        harness.apply(other.clone()),
        Err(Rejection::RunNotActive { run_id: RunId(Uuid::from_u128(3)) })
    );
    harness.apply(submit("u1")).unwrap();
    assert_eq!(
        harness.apply(other),
        Err(Rejection::RunNotActive { run_id: RunId(Uuid::from_u128(3)) })
    );
}

#[test]
fn s6_cancellation_while_streaming_keeps_partial_text() {
    let mut harness = SessionHarness::with_streaming_step();
    harness.check(
        cancel_with("The price is"),
        "
        message_completed M1 'The price is' stopped @r1.1
        step_completed EndTurn 10 @r1.1
        run_cancelled by ann M1 @r1.1
        > stop_model a1
        = cancelled r1
    ",
    );
    harness.check_conversation(
        "
        user: u1
        assistant: The price is
    ",
    );
    check_usable(harness);
}

#[test]
fn s6_cancellation_before_first_text_discards_message() {
    // Without text there is no message; reported tokens still count (M6).
    for (input, counted) in [(cancel(), ""), (cancel_with(""), "step_completed EndTurn 10 @r1.1")] {
        let mut harness = SessionHarness::with_streaming_step();
        let expected = format!(
            "
            message_discarded M1 (the run was cancelled) @r1.1
            {counted}
            run_cancelled by ann @r1.1
            > stop_model a1
            = cancelled r1
        "
        );
        harness.check(input, &expected);
        check_usable(harness);
    }
}

#[test]
fn s6_cancellation_during_step_backoff_ends_run() {
    let backing_off = |streamed| {
        let mut harness = SessionHarness::with_streaming_step();
        harness
            .apply(harness.model_fails(ModelFailure::temporary("overloaded"), streamed))
            .unwrap();
        harness
    };
    let mut harness = backing_off(true);
    harness.check(
        cancel(),
        "
        run_cancelled by ann @r1.1
        = cancelled r1
    ",
    );
    check_usable(harness);
    let mut harness = backing_off(false);
    harness.check(
        cancel(),
        "
        message_discarded M1 (the run was cancelled) @r1.1
        run_cancelled by ann @r1.1
        = cancelled r1
    ",
    );
    check_usable(harness);
}

#[test]
fn s6_cancellation_ends_running_and_waiting_calls() {
    let mut harness = SessionHarness::with_streaming_step();
    harness.check(
        harness.model_calls(&scripted_calls(["read", "read2", "low", "high", "low"])),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 read read_only @r1.1
        tool_call_allowed c1 by policy @r1.1
        tool_call_started c2 read2 read_only @r1.1
        tool_call_allowed c2 by policy @r1.1
        tool_call_started c3 low write_low_risk @r1.1
        tool_call_allowed c3 by policy @r1.1
        tool_call_started c4 high write_high_risk @r1.1
        tool_call_started c5 low write_low_risk @r1.1
        tool_call_allowed c5 by policy @r1.1
        approval_requested p1 (Execute 1 tool) c4 write_high_risk within Some(60) @r1.1
        tool_call_attempt_started c1 a2 #1 @r1.1
        tool_call_attempt_started c2 a3 #1 @r1.1
        tool_call_attempt_started c3 a4 #1 @r1.1
        > start_tool c1 a2 read
        > start_tool c2 a3 read2
        > start_tool c3 a4 low
    ",
    );
    harness.apply(harness.tool_finishes("c1", completed())).unwrap();
    harness.check(cancel(), "
        approval_cancelled p1 @r1.1
        tool_call_failed c2 Cancelled (the run was cancelled while the call ran) @r1.1
        tool_call_failed c3 Cancelled (the run was cancelled while the call ran; it may have taken effect) @r1.1
        tool_call_failed c4 Cancelled (the run was cancelled; the call did not take effect) @r1.1
        tool_call_failed c5 Cancelled (the run was cancelled; the call did not take effect) @r1.1
        run_cancelled by ann @r1.1
        > stop_tool c2 a3
        > stop_tool c3 a4
        = cancelled r1
    ");
    harness.check_conversation(
        "
        user: u1
        assistant:  [read] [read2] [low] [high] [low]
        results: read: 42
        & !read2: Cancelled: the run was cancelled while the call ran
        & !low: Cancelled: the run was cancelled while the call ran; it may have taken effect
        & !high: Cancelled: the run was cancelled; the call did not take effect
        & !low: Cancelled: the run was cancelled; the call did not take effect
    ",
    );
    check_usable(harness);
}

#[test]
fn s6_cancelled_repeatable_write_may_have_taken_effect() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["idem", "read"]));
    harness.apply(harness.overall_answer("p1", true, "ann")).unwrap();
    harness.check(cancel(), "
        tool_call_failed c1 Cancelled (the run was cancelled while the call ran; it may have taken effect) @r1.1
        tool_call_failed c2 Cancelled (the run was cancelled while the call ran) @r1.1
        run_cancelled by ann @r1.1
        > stop_tool c1 a3
        > stop_tool c2 a2
        = cancelled r1
    ");
    check_usable(harness);
}

#[test]
fn s6_cancellation_during_call_backoff_reports_possible_effect() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["idem", "read"]));
    harness.apply(harness.overall_answer("p1", true, "ann")).unwrap();
    harness.apply(harness.tool_finishes("c1", timed_out())).unwrap();
    harness.check(cancel(), "
        tool_call_failed c1 Cancelled (the run was cancelled before the call was retried; an earlier attempt may have taken effect) @r1.1
        tool_call_failed c2 Cancelled (the run was cancelled while the call ran) @r1.1
        run_cancelled by ann @r1.1
        > stop_tool c2 a2
        = cancelled r1
    ");
    check_usable(harness);
}

#[test]
fn s6_cancelled_unsent_call_did_not_take_effect() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["low"]));
    harness.apply(harness.tool_finishes("c1", not_sent())).unwrap();
    harness.check(
        cancel(),
        "
        tool_call_failed c1 Cancelled (the run was cancelled; the call did not take effect) @r1.1
        run_cancelled by ann @r1.1
        = cancelled r1
    ",
    );
    check_usable(harness);
}

#[test]
fn s6_cancellation_of_named_run_keeps_queued_messages() {
    let mut harness = SessionHarness::with_streaming_step();
    harness.check(
        submit("u2"),
        "
        message_queued u2 @r2
        = submitted r2 seq 6
    ",
    );
    harness.check(
        submit("u3"),
        "
        message_queued u3 @r3
        = submitted r3 seq 7
    ",
    );
    let cancel_run = |harness: &SessionHarness, name: &str| {
        let run_id = Some(harness.run(name));
        Input::CancelRun { run_id, by: user("bob"), partial: None }
    };
    // Cancels a queued run.
    harness.check(
        cancel_run(&harness, "r2"),
        "
        run_cancelled by bob @r2
        = cancelled r2
    ",
    );
    harness.check(cancel_run(&harness, "r2"), "! run not active r2");
    // Cancels the active run; the next one starts.
    harness.check(submit("u1"), "= submitted r1 seq 2 repeated");
    harness.check(
        cancel_run(&harness, "r1"),
        "
        message_discarded M1 (the run was cancelled) @r1.1
        run_cancelled by bob @r1.1
        message_accepted u3 @r3
        run_started u3 @r3
        step_started a2 #1 small @r3.1
        message_started M2 @r3.1
        > stop_model a1
        > start_model a2 M2 @r3.1
        = cancelled r1
    ",
    );
    harness.check(cancel_run(&harness, "r1"), "! run not active r1");
    harness.apply(cancel()).unwrap();
    check_usable(harness);
}

#[test]
fn s6_results_after_cancellation_change_nothing() {
    let mut harness = SessionHarness::with_streaming_step();
    let answer = harness.model_answers("late");
    harness.apply(cancel()).unwrap();
    harness.check(answer, "");

    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["read"]));
    let result = harness.tool_finishes("c1", completed());
    harness.apply(cancel()).unwrap();
    harness.check(result, "late_result c1 a2 (completed: 42) @r1");
}

#[test]
fn s1_fork_reports_possible_effect_of_running_calls() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["idem", "read"]));
    harness.apply(harness.overall_answer("p1", true, "ann")).unwrap();
    let Some(Message::ToolResults(results)) = harness.state.conversation_so_far().pop() else {
        panic!("the calls have results there")
    };
    let texts: Vec<_> = results.iter().map(|result| &*result.text).collect();
    let cancelled = "Cancelled: the session was forked before the call had its result";
    let doubted = format!("{cancelled}; it may have taken effect");
    assert_eq!(texts, [&doubted, cancelled]);
}
