//! One attempt of a model call: from the request to the complete message.
//!
//! Started by [`crate::session::Session`] on its own arbiter. Text goes to the bus as it comes;
//! the session hears once, when the attempt has ended. It never sees the log.

use crate::{
    event_bus::{EventBus, Heard},
    mailbox::Mailbox,
    observation::Watch,
    order::{Obey, Order},
    ports::ModelClient,
    session::{Fact, Session},
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
    session::{Input, StepFailure},
    trace::Trace,
};
use std::sync::Arc;

/// What an attempt is of, and whom it tells.
pub struct Attempt {
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
    pub trace: Trace,
    /// Who hears of the end.
    pub session: Mailbox<Session>,
    /// Who hears the text.
    pub bus: Mailbox<EventBus>,
}

/// The actor.
pub struct LlmStream {
    attempt: Attempt,
    client: Arc<dyn ModelClient>,
    /// Until the actor has started. Boxed, since its room stays for as long as the model speaks.
    request: Option<Box<ModelRequest>>,
    builder: MessageBuilder,
    scrubber: Scrubber,
    streamed: bool,
    concluded: bool,
    watch: Watch,
}

impl LlmStream {
    /// An attempt that begins when the actor starts. `scrubber` takes out what must not be said.
    pub fn new(
        attempt: Attempt,
        client: Arc<dyn ModelClient>,
        request: ModelRequest,
        scrubber: Scrubber,
        watch: Watch,
    ) -> Self {
        Self {
            attempt,
            client,
            request: Some(Box::new(request)),
            builder: MessageBuilder::default(),
            scrubber,
            streamed: false,
            concluded: false,
            watch,
        }
    }

    fn hear(&mut self, deltas: Vec<Delta>) -> Result<(), ModelFailure> {
        let mut text = String::new();
        let mut result = Ok(());
        for delta in deltas {
            let clean = match &delta {
                Delta::Text(piece) => self.scrubber.push(piece),
                // What was held back as a possible secret is text after all.
                Delta::Finished => self.scrubber.end(),
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
            let Attempt { session_id, run_id, step, .. } = self.attempt;
            self.attempt.bus.tell(Heard { session_id, run_id, step, message_id, text });
        }
        result
    }

    /// Tells the session how it ended; only the first end counts.
    fn conclude(&mut self, result: Result<Completion, ModelFailure>) {
        if std::mem::replace(&mut self.concluded, true) {
            return;
        }
        let streamed = self.streamed;
        let usage = self.builder.usage();
        let result = result.map_err(|failure| StepFailure { failure, streamed, usage });
        let attempt_id = self.attempt.attempt_id;
        self.attempt.session.tell(Fact(Input::StepFinished { attempt_id, result }));
    }
}

impl Actor for LlmStream {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let Some(mut request) = self.request.take() else { return };
        request.trace = Some(self.attempt.trace);
        let obeys = ctx.address().downgrade().recipient();
        self.watch.obeys(&[Order::Stop, Order::Restart], obeys);
        let model = request.model.clone();
        self.watch.set_state("streaming", Some(format!("model {model}")));
        ctx.add_stream(self.client.stream(*request));
    }

    /// Also runs when a handler panicked: the session must hear of every end.
    fn stopped(&mut self, _ctx: &mut Self::Context) {
        self.conclude(Err(ModelFailure::temporary("the model stream failed inside the server")));
    }
}

impl StreamHandler<Result<Vec<Delta>, ModelFailure>> for LlmStream {
    fn handle(&mut self, item: Result<Vec<Delta>, ModelFailure>, ctx: &mut Self::Context) {
        if let Err(failure) = item.and_then(|deltas| self.hear(deltas)) {
            self.watch.fail(&failure.message);
            self.conclude(Err(failure));
            ctx.stop();
        } else if self.builder.is_finished() {
            let builder = std::mem::take(&mut self.builder);
            self.conclude(Ok(builder.complete()));
            ctx.stop();
        }
    }

    fn finished(&mut self, ctx: &mut Self::Context) {
        self.conclude(Err(ModelFailure::temporary("the model's stream was cut")));
        ctx.stop();
    }
}

/// Stops the attempt.
#[derive(Message)]
#[rtype(result = "Stopped")]
pub struct Stop;

/// What a stopped attempt had to say.
#[derive(Debug)]
pub enum Stopped {
    /// As much of the message as there was.
    Partial(Completion),
    /// It had ended before, and its end is on the way to the session.
    AlreadyEnded,
}

impl Handler<Stop> for LlmStream {
    type Result = MessageResult<Stop>;

    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) -> Self::Result {
        ctx.stop();
        if std::mem::replace(&mut self.concluded, true) {
            return MessageResult(Stopped::AlreadyEnded);
        }
        let builder = std::mem::take(&mut self.builder);
        MessageResult(Stopped::Partial(builder.stopped()))
    }
}

/// Stopped, the run fails; restarted, the step is tried again (A2).
impl Handler<Obey> for LlmStream {
    type Result = ();

    fn handle(&mut self, Obey { order, .. }: Obey, ctx: &mut Self::Context) {
        self.watch.tick();
        self.conclude(Err(match order {
            Order::Stop => ModelFailure::permanent("an administrator stopped the model stream"),
            Order::Restart => {
                ModelFailure::temporary("an administrator restarted the model stream")
            }
        }));
        ctx.stop();
    }
}
