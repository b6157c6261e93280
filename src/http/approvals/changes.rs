//! The questions that wait, as a stream (G11, W3): all of them, then each as it is asked, answered in
//! part or closed. The desk says that something is different; what it is stands in the store, so that
//! nothing that is told is out of date, and a word that was missed costs one heartbeat.

use super::{ApprovalView, redacted};
use crate::{
    auth::Principal,
    http::{
        State,
        changes::{Looking, differences},
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
const LOOK: Duration = Duration::from_millis(100);

/// What changed since the last frame.
#[derive(Serialize, ToSchema)]
#[schema(as = ApprovalChanges)]
pub(super) struct Changes {
    /// `approvals`.
    r#type: &'static str,
    #[schema(value_type = Vec<ApprovalView>)]
    changed: Vec<Value>,
    /// The ids of those that wait no more.
    gone: Vec<String>,
}

/// Somebody who looks on.
pub(super) struct Onlooker {
    state: State,
    principal: Principal,
    wanted: ApprovalQuery,
    changes: watch::Receiver<()>,
    /// By id, as told.
    told: BTreeMap<String, Value>,
    has_told: bool,
    looked_at: Instant,
}

impl Onlooker {
    pub(super) fn new(state: State, principal: Principal, wanted: ApprovalQuery) -> Self {
        let (changes, looked_at) = (state.runtime.approval_changes(), Instant::now());
        let told = BTreeMap::new();
        Self { state, principal, wanted, changes, told, has_told: false, looked_at }
    }
}

impl Looking for Onlooker {
    async fn wait(&mut self, patience: Duration) {
        // Too late and gone, as when the server ends, are both a reason to look.
        drop(timeout(patience, self.changes.changed()).await);
        sleep_until(self.looked_at + LOOK).await;
    }

    async fn look(&mut self) -> Option<Value> {
        self.changes.mark_unchanged();
        self.looked_at = Instant::now();
        let rows = match self.state.runtime.journal.approvals(self.wanted.clone()).await {
            Ok(rows) => rows,
            // What was told stays true as far as anybody can know, until it can be read again.
            Err(error) => {
                tracing::debug!(%error, "the approvals can't be read");
                return None;
            }
        };
        let found = rows
            .iter()
            .map(|row| (row.approval.approval_id.to_string(), redacted(&self.state, row)));
        let (changed, gone) = differences(&mut self.told, found.collect::<Vec<_>>());
        let is_first = !std::mem::replace(&mut self.has_told, true);
        let is_news = is_first || !changed.is_empty() || !gone.is_empty();
        is_news.then(|| json!(Changes { r#type: "approvals", changed, gone }))
    }

    fn may_hear(&self) -> bool {
        self.state.auth.still_holds(&self.principal)
    }
}
