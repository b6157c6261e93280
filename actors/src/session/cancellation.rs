//! Ending a run whose model is still talking: what it had said is asked of the stream first (S6).

use super::{Command, Session};
use crate::{
    llm_stream::{self, LlmStream, StopOutcome},
    mailbox::Mailbox,
};
use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use greenroom_core::{
    Env,
    model::failure::ModelFailure,
    session::{Input, ModelAttemptFailure, StepPhase, decide},
};

impl Session {
    /// A cancel keeps what the model had said: the stream is stopped first, and tells.
    pub(super) fn stop_stream_then_handle(
        &mut self,
        stream: Mailbox<LlmStream>,
        command: Command,
        ctx: &mut Context<Self>,
    ) {
        let stop = async move { stream.ask(llm_stream::StopStream).await };
        ctx.wait(stop.into_actor(self).map(move |stopped, actor, ctx| {
            let Command { input, reply } = command;
            let Some(StopOutcome::Partial(said)) = stopped else {
                // It ended by itself, and its end is in our mailbox: that first, then this again.
                actor.stream = None;
                actor.commands_handled -= 1;
                return actor.own_mailbox(ctx).send(Command { input, reply });
            };
            let streamed = !said.message.text.is_empty();
            let usage = said.usage;
            actor.stopped_stream =
                actor.stream.take().map(|(attempt_id, _)| (attempt_id, streamed, usage));
            let mut input = input;
            if let Input::CancelRun { partial, .. }
            | Input::CloseSession { partial, .. }
            | Input::Interrupt { partial, .. } = &mut input
            {
                *partial = Some(said);
            }
            actor.handle_input(input, reply, ctx);
        }));
    }

    /// The live model stream, if `input` would end its run.
    pub(super) fn stream_to_stop(&self, input: &Input) -> Option<Mailbox<LlmStream>> {
        let (_, stream) = self.stream.as_ref()?;
        let run = self.state.active.run.as_ref()?;
        let ends = match input {
            Input::CancelRun { run_id, .. } => run_id.is_none_or(|run_id| run_id == run.run_id),
            Input::Interrupt { .. } | Input::CloseSession { .. } => true,
            Input::CreateSession { .. }
            | Input::ForkSession { .. }
            | Input::CreateChild { .. }
            | Input::NarrowSettings { .. }
            | Input::ChildEventsReceived { .. }
            | Input::ChildGone { .. }
            | Input::ChangeSettings { .. }
            | Input::SubmitMessage { .. }
            | Input::AnswerApproval { .. }
            | Input::RevokeGrants { .. }
            | Input::GiveFeedback { .. }
            | Input::ModelFinished { .. }
            | Input::ToolFinished { .. }
            | Input::ToolProgressed { .. }
            | Input::ElicitationRequested { .. }
            | Input::ElicitationWithdrawn { .. }
            | Input::ExclusiveLockGranted { .. }
            | Input::Wake
            | Input::Rehydrated { .. } => false,
        };
        let streaming = matches!(run.phase, StepPhase::Streaming { .. });
        (ends && streaming && self.would_change_state(input)).then(|| stream.clone())
    }

    /// Whether anything comes of `input`: one that is refused, or was taken before, ends nothing.
    fn would_change_state(&self, input: &Input) -> bool {
        let (rules, clock) = (self.rules_for(input), &self.deps.clock);
        let env = Env::new(clock.now(), clock.seed(), &rules);
        decide(&self.state, input.clone(), &env).is_ok_and(|decision| !decision.events.is_empty())
    }

    /// What became of a stream that was stopped for a command that could not be stored: it was
    /// cut, and its step is tried again.
    pub(super) fn take_stopped_stream_failure(&mut self) -> Option<Input> {
        let (attempt_id, streamed, usage) = self.stopped_stream.take()?;
        let failure = ModelFailure::temporary("stopped for a cancel that could not be stored");
        Some(Input::ModelFinished {
            attempt_id,
            result: Err(ModelAttemptFailure { failure, streamed, usage }),
        })
    }
}
