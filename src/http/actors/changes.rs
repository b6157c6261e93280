//! What changes among live actors, as a stream (A2): what an administrator's client shows is looked
//! up on the board now and then, and what differs from what was told before is told. Actors are
//! neither asked nor slowed, however many look on.

use super::redacted;
use crate::{
    auth::Principal,
    http::{
        State,
        changes::{Looking, differences},
    },
};
use greenroom_actors::observation::Snapshot;
use serde::Serialize;
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::{Interval, MissedTickBehavior, interval};
use utoipa::ToSchema;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(500);

/// Which actors, and how many of them.
pub(super) struct Wanted {
    pub(super) prefix: String,
    pub(super) kind: Option<String>,
    pub(super) limit: usize,
}

/// What changed since the last frame.
#[derive(Serialize, ToSchema)]
#[schema(as = ActorChanges)]
pub(super) struct Changes {
    /// `actors`.
    r#type: &'static str,
    #[schema(value_type = Vec<Snapshot>)]
    changed: Value,
    /// The paths of those that are no more.
    gone: Vec<String>,
}

/// Somebody who looks at the board.
pub(super) struct Onlooker {
    state: State,
    principal: Principal,
    wanted: Wanted,
    told: BTreeMap<String, Snapshot>,
    ticks: Interval,
    is_first: bool,
}

impl Onlooker {
    pub(super) fn new(state: State, principal: Principal, wanted: Wanted) -> Self {
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { state, principal, wanted, told: BTreeMap::new(), ticks, is_first: true }
    }
}

impl Looking for Onlooker {
    /// Nobody says that the board is different.
    async fn wait(&mut self, _patience: Duration) {
        self.ticks.tick().await;
    }

    async fn look(&mut self) -> Option<Value> {
        let mut found = self.state.runtime.board.snapshots(&self.wanted.prefix);
        let kind = self.wanted.kind.as_deref();
        found.retain(|actor| kind.is_none_or(|kind| actor.kind == kind));
        found.truncate(self.wanted.limit);
        let found = found.into_iter().map(|actor| (actor.path.clone(), actor));
        let (changed, gone) = differences(&mut self.told, found);
        let is_first = std::mem::take(&mut self.is_first);
        let is_news = is_first || !changed.is_empty() || !gone.is_empty();
        is_news.then(|| {
            let changed = redacted(&self.state, &changed);
            json!(Changes { r#type: "actors", changed, gone })
        })
    }

    fn may_hear(&self) -> bool {
        self.state.auth.still_holds(&self.principal)
    }
}
