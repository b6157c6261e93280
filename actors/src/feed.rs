//! What subscribers are given, in no dialect's words.

use greenroom_core::{
    cursor::Cursor,
    ids::{AgentName, MessageId, RunId, SessionId},
    session::EventRecord,
};
use std::{ops::Deref, sync::Arc};

/// One thing to tell a client, with the cursor it stands at once it has been told.
#[derive(Clone, Debug, PartialEq)]
pub struct FeedItem {
    /// The session.
    pub session_id: SessionId,
    /// Its agent profile.
    pub agent: AgentName,
    /// Where the client is after this.
    pub cursor: Cursor,
    /// What to tell.
    pub kind: FeedKind,
}

/// What to tell.
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
        /// The piece.
        text: Arc<str>,
    },
    /// The server is shutting down (D8); unnumbered. Reconnect with the cursor.
    Draining,
    /// The session was purged (S1): it is gone, and there is nothing to reconnect to; unnumbered.
    Purged,
    /// The stream can't go on; reconnect with the cursor. For people.
    Broken(String),
}

impl FeedKind {
    /// Whether both are the very same, shared by all who are told of it: what was made of the one will do
    /// for the other. Control frames are nobody else's.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Event(own), Self::Event(other)) => {
                own.index == other.index && Arc::ptr_eq(&own.commit, &other.commit)
            }
            (Self::Delta { text: own, .. }, Self::Delta { text: other, .. }) => {
                Arc::ptr_eq(own, other)
            }
            _ => false,
        }
    }
}

/// An event, shared by all who are told of it.
#[derive(Clone, Debug)]
pub struct CommittedEvent {
    commit: Arc<[EventRecord]>,
    index: usize,
}

impl CommittedEvent {
    /// All events of a commit, in order.
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

/// Where a subscriber puts what it has to tell: a socket with room for so much.
pub trait Outlet: 'static {
    /// Takes `item` if there is room. After [`Offer::Full`] whoever drains the outlet sends the
    /// subscriber [`crate::subscriber::Drained`].
    fn try_send(&mut self, item: &FeedItem) -> DeliveryOutcome;
}

/// What became of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// Taken.
    Accepted,
    /// No room now; it was not taken.
    Full,
    /// Nobody listens any more.
    Closed,
}
