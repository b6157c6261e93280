//! A model that says what a test wrote down.

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

/// What every complete reply costs.
const USAGE: TokenUsage = TokenUsage { input_tokens: 10, output_tokens: 5, cached_tokens: 0 };

/// One thing that happens on a model's stream.
#[derive(Clone, Debug)]
pub enum StreamAction {
    /// These arrive together.
    Emit(Vec<Delta>),
    /// Nothing arrives before the gate lets it.
    Wait(Gate),
    /// The stream ends with that failure.
    Fail(ModelFailure),
    /// The client panics while it is read.
    Panic,
    /// Nothing arrives any more.
    Hang,
}

/// What a model answers: its beats in order. A reply that does not end as complete is cut off.
#[derive(Clone, Debug, Default)]
pub struct ModelReply(Vec<StreamAction>);

impl ModelReply {
    /// A reply without a word.
    pub fn new() -> Self {
        Self::default()
    }

    /// A complete reply: that text, in pieces of one character.
    pub fn text(text: &str) -> Self {
        text.chars().fold(Self::new(), |reply, piece| reply.delta(&piece.to_string())).done()
    }

    /// A complete reply: calls of these tools with these arguments.
    pub fn with_calls<'a>(calls: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        Self::new().then_calls(calls)
    }

    /// Then this happens.
    pub fn then(mut self, beat: StreamAction) -> Self {
        self.0.push(beat);
        self
    }

    /// Then it says a piece of text.
    pub fn delta(self, piece: &str) -> Self {
        self.then(StreamAction::Emit(vec![Delta::Text(piece.to_owned())]))
    }

    /// Then it waits at the gate.
    pub fn wait(self, gate: &Gate) -> Self {
        self.then(StreamAction::Wait(gate.clone()))
    }

    /// Then it calls these tools, and is complete.
    pub fn then_calls<'a>(mut self, calls: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        for (index, (tool, arguments)) in (0..).zip(calls) {
            let (provider_id, tool) = (format!("call_{index}"), tool.to_owned());
            let fragment = arguments.to_string();
            let start = Delta::CallStarted { index, provider_id, tool };
            self = self
                .then(StreamAction::Emit(vec![start, Delta::CallArguments { index, fragment }]));
        }
        self.end(StopReason::ToolUse)
    }

    /// Then it is complete.
    pub fn done(self) -> Self {
        self.end(StopReason::EndTurn)
    }

    fn end(self, reason: StopReason) -> Self {
        let end = vec![Delta::Usage(USAGE), Delta::Stopped(reason), Delta::Finished];
        self.then(StreamAction::Emit(end))
    }
}

type ReplyHandler = Box<dyn FnMut(&ModelRequest) -> ModelReply + Send>;

/// A model that answers from a queue of replies, or as a function decides, and remembers what it
/// was asked.
pub struct ScriptedModel {
    replies: Mutex<VecDeque<ModelReply>>,
    answer: Mutex<Option<ReplyHandler>>,
    requests: Mutex<Vec<ModelRequest>>,
}

impl ScriptedModel {
    /// A model that says these, one after another.
    pub fn with_replies(replies: impl IntoIterator<Item = ModelReply>) -> Self {
        let replies = Mutex::new(replies.into_iter().collect());
        Self { replies, answer: Mutex::default(), requests: Mutex::default() }
    }

    /// A model that says what `answer` returns once the queue is empty. If that panics, so does
    /// the client, before there is a stream.
    pub fn with_handler(answer: impl FnMut(&ModelRequest) -> ModelReply + Send + 'static) -> Self {
        Self { answer: Mutex::new(Some(Box::new(answer))), ..Self::with_replies([]) }
    }

    /// One more reply for the queue.
    pub fn push(&self, reply: ModelReply) {
        lock(&self.replies).push_back(reply);
    }

    /// What it was asked so far.
    pub fn requests(&self) -> Vec<ModelRequest> {
        lock(&self.requests).clone()
    }

    fn next(&self, request: &ModelRequest) -> ModelReply {
        if let Some(reply) = lock(&self.replies).pop_front() {
            return reply;
        }
        let unexpected = || {
            let failure = ModelFailure::permanent("the test's script has no reply left");
            ModelReply::new().then(StreamAction::Fail(failure))
        };
        lock(&self.answer).as_mut().map_or_else(unexpected, |answer| answer(request))
    }
}

impl ModelClient for ScriptedModel {
    fn stream(
        &self,
        request: ModelRequest,
    ) -> BoxStream<'static, Result<Vec<Delta>, ModelFailure>> {
        lock(&self.requests).push(request.clone());
        let ModelReply(beats) = self.next(&request);
        let stream = stream::unfold(beats.into_iter(), |mut beats| async {
            loop {
                match beats.next()? {
                    StreamAction::Emit(deltas) => return Some((Ok(deltas), beats)),
                    StreamAction::Wait(gate) => gate.wait().await,
                    StreamAction::Fail(failure) => {
                        return Some((Err(failure), Vec::new().into_iter()));
                    }
                    StreamAction::Panic => panic!("the test wants the model's client to panic"),
                    StreamAction::Hang => std::future::pending().await,
                }
            }
        });
        stream.boxed()
    }
}
