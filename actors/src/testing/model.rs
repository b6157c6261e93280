//! A model client that replies according to a script.

use super::{Gate, lock};
use crate::ports::ModelClient;
use futures::{StreamExt, stream, stream::BoxStream};
use greenroom_core::{
    model::{
        delta::{Delta, StopReason},
        failure::ModelFailure,
        request::ModelRequest,
    },
    usage::TokenUsage,
};
use serde_json::Value;
use std::{collections::VecDeque, sync::Mutex};

/// The usage of every complete reply.
const USAGE: TokenUsage =
    TokenUsage { input_tokens: 10, output_tokens: 5, cached_tokens: 0, estimated: false };

/// One action of a scripted model stream.
#[derive(Clone, Debug)]
pub enum StreamAction {
    /// Emits deltas that arrive together.
    Emit(Vec<Delta>),
    /// Waits until the gate is released.
    Wait(Gate),
    /// Ends the stream with this failure.
    Fail(ModelFailure),
    /// Panics in the client while the stream is read.
    Panic,
    /// Emits nothing further.
    Hang,
}

/// The actions of one reply, in order. A reply without an end is a stream that is cut off.
#[derive(Clone, Debug, Default)]
pub struct ModelReply(Vec<StreamAction>);

impl ModelReply {
    /// Creates a reply without actions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a complete reply with this text, one delta for each character.
    pub fn text(text: &str) -> Self {
        text.chars()
            .fold(Self::new(), |reply, character| reply.delta(&character.to_string()))
            .finished()
    }

    /// Creates a complete reply that calls these tools with these arguments.
    pub fn with_calls<'a>(calls: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        Self::new().finished_with_calls(calls)
    }

    /// Appends an action.
    pub fn with_action(mut self, action: StreamAction) -> Self {
        self.0.push(action);
        self
    }

    /// Appends a text delta.
    pub fn delta(self, text: &str) -> Self {
        self.with_action(StreamAction::Emit(vec![Delta::Text(text.to_owned())]))
    }

    /// Appends a wait at the gate.
    pub fn wait(self, gate: &Gate) -> Self {
        self.with_action(StreamAction::Wait(gate.clone()))
    }

    /// Appends calls of these tools and completes the reply.
    pub fn finished_with_calls<'a>(
        mut self,
        calls: impl IntoIterator<Item = (&'a str, Value)>,
    ) -> Self {
        for (index, (tool, arguments)) in (0..).zip(calls) {
            let (provider_id, tool) = (format!("call_{index}"), tool.to_owned());
            let fragment = arguments.to_string();
            let start = Delta::CallStarted { index, provider_id, tool };
            self = self.with_action(StreamAction::Emit(vec![
                start,
                Delta::CallArguments { index, fragment },
            ]));
        }
        self.complete(StopReason::ToolUse)
    }

    /// Completes the reply.
    pub fn finished(self) -> Self {
        self.complete(StopReason::EndTurn)
    }

    /// Completes the reply, which stopped for this reason.
    pub fn complete(self, reason: StopReason) -> Self {
        let deltas = vec![Delta::Usage(USAGE), Delta::Stopped(reason), Delta::Finished];
        self.with_action(StreamAction::Emit(deltas))
    }
}

type ReplyHandler = Box<dyn FnMut(&ModelRequest) -> ModelReply + Send>;

/// A model that replies from a queue or by a function, and records the requests.
pub struct ScriptedModel {
    replies: Mutex<VecDeque<ModelReply>>,
    handler: Mutex<Option<ReplyHandler>>,
    requests: Mutex<Vec<ModelRequest>>,
}

impl ScriptedModel {
    /// Creates a model that sends these replies, one after another.
    pub fn with_replies(replies: impl IntoIterator<Item = ModelReply>) -> Self {
        let replies = Mutex::new(replies.into_iter().collect());
        Self { replies, handler: Mutex::default(), requests: Mutex::default() }
    }

    /// Creates a model that sends the reply of `handler` once the queue is empty. If the handler
    /// panics, the client panics before it returns a stream.
    pub fn with_handler(handler: impl FnMut(&ModelRequest) -> ModelReply + Send + 'static) -> Self {
        Self { handler: Mutex::new(Some(Box::new(handler))), ..Self::with_replies([]) }
    }

    /// Adds a reply to the queue.
    pub fn push(&self, reply: ModelReply) {
        lock(&self.replies).push_back(reply);
    }

    /// Returns the requests so far.
    pub fn requests(&self) -> Vec<ModelRequest> {
        lock(&self.requests).clone()
    }

    fn next(&self, request: &ModelRequest) -> ModelReply {
        if let Some(reply) = lock(&self.replies).pop_front() {
            return reply;
        }
        let no_reply = || {
            let failure = ModelFailure::permanent("the test script has no more replies");
            ModelReply::new().with_action(StreamAction::Fail(failure))
        };
        lock(&self.handler).as_mut().map_or_else(no_reply, |handler| handler(request))
    }
}

impl ModelClient for ScriptedModel {
    fn stream(
        &self,
        request: ModelRequest,
    ) -> BoxStream<'static, Result<Vec<Delta>, ModelFailure>> {
        lock(&self.requests).push(request.clone());
        let ModelReply(actions) = self.next(&request);
        let stream = stream::unfold(actions.into_iter(), |mut actions| async {
            loop {
                match actions.next()? {
                    StreamAction::Emit(deltas) => return Some((Ok(deltas), actions)),
                    StreamAction::Wait(gate) => gate.wait().await,
                    StreamAction::Fail(failure) => {
                        return Some((Err(failure), Vec::new().into_iter()));
                    }
                    StreamAction::Panic => panic!("scripted panic of the model client"),
                    StreamAction::Hang => std::future::pending().await,
                }
            }
        });
        stream.boxed()
    }
}
