//! Reports responses that arrive after their call was abandoned (R1). The SDK discards a request once
//! its cancellation is sent, so this transport wrapper intercepts the responses before the SDK.

use super::{
    call::{CallResponse, failed_outcome, response_from_result},
    mcp_client::NotificationRoutes,
};
use greenroom_actors::ports::LateResultHandler;
use rmcp::{
    RoleClient,
    model::{JsonRpcMessage, RequestId},
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// Time for which the response of an abandoned call is awaited.
const LATE_TIME: Duration = Duration::from_secs(600);
/// Maximum number of abandoned calls per server; adding another one drops the oldest.
const ABANDONED_CALLS_MAX: usize = 256;

/// The abandoned calls, oldest first.
#[derive(Default)]
pub(super) struct AbandonedCalls(Mutex<VecDeque<AbandonedCall>>);

struct AbandonedCall {
    request: RequestId,
    handler: LateResultHandler,
    bytes_max: usize,
    since: Instant,
}

impl AbandonedCalls {
    /// Registers an abandoned request. A late response is reported to `handler`, limited to
    /// `bytes_max` bytes.
    pub(super) fn add(&self, request: RequestId, handler: LateResultHandler, bytes_max: usize) {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.retain(|call| call.since.elapsed() < LATE_TIME);
        if calls.len() >= ABANDONED_CALLS_MAX {
            calls.pop_front();
        }
        calls.push_back(AbandonedCall { request, handler, bytes_max, since: Instant::now() });
    }

    fn remove(&self, request: &RequestId) -> Option<AbandonedCall> {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let index = calls.iter().position(|call| call.request == *request)?;
        calls.remove(index)
    }

    fn handle_message(&self, message: &RxJsonRpcMessage<RoleClient>) {
        if let JsonRpcMessage::Response(response) = message {
            let Some(AbandonedCall { handler, bytes_max, .. }) = self.remove(&response.id) else {
                return;
            };
            // A response that only requires input contains no result.
            if let CallResponse::Finished(outcome) =
                response_from_result(response.result.clone(), bytes_max)
            {
                handler.report(outcome);
            }
        } else if let JsonRpcMessage::Error(response) = message {
            let Some(AbandonedCall { handler, .. }) =
                response.id.as_ref().and_then(|id| self.remove(id))
            else {
                return;
            };
            handler.report(failed_outcome(&response.error.message));
        }
    }
}

/// A transport that reports late responses.
pub(super) struct LateResultTransport<T> {
    pub(super) inner: T,
    pub(super) routes: Arc<NotificationRoutes>,
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for LateResultTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let message = self.inner.receive().await?;
        self.routes.abandoned_calls.handle_message(&message);
        Some(message)
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
