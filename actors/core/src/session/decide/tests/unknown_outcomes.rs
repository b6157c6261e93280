//! Calls of whose end nobody knows, and what people say became of them (D3).

use super::*;
use crate::{approval::GrantRequest, json, session::Effect};

/// `low` was sent, and nobody knows what became of it.
fn with_unknown_outcome() -> SessionHarness {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["low"]));
    scene.apply(scene.tool_finishes("c1", timed_out())).unwrap();
    scene
}

fn block(scene: &mut SessionHarness, tool: &str) {
    let mut settings = scene.settings();
    settings.blocked_tools.insert(crate::ids::ToolName::parse(tool).unwrap());
    scene
        .apply(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
        .unwrap();
}

#[test]
fn d3_a_person_lets_it_run_once_more_and_attempts_go_on_counting() {
    let mut scene = with_unknown_outcome();
    scene.check(
        scene.resolve("p1", Resolution::Retry, "ann"),
        "
        approval_decided p1 retry by ann closed @r1.1
        tool_call_allowed c1 by ann p1 @r1.1
        tool_call_attempt_started c1 a3 #2 @r1.1
        > start_tool c1 a3 low
        = decided closed
    ",
    );
    // Once more is once: another silence is another question.
    scene.check(
        scene.tool_finishes("c1", crashed()),
        "approval_requested p2 (Say what became of low) c1 write_low_risk within None @r1.1",
    );
    let asked = &scene.state.active.approvals[0].approval.subject;
    let crate::approval::ApprovalSubject::UnknownOutcome(asked) = asked else {
        panic!("{asked:?}")
    };
    assert_eq!(asked.attempts, 2);
    scene.apply(scene.resolve("p2", Resolution::Retry, "bob")).unwrap();
    scene.check(
        scene.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        step_started a5 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a5 M2 @r1.2
    ",
    );
}

#[test]
fn d3_a_retry_passes_what_was_passed_before_an_edit_included() {
    let mut scene =
        SessionHarness::with_proposed_calls(&[ScriptedCall::Valid("high", json!({"n": 1000}))]);
    let call_id = scene.call("c1");
    let arguments = Some(json!({"n": 10}));
    let answer = PlanStepAnswer { call_id, approved: true, reason: None, arguments };
    scene.apply(scene.answer("p1", ApprovalAnswer::Steps(vec![answer]), "ann")).unwrap();
    scene.apply(scene.tool_finishes("c1", timed_out())).unwrap();
    let asked = scene.state.active.approvals[0].approval.subject.clone();
    let crate::approval::ApprovalSubject::UnknownOutcome(asked) = asked else {
        panic!("{asked:?}")
    };
    let edited = json!({"n": 10});
    assert_eq!((asked.digest, &asked.arguments), (json::Digest::hash_json(&edited), &edited));
    let decision = scene.apply(scene.resolve("p2", Resolution::Retry, "ann")).unwrap();
    let [Effect::StartTool { arguments, .. }] = &decision.effects[..] else {
        panic!("{:?}", decision.effects);
    };
    assert_eq!(arguments.to_value(), edited);
    assert_eq!(scene.state.active.run.as_ref().unwrap().calls[0].digest, asked.digest);
}

#[test]
fn d3_a_result_reported_by_a_person_reaches_the_model() {
    for (value, text) in [
        (json!("order 17"), "order 17"),
        (json!({"order": 17}), "{\"order\":17}"),
        (Value::Null, "a person says that low took effect"),
    ] {
        let mut scene = with_unknown_outcome();
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
        scene.check(scene.resolve("p1", Resolution::Done(value), "ann"), &expected);
        scene.check_conversation(&format!(
            "
            user: u1
            assistant:  [low]
            results: low: {text}
        "
        ));
    }
}

#[test]
fn d3_a_result_from_a_person_has_the_limits_of_a_result() {
    let mut scene = with_unknown_outcome();
    let long = "x".repeat(crate::limits::TOOL_RESULT_BYTES_DEFAULT + 1);
    scene.check(
        scene.resolve("p1", Resolution::Done(json!(long)), "ann"),
        "! the answer can't be taken: a result may have at most 262144 bytes",
    );
    let deep = (0..65).fold(json!(1), |inner, _| json!([inner]));
    scene.check(
        scene.resolve("p1", Resolution::Done(deep), "ann"),
        "! the answer can't be taken: the result is nested deeper than 64 levels",
    );
    let mut tools = tools();
    tools.iter_mut().for_each(|tool| tool.result_bytes_max = 10);
    scene.rules.tools = Arc::new(ToolRegistry::new(tools));
    scene.check(
        scene.resolve("p1", Resolution::Done(json!("eleven bytes")), "ann"),
        "! the answer can't be taken: a result may have at most 10 bytes",
    );
    scene.apply(scene.resolve("p1", Resolution::Done(json!("short")), "ann")).unwrap();
}

#[test]
fn d3_a_failure_reported_by_a_person_reaches_the_model() {
    let mut scene = with_unknown_outcome();
    let reason = Some("the ledger has no such order".to_owned());
    let answer = ApprovalAnswer::Resolve { resolution: Resolution::Failed, reason };
    scene.check(
        scene.answer("p1", answer, "ann"),
        "
        approval_decided p1 failed by ann closed @r1.1
        tool_call_failed c1 Error (a person says that the call did not take effect: the ledger has no such order) @r1.1
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
        = decided closed
    ",
    );
}

#[test]
fn d3_unknown_outcomes_accept_only_their_answers() {
    let mut scene = with_unknown_outcome();
    let refused = "! a decision on this is `retry`, `done` or `failed`";
    scene.check(scene.overall_answer("p1", true, "ann"), refused);
    scene.check(scene.step_answers("p1", &[("c1", true)], "ann"), refused);
    scene.check(scene.resolve("p1", Resolution::Raise(9.0), "ann"), refused);
    scene.check(scene.resolve("p1", Resolution::Stop, "ann"), refused);
    assert_eq!(scene.state.active.approvals.len(), 1);
    // Nor does its answer hold for later calls.
    let for_session = Input::AnswerApproval {
        approval_id: scene.approval("p1"),
        answer: ApprovalAnswer::Resolve { resolution: Resolution::Retry, reason: None },
        for_session: Some(GrantRequest::default()),
        by: user("ann"),
        role: Role::User,
        surface: Surface::Rest,
    };
    scene.check(
        for_session,
        "! this can't be approved for the session: only the steps of a plan can be approved for the session",
    );
}

#[test]
fn g11_the_first_answer_stands() {
    let mut scene = with_unknown_outcome();
    scene.apply(scene.resolve("p1", Resolution::Retry, "ann")).unwrap();
    scene.check(scene.resolve("p1", Resolution::Retry, "ann"), "= decided closed repeated");
    let first = "! already decided retry by ann";
    scene.check(scene.resolve("p1", Resolution::Failed, "ann"), first);
    scene.check(scene.resolve("p1", Resolution::Retry, "bob"), first);
    scene.check(scene.resolve("p1", Resolution::Done(json!("ok")), "bob"), first);
    scene.check(scene.overall_answer("p1", true, "ann"), first);
}

#[test]
fn d3_denied_calls_are_not_retried_and_the_approval_stays_open() {
    let mut scene = with_unknown_outcome();
    block(&mut scene, "low");
    scene.check(
        scene.resolve("p1", Resolution::Retry, "ann"),
        "! the answer can't be taken: low is blocked by the user's settings",
    );
    // What it did can still be told.
    scene.apply(scene.resolve("p1", Resolution::Done(json!("it did")), "ann")).unwrap();
}

#[test]
fn d3_removed_tools_are_not_retried_and_the_approval_stays_open() {
    let mut scene = with_unknown_outcome().with_rules(|rules| rules.tools = Arc::default());
    scene.check(
        scene.resolve("p1", Resolution::Retry, "ann"),
        "! the answer can't be taken: the tool is not there now; its server may be away",
    );
    let mut scene = scene.with_agent(|agent| agent.tools = vec!["read".to_owned()]);
    scene.check(
        scene.resolve("p1", Resolution::Retry, "ann"),
        "! the answer can't be taken: the tool is not there any more",
    );
    scene.apply(scene.resolve("p1", Resolution::Failed, "ann")).unwrap();
}

#[test]
fn s6_a_cancel_says_that_it_may_have_taken_effect() {
    let mut scene = with_unknown_outcome();
    scene.check(
        cancel(),
        "
        approval_cancelled p1 @r1.1
        tool_call_failed c1 Cancelled (the run was cancelled before anybody knew what became of the call; it may have taken effect) @r1.1
        run_cancelled by ann @r1.1
        = cancelled r1
    ",
    );
    scene.check(
        scene.resolve("p1", Resolution::Retry, "ann"),
        "! the approval was cancelled: nothing waits for it any more",
    );
}

#[test]
fn s6_cancelling_a_retry_that_waits_for_its_lock_reports_the_uncertain_effect() {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["low", "low"]));
    scene.rules.parallel_calls_max = 1;
    scene.apply(scene.tool_finishes("c1", timed_out())).unwrap();
    scene.apply(scene.resolve("p1", Resolution::Failed, "ann")).unwrap();
    scene.check(
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
fn d3_it_waits_over_restarts_and_for_ever() {
    let mut scene = with_unknown_outcome();
    scene.check(Input::Rehydrated { user_settings: None }, "");
    scene.advance_clock(MINUTE * 60 * 24 * 365).check(Input::Wake, "");
    scene.check(Input::Rehydrated { user_settings: None }, "");
    assert_eq!(scene.state.next_wake(), None);
    assert!(scene.state.is_waiting_for_approval());
    scene.check(
        scene.resolve("p1", Resolution::Retry, "ann"),
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
fn r1_the_result_that_comes_while_it_waits_is_noted_and_the_person_decides() {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["low"]));
    let late = scene.tool_finishes("c1", completed());
    scene.apply(scene.tool_finishes("c1", timed_out())).unwrap();
    scene.check(late, "late_result c1 a2 (completed: 42) @r1.1");
    assert_eq!(scene.state.active.approvals.len(), 1);
}

#[test]
fn s3_later_calls_wait_for_the_answer() {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["low", "low"]));
    scene.check(
        scene.tool_finishes("c1", timed_out()),
        "approval_requested p1 (Say what became of low) c1 write_low_risk within None @r1.1",
    );
    scene.check(
        scene.resolve("p1", Resolution::Failed, "ann"),
        "
        approval_decided p1 failed by ann closed @r1.1
        tool_call_failed c1 Error (a person says that the call did not take effect) @r1.1
        tool_call_attempt_started c2 a3 #1 @r1.1
        > start_tool c2 a3 low
        = decided closed
    ",
    );
}
