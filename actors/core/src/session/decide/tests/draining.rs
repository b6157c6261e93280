//! Draining: work in progress ends, and no new work starts (D8).

use super::*;

impl SessionHarness {
    fn draining(mut self) -> Self {
        self.is_draining = true;
        self
    }

    /// Checks the rehydration in a new process, which does not drain.
    #[track_caller]
    fn check_rehydrated(&mut self, expected: &str) {
        self.is_draining = false;
        self.check(Input::Rehydrated { user_settings: None }, expected);
    }
}

#[test]
fn d8_final_message_completes_run_and_next_run_waits() {
    let mut harness = SessionHarness::with_streaming_step();
    harness.apply(submit("u2")).unwrap();
    let mut harness = harness.draining();
    harness.check(
        harness.model_answers("hello"),
        "
        message_completed M1 'hello' @r1.1
        step_completed EndTurn 10 @r1.1
        run_completed M1 10 @r1.1
    ",
    );
    harness.check_rehydrated(
        "
        message_accepted u2 @r2
        run_started u2 @r2
        step_started a2 #1 small @r2.1
        message_started M2 @r2.1
        > start_model a2 M2 @r2.1
    ",
    );
}

#[test]
fn d8_calls_are_authorized_and_start_after_rehydration() {
    let mut harness = SessionHarness::with_streaming_step().draining();
    harness.check(
        harness.model_calls(&scripted_calls(["low", "high"])),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 low write_low_risk @r1.1
        tool_call_allowed c1 by policy @r1.1
        tool_call_started c2 high write_high_risk @r1.1
        approval_requested p1 (Execute 1 tool) c2 write_high_risk within Some(60) @r1.1
    ",
    );
    // Answers to approvals are accepted.
    harness.check(
        harness.overall_answer("p1", true, "ann"),
        "
        approval_decided p1 +c2 by ann closed @r1.1
        tool_call_allowed c2 by ann p1 @r1.1
        = decided closed
    ",
    );
    harness.check_rehydrated(
        "
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 low
    ",
    );
}

#[test]
fn d8_result_is_recorded_and_next_step_waits() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["low"])).draining();
    harness.check(harness.tool_finishes("c1", completed()), "tool_call_completed c1 '42' @r1.1");
    harness.check_rehydrated(
        "
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
    ",
    );
    // A run that finished its last step ends.
    let agent = |agent: &mut AgentProfile| agent.max_steps = 1;
    let mut harness =
        SessionHarness::with_proposed_calls(&scripted_calls(["low"])).with_agent(agent).draining();
    let ended = harness.apply(harness.tool_finishes("c1", completed())).unwrap();
    assert!(harness.state.active.run.is_none(), "{:?}", ended.events);
}

#[test]
fn d8_failed_attempt_is_not_retried_while_draining() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["read"])).draining();
    harness.apply(harness.tool_finishes("c1", timed_out())).unwrap();
    harness.advance_clock(MINUTE).check(Input::Wake, "");
    let mut harness = SessionHarness::with_streaming_step().draining();
    harness.apply(harness.model_fails(ModelFailure::temporary("overloaded"), false)).unwrap();
    harness.advance_clock(MINUTE).check(Input::Wake, "");
    harness.check_rehydrated(
        "
        step_started a2 #2 small @r1.1
        > start_model a2 M1 @r1.1
    ",
    );
}
