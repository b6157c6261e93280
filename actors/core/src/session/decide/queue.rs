//! Changes and withdraws queued messages (S10). A steering message is queued, too, until the next
//! step delivers it (S4).

use super::{DecisionBuilder, Rejection, Reply, messages::requires_preflight};
use crate::{
    ids::{MessageId, UserId},
    scrub::REDACTED,
    session::{QueueRemoval, QueuedMessage, QueuedMessageChange, SessionEvent, Submission},
    usage::ModelUsage,
};

/// A message that was not delivered yet.
enum WaitingMessage {
    /// It waits for a run of its own.
    Queued(QueuedMessage),
    /// It waits for the next step of the active run.
    Steering(QueuedMessage),
}

impl<'a> DecisionBuilder<'a> {
    pub(super) fn decide_change_queued_message(
        &mut self,
        message_id: MessageId,
        change: QueuedMessageChange,
        changed_by: UserId,
    ) -> Result<Reply, Rejection> {
        let submission = self.find_submission(&message_id)?;
        let Some(waiting) = self.find_waiting_message(&message_id) else {
            let was_changed = submission.changed_digest == Some(change.digest);
            if was_changed && submission.removal.is_none() {
                return Ok(Reply::QueueUpdated { run_id: submission.run_id, repeated: true });
            }
            return Err(not_waiting(message_id, submission));
        };
        let QueuedMessageChange { text, digest, preflight } = change;
        let (WaitingMessage::Queued(current) | WaitingMessage::Steering(current)) = &waiting;
        let preflight = requires_preflight(current.workflow.as_deref())
            || preflight.unwrap_or(current.preflight);
        if current.text == text && current.preflight == preflight {
            return Ok(Reply::QueueUpdated { run_id: submission.run_id, repeated: true });
        }
        if text.contains(REDACTED) && !current.text.contains(REDACTED) {
            return Err(Rejection::RedactedMessage);
        }
        let by = changed_by;
        let changed =
            SessionEvent::QueuedMessageChanged { message_id, text, digest, preflight, by };
        Ok(self.emit_queue_update(&waiting, changed))
    }

    pub(super) fn decide_withdraw_queued_message(
        &mut self,
        message_id: MessageId,
        withdrawn_by: UserId,
    ) -> Result<Reply, Rejection> {
        let submission = self.find_submission(&message_id)?;
        let Some(waiting) = self.find_waiting_message(&message_id) else {
            if submission.removal == Some(QueueRemoval::Withdrawn) {
                return Ok(Reply::QueueUpdated { run_id: submission.run_id, repeated: true });
            }
            return Err(not_waiting(message_id, submission));
        };
        let by = withdrawn_by.clone();
        let withdrawn = SessionEvent::QueuedMessageWithdrawn { message_id, by };
        let reply = self.emit_queue_update(&waiting, withdrawn);
        if let WaitingMessage::Queued(message) = waiting {
            // Ends the streams of clients that follow the message's run.
            let (by, usage) = (withdrawn_by, ModelUsage::default());
            let cancelled = SessionEvent::RunCancelled { by, message_id: None, usage };
            self.emit_for(Some(message.run_id), None, cancelled);
        }
        Ok(reply)
    }

    /// Emits an event of the message's own run or of the run that the message steers.
    fn emit_queue_update(&mut self, waiting: &WaitingMessage, event: SessionEvent) -> Reply {
        let run_id = match waiting {
            WaitingMessage::Queued(message) => {
                self.emit_for(Some(message.run_id), None, event);
                message.run_id
            }
            WaitingMessage::Steering(message) => {
                self.emit(event);
                self.active.run.as_ref().map_or(message.run_id, |run| run.run_id)
            }
        };
        Reply::QueueUpdated { run_id, repeated: false }
    }

    fn find_submission(&self, message_id: &MessageId) -> Result<&'a Submission, Rejection> {
        let unknown = || Rejection::UnknownMessage { message_id: message_id.clone() };
        self.session.submissions.get(message_id).ok_or_else(unknown)
    }

    fn find_waiting_message(&self, message_id: &MessageId) -> Option<WaitingMessage> {
        let is_requested = |queued: &&QueuedMessage| queued.message_id == *message_id;
        let queued = self.active.queue.iter().find(is_requested).cloned();
        let steering = || {
            let run = self.active.run.as_ref()?;
            run.steering.iter().find(is_requested).cloned()
        };
        queued.map(WaitingMessage::Queued).or_else(|| steering().map(WaitingMessage::Steering))
    }
}

/// Returns the rejection for a message that is not queued: it states what happened to the message.
fn not_waiting(message_id: MessageId, submission: &Submission) -> Rejection {
    match submission.removal {
        None => Rejection::MessageStarted { message_id },
        Some(QueueRemoval::Withdrawn) => Rejection::MessageWithdrawn { message_id },
        Some(QueueRemoval::Cancelled) => Rejection::MessageCancelled { message_id },
    }
}
