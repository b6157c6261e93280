//! What happens when nobody answers in time (G10).

use super::*;
use crate::{
    approval::{ApprovalDeadlines, ApprovalKind, DeadlineAction, DeadlineRule},
    budget::{Budget, BudgetScope},
    policy::BudgetPeriod,
};

const TO_APPROVERS: DeadlineAction =
    DeadlineAction::Escalate { to: Role::Approver, within_ms: Some(30_000) };

/// `high` waits for a person, who has a minute; then this happens.
fn with_pending_plan(then: DeadlineAction) -> SessionHarness {
    asking_with(ApprovalDeadlines::uniform(DeadlineRule { timeout: Some(MINUTE), action: then }))
}

fn asking_with(approvals: ApprovalDeadlines) -> SessionHarness {
    let mut scene = SessionHarness::new().with_agent(|agent| agent.approval_deadlines = approvals);
    scene.apply(submit("u1")).unwrap();
    scene.propose(&scripted_calls(["high"]));
    scene
}

fn approve_as(scene: &SessionHarness, role: Role) -> Input {
    Input::AnswerApproval {
        approval_id: scene.approval("p1"),
        answer: ApprovalAnswer::Overall { approved: true, reason: None },
        for_session: None,
        by: user("bob"),
        role,
        surface: Surface::Rest,
    }
}

const ROLE_REQUIRED: &str =
    "! nobody answered in time; only somebody with the role `approver` may answer now";

#[test]
fn g10_an_escalated_question_goes_to_others_and_then_expires() {
    let mut scene = with_pending_plan(TO_APPROVERS);
    scene.advance_clock(MINUTE - SECOND).check(Input::Wake, "");
    scene
        .advance_clock(SECOND)
        .check(Input::Wake, "approval_escalated p1 to approver within Some(30) @r1.1");
    scene.check(Input::Wake, "");
    scene.check(approve_as(&scene, Role::User), ROLE_REQUIRED);
    scene.advance_clock(SECOND * 30).check(
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
        let mut scene = with_pending_plan(TO_APPROVERS);
        scene.advance_clock(MINUTE).apply(Input::Wake).unwrap();
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
        scene.check(scene.overall_answer("p1", false, "ann"), "! already decided +c1 by bob");
    }
}

#[test]
fn g10_an_escalated_question_without_a_deadline_of_its_own_waits_for_ever() {
    let mut scene =
        with_pending_plan(DeadlineAction::Escalate { to: Role::Admin, within_ms: None });
    scene
        .advance_clock(MINUTE)
        .check(Input::Wake, "approval_escalated p1 to admin within None @r1.1");
    scene.advance_clock(MINUTE * 100_000).check(Input::Wake, "");
    scene.check(Input::Rehydrated { user_settings: None }, "");
    scene.check(
        approve_as(&scene, Role::Approver),
        "! nobody answered in time; only somebody with the role `admin` may answer now",
    );
    scene.apply(approve_as(&scene, Role::Admin)).unwrap();
}

#[test]
fn g10_the_second_deadline_counts_from_the_first_however_late_it_is_noticed() {
    // Down from before the first deadline until between both.
    let mut scene = with_pending_plan(TO_APPROVERS);
    scene.advance_clock(MINUTE + SECOND * 10).check(
        Input::Rehydrated { user_settings: None },
        "approval_escalated p1 to approver within Some(20) @r1.1",
    );
    scene.advance_clock(SECOND * 20);
    scene.check(
        approve_as(&scene, Role::Approver),
        "! the approval has expired; nobody answered in time",
    );
    // Down until after both.
    let mut scene = with_pending_plan(TO_APPROVERS);
    scene.advance_clock(MINUTE * 2).check(
        Input::Rehydrated { user_settings: None },
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
fn g10_permission_to_answer_follows_the_deadline_not_the_wake_up() {
    let mut scene = with_pending_plan(TO_APPROVERS);
    let early = approve_as(&scene, Role::User);
    scene.advance_clock(MINUTE).check(early, ROLE_REQUIRED);
    scene.apply(approve_as(&scene, Role::Approver)).unwrap();
    // Before the deadline it is anybody's.
    let mut scene = with_pending_plan(TO_APPROVERS);
    let early = approve_as(&scene, Role::User);
    scene.advance_clock(MINUTE - SECOND).apply(early).unwrap();
}

#[test]
fn g10_what_was_decided_before_it_escalated_counts() {
    let approvals =
        ApprovalDeadlines::uniform(DeadlineRule { timeout: Some(MINUTE), action: TO_APPROVERS });
    let mut scene = SessionHarness::new().with_agent(|agent| agent.approval_deadlines = approvals);
    scene.apply(submit("u1")).unwrap();
    scene.propose(&scripted_calls(["high", "high2"]));
    scene.apply(scene.step_answers("p1", &[("c1", true)], "ann")).unwrap();
    scene.advance_clock(MINUTE).apply(Input::Wake).unwrap();
    // The same word again is fine though the role is wanting; a new one is not.
    scene.check(scene.step_answers("p1", &[("c1", true)], "ann"), "= decided repeated");
    scene.check(scene.step_answers("p1", &[("c2", true)], "ann"), ROLE_REQUIRED);
    scene.advance_clock(SECOND * 30).check(
        Input::Wake,
        "
        approval_expired p1 @r1.1
        tool_call_failed c2 Expired (nobody answered in time whether this call may run) @r1.1
    ",
    );
}

#[test]
fn g10_a_deadline_that_only_waits_takes_late_answers() {
    let mut scene = with_pending_plan(DeadlineAction::Wait);
    scene.advance_clock(MINUTE * 100).check(Input::Wake, "");
    scene.check(Input::Rehydrated { user_settings: None }, "");
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
    let approvals = ApprovalDeadlines::from_fn(|kind, risk| DeadlineRule {
        timeout: match (kind, risk) {
            (ApprovalKind::Plan, Risk::Critical) => Some(SECOND),
            (ApprovalKind::Plan, _) => Some(MINUTE),
            (ApprovalKind::Budget | ApprovalKind::Preflight, _) => None,
            (ApprovalKind::UnknownOutcome | ApprovalKind::Elicitation, _) => Some(SECOND),
        },
        action: DeadlineAction::Deny,
    });
    let of_run = Budget {
        scope: BudgetScope::Run,
        period: BudgetPeriod::Total,
        measure: BudgetMeasure::Tokens,
        limit: 30.0,
    };
    let mut scene = asking_with(approvals).with_agent(|agent| agent.budgets = vec![of_run]);
    assert_eq!(deadline(&scene), Some(MINUTE));
    // A plan is as urgent as the most dangerous of its steps.
    scene.apply(cancel()).unwrap();
    scene.apply(submit("u2")).unwrap();
    scene.propose(&scripted_calls(["high", "crit"]));
    assert_eq!(deadline(&scene), Some(SECOND));
    scene.apply(scene.overall_answer("p2", false, "ann")).unwrap();
    scene.propose(&scripted_calls(["low"]));
    // Nothing becomes known by waiting, whatever is configured.
    scene.apply(scene.tool_finishes("c4", timed_out())).unwrap();
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

fn deadline(scene: &SessionHarness) -> Option<Duration> {
    let approval = &scene.state.active.approvals[0].approval;
    let millis = approval.deadline?.0 - approval.requested_at.0;
    Some(Duration::from_millis(millis.try_into().unwrap()))
}

#[test]
fn g10_an_escalated_budget_question_ends_the_run_when_it_expires() {
    let of_run = Budget {
        scope: BudgetScope::Run,
        period: BudgetPeriod::Total,
        measure: BudgetMeasure::Tokens,
        limit: 15.0,
    };
    let mut scene =
        with_pending_plan(TO_APPROVERS).with_agent(|agent| agent.budgets = vec![of_run]);
    scene.apply(scene.overall_answer("p1", false, "ann")).unwrap();
    scene
        .advance_clock(MINUTE)
        .check(Input::Wake, "approval_escalated p2 to approver within Some(30) @r1.1");
    scene.check(scene.resolve("p2", Resolution::Raise(100.0), "ann"), ROLE_REQUIRED);
    scene.advance_clock(MINUTE).check(
        Input::Wake,
        "
        approval_expired p2 @r1.1
        run_failed ApprovalExpired (nobody answered in time whether to raise the budget of 15 tokens of this run) @r1.1
    ",
    );
}
