//! Shows that the rules for budgets, grants, preflight plans and elicitations fail on a history with
//! one violation.

use super::{
    Rule, find_violations,
    invalid_histories::{valid_history, violated_rules},
};
use crate::history::{
    AcknowledgedCommand, ClientCommand, ElicitationAnswer, History, MarketCall, MarketEffect,
    Session,
};
use serde_json::{Value, json};

const TWO: &str = "session-2";

/// Returns the log of a session in which an order creates a grant, the next one uses it, and a third
/// uses a preflight plan; a list creation fails; and a tool requests input.
fn valid_log() -> Vec<Value> {
    let order = |n: u32| json!({"quantity": n});
    let started = |call: &str, tool: &str, arguments: Value| {
        ("tool_call_started", json!({"call_id": call, "tool": tool, "arguments": arguments}))
    };
    let allowed = |call: &str, by: Value| ("tool_call_allowed", json!({"call_id": call, "by": by}));
    let reserved = |call: &str, amount: f64| {
        let cost = json!({"amount": amount, "unit": "ISK"});
        ("budget_reserved", json!({"call_id": call, "cost": cost}))
    };
    let attempted = |call: &str| ("tool_call_attempt_started", json!({"call_id": call}));
    let done = |call: &str, tool: &str, result: Value| {
        ("tool_call_completed", json!({"call_id": call, "tool": tool, "result": result}))
    };
    let requested =
        |id: &str, plan: Value| ("waiting_for_approval", json!({"plan_id": id, "plan": plan}));
    let plan = json!({"kind": "plan", "steps": [{"call_id": "order-1"}]});
    let step = json!({"position": 1, "toolName": "market_order_create", "arguments": order(3)});
    let filled = json!({"hangar": "north", "crates": 7});
    let grant = json!({"grant_id": "grant-1", "tool": "market_order_create"});
    let by_grant = json!({"kind": "grant", "grant_id": "grant-1"});
    let by_plan = json!({"kind": "preflight", "approval_id": "plan-3", "step": 1});
    let events = [
        ("session_created", json!({"owner": "ada"})),
        ("message_accepted", json!({"message_id": "m2"})),
        ("run_started", json!({"message_id": "m2"})),
        requested("plan-3", json!({"kind": "preflight", "steps": [step]})),
        ("approval_decided", json!({"plan_id": "plan-3", "answer": {"decision": "approve"}})),
        ("preflight_approved", json!({"plan_id": "plan-3", "steps": [step]})),
        started("order-1", "market_order_create", order(1)),
        requested("plan-1", plan),
        ("approval_decided", json!({"plan_id": "plan-1", "steps": [{"approved": true}]})),
        ("grant_added", json!({"grant": grant})),
        allowed("order-1", json!({"kind": "approval", "approval_id": "plan-1"})),
        reserved("order-1", 3.0),
        attempted("order-1"),
        done("order-1", "market_order_create", json!({"order_id": 1})),
        started("order-2", "market_order_create", order(2)),
        allowed("order-2", by_grant),
        reserved("order-2", 3.0),
        attempted("order-2"),
        done("order-2", "market_order_create", json!({"order_id": 2})),
        ("grant_revoked", json!({"grant_id": "grant-1"})),
        started("order-3", "market_order_create", order(3)),
        allowed("order-3", by_plan),
        reserved("order-3", 3.0),
        attempted("order-3"),
        done("order-3", "market_order_create", json!({"order_id": 3})),
        started("list", "create_shopping_list", json!({"name": "List"})),
        allowed("list", json!({"kind": "policy", "why": "low"})),
        reserved("list", 1.0),
        attempted("list"),
        (
            "tool_call_failed",
            json!({"call_id": "list", "reason": "error", "error": "there is one already"}),
        ),
        started("hangar", "choose_hangar", json!({"type_id": 587})),
        allowed("hangar", json!({"kind": "policy", "why": "reads"})),
        attempted("hangar"),
        requested("elicitation-1", json!({"kind": "elicitation", "call_id": "hangar"})),
        (
            "approval_decided",
            json!({"plan_id": "elicitation-1", "answer": {"decision": "answer", "value": filled}}),
        ),
        done("hangar", "choose_hangar", filled.clone()),
        ("done", json!({"outcome": "completed"})),
    ];
    let numbered = |(index, (kind, mut event)): (usize, (&str, Value))| {
        event["type"] = json!(kind);
        event["seq"] = json!(index + 1);
        event["session_id"] = json!(TWO);
        if index > 0 {
            event["run_id"] = json!("run-2");
        }
        event
    };
    events.into_iter().enumerate().map(numbered).collect()
}

/// Returns the valid history with that session added.
fn valid_history_with_grants() -> History {
    let mut history = valid_history();
    let events = valid_log();
    let stored = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    history.stored.insert(TWO.to_owned(), stored);
    let session = Session { status: "idle".to_owned(), pending_approvals: Vec::new(), events };
    history.sessions.insert(TWO.to_owned(), session);
    let order = "market_order_create";
    for (tool, key, arguments) in [
        (order, "order-1", json!({"quantity": 1})),
        (order, "order-2", json!({"quantity": 2})),
        (order, "order-3", json!({"quantity": 3})),
        ("create_shopping_list", "list", json!({"name": "List"})),
        ("choose_hangar", "hangar", json!({"type_id": 587})),
    ] {
        let (tool, key) = (tool.to_owned(), key.to_owned());
        history.market_calls.push(MarketCall { tool, key, arguments });
    }
    for n in 1..=3 {
        history.effects.push(MarketEffect {
            tool: order.to_owned(),
            key: format!("order-{n}"),
            arguments: json!({"quantity": n}),
            result: json!({"order_id": n}),
        });
    }
    let answer = json!({"action": "accept", "content": {"hangar": "north", "crates": 7}});
    history.answers.push(ElicitationAnswer { key: "hangar".to_owned(), answer });
    history.spent += 9.0;
    history
}

/// Checks that this history with one change violates this rule and not every rule.
#[track_caller]
fn assert_violates(rule: Rule, change: impl FnOnce(&mut History)) {
    let mut history = valid_history_with_grants();
    change(&mut history);
    let violated = violated_rules(&history);
    assert!(violated.contains(&rule), "{rule:?} is not among {violated:?}");
    assert!(violated.len() <= 3, "{violated:?}");
}

/// Returns the n-th event of a type (from 0).
fn event<'a>(history: &'a mut History, kind: &str, nth: usize) -> &'a mut Value {
    let events = &mut history.sessions.get_mut(TWO).unwrap().events;
    events.iter_mut().filter(|event| event["type"] == kind).nth(nth).unwrap()
}

fn blank_event(history: &mut History, kind: &str, nth: usize) {
    event(history, kind, nth)["type"] = json!("nothing");
}

#[test]
fn valid_history_passes() {
    assert_eq!(find_violations(&valid_history_with_grants()), []);
}

#[test]
fn inconsistent_budget_is_found() {
    let rule = Rule::BudgetsAreKept;
    // Reserved twice, released twice, or never reserved.
    assert_violates(rule, |history| history.spent += 1.0);
    assert_violates(rule, |history| history.spent -= 3.0);
    assert_violates(rule, |history| blank_event(history, "budget_reserved", 1));
    assert_violates(rule, |history| {
        event(history, "budget_reserved", 1)["call_id"] = json!("order-1")
    });
    assert_violates(rule, |history| {
        event(history, "budget_reserved", 1)["cost"]["amount"] = json!(2.0)
    });
    // Not released if the call took effect or its outcome is unknown.
    assert_violates(rule, |history| {
        let end = event(history, "tool_call_completed", 1);
        end["type"] = json!("tool_call_failed");
        end["reason"] = json!("error");
        history.spent -= 3.0;
    });
    assert_violates(rule, |history| {
        event(history, "tool_call_failed", 0)["reason"] = json!("timeout")
    });
}

#[test]
fn unapproved_spending_over_budget_is_found() {
    let raised = |history: &mut History, limit: f64| {
        let raised = event(history, "session_created", 0);
        raised["type"] = json!("budget_raised");
        raised["budget"] = json!({"limit": limit});
    };
    let mut history = valid_history_with_grants();
    raised(&mut history, 10.0);
    assert!(!violated_rules(&history).contains(&Rule::BudgetsAreKept));
    assert_violates(Rule::BudgetsAreKept, |history| raised(history, 9.0));
}

#[test]
fn ignored_or_outlived_grant_is_found() {
    let rule = Rule::GrantsHold;
    assert_violates(rule, |history| blank_event(history, "grant_added", 0));
    assert_violates(rule, |history| {
        event(history, "grant_added", 0)["grant"]["tool"] = json!("create_shopping_list");
    });
    // Revoked before.
    assert_violates(rule, |history| {
        let revoked = event(history, "tool_call_completed", 0);
        revoked["type"] = json!("grant_revoked");
        revoked["grant_id"] = json!("grant-1");
    });
    // Approval was requested although the grant covers the call.
    assert_violates(rule, |history| {
        let requested = event(history, "tool_call_allowed", 1);
        requested["type"] = json!("waiting_for_approval");
        requested["plan"] = json!({"kind": "plan", "steps": [{"call_id": "order-2"}]});
    });
    assert_violates(Rule::AcknowledgedIsLogged, |history| {
        let command = ClientCommand::Revoke { grant_id: "grant-2".to_owned() };
        history.acknowledged.push(AcknowledgedCommand { session: TWO.to_owned(), command });
    });
}

#[test]
fn plan_that_covers_other_calls_is_found() {
    let rule = Rule::PlansCoverOnce;
    assert_violates(rule, |history| blank_event(history, "preflight_approved", 0));
    assert_violates(rule, |history| {
        event(history, "preflight_approved", 0)["steps"][0]["skipped"] = json!(true);
    });
    assert_violates(rule, |history| {
        event(history, "preflight_approved", 0)["steps"][0]["arguments"] = json!({"quantity": 4});
    });
    assert_violates(rule, |history| {
        event(history, "preflight_approved", 0)["run_id"] = json!("run-1");
    });
    // A second call by the same step.
    assert_violates(rule, |history| {
        let by = event(history, "tool_call_allowed", 2)["by"].clone();
        event(history, "tool_call_allowed", 1)["by"] = by;
        let three = json!({"quantity": 3});
        event(history, "tool_call_started", 1)["arguments"] = three.clone();
        (history.market_calls[4].arguments, history.effects[3].arguments) = (three.clone(), three);
    });
    // A critical call needs approval even if the plan contains it.
    assert_violates(Rule::EffectsAreAllowed, |history| {
        event(history, "tool_call_started", 2)["tool"] = json!("wallet_transfer");
        history.market_calls[5].tool = "wallet_transfer".to_owned();
        history.effects[4].tool = "wallet_transfer".to_owned();
    });
}

#[test]
fn invented_or_repeated_answer_is_found() {
    let rule = Rule::AnswersArriveOnce;
    assert_violates(rule, |history| {
        let answer = history.answers[0].clone();
        history.answers.push(answer);
    });
    assert_violates(rule, |history| history.answers[0].answer["content"]["crates"] = json!(8));
    assert_violates(rule, |history| history.answers[0].key = "order-1".to_owned());
    assert_violates(rule, |history| history.answers[0].answer = json!({"action": "decline"}));
    assert_violates(rule, |history| blank_event(history, "approval_decided", 2));
    assert_violates(rule, |history| blank_event(history, "waiting_for_approval", 2));
    assert_violates(rule, |history| {
        event(history, "tool_call_completed", 3)["result"]["hangar"] = json!("south");
    });
}
