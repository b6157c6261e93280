//! Calls of whose end nobody knows, and what people say became of them (D3).

use super::*;
use crate::{approval::GrantWish, json, session::Effect};

/// `low` was sent, and nobody knows what became of it.
fn doubted() -> Scene {
    let mut scene = Scene::calling(&wants(["low"]));
    scene.does(scene.tool("c1", timed_out())).unwrap();
    scene
}

fn block(scene: &mut Scene, tool: &str) {
    let mut settings = scene.settings();
    settings.blocked_tools.insert(crate::ids::ToolName::parse(tool).unwrap());
    scene
        .does(Input::ChangeSettings { change: settings.into(), title: None, by: user("ann") })
        .unwrap();
}

#[test]
fn d3_a_person_lets_it_run_once_more_and_attempts_go_on_counting() {
    let mut scene = doubted();
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
        scene.tool("c1", crashed()),
        "approval_requested p2 (Say what became of low) c1 write_low_risk within None @r1.1",
    );
    let asked = &scene.state.active.approvals[0].approval.question;
    let crate::approval::Question::UnknownOutcome(asked) = asked else { panic!("{asked:?}") };
    assert_eq!(asked.attempts, 2);
    scene.does(scene.resolve("p2", Resolution::Retry, "bob")).unwrap();
    scene.check(
        scene.tool("c1", completed()),
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
    let mut scene = Scene::calling(&[Wanted::With("high", json!({"n": 1000}))]);
    let call_id = scene.call("c1");
    let arguments = Some(json!({"n": 10}));
    let answer = StepAnswer { call_id, approved: true, reason: None, arguments };
    scene.does(scene.answer("p1", ApprovalAnswer::Steps(vec![answer]), "ann")).unwrap();
    scene.does(scene.tool("c1", timed_out())).unwrap();
    let asked = scene.state.active.approvals[0].approval.question.clone();
    let crate::approval::Question::UnknownOutcome(asked) = asked else { panic!("{asked:?}") };
    let edited = json!({"n": 10});
    assert_eq!((asked.digest, &asked.arguments), (json::Digest::of(&edited), &edited));
    let decision = scene.does(scene.resolve("p2", Resolution::Retry, "ann")).unwrap();
    let [Effect::StartTool { arguments, .. }] = &decision.effects[..] else {
        panic!("{:?}", decision.effects);
    };
    assert_eq!(arguments.to_value(), edited);
    assert_eq!(scene.state.active.run.as_ref().unwrap().calls[0].digest, asked.digest);
}

#[test]
fn d3_it_is_done_and_the_model_reads_what_the_person_says() {
    for (value, text) in [
        (json!("order 17"), "order 17"),
        (json!({"order": 17}), "{\"order\":17}"),
        (Value::Null, "a person says that low took effect"),
    ] {
        let mut scene = doubted();
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
    let mut scene = doubted();
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
    scene.rules.tools = Arc::new(ToolBook::new(tools));
    scene.check(
        scene.resolve("p1", Resolution::Done(json!("eleven bytes")), "ann"),
        "! the answer can't be taken: a result may have at most 10 bytes",
    );
    scene.does(scene.resolve("p1", Resolution::Done(json!("short")), "ann")).unwrap();
}

#[test]
fn d3_it_failed_and_the_model_reads_why() {
    let mut scene = doubted();
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
fn d3_only_the_words_of_its_kind_answer_it() {
    let mut scene = doubted();
    let refused = "! a decision on this is `retry`, `done` or `failed`";
    scene.check(scene.whole("p1", true, "ann"), refused);
    scene.check(scene.steps("p1", &[("c1", true)], "ann"), refused);
    scene.check(scene.resolve("p1", Resolution::Raise(9.0), "ann"), refused);
    scene.check(scene.resolve("p1", Resolution::Stop, "ann"), refused);
    assert_eq!(scene.state.active.approvals.len(), 1);
    // Nor does its answer hold for later calls.
    let for_session = Input::DecideApproval {
        approval_id: scene.approval("p1"),
        answer: ApprovalAnswer::Resolve { resolution: Resolution::Retry, reason: None },
        for_session: Some(GrantWish::default()),
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
fn g11_the_first_word_stands() {
    let mut scene = doubted();
    scene.does(scene.resolve("p1", Resolution::Retry, "ann")).unwrap();
    scene.check(scene.resolve("p1", Resolution::Retry, "ann"), "= decided closed repeated");
    let first = "! already decided retry by ann";
    scene.check(scene.resolve("p1", Resolution::Failed, "ann"), first);
    scene.check(scene.resolve("p1", Resolution::Retry, "bob"), first);
    scene.check(scene.resolve("p1", Resolution::Done(json!("ok")), "bob"), first);
    scene.check(scene.whole("p1", true, "ann"), first);
}

#[test]
fn d3_what_is_denied_by_now_is_not_repeated_and_the_question_waits_still() {
    let mut scene = doubted();
    block(&mut scene, "low");
    scene.check(
        scene.resolve("p1", Resolution::Retry, "ann"),
        "! the answer can't be taken: low is blocked by the user's settings",
    );
    // What it did can still be told.
    scene.does(scene.resolve("p1", Resolution::Done(json!("it did")), "ann")).unwrap();
}

#[test]
fn d3_what_is_gone_by_now_is_not_repeated_and_the_question_waits_still() {
    let mut scene = doubted().rules(|rules| rules.tools = Arc::default());
    scene.check(
        scene.resolve("p1", Resolution::Retry, "ann"),
        "! the answer can't be taken: the tool is not there now; its server may be away",
    );
    let mut scene = scene.agent(|agent| agent.tools = vec!["read".to_owned()]);
    scene.check(
        scene.resolve("p1", Resolution::Retry, "ann"),
        "! the answer can't be taken: the tool is not there any more",
    );
    scene.does(scene.resolve("p1", Resolution::Failed, "ann")).unwrap();
}

#[test]
fn s6_a_cancel_says_that_it_may_have_taken_effect() {
    let mut scene = doubted();
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
fn s6_a_cancel_of_a_retry_that_has_no_turn_yet_says_so_too() {
    let mut scene = Scene::calling(&wants(["low", "low"]));
    scene.rules.parallel_calls_max = 1;
    scene.does(scene.tool("c1", timed_out())).unwrap();
    scene.does(scene.resolve("p1", Resolution::Failed, "ann")).unwrap();
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
    let mut scene = doubted();
    scene.check(Input::Rehydrated { within: None }, "");
    scene.after(MINUTE * 60 * 24 * 365).check(Input::Wake, "");
    scene.check(Input::Rehydrated { within: None }, "");
    assert_eq!(scene.state.next_wake(), None);
    assert!(scene.state.is_waiting_for_people());
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
    let mut scene = Scene::calling(&wants(["low"]));
    let late = scene.tool("c1", completed());
    scene.does(scene.tool("c1", timed_out())).unwrap();
    scene.check(late, "late_result c1 a2 (completed: 42) @r1.1");
    assert_eq!(scene.state.active.approvals.len(), 1);
}

#[test]
fn s3_later_calls_wait_for_the_word() {
    let mut scene = Scene::calling(&wants(["low", "low"]));
    scene.check(
        scene.tool("c1", timed_out()),
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
