//! Creating, changing and closing a session (S1).

use super::*;

fn settings(autonomy_level: Autonomy) -> Settings {
    Settings { autonomy_level, ..Settings::default() }
}

fn change(autonomy_level: Autonomy, title: Option<&str>) -> Input {
    let title = title.map(str::to_owned);
    Input::ChangeSettings {
        patch: settings(autonomy_level).into(),
        title: Some(title),
        by: user("ann"),
    }
}

fn create() -> Input {
    let agent = AgentName::parse("trader").unwrap();
    Input::CreateSession { owner: user("ann"), agent, title: None, settings: Settings::default() }
}

#[test]
fn s1_session_is_created_once() {
    let mut harness = SessionHarness::not_created();
    harness.check(create(), "session_created ann trader");
    harness.check(create(), "! the session already exists");
    harness.check(close(), "session_closed by ann");
    harness.check(create(), "! the session already exists");
}

#[test]
fn s1_missing_session_accepts_only_creation() {
    let stray = |attempt| AttemptId(Uuid::from_u128(attempt));
    let inputs = [
        submit("u1"),
        cancel(),
        close(),
        change(Autonomy::ReadOnly, None),
        Input::Wake,
        Input::Rehydrated { user_settings: None },
        Input::ModelFinished { attempt_id: stray(9), result: Ok(partial("late")) },
        Input::ToolFinished {
            call_id: CallId(Uuid::from_u128(8)),
            attempt_id: stray(9),
            outcome: completed(),
        },
    ];
    for input in inputs {
        let mut harness = SessionHarness::not_created();
        assert_eq!(harness.apply(input), Err(Rejection::UnknownSession));
    }
}

#[test]
fn g4_unchanged_settings_emit_no_event() {
    let mut harness = SessionHarness::new();
    harness.check(
        change(Autonomy::ReadOnly, Some("books")),
        "session_settings_changed L0 books by ann",
    );
    harness.check(change(Autonomy::ReadOnly, Some("books")), "");
    harness.check(change(Autonomy::ReadOnly, None), "session_settings_changed L0 - by ann");
    harness.apply(submit("u1")).unwrap();
    harness.check(
        harness.model_calls(&scripted_calls(["low"])),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 low write_low_risk @r1.1
        authorization_denied c1 requires RECOMMENDATIONS @r1.1
        step_started a2 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a2 M2 @r1.2
    ",
    );
}

#[test]
fn g4_settings_can_change_during_run() {
    let mut harness = SessionHarness::with_streaming_step();
    harness.check(change(Autonomy::ReadOnly, None), "session_settings_changed L0 - by ann");
    harness.check(
        harness.model_calls(&scripted_calls(["high"])),
        "
        message_completed M1 '' @r1.1
        step_completed ToolUse 10 @r1.1
        tool_call_started c1 high write_high_risk @r1.1
        authorization_denied c1 requires RECOMMENDATIONS @r1.1
        step_started a2 #1 small @r1.2
        message_started M2 @r1.2
        > start_model a2 M2 @r1.2
    ",
    );
}

#[test]
fn s1_closing_cancels_active_and_queued_runs() {
    let mut harness =
        SessionHarness::with_proposed_calls(&scripted_calls(["read", "high", "high2"]));
    harness.apply(submit("u2")).unwrap();
    harness.apply(submit("u3")).unwrap();
    harness.check(
        close(),
        "
        approval_cancelled p1 @r1.1
        tool_call_failed c1 Cancelled (the run was cancelled while the call ran) @r1.1
        tool_call_failed c2 Cancelled (the run was cancelled; the call did not take effect) @r1.1
        tool_call_failed c3 Cancelled (the run was cancelled; the call did not take effect) @r1.1
        run_cancelled by ann @r1.1
        run_cancelled by ann @r2
        run_cancelled by ann @r3
        session_closed by ann
        > stop_tool c1 a2
    ",
    );
    harness.check(close(), "");
    assert!(harness.state.is_idle());
}

#[test]
fn s1_closing_keeps_partial_text() {
    let mut harness = SessionHarness::with_streaming_step();
    harness.check(
        Input::CloseSession { by: user("bob"), partial: Some(partial("The price")) },
        "
        message_completed M1 'The price' stopped @r1.1
        step_completed EndTurn 10 @r1.1
        run_cancelled by bob M1 @r1.1
        session_closed by bob
        > stop_model a1
    ",
    );
    harness.check_conversation(
        "
        user: u1
        assistant: The price
    ",
    );
}

#[test]
fn s1_closed_session_is_read_only() {
    let mut harness = SessionHarness::with_streaming_step();
    harness.apply(close()).unwrap();
    harness.check(submit("u2"), "! the session is closed and read-only");
    harness.check(submit("u1"), "= submitted r1 seq 2 repeated");
    harness
        .check(change(Autonomy::Assisted, Some("other")), "! the session is closed and read-only");
    harness.check(cancel(), "! no run is active");
    harness.check(Input::Wake, "");
    harness.check(Input::Rehydrated { user_settings: None }, "");
}

#[test]
fn c5_feedback_is_recorded_and_changes_nothing() {
    use crate::feedback::{Feedback, MessageRating};
    let mut harness = SessionHarness::with_streaming_step();
    harness.apply(harness.model_answers("hello")).unwrap();
    let before = harness.state.active.clone();
    let message_id = MessageId::parse("m").unwrap();
    let rating = MessageRating::try_from(4).unwrap();
    let feedback = Feedback::Message { message_id, rating, comment: None };
    let run_id = Some(harness.run("r1"));
    let give = || Input::GiveFeedback { feedback: feedback.clone(), run_id, by: user("bob") };
    harness.apply(give()).unwrap();
    assert_eq!((&harness.state.active, harness.state.feedback_count), (&before, 1));
    harness.apply(close()).unwrap();
    harness.apply(give()).unwrap();
    harness.state.feedback_count = crate::limits::FEEDBACK_PER_SESSION_MAX;
    harness.check(give(), "! feedback limit reached: 10000 entries per session");
}

#[test]
fn s1_omitted_settings_keep_current_values() {
    let mut harness = SessionHarness::new();
    let by = || user("ann");
    let autonomy_level = Some(Autonomy::ReadOnly);
    let narrower = SettingsPatch { autonomy_level, ..SettingsPatch::default() };
    let title = Some(Some("plans".to_owned()));
    harness.check(
        Input::ChangeSettings { patch: narrower, title: None, by: by() },
        "session_settings_changed L0 - by ann",
    );
    // The change is sent by a client that has not seen the previous change.
    let change = SettingsPatch::default();
    harness.check(
        Input::ChangeSettings { patch: change.clone(), title, by: by() },
        "session_settings_changed L0 plans by ann",
    );
    harness.check(Input::ChangeSettings { patch: change, title: None, by: by() }, "");
}
