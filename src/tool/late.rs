//! Answers that come after their call was given up (R1): the SDK forgets a request once it has told the
//! server that it is cancelled, so they are heard on their way to it.

use super::{
    call::{Heard, failed, of_result},
    link::Routes,
};
use greenroom_actors::ports::Late;
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
const GIVEN_UP_MAX: usize = 256;

/// The calls that nobody waits for any more, oldest first.
#[derive(Default)]
pub(super) struct GivenUp(Mutex<VecDeque<Call>>);

struct Call {
    request: RequestId,
    late: Late,
    bytes_max: usize,
    since: Instant,
}

impl GivenUp {
    /// From now on an answer to `request` is late, and of it so many bytes are kept.
    pub(super) fn add(&self, request: RequestId, late: Late, bytes_max: usize) {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.retain(|call| call.since.elapsed() < LATE_TIME);
        if calls.len() >= GIVEN_UP_MAX {
            calls.pop_front();
        }
        calls.push_back(Call { request, late, bytes_max, since: Instant::now() });
    }

    fn take(&self, request: &RequestId) -> Option<Call> {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = calls.iter().position(|call| call.request == *request)?;
        calls.remove(place)
    }

    fn hear(&self, message: &RxJsonRpcMessage<RoleClient>) {
        if let JsonRpcMessage::Response(answer) = message {
            let Some(Call { late, bytes_max, .. }) = self.take(&answer.id) else { return };
            // One that only asks for more has done nothing that is worth knowing.
            if let Heard::End(outcome) = of_result(answer.result.clone(), bytes_max) {
                late.tell(outcome);
            }
        } else if let JsonRpcMessage::Error(answer) = message {
            let Some(Call { late, .. }) = answer.id.as_ref().and_then(|id| self.take(id)) else {
                return;
            };
            late.tell(failed(&answer.error.message));
        }
    }
}

/// A transport on which late answers are heard.
pub(super) struct Listening<T> {
    pub(super) to: T,
    pub(super) routes: Arc<Routes>,
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Listening<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.to.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let message = self.to.receive().await?;
        self.routes.given_up.hear(&message);
        Some(message)
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.to.close().await
    }
}
