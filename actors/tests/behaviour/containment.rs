//! Panics and floods affect one session only (A3), and retries run when they are due (R2).

use crate::{at_least, completed_calls, completed_messages, count_events, submit_with_retry};
use greenroom_actors::{
    limits::{SESSION_FAILURES_MAX, SESSION_MAILBOX_MAX},
    order::ActorOrder,
    session::CommandError,
    testing::{
        FakeTools, Gate, JournalFault, JournalOperation, ModelReply, ScriptedModel, StreamAction,
        TestRuntime, ToolAction, ToolScript, wait_until, with_timeout,
    },
};
use greenroom_core::{
    call::{CallFailureReason, ToolOutcome},
    ids::SessionId,
    model::failure::ModelFailure,
    policy::Risk,
    session::{Input, RunFailureCode, SessionEvent},
};
use serde_json::json;

/// A session that works while another one fails.
struct UnaffectedSession {
    session: SessionId,
    run: greenroom_core::ids::RunId,
    gate: Gate,
}

impl UnaffectedSession {
    /// Starts a run that waits at a gate of the model.
    async fn start(world: &TestRuntime) -> Self {
        let gate = Gate::closed();
        world.model.push(ModelReply::new().delta("un").wait(&gate).delta("disturbed").finished());
        let session = world.create_session().await;
        let run = world.submit(session, "bystander").await;
        gate.wait_for_arrivals(1).await;
        Self { session, run, gate }
    }

    async fn finish_undisturbed(self, world: &TestRuntime) {
        self.gate.open();
        world.wait_for_run_end(self.session, self.run).await;
        let events = world.journal.events(self.session);
        assert_eq!(completed_messages(&events)[0].1, "undisturbed");
        let retried = |event: &SessionEvent| matches!(event, SessionEvent::StepRetrying { .. });
        assert_eq!(count_events(&events, retried), 0);
    }
}

#[actix::test]
async fn a3_panicking_model_client_fails_one_attempt() {
    let world = TestRuntime::start(ScriptedModel::with_replies([]), FakeTools::new()).await;
    let bystander = UnaffectedSession::start(&world).await;
    world.model.push(ModelReply::new().delta("half").with_action(StreamAction::Panic));
    world.model.push(ModelReply::text("whole"));
    let session = world.create_session().await;
    let run = world.submit(session, "a").await;
    let end = world.wait_for_run_end(session, run).await;
    assert!(matches!(end, SessionEvent::RunCompleted { .. }), "{end:?}");
    assert_eq!(completed_messages(&world.journal.events(session))[0].1, "whole");
    bystander.finish_undisturbed(&world).await;
}

#[actix::test]
async fn a3_model_client_that_always_panics_fails_run_after_retries() {
    let mut requests = 0;
    let model = ScriptedModel::with_handler(move |_| {
        requests += 1;
        assert!(requests > 4, "the test requires the model client to panic");
        ModelReply::text("still usable")
    });
    let world = TestRuntime::start(model, FakeTools::new()).await;
    let bystander = UnaffectedSession::start(&world).await;
    let session = world.create_session().await;
    let run = world.submit(session, "a").await;
    let end = world.wait_for_run_end(session, run).await;
    assert!(matches!(end, SessionEvent::RunFailed { code: RunFailureCode::ModelUnavailable, .. }));
    let run = world.submit(session, "b").await;
    let end = world.wait_for_run_end(session, run).await;
    assert!(matches!(end, SessionEvent::RunCompleted { .. }));
    bystander.finish_undisturbed(&world).await;
}

#[actix::test]
async fn a3_d3_panicking_tool_crashes_its_call_only() {
    let model = ScriptedModel::with_replies([]);
    let mut attempts = 0;
    let tools = FakeTools::new()
        .with_tool("look", Risk::ReadOnly, move |_| {
            attempts += 1;
            if attempts == 1 {
                ToolScript::new().with_action(ToolAction::Panic)
            } else {
                ToolScript::new().finished("seen")
            }
        })
        .with_tool("peek", Risk::ReadOnly, |_| panic!("the test requires the tool host to panic"))
        .with_tool("note", Risk::WriteLowRisk, |_| {
            ToolScript::new().with_action(ToolAction::Panic)
        });
    // A session that is not headless would request approval for the unknown outcome.
    let headless =
        TestRuntime::builder().model(model).tools(tools).agent(|agent| agent.headless = true);
    let world = headless.start().await;
    let bystander = UnaffectedSession::start(&world).await;
    world.model.push(ModelReply::with_calls([
        ("look", json!({})),
        ("peek", json!({})),
        ("note", json!({})),
    ]));
    world.model.push(ModelReply::text("done"));
    let session = world.create_session().await;
    let run = world.submit(session, "a").await;
    let end = world.wait_for_run_end(session, run).await;
    assert!(matches!(end, SessionEvent::RunCompleted { .. }), "{end:?}");
    let events = world.journal.events(session);
    let failed = |tool_name: &str| {
        events.iter().find_map(|record| match &record.event {
            SessionEvent::ToolCallFailed { tool, reason, retries_exhausted, .. }
                if tool == tool_name =>
            {
                Some((*reason, *retries_exhausted))
            }
            _other => None,
        })
    };
    assert_eq!(completed_calls(&events)[0].2, "seen", "a repeatable call is retried");
    assert_eq!(failed("peek"), Some((CallFailureReason::Crashed, true)));
    assert_eq!(failed("note"), Some((CallFailureReason::OutcomeUnknown, false)));
    bystander.finish_undisturbed(&world).await;
}

#[actix::test]
async fn a3_panicking_session_is_rebuilt_from_its_log() {
    let gate = Gate::closed();
    let tool_gate = gate.clone();
    let tools = FakeTools::new().with_tool("look", Risk::ReadOnly, move |_| {
        ToolScript::new().wait(&tool_gate).finished("seen")
    });
    let world = TestRuntime::start(ScriptedModel::with_replies([]), tools).await;
    let bystander = UnaffectedSession::start(&world).await;
    world.model.push(ModelReply::with_calls([("look", json!({}))]));
    world.model.push(ModelReply::text("done"));
    let session = world.create_session().await;
    let run = world.submit(session, "a").await;
    world.tools.wait_for_calls(1).await;
    // The session panics on the result and is restarted without a further command.
    world.journal.inject_session_fault(session, JournalOperation::Append, JournalFault::Panic, 1);
    gate.open();
    let end = world.wait_for_run_end(session, run).await;
    assert!(matches!(end, SessionEvent::RunCompleted { .. }));
    let shown =
        world.runtime.status_board.snapshot(&format!("/sessions/{session}")).expect("it is live");
    assert_eq!(shown.restarts, 1);
    // A command that is lost in a panic gets an error and can be repeated.
    world.journal.inject_session_fault(session, JournalOperation::Append, JournalFault::Panic, 1);
    let lost = world.execute(session, TestRuntime::submit_input("b")).await;
    assert!(matches!(lost, Err(CommandError::Unavailable(_))), "{lost:?}");
    world.model.push(ModelReply::text("again"));
    let run = submit_with_retry(&world, session, "b").await;
    world.wait_for_run_end(session, run).await;
    bystander.finish_undisturbed(&world).await;
}

#[actix::test]
async fn a3_session_that_keeps_failing_is_parked_with_its_error() {
    let world = TestRuntime::start(ScriptedModel::with_replies([]), FakeTools::new()).await;
    let bystander = UnaffectedSession::start(&world).await;
    let session = world.create_session().await;
    world.model.push(ModelReply::new().with_action(StreamAction::Hang));
    world.submit(session, "a").await;
    let failures = usize::try_from(SESSION_FAILURES_MAX).unwrap();
    world.journal.inject_session_fault(session, JournalOperation::Append, JournalFault::Panic, 1);
    world.journal.inject_session_fault(
        session,
        JournalOperation::Read,
        JournalFault::Panic,
        failures * 10,
    );
    let lost = world.execute(session, TestRuntime::submit_input("b")).await;
    assert!(matches!(lost, Err(CommandError::Unavailable(_))), "{lost:?}");
    let error = loop {
        match world.execute(session, TestRuntime::submit_input("b")).await {
            Err(CommandError::Parked { error }) => break error,
            Err(CommandError::Unavailable(_)) => {}
            other => panic!("neither parked nor failing: {other:?}"),
        }
    };
    assert!(error.contains("panicked"), "{error}");
    let shown = world.runtime.status_board.snapshot("/registry").expect("it is live");
    assert!(shown.last_error.is_some_and(|error| error.contains(&session.to_string())));
    // No hot loop: a parked session is not restarted by time or commands.
    for _ in 0..20 {
        let result = world.execute(session, TestRuntime::submit_input("b")).await;
        assert!(matches!(result, Err(CommandError::Parked { .. })), "{result:?}");
    }
    assert_eq!(world.runtime.status_board.snapshot("/registry").unwrap().failed, shown.failed);
    assert!(shown.failed >= u64::from(SESSION_FAILURES_MAX));
    // An administrator sees the error, and restarts the session after its cause is removed (A2).
    let path = format!("/sessions/{session}");
    let parked = world.runtime.status_board.snapshot(&path).expect("it is on the status board");
    assert_eq!((parked.state.as_str(), parked.takes), ("parked", &[ActorOrder::Restart][..]));
    assert!(parked.last_error.is_some_and(|error| error.contains("panicked")));
    world.journal.clear_faults();
    world
        .runtime
        .status_board
        .send_order(&path, ActorOrder::Restart, TestRuntime::user())
        .expect("the order is delivered");
    with_timeout("the session to accept a message", async {
        while world.execute(session, TestRuntime::submit_input("b")).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    bystander.finish_undisturbed(&world).await;
}

#[actix::test]
async fn x4_full_mailbox_rejects_commands_and_answers_the_rest() {
    let world = TestRuntime::start(ScriptedModel::with_replies([]), FakeTools::new()).await;
    let session = world.create_session().await;
    let gate = Gate::closed();
    world.journal.inject_fault(JournalOperation::Append, JournalFault::Wait(gate.clone()), 1);
    let command = |title: String| {
        let runtime = world.runtime.clone();
        let change = Input::ChangeSettings {
            patch: Default::default(),
            title: Some(Some(title)),
            by: TestRuntime::user(),
        };
        actix::spawn(async move { runtime.execute(session, change).await })
    };
    let blocked = command("blocked".to_owned());
    gate.wait_for_arrivals(1).await;
    let flood_size = SESSION_MAILBOX_MAX * 2;
    let flood: Vec<_> = (0..flood_size).map(|index| command(format!("title {index}"))).collect();
    let path = format!("/sessions/{session}");
    let registry = || world.runtime.status_board.snapshot("/registry").unwrap();
    let sent = u64::try_from(flood_size).unwrap();
    wait_until("the flood", || registry().handled >= sent && registry().mailbox_depth == 0).await;
    let depth = world.runtime.status_board.snapshot(&path).unwrap().mailbox_depth_max;
    assert!(depth <= SESSION_MAILBOX_MAX + 2, "{depth}");
    gate.open();
    blocked.await.unwrap().expect("it was accepted before the flood");
    let (mut done, mut full) = (0, 0);
    for answer in flood {
        match with_timeout("the answer", answer).await.unwrap() {
            Ok(_) => done += 1,
            Err(CommandError::MailboxFull) => full += 1,
            other => panic!("neither done nor full: {other:?}"),
        }
    }
    assert_eq!(done + full, flood_size);
    assert!(full > 0 && done >= SESSION_MAILBOX_MAX, "{done} done, {full} full");
    let empty = || world.runtime.status_board.snapshot(&path).unwrap().mailbox_depth == 0;
    wait_until("the mailbox to be empty", empty).await;
}

#[actix::test]
async fn r2_r3_steps_and_calls_are_retried_by_timer_up_to_their_limit() {
    let temporary =
        || ModelReply::new().with_action(StreamAction::Fail(ModelFailure::temporary("overloaded")));
    let model = ScriptedModel::with_replies([
        temporary(),
        temporary(),
        ModelReply::with_calls([("look", json!({}))]),
        ModelReply::text("done"),
    ]);
    let tools = FakeTools::new().with_tool("look", Risk::ReadOnly, |_| {
        ToolScript::new().with_action(ToolAction::Finish(ToolOutcome::TimedOut { after_ms: 5 }))
    });
    let world = TestRuntime::start(model, tools).await;
    let session = world.create_session().await;
    let run = world.submit(session, "a").await;
    let end = world.wait_for_run_end(session, run).await;
    assert!(matches!(end, SessionEvent::RunCompleted { .. }), "{end:?}");
    let step_retrying = |event: &SessionEvent| matches!(event, SessionEvent::StepRetrying { .. });
    world.wait_for(session, "the steps' retries", at_least(2, step_retrying)).await;
    let events = world.journal.events(session);
    let call_retrying =
        |event: &SessionEvent| matches!(event, SessionEvent::ToolCallRetrying { .. });
    assert_eq!(count_events(&events, call_retrying), 3);
    assert_eq!(world.tools.recorded_calls().len(), 4);
    let exhausted = |event: &SessionEvent| {
        matches!(
            event,
            SessionEvent::ToolCallFailed {
                reason: CallFailureReason::Timeout,
                retries_exhausted: true,
                ..
            }
        )
    };
    assert_eq!(count_events(&events, exhausted), 1);
}
