//! What changes in something that is looked up, as a stream of server-sent events: whoever asks is told
//! all that is there, then what differs. Shared by [`super::actors`] and [`super::approvals`]; must
//! not know what is looked up.

use actix_web::{HttpResponse, http::header, web::Bytes};
use futures::stream;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    convert::Infallible,
    time::{Duration, Instant},
};

/// Something whose changes are told.
pub(super) trait ChangeSource: 'static {
    /// Waits until it may be different, no longer than `patience`.
    async fn wait_for_change(&mut self, patience: Duration);

    /// What differs from what was told before, as a frame; from here on it counts as told. What was
    /// told never is different from nothing, so that the first frame always comes.
    async fn next_changes(&mut self) -> Option<Value>;

    /// Whether whoever asked may hear it still.
    fn is_authorized(&self) -> bool;
}

/// A stream on its way.
struct ChangeStream<L> {
    source: L,
    heartbeat: Duration,
    last_frame_at: Instant,
    /// The first look is at once.
    has_started: bool,
}

/// The stream: all that is there, then what changes. Without anything new, a sign of life comes after
/// each `heartbeat`.
pub(super) fn stream_changes(looking: impl ChangeSource, heartbeat: Duration) -> HttpResponse {
    let telling = ChangeStream {
        source: looking,
        heartbeat,
        last_frame_at: Instant::now(),
        has_started: false,
    };
    let frames = stream::unfold(telling, |mut telling| async move {
        let frame = telling.next_frame().await?;
        telling.last_frame_at = Instant::now();
        Some((Ok::<_, Infallible>(Bytes::from(frame)), telling))
    });
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/event-stream"))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .insert_header(("X-Accel-Buffering", "no"))
        .streaming(frames)
}

impl<L: ChangeSource> ChangeStream<L> {
    async fn next_frame(&mut self) -> Option<String> {
        loop {
            if std::mem::replace(&mut self.has_started, true) {
                let patience = self.heartbeat.saturating_sub(self.last_frame_at.elapsed());
                self.source.wait_for_change(patience).await;
            }
            if !self.source.is_authorized() {
                return None;
            }
            if let Some(frame) = self.source.next_changes().await {
                return Some(format!("data: {frame}\n\n"));
            }
            if self.last_frame_at.elapsed() >= self.heartbeat {
                return Some(": alive\n\n".to_owned());
            }
        }
    }
}

/// What of `found` is new or different, and the keys of what is gone. `told` is then what was found.
pub(super) fn differences<V: Clone + PartialEq>(
    told: &mut BTreeMap<String, V>,
    found: impl IntoIterator<Item = (String, V)>,
) -> (Vec<V>, Vec<String>) {
    let mut before = std::mem::take(told);
    let mut changed = Vec::new();
    for (key, value) in found {
        if before.remove(&key).as_ref() != Some(&value) {
            changed.push(value.clone());
        }
        told.insert(key, value);
    }
    (changed, before.into_keys().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_told_once() {
        let mut told = BTreeMap::new();
        let found = |pairs: &[(&str, u8)]| -> Vec<_> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect()
        };
        let gone = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
        for (now, changed, left) in [
            (found(&[("a", 1), ("b", 1)]), vec![1, 1], gone(&[])),
            (found(&[("a", 1), ("b", 1)]), vec![], gone(&[])),
            (found(&[("a", 2), ("c", 1)]), vec![2, 1], gone(&["b"])),
            (found(&[]), vec![], gone(&["a", "c"])),
        ] {
            assert_eq!(differences(&mut told, now), (changed, left));
        }
    }
}
