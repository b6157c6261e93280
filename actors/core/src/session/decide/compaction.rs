//! Compaction (C4): summarises the older part of the conversation before a step that has no room
//! for it, with a model call between steps. If that fails, the run continues with the part that
//! fits.

use super::DecisionBuilder;
use crate::{
    context::{CompactionPlanner, extract_summary},
    ids::AttemptId,
    message::Message,
    model::completion::Completion,
    session::{CompactionPhase, ConversationSummary, Effect, SessionEvent},
    usage::ModelUsage,
};

impl DecisionBuilder<'_> {
    /// Starts the model call for a summary, if the next step needs one. Returns false otherwise.
    pub(super) fn start_compacting(&mut self) -> bool {
        let Some(run) = &self.active.run else { return false };
        if run.compaction != CompactionPhase::Idle {
            return false;
        }
        let current = self.active.step_messages_for_run(Some(run.run_id));
        let new_messages: Vec<&Message> = self.new_messages.iter().chain(&current).collect();
        let conversation = &self.session.conversation;
        let model = self.model();
        let summary = self.current_summary();
        let (rules, before) = (self.env.rules, summary.as_ref());
        match (CompactionPlanner { rules, run, model: &model, before })
            .messages_to_summarise(conversation, &new_messages)
        {
            Some(summarised_messages) => {
                self.start_compacting_attempt(summarised_messages, 1);
                true
            }
            None => false,
        }
    }

    /// Returns the latest summary, including one of this decision.
    fn current_summary(&self) -> Option<ConversationSummary> {
        let newest = self.events.iter().rev().find_map(|record| {
            if let SessionEvent::ContextCompacted { through, summary, .. } = &record.event {
                let conversation = &self.session.conversation;
                Some(ConversationSummary::new(conversation, *through, summary.clone()))
            } else {
                None
            }
        });
        newest.or_else(|| self.session.summary.clone())
    }

    /// Starts an attempt of the model call for a summary. It has no message.
    pub(super) fn start_compacting_attempt(&mut self, summarised_messages: u64, attempt: u32) {
        let Some(run) = &self.active.run else { return };
        let (run_id, step) = (run.run_id, run.step);
        let (attempt_id, model) = (AttemptId(self.env.uuid()), self.model());
        let (planning, compacting) = (false, Some(summarised_messages));
        self.emit(SessionEvent::StepStarted {
            attempt_id,
            attempt,
            model: model.clone(),
            planning,
            compacting,
        });
        let message_id = None;
        self.effects.push(Effect::StartModel { run_id, step, attempt_id, message_id, model });
    }

    /// Handles the model's response: records its summary, or a failure if it contains none.
    pub(super) fn complete_compaction(&mut self, summarised_messages: u64, completion: Completion) {
        let usage = self.price_usage(completion.usage);
        let model = self.model();
        let run = self.active.run.as_ref();
        let text = &completion.message.text;
        // The text of a refusal must not replace the conversation.
        let is_refused = completion.stop_reason.is_refused();
        let summary = run
            .filter(|_| !is_refused)
            .and_then(|run| extract_summary(text, run, self.env.rules, &model));
        match summary {
            Some(summary) => {
                let summary = summary.into();
                self.emit(SessionEvent::ContextCompacted {
                    through: summarised_messages,
                    summary,
                    usage,
                });
            }
            None => {
                let problem =
                    if is_refused { "refused to write a summary" } else { "returned no summary" };
                self.fail_compaction(format!("the model {problem}"), usage);
            }
        }
    }

    pub(super) fn fail_compaction(&mut self, reason: String, usage: ModelUsage) {
        self.emit(SessionEvent::ContextCompactionFailed { reason, usage });
    }
}
