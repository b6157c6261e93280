//! Calls that run one at a time across sessions (T8).

use super::*;
use crate::policy::{Expression, ToolBook};

/// The same, whose `low`, `high` and `idem` are exclusive by wallet, as `beside`, which is
/// parallel, and `read`.
fn exclusive(scene: Scene) -> Scene {
    with_key(scene, "'wallet:' + args.wallet")
}

fn with_key(scene: Scene, key: &str) -> Scene {
    let mut tools = tools();
    for tool in &mut tools {
        if ["low", "high", "idem", "beside", "read"].contains(&tool.name.as_str()) {
            tool.exclusive = Some(Expression::compile(key).unwrap());
        }
    }
    scene.rules(|rules| rules.tools = Arc::new(ToolBook::new(tools)))
}

fn on(tool: &'static str, wallet: &str) -> Wanted {
    Wanted::With(tool, json!({"wallet": wallet}))
}

fn streaming() -> Scene {
    exclusive(Scene::streaming())
}

fn calling(calls: &[Wanted]) -> Scene {
    let mut scene = streaming();
    scene.propose(calls);
    scene
}

fn granted(scene: &Scene, call: &str, wallet: &str) -> Input {
    Input::TurnGranted { call_id: scene.call(call), key: format!("wallet:{wallet}") }
}

#[test]
fn t8_a_call_asks_for_its_turn_and_begins_when_it_has_it() {
    let mut scene = streaming();
    scene.check(
        scene.model_calls(&[on("low", "a")]),
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
    scene.check(Input::Rehydrated { within: None }, "> await_turn c1 'wallet:a'");
    assert_eq!(scene.state.next_wake(), None);
    assert!(!scene.state.is_waiting_for_people());
    scene.check(
        granted(&scene, "c1", "a"),
        "
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 low
    ",
    );
    // Once is enough.
    scene.check(granted(&scene, "c1", "a"), "");
    scene.check(
        scene.tool("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
    ",
    );
    scene.check(granted(&scene, "c1", "a"), "");
}

#[test]
fn t8_calls_of_one_step_wait_too_and_others_do_not() {
    let mut scene = streaming();
    scene.does(scene.model_calls(&[on("beside", "a"), on("read", "a"), want("read2")])).unwrap();
    // `beside` is asked for; the rest of the step goes on.
    scene.check(
        scene.whole("p1", true, "ann"),
        "
        approval_decided p1 +c1 by ann closed @r1.1
        tool_call_allowed c1 by ann p1 @r1.1
        > await_turn c1 'wallet:a'
        > await_turn c2 'wallet:a'
        = decided closed
    ",
    );
    scene.check(
        granted(&scene, "c2", "a"),
        "
        tool_call_attempt_started c2 a3 #1 @r1.1
        > await_turn c1 'wallet:a'
        > start_tool c2 a3 read
    ",
    );
}

#[test]
fn t8_a_turn_of_another_key_begins_nothing() {
    let mut scene = calling(&[on("low", "a")]);
    scene.check(granted(&scene, "c1", "b"), "> await_turn c1 'wallet:a'");
}

#[test]
fn t8_the_key_is_that_of_the_edited_arguments() {
    let mut scene = calling(&[on("high", "a")]);
    let call_id = scene.call("c1");
    let arguments = Some(json!({"wallet": "b"}));
    let answer = StepAnswer { call_id, approved: true, reason: None, arguments };
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
    let mut scene = calling(&[on("low", "a"), on("low", "b")]);
    scene.check(granted(&scene, "c2", "b"), "> await_turn c1 'wallet:a'");
    scene.does(granted(&scene, "c1", "a")).unwrap();
    scene.check(
        scene.tool("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        > await_turn c2 'wallet:b'
    ",
    );
    // What waits keeps its place.
    let mut scene = streaming();
    scene.rules.parallel_calls_max = 1;
    scene.propose(&[on("read", "a"), want("read2")]);
    scene.check(Input::Wake, "> await_turn c1 'wallet:a'");
}

#[test]
fn r2_a_retry_asks_again_when_its_time_comes() {
    let mut scene = calling(&[on("read", "a")]);
    scene.does(granted(&scene, "c1", "a")).unwrap();
    scene.does(scene.tool("c1", timed_out())).unwrap();
    // A turn that comes early begins nothing.
    scene.check(granted(&scene, "c1", "a"), "");
    let due = scene.state.next_wake().unwrap();
    scene.at(due).check(Input::Wake, "> await_turn c1 'wallet:a'");
    let call_id = scene.call("c1");
    assert_eq!(scene.state.next_wake(), Some(due));
    assert_eq!(scene.state.next_wake_besides(|waits| waits == call_id), None, "a hot loop");
    scene.check(
        granted(&scene, "c1", "a"),
        "
        tool_call_attempt_started c1 a3 #2 @r1.1
        > start_tool c1 a3 read
    ",
    );
}

#[test]
fn d2_after_a_restart_what_repeats_asks_again() {
    let mut scene = calling(&[on("read", "a")]);
    scene.does(granted(&scene, "c1", "a")).unwrap();
    scene.check(
        Input::Rehydrated { within: None },
        "
        tool_call_retrying c1 #1 failures 0 (the server restarted) @r1.1
        > await_turn c1 'wallet:a'
    ",
    );
}

#[test]
fn d3_a_retry_by_a_persons_word_waits_for_its_turn() {
    let mut scene = calling(&[on("low", "a")]);
    scene.does(granted(&scene, "c1", "a")).unwrap();
    scene.does(Input::Rehydrated { within: None }).unwrap();
    scene.check(granted(&scene, "c1", "a"), "");
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
        granted(&scene, "c1", "a"),
        "
        tool_call_attempt_started c1 a3 #2 @r1.1
        > start_tool c1 a3 low
    ",
    );
}

#[test]
fn s6_a_call_that_waits_is_cancelled_and_its_turn_begins_nothing() {
    let mut scene = calling(&[on("low", "a")]);
    let late = granted(&scene, "c1", "a");
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
fn t8_a_key_that_can_not_be_told_any_more_lets_nothing_run() {
    // Judged with one catalog, and another holds when its turn comes.
    let unknown = "'wallet:' + args.nothing_like_it";
    let mut scene = with_key(calling(&[on("low", "a"), on("low", "b")]), unknown);
    scene.check(
        granted(&scene, "c1", "a"),
        "
        authorization_denied c1 requires - @r1.1
        authorization_denied c2 requires - @r1.1
        step_started a2 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a2 M2 @r1.2
    ",
    );
    // What may have taken effect is not said to have failed.
    let mut scene = calling(&[on("idem", "a")]);
    scene.does(scene.whole("p1", true, "ann")).unwrap();
    scene.does(granted(&scene, "c1", "a")).unwrap();
    let mut scene = with_key(scene, unknown);
    let found = scene.does(Input::Rehydrated { within: None }).unwrap();
    let failed = found.events.iter().find_map(|record| {
        let crate::session::SessionEvent::ToolCallFailed { reason, error, .. } = &record.event
        else {
            return None;
        };
        Some((*reason, error.clone()))
    });
    let (reason, error) = failed.expect("it ended");
    assert_eq!(reason, crate::call::FailReason::OutcomeUnknown);
    assert!(error.contains("exclusive key") && error.contains("may have taken effect"), "{error}");
}

#[test]
fn d6_a_session_that_waits_for_a_turn_does_not_wait_for_people() {
    let mut scene = streaming();
    scene.propose(&[on("low", "a"), on("beside", "a")]);
    assert_eq!(scene.state.active.approvals.len(), 1);
    assert!(!scene.state.is_waiting_for_people());
    // Held back by a call that waits for a person, it does.
    let mut scene = streaming();
    scene.propose(&[on("high", "a"), on("low", "a")]);
    assert!(scene.state.is_waiting_for_people());
}
