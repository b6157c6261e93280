//! Which part of a session's stream a client follows: all of it, or one run to its end. Pure.

use greenroom_actors::feed::{FeedItem, FeedKind};
use greenroom_core::{ids::RunId, session::SessionEvent};

/// What a client follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamFilter {
    /// The session, for as long as it is connected.
    All,
    /// One run, from its acceptance to its end.
    Run {
        /// Which.
        run_id: RunId,
        /// Whether a question to a person ends the stream too.
        until_pause: bool,
    },
}

/// Where an item stands in what is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilterMatch {
    /// Not in it.
    Excluded,
    /// In it.
    Included,
    /// In it, and nothing comes after.
    Last,
}

impl StreamFilter {
    /// Where `item` stands.
    pub(super) fn classify(&self, item: &FeedItem) -> FilterMatch {
        let of_item = match &item.kind {
            // Clients reconnect after these, and hear then if there is nothing to hear.
            FeedKind::Draining | FeedKind::Purged | FeedKind::Broken(_) => {
                return FilterMatch::Last;
            }
            FeedKind::Event(record) => record.run_id,
            FeedKind::Delta { run_id, .. } => Some(*run_id),
        };
        let Self::Run { run_id, until_pause } = *self else { return FilterMatch::Included };
        if of_item != Some(run_id) {
            return FilterMatch::Excluded;
        }
        let FeedKind::Event(record) = &item.kind else { return FilterMatch::Included };
        // A child that asks is a pause like any other (S8).
        let asks = matches!(record.event.source_event(), SessionEvent::ApprovalRequested { .. });
        let pause = until_pause && asks;
        if pause || ends_run(&record.event) { FilterMatch::Last } else { FilterMatch::Included }
    }
}

/// Whether the event is the last of its run.
pub(super) fn ends_run(event: &SessionEvent) -> bool {
    matches!(
        event,
        SessionEvent::RunCompleted { .. }
            | SessionEvent::RunFailed { .. }
            | SessionEvent::RunCancelled { .. }
    )
}
