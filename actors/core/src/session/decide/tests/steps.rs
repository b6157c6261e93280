//! Ends of model attempts (S2, M3).

use super::*;

fn overloaded() -> ModelFailure {
    ModelFailure::temporary("overloaded")
}

#[test]
fn s2_calls_then_a_final_answer() {
    let mut scene = SessionHarness::with_streaming_step();
    scene.check(
        scene.model_completes("Looking.", &scripted_calls(["read"])),
        "
        message_completed M1 'Looking.' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 read read_only @r1.1
        tool_call_allowed c1 by policy @r1.1
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 read
    ",
    );
    scene.check(
        scene.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
    ",
    );
    scene.check(
        scene.model_answers("It is 42."),
        "
        message_completed M2 'It is 42.' @r1.2
        step_completed EndTurn 10 @r1.2
        run_completed M2 20 @r1.2
    ",
    );
    scene.check_conversation(
        "
        user: u1
        assistant: Looking. [read]
        results: read: 42
        assistant: It is 42.
    ",
    );
}

#[test]
fn s2_an_empty_answer_ends_the_run_and_is_not_conversation() {
    let mut scene = SessionHarness::with_streaming_step();
    scene.check(
        scene.model_answers(""),
        "
        message_completed M1 '' @r1.1
        step_completed EndTurn 10 @r1.1
        run_completed M1 10 @r1.1
    ",
    );
    scene.check_conversation("user: u1");
}

#[test]
fn m3_a_temporary_failure_that_nobody_saw_keeps_the_message_open() {
    let mut scene = SessionHarness::with_streaming_step();
    scene.check(
        scene.model_fails(overloaded(), false),
        "step_retrying #1 failures 1 (overloaded) @r1.1",
    );
    let due = scene.state.next_wake().unwrap();
    scene.set_clock(Timestamp(due.0 - 1)).check(Input::Wake, "");
    scene.set_clock(due).check(
        Input::Wake,
        "
        step_started a2 #2 small @r1.1
        > start_model a2 M1 @r1.1
    ",
    );
    scene.check(Input::Wake, "");
    scene.check(
        scene.model_answers("Hello."),
        "
        message_completed M1 'Hello.' @r1.1
        step_completed EndTurn 10 @r1.1
        run_completed M1 10 @r1.1
    ",
    );
}

#[test]
fn m3_a_cut_stream_is_discarded_and_restarted() {
    let mut scene = SessionHarness::with_streaming_step();
    scene.check(
        scene.model_fails(overloaded(), true),
        "
        message_discarded M1 (overloaded) @r1.1
        step_retrying #1 failures 1 (overloaded) @r1.1
    ",
    );
    let due = scene.state.next_wake().unwrap();
    scene.set_clock(due).check(
        Input::Wake,
        "
        step_started a2 #2 small @r1.1
        message_started M2 @r1.1
        > start_model a2 M2 @r1.1
    ",
    );
}

#[test]
fn m3_a_permanent_failure_ends_the_run() {
    for streamed in [false, true] {
        let mut scene = SessionHarness::with_streaming_step();
        let failure = ModelFailure::from_status(401, "bad key", None);
        scene.check(
            scene.model_fails(failure, streamed),
            "
            message_discarded M1 (bad key) @r1.1
            run_failed ModelError (bad key) @r1.1
        ",
        );
        scene.check(
            submit("u2"),
            "
            message_accepted u2 @r2
            run_started u2 @r2
            step_started a2 #1 small @r2.1
            message_started M2 @r2.1
            > start_model a2 M2 @r2.1
            = submitted r2 seq 8
        ",
        );
    }
}

#[test]
fn m3_retries_are_exhausted() {
    let mut scene = SessionHarness::with_streaming_step();
    for _ in 0..3 {
        scene.apply(scene.model_fails(overloaded(), false)).unwrap();
        let due = scene.state.next_wake().unwrap();
        scene.set_clock(due).apply(Input::Wake).unwrap();
    }
    scene.check(
        scene.model_fails(overloaded(), false),
        "
        message_discarded M1 (overloaded) @r1.1
        run_failed ModelUnavailable (overloaded) @r1.1
    ",
    );
    assert!(scene.state.is_idle());
}

#[test]
fn m3_failures_are_counted_anew_for_each_step() {
    let mut scene = SessionHarness::with_streaming_step();
    scene.apply(scene.model_fails(overloaded(), false)).unwrap();
    let due = scene.state.next_wake().unwrap();
    scene.set_clock(due).apply(Input::Wake).unwrap();
    scene.check(
        scene.model_calls(&scripted_calls(["no_such_tool"])),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 no_such_tool write_high_risk @r1.1
        tool_call_failed c1 UnknownTool (there is no tool named `no_such_tool`) @r1.1
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
    ",
    );
    scene.check(
        scene.model_fails(overloaded(), false),
        "step_retrying #1 failures 1 (overloaded) @r1.2",
    );
}

#[test]
fn m3_retry_after_is_honoured_up_to_the_cap() {
    let delay = |asked: Option<Duration>| {
        let mut scene = SessionHarness::with_streaming_step();
        let failure = ModelFailure::from_status(429, "slow down", asked);
        scene.apply(scene.model_fails(failure, false)).unwrap();
        scene.state.next_wake().unwrap().saturating_duration_since(scene.now)
    };
    assert!(delay(None) <= SECOND);
    assert_eq!(delay(Some(7 * SECOND)), 7 * SECOND);
    assert_eq!(delay(Some(MINUTE)), crate::limits::RETRY_CAP_DEFAULT);
}

#[test]
fn superseded_model_attempts_change_nothing() {
    let mut scene = SessionHarness::with_streaming_step();
    let first = scene.model_answers("too late");
    scene.apply(scene.model_fails(overloaded(), false)).unwrap();
    scene.check(first.clone(), "");
    let due = scene.state.next_wake().unwrap();
    scene.set_clock(due).apply(Input::Wake).unwrap();
    scene.check(first.clone(), "");
    scene.apply(scene.model_answers("in time")).unwrap();
    scene.check(first, "");
}

#[test]
fn s2_the_calls_of_the_last_step_still_run_then_the_run_fails() {
    let mut scene = SessionHarness::with_streaming_step().with_agent(|agent| agent.max_steps = 2);
    scene.apply(scene.model_calls(&scripted_calls(["read"]))).unwrap();
    scene.apply(scene.tool_finishes("c1", completed())).unwrap();
    scene.check(
        scene.model_calls(&scripted_calls(["read"])),
        "
        message_completed M2 '' @r1.2
        step_completed ToolUse 10 @r1.2
        tool_call_started c2 read read_only @r1.2
        tool_call_allowed c2 by policy @r1.2
        tool_call_attempt_started c2 a4 #1 @r1.2
        > start_tool c2 a4 read
    ",
    );
    scene.check(
        scene.tool_finishes("c2", completed()),
        "
        tool_call_completed c2 '42' @r1.2
        run_failed MaxIterations (maximum iterations reached without final answer) @r1.2
    ",
    );
    scene.check(
        submit("u2"),
        "
        message_accepted u2 @r2
        run_started u2 @r2
        step_started a5 #1 small @r2.1
        message_started M3 @r2.1
        > start_model a5 M3 @r2.1
        = submitted r2 seq 21
    ",
    );
    scene.check_conversation(
        "
        user: u1
        assistant:  [read]
        results: read: 42
        assistant:  [read]
        results: read: 42
        user: u2
    ",
    );
}

fn with_spare() -> SessionHarness {
    let mut scene = SessionHarness::new()
        .with_agent(|agent| agent.models = ["large", "small"].map(str::to_owned).into());
    let priced = |usd| crate::usage::ModelPrice { input: usd, output: usd, cached: None };
    let prices = [("large", priced(1e6)), ("small", priced(1e3))];
    let prices = prices.map(|(name, price)| (name.to_owned(), price));
    scene.rules.prices = Arc::new(prices.into());
    scene.apply(submit("u1")).unwrap();
    scene
}

fn exhaust(scene: &mut SessionHarness, streamed: bool) {
    for _ in 0..3 {
        scene.apply(scene.model_fails(overloaded(), streamed)).unwrap();
        let due = scene.state.next_wake().unwrap();
        scene.set_clock(due).apply(Input::Wake).unwrap();
    }
}

#[test]
fn m4_an_exhausted_model_gives_way_to_the_next() {
    let mut scene = with_spare();
    exhaust(&mut scene, false);
    scene.check(
        scene.model_fails(overloaded(), false),
        "
        step_model_fallback #4 large to small (overloaded) @r1.1
        step_started a5 #5 small @r1.1
        > start_model a5 M1 @r1.1
    ",
    );
    // It has retries of its own, and the run stays with it.
    scene.check(
        scene.model_fails(overloaded(), false),
        "step_retrying #5 failures 1 (overloaded) @r1.1",
    );
    let due = scene.state.next_wake().unwrap();
    scene.set_clock(due).apply(Input::Wake).unwrap();
    scene.apply(scene.model_completes("Looking.", &scripted_calls(["read"]))).unwrap();
    scene.check(
        scene.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        step_started a8 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a8 M2 @r1.2
    ",
    );
    scene.apply(scene.model_answers("42.")).unwrap();
    let spent = scene.state.usage;
    assert_eq!(spent.cost_usd, Some(spent.tokens.total() as f64 / 1e3), "M6: at its own price");
    // The next run begins with the first again.
    scene.apply(submit("u2")).unwrap();
    assert_eq!(scene.state.active.run.as_ref().unwrap().model.as_deref(), Some("large"));
}

#[test]
fn m4_what_clients_saw_of_the_first_is_discarded() {
    let mut scene = with_spare();
    exhaust(&mut scene, true);
    scene.check(
        scene.model_fails(overloaded(), true),
        "
        message_discarded M4 (overloaded) @r1.1
        step_model_fallback #4 large to small (overloaded) @r1.1
        step_started a5 #5 small @r1.1
        message_started M5 @r1.1
        > start_model a5 M5 @r1.1
    ",
    );
}

#[test]
fn m4_when_the_last_is_exhausted_the_run_fails() {
    let mut scene = with_spare();
    exhaust(&mut scene, false);
    scene.apply(scene.model_fails(overloaded(), false)).unwrap();
    exhaust(&mut scene, false);
    scene.check(
        scene.model_fails(overloaded(), false),
        "
        message_discarded M1 (overloaded) @r1.1
        run_failed ModelUnavailable (overloaded) @r1.1
    ",
    );
}

#[test]
fn m4_m3_a_request_that_is_refused_is_not_tried_elsewhere() {
    let mut scene = with_spare();
    scene.check(
        scene.model_fails(ModelFailure::from_status(400, "too long", None), false),
        "
        message_discarded M1 (too long) @r1.1
        run_failed ModelError (too long) @r1.1
    ",
    );
}

#[test]
fn m4_r4_an_open_circuit_falls_back_at_once_except_for_the_last_model() {
    let mut scene = with_spare();
    let open = || ModelFailure::circuit_open("left alone", Duration::from_secs(7));
    scene.check(
        scene.model_fails(open(), false),
        "
        step_model_fallback #1 large to small (left alone) @r1.1
        step_started a2 #2 small @r1.1
        > start_model a2 M1 @r1.1
    ",
    );
    scene.check(scene.model_fails(open(), false), "step_retrying #2 failures 1 (left alone) @r1.1");
    assert_eq!(scene.state.next_wake(), Some(scene.now.saturating_add(Duration::from_secs(7))));
}

#[test]
fn m4_after_a_restart_the_run_stays_with_the_next_while_the_profile_has_it() {
    let mut scene = with_spare();
    exhaust(&mut scene, false);
    scene.apply(scene.model_fails(overloaded(), false)).unwrap();
    let mut other = scene.rules.clone();
    scene.apply(Input::Rehydrated { user_settings: None }).unwrap();
    assert_eq!(scene.state.active.run.as_ref().unwrap().model.as_deref(), Some("small"));
    Arc::make_mut(&mut other.agent).models = vec!["large".to_owned(), "other".to_owned()];
    scene.rules = other;
    scene.apply(Input::Rehydrated { user_settings: None }).unwrap();
    assert_eq!(scene.state.active.run.as_ref().unwrap().model.as_deref(), Some("large"));
}
