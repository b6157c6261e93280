//! The actors, started and wired: what `src/` talks to.

use crate::{
    approval_desk::{ApprovalDesk, CountPendingApprovals, SetRegistry, TrackApproval},
    event_bus::{EventBus, GetOpenMessage, NotifyDraining, NotifyPurged},
    exclusive_locks::ExclusiveLocks,
    feed::Outlet,
    firehose::FirehoseSubscriber,
    governance::Governance,
    limits::{LOG_PAGE_EVENTS, PURGE_ATTEMPTS_MAX, SHUTDOWN_POLL_INTERVAL},
    mailbox::Mailbox,
    ports::{
        Clock, Journal, JournalError, Meter, ModelClient, ParentFilter, PurgeRequest, SessionQuery,
        ToolHost,
    },
    session::{CommandError, SessionDeps},
    session_registry::{
        CountLiveSessions, DeliverInput, EvictSession, PassivateAll, ResumeSessions,
        SessionRegistry, Shard, StartDraining, shard_of,
    },
    status_board::StatusBoard,
    subscriber::{Subscriber, SubscriberCountGuard, SubscriptionRequest, load_open_message_at},
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
pub struct RuntimeParams {
    /// The log.
    pub journal: Arc<dyn Journal>,
    /// The models.
    pub models: Arc<dyn ModelClient>,
    /// The tools.
    pub tools: Arc<dyn ToolHost>,
    /// Time and randomness.
    pub clock: Arc<dyn Clock>,
    /// The board, on which tools may already stand.
    pub status_board: StatusBoard,
    /// Agents and policy.
    pub governance: Governance,
    /// Who counts what happens.
    pub meter: Arc<dyn Meter>,
    /// How long an idle session stays in memory.
    pub idle_timeout: Duration,
    /// How long text and the progress of tools are collected before they leave (E5).
    pub flush_interval: Duration,
    /// Threads for sessions; at least one.
    pub shard_count: usize,
}

/// A handle on the running actors. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    /// The log.
    pub journal: Arc<dyn Journal>,
    /// The tools.
    pub tools: Arc<dyn ToolHost>,
    /// All live actors.
    pub status_board: StatusBoard,
    /// Time and randomness.
    pub clock: Arc<dyn Clock>,
    deps: Arc<SessionDeps>,
    registry: Mailbox<SessionRegistry>,
    desk: Mailbox<ApprovalDesk>,
    approval_changes: watch::Receiver<()>,
    shards: Arc<[Shard]>,
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
    BeyondHead {
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
    pub async fn start(parts: RuntimeParams) -> Result<Self, JournalError> {
        let RuntimeParams {
            journal,
            models,
            tools,
            clock,
            status_board: board,
            governance,
            meter,
            ..
        } = parts;
        let (idle_timeout, flush) = (parts.idle_timeout, parts.flush_interval);
        let homes = 0..parts.shard_count.max(1);
        let homes = homes.map(|index| start_shard(index, &board, meter.clone(), flush));
        let homes: Arc<[Shard]> = homes.collect();
        let desk_watch = board.register("/desk", "ApprovalDesk");
        let (changes, approval_changes) = watch::channel(());
        let desk = ApprovalDesk::new(clock.clone(), changes, desk_watch.clone()).start();
        let desk = Mailbox::new(desk, desk_watch);
        let turnstile_watch = board.register("/turnstile", "Turnstile");
        let turnstile = ExclusiveLocks::new(turnstile_watch.clone()).start();
        let around = Arc::new(SessionDeps {
            journal: journal.clone(),
            models,
            tools: tools.clone(),
            clock: clock.clone(),
            governance,
            status_board: board.clone(),
            meter,
            exclusive_locks: Mailbox::new(turnstile, turnstile_watch),
            shards: homes.clone(),
            idle_timeout,
            draining: AtomicBool::new(false),
        });
        let watch = board.register("/registry", "SessionRegistry");
        let registry = SessionRegistry::new(around.clone(), desk.clone(), watch.clone());
        // Where sessions are, so that a command on its way to one does not wake a thread for this.
        let registry = SessionRegistry::start_in_arbiter(&homes[0].arbiter, |_| registry);
        let registry = Mailbox::new(registry, watch);
        desk.send(SetRegistry(registry.clone()));
        for (approval_id, session_id, deadline) in journal.list_pending_deadlines().await? {
            desk.send(TrackApproval { approval_id, session_id, deadline });
        }
        registry.send(ResumeSessions(journal.list_unfinished_sessions().await?));
        Ok(Self {
            journal,
            tools,
            status_board: board,
            clock,
            deps: around,
            registry,
            desk,
            approval_changes,
            shards: homes,
            subscribers: Arc::default(),
            subscribers_ever: Arc::default(),
        })
    }

    /// What configuration says of agents and policy.
    pub fn governance(&self) -> &Governance {
        &self.deps.governance
    }

    /// Decides `input`, commits what was decided, and answers.
    pub async fn execute(
        &self,
        session_id: SessionId,
        input: Input,
    ) -> Result<Reply, CommandError> {
        let (sender, receiver) = oneshot::channel();
        self.registry.send(DeliverInput { session_id, input, reply: Some(sender) });
        let ended = "its actor failed before it answered; ask again".to_owned();
        receiver.await.unwrap_or(Err(CommandError::Unavailable(ended)))
    }

    /// Removes a session for good (S1), after all that work or worked for it (S8): closes it, which cancels its run, its questions and what is
    /// queued; then removes everything of it in one commit; then its actor leaves, and who listens is
    /// told. Dying in between leaves it closed or gone.
    pub async fn purge(&self, session_id: SessionId, by: UserId) -> Result<(), CommandError> {
        self.close_before_purge(session_id, &by).await?;
        loop {
            let descent = ParentFilter::ChildrenOf(session_id);
            let query = SessionQuery {
                parent_filter: descent,
                limit: LOG_PAGE_EVENTS,
                ..SessionQuery::default()
            };
            let children = self.journal.list_sessions(query).await.map_err(unavailable)?;
            if children.is_empty() {
                break;
            }
            for child in children {
                // A future that holds itself needs a box; children are no deeper than configured.
                Box::pin(self.purge(child.session_id, by.clone())).await?;
            }
        }
        for _ in 0..PURGE_ATTEMPTS_MAX {
            self.close_before_purge(session_id, &by).await?;
            let expected_head = self.journal.load_head(session_id).await.map_err(unavailable)?;
            let (at, by) = (self.clock.now(), by.clone());
            match self.journal.purge(PurgeRequest { session_id, expected_head, by, at }).await {
                Ok(()) => {
                    self.registry.send(EvictSession(session_id));
                    shard_of(session_id, &self.shards).bus.send(NotifyPurged(session_id));
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

    async fn close_before_purge(
        &self,
        session_id: SessionId,
        by: &UserId,
    ) -> Result<(), CommandError> {
        let close = Input::CloseSession { by: by.clone(), partial: None };
        match self.execute(session_id, close).await {
            // What can't be brought to life can't be closed, and can be removed all the same.
            Ok(_) | Err(CommandError::Parked { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// A fresh id, sortable by time.
    pub fn new_id(&self) -> Uuid {
        let agent = AgentName::parse("none").expect("a plain word is an agent's name");
        let rules = self.deps.governance.rules(&agent, None, self.tools.as_ref());
        Env::new(self.clock.now(), self.clock.seed(), &rules).uuid()
    }

    /// Checks that a stream can start at `cursor` (E3).
    pub async fn validate_cursor(
        &self,
        session_id: SessionId,
        cursor: Cursor,
    ) -> Result<(), CursorError> {
        let head = self.journal.load_head(session_id).await?;
        if cursor.seq > head {
            return Err(CursorError::BeyondHead { head });
        }
        let Ok(offset) = usize::try_from(cursor.offset) else { return Err(CursorError::Invalid) };
        if offset == 0 {
            return Ok(());
        }
        let open = load_open_message_at(self.journal.as_ref(), session_id, cursor.seq).await?;
        let message_id = open.ok_or(CursorError::Invalid)?.message_id;
        // Live first: what completes in between is then in the log.
        let live =
            shard_of(session_id, &self.shards).bus.ask(GetOpenMessage(session_id)).await.flatten();
        let mut seq = cursor.seq;
        loop {
            let page = self.journal.load_events(session_id, seq, LOG_PAGE_EVENTS).await?;
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
                Some(Some(text)) => return validate_offset(&text, offset, head),
                // What comes next says that it is void.
                Some(None) => return Ok(()),
                None => seq = last.seq,
            }
        }
        match live.filter(|live| live.message_id == message_id) {
            Some(live) => validate_offset(&live.text, offset, head),
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
        let counted = SubscriberCountGuard::new(self.counter(session_id));
        let bus = shard_of(session_id, &self.shards).bus.clone();
        let journal = self.journal.clone();
        let path = format!("/subscribers/{session_id}/{}", self.next_subscriber());
        let watch = self.status_board.register(path, "Subscriber");
        let what = SubscriptionRequest { session_id, agent, cursor };
        Subscriber::new(what, journal, bus, outlet, watch, counted).start()
    }

    /// Starts a subscriber to the committed events of all sessions from now on.
    pub fn subscribe_all(&self, outlet: Box<dyn Outlet>) -> Addr<FirehoseSubscriber> {
        let buses = self.shards.iter().map(|home| home.bus.clone()).collect();
        let path = format!("/subscribers/all/{}", self.next_subscriber());
        let watch = self.status_board.register(path, "FirehoseSubscriber");
        FirehoseSubscriber::new(buses, outlet, watch).start()
    }

    fn next_subscriber(&self) -> usize {
        self.subscribers_ever.fetch_add(1, Relaxed) + 1
    }

    /// How many subscribers a session has.
    pub fn subscriber_count(&self, session_id: SessionId) -> usize {
        self.counter(session_id).load(Relaxed)
    }

    /// How many sessions are live.
    pub async fn live_session_count(&self) -> usize {
        self.registry.ask(CountLiveSessions).await.unwrap_or(0)
    }

    /// How many questions wait for people.
    pub async fn pending_approval_count(&self) -> usize {
        self.desk.ask(CountPendingApprovals).await.unwrap_or(0)
    }

    /// Wakes whoever looks on when a question to people was asked, answered or closed. What became of
    /// it is in the store by then.
    pub fn approval_changes(&self) -> watch::Receiver<()> {
        self.approval_changes.clone()
    }

    /// Takes nothing new, begins nothing more, and tells every subscriber (D8).
    pub fn drain(&self) {
        self.deps.draining.store(true, Relaxed);
        self.registry.send(StartDraining);
        for home in self.shards.iter() {
            home.bus.send(NotifyDraining);
        }
    }

    /// Lets every session leave memory, and waits until they have, within `patience`: what their
    /// tools and models are cut off from then is not told as a failure of theirs. What is unfinished
    /// goes on when another process reads the logs (D8).
    pub async fn shut_down(&self, patience: Duration) {
        self.registry.send(PassivateAll);
        let left = async {
            while self.live_session_count().await > 0 {
                tokio::time::sleep(SHUTDOWN_POLL_INTERVAL).await;
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

fn start_shard(index: usize, board: &StatusBoard, meter: Arc<dyn Meter>, flush: Duration) -> Shard {
    let arbiter = Arbiter::new().handle();
    let watch = board.register(format!("/bus/{index}"), "EventBus");
    let shown = watch.clone();
    let bus = move |_: &mut _| EventBus::new(shown, meter, flush);
    let bus = EventBus::start_in_arbiter(&arbiter, bus);
    Shard { arbiter, bus: Mailbox::new(bus, watch) }
}

fn validate_offset(text: &str, offset: usize, head: Seq) -> Result<(), CursorError> {
    match offset {
        _ if offset > text.len() => Err(CursorError::BeyondHead { head }),
        _ if text.is_char_boundary(offset) => Ok(()),
        _ => Err(CursorError::Invalid),
    }
}
