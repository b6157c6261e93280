//! Asking people, and their answers (G8, G10, G11).

use super::*;
use crate::approval::{ApprovalRules, Overdue, Timing};

fn within(deadline: Option<Duration>) -> ApprovalRules {
    ApprovalRules::always(Timing { deadline, then: Overdue::Deny })
}

/// Two calls wait for a person.
fn asking() -> Scene {
    let mut scene = Scene::streaming();
    scene.check(
        scene.model_calls(&wants(["high", "high2"])),
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
    let mut scene = asking();
    scene.check(
        scene.whole("p1", true, "ann"),
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
        scene.tool("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        tool_call_attempt_started c2 a3 #1 @r1.1
        > start_tool c2 a3 high2
    ",
    );
    scene.check(
        scene.tool("c2", completed()),
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
    let mut scene = asking();
    let reason = Some("too dear".to_owned());
    let answer = ApprovalAnswer::Whole { approved: false, reason };
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
    scene.does(scene.model_says("Then not.")).unwrap();
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
    let mut scene = asking();
    scene.check(
        scene.steps("p1", &[("c1", true)], "ann"),
        "
        approval_decided p1 +c1 by ann @r1.1
        tool_call_allowed c1 by ann p1 @r1.1
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 high
        = decided
    ",
    );
    scene.check(
        scene.steps("p1", &[("c2", false)], "bob"),
        "
        approval_decided p1 -c2 by bob closed @r1.1
        tool_call_failed c2 Rejected (a person rejected this call) @r1.1
        = decided closed
    ",
    );
    scene.check(
        scene.tool("c1", completed()),
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
    let mut scene = asking();
    scene.check(
        scene.steps("p1", &[("c2", true), ("c1", false)], "ann"),
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
fn g8_the_whole_covers_what_is_undecided() {
    let mut scene = asking();
    scene.does(scene.steps("p1", &[("c1", false)], "ann")).unwrap();
    scene.check(
        scene.whole("p1", true, "bob"),
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
fn g11_the_same_answer_again_is_fine_and_changes_nothing() {
    let mut scene = asking();
    let first = scene.steps("p1", &[("c1", true)], "ann");
    scene.does(first.clone()).unwrap();
    scene.check(first.clone(), "= decided repeated");
    let rest = scene.whole("p1", true, "ann");
    scene.does(rest.clone()).unwrap();
    scene.check(first, "= decided closed repeated");
    scene.check(rest, "= decided closed repeated");
}

#[test]
fn g11_the_whole_again_is_fine_where_others_had_decided_some_steps() {
    let mut scene = asking();
    scene.does(scene.steps("p1", &[("c1", false)], "ann")).unwrap();
    let rest = scene.whole("p1", true, "bob");
    scene.after(SECOND).does(rest.clone()).unwrap();
    scene.check(rest, "= decided closed repeated");
}

#[test]
fn g11_a_step_that_was_decided_stays_so_for_who_asks_again_after_the_end() {
    let mut scene = asking();
    let first = scene.steps("p1", &[("c1", true)], "ann");
    let other = scene.steps("p1", &[("c1", true), ("c2", true)], "ann");
    scene.does(first.clone()).unwrap();
    scene.after(MINUTE).check(first.clone(), "= decided repeated");
    scene.does(Input::Wake).unwrap();
    scene.check(first.clone(), "= decided repeated");
    scene.check(other, "! the approval has expired; nobody answered in time");

    let mut scene = asking();
    let first = scene.steps("p1", &[("c1", true)], "ann");
    scene.does(first.clone()).unwrap();
    scene.does(cancel()).unwrap();
    scene.check(first, "= decided repeated");
}

#[test]
fn g11_another_answer_or_another_person_is_a_conflict_with_the_first() {
    let mut scene = asking();
    scene.does(scene.steps("p1", &[("c1", true)], "ann")).unwrap();
    scene.check(scene.steps("p1", &[("c1", false)], "ann"), "! already decided +c1 by ann");
    scene.check(scene.steps("p1", &[("c1", true)], "bob"), "! already decided +c1 by ann");
    scene.check(
        scene.steps("p1", &[("c2", true), ("c1", false)], "bob"),
        "! already decided +c1 by ann",
    );
    scene.does(scene.whole("p1", true, "ann")).unwrap();
    scene.check(scene.whole("p1", false, "ann"), "! already decided +c1 by ann +c2 by ann");
    scene.check(scene.whole("p1", true, "bob"), "! already decided +c1 by ann +c2 by ann");
    scene.check(
        scene.steps("p1", &[("c1", true), ("c2", false)], "ann"),
        "! already decided +c1 by ann +c2 by ann",
    );
}

#[test]
fn g8_an_answer_names_steps_of_the_plan_each_once() {
    let mut scene = Scene::streaming();
    scene.check(
        scene.model_calls(&wants(["high", "read", "high2"])),
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
    let twice = scene.steps("p1", &[("c1", true), ("c1", true)], "ann");
    let none = scene.steps("p1", &[], "ann");
    let unknown = scene.steps("p1", &[("c1", true), ("c2", true)], "ann");
    scene
        .check(twice.clone(), "! the answer must decide at least one step, and none of them twice");
    scene.check(none.clone(), "! the answer must decide at least one step, and none of them twice");
    scene.check(unknown.clone(), "! unknown step c2");
    scene.does(scene.whole("p1", true, "ann")).unwrap();
    scene.check(twice, "! the answer must decide at least one step, and none of them twice");
    scene.check(none, "! the answer must decide at least one step, and none of them twice");
    scene.check(unknown, "! unknown step c2");
}

#[test]
fn an_approval_that_never_was_is_unknown() {
    let mut scene = asking();
    let approval_id = ApprovalId(Uuid::from_u128(77));
    let answer = ApprovalAnswer::Whole { approved: true, reason: None };
    let stray = Input::DecideApproval {
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
    let mut scene = asking();
    scene.after(MINUTE - SECOND).check(Input::Wake, "");
    // The answer comes before the timer's message does: still too late.
    let late = scene.whole("p1", true, "ann");
    scene.after(SECOND).check(late.clone(), "! the approval has expired; nobody answered in time");
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
    let mut scene = asking();
    scene.does(scene.steps("p1", &[("c1", true)], "ann")).unwrap();
    scene.after(MINUTE).check(
        Input::Wake,
        "
        approval_expired p1 @r1.1
        tool_call_failed c2 Expired (nobody answered in time whether this call may run) @r1.1
    ",
    );
    scene.check(
        scene.tool("c1", completed()),
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
    let mut scene = Scene::streaming().agent(|agent| agent.approvals = within(None));
    scene.check(
        scene.model_calls(&wants(["high"])),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 high write_high_risk @r1.1
        approval_requested p1 (Execute 1 tool) c1 write_high_risk within None @r1.1
    ",
    );
    scene.after(MINUTE * 1_000_000).check(Input::Wake, "");
    scene.check(
        scene.whole("p1", true, "ann"),
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
    let mut scene = asking();
    scene.does(cancel()).unwrap();
    scene.check(
        scene.whole("p1", true, "ann"),
        "! the approval was cancelled: nothing waits for it any more",
    );
    // Its deadline has nothing more to say.
    scene.after(MINUTE).check(Input::Wake, "");
}

#[test]
fn g11_only_so_many_closed_approvals_are_remembered() {
    let mut scene = Scene::new();
    let kept = crate::limits::CLOSED_APPROVALS_KEPT;
    let mut asked = Vec::new();
    for round in 0..=kept {
        let does = |scene: &mut Scene, input| {
            scene.seed += 1;
            let env = Env::new(scene.now, scene.seed, &scene.rules);
            let events = decide(&scene.state, input, &env).unwrap().events;
            scene.state = events.iter().fold(scene.state.clone(), evolve);
        };
        does(&mut scene, submit(&format!("u{round}")));
        let proposal = scene.model_calls(&wants(["high"]));
        does(&mut scene, proposal);
        does(&mut scene, cancel());
        asked.push(scene.state.closed_approvals.newest().unwrap().approval.approval_id);
    }
    assert_eq!(scene.state.closed_approvals.len(), kept);
    assert_eq!(scene.state.closed_approval(asked[0]), None);
    assert!(asked[1..].iter().all(|id| scene.state.closed_approval(*id).is_some()));
}

#[test]
fn g8_what_the_policy_denies_by_now_is_denied_though_a_person_approves_it() {
    let mut scene = asking();
    let mut settings = scene.settings();
    settings.blocked_tools.insert(crate::ids::ToolName::parse("high").unwrap());
    scene
        .does(Input::ChangeSettings { change: settings.into(), title: None, by: user("ann") })
        .unwrap();
    scene.check(
        scene.whole("p1", true, "ann"),
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
    let mut scene = asking();
    let autonomy_level = Autonomy::ReadOnly;
    let settings = Settings { autonomy_level, ..scene.settings() };
    scene
        .does(Input::ChangeSettings { change: settings.into(), title: None, by: user("ann") })
        .unwrap();
    scene.check(
        scene.steps("p1", &[("c1", true)], "ann"),
        "
        approval_decided p1 +c1 by ann @r1.1
        authorization_denied c1 requires RECOMMENDATIONS @r1.1
        = decided
    ",
    );
}

#[test]
fn g8_what_is_gone_by_now_can_not_run_though_a_person_approves_it() {
    let mut scene = asking().agent(|agent| agent.tools = vec!["read".to_owned()]);
    scene.check(
        scene.whole("p1", true, "ann"),
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
fn g8_the_word_on_a_call_whose_server_is_away_is_kept_until_it_is_back() {
    let tools = Scene::new().rules.tools;
    let mut scene = Scene::calling(&wants(["high"])).rules(|rules| rules.tools = Arc::default());
    scene.check(
        scene.whole("p1", true, "ann"),
        "
        approval_decided p1 +c1 by ann closed @r1.1
        tool_call_allowed c1 by ann p1 @r1.1
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 high
        = decided closed
    ",
    );
    scene.check(
        scene.tool("c1", not_sent()),
        "tool_call_retrying c1 #1 failures 1 (no child) @r1.1",
    );
    let mut scene = scene.rules(|rules| rules.tools = tools);
    let due = scene.state.next_wake().unwrap();
    scene.at(due).check(
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
    let evil = ToolBook::new([of_another("high"), of_another("low")]);
    let mut scene = Scene::calling(&wants(["high"])).rules(|rules| rules.tools = Arc::new(evil));
    scene.check(
        scene.whole("p1", true, "ann"),
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
fn g8_what_was_approved_is_held_against_the_schema_of_now() {
    let mut scene = Scene::calling(&wants(["high"]));
    let strict = tools().into_iter().find(|tool| tool.name.as_str() == "high_strict").unwrap();
    let strict = Tool { name: crate::ids::ToolName::parse("high").unwrap(), ..strict };
    scene.rules.tools = Arc::new(ToolBook::new([strict]));
    scene.check(
        scene.whole("p1", true, "ann"),
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
