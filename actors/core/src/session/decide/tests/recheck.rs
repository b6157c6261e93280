//! Changes between the allowance of a call and its next attempt: settings, tools and risk (G4, G9,
//! S8).

use super::*;
use crate::{approval::GrantRequest, ids::ToolName};

/// Returns a session in which one `low` runs and another waits behind it.
fn with_waiting_call() -> SessionHarness {
    SessionHarness::with_proposed_calls(&scripted_calls(["low", "low"]))
}

/// Returns a session in which the only call of the step backs off.
fn with_call_in_backoff(tool: &'static str, outcome: ToolOutcome) -> SessionHarness {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls([tool]));
    if !harness.state.active.approvals.is_empty() {
        harness.apply(harness.overall_answer("p1", true, "ann")).unwrap();
    }
    harness.apply(harness.tool_finishes("c1", outcome)).unwrap();
    harness
}

fn block(harness: &mut SessionHarness, tool: &str) {
    let mut settings = harness.settings();
    settings.blocked_tools.insert(ToolName::parse(tool).unwrap());
    harness
        .apply(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
        .unwrap();
}

impl SessionHarness {
    fn advance_to_next_wake(&mut self) -> &mut Self {
        let due = self.state.next_wake().unwrap();
        self.set_clock(due)
    }
}

#[test]
fn g4_tools_blocked_while_a_call_waits_do_not_run() {
    let mut harness = with_waiting_call();
    block(&mut harness, "low");
    harness.check(
        harness.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        authorization_denied c2 requires - @r1.1
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
    ",
    );
}

#[test]
fn g4_tools_blocked_during_backoff_are_not_retried() {
    let mut harness = with_call_in_backoff("low", not_sent());
    block(&mut harness, "low");
    harness.advance_to_next_wake().check(
        Input::Wake,
        "
        authorization_denied c1 requires - @r1.1
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
    ",
    );
    // The effect of an earlier attempt stays unknown.
    let mut harness = with_call_in_backoff("idem", timed_out());
    block(&mut harness, "idem");
    harness.advance_to_next_wake().check(
        Input::Wake,
        "
        tool_call_failed c1 OutcomeUnknown (idem is blocked by the user's settings. An earlier attempt may have taken effect) @r1.1
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
    ",
    );
}

#[test]
fn s8_tools_removed_from_the_agent_do_not_run() {
    let mut harness =
        with_waiting_call().with_agent(|agent| agent.tools = vec!["read*".to_owned()]);
    let decision = harness.apply(harness.tool_finishes("c1", completed())).unwrap();
    let denied = |record: &EventRecord| {
        matches!(&record.event, crate::session::SessionEvent::AuthorizationDenied { reason, .. }
            if reason == "low is no longer one of this agent's tools")
    };
    assert!(decision.events.iter().any(denied), "{decision:?}");
}

#[test]
fn g4_calls_that_now_need_approval_request_it() {
    let mut harness = with_waiting_call();
    harness.set_risk("low", Risk::WriteHighRisk);
    harness.check(
        harness.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        approval_requested p1 (Execute 1 tool) c2 write_high_risk within Some(60) @r1.1
    ",
    );
    harness.check(
        harness.overall_answer("p1", true, "ann"),
        "
        approval_decided p1 +c2 by ann closed @r1.1
        tool_call_allowed c2 by ann p1 @r1.1
        tool_call_attempt_started c2 a3 #1 @r1.1
        > start_tool c2 a3 low
        = decided closed
    ",
    );
}

#[test]
fn g12_approvals_cover_retries_but_no_higher_risk() {
    let mut harness = with_call_in_backoff("idem", timed_out());
    harness.advance_to_next_wake().check(
        Input::Wake,
        "
        tool_call_attempt_started c1 a3 #2 @r1.1
        > start_tool c1 a3 idem
    ",
    );
    let mut harness = with_call_in_backoff("idem", timed_out());
    harness.set_risk("idem", Risk::Critical);
    harness.advance_to_next_wake().check(
        Input::Wake,
        "approval_requested p2 (Execute 1 tool) c1 critical within Some(60) @r1.1",
    );
    harness.apply(harness.overall_answer("p2", true, "ann")).unwrap();
    // The new risk needs one approval, not one per attempt.
    harness.apply(harness.tool_finishes("c1", timed_out())).unwrap();
    harness.advance_to_next_wake().check(
        Input::Wake,
        "
        tool_call_attempt_started c1 a4 #3 @r1.1
        > start_tool c1 a4 idem
    ",
    );
}

#[test]
fn d3_rejected_retry_keeps_earlier_uncertain_effect() {
    let mut harness = with_call_in_backoff("idem", timed_out());
    harness.set_risk("idem", Risk::Critical);
    harness.advance_to_next_wake().apply(Input::Wake).unwrap();
    harness.check(
        harness.overall_answer("p2", false, "ann"),
        "
        approval_decided p2 -c1 by ann closed @r1.1
        tool_call_failed c1 Rejected (a human rejected this call. An earlier attempt may have taken effect) @r1.1
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
        = decided closed
    ",
    );
}

/// Returns a session in which `idem` was approved for the session and ran once.
fn with_grant() -> SessionHarness {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["idem"]));
    let for_session = Some(GrantRequest::default());
    let answer = ApprovalAnswer::Overall { approved: true, reason: None };
    let (by, role, surface) = (user("ann"), Role::User, Surface::Rest);
    let approval_id = harness.approval("p1");
    harness
        .apply(Input::AnswerApproval { approval_id, answer, for_session, by, role, surface })
        .unwrap();
    harness.apply(harness.tool_finishes("c1", completed())).unwrap();
    harness
}

#[test]
fn g9_revoked_grant_covers_no_later_attempt() {
    let mut harness = with_grant();
    harness.apply(harness.model_calls(&scripted_calls(["idem", "idem"]))).unwrap();
    harness.apply(Input::RevokeGrants { grant_id: None, by: user("ann") }).unwrap();
    harness.check(
        harness.tool_finishes("c2", completed()),
        "
        tool_call_completed c2 '42' @r1.2
        approval_requested p2 (Execute 1 tool) c3 write_high_risk within Some(60) @r1.2
    ",
    );
}

#[test]
fn g9_grant_allows_all_attempts_of_call_once() {
    let mut harness = with_grant();
    harness.apply(harness.model_calls(&scripted_calls(["idem"]))).unwrap();
    harness.apply(harness.tool_finishes("c2", timed_out())).unwrap();
    harness.advance_to_next_wake().check(
        Input::Wake,
        "
        tool_call_attempt_started c2 a5 #2 @r1.2
        > start_tool c2 a5 idem
    ",
    );
}
