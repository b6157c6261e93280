//! Detects that the client has disconnected: standard input has ended.
//!
//! After the end of its input, `rmcp` gives running calls a few seconds to finish. A scan or a
//! deliberately hanging call would use all of them, and a host that shuts down would wait; these calls
//! therefore stop at the disconnect. Created by `main`; used by `scan` and `faults`.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use rmcp::{RoleServer, service::RequestContext};
use tokio::io::{AsyncRead, ReadBuf, Stdin};
use tokio_util::sync::CancellationToken;

/// A signal that the client has disconnected.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientDisconnect(CancellationToken);

impl ClientDisconnect {
    /// Waits until the client has disconnected.
    pub(crate) async fn wait(&self) {
        self.0.cancelled().await;
    }

    /// Waits until the client has disconnected or cancelled the call.
    pub(crate) async fn wait_or_cancelled(&self, context: &RequestContext<RoleServer>) {
        tokio::select! {
            () = self.wait() => {}
            () = context.ct.cancelled() => {}
        }
    }
}

/// Standard input that signals its end.
pub(crate) struct WatchedInput {
    inner: Stdin,
    disconnect: ClientDisconnect,
}

impl WatchedInput {
    pub(crate) fn new(disconnect: ClientDisconnect) -> Self {
        Self { inner: tokio::io::stdin(), disconnect }
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
            self.disconnect.0.cancel();
        }
        read
    }
}
