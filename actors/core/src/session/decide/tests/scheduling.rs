//! Scheduling of calls (S3).

use super::*;

#[test]
fn s3_read_only_calls_run_in_parallel_up_to_limit() {
    let mut harness =
        SessionHarness::with_streaming_step().with_rules(|rules| rules.parallel_calls_max = 2);
    harness.check(
        harness.model_calls(&scripted_calls(["read", "read2", "read", "read2"])),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 read read_only @r1.1
        tool_call_allowed c1 by policy @r1.1
        tool_call_started c2 read2 read_only @r1.1
        tool_call_allowed c2 by policy @r1.1
        tool_call_started c3 read read_only @r1.1
        tool_call_allowed c3 by policy @r1.1
        tool_call_started c4 read2 read_only @r1.1
        tool_call_allowed c4 by policy @r1.1
        tool_call_attempt_started c1 a2 #1 @r1.1
        tool_call_attempt_started c2 a3 #1 @r1.1
        > start_tool c1 a2 read
        > start_tool c2 a3 read2
    ",
    );
    harness.check(
        harness.tool_finishes("c2", completed()),
        "
        tool_call_completed c2 '42' @r1.1
        tool_call_attempt_started c3 a4 #1 @r1.1
        > start_tool c3 a4 read
    ",
    );
    harness.check(
        harness.tool_finishes("c3", completed()),
        "
        tool_call_completed c3 '42' @r1.1
        tool_call_attempt_started c4 a5 #1 @r1.1
        > start_tool c4 a5 read2
    ",
    );
}

#[test]
fn s3_other_calls_run_one_at_a_time_in_order() {
    let mut harness = SessionHarness::with_streaming_step();
    harness.check(
        harness.model_calls(&scripted_calls(["low", "read", "low"])),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 low write_low_risk @r1.1
        tool_call_allowed c1 by policy @r1.1
        tool_call_started c2 read read_only @r1.1
        tool_call_allowed c2 by policy @r1.1
        tool_call_started c3 low write_low_risk @r1.1
        tool_call_allowed c3 by policy @r1.1
        tool_call_attempt_started c1 a2 #1 @r1.1
        tool_call_attempt_started c2 a3 #1 @r1.1
        > start_tool c1 a2 low
        > start_tool c2 a3 read
    ",
    );
    harness.check(harness.tool_finishes("c2", completed()), "tool_call_completed c2 '42' @r1.1");
    harness.check(
        harness.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        tool_call_attempt_started c3 a4 #1 @r1.1
        > start_tool c3 a4 low
    ",
    );
}

#[test]
fn s3_write_waits_behind_earlier_call_awaiting_approval() {
    let mut harness = SessionHarness::with_streaming_step();
    harness.check(
        harness.model_calls(&scripted_calls(["high", "low", "read"])),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 high write_high_risk @r1.1
        tool_call_started c2 low write_low_risk @r1.1
        tool_call_allowed c2 by policy @r1.1
        tool_call_started c3 read read_only @r1.1
        tool_call_allowed c3 by policy @r1.1
        approval_requested p1 (Execute 1 tool) c1 write_high_risk within Some(60) @r1.1
        tool_call_attempt_started c3 a2 #1 @r1.1
        > start_tool c3 a2 read
    ",
    );
    harness.check(harness.tool_finishes("c3", completed()), "tool_call_completed c3 '42' @r1.1");
    assert!(harness.state.is_waiting_for_approval());
    harness.check(
        harness.overall_answer("p1", true, "ann"),
        "
        approval_decided p1 +c1 by ann closed @r1.1
        tool_call_allowed c1 by ann p1 @r1.1
        tool_call_attempt_started c1 a3 #1 @r1.1
        > start_tool c1 a3 high
        = decided closed
    ",
    );
    assert!(!harness.state.is_waiting_for_approval());
    harness.check(
        harness.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        tool_call_attempt_started c2 a4 #1 @r1.1
        > start_tool c2 a4 low
    ",
    );
}

#[test]
fn s3_write_before_call_awaiting_approval_runs() {
    let mut harness = SessionHarness::with_streaming_step();
    harness.check(
        harness.model_calls(&scripted_calls(["low", "high"])),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 low write_low_risk @r1.1
        tool_call_allowed c1 by policy @r1.1
        tool_call_started c2 high write_high_risk @r1.1
        approval_requested p1 (Execute 1 tool) c2 write_high_risk within Some(60) @r1.1
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 low
    ",
    );
    // An approved call still waits for earlier serial calls.
    harness.check(
        harness.overall_answer("p1", true, "ann"),
        "
        approval_decided p1 +c2 by ann closed @r1.1
        tool_call_allowed c2 by ann p1 @r1.1
        = decided closed
    ",
    );
    harness.check(
        harness.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        tool_call_attempt_started c2 a3 #1 @r1.1
        > start_tool c2 a3 high
    ",
    );
}

#[test]
fn s3_parallel_tool_runs_beside_other_calls() {
    let mut harness = SessionHarness::with_streaming_step();
    harness.check(
        harness.model_calls(&scripted_calls(["high", "beside", "low"])),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 high write_high_risk @r1.1
        tool_call_started c2 beside write_high_risk @r1.1
        tool_call_started c3 low write_low_risk @r1.1
        tool_call_allowed c3 by policy @r1.1
        approval_requested p1 (Execute 2 tools) c1 c2 write_high_risk within Some(60) @r1.1
    ",
    );
    harness.check(
        harness.step_answers("p1", &[("c2", true)], "ann"),
        "
        approval_decided p1 +c2 by ann @r1.1
        tool_call_allowed c2 by ann p1 @r1.1
        tool_call_attempt_started c2 a2 #1 @r1.1
        > start_tool c2 a2 beside
        = decided
    ",
    );
    harness.check(
        harness.step_answers("p1", &[("c1", true)], "ann"),
        "
        approval_decided p1 +c1 by ann closed @r1.1
        tool_call_allowed c1 by ann p1 @r1.1
        tool_call_attempt_started c1 a3 #1 @r1.1
        > start_tool c1 a3 high
        = decided closed
    ",
    );
}

#[test]
fn s3_call_in_backoff_keeps_its_order() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["idem", "low"]));
    harness.apply(harness.overall_answer("p1", true, "ann")).unwrap();
    harness.check(
        harness.tool_finishes("c1", timed_out()),
        "tool_call_retrying c1 #1 failures 1 (no answer within 5 ms) @r1.1",
    );
    let due = harness.state.next_wake().unwrap();
    harness.set_clock(due).check(
        Input::Wake,
        "
        tool_call_attempt_started c1 a3 #2 @r1.1
        > start_tool c1 a3 idem
    ",
    );
    harness.check(
        harness.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        tool_call_attempt_started c2 a4 #1 @r1.1
        > start_tool c2 a4 low
    ",
    );
}

#[test]
fn s3_call_in_backoff_keeps_its_slot() {
    let mut harness =
        SessionHarness::with_streaming_step().with_rules(|rules| rules.parallel_calls_max = 1);
    harness.apply(harness.model_calls(&scripted_calls(["read", "read2"]))).unwrap();
    harness.check(
        harness.tool_finishes("c1", timed_out()),
        "tool_call_retrying c1 #1 failures 1 (no answer within 5 ms) @r1.1",
    );
    let due = harness.state.next_wake().unwrap();
    harness.set_clock(due).check(
        Input::Wake,
        "
        tool_call_attempt_started c1 a3 #2 @r1.1
        > start_tool c1 a3 read
    ",
    );
    harness.check(
        harness.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        tool_call_attempt_started c2 a4 #1 @r1.1
        > start_tool c2 a4 read2
    ",
    );
}

#[test]
fn s3_parallel_limit_of_zero_means_one() {
    let mut harness =
        SessionHarness::with_streaming_step().with_rules(|rules| rules.parallel_calls_max = 0);
    harness.check(
        harness.model_calls(&scripted_calls(["read", "read2"])),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 read read_only @r1.1
        tool_call_allowed c1 by policy @r1.1
        tool_call_started c2 read2 read_only @r1.1
        tool_call_allowed c2 by policy @r1.1
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 read
    ",
    );
}
