//! Notices that the client has left, the moment standard input ends.
//!
//! `rmcp` gives calls under way a few seconds to finish once its input ends.
//! A scan or a call that hangs on purpose would use them all up, and a host that
//! shuts down would wait in vain, so those calls watch for the departure too.
//! Made by `main`; watched by `scan` and `faults`.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use rmcp::{RoleServer, service::RequestContext};
use tokio::io::{AsyncRead, ReadBuf, Stdin};
use tokio_util::sync::CancellationToken;

/// Completes once the client has closed its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientDisconnect(CancellationToken);

impl ClientDisconnect {
    /// Waits until the client has left.
    pub(crate) async fn wait(&self) {
        self.0.cancelled().await;
    }

    /// Waits until nobody wants this call's answer any more.
    pub(crate) async fn wait_or_cancelled(&self, context: &RequestContext<RoleServer>) {
        tokio::select! {
            () = self.wait() => {}
            () = context.ct.cancelled() => {}
        }
    }
}

/// Standard input that reports its end.
pub(crate) struct WatchedInput {
    inner: Stdin,
    departure: ClientDisconnect,
}

impl WatchedInput {
    pub(crate) fn new(departure: ClientDisconnect) -> Self {
        Self { inner: tokio::io::stdin(), departure }
    }
}

impl AsyncRead for WatchedInput {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        let ended = match &read {
            Poll::Ready(Ok(())) => buffer.filled().len() == before && buffer.remaining() > 0,
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        };
        if ended {
            self.departure.0.cancel();
        }
        read
    }
}
