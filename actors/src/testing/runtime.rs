//! A runtime on test parts.

use super::{CollectingOutlet, FakeTools, ManualClock, MemoryJournal, ScriptedModel};
use crate::{
    governance::Governance,
    ports::{Clock, NoopMeter},
    runtime::{Runtime, RuntimeParams},
    session::CommandError,
    status_board::StatusBoard,
    subscriber::{OutletDrained, StopSubscriber, Subscriber},
};
use actix::Addr;
use greenroom_core::{
    agent::AgentProfile,
    call::RetryPolicy,
    cursor::Cursor,
    ids::{AgentName, MessageId, RunId, SessionId, UserId},
    json::Digest,
    policy::{Matrix, MatrixPreset, Settings},
    session::{EventRecord, Input, NewMessage, OnBusy, Reply, SessionEvent},
};
use std::{sync::Arc, time::Duration};

/// What a world shall be.
pub struct TestRuntimeBuilder {
    journal: MemoryJournal,
    model: Arc<ScriptedModel>,
    tools: Arc<FakeTools>,
    clock: Arc<ManualClock>,
    governance: Governance,
    idle_timeout: Duration,
    flush: Duration,
    arbiters: usize,
}

/// A runtime on test parts, in the actix system that the test runs in.
pub struct TestRuntime {
    /// The actors.
    pub runtime: Runtime,
    /// The log.
    pub journal: MemoryJournal,
    /// The model.
    pub model: Arc<ScriptedModel>,
    /// The tools.
    pub tools: Arc<FakeTools>,
    /// The time.
    pub clock: Arc<ManualClock>,
    governance: Governance,
    idle_timeout: Duration,
    flush: Duration,
    arbiters: usize,
}

/// A subscriber with its outlet.
pub struct TestSubscriber {
    /// What it was told.
    pub outlet: CollectingOutlet,
    /// The actor.
    pub address: Addr<Subscriber>,
}

impl TestRuntimeBuilder {
    /// This model.
    pub fn model(mut self, model: ScriptedModel) -> Self {
        self.model = Arc::new(model);
        self
    }

    /// These tools.
    pub fn tools(mut self, tools: FakeTools) -> Self {
        self.tools = Arc::new(tools);
        self
    }

    /// This clock; without one, a flowing one.
    pub fn clock(mut self, clock: ManualClock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Changes the rules; the agent is called `default`.
    pub fn governance(mut self, change: impl FnOnce(&mut Governance)) -> Self {
        change(&mut self.governance);
        self
    }

    /// Changes the agent.
    pub fn agent(self, change: impl FnOnce(&mut AgentProfile)) -> Self {
        self.governance(|governance| {
            let agent =
                governance.agents.get_mut(&TestRuntime::agent()).expect("it is always there");
            change(Arc::make_mut(agent));
        })
    }

    /// How long an idle session stays in memory.
    pub fn idle_timeout(mut self, idle_timeout: Duration) -> Self {
        self.idle_timeout = idle_timeout;
        self
    }

    /// How long text and progress are collected.
    pub fn flush_interval(mut self, flush: Duration) -> Self {
        self.flush = flush;
        self
    }

    /// Threads for sessions.
    pub fn shard_count(mut self, arbiters: usize) -> Self {
        self.arbiters = arbiters;
        self
    }

    /// Starts it `later`, by its clock.
    pub async fn start_after(self, later: Duration) -> TestRuntime {
        self.clock.advance(later);
        self.start().await
    }

    /// Starts it.
    pub async fn start(self) -> TestRuntime {
        let Self { journal, model, tools, clock, governance, idle_timeout, flush, arbiters } = self;
        let shared: Arc<dyn Clock> = clock.clone();
        let parts = RuntimeParams {
            journal: Arc::new(journal.clone()),
            models: model.clone(),
            tools: tools.clone(),
            status_board: StatusBoard::new(shared.clone()),
            clock: shared,
            governance: governance.clone(),
            meter: Arc::new(NoopMeter),
            idle_timeout,
            flush_interval: flush,
            shard_count: arbiters,
        };
        let runtime = Runtime::start(parts).await.expect("the journal in memory can be read");
        TestRuntime {
            runtime,
            journal,
            model,
            tools,
            clock,
            governance,
            idle_timeout,
            flush,
            arbiters,
        }
    }
}

impl TestRuntime {
    /// A world with an agent called `default` under the default policy, without tools, with a
    /// model that has nothing to say. Failed model calls are tried again at once.
    pub fn builder() -> TestRuntimeBuilder {
        let profile = AgentProfile {
            models: vec!["scripted".to_owned()],
            ..AgentProfile::new(Self::agent())
        };
        let mut governance = Governance::new([profile], Matrix::from(MatrixPreset::default()));
        let moment = Duration::from_millis(1);
        governance.model_retry =
            RetryPolicy { retries_max: 3, initial_delay: moment, max_delay: moment };
        TestRuntimeBuilder {
            journal: MemoryJournal::new(),
            model: Arc::new(ScriptedModel::with_replies([])),
            tools: Arc::default(),
            clock: Arc::new(ManualClock::running()),
            governance,
            idle_timeout: Duration::from_secs(300),
            flush: Duration::ZERO,
            arbiters: 1,
        }
    }

    /// The default world with that model and these tools.
    pub async fn start(model: ScriptedModel, tools: FakeTools) -> Self {
        Self::builder().model(model).tools(tools).start().await
    }

    /// The agent of every session.
    pub fn agent() -> AgentName {
        AgentName::parse("default").expect("a plain word is an agent's name")
    }

    /// The owner of every session.
    pub fn user() -> UserId {
        UserId::parse("ada").expect("a plain word is a user's name")
    }

    /// The process dies, and another one starts on what was stored: with the same model, tools,
    /// clock and rules. The old actors change nothing any more.
    pub async fn crash_and_restart(self) -> Self {
        self.crash().start().await
    }

    /// The process dies; what is returned starts another one on what was stored.
    pub fn crash(self) -> TestRuntimeBuilder {
        let Self { runtime: _, journal, model, tools, clock, governance, .. } = self;
        let (idle_timeout, flush, arbiters) = (self.idle_timeout, self.flush, self.arbiters);
        let journal = journal.crash();
        TestRuntimeBuilder {
            journal,
            model,
            tools,
            clock,
            governance,
            idle_timeout,
            flush,
            arbiters,
        }
    }

    /// A new session with those settings.
    pub async fn create_session_with(&self, settings: Settings) -> SessionId {
        let session_id = SessionId(self.runtime.new_id());
        let (owner, agent) = (Self::user(), Self::agent());
        let create = Input::CreateSession { owner, agent, title: None, settings };
        let created = self.execute(session_id, create).await;
        assert_eq!(created.expect("the session is created"), Reply::Done);
        session_id
    }

    /// A new session with default settings.
    pub async fn create_session(&self) -> SessionId {
        self.create_session_with(Settings::default()).await
    }

    /// Sends an input and waits for the answer.
    ///
    /// # Panics
    ///
    /// When there is none within [`super::PATIENCE`].
    pub async fn execute(
        &self,
        session_id: SessionId,
        input: Input,
    ) -> Result<Reply, CommandError> {
        super::with_timeout("an answer", self.runtime.execute(session_id, input)).await
    }

    /// The input that submits `text`; the text is its message's id too.
    pub fn submit_input(text: &str) -> Input {
        Input::SubmitMessage {
            message: NewMessage::new(
                MessageId::parse(text).expect("the text can be an id"),
                text.into(),
                Digest::hash_bytes(text.as_bytes()),
            ),
            on_busy: OnBusy::Queue,
        }
    }

    /// Submits `text`, and returns the run.
    ///
    /// # Panics
    ///
    /// When it is not taken.
    pub async fn submit(&self, session_id: SessionId, text: &str) -> RunId {
        match self.execute(session_id, Self::submit_input(text)).await {
            Ok(Reply::Submitted { run_id, .. }) => run_id,
            other => panic!("the message was not taken: {other:?}"),
        }
    }

    /// Cancels what runs.
    pub async fn cancel(&self, session_id: SessionId) -> Result<Reply, CommandError> {
        let cancel = Input::CancelRun { run_id: None, by: Self::user(), partial: None };
        self.execute(session_id, cancel).await
    }

    /// Waits until `found` finds something in a session's committed events.
    ///
    /// # Panics
    ///
    /// When it does not within [`super::PATIENCE`]; the events are printed.
    pub async fn wait_for<T>(
        &self,
        session_id: SessionId,
        what: &str,
        mut found: impl FnMut(&[EventRecord]) -> Option<T>,
    ) -> T {
        let mut changes = self.journal.changes();
        let search = async {
            loop {
                changes.mark_unchanged();
                if let Some(found) = found(&self.journal.events(session_id)) {
                    return found;
                }
                changes.changed().await.expect("the journal holds the sender");
            }
        };
        match tokio::time::timeout(super::TEST_TIMEOUT, search).await {
            Ok(found) => found,
            Err(_) => {
                let events = self.journal.events(session_id).into_iter();
                let lines: Vec<_> = events.map(|it| format!("{} {:?}", it.seq, it.event)).collect();
                panic!("waited in vain for {what}:\n{}", lines.join("\n"))
            }
        }
    }

    /// Waits until that run has ended, and returns how.
    ///
    /// # Panics
    ///
    /// When it has not within [`super::PATIENCE`].
    pub async fn wait_for_run_end(&self, session_id: SessionId, run_id: RunId) -> SessionEvent {
        let is_end = |record: &&EventRecord| {
            record.run_id == Some(run_id)
                && matches!(
                    record.event,
                    SessionEvent::RunCompleted { .. }
                        | SessionEvent::RunFailed { .. }
                        | SessionEvent::RunCancelled { .. }
                )
        };
        self.wait_for(session_id, "the run's end", |events| {
            events.iter().find(is_end).map(|record| record.event.clone())
        })
        .await
    }

    /// Subscribes from `cursor`, with unlimited room.
    pub fn subscribe(&self, session_id: SessionId, cursor: Cursor) -> TestSubscriber {
        self.subscribe_with_capacity(session_id, cursor, usize::MAX)
    }

    /// Subscribes from `cursor`, with room for so many items.
    pub fn subscribe_with_capacity(
        &self,
        session_id: SessionId,
        cursor: Cursor,
        room: usize,
    ) -> TestSubscriber {
        let outlet = CollectingOutlet::with_capacity(room);
        let boxed = Box::new(outlet.clone());
        let address = self.runtime.subscribe(session_id, Self::agent(), cursor, boxed);
        TestSubscriber { outlet, address }
    }
}

impl TestSubscriber {
    /// Makes room for so many more items, and tells the subscriber.
    pub async fn add_capacity(&self, more: usize) {
        self.outlet.add_capacity(more);
        self.address.send(OutletDrained).await.expect("the subscriber lives");
    }

    /// Ends the subscriber.
    pub async fn stop(self) {
        self.address.send(StopSubscriber).await.expect("the subscriber lives");
    }
}
