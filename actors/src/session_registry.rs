//! Finds live sessions, starts others, passivates idle ones and parks those that keep failing (D6,
//! A3).
//!
//! Every command to a session passes through the registry, so a session has at most one live actor.
//! An idle session is passivated without losing a message: the registry counts the commands it
//! delivered, the session counts those it handled, and both counts must be equal.

use crate::{
    approval_desk::ApprovalDesk,
    event_bus::EventBus,
    limits::{
        SESSION_FAILURE_WINDOW, SESSION_FAILURES_MAX, SESSION_MAILBOX_MAX, SESSION_RESTART_DELAY,
        SHARED_ACTOR_MAILBOX_MAX, STORE_RETRY_DELAY,
    },
    mailbox::{Mailbox, TrySendError},
    order::{ActorOrder, ExecuteOrder},
    session::{
        Command, CommandError, Passivate, ReplySender, Session, SessionDeps, SessionExitStatus,
        respond,
    },
    status_board::StatusEntry,
};
use actix::{
    Actor, Addr, ArbiterHandle, AsyncContext, Context, Handler, Message, MessageResult,
    dev::channel::channel,
};
use greenroom_core::{ids::SessionId, session::Input};
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

/// An arbiter with its event bus. The sessions of the shard run on the arbiter.
#[derive(Clone)]
pub struct Shard {
    /// The arbiter that the sessions run on.
    pub arbiter: ArbiterHandle,
    /// The event bus of these sessions.
    pub bus: Mailbox<EventBus>,
}

/// Returns the shard of a session, chosen by the session's id.
pub fn shard_of(session_id: SessionId, shards: &[Shard]) -> &Shard {
    // The lower half of a version 7 UUID is random.
    let (_, random) = session_id.0.as_u64_pair();
    let count = u64::try_from(shards.len()).unwrap_or(1).max(1);
    &shards[usize::try_from(random % count).unwrap_or(0)]
}

/// The session registry actor.
pub struct SessionRegistry {
    deps: Arc<SessionDeps>,
    desk: Mailbox<ApprovalDesk>,
    live_sessions: HashMap<SessionId, LiveSession>,
    failures: HashMap<SessionId, FailureRecord>,
    last_generation: u64,
    draining: bool,
    /// True once no session may be started any more.
    shutting_down: bool,
    status_entry: StatusEntry,
}

struct LiveSession {
    mailbox: Mailbox<Session>,
    generation: u64,
    delivered: u64,
}

struct FailureRecord {
    count: u32,
    since: Instant,
    error: String,
    /// The session's status board entry while it is parked and has no actor.
    parked: Option<StatusEntry>,
}

impl SessionRegistry {
    /// Creates a registry without live sessions.
    pub fn new(
        deps: Arc<SessionDeps>,
        desk: Mailbox<ApprovalDesk>,
        status_entry: StatusEntry,
    ) -> Self {
        Self {
            deps,
            desk,
            live_sessions: HashMap::new(),
            failures: HashMap::new(),
            last_generation: 0,
            draining: false,
            shutting_down: false,
            status_entry,
        }
    }

    fn get_or_start(&mut self, session_id: SessionId, ctx: &Context<Self>) -> &mut LiveSession {
        if !self.live_sessions.contains_key(&session_id) {
            let live = self.spawn(session_id, ctx);
            self.live_sessions.insert(session_id, live);
            self.update_status();
        }
        self.live_sessions.get_mut(&session_id).expect("the session was inserted above")
    }

    fn spawn(&mut self, session_id: SessionId, ctx: &Context<Self>) -> LiveSession {
        self.last_generation += 1;
        let generation = self.last_generation;
        let status_entry =
            self.deps.status_board.register(format!("/sessions/{session_id}"), "Session");
        let failures = self.failures.get(&session_id).map_or(0, |failures| failures.count);
        status_entry.set_restarts(u64::from(failures));
        let shard = shard_of(session_id, &self.deps.shards);
        let registry = Mailbox::new(ctx.address(), self.status_entry.clone());
        let (deps, desk, bus) = (self.deps.clone(), self.desk.clone(), shard.bus.clone());
        let session_entry = status_entry.clone();
        // `Actor::start_in_arbiter` uses a small mailbox until the actor runs; a burst would fill
        // it.
        let (sender, receiver) = channel(SESSION_MAILBOX_MAX);
        shard.arbiter.spawn_fn(move || {
            let session =
                Session::new(session_id, generation, deps, registry, desk, bus, session_entry);
            Context::with_receiver(receiver).run(session);
        });
        let address = Addr::new(sender);
        LiveSession { mailbox: Mailbox::new(address, status_entry), generation, delivered: 0 }
    }

    fn find_parked(&self, session_id: SessionId) -> Option<&FailureRecord> {
        let failures = self.failures.get(&session_id)?;
        (failures.count >= SESSION_FAILURES_MAX).then_some(failures)
    }

    fn record_failure(&mut self, session_id: SessionId, error: String) -> u32 {
        let now = Instant::now();
        let failures = self.failures.entry(session_id).or_insert(FailureRecord {
            count: 0,
            since: now,
            error: String::new(),
            parked: None,
        });
        if now.duration_since(failures.since) > SESSION_FAILURE_WINDOW {
            (failures.count, failures.since) = (0, now);
        }
        failures.count += 1;
        failures.error = error;
        failures.count
    }

    /// Parks a session until an administrator restarts it (A3).
    fn park(&mut self, session_id: SessionId, ctx: &Context<Self>) {
        let Some(failures) = self.failures.get_mut(&session_id) else { return };
        let status_entry =
            self.deps.status_board.register(format!("/sessions/{session_id}"), "Session");
        status_entry.set_state("parked", Some("a restart by an administrator".to_owned()));
        status_entry.record_failure(&failures.error);
        status_entry.set_restarts(u64::from(failures.count));
        status_entry.accept_orders(&[ActorOrder::Restart], ctx.address().downgrade().recipient());
        failures.parked = Some(status_entry);
    }

    fn schedule_resume(&self, session_id: SessionId, delay: Duration, ctx: &mut Context<Self>) {
        ctx.run_later(delay, move |registry, ctx| {
            if registry.find_parked(session_id).is_none() && !registry.shutting_down {
                registry.get_or_start(session_id, ctx);
            }
        });
    }

    fn update_status(&self) {
        let state = if self.draining { "draining" } else { "running" };
        self.status_entry.set_state(state, None);
    }
}

impl Actor for SessionRegistry {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(SHARED_ACTOR_MAILBOX_MAX);
        self.update_status();
    }
}

/// Delivers an input to a session and starts the session if it is not live.
#[derive(Message)]
#[rtype(result = "()")]
pub struct DeliverInput {
    /// The session.
    pub session_id: SessionId,
    /// The input.
    pub input: Input,
    /// The channel for the reply, if the sender needs one.
    pub reply: Option<ReplySender>,
}

impl Handler<DeliverInput> for SessionRegistry {
    type Result = ();

    fn handle(&mut self, deliver: DeliverInput, ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        let DeliverInput { session_id, input, reply } = deliver;
        let starts_work = matches!(
            input,
            Input::CreateSession { .. }
                | Input::CreateChild { .. }
                | Input::SubmitMessage { .. }
                | Input::Interrupt { .. }
        );
        let refusal = if self.shutting_down || (self.draining && starts_work) {
            Some(CommandError::Draining)
        } else {
            self.find_parked(session_id)
                .map(|record| CommandError::Parked { error: record.error.clone() })
        };
        if let Some(refusal) = refusal {
            return respond(reply, Err(refusal));
        }
        let mut command = Command { input, reply };
        // An actor that is stopping is replaced once. Its `SessionEnded` arrives later.
        for _ in 0..2 {
            let live = self.get_or_start(session_id, ctx);
            command = match live.mailbox.try_send(command) {
                Ok(()) => {
                    live.delivered += 1;
                    return;
                }
                Err(TrySendError::Full(command)) => {
                    return respond(command.reply, Err(CommandError::MailboxFull));
                }
                Err(TrySendError::Closed(command)) => command,
            };
            self.live_sessions.remove(&session_id);
        }
        let error = "its actor is stopping".to_owned();
        respond(command.reply, Err(CommandError::Unavailable(error)));
    }
}

/// Reports that a session has nothing to do and may be passivated.
#[derive(Message)]
#[rtype(result = "()")]
pub struct SessionIdle {
    /// The session.
    pub session_id: SessionId,
    /// The generation of the session's actor.
    pub generation: u64,
    /// The number of commands the actor has handled.
    pub handled: u64,
}

impl Handler<SessionIdle> for SessionRegistry {
    type Result = ();

    fn handle(&mut self, idle: SessionIdle, _ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        let SessionIdle { session_id, generation, handled } = idle;
        let is_caught_up = self
            .live_sessions
            .get(&session_id)
            .is_some_and(|live| live.generation == generation && live.delivered == handled);
        if is_caught_up && let Some(live) = self.live_sessions.remove(&session_id) {
            live.mailbox.send(Passivate);
            self.update_status();
        }
    }
}

/// Stops the actor of a purged session and deletes the session's failure record.
#[derive(Message)]
#[rtype(result = "()")]
pub struct EvictSession(pub SessionId);

impl Handler<EvictSession> for SessionRegistry {
    type Result = ();

    fn handle(&mut self, EvictSession(session_id): EvictSession, _ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        self.failures.remove(&session_id);
        if let Some(live) = self.live_sessions.remove(&session_id) {
            live.mailbox.send(Passivate);
        }
        self.update_status();
    }
}

/// Reports that a session's actor has stopped.
#[derive(Message)]
#[rtype(result = "()")]
pub struct SessionEnded {
    /// The session.
    pub session_id: SessionId,
    /// The generation of the session's actor.
    pub generation: u64,
    /// The actor's exit status.
    pub exit_status: SessionExitStatus,
    /// True if the session has unfinished work and must be started again after a failure.
    pub unfinished: bool,
}

impl Handler<SessionEnded> for SessionRegistry {
    type Result = ();

    fn handle(&mut self, ended: SessionEnded, ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        let SessionEnded { session_id, generation, exit_status, unfinished } = ended;
        if self.live_sessions.get(&session_id).is_some_and(|live| live.generation == generation) {
            self.live_sessions.remove(&session_id);
        }
        match exit_status {
            SessionExitStatus::Passivated => {}
            SessionExitStatus::NeedsRebuild(reason) => {
                tracing::warn!(%session_id, %reason, "rebuilding the session from its log");
                self.schedule_resume(session_id, STORE_RETRY_DELAY, ctx);
            }
            SessionExitStatus::Failed(error) => {
                tracing::error!(%session_id, %error, "session actor failed");
                self.status_entry.record_failure(&format!("session {session_id}: {error}"));
                let count = self.record_failure(session_id, error);
                if count >= SESSION_FAILURES_MAX {
                    self.park(session_id, ctx);
                } else if unfinished {
                    let delay = SESSION_RESTART_DELAY * 2u32.saturating_pow(count - 1);
                    self.schedule_resume(session_id, delay, ctx);
                }
            }
        }
        self.update_status();
    }
}

/// Starts sessions without sending them an input. Used at start for sessions with an unfinished
/// run.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ResumeSessions(pub Vec<SessionId>);

impl Handler<ResumeSessions> for SessionRegistry {
    type Result = ();

    fn handle(&mut self, ResumeSessions(sessions): ResumeSessions, ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        let sessions = if self.shutting_down { Vec::new() } else { sessions };
        for session_id in sessions {
            self.get_or_start(session_id, ctx);
        }
    }
}

/// Restarts a parked session on an administrator's order (A2).
impl Handler<ExecuteOrder> for SessionRegistry {
    type Result = ();

    fn handle(&mut self, ExecuteOrder { path, .. }: ExecuteOrder, ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        let id = path.strip_prefix("/sessions/").and_then(|id| id.parse().ok()).map(SessionId);
        let id = id.filter(|_| !self.shutting_down);
        let parked =
            id.filter(|id| self.failures.get(id).is_some_and(|failures| failures.parked.is_some()));
        if let Some(session_id) = parked {
            self.failures.remove(&session_id);
            self.get_or_start(session_id, ctx);
        }
    }
}

/// Stops accepting new work (D8).
#[derive(Message)]
#[rtype(result = "()")]
pub struct StartDraining;

impl Handler<StartDraining> for SessionRegistry {
    type Result = ();

    fn handle(&mut self, _: StartDraining, _ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        self.draining = true;
        self.update_status();
    }
}

/// Passivates every session. No session is started afterwards (D8).
#[derive(Message)]
#[rtype(result = "()")]
pub struct PassivateAll;

impl Handler<PassivateAll> for SessionRegistry {
    type Result = ();

    fn handle(&mut self, _: PassivateAll, _ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        (self.draining, self.shutting_down) = (true, true);
        self.live_sessions.values().for_each(|live| live.mailbox.send(Passivate));
        self.update_status();
    }
}

/// Returns the number of live sessions.
#[derive(Message)]
#[rtype(result = "usize")]
pub struct CountLiveSessions;

impl Handler<CountLiveSessions> for SessionRegistry {
    type Result = MessageResult<CountLiveSessions>;

    fn handle(&mut self, _: CountLiveSessions, _ctx: &mut Self::Context) -> Self::Result {
        self.status_entry.record_handled();
        MessageResult(self.live_sessions.len())
    }
}
