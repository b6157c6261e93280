//! The end of model attempts (S2, M3, M4).

use super::*;
use crate::session::{RunStopReason, SessionEvent};

fn overloaded() -> ModelFailure {
    ModelFailure::temporary("overloaded")
}

#[test]
fn s2_run_calls_tools_then_answers() {
    let mut harness = SessionHarness::with_streaming_step();
    harness.check(
        harness.model_completes("Looking.", &scripted_calls(["read"])),
        "
        message_completed M1 'Looking.' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 read read_only @r1.1
        tool_call_allowed c1 by policy @r1.1
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 read
    ",
    );
    harness.check(
        harness.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        step_started a3 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a3 M2 @r1.2
    ",
    );
    harness.check(
        harness.model_answers("It is 42."),
        "
        message_completed M2 'It is 42.' @r1.2
        step_completed EndTurn 10 @r1.2
        run_completed M2 20 @r1.2
    ",
    );
    harness.check_conversation(
        "
        user: u1
        assistant: Looking. [read]
        results: read: 42
        assistant: It is 42.
    ",
    );
}

#[test]
fn s2_empty_answer_completes_run_without_message() {
    let mut harness = SessionHarness::with_streaming_step();
    harness.check(
        harness.model_answers(""),
        "
        message_completed M1 '' @r1.1
        step_completed EndTurn 10 @r1.1
        run_completed M1 10 empty @r1.1
    ",
    );
    harness.check_conversation("user: u1");
}

#[test]
fn m3_failure_before_first_delta_keeps_message_open() {
    let mut harness = SessionHarness::with_streaming_step();
    harness.check(
        harness.model_fails(overloaded(), false),
        "step_retrying #1 failures 1 (overloaded) @r1.1",
    );
    let due = harness.state.next_wake().unwrap();
    harness.set_clock(Timestamp(due.0 - 1)).check(Input::Wake, "");
    harness.set_clock(due).check(
        Input::Wake,
        "
        step_started a2 #2 small @r1.1
        > start_model a2 M1 @r1.1
    ",
    );
    harness.check(Input::Wake, "");
    harness.check(
        harness.model_answers("Hello."),
        "
        message_completed M1 'Hello.' @r1.1
        step_completed EndTurn 10 @r1.1
        run_completed M1 10 @r1.1
    ",
    );
}

#[test]
fn m3_cut_stream_is_discarded_and_restarted() {
    let mut harness = SessionHarness::with_streaming_step();
    harness.check(
        harness.model_fails(overloaded(), true),
        "
        message_discarded M1 (overloaded) @r1.1
        step_retrying #1 failures 1 (overloaded) @r1.1
    ",
    );
    let due = harness.state.next_wake().unwrap();
    harness.set_clock(due).check(
        Input::Wake,
        "
        step_started a2 #2 small @r1.1
        message_started M2 @r1.1
        > start_model a2 M2 @r1.1
    ",
    );
}

#[test]
fn m3_permanent_failure_fails_run() {
    for streamed in [false, true] {
        let mut harness = SessionHarness::with_streaming_step();
        let failure = ModelFailure::from_status(401, "bad key", None);
        harness.check(
            harness.model_fails(failure, streamed),
            "
            message_discarded M1 (bad key) @r1.1
            run_failed ModelError (bad key) @r1.1
        ",
        );
        harness.check(
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
fn m3_exhausted_retries_fail_run() {
    let mut harness = SessionHarness::with_streaming_step();
    for _ in 0..3 {
        harness.apply(harness.model_fails(overloaded(), false)).unwrap();
        let due = harness.state.next_wake().unwrap();
        harness.set_clock(due).apply(Input::Wake).unwrap();
    }
    harness.check(
        harness.model_fails(overloaded(), false),
        "
        message_discarded M1 (overloaded) @r1.1
        run_failed ModelUnavailable (overloaded) @r1.1
    ",
    );
    assert!(harness.state.is_idle());
}

#[test]
fn m3_failures_are_counted_per_step() {
    let mut harness = SessionHarness::with_streaming_step();
    harness.apply(harness.model_fails(overloaded(), false)).unwrap();
    let due = harness.state.next_wake().unwrap();
    harness.set_clock(due).apply(Input::Wake).unwrap();
    harness.check(
        harness.model_calls(&scripted_calls(["no_such_tool"])),
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
    harness.check(
        harness.model_fails(overloaded(), false),
        "step_retrying #1 failures 1 (overloaded) @r1.2",
    );
}

#[test]
fn m3_retry_after_is_honoured_up_to_its_limit() {
    let delay = |retry_after: Option<Duration>| {
        let mut harness = SessionHarness::with_streaming_step();
        let failure = ModelFailure::from_status(429, "slow down", retry_after);
        harness.apply(harness.model_fails(failure, false)).unwrap();
        harness.state.next_wake().unwrap().saturating_duration_since(harness.now)
    };
    assert!(delay(None) <= SECOND);
    assert_eq!(delay(Some(7 * SECOND)), 7 * SECOND);
    let limit = crate::limits::RETRY_CAP_DEFAULT;
    assert_eq!(delay(Some(limit)), limit);
}

#[test]
fn m3_retry_after_beyond_its_limit_fails_the_run_and_names_the_time() {
    let hour = ModelFailure::from_status(429, "slow down", Some(60 * MINUTE));
    let mut harness = SessionHarness::with_streaming_step();
    harness.check(
        harness.model_fails(hour, true),
        "
        message_discarded M1 (slow down; the provider asks to wait 3,600 s; the limit is 30 s) @r1.1
        run_failed ModelUnavailable (slow down; the provider asks to wait 3,600 s; the limit is 30 s) @r1.1
    ",
    );
    assert!(harness.state.is_idle());
    let slightly_more = ModelFailure::from_status(503, "busy", Some(Duration::from_millis(30_001)));
    let mut harness = SessionHarness::with_streaming_step();
    harness.check(
        harness.model_fails(slightly_more, false),
        "
        message_discarded M1 (busy; the provider asks to wait 31 s; the limit is 30 s) @r1.1
        run_failed ModelUnavailable (busy; the provider asks to wait 31 s; the limit is 30 s) @r1.1
    ",
    );
}

#[test]
fn m3_m4_retry_after_beyond_its_limit_falls_back_at_once() {
    let mut harness = with_fallback_model();
    let hour = ModelFailure::from_status(429, "slow down", Some(60 * MINUTE));
    harness.check(
        harness.model_fails(hour, false),
        "
        step_model_fallback #1 large to small (slow down; the provider asks to wait 3,600 s; the limit is 30 s) @r1.1
        step_started a2 #2 small @r1.1
        > start_model a2 M1 @r1.1
    ",
    );
}

#[test]
fn m3_superseded_model_attempt_changes_nothing() {
    let mut harness = SessionHarness::with_streaming_step();
    let first = harness.model_answers("too late");
    harness.apply(harness.model_fails(overloaded(), false)).unwrap();
    harness.check(first.clone(), "");
    let due = harness.state.next_wake().unwrap();
    harness.set_clock(due).apply(Input::Wake).unwrap();
    harness.check(first.clone(), "");
    harness.apply(harness.model_answers("in time")).unwrap();
    harness.check(first, "");
}

#[test]
fn s2_calls_of_last_step_run_then_run_fails() {
    let mut harness = SessionHarness::with_streaming_step().with_agent(|agent| agent.max_steps = 2);
    harness.apply(harness.model_calls(&scripted_calls(["read"]))).unwrap();
    harness.apply(harness.tool_finishes("c1", completed())).unwrap();
    harness.check(
        harness.model_calls(&scripted_calls(["read"])),
        "
        message_completed M2 '' @r1.2
        step_completed ToolUse 10 @r1.2
        tool_call_started c2 read read_only @r1.2
        tool_call_allowed c2 by policy @r1.2
        tool_call_attempt_started c2 a4 #1 @r1.2
        > start_tool c2 a4 read
    ",
    );
    harness.check(
        harness.tool_finishes("c2", completed()),
        "
        tool_call_completed c2 '42' @r1.2
        run_failed MaxIterations (maximum iterations reached without final answer) @r1.2
    ",
    );
    harness.check(
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
    harness.check_conversation(
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

fn with_fallback_model() -> SessionHarness {
    let mut harness = SessionHarness::new()
        .with_agent(|agent| agent.models = ["large", "small"].map(str::to_owned).into());
    let price_of = |usd| crate::usage::ModelPrice::new(amount(usd), amount(usd));
    let prices = [("large", price_of(1e6)), ("small", price_of(1e3))];
    let prices = prices.map(|(name, price)| (name.to_owned(), price));
    harness.rules.prices = Arc::new(prices.into());
    harness.apply(submit("u1")).unwrap();
    harness
}

fn exhaust(harness: &mut SessionHarness, streamed: bool) {
    for _ in 0..3 {
        harness.apply(harness.model_fails(overloaded(), streamed)).unwrap();
        let due = harness.state.next_wake().unwrap();
        harness.set_clock(due).apply(Input::Wake).unwrap();
    }
}

#[test]
fn m4_exhausted_model_falls_back_to_next() {
    let mut harness = with_fallback_model();
    exhaust(&mut harness, false);
    harness.check(
        harness.model_fails(overloaded(), false),
        "
        step_model_fallback #4 large to small (overloaded) @r1.1
        step_started a5 #5 small @r1.1
        > start_model a5 M1 @r1.1
    ",
    );
    // The next model has its own retries, and the run keeps using it.
    harness.check(
        harness.model_fails(overloaded(), false),
        "step_retrying #5 failures 1 (overloaded) @r1.1",
    );
    let due = harness.state.next_wake().unwrap();
    harness.set_clock(due).apply(Input::Wake).unwrap();
    harness.apply(harness.model_completes("Looking.", &scripted_calls(["read"]))).unwrap();
    harness.check(
        harness.tool_finishes("c1", completed()),
        "
        tool_call_completed c1 '42' @r1.1
        step_started a8 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a8 M2 @r1.2
    ",
    );
    harness.apply(harness.model_answers("42.")).unwrap();
    let spent = harness.state.usage;
    assert_eq!(
        spent.cost_usd,
        Some(amount(spent.tokens.total() as f64 / 1e3)),
        "M6: priced by the fallback model"
    );
    // The next run starts with the first model.
    harness.apply(submit("u2")).unwrap();
    assert_eq!(harness.state.active.run.as_ref().unwrap().model.as_deref(), Some("large"));
}

#[test]
fn m4_fallback_discards_streamed_text() {
    let mut harness = with_fallback_model();
    exhaust(&mut harness, true);
    harness.check(
        harness.model_fails(overloaded(), true),
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
fn m4_exhausted_last_model_fails_run() {
    let mut harness = with_fallback_model();
    exhaust(&mut harness, false);
    harness.apply(harness.model_fails(overloaded(), false)).unwrap();
    exhaust(&mut harness, false);
    harness.check(
        harness.model_fails(overloaded(), false),
        "
        message_discarded M1 (overloaded) @r1.1
        run_failed ModelUnavailable (overloaded) @r1.1
    ",
    );
}

#[test]
fn m4_m3_rejected_request_does_not_fall_back() {
    let mut harness = with_fallback_model();
    harness.check(
        harness.model_fails(ModelFailure::from_status(400, "too long", None), false),
        "
        message_discarded M1 (too long) @r1.1
        run_failed ModelError (too long) @r1.1
    ",
    );
}

#[test]
fn m4_r4_open_circuit_falls_back_at_once_except_for_last_model() {
    let mut harness = with_fallback_model();
    let open = || ModelFailure::circuit_open("left alone", Duration::from_secs(7));
    harness.check(
        harness.model_fails(open(), false),
        "
        step_model_fallback #1 large to small (left alone) @r1.1
        step_started a2 #2 small @r1.1
        > start_model a2 M1 @r1.1
    ",
    );
    harness.check(
        harness.model_fails(open(), false),
        "step_retrying #2 failures 1 (left alone) @r1.1",
    );
    assert_eq!(harness.state.next_wake(), Some(harness.now.saturating_add(Duration::from_secs(7))));
}

#[test]
fn m4_restarted_run_keeps_fallback_model_while_profile_lists_it() {
    let mut harness = with_fallback_model();
    exhaust(&mut harness, false);
    harness.apply(harness.model_fails(overloaded(), false)).unwrap();
    let mut other = harness.rules.clone();
    harness.apply(Input::Rehydrated { user_settings: None }).unwrap();
    assert_eq!(harness.state.active.run.as_ref().unwrap().model.as_deref(), Some("small"));
    Arc::make_mut(&mut other.agent).models = vec!["large".to_owned(), "other".to_owned()];
    harness.rules = other;
    harness.apply(Input::Rehydrated { user_settings: None }).unwrap();
    assert_eq!(harness.state.active.run.as_ref().unwrap().model.as_deref(), Some("large"));
}

#[test]
fn m3_calls_of_refused_message_never_start() {
    for (stop_reason, name, error) in [
        (
            StopReason::Refusal,
            "refusal",
            "the model refused while it wrote the message of this call",
        ),
        (
            StopReason::ContentFilter,
            "content_filter",
            "the provider's content filter cut off the message of this call",
        ),
    ] {
        let mut harness = SessionHarness::with_streaming_step();
        harness.check(
            harness.model_stops("I will", &scripted_calls(["read", "crit"]), stop_reason),
            &format!(
                "
                message_completed M1 'I will' @r1.1
                step_completed {stop_reason:?} 10 @r1.1
                tool_call_started c1 read read_only @r1.1
                tool_call_failed c1 Refused ({error}) @r1.1
                tool_call_started c2 crit critical @r1.1
                tool_call_failed c2 Refused ({error}) @r1.1
                run_completed M1 10 {name} @r1.1
            "
            ),
        );
        harness.check_conversation(&format!(
            "
            user: u1
            assistant: I will [read] [crit]
            results: !read: Not run: {error}
            & !crit: Not run: {error}
        "
        ));
    }
}

#[test]
fn m3_run_states_how_its_last_message_ended() {
    for (text, stop_reason, expected) in [
        ("Hi", StopReason::EndTurn, RunStopReason::End),
        ("Hi", StopReason::StopSequence, RunStopReason::End),
        (" \n", StopReason::EndTurn, RunStopReason::Empty),
        ("", StopReason::ToolUse, RunStopReason::Empty),
        ("Hi", StopReason::MaxTokens, RunStopReason::Length),
        ("", StopReason::MaxTokens, RunStopReason::Length),
        ("Hi", StopReason::TextLimit, RunStopReason::Length),
        ("", StopReason::Refusal, RunStopReason::Refusal),
        ("Hi", StopReason::ContentFilter, RunStopReason::ContentFilter),
    ] {
        let mut harness = SessionHarness::with_streaming_step();
        let input = harness.model_stops(text, &[], stop_reason);
        let decision = harness.apply(input).unwrap();
        let last = decision.events.last().map(|record| &record.event);
        let Some(SessionEvent::RunCompleted { stop_reason: actual, .. }) = last else {
            panic!("{last:?}");
        };
        assert_eq!(*actual, Some(expected), "{text:?} {stop_reason:?}");
    }
}

#[test]
fn m3_truncated_message_with_complete_calls_continues_the_run() {
    let mut harness = SessionHarness::with_streaming_step();
    harness.check(
        harness.model_stops("", &scripted_calls(["read"]), StopReason::MaxTokens),
        "
        message_completed M1 '' @r1.1
        step_completed MaxTokens 10 @r1.1
        tool_call_started c1 read read_only @r1.1
        tool_call_allowed c1 by policy @r1.1
        tool_call_attempt_started c1 a2 #1 @r1.1
        > start_tool c1 a2 read
    ",
    );
}

#[test]
fn s2_calls_beyond_the_limit_fail_and_the_run_continues() {
    let mut harness =
        SessionHarness::with_streaming_step().with_rules(|rules| rules.message_limits.calls = 2);
    let mut input = harness.model_calls(&scripted_calls(["read", "crit", "read", "nope"]));
    let Input::ModelFinished { result: Ok(completion), .. } = &mut input else { panic!() };
    completion.dropped_calls = 3;
    let error = "the message has 7 calls; the limit is 2, and only the first 4 are recorded";
    harness.check(
        input,
        &format!(
            "
            message_completed M1 '' @r1.1
            step_completed ToolUse 10 @r1.1
            tool_call_started c1 read read_only @r1.1
            tool_call_allowed c1 by policy @r1.1
            tool_call_started c2 crit critical @r1.1
            tool_call_started c3 read read_only @r1.1
            tool_call_failed c3 LimitExceeded ({error}) @r1.1
            tool_call_started c4 nope write_high_risk @r1.1
            tool_call_failed c4 LimitExceeded ({error}) @r1.1
            approval_requested p1 (Execute 1 tool) c2 critical within Some(60) @r1.1
            tool_call_attempt_started c1 a2 #1 @r1.1
            > start_tool c1 a2 read
        "
        ),
    );
    harness.apply(harness.tool_finishes("c1", completed())).unwrap();
    harness.apply(harness.overall_answer("p1", false, "ann")).unwrap();
    harness.apply(harness.model_answers("Done.")).unwrap();
    harness.check_conversation(&format!(
        "
        user: u1
        assistant:  [read] [crit] [read] [nope]
        results: read: 42
        & !crit: Rejected: a human rejected this call
        & !read: Not run: {error}
        & !nope: Not run: {error}
        assistant: Done.
    "
    ));
}
