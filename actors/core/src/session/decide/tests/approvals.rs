//! Plan approvals: requests, answers and deadlines (G8, G10, G11).

use super::*;
use crate::approval::{ApprovalDeadlines, DeadlineAction, DeadlineRule};

fn uniform_deadlines(deadline: Option<Duration>) -> ApprovalDeadlines {
    ApprovalDeadlines::uniform(DeadlineRule { timeout: deadline, action: DeadlineAction::Deny })
}

/// Returns a session in which two calls wait for approval.
fn with_pending_plan() -> SessionHarness {
    let mut harness = SessionHarness::with_streaming_step();
    harness.check(
        harness.model_calls(&scripted_calls(["high", "high2"])),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 high write_high_risk @r1.1
        tool_call_started c2 high2 write_high_risk @r1.1
        approval_requested p1 (Execute 2 tools) c1 c2 write_high_risk within Some(60) @r1.1
    ",
    );
    harness
}

#[test]
fn g8_overall_approval_starts_all_calls() {
    let mut harness = with_pending_plan();
    harness.check(
        harness.overall_answer("p1", true, "ann"),
        "
        approval_decided p1 +c1 by ann +c2 by ann closed @r1.1
        tool_call_allowed c1 by ann p1 @r1.1
        tool_call_allowed c2 by ann p1 @r1.1
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 high
        = decided closed
    ",
    );
    harness.check(
        harness.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        tool_call_attempt_started c2 a3 #1 @r1.1
        > start_tool c2 a3 high2
    ",
    );
    harness.check(
        harness.tool_finishes("c2", completed()),
        "
        tool_call_completed c2 '42' @r1.1
        step_started a4 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a4 M2 @r1.2
    ",
    );
}

#[test]
fn g8_overall_rejection_fails_all_calls_with_reason() {
    let mut harness = with_pending_plan();
    let reason = Some("too dear".to_owned());
    let answer = ApprovalAnswer::Overall { approved: false, reason };
    harness.check(
        harness.answer("p1", answer, "ann"),
        "
        approval_decided p1 -c1 by ann -c2 by ann closed @r1.1
        tool_call_failed c1 Rejected (a human rejected this call: too dear) @r1.1
        tool_call_failed c2 Rejected (a human rejected this call: too dear) @r1.1
        step_started a2 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a2 M2 @r1.2
        = decided closed
    ",
    );
    harness.apply(harness.model_answers("Then not.")).unwrap();
    harness.check_conversation(
        "
        user: u1
        assistant:  [high] [high2]
        results: !high: Rejected: a human rejected this call: too dear
        & !high2: Rejected: a human rejected this call: too dear
        assistant: Then not.
    ",
    );
}

#[test]
fn g8_steps_decided_individually_start_at_once() {
    let mut harness = with_pending_plan();
    harness.check(
        harness.step_answers("p1", &[("c1", true)], "ann"),
        "
        approval_decided p1 +c1 by ann @r1.1
        tool_call_allowed c1 by ann p1 @r1.1
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 high
        = decided
    ",
    );
    harness.check(
        harness.step_answers("p1", &[("c2", false)], "bob"),
        "
        approval_decided p1 -c2 by bob closed @r1.1
        tool_call_failed c2 Rejected (a human rejected this call) @r1.1
        = decided closed
    ",
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
fn g8_one_answer_approves_and_rejects_steps() {
    let mut harness = with_pending_plan();
    harness.check(
        harness.step_answers("p1", &[("c2", true), ("c1", false)], "ann"),
        "
        approval_decided p1 +c2 by ann -c1 by ann closed @r1.1
        tool_call_allowed c2 by ann p1 @r1.1
        tool_call_failed c1 Rejected (a human rejected this call) @r1.1
        tool_call_attempt_started c2 a2 #1 @r1.1
        > start_tool c2 a2 high2
        = decided closed
    ",
    );
}

#[test]
fn g8_overall_answer_covers_undecided_steps() {
    let mut harness = with_pending_plan();
    harness.apply(harness.step_answers("p1", &[("c1", false)], "ann")).unwrap();
    harness.check(
        harness.overall_answer("p1", true, "bob"),
        "
        approval_decided p1 +c2 by bob closed @r1.1
        tool_call_allowed c2 by bob p1 @r1.1
        tool_call_attempt_started c2 a2 #1 @r1.1
        > start_tool c2 a2 high2
        = decided closed
    ",
    );
}

#[test]
fn g11_repeated_answers_are_idempotent() {
    let mut harness = with_pending_plan();
    let first = harness.step_answers("p1", &[("c1", true)], "ann");
    harness.apply(first.clone()).unwrap();
    harness.check(first.clone(), "= decided repeated");
    let rest = harness.overall_answer("p1", true, "ann");
    harness.apply(rest.clone()).unwrap();
    harness.check(first, "= decided closed repeated");
    harness.check(rest, "= decided closed repeated");
}

#[test]
fn g11_repeated_overall_answers_are_idempotent_after_partial_answers() {
    let mut harness = with_pending_plan();
    harness.apply(harness.step_answers("p1", &[("c1", false)], "ann")).unwrap();
    let rest = harness.overall_answer("p1", true, "bob");
    harness.advance_clock(SECOND).apply(rest.clone()).unwrap();
    harness.check(rest, "= decided closed repeated");
}

#[test]
fn g11_repeated_step_answers_are_idempotent_after_the_approval_ended() {
    let mut harness = with_pending_plan();
    let first = harness.step_answers("p1", &[("c1", true)], "ann");
    let other = harness.step_answers("p1", &[("c1", true), ("c2", true)], "ann");
    harness.apply(first.clone()).unwrap();
    harness.advance_clock(MINUTE).check(first.clone(), "= decided repeated");
    harness.apply(Input::Wake).unwrap();
    harness.check(first.clone(), "= decided repeated");
    harness.check(other, "! the approval has expired: its deadline has passed");

    let mut harness = with_pending_plan();
    let first = harness.step_answers("p1", &[("c1", true)], "ann");
    harness.apply(first.clone()).unwrap();
    harness.apply(cancel()).unwrap();
    harness.check(first, "= decided repeated");
}

#[test]
fn g11_different_answer_or_user_conflicts() {
    let mut harness = with_pending_plan();
    harness.apply(harness.step_answers("p1", &[("c1", true)], "ann")).unwrap();
    harness
        .check(harness.step_answers("p1", &[("c1", false)], "ann"), "! already decided +c1 by ann");
    harness
        .check(harness.step_answers("p1", &[("c1", true)], "bob"), "! already decided +c1 by ann");
    harness.check(
        harness.step_answers("p1", &[("c2", true), ("c1", false)], "bob"),
        "! already decided +c1 by ann",
    );
    harness.apply(harness.overall_answer("p1", true, "ann")).unwrap();
    harness.check(
        harness.overall_answer("p1", false, "ann"),
        "! already decided +c1 by ann +c2 by ann",
    );
    harness.check(
        harness.overall_answer("p1", true, "bob"),
        "! already decided +c1 by ann +c2 by ann",
    );
    harness.check(
        harness.step_answers("p1", &[("c1", true), ("c2", false)], "ann"),
        "! already decided +c1 by ann +c2 by ann",
    );
}

#[test]
fn g8_answer_must_name_plan_steps_once() {
    let mut harness = SessionHarness::with_streaming_step();
    harness.check(
        harness.model_calls(&scripted_calls(["high", "read", "high2"])),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 high write_high_risk @r1.1
        tool_call_started c2 read read_only @r1.1
        tool_call_allowed c2 by policy @r1.1
        tool_call_started c3 high2 write_high_risk @r1.1
        approval_requested p1 (Execute 2 tools) c1 c3 write_high_risk within Some(60) @r1.1
        tool_call_attempt_started c2 a2 #1 @r1.1
        > start_tool c2 a2 read
    ",
    );
    let twice = harness.step_answers("p1", &[("c1", true), ("c1", true)], "ann");
    let none = harness.step_answers("p1", &[], "ann");
    let unknown = harness.step_answers("p1", &[("c1", true), ("c2", true)], "ann");
    harness.check(twice.clone(), "! the answer must decide at least one step, and no step twice");
    harness.check(none.clone(), "! the answer must decide at least one step, and no step twice");
    harness.check(unknown.clone(), "! unknown step c2");
    harness.apply(harness.overall_answer("p1", true, "ann")).unwrap();
    harness.check(twice, "! the answer must decide at least one step, and no step twice");
    harness.check(none, "! the answer must decide at least one step, and no step twice");
    harness.check(unknown, "! unknown step c2");
}

#[test]
fn g11_answer_to_unknown_approval_is_rejected() {
    let mut harness = with_pending_plan();
    let approval_id = ApprovalId(Uuid::from_u128(77));
    let answer = ApprovalAnswer::Overall { approved: true, reason: None };
    let stray = Input::AnswerApproval {
        approval_id,
        answer,
        for_session: None,
        by: user("ann"),
        role: Role::User,
        surface: Surface::Cli,
    };
    harness.check(stray, "! unknown approval");
}

#[test]
fn g10_unanswered_plan_expires() {
    let mut harness = with_pending_plan();
    harness.advance_clock(MINUTE - SECOND).check(Input::Wake, "");
    // The answer arrives before the timer's message, but after the deadline.
    let late_answer = harness.overall_answer("p1", true, "ann");
    harness
        .advance_clock(SECOND)
        .check(late_answer.clone(), "! the approval has expired: its deadline has passed");
    harness.check(
        Input::Wake,
        "
        approval_expired p1 @r1.1
        tool_call_failed c1 Expired (the approval expired without an answer) @r1.1
        tool_call_failed c2 Expired (the approval expired without an answer) @r1.1
        step_started a2 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a2 M2 @r1.2
    ",
    );
    harness.check(late_answer, "! the approval has expired: its deadline has passed");
}

#[test]
fn g10_decisions_before_deadline_are_kept() {
    let mut harness = with_pending_plan();
    harness.apply(harness.step_answers("p1", &[("c1", true)], "ann")).unwrap();
    harness.advance_clock(MINUTE).check(
        Input::Wake,
        "
        approval_expired p1 @r1.1
        tool_call_failed c2 Expired (the approval expired without an answer) @r1.1
    ",
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
fn g10_approval_without_deadline_never_expires() {
    let mut harness = SessionHarness::with_streaming_step()
        .with_agent(|agent| agent.approval_deadlines = uniform_deadlines(None));
    harness.check(
        harness.model_calls(&scripted_calls(["high"])),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 high write_high_risk @r1.1
        approval_requested p1 (Execute 1 tool) c1 write_high_risk within None @r1.1
    ",
    );
    harness.advance_clock(MINUTE * 1_000_000).check(Input::Wake, "");
    harness.check(
        harness.overall_answer("p1", true, "ann"),
        "
        approval_decided p1 +c1 by ann closed @r1.1
        tool_call_allowed c1 by ann p1 @r1.1
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 high
        = decided closed
    ",
    );
}

#[test]
fn g11_answer_after_cancellation_is_rejected() {
    let mut harness = with_pending_plan();
    harness.apply(cancel()).unwrap();
    harness.check(
        harness.overall_answer("p1", true, "ann"),
        "! the approval was cancelled: its run or tool attempt no longer waits for it",
    );
    // The deadline of the cancelled approval has no effect.
    harness.advance_clock(MINUTE).check(Input::Wake, "");
}

#[test]
fn g11_closed_approvals_are_retained_up_to_limit() {
    let mut harness = SessionHarness::new();
    let retained_count = crate::limits::CLOSED_APPROVALS_MAX;
    let mut approval_ids = Vec::new();
    for round in 0..=retained_count {
        let apply_input = |harness: &mut SessionHarness, input| {
            harness.seed += 1;
            let env = Env::new(harness.now, harness.seed, &harness.rules);
            let events = decide(&harness.state, input, &env).unwrap().events;
            harness.state = events.iter().fold(harness.state.clone(), evolve);
        };
        apply_input(&mut harness, submit(&format!("u{round}")));
        let proposal = harness.model_calls(&scripted_calls(["high"]));
        apply_input(&mut harness, proposal);
        apply_input(&mut harness, cancel());
        approval_ids.push(harness.state.closed_approvals.last().unwrap().approval.approval_id);
    }
    assert_eq!(harness.state.closed_approvals.len(), retained_count);
    assert_eq!(harness.state.closed_approval(approval_ids[0]), None);
    assert!(approval_ids[1..].iter().all(|id| harness.state.closed_approval(*id).is_some()));
}

#[test]
fn g8_current_denial_overrides_approval() {
    let mut harness = with_pending_plan();
    let mut settings = harness.settings();
    settings.blocked_tools.insert(crate::ids::ToolName::parse("high").unwrap());
    harness
        .apply(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
        .unwrap();
    harness.check(
        harness.overall_answer("p1", true, "ann"),
        "
        approval_decided p1 +c1 by ann +c2 by ann closed @r1.1
        authorization_denied c1 requires - @r1.1
        tool_call_allowed c2 by ann p1 @r1.1
        tool_call_attempt_started c2 a2 #1 @r1.1
        > start_tool c2 a2 high2
        = decided closed
    ",
    );
    // The autonomy level is lowered while the plan is open.
    let mut harness = with_pending_plan();
    let autonomy_level = Autonomy::ReadOnly;
    let settings = Settings { autonomy_level, ..harness.settings() };
    harness
        .apply(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
        .unwrap();
    harness.check(
        harness.step_answers("p1", &[("c1", true)], "ann"),
        "
        approval_decided p1 +c1 by ann @r1.1
        authorization_denied c1 requires RECOMMENDATIONS @r1.1
        = decided
    ",
    );
}

#[test]
fn g8_removed_tool_does_not_run_despite_approval() {
    let mut harness = with_pending_plan().with_agent(|agent| agent.tools = vec!["read".to_owned()]);
    harness.check(
        harness.overall_answer("p1", true, "ann"),
        "
        approval_decided p1 +c1 by ann +c2 by ann closed @r1.1
        tool_call_failed c1 Unavailable (the tool is no longer available) @r1.1
        tool_call_failed c2 Unavailable (the tool is no longer available) @r1.1
        step_started a2 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a2 M2 @r1.2
        = decided closed
    ",
    );
}

#[test]
fn g8_approval_is_kept_while_server_is_unavailable() {
    let tools = SessionHarness::new().rules.tools;
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["high"]))
        .with_rules(|rules| rules.tools = Arc::default());
    harness.check(
        harness.overall_answer("p1", true, "ann"),
        "
        approval_decided p1 +c1 by ann closed @r1.1
        tool_call_allowed c1 by ann p1 @r1.1
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 high
        = decided closed
    ",
    );
    harness.check(
        harness.tool_finishes("c1", not_sent()),
        "tool_call_retrying c1 #1 failures 1 (no child) @r1.1",
    );
    let mut harness = harness.with_rules(|rules| rules.tools = tools);
    let due = harness.state.next_wake().unwrap();
    harness.set_clock(due).check(
        Input::Wake,
        "
        tool_call_attempt_started c1 a3 #2 @r1.1
        > start_tool c1 a3 high
    ",
    );
}

#[test]
fn g8_approval_does_not_cover_same_name_on_another_server() {
    let tool_of_other_server =
        |name: &str| Tool { server: "evil".into(), ..Tool::for_tests(name, Risk::WriteHighRisk) };
    let evil = ToolRegistry::new([tool_of_other_server("high"), tool_of_other_server("low")]);
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["high"]))
        .with_rules(|rules| rules.tools = Arc::new(evil));
    harness.check(
        harness.overall_answer("p1", true, "ann"),
        "
        approval_decided p1 +c1 by ann closed @r1.1
        tool_call_failed c1 Unavailable (the tool is no longer available) @r1.1
        step_started a2 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a2 M2 @r1.2
        = decided closed
    ",
    );
}

#[test]
fn g8_approved_arguments_are_validated_against_current_schema() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["high"]));
    let strict = tools().into_iter().find(|tool| tool.name.as_str() == "high_strict").unwrap();
    let strict = Tool { name: crate::ids::ToolName::parse("high").unwrap(), ..strict };
    harness.rules.tools = Arc::new(ToolRegistry::new([strict]));
    harness.check(
        harness.overall_answer("p1", true, "ann"),
        "
        approval_decided p1 +c1 by ann closed @r1.1
        tool_call_failed c1 InvalidArguments (the arguments: \"n\" is a required property) @r1.1
        step_started a2 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a2 M2 @r1.2
        = decided closed
    ",
    );
}
