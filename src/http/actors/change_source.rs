//! What changes among live actors, as a stream (A2): what an administrator's client shows is looked
//! up on the board now and then, and what differs from what was told before is told. Actors are
//! neither asked nor slowed, however many look on.

use super::redact_snapshots;
use crate::{
    auth::Principal,
    http::{
        State,
        change_stream::{ChangeSource, differences},
    },
};
use greenroom_actors::status_board::ActorSnapshot;
use serde::Serialize;
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::{Interval, MissedTickBehavior, interval};
use utoipa::ToSchema;

/// Time between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Which actors, and how many of them.
pub(super) struct ActorFilter {
    pub(super) prefix: String,
    pub(super) kind: Option<String>,
    pub(super) limit: usize,
}

/// What changed since the last frame.
#[derive(Serialize, ToSchema)]
#[schema(as = ActorChanges)]
pub(super) struct ActorChanges {
    /// `actors`.
    r#type: &'static str,
    #[schema(value_type = Vec<ActorSnapshot>)]
    changed: Value,
    /// The paths of those that are no more.
    gone: Vec<String>,
}

/// Somebody who looks at the board.
pub(super) struct ActorChangeSource {
    state: State,
    principal: Principal,
    filter: ActorFilter,
    last_sent: BTreeMap<String, ActorSnapshot>,
    ticks: Interval,
    is_first: bool,
}

impl ActorChangeSource {
    pub(super) fn new(state: State, principal: Principal, filter: ActorFilter) -> Self {
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { state, principal, filter, last_sent: BTreeMap::new(), ticks, is_first: true }
    }
}

impl ChangeSource for ActorChangeSource {
    /// Nobody says that the board is different.
    async fn wait_for_change(&mut self, _patience: Duration) {
        self.ticks.tick().await;
    }

    async fn next_changes(&mut self) -> Option<Value> {
        let mut found = self.state.runtime.status_board.snapshots(&self.filter.prefix);
        let kind = self.filter.kind.as_deref();
        found.retain(|actor| kind.is_none_or(|kind| actor.kind == kind));
        found.truncate(self.filter.limit);
        let found = found.into_iter().map(|actor| (actor.path.clone(), actor));
        let (changed, gone) = differences(&mut self.last_sent, found);
        let is_first = std::mem::take(&mut self.is_first);
        let is_news = is_first || !changed.is_empty() || !gone.is_empty();
        is_news.then(|| {
            let changed = redact_snapshots(&self.state, &changed);
            json!(ActorChanges { r#type: "actors", changed, gone })
        })
    }

    fn is_authorized(&self) -> bool {
        self.state.auth.is_still_valid(&self.principal)
    }
}
