//! An outlet that collects the delivered items.

use super::lock;
use crate::feed::{DeliveryOutcome, FeedItem, FeedKind, Outlet};
use greenroom_core::{ids::MessageId, session::EventRecord};
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// An in-memory outlet. Clones share their items: one is for the subscriber, one for the test.
#[derive(Clone)]
pub struct CollectingOutlet {
    items: Arc<watch::Sender<Vec<FeedItem>>>,
    state: Arc<Mutex<OutletState>>,
}

#[derive(Debug)]
struct OutletState {
    capacity: usize,
    closed: bool,
    rejected: usize,
}

impl CollectingOutlet {
    /// Creates an outlet with a capacity of `capacity` items.
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            items: Arc::new(watch::Sender::new(Vec::new())),
            state: Arc::new(Mutex::new(OutletState { capacity, closed: false, rejected: 0 })),
        }
    }

    /// Adds capacity for `additional` items. The caller must notify the subscriber.
    pub fn add_capacity(&self, additional: usize) {
        let mut state = lock(&self.state);
        state.capacity = state.capacity.saturating_add(additional);
    }

    /// Closes the outlet, as if its client had disconnected.
    pub fn close(&self) {
        lock(&self.state).closed = true;
    }

    /// Returns the number of items that were rejected for lack of capacity.
    pub fn rejected_count(&self) -> usize {
        lock(&self.state).rejected
    }

    /// Returns the items delivered so far.
    pub fn items(&self) -> Vec<FeedItem> {
        self.items.borrow().clone()
    }

    /// Returns the events among the items.
    pub fn events(&self) -> Vec<EventRecord> {
        events_of(&self.items.borrow())
    }

    /// Returns the delivered text of a message.
    pub fn text_of(&self, message_id: &MessageId) -> String {
        text_of(&self.items.borrow(), message_id)
    }

    /// Waits until `find` returns a value for the delivered items.
    ///
    /// # Panics
    ///
    /// Panics if there is none within [`super::TEST_TIMEOUT`].
    pub async fn wait_for<T>(
        &self,
        description: &str,
        mut find: impl FnMut(&[FeedItem]) -> Option<T>,
    ) -> T {
        let mut items = self.items.subscribe();
        let polling = async {
            loop {
                if let Some(value) = find(&items.borrow_and_update()) {
                    return value;
                }
                items.changed().await.expect("the outlet owns the sender");
            }
        };
        super::with_timeout(description, polling).await
    }
}

fn events_of(items: &[FeedItem]) -> Vec<EventRecord> {
    let to_event = |item: &FeedItem| match &item.kind {
        FeedKind::Event(record) => Some((**record).clone()),
        FeedKind::Delta { .. } | FeedKind::Draining | FeedKind::Purged | FeedKind::Broken(_) => {
            None
        }
    };
    items.iter().filter_map(to_event).collect()
}

fn text_of(items: &[FeedItem], id: &MessageId) -> String {
    let to_text = |item: &FeedItem| match &item.kind {
        FeedKind::Delta { message_id, text, .. } if message_id == id => Some(text.clone()),
        FeedKind::Delta { .. }
        | FeedKind::Event(_)
        | FeedKind::Draining
        | FeedKind::Purged
        | FeedKind::Broken(_) => None,
    };
    items.iter().filter_map(to_text).map(|text| text.to_string()).collect()
}

impl Outlet for CollectingOutlet {
    fn try_send(&mut self, item: &FeedItem) -> DeliveryOutcome {
        let mut state = lock(&self.state);
        if state.closed {
            return DeliveryOutcome::Closed;
        }
        if state.capacity == 0 {
            state.rejected += 1;
            return DeliveryOutcome::Full;
        }
        state.capacity -= 1;
        self.items.send_modify(|items| items.push(item.clone()));
        DeliveryOutcome::Accepted
    }
}
