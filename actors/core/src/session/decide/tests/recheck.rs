//! What changed since a call was let run, before its attempt begins: settings, the agent's tools, risk
//! (G4, G9, S8).

use super::*;
use crate::{approval::GrantRequest, ids::ToolName};

/// `low` runs, and another `low` waits behind it.
fn waiting() -> SessionHarness {
    SessionHarness::with_proposed_calls(&scripted_calls(["low", "low"]))
}

/// The only call of the step backs off.
fn backing_off(tool: &'static str, outcome: ToolOutcome) -> SessionHarness {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls([tool]));
    if !scene.state.active.approvals.is_empty() {
        scene.apply(scene.overall_answer("p1", true, "ann")).unwrap();
    }
    scene.apply(scene.tool_finishes("c1", outcome)).unwrap();
    scene
}

fn block(scene: &mut SessionHarness, tool: &str) {
    let mut settings = scene.settings();
    settings.blocked_tools.insert(ToolName::parse(tool).unwrap());
    scene
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
    let mut scene = waiting();
    block(&mut scene, "low");
    scene.check(
        scene.tool_finishes("c1", completed()),
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
    let mut scene = backing_off("low", not_sent());
    block(&mut scene, "low");
    scene.advance_to_next_wake().check(
        Input::Wake,
        "
        authorization_denied c1 requires - @r1.1
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
    ",
    );
    // What an earlier attempt did stays open.
    let mut scene = backing_off("idem", timed_out());
    block(&mut scene, "idem");
    scene.advance_to_next_wake().check(
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
    let mut scene = waiting().with_agent(|agent| agent.tools = vec!["read*".to_owned()]);
    let decision = scene.apply(scene.tool_finishes("c1", completed())).unwrap();
    let denied = |record: &EventRecord| {
        matches!(&record.event, crate::session::SessionEvent::AuthorizationDenied { reason, .. }
            if reason == "low is not among this agent's tools any more")
    };
    assert!(decision.events.iter().any(denied), "{decision:?}");
}

#[test]
fn g4_calls_that_now_need_approval_request_it() {
    let mut scene = waiting();
    scene.set_risk("low", Risk::WriteHighRisk);
    scene.check(
        scene.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        approval_requested p1 (Execute 1 tool) c2 write_high_risk within Some(60) @r1.1
    ",
    );
    scene.check(
        scene.overall_answer("p1", true, "ann"),
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
    let mut scene = backing_off("idem", timed_out());
    scene.advance_to_next_wake().check(
        Input::Wake,
        "
        tool_call_attempt_started c1 a3 #2 @r1.1
        > start_tool c1 a3 idem
    ",
    );
    let mut scene = backing_off("idem", timed_out());
    scene.set_risk("idem", Risk::Critical);
    scene.advance_to_next_wake().check(
        Input::Wake,
        "approval_requested p2 (Execute 1 tool) c1 critical within Some(60) @r1.1",
    );
    scene.apply(scene.overall_answer("p2", true, "ann")).unwrap();
    // Asked once for that risk, not before every attempt.
    scene.apply(scene.tool_finishes("c1", timed_out())).unwrap();
    scene.advance_to_next_wake().check(
        Input::Wake,
        "
        tool_call_attempt_started c1 a4 #3 @r1.1
        > start_tool c1 a4 idem
    ",
    );
}

#[test]
fn d3_rejecting_a_retry_keeps_the_earlier_uncertain_effect() {
    let mut scene = backing_off("idem", timed_out());
    scene.set_risk("idem", Risk::Critical);
    scene.advance_to_next_wake().apply(Input::Wake).unwrap();
    scene.check(
        scene.overall_answer("p2", false, "ann"),
        "
        approval_decided p2 -c1 by ann closed @r1.1
        tool_call_failed c1 Rejected (a person rejected this call. An earlier attempt may have taken effect) @r1.1
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
        = decided closed
    ",
    );
}

/// `idem` was approved for the session, and ran once.
fn with_grant() -> SessionHarness {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["idem"]));
    let for_session = Some(GrantRequest::default());
    let answer = ApprovalAnswer::Overall { approved: true, reason: None };
    let (by, role, surface) = (user("ann"), Role::User, Surface::Rest);
    let approval_id = scene.approval("p1");
    scene
        .apply(Input::AnswerApproval { approval_id, answer, for_session, by, role, surface })
        .unwrap();
    scene.apply(scene.tool_finishes("c1", completed())).unwrap();
    scene
}

#[test]
fn g9_a_grant_that_is_revoked_covers_no_later_attempt() {
    let mut scene = with_grant();
    scene.apply(scene.model_calls(&scripted_calls(["idem", "idem"]))).unwrap();
    scene.apply(Input::RevokeGrants { grant_id: None, by: user("ann") }).unwrap();
    scene.check(
        scene.tool_finishes("c2", completed()),
        "
        tool_call_completed c2 '42' @r1.2
        approval_requested p2 (Execute 1 tool) c3 write_high_risk within Some(60) @r1.2
    ",
    );
}

#[test]
fn g9_a_grant_is_used_once_for_all_attempts_of_a_call() {
    let mut scene = with_grant();
    scene.apply(scene.model_calls(&scripted_calls(["idem"]))).unwrap();
    scene.apply(scene.tool_finishes("c2", timed_out())).unwrap();
    scene.advance_to_next_wake().check(
        Input::Wake,
        "
        tool_call_attempt_started c2 a5 #2 @r1.2
        > start_tool c2 a5 idem
    ",
    );
}
