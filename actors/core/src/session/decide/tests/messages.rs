//! Submitting messages, and the queue (S4, S5).

use super::*;
use crate::trace_context::TraceContext;

#[test]
fn s2_a_message_starts_a_run() {
    let mut scene = SessionHarness::new();
    scene.check(
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
    scene.check(
        scene.model_answers("Hello."),
        "
        message_completed M1 'Hello.' @r1.1
        step_completed EndTurn 10 @r1.1
        run_completed M1 10 @r1.1
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
        = submitted r2 seq 9
    ",
    );
    scene.check_conversation(
        "
        user: u1
        assistant: Hello.
        user: u2
    ",
    );
}

#[test]
fn s1_a_session_without_a_title_is_called_by_its_message() {
    let mut scene = SessionHarness::new();
    let of = |scene: &SessionHarness| scene.state.active.title.clone();
    scene.apply(submit_with("u1", "\n  Buy ore,\nthen sell it.", OnBusy::Queue)).unwrap();
    assert_eq!(of(&scene).as_deref(), Some("Buy ore,"));
    scene.apply(scene.model_answers("Done.")).unwrap();
    scene.apply(submit("u2")).unwrap();
    assert_eq!(of(&scene).as_deref(), Some("Buy ore,"), "the first one");

    let mut scene = SessionHarness::new();
    let change = |title| Input::ChangeSettings {
        patch: SettingsPatch::default(),
        title: Some(title),
        by: user("ann"),
    };
    scene.apply(change(Some("Ore".to_owned()))).unwrap();
    scene.apply(submit("u1")).unwrap();
    assert_eq!(of(&scene).as_deref(), Some("Ore"), "people's word counts");
    scene.apply(scene.model_answers("Done.")).unwrap();
    scene.apply(change(None)).unwrap();
    scene.apply(submit("u2")).unwrap();
    assert_eq!(of(&scene).as_deref(), Some("u2"), "nobody wants the old one");
}

#[test]
fn s4_a_message_waits_behind_the_run_or_is_refused() {
    let mut scene = SessionHarness::with_streaming_step();
    scene.check(
        submit("u2"),
        "
        message_queued u2 @r2
        = submitted r2 seq 6
    ",
    );
    scene.check(submit_with("u3", "u3", OnBusy::Reject), "! busy r1");
    scene.check(
        submit("u4"),
        "
        message_queued u4 @r3
        = submitted r3 seq 7
    ",
    );
    scene.check(
        scene.model_answers("one"),
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
    scene.check(
        scene.model_answers("two"),
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
    // What was refused was not taken: it may come again.
    scene.check(
        submit_with("u3", "u3", OnBusy::Queue),
        "
        message_queued u3 @r4
        = submitted r4 seq 22
    ",
    );
}

#[test]
fn s4_reject_is_fine_when_nothing_runs() {
    let mut scene = SessionHarness::new();
    scene.check(
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
fn s5_the_same_message_again_is_the_same_run() {
    let mut scene = SessionHarness::new();
    scene.check(
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
    scene.check(submit("u1"), "= submitted r1 seq 2 repeated");
    // Repeating never refuses, not even where a new message would be refused.
    scene.check(submit_with("u1", "u1", OnBusy::Reject), "= submitted r1 seq 2 repeated");
    scene.check(
        submit("u2"),
        "
        message_queued u2 @r2
        = submitted r2 seq 6
    ",
    );
    scene.check(submit("u2"), "= submitted r2 seq 6 repeated");
    scene.apply(scene.model_answers("one")).unwrap();
    // Its answer does not change when it leaves the queue.
    scene.check(submit("u2"), "= submitted r2 seq 6 repeated");
    scene.apply(scene.model_answers("two")).unwrap();
    scene.check(submit("u1"), "= submitted r1 seq 2 repeated");
}

#[test]
fn s5_another_body_under_the_same_id_is_refused() {
    let mut scene = SessionHarness::with_streaming_step();
    scene.check(
        submit_with("u1", "something else", OnBusy::Queue),
        "! message_id u1 was used for another message",
    );
    scene.apply(submit("u2")).unwrap();
    scene.check(
        submit_with("u2", "something else", OnBusy::Queue),
        "! message_id u2 was used for another message",
    );
}

#[test]
fn s5_cancelled_queued_messages_stay_accepted() {
    let mut scene = SessionHarness::with_streaming_step();
    scene.apply(submit("u2")).unwrap();
    let run_id = Some(scene.state.active.queue[0].run_id);
    scene.apply(Input::CancelRun { run_id, by: user("ann"), partial: None }).unwrap();
    scene.check(submit("u2"), "= submitted r2 seq 6 repeated");
}

#[test]
fn x4_the_queue_is_bounded() {
    let mut scene =
        SessionHarness::with_streaming_step().with_rules(|rules| rules.queued_messages_max = 2);
    scene.apply(submit("u2")).unwrap();
    scene.apply(submit("u3")).unwrap();
    scene.check(submit("u4"), "! 2 messages wait already");
    scene.check(submit("u3"), "= submitted r3 seq 7 repeated");
    scene.apply(scene.model_answers("one")).unwrap();
    scene.check(
        submit("u4"),
        "
        message_queued u4 @r4
        = submitted r4 seq 15
    ",
    );
}

#[test]
fn s4_the_queue_goes_on_after_each_kind_of_end() {
    let with_queue = || {
        let mut scene =
            SessionHarness::with_streaming_step().with_agent(|agent| agent.max_steps = 1);
        scene.apply(submit("u2")).unwrap();
        scene
    };
    let mut scene = with_queue();
    scene.check(
        scene.model_answers("done"),
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
    let mut scene = with_queue();
    scene.check(
        scene.model_fails(ModelFailure::permanent("no such model"), false),
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
    let mut scene = with_queue();
    scene.check(
        scene.model_calls(&scripted_calls(["nothing_like_it"])),
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
    let mut scene = with_queue();
    scene.check(
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
fn a4_a_message_keeps_the_span_it_was_sent_in_until_its_run() {
    let sent_in = |message_id: &str, span_id: u64| {
        let mut input = submit(message_id);
        if let Input::SubmitMessage { message: NewMessage { traceparent, .. }, .. } = &mut input {
            *traceparent = Some(TraceContext { trace_id: 7, span_id });
        }
        input
    };
    let mut scene = SessionHarness::new();
    let parent = |scene: &SessionHarness| {
        scene.state.active.run.as_ref().and_then(|run| run.traceparent).map(|trace| trace.span_id)
    };
    scene.apply(sent_in("u1", 1)).unwrap();
    assert_eq!(parent(&scene), Some(1));
    scene.apply(sent_in("u2", 2)).unwrap();
    scene.apply(submit("u3")).unwrap();
    scene.apply(scene.model_answers("one")).unwrap();
    assert_eq!(parent(&scene), Some(2));
    scene.apply(scene.model_answers("two")).unwrap();
    assert_eq!(parent(&scene), None);
}
