//! Budgets: what is set aside and released, when people are asked for more, and what they say (G6).

use super::*;
use crate::{
    approval::GrantWish,
    budget::{Budget, Scope, Spent},
    policy::{BudgetLimit, CostRule, Expression, Period},
    session::SessionEvent,
};

fn limit(scope: Scope, measure: Measure, limit: f64) -> Budget {
    Budget { scope, period: Period::Total, measure, limit }
}

fn gold(scope: Scope, amount: f64) -> Budget {
    limit(scope, Measure::unit("gold"), amount)
}

/// A session with these budgets, whose `low`, `high`, `idem` and `crit` cost `args.n` gold.
fn with(budgets: Vec<Budget>) -> Scene {
    let mut tools = tools();
    for tool in &mut tools {
        if ["low", "high", "idem", "crit"].contains(&tool.name.as_str()) {
            let amount = Expression::compile("args.n").unwrap();
            tool.cost = Some(CostRule { amount, unit: "gold".to_owned() });
        }
    }
    Scene::new()
        .agent(|agent| agent.budgets = budgets)
        .rules(|rules| rules.tools = Arc::new(ToolBook::new(tools)))
}

fn costing(tool: &'static str, amount: f64) -> Wanted {
    Wanted::With(tool, json!({"n": amount}))
}

/// The same, whose model proposed these calls first.
fn calling(budgets: Vec<Budget>, calls: &[Wanted]) -> Scene {
    let mut scene = with(budgets);
    scene.does(submit("u1")).unwrap();
    scene.propose(calls);
    scene
}

fn reserved(scene: &Scene) -> f64 {
    scene.state.active.costs.spent("gold", Period::Total, scene.now.day())
}

fn asked(scene: &Scene) -> usize {
    scene.state.active.approvals.len()
}

#[test]
fn g6_what_a_call_costs_is_set_aside_when_it_is_allowed() {
    let mut scene = with(vec![gold(Scope::Session, 10.0)]);
    scene.does(submit("u1")).unwrap();
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
fn g6_what_is_set_aside_is_released_only_when_nothing_happened() {
    let refused = || failed("no such order", RepeatHint::Unsaid);
    let cases = [
        ("low", completed(), 4.0),
        ("low", refused(), 0.0),
        ("low", timed_out(), 4.0),
        ("low", crashed(), 4.0),
        ("idem", completed(), 4.0),
        ("idem", refused(), 0.0),
    ];
    for (tool, outcome, kept) in cases {
        let mut scene = calling(vec![gold(Scope::Session, 10.0)], &[costing(tool, 4.0)]);
        if asked(&scene) > 0 {
            scene.does(scene.whole("p1", true, "ann")).unwrap();
        }
        scene.does(scene.tool("c1", outcome.clone())).unwrap();
        assert_eq!(reserved(&scene), kept, "{tool} {outcome:?}");
    }
}

#[test]
fn g6_a_call_that_never_reached_its_tool_costs_nothing_and_one_that_may_have_does() {
    for (outcome, kept) in [(not_sent(), 0.0), (timed_out(), 4.0), (crashed(), 4.0)] {
        let mut scene = calling(vec![gold(Scope::Session, 10.0)], &[costing("idem", 4.0)]);
        scene.does(scene.whole("p1", true, "ann")).unwrap();
        for _ in 0..=crate::limits::RETRIES_DEFAULT {
            assert_eq!(reserved(&scene), 4.0, "kept over retries");
            scene.does(scene.tool("c1", outcome.clone())).unwrap();
            if let Some(next) = scene.state.next_wake() {
                scene.at(next).does(Input::Wake).unwrap();
            }
        }
        assert_eq!(reserved(&scene), kept, "{outcome:?}");
    }
}

/// `idem`, which costs 4 gold, was approved, and its attempts ended so.
fn after(outcomes: &[ToolOutcome]) -> Scene {
    let mut scene = calling(vec![gold(Scope::Session, 10.0)], &[costing("idem", 4.0)]);
    scene.does(scene.whole("p1", true, "ann")).unwrap();
    for outcome in outcomes {
        scene.does(scene.tool("c1", outcome.clone())).unwrap();
        if let Some(next) = scene.state.next_wake() {
            scene.at(next).does(Input::Wake).unwrap();
        }
    }
    scene
}

#[test]
fn d3_g6_a_failure_says_nothing_of_an_earlier_attempt_that_may_have_taken_effect() {
    let refused = || failed("no such order", RepeatHint::Unsaid);
    // It was refused, or never reached its tool, in the end.
    for last in [vec![refused()], vec![not_sent(), not_sent(), not_sent()]] {
        let mut outcomes = vec![crashed()];
        outcomes.extend(last);
        let scene = after(&outcomes);
        assert_eq!(reserved(&scene), 4.0, "{outcomes:?}");
        let end = scene.log.iter().find_map(|record| {
            let SessionEvent::ToolCallFailed { reason, error, maybe_ran, .. } = &record.event
            else {
                return None;
            };
            Some((*reason, error.clone(), *maybe_ran))
        });
        let (reason, error, maybe_ran) = end.expect("it ended");
        assert_eq!((reason, maybe_ran), (crate::call::FailReason::OutcomeUnknown, true));
        assert!(error.ends_with(". An earlier attempt may have taken effect"), "{error}");
    }
    // None of its attempts can have.
    assert_eq!(reserved(&after(&[not_sent(), refused()])), 0.0);
}

#[test]
fn d3_g6_a_cancel_while_it_backs_off_releases_only_what_can_not_have_taken_effect() {
    for (outcome, kept) in [(crashed(), 4.0), (not_sent(), 0.0)] {
        let mut scene = calling(vec![gold(Scope::Session, 10.0)], &[costing("low", 4.0)]);
        if matches!(outcome, ToolOutcome::Crashed { .. }) {
            scene.does(scene.tool("c1", outcome.clone())).unwrap();
            scene.does(scene.resolve("p1", Resolution::Retry, "ann")).unwrap();
            scene.does(scene.tool("c1", not_sent())).unwrap();
        } else {
            scene.does(scene.tool("c1", outcome.clone())).unwrap();
        }
        scene.does(cancel()).unwrap();
        assert_eq!(reserved(&scene), kept, "{outcome:?}");
    }
}

#[test]
fn g6_what_costs_nothing_has_room_in_a_budget_that_is_overdrawn() {
    let mut scene = with(vec![gold(Scope::Session, 10.0)]);
    scene.account.limit = None;
    scene.does(submit("u1")).unwrap();
    scene.propose(&[costing("low", 8.0)]);
    scene.does(scene.tool("c1", completed())).unwrap();
    // Its limit is lowered below what is spent.
    let mut scene = scene.agent(|agent| agent.budgets = vec![gold(Scope::Session, 5.0)]);
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
fn g6_an_unknown_outcome_keeps_what_is_set_aside_until_somebody_knows() {
    let words = [
        (Resolution::Done(json!("it did")), 4.0),
        (Resolution::Failed, 0.0),
        // Set aside once, however often it runs.
        (Resolution::Retry, 4.0),
    ];
    for (word, kept) in words {
        let mut scene = calling(vec![gold(Scope::Session, 10.0)], &[costing("low", 4.0)]);
        scene.does(Input::Rehydrated { within: None }).unwrap();
        assert_eq!(reserved(&scene), 4.0);
        scene.does(scene.resolve("p1", word.clone(), "ann")).unwrap();
        assert_eq!(reserved(&scene), kept, "{word:?}");
    }
    let mut scene = calling(vec![gold(Scope::Session, 10.0)], &[costing("low", 4.0)]);
    scene.does(Input::Rehydrated { within: None }).unwrap();
    scene.does(cancel()).unwrap();
    assert_eq!(reserved(&scene), 4.0, "it may have taken effect");
}

#[test]
fn g6_a_cancel_releases_what_had_not_begun() {
    let budgets = vec![gold(Scope::Session, 10.0)];
    let mut scene = calling(budgets, &[costing("low", 4.0), costing("low", 5.0)]);
    assert_eq!(reserved(&scene), 9.0);
    scene.does(cancel()).unwrap();
    assert_eq!(reserved(&scene), 4.0);
}

/// The second of two calls found no room for its 3 gold.
fn short(budget: Budget) -> Scene {
    let mut scene = with(vec![budget]);
    scene.does(submit("u1")).unwrap();
    scene.propose(&[costing("low", 3.0), costing("low", 3.0)]);
    scene
}

#[test]
fn g6_two_calls_of_one_step_share_what_is_left() {
    let mut scene = with(vec![gold(Scope::Session, 5.0)]);
    scene.does(submit("u1")).unwrap();
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
    scene.check(scene.tool("c1", completed()), "tool_call_completed c1 '42' @r1.1");
}

#[test]
fn g6_a_raise_must_cover_what_is_needed_and_then_the_run_goes_on() {
    let mut scene = short(gold(Scope::Session, 5.0));
    for too_little in [5.0, 5.999, 0.0, -1.0, f64::NAN, f64::INFINITY] {
        scene.check(
            scene.resolve("p1", Resolution::Raise(too_little), "ann"),
            "! the answer can't be taken: the new limit must be at least 6 gold",
        );
    }
    scene.does(scene.tool("c1", completed())).unwrap();
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
    let mut scene = short(gold(Scope::Session, 5.0));
    let tools = std::mem::take(&mut scene.rules.tools);
    scene.check(
        scene.resolve("p1", Resolution::Raise(6.0), "ann"),
        "! the answer can't be taken: low is not there now; its server may be away",
    );
    scene.rules.tools = tools;
    scene.does(scene.resolve("p1", Resolution::Raise(6.0), "ann")).unwrap();
    assert_eq!(reserved(&scene), 6.0);
}

#[test]
fn g6_a_person_stops_the_run() {
    let mut scene = short(gold(Scope::Session, 5.0));
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
    let mut scene = short(gold(Scope::Session, 5.0));
    scene.does(scene.tool("c1", completed())).unwrap();
    scene.after(MINUTE).check(
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
fn g6_only_the_words_of_its_kind_answer_it() {
    let mut scene = short(gold(Scope::Session, 5.0));
    let refused = "! a decision on this is `raise` or `stop`";
    scene.check(scene.whole("p1", true, "ann"), refused);
    scene.check(scene.resolve("p1", Resolution::Retry, "ann"), refused);
}

#[test]
fn g13_with_nobody_to_ask_the_run_ends() {
    let budget = limit(Scope::Run, Measure::Tokens, 15.0);
    let mut scene = with(vec![budget]).agent(|agent| agent.headless = true);
    scene.does(submit("u1")).unwrap();
    scene.propose(&wants(["read"]));
    scene.check(
        scene.tool("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        budget_reached (budget of 15 tokens of this run) spent 15 needs 0 @r1.1
        run_failed BudgetReached (the budget of 15 tokens of this run is reached, and there is nobody to raise it) @r1.1
    ",
    );
    // A call that there is no room for is denied as any that a person would be asked for.
    let mut scene = with(vec![gold(Scope::Session, 5.0)]).agent(|agent| agent.headless = true);
    scene.does(submit("u1")).unwrap();
    let decision = scene.does(scene.model_calls(&[costing("low", 9.0)])).unwrap();
    let ends: Vec<_> = decision.events.iter().map(|record| &record.event).collect();
    let is_denied = |event: &&SessionEvent| matches!(event, SessionEvent::AuthorizationDenied { reason, .. } if reason.contains("nobody can give it"));
    assert!(ends.iter().any(is_denied), "{ends:?}");
}

#[test]
fn g6_each_scope_counts_its_own() {
    // Two runs that cost 3 each, and 3 that the user's other sessions spent, of 5.
    for (scope, asked_in_runs) in
        [(Scope::Run, [0, 0]), (Scope::Session, [0, 1]), (Scope::User, [1, 1])]
    {
        let mut scene = with(vec![gold(scope, 5.0)]);
        let elsewhere = Spent { day: 3.0, month: 3.0, total: 3.0 };
        scene.account.spent.insert(Measure::unit("gold"), elsewhere);
        let mut found = [0, 0];
        for (index, message) in ["u1", "u2"].into_iter().enumerate() {
            scene.does(submit(message)).unwrap();
            scene.propose(&[costing("low", 3.0)]);
            found[index] = asked(&scene);
            if found[index] == 0 {
                let call = format!("c{}", index + 1);
                scene.does(scene.tool(&call, completed())).unwrap();
                scene.does(scene.model_says("done")).unwrap();
            } else {
                scene.does(cancel()).unwrap();
            }
        }
        assert_eq!(found, asked_in_runs, "{scope:?}");
    }
}

#[test]
fn g6_the_limits_of_the_settings_count_for_the_session_and_for_the_user() {
    let of = |amount| BudgetLimit { amount, unit: "gold".to_owned(), period: Period::Total };
    let mut scene = with(vec![]);
    scene.account.limit = Some(of(5.0));
    scene.does(submit("u1")).unwrap();
    let decision = scene.does(scene.model_calls(&[costing("low", 3.0)])).unwrap();
    let [claim] = &decision.claims[..] else { panic!("{:?}", decision.claims) };
    assert_eq!((claim.limit, claim.period), (5.0, Period::Total));
    scene.does(scene.tool("c1", completed())).unwrap();
    scene.propose(&[costing("low", 3.0)]);
    let purpose = &scene.state.active.approvals[0].approval.purpose;
    assert_eq!(purpose, "Raise the budget of 5 gold of this user, or stop the run");
    // What a person raised is the limit that is claimed.
    let decision = scene.does(scene.resolve("p1", Resolution::Raise(7.0), "ann")).unwrap();
    assert_eq!(decision.claims.iter().map(|claim| claim.limit).collect::<Vec<_>>(), [7.0]);

    let mut scene = with(vec![]);
    let settings = Settings { budget_limit: Some(of(2.0)), ..scene.settings() };
    scene
        .does(Input::ChangeSettings { change: settings.into(), title: None, by: user("ann") })
        .unwrap();
    scene.does(submit("u1")).unwrap();
    let decision = scene.does(scene.model_calls(&[costing("low", 3.0)])).unwrap();
    assert_eq!(decision.claims, [], "what only the session knows needs no claim");
    let purpose = &scene.state.active.approvals[0].approval.purpose;
    assert_eq!(purpose, "Raise the budget of 2 gold of this session, or stop the run");
}

#[test]
fn g6_a_budget_is_for_a_day_a_month_or_for_ever() {
    let day = Duration::from_secs(24 * 60 * 60);
    for (period, passed, asks) in [
        (Period::Day, SECOND, 1),
        (Period::Day, day, 0),
        (Period::Month, day, 1),
        (Period::Month, day * 31, 0),
        (Period::Total, day * 1000, 1),
    ] {
        for scope in [Scope::Session, Scope::User] {
            let mut scene = with(vec![Budget { period, ..gold(scope, 5.0) }]);
            scene.does(submit("u1")).unwrap();
            scene.propose(&[costing("low", 3.0)]);
            scene.does(scene.tool("c1", completed())).unwrap();
            scene.after(passed).propose(&[costing("low", 3.0)]);
            assert_eq!(asked(&scene), asks, "{period:?} {scope:?} after {passed:?}");
        }
    }
}

#[test]
fn g6_a_raise_holds_for_its_period_and_no_longer_than_its_run() {
    let day = Duration::from_secs(24 * 60 * 60);
    let mut scene = short(Budget { period: Period::Day, ..gold(Scope::Session, 5.0) });
    scene.does(scene.tool("c1", completed())).unwrap();
    scene.does(scene.resolve("p1", Resolution::Raise(100.0), "ann")).unwrap();
    scene.does(scene.tool("c2", completed())).unwrap();
    scene.propose(&[costing("low", 90.0)]);
    assert_eq!(asked(&scene), 0);
    scene.does(scene.tool("c3", completed())).unwrap();
    scene.after(day).propose(&[costing("low", 6.0)]);
    assert_eq!(asked(&scene), 1, "today it is 5 again");

    let mut scene = short(gold(Scope::Run, 5.0));
    scene.does(scene.resolve("p1", Resolution::Raise(100.0), "ann")).unwrap();
    scene.does(cancel()).unwrap();
    scene.does(submit("u2")).unwrap();
    scene.propose(&[costing("low", 6.0)]);
    assert_eq!(asked(&scene), 1, "another run");
}

/// One step was made, of 15 tokens, and the next does not fit.
fn out_of(measure: Measure, amount: f64) -> Scene {
    let mut scene = with(vec![limit(Scope::Run, measure, amount)]);
    scene.does(submit("u1")).unwrap();
    scene.propose(&wants(["read"]));
    scene
}

#[test]
fn g6_tokens_are_checked_before_each_step() {
    let mut scene = out_of(Measure::Tokens, 15.0);
    scene.check(
        scene.tool("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        budget_reached (budget of 15 tokens of this run) spent 15 needs 0 @r1.1
        approval_requested p1 (Raise the budget of 15 tokens of this run, or stop the run) read_only within Some(60) @r1.1
    ",
    );
    // It waits, whatever else happens.
    scene.check(Input::Wake, "");
    scene.check(Input::Rehydrated { within: None }, "");
    assert!(scene.state.is_waiting_for_people());
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
        scene.model_says("done"),
        "
        message_completed M2 'done' @r1.2
        step_completed EndTurn 10 @r1.2
        run_completed M2 20 @r1.2
    ",
    );
}

#[test]
fn g6_a_session_that_has_none_left_asks_before_its_first_step() {
    for scope in [Scope::Session, Scope::User] {
        let mut scene = with(vec![limit(scope, Measure::Tokens, 15.0)]);
        scene.does(submit("u1")).unwrap();
        scene.does(scene.model_says("done")).unwrap();
        scene.does(submit("u2")).unwrap();
        assert_eq!(asked(&scene), 1, "{scope:?}");
        scene.check(Input::Rehydrated { within: None }, "");
        scene.check(
            scene.resolve("p1", Resolution::Stop, "ann"),
            &format!("
            approval_decided p1 stop by ann closed @r2
            run_failed BudgetReached (the budget of 15 tokens of this {} is reached, and ann stopped the run) @r2
            = decided closed
        ", if scope == Scope::User { "user" } else { "session" }),
        );
        assert!(scene.state.is_idle());
    }
}

#[test]
fn g6_money_is_counted_at_the_price_of_the_model() {
    let price = crate::usage::Price { input: 100_000.0, output: 0.0, cached: None };
    for (dollars, asks) in [(1.0, 1), (1.1, 0)] {
        let mut scene = out_of(Measure::Usd, dollars)
            .rules(|rules| rules.prices = Arc::new([("small".to_owned(), price)].into()));
        // The first step was made before the price was known to these rules.
        scene.does(cancel()).unwrap();
        scene.does(submit("u2")).unwrap();
        scene.propose(&wants(["read"]));
        scene.does(scene.tool("c2", completed())).unwrap();
        assert_eq!(asked(&scene), asks, "10 tokens of 1 USD, of {dollars}");
    }
}

#[test]
fn g6_a_cost_that_nobody_knows_has_no_room_and_no_limit_gives_it_any() {
    let mut scene = out_of(Measure::Usd, 1000.0);
    scene.check(
        scene.tool("c1", completed()),
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
    scene.does(scene.resolve("p1", Resolution::Stop, "ann")).unwrap();
    assert!(scene.state.is_idle());
}

#[test]
fn g6_failed_attempts_count() {
    let mut scene = with(vec![limit(Scope::Run, Measure::Tokens, 36.0)]);
    scene.does(submit("u1")).unwrap();
    let usage = Usage { input_tokens: 20, output_tokens: 1, cached_tokens: 0 };
    let failure = ModelFailure::temporary("cut off");
    let result = Err(StepFailure { failure, streamed: true, usage });
    scene.does(Input::StepFinished { attempt_id: scene.streaming_attempt(), result }).unwrap();
    let due = scene.state.next_wake().unwrap();
    scene.at(due).does(Input::Wake).unwrap();
    scene.propose(&wants(["read"]));
    scene.check(
        scene.tool("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        budget_reached (budget of 36 tokens of this run) spent 36 needs 0 @r1.1
        approval_requested p1 (Raise the budget of 36 tokens of this run, or stop the run) read_only within Some(60) @r1.1
    ",
    );
}

#[test]
fn g6_a_person_who_saw_the_excess_has_covered_it() {
    let mut scene = with(vec![gold(Scope::User, 5.0)]);
    scene.does(submit("u1")).unwrap();
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
    assert!(step.exceeds_budget && step.why.contains("more than the 5 gold"), "{step:?}");
    let input = scene.whole("p1", true, "ann");
    let decision = scene.does(input).unwrap();
    assert_eq!(decision.claims, [], "it may not be refused for what a person covered");
    assert_eq!((reserved(&scene), asked(&scene)), (8.0, 0));
    assert!(matches!(decision.effects[..], [crate::session::Effect::StartTool { .. }]));
}

#[test]
fn g6_what_a_person_covered_does_not_stop_what_fits_in_the_same_plan() {
    let calls = [costing("high", 2.0), costing("high", 8.0)];
    let mut scene = calling(vec![gold(Scope::User, 5.0)], &calls);
    let decision = scene.does(scene.whole("p1", true, "ann")).unwrap();
    assert_eq!((reserved(&scene), asked(&scene)), (10.0, 0));
    // Another session may spend what the budget still has, and no more.
    let [claim] = &decision.claims[..] else { panic!("{:?}", decision.claims) };
    assert!(claim.holds(10.0) && claim.holds(13.0) && !claim.holds(13.1), "{claim:?}");
}

#[test]
fn g6_a_plan_whose_budget_was_spent_meanwhile_is_asked_for_again() {
    let mut scene = calling(vec![gold(Scope::User, 5.0)], &[costing("high", 4.0)]);
    let meanwhile = Spent { day: 3.0, month: 3.0, total: 3.0 };
    scene.account.spent.insert(Measure::unit("gold"), meanwhile);
    scene.check(
        scene.whole("p1", true, "ann"),
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
    let mut scene = short(gold(Scope::Session, 5.0));
    scene.does(scene.tool("c1", completed())).unwrap();
    let mut settings = scene.settings();
    settings.blocked_tools.insert(crate::ids::ToolName::parse("low").unwrap());
    scene
        .does(Input::ChangeSettings { change: settings.into(), title: None, by: user("ann") })
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
    let budgets = vec![gold(Scope::Run, 2.0), gold(Scope::Session, 3.0)];
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
    scene.does(scene.resolve("p2", Resolution::Raise(4.0), "ann")).unwrap();
    assert_eq!(reserved(&scene), 4.0);
}

#[test]
fn g8_an_edit_beyond_the_budget_is_refused_and_one_within_it_is_what_is_set_aside() {
    let mut scene = calling(vec![gold(Scope::Session, 5.0)], &[costing("high", 4.0)]);
    let edit = |scene: &Scene, amount: f64| {
        let call_id = scene.call("c1");
        let arguments = Some(json!({"n": amount}));
        let answer = StepAnswer { call_id, approved: true, reason: None, arguments };
        scene.answer("p1", ApprovalAnswer::Steps(vec![answer]), "ann")
    };
    let refused = scene.does(edit(&scene, 6.0)).unwrap_err();
    let Rejection::InvalidEdit { problem, .. } = &refused else { panic!("{refused}") };
    assert!(problem.contains("more than the 5 gold that are left"), "{problem}");
    assert_eq!(asked(&scene), 1);
    scene.does(edit(&scene, 2.0)).unwrap();
    assert_eq!(reserved(&scene), 2.0);
}

#[test]
fn g3_a_critical_call_runs_at_the_highest_level_only_where_a_budget_has_room() {
    let supervised = |budgets: Vec<Budget>, amount: f64| {
        let mut scene = with(budgets);
        let autonomy_level = Autonomy::Supervised;
        let settings = Settings { autonomy_level, ..scene.settings() };
        scene
            .does(Input::ChangeSettings { change: settings.into(), title: None, by: user("ann") })
            .unwrap();
        scene.does(submit("u1")).unwrap();
        scene.propose(&[costing("crit", amount)]);
        scene
    };
    let with_room = supervised(vec![gold(Scope::Session, 5.0)], 4.0);
    assert_eq!((asked(&with_room), reserved(&with_room)), (0, 4.0));
    // Without a budget, and without room in it, a person is asked about the call itself.
    for scene in [supervised(vec![], 4.0), supervised(vec![gold(Scope::Session, 5.0)], 6.0)] {
        assert_eq!((asked(&scene), reserved(&scene)), (1, 0.0));
        assert_eq!(scene.state.active.approvals[0].approval.purpose, "Execute 1 tool");
    }
}

#[test]
fn g9_a_grant_does_not_cover_what_a_budget_has_no_room_for() {
    let mut scene = calling(vec![gold(Scope::Session, 5.0)], &[costing("high", 1.0)]);
    scene
        .does(Input::DecideApproval {
            approval_id: scene.approval("p1"),
            answer: ApprovalAnswer::Whole { approved: true, reason: None },
            for_session: Some(GrantWish::default()),
            by: user("ann"),
            role: Role::User,
            surface: Surface::Rest,
        })
        .unwrap();
    scene.does(scene.tool("c1", completed())).unwrap();
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
