//! A byte stream of a model's response with an idle timeout (M3).

use super::connection_failure;
use bytes::Bytes;
use futures::{Stream, StreamExt as _, ready};
use greenroom_core::model::failure::ModelFailure;
use std::{
    future::Future as _,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Instant, Sleep, sleep};

/// A byte stream that fails if no bytes arrive within the idle timeout.
///
/// Resetting the timer for every chunk would cost more than the chunk: the timer is left to fire and
/// only then reset to the remaining time.
pub(super) struct IdleTimeoutStream<S> {
    bytes: S,
    idle_timeout: Duration,
    last_read_at: Instant,
    timer: Pin<Box<Sleep>>,
}

impl<S> IdleTimeoutStream<S> {
    pub(super) fn new(bytes: S, idle_timeout: Duration) -> Self {
        let timer = Box::pin(sleep(idle_timeout));
        Self { bytes, idle_timeout, last_read_at: Instant::now(), timer }
    }
}

impl<S: Stream<Item = reqwest::Result<Bytes>> + Unpin> Stream for IdleTimeoutStream<S> {
    type Item = Result<Bytes, ModelFailure>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Poll::Ready(item) = self.bytes.poll_next_unpin(cx) {
            self.last_read_at = Instant::now();
            return Poll::Ready(
                item.map(|bytes| bytes.map_err(|error| connection_failure(&error))),
            );
        }
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let due = self.last_read_at + self.idle_timeout;
            if Instant::now() >= due {
                return Poll::Ready(Some(Err(idle_timeout_failure(self.idle_timeout))));
            }
            self.timer.as_mut().reset(due);
        }
    }
}

/// Returns the failure of a model that sent no data within the idle timeout.
pub(super) fn idle_timeout_failure(idle_timeout: Duration) -> ModelFailure {
    let seconds = idle_timeout.as_secs_f64();
    ModelFailure::temporary(format!("the model did not answer in time: no data for {seconds} s"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;

    #[tokio::test]
    async fn m3_idle_stream_fails_and_slow_stream_does_not() {
        let idle_timeout = Duration::from_millis(500);
        // All chunks together take longer than the timeout.
        let slow = stream::unfold(0, |chunks| async move {
            let pause = if chunks < 120 { Duration::from_millis(5) } else { Duration::MAX };
            sleep(pause).await;
            Some((Ok(Bytes::from_static(b"x")), chunks + 1))
        });
        let items: Vec<_> =
            IdleTimeoutStream::new(Box::pin(slow), idle_timeout).take(121).collect().await;
        assert!(items[..120].iter().all(Result::is_ok));
        assert_eq!(items[120], Err(idle_timeout_failure(idle_timeout)));
    }
}
