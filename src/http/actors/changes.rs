//! What changes among live actors, as a stream (A2): what an administrator's client shows is looked
//! up on the board now and then, and what differs from what was told before is told. Actors are
//! neither asked nor slowed, however many look on.

use super::redacted;
use crate::http::State;
use actix_web::{HttpResponse, http::header, web::Bytes};
use futures::stream;
use greenroom_actors::observation::Snapshot;
use serde_json::json;
use std::{
    collections::BTreeMap,
    convert::Infallible,
    time::{Duration, Instant},
};
use tokio::time::{Interval, MissedTickBehavior, interval};

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// Without anything new, a sign of life comes after so long.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// Which actors, and how many of them.
pub(super) struct Wanted {
    pub(super) prefix: String,
    pub(super) kind: Option<String>,
    pub(super) limit: usize,
}

struct Looking {
    state: State,
    wanted: Wanted,
    told: BTreeMap<String, Snapshot>,
    ticks: Interval,
    spoke_at: Option<Instant>,
}

/// The stream: all that stand there, then what changes.
pub(super) fn stream(state: State, wanted: Wanted) -> HttpResponse {
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let looking = Looking { state, wanted, told: BTreeMap::new(), ticks, spoke_at: None };
    let frames = stream::unfold(looking, |mut looking| async move {
        let frame = looking.next().await;
        Some((Ok::<_, Infallible>(Bytes::from(frame)), looking))
    });
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/event-stream"))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .insert_header(("X-Accel-Buffering", "no"))
        .streaming(frames)
}

impl Looking {
    async fn next(&mut self) -> String {
        loop {
            self.ticks.tick().await;
            let (changed, gone) = self.look();
            let first = self.spoke_at.is_none();
            if first || !changed.is_empty() || !gone.is_empty() {
                self.spoke_at = Some(Instant::now());
                let changed = redacted(&self.state, &changed);
                let frame = json!({"type": "actors", "changed": changed, "gone": gone});
                return format!("data: {frame}\n\n");
            }
            if self.spoke_at.is_some_and(|at| at.elapsed() >= SILENCE_MAX) {
                self.spoke_at = Some(Instant::now());
                return ": alive\n\n".to_owned();
            }
        }
    }

    /// What differs from what was told; from here on it counts as told.
    fn look(&mut self) -> (Vec<Snapshot>, Vec<String>) {
        let mut found = self.state.runtime.board.snapshots(&self.wanted.prefix);
        let kind = self.wanted.kind.as_deref();
        found.retain(|actor| kind.is_none_or(|kind| actor.kind == kind));
        found.truncate(self.wanted.limit);
        let mut before = std::mem::take(&mut self.told);
        let mut changed = Vec::new();
        for actor in found {
            if before.remove(&actor.path).as_ref() != Some(&actor) {
                changed.push(actor.clone());
            }
            self.told.insert(actor.path.clone(), actor);
        }
        (changed, before.into_keys().collect())
    }
}
