//! "Approve for this session" (G9).

use super::*;
use crate::{approval::GrantRequest, ids::GrantId, session::SessionEvent};

fn grant(scene: &SessionHarness, approval: &str, condition: Option<&str>) -> Input {
    Input::AnswerApproval {
        approval_id: scene.approval(approval),
        answer: ApprovalAnswer::Overall { approved: true, reason: None },
        for_session: Some(GrantRequest { condition: condition.map(str::to_owned) }),
        by: user("ann"),
        role: Role::User,
        surface: Surface::Rest,
    }
}

/// A session in which `high` was approved and done, with that wish, and the model is asked again.
fn with_grant(condition: Option<&str>) -> SessionHarness {
    let mut scene =
        SessionHarness::with_proposed_calls(&[ScriptedCall::Valid("high", json!({"n": 1}))]);
    scene.apply(grant(&scene, "p1", condition)).unwrap();
    scene.apply(scene.tool_finishes("c1", completed())).unwrap();
    scene
}

fn requests_approval(scene: &mut SessionHarness, tool: &'static str, arguments: Value) -> bool {
    let input = scene.model_calls(&[ScriptedCall::Valid(tool, arguments)]);
    let decision = scene.apply(input).unwrap();
    let asked =
        |record: &EventRecord| matches!(record.event, SessionEvent::ApprovalRequested { .. });
    decision.events.iter().any(asked)
}

#[test]
fn g9_later_calls_of_the_tool_run_without_asking() {
    let mut scene = with_grant(None);
    assert!(!requests_approval(&mut scene, "high", json!({"n": 9})));
    // Bound to what runs, as any allowance.
    scene.apply(scene.tool_finishes("c2", completed())).unwrap();
    assert!(requests_approval(&mut scene, "high2", json!({})), "another tool was not granted");
}

#[test]
fn g9_a_condition_narrows_it_and_one_that_errs_covers_nothing() {
    assert!(!requests_approval(&mut with_grant(Some("args.n < 10")), "high", json!({"n": 9})));
    assert!(requests_approval(&mut with_grant(Some("args.n < 10")), "high", json!({"n": 10})));
    assert!(requests_approval(&mut with_grant(Some("args.n < 10")), "high", json!({})));
}

#[test]
fn g11_repeated_answers_must_request_the_same_grant() {
    let mut scene = with_grant(Some("args.n < 10"));
    scene.check(grant(&scene, "p1", Some("args.n < 10")), "= decided closed repeated");
    for other in [Some("args.n < 99"), Some("args.n <"), None] {
        scene.check(grant(&scene, "p1", other), "! already decided +c1 by ann");
    }
    scene.check(scene.overall_answer("p1", true, "ann"), "! already decided +c1 by ann");
    scene.check(scene.step_answers("p1", &[("c1", true)], "ann"), "! already decided +c1 by ann");
    assert_eq!(scene.state.active.grants.len(), 1);

    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["high"]));
    scene.apply(scene.overall_answer("p1", true, "ann")).unwrap();
    scene.check(grant(&scene, "p1", None), "! already decided +c1 by ann");
    scene.check(scene.overall_answer("p1", true, "ann"), "= decided closed repeated");
    assert!(scene.state.active.grants.is_empty());
}

#[test]
fn g11_a_later_answer_grants_nothing_for_decided_steps() {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["high", "high2"]));
    scene.apply(scene.step_answers("p1", &[("c1", true)], "ann")).unwrap();
    let Input::AnswerApproval { approval_id, answer, by, role, surface, .. } =
        scene.step_answers("p1", &[("c1", true), ("c2", true)], "ann")
    else {
        panic!("it decides")
    };
    let for_session = Some(GrantRequest::default());
    let both = Input::AnswerApproval { approval_id, answer, for_session, by, role, surface };
    scene.check(both, "! already decided +c1 by ann");
    assert!(scene.state.active.grants.is_empty());
}

#[test]
fn g9_a_denial_overrides_a_grant() {
    let mut scene = with_grant(None);
    let settings = Settings {
        blocked_tools: [crate::ids::ToolName::parse("high").unwrap()].into(),
        ..scene.settings()
    };
    scene
        .apply(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
        .unwrap();
    let input = scene.model_calls(&scripted_calls(["high"]));
    let decision = scene.apply(input).unwrap();
    let denied =
        |record: &EventRecord| matches!(record.event, SessionEvent::AuthorizationDenied { .. });
    assert!(decision.events.iter().any(denied));
}

#[test]
fn g9_it_is_listed_and_revoked() {
    let mut scene = with_grant(None);
    let grant_id = scene.state.active.grants[0].grant_id;
    let unknown = Some(GrantId(Uuid::from_u128(77)));
    scene.check(Input::RevokeGrants { grant_id: unknown, by: user("ann") }, "! unknown grant");
    scene.apply(Input::RevokeGrants { grant_id: Some(grant_id), by: user("ann") }).unwrap();
    assert!(scene.state.active.grants.is_empty());
    assert!(requests_approval(&mut scene, "high", json!({"n": 1})));
}

#[test]
fn g9_never_for_critical() {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["crit"]));
    let refused = scene.apply(grant(&scene, "p1", None)).unwrap_err();
    assert!(matches!(refused, Rejection::InvalidGrant { .. }), "{refused}");
    assert_eq!(scene.state.active.approvals.len(), 1, "the plan waits still");
}

#[test]
fn g9_a_condition_that_is_no_expression_is_refused() {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["high"]));
    let refused = scene.apply(grant(&scene, "p1", Some("args.n <"))).unwrap_err();
    assert!(matches!(refused, Rejection::InvalidGrant { .. }), "{refused}");
}

#[test]
fn g9_a_rejection_grants_nothing() {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["high"]));
    let input = Input::AnswerApproval {
        approval_id: scene.approval("p1"),
        answer: ApprovalAnswer::Overall { approved: false, reason: None },
        for_session: Some(GrantRequest::default()),
        by: user("ann"),
        role: Role::User,
        surface: Surface::Rest,
    };
    let refused = scene.apply(input).unwrap_err();
    assert!(matches!(refused, Rejection::InvalidGrant { .. }), "{refused}");
}
