//! The bytes of an answer, for as long as they keep coming (M3).

use super::broken;
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
pub(super) struct Watched<S> {
    bytes: S,
    silence_max: Duration,
    heard_at: Instant,
    alarm: Pin<Box<Sleep>>,
}

impl<S> Watched<S> {
    pub(super) fn new(bytes: S, silence_max: Duration) -> Self {
        let alarm = Box::pin(sleep(silence_max));
        Self { bytes, silence_max, heard_at: Instant::now(), alarm }
    }
}

impl<S: Stream<Item = reqwest::Result<Bytes>> + Unpin> Stream for Watched<S> {
    type Item = Result<Bytes, ModelFailure>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Poll::Ready(heard) = self.bytes.poll_next_unpin(cx) {
            self.heard_at = Instant::now();
            return Poll::Ready(heard.map(|bytes| bytes.map_err(|error| broken(&error))));
        }
        loop {
            ready!(self.alarm.as_mut().poll(cx));
            let due = self.heard_at + self.silence_max;
            if Instant::now() >= due {
                return Poll::Ready(Some(Err(silent(self.silence_max))));
            }
            self.alarm.as_mut().reset(due);
        }
    }
}

/// The failure of a model that says nothing.
pub(super) fn silent(silence_max: Duration) -> ModelFailure {
    let seconds = silence_max.as_secs_f64();
    ModelFailure::temporary(format!("the model did not answer in time: nothing for {seconds} s"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;

    #[tokio::test]
    async fn m3_who_says_nothing_for_too_long_fails_and_who_is_slow_does_not() {
        let silence_max = Duration::from_millis(500);
        // Together they take longer than that.
        let slow = stream::unfold(0, |pieces| async move {
            let pause = if pieces < 120 { Duration::from_millis(5) } else { Duration::MAX };
            sleep(pause).await;
            Some((Ok(Bytes::from_static(b"x")), pieces + 1))
        });
        let heard: Vec<_> = Watched::new(Box::pin(slow), silence_max).take(121).collect().await;
        assert!(heard[..120].iter().all(Result::is_ok));
        assert_eq!(heard[120], Err(silent(silence_max)));
    }
}
