//! Taking messages and starting their runs (S4, S5).

use super::{Deciding, Rejection, Reply};
use crate::{
    ids::{MessageId, RunId},
    json::Digest,
    session::{OnBusy, QueuedMessage, SessionEvent},
};
use std::sync::Arc;

impl Deciding<'_> {
    pub(super) fn submit(
        &mut self,
        message_id: MessageId,
        text: Arc<str>,
        digest: Digest,
        on_busy: OnBusy,
    ) -> Result<Reply, Rejection> {
        if let Some(taken) = self.session.submissions.get(&message_id) {
            if taken.digest != digest {
                return Err(Rejection::MessageIdReused { message_id });
            }
            let (run_id, seq) = (taken.run_id, taken.seq);
            return Ok(Reply::Submitted { run_id, seq, repeated: true });
        }
        self.must_be_open()?;
        let run_id = RunId(self.env.uuid());
        let busy = self.active.run.as_ref().map(|run| run.run_id);
        match (busy, on_busy) {
            (None, _) => {
                let message = QueuedMessage { message_id, run_id, text, digest };
                let seq = self.head.next();
                self.start_run(message);
                self.advance();
                return Ok(Reply::Submitted { run_id, seq, repeated: false });
            }
            (Some(run_id), OnBusy::Reject) => return Err(Rejection::Busy { run_id }),
            (Some(_), OnBusy::Queue) => {}
        }
        let limit = self.env.rules.queued_messages_max;
        if self.active.queue.len() >= limit {
            return Err(Rejection::QueueFull { limit });
        }
        let event = SessionEvent::MessageQueued { message_id, text, digest };
        self.emit_for(Some(run_id), None, event);
        Ok(Reply::Submitted { run_id, seq: self.head, repeated: false })
    }

    pub(super) fn start_run(&mut self, message: QueuedMessage) {
        let QueuedMessage { message_id, run_id, text, digest } = message;
        let accepted =
            SessionEvent::MessageAccepted { message_id: message_id.clone(), text, digest };
        self.emit_for(Some(run_id), None, accepted);
        self.emit_for(Some(run_id), None, SessionEvent::RunStarted { message_id });
    }
}
