//! A runtime that uses the in-memory ports.

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

/// The configuration of a [`TestRuntime`].
pub struct TestRuntimeBuilder {
    journal: MemoryJournal,
    model: Arc<ScriptedModel>,
    tools: Arc<FakeTools>,
    clock: Arc<ManualClock>,
    governance: Governance,
    idle_timeout: Duration,
    flush_interval: Duration,
    shard_count: usize,
}

/// A runtime with in-memory ports, within the actix system of the test.
pub struct TestRuntime {
    /// The actors.
    pub runtime: Runtime,
    /// The event log.
    pub journal: MemoryJournal,
    /// The model client.
    pub model: Arc<ScriptedModel>,
    /// The tool host.
    pub tools: Arc<FakeTools>,
    /// The clock.
    pub clock: Arc<ManualClock>,
    governance: Governance,
    idle_timeout: Duration,
    flush_interval: Duration,
    shard_count: usize,
}

/// A subscriber and its outlet.
pub struct TestSubscriber {
    /// The outlet, which collects the delivered items.
    pub outlet: CollectingOutlet,
    /// The subscriber actor.
    pub address: Addr<Subscriber>,
}

impl TestRuntimeBuilder {
    /// Sets the model.
    pub fn model(mut self, model: ScriptedModel) -> Self {
        self.model = Arc::new(model);
        self
    }

    /// Sets the tools.
    pub fn tools(mut self, tools: FakeTools) -> Self {
        self.tools = Arc::new(tools);
        self
    }

    /// Sets the clock. The default is a running one.
    pub fn clock(mut self, clock: ManualClock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Changes the governance. The agent is called `default`.
    pub fn governance(mut self, change: impl FnOnce(&mut Governance)) -> Self {
        change(&mut self.governance);
        self
    }

    /// Changes the agent profile.
    pub fn agent(self, change: impl FnOnce(&mut AgentProfile)) -> Self {
        self.governance(|governance| {
            let agent =
                governance.agents.get_mut(&TestRuntime::agent()).expect("the agent is configured");
            change(Arc::make_mut(agent));
        })
    }

    /// Sets the time after which an idle session is passivated.
    pub fn idle_timeout(mut self, idle_timeout: Duration) -> Self {
        self.idle_timeout = idle_timeout;
        self
    }

    /// Sets the interval over which text and progress are batched.
    pub fn flush_interval(mut self, flush_interval: Duration) -> Self {
        self.flush_interval = flush_interval;
        self
    }

    /// Sets the number of shards.
    pub fn shard_count(mut self, shard_count: usize) -> Self {
        self.shard_count = shard_count;
        self
    }

    /// Advances the clock by `delay`, then starts the runtime.
    pub async fn start_after(self, delay: Duration) -> TestRuntime {
        self.clock.advance(delay);
        self.start().await
    }

    /// Starts the runtime.
    pub async fn start(self) -> TestRuntime {
        let Self {
            journal,
            model,
            tools,
            clock,
            governance,
            idle_timeout,
            flush_interval,
            shard_count,
        } = self;
        let shared_clock: Arc<dyn Clock> = clock.clone();
        let params = RuntimeParams {
            journal: Arc::new(journal.clone()),
            models: model.clone(),
            tools: tools.clone(),
            status_board: StatusBoard::new(shared_clock.clone()),
            clock: shared_clock,
            governance: governance.clone(),
            meter: Arc::new(NoopMeter),
            idle_timeout,
            flush_interval,
            shard_count,
        };
        let runtime = Runtime::start(params).await.expect("the in-memory journal is readable");
        TestRuntime {
            runtime,
            journal,
            model,
            tools,
            clock,
            governance,
            idle_timeout,
            flush_interval,
            shard_count,
        }
    }
}

impl TestRuntime {
    /// Returns a builder with an agent called `default` under the default policy, without tools,
    /// and a model without replies. Failed model calls are retried after 1 ms.
    pub fn builder() -> TestRuntimeBuilder {
        let profile = AgentProfile {
            models: vec!["scripted".to_owned()],
            ..AgentProfile::new(Self::agent())
        };
        let mut governance = Governance::new([profile], Matrix::from(MatrixPreset::default()));
        let delay = Duration::from_millis(1);
        governance.model_retry =
            RetryPolicy { retries_max: 3, initial_delay: delay, max_delay: delay };
        TestRuntimeBuilder {
            journal: MemoryJournal::new(),
            model: Arc::new(ScriptedModel::with_replies([])),
            tools: Arc::default(),
            clock: Arc::new(ManualClock::running()),
            governance,
            idle_timeout: Duration::from_secs(300),
            flush_interval: Duration::ZERO,
            shard_count: 1,
        }
    }

    /// Starts a default runtime with this model and these tools.
    pub async fn start(model: ScriptedModel, tools: FakeTools) -> Self {
        Self::builder().model(model).tools(tools).start().await
    }

    /// Returns the agent of every session.
    pub fn agent() -> AgentName {
        AgentName::parse("default").expect("`default` is a valid agent name")
    }

    /// Returns the owner of every session.
    pub fn user() -> UserId {
        UserId::parse("ada").expect("`ada` is a valid user id")
    }

    /// Simulates a crash and a restart on the stored data, with the same model, tools, clock and
    /// governance. The old actors no longer have any effect.
    pub async fn crash_and_restart(self) -> Self {
        self.crash().start().await
    }

    /// Simulates a crash. The returned builder starts another runtime on the stored data.
    pub fn crash(self) -> TestRuntimeBuilder {
        let Self { runtime: _, journal, model, tools, clock, governance, .. } = self;
        let (idle_timeout, flush_interval, shard_count) =
            (self.idle_timeout, self.flush_interval, self.shard_count);
        let journal = journal.crash();
        TestRuntimeBuilder {
            journal,
            model,
            tools,
            clock,
            governance,
            idle_timeout,
            flush_interval,
            shard_count,
        }
    }

    /// Creates a session with these settings.
    pub async fn create_session_with(&self, settings: Settings) -> SessionId {
        let session_id = SessionId(self.runtime.new_id());
        let (owner, agent) = (Self::user(), Self::agent());
        let create = Input::CreateSession { owner, agent, title: None, settings };
        let result = self.execute(session_id, create).await;
        assert_eq!(result.expect("the session is created"), Reply::Done);
        session_id
    }

    /// Creates a session with default settings.
    pub async fn create_session(&self) -> SessionId {
        self.create_session_with(Settings::default()).await
    }

    /// Sends an input and waits for the reply.
    ///
    /// # Panics
    ///
    /// Panics if there is no reply within [`super::TEST_TIMEOUT`].
    pub async fn execute(
        &self,
        session_id: SessionId,
        input: Input,
    ) -> Result<Reply, CommandError> {
        super::with_timeout("an answer", self.runtime.execute(session_id, input)).await
    }

    /// Returns the input that submits `text`, which also serves as the message id.
    pub fn submit_input(text: &str) -> Input {
        Input::SubmitMessage {
            message: NewMessage::new(
                Self::user(),
                MessageId::parse(text).expect("the text is a valid message id"),
                text.into(),
                Digest::hash_bytes(text.as_bytes()),
            ),
            on_busy: OnBusy::Queue,
        }
    }

    /// Submits `text` and returns the id of the run.
    ///
    /// # Panics
    ///
    /// Panics if the message is rejected.
    pub async fn submit(&self, session_id: SessionId, text: &str) -> RunId {
        match self.execute(session_id, Self::submit_input(text)).await {
            Ok(Reply::Submitted { run_id, .. } | Reply::Repeated { run_id, .. }) => run_id,
            other => panic!("the message was rejected: {other:?}"),
        }
    }

    /// Cancels the current run.
    pub async fn cancel(&self, session_id: SessionId) -> Result<Reply, CommandError> {
        let cancel = Input::CancelRun { run_id: None, by: Self::user(), partial: None };
        self.execute(session_id, cancel).await
    }

    /// Waits until `find` returns a value for the committed events of a session.
    ///
    /// # Panics
    ///
    /// Panics and prints the events if there is none within [`super::TEST_TIMEOUT`].
    pub async fn wait_for<T>(
        &self,
        session_id: SessionId,
        description: &str,
        mut find: impl FnMut(&[EventRecord]) -> Option<T>,
    ) -> T {
        let mut changes = self.journal.changes();
        let polling = async {
            loop {
                changes.mark_unchanged();
                if let Some(value) = find(&self.journal.events(session_id)) {
                    return value;
                }
                changes.changed().await.expect("the journal owns the sender");
            }
        };
        match tokio::time::timeout(super::TEST_TIMEOUT, polling).await {
            Ok(value) => value,
            Err(_) => {
                let events = self.journal.events(session_id).into_iter();
                let lines: Vec<_> =
                    events.map(|record| format!("{} {:?}", record.seq, record.event)).collect();
                panic!("timed out while waiting for {description}:\n{}", lines.join("\n"))
            }
        }
    }

    /// Waits until the run has ended. Returns the event that ended it.
    ///
    /// # Panics
    ///
    /// Panics if the run does not end within [`super::TEST_TIMEOUT`].
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

    /// Subscribes from `cursor` with unlimited capacity.
    pub fn subscribe(&self, session_id: SessionId, cursor: Cursor) -> TestSubscriber {
        self.subscribe_with_capacity(session_id, cursor, usize::MAX)
    }

    /// Subscribes from `cursor` with a capacity of `capacity` items.
    pub fn subscribe_with_capacity(
        &self,
        session_id: SessionId,
        cursor: Cursor,
        capacity: usize,
    ) -> TestSubscriber {
        let outlet = CollectingOutlet::with_capacity(capacity);
        let boxed = Box::new(outlet.clone());
        let address = self.runtime.subscribe(session_id, Self::agent(), cursor, boxed);
        TestSubscriber { outlet, address }
    }
}

impl TestSubscriber {
    /// Adds capacity for `additional` items and notifies the subscriber.
    pub async fn add_capacity(&self, additional: usize) {
        self.outlet.add_capacity(additional);
        self.address.send(OutletDrained).await.expect("the subscriber is running");
    }

    /// Stops the subscriber.
    pub async fn stop(self) {
        self.address.send(StopSubscriber).await.expect("the subscriber is running");
    }
}
