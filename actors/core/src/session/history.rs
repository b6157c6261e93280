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

/// An accepted submission of a message (S5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// Digest of the request.
    pub digest: Digest,
    /// The run that answers the message.
    pub run_id: RunId,
    /// The event that recorded the message first, queued or accepted.
    pub seq: Seq,
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
        let submission = |n: u64| Submission {
            digest: Digest::hash_bytes(b"x"),
            run_id: RunId(Uuid::from_u128(u128::from(n))),
            seq: Seq(n),
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
