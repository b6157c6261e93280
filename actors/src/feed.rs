//! The items that subscribers deliver to clients, independent of a dialect.

use greenroom_core::{
    cursor::Cursor,
    ids::{AgentName, MessageId, RunId, SessionId},
    session::EventRecord,
};
use std::{ops::Deref, sync::Arc};

/// One item for a client, with the client's cursor after the item was delivered.
#[derive(Clone, Debug, PartialEq)]
pub struct FeedItem {
    /// The session.
    pub session_id: SessionId,
    /// The session's agent profile.
    pub agent: AgentName,
    /// The cursor after this item.
    pub cursor: Cursor,
    /// The content.
    pub kind: FeedKind,
}

/// The content of a feed item.
#[derive(Clone, Debug, PartialEq)]
pub enum FeedKind {
    /// A committed event.
    Event(CommittedEvent),
    /// More text of the open message. Never stored.
    Delta {
        /// The run.
        run_id: RunId,
        /// The step.
        step: u32,
        /// The open message.
        message_id: MessageId,
        /// The text.
        text: Arc<str>,
    },
    /// The server is shutting down (D8). Not numbered; the client reconnects with its cursor.
    Draining,
    /// The session was purged (S1). Not numbered; there is nothing to reconnect to.
    Purged,
    /// The stream can't continue, for the given human-readable reason. The client reconnects with
    /// its cursor.
    Broken(String),
}

impl FeedKind {
    /// True if both share the same memory, so that an encoding of one also serves for the other.
    /// Always false for control frames.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Event(left), Self::Event(right)) => {
                left.index == right.index && Arc::ptr_eq(&left.commit, &right.commit)
            }
            (Self::Delta { text: left, .. }, Self::Delta { text: right, .. }) => {
                Arc::ptr_eq(left, right)
            }
            _ => false,
        }
    }
}

/// A committed event. The commit is shared by all subscribers.
#[derive(Clone, Debug)]
pub struct CommittedEvent {
    commit: Arc<[EventRecord]>,
    index: usize,
}

impl CommittedEvent {
    /// Returns all events of a commit, in order.
    pub fn iter_commit(commit: &Arc<[EventRecord]>) -> impl Iterator<Item = Self> {
        (0..commit.len()).map(|index| Self { commit: commit.clone(), index })
    }
}

impl Deref for CommittedEvent {
    type Target = EventRecord;

    fn deref(&self) -> &EventRecord {
        &self.commit[self.index]
    }
}

impl From<EventRecord> for CommittedEvent {
    fn from(record: EventRecord) -> Self {
        Self { commit: [record].into(), index: 0 }
    }
}

impl PartialEq for CommittedEvent {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

/// The sink of a subscriber: a client connection with bounded capacity.
pub trait Outlet: 'static {
    /// Accepts `item` if there is room. After [`DeliveryOutcome::Full`], the side that drains the
    /// outlet sends the subscriber [`crate::subscriber::OutletDrained`].
    fn try_send(&mut self, item: &FeedItem) -> DeliveryOutcome;
}

/// The result of handing an item to an outlet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// The outlet accepted the item.
    Accepted,
    /// The outlet has no room and did not accept the item.
    Full,
    /// The client has disconnected.
    Closed,
}
