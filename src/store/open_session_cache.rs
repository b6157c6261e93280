//! Which sessions users have open, in memory: every message asks how many run (X4), and every new
//! session how many there are. Must not know how it is asked.
//!
//! Sound because one process alone writes: the writer fills in what it reads between two writes,
//! notes every commit before anybody is told that it is stored, and forgets everything whenever a
//! write fails.

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

/// Open sessions of one user that are remembered; of who has more, it is remembered that they must be
/// counted each time.
pub(super) const CACHED_SESSIONS_PER_USER_MAX: usize = 16 * 1024;
/// Open sessions that are remembered altogether; beyond it all are forgotten and read again.
const CACHED_SESSIONS_MAX: usize = 64 * 1024;

/// What is known; clones are one.
#[derive(Clone, Default)]
pub(super) struct OpenSessionCache(Arc<Mutex<CachedUsers>>);

/// How many sessions a user has, as far as is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CachedCounts {
    /// The writer must find out.
    Missing,
    /// So many.
    Counts(SessionCounts),
    /// Too many to remember.
    TooMany,
}

#[derive(Default)]
struct CachedUsers {
    /// `None` for who has too many.
    users: HashMap<UserId, Option<HashMap<SessionId, SessionStatus>>>,
    /// Sessions of all of them, and one more for each.
    size: usize,
}

impl OpenSessionCache {
    /// How many the user has.
    pub(super) fn count(&self, owner: &UserId) -> CachedCounts {
        let known = self.lock();
        match known.users.get(owner) {
            None => CachedCounts::Missing,
            Some(None) => CachedCounts::TooMany,
            Some(Some(sessions)) => {
                let runs = |status: &&SessionStatus| **status != SessionStatus::Idle;
                let running = sessions.values().filter(runs).count();
                let (open, running) = (sessions.len() as u64, running as u64);
                CachedCounts::Counts(SessionCounts { open, running })
            }
        }
    }

    /// These are all that the user has, or more than are remembered.
    pub(super) fn insert_user(&self, owner: UserId, sessions: Vec<(SessionId, SessionStatus)>) {
        let sessions = (sessions.len() <= CACHED_SESSIONS_PER_USER_MAX).then_some(sessions);
        let mut known = self.lock();
        if known.size + sessions.as_ref().map_or(0, Vec::len) >= CACHED_SESSIONS_MAX {
            *known = CachedUsers::default();
        }
        known.insert(owner, sessions.map(|sessions| sessions.into_iter().collect()));
    }

    /// These commits are stored.
    pub(super) fn apply_commits(&self, commits: &[&StoredCommit]) {
        let mut known = self.lock();
        for row in commits.iter().filter_map(|commit| commit.session_row.as_ref()) {
            let Some(Some(sessions)) = known.users.get_mut(&row.owner) else { continue };
            let before = sessions.len();
            match row.status {
                SessionStatus::Closed => sessions.remove(&row.session_id),
                open @ (SessionStatus::Idle | SessionStatus::Running | SessionStatus::Waiting) => {
                    sessions.insert(row.session_id, open)
                }
            };
            let after = sessions.len();
            known.size = known.size + after - before;
            if after > CACHED_SESSIONS_PER_USER_MAX {
                known.insert(row.owner.clone(), None);
            }
        }
        if known.size > CACHED_SESSIONS_MAX {
            *known = CachedUsers::default();
        }
    }

    /// Nothing is known any more.
    pub(super) fn clear(&self) {
        *self.lock() = CachedUsers::default();
    }

    /// A panic while the lock was held leaves nothing half done that is read.
    fn lock(&self) -> MutexGuard<'_, CachedUsers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CachedUsers {
    fn insert(&mut self, owner: UserId, sessions: Option<HashMap<SessionId, SessionStatus>>) {
        let size = |sessions: &Option<HashMap<_, _>>| sessions.as_ref().map_or(0, HashMap::len) + 1;
        self.size += size(&sessions);
        if let Some(before) = self.users.insert(owner, sessions) {
            self.size -= size(&before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        StoredCommit::from_commit(&commit).unwrap()
    }

    #[test]
    fn x4_cached_counts_follow_commits() {
        use SessionStatus::{Closed, Idle, Running, Waiting};
        let open = OpenSessionCache::default();
        open.apply_commits(&[&commit(1, "ann", Running)]);
        assert_eq!(open.count(&user("ann")), CachedCounts::Missing);
        open.insert_user(user("ann"), vec![(id(1), Running), (id(2), Idle)]);
        assert_eq!(
            open.count(&user("ann")),
            CachedCounts::Counts(SessionCounts { open: 2, running: 1 })
        );
        open.apply_commits(&[
            &commit(2, "ann", Waiting),
            &commit(3, "ann", Idle),
            &commit(4, "bob", Idle),
        ]);
        assert_eq!(
            open.count(&user("ann")),
            CachedCounts::Counts(SessionCounts { open: 3, running: 2 })
        );
        open.apply_commits(&[&commit(1, "ann", Closed), &commit(1, "ann", Closed)]);
        assert_eq!(
            open.count(&user("ann")),
            CachedCounts::Counts(SessionCounts { open: 2, running: 1 })
        );
        assert_eq!(open.count(&user("bob")), CachedCounts::Missing);
        open.clear();
        assert_eq!(open.count(&user("ann")), CachedCounts::Missing);
    }

    #[test]
    fn cache_is_bounded_and_large_users_are_not_cached() {
        let open = OpenSessionCache::default();
        let many = |count| (0..count).map(|n| (id(n), SessionStatus::Idle)).collect::<Vec<_>>();
        open.insert_user(user("ann"), many(CACHED_SESSIONS_PER_USER_MAX + 1));
        assert_eq!(open.count(&user("ann")), CachedCounts::TooMany);
        open.insert_user(user("ann"), many(CACHED_SESSIONS_PER_USER_MAX));
        let full = SessionCounts { open: CACHED_SESSIONS_PER_USER_MAX as u64, running: 0 };
        assert_eq!(open.count(&user("ann")), CachedCounts::Counts(full));
        open.apply_commits(&[&commit(CACHED_SESSIONS_PER_USER_MAX, "ann", SessionStatus::Idle)]);
        assert_eq!(open.count(&user("ann")), CachedCounts::TooMany);
        for n in 0..40 {
            open.insert_user(user(&format!("user-{n}")), many(2_000));
            let known = open.lock();
            let size: usize =
                known.users.values().map(|it| it.as_ref().map_or(0, HashMap::len) + 1).sum();
            assert_eq!(size, known.size);
            assert!(size <= CACHED_SESSIONS_MAX + 1);
        }
        let counts = SessionCounts { open: 2_000, running: 0 };
        assert_eq!(open.count(&user("user-39")), CachedCounts::Counts(counts));
    }
}
