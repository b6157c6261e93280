//! Session grants (G9).

use super::*;
use crate::{approval::GrantRequest, ids::GrantId, session::SessionEvent};

fn grant(harness: &SessionHarness, approval: &str, condition: Option<&str>) -> Input {
    Input::AnswerApproval {
        approval_id: harness.approval(approval),
        answer: ApprovalAnswer::Overall { approved: true, reason: None },
        for_session: Some(GrantRequest { condition: condition.map(str::to_owned) }),
        by: user("ann"),
        role: Role::User,
        surface: Surface::Rest,
    }
}

/// Returns a session in which `high` was approved with this grant request and completed, and the
/// next step has started.
fn with_grant(condition: Option<&str>) -> SessionHarness {
    let mut harness =
        SessionHarness::with_proposed_calls(&[ScriptedCall::Valid("high", json!({"n": 1}))]);
    harness.apply(grant(&harness, "p1", condition)).unwrap();
    harness.apply(harness.tool_finishes("c1", completed())).unwrap();
    harness
}

fn requests_approval(harness: &mut SessionHarness, tool: &'static str, arguments: Value) -> bool {
    let input = harness.model_calls(&[ScriptedCall::Valid(tool, arguments)]);
    let decision = harness.apply(input).unwrap();
    let is_request =
        |record: &EventRecord| matches!(record.event, SessionEvent::ApprovalRequested { .. });
    decision.events.iter().any(is_request)
}

#[test]
fn g9_granted_tool_runs_without_approval() {
    let mut harness = with_grant(None);
    assert!(!requests_approval(&mut harness, "high", json!({"n": 9})));
    // A grant covers only its own tool.
    harness.apply(harness.tool_finishes("c2", completed())).unwrap();
    assert!(requests_approval(&mut harness, "high2", json!({})), "another tool was not granted");
}

#[test]
fn g9_condition_narrows_grant_and_failed_condition_covers_nothing() {
    assert!(!requests_approval(&mut with_grant(Some("args.n < 10")), "high", json!({"n": 9})));
    assert!(requests_approval(&mut with_grant(Some("args.n < 10")), "high", json!({"n": 10})));
    assert!(requests_approval(&mut with_grant(Some("args.n < 10")), "high", json!({})));
}

#[test]
fn g11_repeated_answer_must_request_same_grant() {
    let mut harness = with_grant(Some("args.n < 10"));
    harness.check(grant(&harness, "p1", Some("args.n < 10")), "= decided closed repeated");
    for other in [Some("args.n < 99"), Some("args.n <"), None] {
        harness.check(grant(&harness, "p1", other), "! already decided +c1 by ann");
    }
    harness.check(harness.overall_answer("p1", true, "ann"), "! already decided +c1 by ann");
    harness
        .check(harness.step_answers("p1", &[("c1", true)], "ann"), "! already decided +c1 by ann");
    assert_eq!(harness.state.active.grants.len(), 1);

    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["high"]));
    harness.apply(harness.overall_answer("p1", true, "ann")).unwrap();
    harness.check(grant(&harness, "p1", None), "! already decided +c1 by ann");
    harness.check(harness.overall_answer("p1", true, "ann"), "= decided closed repeated");
    assert!(harness.state.active.grants.is_empty());
}

#[test]
fn g11_later_answer_grants_nothing_for_decided_steps() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["high", "high2"]));
    harness.apply(harness.step_answers("p1", &[("c1", true)], "ann")).unwrap();
    let Input::AnswerApproval { approval_id, answer, by, role, surface, .. } =
        harness.step_answers("p1", &[("c1", true), ("c2", true)], "ann")
    else {
        panic!("it decides")
    };
    let for_session = Some(GrantRequest::default());
    let mixed_answer =
        Input::AnswerApproval { approval_id, answer, for_session, by, role, surface };
    harness.check(mixed_answer, "! already decided +c1 by ann");
    assert!(harness.state.active.grants.is_empty());
}

#[test]
fn g9_denial_overrides_grant() {
    let mut harness = with_grant(None);
    let settings = Settings {
        blocked_tools: [crate::ids::ToolName::parse("high").unwrap()].into(),
        ..harness.settings()
    };
    harness
        .apply(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
        .unwrap();
    let input = harness.model_calls(&scripted_calls(["high"]));
    let decision = harness.apply(input).unwrap();
    let denied =
        |record: &EventRecord| matches!(record.event, SessionEvent::AuthorizationDenied { .. });
    assert!(decision.events.iter().any(denied));
}

#[test]
fn g9_grant_is_listed_and_revoked() {
    let mut harness = with_grant(None);
    let grant_id = harness.state.active.grants[0].grant_id;
    let unknown = Some(GrantId(Uuid::from_u128(77)));
    harness.check(Input::RevokeGrants { grant_id: unknown, by: user("ann") }, "! unknown grant");
    harness.apply(Input::RevokeGrants { grant_id: Some(grant_id), by: user("ann") }).unwrap();
    assert!(harness.state.active.grants.is_empty());
    assert!(requests_approval(&mut harness, "high", json!({"n": 1})));
}

#[test]
fn g9_critical_call_can_not_be_granted() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["crit"]));
    let refused = harness.apply(grant(&harness, "p1", None)).unwrap_err();
    assert!(matches!(refused, Rejection::InvalidGrant { .. }), "{refused}");
    assert_eq!(harness.state.active.approvals.len(), 1, "the plan is still open");
}

#[test]
fn g9_invalid_condition_is_rejected() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["high"]));
    let refused = harness.apply(grant(&harness, "p1", Some("args.n <"))).unwrap_err();
    assert!(matches!(refused, Rejection::InvalidGrant { .. }), "{refused}");
}

#[test]
fn g9_rejection_can_not_be_granted() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["high"]));
    let input = Input::AnswerApproval {
        approval_id: harness.approval("p1"),
        answer: ApprovalAnswer::Overall { approved: false, reason: None },
        for_session: Some(GrantRequest::default()),
        by: user("ann"),
        role: Role::User,
        surface: Surface::Rest,
    };
    let refused = harness.apply(input).unwrap_err();
    assert!(matches!(refused, Rejection::InvalidGrant { .. }), "{refused}");
}
