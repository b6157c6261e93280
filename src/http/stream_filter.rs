//! Selects the part of a session's feed that a client follows: all of it, or one run. Pure.

use greenroom_actors::feed::{FeedItem, FeedKind};
use greenroom_core::{ids::RunId, session::SessionEvent};

/// The part of a session's feed that a client follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamFilter {
    /// All items, until the client disconnects.
    All,
    /// The items of one run, from its acceptance to its end.
    Run {
        /// The run.
        run_id: RunId,
        /// True if a request for approval also ends the stream.
        until_pause: bool,
    },
}

/// The result of matching an item with a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilterMatch {
    /// Not part of the stream.
    Excluded,
    /// Part of the stream.
    Included,
    /// The last item of the stream.
    Last,
}

impl StreamFilter {
    /// Matches `item` with the filter.
    pub(super) fn classify(&self, item: &FeedItem) -> FilterMatch {
        let item_run_id = match &item.kind {
            // These items end the stream. A client receives the current state when it reconnects.
            FeedKind::Draining | FeedKind::Purged | FeedKind::Broken(_) => {
                return FilterMatch::Last;
            }
            FeedKind::Event(record) => record.run_id,
            FeedKind::Delta { run_id, .. } => Some(*run_id),
        };
        let Self::Run { run_id, until_pause } = *self else { return FilterMatch::Included };
        if item_run_id != Some(run_id) {
            return FilterMatch::Excluded;
        }
        let FeedKind::Event(record) = &item.kind else { return FilterMatch::Included };
        // An approval of a child session also pauses the run (S8).
        let requests_approval =
            matches!(record.event.source_event(), SessionEvent::ApprovalRequested { .. });
        let pauses = until_pause && requests_approval;
        if pauses || record.event.ends_run() { FilterMatch::Last } else { FilterMatch::Included }
    }
}
