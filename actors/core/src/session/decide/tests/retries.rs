//! Retries of call attempts (R1 to R3).

use super::*;

fn fail_and_wake(harness: &mut SessionHarness, outcome: ToolOutcome) {
    harness.apply(harness.tool_finishes("c1", outcome)).unwrap();
    let due = harness.state.next_wake().unwrap();
    harness.set_clock(due).apply(Input::Wake).unwrap();
}

#[test]
fn r2_retry_starts_when_due() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["read"]));
    harness.check(
        harness.tool_finishes("c1", timed_out()),
        "tool_call_retrying c1 #1 failures 1 (no answer within 5 ms) @r1.1",
    );
    let due = harness.state.next_wake().unwrap();
    assert!(due.saturating_duration_since(harness.now) <= SECOND);
    harness.set_clock(Timestamp(due.0 - 1)).check(Input::Wake, "");
    harness.set_clock(due).check(
        Input::Wake,
        "
        tool_call_attempt_started c1 a3 #2 @r1.1
        > start_tool c1 a3 read
    ",
    );
    assert_eq!(harness.state.next_wake(), None);
    harness.check(
        harness.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        step_started a4 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a4 M2 @r1.2
    ",
    );
}

/// Returns a session with a read-only call whose first three attempts had this outcome.
fn with_nearly_exhausted_retries(outcome: &ToolOutcome) -> SessionHarness {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["read"]));
    for _ in 0..3 {
        fail_and_wake(&mut harness, outcome.clone());
    }
    harness
}

#[test]
fn r3_exhausted_retries_fail_call_and_run_continues() {
    let mut harness = with_nearly_exhausted_retries(&timed_out());
    harness.check(
        harness.tool_finishes("c1", timed_out()),
        "
        tool_call_failed c1 Timeout exhausted after 4 attempts (no answer within 5 ms) @r1.1
        step_started a6 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a6 M2 @r1.2
    ",
    );
    let mut harness = with_nearly_exhausted_retries(&crashed());
    harness.check(
        harness.tool_finishes("c1", crashed()),
        "
        tool_call_failed c1 Crashed exhausted after 4 attempts (child died) @r1.1
        step_started a6 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a6 M2 @r1.2
    ",
    );
    let mut harness = with_nearly_exhausted_retries(&not_sent());
    harness.check(
        harness.tool_finishes("c1", not_sent()),
        "
        tool_call_failed c1 Unavailable exhausted after 4 attempts (no child) @r1.1
        step_started a6 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a6 M2 @r1.2
    ",
    );
    let unavailable = failed("503 service unavailable", RetryHint::Unspecified);
    let mut harness = with_nearly_exhausted_retries(&unavailable);
    harness.check(
        harness.tool_finishes("c1", unavailable),
        "
        tool_call_failed c1 Error exhausted after 4 attempts (503 service unavailable) @r1.1
        step_started a6 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a6 M2 @r1.2
    ",
    );
}

#[test]
fn r3_error_result_states_number_of_attempts() {
    for (outcome, result) in [
        (timed_out(), "The tool did not answer in time after 4 attempts: no answer within 5 ms"),
        (crashed(), "The tool crashed after 4 attempts: child died"),
        (not_sent(), "The tool is unavailable after 4 attempts: no child"),
        (
            failed("temporary", RetryHint::Unspecified),
            "The tool failed after 4 attempts: temporary",
        ),
    ] {
        let mut harness = with_nearly_exhausted_retries(&outcome);
        harness.apply(harness.tool_finishes("c1", outcome)).unwrap();
        harness.check_conversation(&format!(
            "
            user: u1
            assistant:  [read]
            results: !read: {result}
        "
        ));
    }
    // Two attempts failed, the second one permanently.
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["read"]));
    fail_and_wake(&mut harness, timed_out());
    harness.check(
        harness.tool_finishes("c1", failed("no such type", RetryHint::Unspecified)),
        "
        tool_call_failed c1 Error (no such type) @r1.1
        step_started a4 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a4 M2 @r1.2
    ",
    );
    harness.check_conversation(
        "
        user: u1
        assistant:  [read]
        results: !read: The tool failed after 2 attempts: no such type
    ",
    );
}

#[test]
fn r1_unsent_attempt_of_unrepeatable_call_is_retried() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["low"]));
    harness.check(
        harness.tool_finishes("c1", not_sent()),
        "tool_call_retrying c1 #1 failures 1 (no child) @r1.1",
    );
    let due = harness.state.next_wake().unwrap();
    harness.set_clock(due).apply(Input::Wake).unwrap();
    harness.check(
        harness.tool_finishes("c1", failed("busy", RetryHint::DidNotRun)),
        "tool_call_retrying c1 #2 failures 2 (busy) @r1.1",
    );
    let due = harness.state.next_wake().unwrap();
    harness.set_clock(due).check(
        Input::Wake,
        "
        tool_call_attempt_started c1 a4 #3 @r1.1
        > start_tool c1 a4 low
    ",
    );
    // The second attempt was sent.
    harness.check(
        harness.tool_finishes("c1", crashed()),
        "approval_requested p1 (Resolve the unknown outcome of low) c1 write_low_risk within None @r1.1",
    );
}

#[test]
fn r1_temporary_failure_of_unrepeatable_call_is_final() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["low"]));
    harness.check(
        harness.tool_finishes("c1", failed("try later", RetryHint::Temporary)),
        "
        tool_call_failed c1 Error (try later) @r1.1
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
    ",
    );
}

#[test]
fn r2_tool_without_retries_fails_at_once() {
    let mut tools = tools();
    for tool in &mut tools {
        tool.retry = RetryPolicy { retries_max: 0, ..tool.retry };
    }
    let mut harness = SessionHarness::with_streaming_step()
        .with_rules(|rules| rules.tools = Arc::new(ToolRegistry::new(tools)));
    harness.propose(&scripted_calls(["read"]));
    harness.check(
        harness.tool_finishes("c1", timed_out()),
        "
        tool_call_failed c1 Timeout (no answer within 5 ms) @r1.1
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
    ",
    );
}

#[test]
fn r2_next_wake_is_earliest_backoff() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["read", "read2"]));
    harness.apply(harness.tool_finishes("c1", timed_out())).unwrap();
    let first = harness.state.next_wake().unwrap();
    harness.apply(harness.tool_finishes("c2", timed_out())).unwrap();
    let next = harness.state.next_wake().unwrap();
    assert!(next <= first);
    harness.set_clock(next).apply(Input::Wake).unwrap();
    assert!(harness.state.next_wake().is_none_or(|later| later > next));
}
