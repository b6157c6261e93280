//! The questions that wait, as a stream (G11, W3): all of them, then each as it is asked, answered in
//! part or closed. The desk says that something is different; what it is stands in the store, so that
//! nothing that is told is out of date, and a word that was missed costs one heartbeat.

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

/// Time between two looks at the least, so that a storm of questions costs a bounded number.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// What changed since the last frame.
#[derive(Serialize, ToSchema)]
#[schema(as = ApprovalChanges)]
pub(super) struct ApprovalChanges {
    /// `approvals`.
    r#type: &'static str,
    #[schema(value_type = Vec<ApprovalView>)]
    changed: Vec<Value>,
    /// The ids of those that wait no more.
    gone: Vec<String>,
}

/// Somebody who looks on.
pub(super) struct ApprovalChangeSource {
    state: State,
    principal: Principal,
    query: ApprovalQuery,
    change_signal: watch::Receiver<()>,
    /// By id, as told.
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
    async fn wait_for_change(&mut self, patience: Duration) {
        // Too late and gone, as when the server ends, are both a reason to look.
        drop(timeout(patience, self.change_signal.changed()).await);
        sleep_until(self.polled_at + POLL_INTERVAL_MIN).await;
    }

    async fn next_changes(&mut self) -> Option<Value> {
        self.change_signal.mark_unchanged();
        self.polled_at = Instant::now();
        let rows = match self.state.runtime.journal.list_approvals(self.query.clone()).await {
            Ok(rows) => rows,
            // What was told stays true as far as anybody can know, until it can be read again.
            Err(error) => {
                tracing::debug!(%error, "the approvals can't be read");
                return None;
            }
        };
        let found = rows
            .iter()
            .map(|row| (row.approval.approval_id.to_string(), redacted_approval(&self.state, row)));
        let (changed, gone) = differences(&mut self.last_sent, found.collect::<Vec<_>>());
        let is_first = !std::mem::replace(&mut self.has_sent, true);
        let is_news = is_first || !changed.is_empty() || !gone.is_empty();
        is_news.then(|| json!(ApprovalChanges { r#type: "approvals", changed, gone }))
    }

    fn is_authorized(&self) -> bool {
        self.state.auth.is_still_valid(&self.principal)
    }
}
