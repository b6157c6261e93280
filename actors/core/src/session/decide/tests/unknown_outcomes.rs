//! Calls with an unknown outcome, and the answers that resolve them (D3).

use super::*;
use crate::{approval::GrantRequest, json, session::Effect};

/// Returns a session in which `low` was sent and its outcome is unknown.
fn with_unknown_outcome() -> SessionHarness {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["low"]));
    harness.apply(harness.tool_finishes("c1", timed_out())).unwrap();
    harness
}

fn block(harness: &mut SessionHarness, tool: &str) {
    let mut settings = harness.settings();
    settings.blocked_tools.insert(crate::ids::ToolName::parse(tool).unwrap());
    harness
        .apply(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
        .unwrap();
}

#[test]
fn d3_retry_answer_repeats_call_and_continues_attempt_count() {
    let mut harness = with_unknown_outcome();
    harness.check(
        harness.resolve("p1", Resolution::Retry, "ann"),
        "
        approval_decided p1 retry by ann closed @r1.1
        tool_call_allowed c1 by ann p1 @r1.1
        tool_call_attempt_started c1 a3 #2 @r1.1
        > start_tool c1 a3 low
        = decided closed
    ",
    );
    // The answer covers one retry; the next unknown outcome needs another approval.
    harness.check(
        harness.tool_finishes("c1", crashed()),
        "approval_requested p2 (Resolve the unknown outcome of low) c1 write_low_risk within None @r1.1",
    );
    let subject = &harness.state.active.approvals[0].approval.subject;
    let crate::approval::ApprovalSubject::UnknownOutcome(request) = subject else {
        panic!("{subject:?}")
    };
    assert_eq!(request.attempts, 2);
    harness.apply(harness.resolve("p2", Resolution::Retry, "bob")).unwrap();
    harness.check(
        harness.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        step_started a5 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a5 M2 @r1.2
    ",
    );
}

#[test]
fn d3_retry_uses_same_arguments_including_edit() {
    let mut harness =
        SessionHarness::with_proposed_calls(&[ScriptedCall::Valid("high", json!({"n": 1000}))]);
    let call_id = harness.call("c1");
    let arguments = Some(json!({"n": 10}));
    let answer = PlanStepAnswer { call_id, approved: true, reason: None, arguments };
    harness.apply(harness.answer("p1", ApprovalAnswer::Steps(vec![answer]), "ann")).unwrap();
    harness.apply(harness.tool_finishes("c1", timed_out())).unwrap();
    let subject = harness.state.active.approvals[0].approval.subject.clone();
    let crate::approval::ApprovalSubject::UnknownOutcome(request) = subject else {
        panic!("{subject:?}")
    };
    let edited = json!({"n": 10});
    assert_eq!((request.digest, &request.arguments), (json::Digest::hash_json(&edited), &edited));
    let decision = harness.apply(harness.resolve("p2", Resolution::Retry, "ann")).unwrap();
    let [Effect::StartTool { arguments, .. }] = &decision.effects[..] else {
        panic!("{:?}", decision.effects);
    };
    assert_eq!(arguments.to_value(), edited);
    assert_eq!(harness.state.active.run.as_ref().unwrap().calls[0].digest, request.digest);
}

#[test]
fn d3_result_reported_by_human_reaches_model() {
    for (value, text) in [
        (json!("order 17"), "order 17"),
        (json!({"order": 17}), "{\"order\":17}"),
        (Value::Null, "a human answered that low took effect"),
    ] {
        let mut harness = with_unknown_outcome();
        let expected = format!(
            "
            approval_decided p1 done by ann closed @r1.1
            tool_call_completed c1 '{text}' @r1.1
            step_started a3 #1 small @r1.2
            message_started M2 @r1.2
            > start_model a3 M2 @r1.2
            = decided closed
        "
        );
        harness.check(harness.resolve("p1", Resolution::Done(value), "ann"), &expected);
        harness.check_conversation(&format!(
            "
            user: u1
            assistant:  [low]
            results: low: {text}
        "
        ));
    }
}

#[test]
fn d3_result_reported_by_human_is_bounded() {
    let mut harness = with_unknown_outcome();
    let long = "x".repeat(crate::limits::TOOL_RESULT_BYTES_DEFAULT + 1);
    harness.check(
        harness.resolve("p1", Resolution::Done(json!(long)), "ann"),
        "! invalid answer: the result has 262145 bytes; the limit is 262144",
    );
    let deep = (0..65).fold(json!(1), |inner, _| json!([inner]));
    harness.check(
        harness.resolve("p1", Resolution::Done(deep), "ann"),
        "! invalid answer: the result is nested deeper than 64 levels",
    );
    let mut tools = tools();
    tools.iter_mut().for_each(|tool| tool.result_bytes_max = 10);
    harness.rules.tools = Arc::new(ToolRegistry::new(tools));
    harness.check(
        harness.resolve("p1", Resolution::Done(json!("eleven bytes")), "ann"),
        "! invalid answer: the result has 12 bytes; the limit is 10",
    );
    harness.apply(harness.resolve("p1", Resolution::Done(json!("short")), "ann")).unwrap();
}

#[test]
fn d3_failure_reported_by_human_reaches_model() {
    let mut harness = with_unknown_outcome();
    let reason = Some("the ledger has no such order".to_owned());
    let answer = ApprovalAnswer::Resolve { resolution: Resolution::Failed, reason };
    harness.check(
        harness.answer("p1", answer, "ann"),
        "
        approval_decided p1 failed by ann closed @r1.1
        tool_call_failed c1 Error (a human answered that the call did not take effect: the ledger has no such order) @r1.1
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
        = decided closed
    ",
    );
}

#[test]
fn d3_unknown_outcomes_accept_only_their_answers() {
    let mut harness = with_unknown_outcome();
    let refused = "! unsupported answer; this approval accepts `retry`, `done` or `failed`";
    harness.check(harness.overall_answer("p1", true, "ann"), refused);
    harness.check(harness.step_answers("p1", &[("c1", true)], "ann"), refused);
    harness.check(harness.resolve("p1", raise(9.0), "ann"), refused);
    harness.check(harness.resolve("p1", Resolution::Stop, "ann"), refused);
    assert_eq!(harness.state.active.approvals.len(), 1);
    // The answer can't be a grant for later calls.
    let for_session = Input::AnswerApproval {
        approval_id: harness.approval("p1"),
        answer: ApprovalAnswer::Resolve { resolution: Resolution::Retry, reason: None },
        for_session: Some(GrantRequest::default()),
        by: user("ann"),
        role: Role::User,
        surface: Surface::Rest,
    };
    harness.check(
        for_session,
        "! invalid `for_session`: only steps of a plan can be approved for the session",
    );
}

#[test]
fn g11_first_answer_to_unknown_outcome_wins() {
    let mut harness = with_unknown_outcome();
    harness.apply(harness.resolve("p1", Resolution::Retry, "ann")).unwrap();
    harness.check(harness.resolve("p1", Resolution::Retry, "ann"), "= decided closed repeated");
    let first = "! already decided retry by ann";
    harness.check(harness.resolve("p1", Resolution::Failed, "ann"), first);
    harness.check(harness.resolve("p1", Resolution::Retry, "bob"), first);
    harness.check(harness.resolve("p1", Resolution::Done(json!("ok")), "bob"), first);
    harness.check(harness.overall_answer("p1", true, "ann"), first);
}

#[test]
fn d3_denied_call_is_not_retried_and_approval_stays_open() {
    let mut harness = with_unknown_outcome();
    block(&mut harness, "low");
    harness.check(
        harness.resolve("p1", Resolution::Retry, "ann"),
        "! invalid answer: low is blocked by the user's settings",
    );
    // A result can still be reported.
    harness.apply(harness.resolve("p1", Resolution::Done(json!("it did")), "ann")).unwrap();
}

#[test]
fn d3_removed_tool_is_not_retried_and_approval_stays_open() {
    let mut harness = with_unknown_outcome().with_rules(|rules| rules.tools = Arc::default());
    harness.check(
        harness.resolve("p1", Resolution::Retry, "ann"),
        "! invalid answer: the tool is currently unavailable; its server may be disconnected",
    );
    let mut harness = harness.with_agent(|agent| agent.tools = vec!["read".to_owned()]);
    harness.check(
        harness.resolve("p1", Resolution::Retry, "ann"),
        "! invalid answer: the tool is no longer available",
    );
    harness.apply(harness.resolve("p1", Resolution::Failed, "ann")).unwrap();
}

#[test]
fn s6_cancelled_unknown_outcome_may_have_taken_effect() {
    let mut harness = with_unknown_outcome();
    harness.check(
        cancel(),
        "
        approval_cancelled p1 @r1.1
        tool_call_failed c1 Cancelled (the run was cancelled while the outcome of the call was unknown; it may have taken effect) @r1.1
        run_cancelled by ann @r1.1
        = cancelled r1
    ",
    );
    harness.check(
        harness.resolve("p1", Resolution::Retry, "ann"),
        "! the approval was cancelled: its run or tool attempt no longer waits for it",
    );
}

#[test]
fn s6_cancelled_retry_waiting_for_lock_reports_uncertain_effect() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["low", "low"]));
    harness.rules.parallel_calls_max = 1;
    harness.apply(harness.tool_finishes("c1", timed_out())).unwrap();
    harness.apply(harness.resolve("p1", Resolution::Failed, "ann")).unwrap();
    harness.check(
        cancel(),
        "
        tool_call_failed c2 Cancelled (the run was cancelled while the call ran; it may have taken effect) @r1.1
        run_cancelled by ann @r1.1
        > stop_tool c2 a3
        = cancelled r1
    ",
    );
}

#[test]
fn d3_unknown_outcome_waits_across_restarts_without_deadline() {
    let mut harness = with_unknown_outcome();
    harness.check(Input::Rehydrated { user_settings: None }, "");
    harness.advance_clock(MINUTE * 60 * 24 * 365).check(Input::Wake, "");
    harness.check(Input::Rehydrated { user_settings: None }, "");
    assert_eq!(harness.state.next_wake(), None);
    assert!(harness.state.is_waiting_for_approval());
    harness.check(
        harness.resolve("p1", Resolution::Retry, "ann"),
        "
        approval_decided p1 retry by ann closed @r1.1
        tool_call_allowed c1 by ann p1 @r1.1
        tool_call_attempt_started c1 a3 #2 @r1.1
        > start_tool c1 a3 low
        = decided closed
    ",
    );
}

#[test]
fn r1_late_result_leaves_unknown_outcome_open() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["low"]));
    let late_result = harness.tool_finishes("c1", completed());
    harness.apply(harness.tool_finishes("c1", timed_out())).unwrap();
    harness.check(late_result, "late_result c1 a2 (completed: 42) @r1.1");
    assert_eq!(harness.state.active.approvals.len(), 1);
}

#[test]
fn s3_later_calls_wait_for_resolution() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["low", "low"]));
    harness.check(
        harness.tool_finishes("c1", timed_out()),
        "approval_requested p1 (Resolve the unknown outcome of low) c1 write_low_risk within None @r1.1",
    );
    harness.check(
        harness.resolve("p1", Resolution::Failed, "ann"),
        "
        approval_decided p1 failed by ann closed @r1.1
        tool_call_failed c1 Error (a human answered that the call did not take effect) @r1.1
        tool_call_attempt_started c2 a3 #1 @r1.1
        > start_tool c2 a3 low
        = decided closed
    ",
    );
}
