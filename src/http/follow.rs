//! Which part of a session's stream a client follows: all of it, or one run to its end. Pure.

use greenroom_actors::feed::{FeedItem, FeedKind};
use greenroom_core::{ids::RunId, session::SessionEvent};

/// What a client follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Follow {
    /// The session, for as long as it is connected.
    Everything,
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
pub(super) enum Scope {
    /// Not in it.
    Outside,
    /// In it.
    Inside,
    /// In it, and nothing comes after.
    Last,
}

impl Follow {
    /// Where `item` stands.
    pub(super) fn scope(&self, item: &FeedItem) -> Scope {
        let of_item = match &item.kind {
            // Clients reconnect after these, and hear then if there is nothing to hear.
            FeedKind::Draining | FeedKind::Purged | FeedKind::Broken(_) => return Scope::Last,
            FeedKind::Event(record) => record.run_id,
            FeedKind::Delta { run_id, .. } => Some(*run_id),
        };
        let Self::Run { run_id, until_pause } = *self else { return Scope::Inside };
        if of_item != Some(run_id) {
            return Scope::Outside;
        }
        let FeedKind::Event(record) = &item.kind else { return Scope::Inside };
        // A child that asks is a pause like any other (S8).
        let asks = matches!(record.event.innermost(), SessionEvent::ApprovalRequested { .. });
        let pause = until_pause && asks;
        if pause || ends_run(&record.event) { Scope::Last } else { Scope::Inside }
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
