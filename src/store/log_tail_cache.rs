//! An in-memory cache of each session's newest events and its session row.
//!
//! Subscribers and HTTP handlers read the end of a log repeatedly; the cache answers them without a
//! query. The writer inserts each commit before it acknowledges it and clears the cache when a
//! write fails. Correct only while this process is the only writer of the database.
//!
//! The cache does not interpret events and never holds a complete long log.

use super::stored_commit::StoredCommit;
use greenroom_core::{
    ids::{Seq, SessionId},
    session::{EventRecord, SessionRow},
};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Maximum number of sessions in a generation. The cache has two generations.
const SESSIONS_MAX: usize = 2_048;
/// Maximum bytes of stored events in a generation.
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// Maximum number of cached commits of a session.
const COMMITS_MAX: usize = 32;

/// The cache. Clones share their content.
#[derive(Clone, Default)]
pub(super) struct LogTailCache(Arc<Mutex<Generations>>);

/// Two generations of cached sessions. When the young generation is full, it replaces the old one,
/// whose sessions are evicted. Sessions without recent commits are therefore evicted at no cost for
/// the others.
#[derive(Default)]
struct Generations {
    young: HashMap<SessionId, LogTail>,
    young_bytes: usize,
    old: HashMap<SessionId, LogTail>,
}

/// The cached end of a session's log.
#[derive(Default)]
struct LogTail {
    /// The commits and their sizes in bytes, without gaps up to the last event.
    commits: VecDeque<(Arc<[EventRecord]>, usize)>,
    bytes: usize,
    /// `None` if no cached commit changed the row.
    row: Option<Arc<SessionRow>>,
}

impl LogTailCache {
    /// Inserts commits that are stored.
    pub(super) fn insert_commits(&self, commits: &[&StoredCommit]) {
        let mut generations = self.lock();
        commits.iter().for_each(|commit| generations.insert(commit));
    }

    /// Removes everything.
    pub(super) fn clear(&self) {
        *self.lock() = Generations::default();
    }

    /// Removes a session.
    pub(super) fn remove(&self, session_id: SessionId) {
        let mut generations = self.lock();
        generations.remove(session_id);
    }

    /// Returns at most `limit` events after `after_seq`; `None` if some of them are not cached.
    pub(super) fn events(
        &self,
        session_id: SessionId,
        after_seq: Seq,
        limit: usize,
    ) -> Option<Vec<EventRecord>> {
        let generations = self.lock();
        let tail = generations.get(session_id)?;
        if tail.first_seq()?.0 > after_seq.0.saturating_add(1) {
            return None;
        }
        let commits = tail.commits.iter().flat_map(|(records, _)| records.iter());
        Some(commits.filter(|record| record.seq > after_seq).take(limit).cloned().collect())
    }

    /// Returns the number of the session's last event.
    pub(super) fn head(&self, session_id: SessionId) -> Option<Seq> {
        self.lock().get(session_id)?.head()
    }

    /// Returns the session's row.
    pub(super) fn session_row(&self, session_id: SessionId) -> Option<Arc<SessionRow>> {
        self.lock().get(session_id)?.row.clone()
    }

    /// Locks the cache, ignoring poisoning: a panic does not leave a partial change that is read.
    fn lock(&self) -> MutexGuard<'_, Generations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Generations {
    fn get(&self, session_id: SessionId) -> Option<&LogTail> {
        self.young.get(&session_id).or_else(|| self.old.get(&session_id))
    }

    fn remove(&mut self, session_id: SessionId) -> Option<LogTail> {
        if let Some(tail) = self.young.remove(&session_id) {
            self.young_bytes -= tail.bytes;
            return Some(tail);
        }
        self.old.remove(&session_id)
    }

    fn insert(&mut self, commit: &StoredCommit) {
        let mut tail = self.remove(commit.session_id).unwrap_or_default();
        tail.push(commit);
        if self.young.len() >= SESSIONS_MAX || self.young_bytes + tail.bytes > BYTES_MAX {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += tail.bytes;
        self.young.insert(commit.session_id, tail);
    }
}

impl LogTail {
    fn first_seq(&self) -> Option<Seq> {
        self.commits.front().and_then(|(records, _)| records.first()).map(|record| record.seq)
    }

    fn head(&self) -> Option<Seq> {
        self.commits.back().and_then(|(records, _)| records.last()).map(|record| record.seq)
    }

    fn push(&mut self, commit: &StoredCommit) {
        if self.head() != Some(commit.expected_head) {
            *self = Self::default();
        }
        self.commits.push_back((commit.records.clone(), commit.events.len()));
        self.bytes += commit.events.len();
        if let Some(row) = &commit.session_row {
            self.row = Some(row.clone());
        }
        while self.commits.len() > COMMITS_MAX || self.bytes > BYTES_MAX {
            let Some((_, bytes)) = self.commits.pop_front() else { break };
            self.bytes -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redaction::DigestKey;
    use greenroom_actors::ports::Commit;
    use greenroom_core::{
        Timestamp,
        ids::UserId,
        session::{Projection, SessionEvent},
    };
    use uuid::Uuid;

    fn id(session: usize) -> SessionId {
        SessionId(Uuid::from_u128(session as u128))
    }

    /// Returns a commit of two events after `head`.
    fn commit(session: usize, head: u64) -> StoredCommit {
        let record = |seq| EventRecord {
            seq: Seq(seq),
            at: Timestamp(0),
            run_id: None,
            step: None,
            event: SessionEvent::SessionClosed { by: UserId::parse("ann").unwrap() },
        };
        let commit = Commit {
            session_id: id(session),
            expected_head: Seq(head),
            records: [record(head + 1), record(head + 2)].into(),
            projection: Projection::default(),
        };
        StoredCommit::from_commit(&commit, &DigestKey::from_bytes(&[7; 32])).unwrap()
    }

    fn seqs(
        cache: &LogTailCache,
        session: usize,
        after_seq: u64,
        limit: usize,
    ) -> Option<Vec<u64>> {
        let events = cache.events(id(session), Seq(after_seq), limit)?;
        Some(events.iter().map(|record| record.seq.0).collect())
    }

    #[test]
    fn only_the_tail_of_a_log_is_cached() {
        let cache = LogTailCache::default();
        cache.insert_commits(&[&commit(1, 4), &commit(1, 6), &commit(2, 0)]);
        assert_eq!(seqs(&cache, 1, 4, 9), Some(vec![5, 6, 7, 8]));
        assert_eq!(seqs(&cache, 1, 5, 2), Some(vec![6, 7]));
        assert_eq!(seqs(&cache, 1, 8, 9), Some(vec![]));
        assert_eq!(seqs(&cache, 1, 3, 9), None);
        assert_eq!(seqs(&cache, 3, 0, 9), None);
        assert_eq!(cache.head(id(1)), Some(Seq(8)));
        // A commit that does not follow the cached tail replaces it.
        cache.insert_commits(&[&commit(1, 20)]);
        assert_eq!(seqs(&cache, 1, 8, 9), None);
        assert_eq!(seqs(&cache, 1, 20, 9), Some(vec![21, 22]));
        cache.remove(id(1));
        assert_eq!(cache.head(id(1)), None);
        cache.clear();
        assert_eq!(cache.head(id(2)), None);
    }

    #[test]
    fn idle_sessions_are_evicted_and_memory_is_bounded() {
        let cache = LogTailCache::default();
        for head in 0..200 {
            cache.insert_commits(&[&commit(0, head * 2)]);
        }
        assert_eq!(seqs(&cache, 0, 100, 9), None);
        assert_eq!(seqs(&cache, 0, 398, 9), Some(vec![399, 400]));
        for session in 1..=SESSIONS_MAX * 3 {
            cache.insert_commits(&[&commit(session, 0)]);
        }
        assert_eq!(cache.head(id(0)), None);
        assert_eq!(cache.head(id(SESSIONS_MAX * 3)), Some(Seq(2)));
        let generations = cache.lock();
        assert!(generations.young.len() + generations.old.len() <= SESSIONS_MAX * 2);
        let bytes: usize = generations.young.values().map(|tail| tail.bytes).sum();
        assert_eq!(bytes, generations.young_bytes);
    }
}
