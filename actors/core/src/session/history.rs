//! What a session remembers of its past, beside what was said. It grows with the history, so it is
//! kept in trees that share what they have in common: a copy costs nothing, and to add or to find
//! one thing costs the logarithm of how many there are. They are ordered, not hashed, so that
//! nothing here is random.

use crate::{
    approval::ClosedApproval,
    ids::{MessageId, RunId, Seq},
    json::Digest,
    limits::CLOSED_APPROVALS_MAX,
};
use rpds::RedBlackTreeMapSync;

/// A message that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// Digest of the request.
    pub digest: Digest,
    /// Its run.
    pub run_id: RunId,
    /// The event that took it.
    pub seq: Seq,
}

/// The messages that were taken, by the client's id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Submissions(RedBlackTreeMapSync<MessageId, Submission>);

impl Submissions {
    /// What took the message of that id.
    pub fn get(&self, message_id: &MessageId) -> Option<&Submission> {
        self.0.get(message_id)
    }

    /// Whether a message of that id was taken.
    pub fn contains_key(&self, message_id: &MessageId) -> bool {
        self.0.contains_key(message_id)
    }

    /// All of them, by their ids.
    pub fn iter(&self) -> impl Iterator<Item = (&MessageId, &Submission)> {
        self.0.iter()
    }

    /// Takes a message; the first to take it stays.
    pub(super) fn insert_if_absent(&mut self, message_id: MessageId, submission: Submission) {
        if !self.contains_key(&message_id) {
            self.0.insert_mut(message_id, submission);
        }
    }
}

/// Questions that no longer wait, by the event that closed each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClosedApprovals(RedBlackTreeMapSync<Seq, ClosedApproval>);

impl ClosedApprovals {
    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.0.size()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The one that closed last.
    pub fn last(&self) -> Option<&ClosedApproval> {
        self.0.last().map(|(_, closed)| closed)
    }

    /// Those that closed after `seq`, oldest first.
    pub fn closed_after(&self, seq: Seq) -> impl Iterator<Item = &ClosedApproval> {
        self.0.range(seq.next()..).map(|(_, closed)| closed)
    }

    /// Remembers a question; the oldest makes room where there are too many.
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
    fn s5_the_first_submission_wins_and_clones_are_independent() {
        let id = |n: u64| MessageId::parse(&format!("m{n}")).unwrap();
        let taken = |n: u64| Submission {
            digest: Digest::hash_bytes(b"x"),
            run_id: RunId(Uuid::from_u128(u128::from(n))),
            seq: Seq(n),
        };
        let mut submissions = Submissions::default();
        (1..=100).for_each(|n| submissions.insert_if_absent(id(n), taken(n)));
        let before = submissions.clone();
        submissions.insert_if_absent(id(7), taken(200));
        assert_eq!(submissions, before);
        submissions.insert_if_absent(id(101), taken(101));
        assert_eq!(submissions.get(&id(7)), Some(&taken(7)));
        assert!(submissions.contains_key(&id(101)) && !before.contains_key(&id(101)));
        assert!(submissions.iter().map(|(id, _)| id).is_sorted());
        assert_eq!((submissions.iter().count(), before.iter().count()), (101, 100));
    }
}
