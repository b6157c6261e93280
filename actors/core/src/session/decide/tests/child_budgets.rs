//! What children may spend of their parent's budgets, and who is asked when that is too little
//! (S8, G6).

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
    Budget { scope, period: BudgetPeriod::Total, measure: BudgetMeasure::Tokens, limit }
}

#[test]
fn s8_g6_children_share_what_is_left_and_ask_when_it_is_spent() {
    let budget = |agent: &mut AgentProfile| agent.budgets = vec![tokens(BudgetScope::Run, 75.0)];
    let mut scene = with_delegates(SessionHarness::with_streaming_step()).with_agent(budget);
    let calls = scene.model_calls(&["one", "two"].map(|task| delegate_call("researcher", task)));
    let errands = child_tasks(&scene.apply(calls).unwrap());
    // 15 of 75 are spent by the step that asks.
    for errand in &errands {
        assert_eq!(errand.parent.bounds.budgets, [tokens(BudgetScope::Parent, 30.0)]);
    }
    let mut child = create_child(&errands[0]);
    child.propose(&[scripted_call("read")]);
    child.apply(child.tool_finishes("c1", completed())).unwrap();
    child.propose(&[scripted_call("read")]);
    // Two steps of 15 have spent its share.
    child.check(
        child.tool_finishes("c2", completed()),
        "
        tool_call_completed c2 '42' @r1.2
        budget_reached (budget of 30 tokens allotted by its parent session) spent 30 needs 0 @r1.2
        approval_requested p1 (Raise the budget of 30 tokens allotted by its parent session, or \
         stop the run; its parent is asked, too, where that is more than it has left) read_only within Some(60) @r1.2
    ",
    );
    scene.apply(child.child_events_after(0)).unwrap();
    let spent = |scene: &SessionHarness| scene.state.active.run.as_ref().unwrap().child_usage.usage;
    assert_eq!(spent(&scene).tokens.total(), 30);
    assert_eq!(scene.state.active.child_usage.usage, spent(&scene));
    assert_eq!(scene.state.total_usage().tokens.total(), 15, "what children spend is not its own");
    child.apply(child.resolve("p1", Resolution::Stop, "ann")).unwrap();
    assert_eq!(child.state.active.lifecycle, Lifecycle::Closed);
    // Their spending is told once, by steps, and not again by the end of the run.
    scene.apply(child.child_events_after(0)).unwrap();
    assert_eq!(spent(&scene).tokens.total(), 30);
}

#[test]
fn s8_g6_a_parent_whose_children_have_spent_its_budget_asks_before_it_goes_on() {
    let budget =
        |agent: &mut AgentProfile| agent.budgets = vec![tokens(BudgetScope::Session, 30.0)];
    let mut scene = with_delegates(SessionHarness::with_streaming_step()).with_agent(budget);
    let calls = scene.model_calls(&[delegate_call("researcher", "one")]);
    let errand = child_tasks(&scene.apply(calls).unwrap()).remove(0);
    let mut child = create_child(&errand);
    child.apply(child.model_answers("done")).unwrap();
    scene.apply(child.child_events_after(0)).unwrap();
    let decision = scene.apply(scene.tool_finishes("c1", completed())).unwrap();
    let reached = |record: &EventRecord| {
        matches!(record.event,
        SessionEvent::BudgetReached { spent, .. } if (spent - 30.0).abs() < 0.1)
    };
    assert!(decision.events.iter().any(reached), "{:?}", decision.events);
}

fn gold(scope: BudgetScope, limit: f64) -> Budget {
    Budget { scope, period: BudgetPeriod::Total, measure: BudgetMeasure::from_unit("gold"), limit }
}

/// `low` costs `args.n` gold.
fn with_costs(scene: SessionHarness) -> SessionHarness {
    scene.with_rules(|rules| {
        let mut tools = tools();
        let low = tools.iter_mut().find(|tool| tool.name.as_str() == "low").unwrap();
        let amount = Expression::compile("args.n").unwrap();
        low.cost = Some(CostRule { amount, unit: "gold".to_owned() });
        rules.tools = Arc::new(ToolRegistry::new(tools));
    })
}

/// A run with 50 gold, of which two children have half each.
fn with_two_children() -> (SessionHarness, [SessionHarness; 2]) {
    let budget = |agent: &mut AgentProfile| agent.budgets = vec![gold(BudgetScope::Run, 50.0)];
    let mut scene = with_delegates(SessionHarness::with_streaming_step()).with_agent(budget);
    let calls = scene.model_calls(&["one", "two"].map(|task| delegate_call("researcher", task)));
    let errands = child_tasks(&scene.apply(calls).unwrap());
    let children = [0, 1].map(|n| with_costs(create_child(&errands[n])));
    (scene, children)
}

/// The child asks for that much, and somebody raises its share to it.
fn raised_to(child: &mut SessionHarness, amount: f64) {
    child.propose(&[ScriptedCall::Valid("low", json!({"n": amount}))]);
    child.apply(child.resolve("p1", Resolution::Raise(amount), "ann")).unwrap();
}

#[test]
fn s8_g6_shares_are_rounded_for_display() {
    let budget = |limit| vec![gold(BudgetScope::Run, limit), tokens(BudgetScope::Run, 115.0)];
    for (limit, share) in [(50.0, 16.66), (0.005, 0.001_66), (0.87, 0.29), (0.0, 0.0), (6.0, 2.0)] {
        let profile = |agent: &mut AgentProfile| agent.budgets = budget(limit);
        let mut scene = with_delegates(SessionHarness::with_streaming_step()).with_agent(profile);
        let calls =
            scene.model_calls(&["1", "2", "3"].map(|task| delegate_call("researcher", task)));
        for errand in child_tasks(&scene.apply(calls).unwrap()) {
            let expected = [gold(BudgetScope::Parent, share), tokens(BudgetScope::Parent, 33.33)];
            assert_eq!(errand.parent.bounds.budgets, expected);
        }
    }
}

#[test]
fn s8_g6_a_childs_raise_request_names_the_parents_budget() {
    let (_, [mut child, _]) = with_two_children();
    child.propose(&[ScriptedCall::Valid("low", json!({"n": 30}))]);
    let purpose = &child.state.active.approvals[0].approval.purpose;
    assert_eq!(
        purpose,
        "Raise the budget of 25 gold allotted by its parent session, or stop the run; its parent \
         is asked, too, where that is more than it has left"
    );
}

#[test]
fn s8_g6_a_parent_whose_children_spend_more_than_it_has_asks_at_once() {
    let (mut scene, [mut one, mut two]) = with_two_children();
    raised_to(&mut one, 30.0);
    scene.apply(one.child_events_after(0)).unwrap();
    assert!(scene.state.active.approvals.is_empty(), "30 of 50");
    raised_to(&mut two, 36.0);
    let decision = scene.apply(two.child_events_after(0)).unwrap();
    let reached = |record: &EventRecord| {
        let SessionEvent::BudgetReached { budget, spent, needed } = &record.event else {
            return None;
        };
        Some((budget.clone(), *spent, *needed))
    };
    let reached: Vec<_> = decision.events.iter().filter_map(reached).collect();
    assert_eq!(reached, [(gold(BudgetScope::Run, 50.0), 66.0, 0.0)]);
    let asked = scene.state.active.approvals[0].approval.clone();
    assert_eq!(asked.purpose, "Raise the budget of 50 gold of this run, or stop the run");

    // What runs finishes, and the next step waits for the answer.
    two.apply(two.tool_finishes("c1", completed())).unwrap();
    scene.apply(two.child_events_after(0)).unwrap();
    scene.apply(scene.tool_finishes("c1", completed())).unwrap();
    let decision = scene.apply(scene.tool_finishes("c2", completed())).unwrap();
    let starts = |record: &EventRecord| matches!(record.event, SessionEvent::StepStarted { .. });
    assert!(!decision.events.iter().any(starts), "{:?}", decision.events);
    assert_eq!(scene.state.active.approvals.len(), 1, "it is asked once");
    let decision = scene.apply(scene.resolve("p1", Resolution::Raise(70.0), "ann")).unwrap();
    assert!(decision.events.iter().any(starts), "{:?}", decision.events);
}

#[test]
fn s8_g6_who_stops_a_run_that_is_overdrawn_stops_its_children() {
    let (mut scene, [mut one, _]) = with_two_children();
    raised_to(&mut one, 60.0);
    scene.apply(one.child_events_after(0)).unwrap();
    let decision = scene.apply(scene.resolve("p1", Resolution::Stop, "ann")).unwrap();
    let closes = |effect: &crate::session::Effect| {
        matches!(effect, crate::session::Effect::CloseChild { .. })
    };
    assert_eq!(decision.effects.iter().filter(|effect| closes(effect)).count(), 2);
    assert!(scene.state.active.run.is_none());
}

#[test]
fn s8_g6_released_reservations_of_children_request_no_raise() {
    let (mut scene, [mut one, _]) = with_two_children();
    raised_to(&mut one, 60.0);
    one.apply(one.tool_finishes("c1", failed("no", RetryHint::Unspecified))).unwrap();
    scene.apply(one.child_events_after(0)).unwrap();
    assert!(scene.state.active.approvals.is_empty());
}
