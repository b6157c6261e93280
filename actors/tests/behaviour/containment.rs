//! A panic or a flood stays where it is (A3), and retries come when they are due (R2).

use crate::{completed_calls, count, messages, once, submit_patiently};
use greenroom_actors::{
    limits::{SESSION_FAILURES_MAX, SESSION_MAILBOX_MAX},
    order::Order,
    session::CommandError,
    testing::{
        Act, Beat, FakeTools, Fault, Gate, Operation, Reply, ScriptedModel, Turn, World,
        eventually, within_patience,
    },
};
use greenroom_core::{
    call::{FailReason, ToolOutcome},
    ids::SessionId,
    model::failure::ModelFailure,
    policy::Risk,
    session::{Input, RunFailure, SessionEvent},
};
use serde_json::json;

/// A session that works beside the one that fails.
struct Bystander {
    session: SessionId,
    run: greenroom_core::ids::RunId,
    gate: Gate,
}

impl Bystander {
    /// Starts its run, which stands at a gate of the model.
    async fn start(world: &World) -> Self {
        let gate = Gate::closed();
        world.model.push(Reply::new().say("un").wait(&gate).say("disturbed").done());
        let session = world.create().await;
        let run = world.submit(session, "bystander").await;
        gate.arrivals(1).await;
        Self { session, run, gate }
    }

    async fn end_undisturbed(self, world: &World) {
        self.gate.open();
        world.run_end(self.session, self.run).await;
        let events = world.journal.events(self.session);
        assert_eq!(messages(&events)[0].1, "undisturbed");
        let retried = |event: &SessionEvent| matches!(event, SessionEvent::StepRetrying { .. });
        assert_eq!(count(&events, retried), 0);
    }
}

#[actix::test]
async fn a3_a_panicking_model_client_fails_one_attempt() {
    let world = World::start(ScriptedModel::saying([]), FakeTools::none()).await;
    let bystander = Bystander::start(&world).await;
    world.model.push(Reply::new().say("half").then(Beat::Panic));
    world.model.push(Reply::text("whole"));
    let session = world.create().await;
    let run = world.submit(session, "a").await;
    let end = world.run_end(session, run).await;
    assert!(matches!(end, SessionEvent::RunCompleted { .. }), "{end:?}");
    assert_eq!(messages(&world.journal.events(session))[0].1, "whole");
    bystander.end_undisturbed(&world).await;
}

#[actix::test]
async fn a3_a_model_client_that_panics_at_once_fails_the_run_after_its_retries() {
    let mut asked = 0;
    let model = ScriptedModel::answering(move |_| {
        asked += 1;
        assert!(asked > 4, "the test wants the model's client to panic");
        Reply::text("still usable")
    });
    let world = World::start(model, FakeTools::none()).await;
    let bystander = Bystander::start(&world).await;
    let session = world.create().await;
    let run = world.submit(session, "a").await;
    let end = world.run_end(session, run).await;
    assert!(matches!(end, SessionEvent::RunFailed { code: RunFailure::ModelUnavailable, .. }));
    let run = world.submit(session, "b").await;
    let end = world.run_end(session, run).await;
    assert!(matches!(end, SessionEvent::RunCompleted { .. }));
    bystander.end_undisturbed(&world).await;
}

#[actix::test]
async fn a3_d3_a_panicking_tool_is_a_crash_of_that_call() {
    let model = ScriptedModel::saying([]);
    let mut looks = 0;
    let tools = FakeTools::none()
        .with("look", Risk::ReadOnly, move |_| {
            looks += 1;
            if looks == 1 { Turn::new().then(Act::Panic) } else { Turn::new().done("seen") }
        })
        .with("peek", Risk::ReadOnly, |_| panic!("the test wants the host to panic"))
        .with("note", Risk::WriteLowRisk, |_| Turn::new().then(Act::Panic));
    // With somebody to ask, the unknown outcome would be asked about.
    let headless = World::builder().model(model).tools(tools).agent(|agent| agent.headless = true);
    let world = headless.start().await;
    let bystander = Bystander::start(&world).await;
    world.model.push(Reply::calls([("look", json!({})), ("peek", json!({})), ("note", json!({}))]));
    world.model.push(Reply::text("done"));
    let session = world.create().await;
    let run = world.submit(session, "a").await;
    let end = world.run_end(session, run).await;
    assert!(matches!(end, SessionEvent::RunCompleted { .. }), "{end:?}");
    let events = world.journal.events(session);
    let failed = |wanted: &str| {
        events.iter().find_map(|record| match &record.event {
            SessionEvent::ToolCallFailed { tool, reason, retries_exhausted, .. }
                if tool == wanted =>
            {
                Some((*reason, *retries_exhausted))
            }
            _other => None,
        })
    };
    assert_eq!(completed_calls(&events)[0].2, "seen", "what may repeat is tried again");
    assert_eq!(failed("peek"), Some((FailReason::Crashed, true)));
    assert_eq!(failed("note"), Some((FailReason::OutcomeUnknown, false)));
    bystander.end_undisturbed(&world).await;
}

#[actix::test]
async fn a3_a_session_that_panics_comes_back_from_its_log() {
    let gate = Gate::closed();
    let turn = gate.clone();
    let tools = FakeTools::none()
        .with("look", Risk::ReadOnly, move |_| Turn::new().wait(&turn).done("seen"));
    let world = World::start(ScriptedModel::saying([]), tools).await;
    let bystander = Bystander::start(&world).await;
    world.model.push(Reply::calls([("look", json!({}))]));
    world.model.push(Reply::text("done"));
    let session = world.create().await;
    let run = world.submit(session, "a").await;
    world.tools.wait_for_calls(1).await;
    // It panics over the result; nobody asks anything of it, and it comes back all the same.
    world.journal.fault_of(session, Operation::Append, Fault::Panic, 1);
    gate.open();
    let end = world.run_end(session, run).await;
    assert!(matches!(end, SessionEvent::RunCompleted { .. }));
    let shown = world.runtime.board.snapshot(&format!("/sessions/{session}")).expect("it lives");
    assert_eq!(shown.restarts, 1);
    // A command that was lost to a panic is told so, and may be repeated.
    world.journal.fault_of(session, Operation::Append, Fault::Panic, 1);
    let lost = world.command(session, World::message("b")).await;
    assert!(matches!(lost, Err(CommandError::Unavailable(_))), "{lost:?}");
    world.model.push(Reply::text("again"));
    let run = submit_patiently(&world, session, "b").await;
    world.run_end(session, run).await;
    bystander.end_undisturbed(&world).await;
}

#[actix::test]
async fn a3_a_session_that_keeps_failing_is_parked_with_its_error() {
    let world = World::start(ScriptedModel::saying([]), FakeTools::none()).await;
    let bystander = Bystander::start(&world).await;
    let session = world.create().await;
    world.model.push(Reply::new().then(Beat::Hang));
    world.submit(session, "a").await;
    let failures = usize::try_from(SESSION_FAILURES_MAX).unwrap();
    world.journal.fault_of(session, Operation::Append, Fault::Panic, 1);
    world.journal.fault_of(session, Operation::Read, Fault::Panic, failures * 10);
    let lost = world.command(session, World::message("b")).await;
    assert!(matches!(lost, Err(CommandError::Unavailable(_))), "{lost:?}");
    let error = loop {
        match world.command(session, World::message("b")).await {
            Err(CommandError::Parked { error }) => break error,
            Err(CommandError::Unavailable(_)) => {}
            other => panic!("neither parked nor failing: {other:?}"),
        }
    };
    assert!(error.contains("panicked"), "{error}");
    let shown = world.runtime.board.snapshot("/registry").expect("it lives");
    assert!(shown.last_error.is_some_and(|error| error.contains(&session.to_string())));
    // No hot loop: nothing brings it back, neither time nor commands.
    for _ in 0..20 {
        let refused = world.command(session, World::message("b")).await;
        assert!(matches!(refused, Err(CommandError::Parked { .. })), "{refused:?}");
    }
    assert_eq!(world.runtime.board.snapshot("/registry").unwrap().failed, shown.failed);
    assert!(shown.failed >= u64::from(SESSION_FAILURES_MAX));
    // An administrator sees why, and tries it once more when what ailed it is mended (A2).
    let path = format!("/sessions/{session}");
    let parked = world.runtime.board.snapshot(&path).expect("it stands there");
    assert_eq!((parked.state.as_str(), parked.takes), ("parked", &[Order::Restart][..]));
    assert!(parked.last_error.is_some_and(|error| error.contains("panicked")));
    world.journal.heal();
    world.runtime.board.order(&path, Order::Restart, World::user()).expect("it is told");
    within_patience("the session to take a message", async {
        while world.command(session, World::message("b")).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    bystander.end_undisturbed(&world).await;
}

#[actix::test]
async fn x4_a_full_mailbox_says_so_and_the_rest_is_answered() {
    let world = World::start(ScriptedModel::saying([]), FakeTools::none()).await;
    let session = world.create().await;
    let gate = Gate::closed();
    world.journal.fault(Operation::Append, Fault::Wait(gate.clone()), 1);
    let command = |title: String| {
        let runtime = world.runtime.clone();
        let change = Input::ChangeSettings {
            change: Default::default(),
            title: Some(Some(title)),
            by: World::user(),
        };
        actix::spawn(async move { runtime.command(session, change).await })
    };
    let blocked = command("blocked".to_owned());
    gate.arrivals(1).await;
    let more = SESSION_MAILBOX_MAX * 2;
    let flood: Vec<_> = (0..more).map(|index| command(format!("title {index}"))).collect();
    let path = format!("/sessions/{session}");
    let registry = || world.runtime.board.snapshot("/registry").unwrap();
    let sent = u64::try_from(more).unwrap();
    eventually("the flood", || registry().handled >= sent && registry().mailbox_depth == 0).await;
    let depth = world.runtime.board.snapshot(&path).unwrap().mailbox_depth_max;
    assert!(depth <= SESSION_MAILBOX_MAX + 2, "{depth}");
    gate.open();
    blocked.await.unwrap().expect("it was there first");
    let (mut done, mut full) = (0, 0);
    for answer in flood {
        match within_patience("the answer", answer).await.unwrap() {
            Ok(_) => done += 1,
            Err(CommandError::MailboxFull) => full += 1,
            other => panic!("neither done nor full: {other:?}"),
        }
    }
    assert_eq!(done + full, more);
    assert!(full > 0 && done >= SESSION_MAILBOX_MAX, "{done} done, {full} full");
    let empty = || world.runtime.board.snapshot(&path).unwrap().mailbox_depth == 0;
    eventually("the mailbox to be empty", empty).await;
}

#[actix::test]
async fn r2_r3_retries_of_calls_and_steps_come_by_timer_and_end() {
    let temporary = || Reply::new().then(Beat::Fail(ModelFailure::temporary("overloaded")));
    let model = ScriptedModel::saying([
        temporary(),
        temporary(),
        Reply::calls([("look", json!({}))]),
        Reply::text("done"),
    ]);
    let tools = FakeTools::none().with("look", Risk::ReadOnly, |_| {
        Turn::new().then(Act::End(ToolOutcome::TimedOut { after_ms: 5 }))
    });
    let world = World::start(model, tools).await;
    let session = world.create().await;
    let run = world.submit(session, "a").await;
    let end = world.run_end(session, run).await;
    assert!(matches!(end, SessionEvent::RunCompleted { .. }), "{end:?}");
    let steps = |event: &SessionEvent| matches!(event, SessionEvent::StepRetrying { .. });
    world.wait_for(session, "the steps' retries", once(2, steps)).await;
    let events = world.journal.events(session);
    let calls = |event: &SessionEvent| matches!(event, SessionEvent::ToolCallRetrying { .. });
    assert_eq!(count(&events, calls), 3);
    assert_eq!(world.tools.calls().len(), 4);
    let exhausted = |event: &SessionEvent| {
        matches!(
            event,
            SessionEvent::ToolCallFailed {
                reason: FailReason::Timeout,
                retries_exhausted: true,
                ..
            }
        )
    };
    assert_eq!(count(&events, exhausted), 1);
}
