//! The stream of pending approvals (G11, W3): all of them, then each one when it is requested,
//! partly answered or closed.
//!
//! The runtime only signals that approvals changed; the stream then reads them from the store, so
//! that it never sends outdated data. A missed signal delays a change by at most one heartbeat.

use super::{ApprovalView, redacted_approval};
use crate::{
    auth::Principal,
    http::{
        State,
        change_stream::{ChangeSource, differences},
    },
};
use greenroom_actors::ports::ApprovalQuery;
use serde::Serialize;
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};
use utoipa::ToSchema;

/// Minimum time between two reads of the store, which bounds the cost of many changes.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// The changes since the last frame.
#[derive(Serialize, ToSchema)]
#[schema(as = ApprovalChanges)]
pub(super) struct ApprovalChanges {
    /// Always `approvals`.
    r#type: &'static str,
    /// Approvals that are new or changed.
    #[schema(value_type = Vec<ApprovalView>)]
    changed: Vec<Value>,
    /// Ids of approvals that are no longer pending.
    gone: Vec<String>,
}

/// Reads the pending approvals for one stream.
pub(super) struct ApprovalChangeSource {
    state: State,
    principal: Principal,
    query: ApprovalQuery,
    change_signal: watch::Receiver<()>,
    /// The approvals as last sent, by id.
    last_sent: BTreeMap<String, Value>,
    has_sent: bool,
    polled_at: Instant,
}

impl ApprovalChangeSource {
    pub(super) fn new(state: State, principal: Principal, query: ApprovalQuery) -> Self {
        let (change_signal, polled_at) = (state.runtime.approval_changes(), Instant::now());
        let last_sent = BTreeMap::new();
        Self { state, principal, query, change_signal, last_sent, has_sent: false, polled_at }
    }
}

impl ChangeSource for ApprovalChangeSource {
    async fn wait_for_change(&mut self, max_wait: Duration) {
        // A timeout and a closed channel, as on shutdown, also lead to a read.
        drop(timeout(max_wait, self.change_signal.changed()).await);
        sleep_until(self.polled_at + POLL_INTERVAL_MIN).await;
    }

    async fn next_changes(&mut self) -> Option<Value> {
        self.change_signal.mark_unchanged();
        self.polled_at = Instant::now();
        let rows = match self.state.runtime.journal.list_approvals(self.query.clone()).await {
            Ok(rows) => rows,
            // The approvals sent last count as current until the store can be read again.
            Err(error) => {
                tracing::debug!(%error, "failed to read the pending approvals");
                return None;
            }
        };
        let entries = rows
            .iter()
            .map(|row| (row.approval.approval_id.to_string(), redacted_approval(&self.state, row)));
        let (changed, removed) = differences(&mut self.last_sent, entries.collect::<Vec<_>>());
        let is_first = !std::mem::replace(&mut self.has_sent, true);
        let has_changes = is_first || !changed.is_empty() || !removed.is_empty();
        has_changes.then(|| json!(ApprovalChanges { r#type: "approvals", changed, gone: removed }))
    }

    fn is_authorized(&self) -> bool {
        self.state.auth.is_still_valid(&self.principal)
    }
}
