//! A stream of server-sent events that reports the changes of a polled [`ChangeSource`]: first all
//! entries, then the differences. Used by [`super::actors`] and [`super::approvals`]; does not know
//! what the entries are.

use super::sse_data::format_sse_data;
use actix_web::{HttpResponse, http::header, web::Bytes};
use futures::stream;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    convert::Infallible,
    time::{Duration, Instant},
};

/// A source whose changes are streamed.
pub(super) trait ChangeSource: 'static {
    /// Waits until the source may have changed, at most `max_wait`.
    async fn wait_for_change(&mut self, max_wait: Duration);

    /// Returns a frame with the changes since the last call, or `None` if there are none. The first
    /// call always returns a frame, since nothing was sent before.
    async fn next_changes(&mut self) -> Option<Value>;

    /// True if the client may still receive changes.
    fn is_authorized(&self) -> bool;
}

/// The state of one stream.
struct ChangeStream<S> {
    source: S,
    heartbeat: Duration,
    last_frame_at: Instant,
    /// False until the first read, which does not wait for a change.
    has_started: bool,
}

/// Returns the response that streams `source`: all entries, then the changes. After each
/// `heartbeat` without a frame it sends a comment.
pub(super) fn stream_changes(source: impl ChangeSource, heartbeat: Duration) -> HttpResponse {
    let stream =
        ChangeStream { source, heartbeat, last_frame_at: Instant::now(), has_started: false };
    let frames = stream::unfold(stream, |mut stream| async move {
        let frame = stream.next_frame().await?;
        stream.last_frame_at = Instant::now();
        Some((Ok::<_, Infallible>(Bytes::from(frame)), stream))
    });
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/event-stream"))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .insert_header(("X-Accel-Buffering", "no"))
        .streaming(frames)
}

impl<S: ChangeSource> ChangeStream<S> {
    async fn next_frame(&mut self) -> Option<String> {
        loop {
            if std::mem::replace(&mut self.has_started, true) {
                let max_wait = self.heartbeat.saturating_sub(self.last_frame_at.elapsed());
                self.source.wait_for_change(max_wait).await;
            }
            if !self.source.is_authorized() {
                return None;
            }
            if let Some(frame) = self.source.next_changes().await {
                return Some(format!("data: {}\n\n", format_sse_data(&frame)));
            }
            if self.last_frame_at.elapsed() >= self.heartbeat {
                return Some(": alive\n\n".to_owned());
            }
        }
    }
}

/// Returns the entries of `current` that are new or changed, and the keys that are no longer in
/// `current`. Replaces the content of `last_sent` with `current`.
pub(super) fn differences<V: Clone + PartialEq>(
    last_sent: &mut BTreeMap<String, V>,
    current: impl IntoIterator<Item = (String, V)>,
) -> (Vec<V>, Vec<String>) {
    let mut before = std::mem::take(last_sent);
    let mut changed = Vec::new();
    for (key, value) in current {
        if before.remove(&key).as_ref() != Some(&value) {
            changed.push(value.clone());
        }
        last_sent.insert(key, value);
    }
    (changed, before.into_keys().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_is_reported_once() {
        let mut last_sent = BTreeMap::new();
        let entries = |pairs: &[(&str, u8)]| -> Vec<_> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect()
        };
        let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
        for (current, changed, removed) in [
            (entries(&[("a", 1), ("b", 1)]), vec![1, 1], keys(&[])),
            (entries(&[("a", 1), ("b", 1)]), vec![], keys(&[])),
            (entries(&[("a", 2), ("c", 1)]), vec![2, 1], keys(&["b"])),
            (entries(&[]), vec![], keys(&["a", "c"])),
        ] {
            assert_eq!(differences(&mut last_sent, current), (changed, removed));
        }
    }
}
