//! "Approve for this session" (G9).

use super::*;
use crate::{approval::GrantWish, ids::GrantId, session::SessionEvent};

fn grant(scene: &Scene, approval: &str, condition: Option<&str>) -> Input {
    Input::DecideApproval {
        approval_id: scene.approval(approval),
        answer: ApprovalAnswer::Whole { approved: true, reason: None },
        for_session: Some(GrantWish { condition: condition.map(str::to_owned) }),
        by: user("ann"),
        role: Role::User,
        surface: Surface::Rest,
    }
}

/// A session in which `high` was approved and done, with that wish, and the model is asked again.
fn granted(condition: Option<&str>) -> Scene {
    let mut scene = Scene::calling(&[Wanted::With("high", json!({"n": 1}))]);
    scene.does(grant(&scene, "p1", condition)).unwrap();
    scene.does(scene.tool("c1", completed())).unwrap();
    scene
}

fn asks(scene: &mut Scene, tool: &'static str, arguments: Value) -> bool {
    let input = scene.model_calls(&[Wanted::With(tool, arguments)]);
    let decision = scene.does(input).unwrap();
    let asked =
        |record: &EventRecord| matches!(record.event, SessionEvent::ApprovalRequested { .. });
    decision.events.iter().any(asked)
}

#[test]
fn g9_later_calls_of_the_tool_run_without_asking() {
    let mut scene = granted(None);
    assert!(!asks(&mut scene, "high", json!({"n": 9})));
    // Bound to what runs, as any allowance.
    scene.does(scene.tool("c2", completed())).unwrap();
    assert!(asks(&mut scene, "high2", json!({})), "another tool was not granted");
}

#[test]
fn g9_a_condition_narrows_it_and_one_that_errs_covers_nothing() {
    assert!(!asks(&mut granted(Some("args.n < 10")), "high", json!({"n": 9})));
    assert!(asks(&mut granted(Some("args.n < 10")), "high", json!({"n": 10})));
    assert!(asks(&mut granted(Some("args.n < 10")), "high", json!({})));
}

#[test]
fn g11_the_same_again_wishes_the_same_for_the_session() {
    let mut scene = granted(Some("args.n < 10"));
    scene.check(grant(&scene, "p1", Some("args.n < 10")), "= decided closed repeated");
    for other in [Some("args.n < 99"), Some("args.n <"), None] {
        scene.check(grant(&scene, "p1", other), "! already decided +c1 by ann");
    }
    scene.check(scene.whole("p1", true, "ann"), "! already decided +c1 by ann");
    scene.check(scene.steps("p1", &[("c1", true)], "ann"), "! already decided +c1 by ann");
    assert_eq!(scene.state.active.grants.len(), 1);

    let mut scene = Scene::calling(&wants(["high"]));
    scene.does(scene.whole("p1", true, "ann")).unwrap();
    scene.check(grant(&scene, "p1", None), "! already decided +c1 by ann");
    scene.check(scene.whole("p1", true, "ann"), "= decided closed repeated");
    assert!(scene.state.active.grants.is_empty());
}

#[test]
fn g11_a_step_that_was_decided_is_not_granted_with_a_later_one() {
    let mut scene = Scene::calling(&wants(["high", "high2"]));
    scene.does(scene.steps("p1", &[("c1", true)], "ann")).unwrap();
    let Input::DecideApproval { approval_id, answer, by, role, surface, .. } =
        scene.steps("p1", &[("c1", true), ("c2", true)], "ann")
    else {
        panic!("it decides")
    };
    let for_session = Some(GrantWish::default());
    let both = Input::DecideApproval { approval_id, answer, for_session, by, role, surface };
    scene.check(both, "! already decided +c1 by ann");
    assert!(scene.state.active.grants.is_empty());
}

#[test]
fn g9_a_denial_is_stronger() {
    let mut scene = granted(None);
    let settings = Settings {
        blocked_tools: [crate::ids::ToolName::parse("high").unwrap()].into(),
        ..scene.settings()
    };
    scene
        .does(Input::ChangeSettings { change: settings.into(), title: None, by: user("ann") })
        .unwrap();
    let input = scene.model_calls(&wants(["high"]));
    let decision = scene.does(input).unwrap();
    let denied =
        |record: &EventRecord| matches!(record.event, SessionEvent::AuthorizationDenied { .. });
    assert!(decision.events.iter().any(denied));
}

#[test]
fn g9_it_is_listed_and_revoked() {
    let mut scene = granted(None);
    let grant_id = scene.state.active.grants[0].grant_id;
    let unknown = Some(GrantId(Uuid::from_u128(77)));
    scene.check(Input::RevokeGrants { grant_id: unknown, by: user("ann") }, "! unknown grant");
    scene.does(Input::RevokeGrants { grant_id: Some(grant_id), by: user("ann") }).unwrap();
    assert!(scene.state.active.grants.is_empty());
    assert!(asks(&mut scene, "high", json!({"n": 1})));
}

#[test]
fn g9_never_for_critical() {
    let mut scene = Scene::calling(&wants(["crit"]));
    let refused = scene.does(grant(&scene, "p1", None)).unwrap_err();
    assert!(matches!(refused, Rejection::InvalidGrant { .. }), "{refused}");
    assert_eq!(scene.state.active.approvals.len(), 1, "the plan waits still");
}

#[test]
fn g9_a_condition_that_is_no_expression_is_refused() {
    let mut scene = Scene::calling(&wants(["high"]));
    let refused = scene.does(grant(&scene, "p1", Some("args.n <"))).unwrap_err();
    assert!(matches!(refused, Rejection::InvalidGrant { .. }), "{refused}");
}

#[test]
fn g9_a_rejection_grants_nothing() {
    let mut scene = Scene::calling(&wants(["high"]));
    let input = Input::DecideApproval {
        approval_id: scene.approval("p1"),
        answer: ApprovalAnswer::Whole { approved: false, reason: None },
        for_session: Some(GrantWish::default()),
        by: user("ann"),
        role: Role::User,
        surface: Surface::Rest,
    };
    let refused = scene.does(input).unwrap_err();
    assert!(matches!(refused, Rejection::InvalidGrant { .. }), "{refused}");
}
