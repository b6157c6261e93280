//! Exclusive locks: calls that run one at a time across sessions (T8).

use super::*;
use crate::policy::{Expression, ToolRegistry};

/// Makes `low`, `high`, `idem`, `read` and the parallel tool `beside` exclusive by wallet.
fn exclusive(harness: SessionHarness) -> SessionHarness {
    with_key(harness, "'wallet:' + args.wallet")
}

fn with_key(harness: SessionHarness, key: &str) -> SessionHarness {
    let mut tools = tools();
    for tool in &mut tools {
        if ["low", "high", "idem", "beside", "read"].contains(&tool.name.as_str()) {
            tool.exclusive = Some(Expression::compile(key).unwrap());
        }
    }
    harness.with_rules(|rules| rules.tools = Arc::new(ToolRegistry::new(tools)))
}

fn call_on_wallet(tool: &'static str, wallet: &str) -> ScriptedCall {
    ScriptedCall::Valid(tool, json!({"wallet": wallet}))
}

fn with_exclusive_tools() -> SessionHarness {
    exclusive(SessionHarness::with_streaming_step())
}

fn with_exclusive_calls(calls: &[ScriptedCall]) -> SessionHarness {
    let mut harness = with_exclusive_tools();
    harness.propose(calls);
    harness
}

fn lock_granted(harness: &SessionHarness, call: &str, wallet: &str) -> Input {
    Input::ExclusiveLockGranted { call_id: harness.call(call), key: format!("wallet:{wallet}") }
}

#[test]
fn t8_call_requests_lock_and_starts_when_granted() {
    let mut harness = with_exclusive_tools();
    harness.check(
        harness.model_calls(&[call_on_wallet("low", "a")]),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 low write_low_risk @r1.1
        tool_call_allowed c1 by policy @r1.1
        > acquire_lock c1 'wallet:a'
    ",
    );
    // Every decision requests the lock again; none of them starts the call.
    harness.check(Input::Wake, "> acquire_lock c1 'wallet:a'");
    harness.check(Input::Rehydrated { user_settings: None }, "> acquire_lock c1 'wallet:a'");
    assert_eq!(harness.state.next_wake(), None);
    assert!(!harness.state.is_waiting_for_approval());
    harness.check(
        lock_granted(&harness, "c1", "a"),
        "
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 low
    ",
    );
    // A second grant has no effect.
    harness.check(lock_granted(&harness, "c1", "a"), "");
    harness.check(
        harness.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
    ",
    );
    harness.check(lock_granted(&harness, "c1", "a"), "");
}

#[test]
fn t8_only_exclusive_calls_of_step_wait_for_locks() {
    let mut harness = with_exclusive_tools();
    harness
        .apply(harness.model_calls(&[
            call_on_wallet("beside", "a"),
            call_on_wallet("read", "a"),
            scripted_call("read2"),
        ]))
        .unwrap();
    // `beside` still waits for its lock; the rest of the step continues.
    harness.check(
        harness.overall_answer("p1", true, "ann"),
        "
        approval_decided p1 +c1 by ann closed @r1.1
        tool_call_allowed c1 by ann p1 @r1.1
        > acquire_lock c1 'wallet:a'
        > acquire_lock c2 'wallet:a'
        = decided closed
    ",
    );
    harness.check(
        lock_granted(&harness, "c2", "a"),
        "
        tool_call_attempt_started c2 a3 #1 @r1.1
        > acquire_lock c1 'wallet:a'
        > start_tool c2 a3 read
    ",
    );
}

#[test]
fn t8_lock_of_another_key_starts_nothing() {
    let mut harness = with_exclusive_calls(&[call_on_wallet("low", "a")]);
    harness.check(lock_granted(&harness, "c1", "b"), "> acquire_lock c1 'wallet:a'");
}

#[test]
fn t8_lock_key_uses_edited_arguments() {
    let mut harness = with_exclusive_calls(&[call_on_wallet("high", "a")]);
    let call_id = harness.call("c1");
    let arguments = Some(json!({"wallet": "b"}));
    let answer = PlanStepAnswer { call_id, approved: true, reason: None, arguments };
    harness.check(
        harness.answer("p1", ApprovalAnswer::Steps(vec![answer]), "ann"),
        r#"
        approval_decided p1 +c1 by ann closed @r1.1
        tool_call_allowed c1 by ann p1 as {"wallet":"b"} @r1.1
        > acquire_lock c1 'wallet:b'
        = decided closed
    "#,
    );
}

#[test]
fn s3_later_calls_wait_behind_call_without_lock() {
    let mut harness =
        with_exclusive_calls(&[call_on_wallet("low", "a"), call_on_wallet("low", "b")]);
    harness.check(lock_granted(&harness, "c2", "b"), "> acquire_lock c1 'wallet:a'");
    harness.apply(lock_granted(&harness, "c1", "a")).unwrap();
    harness.check(
        harness.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        > acquire_lock c2 'wallet:b'
    ",
    );
    // A call that waits for a lock keeps its slot.
    let mut harness = with_exclusive_tools();
    harness.rules.parallel_calls_max = 1;
    harness.propose(&[call_on_wallet("read", "a"), scripted_call("read2")]);
    harness.check(Input::Wake, "> acquire_lock c1 'wallet:a'");
}

#[test]
fn r2_retry_requests_lock_when_due() {
    let mut harness = with_exclusive_calls(&[call_on_wallet("read", "a")]);
    harness.apply(lock_granted(&harness, "c1", "a")).unwrap();
    harness.apply(harness.tool_finishes("c1", timed_out())).unwrap();
    // A lock that is granted during the backoff starts nothing.
    harness.check(lock_granted(&harness, "c1", "a"), "");
    let due = harness.state.next_wake().unwrap();
    harness.set_clock(due).check(Input::Wake, "> acquire_lock c1 'wallet:a'");
    let call_id = harness.call("c1");
    assert_eq!(harness.state.next_wake(), Some(due));
    assert_eq!(harness.state.next_wake_excluding(|id| id == call_id), None, "would wake in a loop");
    harness.check(
        lock_granted(&harness, "c1", "a"),
        "
        tool_call_attempt_started c1 a3 #2 @r1.1
        > start_tool c1 a3 read
    ",
    );
}

#[test]
fn d2_repeated_call_requests_lock_after_restart() {
    let mut harness = with_exclusive_calls(&[call_on_wallet("read", "a")]);
    harness.apply(lock_granted(&harness, "c1", "a")).unwrap();
    harness.check(
        Input::Rehydrated { user_settings: None },
        "
        tool_call_retrying c1 #1 failures 0 (the server restarted) @r1.1
        > acquire_lock c1 'wallet:a'
    ",
    );
}

#[test]
fn d3_retry_by_human_decision_waits_for_lock() {
    let mut harness = with_exclusive_calls(&[call_on_wallet("low", "a")]);
    harness.apply(lock_granted(&harness, "c1", "a")).unwrap();
    harness.apply(Input::Rehydrated { user_settings: None }).unwrap();
    harness.check(lock_granted(&harness, "c1", "a"), "");
    harness.check(
        harness.resolve("p1", Resolution::Retry, "ann"),
        "
        approval_decided p1 retry by ann closed @r1.1
        tool_call_allowed c1 by ann p1 @r1.1
        > acquire_lock c1 'wallet:a'
        = decided closed
    ",
    );
    harness.check(
        lock_granted(&harness, "c1", "a"),
        "
        tool_call_attempt_started c1 a3 #2 @r1.1
        > start_tool c1 a3 low
    ",
    );
}

#[test]
fn s6_lock_granted_after_cancellation_starts_nothing() {
    let mut harness = with_exclusive_calls(&[call_on_wallet("low", "a")]);
    let late_grant = lock_granted(&harness, "c1", "a");
    harness.check(
        cancel(),
        "
        tool_call_failed c1 Cancelled (the run was cancelled; the call did not take effect) @r1.1
        run_cancelled by ann @r1.1
        = cancelled r1
    ",
    );
    harness.check(late_grant, "");
}

#[test]
fn t8_failed_key_evaluation_denies_call() {
    // The call was authorized with one catalog, and another applies when the lock is granted.
    let unknown = "'wallet:' + args.nothing_like_it";
    let mut harness = with_key(
        with_exclusive_calls(&[call_on_wallet("low", "a"), call_on_wallet("low", "b")]),
        unknown,
    );
    harness.check(
        lock_granted(&harness, "c1", "a"),
        "
        authorization_denied c1 requires - @r1.1
        authorization_denied c2 requires - @r1.1
        step_started a2 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a2 M2 @r1.2
    ",
    );
    // A call that may have taken effect ends with an unknown outcome.
    let mut harness = with_exclusive_calls(&[call_on_wallet("idem", "a")]);
    harness.apply(harness.overall_answer("p1", true, "ann")).unwrap();
    harness.apply(lock_granted(&harness, "c1", "a")).unwrap();
    let mut harness = with_key(harness, unknown);
    let decision = harness.apply(Input::Rehydrated { user_settings: None }).unwrap();
    let failed = decision.events.iter().find_map(|record| {
        let crate::session::SessionEvent::ToolCallFailed { reason, error, .. } = &record.event
        else {
            return None;
        };
        Some((*reason, error.clone()))
    });
    let (reason, error) = failed.expect("the call ended");
    assert_eq!(reason, crate::call::CallFailureReason::OutcomeUnknown);
    assert!(error.contains("exclusive key") && error.contains("may have taken effect"), "{error}");
}

#[test]
fn d6_waiting_for_lock_is_not_waiting_for_approval() {
    let mut harness = with_exclusive_tools();
    harness.propose(&[call_on_wallet("low", "a"), call_on_wallet("beside", "a")]);
    assert_eq!(harness.state.active.approvals.len(), 1);
    assert!(!harness.state.is_waiting_for_approval());
    // A call held back by a call that waits for approval waits for approval.
    let mut harness = with_exclusive_tools();
    harness.propose(&[call_on_wallet("high", "a"), call_on_wallet("low", "a")]);
    assert!(harness.state.is_waiting_for_approval());
}
