//! Accepts and queues messages, and starts their runs (S4, S5).

use super::{DecisionBuilder, Rejection, Reply};
use crate::{
    context::StartedWorkflow,
    delegation::ChildTask,
    ids::{MessageId, RunId, UserId},
    json::Digest,
    model::completion::Completion,
    session::{NewMessage, OnBusy, QueuedMessage, SessionEvent, Steering},
    text::headline,
};

impl DecisionBuilder<'_> {
    pub(super) fn decide_submit_message(
        &mut self,
        message: NewMessage,
        on_busy: OnBusy,
    ) -> Result<Reply, Rejection> {
        if let Some(reply) = self.repeated_submission(&message.message_id, message.digest)? {
            return Ok(reply);
        }
        self.ensure_open()?;
        self.ensure_accepts_messages(on_busy == OnBusy::Steer)?;
        let message = self.to_queued_message(message);
        let own_run_id = message.run_id;
        let Some(run_id) = self.active.run.as_ref().map(|run| run.run_id) else {
            return Ok(self.start_immediately(message));
        };
        let is_steering = match on_busy {
            OnBusy::Reject => return Err(Rejection::Busy { run_id }),
            OnBusy::Queue => false,
            OnBusy::Steer => true,
        };
        let steering = self.active.run.as_ref().map_or(0, |run| run.steering.len());
        let limit = self.env.rules.queued_messages_max;
        if self.active.queue.len() + steering >= limit {
            return Err(Rejection::QueueFull { limit });
        }
        let QueuedMessage {
            message_id,
            text,
            digest,
            preflight,
            workflow,
            traceparent,
            authors,
            run_id: _,
        } = message;
        let queued = |steers| SessionEvent::MessageQueued {
            message_id,
            text,
            digest,
            steers,
            preflight,
            workflow,
            traceparent,
            authors,
        };
        if is_steering {
            let after_decision = !self.active.approvals.is_empty();
            self.emit(queued(Some(Steering { own_run_id, after_decision })));
            return Ok(Reply::Steered { run_id, seq: self.last_seq, after_decision });
        }
        self.emit_for(Some(own_run_id), None, queued(None));
        Ok(Reply::Submitted { run_id: own_run_id, seq: self.last_seq })
    }

    pub(super) fn decide_interrupt(
        &mut self,
        message: NewMessage,
        interrupted_by: &UserId,
        partial: Option<Completion>,
    ) -> Result<Reply, Rejection> {
        if let Some(reply) = self.repeated_submission(&message.message_id, message.digest)? {
            return Ok(reply);
        }
        self.ensure_open()?;
        self.ensure_accepts_messages(false)?;
        self.cancel_run(interrupted_by, partial);
        let message = self.to_queued_message(message);
        Ok(self.start_immediately(message))
    }

    /// Assigns a run id to the message and decides if its run starts with a preflight.
    fn to_queued_message(&self, message: NewMessage) -> QueuedMessage {
        let NewMessage { message_id, text, digest, preflight, workflow, traceparent, authors } =
            message;
        let run_id = RunId(self.env.uuid());
        // A workflow may only narrow: if it requires a preflight, the message can't turn it off.
        let preflight = requires_preflight(workflow.as_deref()) || self.should_preflight(preflight);
        QueuedMessage {
            message_id,
            run_id,
            text,
            digest,
            preflight,
            workflow,
            traceparent,
            authors,
        }
    }

    /// Returns the message's preflight option, or the session's setting if it has none.
    fn should_preflight(&self, requested: Option<bool>) -> bool {
        requested.unwrap_or(self.active.settings.preflight)
    }

    /// Returns the reply to a message that was submitted before (S5).
    fn repeated_submission(
        &self,
        message_id: &MessageId,
        digest: Digest,
    ) -> Result<Option<Reply>, Rejection> {
        let Some(first) = self.session.submissions.get(message_id) else { return Ok(None) };
        if !first.is_repeated_by(digest) {
            return Err(Rejection::MessageIdReused { message_id: message_id.clone() });
        }
        let (run_id, seq, queued_status) = (first.run_id, first.seq, first.queued_status());
        Ok(Some(Reply::Repeated { run_id, seq, queued_status }))
    }

    /// Starts the run of a child's task.
    pub(super) fn start_child_task(&mut self, task: &ChildTask) -> Reply {
        let message = self.to_queued_message(NewMessage {
            message_id: task.message_id(),
            text: task.prompt.clone(),
            digest: task.digest(),
            preflight: None,
            workflow: None,
            traceparent: Some(task.traceparent),
            authors: task.authors.clone(),
        });
        self.start_immediately(message)
    }

    fn start_immediately(&mut self, message: QueuedMessage) -> Reply {
        let (run_id, seq) = (message.run_id, self.last_seq.next());
        self.start_run(message);
        self.advance();
        Reply::Submitted { run_id, seq }
    }

    pub(super) fn start_run(&mut self, message: QueuedMessage) {
        let QueuedMessage {
            message_id,
            run_id,
            text,
            digest,
            preflight,
            workflow,
            traceparent,
            authors,
        } = message;
        let title = self.derive_title(&text, workflow.as_deref());
        let accepted =
            SessionEvent::MessageAccepted { message_id: message_id.clone(), text, digest, authors };
        self.emit_for(Some(run_id), None, accepted);
        let started =
            SessionEvent::RunStarted { message_id, preflight, workflow, title, traceparent };
        self.emit_for(Some(run_id), None, started);
    }

    /// Returns the title for a session that has none: the beginning of its message, or else the
    /// name of its workflow.
    fn derive_title(&self, text: &str, workflow: Option<&StartedWorkflow>) -> Option<String> {
        if self.active.title.is_some() {
            return None;
        }
        let from_text = Some(headline(text)).filter(|line| !line.is_empty());
        from_text.or_else(|| workflow.map(|workflow| format!("/{}", workflow.name)))
    }

    /// Adds the steering messages that arrived during the previous step to the conversation (S4).
    pub(super) fn deliver_steering(&mut self) {
        let Some(run) = &self.active.run else { return };
        for QueuedMessage { message_id, text, digest, authors, .. } in run.steering.clone() {
            self.emit(SessionEvent::MessageAccepted { message_id, text, digest, authors });
        }
    }
}

/// Returns true if the workflow requires a preflight, which a message can't turn off (C3).
pub(super) fn requires_preflight(workflow: Option<&StartedWorkflow>) -> bool {
    workflow.is_some_and(|workflow| workflow.preflight)
}
