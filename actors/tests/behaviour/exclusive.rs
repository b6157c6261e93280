//! Exclusive locks across sessions (T8).

use crate::{completed_calls, count_events, last_approval};
use greenroom_actors::testing::{
    FakeTools, Gate, JournalFault, JournalOperation, ModelReply, ScriptedModel, TestRuntime,
    ToolAction, ToolScript, wait_until,
};
use greenroom_core::{
    approval::{Resolution, Role, Surface},
    call::{ToolOutcome, outcome::RetryHint},
    duration::ConfigDuration,
    ids::{RunId, SessionId},
    policy::{
        Expression, Risk,
        catalog::{CatalogEntry, RetryEntry},
    },
    session::{ApprovalAnswer, Input, SessionEvent},
};
use serde_json::{Value, json};
use std::time::Duration;

/// Creates a tool whose calls with the same wallet take an exclusive lock.
fn exclusive_tool(risk: Risk) -> CatalogEntry {
    let key = Expression::compile("'wallet:' + args.wallet").expect("it compiles");
    let delay = Some(ConfigDuration(Duration::from_millis(1)));
    let retry = Some(RetryEntry { retries_max: None, base: delay, cap: delay });
    CatalogEntry { risk: Some(risk), exclusive: Some(key), retry, ..CatalogEntry::default() }
}

fn call_reply(tool: &str, wallet: &str) -> ModelReply {
    ModelReply::with_calls([(tool, json!({"wallet": wallet}))])
}

/// Creates `pay`, which waits at the gate, and `settle`, another tool with the same lock keys.
fn tools(gate: &Gate) -> FakeTools {
    let (pay, settle) = (gate.clone(), gate.clone());
    FakeTools::new()
        .with_catalog_entry("pay", exclusive_tool(Risk::WriteLowRisk), move |_| {
            ToolScript::new().wait(&pay).finished("paid")
        })
        .with_catalog_entry("settle", exclusive_tool(Risk::ReadOnly), move |_| {
            ToolScript::new().wait(&settle).finished("settled")
        })
}

/// Starts a run whose model calls `tool` for `wallet`.
async fn start_run(world: &TestRuntime, tool: &str, wallet: &str) -> (SessionId, RunId) {
    world.model.push(call_reply(tool, wallet));
    let session = world.create_session().await;
    let run = world.submit(session, "go").await;
    (session, run)
}

async fn wait_until_waiting_for_lock(world: &TestRuntime, session: SessionId, wallet: &str) {
    let expected = format!("exclusive lock wallet:{wallet}");
    wait_until("the session to wait for its lock", || {
        let snapshot = world.runtime.status_board.snapshot(&format!("/sessions/{session}"));
        snapshot
            .and_then(|snapshot| snapshot.waiting)
            .is_some_and(|waiting| waiting.awaited == expected)
    })
    .await;
}

/// Waits until no lock is held or requested.
async fn wait_until_locks_released(world: &TestRuntime) {
    wait_until("every lock to be released", || {
        world.runtime.status_board.snapshot("/turnstile").is_some_and(|lock| lock.state == "idle")
    })
    .await;
}

fn wallets(world: &TestRuntime) -> Vec<Value> {
    world.tools.recorded_calls().into_iter().map(|call| call.arguments["wallet"].clone()).collect()
}

async fn assert_completes(world: &TestRuntime, (session, run): (SessionId, RunId)) {
    let end = world.wait_for_run_end(session, run).await;
    assert!(matches!(end, SessionEvent::RunCompleted { .. }), "{end:?}");
}

#[actix::test]
async fn t8_calls_with_the_same_lock_key_run_one_at_a_time() {
    let gate = Gate::closed();
    let world = TestRuntime::start(ScriptedModel::with_replies([]), tools(&gate)).await;
    let first = start_run(&world, "pay", "a").await;
    gate.wait_for_arrivals(1).await;
    let second = start_run(&world, "settle", "a").await;
    wait_until_waiting_for_lock(&world, second.0, "a").await;
    let parallel = start_run(&world, "pay", "b").await;
    gate.wait_for_arrivals(2).await;
    assert_eq!(wallets(&world), [json!("a"), json!("b")]);
    let shown = world.runtime.status_board.snapshot("/turnstile").expect("it is always shown");
    let waiting = shown.waiting.expect("a call waits").awaited;
    assert_eq!((shown.state.as_str(), waiting.as_str()), ("taken", "lock release, 1 call waiting"));
    for _ in 0..3 {
        world.model.push(ModelReply::text("content"));
    }
    gate.open();
    for run in [first, second, parallel] {
        assert_completes(&world, run).await;
    }
    assert_eq!(world.tools.recorded_calls()[2].tool, "settle");
    wait_until_locks_released(&world).await;
}

#[actix::test]
async fn t8_calls_of_one_step_run_one_at_a_time_too() {
    let gate = Gate::closed();
    let world = TestRuntime::start(ScriptedModel::with_replies([]), tools(&gate)).await;
    let calls = ["a", "a", "b"].map(|wallet| ("settle", json!({"wallet": wallet})));
    world.model.push(ModelReply::with_calls(calls));
    let session = world.create_session().await;
    let run = world.submit(session, "go").await;
    // One call for the first wallet, and in parallel the call for the other wallet.
    gate.wait_for_arrivals(2).await;
    assert_eq!(wallets(&world), [json!("a"), json!("b")]);
    world.model.push(ModelReply::text("content"));
    gate.open();
    assert_completes(&world, (session, run)).await;
    assert_eq!(wallets(&world), [json!("a"), json!("b"), json!("a")]);
    wait_until_locks_released(&world).await;
}

#[actix::test]
async fn r2_lock_is_held_across_retries() {
    let gate = Gate::closed();
    let (mut attempts, tool_gate) = (0, gate.clone());
    let tools =
        FakeTools::new().with_catalog_entry("settle", exclusive_tool(Risk::ReadOnly), move |_| {
            attempts += 1;
            let script = ToolScript::new().wait(&tool_gate);
            let hint = RetryHint::Temporary;
            let error = "busy".to_owned();
            if attempts < 3 {
                script.with_action(ToolAction::Finish(ToolOutcome::Failed { error, hint }))
            } else {
                script
            }
        });
    let world = TestRuntime::start(ScriptedModel::with_replies([]), tools).await;
    let first = start_run(&world, "settle", "a").await;
    gate.wait_for_arrivals(1).await;
    let second = start_run(&world, "settle", "a").await;
    wait_until_waiting_for_lock(&world, second.0, "a").await;
    world.model.push(ModelReply::text("content"));
    world.model.push(ModelReply::text("content"));
    gate.open();
    assert_completes(&world, first).await;
    assert_completes(&world, second).await;
    let keys: Vec<_> =
        world.tools.recorded_calls().into_iter().map(|call| call.idempotency_key).collect();
    assert_eq!(keys.len(), 4, "three attempts of the first, one of the second");
    assert!(keys[..3].iter().all(|key| *key == keys[0]) && keys[3] != keys[0], "{keys:?}");
    wait_until_locks_released(&world).await;
}

#[actix::test]
async fn d3_call_waiting_for_approval_releases_and_reacquires_its_lock() {
    let gate = Gate::closed();
    let mut attempts = 0;
    let tool_gate = gate.clone();
    let tools =
        FakeTools::new().with_catalog_entry("pay", exclusive_tool(Risk::WriteLowRisk), move |_| {
            attempts += 1;
            let script = ToolScript::new().wait(&tool_gate);
            if attempts == 1 {
                script.with_action(ToolAction::Panic)
            } else {
                script.finished("paid")
            }
        });
    let world = TestRuntime::start(ScriptedModel::with_replies([]), tools).await;
    let first = start_run(&world, "pay", "a").await;
    gate.wait_for_arrivals(1).await;
    let second = start_run(&world, "pay", "a").await;
    wait_until_waiting_for_lock(&world, second.0, "a").await;
    gate.release_one();
    let approval = world.wait_for(first.0, "the approval", last_approval).await;
    // The second call holds the lock now, and the first waits for it.
    gate.wait_for_arrivals(2).await;
    let retry = Input::AnswerApproval {
        approval_id: approval.approval_id,
        answer: ApprovalAnswer::Resolve { resolution: Resolution::Retry, reason: None },
        for_session: None,
        by: TestRuntime::user(),
        role: Role::User,
        surface: Surface::Rest,
    };
    world.execute(first.0, retry).await.expect("the answer is accepted");
    wait_until_waiting_for_lock(&world, first.0, "a").await;
    assert_eq!(world.tools.recorded_calls().len(), 2);
    world.model.push(ModelReply::text("content"));
    world.model.push(ModelReply::text("content"));
    gate.open();
    assert_completes(&world, first).await;
    assert_completes(&world, second).await;
    wait_until_locks_released(&world).await;
}

#[actix::test]
async fn s6_cancel_releases_held_and_queued_locks() {
    let gate = Gate::closed();
    let world = TestRuntime::start(ScriptedModel::with_replies([]), tools(&gate)).await;
    let holder = start_run(&world, "pay", "a").await;
    gate.wait_for_arrivals(1).await;
    let waiter = start_run(&world, "pay", "a").await;
    wait_until_waiting_for_lock(&world, waiter.0, "a").await;
    let last = start_run(&world, "pay", "a").await;
    wait_until_waiting_for_lock(&world, last.0, "a").await;
    world.cancel(waiter.0).await.expect("its run is active");
    world.cancel(holder.0).await.expect("its run is active");
    gate.wait_for_arrivals(2).await;
    assert_eq!(completed_calls(&world.journal.events(waiter.0)), []);
    world.model.push(ModelReply::text("content"));
    gate.open();
    assert_completes(&world, last).await;
    assert_eq!(
        world.tools.recorded_calls().len(),
        2,
        "a call that was cancelled while it waited never ran"
    );
    wait_until_locks_released(&world).await;
}

#[actix::test]
async fn a3_failed_session_releases_its_locks() {
    let gate = Gate::closed();
    let world = TestRuntime::start(ScriptedModel::with_replies([]), tools(&gate)).await;
    let holder = start_run(&world, "settle", "a").await;
    gate.wait_for_arrivals(1).await;
    let waiter = start_run(&world, "settle", "a").await;
    wait_until_waiting_for_lock(&world, waiter.0, "a").await;
    // The holder's next append conflicts: it is rebuilt from the log and requests its lock again.
    world.journal.inject_fault(JournalOperation::Append, JournalFault::Conflict, 1);
    let conflicting_reply = world.execute(holder.0, TestRuntime::submit_input("more")).await;
    assert!(conflicting_reply.is_err());
    gate.wait_for_arrivals(2).await;
    for _ in 0..3 {
        world.model.push(ModelReply::text("content"));
    }
    gate.open();
    assert_completes(&world, holder).await;
    assert_completes(&world, waiter).await;
    wait_until_locks_released(&world).await;
}

#[actix::test]
async fn d2_locks_are_reacquired_after_a_crash() {
    let gate = Gate::closed();
    let world = TestRuntime::start(ScriptedModel::with_replies([]), tools(&gate)).await;
    let holder = start_run(&world, "settle", "a").await;
    gate.wait_for_arrivals(1).await;
    let waiter = start_run(&world, "pay", "a").await;
    wait_until_waiting_for_lock(&world, waiter.0, "a").await;
    let world = world.crash_and_restart().await;
    // One of the calls is at the gate again, and the other waits.
    gate.wait_for_arrivals(2).await;
    let second = world.tools.recorded_calls()[1].tool.clone();
    let other = if second == "settle" { waiter.0 } else { holder.0 };
    wait_until_waiting_for_lock(&world, other, "a").await;
    assert_eq!(world.tools.recorded_calls().len(), 2);
    world.model.push(ModelReply::text("content"));
    world.model.push(ModelReply::text("content"));
    gate.open();
    assert_completes(&world, holder).await;
    assert_completes(&world, waiter).await;
    let is_attempt =
        |event: &SessionEvent| matches!(event, SessionEvent::ToolCallAttemptStarted { .. });
    let attempts = count_events(&world.journal.events(waiter.0), is_attempt);
    assert_eq!(attempts, 1, "it was not started before the crash");
    wait_until_locks_released(&world).await;
}
