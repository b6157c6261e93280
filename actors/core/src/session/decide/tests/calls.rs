//! Proposing and authorizing calls, and the end of their attempts (S3, G7, T3, R1).

use super::*;

#[test]
fn t3_invalid_calls_fail_at_once_with_reason() {
    let mut harness = SessionHarness::with_streaming_step();
    let calls = [
        ScriptedCall::Malformed("read"),
        scripted_call("no_such_tool"),
        ScriptedCall::Valid("read_strict", json!({"n": "one"})),
        ScriptedCall::Valid("read_strict", json!({})),
        ScriptedCall::Valid("read_strict", json!([1])),
    ];
    harness.check(
        harness.model_calls(&calls),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 read read_only @r1.1
        tool_call_failed c1 InvalidArguments (not JSON) @r1.1
        tool_call_started c2 no_such_tool write_high_risk @r1.1
        tool_call_failed c2 UnknownTool (there is no tool named `no_such_tool`) @r1.1
        tool_call_started c3 read_strict read_only @r1.1
        tool_call_failed c3 InvalidArguments (`/n`: value is not of type \"integer\") @r1.1
        tool_call_started c4 read_strict read_only @r1.1
        tool_call_failed c4 InvalidArguments (the arguments: \"n\" is a required property) @r1.1
        tool_call_started c5 read_strict read_only @r1.1
        tool_call_failed c5 InvalidArguments (the arguments are not a JSON object but an array) @r1.1
        step_started a2 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a2 M2 @r1.2
    ",
    );
    harness.check_conversation(
        "
        user: u1
        assistant:  [read] [no_such_tool] [read_strict] [read_strict] [read_strict]
        results: !read: Invalid arguments: not JSON
        & !no_such_tool: Unknown tool: there is no tool named `no_such_tool`
        & !read_strict: Invalid arguments: `/n`: value is not of type \"integer\"
        & !read_strict: Invalid arguments: the arguments: \"n\" is a required property
        & !read_strict: Invalid arguments: the arguments are not a JSON object but an array
    ",
    );
}

#[test]
fn s7_tool_outside_agent_profile_is_unknown() {
    let mut harness = SessionHarness::with_streaming_step()
        .with_agent(|agent| agent.tools = vec!["read*".to_owned()]);
    harness.check(
        harness.model_calls(&scripted_calls(["low", "read"])),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 low write_high_risk @r1.1
        tool_call_failed c1 UnknownTool (there is no tool named `low`) @r1.1
        tool_call_started c2 read read_only @r1.1
        tool_call_allowed c2 by policy @r1.1
        tool_call_attempt_started c2 a2 #1 @r1.1
        > start_tool c2 a2 read
    ",
    );
}

#[test]
fn g7_denied_call_names_required_level() {
    let mut harness = SessionHarness::new();
    let settings = Settings { autonomy_level: Autonomy::ReadOnly, ..Settings::default() };
    harness
        .apply(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
        .unwrap();
    harness.apply(submit("u1")).unwrap();
    harness.check(
        harness.model_calls(&scripted_calls(["low", "high", "crit"])),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 low write_low_risk @r1.1
        authorization_denied c1 requires RECOMMENDATIONS @r1.1
        tool_call_started c2 high write_high_risk @r1.1
        authorization_denied c2 requires RECOMMENDATIONS @r1.1
        tool_call_started c3 crit critical @r1.1
        authorization_denied c3 requires ASSISTED @r1.1
        step_started a2 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a2 M2 @r1.2
    ",
    );
}

#[test]
fn g13_headless_agent_denies_calls_that_need_approval() {
    let mut harness =
        SessionHarness::with_streaming_step().with_agent(|agent| agent.headless = true);
    harness.check(
        harness.model_calls(&scripted_calls(["high", "read"])),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 high write_high_risk @r1.1
        authorization_denied c1 requires SUPERVISED @r1.1
        tool_call_started c2 read read_only @r1.1
        tool_call_allowed c2 by policy @r1.1
        tool_call_attempt_started c2 a2 #1 @r1.1
        > start_tool c2 a2 read
    ",
    );
}

#[test]
fn s3_calls_of_step_are_authorized_in_one_commit() {
    let mut harness = SessionHarness::with_streaming_step();
    harness.check(
        harness.model_completes("Let me.", &scripted_calls(["read", "high", "oops", "crit"])),
        "
        message_completed M1 'Let me.' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 read read_only @r1.1
        tool_call_allowed c1 by policy @r1.1
        tool_call_started c2 high write_high_risk @r1.1
        tool_call_started c3 oops write_high_risk @r1.1
        tool_call_failed c3 UnknownTool (there is no tool named `oops`) @r1.1
        tool_call_started c4 crit critical @r1.1
        approval_requested p1 (Execute 2 tools) c2 c4 critical within Some(60) @r1.1
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 read
    ",
    );
}

#[test]
fn r1_permanent_tool_failure_becomes_error_result() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["read"]));
    harness.check(
        harness.tool_finishes("c1", failed("no such type", RetryHint::Unspecified)),
        "
        tool_call_failed c1 Error (no such type) @r1.1
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
    ",
    );
    harness.apply(harness.model_answers("Sorry.")).unwrap();
    harness.check_conversation(
        "
        user: u1
        assistant:  [read]
        results: !read: The tool failed: no such type
        assistant: Sorry.
    ",
    );
}

#[test]
fn s3_next_step_waits_for_all_calls() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["read", "read2"]));
    harness.check(harness.tool_finishes("c2", completed()), "tool_call_completed c2 '42' @r1.1");
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

#[test]
fn d3_timeout_of_unrepeatable_call_is_unknown_outcome() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["low"]));
    harness.check(
        harness.tool_finishes("c1", timed_out()),
        "approval_requested p1 (Resolve the unknown outcome of low) c1 write_low_risk within None @r1.1",
    );
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["low"]));
    harness.check(
        harness.tool_finishes("c1", crashed()),
        "approval_requested p1 (Resolve the unknown outcome of low) c1 write_low_risk within None @r1.1",
    );
}

#[test]
fn r1_result_of_superseded_attempt_is_recorded_as_late() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["read", "read2"]));
    let late_result = harness.tool_finishes("c1", completed());
    harness.apply(harness.tool_finishes("c1", timed_out())).unwrap();
    harness.check(late_result.clone(), "late_result c1 a2 (completed: 42) @r1.1");
    let due = harness.state.next_wake().unwrap();
    harness.set_clock(due).apply(Input::Wake).unwrap();
    harness.check(late_result.clone(), "late_result c1 a2 (completed: 42) @r1.1");
    harness.apply(harness.tool_finishes("c1", completed())).unwrap();
    harness.check(late_result, "late_result c1 a2 (completed: 42) @r1.1");
}

#[test]
fn r1_result_after_step_end_is_recorded_as_late() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["read"]));
    let late_result = harness.tool_finishes("c1", completed());
    harness.apply(harness.tool_finishes("c1", timed_out())).unwrap();
    let due = harness.state.next_wake().unwrap();
    harness.set_clock(due).apply(Input::Wake).unwrap();
    harness.apply(harness.tool_finishes("c1", completed())).unwrap();
    harness.apply(harness.model_answers("It is 42.")).unwrap();
    harness.apply(submit("u2")).unwrap();
    harness.check(late_result.clone(), "late_result c1 a2 (completed: 42) @r1");
    harness.apply(close()).unwrap();
    harness.check(late_result, "");
}

#[test]
fn t5_progress_of_running_attempt_emits_json_safe_event() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["read"]));
    let attempt_id = harness.running_attempt("c1");
    let progress = |attempt_id, progress: f64, total, message: &str| Input::ToolProgressed {
        call_id: harness.call("c1"),
        attempt_id,
        progress,
        total,
        message: Some(message.to_owned()),
    };
    let fine = progress(attempt_id, 0.5, Some(1.0), "half");
    let odd = progress(attempt_id, f64::NAN, Some(f64::INFINITY), "?");
    let stray = progress(AttemptId(Uuid::from_u128(5)), 0.9, None, "stray");
    let long = progress(attempt_id, 1.0, None, &"é".repeat(2000));
    harness.check(fine.clone(), "tool_call_progress c1 0.5 of Some(1.0) 'half' @r1.1");
    harness.check(odd, "tool_call_progress c1 0 of None '?' @r1.1");
    harness.check(stray, "");
    let decision = harness.apply(long).unwrap();
    let crate::session::SessionEvent::ToolCallProgress { message: Some(message), .. } =
        &decision.events[0].event
    else {
        panic!("{decision:?}");
    };
    assert_eq!(message.len(), crate::limits::PROGRESS_MESSAGE_BYTES_MAX);
    harness.apply(harness.tool_finishes("c1", completed())).unwrap();
    harness.check(fine, "");
}
