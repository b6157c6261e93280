//! Submitting messages, and the queue (S4, S5).

use super::*;
use crate::trace_context::TraceContext;

#[test]
fn s2_message_starts_run() {
    let mut harness = SessionHarness::new();
    harness.check(
        submit("u1"),
        "
        message_accepted u1 @r1
        run_started u1 @r1
        step_started a1 #1 small @r1.1
        message_started M1 @r1.1
        > start_model a1 M1 @r1.1
        = submitted r1 seq 2
    ",
    );
    harness.check(
        harness.model_answers("Hello."),
        "
        message_completed M1 'Hello.' @r1.1
        step_completed EndTurn 10 @r1.1
        run_completed M1 10 @r1.1
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
        = submitted r2 seq 9
    ",
    );
    harness.check_conversation(
        "
        user: u1
        assistant: Hello.
        user: u2
    ",
    );
}

#[test]
fn s1_untitled_session_takes_title_from_message() {
    let mut harness = SessionHarness::new();
    let title = |harness: &SessionHarness| harness.state.active.title.clone();
    harness.apply(submit_with("u1", "\n  Buy ore,\nthen sell it.", OnBusy::Queue)).unwrap();
    assert_eq!(title(&harness).as_deref(), Some("Buy ore,"));
    harness.apply(harness.model_answers("Done.")).unwrap();
    harness.apply(submit("u2")).unwrap();
    assert_eq!(
        title(&harness).as_deref(),
        Some("Buy ore,"),
        "the title of the first message is kept"
    );

    let mut harness = SessionHarness::new();
    let change = |title| Input::ChangeSettings {
        patch: SettingsPatch::default(),
        title: Some(title),
        by: user("ann"),
    };
    harness.apply(change(Some("Ore".to_owned()))).unwrap();
    harness.apply(submit("u1")).unwrap();
    assert_eq!(title(&harness).as_deref(), Some("Ore"), "a title set by the user is kept");
    harness.apply(harness.model_answers("Done.")).unwrap();
    harness.apply(change(None)).unwrap();
    harness.apply(submit("u2")).unwrap();
    assert_eq!(title(&harness).as_deref(), Some("u2"), "the removed title is not restored");
}

#[test]
fn s4_message_during_run_is_queued_or_rejected() {
    let mut harness = SessionHarness::with_streaming_step();
    harness.check(
        submit("u2"),
        "
        message_queued u2 @r2
        = submitted r2 seq 6
    ",
    );
    harness.check(submit_with("u3", "u3", OnBusy::Reject), "! busy r1");
    harness.check(
        submit("u4"),
        "
        message_queued u4 @r3
        = submitted r3 seq 7
    ",
    );
    harness.check(
        harness.model_answers("one"),
        "
        message_completed M1 'one' @r1.1
        step_completed EndTurn 10 @r1.1
        run_completed M1 10 @r1.1
        message_accepted u2 @r2
        run_started u2 @r2
        step_started a2 #1 small @r2.1
        message_started M2 @r2.1
        > start_model a2 M2 @r2.1
    ",
    );
    harness.check(
        harness.model_answers("two"),
        "
        message_completed M2 'two' @r2.1
        step_completed EndTurn 10 @r2.1
        run_completed M2 10 @r2.1
        message_accepted u4 @r3
        run_started u4 @r3
        step_started a3 #1 small @r3.1
        message_started M3 @r3.1
        > start_model a3 M3 @r3.1
    ",
    );
    // A rejected message was not recorded, so it may be submitted again.
    harness.check(
        submit_with("u3", "u3", OnBusy::Queue),
        "
        message_queued u3 @r4
        = submitted r4 seq 22
    ",
    );
}

#[test]
fn s4_reject_option_accepts_message_without_run() {
    let mut harness = SessionHarness::new();
    harness.check(
        submit_with("u1", "u1", OnBusy::Reject),
        "
        message_accepted u1 @r1
        run_started u1 @r1
        step_started a1 #1 small @r1.1
        message_started M1 @r1.1
        > start_model a1 M1 @r1.1
        = submitted r1 seq 2
    ",
    );
}

#[test]
fn s5_repeated_message_returns_same_run() {
    let mut harness = SessionHarness::new();
    harness.check(
        submit("u1"),
        "
        message_accepted u1 @r1
        run_started u1 @r1
        step_started a1 #1 small @r1.1
        message_started M1 @r1.1
        > start_model a1 M1 @r1.1
        = submitted r1 seq 2
    ",
    );
    harness.check(submit("u1"), "= submitted r1 seq 2 repeated");
    // A repetition is accepted, even where a new message would be rejected.
    harness.check(submit_with("u1", "u1", OnBusy::Reject), "= submitted r1 seq 2 repeated");
    harness.check(
        submit("u2"),
        "
        message_queued u2 @r2
        = submitted r2 seq 6
    ",
    );
    harness.check(submit("u2"), "= submitted r2 seq 6 repeated");
    harness.apply(harness.model_answers("one")).unwrap();
    // The reply does not change when the message leaves the queue.
    harness.check(submit("u2"), "= submitted r2 seq 6 repeated");
    harness.apply(harness.model_answers("two")).unwrap();
    harness.check(submit("u1"), "= submitted r1 seq 2 repeated");
}

#[test]
fn s5_reused_message_id_with_other_body_is_rejected() {
    let mut harness = SessionHarness::with_streaming_step();
    harness.check(
        submit_with("u1", "something else", OnBusy::Queue),
        "! `message_id` u1 was already used with a different body",
    );
    harness.apply(submit("u2")).unwrap();
    harness.check(
        submit_with("u2", "something else", OnBusy::Queue),
        "! `message_id` u2 was already used with a different body",
    );
}

#[test]
fn s5_cancelled_queued_messages_stay_accepted() {
    let mut harness = SessionHarness::with_streaming_step();
    harness.apply(submit("u2")).unwrap();
    let run_id = Some(harness.state.active.queue[0].run_id);
    harness.apply(Input::CancelRun { run_id, by: user("ann"), partial: None }).unwrap();
    harness.check(submit("u2"), "= submitted r2 seq 6 repeated cancelled");
}

#[test]
fn x4_queue_is_bounded() {
    let mut harness =
        SessionHarness::with_streaming_step().with_rules(|rules| rules.queued_messages_max = 2);
    harness.apply(submit("u2")).unwrap();
    harness.apply(submit("u3")).unwrap();
    harness.check(submit("u4"), "! the queue is full; the limit is 2");
    harness.check(submit("u3"), "= submitted r3 seq 7 repeated");
    harness.apply(harness.model_answers("one")).unwrap();
    harness.check(
        submit("u4"),
        "
        message_queued u4 @r4
        = submitted r4 seq 15
    ",
    );
}

#[test]
fn s4_queue_continues_after_each_run_outcome() {
    let with_queue = || {
        let mut harness =
            SessionHarness::with_streaming_step().with_agent(|agent| agent.max_steps = 1);
        harness.apply(submit("u2")).unwrap();
        harness
    };
    let mut harness = with_queue();
    harness.check(
        harness.model_answers("done"),
        "
        message_completed M1 'done' @r1.1
        step_completed EndTurn 10 @r1.1
        run_completed M1 10 @r1.1
        message_accepted u2 @r2
        run_started u2 @r2
        step_started a2 #1 small @r2.1
        message_started M2 @r2.1
        > start_model a2 M2 @r2.1
    ",
    );
    let mut harness = with_queue();
    harness.check(
        harness.model_fails(ModelFailure::permanent("no such model"), false),
        "
        message_discarded M1 (no such model) @r1.1
        run_failed ModelError (no such model) @r1.1
        message_accepted u2 @r2
        run_started u2 @r2
        step_started a2 #1 small @r2.1
        message_started M2 @r2.1
        > start_model a2 M2 @r2.1
    ",
    );
    let mut harness = with_queue();
    harness.check(
        harness.model_calls(&scripted_calls(["nothing_like_it"])),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 nothing_like_it write_high_risk @r1.1
        tool_call_failed c1 UnknownTool (there is no tool named `nothing_like_it`) @r1.1
        run_failed MaxIterations (maximum iterations reached without final answer) @r1.1
        message_accepted u2 @r2
        run_started u2 @r2
        step_started a2 #1 small @r2.1
        message_started M2 @r2.1
        > start_model a2 M2 @r2.1
    ",
    );
    let mut harness = with_queue();
    harness.check(
        cancel(),
        "
        message_discarded M1 (the run was cancelled) @r1.1
        run_cancelled by ann @r1.1
        message_accepted u2 @r2
        run_started u2 @r2
        step_started a2 #1 small @r2.1
        message_started M2 @r2.1
        > stop_model a1
        > start_model a2 M2 @r2.1
        = cancelled r1
    ",
    );
}

#[test]
fn a4_queued_message_keeps_trace_span() {
    let sent_in = |message_id: &str, span_id: u64| {
        let mut input = submit(message_id);
        if let Input::SubmitMessage { message: NewMessage { traceparent, .. }, .. } = &mut input {
            *traceparent = Some(TraceContext { trace_id: 7, span_id });
        }
        input
    };
    let mut harness = SessionHarness::new();
    let parent = |harness: &SessionHarness| {
        harness.state.active.run.as_ref().and_then(|run| run.traceparent).map(|trace| trace.span_id)
    };
    harness.apply(sent_in("u1", 1)).unwrap();
    assert_eq!(parent(&harness), Some(1));
    harness.apply(sent_in("u2", 2)).unwrap();
    harness.apply(submit("u3")).unwrap();
    harness.apply(harness.model_answers("one")).unwrap();
    assert_eq!(parent(&harness), Some(2));
    harness.apply(harness.model_answers("two")).unwrap();
    assert_eq!(parent(&harness), None);
}
