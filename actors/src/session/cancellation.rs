//! Ends a run while its model is streaming. The stream is stopped first, to keep its text (S6).

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
    /// Stops the model stream, adds its partial message to the command, then handles the command.
    pub(super) fn stop_stream_then_handle(
        &mut self,
        stream: Mailbox<LlmStream>,
        command: Command,
        ctx: &mut Context<Self>,
    ) {
        let stop = async move { stream.request(llm_stream::StopStream).await };
        ctx.wait(stop.into_actor(self).map(move |outcome, actor, ctx| {
            let Command { input, reply } = command;
            let Some(StopOutcome::Partial(partial_message)) = outcome else {
                // The stream had ended and its result is in the mailbox. Requeue the command after
                // it.
                actor.stream = None;
                actor.commands_handled -= 1;
                return actor.own_mailbox(ctx).send(Command { input, reply });
            };
            let streamed = !partial_message.message.text.is_empty();
            let usage = partial_message.usage;
            actor.stopped_stream =
                actor.stream.take().map(|(attempt_id, _)| (attempt_id, streamed, usage));
            let mut input = input;
            if let Input::CancelRun { partial, .. }
            | Input::CloseSession { partial, .. }
            | Input::Interrupt { partial, .. } = &mut input
            {
                *partial = Some(partial_message);
            }
            actor.handle_input(input, reply, ctx);
        }));
    }

    /// Returns the live model stream if `input` would end its run.
    pub(super) fn stream_to_stop(&self, input: &Input) -> Option<Mailbox<LlmStream>> {
        let (_, stream) = self.stream.as_ref()?;
        let run = self.state.active.run.as_ref()?;
        let ends_run = match input {
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
            | Input::ChangeQueuedMessage { .. }
            | Input::WithdrawQueuedMessage { .. }
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
        let is_streaming = matches!(run.phase, StepPhase::Streaming { .. });
        (ends_run && is_streaming && self.would_change_state(input)).then(|| stream.clone())
    }

    /// True if deciding `input` yields events. A rejected or repeated command does not stop a
    /// stream.
    fn would_change_state(&self, input: &Input) -> bool {
        let (rules, clock) = (self.rules_for(input), &self.deps.clock);
        let env = Env::new(clock.now(), clock.seed(), &rules);
        decide(&self.state, input.clone(), &env).is_ok_and(|decision| !decision.events.is_empty())
    }

    /// Returns the failure of a stream that was stopped for a command that could not be stored. The
    /// stream was cut off, so its step is retried.
    pub(super) fn take_stopped_stream_failure(&mut self) -> Option<Input> {
        let (attempt_id, streamed, usage) = self.stopped_stream.take()?;
        let failure = ModelFailure::temporary("stopped for a cancellation that was not stored");
        Some(Input::ModelFinished {
            attempt_id,
            result: Err(ModelAttemptFailure { failure, streamed, usage }),
        })
    }
}
