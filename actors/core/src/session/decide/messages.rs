//! Taking messages and starting their runs (S4, S5).

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
            return Ok(self.start_at_once(message));
        };
        let steers = match on_busy {
            OnBusy::Reject => return Err(Rejection::Busy { run_id }),
            OnBusy::Queue => false,
            OnBusy::Steer => true,
        };
        let steering = self.active.run.as_ref().map_or(0, |run| run.steering.len());
        let limit = self.env.rules.queued_messages_max;
        if self.active.queue.len() + steering >= limit {
            return Err(Rejection::QueueFull { limit });
        }
        let QueuedMessage { message_id, text, digest, preflight, workflow, traceparent, .. } =
            message;
        let queued = |steers| SessionEvent::MessageQueued {
            message_id,
            text,
            digest,
            steers,
            preflight,
            workflow,
            traceparent,
        };
        if steers {
            let after_decision = !self.active.approvals.is_empty();
            self.emit(queued(Some(Steering { own_run_id, after_decision })));
            return Ok(Reply::Steered { run_id, seq: self.last_seq, after_decision });
        }
        self.emit_for(Some(own_run_id), None, queued(None));
        Ok(Reply::Submitted { run_id: own_run_id, seq: self.last_seq, repeated: false })
    }

    pub(super) fn decide_interrupt(
        &mut self,
        message: NewMessage,
        by: &UserId,
        partial: Option<Completion>,
    ) -> Result<Reply, Rejection> {
        if let Some(reply) = self.repeated_submission(&message.message_id, message.digest)? {
            return Ok(reply);
        }
        self.ensure_open()?;
        self.ensure_accepts_messages(false)?;
        self.cancel_run(by, partial);
        let message = self.to_queued_message(message);
        Ok(self.start_at_once(message))
    }

    /// The message with a run to be.
    fn to_queued_message(&self, message: NewMessage) -> QueuedMessage {
        let NewMessage { message_id, text, digest, preflight, workflow, traceparent } = message;
        let run_id = RunId(self.env.uuid());
        // A workflow that wants a plan gets one, whatever else is said: it may only narrow.
        let by_workflow = workflow.as_ref().is_some_and(|workflow| workflow.preflight);
        let preflight = by_workflow || self.should_preflight(preflight);
        QueuedMessage { message_id, run_id, text, digest, preflight, workflow, traceparent }
    }

    /// Whether a message's run begins with a plan: as it says itself, else as the session does.
    fn should_preflight(&self, said: Option<bool>) -> bool {
        said.unwrap_or(self.active.settings.preflight)
    }

    /// The answer to a message that was taken before (S5).
    fn repeated_submission(
        &self,
        message_id: &MessageId,
        digest: Digest,
    ) -> Result<Option<Reply>, Rejection> {
        let Some(taken) = self.session.submissions.get(message_id) else { return Ok(None) };
        if taken.digest != digest {
            return Err(Rejection::MessageIdReused { message_id: message_id.clone() });
        }
        let (run_id, seq) = (taken.run_id, taken.seq);
        Ok(Some(Reply::Submitted { run_id, seq, repeated: true }))
    }

    /// Starts with a child's task.
    pub(super) fn start_child_task(&mut self, errand: &ChildTask) -> Reply {
        let message = self.to_queued_message(NewMessage {
            message_id: errand.message_id(),
            text: errand.prompt.clone(),
            digest: errand.digest(),
            preflight: None,
            workflow: None,
            traceparent: Some(errand.traceparent),
        });
        self.start_at_once(message)
    }

    fn start_at_once(&mut self, message: QueuedMessage) -> Reply {
        let (run_id, seq) = (message.run_id, self.last_seq.next());
        self.start_run(message);
        self.advance();
        Reply::Submitted { run_id, seq, repeated: false }
    }

    pub(super) fn start_run(&mut self, message: QueuedMessage) {
        let QueuedMessage { message_id, run_id, text, digest, preflight, workflow, traceparent } =
            message;
        let title = self.derive_title(&text, workflow.as_deref());
        let accepted =
            SessionEvent::MessageAccepted { message_id: message_id.clone(), text, digest };
        self.emit_for(Some(run_id), None, accepted);
        let started =
            SessionEvent::RunStarted { message_id, preflight, workflow, title, traceparent };
        self.emit_for(Some(run_id), None, started);
    }

    /// What a session without a title is called by its message: the beginning of that, or else its
    /// workflow's name.
    fn derive_title(&self, text: &str, workflow: Option<&StartedWorkflow>) -> Option<String> {
        if self.active.title.is_some() {
            return None;
        }
        let said = Some(headline(text)).filter(|line| !line.is_empty());
        said.or_else(|| workflow.map(|workflow| format!("/{}", workflow.name)))
    }

    /// Tells the model what was said while the step before was going (S4).
    pub(super) fn deliver_steering(&mut self) {
        let Some(run) = &self.active.run else { return };
        for QueuedMessage { message_id, text, digest, .. } in run.steering.clone() {
            self.emit(SessionEvent::MessageAccepted { message_id, text, digest });
        }
    }
}
