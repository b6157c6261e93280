//! The bytes of an answer, for as long as they keep coming (M3).

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

/// Bytes that fail once none have come for a while.
///
/// A timer that is put off with every piece would cost more than the piece: it is left to go off, and
/// put off then.
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
        if let Poll::Ready(heard) = self.bytes.poll_next_unpin(cx) {
            self.last_read_at = Instant::now();
            return Poll::Ready(
                heard.map(|bytes| bytes.map_err(|error| connection_failure(&error))),
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

/// The failure of a model that says nothing.
pub(super) fn idle_timeout_failure(silence_max: Duration) -> ModelFailure {
    let seconds = silence_max.as_secs_f64();
    ModelFailure::temporary(format!("the model did not answer in time: nothing for {seconds} s"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;

    #[tokio::test]
    async fn m3_idle_stream_fails_and_slow_stream_does_not() {
        let silence_max = Duration::from_millis(500);
        // Together they take longer than that.
        let slow = stream::unfold(0, |pieces| async move {
            let pause = if pieces < 120 { Duration::from_millis(5) } else { Duration::MAX };
            sleep(pause).await;
            Some((Ok(Bytes::from_static(b"x")), pieces + 1))
        });
        let heard: Vec<_> =
            IdleTimeoutStream::new(Box::pin(slow), silence_max).take(121).collect().await;
        assert!(heard[..120].iter().all(Result::is_ok));
        assert_eq!(heard[120], Err(idle_timeout_failure(silence_max)));
    }
}
