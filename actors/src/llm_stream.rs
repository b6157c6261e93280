//! One attempt of a model call: from the request to the complete message.
//!
//! [`crate::session::Session`] starts it on its own arbiter. Text is published to the event bus as
//! it arrives; the session receives one message, at the end of the attempt. The actor has no access
//! to the log.

use crate::{
    event_bus::{EventBus, PublishDelta},
    mailbox::Mailbox,
    order::{ActorOrder, ExecuteOrder},
    ports::ModelClient,
    session::{Fact, Session},
    status_board::StatusEntry,
};
use actix::{
    Actor, ActorContext, AsyncContext, Context, Handler, Message, MessageResult, StreamHandler,
};
use greenroom_core::{
    ids::{AttemptId, MessageId, RunId, SessionId},
    model::{
        completion::{Completion, MessageBuilder},
        delta::Delta,
        failure::ModelFailure,
        request::ModelRequest,
    },
    scrub::Scrubber,
    session::{Input, ModelAttemptFailure},
    trace_context::TraceContext,
    usage::TokenUsage,
};
use std::sync::Arc;

/// The identity of a model attempt and the receivers of its results.
pub struct ModelAttempt {
    /// The session.
    pub session_id: SessionId,
    /// The run.
    pub run_id: RunId,
    /// The step.
    pub step: u32,
    /// The attempt, which excludes late results of earlier attempts.
    pub attempt_id: AttemptId,
    /// The open message; `None` for a plan, whose text is not streamed (G14).
    pub message_id: Option<MessageId>,
    /// The trace context of the attempt, which is sent to the provider (A4).
    pub trace: TraceContext,
    /// The receiver of the end of the attempt.
    pub session: Mailbox<Session>,
    /// The receiver of the text.
    pub bus: Mailbox<EventBus>,
}

/// The actor that runs a model attempt.
pub struct LlmStream {
    attempt: ModelAttempt,
    client: Arc<dyn ModelClient>,
    /// The request, until the actor has started. Boxed to free its memory while the model streams.
    request: Option<Box<ModelRequest>>,
    builder: MessageBuilder,
    scrubber: Scrubber,
    streamed: bool,
    outcome_reported: bool,
    status_entry: StatusEntry,
}

impl LlmStream {
    /// Creates an attempt that starts when the actor starts. `scrubber` removes secrets (E7).
    pub fn new(
        attempt: ModelAttempt,
        client: Arc<dyn ModelClient>,
        request: ModelRequest,
        scrubber: Scrubber,
        status_entry: StatusEntry,
    ) -> Self {
        Self {
            attempt,
            client,
            builder: MessageBuilder::new(request.message_limits),
            request: Some(Box::new(request)),
            scrubber,
            streamed: false,
            outcome_reported: false,
            status_entry,
        }
    }

    fn handle_deltas(&mut self, deltas: Vec<Delta>) -> Result<(), ModelFailure> {
        let mut text = String::new();
        let mut result = Ok(());
        for delta in deltas {
            let mut clean = match &delta {
                Delta::Text(text_delta) => self.scrubber.push(text_delta),
                // Text that was held back as a possible secret is not one.
                Delta::Finished => self.scrubber.finish(),
                Delta::ReasoningStarted { .. }
                | Delta::Reasoning { .. }
                | Delta::ReasoningSignature { .. }
                | Delta::CallStarted { .. }
                | Delta::CallArguments { .. }
                | Delta::CallDropped
                | Delta::Usage(_)
                | Delta::Stopped(_) => String::new(),
            };
            // Text that the message does not keep is not streamed either.
            clean.truncate(self.builder.push_text(&clean));
            if text.is_empty() {
                text = clean;
            } else {
                text.push_str(&clean);
            }
            if !matches!(delta, Delta::Text(_)) {
                result = result.and_then(|()| self.builder.push(delta));
            }
        }
        let streamed_message =
            self.attempt.message_id.clone().filter(|_| !text.is_empty() && result.is_ok());
        if let Some(message_id) = streamed_message {
            self.streamed = true;
            let ModelAttempt { session_id, run_id, step, .. } = self.attempt;
            self.attempt.bus.send(PublishDelta { session_id, run_id, step, message_id, text });
        }
        result
    }

    /// Reports the end of the attempt to the session. Only the first call has an effect.
    fn report_outcome(&mut self, result: Result<Completion, ModelFailure>) {
        if std::mem::replace(&mut self.outcome_reported, true) {
            return;
        }
        let streamed = self.streamed;
        let usage = |failure: &ModelFailure| match self.builder.is_empty() && failure.is_free() {
            true => TokenUsage::default(),
            false => self.builder.usage(),
        };
        let result = result.map_err(|failure| ModelAttemptFailure {
            usage: usage(&failure),
            failure,
            streamed,
        });
        let attempt_id = self.attempt.attempt_id;
        self.attempt.session.send(Fact(Input::ModelFinished { attempt_id, result }));
    }
}

impl Actor for LlmStream {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let Some(mut request) = self.request.take() else { return };
        request.trace_context = Some(self.attempt.trace);
        let order_recipient = ctx.address().downgrade().recipient();
        self.status_entry.accept_orders(&[ActorOrder::Stop, ActorOrder::Restart], order_recipient);
        let model = request.model.clone();
        self.status_entry.set_state("streaming", Some(format!("model {model}")));
        ctx.add_stream(self.client.stream(*request));
    }

    /// Also runs when a handler panicked: the session must receive the end of every attempt.
    fn stopped(&mut self, _ctx: &mut Self::Context) {
        self.report_outcome(Err(ModelFailure::temporary(
            "the model stream failed inside the server",
        )));
    }
}

impl StreamHandler<Result<Vec<Delta>, ModelFailure>> for LlmStream {
    fn handle(&mut self, item: Result<Vec<Delta>, ModelFailure>, ctx: &mut Self::Context) {
        if let Err(failure) = item.and_then(|deltas| self.handle_deltas(deltas)) {
            self.status_entry.record_failure(&failure.message);
            self.report_outcome(Err(failure));
            ctx.stop();
        } else if self.builder.is_finished() {
            let builder = std::mem::take(&mut self.builder);
            self.report_outcome(Ok(builder.into_completion()));
            ctx.stop();
        }
    }

    fn finished(&mut self, ctx: &mut Self::Context) {
        self.report_outcome(Err(ModelFailure::temporary("the model's stream ended early")));
        ctx.stop();
    }
}

/// Stops the attempt.
#[derive(Message)]
#[rtype(result = "StopOutcome")]
pub struct StopStream;

/// The reply of an attempt that was stopped.
#[derive(Debug)]
pub enum StopOutcome {
    /// The part of the message received so far.
    Partial(Completion),
    /// The attempt had ended. Its end is on the way to the session.
    AlreadyEnded,
}

impl Handler<StopStream> for LlmStream {
    type Result = MessageResult<StopStream>;

    fn handle(&mut self, _: StopStream, ctx: &mut Self::Context) -> Self::Result {
        ctx.stop();
        if std::mem::replace(&mut self.outcome_reported, true) {
            return MessageResult(StopOutcome::AlreadyEnded);
        }
        let builder = std::mem::take(&mut self.builder);
        MessageResult(StopOutcome::Partial(builder.into_partial_completion()))
    }
}

/// Stop fails the run. Restart retries the step (A2).
impl Handler<ExecuteOrder> for LlmStream {
    type Result = ();

    fn handle(&mut self, ExecuteOrder { order, .. }: ExecuteOrder, ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        self.report_outcome(Err(match order {
            ActorOrder::Stop => {
                ModelFailure::permanent("an administrator stopped the model stream")
            }
            ActorOrder::Restart => {
                ModelFailure::temporary("an administrator restarted the model stream")
            }
        }));
        ctx.stop();
    }
}
