//! An in-memory cache of the users' open sessions. Every message needs the number of a user's
//! running sessions (X4), and every new session the number of open ones.
//!
//! The writer loads a user's sessions between two writes, applies each commit before it
//! acknowledges it, and clears the cache when a write fails. Correct only while this process is the
//! only writer of the database. Must not know SQL.

use super::stored_commit::StoredCommit;
use greenroom_actors::ports::SessionCounts;
use greenroom_core::{
    ids::{SessionId, UserId},
    session::SessionStatus,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Maximum open sessions of one user in the cache. For users with more, the cache only stores that
/// they must be counted each time.
pub(super) const CACHED_SESSIONS_PER_USER_MAX: usize = 16 * 1024;
/// Maximum open sessions of all users in the cache. Beyond it, the cache is cleared.
const CACHED_SESSIONS_MAX: usize = 64 * 1024;

/// The cache. Clones share their content.
#[derive(Clone, Default)]
pub(super) struct OpenSessionCache(Arc<Mutex<CachedUsers>>);

/// The cached number of a user's sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CachedCounts {
    /// Not cached: the writer must load the sessions.
    Missing,
    /// The number of sessions.
    Counts(SessionCounts),
    /// The user has too many sessions to cache.
    TooMany,
}

#[derive(Default)]
struct CachedUsers {
    /// The sessions of each user; `None` for users with too many.
    users: HashMap<UserId, Option<HashMap<SessionId, SessionStatus>>>,
    /// The number of cached sessions, plus one for each user.
    size: usize,
}

impl OpenSessionCache {
    /// Returns the number of the user's open and running sessions.
    pub(super) fn count(&self, owner: &UserId) -> CachedCounts {
        let cached = self.lock();
        match cached.users.get(owner) {
            None => CachedCounts::Missing,
            Some(None) => CachedCounts::TooMany,
            Some(Some(sessions)) => {
                let is_running = |status: &&SessionStatus| **status != SessionStatus::Idle;
                let running = sessions.values().filter(is_running).count();
                let (open, running) = (sessions.len() as u64, running as u64);
                CachedCounts::Counts(SessionCounts { open, running })
            }
        }
    }

    /// Inserts all open sessions of a user, or more than are cached.
    pub(super) fn insert_user(&self, owner: UserId, sessions: Vec<(SessionId, SessionStatus)>) {
        let sessions = (sessions.len() <= CACHED_SESSIONS_PER_USER_MAX).then_some(sessions);
        let mut cached = self.lock();
        if cached.size + sessions.as_ref().map_or(0, Vec::len) >= CACHED_SESSIONS_MAX {
            *cached = CachedUsers::default();
        }
        cached.insert(owner, sessions.map(|sessions| sessions.into_iter().collect()));
    }

    /// Applies commits that are stored.
    pub(super) fn apply_commits(&self, commits: &[&StoredCommit]) {
        let mut cached = self.lock();
        for row in commits.iter().filter_map(|commit| commit.session_row.as_ref()) {
            let Some(Some(sessions)) = cached.users.get_mut(&row.owner) else { continue };
            let old_count = sessions.len();
            match row.status {
                SessionStatus::Closed => sessions.remove(&row.session_id),
                status
                @ (SessionStatus::Idle | SessionStatus::Running | SessionStatus::Waiting) => {
                    sessions.insert(row.session_id, status)
                }
            };
            let new_count = sessions.len();
            cached.size = cached.size + new_count - old_count;
            if new_count > CACHED_SESSIONS_PER_USER_MAX {
                cached.insert(row.owner.clone(), None);
            }
        }
        if cached.size > CACHED_SESSIONS_MAX {
            *cached = CachedUsers::default();
        }
    }

    /// Removes everything.
    pub(super) fn clear(&self) {
        *self.lock() = CachedUsers::default();
    }

    /// Locks the cache, ignoring poisoning: a panic does not leave a partial change that is read.
    fn lock(&self) -> MutexGuard<'_, CachedUsers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CachedUsers {
    fn insert(&mut self, owner: UserId, sessions: Option<HashMap<SessionId, SessionStatus>>) {
        let size = |sessions: &Option<HashMap<_, _>>| sessions.as_ref().map_or(0, HashMap::len) + 1;
        self.size += size(&sessions);
        if let Some(replaced) = self.users.insert(owner, sessions) {
            self.size -= size(&replaced);
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
        ids::Seq,
        session::{EventRecord, Projection, SessionEvent, SessionRow},
        usage::ModelUsage,
    };
    use uuid::Uuid;

    fn user(name: &str) -> UserId {
        UserId::parse(name).unwrap()
    }

    fn id(session: usize) -> SessionId {
        SessionId(Uuid::from_u128(session as u128))
    }

    fn commit(session: usize, owner: &str, status: SessionStatus) -> StoredCommit {
        let row = SessionRow {
            session_id: id(session),
            owner: user(owner),
            agent: "assistant".parse().unwrap(),
            parent: None,
            title: None,
            settings: Arc::default(),
            status,
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
            grants: Vec::new(),
            usage: ModelUsage::default(),
        };
        let event = SessionEvent::SessionClosed { by: user(owner) };
        let record = EventRecord { seq: Seq(1), at: Timestamp(0), run_id: None, step: None, event };
        let commit = Commit {
            session_id: id(session),
            expected_head: Seq(0),
            records: [record].into(),
            projection: Projection { session: Some(row), ..Projection::default() },
        };
        StoredCommit::from_commit(&commit, &DigestKey::from_bytes(&[7; 32])).unwrap()
    }

    #[test]
    fn x4_cached_counts_follow_commits() {
        use SessionStatus::{Closed, Idle, Running, Waiting};
        let cache = OpenSessionCache::default();
        cache.apply_commits(&[&commit(1, "ann", Running)]);
        assert_eq!(cache.count(&user("ann")), CachedCounts::Missing);
        cache.insert_user(user("ann"), vec![(id(1), Running), (id(2), Idle)]);
        assert_eq!(
            cache.count(&user("ann")),
            CachedCounts::Counts(SessionCounts { open: 2, running: 1 })
        );
        cache.apply_commits(&[
            &commit(2, "ann", Waiting),
            &commit(3, "ann", Idle),
            &commit(4, "bob", Idle),
        ]);
        assert_eq!(
            cache.count(&user("ann")),
            CachedCounts::Counts(SessionCounts { open: 3, running: 2 })
        );
        cache.apply_commits(&[&commit(1, "ann", Closed), &commit(1, "ann", Closed)]);
        assert_eq!(
            cache.count(&user("ann")),
            CachedCounts::Counts(SessionCounts { open: 2, running: 1 })
        );
        assert_eq!(cache.count(&user("bob")), CachedCounts::Missing);
        cache.clear();
        assert_eq!(cache.count(&user("ann")), CachedCounts::Missing);
    }

    #[test]
    fn cache_is_bounded_and_large_users_are_not_cached() {
        let cache = OpenSessionCache::default();
        let sessions = |count| (0..count).map(|n| (id(n), SessionStatus::Idle)).collect::<Vec<_>>();
        cache.insert_user(user("ann"), sessions(CACHED_SESSIONS_PER_USER_MAX + 1));
        assert_eq!(cache.count(&user("ann")), CachedCounts::TooMany);
        cache.insert_user(user("ann"), sessions(CACHED_SESSIONS_PER_USER_MAX));
        let full = SessionCounts { open: CACHED_SESSIONS_PER_USER_MAX as u64, running: 0 };
        assert_eq!(cache.count(&user("ann")), CachedCounts::Counts(full));
        cache.apply_commits(&[&commit(CACHED_SESSIONS_PER_USER_MAX, "ann", SessionStatus::Idle)]);
        assert_eq!(cache.count(&user("ann")), CachedCounts::TooMany);
        for n in 0..40 {
            cache.insert_user(user(&format!("user-{n}")), sessions(2_000));
            let cached = cache.lock();
            let size: usize = cached
                .users
                .values()
                .map(|sessions| sessions.as_ref().map_or(0, HashMap::len) + 1)
                .sum();
            assert_eq!(size, cached.size);
            assert!(size <= CACHED_SESSIONS_MAX + 1);
        }
        let counts = SessionCounts { open: 2_000, running: 0 };
        assert_eq!(cache.count(&user("user-39")), CachedCounts::Counts(counts));
    }
}
