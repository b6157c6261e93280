//! Calls that run one at a time, across sessions (T8).

use crate::{asked, completed_calls, count};
use greenroom_actors::testing::{
    Act, FakeTools, Fault, Gate, Operation, Reply, ScriptedModel, Turn, World, eventually,
};
use greenroom_core::{
    approval::{Resolution, Role, Surface},
    call::{ToolOutcome, outcome::RepeatHint},
    duration::Span,
    ids::{RunId, SessionId},
    policy::{
        Expression, Risk,
        catalog::{CatalogEntry, RetryEntry},
    },
    session::{ApprovalAnswer, Input, SessionEvent},
};
use serde_json::{Value, json};
use std::time::Duration;

/// A tool whose calls with the same wallet run one at a time.
fn alone(risk: Risk) -> CatalogEntry {
    let key = Expression::compile("'wallet:' + args.wallet").expect("it is valid");
    let moment = Some(Span(Duration::from_millis(1)));
    let retry = Some(RetryEntry { retries_max: None, base: moment, cap: moment });
    CatalogEntry { risk: Some(risk), exclusive: Some(key), retry, ..CatalogEntry::default() }
}

fn calling(tool: &str, wallet: &str) -> Reply {
    Reply::calls([(tool, json!({"wallet": wallet}))])
}

/// `pay` waits at the gate, then is done; `settle` is another tool with the same keys.
fn tools(gate: &Gate) -> FakeTools {
    let (pay, settle) = (gate.clone(), gate.clone());
    FakeTools::none()
        .with_entry("pay", alone(Risk::WriteLowRisk), move |_| Turn::new().wait(&pay).done("paid"))
        .with_entry("settle", alone(Risk::ReadOnly), move |_| {
            Turn::new().wait(&settle).done("settled")
        })
}

/// A session whose model wants `tool` for that wallet, and then is content.
async fn start(world: &World, tool: &str, wallet: &str) -> (SessionId, RunId) {
    world.model.push(calling(tool, wallet));
    let session = world.create().await;
    let run = world.submit(session, "go").await;
    (session, run)
}

async fn waits_for_its_turn(world: &World, session: SessionId, wallet: &str) {
    let expected = format!("its turn: wallet:{wallet}");
    eventually("a session to wait for its turn", || {
        let snapshot = world.runtime.board.snapshot(&format!("/sessions/{session}"));
        snapshot.and_then(|it| it.waiting).is_some_and(|it| it.for_whom == expected)
    })
    .await;
}

/// Of what holds turns nothing is left.
async fn all_have_left(world: &World) {
    eventually("every turn to be left", || {
        world.runtime.board.snapshot("/turnstile").is_some_and(|it| it.state == "idle")
    })
    .await;
}

fn wallets(world: &World) -> Vec<Value> {
    world.tools.calls().into_iter().map(|call| call.arguments["wallet"].clone()).collect()
}

async fn ends(world: &World, (session, run): (SessionId, RunId)) {
    let end = world.run_end(session, run).await;
    assert!(matches!(end, SessionEvent::RunCompleted { .. }), "{end:?}");
}

#[actix::test]
async fn t8_sessions_with_one_key_run_one_at_a_time_and_others_beside_them() {
    let gate = Gate::closed();
    let world = World::start(ScriptedModel::saying([]), tools(&gate)).await;
    let first = start(&world, "pay", "a").await;
    gate.arrivals(1).await;
    let second = start(&world, "settle", "a").await;
    waits_for_its_turn(&world, second.0, "a").await;
    let beside = start(&world, "pay", "b").await;
    gate.arrivals(2).await;
    assert_eq!(wallets(&world), [json!("a"), json!("b")]);
    let shown = world.runtime.board.snapshot("/turnstile").expect("it is always there");
    let waiting = shown.waiting.expect("somebody waits").for_whom;
    assert_eq!(
        (shown.state.as_str(), waiting.as_str()),
        ("taken", "calls that run alone, for 1 other")
    );
    for _ in 0..3 {
        world.model.push(Reply::text("content"));
    }
    gate.open();
    for run in [first, second, beside] {
        ends(&world, run).await;
    }
    assert_eq!(world.tools.calls()[2].tool, "settle");
    all_have_left(&world).await;
}

#[actix::test]
async fn t8_calls_of_one_step_run_one_at_a_time_too() {
    let gate = Gate::closed();
    let world = World::start(ScriptedModel::saying([]), tools(&gate)).await;
    let both = ["a", "a", "b"].map(|wallet| ("settle", json!({"wallet": wallet})));
    world.model.push(Reply::calls(both));
    let session = world.create().await;
    let run = world.submit(session, "go").await;
    // One of the first wallet, and the other wallet beside it.
    gate.arrivals(2).await;
    assert_eq!(wallets(&world), [json!("a"), json!("b")]);
    world.model.push(Reply::text("content"));
    gate.open();
    ends(&world, (session, run)).await;
    assert_eq!(wallets(&world), [json!("a"), json!("b"), json!("a")]);
    all_have_left(&world).await;
}

#[actix::test]
async fn r2_a_turn_lasts_over_retries() {
    let gate = Gate::closed();
    let (mut attempts, passed) = (0, gate.clone());
    let tools = FakeTools::none().with_entry("settle", alone(Risk::ReadOnly), move |_| {
        attempts += 1;
        let turn = Turn::new().wait(&passed);
        let hint = RepeatHint::Temporary;
        let error = "busy".to_owned();
        if attempts < 3 { turn.then(Act::End(ToolOutcome::Failed { error, hint })) } else { turn }
    });
    let world = World::start(ScriptedModel::saying([]), tools).await;
    let first = start(&world, "settle", "a").await;
    gate.arrivals(1).await;
    let second = start(&world, "settle", "a").await;
    waits_for_its_turn(&world, second.0, "a").await;
    world.model.push(Reply::text("content"));
    world.model.push(Reply::text("content"));
    gate.open();
    ends(&world, first).await;
    ends(&world, second).await;
    let keys: Vec<_> = world.tools.calls().into_iter().map(|call| call.idempotency_key).collect();
    assert_eq!(keys.len(), 4, "three attempts of the first, one of the second");
    assert!(keys[..3].iter().all(|key| *key == keys[0]) && keys[3] != keys[0], "{keys:?}");
    all_have_left(&world).await;
}

#[actix::test]
async fn d3_who_waits_for_a_person_leaves_its_turn_and_asks_again() {
    let gate = Gate::closed();
    let mut attempts = 0;
    let passed = gate.clone();
    let tools = FakeTools::none().with_entry("pay", alone(Risk::WriteLowRisk), move |_| {
        attempts += 1;
        let turn = Turn::new().wait(&passed);
        if attempts == 1 { turn.then(Act::Panic) } else { turn.done("paid") }
    });
    let world = World::start(ScriptedModel::saying([]), tools).await;
    let first = start(&world, "pay", "a").await;
    gate.arrivals(1).await;
    let second = start(&world, "pay", "a").await;
    waits_for_its_turn(&world, second.0, "a").await;
    gate.let_one_through();
    let asked = world.wait_for(first.0, "the question", asked).await;
    // The second has its turn now, and the first comes after it.
    gate.arrivals(2).await;
    let retry = Input::DecideApproval {
        approval_id: asked.approval_id,
        answer: ApprovalAnswer::Resolve { resolution: Resolution::Retry, reason: None },
        for_session: None,
        by: World::user(),
        role: Role::User,
        surface: Surface::Rest,
    };
    world.command(first.0, retry).await.expect("it is taken");
    waits_for_its_turn(&world, first.0, "a").await;
    assert_eq!(world.tools.calls().len(), 2);
    world.model.push(Reply::text("content"));
    world.model.push(Reply::text("content"));
    gate.open();
    ends(&world, first).await;
    ends(&world, second).await;
    all_have_left(&world).await;
}

#[actix::test]
async fn s6_a_cancel_leaves_the_turn_and_the_line() {
    let gate = Gate::closed();
    let world = World::start(ScriptedModel::saying([]), tools(&gate)).await;
    let holds = start(&world, "pay", "a").await;
    gate.arrivals(1).await;
    let waits = start(&world, "pay", "a").await;
    waits_for_its_turn(&world, waits.0, "a").await;
    let last = start(&world, "pay", "a").await;
    waits_for_its_turn(&world, last.0, "a").await;
    world.cancel(waits.0).await.expect("it runs");
    world.cancel(holds.0).await.expect("it runs");
    gate.arrivals(2).await;
    assert_eq!(completed_calls(&world.journal.events(waits.0)), []);
    world.model.push(Reply::text("content"));
    gate.open();
    ends(&world, last).await;
    assert_eq!(world.tools.calls().len(), 2, "who was cancelled while it waited never ran");
    all_have_left(&world).await;
}

#[actix::test]
async fn a3_a_session_that_fails_leaves_its_turn() {
    let gate = Gate::closed();
    let world = World::start(ScriptedModel::saying([]), tools(&gate)).await;
    let holds = start(&world, "settle", "a").await;
    gate.arrivals(1).await;
    let waits = start(&world, "settle", "a").await;
    waits_for_its_turn(&world, waits.0, "a").await;
    // Its next append conflicts: it is rebuilt from the log, and asks for its turn again.
    world.journal.fault(Operation::Append, Fault::Conflict, 1);
    let again = world.command(holds.0, World::message("more")).await;
    assert!(again.is_err());
    gate.arrivals(2).await;
    for _ in 0..3 {
        world.model.push(Reply::text("content"));
    }
    gate.open();
    ends(&world, holds).await;
    ends(&world, waits).await;
    all_have_left(&world).await;
}

#[actix::test]
async fn d2_after_a_crash_they_still_run_one_at_a_time() {
    let gate = Gate::closed();
    let world = World::start(ScriptedModel::saying([]), tools(&gate)).await;
    let holds = start(&world, "settle", "a").await;
    gate.arrivals(1).await;
    let waits = start(&world, "pay", "a").await;
    waits_for_its_turn(&world, waits.0, "a").await;
    let world = world.crash_and_restart().await;
    // One of them is at the gate once more, and the other waits.
    gate.arrivals(2).await;
    let second = world.tools.calls()[1].tool.clone();
    let other = if second == "settle" { waits.0 } else { holds.0 };
    waits_for_its_turn(&world, other, "a").await;
    assert_eq!(world.tools.calls().len(), 2);
    world.model.push(Reply::text("content"));
    world.model.push(Reply::text("content"));
    gate.open();
    ends(&world, holds).await;
    ends(&world, waits).await;
    let paid = |event: &SessionEvent| matches!(event, SessionEvent::ToolCallAttemptStarted { .. });
    assert_eq!(count(&world.journal.events(waits.0), paid), 1, "it had not begun before");
    all_have_left(&world).await;
}
