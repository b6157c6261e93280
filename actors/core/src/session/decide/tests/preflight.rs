//! Preflight: the plan before the first step and the calls that its approval covers (G14).

use super::*;
use crate::{
    approval::ApprovalSubject,
    context::assemble_request,
    preflight::{Checklist, ChecklistStepEdit, SUBMIT_PLAN_TOOL},
    usage::ModelPrice,
};

/// Returns the input that plan_submitted a message with a preflight.
fn submit_preflight(message_id: &str) -> Input {
    let mut input = submit(message_id);
    if let Input::SubmitMessage { message: NewMessage { preflight, .. }, .. } = &mut input {
        *preflight = Some(true);
    }
    input
}

/// Returns a session whose model has been sent the request for its plan.
fn with_planning_attempt() -> SessionHarness {
    let mut harness = SessionHarness::new();
    harness.apply(submit_preflight("u1")).unwrap();
    harness
}

/// Returns the input in which the model plan_submitted these steps.
fn plan_submitted(harness: &SessionHarness, steps: Value) -> Input {
    harness.model_calls(&[ScriptedCall::Valid(SUBMIT_PLAN_TOOL, json!({"steps": steps}))])
}

fn step(tool: &str, arguments: Value) -> Value {
    json!({"description": format!("Do {tool}"), "tool": tool, "arguments": arguments})
}

/// Returns a session in which a preflight with these steps waits for approval.
fn with_pending_preflight(steps: Value) -> SessionHarness {
    let mut harness = with_planning_attempt();
    harness.apply(plan_submitted(&harness, steps)).unwrap();
    harness
}

/// Returns a session in which a preflight with these steps was approved and the first step streams.
fn with_approved_preflight(steps: Value) -> SessionHarness {
    let mut harness = with_pending_preflight(steps);
    harness.apply(harness.overall_answer("p1", true, "ann")).unwrap();
    harness
}

fn approve(harness: &SessionHarness, edits: Vec<ChecklistStepEdit>) -> Input {
    harness.resolve("p1", Resolution::Approve(edits), "ann")
}

fn edit(position: u32) -> ChecklistStepEdit {
    ChecklistStepEdit { position, ..ChecklistStepEdit::default() }
}

fn checklist(harness: &SessionHarness) -> Checklist {
    let approval = &harness.state.active.approvals[0].approval;
    let ApprovalSubject::Preflight(checklist) = &approval.subject else { panic!("{approval:?}") };
    checklist.clone()
}

#[test]
fn g14_preflight_plan_needs_approval_before_first_step() {
    let mut harness = SessionHarness::new();
    harness.check(
        submit_preflight("u1"),
        "
        message_accepted u1 @r1
        run_started u1 preflight @r1
        step_started a1 #1 small planning @r1
        > start_model a1 - @r1.0
        = submitted r1 seq 2
    ",
    );
    harness.check(
        plan_submitted(&harness, json!([step("high", json!({"quantity": 1000}))])),
        "
        step_completed ToolUse 10 @r1
        approval_requested p1 (Carry out a plan of 1 step) write_high_risk within Some(60) @r1
    ",
    );
    assert!(harness.state.is_waiting_for_approval());
    harness.check(
        harness.overall_answer("p1", true, "ann"),
        "
        approval_decided p1 approve by ann closed @r1
        preflight_approved p1 +1 by ann @r1
        step_started a2 #1 small @r1.1
        message_started M1 @r1.1
        > start_model a2 M1 @r1.1
        = decided closed
    ",
    );
    harness.check(
        harness.model_calls(&[ScriptedCall::Valid("high", json!({"quantity": 1000}))]),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 high write_high_risk @r1.1
        tool_call_allowed c1 by ann p1 step 1 @r1.1
        tool_call_attempt_started c1 a3 #1 @r1.1
        > start_tool c1 a3 high
    ",
    );
    harness.apply(harness.tool_finishes("c1", completed())).unwrap();
    harness.check(
        harness.model_answers("Done."),
        "
        message_completed M2 'Done.' @r1.2
        step_completed EndTurn 10 @r1.2
        run_completed M2 30 @r1.2
    ",
    );
    harness.check_conversation(
        "
        user: u1
        assistant:  [high]
        results: high: 42
        assistant: Done.
    ",
    );
}

#[test]
fn g14_approved_step_does_not_cover_other_arguments() {
    let mut harness = with_approved_preflight(json!([step("high", json!({"quantity": 1000}))]));
    harness.check(
        harness.model_calls(&[
            ScriptedCall::Valid("high", json!({"quantity": 1_000_000})),
            ScriptedCall::Valid("high", json!({"quantity": "1000"})),
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
fn m2_g14_approved_step_covers_equal_numbers() {
    let mut harness = with_approved_preflight(json!([step("high", json!({"quantity": 1000}))]));
    harness.check(
        harness.model_calls(&[ScriptedCall::Valid("high", json!({"quantity": 1000.0}))]),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 high write_high_risk @r1.1
        tool_call_allowed c1 by ann p1 step 1 @r1.1
        tool_call_attempt_started c1 a3 #1 @r1.1
        > start_tool c1 a3 high
    ",
    );
}

#[test]
fn g14_each_step_covers_one_call_across_restart() {
    let same = || ScriptedCall::Valid("beside", json!({"n": 1}));
    let mut harness = with_approved_preflight(json!([step("beside", json!({"n": 1}))]));
    harness.apply(Input::Rehydrated { user_settings: None }).unwrap();
    harness.check(
        harness.model_calls(&[same(), same()]),
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
    let plan = harness.state.active.run.as_ref().and_then(|run| run.preflight.approved());
    assert_eq!(plan.map(|plan| plan.used_positions.clone()), Some([1].into()));
}

#[test]
fn g14_denial_overrides_approved_step() {
    let mut harness =
        with_approved_preflight(json!([step("high", json!({})), step("crit", json!({}))]));
    let settings = Settings { autonomy_level: Autonomy::ReadOnly, ..Settings::default() };
    harness
        .apply(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
        .unwrap();
    harness.check(
        harness.model_calls(&scripted_calls(["high", "crit"])),
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
fn g14_step_without_arguments_covers_only_low_risk() {
    let open = |tool: &str| json!({"description": "d", "tool": tool});
    let mut harness = SessionHarness::new().with_rules(|rules| {
        rules.matrix = Arc::new(crate::policy::MatrixPreset::AskFirst.into());
    });
    let settings = Settings { autonomy_level: Autonomy::ReadOnly, ..Settings::default() };
    harness
        .apply(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
        .unwrap();
    harness.apply(submit_preflight("u1")).unwrap();
    harness.apply(plan_submitted(&harness, json!([open("low"), open("high")]))).unwrap();
    let expected = "step 2: no arguments are given; the call will need approval";
    assert!(
        checklist(&harness).warnings.iter().any(|warning| warning == expected),
        "{:?}",
        checklist(&harness)
    );
    harness.apply(harness.overall_answer("p1", true, "ann")).unwrap();
    harness.check(
        harness.model_calls(&scripted_calls(["high", "low", "low"])),
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
fn g14_rejected_preflight_cancels_run() {
    let mut harness = with_pending_preflight(json!([step("high", json!({}))]));
    harness.apply(submit("u2")).unwrap();
    harness.check(
        harness.overall_answer("p1", false, "bob"),
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
    // A repeated rejection is accepted in both forms; a different answer conflicts.
    harness.check(harness.overall_answer("p1", false, "bob"), "= decided closed repeated");
    harness.check(harness.resolve("p1", Resolution::Reject, "bob"), "= decided closed repeated");
    harness.check(harness.overall_answer("p1", true, "bob"), "! already decided reject by bob");
}

#[test]
fn g14_unanswered_preflight_fails_run() {
    let mut harness = with_pending_preflight(json!([step("high", json!({}))]));
    harness.advance_clock(MINUTE).check(
        Input::Wake,
        "
        approval_expired p1 @r1
        run_failed ApprovalExpired (the approval of the plan expired without an answer) @r1
    ",
    );
    let late_answer = harness.overall_answer("p1", true, "ann");
    harness.check(late_answer, "! the approval has expired: its deadline has passed");
}

#[test]
fn g14_missing_plan_falls_back_to_normal_approval() {
    let mut harness = with_planning_attempt();
    harness.check(
        harness.model_answers("I would rather talk."),
        "
        step_completed EndTurn 10 @r1
        preflight_skipped (the model submitted no plan; normal approval rules apply) @r1
        step_started a2 #1 small @r1.1
        message_started M1 @r1.1
        > start_model a2 M1 @r1.1
    ",
    );
    harness.apply(harness.model_calls(&scripted_calls(["high"]))).unwrap();
    assert_eq!(harness.state.active.approvals[0].approval.kind().name(), "plan");
    let mut harness = with_planning_attempt();
    harness.check(
        harness.model_calls(&[ScriptedCall::Malformed(SUBMIT_PLAN_TOOL)]),
        "
        step_completed ToolUse 10 @r1
        preflight_skipped (the model's plan is invalid: not JSON; normal approval rules apply) @r1
        step_started a2 #1 small @r1.1
        message_started M1 @r1.1
        > start_model a2 M1 @r1.1
    ",
    );
}

#[test]
fn g14_headless_runs_skip_preflight() {
    let mut harness = SessionHarness::new().with_agent(|agent| agent.headless = true);
    harness.check(
        submit_preflight("u1"),
        "
        message_accepted u1 @r1
        run_started u1 preflight @r1
        preflight_skipped (no plan was requested: the agent is headless) @r1
        step_started a1 #1 small @r1.1
        message_started M1 @r1.1
        > start_model a1 M1 @r1.1
        = submitted r1 seq 2
    ",
    );
}

#[test]
fn g14_session_setting_applies_by_default() {
    let settings = Settings { preflight: true, ..Settings::default() };
    let mut harness = SessionHarness::new();
    harness
        .apply(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
        .unwrap();
    harness.apply(submit("u1")).unwrap();
    let is_planning =
        |harness: &SessionHarness| harness.state.active.run.as_ref().unwrap().is_planning();
    assert!(is_planning(&harness));
    let mut plain = submit("u2");
    if let Input::SubmitMessage { message: NewMessage { preflight, .. }, .. } = &mut plain {
        *preflight = Some(false);
    }
    harness.apply(plain).unwrap();
    harness.apply(cancel()).unwrap();
    assert!(!is_planning(&harness), "the queued message turns it off");
}

#[test]
fn m3_planning_call_is_retried_and_is_not_a_step() {
    let mut harness = with_planning_attempt();
    harness.check(
        harness.model_fails(ModelFailure::temporary("overloaded"), false),
        "step_retrying #1 failures 1 (overloaded) @r1",
    );
    harness.advance_clock(MINUTE).check(
        Input::Wake,
        "
        step_started a2 #2 small planning @r1
        > start_model a2 - @r1.0
    ",
    );
    harness.check(
        Input::Rehydrated { user_settings: None },
        "
        step_retrying #2 failures 1 (the server restarted) @r1
        step_started a3 #3 small planning @r1
        > start_model a3 - @r1.0
    ",
    );
    harness.check(
        cancel_with("half a plan"),
        "
        step_completed EndTurn 10 @r1
        run_cancelled by ann @r1
        > stop_model a3
        = cancelled r1
    ",
    );
    harness.check_conversation("user: u1");
}

#[test]
fn s2_planning_call_does_not_count_as_step() {
    let mut harness = SessionHarness::new().with_agent(|agent| agent.max_steps = 1);
    harness.apply(submit_preflight("u1")).unwrap();
    harness.apply(plan_submitted(&harness, json!([step("high", json!({}))]))).unwrap();
    harness.apply(harness.overall_answer("p1", true, "ann")).unwrap();
    harness.apply(harness.model_answers("Done.")).unwrap();
    assert!(harness.state.is_idle());
    assert_eq!(
        harness.state.usage.tokens.input_tokens, 20,
        "the tokens of the planning call count"
    );
}

#[test]
fn g14_checklist_contents() {
    let mut harness = SessionHarness::new();
    harness.rules.prices =
        Arc::new([("small".to_owned(), ModelPrice::new(1.into(), 10.into()))].into());
    let settings = Settings { autonomy_level: Autonomy::Recommendations, ..Settings::default() };
    harness
        .apply(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
        .unwrap();
    harness.apply(submit_preflight("u1")).unwrap();
    let steps = json!([
        {"description": "Think"},
        step("read", json!({})),
        step("high", json!({"n": 1})),
        step("crit", json!({})),
        step("high_strict", json!({"n": "one"})),
        step("nothing", json!({})),
    ]);
    let plan = json!({"steps": steps, "warnings": ["It may rain."]});
    harness.apply(harness.model_calls(&[ScriptedCall::Valid(SUBMIT_PLAN_TOOL, plan)])).unwrap();
    let value = serde_json::to_value(checklist(&harness)).unwrap();
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
            "step 4: the call will be denied: crit is critical: requires autonomy level ASSISTED (L2) or \
             higher; current level: RECOMMENDATIONS",
            "step 5: invalid arguments for high_strict: `/n`: value is not of type \"integer\"",
            "step 6: there is no tool named `nothing`",
            "the plan may need 6 model calls; the limit of a run is 5",
        ],
    });
    assert_eq!(value, expected, "{value:#}");
}

#[test]
fn g14_unknown_price_and_small_budget_cause_warnings() {
    let mut harness = SessionHarness::new().with_agent(|agent| {
        let (scope, period) = (crate::budget::BudgetScope::Run, Default::default());
        let measure = crate::budget::BudgetMeasure::Tokens;
        agent.budgets = vec![crate::budget::Budget { scope, period, measure, limit: 20.into() }];
    });
    harness.apply(submit_preflight("u1")).unwrap();
    harness.apply(plan_submitted(&harness, json!([step("high", json!({}))]))).unwrap();
    let checklist = checklist(&harness);
    assert_eq!(checklist.estimated_cost.estimated_usd, None);
    let expected = [
        "the price of the model `small` is unknown",
        "the plan may cost 30 tokens, but the budget of 20 tokens of this run has 5 left; a \
         raise will need approval",
    ];
    assert_eq!(checklist.warnings, expected);
}

#[test]
fn e7_placeholders_never_shown_are_rejected_in_steps() {
    let mut harness =
        with_pending_preflight(json!([step("high", json!({"n": 1})), step("idem", Value::Null)]));
    for position in [1, 2] {
        let arguments = Some(json!({"n": 2, "token": crate::scrub::REDACTED}));
        let edits = vec![ChecklistStepEdit { arguments, ..edit(position) }];
        let refused = harness.apply(approve(&harness, edits)).unwrap_err();
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
    let mut harness = with_pending_preflight(steps);
    let edits = vec![
        ChecklistStepEdit { arguments: Some(json!({"n": 2, "token": "s3cret"})), ..edit(1) },
        ChecklistStepEdit { skip: true, ..edit(2) },
        ChecklistStepEdit { description: Some("Do idem".to_owned()), ..edit(3) },
    ];
    harness.check(
        approve(&harness, edits.clone()),
        "
        approval_decided p1 approve by ann closed @r1
        preflight_approved p1 ~1 -2 +3 by ann @r1
        step_started a2 #1 small @r1.1
        message_started M1 @r1.1
        > start_model a2 M1 @r1.1
        = decided closed
    ",
    );
    harness.check(approve(&harness, edits), "= decided closed repeated");
    harness.check(approve(&harness, vec![]), "! already decided approve by ann");
    let request = assemble_request(&harness.state, &harness.rules, "small".to_owned());
    assert_eq!(request.forced_tool, None);
    let prompt = request.system.per_run;
    assert!(prompt.contains("1. [changed by the approver] Do high (high {\"n\":2"));
    assert!(prompt.contains("2. [skipped by the approver: do not do this] Do high2\n"));
    assert!(prompt.contains("3. Do idem (idem {})\n"), "{prompt}");
    harness.check(
        harness.model_calls(&[
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
fn g14_invalid_edits_are_rejected_and_approval_stays_open() {
    let mut harness = with_pending_preflight(json!([step("high_strict", json!({"n": 1}))]));
    let to = |tool: &str| ChecklistStepEdit { tool_name: Some(tool.to_owned()), ..edit(1) };
    for (edits, expected) in [
        (vec![edit(2)], "! invalid answer: the plan has no step 2"),
        (vec![edit(1), edit(1)], "! the answer must decide at least one step, and no step twice"),
        (
            vec![ChecklistStepEdit { arguments: Some(json!({"n": "x"})), ..edit(1) }],
            "! invalid answer: step 1: `/n`: value is not of type \"integer\"",
        ),
        (vec![to("nothing")], "! invalid answer: step 1: there is no tool named `nothing`"),
        (
            vec![to("crit")],
            "! invalid answer: step 1: crit is critical; an edit can't add a critical \
             call to a plan",
        ),
    ] {
        harness.check(approve(&harness, edits), expected);
    }
    let stop = harness.resolve("p1", Resolution::Stop, "ann");
    harness.check(stop, "! unsupported answer; this approval accepts `approve`, with `steps` by `position`, or `reject`");
    assert!(harness.state.is_waiting_for_approval());
    // A changed tool does not keep the arguments of the previous one.
    harness.apply(approve(&harness, vec![to("high")])).unwrap();
    let plan = harness.state.active.run.as_ref().and_then(|run| run.preflight.approved());
    assert_eq!(plan.unwrap().steps[0].arguments, None);
}

#[test]
fn g14_model_is_forced_to_submit_plan_with_tool_list() {
    let harness = with_planning_attempt();
    let request = assemble_request(&harness.state, &harness.rules, "small".to_owned());
    assert_eq!(request.forced_tool.as_deref(), Some(SUBMIT_PLAN_TOOL));
    let names: Vec<_> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names.last(), Some(&SUBMIT_PLAN_TOOL));
    assert!(names.contains(&"high"));
}

#[test]
fn m3_plan_of_refused_message_is_not_used() {
    let mut harness = with_planning_attempt();
    let calls =
        [ScriptedCall::Valid(SUBMIT_PLAN_TOOL, json!({"steps": [step("read", json!({"n": 1}))]}))];
    harness.check(
        harness.model_stops("", &calls, StopReason::ContentFilter),
        "
        step_completed ContentFilter 10 @r1
        preflight_skipped (the model refused to write a plan; normal approval rules apply) @r1
        step_started a2 #1 small @r1.1
        message_started M1 @r1.1
        > start_model a2 M1 @r1.1
    ",
    );
}
