//! Asking people, and their answers (G8, G10, G11).

use super::*;
use crate::approval::{ApprovalDeadlines, DeadlineAction, DeadlineRule};

fn deadlines_of(deadline: Option<Duration>) -> ApprovalDeadlines {
    ApprovalDeadlines::uniform(DeadlineRule { timeout: deadline, action: DeadlineAction::Deny })
}

/// Two calls wait for a person.
fn with_pending_plan() -> SessionHarness {
    let mut scene = SessionHarness::with_streaming_step();
    scene.check(
        scene.model_calls(&scripted_calls(["high", "high2"])),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 high write_high_risk @r1.1
        tool_call_started c2 high2 write_high_risk @r1.1
        approval_requested p1 (Execute 2 tools) c1 c2 write_high_risk within Some(60) @r1.1
    ",
    );
    scene
}

#[test]
fn g8_the_whole_is_approved() {
    let mut scene = with_pending_plan();
    scene.check(
        scene.overall_answer("p1", true, "ann"),
        "
        approval_decided p1 +c1 by ann +c2 by ann closed @r1.1
        tool_call_allowed c1 by ann p1 @r1.1
        tool_call_allowed c2 by ann p1 @r1.1
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 high
        = decided closed
    ",
    );
    scene.check(
        scene.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        tool_call_attempt_started c2 a3 #1 @r1.1
        > start_tool c2 a3 high2
    ",
    );
    scene.check(
        scene.tool_finishes("c2", completed()),
        "
        tool_call_completed c2 '42' @r1.1
        step_started a4 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a4 M2 @r1.2
    ",
    );
}

#[test]
fn g8_the_whole_is_rejected_and_the_model_reads_why() {
    let mut scene = with_pending_plan();
    let reason = Some("too dear".to_owned());
    let answer = ApprovalAnswer::Overall { approved: false, reason };
    scene.check(
        scene.answer("p1", answer, "ann"),
        "
        approval_decided p1 -c1 by ann -c2 by ann closed @r1.1
        tool_call_failed c1 Rejected (a person rejected this call: too dear) @r1.1
        tool_call_failed c2 Rejected (a person rejected this call: too dear) @r1.1
        step_started a2 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a2 M2 @r1.2
        = decided closed
    ",
    );
    scene.apply(scene.model_answers("Then not.")).unwrap();
    scene.check_conversation(
        "
        user: u1
        assistant:  [high] [high2]
        results: !high: Rejected: a person rejected this call: too dear
        & !high2: Rejected: a person rejected this call: too dear
        assistant: Then not.
    ",
    );
}

#[test]
fn g8_steps_are_decided_one_by_one_and_start_at_once() {
    let mut scene = with_pending_plan();
    scene.check(
        scene.step_answers("p1", &[("c1", true)], "ann"),
        "
        approval_decided p1 +c1 by ann @r1.1
        tool_call_allowed c1 by ann p1 @r1.1
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 high
        = decided
    ",
    );
    scene.check(
        scene.step_answers("p1", &[("c2", false)], "bob"),
        "
        approval_decided p1 -c2 by bob closed @r1.1
        tool_call_failed c2 Rejected (a person rejected this call) @r1.1
        = decided closed
    ",
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
fn g8_mixed_answers_in_one() {
    let mut scene = with_pending_plan();
    scene.check(
        scene.step_answers("p1", &[("c2", true), ("c1", false)], "ann"),
        "
        approval_decided p1 +c2 by ann -c1 by ann closed @r1.1
        tool_call_allowed c2 by ann p1 @r1.1
        tool_call_failed c1 Rejected (a person rejected this call) @r1.1
        tool_call_attempt_started c2 a2 #1 @r1.1
        > start_tool c2 a2 high2
        = decided closed
    ",
    );
}

#[test]
fn g8_an_overall_answer_covers_undecided_steps() {
    let mut scene = with_pending_plan();
    scene.apply(scene.step_answers("p1", &[("c1", false)], "ann")).unwrap();
    scene.check(
        scene.overall_answer("p1", true, "bob"),
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
    let mut scene = with_pending_plan();
    let first = scene.step_answers("p1", &[("c1", true)], "ann");
    scene.apply(first.clone()).unwrap();
    scene.check(first.clone(), "= decided repeated");
    let rest = scene.overall_answer("p1", true, "ann");
    scene.apply(rest.clone()).unwrap();
    scene.check(first, "= decided closed repeated");
    scene.check(rest, "= decided closed repeated");
}

#[test]
fn g11_repeated_overall_answers_are_idempotent_after_partial_answers() {
    let mut scene = with_pending_plan();
    scene.apply(scene.step_answers("p1", &[("c1", false)], "ann")).unwrap();
    let rest = scene.overall_answer("p1", true, "bob");
    scene.advance_clock(SECOND).apply(rest.clone()).unwrap();
    scene.check(rest, "= decided closed repeated");
}

#[test]
fn g11_repeated_step_answers_are_idempotent_after_the_approval_ended() {
    let mut scene = with_pending_plan();
    let first = scene.step_answers("p1", &[("c1", true)], "ann");
    let other = scene.step_answers("p1", &[("c1", true), ("c2", true)], "ann");
    scene.apply(first.clone()).unwrap();
    scene.advance_clock(MINUTE).check(first.clone(), "= decided repeated");
    scene.apply(Input::Wake).unwrap();
    scene.check(first.clone(), "= decided repeated");
    scene.check(other, "! the approval has expired; nobody answered in time");

    let mut scene = with_pending_plan();
    let first = scene.step_answers("p1", &[("c1", true)], "ann");
    scene.apply(first.clone()).unwrap();
    scene.apply(cancel()).unwrap();
    scene.check(first, "= decided repeated");
}

#[test]
fn g11_a_different_answer_or_person_conflicts() {
    let mut scene = with_pending_plan();
    scene.apply(scene.step_answers("p1", &[("c1", true)], "ann")).unwrap();
    scene.check(scene.step_answers("p1", &[("c1", false)], "ann"), "! already decided +c1 by ann");
    scene.check(scene.step_answers("p1", &[("c1", true)], "bob"), "! already decided +c1 by ann");
    scene.check(
        scene.step_answers("p1", &[("c2", true), ("c1", false)], "bob"),
        "! already decided +c1 by ann",
    );
    scene.apply(scene.overall_answer("p1", true, "ann")).unwrap();
    scene
        .check(scene.overall_answer("p1", false, "ann"), "! already decided +c1 by ann +c2 by ann");
    scene.check(scene.overall_answer("p1", true, "bob"), "! already decided +c1 by ann +c2 by ann");
    scene.check(
        scene.step_answers("p1", &[("c1", true), ("c2", false)], "ann"),
        "! already decided +c1 by ann +c2 by ann",
    );
}

#[test]
fn g8_an_answer_names_steps_of_the_plan_each_once() {
    let mut scene = SessionHarness::with_streaming_step();
    scene.check(
        scene.model_calls(&scripted_calls(["high", "read", "high2"])),
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
    let twice = scene.step_answers("p1", &[("c1", true), ("c1", true)], "ann");
    let none = scene.step_answers("p1", &[], "ann");
    let unknown = scene.step_answers("p1", &[("c1", true), ("c2", true)], "ann");
    scene
        .check(twice.clone(), "! the answer must decide at least one step, and none of them twice");
    scene.check(none.clone(), "! the answer must decide at least one step, and none of them twice");
    scene.check(unknown.clone(), "! unknown step c2");
    scene.apply(scene.overall_answer("p1", true, "ann")).unwrap();
    scene.check(twice, "! the answer must decide at least one step, and none of them twice");
    scene.check(none, "! the answer must decide at least one step, and none of them twice");
    scene.check(unknown, "! unknown step c2");
}

#[test]
fn unknown_approvals_are_rejected() {
    let mut scene = with_pending_plan();
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
    scene.check(stray, "! unknown approval");
}

#[test]
fn g10_nobody_answers_in_time() {
    let mut scene = with_pending_plan();
    scene.advance_clock(MINUTE - SECOND).check(Input::Wake, "");
    // The answer comes before the timer's message does: still too late.
    let late = scene.overall_answer("p1", true, "ann");
    scene
        .advance_clock(SECOND)
        .check(late.clone(), "! the approval has expired; nobody answered in time");
    scene.check(
        Input::Wake,
        "
        approval_expired p1 @r1.1
        tool_call_failed c1 Expired (nobody answered in time whether this call may run) @r1.1
        tool_call_failed c2 Expired (nobody answered in time whether this call may run) @r1.1
        step_started a2 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a2 M2 @r1.2
    ",
    );
    scene.check(late, "! the approval has expired; nobody answered in time");
}

#[test]
fn g10_what_was_decided_before_the_deadline_counts() {
    let mut scene = with_pending_plan();
    scene.apply(scene.step_answers("p1", &[("c1", true)], "ann")).unwrap();
    scene.advance_clock(MINUTE).check(
        Input::Wake,
        "
        approval_expired p1 @r1.1
        tool_call_failed c2 Expired (nobody answered in time whether this call may run) @r1.1
    ",
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
fn g10_no_deadline_never_expires() {
    let mut scene = SessionHarness::with_streaming_step()
        .with_agent(|agent| agent.approval_deadlines = deadlines_of(None));
    scene.check(
        scene.model_calls(&scripted_calls(["high"])),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 high write_high_risk @r1.1
        approval_requested p1 (Execute 1 tool) c1 write_high_risk within None @r1.1
    ",
    );
    scene.advance_clock(MINUTE * 1_000_000).check(Input::Wake, "");
    scene.check(
        scene.overall_answer("p1", true, "ann"),
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
fn g11_after_a_cancel_the_answer_says_so() {
    let mut scene = with_pending_plan();
    scene.apply(cancel()).unwrap();
    scene.check(
        scene.overall_answer("p1", true, "ann"),
        "! the approval was cancelled: nothing waits for it any more",
    );
    // Its deadline has nothing more to say.
    scene.advance_clock(MINUTE).check(Input::Wake, "");
}

#[test]
fn g11_only_so_many_closed_approvals_are_remembered() {
    let mut scene = SessionHarness::new();
    let kept = crate::limits::CLOSED_APPROVALS_MAX;
    let mut asked = Vec::new();
    for round in 0..=kept {
        let does = |scene: &mut SessionHarness, input| {
            scene.seed += 1;
            let env = Env::new(scene.now, scene.seed, &scene.rules);
            let events = decide(&scene.state, input, &env).unwrap().events;
            scene.state = events.iter().fold(scene.state.clone(), evolve);
        };
        does(&mut scene, submit(&format!("u{round}")));
        let proposal = scene.model_calls(&scripted_calls(["high"]));
        does(&mut scene, proposal);
        does(&mut scene, cancel());
        asked.push(scene.state.closed_approvals.last().unwrap().approval.approval_id);
    }
    assert_eq!(scene.state.closed_approvals.len(), kept);
    assert_eq!(scene.state.closed_approval(asked[0]), None);
    assert!(asked[1..].iter().all(|id| scene.state.closed_approval(*id).is_some()));
}

#[test]
fn g8_a_current_denial_overrides_an_approval() {
    let mut scene = with_pending_plan();
    let mut settings = scene.settings();
    settings.blocked_tools.insert(crate::ids::ToolName::parse("high").unwrap());
    scene
        .apply(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
        .unwrap();
    scene.check(
        scene.overall_answer("p1", true, "ann"),
        "
        approval_decided p1 +c1 by ann +c2 by ann closed @r1.1
        authorization_denied c1 requires - @r1.1
        tool_call_allowed c2 by ann p1 @r1.1
        tool_call_attempt_started c2 a2 #1 @r1.1
        > start_tool c2 a2 high2
        = decided closed
    ",
    );
    // Somebody lowered the level while people thought.
    let mut scene = with_pending_plan();
    let autonomy_level = Autonomy::ReadOnly;
    let settings = Settings { autonomy_level, ..scene.settings() };
    scene
        .apply(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
        .unwrap();
    scene.check(
        scene.step_answers("p1", &[("c1", true)], "ann"),
        "
        approval_decided p1 +c1 by ann @r1.1
        authorization_denied c1 requires RECOMMENDATIONS @r1.1
        = decided
    ",
    );
}

#[test]
fn g8_a_removed_tool_does_not_run_despite_approval() {
    let mut scene = with_pending_plan().with_agent(|agent| agent.tools = vec!["read".to_owned()]);
    scene.check(
        scene.overall_answer("p1", true, "ann"),
        "
        approval_decided p1 +c1 by ann +c2 by ann closed @r1.1
        tool_call_failed c1 Unavailable (the tool is not there any more) @r1.1
        tool_call_failed c2 Unavailable (the tool is not there any more) @r1.1
        step_started a2 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a2 M2 @r1.2
        = decided closed
    ",
    );
}

#[test]
fn g8_an_approval_is_kept_while_the_server_is_unavailable() {
    let tools = SessionHarness::new().rules.tools;
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["high"]))
        .with_rules(|rules| rules.tools = Arc::default());
    scene.check(
        scene.overall_answer("p1", true, "ann"),
        "
        approval_decided p1 +c1 by ann closed @r1.1
        tool_call_allowed c1 by ann p1 @r1.1
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 high
        = decided closed
    ",
    );
    scene.check(
        scene.tool_finishes("c1", not_sent()),
        "tool_call_retrying c1 #1 failures 1 (no child) @r1.1",
    );
    let mut scene = scene.with_rules(|rules| rules.tools = tools);
    let due = scene.state.next_wake().unwrap();
    scene.set_clock(due).check(
        Input::Wake,
        "
        tool_call_attempt_started c1 a3 #2 @r1.1
        > start_tool c1 a3 high
    ",
    );
}

#[test]
fn g8_another_servers_tool_of_that_name_is_not_what_was_approved() {
    let of_another =
        |name: &str| Tool { server: "evil".into(), ..Tool::for_tests(name, Risk::WriteHighRisk) };
    let evil = ToolRegistry::new([of_another("high"), of_another("low")]);
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["high"]))
        .with_rules(|rules| rules.tools = Arc::new(evil));
    scene.check(
        scene.overall_answer("p1", true, "ann"),
        "
        approval_decided p1 +c1 by ann closed @r1.1
        tool_call_failed c1 Unavailable (the tool is not there any more) @r1.1
        step_started a2 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a2 M2 @r1.2
        = decided closed
    ",
    );
}

#[test]
fn g8_approved_arguments_are_validated_against_the_current_schema() {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["high"]));
    let strict = tools().into_iter().find(|tool| tool.name.as_str() == "high_strict").unwrap();
    let strict = Tool { name: crate::ids::ToolName::parse("high").unwrap(), ..strict };
    scene.rules.tools = Arc::new(ToolRegistry::new([strict]));
    scene.check(
        scene.overall_answer("p1", true, "ann"),
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
