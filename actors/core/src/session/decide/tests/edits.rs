//! Arguments that a human edits before approval (G8).

use super::*;

fn edit(harness: &SessionHarness, call: &str, approved: bool, arguments: Value) -> Input {
    let call_id = harness.call(call);
    let reason = Some("less will do".to_owned());
    let answer = PlanStepAnswer { call_id, approved, reason, arguments: Some(arguments) };
    harness.answer("p1", ApprovalAnswer::Steps(vec![answer]), "ann")
}

fn with_pending_call(arguments: Value) -> SessionHarness {
    SessionHarness::with_proposed_calls(&[ScriptedCall::Valid("high", arguments)])
}

#[test]
fn g8_edited_arguments_run_and_are_reported_to_model() {
    let mut harness = with_pending_call(json!({"n": 1000}));
    let decision = harness.apply(edit(&harness, "c1", true, json!({"n": 10}))).unwrap();
    let [crate::session::Effect::StartTool { arguments, .. }] = &decision.effects[..] else {
        panic!("{:?}", decision.effects);
    };
    assert_eq!(arguments.to_value(), json!({"n": 10}));
    harness.apply(harness.tool_finishes("c1", completed())).unwrap();
    harness.check_conversation(
        "
        user: u1
        assistant:  [high]
        results: high: [A person changed the arguments to {\"n\":10}: less will do]
        42
    ",
    );
    // The conversation keeps the arguments that the model proposed.
    let proposed_call =
        harness.state.conversation.messages().into_iter().find_map(|message| match message {
            Message::Assistant(proposed_call) => proposed_call.calls.first().cloned(),
            Message::User { .. } | Message::ToolResults(_) => None,
        });
    assert_eq!(proposed_call.unwrap().arguments, Arguments::Json(json!({"n": 1000})));
}

#[test]
fn g8_digest_covers_edited_arguments() {
    let mut harness = with_pending_call(json!({"n": 1000}));
    harness.check(
        edit(&harness, "c1", true, json!({"n": 10})),
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
fn g8_edit_against_schema_is_rejected_and_plan_stays_open() {
    let mut harness =
        SessionHarness::with_proposed_calls(&[ScriptedCall::Valid("high_strict", json!({"n": 1}))]);
    let refused = harness.apply(edit(&harness, "c1", true, json!({"n": "many"}))).unwrap_err();
    assert!(matches!(refused, Rejection::InvalidEdit { .. }), "{refused}");
    assert_eq!(harness.state.active.approvals.len(), 1);
    harness.apply(harness.overall_answer("p1", true, "ann")).unwrap();
}

#[test]
fn x4_too_deep_edit_is_rejected_and_plan_stays_open() {
    let mut harness = with_pending_call(json!({"n": 1}));
    let deep = (0..65).fold(json!(1), |inner, _| json!([inner]));
    harness.check(
        edit(&harness, "c1", true, deep),
        "! invalid edit of c1: the arguments are nested deeper than 64 levels",
    );
    assert_eq!(harness.state.active.approvals.len(), 1);
}

#[test]
fn g8_denied_edit_is_rejected_and_plan_stays_open() {
    let mut harness = with_pending_call(json!({"n": 1}));
    let settings = Settings {
        blocked_tools: [crate::ids::ToolName::parse("high").unwrap()].into(),
        ..harness.settings()
    };
    harness
        .apply(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
        .unwrap();
    let refused = harness.apply(edit(&harness, "c1", true, json!({"n": 2}))).unwrap_err();
    let Rejection::InvalidEdit { problem, .. } = &refused else { panic!("{refused}") };
    assert!(problem.contains("blocked"), "{problem}");
}

#[test]
fn g8_rejection_with_edit_is_invalid() {
    let mut harness = with_pending_call(json!({"n": 1}));
    let refused = harness.apply(edit(&harness, "c1", false, json!({"n": 2}))).unwrap_err();
    assert!(matches!(refused, Rejection::InvalidEdit { .. }), "{refused}");
}

#[test]
fn g11_repeated_edit_is_idempotent_and_other_edit_conflicts() {
    let mut harness = with_pending_call(json!({"n": 1}));
    harness.apply(edit(&harness, "c1", true, json!({"n": 2}))).unwrap();
    harness.check(edit(&harness, "c1", true, json!({"n": 2})), "= decided closed repeated");
    let other = harness.apply(edit(&harness, "c1", true, json!({"n": 3}))).unwrap_err();
    assert!(matches!(other, Rejection::AlreadyDecided { .. }), "{other}");
    let plain = harness.apply(harness.overall_answer("p1", true, "ann")).unwrap_err();
    assert!(matches!(plain, Rejection::AlreadyDecided { .. }), "{plain}");
}

#[test]
fn e7_edit_with_placeholder_is_rejected_and_plan_stays_open() {
    let mut harness = with_pending_call(json!({"n": 1, "note": "for ann"}));
    for note in ["[redacted]", "for [redacted]"] {
        let input = edit(&harness, "c1", true, json!({"n": 1, "note": note}));
        let refused = harness.apply(input).unwrap_err();
        let Rejection::InvalidEdit { problem, .. } = &refused else { panic!("{refused}") };
        assert!(problem.starts_with("`arguments.note`: contains `[redacted]`"), "{problem}");
    }
    harness.apply(harness.overall_answer("p1", true, "ann")).unwrap();
}

/// A number beyond 64 bits, one beyond the precision of floating point, and one beyond its range.
const NUMBERS: [&str; 3] =
    ["123456789012345678901234567890", "0.1000000000000000055511151231257827", "1e+400"];

fn with_number(number: &str) -> Value {
    serde_json::from_str(&format!("{{\"n\":{number}}}")).unwrap()
}

#[test]
fn m2_numbers_reach_the_tool_with_every_digit_proposed_or_edited() {
    for number in NUMBERS {
        let arguments_passed = |edited: Option<Value>| {
            let proposed = if edited.is_some() { json!({"n": 1}) } else { with_number(number) };
            let mut harness = with_pending_call(proposed);
            let input = match edited {
                Some(edited) => edit(&harness, "c1", true, edited),
                None => harness.overall_answer("p1", true, "ann"),
            };
            let decision = harness.apply(input).unwrap();
            let [crate::session::Effect::StartTool { arguments, .. }] = &decision.effects[..]
            else {
                panic!("{:?}", decision.effects);
            };
            arguments.to_value().to_string()
        };
        let expected = format!("{{\"n\":{number}}}");
        assert_eq!(arguments_passed(None), expected);
        assert_eq!(arguments_passed(Some(with_number(number))), expected);
    }
}

#[test]
fn m2_edit_to_an_equal_number_changes_nothing() {
    let mut harness = with_pending_call(json!({"n": 1}));
    harness.check(
        edit(&harness, "c1", true, json!({"n": 1.0})),
        r#"
        approval_decided p1 +c1 by ann closed @r1.1
        tool_call_allowed c1 by ann p1 @r1.1
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 high
        = decided closed
    "#,
    );
}

#[test]
fn x4_edit_with_too_long_number_is_rejected_and_plan_stays_open() {
    let mut harness = with_pending_call(json!({"n": 1}));
    let number = "1".repeat(crate::limits::NUMBER_BYTES_MAX + 1);
    harness.check(
        edit(&harness, "c1", true, with_number(&number)),
        "! invalid edit of c1: the arguments are not supported: a number has 1001 characters; the \
         limit is 1000",
    );
    assert_eq!(harness.state.active.approvals.len(), 1);
}
