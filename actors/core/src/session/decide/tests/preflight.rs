//! A plan before the first step, and what a person's word on it covers (G14).

use super::*;
use crate::{
    approval::ApprovalSubject,
    context::assemble_request,
    preflight::{Checklist, ChecklistStepEdit, SUBMIT_PLAN_TOOL},
    usage::ModelPrice,
};

/// A message that wants a plan.
fn submit_preflight(message_id: &str) -> Input {
    let mut input = submit(message_id);
    if let Input::SubmitMessage { message: NewMessage { preflight, .. }, .. } = &mut input {
        *preflight = Some(true);
    }
    input
}

/// A model that is asked for its plan.
fn planning() -> SessionHarness {
    let mut scene = SessionHarness::new();
    scene.apply(submit_preflight("u1")).unwrap();
    scene
}

/// The model submits these steps.
fn submits(scene: &SessionHarness, steps: Value) -> Input {
    scene.model_calls(&[ScriptedCall::Valid(SUBMIT_PLAN_TOOL, json!({"steps": steps}))])
}

fn step(tool: &str, arguments: Value) -> Value {
    json!({"description": format!("Do {tool}"), "tool": tool, "arguments": arguments})
}

/// A person is asked about these steps.
fn with_pending_preflight(steps: Value) -> SessionHarness {
    let mut scene = planning();
    scene.apply(submits(&scene, steps)).unwrap();
    scene
}

/// A person approved these steps, and the first step's answer is awaited.
fn approved(steps: Value) -> SessionHarness {
    let mut scene = with_pending_preflight(steps);
    scene.apply(scene.overall_answer("p1", true, "ann")).unwrap();
    scene
}

fn approve(scene: &SessionHarness, edits: Vec<ChecklistStepEdit>) -> Input {
    scene.resolve("p1", Resolution::Approve(edits), "ann")
}

fn edit(position: u32) -> ChecklistStepEdit {
    ChecklistStepEdit { position, ..ChecklistStepEdit::default() }
}

fn checklist(scene: &SessionHarness) -> Checklist {
    let asked = &scene.state.active.approvals[0].approval;
    let ApprovalSubject::Preflight(checklist) = &asked.subject else { panic!("{asked:?}") };
    checklist.clone()
}

#[test]
fn g14_a_plan_comes_before_the_first_step_and_a_person_before_the_work() {
    let mut scene = SessionHarness::new();
    scene.check(
        submit_preflight("u1"),
        "
        message_accepted u1 @r1
        run_started u1 preflight @r1
        step_started a1 #1 small planning @r1
        > start_model a1 - @r1.0
        = submitted r1 seq 2
    ",
    );
    scene.check(
        submits(&scene, json!([step("high", json!({"quantity": 1000}))])),
        "
        step_completed ToolUse 10 @r1
        approval_requested p1 (Carry out a plan of 1 step) write_high_risk within Some(60) @r1
    ",
    );
    assert!(scene.state.is_waiting_for_approval());
    scene.check(
        scene.overall_answer("p1", true, "ann"),
        "
        approval_decided p1 approve by ann closed @r1
        preflight_approved p1 +1 by ann @r1
        step_started a2 #1 small @r1.1
        message_started M1 @r1.1
        > start_model a2 M1 @r1.1
        = decided closed
    ",
    );
    scene.check(
        scene.model_calls(&[ScriptedCall::Valid("high", json!({"quantity": 1000}))]),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 high write_high_risk @r1.1
        tool_call_allowed c1 by ann p1 step 1 @r1.1
        tool_call_attempt_started c1 a3 #1 @r1.1
        > start_tool c1 a3 high
    ",
    );
    scene.apply(scene.tool_finishes("c1", completed())).unwrap();
    scene.check(
        scene.model_answers("Done."),
        "
        message_completed M2 'Done.' @r1.2
        step_completed EndTurn 10 @r1.2
        run_completed M2 30 @r1.2
    ",
    );
    scene.check_conversation(
        "
        user: u1
        assistant:  [high]
        results: high: 42
        assistant: Done.
    ",
    );
}

#[test]
fn g14_buying_1000_approved_does_not_cover_buying_1000000() {
    let mut scene = approved(json!([step("high", json!({"quantity": 1000}))]));
    scene.check(
        scene.model_calls(&[
            ScriptedCall::Valid("high", json!({"quantity": 1_000_000})),
            ScriptedCall::Valid("high", json!({"quantity": 1000.0})),
            ScriptedCall::Valid("high2", json!({"quantity": 1000})),
        ]),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 high write_high_risk @r1.1
        tool_call_started c2 high write_high_risk @r1.1
        tool_call_started c3 high2 write_high_risk @r1.1
        approval_requested p2 (Execute 3 tools) c1 c2 c3 write_high_risk within Some(60) @r1.1
    ",
    );
}

#[test]
fn g14_each_step_covers_one_call_also_after_a_restart() {
    let same = || ScriptedCall::Valid("beside", json!({"n": 1}));
    let mut scene = approved(json!([step("beside", json!({"n": 1}))]));
    scene.apply(Input::Rehydrated { user_settings: None }).unwrap();
    scene.check(
        scene.model_calls(&[same(), same()]),
        "
        message_completed M2 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 beside write_high_risk @r1.1
        tool_call_allowed c1 by ann p1 step 1 @r1.1
        tool_call_started c2 beside write_high_risk @r1.1
        approval_requested p2 (Execute 1 tool) c2 write_high_risk within Some(60) @r1.1
        tool_call_attempt_started c1 a4 #1 @r1.1
        > start_tool c1 a4 beside
    ",
    );
    let plan = scene.state.active.run.as_ref().and_then(|run| run.preflight.approved());
    assert_eq!(plan.map(|plan| plan.used_positions.clone()), Some([1].into()));
}

#[test]
fn g14_a_denial_overrides_an_approved_step() {
    let mut scene = approved(json!([step("high", json!({})), step("crit", json!({}))]));
    let settings = Settings { autonomy_level: Autonomy::ReadOnly, ..Settings::default() };
    scene
        .apply(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
        .unwrap();
    scene.check(
        scene.model_calls(&scripted_calls(["high", "crit"])),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 high write_high_risk @r1.1
        authorization_denied c1 requires RECOMMENDATIONS @r1.1
        tool_call_started c2 crit critical @r1.1
        authorization_denied c2 requires ASSISTED @r1.1
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
    ",
    );
}

#[test]
fn g14_a_step_without_arguments_covers_only_what_risks_little() {
    let open = |tool: &str| json!({"description": "d", "tool": tool});
    let mut scene = SessionHarness::new().with_rules(|rules| {
        rules.matrix = Arc::new(crate::policy::MatrixPreset::AskFirst.into());
    });
    let settings = Settings { autonomy_level: Autonomy::ReadOnly, ..Settings::default() };
    scene
        .apply(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
        .unwrap();
    scene.apply(submit_preflight("u1")).unwrap();
    scene.apply(submits(&scene, json!([open("low"), open("high")]))).unwrap();
    let expected = "step 2: it says no arguments, so you will be asked when the call comes";
    assert!(checklist(&scene).warnings.iter().any(|it| it == expected), "{:?}", checklist(&scene));
    scene.apply(scene.overall_answer("p1", true, "ann")).unwrap();
    scene.check(
        scene.model_calls(&scripted_calls(["high", "low", "low"])),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 high write_high_risk @r1.1
        tool_call_started c2 low write_low_risk @r1.1
        tool_call_allowed c2 by ann p1 step 1 @r1.1
        tool_call_started c3 low write_low_risk @r1.1
        approval_requested p2 (Execute 2 tools) c1 c3 write_high_risk within Some(60) @r1.1
    ",
    );
}

#[test]
fn g14_a_rejected_preflight_cancels_the_run() {
    let mut scene = with_pending_preflight(json!([step("high", json!({}))]));
    scene.apply(submit("u2")).unwrap();
    scene.check(
        scene.overall_answer("p1", false, "bob"),
        "
        approval_decided p1 reject by bob closed @r1
        run_cancelled by bob @r1
        message_accepted u2 @r2
        run_started u2 @r2
        step_started a2 #1 small @r2.1
        message_started M1 @r2.1
        > start_model a2 M1 @r2.1
        = decided closed
    ",
    );
    // The same again is fine, in either form; another is not.
    scene.check(scene.overall_answer("p1", false, "bob"), "= decided closed repeated");
    scene.check(scene.resolve("p1", Resolution::Reject, "bob"), "= decided closed repeated");
    scene.check(scene.overall_answer("p1", true, "bob"), "! already decided reject by bob");
}

#[test]
fn g14_nobody_answers_in_time() {
    let mut scene = with_pending_preflight(json!([step("high", json!({}))]));
    scene.advance_clock(MINUTE).check(
        Input::Wake,
        "
        approval_expired p1 @r1
        run_failed ApprovalExpired (nobody answered in time whether the plan may be carried out) @r1
    ",
    );
    let late = scene.overall_answer("p1", true, "ann");
    scene.check(late, "! the approval has expired; nobody answered in time");
}

#[test]
fn g14_without_a_plan_people_are_asked_as_usual() {
    let mut scene = planning();
    scene.check(
        scene.model_answers("I would rather talk."),
        "
        step_completed EndTurn 10 @r1
        preflight_skipped (the model submitted no plan; you are asked about calls as they come) @r1
        step_started a2 #1 small @r1.1
        message_started M1 @r1.1
        > start_model a2 M1 @r1.1
    ",
    );
    scene.apply(scene.model_calls(&scripted_calls(["high"]))).unwrap();
    assert_eq!(scene.state.active.approvals[0].approval.kind().name(), "plan");
    let mut scene = planning();
    scene.check(
        scene.model_calls(&[ScriptedCall::Malformed(SUBMIT_PLAN_TOOL)]),
        "
        step_completed ToolUse 10 @r1
        preflight_skipped (the model's plan is invalid: not JSON; you are asked about calls as they come) @r1
        step_started a2 #1 small @r1.1
        message_started M1 @r1.1
        > start_model a2 M1 @r1.1
    ",
    );
}

#[test]
fn g14_headless_runs_skip_preflight() {
    let mut scene = SessionHarness::new().with_agent(|agent| agent.headless = true);
    scene.check(
        submit_preflight("u1"),
        "
        message_accepted u1 @r1
        run_started u1 preflight @r1
        preflight_skipped (there is no plan: nobody is there to look at it) @r1
        step_started a1 #1 small @r1.1
        message_started M1 @r1.1
        > start_model a1 M1 @r1.1
        = submitted r1 seq 2
    ",
    );
}

#[test]
fn g14_the_session_setting_applies_by_default() {
    let settings = Settings { preflight: true, ..Settings::default() };
    let mut scene = SessionHarness::new();
    scene
        .apply(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
        .unwrap();
    scene.apply(submit("u1")).unwrap();
    let is_planning =
        |scene: &SessionHarness| scene.state.active.run.as_ref().unwrap().is_planning();
    assert!(is_planning(&scene));
    let mut plain = submit("u2");
    if let Input::SubmitMessage { message: NewMessage { preflight, .. }, .. } = &mut plain {
        *preflight = Some(false);
    }
    scene.apply(plain).unwrap();
    scene.apply(cancel()).unwrap();
    assert!(!is_planning(&scene), "the queued message said no");
}

#[test]
fn m3_a_call_for_a_plan_is_tried_again_and_is_no_step() {
    let mut scene = planning();
    scene.check(
        scene.model_fails(ModelFailure::temporary("overloaded"), false),
        "step_retrying #1 failures 1 (overloaded) @r1",
    );
    scene.advance_clock(MINUTE).check(
        Input::Wake,
        "
        step_started a2 #2 small planning @r1
        > start_model a2 - @r1.0
    ",
    );
    scene.check(
        Input::Rehydrated { user_settings: None },
        "
        step_retrying #2 failures 1 (the server restarted) @r1
        step_started a3 #3 small planning @r1
        > start_model a3 - @r1.0
    ",
    );
    scene.check(
        cancel_with("half a plan"),
        "
        step_completed EndTurn 10 @r1
        run_cancelled by ann @r1
        > stop_model a3
        = cancelled r1
    ",
    );
    scene.check_conversation("user: u1");
}

#[test]
fn s2_the_plan_does_not_count_as_a_step() {
    let mut scene = SessionHarness::new().with_agent(|agent| agent.max_steps = 1);
    scene.apply(submit_preflight("u1")).unwrap();
    scene.apply(submits(&scene, json!([step("high", json!({}))]))).unwrap();
    scene.apply(scene.overall_answer("p1", true, "ann")).unwrap();
    scene.apply(scene.model_answers("Done.")).unwrap();
    assert!(scene.state.is_idle());
    assert_eq!(scene.state.usage.tokens.input_tokens, 20, "its tokens count");
}

#[test]
fn g14_checklist_contents() {
    let mut scene = SessionHarness::new();
    scene.rules.prices = Arc::new(
        [("small".to_owned(), ModelPrice { input: 1.0, output: 10.0, cached: None })].into(),
    );
    let settings = Settings { autonomy_level: Autonomy::Recommendations, ..Settings::default() };
    scene
        .apply(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
        .unwrap();
    scene.apply(submit_preflight("u1")).unwrap();
    let steps = json!([
        {"description": "Think"},
        step("read", json!({})),
        step("high", json!({"n": 1})),
        step("crit", json!({})),
        step("high_strict", json!({"n": "one"})),
        step("nothing", json!({})),
    ]);
    let plan = json!({"steps": steps, "warnings": ["It may rain."]});
    scene.apply(scene.model_calls(&[ScriptedCall::Valid(SUBMIT_PLAN_TOOL, plan)])).unwrap();
    let found = serde_json::to_value(checklist(&scene)).unwrap();
    let digest = |arguments: &Value| Digest::hash_json(arguments).to_string();
    let shown = |position: u32, tool: &str, arguments: Value, risk: &str, needs: bool| {
        json!({
            "position": position, "description": format!("Do {tool}"), "toolName": tool,
            "server": "test", "digest": digest(&arguments), "arguments": arguments, "risk": risk,
            "needsApproval": needs,
        })
    };
    let mut nowhere = shown(6, "nothing", json!({}), "write_high_risk", false);
    nowhere.as_object_mut().unwrap().remove("server");
    let expected = json!({
        "steps": [
            {"position": 1, "description": "Think", "risk": "read_only", "needsApproval": false},
            shown(2, "read", json!({}), "read_only", false),
            shown(3, "high", json!({"n": 1}), "write_high_risk", true),
            shown(4, "crit", json!({}), "critical", false),
            shown(5, "high_strict", json!({"n": "one"}), "write_high_risk", false),
            nowhere,
        ],
        "estimatedCost": {"inputTokens": 50, "outputTokens": 25, "estimatedUSD": 0.0003},
        "requiredPermissions": ["autonomy level ASSISTED (L2)"],
        "warnings": [
            "It may rain.",
            "step 4: it will be denied: crit is critical: requires autonomy level ASSISTED (L2) or \
             higher; current level: RECOMMENDATIONS",
            "step 5: invalid arguments of high_strict: `/n`: value is not of type \"integer\"",
            "step 6: there is no tool named `nothing`",
            "the plan may need 6 model calls, and a run has 5 at most",
        ],
    });
    assert_eq!(found, expected, "{found:#}");
}

#[test]
fn g14_an_unknown_price_and_a_budget_too_small_are_warned_of() {
    let mut scene = SessionHarness::new().with_agent(|agent| {
        let (scope, period) = (crate::budget::BudgetScope::Run, Default::default());
        let measure = crate::budget::BudgetMeasure::Tokens;
        agent.budgets = vec![crate::budget::Budget { scope, period, measure, limit: 20.0 }];
    });
    scene.apply(submit_preflight("u1")).unwrap();
    scene.apply(submits(&scene, json!([step("high", json!({}))]))).unwrap();
    let found = checklist(&scene);
    assert_eq!(found.estimated_cost.estimated_usd, None);
    let expected = [
        "the price of the model `small` is not known",
        "the plan may cost 30 tokens, and the budget of 20 tokens of this run has 5 left; you \
         will be asked to raise it",
    ];
    assert_eq!(found.warnings, expected);
}

#[test]
fn e7_placeholders_never_shown_are_rejected_in_steps() {
    let mut scene =
        with_pending_preflight(json!([step("high", json!({"n": 1})), step("idem", Value::Null)]));
    for position in [1, 2] {
        let arguments = Some(json!({"n": 2, "token": crate::scrub::REDACTED}));
        let edits = vec![ChecklistStepEdit { arguments, ..edit(position) }];
        let refused = scene.apply(approve(&scene, edits)).unwrap_err();
        let Rejection::InvalidAnswer { problem } = &refused else { panic!("{refused}") };
        let expected = format!("step {position}: `arguments.token`: contains `[redacted]`");
        assert!(problem.starts_with(&expected), "{problem}");
    }
}

#[test]
fn g14_steps_are_edited_and_skipped_by_position() {
    let steps = json!([
        step("high", json!({"n": 1, "token": "s3cret"})),
        step("high2", json!({})),
        step("idem", json!({})),
    ]);
    let mut scene = with_pending_preflight(steps);
    let edits = vec![
        ChecklistStepEdit { arguments: Some(json!({"n": 2, "token": "s3cret"})), ..edit(1) },
        ChecklistStepEdit { skip: true, ..edit(2) },
        ChecklistStepEdit { description: Some("Do idem".to_owned()), ..edit(3) },
    ];
    scene.check(
        approve(&scene, edits.clone()),
        "
        approval_decided p1 approve by ann closed @r1
        preflight_approved p1 ~1 -2 +3 by ann @r1
        step_started a2 #1 small @r1.1
        message_started M1 @r1.1
        > start_model a2 M1 @r1.1
        = decided closed
    ",
    );
    scene.check(approve(&scene, edits), "= decided closed repeated");
    scene.check(approve(&scene, vec![]), "! already decided approve by ann");
    let told = assemble_request(&scene.state, &scene.rules, "small".to_owned());
    assert_eq!(told.forced_tool, None);
    let said = told.system.per_run;
    assert!(said.contains("1. [changed by the person] Do high (high {\"n\":2"));
    assert!(said.contains("2. [skipped by the person: do not do this] Do high2\n"));
    assert!(said.contains("3. Do idem (idem {})\n"), "{said}");
    scene.check(
        scene.model_calls(&[
            ScriptedCall::Valid("high", json!({"n": 2, "token": "s3cret"})),
            ScriptedCall::Valid("high2", json!({})),
        ]),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 high write_high_risk @r1.1
        tool_call_allowed c1 by ann p1 step 1 @r1.1
        tool_call_started c2 high2 write_high_risk @r1.1
        approval_requested p2 (Execute 1 tool) c2 write_high_risk within Some(60) @r1.1
        tool_call_attempt_started c1 a3 #1 @r1.1
        > start_tool c1 a3 high
    ",
    );
}

#[test]
fn g14_changes_that_cannot_be_carried_out_leave_the_question_waiting() {
    let mut scene = with_pending_preflight(json!([step("high_strict", json!({"n": 1}))]));
    let to = |tool: &str| ChecklistStepEdit { tool_name: Some(tool.to_owned()), ..edit(1) };
    for (edits, expected) in [
        (vec![edit(2)], "! the answer can't be taken: the plan has no step 2"),
        (
            vec![edit(1), edit(1)],
            "! the answer must decide at least one step, and none of them twice",
        ),
        (
            vec![ChecklistStepEdit { arguments: Some(json!({"n": "x"})), ..edit(1) }],
            "! the answer can't be taken: step 1: `/n`: value is not of type \"integer\"",
        ),
        (
            vec![to("nothing")],
            "! the answer can't be taken: step 1: there is no tool named `nothing`",
        ),
        (
            vec![to("crit")],
            "! the answer can't be taken: step 1: crit is critical, and can't be put into a plan \
             by a change",
        ),
    ] {
        scene.check(approve(&scene, edits), expected);
    }
    let stop = scene.resolve("p1", Resolution::Stop, "ann");
    scene.check(stop, "! a decision on this is `approve`, with `steps` by `position`, or `reject`");
    assert!(scene.state.is_waiting_for_approval());
    // Another tool's arguments do not go with it.
    scene.apply(approve(&scene, vec![to("high")])).unwrap();
    let plan = scene.state.active.run.as_ref().and_then(|run| run.preflight.approved());
    assert_eq!(plan.unwrap().steps[0].arguments, None);
}

#[test]
fn g14_the_model_is_forced_to_submit_a_plan_and_sees_its_tools() {
    let scene = planning();
    let request = assemble_request(&scene.state, &scene.rules, "small".to_owned());
    assert_eq!(request.forced_tool.as_deref(), Some(SUBMIT_PLAN_TOOL));
    let names: Vec<_> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names.last(), Some(&SUBMIT_PLAN_TOOL));
    assert!(names.contains(&"high"));
}
