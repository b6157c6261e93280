//! Ceilings: enforced at every evaluation and before every attempt (G17).

use super::{
    budgets::{call_with_cost, gold, reserved, with_budgets},
    delegation::{child_tasks, create_child, delegate_call, with_delegates},
    *,
};
use crate::{
    approval::ApprovalSubject,
    budget::{BudgetScope, SpendingPrecondition, SpendingTotals},
    delegation::{Parent, RootRun},
    policy::{BudgetPeriod, Ceilings},
    session::SessionEvent,
};

fn ceilings(json: Value) -> Arc<Ceilings> {
    Arc::new(serde_json::from_value(json).unwrap())
}

impl SessionHarness {
    /// Sets the ceilings in force.
    fn set_ceilings(&mut self, json: Value) -> &mut Self {
        self.rules.ceilings = ceilings(json);
        self
    }

    fn with_ceilings(mut self, json: Value) -> Self {
        self.set_ceilings(json);
        self
    }

    /// Returns the reasons of all denials so far.
    fn denials(&self) -> Vec<&str> {
        let mut denials = Vec::new();
        for record in &self.log {
            if let SessionEvent::AuthorizationDenied { reason, .. } = &record.event {
                denials.push(reason.as_str());
            }
        }
        denials
    }

    fn set_level(&mut self, level: Autonomy) {
        let settings =
            Settings { autonomy_level: level, require_confirmation: false, ..self.settings() };
        self.apply(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
            .unwrap();
    }
}

/// Returns a session at L3 without confirmation, under these ceilings, whose model proposed a call
/// of the tool.
fn with_call_under(json: Value, tool: &'static str) -> SessionHarness {
    let mut harness = SessionHarness::new().with_ceilings(json);
    harness.set_level(Autonomy::Supervised);
    harness.apply(submit("u1")).unwrap();
    harness.propose(&scripted_calls([tool]));
    harness
}

#[test]
fn g17_session_wider_than_ceiling_is_evaluated_under_the_ceiling() {
    for (ceilings, tool, expected) in [
        (json!({}), "high", "allowed"),
        (json!({"autonomy_level": 1}), "high", "asked"),
        (json!({"autonomy_level": 0}), "high", "denied"),
        (json!({"roles": {"user": {"autonomy_level": 0}}}), "high", "denied"),
        (json!({"roles": {"admin": {"autonomy_level": 0}}}), "high", "allowed"),
        (json!({"agents": {"trader": {"autonomy_level": 0}}}), "high", "denied"),
        (json!({"agents": {"writer": {"autonomy_level": 0}}}), "high", "allowed"),
        (json!({"users": {"ann": {"autonomy_level": 0}}}), "high", "denied"),
        (json!({"users": {"bob": {"autonomy_level": 0}}}), "high", "allowed"),
        (json!({"require_confirmation": true}), "high", "asked"),
        (json!({"require_confirmation": true}), "low", "allowed"),
        (json!({"require_confirmation": false}), "high", "allowed"),
        (json!({"blocked_tools": ["re*"]}), "read", "denied"),
        (json!({"blocked_tools": ["high"]}), "high2", "allowed"),
    ] {
        let harness = with_call_under(ceilings.clone(), tool);
        let actual = if !harness.denials().is_empty() {
            "denied"
        } else if harness.state.active.approvals.is_empty() {
            "allowed"
        } else {
            "asked"
        };
        assert_eq!(actual, expected, "{ceilings} {tool}");
    }
}

#[test]
fn g17_role_is_that_of_the_authors_of_the_run() {
    use crate::authors::Authors;
    for (authors, is_denied) in [
        (Authors::with_role(user("dora"), Role::Admin), false),
        (Authors::with_role(user("dora"), Role::User), true),
        (Authors::from(user("dora")), true),
        (Authors::default(), true),
    ] {
        let mut harness = SessionHarness::new()
            .with_ceilings(json!({"roles": {"user": {"blocked_tools": ["read"]}}}));
        let Input::SubmitMessage { mut message, on_busy } = submit("u1") else {
            panic!("a message")
        };
        message.authors = authors.clone();
        harness.apply(Input::SubmitMessage { message, on_busy }).unwrap();
        harness.propose(&scripted_calls(["read"]));
        assert_eq!(!harness.denials().is_empty(), is_denied, "{authors:?}");
    }
}

#[test]
fn g17_denial_names_the_ceiling() {
    for (ceilings, tool, expected) in [
        (
            json!({"roles": {"user": {"autonomy_level": 0}}}),
            "low",
            "low is write_low_risk: requires autonomy level RECOMMENDATIONS (L1) or higher; \
             current level: READ_ONLY; the ceiling of role `user` permits at most READ_ONLY (L0)",
        ),
        (
            json!({"users": {"ann": {"blocked_tools": ["r*d"]}}}),
            "read",
            "read is blocked by the ceiling of user `ann`",
        ),
    ] {
        let harness = with_call_under(ceilings, tool);
        assert_eq!(harness.denials(), [expected]);
    }
}

#[test]
fn g17_ceiling_lowered_while_a_call_waits_denies_it_before_its_attempt() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["low", "low"]));
    harness.set_ceilings(json!({"autonomy_level": 0}));
    harness.check(
        harness.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        authorization_denied c2 requires RECOMMENDATIONS @r1.1
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
    ",
    );
}

#[test]
fn g17_ceiling_lowered_while_an_approval_is_open_denies_the_approved_call() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["high"]));
    harness.set_ceilings(json!({"autonomy_level": 0}));
    harness.check(
        harness.overall_answer("p1", true, "ann"),
        "
        approval_decided p1 +c1 by ann closed @r1.1
        authorization_denied c1 requires RECOMMENDATIONS @r1.1
        step_started a2 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a2 M2 @r1.2
        = decided closed
    ",
    );
}

#[test]
fn g17_edited_arguments_are_evaluated_under_the_ceiling() {
    let harness = with_budgets(Vec::new()).with_ceilings(gold_ceiling("users", "ann", 10.0));
    let mut harness = harness;
    harness.apply(submit("u1")).unwrap();
    harness.propose(&[call_with_cost("high", 4.0)]);
    let answer = PlanStepAnswer {
        call_id: harness.call("c1"),
        approved: true,
        reason: None,
        arguments: Some(json!({"n": 11.0})),
    };
    let edit = harness.answer("p1", ApprovalAnswer::Steps(vec![answer]), "carl");
    let rejection = harness.apply(edit).unwrap_err();
    let expected = "high is denied: its cost of 11 gold exceeds the remaining 10 gold of 10 gold \
                    a day, the ceiling of user `ann`";
    assert_eq!(
        rejection,
        Rejection::InvalidEdit { call_id: harness.call("c1"), problem: expected.to_owned() }
    );
    assert_eq!(harness.state.active.approvals.len(), 1);
}

/// Returns a ceiling of that table that limits each user to an amount of gold a day.
fn gold_ceiling(table: &str, name: &str, amount: f64) -> Value {
    let limits = json!([{"amount": amount, "unit": "gold", "period": "day"}]);
    json!({table: {name: {"budget_limits": limits}}})
}

#[test]
fn g17_budget_of_a_ceiling_counts_all_sessions_and_is_not_raised() {
    let mut harness = with_budgets(Vec::new()).with_ceilings(gold_ceiling("roles", "user", 10.0));
    let spent = SpendingTotals { day: 5.into(), month: 50.into(), total: 500.into() };
    harness.account.totals.insert(BudgetMeasure::from_unit("gold"), spent);
    harness.apply(submit("u1")).unwrap();
    harness.propose(&[
        call_with_cost("low", 3.0),
        call_with_cost("low", 3.0),
        call_with_cost("low", 2.0),
    ]);
    assert_eq!(
        harness.denials(),
        ["low is denied: its cost of 3 gold exceeds the remaining 2 gold of 10 gold a day, the \
          ceiling of role `user`"]
    );
    assert_eq!(harness.state.active.approvals.len(), 0);
    assert_eq!(reserved(&harness), 5.0);
}

#[test]
fn g17_budget_of_a_ceiling_allows_no_critical_call() {
    let mut harness = with_budgets(Vec::new()).with_ceilings(gold_ceiling("roles", "user", 10.0));
    harness.set_level(Autonomy::Supervised);
    harness.apply(submit("u1")).unwrap();
    harness.propose(&[call_with_cost("crit", 3.0)]);
    // L3 allows a critical call within the user's own budget. A ceiling only narrows.
    assert_eq!(harness.state.active.approvals.len(), 1);
}

#[test]
fn g17_commit_fails_if_another_session_used_up_the_ceilings_budget() {
    let mut harness = with_budgets(Vec::new()).with_ceilings(gold_ceiling("roles", "user", 10.0));
    harness.apply(submit("u1")).unwrap();
    let decision = harness.apply(harness.model_calls(&[call_with_cost("low", 4.0)])).unwrap();
    let expected = SpendingPrecondition {
        measure: BudgetMeasure::from_unit("gold"),
        period: BudgetPeriod::Day,
        day: harness.now.day(),
        limit: 10.into(),
    };
    assert_eq!(decision.preconditions, std::slice::from_ref(&expected));
    // The approval of a cost beyond the session's budget does not lift the condition.
    let budgets = vec![gold(BudgetScope::Session, 1.0)];
    let mut harness = with_budgets(budgets).with_ceilings(gold_ceiling("roles", "user", 10.0));
    harness.apply(submit("u1")).unwrap();
    harness.propose(&[call_with_cost("high", 4.0)]);
    let decision = harness.apply(harness.overall_answer("p1", true, "ann")).unwrap();
    assert_eq!(decision.preconditions, [expected]);
    assert_eq!(reserved(&harness), 4.0);
}

#[test]
fn g17_raise_beyond_a_ceiling_is_rejected() {
    let budget =
        crate::budget::Budget { period: BudgetPeriod::Day, ..gold(BudgetScope::Session, 5.0) };
    let mut harness = with_budgets(vec![budget]).with_ceilings(gold_ceiling("roles", "user", 10.0));
    harness.apply(submit("u1")).unwrap();
    harness.propose(&[call_with_cost("low", 6.0)]);
    let rejection = harness.apply(harness.resolve("p1", raise(11.0), "ann"));
    assert_eq!(
        rejection.unwrap_err().to_string(),
        "value: 11 gold a day exceeds 10 gold a day, the ceiling of role `user`"
    );
    assert_eq!(harness.state.active.approvals.len(), 1);
    harness.apply(harness.resolve("p1", raise(10.0), "ann")).unwrap();
    assert_eq!(reserved(&harness), 6.0);
}

#[test]
fn g17_fork_does_not_restart_the_budget_of_its_session() {
    let budgets = || vec![gold(BudgetScope::Session, 10.0)];
    let mut source = with_budgets(budgets());
    source.apply(submit("u1")).unwrap();
    source.propose(&[call_with_cost("low", 6.0)]);
    source.apply(source.tool_finishes("c1", completed())).unwrap();
    let mut fork = with_budgets(budgets());
    fork.state = SessionState::new(SessionId(Uuid::from_u128(2)));
    fork.log.clear();
    let input = Input::ForkSession {
        from: source.state.session_id,
        at_seq: crate::ids::Seq(1),
        owner: user("ann"),
        agent: AgentName::parse("trader").unwrap(),
        title: None,
        settings: source.settings(),
        conversation: Vec::new(),
        spent: source.state.session_spending(source.now.day()),
    };
    fork.apply(input).unwrap();
    // A fork of the fork counts the same spending once.
    let spending = fork.state.session_spending(fork.now.day());
    assert_eq!(spending, source.state.session_spending(source.now.day()));
    fork.apply(submit("u1")).unwrap();
    fork.propose(&[call_with_cost("low", 5.0)]);
    assert_eq!(reserved(&fork), 0.0);
    let open = &fork.state.active.approvals[0].approval.subject;
    let ApprovalSubject::Budget(request) = open else { panic!("{open:?}") };
    assert_eq!((request.spent, request.needed), (amount(6.0), amount(5.0)));
}

#[test]
fn g17_child_is_under_the_ceilings_of_its_ancestors() {
    let mut harness = with_delegates(SessionHarness::with_streaming_step());
    harness.set_ceilings(json!({"agents": {"trader": {"autonomy_level": 1}}}));
    let calls = harness.model_calls(&[delegate_call("researcher", "Find the price")]);
    let decision = harness.apply(calls).unwrap();
    let task = child_tasks(&decision).remove(0);
    assert_eq!(task.settings.autonomy_level, Autonomy::Recommendations);
    let Parent { bounds, root, .. } = &*task.parent;
    assert_eq!(bounds.agents, [AgentName::parse("trader").unwrap()]);
    let RootRun { session_id, .. } = root;
    assert_eq!(*session_id, harness.state.session_id);
    // A change after the start of the child applies to it as well.
    let mut child = create_child(&task);
    child.with_other_agent("researcher");
    child.set_ceilings(json!({"agents": {"trader": {"autonomy_level": 0}}}));
    child.propose(&scripted_calls(["low"]));
    assert_eq!(child.denials().len(), 1);
}

impl SessionHarness {
    fn with_other_agent(&mut self, name: &str) {
        Arc::make_mut(&mut self.rules.agent).name = AgentName::parse(name).unwrap();
    }
}

#[test]
fn g17_grant_given_under_a_wider_ceiling_does_not_cover_denied_calls() {
    let mut harness = SessionHarness::with_proposed_calls(&scripted_calls(["high", "high"]));
    harness.apply(harness.overall_answer("p1", true, "ann")).unwrap();
    harness.set_ceilings(json!({"blocked_tools": ["high"]}));
    harness.apply(harness.tool_finishes("c1", completed())).unwrap();
    assert_eq!(harness.denials(), ["high is blocked by the ceiling of the installation"]);
}
