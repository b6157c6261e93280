//! What happens when nobody answers in time (G10).

use super::*;
use crate::{
    approval::{ApprovalKind, ApprovalRules, Overdue, Timing},
    budget::{Budget, Scope},
    policy::Period,
};

const TO_APPROVERS: Overdue = Overdue::Escalate { to: Role::Approver, within_ms: Some(30_000) };

/// `high` waits for a person, who has a minute; then this happens.
fn asking(then: Overdue) -> Scene {
    asking_with(ApprovalRules::always(Timing { deadline: Some(MINUTE), then }))
}

fn asking_with(approvals: ApprovalRules) -> Scene {
    let mut scene = Scene::new().agent(|agent| agent.approvals = approvals);
    scene.does(submit("u1")).unwrap();
    scene.propose(&wants(["high"]));
    scene
}

fn approve_as(scene: &Scene, role: Role) -> Input {
    Input::DecideApproval {
        approval_id: scene.approval("p1"),
        answer: ApprovalAnswer::Whole { approved: true, reason: None },
        for_session: None,
        by: user("bob"),
        role,
        surface: Surface::Rest,
    }
}

const NOT_YOURS: &str =
    "! nobody answered in time; only somebody with the role `approver` may answer now";

#[test]
fn g10_an_escalated_question_goes_to_others_and_then_expires() {
    let mut scene = asking(TO_APPROVERS);
    scene.after(MINUTE - SECOND).check(Input::Wake, "");
    scene
        .after(SECOND)
        .check(Input::Wake, "approval_escalated p1 to approver within Some(30) @r1.1");
    scene.check(Input::Wake, "");
    scene.check(approve_as(&scene, Role::User), NOT_YOURS);
    scene.after(SECOND * 30).check(
        Input::Wake,
        "
        approval_expired p1 @r1.1
        tool_call_failed c1 Expired (nobody answered in time whether this call may run) @r1.1
        step_started a2 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a2 M2 @r1.2
    ",
    );
    scene.check(
        approve_as(&scene, Role::Admin),
        "! the approval has expired; nobody answered in time",
    );
}

#[test]
fn g10_who_has_the_role_answers_an_escalated_question() {
    for role in [Role::Approver, Role::Admin] {
        let mut scene = asking(TO_APPROVERS);
        scene.after(MINUTE).does(Input::Wake).unwrap();
        scene.check(
            approve_as(&scene, role),
            "
            approval_decided p1 +c1 by bob closed @r1.1
            tool_call_allowed c1 by bob p1 @r1.1
            tool_call_attempt_started c1 a2 #1 @r1.1
            > start_tool c1 a2 high
            = decided closed
        ",
        );
        // The same again is fine for whom it was, and says nothing new to others (G11).
        scene.check(approve_as(&scene, role), "= decided closed repeated");
        scene.check(scene.whole("p1", false, "ann"), "! already decided +c1 by bob");
    }
}

#[test]
fn g10_an_escalated_question_without_a_deadline_of_its_own_waits_for_ever() {
    let mut scene = asking(Overdue::Escalate { to: Role::Admin, within_ms: None });
    scene.after(MINUTE).check(Input::Wake, "approval_escalated p1 to admin within None @r1.1");
    scene.after(MINUTE * 100_000).check(Input::Wake, "");
    scene.check(Input::Rehydrated { within: None }, "");
    scene.check(
        approve_as(&scene, Role::Approver),
        "! nobody answered in time; only somebody with the role `admin` may answer now",
    );
    scene.does(approve_as(&scene, Role::Admin)).unwrap();
}

#[test]
fn g10_the_second_deadline_counts_from_the_first_however_late_it_is_noticed() {
    // Down from before the first deadline until between both.
    let mut scene = asking(TO_APPROVERS);
    scene.after(MINUTE + SECOND * 10).check(
        Input::Rehydrated { within: None },
        "approval_escalated p1 to approver within Some(20) @r1.1",
    );
    scene.after(SECOND * 20);
    scene.check(
        approve_as(&scene, Role::Approver),
        "! the approval has expired; nobody answered in time",
    );
    // Down until after both.
    let mut scene = asking(TO_APPROVERS);
    scene.after(MINUTE * 2).check(
        Input::Rehydrated { within: None },
        "
        approval_escalated p1 to approver within Some(-30) @r1.1
        approval_expired p1 @r1.1
        tool_call_failed c1 Expired (nobody answered in time whether this call may run) @r1.1
        step_started a2 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a2 M2 @r1.2
    ",
    );
}

#[test]
fn g10_who_may_answer_depends_on_the_time_not_on_whether_it_was_noticed() {
    let mut scene = asking(TO_APPROVERS);
    let early = approve_as(&scene, Role::User);
    scene.after(MINUTE).check(early, NOT_YOURS);
    scene.does(approve_as(&scene, Role::Approver)).unwrap();
    // Before the deadline it is anybody's.
    let mut scene = asking(TO_APPROVERS);
    let early = approve_as(&scene, Role::User);
    scene.after(MINUTE - SECOND).does(early).unwrap();
}

#[test]
fn g10_what_was_decided_before_it_escalated_counts() {
    let approvals = ApprovalRules::always(Timing { deadline: Some(MINUTE), then: TO_APPROVERS });
    let mut scene = Scene::new().agent(|agent| agent.approvals = approvals);
    scene.does(submit("u1")).unwrap();
    scene.propose(&wants(["high", "high2"]));
    scene.does(scene.steps("p1", &[("c1", true)], "ann")).unwrap();
    scene.after(MINUTE).does(Input::Wake).unwrap();
    // The same word again is fine though the role is wanting; a new one is not.
    scene.check(scene.steps("p1", &[("c1", true)], "ann"), "= decided repeated");
    scene.check(scene.steps("p1", &[("c2", true)], "ann"), NOT_YOURS);
    scene.after(SECOND * 30).check(
        Input::Wake,
        "
        approval_expired p1 @r1.1
        tool_call_failed c2 Expired (nobody answered in time whether this call may run) @r1.1
    ",
    );
}

#[test]
fn g10_a_deadline_that_only_waits_takes_late_answers() {
    let mut scene = asking(Overdue::Wait);
    scene.after(MINUTE * 100).check(Input::Wake, "");
    scene.check(Input::Rehydrated { within: None }, "");
    scene.check(
        approve_as(&scene, Role::User),
        "
        approval_decided p1 +c1 by bob closed @r1.1
        tool_call_allowed c1 by bob p1 @r1.1
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 high
        = decided closed
    ",
    );
}

#[test]
fn g10_each_kind_and_risk_has_its_own_deadline() {
    let approvals = ApprovalRules::by(|kind, risk| Timing {
        deadline: match (kind, risk) {
            (ApprovalKind::Plan, Risk::Critical) => Some(SECOND),
            (ApprovalKind::Plan, _) => Some(MINUTE),
            (ApprovalKind::Budget | ApprovalKind::Preflight, _) => None,
            (ApprovalKind::UnknownOutcome | ApprovalKind::Elicitation, _) => Some(SECOND),
        },
        then: Overdue::Deny,
    });
    let of_run =
        Budget { scope: Scope::Run, period: Period::Total, measure: Measure::Tokens, limit: 30.0 };
    let mut scene = asking_with(approvals).agent(|agent| agent.budgets = vec![of_run]);
    assert_eq!(deadline(&scene), Some(MINUTE));
    // A plan is as urgent as the most dangerous of its steps.
    scene.does(cancel()).unwrap();
    scene.does(submit("u2")).unwrap();
    scene.propose(&wants(["high", "crit"]));
    assert_eq!(deadline(&scene), Some(SECOND));
    scene.does(scene.whole("p2", false, "ann")).unwrap();
    scene.propose(&wants(["low"]));
    // Nothing becomes known by waiting, whatever is configured.
    scene.does(scene.tool("c4", timed_out())).unwrap();
    assert_eq!(deadline(&scene), None);
    scene.check(
        scene.resolve("p3", Resolution::Failed, "ann"),
        "
        approval_decided p3 failed by ann closed @r2.2
        tool_call_failed c4 Error (a person says that the call did not take effect) @r2.2
        budget_reached (budget of 30 tokens of this run) spent 30 needs 0 @r2.2
        approval_requested p4 (Raise the budget of 30 tokens of this run, or stop the run) read_only within None @r2.2
        = decided closed
    ",
    );
}

fn deadline(scene: &Scene) -> Option<Duration> {
    let approval = &scene.state.active.approvals[0].approval;
    let millis = approval.deadline?.0 - approval.requested_at.0;
    Some(Duration::from_millis(millis.try_into().unwrap()))
}

#[test]
fn g10_an_escalated_budget_question_ends_the_run_when_it_expires() {
    let of_run =
        Budget { scope: Scope::Run, period: Period::Total, measure: Measure::Tokens, limit: 15.0 };
    let mut scene = asking(TO_APPROVERS).agent(|agent| agent.budgets = vec![of_run]);
    scene.does(scene.whole("p1", false, "ann")).unwrap();
    scene
        .after(MINUTE)
        .check(Input::Wake, "approval_escalated p2 to approver within Some(30) @r1.1");
    scene.check(scene.resolve("p2", Resolution::Raise(100.0), "ann"), NOT_YOURS);
    scene.after(MINUTE).check(
        Input::Wake,
        "
        approval_expired p2 @r1.1
        run_failed ApprovalExpired (nobody answered in time whether to raise the budget of 15 tokens of this run) @r1.1
    ",
    );
}
