//! What administrators see of live actors (A1): a board of snapshots beside the work.
//!
//! Each actor writes its own [`Watch`]; readers never queue behind the actor's work. actix shows
//! no mailbox depth, so [`crate::mailbox`] counts what is sent and handled here.

use actix::{WeakRecipient, prelude::SendError};
use greenroom_core::{Timestamp, ids::UserId, text::truncate};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use crate::{
    limits::STATUS_TEXT_BYTES_MAX,
    order::{ActorOrder, ExecuteOrder, OrderError},
    ports::Clock,
};
use utoipa::ToSchema;

/// All live actors.
#[derive(Clone)]
pub struct StatusBoard {
    clock: Arc<dyn Clock>,
    entries: Arc<Mutex<Entries>>,
}

/// An actor's own entry on the board; dropping the last clone takes the entry down.
#[derive(Clone)]
pub struct StatusEntry(Arc<EntryState>);

type Entries = BTreeMap<Arc<str>, Weak<EntryState>>;

struct EntryState {
    path: Arc<str>,
    kind: &'static str,
    started_at: Timestamp,
    clock: Arc<dyn Clock>,
    entries: Weak<Mutex<Entries>>,
    sent: AtomicU64,
    handled: AtomicU64,
    failed: AtomicU64,
    restarts: AtomicU64,
    depth_max: AtomicUsize,
    activity: Mutex<Activity>,
    order_target: Mutex<Option<OrderTarget>>,
}

/// Which orders an actor takes, and where to. The address keeps nobody alive.
struct OrderTarget {
    accepted: &'static [ActorOrder],
    recipient: WeakRecipient<ExecuteOrder>,
}

#[derive(Clone, Default)]
struct Activity {
    state: String,
    waiting: Option<WaitStatus>,
    message: Option<(&'static str, Timestamp)>,
    last_error: Option<String>,
}

/// Whom an actor waits for, and since when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct WaitStatus {
    /// A person, a model, a tool, a time …
    pub for_whom: String,
    /// Since when.
    pub since: Timestamp,
}

/// An actor as an administrator sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ActorSnapshot {
    /// `/sessions/{id}/steps/3`.
    pub path: String,
    /// What it is: `Session`, `LlmStream` …
    pub kind: &'static str,
    /// What it is doing, in one word.
    pub state: String,
    /// Whom it waits for.
    pub waiting: Option<WaitStatus>,
    /// Messages in the mailbox now.
    pub mailbox_depth: u64,
    /// The most there ever were.
    pub mailbox_depth_max: usize,
    /// The message it is handling.
    pub current_message: Option<&'static str>,
    /// Since when it handles it.
    pub current_message_since: Option<Timestamp>,
    /// Messages handled.
    pub handled: u64,
    /// Messages whose handling failed.
    pub failed: u64,
    /// Times it was brought back.
    pub restarts: u64,
    /// When it started.
    pub started_at: Timestamp,
    /// What failed last.
    pub last_error: Option<String>,
    /// The orders it takes.
    pub takes: &'static [ActorOrder],
}

impl StatusBoard {
    /// An empty board.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, entries: Arc::default() }
    }

    /// Puts an actor on the board. A second one under the same path hides the first.
    pub fn register(&self, path: impl Into<Arc<str>>, kind: &'static str) -> StatusEntry {
        let path: Arc<str> = path.into();
        let shared = Arc::new(EntryState {
            path: path.clone(),
            kind,
            started_at: self.clock.now(),
            clock: self.clock.clone(),
            entries: Arc::downgrade(&self.entries),
            sent: AtomicU64::new(0),
            handled: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            restarts: AtomicU64::new(0),
            depth_max: AtomicUsize::new(0),
            activity: Mutex::new(Activity { state: "starting".to_owned(), ..Activity::default() }),
            order_target: Mutex::default(),
        });
        lock(&self.entries).insert(path, Arc::downgrade(&shared));
        StatusEntry(shared)
    }

    /// The actors whose path starts with `prefix`, by path.
    pub fn snapshots(&self, prefix: &str) -> Vec<ActorSnapshot> {
        let entries: Vec<_> = lock(&self.entries)
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
            .take_while(|(path, _)| path.starts_with(prefix))
            .filter_map(|(_, entry)| entry.upgrade())
            .collect();
        entries.iter().map(|entry| entry.snapshot()).collect()
    }

    /// The actor at `path`.
    pub fn snapshot(&self, path: &str) -> Option<ActorSnapshot> {
        let entry = lock(&self.entries).get(path).and_then(Weak::upgrade)?;
        Some(entry.snapshot())
    }
}

impl StatusBoard {
    /// Tells the actor at `path` what to do (A2).
    pub fn send_order(&self, path: &str, order: ActorOrder, by: UserId) -> Result<(), OrderError> {
        let entry = lock(&self.entries).get(path).and_then(Weak::upgrade);
        let entry = entry.ok_or(OrderError::NotFound)?;
        let obeys = lock(&entry.order_target);
        let takes = obeys.as_ref().map_or(&[][..], |obeys| obeys.accepted);
        let Some(obeys) = obeys.as_ref().filter(|_| takes.contains(&order)) else {
            return Err(OrderError::NotSupported { kind: entry.kind, takes });
        };
        let recipient = obeys.recipient.upgrade().ok_or(OrderError::NotFound)?;
        entry.record_sent();
        let told = recipient.try_send(ExecuteOrder { path: path.into(), order, by });
        told.map_err(|error| {
            entry.undo_sent();
            match error {
                SendError::Full(_) => OrderError::MailboxFull,
                SendError::Closed(_) => OrderError::NotFound,
            }
        })
    }
}

impl StatusEntry {
    /// Its path.
    pub fn path(&self) -> &str {
        &self.0.path
    }

    /// The actor takes these orders. Each that it handles counts as a message.
    pub fn accept_orders(
        &self,
        takes: &'static [ActorOrder],
        recipient: WeakRecipient<ExecuteOrder>,
    ) {
        *lock(&self.0.order_target) = Some(OrderTarget { accepted: takes, recipient });
    }

    /// A message was put into the mailbox.
    pub(crate) fn record_sent(&self) {
        self.0.record_sent();
    }

    /// A message could not be put into the mailbox after all.
    pub(crate) fn undo_sent(&self) {
        self.0.undo_sent();
    }

    /// The actor begins to handle a message of that name.
    pub fn start_message(&self, message: &'static str) {
        lock(&self.0.activity).message = Some((message, self.0.clock.now()));
    }

    /// The actor is done with the message.
    pub fn finish_message(&self) {
        self.0.handled.fetch_add(1, Relaxed);
        lock(&self.0.activity).message = None;
    }

    /// A message was handled, too quick to be worth naming.
    pub fn record_handled(&self) {
        self.0.handled.fetch_add(1, Relaxed);
    }

    /// Handling a message failed.
    pub fn record_failure(&self, error: &str) {
        self.0.failed.fetch_add(1, Relaxed);
        lock(&self.0.activity).last_error = Some(truncate(error, STATUS_TEXT_BYTES_MAX).to_owned());
    }

    /// How often it was brought back.
    pub fn set_restarts(&self, restarts: u64) {
        self.0.restarts.store(restarts, Relaxed);
    }

    /// What it is doing, and whom it waits for since now; the time stays while whom it waits for
    /// stays the same.
    pub fn set_state(&self, state: &str, waiting_for: Option<String>) {
        let now = self.0.clock.now();
        let mut doing = lock(&self.0.activity);
        if doing.state != state {
            state.clone_into(&mut doing.state);
        }
        let same = match (&doing.waiting, &waiting_for) {
            (Some(was), Some(is)) => was.for_whom == truncate(is, STATUS_TEXT_BYTES_MAX),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !same {
            doing.waiting = waiting_for.map(|whom| WaitStatus {
                for_whom: truncate(&whom, STATUS_TEXT_BYTES_MAX).to_owned(),
                since: now,
            });
        }
    }
}

impl EntryState {
    fn record_sent(&self) {
        let sent = self.sent.fetch_add(1, Relaxed) + 1;
        let depth = sent.saturating_sub(self.handled.load(Relaxed));
        self.depth_max.fetch_max(usize::try_from(depth).unwrap_or(usize::MAX), Relaxed);
    }

    fn undo_sent(&self) {
        self.sent.fetch_sub(1, Relaxed);
    }

    fn snapshot(&self) -> ActorSnapshot {
        let doing = lock(&self.activity).clone();
        let handled = self.handled.load(Relaxed);
        ActorSnapshot {
            path: self.path.to_string(),
            kind: self.kind,
            state: doing.state,
            waiting: doing.waiting,
            mailbox_depth: self.sent.load(Relaxed).saturating_sub(handled),
            mailbox_depth_max: self.depth_max.load(Relaxed),
            current_message: doing.message.map(|(name, _)| name),
            current_message_since: doing.message.map(|(_, since)| since),
            handled,
            failed: self.failed.load(Relaxed),
            restarts: self.restarts.load(Relaxed),
            started_at: self.started_at,
            last_error: doing.last_error,
            takes: lock(&self.order_target).as_ref().map_or(&[], |obeys| obeys.accepted),
        }
    }
}

impl Drop for EntryState {
    fn drop(&mut self) {
        let Some(entries) = self.entries.upgrade() else { return };
        let mut entries = lock(&entries);
        // A successor may stand under the same path already.
        if entries.get(&self.path).is_some_and(|entry| entry.strong_count() == 0) {
            entries.remove(&self.path);
        }
    }
}

/// A panic while the lock was held leaves data that is still good to look at.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
