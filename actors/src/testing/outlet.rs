//! A client that keeps what it is told, as far as there is room.

use super::lock;
use crate::feed::{DeliveryOutcome, FeedItem, FeedKind, Outlet};
use greenroom_core::{ids::MessageId, session::EventRecord};
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// An outlet into memory. Clones are the same outlet: give one to a subscriber, keep one.
#[derive(Clone)]
pub struct CollectingOutlet {
    items: Arc<watch::Sender<Vec<FeedItem>>>,
    room: Arc<Mutex<OutletState>>,
}

#[derive(Debug)]
struct OutletState {
    left: usize,
    gone: bool,
    refused: usize,
}

impl CollectingOutlet {
    /// An outlet with room for so many items.
    pub fn with_capacity(room: usize) -> Self {
        Self {
            items: Arc::new(watch::Sender::new(Vec::new())),
            room: Arc::new(Mutex::new(OutletState { left: room, gone: false, refused: 0 })),
        }
    }

    /// Makes room for so many more. The subscriber must hear of it.
    pub fn add_capacity(&self, more: usize) {
        let mut room = lock(&self.room);
        room.left = room.left.saturating_add(more);
    }

    /// Nobody listens from now on.
    pub fn close(&self) {
        lock(&self.room).gone = true;
    }

    /// How often there was no room.
    pub fn rejected_count(&self) -> usize {
        lock(&self.room).refused
    }

    /// What it was told so far.
    pub fn items(&self) -> Vec<FeedItem> {
        self.items.borrow().clone()
    }

    /// The events among it.
    pub fn events(&self) -> Vec<EventRecord> {
        events_of(&self.items.borrow())
    }

    /// The text it was told of that message.
    pub fn text_of(&self, message_id: &MessageId) -> String {
        text_of(&self.items.borrow(), message_id)
    }

    /// Waits until `found` finds something in what it was told.
    ///
    /// # Panics
    ///
    /// When it does not within [`super::PATIENCE`].
    pub async fn wait_for<T>(
        &self,
        what: &str,
        mut found: impl FnMut(&[FeedItem]) -> Option<T>,
    ) -> T {
        let mut items = self.items.subscribe();
        let search = async {
            loop {
                if let Some(found) = found(&items.borrow_and_update()) {
                    return found;
                }
                items.changed().await.expect("the outlet holds the sender");
            }
        };
        super::with_timeout(what, search).await
    }
}

fn events_of(items: &[FeedItem]) -> Vec<EventRecord> {
    let event = |item: &FeedItem| match &item.kind {
        FeedKind::Event(record) => Some((**record).clone()),
        FeedKind::Delta { .. } | FeedKind::Draining | FeedKind::Purged | FeedKind::Broken(_) => {
            None
        }
    };
    items.iter().filter_map(event).collect()
}

fn text_of(items: &[FeedItem], wanted: &MessageId) -> String {
    let piece = |item: &FeedItem| match &item.kind {
        FeedKind::Delta { message_id, text, .. } if message_id == wanted => Some(text.clone()),
        FeedKind::Delta { .. }
        | FeedKind::Event(_)
        | FeedKind::Draining
        | FeedKind::Purged
        | FeedKind::Broken(_) => None,
    };
    items.iter().filter_map(piece).map(|piece| piece.to_string()).collect()
}

impl Outlet for CollectingOutlet {
    fn try_send(&mut self, item: &FeedItem) -> DeliveryOutcome {
        let mut room = lock(&self.room);
        if room.gone {
            return DeliveryOutcome::Closed;
        }
        if room.left == 0 {
            room.refused += 1;
            return DeliveryOutcome::Full;
        }
        room.left -= 1;
        self.items.send_modify(|items| items.push(item.clone()));
        DeliveryOutcome::Accepted
    }
}
