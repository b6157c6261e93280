//! What users allow who never said anything: the configuration's settings (G4, G6).

use crate::{asked, completed_calls};
use greenroom_actors::{
    ports::Journal,
    testing::{FakeTools, Reply, ScriptedModel, Turn, World, WorldBuilder},
};
use greenroom_core::{
    approval::ApprovalKind,
    message::Message,
    model::request::ModelRequest,
    policy::{Autonomy, BudgetLimit, Expression, Period, Risk, Settings, catalog::CatalogEntry},
    session::SessionEvent,
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
async fn g4_defaults_that_were_tightened_hold_for_open_sessions_too() {
    for stores_their_own in [false, true] {
        let world = world(assisted()).start().await;
        if stores_their_own {
            let stored = world.journal.put_settings(&World::user(), &assisted()).await;
            stored.expect("the journal is in memory");
        }
        let session = world.create_with(assisted()).await;
        let strict = Settings { autonomy_level: Autonomy::ReadOnly, ..Settings::default() };
        let world = world.crash().governance(|it| it.settings = Arc::new(strict)).start().await;
        let run = world.submit(session, "go").await;
        world.run_end(session, run).await;
        let events = world.journal.events(session);
        let ordered = completed_calls(&events).len() == 1;
        let narrowed = events.iter().any(|record| {
            matches!(&record.event, SessionEvent::SessionSettingsChanged { settings, .. }
                if settings.autonomy_level == Autonomy::ReadOnly)
        });
        assert_eq!((ordered, narrowed), (stores_their_own, !stores_their_own));
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
    let kind = world.wait_for(second, "a question", |events| asked(events)).await.kind();
    assert_eq!(kind, ApprovalKind::Budget);
}
