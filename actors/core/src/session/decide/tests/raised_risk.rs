//! Tools whose risk rises while an approval is open: the answer covers only the risk that the
//! approval showed (G8, G12).

use super::*;

impl SessionHarness {
    /// Makes `tool` critical.
    fn with_critical_tool(mut self, tool: &str) -> Self {
        self.set_risk(tool, Risk::Critical);
        self
    }
}

fn edit_answer(harness: &SessionHarness, approval: &str, n: u32) -> Input {
    let (call_id, arguments) = (harness.call("c1"), Some(json!({ "n": n })));
    let answer = PlanStepAnswer { call_id, approved: true, reason: None, arguments };
    harness.answer(approval, ApprovalAnswer::Steps(vec![answer]), "ann")
}

#[test]
fn g12_call_that_became_critical_needs_new_approval() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["high", "high2"]))
        .with_critical_tool("high");
    harness.check(
        harness.overall_answer("p1", true, "ann"),
        "
        approval_decided p1 +c1 by ann +c2 by ann closed @r1.1
        tool_call_allowed c2 by ann p1 @r1.1
        approval_requested p2 (Execute 1 tool) c1 critical within Some(60) @r1.1
        = decided closed
    ",
    );
    let open = &harness.state.active.approvals[0].approval;
    assert_eq!(open.steps()[0].risk, Risk::Critical, "the new approval shows the raised risk");
    harness.check(
        harness.overall_answer("p2", true, "bob"),
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
fn g12_rejection_of_call_that_became_critical_is_kept() {
    let mut harness =
        SessionHarness::with_proposed_calls(&scripted_calls(["high"])).with_critical_tool("high");
    harness.apply(harness.overall_answer("p1", false, "ann")).unwrap();
    assert!(harness.state.active.approvals.is_empty());
}

#[test]
fn g8_new_approval_shows_edited_arguments() {
    let mut harness =
        SessionHarness::with_proposed_calls(&[ScriptedCall::Valid("high", json!({"n": 1000}))]);
    harness = harness.with_critical_tool("high");
    harness.apply(edit_answer(&harness, "p1", 10)).unwrap();
    let step = harness.state.active.approvals[0].approval.steps()[0].clone();
    assert_eq!(
        (step.arguments, step.digest),
        (json!({"n": 10}), Digest::hash_json(&json!({"n": 10})))
    );
    harness.check(
        harness.overall_answer("p2", true, "bob"),
        r#"
        approval_decided p2 +c1 by bob closed @r1.1
        tool_call_allowed c1 by bob p2 as {"n":10} @r1.1
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 high
        = decided closed
    "#,
    );
    // Restoring the proposed arguments is not an edit.
    let mut harness =
        SessionHarness::with_proposed_calls(&[ScriptedCall::Valid("high", json!({"n": 1000}))]);
    harness = harness.with_critical_tool("high");
    harness.apply(edit_answer(&harness, "p1", 10)).unwrap();
    harness.check(
        edit_answer(&harness, "p2", 1000),
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
fn d3_retry_of_call_that_became_critical_needs_approval() {
    let doubted = || {
        let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["low"]));
        harness.apply(harness.tool_finishes("c1", timed_out())).unwrap();
        harness
    };
    let mut harness = doubted().with_critical_tool("low");
    harness.check(
        harness.resolve("p1", Resolution::Retry, "ann"),
        "
        approval_decided p1 retry by ann closed @r1.1
        approval_requested p2 (Execute 1 tool) c1 critical within Some(60) @r1.1
        = decided closed
    ",
    );
    harness.check(
        harness.overall_answer("p2", true, "bob"),
        "
        approval_decided p2 +c1 by bob closed @r1.1
        tool_call_allowed c1 by bob p2 @r1.1
        tool_call_attempt_started c1 a3 #2 @r1.1
        > start_tool c1 a3 low
        = decided closed
    ",
    );
    // The approval of an unknown outcome shows the current risk.
    let mut harness =
        SessionHarness::with_proposed_calls(&scripted_calls(["low"])).with_critical_tool("low");
    harness.apply(harness.tool_finishes("c1", timed_out())).unwrap();
    assert_eq!(harness.state.active.approvals[0].approval.max_risk_level, Risk::Critical);
}
