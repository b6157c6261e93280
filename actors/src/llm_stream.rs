//! One attempt of a model call: from the request to the complete message.
//!
//! Started by [`crate::session::Session`] on its own arbiter. Text goes to the bus as it comes;
//! the session hears once, when the attempt has ended. It never sees the log.

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
};
use std::sync::Arc;

/// What an attempt is of, and whom it tells.
pub struct ModelAttempt {
    /// The session.
    pub session_id: SessionId,
    /// The run.
    pub run_id: RunId,
    /// The step.
    pub step: u32,
    /// The fence.
    pub attempt_id: AttemptId,
    /// The open message; `None` for a plan, of which nothing is heard before it is complete (G14).
    pub message_id: Option<MessageId>,
    /// Its place in the run's trace, which the provider is told (A4).
    pub trace: TraceContext,
    /// Who hears of the end.
    pub session: Mailbox<Session>,
    /// Who hears the text.
    pub bus: Mailbox<EventBus>,
}

/// The actor.
pub struct LlmStream {
    attempt: ModelAttempt,
    client: Arc<dyn ModelClient>,
    /// Until the actor has started. Boxed, since its room stays for as long as the model speaks.
    request: Option<Box<ModelRequest>>,
    builder: MessageBuilder,
    scrubber: Scrubber,
    streamed: bool,
    outcome_reported: bool,
    status_entry: StatusEntry,
}

impl LlmStream {
    /// An attempt that begins when the actor starts. `scrubber` takes out what must not be said.
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
            request: Some(Box::new(request)),
            builder: MessageBuilder::default(),
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
            let clean = match &delta {
                Delta::Text(piece) => self.scrubber.push(piece),
                // What was held back as a possible secret is text after all.
                Delta::Finished => self.scrubber.finish(),
                Delta::ReasoningStarted { .. }
                | Delta::Reasoning { .. }
                | Delta::ReasoningSignature { .. }
                | Delta::CallStarted { .. }
                | Delta::CallArguments { .. }
                | Delta::Usage(_)
                | Delta::Stopped(_) => String::new(),
            };
            result = result.and_then(|()| self.builder.push_text(&clean));
            if text.is_empty() {
                text = clean;
            } else {
                text.push_str(&clean);
            }
            if !matches!(delta, Delta::Text(_)) {
                result = result.and_then(|()| self.builder.push(delta));
            }
        }
        let heard = self.attempt.message_id.clone().filter(|_| !text.is_empty() && result.is_ok());
        if let Some(message_id) = heard {
            self.streamed = true;
            let ModelAttempt { session_id, run_id, step, .. } = self.attempt;
            self.attempt.bus.send(PublishDelta { session_id, run_id, step, message_id, text });
        }
        result
    }

    /// Tells the session how it ended; only the first end counts.
    fn report_outcome(&mut self, result: Result<Completion, ModelFailure>) {
        if std::mem::replace(&mut self.outcome_reported, true) {
            return;
        }
        let streamed = self.streamed;
        let usage = self.builder.usage();
        let result = result.map_err(|failure| ModelAttemptFailure { failure, streamed, usage });
        let attempt_id = self.attempt.attempt_id;
        self.attempt.session.send(Fact(Input::ModelFinished { attempt_id, result }));
    }
}

impl Actor for LlmStream {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let Some(mut request) = self.request.take() else { return };
        request.trace_context = Some(self.attempt.trace);
        let obeys = ctx.address().downgrade().recipient();
        self.status_entry.accept_orders(&[ActorOrder::Stop, ActorOrder::Restart], obeys);
        let model = request.model.clone();
        self.status_entry.set_state("streaming", Some(format!("model {model}")));
        ctx.add_stream(self.client.stream(*request));
    }

    /// Also runs when a handler panicked: the session must hear of every end.
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
        self.report_outcome(Err(ModelFailure::temporary("the model's stream was cut")));
        ctx.stop();
    }
}

/// Stops the attempt.
#[derive(Message)]
#[rtype(result = "StopOutcome")]
pub struct StopStream;

/// What a stopped attempt had to say.
#[derive(Debug)]
pub enum StopOutcome {
    /// As much of the message as there was.
    Partial(Completion),
    /// It had ended before, and its end is on the way to the session.
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

/// Stopped, the run fails; restarted, the step is tried again (A2).
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
