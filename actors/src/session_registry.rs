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
        HUB_MAILBOX_MAX, SESSION_FAILURE_WINDOW, SESSION_FAILURES_MAX, SESSION_MAILBOX_MAX,
        SESSION_RESTART_DELAY, STORE_RETRY_DELAY,
    },
    mailbox::{Mailbox, PostError},
    observation::Watch,
    order::{Obey, Order},
    session::{Command, CommandError, End, Passivate, ReplySender, Session, Surroundings, respond},
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
pub struct Home {
    /// The arbiter.
    pub arbiter: ArbiterHandle,
    /// Its bus.
    pub bus: Mailbox<EventBus>,
}

/// The home of a session, among `homes`: always the same one.
pub fn home_of(session_id: SessionId, homes: &[Home]) -> &Home {
    // The random half of a version 7 UUID.
    let (_, random) = session_id.0.as_u64_pair();
    let count = u64::try_from(homes.len()).unwrap_or(1).max(1);
    &homes[usize::try_from(random % count).unwrap_or(0)]
}

/// The actor.
pub struct SessionRegistry {
    around: Arc<Surroundings>,
    desk: Mailbox<ApprovalDesk>,
    live: HashMap<SessionId, Live>,
    failures: HashMap<SessionId, Failures>,
    generations: u64,
    draining: bool,
    /// No session comes to life any more.
    halted: bool,
    watch: Watch,
}

struct Live {
    mailbox: Mailbox<Session>,
    generation: u64,
    delivered: u64,
}

struct Failures {
    count: u32,
    since: Instant,
    error: String,
    /// Its place on the board while it is parked, since no actor of its own is there.
    parked: Option<Watch>,
}

impl SessionRegistry {
    /// A registry without live sessions.
    pub fn new(around: Arc<Surroundings>, desk: Mailbox<ApprovalDesk>, watch: Watch) -> Self {
        Self {
            around,
            desk,
            live: HashMap::new(),
            failures: HashMap::new(),
            generations: 0,
            draining: false,
            halted: false,
            watch,
        }
    }

    fn live(&mut self, session_id: SessionId, ctx: &Context<Self>) -> &mut Live {
        if !self.live.contains_key(&session_id) {
            let live = self.spawn(session_id, ctx);
            self.live.insert(session_id, live);
            self.show();
        }
        self.live.get_mut(&session_id).expect("it was put there just now")
    }

    fn spawn(&mut self, session_id: SessionId, ctx: &Context<Self>) -> Live {
        self.generations += 1;
        let generation = self.generations;
        let watch = self.around.board.watch(format!("/sessions/{session_id}"), "Session");
        let failures = self.failures.get(&session_id).map_or(0, |failures| failures.count);
        watch.set_restarts(u64::from(failures));
        let home = home_of(session_id, &self.around.homes);
        let registry = Mailbox::new(ctx.address(), self.watch.clone());
        let (around, desk, bus) = (self.around.clone(), self.desk.clone(), home.bus.clone());
        let shown = watch.clone();
        // `Actor::start_in_arbiter` would give it a small mailbox until it runs, which a burst fills.
        let (sender, receiver) = channel(SESSION_MAILBOX_MAX);
        home.arbiter.spawn_fn(move || {
            let session = Session::new(session_id, generation, around, registry, desk, bus, shown);
            Context::with_receiver(receiver).run(session);
        });
        let address = Addr::new(sender);
        Live { mailbox: Mailbox::new(address, watch), generation, delivered: 0 }
    }

    fn parked(&self, session_id: SessionId) -> Option<&Failures> {
        let failures = self.failures.get(&session_id)?;
        (failures.count >= SESSION_FAILURES_MAX).then_some(failures)
    }

    fn note_failure(&mut self, session_id: SessionId, error: String) -> u32 {
        let now = Instant::now();
        let failures = self.failures.entry(session_id).or_insert(Failures {
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
        let watch = self.around.board.watch(format!("/sessions/{session_id}"), "Session");
        watch.set_state("parked", Some("an administrator, to restart it".to_owned()));
        watch.fail(&failures.error);
        watch.set_restarts(u64::from(failures.count));
        watch.obeys(&[Order::Restart], ctx.address().downgrade().recipient());
        failures.parked = Some(watch);
    }

    fn revive_later(&self, session_id: SessionId, delay: Duration, ctx: &mut Context<Self>) {
        ctx.run_later(delay, move |registry, ctx| {
            if registry.parked(session_id).is_none() && !registry.halted {
                registry.live(session_id, ctx);
            }
        });
    }

    fn show(&self) {
        let state = if self.draining { "draining" } else { "running" };
        self.watch.set_state(state, None);
    }
}

impl Actor for SessionRegistry {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(HUB_MAILBOX_MAX);
        self.show();
    }
}

/// Hands an input to its session, which is brought to life if need be.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Deliver {
    /// The session.
    pub session_id: SessionId,
    /// What it shall take.
    pub input: Input,
    /// Who wants to know.
    pub reply: Option<ReplySender>,
}

impl Handler<Deliver> for SessionRegistry {
    type Result = ();

    fn handle(&mut self, deliver: Deliver, ctx: &mut Self::Context) {
        self.watch.tick();
        let Deliver { session_id, input, reply } = deliver;
        let starts_work = matches!(
            input,
            Input::CreateSession { .. }
                | Input::CreateChild { .. }
                | Input::SubmitMessage { .. }
                | Input::Interrupt { .. }
        );
        let refused = if self.halted || (self.draining && starts_work) {
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
            let live = self.live(session_id, ctx);
            command = match live.mailbox.post(command) {
                Ok(()) => {
                    live.delivered += 1;
                    return;
                }
                Err(PostError::Full(command)) => {
                    return respond(command.reply, Err(CommandError::MailboxFull));
                }
                Err(PostError::Closed(command)) => command,
            };
            self.live.remove(&session_id);
        }
        let ending = "its actor is ending".to_owned();
        respond(command.reply, Err(CommandError::Unavailable(ending)));
    }
}

/// A session has nothing to do.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Idle {
    /// The session.
    pub session_id: SessionId,
    /// Which of its actors.
    pub generation: u64,
    /// How many commands it has handled.
    pub handled: u64,
}

impl Handler<Idle> for SessionRegistry {
    type Result = ();

    fn handle(&mut self, idle: Idle, _ctx: &mut Self::Context) {
        self.watch.tick();
        let Idle { session_id, generation, handled } = idle;
        let nothing_on_its_way = self
            .live
            .get(&session_id)
            .is_some_and(|live| live.generation == generation && live.delivered == handled);
        if nothing_on_its_way && let Some(live) = self.live.remove(&session_id) {
            live.mailbox.tell(Passivate);
            self.show();
        }
    }
}

/// A session is gone: its actor ends, and what is known of its failures is forgotten.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Evict(pub SessionId);

impl Handler<Evict> for SessionRegistry {
    type Result = ();

    fn handle(&mut self, Evict(session_id): Evict, _ctx: &mut Self::Context) {
        self.watch.tick();
        self.failures.remove(&session_id);
        if let Some(live) = self.live.remove(&session_id) {
            live.mailbox.tell(Passivate);
        }
        self.show();
    }
}

/// A session's actor has ended.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Ended {
    /// The session.
    pub session_id: SessionId,
    /// Which of its actors.
    pub generation: u64,
    /// How.
    pub end: End,
    /// Whether something was going on that must be brought back.
    pub unfinished: bool,
}

impl Handler<Ended> for SessionRegistry {
    type Result = ();

    fn handle(&mut self, ended: Ended, ctx: &mut Self::Context) {
        self.watch.tick();
        let Ended { session_id, generation, end, unfinished } = ended;
        if self.live.get(&session_id).is_some_and(|live| live.generation == generation) {
            self.live.remove(&session_id);
        }
        match end {
            End::Left => {}
            End::Outdated(reason) => {
                tracing::warn!(%session_id, %reason, "session is rebuilt from its log");
                self.revive_later(session_id, STORE_RETRY_DELAY, ctx);
            }
            End::Failed(error) => {
                tracing::error!(%session_id, %error, "session actor failed");
                self.watch.fail(&format!("session {session_id}: {error}"));
                let count = self.note_failure(session_id, error);
                if count >= SESSION_FAILURES_MAX {
                    self.park(session_id, ctx);
                } else if unfinished {
                    let delay = SESSION_RESTART_DELAY * 2u32.saturating_pow(count - 1);
                    self.revive_later(session_id, delay, ctx);
                }
            }
        }
        self.show();
    }
}

/// Brings sessions to life without asking anything of them: at start, those with an unfinished
/// run.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Revive(pub Vec<SessionId>);

impl Handler<Revive> for SessionRegistry {
    type Result = ();

    fn handle(&mut self, Revive(sessions): Revive, ctx: &mut Self::Context) {
        self.watch.tick();
        let sessions = if self.halted { Vec::new() } else { sessions };
        for session_id in sessions {
            self.live(session_id, ctx);
        }
    }
}

/// An administrator tries a parked session once more (A2).
impl Handler<Obey> for SessionRegistry {
    type Result = ();

    fn handle(&mut self, Obey { path, .. }: Obey, ctx: &mut Self::Context) {
        self.watch.tick();
        let id = path.strip_prefix("/sessions/").and_then(|id| id.parse().ok()).map(SessionId);
        let id = id.filter(|_| !self.halted);
        let parked = id.filter(|id| self.failures.get(id).is_some_and(|it| it.parked.is_some()));
        if let Some(session_id) = parked {
            self.failures.remove(&session_id);
            self.live(session_id, ctx);
        }
    }
}

/// Takes nothing new from here on (D8).
#[derive(Message)]
#[rtype(result = "()")]
pub struct Drain;

impl Handler<Drain> for SessionRegistry {
    type Result = ();

    fn handle(&mut self, _: Drain, _ctx: &mut Self::Context) {
        self.watch.tick();
        self.draining = true;
        self.show();
    }
}

/// Lets every session leave; none comes to life any more (D8).
#[derive(Message)]
#[rtype(result = "()")]
pub struct Halt;

impl Handler<Halt> for SessionRegistry {
    type Result = ();

    fn handle(&mut self, _: Halt, _ctx: &mut Self::Context) {
        self.watch.tick();
        (self.draining, self.halted) = (true, true);
        self.live.values().for_each(|live| live.mailbox.tell(Passivate));
        self.show();
    }
}

/// How many sessions are live.
#[derive(Message)]
#[rtype(result = "usize")]
pub struct CountLive;

impl Handler<CountLive> for SessionRegistry {
    type Result = MessageResult<CountLive>;

    fn handle(&mut self, _: CountLive, _ctx: &mut Self::Context) -> Self::Result {
        self.watch.tick();
        MessageResult(self.live.len())
    }
}
