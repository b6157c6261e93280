//! Tools that are thought riskier while people think about a call: their word covers no more than
//! they were told (G8, G12).

use super::*;

impl SessionHarness {
    /// From now on `tool` is critical.
    fn with_critical_tool(mut self, tool: &str) -> Self {
        self.set_risk(tool, Risk::Critical);
        self
    }
}

fn edited(scene: &SessionHarness, approval: &str, n: u32) -> Input {
    let (call_id, arguments) = (scene.call("c1"), Some(json!({ "n": n })));
    let answer = PlanStepAnswer { call_id, approved: true, reason: None, arguments };
    scene.answer(approval, ApprovalAnswer::Steps(vec![answer]), "ann")
}

#[test]
fn g12_calls_that_became_critical_need_a_new_approval() {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["high", "high2"]))
        .with_critical_tool("high");
    scene.check(
        scene.overall_answer("p1", true, "ann"),
        "
        approval_decided p1 +c1 by ann +c2 by ann closed @r1.1
        tool_call_allowed c2 by ann p1 @r1.1
        approval_requested p2 (Execute 1 tool) c1 critical within Some(60) @r1.1
        = decided closed
    ",
    );
    let open = &scene.state.active.approvals[0].approval;
    assert_eq!(open.steps()[0].risk, Risk::Critical, "what people are told now");
    scene.check(
        scene.overall_answer("p2", true, "bob"),
        "
        approval_decided p2 +c1 by bob closed @r1.1
        tool_call_allowed c1 by bob p2 @r1.1
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 high
        = decided closed
    ",
    );
}

#[test]
fn g12_a_rejection_of_what_is_critical_by_now_stands() {
    let mut scene =
        SessionHarness::with_proposed_calls(&scripted_calls(["high"])).with_critical_tool("high");
    scene.apply(scene.overall_answer("p1", false, "ann")).unwrap();
    assert!(scene.state.active.approvals.is_empty());
}

#[test]
fn g8_the_new_approval_shows_the_edited_arguments() {
    let mut scene =
        SessionHarness::with_proposed_calls(&[ScriptedCall::Valid("high", json!({"n": 1000}))]);
    scene = scene.with_critical_tool("high");
    scene.apply(edited(&scene, "p1", 10)).unwrap();
    let step = scene.state.active.approvals[0].approval.steps()[0].clone();
    assert_eq!(
        (step.arguments, step.digest),
        (json!({"n": 10}), Digest::hash_json(&json!({"n": 10})))
    );
    scene.check(
        scene.overall_answer("p2", true, "bob"),
        r#"
        approval_decided p2 +c1 by bob closed @r1.1
        tool_call_allowed c1 by bob p2 as {"n":10} @r1.1
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 high
        = decided closed
    "#,
    );
    // Back to what the model wanted is no edit.
    let mut scene =
        SessionHarness::with_proposed_calls(&[ScriptedCall::Valid("high", json!({"n": 1000}))]);
    scene = scene.with_critical_tool("high");
    scene.apply(edited(&scene, "p1", 10)).unwrap();
    scene.check(
        edited(&scene, "p2", 1000),
        "
        approval_decided p2 +c1 by ann closed @r1.1
        tool_call_allowed c1 by ann p2 @r1.1
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 high
        = decided closed
    ",
    );
}

#[test]
fn d3_retrying_a_call_that_became_critical_needs_approval() {
    let doubted = || {
        let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["low"]));
        scene.apply(scene.tool_finishes("c1", timed_out())).unwrap();
        scene
    };
    let mut scene = doubted().with_critical_tool("low");
    scene.check(
        scene.resolve("p1", Resolution::Retry, "ann"),
        "
        approval_decided p1 retry by ann closed @r1.1
        approval_requested p2 (Execute 1 tool) c1 critical within Some(60) @r1.1
        = decided closed
    ",
    );
    scene.check(
        scene.overall_answer("p2", true, "bob"),
        "
        approval_decided p2 +c1 by bob closed @r1.1
        tool_call_allowed c1 by bob p2 @r1.1
        tool_call_attempt_started c1 a3 #2 @r1.1
        > start_tool c1 a3 low
        = decided closed
    ",
    );
    // Whoever is asked what became of it is told how risky it is now.
    let mut scene =
        SessionHarness::with_proposed_calls(&scripted_calls(["low"])).with_critical_tool("low");
    scene.apply(scene.tool_finishes("c1", timed_out())).unwrap();
    assert_eq!(scene.state.active.approvals[0].approval.max_risk_level, Risk::Critical);
}
