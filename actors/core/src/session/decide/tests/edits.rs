//! Arguments that people change before they approve (G8).

use super::*;

fn edit(scene: &SessionHarness, call: &str, approved: bool, arguments: Value) -> Input {
    let call_id = scene.call(call);
    let reason = Some("less will do".to_owned());
    let answer = PlanStepAnswer { call_id, approved, reason, arguments: Some(arguments) };
    scene.answer("p1", ApprovalAnswer::Steps(vec![answer]), "ann")
}

fn buying(arguments: Value) -> SessionHarness {
    SessionHarness::with_proposed_calls(&[ScriptedCall::Valid("high", arguments)])
}

#[test]
fn g8_what_was_edited_is_what_runs_and_the_model_is_told() {
    let mut scene = buying(json!({"n": 1000}));
    let decision = scene.apply(edit(&scene, "c1", true, json!({"n": 10}))).unwrap();
    let [crate::session::Effect::StartTool { arguments, .. }] = &decision.effects[..] else {
        panic!("{:?}", decision.effects);
    };
    assert_eq!(arguments.to_value(), json!({"n": 10}));
    scene.apply(scene.tool_finishes("c1", completed())).unwrap();
    scene.check_conversation(
        "
        user: u1
        assistant:  [high]
        results: high: [A person changed the arguments to {\"n\":10}: less will do]
        42
    ",
    );
    // What the model had said is still what it had said.
    let said = scene.state.conversation.messages().into_iter().find_map(|message| match message {
        Message::Assistant(said) => said.calls.first().cloned(),
        Message::User { .. } | Message::ToolResults(_) => None,
    });
    assert_eq!(said.unwrap().arguments, Arguments::Json(json!({"n": 1000})));
}

#[test]
fn g8_the_digest_is_that_of_the_edited_arguments() {
    let mut scene = buying(json!({"n": 1000}));
    scene.check(
        edit(&scene, "c1", true, json!({"n": 10})),
        r#"
        approval_decided p1 +c1 by ann closed @r1.1
        tool_call_allowed c1 by ann p1 as {"n":10} @r1.1
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 high
        = decided closed
    "#,
    );
}

#[test]
fn g8_an_edit_that_breaks_the_schema_leaves_the_plan_waiting() {
    let mut scene =
        SessionHarness::with_proposed_calls(&[ScriptedCall::Valid("high_strict", json!({"n": 1}))]);
    let refused = scene.apply(edit(&scene, "c1", true, json!({"n": "many"}))).unwrap_err();
    assert!(matches!(refused, Rejection::InvalidEdit { .. }), "{refused}");
    assert_eq!(scene.state.active.approvals.len(), 1);
    scene.apply(scene.overall_answer("p1", true, "ann")).unwrap();
}

#[test]
fn x4_an_edit_that_is_nested_too_deep_leaves_the_plan_waiting() {
    let mut scene = buying(json!({"n": 1}));
    let deep = (0..65).fold(json!(1), |inner, _| json!([inner]));
    scene.check(
        edit(&scene, "c1", true, deep),
        "! invalid edit of c1: the arguments are nested deeper than 64 levels",
    );
    assert_eq!(scene.state.active.approvals.len(), 1);
}

#[test]
fn g8_an_edit_that_the_policy_denies_leaves_the_plan_waiting() {
    let mut scene = buying(json!({"n": 1}));
    let settings = Settings {
        blocked_tools: [crate::ids::ToolName::parse("high").unwrap()].into(),
        ..scene.settings()
    };
    scene
        .apply(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
        .unwrap();
    let refused = scene.apply(edit(&scene, "c1", true, json!({"n": 2}))).unwrap_err();
    let Rejection::InvalidEdit { problem, .. } = &refused else { panic!("{refused}") };
    assert!(problem.contains("blocked"), "{problem}");
}

#[test]
fn g8_a_rejection_edits_nothing() {
    let mut scene = buying(json!({"n": 1}));
    let refused = scene.apply(edit(&scene, "c1", false, json!({"n": 2}))).unwrap_err();
    assert!(matches!(refused, Rejection::InvalidEdit { .. }), "{refused}");
}

#[test]
fn g11_the_same_edit_again_is_fine_and_another_is_not() {
    let mut scene = buying(json!({"n": 1}));
    scene.apply(edit(&scene, "c1", true, json!({"n": 2}))).unwrap();
    scene.check(edit(&scene, "c1", true, json!({"n": 2})), "= decided closed repeated");
    let other = scene.apply(edit(&scene, "c1", true, json!({"n": 3}))).unwrap_err();
    assert!(matches!(other, Rejection::AlreadyDecided { .. }), "{other}");
    let plain = scene.apply(scene.overall_answer("p1", true, "ann")).unwrap_err();
    assert!(matches!(plain, Rejection::AlreadyDecided { .. }), "{plain}");
}

#[test]
fn e7_a_replacement_leaves_the_plan_waiting() {
    let mut scene = buying(json!({"n": 1, "note": "for ann"}));
    for note in ["[redacted]", "for [redacted]"] {
        let input = edit(&scene, "c1", true, json!({"n": 1, "note": note}));
        let refused = scene.apply(input).unwrap_err();
        let Rejection::InvalidEdit { problem, .. } = &refused else { panic!("{refused}") };
        assert!(problem.starts_with("`arguments.note`: contains `[redacted]`"), "{problem}");
    }
    scene.apply(scene.overall_answer("p1", true, "ann")).unwrap();
}
