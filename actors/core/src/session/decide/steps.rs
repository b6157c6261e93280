//! Model attempts: starts them and handles their end (S2, M3).

use super::{DecisionBuilder, Reply, calls::ProposedCalls};
use crate::{
    context::describe_request,
    ids::{AttemptId, MessageId},
    model::{completion::Completion, failure::ModelFailureKind},
    session::{Effect, ModelAttemptFailure, Run, RunFailureCode, SessionEvent, StepPhase},
    usage::{ModelUsage, TokenUsage},
};
use std::time::Duration;

impl DecisionBuilder<'_> {
    /// Starts the first attempt of a step, if budgets have room for it. Compacts the conversation
    /// first if it is too long.
    pub(super) fn start_step(&mut self, step: u32) {
        if self.ensure_step_budget() && !self.start_compacting() {
            self.start_step_attempt(step, 1);
        }
    }

    /// Starts another attempt of the current step, summary or preflight plan.
    pub(super) fn start_attempt(&mut self, attempt: u32) {
        let Some(run) = &self.active.run else { return };
        if let Some(summarised_messages) = run.compacting_through() {
            self.start_compacting_attempt(summarised_messages, attempt);
        } else if run.is_planning() {
            self.start_planning_attempt(attempt);
        } else {
            self.start_step_attempt(run.step, attempt);
        }
    }

    fn start_step_attempt(&mut self, step: u32, attempt: u32) {
        let Some(run) = &self.active.run else { return };
        let run_id = run.run_id;
        let attempt_id = AttemptId(self.env.uuid());
        let model = self.model();
        let (planning, compacting) = (false, None);
        let step_model = model.clone();
        let started = SessionEvent::StepStarted {
            attempt_id,
            attempt,
            model: step_model,
            planning,
            compacting,
        };
        self.emit_for(Some(run_id), Some(step), started);
        self.deliver_steering();
        let message_id = Some(self.ensure_open_message());
        self.effects.push(Effect::StartModel { run_id, step, attempt_id, message_id, model });
    }

    /// Returns the name of the model to call: the run's model if the profile still lists it, or the
    /// profile's first model.
    pub(super) fn model(&self) -> String {
        let models = &self.env.rules.agent.models;
        let run_model = self.active.run.as_ref().and_then(|run| run.model.as_deref());
        let known = models.iter().find(|model| run_model == Some(model.as_str()));
        known.or(models.first()).cloned().unwrap_or_default()
    }

    /// Returns the model after the current one in the profile (M4), skipping models listed earlier.
    fn next_model(&self) -> Option<String> {
        let (models, current) = (&self.env.rules.agent.models, self.model());
        let used_count = models.iter().position(|model| *model == current)? + 1;
        let mut remaining = models[used_count..].iter();
        remaining.find(|model| !models[..used_count].contains(model)).cloned()
    }

    fn ensure_open_message(&mut self) -> MessageId {
        let open = self.active.run.as_ref().and_then(|run| run.open_message());
        if let Some(message_id) = open {
            return message_id.clone();
        }
        let message_id = MessageId::from_uuid(self.env.uuid());
        self.emit(SessionEvent::MessageStarted { message_id: message_id.clone() });
        message_id
    }

    pub(super) fn decide_model_finished(
        &mut self,
        finished_attempt_id: AttemptId,
        result: Result<Completion, ModelAttemptFailure>,
    ) -> Reply {
        let phase = self.active.run.as_ref().map(|run| run.phase.clone());
        let Some(StepPhase::Streaming { attempt_id, attempt, failures, .. }) = phase else {
            return Reply::Done;
        };
        if attempt_id != finished_attempt_id {
            return Reply::Done; // A late result of an earlier attempt changes nothing.
        }
        let is_planning = self.active.run.as_ref().is_some_and(Run::is_planning);
        let compacting = self.active.run.as_ref().and_then(Run::compacting_through);
        match result {
            Ok(completion) => match compacting {
                Some(summarised_messages) => {
                    self.complete_compaction(summarised_messages, completion);
                }
                None if is_planning => self.finish_planning(completion),
                None => self.complete_message(completion),
            },
            Err(failure) => self.handle_step_failure(attempt, failures + 1, failure),
        }
        self.advance();
        Reply::Done
    }

    fn complete_message(&mut self, completion: Completion) {
        let Completion { message, usage, stop_reason, dropped_calls } = completion;
        let message_id = self.ensure_open_message();
        self.emit(SessionEvent::MessageCompleted {
            message_id,
            text: message.text,
            reasoning: message.reasoning,
            stop_reason,
            stopped: false,
        });
        let usage = self.price_usage(usage);
        self.emit(SessionEvent::StepCompleted { usage, stop_reason });
        let (calls, dropped) = (message.calls, dropped_calls);
        self.propose_calls(ProposedCalls { calls, dropped, stop_reason });
    }

    fn handle_step_failure(
        &mut self,
        attempt: u32,
        failures: u32,
        attempt_failure: ModelAttemptFailure,
    ) {
        let ModelAttemptFailure { mut failure, streamed, usage } = attempt_failure;
        let usage = self.price_usage(usage);
        let rules = self.env.rules;
        let requested = Duration::from_millis(failure.retry_after_ms.unwrap_or(0));
        let exceeds_max_delay = requested > rules.model_retry.max_delay;
        let (is_retryable, can_wait) = match failure.kind {
            ModelFailureKind::Temporary => (true, !exceeds_max_delay),
            ModelFailureKind::CircuitOpen => (true, true),
            ModelFailureKind::Permanent => (false, false),
        };
        if is_retryable && !can_wait {
            failure.append_wait(requested, rules.model_retry.max_delay);
        }
        let next_model = self.next_model().filter(|_| is_retryable);
        // If another model is left, an open circuit is not waited for.
        let is_circuit_open = failure.kind == ModelFailureKind::CircuitOpen;
        let should_retry = can_wait
            && rules.model_retry.allows_retry_after(failures)
            && !(is_circuit_open && next_model.is_some());
        if streamed || (!should_retry && next_model.is_none()) {
            self.discard_message(&failure.message);
        }
        if !should_retry {
            return match next_model {
                Some(to) => {
                    let (from, reason) = (self.model(), failure.message);
                    let event =
                        SessionEvent::StepModelFallback { attempt, from, to, reason, usage };
                    self.emit(event);
                }
                None if self
                    .active
                    .run
                    .as_ref()
                    .is_some_and(|run| run.compacting_through().is_some()) =>
                {
                    self.fail_compaction(failure.message, usage);
                }
                None => {
                    let code = if is_retryable {
                        RunFailureCode::ModelUnavailable
                    } else {
                        RunFailureCode::ModelError
                    };
                    let before = self.active.run.as_ref().map(|run| run.usage).unwrap_or_default();
                    let usage = before.plus(usage);
                    self.emit(SessionEvent::RunFailed { code, error: failure.message, usage });
                }
            };
        }
        let backoff = rules.model_retry.delay(failures, self.env.random_fraction());
        let delay = backoff.max(requested.min(rules.model_retry.max_delay));
        self.retry_step(attempt, failures, delay, failure.message, usage);
    }

    pub(super) fn retry_step(
        &mut self,
        attempt: u32,
        failures: u32,
        delay: Duration,
        reason: String,
        usage: ModelUsage,
    ) {
        let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        let until = self.env.now.saturating_add(delay);
        self.emit(SessionEvent::StepRetrying { attempt, failures, delay_ms, until, reason, usage });
    }

    /// Returns the usage for these tokens, priced by the run's model. If the report of the input
    /// tokens was lost, they are estimated from the request.
    pub(super) fn price_usage(&self, tokens: TokenUsage) -> ModelUsage {
        let run = self.active.run.as_ref();
        let is_input_lost = tokens.estimated && tokens.input_tokens == 0;
        let input_tokens = match is_input_lost {
            true => describe_request(self.session, self.env.rules, self.model()).tokens,
            false => tokens.input_tokens,
        };
        let tokens = TokenUsage { input_tokens, ..tokens };
        let price = run.and_then(|run| self.env.rules.prices.get(run.model.as_deref()?));
        ModelUsage::from_tokens(price, tokens)
    }

    pub(super) fn discard_message(&mut self, reason: &str) {
        let open = self.active.run.as_ref().and_then(|run| run.open_message()).cloned();
        if let Some(message_id) = open {
            let reason = reason.to_owned();
            self.emit(SessionEvent::MessageDiscarded { message_id, reason });
        }
    }
}
