//! Running tools that ask people (T1): the call goes on running, and whatever ends it ends its
//! questions.

use super::*;
use crate::approval::{
    ApprovalDeadlines, DeadlineAction, DeadlineRule, Elicitation, ElicitationMode as Asked,
};

fn form() -> Elicitation {
    let schema = json!({
        "type": "object", "required": ["hangar"],
        "properties": {"hangar": {"type": "string", "enum": ["north", "south"]}},
    });
    Elicitation { message: "Which hangar?".to_owned(), mode: Asked::Form { schema } }
}

impl SessionHarness {
    fn elicitation_requested(&self, call: &str, ask: u32, elicitation: Elicitation) -> Input {
        let attempt_id = self.running_attempt(call);
        Input::ElicitationRequested {
            call_id: self.call(call),
            attempt_id,
            elicitation_number: ask,
            elicitation,
        }
    }
}

/// `low` runs and wants to know which hangar.
fn with_pending_elicitation() -> SessionHarness {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["low"]));
    let asks = scene.elicitation_requested("c1", 1, form());
    scene.check(asks, "approval_requested p1 (Answer low) write_low_risk within Some(60) @r1.1");
    scene
}

fn answer(value: Value) -> Resolution {
    Resolution::Answer(value)
}

#[test]
fn t1_a_person_answers_and_the_tool_goes_on() {
    let mut scene = with_pending_elicitation();
    assert!(!scene.state.is_waiting_for_approval(), "T1: a tool runs, so nothing may be put away");
    scene.check(
        scene.resolve("p1", answer(json!({"hangar": "north"})), "ann"),
        r#"
        approval_decided p1 answer by ann closed @r1.1
        > answer_tool a2 #1 Accepted(Some(Object {"hangar": String("north")}))
        = decided closed
    "#,
    );
    // G11: the first answer stands; the same from the same person is no other one.
    scene.check(
        scene.resolve("p1", answer(json!({"hangar": "north"})), "ann"),
        "= decided closed repeated",
    );
    scene.check(
        scene.resolve("p1", answer(json!({"hangar": "south"})), "bob"),
        "! already decided answer by ann",
    );
    scene.check(
        scene.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
    ",
    );
}

#[test]
fn t1_what_does_not_fit_the_form_is_refused_and_the_question_waits() {
    let mut scene = with_pending_elicitation();
    for (value, problem) in [
        (json!({"hangar": "west"}), "`value/hangar`: value is not one of \"north\" or \"south\""),
        (json!({"dock": 1}), "`value`: the form has no field `dock`"),
        (json!("north"), "`value`: must be an object with the form's fields"),
    ] {
        let expected = format!("! the answer can't be taken: {problem}");
        scene.check(scene.resolve("p1", answer(value), "ann"), &expected);
    }
    // To approve all is to say nothing, which is no answer to a form.
    scene.check(
        scene.overall_answer("p1", true, "ann"),
        "! the answer can't be taken: `value`: must be an object with the form's fields",
    );
    scene.check(
        scene.resolve("p1", Resolution::Retry, "ann"),
        "! a decision on this is `answer`, with `value`, or `reject`",
    );
    assert_eq!(scene.state.active.approvals.len(), 1);
}

#[test]
fn t1_a_person_declines() {
    for input in [
        |scene: &SessionHarness| scene.resolve("p1", Resolution::Reject, "ann"),
        |scene: &SessionHarness| scene.overall_answer("p1", false, "ann"),
    ] {
        let mut scene = with_pending_elicitation();
        let input = input(&scene);
        scene.check(
            input,
            "
            approval_decided p1 reject by ann closed @r1.1
            > answer_tool a2 #1 Declined
            = decided closed
        ",
        );
    }
}

#[test]
fn t1_a_page_is_visited_or_not() {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["low"]));
    let wanted = Asked::Url { url: "https://example.org/sign".to_owned() };
    let asks = scene.elicitation_requested(
        "c1",
        1,
        Elicitation { message: "Sign".to_owned(), mode: wanted },
    );
    scene.apply(asks).unwrap();
    scene.check(
        scene.overall_answer("p1", true, "ann"),
        "
        approval_decided p1 answer by ann closed @r1.1
        > answer_tool a2 #1 Accepted(None)
        = decided closed
    ",
    );
}

#[test]
fn g10_nobody_answers_a_tool_in_time() {
    let mut scene = with_pending_elicitation();
    scene.advance_clock(MINUTE);
    scene.check(
        scene.resolve("p1", answer(json!({"hangar": "north"})), "ann"),
        "! the approval has expired; nobody answered in time",
    );
    scene.check(
        Input::Wake,
        "
        approval_expired p1 @r1.1
        > answer_tool a2 #1 Cancelled
    ",
    );
}

#[test]
fn g10_it_can_have_a_deadline_of_its_own() {
    let timing = |kind, _| DeadlineRule {
        timeout: (kind != crate::approval::ApprovalKind::Elicitation).then_some(MINUTE),
        action: DeadlineAction::Deny,
    };
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["low"]))
        .with_agent(|agent| agent.approval_deadlines = ApprovalDeadlines::from_fn(timing));
    let asks = scene.elicitation_requested("c1", 1, form());
    scene.check(asks, "approval_requested p1 (Answer low) write_low_risk within None @r1.1");
}

#[test]
fn t1_whatever_ends_the_attempt_ends_its_questions() {
    let mut scene = with_pending_elicitation();
    scene.check(
        scene.tool_finishes("c1", timed_out()),
        "
        approval_cancelled p1 @r1.1
        approval_requested p2 (Say what became of low) c1 write_low_risk within None @r1.1
    ",
    );
    let mut scene = with_pending_elicitation();
    scene.check(
        Input::Rehydrated { user_settings: None },
        "
        approval_cancelled p1 @r1.1
        approval_requested p2 (Say what became of low) c1 write_low_risk within None @r1.1
    ",
    );
    scene.check(
        scene.resolve("p1", answer(json!({"hangar": "north"})), "ann"),
        "! the approval was cancelled: nothing waits for it any more",
    );
    let mut scene = with_pending_elicitation();
    scene.check(
        cancel(),
        "
        approval_cancelled p1 @r1.1
        tool_call_failed c1 Cancelled (the run was cancelled while the call ran; it may have taken effect) @r1.1
        run_cancelled by ann @r1.1
        > stop_tool c1 a2
        = cancelled r1
    ",
    );
}

#[test]
fn t1_a_withdrawn_elicitation_is_cancelled() {
    let mut scene = with_pending_elicitation();
    let attempt_id = scene.running_attempt("c1");
    scene.check(Input::ElicitationWithdrawn { attempt_id, elicitation_number: 2 }, "");
    scene.check(
        Input::ElicitationWithdrawn { attempt_id, elicitation_number: 1 },
        "approval_cancelled p1 @r1.1",
    );
}

#[test]
fn t1_an_attempt_that_may_repeat_asks_again() {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["read"]));
    let asks = scene.elicitation_requested("c1", 1, form());
    scene.apply(asks.clone()).unwrap();
    scene.apply(Input::Rehydrated { user_settings: None }).unwrap();
    // The first attempt is over: what it asks now nobody is asked.
    scene.check(asks, "");
    let again = scene.elicitation_requested("c1", 1, form());
    scene.check(again, "approval_requested p2 (Answer read) read_only within Some(60) @r1.1");
}

#[test]
fn g13_headless_elicitations_are_declined() {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["low"]))
        .with_agent(|agent| agent.headless = true);
    let asks = scene.elicitation_requested("c1", 1, form());
    scene.check(asks, "> answer_tool a2 #1 Declined");
}

#[test]
fn t1_invalid_elicitations_are_cancelled() {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["low"]));
    let wanted = Asked::Url { url: "javascript:alert(1)".to_owned() };
    let bad = scene.elicitation_requested(
        "c1",
        1,
        Elicitation { message: "Sign".to_owned(), mode: wanted },
    );
    scene.check(bad, "> answer_tool a2 #1 Cancelled");
    let one_too_many =
        scene.elicitation_requested("c1", crate::limits::ELICITATIONS_PER_ATTEMPT_MAX + 1, form());
    scene.check(one_too_many, "> answer_tool a2 #17 Cancelled");
}
