//! Approval deadlines: expiry and escalation (G10).

use super::*;
use crate::{
    approval::{ApprovalDeadlines, ApprovalKind, DeadlineAction, DeadlineRule},
    budget::{Budget, BudgetScope},
    policy::BudgetPeriod,
};

const TO_APPROVERS: DeadlineAction =
    DeadlineAction::Escalate { to: Role::Approver, within_ms: Some(30_000) };

/// Returns a session in which `high` waits for approval, with a deadline of one minute and this
/// action.
fn with_pending_plan(action: DeadlineAction) -> SessionHarness {
    with_approval_deadlines(ApprovalDeadlines::uniform(DeadlineRule {
        timeout: Some(MINUTE),
        action,
    }))
}

fn with_approval_deadlines(approvals: ApprovalDeadlines) -> SessionHarness {
    let mut harness =
        SessionHarness::new().with_agent(|agent| agent.approval_deadlines = approvals);
    harness.apply(submit("u1")).unwrap();
    harness.propose(&scripted_calls(["high"]));
    harness
}

fn approve_as(harness: &SessionHarness, role: Role) -> Input {
    Input::AnswerApproval {
        approval_id: harness.approval("p1"),
        answer: ApprovalAnswer::Overall { approved: true, reason: None },
        for_session: None,
        by: user("bob"),
        role,
        surface: Surface::Rest,
    }
}

const ROLE_REQUIRED: &str =
    "! the deadline has passed; answering now requires the role `approver` or higher";

#[test]
fn g10_escalated_approval_expires_at_second_deadline() {
    let mut harness = with_pending_plan(TO_APPROVERS);
    harness.advance_clock(MINUTE - SECOND).check(Input::Wake, "");
    harness
        .advance_clock(SECOND)
        .check(Input::Wake, "approval_escalated p1 to approver within Some(30) @r1.1");
    harness.check(Input::Wake, "");
    harness.check(approve_as(&harness, Role::User), ROLE_REQUIRED);
    harness.advance_clock(SECOND * 30).check(
        Input::Wake,
        "
        approval_expired p1 @r1.1
        tool_call_failed c1 Expired (the approval expired without an answer) @r1.1
        step_started a2 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a2 M2 @r1.2
    ",
    );
    harness.check(
        approve_as(&harness, Role::Admin),
        "! the approval has expired: its deadline has passed",
    );
}

#[test]
fn g10_escalated_approval_accepts_answers_of_required_role() {
    for role in [Role::Approver, Role::Admin] {
        let mut harness = with_pending_plan(TO_APPROVERS);
        harness.advance_clock(MINUTE).apply(Input::Wake).unwrap();
        harness.check(
            approve_as(&harness, role),
            "
            approval_decided p1 +c1 by bob closed @r1.1
            tool_call_allowed c1 by bob p1 @r1.1
            tool_call_attempt_started c1 a2 #1 @r1.1
            > start_tool c1 a2 high
            = decided closed
        ",
        );
        // A repeated answer by the same user is accepted; another user's answer conflicts (G11).
        harness.check(approve_as(&harness, role), "= decided closed repeated");
        harness.check(harness.overall_answer("p1", false, "ann"), "! already decided +c1 by bob");
    }
}

#[test]
fn g10_escalation_without_deadline_never_expires() {
    let mut harness =
        with_pending_plan(DeadlineAction::Escalate { to: Role::Admin, within_ms: None });
    harness
        .advance_clock(MINUTE)
        .check(Input::Wake, "approval_escalated p1 to admin within None @r1.1");
    harness.advance_clock(MINUTE * 100_000).check(Input::Wake, "");
    harness.check(Input::Rehydrated { user_settings: None }, "");
    harness.check(
        approve_as(&harness, Role::Approver),
        "! the deadline has passed; answering now requires the role `admin` or higher",
    );
    harness.apply(approve_as(&harness, Role::Admin)).unwrap();
}

#[test]
fn g10_second_deadline_counts_from_first() {
    // The process is down from before the first deadline until between both.
    let mut harness = with_pending_plan(TO_APPROVERS);
    harness.advance_clock(MINUTE + SECOND * 10).check(
        Input::Rehydrated { user_settings: None },
        "approval_escalated p1 to approver within Some(20) @r1.1",
    );
    harness.advance_clock(SECOND * 20);
    harness.check(
        approve_as(&harness, Role::Approver),
        "! the approval has expired: its deadline has passed",
    );
    // The process is down until after both deadlines.
    let mut harness = with_pending_plan(TO_APPROVERS);
    harness.advance_clock(MINUTE * 2).check(
        Input::Rehydrated { user_settings: None },
        "
        approval_escalated p1 to approver within Some(-30) @r1.1
        approval_expired p1 @r1.1
        tool_call_failed c1 Expired (the approval expired without an answer) @r1.1
        step_started a2 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a2 M2 @r1.2
    ",
    );
}

#[test]
fn g10_required_role_depends_on_deadline_not_on_wake() {
    let mut harness = with_pending_plan(TO_APPROVERS);
    let early = approve_as(&harness, Role::User);
    harness.advance_clock(MINUTE).check(early, ROLE_REQUIRED);
    harness.apply(approve_as(&harness, Role::Approver)).unwrap();
    // Before the deadline, every role may answer.
    let mut harness = with_pending_plan(TO_APPROVERS);
    let early = approve_as(&harness, Role::User);
    harness.advance_clock(MINUTE - SECOND).apply(early).unwrap();
}

#[test]
fn g10_decisions_before_escalation_are_kept() {
    let approvals =
        ApprovalDeadlines::uniform(DeadlineRule { timeout: Some(MINUTE), action: TO_APPROVERS });
    let mut harness =
        SessionHarness::new().with_agent(|agent| agent.approval_deadlines = approvals);
    harness.apply(submit("u1")).unwrap();
    harness.propose(&scripted_calls(["high", "high2"]));
    harness.apply(harness.step_answers("p1", &[("c1", true)], "ann")).unwrap();
    harness.advance_clock(MINUTE).apply(Input::Wake).unwrap();
    // A repeated answer is accepted without the required role; a new answer is not.
    harness.check(harness.step_answers("p1", &[("c1", true)], "ann"), "= decided repeated");
    harness.check(harness.step_answers("p1", &[("c2", true)], "ann"), ROLE_REQUIRED);
    harness.advance_clock(SECOND * 30).check(
        Input::Wake,
        "
        approval_expired p1 @r1.1
        tool_call_failed c2 Expired (the approval expired without an answer) @r1.1
    ",
    );
}

#[test]
fn g10_wait_action_accepts_late_answers() {
    let mut harness = with_pending_plan(DeadlineAction::Wait);
    harness.advance_clock(MINUTE * 100).check(Input::Wake, "");
    harness.check(Input::Rehydrated { user_settings: None }, "");
    harness.check(
        approve_as(&harness, Role::User),
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
    let run_budget = Budget {
        scope: BudgetScope::Run,
        period: BudgetPeriod::Total,
        measure: BudgetMeasure::Tokens,
        limit: 30.into(),
    };
    let mut harness =
        with_approval_deadlines(approvals).with_agent(|agent| agent.budgets = vec![run_budget]);
    assert_eq!(deadline(&harness), Some(MINUTE));
    // The step with the highest risk determines the deadline of a plan.
    harness.apply(cancel()).unwrap();
    harness.apply(submit("u2")).unwrap();
    harness.propose(&scripted_calls(["high", "crit"]));
    assert_eq!(deadline(&harness), Some(SECOND));
    harness.apply(harness.overall_answer("p2", false, "ann")).unwrap();
    harness.propose(&scripted_calls(["low"]));
    // An unknown outcome has no deadline in any configuration.
    harness.apply(harness.tool_finishes("c4", timed_out())).unwrap();
    assert_eq!(deadline(&harness), None);
    harness.check(
        harness.resolve("p3", Resolution::Failed, "ann"),
        "
        approval_decided p3 failed by ann closed @r2.2
        tool_call_failed c4 Error (a human answered that the call did not take effect) @r2.2
        budget_reached (budget of 30 tokens of this run) spent 30 needs 0 @r2.2
        approval_requested p4 (Raise the budget of 30 tokens of this run, or stop the run) read_only within None @r2.2
        = decided closed
    ",
    );
}

fn deadline(harness: &SessionHarness) -> Option<Duration> {
    let approval = &harness.state.active.approvals[0].approval;
    let millis = approval.deadline?.0 - approval.requested_at.0;
    Some(Duration::from_millis(millis.try_into().unwrap()))
}

#[test]
fn g10_expired_escalated_budget_approval_fails_run() {
    let run_budget = Budget {
        scope: BudgetScope::Run,
        period: BudgetPeriod::Total,
        measure: BudgetMeasure::Tokens,
        limit: 15.into(),
    };
    let mut harness =
        with_pending_plan(TO_APPROVERS).with_agent(|agent| agent.budgets = vec![run_budget]);
    harness.apply(harness.overall_answer("p1", false, "ann")).unwrap();
    harness
        .advance_clock(MINUTE)
        .check(Input::Wake, "approval_escalated p2 to approver within Some(30) @r1.1");
    harness.check(harness.resolve("p2", raise(100.0), "ann"), ROLE_REQUIRED);
    harness.advance_clock(MINUTE).check(
        Input::Wake,
        "
        approval_expired p2 @r1.1
        run_failed ApprovalExpired (the approval to raise the budget of 15 tokens of this run expired without an answer) @r1.1
    ",
    );
}
