//! Answers that come after their call was given up (R1): the SDK forgets a request once it has told the
//! server that it is cancelled, so they are heard on their way to it.

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

/// How long an answer is listened for once its call was given up.
const LATE_TIME: Duration = Duration::from_secs(600);
/// Calls of one server whose answers are listened for; then the oldest is forgotten.
const ABANDONED_CALLS_MAX: usize = 256;

/// The calls that nobody waits for any more, oldest first.
#[derive(Default)]
pub(super) struct AbandonedCalls(Mutex<VecDeque<AbandonedCall>>);

struct AbandonedCall {
    request: RequestId,
    late: LateResultHandler,
    bytes_max: usize,
    since: Instant,
}

impl AbandonedCalls {
    /// From now on an answer to `request` is late, and of it so many bytes are kept.
    pub(super) fn add(&self, request: RequestId, late: LateResultHandler, bytes_max: usize) {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.retain(|call| call.since.elapsed() < LATE_TIME);
        if calls.len() >= ABANDONED_CALLS_MAX {
            calls.pop_front();
        }
        calls.push_back(AbandonedCall { request, late, bytes_max, since: Instant::now() });
    }

    fn remove(&self, request: &RequestId) -> Option<AbandonedCall> {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = calls.iter().position(|call| call.request == *request)?;
        calls.remove(place)
    }

    fn handle_message(&self, message: &RxJsonRpcMessage<RoleClient>) {
        if let JsonRpcMessage::Response(answer) = message {
            let Some(AbandonedCall { late, bytes_max, .. }) = self.remove(&answer.id) else {
                return;
            };
            // One that only asks for more has done nothing that is worth knowing.
            if let CallResponse::Finished(outcome) =
                response_from_result(answer.result.clone(), bytes_max)
            {
                late.report(outcome);
            }
        } else if let JsonRpcMessage::Error(answer) = message {
            let Some(AbandonedCall { late, .. }) =
                answer.id.as_ref().and_then(|id| self.remove(id))
            else {
                return;
            };
            late.report(failed_outcome(&answer.error.message));
        }
    }
}

/// A transport on which late answers are heard.
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
