//! The stream of changes of live actors (A2).
//!
//! Each stream polls the status board and sends the actors whose snapshots differ from the ones it
//! sent last. Streams do not slow down actors: they read only the status board.

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

/// Interval at which the status board is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Selects the actors of a stream and limits their number.
pub(super) struct ActorFilter {
    pub(super) prefix: String,
    pub(super) kind: Option<String>,
    pub(super) limit: usize,
}

/// The changes since the last frame.
#[derive(Serialize, ToSchema)]
#[schema(as = ActorChanges)]
pub(super) struct ActorChanges {
    /// Always `actors`.
    r#type: &'static str,
    /// Actors that are new or changed.
    #[schema(value_type = Vec<ActorSnapshot>)]
    changed: Value,
    /// Paths of actors that no longer exist.
    gone: Vec<String>,
}

/// Polls the status board for one stream.
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
    /// Waits for the next tick: the status board sends no change notifications.
    async fn wait_for_change(&mut self, _max_wait: Duration) {
        self.ticks.tick().await;
    }

    async fn next_changes(&mut self) -> Option<Value> {
        let mut actors = self.state.runtime.status_board.snapshots(&self.filter.prefix);
        let kind = self.filter.kind.as_deref();
        actors.retain(|actor| kind.is_none_or(|kind| actor.kind == kind));
        actors.truncate(self.filter.limit);
        let actors = actors.into_iter().map(|actor| (actor.path.clone(), actor));
        let (changed, removed) = differences(&mut self.last_sent, actors);
        let is_first = std::mem::take(&mut self.is_first);
        let has_changes = is_first || !changed.is_empty() || !removed.is_empty();
        has_changes.then(|| {
            let changed = redact_snapshots(&self.state, &changed);
            json!(ActorChanges { r#type: "actors", changed, gone: removed })
        })
    }

    fn is_authorized(&self) -> bool {
        self.state.auth.is_still_valid(&self.principal)
    }
}
