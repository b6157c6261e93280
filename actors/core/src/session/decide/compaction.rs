//! Summarising the older part of a conversation before a step that has no room for it (C4). A model
//! call of its own, between steps; if it fails, the run goes on with what has room.

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
    /// Starts the call for a summary if the next step should have one; false if it should not.
    pub(super) fn start_compacting(&mut self) -> bool {
        let Some(run) = &self.active.run else { return false };
        if run.compaction != CompactionPhase::Idle {
            return false;
        }
        let now = self.active.step_messages_for_run(Some(run.run_id));
        let said: Vec<&Message> = self.new_messages.iter().chain(&now).collect();
        let conversation = &self.session.conversation;
        let model = self.model();
        let compacted = self.current_summary();
        let (rules, before) = (self.env.rules, compacted.as_ref());
        match (CompactionPlanner { rules, run, model: &model, before })
            .messages_to_summarise(conversation, &said)
        {
            Some(through) => {
                self.start_compacting_attempt(through, 1);
                true
            }
            None => false,
        }
    }

    /// What stands for older messages by now.
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

    /// Starts attempt number `attempt` of the call for a summary. There is no message of it.
    pub(super) fn start_compacting_attempt(&mut self, through: u64, attempt: u32) {
        let Some(run) = &self.active.run else { return };
        let (run_id, step) = (run.run_id, run.step);
        let (attempt_id, model) = (AttemptId(self.env.uuid()), self.model());
        let (named, planning, compacting) = (model.clone(), false, Some(through));
        self.emit(SessionEvent::StepStarted {
            attempt_id,
            attempt,
            model: named,
            planning,
            compacting,
        });
        let message_id = None;
        self.effects.push(Effect::StartModel { run_id, step, attempt_id, message_id, model });
    }

    /// The model answered with a summary, or with nothing of use.
    pub(super) fn complete_compaction(&mut self, through: u64, completion: Completion) {
        let usage = self.price_usage(completion.usage);
        let model = self.model();
        let run = self.active.run.as_ref();
        let text = &completion.message.text;
        let summary = run.and_then(|run| extract_summary(text, run, self.env.rules, &model));
        match summary {
            Some(summary) => {
                let summary = summary.into();
                self.emit(SessionEvent::ContextCompacted { through, summary, usage });
            }
            None => self.fail_compaction("the model gave no summary".to_owned(), usage),
        }
    }

    pub(super) fn fail_compaction(&mut self, reason: String, usage: ModelUsage) {
        self.emit(SessionEvent::ContextCompactionFailed { reason, usage });
    }
}
