//! One session, live: decide → append → evolve → publish → dispatch, and nothing else.
//!
//! Brought to life by [`crate::session_registry`] from the log. Commands come from there, facts
//! from the workers it started. While an append is under way its mailbox waits, so inputs are
//! decided one after another on a state that never outruns the log. It knows no transport, no
//! store and no provider, only ports.

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

/// What every session works with.
pub struct SessionDeps {
    /// The log.
    pub journal: Arc<dyn Journal>,
    /// The models.
    pub models: Arc<dyn ModelClient>,
    /// The tools.
    pub tools: Arc<dyn ToolHost>,
    /// Time and randomness.
    pub clock: Arc<dyn Clock>,
    /// Agents and policy.
    pub governance: Governance,
    /// The board.
    pub status_board: StatusBoard,
    /// Who counts.
    pub meter: Arc<dyn Meter>,
    /// Whose turn it is among calls that run alone.
    pub exclusive_locks: Mailbox<ExclusiveLocks>,
    /// Where sessions live.
    pub shards: Arc<[Shard]>,
    /// How long to stay in memory without work.
    pub idle_timeout: Duration,
    /// Whether nothing more begins, since the process is about to end (D8).
    pub draining: AtomicBool,
}

/// Why a command was not carried out.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CommandError {
    /// The session says no.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// Too much is asked of this session at once.
    #[error("the session's mailbox is full")]
    MailboxFull,
    /// The session's actor failed again and again and rests until an administrator looks (A3).
    #[error("the session is parked: {error}")]
    Parked {
        /// The last failure.
        error: String,
    },
    /// It can't be stored now; nothing was done.
    #[error("the session is unavailable: {0}")]
    Unavailable(String),
    /// The server is shutting down and takes nothing new.
    #[error("the server is shutting down")]
    Draining,
}

/// The answer's way back.
pub type ReplySender = oneshot::Sender<Result<Reply, CommandError>>;

/// Something a client asks, or the desk's wake-up.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Command {
    /// What.
    pub input: Input,
    /// Who wants to know.
    pub reply: Option<ReplySender>,
}

/// Something a worker of this session reports.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Fact(pub Input);

/// Leave memory; the registry has made sure that nothing is on its way here.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Passivate;

/// The actor.
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
    /// The stream that was stopped for the command at hand, and whether it had said anything.
    stopped_stream: Option<(AttemptId, bool, TokenUsage)>,
    executors: HashMap<AttemptId, Mailbox<ToolExecutor>>,
    delegations: HashMap<SessionId, Mailbox<Delegation>>,
    locks: exclusive_locks::SessionLocks,
    outage: outage::Outage,
    commands_handled: u64,
    wake_timer: Option<SpawnHandle>,
    idle_timer: Option<SpawnHandle>,
    /// How it ends, once it was ended.
    exit_status: SessionExitStatus,
}

/// How a session's actor ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionExitStatus {
    /// In order: it had nothing to do.
    Passivated,
    /// What it knows is not what the log says, or it could not read the log. No failure of its
    /// own: it is to be rebuilt.
    NeedsRebuild(String),
    /// It failed.
    Failed(String),
}

impl Session {
    /// The session of that id, to be rebuilt from its log when the actor starts.
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

    /// The rules that `input` is decided by.
    fn rules_for(&self, input: &Input) -> Rules {
        let (governance, tools) = (&self.deps.governance, self.deps.tools.as_ref());
        if let Some(SessionMetadata { agent, parent, .. }) = &self.state.metadata {
            return governance.rules(agent, parent.as_deref(), tools);
        }
        if let Input::CreateChild { task: errand } = input {
            return governance.rules(&errand.agent, Some(&errand.parent), tools);
        }
        let unknown = AgentName::parse("default").expect("a plain word is an agent's name");
        governance.rules(&unknown, None, tools)
    }

    /// Rebuilds the state from the log, then heals what a crash interrupted.
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
                    let within =
                        load_stricter_settings(&state, &defaults, journal.as_ref()).await?;
                    return Ok((state, within));
                }
            }
        };
        ctx.wait(replay.into_actor(self).map(
            |replayed: Result<(SessionState, _), JournalError>, actor, ctx| match replayed {
                Ok((state, within)) => {
                    actor.state = state;
                    if let Some(run) = &actor.state.active.run {
                        actor.deps.meter.record_resumed_run(run);
                    }
                    if actor.state.metadata.is_some() {
                        actor.handle_input(Input::Rehydrated { user_settings: within }, None, ctx);
                    } else {
                        actor.after_input(ctx);
                    }
                }
                // An outage is no failure of the session (D8).
                Err(JournalError::Unavailable(error)) => {
                    actor.stop_with(SessionExitStatus::NeedsRebuild(error), ctx)
                }
                Err(error) => actor.stop_with(SessionExitStatus::Failed(error.to_string()), ctx),
            },
        ));
    }

    /// After every input: the alarm for the next backoff, the check for idleness, the board.
    fn after_input(&mut self, ctx: &mut Context<Self>) {
        self.schedule_deferred_inputs(ctx);
        self.release_unused_locks();
        if let Some(alarm) = self.wake_timer.take() {
            ctx.cancel_future(alarm);
        }
        let next = self.state.next_wake_excluding(|call_id| self.locks.is_waiting(call_id));
        // What is due while the process ends does not begin.
        if let Some(at) = next.filter(|_| !self.deps.draining.load(Relaxed)) {
            let delay = at.saturating_duration_since(self.deps.clock.now());
            self.wake_timer = Some(ctx.run_later(delay, |actor, ctx| {
                actor.wake_timer = None;
                // A timer may fire right behind a message whose append has just begun: then this
                // is not the state to decide on, and what follows sets it again.
                if !ctx.waiting() {
                    actor.handle_fact(Input::Wake, ctx);
                }
            }));
        }
        self.executors.retain(|_, executor| executor.is_open());
        self.delegations.retain(|_, delegation| delegation.is_open());
        if let Some(check) = self.idle_timer.take() {
            ctx.cancel_future(check);
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
        let nobody_comes = self.outage.is_empty() && self.locks.is_empty();
        nobody_comes && (self.state.is_idle() || self.state.is_waiting_for_approval())
    }

    /// What it is doing, and whom it waits for, for administrators (A1).
    fn describe_status(&self) -> (&'static str, Option<String>) {
        let Some(run) = &self.state.active.run else { return ("idle", None) };
        match &run.phase {
            StepPhase::BetweenSteps => match self.state.active.approvals.first() {
                Some(open) => {
                    let approval_id = open.approval.approval_id;
                    let kind = open.approval.kind().name();
                    ("waiting", Some(format!("a person, to decide {kind} {approval_id}")))
                }
                None => ("deciding", None),
            },
            StepPhase::Streaming { .. } => ("streaming", Some("the model".to_owned())),
            StepPhase::BackingOff { until, .. } => ("backing off", Some(format!("until {until}"))),
            StepPhase::RunningCalls => {
                let waits = self.state.is_waiting_for_approval();
                // A tool that asks is waited for as much as the person.
                let is_asked = |open: &&OpenApproval| {
                    waits || open.approval.kind() == ApprovalKind::Elicitation
                };
                if let Some(open) = self.state.active.approvals.iter().find(is_asked) {
                    let approval_id = open.approval.approval_id;
                    let kind = open.approval.kind().name();
                    return ("waiting", Some(format!("a person, to decide {kind} {approval_id}")));
                }
                if let Some(key) = self.locks.first_waiting_key()
                    && !run.calls.iter().any(|call| call.is_in_progress())
                {
                    return ("waiting", Some(format!("its turn: {key}")));
                }
                let unfinished = run.calls.iter().filter(|call| !call.is_finished());
                let whom = |call: &Call| match self.state.active.child_for_call(call.call_id) {
                    Some(child) => format!("{} (session {})", child.agent, child.session_id),
                    None => format!("tool {}", call.tool),
                };
                let whom: Vec<_> = unfinished.map(whom).collect();
                ("calling", Some(whom.join(", ")))
            }
        }
    }

    /// A worker that has reported its end is done.
    fn drop_finished_worker(&mut self, input: &Input) {
        if let Input::ModelFinished { attempt_id, .. } = input {
            self.stream.take_if(|live| live.0 == *attempt_id);
        } else if let Input::ToolFinished { attempt_id, .. } = input {
            self.executors.remove(attempt_id);
        }
    }

    /// Ends this actor; the registry brings the session back from the log, or parks it.
    fn stop_with(&mut self, end: SessionExitStatus, ctx: &mut Context<Self>) {
        match &end {
            SessionExitStatus::Passivated => {}
            SessionExitStatus::NeedsRebuild(error) | SessionExitStatus::Failed(error) => {
                self.status_entry.record_failure(error)
            }
        }
        self.exit_status = end;
        ctx.stop();
    }

    fn own_mailbox(&mut self, ctx: &mut Context<Self>) -> Mailbox<Self> {
        let watch = &self.status_entry;
        self.own_mailbox.get_or_insert_with(|| Mailbox::new(ctx.address(), watch.clone())).clone()
    }
}

/// What the session's user allows, where the session allows more: the `defaults`, if they are the
/// user's, were tightened since it was here; or it was parked when the user tightened theirs (G4).
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

/// Answers whoever still waits.
pub(crate) fn respond(reply: Option<ReplySender>, answer: Result<Reply, CommandError>) {
    if let Some(reply) = reply
        && reply.send(answer).is_err()
    {
        tracing::debug!("nobody waits for the answer any more");
    }
}

impl Actor for Session {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(SESSION_MAILBOX_MAX);
        let obeys = ctx.address().downgrade().recipient();
        self.status_entry.accept_orders(&[ActorOrder::Stop, ActorOrder::Restart], obeys);
        self.status_entry.set_state("rehydrating", Some("the log".to_owned()));
        self.rehydrate(ctx);
    }

    /// Also runs when a handler panicked; and when the registry has let go of an idle session, which
    /// may end before it reads why.
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
        let end = match thread::panicking() {
            true => SessionExitStatus::Failed("the session's actor panicked".to_owned()),
            false => std::mem::replace(&mut self.exit_status, SessionExitStatus::Passivated),
        };
        let (session_id, generation) = (self.state.session_id, self.generation);
        self.registry.send(SessionEnded { session_id, generation, exit_status: end, unfinished });
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
