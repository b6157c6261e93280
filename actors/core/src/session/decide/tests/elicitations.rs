//! Elicitations of running tools (T1): the call keeps running, and the end of its attempt cancels its
//! elicitations.

use super::*;
use crate::approval::{
    ApprovalDeadlines, DeadlineAction, DeadlineRule, Elicitation, ElicitationMode as Mode,
};

fn form() -> Elicitation {
    let schema = json!({
        "type": "object", "required": ["hangar"],
        "properties": {"hangar": {"type": "string", "enum": ["north", "south"]}},
    });
    Elicitation { message: "Which hangar?".to_owned(), mode: Mode::Form { schema } }
}

impl SessionHarness {
    fn elicitation_requested(
        &self,
        call: &str,
        elicitation_number: u32,
        elicitation: Elicitation,
    ) -> Input {
        let attempt_id = self.running_attempt(call);
        Input::ElicitationRequested {
            call_id: self.call(call),
            attempt_id,
            elicitation_number,
            elicitation,
        }
    }
}

/// Returns a session in which `low` runs and has requested an elicitation.
fn with_pending_elicitation() -> SessionHarness {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["low"]));
    let request = harness.elicitation_requested("c1", 1, form());
    harness
        .check(request, "approval_requested p1 (Answer low) write_low_risk within Some(60) @r1.1");
    harness
}

fn answer(value: Value) -> Resolution {
    Resolution::Answer(value)
}

#[test]
fn t1_answer_is_sent_to_running_tool() {
    let mut harness = with_pending_elicitation();
    assert!(
        !harness.state.is_waiting_for_approval(),
        "T1: a tool runs, so the session must not be passivated"
    );
    harness.check(
        harness.resolve("p1", answer(json!({"hangar": "north"})), "ann"),
        r#"
        approval_decided p1 answer by ann closed @r1.1
        > answer_elicitation a2 #1 Accepted(Some(Object {"hangar": String("north")}))
        = decided closed
    "#,
    );
    // G11: the first answer wins; the same answer by the same user is a repetition.
    harness.check(
        harness.resolve("p1", answer(json!({"hangar": "north"})), "ann"),
        "= decided closed repeated",
    );
    harness.check(
        harness.resolve("p1", answer(json!({"hangar": "south"})), "bob"),
        "! already decided answer by ann",
    );
    harness.check(
        harness.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
    ",
    );
}

#[test]
fn t1_answer_against_form_is_rejected_and_elicitation_stays_open() {
    let mut harness = with_pending_elicitation();
    for (value, problem) in [
        (json!({"hangar": "west"}), "`value/hangar`: value is not one of \"north\" or \"south\""),
        (json!({"dock": 1}), "`value`: the form has no field `dock`"),
        (json!("north"), "`value`: must be an object with the form's fields"),
    ] {
        let expected = format!("! invalid answer: {problem}");
        harness.check(harness.resolve("p1", answer(value), "ann"), &expected);
    }
    // An overall approval is an empty answer, which does not fit a form.
    harness.check(
        harness.overall_answer("p1", true, "ann"),
        "! invalid answer: `value`: must be an object with the form's fields",
    );
    harness.check(
        harness.resolve("p1", Resolution::Retry, "ann"),
        "! unsupported answer; this approval accepts `answer`, with `value`, or `reject`",
    );
    assert_eq!(harness.state.active.approvals.len(), 1);
}

#[test]
fn t1_rejection_declines_elicitation() {
    for input in [
        |harness: &SessionHarness| harness.resolve("p1", Resolution::Reject, "ann"),
        |harness: &SessionHarness| harness.overall_answer("p1", false, "ann"),
    ] {
        let mut harness = with_pending_elicitation();
        let input = input(&harness);
        harness.check(
            input,
            "
            approval_decided p1 reject by ann closed @r1.1
            > answer_elicitation a2 #1 Declined
            = decided closed
        ",
        );
    }
}

#[test]
fn t1_url_elicitation_is_confirmed_or_declined() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["low"]));
    let mode = Mode::Url { url: "https://example.org/sign".to_owned() };
    let request =
        harness.elicitation_requested("c1", 1, Elicitation { message: "Sign".to_owned(), mode });
    harness.apply(request).unwrap();
    harness.check(
        harness.overall_answer("p1", true, "ann"),
        "
        approval_decided p1 answer by ann closed @r1.1
        > answer_elicitation a2 #1 Accepted(None)
        = decided closed
    ",
    );
}

#[test]
fn g10_unanswered_elicitation_is_cancelled() {
    let mut harness = with_pending_elicitation();
    harness.advance_clock(MINUTE);
    harness.check(
        harness.resolve("p1", answer(json!({"hangar": "north"})), "ann"),
        "! the approval has expired: its deadline has passed",
    );
    harness.check(
        Input::Wake,
        "
        approval_expired p1 @r1.1
        > answer_elicitation a2 #1 Cancelled
    ",
    );
}

#[test]
fn g10_elicitation_has_its_own_deadline() {
    let rule = |kind, _| DeadlineRule {
        timeout: (kind != crate::approval::ApprovalKind::Elicitation).then_some(MINUTE),
        action: DeadlineAction::Deny,
    };
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["low"]))
        .with_agent(|agent| agent.approval_deadlines = ApprovalDeadlines::from_fn(rule));
    let request = harness.elicitation_requested("c1", 1, form());
    harness.check(request, "approval_requested p1 (Answer low) write_low_risk within None @r1.1");
}

#[test]
fn t1_end_of_attempt_cancels_its_elicitations() {
    let mut harness = with_pending_elicitation();
    harness.check(
        harness.tool_finishes("c1", timed_out()),
        "
        approval_cancelled p1 @r1.1
        approval_requested p2 (Resolve the unknown outcome of low) c1 write_low_risk within None @r1.1
    ",
    );
    let mut harness = with_pending_elicitation();
    harness.check(
        Input::Rehydrated { user_settings: None },
        "
        approval_cancelled p1 @r1.1
        approval_requested p2 (Resolve the unknown outcome of low) c1 write_low_risk within None @r1.1
    ",
    );
    harness.check(
        harness.resolve("p1", answer(json!({"hangar": "north"})), "ann"),
        "! the approval was cancelled: its run or tool attempt no longer waits for it",
    );
    let mut harness = with_pending_elicitation();
    harness.check(
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
fn t1_withdrawn_elicitation_is_cancelled() {
    let mut harness = with_pending_elicitation();
    let attempt_id = harness.running_attempt("c1");
    harness.check(Input::ElicitationWithdrawn { attempt_id, elicitation_number: 2 }, "");
    harness.check(
        Input::ElicitationWithdrawn { attempt_id, elicitation_number: 1 },
        "approval_cancelled p1 @r1.1",
    );
}

#[test]
fn t1_repeated_attempt_requests_elicitation_again() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["read"]));
    let request = harness.elicitation_requested("c1", 1, form());
    harness.apply(request.clone()).unwrap();
    harness.apply(Input::Rehydrated { user_settings: None }).unwrap();
    // The first attempt has ended, so its request is ignored.
    harness.check(request, "");
    let second_request = harness.elicitation_requested("c1", 1, form());
    harness.check(
        second_request,
        "approval_requested p2 (Answer read) read_only within Some(60) @r1.1",
    );
}

#[test]
fn g13_headless_elicitations_are_declined() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["low"]))
        .with_agent(|agent| agent.headless = true);
    let request = harness.elicitation_requested("c1", 1, form());
    harness.check(request, "> answer_elicitation a2 #1 Declined");
}

#[test]
fn t1_invalid_elicitations_are_cancelled() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["low"]));
    let mode = Mode::Url { url: "javascript:alert(1)".to_owned() };
    let invalid =
        harness.elicitation_requested("c1", 1, Elicitation { message: "Sign".to_owned(), mode });
    harness.check(invalid, "> answer_elicitation a2 #1 Cancelled");
    let over_limit = harness.elicitation_requested(
        "c1",
        crate::limits::ELICITATIONS_PER_ATTEMPT_MAX + 1,
        form(),
    );
    harness.check(over_limit, "> answer_elicitation a2 #17 Cancelled");
}
