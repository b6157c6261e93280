//! One live session: decide → append → evolve → publish → dispatch.
//!
//! [`crate::session_registry`] starts the actor, which rebuilds its state from the log. Commands
//! arrive from the registry, facts from the workers that the session started. The mailbox is paused
//! during an append, so inputs are decided one after another on a state that matches the log. The
//! actor knows only ports, no transport, store or provider.

mod cancellation;
mod children;
mod commit;
mod dispatch;
mod exclusive_locks;
mod orders;
mod outage;
mod publish;

pub use exclusive_locks::LockGranted;

use crate::{
    approval_desk::ApprovalDesk,
    delegation::Delegation,
    event_bus::EventBus,
    exclusive_locks::ExclusiveLocks,
    governance::Governance,
    limits::{LOG_PAGE_EVENTS, SESSION_MAILBOX_MAX},
    llm_stream::{self, LlmStream},
    mailbox::Mailbox,
    order::ActorOrder,
    ports::{Clock, Journal, JournalError, Meter, ModelClient, ToolHost},
    session_registry::{SessionEnded, SessionIdle, SessionRegistry, Shard},
    status_board::{StatusBoard, StatusEntry},
    tool_executor::{self, ToolExecutor},
};
use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, SpawnHandle,
    WrapFuture,
};
use greenroom_core::{
    Rules,
    approval::{ApprovalKind, OpenApproval},
    call::Call,
    ids::{AgentName, AttemptId, Seq, SessionId},
    policy::Settings,
    session::{Input, Rejection, Reply, SessionMetadata, SessionState, StepPhase, evolve},
    usage::TokenUsage,
};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};
use tokio::sync::oneshot;

/// Ports and shared actors that all sessions use.
pub struct SessionDeps {
    /// The event log.
    pub journal: Arc<dyn Journal>,
    /// The client of the language models.
    pub models: Arc<dyn ModelClient>,
    /// The host that runs tool calls.
    pub tools: Arc<dyn ToolHost>,
    /// The source of time and randomness.
    pub clock: Arc<dyn Clock>,
    /// Agent profiles and policy.
    pub governance: Governance,
    /// The snapshots of all live actors.
    pub status_board: StatusBoard,
    /// The receiver of metrics.
    pub meter: Arc<dyn Meter>,
    /// The actor that grants exclusive locks to calls.
    pub exclusive_locks: Mailbox<ExclusiveLocks>,
    /// All shards.
    pub shards: Arc<[Shard]>,
    /// Time after which an idle session is passivated.
    pub idle_timeout: Duration,
    /// True once no new step or call may start because the process is shutting down (D8).
    pub draining: AtomicBool,
}

/// The reason why a command was not executed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CommandError {
    /// The session rejected the command.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The session's mailbox has no room for the command.
    #[error("the session's mailbox is full")]
    MailboxFull,
    /// The session's actor failed repeatedly. An administrator must restart it (A3).
    #[error("the session is parked: {error}")]
    Parked {
        /// The last failure.
        error: String,
    },
    /// The command can't be executed now, for example because the log can't be written.
    #[error("the session is unavailable: {0}")]
    Unavailable(String),
    /// The server is shutting down and accepts no new work.
    #[error("the server is shutting down")]
    Draining,
}

/// The channel for the reply to a command.
pub type ReplySender = oneshot::Sender<Result<Reply, CommandError>>;

/// A client's request, or a wake-up by the approval desk.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Command {
    /// The input.
    pub input: Input,
    /// The channel for the reply, if the sender needs one.
    pub reply: Option<ReplySender>,
}

/// A result reported by a worker of this session.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Fact(pub Input);

/// Stops the actor. The registry sends it when no other message is on its way to the session.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Passivate;

/// The session actor.
pub struct Session {
    deps: Arc<SessionDeps>,
    registry: Mailbox<SessionRegistry>,
    desk: Mailbox<ApprovalDesk>,
    bus: Mailbox<EventBus>,
    generation: u64,
    status_entry: StatusEntry,
    state: SessionState,
    own_mailbox: Option<Mailbox<Session>>,
    stream: Option<(AttemptId, Mailbox<LlmStream>)>,
    /// The stream that was stopped for the current command: its attempt, whether it had streamed
    /// any text, and its usage.
    stopped_stream: Option<(AttemptId, bool, TokenUsage)>,
    executors: HashMap<AttemptId, Mailbox<ToolExecutor>>,
    delegations: HashMap<SessionId, Mailbox<Delegation>>,
    locks: exclusive_locks::SessionLocks,
    outage: outage::Outage,
    commands_handled: u64,
    wake_timer: Option<SpawnHandle>,
    idle_timer: Option<SpawnHandle>,
    /// The exit status; set before the actor is stopped.
    exit_status: SessionExitStatus,
}

/// The exit status of a session's actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionExitStatus {
    /// Stopped in order with nothing to do.
    Passivated,
    /// The state differs from the log, or the log could not be read. Not a failure of the session:
    /// the registry rebuilds it.
    NeedsRebuild(String),
    /// The actor failed.
    Failed(String),
}

impl Session {
    /// Creates a session. Its state is rebuilt from the log when the actor starts.
    pub fn new(
        session_id: SessionId,
        generation: u64,
        deps: Arc<SessionDeps>,
        registry: Mailbox<SessionRegistry>,
        desk: Mailbox<ApprovalDesk>,
        bus: Mailbox<EventBus>,
        status_entry: StatusEntry,
    ) -> Self {
        Self {
            deps,
            registry,
            desk,
            bus,
            generation,
            status_entry,
            state: SessionState::new(session_id),
            own_mailbox: None,
            stream: None,
            stopped_stream: None,
            executors: HashMap::new(),
            delegations: HashMap::new(),
            locks: exclusive_locks::SessionLocks::default(),
            outage: outage::Outage::default(),
            commands_handled: 0,
            wake_timer: None,
            idle_timer: None,
            exit_status: SessionExitStatus::Passivated,
        }
    }

    /// Returns the rules that apply to `input`.
    fn rules_for(&self, input: &Input) -> Rules {
        let (governance, tools) = (&self.deps.governance, self.deps.tools.as_ref());
        if let Some(SessionMetadata { agent, parent, .. }) = &self.state.metadata {
            return governance.rules(agent, parent.as_deref(), tools);
        }
        if let Input::CreateChild { task } = input {
            return governance.rules(&task.agent, Some(&task.parent), tools);
        }
        let default_agent = AgentName::parse("default").expect("`default` is a valid agent name");
        governance.rules(&default_agent, None, tools)
    }

    /// Rebuilds the state from the log, then recovers work that a crash interrupted.
    fn rehydrate(&mut self, ctx: &mut Context<Self>) {
        let journal = self.deps.journal.clone();
        let session_id = self.state.session_id;
        let defaults = self.deps.governance.default_settings.clone();
        let replay = async move {
            let mut state = SessionState::new(session_id);
            loop {
                let page = journal.load_events(session_id, state.last_seq, LOG_PAGE_EVENTS).await?;
                let is_last = page.len() < LOG_PAGE_EVENTS;
                state = page.iter().fold(state, evolve);
                if is_last {
                    let stricter_settings =
                        load_stricter_settings(&state, &defaults, journal.as_ref()).await?;
                    return Ok((state, stricter_settings));
                }
            }
        };
        ctx.wait(replay.into_actor(self).map(
            |replayed: Result<(SessionState, _), JournalError>, actor, ctx| match replayed {
                Ok((state, stricter_settings)) => {
                    actor.state = state;
                    if let Some(run) = &actor.state.active.run {
                        actor.deps.meter.record_resumed_run(run);
                    }
                    if actor.state.metadata.is_some() {
                        actor.handle_input(
                            Input::Rehydrated { user_settings: stricter_settings },
                            None,
                            ctx,
                        );
                    } else {
                        actor.after_input(ctx);
                    }
                }
                // A storage outage does not count as a failure of the session (D8).
                Err(JournalError::Unavailable(error)) => {
                    actor.stop_with(SessionExitStatus::NeedsRebuild(error), ctx)
                }
                Err(error) => actor.stop_with(SessionExitStatus::Failed(error.to_string()), ctx),
            },
        ));
    }

    /// Runs after every input: sets the wake timer and the idle timer, updates the status board.
    fn after_input(&mut self, ctx: &mut Context<Self>) {
        self.schedule_deferred_inputs(ctx);
        self.release_unused_locks();
        if let Some(timer) = self.wake_timer.take() {
            ctx.cancel_future(timer);
        }
        let next = self.state.next_wake_excluding(|call_id| self.locks.is_waiting(call_id));
        // No work starts while the process shuts down.
        if let Some(wake_at) = next.filter(|_| !self.deps.draining.load(Relaxed)) {
            let delay = wake_at.saturating_duration_since(self.deps.clock.now());
            self.wake_timer = Some(ctx.run_later(delay, |actor, ctx| {
                actor.wake_timer = None;
                // The timer may fire while an append that has just started is in progress. The
                // state is then about to change, and the input being committed sets the timer
                // again.
                if !ctx.waiting() {
                    actor.handle_fact(Input::Wake, ctx);
                }
            }));
        }
        self.executors.retain(|_, executor| executor.is_open());
        self.delegations.retain(|_, delegation| delegation.is_open());
        if let Some(timer) = self.idle_timer.take() {
            ctx.cancel_future(timer);
        }
        if self.can_passivate() {
            self.idle_timer = Some(ctx.run_later(self.deps.idle_timeout, |actor, ctx| {
                if actor.can_passivate() && !ctx.waiting() {
                    let (session_id, generation) = (actor.state.session_id, actor.generation);
                    let handled = actor.commands_handled;
                    actor.registry.send(SessionIdle { session_id, generation, handled });
                }
            }));
        }
        let (state, waiting_for) = self.describe_status();
        self.status_entry.set_state(state, waiting_for);
    }

    fn can_passivate(&self) -> bool {
        let no_pending_work = self.outage.is_empty() && self.locks.is_empty();
        no_pending_work && (self.state.is_idle() || self.state.is_waiting_for_approval())
    }

    /// Returns the state, and what the session waits for, as shown to administrators (A1).
    fn describe_status(&self) -> (&'static str, Option<String>) {
        let Some(run) = &self.state.active.run else { return ("idle", None) };
        match &run.phase {
            StepPhase::BetweenSteps => match self.state.active.approvals.first() {
                Some(open) => {
                    let approval_id = open.approval.approval_id;
                    let kind = open.approval.kind().name();
                    ("waiting", Some(format!("{kind} approval {approval_id}")))
                }
                None => ("deciding", None),
            },
            StepPhase::Streaming { .. } => ("streaming", Some("the model".to_owned())),
            StepPhase::BackingOff { until, .. } => ("backing off", Some(format!("until {until}"))),
            StepPhase::RunningCalls => {
                let waits_for_approval = self.state.is_waiting_for_approval();
                // An elicitation is reported even while other calls are running.
                let is_reported = |open: &&OpenApproval| {
                    waits_for_approval || open.approval.kind() == ApprovalKind::Elicitation
                };
                if let Some(open) = self.state.active.approvals.iter().find(is_reported) {
                    let approval_id = open.approval.approval_id;
                    let kind = open.approval.kind().name();
                    return ("waiting", Some(format!("{kind} approval {approval_id}")));
                }
                if let Some(key) = self.locks.first_waiting_key()
                    && !run.calls.iter().any(|call| call.is_in_progress())
                {
                    return ("waiting", Some(format!("exclusive lock {key}")));
                }
                let unfinished = run.calls.iter().filter(|call| !call.is_finished());
                let describe_call =
                    |call: &Call| match self.state.active.child_for_call(call.call_id) {
                        Some(child) => format!("{} (session {})", child.agent, child.session_id),
                        None => format!("tool {}", call.tool),
                    };
                let targets: Vec<_> = unfinished.map(describe_call).collect();
                ("calling", Some(targets.join(", ")))
            }
        }
    }

    /// Removes the worker that reported its end with `input`.
    fn drop_finished_worker(&mut self, input: &Input) {
        if let Input::ModelFinished { attempt_id, .. } = input {
            self.stream.take_if(|stream| stream.0 == *attempt_id);
        } else if let Input::ToolFinished { attempt_id, .. } = input {
            self.executors.remove(attempt_id);
        }
    }

    /// Stops this actor. The registry rebuilds the session from the log, or parks it.
    fn stop_with(&mut self, exit_status: SessionExitStatus, ctx: &mut Context<Self>) {
        match &exit_status {
            SessionExitStatus::Passivated => {}
            SessionExitStatus::NeedsRebuild(error) | SessionExitStatus::Failed(error) => {
                self.status_entry.record_failure(error)
            }
        }
        self.exit_status = exit_status;
        ctx.stop();
    }

    fn own_mailbox(&mut self, ctx: &mut Context<Self>) -> Mailbox<Self> {
        let status_entry = &self.status_entry;
        self.own_mailbox
            .get_or_insert_with(|| Mailbox::new(ctx.address(), status_entry.clone()))
            .clone()
    }
}

/// Returns the user's allowed settings if the session's settings exceed them. This is the case if
/// the `defaults` apply to the user and were tightened since the session was last live, or if the
/// session was parked when the user tightened their settings (G4).
async fn load_stricter_settings(
    state: &SessionState,
    defaults: &Arc<Settings>,
    journal: &dyn Journal,
) -> Result<Option<Arc<Settings>>, JournalError> {
    let Some(identity) = &state.metadata else { return Ok(None) };
    let stored = journal.load_settings(&identity.owner).await?;
    let allowed = stored.map_or_else(|| defaults.clone(), Arc::new);
    Ok(state.active.settings.validate_within(&allowed).is_err().then_some(allowed))
}

/// Sends the answer to the caller, if one is waiting.
pub(crate) fn respond(reply: Option<ReplySender>, answer: Result<Reply, CommandError>) {
    if let Some(reply) = reply
        && reply.send(answer).is_err()
    {
        tracing::debug!("the caller no longer waits for the answer");
    }
}

impl Actor for Session {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(SESSION_MAILBOX_MAX);
        let order_recipient = ctx.address().downgrade().recipient();
        self.status_entry.accept_orders(&[ActorOrder::Stop, ActorOrder::Restart], order_recipient);
        self.status_entry.set_state("rehydrating", Some("the log".to_owned()));
        self.rehydrate(ctx);
    }

    /// Also runs when a handler panicked, and when the registry dropped the address of an idle
    /// session before the session processed [`Passivate`].
    fn stopped(&mut self, _ctx: &mut Self::Context) {
        if let Some((_, stream)) = self.stream.take() {
            stream.send(llm_stream::StopStream);
        }
        for (_, executor) in self.executors.drain() {
            executor.send(tool_executor::CancelAttempt);
        }
        self.detach_children();
        self.release_all_locks();
        let unfinished = !self.state.is_idle() || self.state.last_seq == Seq(0);
        let exit_status = match thread::panicking() {
            true => SessionExitStatus::Failed("the session's actor panicked".to_owned()),
            false => std::mem::replace(&mut self.exit_status, SessionExitStatus::Passivated),
        };
        let (session_id, generation) = (self.state.session_id, self.generation);
        self.registry.send(SessionEnded { session_id, generation, exit_status, unfinished });
    }
}

impl Handler<Command> for Session {
    type Result = ();

    fn handle(&mut self, command: Command, ctx: &mut Self::Context) {
        self.commands_handled += 1;
        self.status_entry.start_message("Command");
        if !self.outage.is_empty() {
            respond(command.reply, Err(outage::storage_unavailable()));
        } else if let Some(stream) = self.stream_to_stop(&command.input) {
            self.stop_stream_then_handle(stream, command, ctx);
        } else {
            self.handle_input(command.input, command.reply, ctx);
        }
        self.status_entry.finish_message();
    }
}

impl Handler<Fact> for Session {
    type Result = ();

    fn handle(&mut self, Fact(input): Fact, ctx: &mut Self::Context) {
        self.status_entry.start_message("Fact");
        self.drop_finished_worker(&input);
        self.handle_fact(input, ctx);
        self.status_entry.finish_message();
    }
}

impl Handler<Passivate> for Session {
    type Result = ();

    fn handle(&mut self, _: Passivate, ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        self.stop_with(SessionExitStatus::Passivated, ctx);
    }
}
