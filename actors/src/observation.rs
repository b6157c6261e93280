//! What administrators see of live actors (A1): a board of snapshots beside the work.
//!
//! Each actor writes its own [`Watch`]; readers never queue behind the actor's work. actix shows
//! no mailbox depth, so [`crate::mailbox`] counts what is sent and handled here.

use actix::{WeakRecipient, prelude::SendError};
use greenroom_core::{Timestamp, ids::UserId, text::cut};
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
    limits::OBSERVED_TEXT_BYTES_MAX,
    order::{Obey, Order, Refused},
    ports::Clock,
};
use utoipa::ToSchema;

/// All live actors.
#[derive(Clone)]
pub struct Board {
    clock: Arc<dyn Clock>,
    entries: Arc<Mutex<Entries>>,
}

/// An actor's own entry on the board; dropping the last clone takes the entry down.
#[derive(Clone)]
pub struct Watch(Arc<Shared>);

type Entries = BTreeMap<Arc<str>, Weak<Shared>>;

struct Shared {
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
    doing: Mutex<Doing>,
    obeys: Mutex<Option<Obeys>>,
}

/// Which orders an actor takes, and where to. The address keeps nobody alive.
struct Obeys {
    takes: &'static [Order],
    recipient: WeakRecipient<Obey>,
}

#[derive(Clone, Default)]
struct Doing {
    state: String,
    waiting: Option<Waiting>,
    message: Option<(&'static str, Timestamp)>,
    last_error: Option<String>,
}

/// Whom an actor waits for, and since when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Waiting {
    /// A person, a model, a tool, a time …
    pub for_whom: String,
    /// Since when.
    pub since: Timestamp,
}

/// An actor as an administrator sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Snapshot {
    /// `/sessions/{id}/steps/3`.
    pub path: String,
    /// What it is: `Session`, `LlmStream` …
    pub kind: &'static str,
    /// What it is doing, in one word.
    pub state: String,
    /// Whom it waits for.
    pub waiting: Option<Waiting>,
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
    pub takes: &'static [Order],
}

impl Board {
    /// An empty board.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, entries: Arc::default() }
    }

    /// Puts an actor on the board. A second one under the same path hides the first.
    pub fn watch(&self, path: impl Into<Arc<str>>, kind: &'static str) -> Watch {
        let path: Arc<str> = path.into();
        let shared = Arc::new(Shared {
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
            doing: Mutex::new(Doing { state: "starting".to_owned(), ..Doing::default() }),
            obeys: Mutex::default(),
        });
        lock(&self.entries).insert(path, Arc::downgrade(&shared));
        Watch(shared)
    }

    /// The actors whose path starts with `prefix`, by path.
    pub fn snapshots(&self, prefix: &str) -> Vec<Snapshot> {
        let entries: Vec<_> = lock(&self.entries)
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
            .take_while(|(path, _)| path.starts_with(prefix))
            .filter_map(|(_, entry)| entry.upgrade())
            .collect();
        entries.iter().map(|entry| entry.snapshot()).collect()
    }

    /// The actor at `path`.
    pub fn snapshot(&self, path: &str) -> Option<Snapshot> {
        let entry = lock(&self.entries).get(path).and_then(Weak::upgrade)?;
        Some(entry.snapshot())
    }
}

impl Board {
    /// Tells the actor at `path` what to do (A2).
    pub fn order(&self, path: &str, order: Order, by: UserId) -> Result<(), Refused> {
        let entry = lock(&self.entries).get(path).and_then(Weak::upgrade);
        let entry = entry.ok_or(Refused::Absent)?;
        let obeys = lock(&entry.obeys);
        let takes = obeys.as_ref().map_or(&[][..], |obeys| obeys.takes);
        let Some(obeys) = obeys.as_ref().filter(|_| takes.contains(&order)) else {
            return Err(Refused::NotTaken { kind: entry.kind, takes });
        };
        let recipient = obeys.recipient.upgrade().ok_or(Refused::Absent)?;
        entry.sent();
        let told = recipient.try_send(Obey { path: path.into(), order, by });
        told.map_err(|error| {
            entry.unsent();
            match error {
                SendError::Full(_) => Refused::Busy,
                SendError::Closed(_) => Refused::Absent,
            }
        })
    }
}

impl Watch {
    /// Its path.
    pub fn path(&self) -> &str {
        &self.0.path
    }

    /// The actor takes these orders. Each that it handles counts as a message.
    pub fn obeys(&self, takes: &'static [Order], recipient: WeakRecipient<Obey>) {
        *lock(&self.0.obeys) = Some(Obeys { takes, recipient });
    }

    /// A message was put into the mailbox.
    pub(crate) fn sent(&self) {
        self.0.sent();
    }

    /// A message could not be put into the mailbox after all.
    pub(crate) fn unsent(&self) {
        self.0.unsent();
    }

    /// The actor begins to handle a message of that name.
    pub fn begin(&self, message: &'static str) {
        lock(&self.0.doing).message = Some((message, self.0.clock.now()));
    }

    /// The actor is done with the message.
    pub fn end(&self) {
        self.0.handled.fetch_add(1, Relaxed);
        lock(&self.0.doing).message = None;
    }

    /// A message was handled, too quick to be worth naming.
    pub fn tick(&self) {
        self.0.handled.fetch_add(1, Relaxed);
    }

    /// Handling a message failed.
    pub fn fail(&self, error: &str) {
        self.0.failed.fetch_add(1, Relaxed);
        lock(&self.0.doing).last_error = Some(cut(error, OBSERVED_TEXT_BYTES_MAX).to_owned());
    }

    /// How often it was brought back.
    pub fn set_restarts(&self, restarts: u64) {
        self.0.restarts.store(restarts, Relaxed);
    }

    /// What it is doing, and whom it waits for since now; the time stays while whom it waits for
    /// stays the same.
    pub fn set_state(&self, state: &str, waiting_for: Option<String>) {
        let now = self.0.clock.now();
        let mut doing = lock(&self.0.doing);
        if doing.state != state {
            state.clone_into(&mut doing.state);
        }
        let same = match (&doing.waiting, &waiting_for) {
            (Some(was), Some(is)) => was.for_whom == cut(is, OBSERVED_TEXT_BYTES_MAX),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !same {
            doing.waiting = waiting_for.map(|whom| Waiting {
                for_whom: cut(&whom, OBSERVED_TEXT_BYTES_MAX).to_owned(),
                since: now,
            });
        }
    }
}

impl Shared {
    fn sent(&self) {
        let sent = self.sent.fetch_add(1, Relaxed) + 1;
        let depth = sent.saturating_sub(self.handled.load(Relaxed));
        self.depth_max.fetch_max(usize::try_from(depth).unwrap_or(usize::MAX), Relaxed);
    }

    fn unsent(&self) {
        self.sent.fetch_sub(1, Relaxed);
    }

    fn snapshot(&self) -> Snapshot {
        let doing = lock(&self.doing).clone();
        let handled = self.handled.load(Relaxed);
        Snapshot {
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
            takes: lock(&self.obeys).as_ref().map_or(&[], |obeys| obeys.takes),
        }
    }
}

impl Drop for Shared {
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
