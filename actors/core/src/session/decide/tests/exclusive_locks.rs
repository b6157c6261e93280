//! Calls that run one at a time across sessions (T8).

use super::*;
use crate::policy::{Expression, ToolRegistry};

/// The same, whose `low`, `high` and `idem` are exclusive by wallet, as `beside`, which is
/// parallel, and `read`.
fn exclusive(scene: SessionHarness) -> SessionHarness {
    with_key(scene, "'wallet:' + args.wallet")
}

fn with_key(scene: SessionHarness, key: &str) -> SessionHarness {
    let mut tools = tools();
    for tool in &mut tools {
        if ["low", "high", "idem", "beside", "read"].contains(&tool.name.as_str()) {
            tool.exclusive = Some(Expression::compile(key).unwrap());
        }
    }
    scene.with_rules(|rules| rules.tools = Arc::new(ToolRegistry::new(tools)))
}

fn call_on_wallet(tool: &'static str, wallet: &str) -> ScriptedCall {
    ScriptedCall::Valid(tool, json!({"wallet": wallet}))
}

fn streaming() -> SessionHarness {
    exclusive(SessionHarness::with_streaming_step())
}

fn calling(calls: &[ScriptedCall]) -> SessionHarness {
    let mut scene = streaming();
    scene.propose(calls);
    scene
}

fn lock_granted(scene: &SessionHarness, call: &str, wallet: &str) -> Input {
    Input::ExclusiveLockGranted { call_id: scene.call(call), key: format!("wallet:{wallet}") }
}

#[test]
fn t8_a_call_requests_its_lock_and_starts_when_granted() {
    let mut scene = streaming();
    scene.check(
        scene.model_calls(&[call_on_wallet("low", "a")]),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 low write_low_risk @r1.1
        tool_call_allowed c1 by policy @r1.1
        > await_turn c1 'wallet:a'
    ",
    );
    // It may be asked for again, by whatever is decided; nothing begins by it.
    scene.check(Input::Wake, "> await_turn c1 'wallet:a'");
    scene.check(Input::Rehydrated { user_settings: None }, "> await_turn c1 'wallet:a'");
    assert_eq!(scene.state.next_wake(), None);
    assert!(!scene.state.is_waiting_for_approval());
    scene.check(
        lock_granted(&scene, "c1", "a"),
        "
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 low
    ",
    );
    // Once is enough.
    scene.check(lock_granted(&scene, "c1", "a"), "");
    scene.check(
        scene.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
    ",
    );
    scene.check(lock_granted(&scene, "c1", "a"), "");
}

#[test]
fn t8_calls_of_one_step_wait_too_and_others_do_not() {
    let mut scene = streaming();
    scene
        .apply(scene.model_calls(&[
            call_on_wallet("beside", "a"),
            call_on_wallet("read", "a"),
            scripted_call("read2"),
        ]))
        .unwrap();
    // `beside` is asked for; the rest of the step goes on.
    scene.check(
        scene.overall_answer("p1", true, "ann"),
        "
        approval_decided p1 +c1 by ann closed @r1.1
        tool_call_allowed c1 by ann p1 @r1.1
        > await_turn c1 'wallet:a'
        > await_turn c2 'wallet:a'
        = decided closed
    ",
    );
    scene.check(
        lock_granted(&scene, "c2", "a"),
        "
        tool_call_attempt_started c2 a3 #1 @r1.1
        > await_turn c1 'wallet:a'
        > start_tool c2 a3 read
    ",
    );
}

#[test]
fn t8_a_lock_of_another_key_starts_nothing() {
    let mut scene = calling(&[call_on_wallet("low", "a")]);
    scene.check(lock_granted(&scene, "c1", "b"), "> await_turn c1 'wallet:a'");
}

#[test]
fn t8_the_key_is_that_of_the_edited_arguments() {
    let mut scene = calling(&[call_on_wallet("high", "a")]);
    let call_id = scene.call("c1");
    let arguments = Some(json!({"wallet": "b"}));
    let answer = PlanStepAnswer { call_id, approved: true, reason: None, arguments };
    scene.check(
        scene.answer("p1", ApprovalAnswer::Steps(vec![answer]), "ann"),
        r#"
        approval_decided p1 +c1 by ann closed @r1.1
        tool_call_allowed c1 by ann p1 as {"wallet":"b"} @r1.1
        > await_turn c1 'wallet:b'
        = decided closed
    "#,
    );
}

#[test]
fn s3_later_calls_of_the_session_wait_behind_one_that_waits() {
    let mut scene = calling(&[call_on_wallet("low", "a"), call_on_wallet("low", "b")]);
    scene.check(lock_granted(&scene, "c2", "b"), "> await_turn c1 'wallet:a'");
    scene.apply(lock_granted(&scene, "c1", "a")).unwrap();
    scene.check(
        scene.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        > await_turn c2 'wallet:b'
    ",
    );
    // What waits keeps its place.
    let mut scene = streaming();
    scene.rules.parallel_calls_max = 1;
    scene.propose(&[call_on_wallet("read", "a"), scripted_call("read2")]);
    scene.check(Input::Wake, "> await_turn c1 'wallet:a'");
}

#[test]
fn r2_a_retry_asks_again_when_its_time_comes() {
    let mut scene = calling(&[call_on_wallet("read", "a")]);
    scene.apply(lock_granted(&scene, "c1", "a")).unwrap();
    scene.apply(scene.tool_finishes("c1", timed_out())).unwrap();
    // A turn that comes early begins nothing.
    scene.check(lock_granted(&scene, "c1", "a"), "");
    let due = scene.state.next_wake().unwrap();
    scene.set_clock(due).check(Input::Wake, "> await_turn c1 'wallet:a'");
    let call_id = scene.call("c1");
    assert_eq!(scene.state.next_wake(), Some(due));
    assert_eq!(scene.state.next_wake_excluding(|waits| waits == call_id), None, "a hot loop");
    scene.check(
        lock_granted(&scene, "c1", "a"),
        "
        tool_call_attempt_started c1 a3 #2 @r1.1
        > start_tool c1 a3 read
    ",
    );
}

#[test]
fn d2_after_a_restart_what_repeats_asks_again() {
    let mut scene = calling(&[call_on_wallet("read", "a")]);
    scene.apply(lock_granted(&scene, "c1", "a")).unwrap();
    scene.check(
        Input::Rehydrated { user_settings: None },
        "
        tool_call_retrying c1 #1 failures 0 (the server restarted) @r1.1
        > await_turn c1 'wallet:a'
    ",
    );
}

#[test]
fn d3_a_retry_decided_by_a_person_waits_for_its_lock() {
    let mut scene = calling(&[call_on_wallet("low", "a")]);
    scene.apply(lock_granted(&scene, "c1", "a")).unwrap();
    scene.apply(Input::Rehydrated { user_settings: None }).unwrap();
    scene.check(lock_granted(&scene, "c1", "a"), "");
    scene.check(
        scene.resolve("p1", Resolution::Retry, "ann"),
        "
        approval_decided p1 retry by ann closed @r1.1
        tool_call_allowed c1 by ann p1 @r1.1
        > await_turn c1 'wallet:a'
        = decided closed
    ",
    );
    scene.check(
        lock_granted(&scene, "c1", "a"),
        "
        tool_call_attempt_started c1 a3 #2 @r1.1
        > start_tool c1 a3 low
    ",
    );
}

#[test]
fn s6_a_lock_granted_after_a_cancel_starts_nothing() {
    let mut scene = calling(&[call_on_wallet("low", "a")]);
    let late = lock_granted(&scene, "c1", "a");
    scene.check(
        cancel(),
        "
        tool_call_failed c1 Cancelled (the run was cancelled; the call did not take effect) @r1.1
        run_cancelled by ann @r1.1
        = cancelled r1
    ",
    );
    scene.check(late, "");
}

#[test]
fn t8_a_key_that_fails_to_evaluate_denies_the_call() {
    // Judged with one catalog, and another holds when its turn comes.
    let unknown = "'wallet:' + args.nothing_like_it";
    let mut scene =
        with_key(calling(&[call_on_wallet("low", "a"), call_on_wallet("low", "b")]), unknown);
    scene.check(
        lock_granted(&scene, "c1", "a"),
        "
        authorization_denied c1 requires - @r1.1
        authorization_denied c2 requires - @r1.1
        step_started a2 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a2 M2 @r1.2
    ",
    );
    // What may have taken effect is not said to have failed.
    let mut scene = calling(&[call_on_wallet("idem", "a")]);
    scene.apply(scene.overall_answer("p1", true, "ann")).unwrap();
    scene.apply(lock_granted(&scene, "c1", "a")).unwrap();
    let mut scene = with_key(scene, unknown);
    let found = scene.apply(Input::Rehydrated { user_settings: None }).unwrap();
    let failed = found.events.iter().find_map(|record| {
        let crate::session::SessionEvent::ToolCallFailed { reason, error, .. } = &record.event
        else {
            return None;
        };
        Some((*reason, error.clone()))
    });
    let (reason, error) = failed.expect("it ended");
    assert_eq!(reason, crate::call::CallFailureReason::OutcomeUnknown);
    assert!(error.contains("exclusive key") && error.contains("may have taken effect"), "{error}");
}

#[test]
fn d6_waiting_for_a_lock_is_not_waiting_for_approval() {
    let mut scene = streaming();
    scene.propose(&[call_on_wallet("low", "a"), call_on_wallet("beside", "a")]);
    assert_eq!(scene.state.active.approvals.len(), 1);
    assert!(!scene.state.is_waiting_for_approval());
    // Held back by a call that waits for a person, it does.
    let mut scene = streaming();
    scene.propose(&[call_on_wallet("high", "a"), call_on_wallet("low", "a")]);
    assert!(scene.state.is_waiting_for_approval());
}
