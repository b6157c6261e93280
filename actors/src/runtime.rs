//! The actors, started and wired: what `src/` talks to.

use crate::{
    approval_desk::{ApprovalDesk, CountWaiting, Introduce, Track},
    event_bus::{AnnounceDraining, AnnouncePurged, EventBus, Peek},
    feed::Outlet,
    firehose::FirehoseSubscriber,
    governance::Governance,
    limits::{HALT_POLL, LOG_PAGE_EVENTS, PURGE_ATTEMPTS_MAX},
    mailbox::Mailbox,
    observation::Board,
    ports::{
        Clock, Descent, Journal, JournalError, Meter, ModelClient, Purge, SessionQuery, ToolHost,
    },
    session::{CommandError, Surroundings},
    session_registry::{
        CountLive, Deliver, Drain, Evict, Halt, Home, Revive, SessionRegistry, home_of,
    },
    subscriber::{Counted, Subscriber, Subscription, open_at},
    turnstile::Turnstile,
};
use actix::{Actor, Addr, Arbiter};
use greenroom_core::{
    Env,
    cursor::Cursor,
    ids::{AgentName, Seq, SessionId, UserId},
    session::{Input, Rejection, Reply, SessionEvent},
};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::sync::{oneshot, watch};
use uuid::Uuid;

/// What the runtime is made of.
pub struct Parts {
    /// The log.
    pub journal: Arc<dyn Journal>,
    /// The models.
    pub models: Arc<dyn ModelClient>,
    /// The tools.
    pub tools: Arc<dyn ToolHost>,
    /// Time and randomness.
    pub clock: Arc<dyn Clock>,
    /// The board, on which tools may already stand.
    pub board: Board,
    /// Agents and policy.
    pub governance: Governance,
    /// Who counts what happens.
    pub meter: Arc<dyn Meter>,
    /// How long an idle session stays in memory.
    pub idle_timeout: Duration,
    /// How long text and the progress of tools are collected before they leave (E5).
    pub flush: Duration,
    /// Threads for sessions; at least one.
    pub arbiters: usize,
}

/// A handle on the running actors. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    /// The log.
    pub journal: Arc<dyn Journal>,
    /// The tools.
    pub tools: Arc<dyn ToolHost>,
    /// All live actors.
    pub board: Board,
    /// Time and randomness.
    pub clock: Arc<dyn Clock>,
    around: Arc<Surroundings>,
    registry: Mailbox<SessionRegistry>,
    desk: Mailbox<ApprovalDesk>,
    approval_changes: watch::Receiver<()>,
    homes: Arc<[Home]>,
    subscribers: Arc<Mutex<HashMap<SessionId, Arc<AtomicUsize>>>>,
    subscribers_ever: Arc<AtomicUsize>,
}

/// Why a stream can't start at a cursor.
#[derive(Debug, thiserror::Error)]
pub enum CursorError {
    /// No message is open there, or the offset is inside a character.
    #[error("no message is open at that cursor, or its offset is inside a character")]
    Invalid,
    /// It lies beyond what there is.
    #[error("the cursor lies beyond the last event, {head}")]
    Ahead {
        /// The last event.
        head: Seq,
    },
    /// The log can't be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl Runtime {
    /// Starts the actors; unfinished sessions come back to life, and what waits for people is at
    /// the desk with its old deadline (D2). Needs a running actix system.
    pub async fn start(parts: Parts) -> Result<Self, JournalError> {
        let Parts { journal, models, tools, clock, board, governance, meter, .. } = parts;
        let (idle_timeout, flush) = (parts.idle_timeout, parts.flush);
        let homes = 0..parts.arbiters.max(1);
        let homes = homes.map(|index| home(index, &board, meter.clone(), flush));
        let homes: Arc<[Home]> = homes.collect();
        let desk_watch = board.watch("/desk", "ApprovalDesk");
        let (changes, approval_changes) = watch::channel(());
        let desk = ApprovalDesk::new(clock.clone(), changes, desk_watch.clone()).start();
        let desk = Mailbox::new(desk, desk_watch);
        let turnstile_watch = board.watch("/turnstile", "Turnstile");
        let turnstile = Turnstile::new(turnstile_watch.clone()).start();
        let around = Arc::new(Surroundings {
            journal: journal.clone(),
            models,
            tools: tools.clone(),
            clock: clock.clone(),
            governance,
            board: board.clone(),
            meter,
            turnstile: Mailbox::new(turnstile, turnstile_watch),
            homes: homes.clone(),
            idle_timeout,
            draining: AtomicBool::new(false),
        });
        let watch = board.watch("/registry", "SessionRegistry");
        let registry = SessionRegistry::new(around.clone(), desk.clone(), watch.clone());
        // Where sessions are, so that a command on its way to one does not wake a thread for this.
        let registry = SessionRegistry::start_in_arbiter(&homes[0].arbiter, |_| registry);
        let registry = Mailbox::new(registry, watch);
        desk.tell(Introduce(registry.clone()));
        for (approval_id, session_id, deadline) in journal.pending_deadlines().await? {
            desk.tell(Track { approval_id, session_id, deadline });
        }
        registry.tell(Revive(journal.unfinished_sessions().await?));
        Ok(Self {
            journal,
            tools,
            board,
            clock,
            around,
            registry,
            desk,
            approval_changes,
            homes,
            subscribers: Arc::default(),
            subscribers_ever: Arc::default(),
        })
    }

    /// What configuration says of agents and policy.
    pub fn governance(&self) -> &Governance {
        &self.around.governance
    }

    /// Decides `input`, commits what was decided, and answers.
    pub async fn command(
        &self,
        session_id: SessionId,
        input: Input,
    ) -> Result<Reply, CommandError> {
        let (sender, receiver) = oneshot::channel();
        self.registry.tell(Deliver { session_id, input, reply: Some(sender) });
        let ended = "its actor failed before it answered; ask again".to_owned();
        receiver.await.unwrap_or(Err(CommandError::Unavailable(ended)))
    }

    /// Removes a session for good (S1), after all that work or worked for it (S8): closes it, which cancels its run, its questions and what is
    /// queued; then removes everything of it in one commit; then its actor leaves, and who listens is
    /// told. Dying in between leaves it closed or gone.
    pub async fn purge(&self, session_id: SessionId, by: UserId) -> Result<(), CommandError> {
        self.close_to_purge(session_id, &by).await?;
        loop {
            let descent = Descent::ChildrenOf(session_id);
            let query = SessionQuery { descent, limit: LOG_PAGE_EVENTS, ..SessionQuery::default() };
            let children = self.journal.sessions(query).await.map_err(unavailable)?;
            if children.is_empty() {
                break;
            }
            for child in children {
                // A future that holds itself needs a box; children are no deeper than configured.
                Box::pin(self.purge(child.session_id, by.clone())).await?;
            }
        }
        for _ in 0..PURGE_ATTEMPTS_MAX {
            self.close_to_purge(session_id, &by).await?;
            let expected_head = self.journal.head(session_id).await.map_err(unavailable)?;
            let (at, by) = (self.clock.now(), by.clone());
            match self.journal.purge(Purge { session_id, expected_head, by, at }).await {
                Ok(()) => {
                    self.registry.tell(Evict(session_id));
                    home_of(session_id, &self.homes).bus.tell(AnnouncePurged(session_id));
                    return Ok(());
                }
                Err(JournalError::Conflict) if expected_head == Seq(0) => {
                    return Err(Rejection::UnknownSession.into());
                }
                // A last word came in between, as of a tool that was late.
                Err(JournalError::Conflict) => {}
                Err(error) => return Err(unavailable(error)),
            }
        }
        Err(CommandError::Unavailable("the session does not come to rest".to_owned()))
    }

    async fn close_to_purge(&self, session_id: SessionId, by: &UserId) -> Result<(), CommandError> {
        let close = Input::Close { by: by.clone(), partial: None };
        match self.command(session_id, close).await {
            // What can't be brought to life can't be closed, and can be removed all the same.
            Ok(_) | Err(CommandError::Parked { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// A fresh id, sortable by time.
    pub fn new_id(&self) -> Uuid {
        let agent = AgentName::parse("none").expect("a plain word is an agent's name");
        let rules = self.around.governance.rules(&agent, None, self.tools.as_ref());
        Env::new(self.clock.now(), self.clock.seed(), &rules).uuid()
    }

    /// Checks that a stream can start at `cursor` (E3).
    pub async fn check_cursor(
        &self,
        session_id: SessionId,
        cursor: Cursor,
    ) -> Result<(), CursorError> {
        let head = self.journal.head(session_id).await?;
        if cursor.seq > head {
            return Err(CursorError::Ahead { head });
        }
        let Ok(offset) = usize::try_from(cursor.offset) else { return Err(CursorError::Invalid) };
        if offset == 0 {
            return Ok(());
        }
        let open = open_at(self.journal.as_ref(), session_id, cursor.seq).await?;
        let message_id = open.ok_or(CursorError::Invalid)?.message_id;
        // Live first: what completes in between is then in the log.
        let live = home_of(session_id, &self.homes).bus.ask(Peek(session_id)).await.flatten();
        let mut seq = cursor.seq;
        loop {
            let page = self.journal.read(session_id, seq, LOG_PAGE_EVENTS).await?;
            let Some(last) = page.last() else { break };
            let ended = page.iter().find_map(|record| {
                if let SessionEvent::MessageCompleted { message_id: id, text, .. } = &record.event {
                    (*id == message_id).then(|| Some(text.clone()))
                } else if let SessionEvent::MessageDiscarded { message_id: id, .. } = &record.event
                {
                    (*id == message_id).then_some(None)
                } else {
                    None
                }
            });
            match ended {
                Some(Some(text)) => return check_offset(&text, offset, head),
                // What comes next says that it is void.
                Some(None) => return Ok(()),
                None => seq = last.seq,
            }
        }
        match live.filter(|live| live.message_id == message_id) {
            Some(live) => check_offset(&live.text, offset, head),
            None => Ok(()),
        }
    }

    /// Starts a subscriber on the caller's arbiter: it replays from the cursor, then tails.
    pub fn subscribe(
        &self,
        session_id: SessionId,
        agent: AgentName,
        cursor: Cursor,
        outlet: Box<dyn Outlet>,
    ) -> Addr<Subscriber> {
        let counted = Counted::new(self.counter(session_id));
        let bus = home_of(session_id, &self.homes).bus.clone();
        let journal = self.journal.clone();
        let path = format!("/subscribers/{session_id}/{}", self.next_subscriber());
        let watch = self.board.watch(path, "Subscriber");
        let what = Subscription { session_id, agent, cursor };
        Subscriber::new(what, journal, bus, outlet, watch, counted).start()
    }

    /// Starts a subscriber to the committed events of all sessions from now on.
    pub fn subscribe_all(&self, outlet: Box<dyn Outlet>) -> Addr<FirehoseSubscriber> {
        let buses = self.homes.iter().map(|home| home.bus.clone()).collect();
        let path = format!("/subscribers/all/{}", self.next_subscriber());
        let watch = self.board.watch(path, "FirehoseSubscriber");
        FirehoseSubscriber::new(buses, outlet, watch).start()
    }

    fn next_subscriber(&self) -> usize {
        self.subscribers_ever.fetch_add(1, Relaxed) + 1
    }

    /// How many subscribers a session has.
    pub fn subscribers(&self, session_id: SessionId) -> usize {
        self.counter(session_id).load(Relaxed)
    }

    /// How many sessions are live.
    pub async fn live_sessions(&self) -> usize {
        self.registry.ask(CountLive).await.unwrap_or(0)
    }

    /// How many questions wait for people.
    pub async fn waiting_approvals(&self) -> usize {
        self.desk.ask(CountWaiting).await.unwrap_or(0)
    }

    /// Wakes whoever looks on when a question to people was asked, answered or closed. What became of
    /// it is in the store by then.
    pub fn approval_changes(&self) -> watch::Receiver<()> {
        self.approval_changes.clone()
    }

    /// Takes nothing new, begins nothing more, and tells every subscriber (D8).
    pub fn drain(&self) {
        self.around.draining.store(true, Relaxed);
        self.registry.tell(Drain);
        for home in self.homes.iter() {
            home.bus.tell(AnnounceDraining);
        }
    }

    /// Lets every session leave memory, and waits until they have, within `patience`: what their
    /// tools and models are cut off from then is not told as a failure of theirs. What is unfinished
    /// goes on when another process reads the logs (D8).
    pub async fn halt(&self, patience: Duration) {
        self.registry.tell(Halt);
        let left = async {
            while self.live_sessions().await > 0 {
                tokio::time::sleep(HALT_POLL).await;
            }
        };
        if tokio::time::timeout(patience, left).await.is_err() {
            tracing::warn!("some sessions do not leave memory; they are cut off");
        }
    }

    fn counter(&self, session_id: SessionId) -> Arc<AtomicUsize> {
        let mut subscribers = self.subscribers.lock().unwrap_or_else(PoisonError::into_inner);
        if subscribers.len() > 1024 {
            subscribers.retain(|_, count| Arc::strong_count(count) > 1);
        }
        subscribers.entry(session_id).or_default().clone()
    }
}

fn unavailable(error: JournalError) -> CommandError {
    CommandError::Unavailable(error.to_string())
}

fn home(index: usize, board: &Board, meter: Arc<dyn Meter>, flush: Duration) -> Home {
    let arbiter = Arbiter::new().handle();
    let watch = board.watch(format!("/bus/{index}"), "EventBus");
    let shown = watch.clone();
    let bus = move |_: &mut _| EventBus::new(shown, meter, flush);
    let bus = EventBus::start_in_arbiter(&arbiter, bus);
    Home { arbiter, bus: Mailbox::new(bus, watch) }
}

fn check_offset(text: &str, offset: usize, head: Seq) -> Result<(), CursorError> {
    match offset {
        _ if offset > text.len() => Err(CursorError::Ahead { head }),
        _ if text.is_char_boundary(offset) => Ok(()),
        _ => Err(CursorError::Invalid),
    }
}
