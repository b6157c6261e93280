//! Proposing and judging calls, and the ends of their attempts (S3, G7, T3, R1).

use super::*;

#[test]
fn t3_what_can_not_run_fails_at_once_and_the_model_reads_why() {
    let mut scene = SessionHarness::with_streaming_step();
    let calls = [
        ScriptedCall::Malformed("read"),
        scripted_call("no_such_tool"),
        ScriptedCall::Valid("read_strict", json!({"n": "one"})),
        ScriptedCall::Valid("read_strict", json!({})),
        ScriptedCall::Valid("read_strict", json!([1])),
    ];
    scene.check(
        scene.model_calls(&calls),
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
        tool_call_failed c5 InvalidArguments (the arguments: value is not of type \"object\") @r1.1
        step_started a2 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a2 M2 @r1.2
    ",
    );
    scene.check_conversation(
        "
        user: u1
        assistant:  [read] [no_such_tool] [read_strict] [read_strict] [read_strict]
        results: !read: Invalid arguments: not JSON
        & !no_such_tool: Unknown tool: there is no tool named `no_such_tool`
        & !read_strict: Invalid arguments: `/n`: value is not of type \"integer\"
        & !read_strict: Invalid arguments: the arguments: \"n\" is a required property
        & !read_strict: Invalid arguments: the arguments: value is not of type \"object\"
    ",
    );
}

#[test]
fn s7_a_tool_the_agent_may_not_use_is_unknown_to_it() {
    let mut scene = SessionHarness::with_streaming_step()
        .with_agent(|agent| agent.tools = vec!["read*".to_owned()]);
    scene.check(
        scene.model_calls(&scripted_calls(["low", "read"])),
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
fn g7_denied_calls_say_which_level_is_required() {
    let mut scene = SessionHarness::new();
    let settings = Settings { autonomy_level: Autonomy::ReadOnly, ..Settings::default() };
    scene
        .apply(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
        .unwrap();
    scene.apply(submit("u1")).unwrap();
    scene.check(
        scene.model_calls(&scripted_calls(["low", "high", "crit"])),
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
fn g13_a_headless_agent_asks_nobody() {
    let mut scene = SessionHarness::with_streaming_step().with_agent(|agent| agent.headless = true);
    scene.check(
        scene.model_calls(&scripted_calls(["high", "read"])),
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
fn s3_some_run_some_ask_some_fail_in_one_commit() {
    let mut scene = SessionHarness::with_streaming_step();
    scene.check(
        scene.model_completes("Let me.", &scripted_calls(["read", "high", "oops", "crit"])),
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
fn a_tool_that_fails_for_good_is_a_result_for_the_model() {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["read"]));
    scene.check(
        scene.tool_finishes("c1", failed("no such type", RetryHint::Unspecified)),
        "
        tool_call_failed c1 Error (no such type) @r1.1
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
    ",
    );
    scene.apply(scene.model_answers("Sorry.")).unwrap();
    scene.check_conversation(
        "
        user: u1
        assistant:  [read]
        results: !read: The tool failed: no such type
        assistant: Sorry.
    ",
    );
}

#[test]
fn the_next_step_waits_for_every_call() {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["read", "read2"]));
    scene.check(scene.tool_finishes("c2", completed()), "tool_call_completed c2 '42' @r1.1");
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

#[test]
fn d3_no_answer_to_a_call_that_must_not_repeat_is_an_unknown_outcome() {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["low"]));
    scene.check(
        scene.tool_finishes("c1", timed_out()),
        "approval_requested p1 (Say what became of low) c1 write_low_risk within None @r1.1",
    );
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["low"]));
    scene.check(
        scene.tool_finishes("c1", crashed()),
        "approval_requested p1 (Say what became of low) c1 write_low_risk within None @r1.1",
    );
}

#[test]
fn r1_results_of_superseded_attempts_are_noted_and_change_nothing() {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["read", "read2"]));
    let late = scene.tool_finishes("c1", completed());
    scene.apply(scene.tool_finishes("c1", timed_out())).unwrap();
    scene.check(late.clone(), "late_result c1 a2 (completed: 42) @r1.1");
    let due = scene.state.next_wake().unwrap();
    scene.set_clock(due).apply(Input::Wake).unwrap();
    scene.check(late.clone(), "late_result c1 a2 (completed: 42) @r1.1");
    scene.apply(scene.tool_finishes("c1", completed())).unwrap();
    scene.check(late, "late_result c1 a2 (completed: 42) @r1.1");
}

#[test]
fn r1_a_result_that_comes_when_its_step_is_over_is_noted() {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["read"]));
    let late = scene.tool_finishes("c1", completed());
    scene.apply(scene.tool_finishes("c1", timed_out())).unwrap();
    let due = scene.state.next_wake().unwrap();
    scene.set_clock(due).apply(Input::Wake).unwrap();
    scene.apply(scene.tool_finishes("c1", completed())).unwrap();
    scene.apply(scene.model_answers("It is 42.")).unwrap();
    scene.apply(submit("u2")).unwrap();
    scene.check(late.clone(), "late_result c1 a2 (completed: 42) @r1");
    scene.apply(close()).unwrap();
    scene.check(late, "");
}

#[test]
fn t5_progress_of_the_running_attempt_is_an_event_and_json_safe() {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["read"]));
    let attempt_id = scene.running_attempt("c1");
    let progress = |attempt_id, progress: f64, total, message: &str| Input::ToolProgressed {
        call_id: scene.call("c1"),
        attempt_id,
        progress,
        total,
        message: Some(message.to_owned()),
    };
    let fine = progress(attempt_id, 0.5, Some(1.0), "half");
    let odd = progress(attempt_id, f64::NAN, Some(f64::INFINITY), "?");
    let stray = progress(AttemptId(Uuid::from_u128(5)), 0.9, None, "stray");
    let long = progress(attempt_id, 1.0, None, &"é".repeat(2000));
    scene.check(fine.clone(), "tool_call_progress c1 0.5 of Some(1.0) 'half' @r1.1");
    scene.check(odd, "tool_call_progress c1 0 of None '?' @r1.1");
    scene.check(stray, "");
    let decision = scene.apply(long).unwrap();
    let crate::session::SessionEvent::ToolCallProgress { message: Some(message), .. } =
        &decision.events[0].event
    else {
        panic!("{decision:?}");
    };
    assert_eq!(message.len(), crate::limits::PROGRESS_MESSAGE_BYTES_MAX);
    scene.apply(scene.tool_finishes("c1", completed())).unwrap();
    scene.check(fine, "");
}
