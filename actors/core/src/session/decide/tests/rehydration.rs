//! Rehydration from the log in every phase (D2, D3).

use super::*;

#[test]
fn d2_idle_session_stays_idle_after_restart() {
    SessionHarness::new().check(Input::Rehydrated { user_settings: None }, "");
}

#[test]
fn d2_streaming_step_restarts_with_new_message() {
    let mut harness = SessionHarness::with_streaming_step();
    let old = harness.model_answers("from before");
    harness.check(
        Input::Rehydrated { user_settings: None },
        "
        message_discarded M1 (the server restarted) @r1.1
        step_retrying #1 failures 0 (the server restarted) @r1.1
        step_started a2 #2 small @r1.1
        message_started M2 @r1.1
        > start_model a2 M2 @r1.1
    ",
    );
    harness.check(old, "");
    // Attempts that a restart ended are not counted as failures.
    for _ in 0..5 {
        harness.apply(Input::Rehydrated { user_settings: None }).unwrap();
    }
    harness.check(
        harness.model_fails(ModelFailure::temporary("overloaded"), false),
        "step_retrying #7 failures 1 (overloaded) @r1.1",
    );
}

#[test]
fn d2_step_backoff_resumes() {
    let mut harness = SessionHarness::with_streaming_step();
    harness.apply(harness.model_fails(ModelFailure::temporary("overloaded"), false)).unwrap();
    harness.check(Input::Rehydrated { user_settings: None }, "");
    harness.advance_clock(MINUTE).check(
        Input::Rehydrated { user_settings: None },
        "
        step_started a2 #2 small @r1.1
        > start_model a2 M1 @r1.1
    ",
    );
}

#[test]
fn d3_only_repeatable_running_calls_are_repeated() {
    let mut harness = SessionHarness::with_streaming_step();
    harness.check(
        harness.model_calls(&scripted_calls(["read", "low", "high"])),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 read read_only @r1.1
        tool_call_allowed c1 by policy @r1.1
        tool_call_started c2 low write_low_risk @r1.1
        tool_call_allowed c2 by policy @r1.1
        tool_call_started c3 high write_high_risk @r1.1
        approval_requested p1 (Execute 1 tool) c3 write_high_risk within Some(60) @r1.1
        tool_call_attempt_started c1 a2 #1 @r1.1
        tool_call_attempt_started c2 a3 #1 @r1.1
        > start_tool c1 a2 read
        > start_tool c2 a3 low
    ",
    );
    harness.check(
        Input::Rehydrated { user_settings: None },
        "
        tool_call_retrying c1 #1 failures 0 (the server restarted) @r1.1
        approval_requested p2 (Resolve the unknown outcome of low) c2 write_low_risk within None @r1.1
        tool_call_attempt_started c1 a4 #2 @r1.1
        > start_tool c1 a4 read
    ",
    );
    harness.check(
        Input::Rehydrated { user_settings: None },
        "
        tool_call_retrying c1 #2 failures 0 (the server restarted) @r1.1
        tool_call_attempt_started c1 a5 #3 @r1.1
        > start_tool c1 a5 read
    ",
    );
}

#[test]
fn d2_call_backoff_resumes() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["read"]));
    harness.apply(harness.tool_finishes("c1", timed_out())).unwrap();
    harness.check(Input::Rehydrated { user_settings: None }, "");
    harness.advance_clock(MINUTE).check(
        Input::Rehydrated { user_settings: None },
        "
        tool_call_attempt_started c1 a3 #2 @r1.1
        > start_tool c1 a3 read
    ",
    );
}

#[test]
fn d2_approval_keeps_deadline_across_restart() {
    let mut harness = SessionHarness::with_streaming_step();
    harness.check(
        harness.model_calls(&scripted_calls(["high"])),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 high write_high_risk @r1.1
        approval_requested p1 (Execute 1 tool) c1 write_high_risk within Some(60) @r1.1
    ",
    );
    harness.advance_clock(MINUTE - SECOND).check(Input::Rehydrated { user_settings: None }, "");
    harness.advance_clock(SECOND).check(
        Input::Rehydrated { user_settings: None },
        "
        approval_expired p1 @r1.1
        tool_call_failed c1 Expired (the approval expired without an answer) @r1.1
        step_started a2 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a2 M2 @r1.2
    ",
    );
}

#[test]
fn d2_approval_can_be_answered_after_restart() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["high"]));
    harness.apply(Input::Rehydrated { user_settings: None }).unwrap();
    harness.check(
        harness.overall_answer("p1", true, "ann"),
        "
        approval_decided p1 +c1 by ann closed @r1.1
        tool_call_allowed c1 by ann p1 @r1.1
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 high
        = decided closed
    ",
    );
}

#[test]
fn d2_queued_message_runs_after_restart() {
    let mut harness = SessionHarness::with_streaming_step();
    harness.apply(submit("u2")).unwrap();
    harness.apply(Input::Rehydrated { user_settings: None }).unwrap();
    // The 130 input tokens of the attempt that the restart ended are an estimate.
    harness.check(
        harness.model_answers("one"),
        "
        message_completed M2 'one' @r1.1
        step_completed EndTurn 10 @r1.1
        run_completed M2 140 @r1.1
        message_accepted u2 @r2
        run_started u2 @r2
        step_started a3 #1 small @r2.1
        message_started M3 @r2.1
        > start_model a3 M3 @r2.1
    ",
    );
}

#[test]
fn d3_last_resolved_outcome_continues_run() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["low"]));
    harness.check(
        Input::Rehydrated { user_settings: None },
        "approval_requested p1 (Resolve the unknown outcome of low) c1 write_low_risk within None @r1.1",
    );
    // A second restart requests no second approval.
    harness.check(Input::Rehydrated { user_settings: None }, "");
    harness.check(
        harness.resolve("p1", Resolution::Done(json!("it is noted")), "ann"),
        "
        approval_decided p1 done by ann closed @r1.1
        tool_call_completed c1 'it is noted' @r1.1
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
        = decided closed
    ",
    );
}

#[test]
fn d3_g13_headless_unknown_outcome_is_reported_to_model() {
    let mut harness = SessionHarness::new().with_agent(|agent| agent.headless = true);
    harness.apply(submit("u1")).unwrap();
    harness.propose(&scripted_calls(["low"]));
    harness.check(Input::Rehydrated { user_settings: None }, "
        tool_call_failed c1 OutcomeUnknown (the server restarted while the call ran. The call had been sent: it may or may not have taken effect, and it was not repeated. Check before trying again) @r1.1
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
    ");
    harness.apply(harness.model_answers("I shall look.")).unwrap();
    harness.check_conversation("
        user: u1
        assistant:  [low]
        results: !low: Outcome unknown: the server restarted while the call ran. The call had been sent: it may or may not have taken effect, and it was not repeated. Check before trying again
        assistant: I shall look.
    ");
}
