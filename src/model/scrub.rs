//! Model text without the configured secrets, from the moment it arrives (E7): a secret that comes
//! in pieces must neither be streamed nor stored. Wraps a [`ModelClient`]; startup puts it there.

use crate::redaction::{Redactor, Scrubber};
use futures::{StreamExt as _, stream::BoxStream};
use greenroom_actors::ports::ModelClient;
use greenroom_core::model::{
    delta::{Delta, ModelFailure},
    request::ModelRequest,
};
use std::sync::Arc;

/// A model client whose models know no secrets.
pub struct Scrubbed<C> {
    client: C,
    redactor: Arc<Redactor>,
}

impl<C> Scrubbed<C> {
    /// Scrubs what `client`'s models say.
    pub fn new(client: C, redactor: Arc<Redactor>) -> Self {
        Self { client, redactor }
    }
}

impl<C: ModelClient> ModelClient for Scrubbed<C> {
    fn stream(
        &self,
        request: ModelRequest,
    ) -> BoxStream<'static, Result<Vec<Delta>, ModelFailure>> {
        let mut scrubber = Scrubber::new(self.redactor.clone());
        let stream = self.client.stream(request);
        stream.map(move |deltas| Ok(scrubbed(deltas?, &mut scrubber))).boxed()
    }
}

/// The same deltas; text that may be the beginning of a secret comes later, at the latest before
/// the end. What else arrives overtakes it: text has no order with calls and thinking.
fn scrubbed(deltas: Vec<Delta>, scrubber: &mut Scrubber) -> Vec<Delta> {
    let mut clean = Vec::with_capacity(deltas.len());
    for delta in deltas {
        let text = match &delta {
            Delta::Text(piece) => scrubber.push(piece),
            Delta::Finished => scrubber.finish(),
            Delta::ReasoningStarted { .. }
            | Delta::Reasoning { .. }
            | Delta::ReasoningSignature { .. }
            | Delta::CallStarted { .. }
            | Delta::CallArguments { .. }
            | Delta::Usage(_)
            | Delta::Stopped(_) => String::new(),
        };
        if !text.is_empty() {
            clean.push(Delta::Text(text));
        }
        if !matches!(delta, Delta::Text(_)) {
            clean.push(delta);
        }
    }
    clean
}
