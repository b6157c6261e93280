//! The status board: snapshots of all live actors that administrators read (A1).
//!
//! Each actor writes its own [`StatusEntry`], so readers never wait for an actor's work. actix does
//! not expose mailbox depths, so [`crate::mailbox`] counts sent and handled messages here.

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

/// The status board. Clones share their entries.
#[derive(Clone)]
pub struct StatusBoard {
    clock: Arc<dyn Clock>,
    entries: Arc<Mutex<Entries>>,
}

/// An actor's entry on the status board. The entry is removed when its last clone is dropped.
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

/// The orders an actor supports and their recipient. The weak address does not keep the actor
/// alive.
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

/// The thing an actor waits for, and the start of the wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct WaitStatus {
    /// An approval, a model, a tool, a point in time …
    #[serde(rename = "for_whom")]
    pub awaited: String,
    /// The start of the wait.
    pub since: Timestamp,
}

/// The state of an actor, as shown to administrators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ActorSnapshot {
    /// The actor's path, such as `/sessions/{id}/steps/3`.
    pub path: String,
    /// The actor's type, such as `Session` or `LlmStream`.
    pub kind: &'static str,
    /// The actor's current activity, in one or two words.
    pub state: String,
    /// The thing the actor waits for.
    pub waiting: Option<WaitStatus>,
    /// Number of messages in the mailbox now.
    pub mailbox_depth: u64,
    /// The highest number of messages there has been in the mailbox.
    pub mailbox_depth_max: usize,
    /// The type of the message being handled.
    pub current_message: Option<&'static str>,
    /// The time at which handling of the current message started.
    pub current_message_since: Option<Timestamp>,
    /// Number of messages handled.
    pub handled: u64,
    /// Number of messages whose handling failed.
    pub failed: u64,
    /// Number of restarts.
    pub restarts: u64,
    /// The time at which the actor started.
    pub started_at: Timestamp,
    /// The text of the last failure.
    pub last_error: Option<String>,
    /// The orders the actor supports.
    pub takes: &'static [ActorOrder],
}

impl StatusBoard {
    /// Creates an empty board.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, entries: Arc::default() }
    }

    /// Registers an actor. A later registration of the same path replaces the earlier one.
    pub fn register(&self, path: impl Into<Arc<str>>, kind: &'static str) -> StatusEntry {
        let path: Arc<str> = path.into();
        let entry = Arc::new(EntryState {
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
        lock(&self.entries).insert(path, Arc::downgrade(&entry));
        StatusEntry(entry)
    }

    /// Returns the actors whose path starts with `prefix`, ordered by path.
    pub fn snapshots(&self, prefix: &str) -> Vec<ActorSnapshot> {
        let entries: Vec<_> = lock(&self.entries)
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
            .take_while(|(path, _)| path.starts_with(prefix))
            .filter_map(|(_, entry)| entry.upgrade())
            .collect();
        entries.iter().map(|entry| entry.snapshot()).collect()
    }

    /// Returns the actor at `path`.
    pub fn snapshot(&self, path: &str) -> Option<ActorSnapshot> {
        let entry = lock(&self.entries).get(path).and_then(Weak::upgrade)?;
        Some(entry.snapshot())
    }
}

impl StatusBoard {
    /// Sends an order to the actor at `path` (A2).
    pub fn send_order(
        &self,
        path: &str,
        order: ActorOrder,
        user: UserId,
    ) -> Result<(), OrderError> {
        let entry = lock(&self.entries).get(path).and_then(Weak::upgrade);
        let entry = entry.ok_or(OrderError::NotFound)?;
        let target = lock(&entry.order_target);
        let supported = target.as_ref().map_or(&[][..], |target| target.accepted);
        let Some(target) = target.as_ref().filter(|_| supported.contains(&order)) else {
            return Err(OrderError::NotSupported { kind: entry.kind, supported });
        };
        let recipient = target.recipient.upgrade().ok_or(OrderError::NotFound)?;
        entry.record_sent();
        let sent = recipient.try_send(ExecuteOrder { path: path.into(), order, by: user });
        sent.map_err(|error| {
            entry.undo_sent();
            match error {
                SendError::Full(_) => OrderError::MailboxFull,
                SendError::Closed(_) => OrderError::NotFound,
            }
        })
    }
}

impl StatusEntry {
    /// Returns the path of the entry.
    pub fn path(&self) -> &str {
        &self.0.path
    }

    /// Sets the orders that the actor supports. The actor must count each order as handled.
    pub fn accept_orders(
        &self,
        supported: &'static [ActorOrder],
        recipient: WeakRecipient<ExecuteOrder>,
    ) {
        *lock(&self.0.order_target) = Some(OrderTarget { accepted: supported, recipient });
    }

    /// Counts a message that was put into the mailbox.
    pub(crate) fn record_sent(&self) {
        self.0.record_sent();
    }

    /// Reverts [`Self::record_sent`] for a message that the mailbox did not accept.
    pub(crate) fn undo_sent(&self) {
        self.0.undo_sent();
    }

    /// Records that the actor starts to handle a message of the given type.
    pub fn start_message(&self, message: &'static str) {
        lock(&self.0.activity).message = Some((message, self.0.clock.now()));
    }

    /// Records that the actor has handled the current message.
    pub fn finish_message(&self) {
        self.0.handled.fetch_add(1, Relaxed);
        lock(&self.0.activity).message = None;
    }

    /// Counts a handled message without showing it as the current message.
    pub fn record_handled(&self) {
        self.0.handled.fetch_add(1, Relaxed);
    }

    /// Counts a message whose handling failed, and stores the error.
    pub fn record_failure(&self, error: &str) {
        self.0.failed.fetch_add(1, Relaxed);
        lock(&self.0.activity).last_error = Some(truncate(error, STATUS_TEXT_BYTES_MAX).to_owned());
    }

    /// Sets the number of restarts.
    pub fn set_restarts(&self, restarts: u64) {
        self.0.restarts.store(restarts, Relaxed);
    }

    /// Sets the state and the thing the actor waits for. The start of the wait is kept while
    /// `waiting_for` stays the same.
    pub fn set_state(&self, state: &str, waiting_for: Option<String>) {
        let now = self.0.clock.now();
        let mut activity = lock(&self.0.activity);
        if activity.state != state {
            state.clone_into(&mut activity.state);
        }
        let is_unchanged = match (&activity.waiting, &waiting_for) {
            (Some(old), Some(new)) => old.awaited == truncate(new, STATUS_TEXT_BYTES_MAX),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !is_unchanged {
            activity.waiting = waiting_for.map(|awaited| WaitStatus {
                awaited: truncate(&awaited, STATUS_TEXT_BYTES_MAX).to_owned(),
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
        let activity = lock(&self.activity).clone();
        let handled = self.handled.load(Relaxed);
        ActorSnapshot {
            path: self.path.to_string(),
            kind: self.kind,
            state: activity.state,
            waiting: activity.waiting,
            mailbox_depth: self.sent.load(Relaxed).saturating_sub(handled),
            mailbox_depth_max: self.depth_max.load(Relaxed),
            current_message: activity.message.map(|(name, _)| name),
            current_message_since: activity.message.map(|(_, since)| since),
            handled,
            failed: self.failed.load(Relaxed),
            restarts: self.restarts.load(Relaxed),
            started_at: self.started_at,
            last_error: activity.last_error,
            takes: lock(&self.order_target).as_ref().map_or(&[], |target| target.accepted),
        }
    }
}

impl Drop for EntryState {
    fn drop(&mut self) {
        let Some(entries) = self.entries.upgrade() else { return };
        let mut entries = lock(&entries);
        // A successor may already be registered under the same path.
        if entries.get(&self.path).is_some_and(|entry| entry.strong_count() == 0) {
            entries.remove(&self.path);
        }
    }
}

/// Locks `mutex`, ignoring poisoning: the data stays readable after a panic in another thread.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
