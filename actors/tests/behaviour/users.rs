//! What users allow and may spend, across their sessions (G4, G6).

use crate::{asked, completed_calls};
use greenroom_actors::{
    ports::Journal,
    testing::{FakeTools, Reply, ScriptedModel, Turn, World, WorldBuilder},
};
use greenroom_core::{
    agent::AgentProfile,
    approval::ApprovalKind,
    budget::{Budget, Measure, Scope},
    ids::{AgentName, SessionId},
    message::Message,
    model::request::ModelRequest,
    policy::{Autonomy, BudgetLimit, Expression, Period, Risk, Settings, catalog::CatalogEntry},
    session::{Input, SessionEvent},
};
use serde_json::json;
use std::sync::Arc;

/// A world whose model calls `order` once in a run, which costs 4 gold, under those default settings.
fn world(defaults: Settings) -> WorldBuilder {
    let answer = |request: &ModelRequest| match request.messages.last() {
        Some(Message::User { .. }) => Reply::calls([("order", json!({}))]),
        _a_result => Reply::text("done"),
    };
    let order = CatalogEntry {
        risk: Some(Risk::WriteLowRisk),
        cost: Expression::compile("4").ok(),
        cost_unit: Some("gold".to_owned()),
        ..CatalogEntry::default()
    };
    let tools = FakeTools::none().with_entry("order", order, |_| Turn::new().done("ordered"));
    World::builder()
        .model(ScriptedModel::answering(answer))
        .tools(tools)
        .governance(|governance| governance.settings = Arc::new(defaults))
}

fn assisted() -> Settings {
    Settings { autonomy_level: Autonomy::Assisted, ..Settings::default() }
}

#[actix::test]
async fn g4_what_a_user_allows_by_now_holds_for_a_session_that_comes_back() {
    let strict = Settings { autonomy_level: Autonomy::ReadOnly, ..Settings::default() };
    // What the user stored, and the defaults by then. That the first of these did not reach the
    // session is what happens to one that is parked.
    for (stored, defaults, narrows) in [
        (Some(&strict), assisted(), true),
        (None, strict.clone(), true),
        (Some(&assisted()), strict.clone(), false),
        (None, assisted(), false),
    ] {
        let world = world(assisted()).start().await;
        if let Some(stored) = stored {
            world.journal.put_settings(&World::user(), stored).await.expect("it is in memory");
        }
        let session = world.create_with(assisted()).await;
        let world = world.crash().governance(|it| it.settings = Arc::new(defaults)).start().await;
        let run = world.submit(session, "go").await;
        world.run_end(session, run).await;
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
async fn g6_the_budget_of_the_defaults_is_one_for_all_sessions_of_a_user() {
    let budget_limit =
        Some(BudgetLimit { amount: 5.0, unit: "gold".to_owned(), period: Period::Total });
    let defaults = Settings { budget_limit, ..assisted() };
    let world = world(defaults.clone()).start().await;
    let first = world.create_with(defaults.clone()).await;
    let run = world.submit(first, "one").await;
    world.run_end(first, run).await;
    assert_eq!(completed_calls(&world.journal.events(first)).len(), 1);
    let second = world.create_with(defaults).await;
    world.submit(second, "two").await;
    let kind = world.wait_for(second, "a question", asked).await.kind();
    assert_eq!(kind, ApprovalKind::Budget);
}

#[actix::test]
async fn g6_what_a_user_spent_through_one_agent_counts_for_another_ones_budget() {
    let thrifty = AgentName::parse("thrifty").expect("a plain word is an agent's name");
    let budget =
        Budget { scope: Scope::User, period: Period::Total, measure: Measure::Tokens, limit: 10.0 };
    let profile = AgentProfile {
        models: vec!["scripted".to_owned()],
        budgets: vec![budget],
        ..AgentProfile::named(thrifty.clone())
    };
    let world = World::builder()
        .model(ScriptedModel::answering(|_| Reply::text("done")))
        .governance(|it| drop(it.agents.insert(thrifty.clone(), Arc::new(profile))))
        .start()
        .await;
    let first = world.create().await;
    let run = world.submit(first, "one").await;
    world.run_end(first, run).await;
    let second = SessionId(world.runtime.new_id());
    let (owner, settings) = (World::user(), Settings::default());
    let create = Input::CreateSession { owner, agent: thrifty, title: None, settings };
    world.command(second, create).await.expect("it is created");
    world.submit(second, "two").await;
    let kind = world.wait_for(second, "a question", asked).await.kind();
    assert_eq!(kind, ApprovalKind::Budget);
}
