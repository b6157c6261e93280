//! A model of exclusive locks, as the session actor and the lock manager implement them (T8): a lock
//! is granted late, after other calls release it, or is lost when the process crashes.

use crate::{rng::SeededRng, session_simulation::SessionSimulation};
use greenroom_core::{
    call::{Call, CallPhase},
    ids::CallId,
    session::{Input, SessionState},
};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LockStatus {
    Waiting,
    /// The session was notified, or is about to be.
    Granted,
    /// The call has started.
    Held,
}

/// Locks of this session's calls, and keys that other sessions hold.
#[derive(Default)]
pub(crate) struct LockModel {
    locks: BTreeMap<CallId, (String, LockStatus)>,
    held_elsewhere: BTreeSet<String>,
    exclusive_starts: u32,
}

impl LockModel {
    /// Handles a request for a lock, which may be repeated.
    pub(crate) fn acquire(&mut self, call_id: CallId, key: &str) {
        match self.locks.get_mut(&call_id) {
            Some((requested, LockStatus::Held)) if requested == key => {
                self.locks.insert(call_id, (key.to_owned(), LockStatus::Granted));
            }
            Some((requested, _)) if requested == key => {}
            Some(_) | None => {
                self.locks.insert(call_id, (key.to_owned(), LockStatus::Waiting));
            }
        }
    }

    /// Releases the locks of calls that ended or wait for approval.
    pub(crate) fn release_unused(&mut self, state: &SessionState) {
        self.locks.retain(|call_id, (_, status)| match phase_of(state, *call_id) {
            Some(CallPhase::Running { .. } | CallPhase::BackingOff { .. }) => true,
            Some(CallPhase::Allowed) => *status != LockStatus::Held,
            Some(
                CallPhase::Proposed | CallPhase::AwaitingApproval { .. } | CallPhase::Finished(_),
            )
            | None => false,
        });
    }

    pub(crate) fn clear(&mut self) {
        self.locks.clear();
    }

    pub(crate) fn is_waiting(&self, call_id: CallId) -> bool {
        self.locks.get(&call_id).is_some_and(|(_, status)| *status != LockStatus::Held)
    }

    pub(crate) fn toggle_other_session(&mut self, chance: &mut SeededRng) {
        let key = *chance.pick(&["wallet", "ledger"]);
        let is_free = !self
            .locks
            .values()
            .any(|(held, status)| held == key && *status != LockStatus::Waiting);
        if !self.held_elsewhere.remove(key) && is_free {
            self.held_elsewhere.insert(key.to_owned());
        }
    }

    pub(crate) fn release_other_sessions(&mut self) {
        self.held_elsewhere.clear();
    }

    /// Picks a lock that can be granted next, if there is one.
    fn next_grantable(&self, chance: &mut SeededRng) -> Option<(CallId, String)> {
        let is_taken = |key: &String| {
            let is_held_here = self
                .locks
                .values()
                .any(|(held, status)| held == key && *status != LockStatus::Waiting);
            is_held_here || self.held_elsewhere.contains(key)
        };
        let is_grantable = |status: LockStatus, key: &String| match status {
            LockStatus::Waiting => !is_taken(key),
            LockStatus::Granted => true,
            LockStatus::Held => false,
        };
        let mut grantable: Vec<_> = self
            .locks
            .iter()
            .filter(|(_, (key, status))| is_grantable(*status, key))
            .map(|(call_id, (key, _))| (*call_id, key.clone()))
            .collect();
        chance.take_random(&mut grantable)
    }

    /// T8: a running exclusive call holds its lock, and no other call holds it.
    pub(crate) fn check(&self, state: &SessionState) {
        let mut running = BTreeSet::new();
        let calls = state.active.run.iter().flat_map(|run| &run.calls);
        for call in calls.filter(|call| call.tool.starts_with("alone")) {
            if let CallPhase::Running { .. } = call.phase {
                let lock = self.locks.get(&call.call_id);
                let Some((key, LockStatus::Held)) = lock else {
                    panic!("T8: the call runs without its lock: {lock:?}");
                };
                assert!(running.insert(key), "T8: two calls with one key run");
                assert!(!self.held_elsewhere.contains(key), "T8: another session holds the lock");
            }
        }
    }

    pub(crate) fn exclusive_starts(&self) -> u32 {
        self.exclusive_starts
    }
}

fn phase_of(state: &SessionState, call_id: CallId) -> Option<CallPhase> {
    let mut calls = state.active.run.iter().flat_map(|run| &run.calls);
    calls.find(|call: &&Call| call.call_id == call_id).map(|call| call.phase.clone())
}

impl SessionSimulation {
    /// Grants a lock, if one can be granted; a call that does not use it releases it.
    pub(crate) fn grant_lock(&mut self, chance: &mut SeededRng) -> bool {
        let Some((call_id, key)) = self.locks.next_grantable(chance) else { return false };
        self.locks.locks.insert(call_id, (key.clone(), LockStatus::Granted));
        let input = Input::ExclusiveLockGranted { call_id, key: key.clone() };
        self.apply_input(input).expect("facts are never rejected");
        if self.is_crash_pending() {
            return true; // A crash releases the lock.
        }
        let (phase, model) = (phase_of(&self.state, call_id), &mut self.locks);
        if let Some((held, status)) = model.locks.get_mut(&call_id)
            && *held == key
        {
            *status = LockStatus::Held;
            model.exclusive_starts += u32::from(matches!(phase, Some(CallPhase::Running { .. })));
        }
        self.locks.release_unused(&self.state);
        true
    }
}
