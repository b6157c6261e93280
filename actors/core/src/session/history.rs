//! The parts of a session's state, other than the conversation, that grow with its history.
//!
//! They are kept in persistent trees: a clone shares its structure with the original and costs
//! nothing, and a look-up or insertion costs the logarithm of the size. The trees are ordered, not
//! hashed, so that nothing here depends on random hash seeds.

use crate::{
    approval::ClosedApproval,
    ids::{MessageId, RunId, Seq},
    json::Digest,
    limits::CLOSED_APPROVALS_MAX,
};
use rpds::RedBlackTreeMapSync;
use serde::Serialize;
use utoipa::ToSchema;

/// An accepted submission of a message (S5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// Digest of the request.
    pub digest: Digest,
    /// The run that answers the message.
    pub run_id: RunId,
    /// The event that recorded the message first, queued or accepted.
    pub seq: Seq,
    /// Digest of the latest change, if the message was changed while it was queued (S10).
    pub changed_digest: Option<Digest>,
    /// Set if the message left the queue without being delivered (S10).
    pub removal: Option<QueueRemoval>,
}

/// The reason why a message left the queue without being delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueRemoval {
    /// A user withdrew the message.
    Withdrawn,
    /// The message's run was cancelled before it started, or the session was closed.
    Cancelled,
}

/// The status of a message that was changed or removed while it was queued (S10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum QueuedMessageStatus {
    /// The text was replaced. The message waits, or it was delivered with its new text.
    Changed,
    /// A user withdrew the message.
    Withdrawn,
    /// The message's run was cancelled before it started, or the session was closed.
    Cancelled,
}

impl Submission {
    /// Creates the record of a submission.
    pub fn new(digest: Digest, run_id: RunId, seq: Seq) -> Self {
        Self { digest, run_id, seq, changed_digest: None, removal: None }
    }

    /// Returns the status of a message that was changed or removed while it was queued; `None` for
    /// any other message.
    pub fn queued_status(&self) -> Option<QueuedMessageStatus> {
        match self.removal {
            Some(QueueRemoval::Withdrawn) => Some(QueuedMessageStatus::Withdrawn),
            Some(QueueRemoval::Cancelled) => Some(QueuedMessageStatus::Cancelled),
            None => self.changed_digest.map(|_| QueuedMessageStatus::Changed),
        }
    }

    /// Returns true if `digest` is the digest of the original request or of the latest change.
    pub fn is_repeated_by(&self, digest: Digest) -> bool {
        self.digest == digest || self.changed_digest == Some(digest)
    }
}

/// The submitted messages, by the client's id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Submissions(RedBlackTreeMapSync<MessageId, Submission>);

impl Submissions {
    /// Returns the submission with that message id.
    pub fn get(&self, message_id: &MessageId) -> Option<&Submission> {
        self.0.get(message_id)
    }

    /// Returns true if a message with that id was submitted.
    pub fn contains_key(&self, message_id: &MessageId) -> bool {
        self.0.contains_key(message_id)
    }

    /// Iterates over all submissions, ordered by message id.
    pub fn iter(&self) -> impl Iterator<Item = (&MessageId, &Submission)> {
        self.0.iter()
    }

    /// Inserts a submission, unless one with the same id exists.
    pub(super) fn insert_if_absent(&mut self, message_id: MessageId, submission: Submission) {
        if !self.contains_key(&message_id) {
            self.0.insert_mut(message_id, submission);
        }
    }

    /// Changes the submission with that message id, if it exists.
    pub(super) fn update(&mut self, message_id: &MessageId, change: impl FnOnce(&mut Submission)) {
        if let Some(submission) = self.0.get(message_id) {
            let mut submission = submission.clone();
            change(&mut submission);
            self.0.insert_mut(message_id.clone(), submission);
        }
    }
}

/// Approvals that no longer wait, by the event that closed each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClosedApprovals(RedBlackTreeMapSync<Seq, ClosedApproval>);

impl ClosedApprovals {
    /// Returns the number of retained approvals.
    pub fn len(&self) -> usize {
        self.0.size()
    }

    /// Returns true if no approval is retained.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the approval that was closed last.
    pub fn last(&self) -> Option<&ClosedApproval> {
        self.0.last().map(|(_, closed)| closed)
    }

    /// Iterates over the approvals that were closed after `seq`, oldest first.
    pub fn closed_after(&self, seq: Seq) -> impl Iterator<Item = &ClosedApproval> {
        self.0.range(seq.next()..).map(|(_, closed)| closed)
    }

    /// Inserts a closed approval. Above [`CLOSED_APPROVALS_MAX`] the oldest is removed.
    pub(super) fn insert(&mut self, seq: Seq, closed: ClosedApproval) {
        self.0.insert_mut(seq, closed);
        if self.len() > CLOSED_APPROVALS_MAX
            && let Some(oldest) = self.0.first().map(|(seq, _)| *seq)
        {
            self.0.remove_mut(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn s5_first_submission_wins_and_clones_are_independent() {
        let id = |n: u64| MessageId::parse(&format!("m{n}")).unwrap();
        let submission = |n: u64| {
            let run_id = RunId(Uuid::from_u128(u128::from(n)));
            Submission::new(Digest::hash_bytes(b"x"), run_id, Seq(n))
        };
        let mut submissions = Submissions::default();
        (1..=100).for_each(|n| submissions.insert_if_absent(id(n), submission(n)));
        let before = submissions.clone();
        submissions.insert_if_absent(id(7), submission(200));
        assert_eq!(submissions, before);
        submissions.insert_if_absent(id(101), submission(101));
        assert_eq!(submissions.get(&id(7)), Some(&submission(7)));
        assert!(submissions.contains_key(&id(101)) && !before.contains_key(&id(101)));
        assert!(submissions.iter().map(|(id, _)| id).is_sorted());
        assert_eq!((submissions.iter().count(), before.iter().count()), (101, 100));
    }
}
