//! Starts and connects the actors. The interface that `src/` uses.

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
    cursor::{Cursor, StreamStart},
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

/// Ports, governance and settings that the runtime is started with.
pub struct RuntimeParams {
    /// The event log.
    pub journal: Arc<dyn Journal>,
    /// The client of the language models.
    pub models: Arc<dyn ModelClient>,
    /// The host that runs tool calls.
    pub tools: Arc<dyn ToolHost>,
    /// The source of time and randomness.
    pub clock: Arc<dyn Clock>,
    /// The status board. Tool connections may already be registered on it.
    pub status_board: StatusBoard,
    /// Agent profiles and policy.
    pub governance: Governance,
    /// The receiver of metrics.
    pub meter: Arc<dyn Meter>,
    /// Time after which an idle session is passivated.
    pub idle_timeout: Duration,
    /// Interval over which text and tool progress are batched before they are sent (E5).
    pub flush_interval: Duration,
    /// Number of shards, one thread each; at least one.
    pub shard_count: usize,
}

/// A handle to the running actors. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    /// The event log.
    pub journal: Arc<dyn Journal>,
    /// The host that runs tool calls.
    pub tools: Arc<dyn ToolHost>,
    /// The snapshots of all live actors.
    pub status_board: StatusBoard,
    /// The source of time and randomness.
    pub clock: Arc<dyn Clock>,
    deps: Arc<SessionDeps>,
    registry: Mailbox<SessionRegistry>,
    desk: Mailbox<ApprovalDesk>,
    approval_changes: watch::Receiver<()>,
    shards: Arc<[Shard]>,
    subscribers: Arc<Mutex<HashMap<SessionId, Arc<AtomicUsize>>>>,
    subscribers_started: Arc<AtomicUsize>,
}

/// The reason why a stream can't start at a cursor.
#[derive(Debug, thiserror::Error)]
pub enum CursorError {
    /// No message is open at the cursor, or its offset is inside a character.
    #[error("`cursor`: no message is open there, or the offset is inside a character")]
    Invalid,
    /// The cursor is beyond the last event or the text received so far.
    #[error("`cursor`: beyond the last event, which is {head}")]
    BeyondHead {
        /// The number of the last event.
        head: Seq,
    },
    /// Reading the log failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl Runtime {
    /// Starts the actors, resumes sessions with an unfinished run, and tracks pending approvals
    /// with their stored deadlines (D2). Must be called within a running actix system.
    pub async fn start(params: RuntimeParams) -> Result<Self, JournalError> {
        let RuntimeParams {
            journal, models, tools, clock, status_board, governance, meter, ..
        } = params;
        let (idle_timeout, flush_interval) = (params.idle_timeout, params.flush_interval);
        let shards = 0..params.shard_count.max(1);
        let shards =
            shards.map(|index| start_shard(index, &status_board, meter.clone(), flush_interval));
        let shards: Arc<[Shard]> = shards.collect();
        let desk_entry = status_board.register("/desk", "ApprovalDesk");
        let (changes, approval_changes) = watch::channel(());
        let desk = ApprovalDesk::new(clock.clone(), changes, desk_entry.clone()).start();
        let desk = Mailbox::new(desk, desk_entry);
        let locks_entry = status_board.register("/turnstile", "Turnstile");
        let locks = ExclusiveLocks::new(locks_entry.clone()).start();
        let deps = Arc::new(SessionDeps {
            journal: journal.clone(),
            models,
            tools: tools.clone(),
            clock: clock.clone(),
            governance,
            status_board: status_board.clone(),
            meter,
            exclusive_locks: Mailbox::new(locks, locks_entry),
            shards: shards.clone(),
            idle_timeout,
            draining: AtomicBool::new(false),
        });
        let status_entry = status_board.register("/registry", "SessionRegistry");
        let registry = SessionRegistry::new(deps.clone(), desk.clone(), status_entry.clone());
        // The registry runs on the first shard, so that a command usually wakes one thread fewer.
        let registry = SessionRegistry::start_in_arbiter(&shards[0].arbiter, |_| registry);
        let registry = Mailbox::new(registry, status_entry);
        desk.send(SetRegistry(registry.clone()));
        for (approval_id, session_id, deadline) in journal.list_pending_deadlines().await? {
            desk.send(TrackApproval { approval_id, session_id, deadline });
        }
        registry.send(ResumeSessions(journal.list_unfinished_sessions().await?));
        Ok(Self {
            journal,
            tools,
            status_board,
            clock,
            deps,
            registry,
            desk,
            approval_changes,
            shards,
            subscribers: Arc::default(),
            subscribers_started: Arc::default(),
        })
    }

    /// Returns the agent profiles and the policy.
    pub fn governance(&self) -> &Governance {
        &self.deps.governance
    }

    /// Sends `input` to a session, which decides it and commits the decision. Returns the reply.
    pub async fn execute(
        &self,
        session_id: SessionId,
        input: Input,
    ) -> Result<Reply, CommandError> {
        let (sender, receiver) = oneshot::channel();
        self.registry.send(DeliverInput { session_id, input, reply: Some(sender) });
        let error = "the session's actor failed before it replied; retry the request".to_owned();
        receiver.await.unwrap_or(Err(CommandError::Unavailable(error)))
    }

    /// Removes a session permanently (S1), after its child sessions (S8).
    ///
    /// Closes the session, which cancels its run, its pending approvals and its queued messages;
    /// removes all of its data in one commit; then stops its actor and notifies its subscribers. A
    /// crash in between leaves the session closed or removed.
    pub async fn purge(&self, session_id: SessionId, user: UserId) -> Result<(), CommandError> {
        self.close_before_purge(session_id, &user).await?;
        loop {
            let parent_filter = ParentFilter::ChildrenOf(session_id);
            let query =
                SessionQuery { parent_filter, limit: LOG_PAGE_EVENTS, ..SessionQuery::default() };
            let children = self.journal.list_sessions(query).await.map_err(unavailable)?;
            if children.is_empty() {
                break;
            }
            for child in children {
                // A recursive future needs a box. The depth is bounded by configuration.
                Box::pin(self.purge(child.session_id, user.clone())).await?;
            }
        }
        for _ in 0..PURGE_ATTEMPTS_MAX {
            self.close_before_purge(session_id, &user).await?;
            let expected_head = self.journal.load_head(session_id).await.map_err(unavailable)?;
            let (at, by) = (self.clock.now(), user.clone());
            match self.journal.purge(PurgeRequest { session_id, expected_head, by, at }).await {
                Ok(()) => {
                    self.registry.send(EvictSession(session_id));
                    shard_of(session_id, &self.shards).bus.send(NotifyPurged(session_id));
                    return Ok(());
                }
                Err(JournalError::Conflict) if expected_head == Seq(0) => {
                    return Err(Rejection::UnknownSession.into());
                }
                // An event was appended in between, such as a late tool result.
                Err(JournalError::Conflict) => {}
                Err(error) => return Err(unavailable(error)),
            }
        }
        let error = "the session still receives events; retry the purge".to_owned();
        Err(CommandError::Unavailable(error))
    }

    async fn close_before_purge(
        &self,
        session_id: SessionId,
        user: &UserId,
    ) -> Result<(), CommandError> {
        let close = Input::CloseSession { by: user.clone(), partial: None };
        match self.execute(session_id, close).await {
            // A parked session can't be closed, but it can be removed.
            Ok(_) | Err(CommandError::Parked { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns a new UUID that sorts by time.
    pub fn new_id(&self) -> Uuid {
        let agent = AgentName::parse("none").expect("`none` is a valid agent name");
        let rules = self.deps.governance.rules(&agent, None, self.tools.as_ref());
        Env::new(self.clock.now(), self.clock.seed(), &rules).uuid()
    }

    /// Returns the cursor of a stream's start, which a stream of the session can start at (E3). For
    /// [`StreamStart::Now`] it is the last event; the text of a message that is open there is
    /// streamed from its beginning.
    pub async fn resolve_stream_start(
        &self,
        session_id: SessionId,
        start: StreamStart,
    ) -> Result<Cursor, CursorError> {
        match start {
            StreamStart::After(cursor) => {
                self.validate_cursor(session_id, cursor).await?;
                Ok(cursor)
            }
            StreamStart::Now => Ok(Cursor::after_seq(self.journal.load_head(session_id).await?)),
        }
    }

    /// Checks that a stream of the session can start at `cursor` (E3).
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
        let stored_message =
            load_open_message_at(self.journal.as_ref(), session_id, cursor.seq).await?;
        let message_id = stored_message.ok_or(CursorError::Invalid)?.message_id;
        // Query the bus before the log: a message that completes in between is then in the log.
        let open_message = shard_of(session_id, &self.shards)
            .bus
            .request(GetOpenMessage(session_id))
            .await
            .flatten();
        let mut seq = cursor.seq;
        loop {
            let page = self.journal.load_events(session_id, seq, LOG_PAGE_EVENTS).await?;
            let Some(last) = page.last() else { break };
            let message_end = page.iter().find_map(|record| {
                if let SessionEvent::MessageCompleted { message_id: id, text, .. } = &record.event {
                    (*id == message_id).then(|| Some(text.clone()))
                } else if let SessionEvent::MessageDiscarded { message_id: id, .. } = &record.event
                {
                    (*id == message_id).then_some(None)
                } else {
                    None
                }
            });
            match message_end {
                Some(Some(text)) => return validate_offset(&text, offset, head),
                // The subscriber receives the event that discards the message.
                Some(None) => return Ok(()),
                None => seq = last.seq,
            }
        }
        match open_message.filter(|open_message| open_message.message_id == message_id) {
            Some(open_message) => validate_offset(&open_message.text, offset, head),
            None => Ok(()),
        }
    }

    /// Starts a subscriber on the caller's arbiter: it replays the log from `cursor`, then tails.
    pub fn subscribe(
        &self,
        session_id: SessionId,
        agent: AgentName,
        cursor: Cursor,
        outlet: Box<dyn Outlet>,
    ) -> Addr<Subscriber> {
        let count_guard = SubscriberCountGuard::new(self.subscriber_counter(session_id));
        let bus = shard_of(session_id, &self.shards).bus.clone();
        let journal = self.journal.clone();
        let path = format!("/subscribers/{session_id}/{}", self.next_subscriber_number());
        let status_entry = self.status_board.register(path, "Subscriber");
        let request = SubscriptionRequest { session_id, agent, cursor };
        Subscriber::new(request, journal, bus, outlet, status_entry, count_guard).start()
    }

    /// Starts a subscriber to the events of all sessions that are committed from now on.
    pub fn subscribe_all(&self, outlet: Box<dyn Outlet>) -> Addr<FirehoseSubscriber> {
        let buses = self.shards.iter().map(|shard| shard.bus.clone()).collect();
        let path = format!("/subscribers/all/{}", self.next_subscriber_number());
        let status_entry = self.status_board.register(path, "FirehoseSubscriber");
        FirehoseSubscriber::new(buses, outlet, status_entry).start()
    }

    fn next_subscriber_number(&self) -> usize {
        self.subscribers_started.fetch_add(1, Relaxed) + 1
    }

    /// Returns the number of subscribers of a session.
    pub fn subscriber_count(&self, session_id: SessionId) -> usize {
        self.subscriber_counter(session_id).load(Relaxed)
    }

    /// Returns the number of live sessions.
    pub async fn live_session_count(&self) -> usize {
        self.registry.request(CountLiveSessions).await.unwrap_or(0)
    }

    /// Returns the number of pending approvals.
    pub async fn pending_approval_count(&self) -> usize {
        self.desk.request(CountPendingApprovals).await.unwrap_or(0)
    }

    /// Returns a receiver that is notified after an approval was requested, answered or closed. The
    /// change is already stored when the notification arrives.
    pub fn approval_changes(&self) -> watch::Receiver<()> {
        self.approval_changes.clone()
    }

    /// Rejects new work, starts no further steps or calls, and notifies every subscriber (D8).
    pub fn drain(&self) {
        self.deps.draining.store(true, Relaxed);
        self.registry.send(StartDraining);
        for shard in self.shards.iter() {
            shard.bus.send(NotifyDraining);
        }
    }

    /// Passivates every session and waits at most `timeout` until none is live.
    ///
    /// Workers that are cut off by this are not recorded as failed. Another process that reads the
    /// logs resumes unfinished runs (D8).
    pub async fn shut_down(&self, timeout: Duration) {
        self.registry.send(PassivateAll);
        let all_passivated = async {
            while self.live_session_count().await > 0 {
                tokio::time::sleep(SHUTDOWN_POLL_INTERVAL).await;
            }
        };
        if tokio::time::timeout(timeout, all_passivated).await.is_err() {
            tracing::warn!("sessions are still live at the shutdown timeout; stopping them");
        }
    }

    fn subscriber_counter(&self, session_id: SessionId) -> Arc<AtomicUsize> {
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

fn start_shard(
    index: usize,
    status_board: &StatusBoard,
    meter: Arc<dyn Meter>,
    flush_interval: Duration,
) -> Shard {
    let arbiter = Arbiter::new().handle();
    let status_entry = status_board.register(format!("/bus/{index}"), "EventBus");
    let entry = status_entry.clone();
    let bus = move |_: &mut _| EventBus::new(entry, meter, flush_interval);
    let bus = EventBus::start_in_arbiter(&arbiter, bus);
    Shard { arbiter, bus: Mailbox::new(bus, status_entry) }
}

fn validate_offset(text: &str, offset: usize, head: Seq) -> Result<(), CursorError> {
    match offset {
        _ if offset > text.len() => Err(CursorError::BeyondHead { head }),
        _ if text.is_char_boundary(offset) => Ok(()),
        _ => Err(CursorError::Invalid),
    }
}
