//! Budgets of child sessions, and the requests for raises when they are spent (S8, G6).

use super::{
    delegation::{child_tasks, create_child, delegate_call, with_delegates},
    *,
};
use crate::{
    budget::{Budget, BudgetScope},
    policy::{BudgetPeriod, CostRule, Expression},
    session::{Lifecycle, SessionEvent},
};

fn tokens(scope: BudgetScope, limit: f64) -> Budget {
    Budget {
        scope,
        period: BudgetPeriod::Total,
        measure: BudgetMeasure::Tokens,
        limit: amount(limit),
    }
}

#[test]
fn s8_g6_children_share_remaining_budget_and_request_raises() {
    let budget = |agent: &mut AgentProfile| agent.budgets = vec![tokens(BudgetScope::Run, 75.0)];
    let mut harness = with_delegates(SessionHarness::with_streaming_step()).with_agent(budget);
    let calls = harness.model_calls(&["one", "two"].map(|task| delegate_call("researcher", task)));
    let tasks = child_tasks(&harness.apply(calls).unwrap());
    // The step that delegates spends 15 of 75 tokens.
    for task in &tasks {
        assert_eq!(task.parent.bounds.budgets, [tokens(BudgetScope::Parent, 30.0)]);
    }
    let mut child = create_child(&tasks[0]);
    child.propose(&[scripted_call("read")]);
    child.apply(child.tool_finishes("c1", completed())).unwrap();
    child.propose(&[scripted_call("read")]);
    // Two steps of 15 tokens have spent the child's share.
    child.check(
        child.tool_finishes("c2", completed()),
        "
        tool_call_completed c2 '42' @r1.2
        budget_reached (budget of 30 tokens allotted by its parent session) spent 30 needs 0 @r1.2
        approval_requested p1 (Raise the budget of 30 tokens allotted by its parent session, or \
         stop the run; above the parent session's remaining budget, approval is needed there too) read_only within Some(60) @r1.2
    ",
    );
    harness.apply(child.child_events_after(0)).unwrap();
    let spent =
        |harness: &SessionHarness| harness.state.active.run.as_ref().unwrap().child_usage.usage;
    assert_eq!(spent(&harness).tokens.total(), 30);
    assert_eq!(harness.state.active.child_usage.usage, spent(&harness));
    assert_eq!(
        harness.state.total_usage().tokens.total(),
        15,
        "the usage of children is not the session's own"
    );
    child.apply(child.resolve("p1", Resolution::Stop, "ann")).unwrap();
    assert_eq!(child.state.active.lifecycle, Lifecycle::Closed);
    // Usage is counted once, by steps, and not again at the end of the run.
    harness.apply(child.child_events_after(0)).unwrap();
    assert_eq!(spent(&harness).tokens.total(), 30);
}

#[test]
fn s8_g6_budget_spent_by_children_requests_raise_before_next_step() {
    let budget =
        |agent: &mut AgentProfile| agent.budgets = vec![tokens(BudgetScope::Session, 30.0)];
    let mut harness = with_delegates(SessionHarness::with_streaming_step()).with_agent(budget);
    let calls = harness.model_calls(&[delegate_call("researcher", "one")]);
    let task = child_tasks(&harness.apply(calls).unwrap()).remove(0);
    let mut child = create_child(&task);
    child.apply(child.model_answers("done")).unwrap();
    harness.apply(child.child_events_after(0)).unwrap();
    let decision = harness.apply(harness.tool_finishes("c1", completed())).unwrap();
    let reached = |record: &EventRecord| {
        matches!(record.event,
        SessionEvent::BudgetReached { spent, .. } if spent == amount(30.0))
    };
    assert!(decision.events.iter().any(reached), "{:?}", decision.events);
}

fn gold(scope: BudgetScope, limit: f64) -> Budget {
    Budget {
        scope,
        period: BudgetPeriod::Total,
        measure: BudgetMeasure::from_unit("gold"),
        limit: amount(limit),
    }
}

/// Sets the cost of `low` to `args.n` gold.
fn with_costs(harness: SessionHarness) -> SessionHarness {
    harness.with_rules(|rules| {
        let mut tools = tools();
        let low = tools.iter_mut().find(|tool| tool.name.as_str() == "low").unwrap();
        let amount = Expression::compile("args.n").unwrap();
        low.cost = Some(CostRule { amount, unit: "gold".to_owned(), decimals: 2 });
        rules.tools = Arc::new(ToolRegistry::new(tools));
    })
}

/// Returns a run with a budget of 50 gold and its two children, each with half of it.
fn with_two_children() -> (SessionHarness, [SessionHarness; 2]) {
    let budget = |agent: &mut AgentProfile| agent.budgets = vec![gold(BudgetScope::Run, 50.0)];
    let mut harness = with_delegates(SessionHarness::with_streaming_step()).with_agent(budget);
    let calls = harness.model_calls(&["one", "two"].map(|task| delegate_call("researcher", task)));
    let tasks = child_tasks(&harness.apply(calls).unwrap());
    let children = [0, 1].map(|n| with_costs(create_child(&tasks[n])));
    (harness, children)
}

/// Lets the child request that amount, and raises its share to it.
fn raise_to(child: &mut SessionHarness, amount: f64) {
    child.propose(&[ScriptedCall::Valid("low", json!({"n": amount}))]);
    child.apply(child.resolve("p1", raise(amount), "ann")).unwrap();
}

#[test]
fn s8_g6_shares_are_rounded_down_to_the_decimals_of_the_unit() {
    let budget = |limit| vec![gold(BudgetScope::Run, limit), tokens(BudgetScope::Run, 115.0)];
    for (limit, share) in [(50.0, 16.66), (0.005, 0.0), (0.87, 0.29), (0.0, 0.0), (6.0, 2.0)] {
        let profile = |agent: &mut AgentProfile| agent.budgets = budget(limit);
        let mut harness = with_delegates(SessionHarness::with_streaming_step()).with_agent(profile);
        let calls =
            harness.model_calls(&["1", "2", "3"].map(|task| delegate_call("researcher", task)));
        for task in child_tasks(&harness.apply(calls).unwrap()) {
            let expected = [gold(BudgetScope::Parent, share), tokens(BudgetScope::Parent, 33.0)];
            assert_eq!(task.parent.bounds.budgets, expected);
        }
    }
}

#[test]
fn s8_g6_raise_request_of_child_names_parent_budget() {
    let (_, [mut child, _]) = with_two_children();
    child.propose(&[ScriptedCall::Valid("low", json!({"n": 30}))]);
    let purpose = &child.state.active.approvals[0].approval.purpose;
    assert_eq!(
        purpose,
        "Raise the budget of 25 gold allotted by its parent session, or stop the run; above the \
         parent session's remaining budget, approval is needed there too"
    );
}

#[test]
fn s8_g6_budget_overdrawn_by_children_requests_raise_at_once() {
    let (mut harness, [mut first, mut second]) = with_two_children();
    raise_to(&mut first, 30.0);
    harness.apply(first.child_events_after(0)).unwrap();
    assert!(harness.state.active.approvals.is_empty(), "30 of 50 are spent");
    raise_to(&mut second, 36.0);
    let decision = harness.apply(second.child_events_after(0)).unwrap();
    let reached = |record: &EventRecord| {
        let SessionEvent::BudgetReached { budget, spent, needed } = &record.event else {
            return None;
        };
        Some((budget.clone(), *spent, *needed))
    };
    let reached: Vec<_> = decision.events.iter().filter_map(reached).collect();
    assert_eq!(reached, [(gold(BudgetScope::Run, 50.0), amount(66.0), amount(0.0))]);
    let approval = harness.state.active.approvals[0].approval.clone();
    assert_eq!(approval.purpose, "Raise the budget of 50 gold of this run, or stop the run");

    // Running work finishes, and the next step waits for the answer.
    second.apply(second.tool_finishes("c1", completed())).unwrap();
    harness.apply(second.child_events_after(0)).unwrap();
    harness.apply(harness.tool_finishes("c1", completed())).unwrap();
    let decision = harness.apply(harness.tool_finishes("c2", completed())).unwrap();
    let starts = |record: &EventRecord| matches!(record.event, SessionEvent::StepStarted { .. });
    assert!(!decision.events.iter().any(starts), "{:?}", decision.events);
    assert_eq!(harness.state.active.approvals.len(), 1, "the raise is requested once");
    let decision = harness.apply(harness.resolve("p1", raise(70.0), "ann")).unwrap();
    assert!(decision.events.iter().any(starts), "{:?}", decision.events);
}

#[test]
fn s8_g6_stopping_overdrawn_run_closes_children() {
    let (mut harness, [mut first, _]) = with_two_children();
    raise_to(&mut first, 60.0);
    harness.apply(first.child_events_after(0)).unwrap();
    let decision = harness.apply(harness.resolve("p1", Resolution::Stop, "ann")).unwrap();
    let closes = |effect: &crate::session::Effect| {
        matches!(effect, crate::session::Effect::CloseChild { .. })
    };
    assert_eq!(decision.effects.iter().filter(|effect| closes(effect)).count(), 2);
    assert!(harness.state.active.run.is_none());
}

#[test]
fn s8_g6_released_child_reservations_request_no_raise() {
    let (mut harness, [mut first, _]) = with_two_children();
    raise_to(&mut first, 60.0);
    first.apply(first.tool_finishes("c1", failed("no", RetryHint::Unspecified))).unwrap();
    harness.apply(first.child_events_after(0)).unwrap();
    assert!(harness.state.active.approvals.is_empty());
}
