//! Cancelling at every phase (S6).

use super::*;

/// After any cancel the session takes the next message at once.
fn is_usable(mut scene: SessionHarness) {
    assert!(scene.state.is_idle());
    assert!(scene.state.active.approvals.is_empty());
    assert_eq!(scene.state.next_wake(), None);
    let decision = scene.apply(submit("next")).unwrap();
    assert!(matches!(decision.effects[..], [crate::session::Effect::StartModel { .. }]));
}

#[test]
fn s6_there_is_nothing_to_cancel() {
    let mut scene = SessionHarness::new();
    scene.check(cancel(), "! no run is going");
    let run_id = Some(RunId(Uuid::from_u128(3)));
    let other = Input::CancelRun { run_id, by: user("ann"), partial: None };
    assert_eq!(
        scene.apply(other.clone()),
        Err(Rejection::RunNotActive { run_id: RunId(Uuid::from_u128(3)) })
    );
    scene.apply(submit("u1")).unwrap();
    assert_eq!(
        scene.apply(other),
        Err(Rejection::RunNotActive { run_id: RunId(Uuid::from_u128(3)) })
    );
}

#[test]
fn s6_while_the_model_streams_what_was_said_is_kept() {
    let mut scene = SessionHarness::with_streaming_step();
    scene.check(
        cancel_with("The price is"),
        "
        message_completed M1 'The price is' stopped @r1.1
        step_completed EndTurn 10 @r1.1
        run_cancelled by ann M1 @r1.1
        > stop_model a1
        = cancelled r1
    ",
    );
    scene.check_conversation(
        "
        user: u1
        assistant: The price is
    ",
    );
    is_usable(scene);
}

#[test]
fn s6_while_the_model_streams_nothing_yet() {
    // Without a word said there is no message; tokens that were told count all the same (M6).
    for (input, counted) in [(cancel(), ""), (cancel_with(""), "step_completed EndTurn 10 @r1.1")] {
        let mut scene = SessionHarness::with_streaming_step();
        let expected = format!(
            "
            message_discarded M1 (the run was cancelled) @r1.1
            {counted}
            run_cancelled by ann @r1.1
            > stop_model a1
            = cancelled r1
        "
        );
        scene.check(input, &expected);
        is_usable(scene);
    }
}

#[test]
fn s6_while_the_step_backs_off() {
    let backing_off = |streamed| {
        let mut scene = SessionHarness::with_streaming_step();
        scene.apply(scene.model_fails(ModelFailure::temporary("overloaded"), streamed)).unwrap();
        scene
    };
    let mut scene = backing_off(true);
    scene.check(
        cancel(),
        "
        run_cancelled by ann @r1.1
        = cancelled r1
    ",
    );
    is_usable(scene);
    let mut scene = backing_off(false);
    scene.check(
        cancel(),
        "
        message_discarded M1 (the run was cancelled) @r1.1
        run_cancelled by ann @r1.1
        = cancelled r1
    ",
    );
    is_usable(scene);
}

#[test]
fn s6_while_calls_run_wait_and_are_done() {
    let mut scene = SessionHarness::with_streaming_step();
    scene.check(
        scene.model_calls(&scripted_calls(["read", "read2", "low", "high", "low"])),
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
    scene.apply(scene.tool_finishes("c1", completed())).unwrap();
    scene.check(cancel(), "
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
    scene.check_conversation(
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
    is_usable(scene);
}

#[test]
fn s6_a_write_that_could_be_repeated_may_have_taken_effect_all_the_same() {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["idem", "read"]));
    scene.apply(scene.overall_answer("p1", true, "ann")).unwrap();
    scene.check(cancel(), "
        tool_call_failed c1 Cancelled (the run was cancelled while the call ran; it may have taken effect) @r1.1
        tool_call_failed c2 Cancelled (the run was cancelled while the call ran) @r1.1
        run_cancelled by ann @r1.1
        > stop_tool c1 a3
        > stop_tool c2 a2
        = cancelled r1
    ");
    is_usable(scene);
}

#[test]
fn s6_while_calls_back_off_the_result_does_not_claim_that_nothing_happened() {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["idem", "read"]));
    scene.apply(scene.overall_answer("p1", true, "ann")).unwrap();
    scene.apply(scene.tool_finishes("c1", timed_out())).unwrap();
    scene.check(cancel(), "
        tool_call_failed c1 Cancelled (the run was cancelled before the call was tried again; an earlier attempt may have taken effect) @r1.1
        tool_call_failed c2 Cancelled (the run was cancelled while the call ran) @r1.1
        run_cancelled by ann @r1.1
        > stop_tool c2 a2
        = cancelled r1
    ");
    is_usable(scene);
}

#[test]
fn s6_a_call_that_was_never_sent_did_not_take_effect() {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["low"]));
    scene.apply(scene.tool_finishes("c1", not_sent())).unwrap();
    scene.check(
        cancel(),
        "
        tool_call_failed c1 Cancelled (the run was cancelled; the call did not take effect) @r1.1
        run_cancelled by ann @r1.1
        = cancelled r1
    ",
    );
    is_usable(scene);
}

#[test]
fn s6_the_run_may_be_named_and_queued_messages_go_on() {
    let mut scene = SessionHarness::with_streaming_step();
    scene.check(
        submit("u2"),
        "
        message_queued u2 @r2
        = submitted r2 seq 6
    ",
    );
    scene.check(
        submit("u3"),
        "
        message_queued u3 @r3
        = submitted r3 seq 7
    ",
    );
    let cancel_run = |scene: &SessionHarness, name: &str| {
        let run_id = Some(scene.run(name));
        Input::CancelRun { run_id, by: user("bob"), partial: None }
    };
    // A queued one: nobody else notices.
    scene.check(
        cancel_run(&scene, "r2"),
        "
        run_cancelled by bob @r2
        = cancelled r2
    ",
    );
    scene.check(cancel_run(&scene, "r2"), "! run not active r2");
    // The one that is going: the next begins.
    scene.check(submit("u1"), "= submitted r1 seq 2 repeated");
    scene.check(
        cancel_run(&scene, "r1"),
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
    scene.check(cancel_run(&scene, "r1"), "! run not active r1");
    scene.apply(cancel()).unwrap();
    is_usable(scene);
}

#[test]
fn s6_answers_that_come_after_the_cancel_are_noted_at_most() {
    let mut scene = SessionHarness::with_streaming_step();
    let answer = scene.model_answers("late");
    scene.apply(cancel()).unwrap();
    scene.check(answer, "");

    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["read"]));
    let result = scene.tool_finishes("c1", completed());
    scene.apply(cancel()).unwrap();
    scene.check(result, "late_result c1 a2 (completed: 42) @r1");
}

#[test]
fn s1_a_fork_does_not_claim_that_what_runs_did_not_happen() {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["idem", "read"]));
    scene.apply(scene.overall_answer("p1", true, "ann")).unwrap();
    let Some(Message::ToolResults(results)) = scene.state.conversation_so_far().pop() else {
        panic!("the calls have results there")
    };
    let texts: Vec<_> = results.iter().map(|result| &*result.text).collect();
    let cancelled = "Cancelled: the session was forked before the call had its result";
    let doubted = format!("{cancelled}; it may have taken effect");
    assert_eq!(texts, [&doubted, cancelled]);
}
