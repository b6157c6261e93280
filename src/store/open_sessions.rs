//! Which sessions users have open, in memory: every message asks how many run (X4), and every new
//! session how many there are. Must not know how it is asked.
//!
//! Sound because one process alone writes: the writer fills in what it reads between two writes,
//! notes every commit before anybody is told that it is stored, and forgets everything whenever a
//! write fails.

use super::stored::Encoded;
use greenroom_actors::ports::SessionCounts;
use greenroom_core::{
    ids::{SessionId, UserId},
    session::SessionStatus,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Open sessions of one user that are remembered; of who has more, they are counted each time.
pub(super) const OF_ONE_USER_MAX: usize = 4_096;
/// Open sessions that are remembered altogether; beyond it all are forgotten and read again.
const REMEMBERED_MAX: usize = 64 * 1024;

/// What is known; clones are one.
#[derive(Clone, Default)]
pub(super) struct OpenSessions(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    users: HashMap<UserId, HashMap<SessionId, SessionStatus>>,
    /// Sessions of all of them, and one more for each.
    size: usize,
}

impl OpenSessions {
    /// How many the user has, if that is known.
    pub(super) fn count(&self, owner: &UserId) -> Option<SessionCounts> {
        let known = self.known();
        let sessions = known.users.get(owner)?;
        let runs = |status: &&SessionStatus| **status != SessionStatus::Idle;
        let running = sessions.values().filter(runs).count();
        Some(SessionCounts { open: sessions.len() as u64, running: running as u64 })
    }

    /// These are all that the user has.
    pub(super) fn learn(&self, owner: UserId, sessions: Vec<(SessionId, SessionStatus)>) {
        if sessions.len() > OF_ONE_USER_MAX {
            return;
        }
        let mut known = self.known();
        if known.size + sessions.len() >= REMEMBERED_MAX {
            *known = Known::default();
        }
        known.drop_user(&owner);
        known.size += sessions.len() + 1;
        known.users.insert(owner, sessions.into_iter().collect());
    }

    /// These commits are stored.
    pub(super) fn note(&self, commits: &[&Encoded]) {
        let mut known = self.known();
        for row in commits.iter().filter_map(|commit| commit.row.as_ref()) {
            let Some(sessions) = known.users.get_mut(&row.owner) else { continue };
            let before = sessions.len();
            match row.status {
                SessionStatus::Closed => sessions.remove(&row.session_id),
                open @ (SessionStatus::Idle | SessionStatus::Running | SessionStatus::Waiting) => {
                    sessions.insert(row.session_id, open)
                }
            };
            let after = sessions.len();
            known.size = known.size + after - before;
            if after > OF_ONE_USER_MAX {
                known.drop_user(&row.owner);
            }
        }
        if known.size > REMEMBERED_MAX {
            *known = Known::default();
        }
    }

    /// Nothing is known any more.
    pub(super) fn forget(&self) {
        *self.known() = Known::default();
    }

    /// A panic while the lock was held leaves nothing half done that is read.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn drop_user(&mut self, owner: &UserId) {
        if let Some(sessions) = self.users.remove(owner) {
            self.size -= sessions.len() + 1;
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
        policy::Settings,
        session::{EventRecord, Projection, SessionEvent, SessionRow},
        usage::Spending,
    };
    use uuid::Uuid;

    fn user(name: &str) -> UserId {
        UserId::parse(name).unwrap()
    }

    fn id(session: usize) -> SessionId {
        SessionId(Uuid::from_u128(session as u128))
    }

    fn commit(session: usize, owner: &str, status: SessionStatus) -> Encoded {
        let row = SessionRow {
            session_id: id(session),
            owner: user(owner),
            agent: "assistant".parse().unwrap(),
            parent: None,
            title: None,
            settings: Settings::default(),
            status,
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
            grants: Vec::new(),
            usage: Spending::default(),
        };
        let event = SessionEvent::SessionClosed { by: user(owner) };
        let record = EventRecord { seq: Seq(1), at: Timestamp(0), run_id: None, step: None, event };
        let commit = Commit {
            session_id: id(session),
            expected_head: Seq(0),
            records: [record].into(),
            projection: Projection { session: Some(row), ..Projection::default() },
        };
        Encoded::of(&commit).unwrap()
    }

    #[test]
    fn x4_what_is_known_follows_what_is_written() {
        use SessionStatus::{Closed, Idle, Running, Waiting};
        let open = OpenSessions::default();
        open.note(&[&commit(1, "ann", Running)]);
        assert_eq!(open.count(&user("ann")), None);
        open.learn(user("ann"), vec![(id(1), Running), (id(2), Idle)]);
        assert_eq!(open.count(&user("ann")), Some(SessionCounts { open: 2, running: 1 }));
        open.note(&[&commit(2, "ann", Waiting), &commit(3, "ann", Idle), &commit(4, "bob", Idle)]);
        assert_eq!(open.count(&user("ann")), Some(SessionCounts { open: 3, running: 2 }));
        open.note(&[&commit(1, "ann", Closed), &commit(1, "ann", Closed)]);
        assert_eq!(open.count(&user("ann")), Some(SessionCounts { open: 2, running: 1 }));
        assert_eq!(open.count(&user("bob")), None);
        open.forget();
        assert_eq!(open.count(&user("ann")), None);
    }

    #[test]
    fn memory_is_bounded_and_what_is_too_much_is_not_known() {
        let open = OpenSessions::default();
        let many = |count| (0..count).map(|n| (id(n), SessionStatus::Idle)).collect::<Vec<_>>();
        open.learn(user("ann"), many(OF_ONE_USER_MAX + 1));
        assert_eq!(open.count(&user("ann")), None);
        open.learn(user("ann"), many(OF_ONE_USER_MAX));
        let full = SessionCounts { open: OF_ONE_USER_MAX as u64, running: 0 };
        assert_eq!(open.count(&user("ann")), Some(full));
        open.note(&[&commit(OF_ONE_USER_MAX, "ann", SessionStatus::Idle)]);
        assert_eq!(open.count(&user("ann")), None);
        for n in 0..40 {
            open.learn(user(&format!("user-{n}")), many(2_000));
            let known = open.known();
            let size: usize = known.users.values().map(|sessions| sessions.len() + 1).sum();
            assert_eq!(size, known.size);
            assert!(size <= REMEMBERED_MAX + 1);
        }
        assert_eq!(open.count(&user("user-39")).map(|counts| counts.open), Some(2_000));
    }
}
