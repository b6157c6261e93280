//! Budgets: what is set aside and released, when people are asked for more, and what they say (G6).

use super::*;
use crate::{
    approval::GrantRequest,
    budget::{Budget, BudgetScope, SpendingTotals},
    policy::{BudgetLimit, BudgetPeriod, CostRule, Expression},
    session::SessionEvent,
};

fn limit(scope: BudgetScope, measure: BudgetMeasure, limit: f64) -> Budget {
    Budget { scope, period: BudgetPeriod::Total, measure, limit }
}

fn gold(scope: BudgetScope, amount: f64) -> Budget {
    limit(scope, BudgetMeasure::from_unit("gold"), amount)
}

/// A session with these budgets, whose `low`, `high`, `idem` and `crit` cost `args.n` gold.
fn with_budgets(budgets: Vec<Budget>) -> SessionHarness {
    let mut tools = tools();
    for tool in &mut tools {
        if ["low", "high", "idem", "crit"].contains(&tool.name.as_str()) {
            let amount = Expression::compile("args.n").unwrap();
            tool.cost = Some(CostRule { amount, unit: "gold".to_owned() });
        }
    }
    SessionHarness::new()
        .with_agent(|agent| agent.budgets = budgets)
        .with_rules(|rules| rules.tools = Arc::new(ToolRegistry::new(tools)))
}

fn costing(tool: &'static str, amount: f64) -> ScriptedCall {
    ScriptedCall::Valid(tool, json!({"n": amount}))
}

/// The same, whose model proposed these calls first.
fn calling(budgets: Vec<Budget>, calls: &[ScriptedCall]) -> SessionHarness {
    let mut scene = with_budgets(budgets);
    scene.apply(submit("u1")).unwrap();
    scene.propose(calls);
    scene
}

fn reserved(scene: &SessionHarness) -> f64 {
    scene.state.active.tool_costs.spent("gold", BudgetPeriod::Total, scene.now.day())
}

fn open_approvals(scene: &SessionHarness) -> usize {
    scene.state.active.approvals.len()
}

#[test]
fn g6_what_a_call_costs_is_set_aside_when_it_is_allowed() {
    let mut scene = with_budgets(vec![gold(BudgetScope::Session, 10.0)]);
    scene.apply(submit("u1")).unwrap();
    scene.check(
        scene.model_calls(&[costing("low", 4.0)]),
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
    assert_eq!(reserved(&scene), 4.0);
}

#[test]
fn g6_reservations_are_released_only_without_effect() {
    let refused = || failed("no such order", RetryHint::Unspecified);
    let cases = [
        ("low", completed(), 4.0),
        ("low", refused(), 0.0),
        ("low", timed_out(), 4.0),
        ("low", crashed(), 4.0),
        ("idem", completed(), 4.0),
        ("idem", refused(), 0.0),
    ];
    for (tool, outcome, kept) in cases {
        let mut scene = calling(vec![gold(BudgetScope::Session, 10.0)], &[costing(tool, 4.0)]);
        if open_approvals(&scene) > 0 {
            scene.apply(scene.overall_answer("p1", true, "ann")).unwrap();
        }
        scene.apply(scene.tool_finishes("c1", outcome.clone())).unwrap();
        assert_eq!(reserved(&scene), kept, "{tool} {outcome:?}");
    }
}

#[test]
fn g6_a_call_that_never_reached_its_tool_costs_nothing_and_one_that_may_have_does() {
    for (outcome, kept) in [(not_sent(), 0.0), (timed_out(), 4.0), (crashed(), 4.0)] {
        let mut scene = calling(vec![gold(BudgetScope::Session, 10.0)], &[costing("idem", 4.0)]);
        scene.apply(scene.overall_answer("p1", true, "ann")).unwrap();
        for _ in 0..=crate::limits::RETRIES_DEFAULT {
            assert_eq!(reserved(&scene), 4.0, "kept over retries");
            scene.apply(scene.tool_finishes("c1", outcome.clone())).unwrap();
            if let Some(next) = scene.state.next_wake() {
                scene.set_clock(next).apply(Input::Wake).unwrap();
            }
        }
        assert_eq!(reserved(&scene), kept, "{outcome:?}");
    }
}

/// `idem`, which costs 4 gold, was approved, and its attempts ended so.
fn after_outcomes(outcomes: &[ToolOutcome]) -> SessionHarness {
    let mut scene = calling(vec![gold(BudgetScope::Session, 10.0)], &[costing("idem", 4.0)]);
    scene.apply(scene.overall_answer("p1", true, "ann")).unwrap();
    for outcome in outcomes {
        scene.apply(scene.tool_finishes("c1", outcome.clone())).unwrap();
        if let Some(next) = scene.state.next_wake() {
            scene.set_clock(next).apply(Input::Wake).unwrap();
        }
    }
    scene
}

#[test]
fn d3_g6_a_failed_retry_keeps_an_earlier_uncertain_effect() {
    let refused = || failed("no such order", RetryHint::Unspecified);
    // It was refused, or never reached its tool, in the end.
    for last in [vec![refused()], vec![not_sent(), not_sent(), not_sent()]] {
        let mut outcomes = vec![crashed()];
        outcomes.extend(last);
        let scene = after_outcomes(&outcomes);
        assert_eq!(reserved(&scene), 4.0, "{outcomes:?}");
        let end = scene.log.iter().find_map(|record| {
            let SessionEvent::ToolCallFailed { reason, error, maybe_ran, .. } = &record.event
            else {
                return None;
            };
            Some((*reason, error.clone(), *maybe_ran))
        });
        let (reason, error, maybe_ran) = end.expect("it ended");
        assert_eq!((reason, maybe_ran), (crate::call::CallFailureReason::OutcomeUnknown, true));
        assert!(error.ends_with(". An earlier attempt may have taken effect"), "{error}");
    }
    // None of its attempts can have.
    assert_eq!(reserved(&after_outcomes(&[not_sent(), refused()])), 0.0);
}

#[test]
fn d3_g6_cancel_during_backoff_releases_only_calls_without_effect() {
    for (outcome, kept) in [(crashed(), 4.0), (not_sent(), 0.0)] {
        let mut scene = calling(vec![gold(BudgetScope::Session, 10.0)], &[costing("low", 4.0)]);
        if matches!(outcome, ToolOutcome::Crashed { .. }) {
            scene.apply(scene.tool_finishes("c1", outcome.clone())).unwrap();
            scene.apply(scene.resolve("p1", Resolution::Retry, "ann")).unwrap();
            scene.apply(scene.tool_finishes("c1", not_sent())).unwrap();
        } else {
            scene.apply(scene.tool_finishes("c1", outcome.clone())).unwrap();
        }
        scene.apply(cancel()).unwrap();
        assert_eq!(reserved(&scene), kept, "{outcome:?}");
    }
}

#[test]
fn g6_free_calls_run_under_an_overdrawn_budget() {
    let mut scene = with_budgets(vec![gold(BudgetScope::Session, 10.0)]);
    scene.account.limit = None;
    scene.apply(submit("u1")).unwrap();
    scene.propose(&[costing("low", 8.0)]);
    scene.apply(scene.tool_finishes("c1", completed())).unwrap();
    // Its limit is lowered below what is spent.
    let mut scene = scene.with_agent(|agent| agent.budgets = vec![gold(BudgetScope::Session, 5.0)]);
    scene.check(
        scene.model_calls(&[costing("low", 0.0)]),
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
fn g6_an_unknown_outcome_keeps_its_reservation_until_resolved() {
    let words = [
        (Resolution::Done(json!("it did")), 4.0),
        (Resolution::Failed, 0.0),
        // Set aside once, however often it runs.
        (Resolution::Retry, 4.0),
    ];
    for (word, kept) in words {
        let mut scene = calling(vec![gold(BudgetScope::Session, 10.0)], &[costing("low", 4.0)]);
        scene.apply(Input::Rehydrated { user_settings: None }).unwrap();
        assert_eq!(reserved(&scene), 4.0);
        scene.apply(scene.resolve("p1", word.clone(), "ann")).unwrap();
        assert_eq!(reserved(&scene), kept, "{word:?}");
    }
    let mut scene = calling(vec![gold(BudgetScope::Session, 10.0)], &[costing("low", 4.0)]);
    scene.apply(Input::Rehydrated { user_settings: None }).unwrap();
    scene.apply(cancel()).unwrap();
    assert_eq!(reserved(&scene), 4.0, "it may have taken effect");
}

#[test]
fn g6_a_cancel_releases_what_had_not_begun() {
    let budgets = vec![gold(BudgetScope::Session, 10.0)];
    let mut scene = calling(budgets, &[costing("low", 4.0), costing("low", 5.0)]);
    assert_eq!(reserved(&scene), 9.0);
    scene.apply(cancel()).unwrap();
    assert_eq!(reserved(&scene), 4.0);
}

/// The second of two calls found no room for its 3 gold.
fn with_insufficient_budget(budget: Budget) -> SessionHarness {
    let mut scene = with_budgets(vec![budget]);
    scene.apply(submit("u1")).unwrap();
    scene.propose(&[costing("low", 3.0), costing("low", 3.0)]);
    scene
}

#[test]
fn g6_two_calls_of_one_step_share_what_is_left() {
    let mut scene = with_budgets(vec![gold(BudgetScope::Session, 5.0)]);
    scene.apply(submit("u1")).unwrap();
    scene.check(
        scene.model_calls(&[costing("low", 3.0), costing("low", 3.0)]),
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
    // What already runs finishes.
    scene.check(scene.tool_finishes("c1", completed()), "tool_call_completed c1 '42' @r1.1");
}

#[test]
fn g6_a_raise_must_cover_what_is_needed_and_then_the_run_goes_on() {
    let mut scene = with_insufficient_budget(gold(BudgetScope::Session, 5.0));
    for too_little in [5.0, 5.999, 0.0, -1.0, f64::NAN, f64::INFINITY] {
        scene.check(
            scene.resolve("p1", Resolution::Raise(too_little), "ann"),
            "! the answer can't be taken: the new limit must be at least 6 gold",
        );
    }
    scene.apply(scene.tool_finishes("c1", completed())).unwrap();
    scene.check(
        scene.resolve("p1", Resolution::Raise(6.0), "ann"),
        "
        approval_decided p1 raise by ann closed @r1.1
        budget_raised p1 (budget of 6 gold of this session) by ann @r1.1
        budget_reserved c2 3 gold @r1.1
        tool_call_attempt_started c2 a3 #1 @r1.1
        > start_tool c2 a3 low
        = decided closed
    ",
    );
    assert_eq!(reserved(&scene), 6.0);
    scene.check(scene.resolve("p1", Resolution::Raise(6.0), "ann"), "= decided closed repeated");
    scene.check(scene.resolve("p1", Resolution::Stop, "bob"), "! already decided raise by ann");
}

#[test]
fn g6_a_raise_waits_for_a_tool_that_is_away() {
    let mut scene = with_insufficient_budget(gold(BudgetScope::Session, 5.0));
    let tools = std::mem::take(&mut scene.rules.tools);
    scene.check(
        scene.resolve("p1", Resolution::Raise(6.0), "ann"),
        "! the answer can't be taken: low is not there now; its server may be away",
    );
    scene.rules.tools = tools;
    scene.apply(scene.resolve("p1", Resolution::Raise(6.0), "ann")).unwrap();
    assert_eq!(reserved(&scene), 6.0);
}

#[test]
fn g6_a_person_stops_the_run() {
    let mut scene = with_insufficient_budget(gold(BudgetScope::Session, 5.0));
    scene.check(
        scene.resolve("p1", Resolution::Stop, "ann"),
        "
        approval_decided p1 stop by ann closed @r1.1
        tool_call_failed c1 Cancelled (the run ended while the call ran; it may have taken effect) @r1.1
        tool_call_failed c2 Cancelled (the run ended; the call did not take effect) @r1.1
        run_failed BudgetReached (the budget of 5 gold of this session is reached, and ann stopped the run) @r1.1
        > stop_tool c1 a2
        = decided closed
    ",
    );
    assert_eq!(reserved(&scene), 3.0);
}

#[test]
fn g10_a_budget_question_that_expires_ends_the_run() {
    let mut scene = with_insufficient_budget(gold(BudgetScope::Session, 5.0));
    scene.apply(scene.tool_finishes("c1", completed())).unwrap();
    scene.advance_clock(MINUTE).check(
        Input::Wake,
        "
        approval_expired p1 @r1.1
        tool_call_failed c2 Cancelled (the run ended; the call did not take effect) @r1.1
        run_failed ApprovalExpired (nobody answered in time whether to raise the budget of 5 gold of this session) @r1.1
    ",
    );
    scene.check(
        scene.resolve("p1", Resolution::Raise(9.0), "ann"),
        "! the approval has expired; nobody answered in time",
    );
}

#[test]
fn g6_budget_approvals_accept_only_their_answers() {
    let mut scene = with_insufficient_budget(gold(BudgetScope::Session, 5.0));
    let refused = "! a decision on this is `raise` or `stop`";
    scene.check(scene.overall_answer("p1", true, "ann"), refused);
    scene.check(scene.resolve("p1", Resolution::Retry, "ann"), refused);
}

#[test]
fn g13_headless_runs_fail_when_a_budget_is_reached() {
    let budget = limit(BudgetScope::Run, BudgetMeasure::Tokens, 15.0);
    let mut scene = with_budgets(vec![budget]).with_agent(|agent| agent.headless = true);
    scene.apply(submit("u1")).unwrap();
    scene.propose(&scripted_calls(["read"]));
    scene.check(
        scene.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        budget_reached (budget of 15 tokens of this run) spent 15 needs 0 @r1.1
        run_failed BudgetReached (the budget of 15 tokens of this run is reached, and there is nobody to raise it) @r1.1
    ",
    );
    // A call that there is no room for is denied as any that a person would be asked for.
    let mut scene = with_budgets(vec![gold(BudgetScope::Session, 5.0)])
        .with_agent(|agent| agent.headless = true);
    scene.apply(submit("u1")).unwrap();
    let decision = scene.apply(scene.model_calls(&[costing("low", 9.0)])).unwrap();
    let ends: Vec<_> = decision.events.iter().map(|record| &record.event).collect();
    let is_denied = |event: &&SessionEvent| matches!(event, SessionEvent::AuthorizationDenied { reason, .. } if reason.contains("no approver is available"));
    assert!(ends.iter().any(is_denied), "{ends:?}");
}

#[test]
fn g6_each_scope_counts_its_own() {
    // Two runs that cost 3 each, and 3 that the user's other sessions spent, of 5.
    for (scope, asked_in_runs) in
        [(BudgetScope::Run, [0, 0]), (BudgetScope::Session, [0, 1]), (BudgetScope::User, [1, 1])]
    {
        let mut scene = with_budgets(vec![gold(scope, 5.0)]);
        let elsewhere = SpendingTotals { day: 3.0, month: 3.0, total: 3.0 };
        scene.account.totals.insert(BudgetMeasure::from_unit("gold"), elsewhere);
        let mut found = [0, 0];
        for (index, message) in ["u1", "u2"].into_iter().enumerate() {
            scene.apply(submit(message)).unwrap();
            scene.propose(&[costing("low", 3.0)]);
            found[index] = open_approvals(&scene);
            if found[index] == 0 {
                let call = format!("c{}", index + 1);
                scene.apply(scene.tool_finishes(&call, completed())).unwrap();
                scene.apply(scene.model_answers("done")).unwrap();
            } else {
                scene.apply(cancel()).unwrap();
            }
        }
        assert_eq!(found, asked_in_runs, "{scope:?}");
    }
}

#[test]
fn g6_the_limits_of_the_settings_count_for_the_session_and_for_the_user() {
    let of = |amount| BudgetLimit { amount, unit: "gold".to_owned(), period: BudgetPeriod::Total };
    let mut scene = with_budgets(vec![]);
    scene.account.limit = Some(of(5.0));
    scene.apply(submit("u1")).unwrap();
    let decision = scene.apply(scene.model_calls(&[costing("low", 3.0)])).unwrap();
    let [claim] = &decision.preconditions[..] else { panic!("{:?}", decision.preconditions) };
    assert_eq!((claim.limit, claim.period), (5.0, BudgetPeriod::Total));
    scene.apply(scene.tool_finishes("c1", completed())).unwrap();
    scene.propose(&[costing("low", 3.0)]);
    let purpose = &scene.state.active.approvals[0].approval.purpose;
    assert_eq!(purpose, "Raise the budget of 5 gold of this user, or stop the run");
    // What a person raised is the limit that is claimed.
    let decision = scene.apply(scene.resolve("p1", Resolution::Raise(7.0), "ann")).unwrap();
    assert_eq!(decision.preconditions.iter().map(|claim| claim.limit).collect::<Vec<_>>(), [7.0]);

    let mut scene = with_budgets(vec![]);
    let settings = Settings { budget_limit: Some(of(2.0)), ..scene.settings() };
    scene
        .apply(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
        .unwrap();
    scene.apply(submit("u1")).unwrap();
    let decision = scene.apply(scene.model_calls(&[costing("low", 3.0)])).unwrap();
    assert_eq!(decision.preconditions, [], "what only the session knows needs no claim");
    let purpose = &scene.state.active.approvals[0].approval.purpose;
    assert_eq!(purpose, "Raise the budget of 2 gold of this session, or stop the run");
}

#[test]
fn g6_a_budget_is_for_a_day_a_month_or_for_ever() {
    let day = Duration::from_secs(24 * 60 * 60);
    for (period, passed, asks) in [
        (BudgetPeriod::Day, SECOND, 1),
        (BudgetPeriod::Day, day, 0),
        (BudgetPeriod::Month, day, 1),
        (BudgetPeriod::Month, day * 31, 0),
        (BudgetPeriod::Total, day * 1000, 1),
    ] {
        for scope in [BudgetScope::Session, BudgetScope::User] {
            let mut scene = with_budgets(vec![Budget { period, ..gold(scope, 5.0) }]);
            scene.apply(submit("u1")).unwrap();
            scene.propose(&[costing("low", 3.0)]);
            scene.apply(scene.tool_finishes("c1", completed())).unwrap();
            scene.advance_clock(passed).propose(&[costing("low", 3.0)]);
            assert_eq!(open_approvals(&scene), asks, "{period:?} {scope:?} after {passed:?}");
        }
    }
}

#[test]
fn g6_a_raise_holds_for_its_period_and_no_longer_than_its_run() {
    let day = Duration::from_secs(24 * 60 * 60);
    let mut scene = with_insufficient_budget(Budget {
        period: BudgetPeriod::Day,
        ..gold(BudgetScope::Session, 5.0)
    });
    scene.apply(scene.tool_finishes("c1", completed())).unwrap();
    scene.apply(scene.resolve("p1", Resolution::Raise(100.0), "ann")).unwrap();
    scene.apply(scene.tool_finishes("c2", completed())).unwrap();
    scene.propose(&[costing("low", 90.0)]);
    assert_eq!(open_approvals(&scene), 0);
    scene.apply(scene.tool_finishes("c3", completed())).unwrap();
    scene.advance_clock(day).propose(&[costing("low", 6.0)]);
    assert_eq!(open_approvals(&scene), 1, "today it is 5 again");

    let mut scene = with_insufficient_budget(gold(BudgetScope::Run, 5.0));
    scene.apply(scene.resolve("p1", Resolution::Raise(100.0), "ann")).unwrap();
    scene.apply(cancel()).unwrap();
    scene.apply(submit("u2")).unwrap();
    scene.propose(&[costing("low", 6.0)]);
    assert_eq!(open_approvals(&scene), 1, "another run");
}

/// One step was made, of 15 tokens, and the next does not fit.
fn with_exhausted_budget(measure: BudgetMeasure, amount: f64) -> SessionHarness {
    let mut scene = with_budgets(vec![limit(BudgetScope::Run, measure, amount)]);
    scene.apply(submit("u1")).unwrap();
    scene.propose(&scripted_calls(["read"]));
    scene
}

#[test]
fn g6_tokens_are_checked_before_each_step() {
    let mut scene = with_exhausted_budget(BudgetMeasure::Tokens, 15.0);
    scene.check(
        scene.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        budget_reached (budget of 15 tokens of this run) spent 15 needs 0 @r1.1
        approval_requested p1 (Raise the budget of 15 tokens of this run, or stop the run) read_only within Some(60) @r1.1
    ",
    );
    // It waits, whatever else happens.
    scene.check(Input::Wake, "");
    scene.check(Input::Rehydrated { user_settings: None }, "");
    assert!(scene.state.is_waiting_for_approval());
    scene.check(
        scene.resolve("p1", Resolution::Raise(15.0), "ann"),
        "! the answer can't be taken: the new limit must be more than 15 tokens",
    );
    scene.check(
        scene.resolve("p1", Resolution::Raise(16.0), "ann"),
        "
        approval_decided p1 raise by ann closed @r1.1
        budget_raised p1 (budget of 16 tokens of this run) by ann @r1.1
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
        = decided closed
    ",
    );
    // The final answer needs no further step: nobody is asked about it.
    scene.check(
        scene.model_answers("done"),
        "
        message_completed M2 'done' @r1.2
        step_completed EndTurn 10 @r1.2
        run_completed M2 20 @r1.2
    ",
    );
}

#[test]
fn g6_a_session_that_has_none_left_asks_before_its_first_step() {
    for scope in [BudgetScope::Session, BudgetScope::User] {
        let mut scene = with_budgets(vec![limit(scope, BudgetMeasure::Tokens, 15.0)]);
        scene.apply(submit("u1")).unwrap();
        scene.apply(scene.model_answers("done")).unwrap();
        scene.apply(submit("u2")).unwrap();
        assert_eq!(open_approvals(&scene), 1, "{scope:?}");
        scene.check(Input::Rehydrated { user_settings: None }, "");
        scene.check(
            scene.resolve("p1", Resolution::Stop, "ann"),
            &format!("
            approval_decided p1 stop by ann closed @r2
            run_failed BudgetReached (the budget of 15 tokens of this {} is reached, and ann stopped the run) @r2
            = decided closed
        ", if scope == BudgetScope::User { "user" } else { "session" }),
        );
        assert!(scene.state.is_idle());
    }
}

#[test]
fn g6_money_is_counted_at_the_price_of_the_model() {
    let price = crate::usage::ModelPrice { input: 100_000.0, output: 0.0, cached: None };
    for (dollars, asks) in [(1.0, 1), (1.1, 0)] {
        let mut scene = with_exhausted_budget(BudgetMeasure::Usd, dollars)
            .with_rules(|rules| rules.prices = Arc::new([("small".to_owned(), price)].into()));
        // The first step was made before the price was known to these rules.
        scene.apply(cancel()).unwrap();
        scene.apply(submit("u2")).unwrap();
        scene.propose(&scripted_calls(["read"]));
        scene.apply(scene.tool_finishes("c2", completed())).unwrap();
        assert_eq!(open_approvals(&scene), asks, "10 tokens of 1 USD, of {dollars}");
    }
}

#[test]
fn g6_unknown_costs_fit_no_budget() {
    let mut scene = with_exhausted_budget(BudgetMeasure::Usd, 1000.0);
    scene.check(
        scene.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        budget_reached (budget of 1000 USD of this run) spent 1000 needs 0 @r1.1
        approval_requested p1 (Raise the budget of 1000 USD of this run, or stop the run) read_only within Some(60) @r1.1
    ",
    );
    scene.check(
        scene.resolve("p1", Resolution::Raise(1e9), "ann"),
        "! the answer can't be taken: nobody knows what was spent of it, since a model has no price; no limit can be kept",
    );
    scene.apply(scene.resolve("p1", Resolution::Stop, "ann")).unwrap();
    assert!(scene.state.is_idle());
}

#[test]
fn g6_failed_attempts_count() {
    let mut scene = with_budgets(vec![limit(BudgetScope::Run, BudgetMeasure::Tokens, 36.0)]);
    scene.apply(submit("u1")).unwrap();
    let usage = TokenUsage { input_tokens: 20, output_tokens: 1, cached_tokens: 0 };
    let failure = ModelFailure::temporary("cut off");
    let result = Err(ModelAttemptFailure { failure, streamed: true, usage });
    scene.apply(Input::ModelFinished { attempt_id: scene.streaming_attempt(), result }).unwrap();
    let due = scene.state.next_wake().unwrap();
    scene.set_clock(due).apply(Input::Wake).unwrap();
    scene.propose(&scripted_calls(["read"]));
    scene.check(
        scene.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        budget_reached (budget of 36 tokens of this run) spent 36 needs 0 @r1.1
        approval_requested p1 (Raise the budget of 36 tokens of this run, or stop the run) read_only within Some(60) @r1.1
    ",
    );
}

#[test]
fn g6_approving_an_excess_cost_needs_no_raise() {
    let mut scene = with_budgets(vec![gold(BudgetScope::User, 5.0)]);
    scene.apply(submit("u1")).unwrap();
    scene.check(
        scene.model_calls(&[costing("high", 8.0)]),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 high write_high_risk @r1.1
        approval_requested p1 (Execute 1 tool) c1 write_high_risk within Some(60) @r1.1
    ",
    );
    let step = &scene.state.active.approvals[0].approval.steps()[0];
    assert!(step.exceeds_budget && step.why.contains("exceeds the remaining 5 gold"), "{step:?}");
    let input = scene.overall_answer("p1", true, "ann");
    let decision = scene.apply(input).unwrap();
    assert_eq!(decision.preconditions, [], "it may not be refused for what a person covered");
    assert_eq!((reserved(&scene), open_approvals(&scene)), (8.0, 0));
    assert!(matches!(decision.effects[..], [crate::session::Effect::StartTool { .. }]));
}

#[test]
fn g6_an_approved_excess_does_not_block_calls_of_the_same_plan() {
    let calls = [costing("high", 2.0), costing("high", 8.0)];
    let mut scene = calling(vec![gold(BudgetScope::User, 5.0)], &calls);
    let decision = scene.apply(scene.overall_answer("p1", true, "ann")).unwrap();
    assert_eq!((reserved(&scene), open_approvals(&scene)), (10.0, 0));
    // Another session may spend what the budget still has, and no more.
    let [claim] = &decision.preconditions[..] else { panic!("{:?}", decision.preconditions) };
    assert!(claim.is_met(10.0) && claim.is_met(13.0) && !claim.is_met(13.1), "{claim:?}");
}

#[test]
fn g6_a_budget_spent_before_approval_requests_a_raise() {
    let mut scene = calling(vec![gold(BudgetScope::User, 5.0)], &[costing("high", 4.0)]);
    let meanwhile = SpendingTotals { day: 3.0, month: 3.0, total: 3.0 };
    scene.account.totals.insert(BudgetMeasure::from_unit("gold"), meanwhile);
    scene.check(
        scene.overall_answer("p1", true, "ann"),
        "
        approval_decided p1 +c1 by ann closed @r1.1
        tool_call_allowed c1 by ann p1 @r1.1
        budget_reached (budget of 5 gold of this user) spent 3 needs 4 @r1.1
        approval_requested p2 (Raise the budget of 5 gold of this user, or stop the run) c1 write_high_risk within Some(60) @r1.1
        = decided closed
    ",
    );
    scene.check(
        scene.resolve("p2", Resolution::Raise(7.0), "ann"),
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
fn g6_a_call_that_waits_for_a_budget_is_judged_again_before_it_runs() {
    let mut scene = with_insufficient_budget(gold(BudgetScope::Session, 5.0));
    scene.apply(scene.tool_finishes("c1", completed())).unwrap();
    let mut settings = scene.settings();
    settings.blocked_tools.insert(crate::ids::ToolName::parse("low").unwrap());
    scene
        .apply(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
        .unwrap();
    scene.check(
        scene.resolve("p1", Resolution::Raise(100.0), "ann"),
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
fn g6_one_budget_after_the_other() {
    let budgets = vec![gold(BudgetScope::Run, 2.0), gold(BudgetScope::Session, 3.0)];
    let mut scene = calling(budgets, &[costing("low", 4.0)]);
    scene.check(
        scene.resolve("p1", Resolution::Raise(4.0), "ann"),
        "
        approval_decided p1 raise by ann closed @r1.1
        budget_raised p1 (budget of 4 gold of this run) by ann @r1.1
        budget_reached (budget of 3 gold of this session) spent 0 needs 4 @r1.1
        approval_requested p2 (Raise the budget of 3 gold of this session, or stop the run) c1 write_low_risk within Some(60) @r1.1
        = decided closed
    ",
    );
    scene.apply(scene.resolve("p2", Resolution::Raise(4.0), "ann")).unwrap();
    assert_eq!(reserved(&scene), 4.0);
}

#[test]
fn g8_an_edit_beyond_the_budget_is_refused_and_one_within_it_is_what_is_set_aside() {
    let mut scene = calling(vec![gold(BudgetScope::Session, 5.0)], &[costing("high", 4.0)]);
    let edit = |scene: &SessionHarness, amount: f64| {
        let call_id = scene.call("c1");
        let arguments = Some(json!({"n": amount}));
        let answer = PlanStepAnswer { call_id, approved: true, reason: None, arguments };
        scene.answer("p1", ApprovalAnswer::Steps(vec![answer]), "ann")
    };
    let refused = scene.apply(edit(&scene, 6.0)).unwrap_err();
    let Rejection::InvalidEdit { problem, .. } = &refused else { panic!("{refused}") };
    assert!(problem.contains("exceeds the remaining 5 gold"), "{problem}");
    assert_eq!(open_approvals(&scene), 1);
    scene.apply(edit(&scene, 2.0)).unwrap();
    assert_eq!(reserved(&scene), 2.0);
}

#[test]
fn g3_a_critical_call_runs_at_the_highest_level_only_where_a_budget_has_room() {
    let supervised = |budgets: Vec<Budget>, amount: f64| {
        let mut scene = with_budgets(budgets);
        let autonomy_level = Autonomy::Supervised;
        let settings = Settings { autonomy_level, ..scene.settings() };
        scene
            .apply(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
            .unwrap();
        scene.apply(submit("u1")).unwrap();
        scene.propose(&[costing("crit", amount)]);
        scene
    };
    let with_room = supervised(vec![gold(BudgetScope::Session, 5.0)], 4.0);
    assert_eq!((open_approvals(&with_room), reserved(&with_room)), (0, 4.0));
    // Without a budget, and without room in it, a person is asked about the call itself.
    for scene in [supervised(vec![], 4.0), supervised(vec![gold(BudgetScope::Session, 5.0)], 6.0)] {
        assert_eq!((open_approvals(&scene), reserved(&scene)), (1, 0.0));
        assert_eq!(scene.state.active.approvals[0].approval.purpose, "Execute 1 tool");
    }
}

#[test]
fn g9_a_grant_does_not_cover_what_a_budget_has_no_room_for() {
    let mut scene = calling(vec![gold(BudgetScope::Session, 5.0)], &[costing("high", 1.0)]);
    scene
        .apply(Input::AnswerApproval {
            approval_id: scene.approval("p1"),
            answer: ApprovalAnswer::Overall { approved: true, reason: None },
            for_session: Some(GrantRequest::default()),
            by: user("ann"),
            role: Role::User,
            surface: Surface::Rest,
        })
        .unwrap();
    scene.apply(scene.tool_finishes("c1", completed())).unwrap();
    scene.check(
        scene.model_calls(&[costing("high", 4.0), costing("high", 1.0)]),
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
