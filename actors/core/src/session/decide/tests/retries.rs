//! Repeating attempts of calls (R1 to R3).

use super::*;

fn fail_and_wake(scene: &mut SessionHarness, outcome: ToolOutcome) {
    scene.apply(scene.tool_finishes("c1", outcome)).unwrap();
    let due = scene.state.next_wake().unwrap();
    scene.set_clock(due).apply(Input::Wake).unwrap();
}

#[test]
fn r2_a_retry_is_due_by_wake_and_not_before() {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["read"]));
    scene.check(
        scene.tool_finishes("c1", timed_out()),
        "tool_call_retrying c1 #1 failures 1 (no answer within 5 ms) @r1.1",
    );
    let due = scene.state.next_wake().unwrap();
    assert!(due.saturating_duration_since(scene.now) <= SECOND);
    scene.set_clock(Timestamp(due.0 - 1)).check(Input::Wake, "");
    scene.set_clock(due).check(
        Input::Wake,
        "
        tool_call_attempt_started c1 a3 #2 @r1.1
        > start_tool c1 a3 read
    ",
    );
    assert_eq!(scene.state.next_wake(), None);
    scene.check(
        scene.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        step_started a4 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a4 M2 @r1.2
    ",
    );
}

/// A read-only call whose first three attempts failed with `outcome`.
fn nearly_exhausted(outcome: &ToolOutcome) -> SessionHarness {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["read"]));
    for _ in 0..3 {
        fail_and_wake(&mut scene, outcome.clone());
    }
    scene
}

#[test]
fn r3_exhausted_retries_are_a_result_and_the_run_goes_on() {
    let mut scene = nearly_exhausted(&timed_out());
    scene.check(
        scene.tool_finishes("c1", timed_out()),
        "
        tool_call_failed c1 Timeout exhausted (no answer within 5 ms) @r1.1
        step_started a6 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a6 M2 @r1.2
    ",
    );
    let mut scene = nearly_exhausted(&crashed());
    scene.check(
        scene.tool_finishes("c1", crashed()),
        "
        tool_call_failed c1 Crashed exhausted (child died) @r1.1
        step_started a6 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a6 M2 @r1.2
    ",
    );
    let mut scene = nearly_exhausted(&not_sent());
    scene.check(
        scene.tool_finishes("c1", not_sent()),
        "
        tool_call_failed c1 Unavailable exhausted (no child) @r1.1
        step_started a6 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a6 M2 @r1.2
    ",
    );
    let unavailable = failed("503 service unavailable", RetryHint::Unspecified);
    let mut scene = nearly_exhausted(&unavailable);
    scene.check(
        scene.tool_finishes("c1", unavailable),
        "
        tool_call_failed c1 Error exhausted (503 service unavailable) @r1.1
        step_started a6 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a6 M2 @r1.2
    ",
    );
}

#[test]
fn r1_what_provably_did_not_run_is_repeated_even_if_it_must_not_repeat() {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["low"]));
    scene.check(
        scene.tool_finishes("c1", not_sent()),
        "tool_call_retrying c1 #1 failures 1 (no child) @r1.1",
    );
    let due = scene.state.next_wake().unwrap();
    scene.set_clock(due).apply(Input::Wake).unwrap();
    scene.check(
        scene.tool_finishes("c1", failed("busy", RetryHint::DidNotRun)),
        "tool_call_retrying c1 #2 failures 2 (busy) @r1.1",
    );
    let due = scene.state.next_wake().unwrap();
    scene.set_clock(due).check(
        Input::Wake,
        "
        tool_call_attempt_started c1 a4 #3 @r1.1
        > start_tool c1 a4 low
    ",
    );
    // This time it was sent.
    scene.check(
        scene.tool_finishes("c1", crashed()),
        "approval_requested p1 (Say what became of low) c1 write_low_risk within None @r1.1",
    );
}

#[test]
fn r1_a_temporary_failure_of_what_must_not_repeat_is_final() {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["low"]));
    scene.check(
        scene.tool_finishes("c1", failed("try later", RetryHint::Temporary)),
        "
        tool_call_failed c1 Error (try later) @r1.1
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
    ",
    );
}

#[test]
fn r2_a_tool_without_retries_fails_at_once_and_nothing_is_exhausted() {
    let mut tools = tools();
    for tool in &mut tools {
        tool.retry = RetryPolicy { retries_max: 0, ..tool.retry };
    }
    let mut scene = SessionHarness::with_streaming_step()
        .with_rules(|rules| rules.tools = Arc::new(ToolRegistry::new(tools)));
    scene.propose(&scripted_calls(["read"]));
    scene.check(
        scene.tool_finishes("c1", timed_out()),
        "
        tool_call_failed c1 Timeout (no answer within 5 ms) @r1.1
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
    ",
    );
}

#[test]
fn r2_calls_that_back_off_wake_the_session_in_their_order() {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["read", "read2"]));
    scene.apply(scene.tool_finishes("c1", timed_out())).unwrap();
    let first = scene.state.next_wake().unwrap();
    scene.apply(scene.tool_finishes("c2", timed_out())).unwrap();
    let next = scene.state.next_wake().unwrap();
    assert!(next <= first);
    scene.set_clock(next).apply(Input::Wake).unwrap();
    assert!(scene.state.next_wake().is_none_or(|later| later > next));
}
