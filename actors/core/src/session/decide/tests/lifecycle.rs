//! Creating, changing and closing (S1).

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
fn s1_a_session_is_created_once() {
    let mut scene = SessionHarness::not_created();
    scene.check(create(), "session_created ann trader");
    scene.check(create(), "! the session exists already");
    scene.check(close(), "session_closed by ann");
    scene.check(create(), "! the session exists already");
}

#[test]
fn nothing_but_creating_reaches_a_session_that_does_not_exist() {
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
        let mut scene = SessionHarness::not_created();
        assert_eq!(scene.apply(input), Err(Rejection::UnknownSession));
    }
}

#[test]
fn g4_settings_change_and_no_change_is_no_event() {
    let mut scene = SessionHarness::new();
    scene.check(
        change(Autonomy::ReadOnly, Some("books")),
        "session_settings_changed L0 books by ann",
    );
    scene.check(change(Autonomy::ReadOnly, Some("books")), "");
    scene.check(change(Autonomy::ReadOnly, None), "session_settings_changed L0 - by ann");
    scene.apply(submit("u1")).unwrap();
    scene.check(
        scene.model_calls(&scripted_calls(["low"])),
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
fn g4_settings_may_change_while_a_run_is_going() {
    let mut scene = SessionHarness::with_streaming_step();
    scene.check(change(Autonomy::ReadOnly, None), "session_settings_changed L0 - by ann");
    scene.check(
        scene.model_calls(&scripted_calls(["high"])),
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
fn s1_closing_ends_the_run_and_every_queued_one() {
    let mut scene = SessionHarness::with_proposed_calls(&scripted_calls(["read", "high", "high2"]));
    scene.apply(submit("u2")).unwrap();
    scene.apply(submit("u3")).unwrap();
    scene.check(
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
    scene.check(close(), "");
    assert!(scene.state.is_idle());
}

#[test]
fn s1_closing_keeps_what_was_said() {
    let mut scene = SessionHarness::with_streaming_step();
    scene.check(
        Input::CloseSession { by: user("bob"), partial: Some(partial("The price")) },
        "
        message_completed M1 'The price' stopped @r1.1
        step_completed EndTurn 10 @r1.1
        run_cancelled by bob M1 @r1.1
        session_closed by bob
        > stop_model a1
    ",
    );
    scene.check_conversation(
        "
        user: u1
        assistant: The price
    ",
    );
}

#[test]
fn s1_a_closed_session_is_read_only() {
    let mut scene = SessionHarness::with_streaming_step();
    scene.apply(close()).unwrap();
    scene.check(submit("u2"), "! the session is closed and can only be read");
    scene.check(submit("u1"), "= submitted r1 seq 2 repeated");
    scene.check(
        change(Autonomy::Assisted, Some("other")),
        "! the session is closed and can only be read",
    );
    scene.check(cancel(), "! no run is going");
    scene.check(Input::Wake, "");
    scene.check(Input::Rehydrated { user_settings: None }, "");
}

#[test]
fn c5_feedback_is_kept_and_changes_nothing() {
    use crate::feedback::{Feedback, MessageRating};
    let mut scene = SessionHarness::with_streaming_step();
    scene.apply(scene.model_answers("hello")).unwrap();
    let before = scene.state.active.clone();
    let message_id = MessageId::parse("m").unwrap();
    let rating = MessageRating::try_from(4).unwrap();
    let feedback = Feedback::Message { message_id, rating, comment: None };
    let run_id = Some(scene.run("r1"));
    let give = || Input::GiveFeedback { feedback: feedback.clone(), run_id, by: user("bob") };
    scene.apply(give()).unwrap();
    assert_eq!((&scene.state.active, scene.state.feedback_count), (&before, 1));
    scene.apply(close()).unwrap();
    scene.apply(give()).unwrap();
    scene.state.feedback_count = crate::limits::FEEDBACK_PER_SESSION_MAX;
    scene.check(give(), "! feedback was given 10000 times already");
}

#[test]
fn s1_unnamed_settings_keep_their_current_values() {
    let mut scene = SessionHarness::new();
    let by = || user("ann");
    let autonomy_level = Some(Autonomy::ReadOnly);
    let narrower = SettingsPatch { autonomy_level, ..SettingsPatch::default() };
    let title = Some(Some("plans".to_owned()));
    scene.check(
        Input::ChangeSettings { patch: narrower, title: None, by: by() },
        "session_settings_changed L0 - by ann",
    );
    // By somebody who had seen the session before that.
    let change = SettingsPatch::default();
    scene.check(
        Input::ChangeSettings { patch: change.clone(), title, by: by() },
        "session_settings_changed L0 plans by ann",
    );
    scene.check(Input::ChangeSettings { patch: change, title: None, by: by() }, "");
}
