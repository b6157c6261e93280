//! Budgets: reservations, requests for raises and answers to them (G6).

use super::*;
use crate::{
    approval::GrantRequest,
    budget::{Budget, BudgetScope, SpendingTotals},
    policy::{BudgetLimit, BudgetPeriod, CostRule, Expression},
    session::SessionEvent,
};

fn limit(scope: BudgetScope, measure: BudgetMeasure, limit: f64) -> Budget {
    Budget { scope, period: BudgetPeriod::Total, measure, limit: amount(limit) }
}

pub(super) fn gold(scope: BudgetScope, gold: f64) -> Budget {
    limit(scope, BudgetMeasure::from_unit("gold"), gold)
}

/// Returns a session with these budgets, in which `low`, `high`, `idem` and `crit` cost `args.n`
/// gold.
pub(super) fn with_budgets(budgets: Vec<Budget>) -> SessionHarness {
    let mut tools = tools();
    for tool in &mut tools {
        if ["low", "high", "idem", "crit"].contains(&tool.name.as_str()) {
            let amount = Expression::compile("args.n").unwrap();
            tool.cost = Some(CostRule { amount, unit: "gold".to_owned(), decimals: 2 });
        }
    }
    SessionHarness::new()
        .with_agent(|agent| agent.budgets = budgets)
        .with_rules(|rules| rules.tools = Arc::new(ToolRegistry::new(tools)))
}

pub(super) fn call_with_cost(tool: &'static str, amount: f64) -> ScriptedCall {
    ScriptedCall::Valid(tool, json!({"n": amount}))
}

/// Returns a session with these budgets whose model proposed these calls in its first step.
fn with_budgeted_calls(budgets: Vec<Budget>, calls: &[ScriptedCall]) -> SessionHarness {
    let mut harness = with_budgets(budgets);
    harness.apply(submit("u1")).unwrap();
    harness.propose(calls);
    harness
}

pub(super) fn reserved(harness: &SessionHarness) -> f64 {
    let spent = &harness.state.active.tool_costs;
    spent.spent("gold", BudgetPeriod::Total, harness.now.day()).to_f64()
}

fn open_approvals(harness: &SessionHarness) -> usize {
    harness.state.active.approvals.len()
}

#[test]
fn g6_allowed_call_reserves_its_cost() {
    let mut harness = with_budgets(vec![gold(BudgetScope::Session, 10.0)]);
    harness.apply(submit("u1")).unwrap();
    harness.check(
        harness.model_calls(&[call_with_cost("low", 4.0)]),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 low write_low_risk @r1.1
        tool_call_allowed c1 by policy @r1.1
        budget_reserved c1 4 gold @r1.1
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 low
    ",
    );
    assert_eq!(reserved(&harness), 4.0);
}

#[test]
fn g6_reservations_are_released_only_without_effect() {
    let failed_definitely = || failed("no such order", RetryHint::Unspecified);
    let cases = [
        ("low", completed(), 4.0),
        ("low", failed_definitely(), 0.0),
        ("low", timed_out(), 4.0),
        ("low", crashed(), 4.0),
        ("idem", completed(), 4.0),
        ("idem", failed_definitely(), 0.0),
    ];
    for (tool, outcome, kept) in cases {
        let mut harness = with_budgeted_calls(
            vec![gold(BudgetScope::Session, 10.0)],
            &[call_with_cost(tool, 4.0)],
        );
        if open_approvals(&harness) > 0 {
            harness.apply(harness.overall_answer("p1", true, "ann")).unwrap();
        }
        harness.apply(harness.tool_finishes("c1", outcome.clone())).unwrap();
        assert_eq!(reserved(&harness), kept, "{tool} {outcome:?}");
    }
}

#[test]
fn g6_call_keeps_reservation_only_if_it_may_have_run() {
    for (outcome, kept) in [(not_sent(), 0.0), (timed_out(), 4.0), (crashed(), 4.0)] {
        let mut harness = with_budgeted_calls(
            vec![gold(BudgetScope::Session, 10.0)],
            &[call_with_cost("idem", 4.0)],
        );
        harness.apply(harness.overall_answer("p1", true, "ann")).unwrap();
        for _ in 0..=crate::limits::RETRIES_DEFAULT {
            assert_eq!(reserved(&harness), 4.0, "the reservation is kept across retries");
            harness.apply(harness.tool_finishes("c1", outcome.clone())).unwrap();
            if let Some(next) = harness.state.next_wake() {
                harness.set_clock(next).apply(Input::Wake).unwrap();
            }
        }
        assert_eq!(reserved(&harness), kept, "{outcome:?}");
    }
}

/// Returns a session in which `idem`, which costs 4 gold, was approved and its attempts had these
/// outcomes.
fn with_outcomes(outcomes: &[ToolOutcome]) -> SessionHarness {
    let mut harness =
        with_budgeted_calls(vec![gold(BudgetScope::Session, 10.0)], &[call_with_cost("idem", 4.0)]);
    harness.apply(harness.overall_answer("p1", true, "ann")).unwrap();
    for outcome in outcomes {
        harness.apply(harness.tool_finishes("c1", outcome.clone())).unwrap();
        if let Some(next) = harness.state.next_wake() {
            harness.set_clock(next).apply(Input::Wake).unwrap();
        }
    }
    harness
}

#[test]
fn d3_g6_failed_retry_keeps_earlier_uncertain_effect() {
    let failed_definitely = || failed("no such order", RetryHint::Unspecified);
    // The last attempts failed definitely, or were never sent.
    for last in [vec![failed_definitely()], vec![not_sent(), not_sent(), not_sent()]] {
        let mut outcomes = vec![crashed()];
        outcomes.extend(last);
        let harness = with_outcomes(&outcomes);
        assert_eq!(reserved(&harness), 4.0, "{outcomes:?}");
        let end = harness.log.iter().find_map(|record| {
            let SessionEvent::ToolCallFailed { reason, error, maybe_ran, .. } = &record.event
            else {
                return None;
            };
            Some((*reason, error.clone(), *maybe_ran))
        });
        let (reason, error, maybe_ran) = end.expect("the call ended");
        assert_eq!((reason, maybe_ran), (crate::call::CallFailureReason::OutcomeUnknown, true));
        assert!(error.ends_with(". An earlier attempt may have taken effect"), "{error}");
    }
    // No attempt can have taken effect.
    assert_eq!(reserved(&with_outcomes(&[not_sent(), failed_definitely()])), 0.0);
}

#[test]
fn d3_g6_cancel_during_backoff_releases_only_calls_without_effect() {
    for (outcome, kept) in [(crashed(), 4.0), (not_sent(), 0.0)] {
        let mut harness = with_budgeted_calls(
            vec![gold(BudgetScope::Session, 10.0)],
            &[call_with_cost("low", 4.0)],
        );
        if matches!(outcome, ToolOutcome::Crashed { .. }) {
            harness.apply(harness.tool_finishes("c1", outcome.clone())).unwrap();
            harness.apply(harness.resolve("p1", Resolution::Retry, "ann")).unwrap();
            harness.apply(harness.tool_finishes("c1", not_sent())).unwrap();
        } else {
            harness.apply(harness.tool_finishes("c1", outcome.clone())).unwrap();
        }
        harness.apply(cancel()).unwrap();
        assert_eq!(reserved(&harness), kept, "{outcome:?}");
    }
}

#[test]
fn g6_free_calls_run_under_an_overdrawn_budget() {
    let mut harness = with_budgets(vec![gold(BudgetScope::Session, 10.0)]);
    harness.account.limit = None;
    harness.apply(submit("u1")).unwrap();
    harness.propose(&[call_with_cost("low", 8.0)]);
    harness.apply(harness.tool_finishes("c1", completed())).unwrap();
    // The limit is lowered below the amount spent.
    let mut harness =
        harness.with_agent(|agent| agent.budgets = vec![gold(BudgetScope::Session, 5.0)]);
    harness.check(
        harness.model_calls(&[call_with_cost("low", 0.0)]),
        "
        message_completed M2 '' @r1.2
        step_completed ToolUse 10 @r1.2
        tool_call_started c2 low write_low_risk @r1.2
        tool_call_allowed c2 by policy @r1.2
        tool_call_attempt_started c2 a4 #1 @r1.2
        > start_tool c2 a4 low
    ",
    );
}

#[test]
fn g6_unknown_outcome_keeps_reservation_until_resolved() {
    let cases = [
        (Resolution::Done(json!("it did")), 4.0),
        (Resolution::Failed, 0.0),
        // The cost is reserved once for all attempts.
        (Resolution::Retry, 4.0),
    ];
    for (resolution, kept) in cases {
        let mut harness = with_budgeted_calls(
            vec![gold(BudgetScope::Session, 10.0)],
            &[call_with_cost("low", 4.0)],
        );
        harness.apply(Input::Rehydrated { user_settings: None }).unwrap();
        assert_eq!(reserved(&harness), 4.0);
        harness.apply(harness.resolve("p1", resolution.clone(), "ann")).unwrap();
        assert_eq!(reserved(&harness), kept, "{resolution:?}");
    }
    let mut harness =
        with_budgeted_calls(vec![gold(BudgetScope::Session, 10.0)], &[call_with_cost("low", 4.0)]);
    harness.apply(Input::Rehydrated { user_settings: None }).unwrap();
    harness.apply(cancel()).unwrap();
    assert_eq!(reserved(&harness), 4.0, "the call may have taken effect");
}

#[test]
fn g6_cancellation_releases_reservations_of_unstarted_calls() {
    let budgets = vec![gold(BudgetScope::Session, 10.0)];
    let mut harness =
        with_budgeted_calls(budgets, &[call_with_cost("low", 4.0), call_with_cost("low", 5.0)]);
    assert_eq!(reserved(&harness), 9.0);
    harness.apply(cancel()).unwrap();
    assert_eq!(reserved(&harness), 4.0);
}

/// Returns a session in which the second of two calls exceeds the budget with its 3 gold.
fn with_insufficient_budget(budget: Budget) -> SessionHarness {
    let mut harness = with_budgets(vec![budget]);
    harness.apply(submit("u1")).unwrap();
    harness.propose(&[call_with_cost("low", 3.0), call_with_cost("low", 3.0)]);
    harness
}

#[test]
fn g6_calls_of_one_step_share_remaining_budget() {
    let mut harness = with_budgets(vec![gold(BudgetScope::Session, 5.0)]);
    harness.apply(submit("u1")).unwrap();
    harness.check(
        harness.model_calls(&[call_with_cost("low", 3.0), call_with_cost("low", 3.0)]),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 low write_low_risk @r1.1
        tool_call_allowed c1 by policy @r1.1
        budget_reserved c1 3 gold @r1.1
        tool_call_started c2 low write_low_risk @r1.1
        tool_call_allowed c2 by policy @r1.1
        budget_reached (budget of 5 gold of this session) spent 3 needs 3 @r1.1
        approval_requested p1 (Raise the budget of 5 gold of this session, or stop the run) c2 write_low_risk within Some(60) @r1.1
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 low
    ",
    );
    // Running calls finish.
    harness.check(harness.tool_finishes("c1", completed()), "tool_call_completed c1 '42' @r1.1");
}

#[test]
fn g6_sufficient_raise_continues_run() {
    let mut harness = with_insufficient_budget(gold(BudgetScope::Session, 5.0));
    for too_little in [5.0, 5.999, 0.0] {
        harness.check(
            harness.resolve("p1", raise(too_little), "ann"),
            "! invalid answer: the new limit must be at least 6 gold",
        );
    }
    harness.apply(harness.tool_finishes("c1", completed())).unwrap();
    harness.check(
        harness.resolve("p1", raise(6.0), "ann"),
        "
        approval_decided p1 raise by ann closed @r1.1
        budget_raised p1 (budget of 6 gold of this session) by ann @r1.1
        budget_reserved c2 3 gold @r1.1
        tool_call_attempt_started c2 a3 #1 @r1.1
        > start_tool c2 a3 low
        = decided closed
    ",
    );
    assert_eq!(reserved(&harness), 6.0);
    harness.check(harness.resolve("p1", raise(6.0), "ann"), "= decided closed repeated");
    harness.check(harness.resolve("p1", Resolution::Stop, "bob"), "! already decided raise by ann");
}

#[test]
fn g6_raise_is_rejected_while_tool_is_unavailable() {
    let mut harness = with_insufficient_budget(gold(BudgetScope::Session, 5.0));
    let tools = std::mem::take(&mut harness.rules.tools);
    harness.check(
        harness.resolve("p1", raise(6.0), "ann"),
        "! invalid answer: low is currently unavailable; its server may be disconnected",
    );
    harness.rules.tools = tools;
    harness.apply(harness.resolve("p1", raise(6.0), "ann")).unwrap();
    assert_eq!(reserved(&harness), 6.0);
}

#[test]
fn g6_stop_answer_fails_run() {
    let mut harness = with_insufficient_budget(gold(BudgetScope::Session, 5.0));
    harness.check(
        harness.resolve("p1", Resolution::Stop, "ann"),
        "
        approval_decided p1 stop by ann closed @r1.1
        tool_call_failed c1 Cancelled (the run ended while the call ran; it may have taken effect) @r1.1
        tool_call_failed c2 Cancelled (the run ended; the call did not take effect) @r1.1
        run_failed BudgetReached (the budget of 5 gold of this session is reached, and ann stopped the run) @r1.1
        > stop_tool c1 a2
        = decided closed
    ",
    );
    assert_eq!(reserved(&harness), 3.0);
}

#[test]
fn g10_expired_budget_approval_fails_run() {
    let mut harness = with_insufficient_budget(gold(BudgetScope::Session, 5.0));
    harness.apply(harness.tool_finishes("c1", completed())).unwrap();
    harness.advance_clock(MINUTE).check(
        Input::Wake,
        "
        approval_expired p1 @r1.1
        tool_call_failed c2 Cancelled (the run ended; the call did not take effect) @r1.1
        run_failed ApprovalExpired (the approval to raise the budget of 5 gold of this session expired without an answer) @r1.1
    ",
    );
    harness.check(
        harness.resolve("p1", raise(9.0), "ann"),
        "! the approval has expired: its deadline has passed",
    );
}

#[test]
fn g6_budget_approvals_accept_only_their_answers() {
    let mut harness = with_insufficient_budget(gold(BudgetScope::Session, 5.0));
    let refused = "! unsupported answer; this approval accepts `raise` or `stop`";
    harness.check(harness.overall_answer("p1", true, "ann"), refused);
    harness.check(harness.resolve("p1", Resolution::Retry, "ann"), refused);
}

#[test]
fn g13_headless_run_fails_when_budget_is_reached() {
    let budget = limit(BudgetScope::Run, BudgetMeasure::Tokens, 15.0);
    let mut harness = with_budgets(vec![budget]).with_agent(|agent| agent.headless = true);
    harness.apply(submit("u1")).unwrap();
    harness.propose(&scripted_calls(["read"]));
    harness.check(
        harness.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        budget_reached (budget of 15 tokens of this run) spent 15 needs 0 @r1.1
        run_failed BudgetReached (the budget of 15 tokens of this run is reached, and a headless agent can't raise it) @r1.1
    ",
    );
    // A call over budget is denied, like any call that needs approval in a headless profile.
    let mut harness = with_budgets(vec![gold(BudgetScope::Session, 5.0)])
        .with_agent(|agent| agent.headless = true);
    harness.apply(submit("u1")).unwrap();
    let decision = harness.apply(harness.model_calls(&[call_with_cost("low", 9.0)])).unwrap();
    let ends: Vec<_> = decision.events.iter().map(|record| &record.event).collect();
    let is_denied = |event: &&SessionEvent| matches!(event, SessionEvent::AuthorizationDenied { reason, .. } if reason.contains("no approver is available"));
    assert!(ends.iter().any(is_denied), "{ends:?}");
}

#[test]
fn g6_each_scope_counts_its_own_costs() {
    // Two runs cost 3 each, and the user's other sessions spent 3; the limit is 5.
    for (scope, expected) in
        [(BudgetScope::Run, [0, 0]), (BudgetScope::Session, [0, 1]), (BudgetScope::User, [1, 1])]
    {
        let mut harness = with_budgets(vec![gold(scope, 5.0)]);
        let other_sessions = SpendingTotals { day: 3.into(), month: 3.into(), total: 3.into() };
        harness.account.totals.insert(BudgetMeasure::from_unit("gold"), other_sessions);
        let mut approvals = [0, 0];
        for (index, message) in ["u1", "u2"].into_iter().enumerate() {
            harness.apply(submit(message)).unwrap();
            harness.propose(&[call_with_cost("low", 3.0)]);
            approvals[index] = open_approvals(&harness);
            if approvals[index] == 0 {
                let call = format!("c{}", index + 1);
                harness.apply(harness.tool_finishes(&call, completed())).unwrap();
                harness.apply(harness.model_answers("done")).unwrap();
            } else {
                harness.apply(cancel()).unwrap();
            }
        }
        assert_eq!(approvals, expected, "{scope:?}");
    }
}

#[test]
fn g6_settings_limit_applies_to_session_and_user() {
    let gold_limit = |limit: u32| BudgetLimit {
        amount: limit.into(),
        unit: "gold".to_owned(),
        period: BudgetPeriod::Total,
    };
    let mut harness = with_budgets(vec![]);
    harness.account.limit = Some(gold_limit(5));
    harness.apply(submit("u1")).unwrap();
    let decision = harness.apply(harness.model_calls(&[call_with_cost("low", 3.0)])).unwrap();
    let [precondition] = &decision.preconditions[..] else {
        panic!("{:?}", decision.preconditions)
    };
    assert_eq!((precondition.limit, precondition.period), (5.into(), BudgetPeriod::Total));
    harness.apply(harness.tool_finishes("c1", completed())).unwrap();
    harness.propose(&[call_with_cost("low", 3.0)]);
    let purpose = &harness.state.active.approvals[0].approval.purpose;
    assert_eq!(purpose, "Raise the budget of 5 gold of this user, or stop the run");
    // The precondition contains the raised limit.
    let decision = harness.apply(harness.resolve("p1", raise(7.0), "ann")).unwrap();
    assert_eq!(
        decision.preconditions.iter().map(|precondition| precondition.limit).collect::<Vec<_>>(),
        [7.into()]
    );

    let mut harness = with_budgets(vec![]);
    let settings = Settings { budget_limit: Some(gold_limit(2)), ..harness.settings() };
    harness
        .apply(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
        .unwrap();
    harness.apply(submit("u1")).unwrap();
    let decision = harness.apply(harness.model_calls(&[call_with_cost("low", 3.0)])).unwrap();
    assert_eq!(decision.preconditions, [], "a session budget needs no precondition");
    let purpose = &harness.state.active.approvals[0].approval.purpose;
    assert_eq!(purpose, "Raise the budget of 2 gold of this session, or stop the run");
}

#[test]
fn g6_budget_covers_day_month_or_total() {
    let day = Duration::from_secs(24 * 60 * 60);
    for (period, passed, raises) in [
        (BudgetPeriod::Day, SECOND, 1),
        (BudgetPeriod::Day, day, 0),
        (BudgetPeriod::Month, day, 1),
        (BudgetPeriod::Month, day * 31, 0),
        (BudgetPeriod::Total, day * 1000, 1),
    ] {
        for scope in [BudgetScope::Session, BudgetScope::User] {
            let mut harness = with_budgets(vec![Budget { period, ..gold(scope, 5.0) }]);
            harness.apply(submit("u1")).unwrap();
            harness.propose(&[call_with_cost("low", 3.0)]);
            harness.apply(harness.tool_finishes("c1", completed())).unwrap();
            harness.advance_clock(passed).propose(&[call_with_cost("low", 3.0)]);
            assert_eq!(open_approvals(&harness), raises, "{period:?} {scope:?} after {passed:?}");
        }
    }
}

#[test]
fn g6_raise_lasts_for_its_period_or_run() {
    let day = Duration::from_secs(24 * 60 * 60);
    let mut harness = with_insufficient_budget(Budget {
        period: BudgetPeriod::Day,
        ..gold(BudgetScope::Session, 5.0)
    });
    harness.apply(harness.tool_finishes("c1", completed())).unwrap();
    harness.apply(harness.resolve("p1", raise(100.0), "ann")).unwrap();
    harness.apply(harness.tool_finishes("c2", completed())).unwrap();
    harness.propose(&[call_with_cost("low", 90.0)]);
    assert_eq!(open_approvals(&harness), 0);
    harness.apply(harness.tool_finishes("c3", completed())).unwrap();
    harness.advance_clock(day).propose(&[call_with_cost("low", 6.0)]);
    assert_eq!(open_approvals(&harness), 1, "the raise has ended; the limit is 5 again");

    let mut harness = with_insufficient_budget(gold(BudgetScope::Run, 5.0));
    harness.apply(harness.resolve("p1", raise(100.0), "ann")).unwrap();
    harness.apply(cancel()).unwrap();
    harness.apply(submit("u2")).unwrap();
    harness.propose(&[call_with_cost("low", 6.0)]);
    assert_eq!(open_approvals(&harness), 1, "the raise ended with its run");
}

/// Returns a session whose first step used 15 tokens, so that the next step exceeds the budget.
fn with_exhausted_budget(measure: BudgetMeasure, amount: f64) -> SessionHarness {
    let mut harness = with_budgets(vec![limit(BudgetScope::Run, measure, amount)]);
    harness.apply(submit("u1")).unwrap();
    harness.propose(&scripted_calls(["read"]));
    harness
}

#[test]
fn g6_token_budget_is_checked_before_each_step() {
    let mut harness = with_exhausted_budget(BudgetMeasure::Tokens, 15.0);
    harness.check(
        harness.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        budget_reached (budget of 15 tokens of this run) spent 15 needs 0 @r1.1
        approval_requested p1 (Raise the budget of 15 tokens of this run, or stop the run) read_only within Some(60) @r1.1
    ",
    );
    // The run waits after a wake-up and after a restart.
    harness.check(Input::Wake, "");
    harness.check(Input::Rehydrated { user_settings: None }, "");
    assert!(harness.state.is_waiting_for_approval());
    harness.check(
        harness.resolve("p1", raise(15.0), "ann"),
        "! invalid answer: the new limit must be more than 15 tokens",
    );
    harness.check(
        harness.resolve("p1", raise(16.0), "ann"),
        "
        approval_decided p1 raise by ann closed @r1.1
        budget_raised p1 (budget of 16 tokens of this run) by ann @r1.1
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
        = decided closed
    ",
    );
    // The final answer needs no further step, so no raise is requested.
    harness.check(
        harness.model_answers("done"),
        "
        message_completed M2 'done' @r1.2
        step_completed EndTurn 10 @r1.2
        run_completed M2 20 @r1.2
    ",
    );
}

#[test]
fn g6_exhausted_session_budget_requests_raise_before_first_step() {
    for scope in [BudgetScope::Session, BudgetScope::User] {
        let mut harness = with_budgets(vec![limit(scope, BudgetMeasure::Tokens, 15.0)]);
        harness.apply(submit("u1")).unwrap();
        harness.apply(harness.model_answers("done")).unwrap();
        harness.apply(submit("u2")).unwrap();
        assert_eq!(open_approvals(&harness), 1, "{scope:?}");
        harness.check(Input::Rehydrated { user_settings: None }, "");
        harness.check(
            harness.resolve("p1", Resolution::Stop, "ann"),
            &format!("
            approval_decided p1 stop by ann closed @r2
            run_failed BudgetReached (the budget of 15 tokens of this {} is reached, and ann stopped the run) @r2
            = decided closed
        ", if scope == BudgetScope::User { "user" } else { "session" }),
        );
        assert!(harness.state.is_idle());
    }
}

#[test]
fn g6_money_budget_uses_model_price() {
    let price = crate::usage::ModelPrice::new(100_000.into(), 0.into());
    for (usd, raises) in [(1.0, 1), (1.1, 0)] {
        let mut harness = with_exhausted_budget(BudgetMeasure::Usd, usd)
            .with_rules(|rules| rules.prices = Arc::new([("small".to_owned(), price)].into()));
        // The first step was made without a price.
        harness.apply(cancel()).unwrap();
        harness.apply(submit("u2")).unwrap();
        harness.propose(&scripted_calls(["read"]));
        harness.apply(harness.tool_finishes("c2", completed())).unwrap();
        assert_eq!(open_approvals(&harness), raises, "10 tokens of 1 USD, of {usd}");
    }
}

#[test]
fn g6_unknown_costs_fit_no_budget() {
    let mut harness = with_exhausted_budget(BudgetMeasure::Usd, 1000.0);
    harness.check(
        harness.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        budget_reached (budget of 1,000 USD of this run) spent 1,000 needs 0 @r1.1
        approval_requested p1 (Raise the budget of 1,000 USD of this run, or stop the run) read_only within Some(60) @r1.1
    ",
    );
    harness.check(
        harness.resolve("p1", raise(1e9), "ann"),
        "! invalid answer: the amount spent is unknown because a model has no price; no limit can be enforced",
    );
    harness.apply(harness.resolve("p1", Resolution::Stop, "ann")).unwrap();
    assert!(harness.state.is_idle());
}

#[test]
fn g6_failed_attempts_count_towards_budget() {
    let mut harness = with_budgets(vec![limit(BudgetScope::Run, BudgetMeasure::Tokens, 36.0)]);
    harness.apply(submit("u1")).unwrap();
    let usage =
        TokenUsage { input_tokens: 20, output_tokens: 1, cached_tokens: 0, estimated: false };
    let failure = ModelFailure::temporary("cut off");
    let result = Err(ModelAttemptFailure { failure, streamed: true, usage });
    harness
        .apply(Input::ModelFinished { attempt_id: harness.streaming_attempt(), result })
        .unwrap();
    let due = harness.state.next_wake().unwrap();
    harness.set_clock(due).apply(Input::Wake).unwrap();
    harness.propose(&scripted_calls(["read"]));
    harness.check(
        harness.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        budget_reached (budget of 36 tokens of this run) spent 36 needs 0 @r1.1
        approval_requested p1 (Raise the budget of 36 tokens of this run, or stop the run) read_only within Some(60) @r1.1
    ",
    );
}

#[test]
fn m6_g6_lost_usage_has_unknown_cost_and_counts_as_an_estimate() {
    let price = crate::usage::ModelPrice::new(100_000.into(), 0.into());
    for (usd, raises) in [(1.0, 1), (1e6, 0)] {
        let mut harness = with_budgets(vec![limit(BudgetScope::Run, BudgetMeasure::Usd, usd)])
            .with_rules(|rules| rules.prices = Arc::new([("small".to_owned(), price)].into()));
        harness.apply(submit("u1")).unwrap();
        let usage = TokenUsage { estimated: true, ..TokenUsage::default() };
        let failure = ModelFailure::temporary("cut off");
        let result = Err(ModelAttemptFailure { failure, streamed: true, usage });
        let attempt_id = harness.streaming_attempt();
        harness.apply(Input::ModelFinished { attempt_id, result }).unwrap();
        let lost = harness.state.active.run.as_ref().unwrap().usage;
        assert!(lost.tokens.estimated && lost.tokens.input_tokens > 10, "{lost:?}");
        assert_eq!((lost.cost_usd, lost.tokens.output_tokens), (None, 0));
        let estimate = crate::usage::ModelUsage::from_tokens(Some(&price), lost.tokens);
        assert_eq!(lost.estimated_cost_usd, estimate.estimated_cost_usd);
        assert!(lost.estimated_cost_usd.is_some());
        let due = harness.state.next_wake().unwrap();
        harness.set_clock(due).apply(Input::Wake).unwrap();
        harness.propose(&scripted_calls(["read"]));
        harness.apply(harness.tool_finishes("c1", completed())).unwrap();
        assert_eq!(open_approvals(&harness), raises, "of {usd} USD: {lost:?}");
    }
}

#[test]
fn m6_usage_of_an_attempt_that_a_restart_ended_is_unknown() {
    let mut harness = SessionHarness::with_streaming_step();
    harness.apply(Input::Rehydrated { user_settings: None }).unwrap();
    let usage = harness.state.active.run.as_ref().unwrap().usage;
    assert!(usage.tokens.estimated && usage.tokens.input_tokens > 0, "{usage:?}");
    assert_eq!(usage.cost_usd, None);
}

#[test]
fn g6_approved_excess_cost_needs_no_raise() {
    let mut harness = with_budgets(vec![gold(BudgetScope::User, 5.0)]);
    harness.apply(submit("u1")).unwrap();
    harness.check(
        harness.model_calls(&[call_with_cost("high", 8.0)]),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 high write_high_risk @r1.1
        approval_requested p1 (Execute 1 tool) c1 write_high_risk within Some(60) @r1.1
    ",
    );
    let step = &harness.state.active.approvals[0].approval.steps()[0];
    assert!(step.exceeds_budget && step.why.contains("exceeds the remaining 5 gold"), "{step:?}");
    let input = harness.overall_answer("p1", true, "ann");
    let decision = harness.apply(input).unwrap();
    assert_eq!(decision.preconditions, [], "an approved excess needs no precondition");
    assert_eq!((reserved(&harness), open_approvals(&harness)), (8.0, 0));
    assert!(matches!(decision.effects[..], [crate::session::Effect::StartTool { .. }]));
}

#[test]
fn g6_approved_excess_does_not_block_calls_of_same_plan() {
    let calls = [call_with_cost("high", 2.0), call_with_cost("high", 8.0)];
    let mut harness = with_budgeted_calls(vec![gold(BudgetScope::User, 5.0)], &calls);
    let decision = harness.apply(harness.overall_answer("p1", true, "ann")).unwrap();
    assert_eq!((reserved(&harness), open_approvals(&harness)), (10.0, 0));
    // Another session may spend what the budget has left, but not more.
    let [precondition] = &decision.preconditions[..] else {
        panic!("{:?}", decision.preconditions)
    };
    assert!(
        [10.0, 13.0, 13.000_001].map(|spent| precondition.is_met(amount(spent)))
            == [true, true, false],
        "{precondition:?}"
    );
}

#[test]
fn g6_budget_spent_before_approval_requests_raise() {
    let mut harness =
        with_budgeted_calls(vec![gold(BudgetScope::User, 5.0)], &[call_with_cost("high", 4.0)]);
    let other_sessions = SpendingTotals { day: 3.into(), month: 3.into(), total: 3.into() };
    harness.account.totals.insert(BudgetMeasure::from_unit("gold"), other_sessions);
    harness.check(
        harness.overall_answer("p1", true, "ann"),
        "
        approval_decided p1 +c1 by ann closed @r1.1
        tool_call_allowed c1 by ann p1 @r1.1
        budget_reached (budget of 5 gold of this user) spent 3 needs 4 @r1.1
        approval_requested p2 (Raise the budget of 5 gold of this user, or stop the run) c1 write_high_risk within Some(60) @r1.1
        = decided closed
    ",
    );
    harness.check(
        harness.resolve("p2", raise(7.0), "ann"),
        "
        approval_decided p2 raise by ann closed @r1.1
        budget_raised p2 (budget of 7 gold of this user) by ann @r1.1
        budget_reserved c1 4 gold @r1.1
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 high
        = decided closed
    ",
    );
}

#[test]
fn g6_call_waiting_for_raise_is_evaluated_again() {
    let mut harness = with_insufficient_budget(gold(BudgetScope::Session, 5.0));
    harness.apply(harness.tool_finishes("c1", completed())).unwrap();
    let mut settings = harness.settings();
    settings.blocked_tools.insert(crate::ids::ToolName::parse("low").unwrap());
    harness
        .apply(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
        .unwrap();
    harness.check(
        harness.resolve("p1", raise(100.0), "ann"),
        "
        approval_decided p1 raise by ann closed @r1.1
        budget_raised p1 (budget of 100 gold of this session) by ann @r1.1
        authorization_denied c2 requires - @r1.1
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
        = decided closed
    ",
    );
}

#[test]
fn g6_raises_are_requested_one_budget_after_another() {
    let budgets = vec![gold(BudgetScope::Run, 2.0), gold(BudgetScope::Session, 3.0)];
    let mut harness = with_budgeted_calls(budgets, &[call_with_cost("low", 4.0)]);
    harness.check(
        harness.resolve("p1", raise(4.0), "ann"),
        "
        approval_decided p1 raise by ann closed @r1.1
        budget_raised p1 (budget of 4 gold of this run) by ann @r1.1
        budget_reached (budget of 3 gold of this session) spent 0 needs 4 @r1.1
        approval_requested p2 (Raise the budget of 3 gold of this session, or stop the run) c1 write_low_risk within Some(60) @r1.1
        = decided closed
    ",
    );
    harness.apply(harness.resolve("p2", raise(4.0), "ann")).unwrap();
    assert_eq!(reserved(&harness), 4.0);
}

#[test]
fn g8_edit_over_budget_is_rejected_and_edit_within_is_reserved() {
    let mut harness =
        with_budgeted_calls(vec![gold(BudgetScope::Session, 5.0)], &[call_with_cost("high", 4.0)]);
    let edit = |harness: &SessionHarness, amount: f64| {
        let call_id = harness.call("c1");
        let arguments = Some(json!({"n": amount}));
        let answer = PlanStepAnswer { call_id, approved: true, reason: None, arguments };
        harness.answer("p1", ApprovalAnswer::Steps(vec![answer]), "ann")
    };
    let refused = harness.apply(edit(&harness, 6.0)).unwrap_err();
    let Rejection::InvalidEdit { problem, .. } = &refused else { panic!("{refused}") };
    assert!(problem.contains("exceeds the remaining 5 gold"), "{problem}");
    assert_eq!(open_approvals(&harness), 1);
    harness.apply(edit(&harness, 2.0)).unwrap();
    assert_eq!(reserved(&harness), 2.0);
}

#[test]
fn g3_critical_call_runs_at_l3_only_within_budget() {
    let supervised = |budgets: Vec<Budget>, amount: f64| {
        let mut harness = with_budgets(budgets);
        let autonomy_level = Autonomy::Supervised;
        let settings = Settings { autonomy_level, ..harness.settings() };
        harness
            .apply(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
            .unwrap();
        harness.apply(submit("u1")).unwrap();
        harness.propose(&[call_with_cost("crit", amount)]);
        harness
    };
    let within_budget = supervised(vec![gold(BudgetScope::Session, 5.0)], 4.0);
    assert_eq!((open_approvals(&within_budget), reserved(&within_budget)), (0, 4.0));
    // Without a budget, or without room in it, the call itself needs approval.
    for harness in [supervised(vec![], 4.0), supervised(vec![gold(BudgetScope::Session, 5.0)], 6.0)]
    {
        assert_eq!((open_approvals(&harness), reserved(&harness)), (1, 0.0));
        assert_eq!(harness.state.active.approvals[0].approval.purpose, "Execute 1 tool");
    }
}

#[test]
fn g9_grant_does_not_cover_excess_cost() {
    let mut harness =
        with_budgeted_calls(vec![gold(BudgetScope::Session, 5.0)], &[call_with_cost("high", 1.0)]);
    harness
        .apply(Input::AnswerApproval {
            approval_id: harness.approval("p1"),
            answer: ApprovalAnswer::Overall { approved: true, reason: None },
            for_session: Some(GrantRequest::default()),
            by: user("ann"),
            role: Role::User,
            surface: Surface::Rest,
        })
        .unwrap();
    harness.apply(harness.tool_finishes("c1", completed())).unwrap();
    harness.check(
        harness.model_calls(&[call_with_cost("high", 4.0), call_with_cost("high", 1.0)]),
        "
        message_completed M2 '' @r1.2
        step_completed ToolUse 10 @r1.2
        tool_call_started c2 high write_high_risk @r1.2
        tool_call_allowed c2 by g1 @r1.2
        budget_reserved c2 4 gold @r1.2
        tool_call_started c3 high write_high_risk @r1.2
        tool_call_allowed c3 by g1 @r1.2
        budget_reached (budget of 5 gold of this session) spent 5 needs 1 @r1.2
        approval_requested p2 (Raise the budget of 5 gold of this session, or stop the run) c3 write_high_risk within Some(60) @r1.2
        tool_call_attempt_started c2 a4 #1 @r1.2
        > start_tool c2 a4 high
    ",
    );
}

#[test]
fn g12_raise_does_not_replace_the_approval_of_a_critical_call() {
    let budgets = vec![gold(BudgetScope::Session, 2.0)];
    let mut harness = with_budgeted_calls(budgets, &[call_with_cost("low", 4.0)]);
    // The tool becomes critical while its call waits for the budget.
    harness.set_risk("low", Risk::Critical);
    harness.rules.critical.four_eyes = true;
    let decision =
        harness.apply(harness.resolve("p1", Resolution::Raise(amount(9.0)), "ann")).unwrap();
    assert_eq!(decision.effects, []);
    let steps = harness.state.active.approvals[0].approval.steps();
    assert_eq!((steps.len(), steps[0].risk), (1, Risk::Critical));
    let refused = harness.apply(harness.overall_answer("p2", true, "ann")).unwrap_err();
    assert!(matches!(refused, Rejection::FourEyes { .. }), "{refused}");
    let decision = harness.apply(harness.overall_answer("p2", true, "bob")).unwrap();
    assert!(
        matches!(decision.effects[..], [crate::session::Effect::StartTool { .. }]),
        "{:?}",
        decision.effects
    );
}
