//! Ending a run whose model is still talking: what it had said is asked of the stream first (S6).

use super::{Command, Session};
use crate::{
    llm_stream::{self, LlmStream, Stopped},
    mailbox::Mailbox,
};
use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use greenroom_core::{
    Env,
    model::failure::ModelFailure,
    session::{Input, StepFailure, StepPhase, decide},
};

impl Session {
    /// A cancel keeps what the model had said: the stream is stopped first, and tells.
    pub(super) fn stop_stream_then_take(
        &mut self,
        stream: Mailbox<LlmStream>,
        command: Command,
        ctx: &mut Context<Self>,
    ) {
        let stop = async move { stream.ask(llm_stream::Stop).await };
        ctx.wait(stop.into_actor(self).map(move |stopped, actor, ctx| {
            let Command { input, reply } = command;
            let Some(Stopped::Partial(said)) = stopped else {
                // It ended by itself, and its end is in our mailbox: that first, then this again.
                actor.stream = None;
                actor.commands_handled -= 1;
                return actor.myself(ctx).tell(Command { input, reply });
            };
            let streamed = !said.message.text.is_empty();
            let usage = said.usage;
            actor.stopped =
                actor.stream.take().map(|(attempt_id, _)| (attempt_id, streamed, usage));
            let mut input = input;
            if let Input::Cancel { partial, .. }
            | Input::Close { partial, .. }
            | Input::Interrupt { partial, .. } = &mut input
            {
                *partial = Some(said);
            }
            actor.take(input, reply, ctx);
        }));
    }

    /// The live model stream, if `input` would end its run.
    pub(super) fn stream_ended_by(&self, input: &Input) -> Option<Mailbox<LlmStream>> {
        let (_, stream) = self.stream.as_ref()?;
        let run = self.state.active.run.as_ref()?;
        let ends = match input {
            Input::Cancel { run_id, .. } => run_id.is_none_or(|run_id| run_id == run.run_id),
            Input::Interrupt { .. } | Input::Close { .. } => true,
            Input::CreateSession { .. }
            | Input::ForkSession { .. }
            | Input::CreateChild { .. }
            | Input::Narrow { .. }
            | Input::ChildAdvanced { .. }
            | Input::ChildGone { .. }
            | Input::ChangeSettings { .. }
            | Input::SubmitMessage { .. }
            | Input::DecideApproval { .. }
            | Input::RevokeGrants { .. }
            | Input::GiveFeedback { .. }
            | Input::StepFinished { .. }
            | Input::ToolFinished { .. }
            | Input::ToolProgressed { .. }
            | Input::ToolAsked { .. }
            | Input::ToolAskWithdrawn { .. }
            | Input::TurnGranted { .. }
            | Input::Wake
            | Input::Rehydrated { .. } => false,
        };
        let streaming = matches!(run.phase, StepPhase::Streaming { .. });
        (ends && streaming && self.is_taken(input)).then(|| stream.clone())
    }

    /// Whether anything comes of `input`: one that is refused, or was taken before, ends nothing.
    fn is_taken(&self, input: &Input) -> bool {
        let (rules, clock) = (self.rules_for(input), &self.around.clock);
        let env = Env::new(clock.now(), clock.seed(), &rules);
        decide(&self.state, input.clone(), &env).is_ok_and(|decision| !decision.events.is_empty())
    }

    /// What became of a stream that was stopped for a command that could not be stored: it was
    /// cut, and its step is tried again.
    pub(super) fn cut_in_vain(&mut self) -> Option<Input> {
        let (attempt_id, streamed, usage) = self.stopped.take()?;
        let failure = ModelFailure::temporary("stopped for a cancel that could not be stored");
        Some(Input::StepFinished {
            attempt_id,
            result: Err(StepFailure { failure, streamed, usage }),
        })
    }
}
