//! Repeating attempts of calls (R1 to R3).

use super::*;

fn fail_and_wake(scene: &mut Scene, outcome: ToolOutcome) {
    scene.does(scene.tool("c1", outcome)).unwrap();
    let due = scene.state.next_wake().unwrap();
    scene.at(due).does(Input::Wake).unwrap();
}

#[test]
fn r2_a_retry_is_due_by_wake_and_not_before() {
    let mut scene = Scene::calling(&wants(["read"]));
    scene.check(
        scene.tool("c1", timed_out()),
        "tool_call_retrying c1 #1 failures 1 (no answer within 5 ms) @r1.1",
    );
    let due = scene.state.next_wake().unwrap();
    assert!(due.until_from(scene.now) <= SECOND);
    scene.at(Timestamp(due.0 - 1)).check(Input::Wake, "");
    scene.at(due).check(
        Input::Wake,
        "
        tool_call_attempt_started c1 a3 #2 @r1.1
        > start_tool c1 a3 read
    ",
    );
    assert_eq!(scene.state.next_wake(), None);
    scene.check(
        scene.tool("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        step_started a4 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a4 M2 @r1.2
    ",
    );
}

/// A read-only call whose first three attempts failed with `outcome`.
fn nearly_exhausted(outcome: &ToolOutcome) -> Scene {
    let mut scene = Scene::calling(&wants(["read"]));
    for _ in 0..3 {
        fail_and_wake(&mut scene, outcome.clone());
    }
    scene
}

#[test]
fn r3_exhausted_retries_are_a_result_and_the_run_goes_on() {
    let mut scene = nearly_exhausted(&timed_out());
    scene.check(
        scene.tool("c1", timed_out()),
        "
        tool_call_failed c1 Timeout exhausted (no answer within 5 ms) @r1.1
        step_started a6 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a6 M2 @r1.2
    ",
    );
    let mut scene = nearly_exhausted(&crashed());
    scene.check(
        scene.tool("c1", crashed()),
        "
        tool_call_failed c1 Crashed exhausted (child died) @r1.1
        step_started a6 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a6 M2 @r1.2
    ",
    );
    let mut scene = nearly_exhausted(&not_sent());
    scene.check(
        scene.tool("c1", not_sent()),
        "
        tool_call_failed c1 Unavailable exhausted (no child) @r1.1
        step_started a6 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a6 M2 @r1.2
    ",
    );
    let unavailable = failed("503 service unavailable", RepeatHint::Unsaid);
    let mut scene = nearly_exhausted(&unavailable);
    scene.check(
        scene.tool("c1", unavailable),
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
    let mut scene = Scene::calling(&wants(["low"]));
    scene.check(
        scene.tool("c1", not_sent()),
        "tool_call_retrying c1 #1 failures 1 (no child) @r1.1",
    );
    let due = scene.state.next_wake().unwrap();
    scene.at(due).does(Input::Wake).unwrap();
    scene.check(
        scene.tool("c1", failed("busy", RepeatHint::DidNotRun)),
        "tool_call_retrying c1 #2 failures 2 (busy) @r1.1",
    );
    let due = scene.state.next_wake().unwrap();
    scene.at(due).check(
        Input::Wake,
        "
        tool_call_attempt_started c1 a4 #3 @r1.1
        > start_tool c1 a4 low
    ",
    );
    // This time it was sent.
    scene.check(
        scene.tool("c1", crashed()),
        "approval_requested p1 (Say what became of low) c1 write_low_risk within None @r1.1",
    );
}

#[test]
fn r1_a_temporary_failure_of_what_must_not_repeat_is_final() {
    let mut scene = Scene::calling(&wants(["low"]));
    scene.check(
        scene.tool("c1", failed("try later", RepeatHint::Temporary)),
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
    let mut scene = Scene::streaming().rules(|rules| rules.tools = Arc::new(ToolBook::new(tools)));
    scene.propose(&wants(["read"]));
    scene.check(
        scene.tool("c1", timed_out()),
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
    let mut scene = Scene::calling(&wants(["read", "read2"]));
    scene.does(scene.tool("c1", timed_out())).unwrap();
    let first = scene.state.next_wake().unwrap();
    scene.does(scene.tool("c2", timed_out())).unwrap();
    let next = scene.state.next_wake().unwrap();
    assert!(next <= first);
    scene.at(next).does(Input::Wake).unwrap();
    assert!(scene.state.next_wake().is_none_or(|later| later > next));
}
