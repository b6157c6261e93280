//! Settings and budgets of users, across their sessions (G4, G6).

use crate::{completed_calls, last_approval};
use greenroom_actors::{
    ports::Journal,
    testing::{FakeTools, ModelReply, ScriptedModel, TestRuntime, TestRuntimeBuilder, ToolScript},
};
use greenroom_core::{
    agent::AgentProfile,
    approval::ApprovalKind,
    budget::{Budget, BudgetMeasure, BudgetScope},
    ids::{AgentName, SessionId},
    message::Message,
    model::request::ModelRequest,
    policy::{
        Autonomy, BudgetLimit, BudgetPeriod, Expression, Risk, Settings, catalog::CatalogEntry,
    },
    session::{Input, SessionEvent},
};
use serde_json::json;
use std::sync::Arc;

/// Creates a runtime with default settings `defaults`, whose model calls `order` once per run, at a
/// cost of 4 gold.
fn runtime_with_defaults(defaults: Settings) -> TestRuntimeBuilder {
    let answer = |request: &ModelRequest| match request.messages.last() {
        Some(Message::User { .. }) => ModelReply::with_calls([("order", json!({}))]),
        _a_result => ModelReply::text("done"),
    };
    let order = CatalogEntry {
        risk: Some(Risk::WriteLowRisk),
        cost: Expression::compile("4").ok(),
        cost_unit: Some("gold".to_owned()),
        ..CatalogEntry::default()
    };
    let tools = FakeTools::new()
        .with_catalog_entry("order", order, |_| ToolScript::new().finished("ordered"));
    TestRuntime::builder()
        .model(ScriptedModel::with_handler(answer))
        .tools(tools)
        .governance(|governance| governance.default_settings = Arc::new(defaults))
}

fn assisted_settings() -> Settings {
    Settings { autonomy_level: Autonomy::Assisted, ..Settings::default() }
}

#[actix::test]
async fn g4_current_user_settings_apply_to_a_rehydrated_session() {
    let strict = Settings { autonomy_level: Autonomy::ReadOnly, ..Settings::default() };
    // The user's stored settings and the defaults at the time of the rehydration. The stored settings
    // did not reach the session before, as for a parked session.
    for (stored, defaults, narrows) in [
        (Some(&strict), assisted_settings(), true),
        (None, strict.clone(), true),
        (Some(&assisted_settings()), strict.clone(), false),
        (None, assisted_settings(), false),
    ] {
        let world = runtime_with_defaults(assisted_settings()).start().await;
        if let Some(stored) = stored {
            world
                .journal
                .store_settings(&TestRuntime::user(), stored)
                .await
                .expect("the journal is in memory");
        }
        let session = world.create_session_with(assisted_settings()).await;
        let stopped = world.crash().governance(|governance| {
            governance.default_settings = Arc::new(defaults);
        });
        let world = stopped.start().await;
        let run = world.submit(session, "go").await;
        world.wait_for_run_end(session, run).await;
        let events = world.journal.events(session);
        let narrowed = events.iter().any(|record| {
            matches!(&record.event, SessionEvent::SessionSettingsChanged { settings, .. }
                if settings.autonomy_level == Autonomy::ReadOnly)
        });
        let ordered = completed_calls(&events).len() == 1;
        assert_eq!((narrowed, ordered), (narrows, !narrows), "{stored:?}");
    }
}

#[actix::test]
async fn g6_budget_limit_of_defaults_applies_across_sessions_of_a_user() {
    let budget_limit = Some(BudgetLimit {
        amount: 5.into(),
        unit: "gold".to_owned(),
        period: BudgetPeriod::Total,
    });
    let defaults = Settings { budget_limit, ..assisted_settings() };
    let world = runtime_with_defaults(defaults.clone()).start().await;
    let first = world.create_session_with(defaults.clone()).await;
    let run = world.submit(first, "one").await;
    world.wait_for_run_end(first, run).await;
    assert_eq!(completed_calls(&world.journal.events(first)).len(), 1);
    let second = world.create_session_with(defaults).await;
    world.submit(second, "two").await;
    let kind = world.wait_for(second, "an approval", last_approval).await.kind();
    assert_eq!(kind, ApprovalKind::Budget);
}

#[actix::test]
async fn g6_user_budget_counts_spending_through_other_agents() {
    let thrifty = AgentName::parse("thrifty").expect("the name is valid");
    let budget = Budget {
        scope: BudgetScope::User,
        period: BudgetPeriod::Total,
        measure: BudgetMeasure::Tokens,
        limit: 10.into(),
    };
    let profile = AgentProfile {
        models: vec!["scripted".to_owned()],
        budgets: vec![budget],
        ..AgentProfile::new(thrifty.clone())
    };
    let world = TestRuntime::builder()
        .model(ScriptedModel::with_handler(|_| ModelReply::text("done")))
        .governance(|governance| {
            governance.agents.insert(thrifty.clone(), Arc::new(profile));
        })
        .start()
        .await;
    let first = world.create_session().await;
    let run = world.submit(first, "one").await;
    world.wait_for_run_end(first, run).await;
    let second = SessionId(world.runtime.new_id());
    let (owner, settings) = (TestRuntime::user(), Settings::default());
    let create = Input::CreateSession { owner, agent: thrifty, title: None, settings };
    world.execute(second, create).await.expect("it is created");
    world.submit(second, "two").await;
    let kind = world.wait_for(second, "an approval", last_approval).await.kind();
    assert_eq!(kind, ApprovalKind::Budget);
}
