//! Finds live sessions, brings others to life, lets idle ones go, and parks those that keep
//! failing (D6, A3).
//!
//! Every command to a session passes through here, so at most one actor per session is alive, and
//! an idle session can leave without losing a message: the registry knows how many commands it
//! has handed over, the session how many it has handled.

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

/// Where sessions live: an arbiter with its bus.
#[derive(Clone)]
pub struct Shard {
    /// The arbiter.
    pub arbiter: ArbiterHandle,
    /// Its bus.
    pub bus: Mailbox<EventBus>,
}

/// The home of a session, among `homes`: always the same one.
pub fn shard_of(session_id: SessionId, homes: &[Shard]) -> &Shard {
    // The random half of a version 7 UUID.
    let (_, random) = session_id.0.as_u64_pair();
    let count = u64::try_from(homes.len()).unwrap_or(1).max(1);
    &homes[usize::try_from(random % count).unwrap_or(0)]
}

/// The actor.
pub struct SessionRegistry {
    deps: Arc<SessionDeps>,
    desk: Mailbox<ApprovalDesk>,
    live_sessions: HashMap<SessionId, LiveSession>,
    failures: HashMap<SessionId, FailureRecord>,
    last_generation: u64,
    draining: bool,
    /// No session comes to life any more.
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
    /// Its place on the board while it is parked, since no actor of its own is there.
    parked: Option<StatusEntry>,
}

impl SessionRegistry {
    /// A registry without live sessions.
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
        self.live_sessions.get_mut(&session_id).expect("it was put there just now")
    }

    fn spawn(&mut self, session_id: SessionId, ctx: &Context<Self>) -> LiveSession {
        self.last_generation += 1;
        let generation = self.last_generation;
        let watch = self.deps.status_board.register(format!("/sessions/{session_id}"), "Session");
        let failures = self.failures.get(&session_id).map_or(0, |failures| failures.count);
        watch.set_restarts(u64::from(failures));
        let home = shard_of(session_id, &self.deps.shards);
        let registry = Mailbox::new(ctx.address(), self.status_entry.clone());
        let (around, desk, bus) = (self.deps.clone(), self.desk.clone(), home.bus.clone());
        let shown = watch.clone();
        // `Actor::start_in_arbiter` would give it a small mailbox until it runs, which a burst fills.
        let (sender, receiver) = channel(SESSION_MAILBOX_MAX);
        home.arbiter.spawn_fn(move || {
            let session = Session::new(session_id, generation, around, registry, desk, bus, shown);
            Context::with_receiver(receiver).run(session);
        });
        let address = Addr::new(sender);
        LiveSession { mailbox: Mailbox::new(address, watch), generation, delivered: 0 }
    }

    fn parked(&self, session_id: SessionId) -> Option<&FailureRecord> {
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

    /// Leaves the session alone until an administrator restarts it (A3).
    fn park(&mut self, session_id: SessionId, ctx: &Context<Self>) {
        let Some(failures) = self.failures.get_mut(&session_id) else { return };
        let watch = self.deps.status_board.register(format!("/sessions/{session_id}"), "Session");
        watch.set_state("parked", Some("an administrator, to restart it".to_owned()));
        watch.record_failure(&failures.error);
        watch.set_restarts(u64::from(failures.count));
        watch.accept_orders(&[ActorOrder::Restart], ctx.address().downgrade().recipient());
        failures.parked = Some(watch);
    }

    fn schedule_resume(&self, session_id: SessionId, delay: Duration, ctx: &mut Context<Self>) {
        ctx.run_later(delay, move |registry, ctx| {
            if registry.parked(session_id).is_none() && !registry.shutting_down {
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

/// Hands an input to its session, which is brought to life if need be.
#[derive(Message)]
#[rtype(result = "()")]
pub struct DeliverInput {
    /// The session.
    pub session_id: SessionId,
    /// What it shall take.
    pub input: Input,
    /// Who wants to know.
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
        let refused = if self.shutting_down || (self.draining && starts_work) {
            Some(CommandError::Draining)
        } else {
            self.parked(session_id).map(|it| CommandError::Parked { error: it.error.clone() })
        };
        if let Some(refused) = refused {
            return respond(reply, Err(refused));
        }
        let mut command = Command { input, reply };
        // An actor that is just ending is replaced once; its end is on the way to us.
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
        let ending = "its actor is ending".to_owned();
        respond(command.reply, Err(CommandError::Unavailable(ending)));
    }
}

/// A session has nothing to do.
#[derive(Message)]
#[rtype(result = "()")]
pub struct SessionIdle {
    /// The session.
    pub session_id: SessionId,
    /// Which of its actors.
    pub generation: u64,
    /// How many commands it has handled.
    pub handled: u64,
}

impl Handler<SessionIdle> for SessionRegistry {
    type Result = ();

    fn handle(&mut self, idle: SessionIdle, _ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        let SessionIdle { session_id, generation, handled } = idle;
        let nothing_on_its_way = self
            .live_sessions
            .get(&session_id)
            .is_some_and(|live| live.generation == generation && live.delivered == handled);
        if nothing_on_its_way && let Some(live) = self.live_sessions.remove(&session_id) {
            live.mailbox.send(Passivate);
            self.update_status();
        }
    }
}

/// A session is gone: its actor ends, and what is known of its failures is forgotten.
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

/// A session's actor has ended.
#[derive(Message)]
#[rtype(result = "()")]
pub struct SessionEnded {
    /// The session.
    pub session_id: SessionId,
    /// Which of its actors.
    pub generation: u64,
    /// How.
    pub exit_status: SessionExitStatus,
    /// Whether something was going on that must be brought back.
    pub unfinished: bool,
}

impl Handler<SessionEnded> for SessionRegistry {
    type Result = ();

    fn handle(&mut self, ended: SessionEnded, ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        let SessionEnded { session_id, generation, exit_status: end, unfinished } = ended;
        if self.live_sessions.get(&session_id).is_some_and(|live| live.generation == generation) {
            self.live_sessions.remove(&session_id);
        }
        match end {
            SessionExitStatus::Passivated => {}
            SessionExitStatus::NeedsRebuild(reason) => {
                tracing::warn!(%session_id, %reason, "session is rebuilt from its log");
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

/// Brings sessions to life without asking anything of them: at start, those with an unfinished
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

/// An administrator tries a parked session once more (A2).
impl Handler<ExecuteOrder> for SessionRegistry {
    type Result = ();

    fn handle(&mut self, ExecuteOrder { path, .. }: ExecuteOrder, ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        let id = path.strip_prefix("/sessions/").and_then(|id| id.parse().ok()).map(SessionId);
        let id = id.filter(|_| !self.shutting_down);
        let parked = id.filter(|id| self.failures.get(id).is_some_and(|it| it.parked.is_some()));
        if let Some(session_id) = parked {
            self.failures.remove(&session_id);
            self.get_or_start(session_id, ctx);
        }
    }
}

/// Takes nothing new from here on (D8).
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

/// Lets every session leave; none comes to life any more (D8).
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

/// How many sessions are live.
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
