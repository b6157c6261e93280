//! What changed since a call was let run, before its attempt begins: settings, the agent's tools, risk
//! (G4, G9, S8).

use super::*;
use crate::{approval::GrantWish, ids::ToolName};

/// `low` runs, and another `low` waits behind it.
fn waiting() -> Scene {
    Scene::calling(&wants(["low", "low"]))
}

/// The only call of the step backs off.
fn backing_off(tool: &'static str, outcome: ToolOutcome) -> Scene {
    let mut scene = Scene::calling(&wants([tool]));
    if !scene.state.active.approvals.is_empty() {
        scene.does(scene.whole("p1", true, "ann")).unwrap();
    }
    scene.does(scene.tool("c1", outcome)).unwrap();
    scene
}

fn block(scene: &mut Scene, tool: &str) {
    let mut settings = scene.settings();
    settings.blocked_tools.insert(ToolName::parse(tool).unwrap());
    scene
        .does(Input::ChangeSettings { change: settings.into(), title: None, by: user("ann") })
        .unwrap();
}

impl Scene {
    fn when_due(&mut self) -> &mut Self {
        let due = self.state.next_wake().unwrap();
        self.at(due)
    }
}

#[test]
fn g4_what_is_blocked_while_it_waits_for_its_turn_does_not_run() {
    let mut scene = waiting();
    block(&mut scene, "low");
    scene.check(
        scene.tool("c1", completed()),
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
fn g4_what_is_blocked_while_it_backs_off_is_not_tried_again() {
    let mut scene = backing_off("low", not_sent());
    block(&mut scene, "low");
    scene.when_due().check(
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
    scene.when_due().check(
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
fn s8_what_the_agent_may_not_use_any_more_does_not_run() {
    let mut scene = waiting().agent(|agent| agent.tools = vec!["read*".to_owned()]);
    let decision = scene.does(scene.tool("c1", completed())).unwrap();
    let denied = |record: &EventRecord| {
        matches!(&record.event, crate::session::SessionEvent::AuthorizationDenied { reason, .. }
            if reason == "low is not among this agent's tools any more")
    };
    assert!(decision.events.iter().any(denied), "{decision:?}");
}

#[test]
fn g4_what_must_be_asked_for_by_now_is_asked_for() {
    let mut scene = waiting();
    scene.makes("low", Risk::WriteHighRisk);
    scene.check(
        scene.tool("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        approval_requested p1 (Execute 1 tool) c2 write_high_risk within Some(60) @r1.1
    ",
    );
    scene.check(
        scene.whole("p1", true, "ann"),
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
fn g12_a_word_covers_later_attempts_but_no_higher_risk() {
    let mut scene = backing_off("idem", timed_out());
    scene.when_due().check(
        Input::Wake,
        "
        tool_call_attempt_started c1 a3 #2 @r1.1
        > start_tool c1 a3 idem
    ",
    );
    let mut scene = backing_off("idem", timed_out());
    scene.makes("idem", Risk::Critical);
    scene.when_due().check(
        Input::Wake,
        "approval_requested p2 (Execute 1 tool) c1 critical within Some(60) @r1.1",
    );
    scene.does(scene.whole("p2", true, "ann")).unwrap();
    // Asked once for that risk, not before every attempt.
    scene.does(scene.tool("c1", timed_out())).unwrap();
    scene.when_due().check(
        Input::Wake,
        "
        tool_call_attempt_started c1 a4 #3 @r1.1
        > start_tool c1 a4 idem
    ",
    );
}

#[test]
fn d3_who_refuses_another_attempt_says_nothing_of_the_one_before() {
    let mut scene = backing_off("idem", timed_out());
    scene.makes("idem", Risk::Critical);
    scene.when_due().does(Input::Wake).unwrap();
    scene.check(
        scene.whole("p2", false, "ann"),
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
fn granted() -> Scene {
    let mut scene = Scene::calling(&wants(["idem"]));
    let for_session = Some(GrantWish::default());
    let answer = ApprovalAnswer::Whole { approved: true, reason: None };
    let (by, role, surface) = (user("ann"), Role::User, Surface::Rest);
    let approval_id = scene.approval("p1");
    scene
        .does(Input::DecideApproval { approval_id, answer, for_session, by, role, surface })
        .unwrap();
    scene.does(scene.tool("c1", completed())).unwrap();
    scene
}

#[test]
fn g9_a_grant_that_is_revoked_covers_no_later_attempt() {
    let mut scene = granted();
    scene.does(scene.model_calls(&wants(["idem", "idem"]))).unwrap();
    scene.does(Input::RevokeGrants { grant_id: None, by: user("ann") }).unwrap();
    scene.check(
        scene.tool("c2", completed()),
        "
        tool_call_completed c2 '42' @r1.2
        approval_requested p2 (Execute 1 tool) c3 write_high_risk within Some(60) @r1.2
    ",
    );
}

#[test]
fn g9_a_grant_is_used_once_for_all_attempts_of_a_call() {
    let mut scene = granted();
    scene.does(scene.model_calls(&wants(["idem"]))).unwrap();
    scene.does(scene.tool("c2", timed_out())).unwrap();
    scene.when_due().check(
        Input::Wake,
        "
        tool_call_attempt_started c2 a5 #2 @r1.2
        > start_tool c2 a5 idem
    ",
    );
}
