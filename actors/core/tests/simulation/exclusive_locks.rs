//! Who may run alone, as a session's shell and the turnstile keep it (T8): a turn comes late, or
//! not before others are done, or is gone when the process died.

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
    /// It is told, or about to be.
    Granted,
    /// Its call has begun.
    Held,
}

/// The turns of this session's calls, and what other sessions hold.
#[derive(Default)]
pub(crate) struct LockModel {
    locks: BTreeMap<CallId, (String, LockStatus)>,
    held_elsewhere: BTreeSet<String>,
    exclusive_starts: u32,
}

impl LockModel {
    /// The call asks for its turn; more than once if it must.
    pub(crate) fn acquire(&mut self, call_id: CallId, key: &str) {
        match self.locks.get_mut(&call_id) {
            Some((asked, LockStatus::Held)) if asked == key => {
                self.locks.insert(call_id, (key.to_owned(), LockStatus::Granted));
            }
            Some((asked, _)) if asked == key => {}
            Some(_) | None => {
                self.locks.insert(call_id, (key.to_owned(), LockStatus::Waiting));
            }
        }
    }

    /// What ended, or waits for a person, has left.
    pub(crate) fn release_unused(&mut self, state: &SessionState) {
        self.locks.retain(|call_id, (_, stands)| match phase_of(state, *call_id) {
            Some(CallPhase::Running { .. } | CallPhase::BackingOff { .. }) => true,
            Some(CallPhase::Allowed) => *stands != LockStatus::Held,
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
        self.locks.get(&call_id).is_some_and(|(_, stands)| *stands != LockStatus::Held)
    }

    pub(crate) fn toggle_other_session(&mut self, chance: &mut SeededRng) {
        let key = *chance.pick(&["wallet", "ledger"]);
        let is_free = !self
            .locks
            .values()
            .any(|(held, stands)| held == key && *stands != LockStatus::Waiting);
        if !self.held_elsewhere.remove(key) && is_free {
            self.held_elsewhere.insert(key.to_owned());
        }
    }

    pub(crate) fn release_other_sessions(&mut self) {
        self.held_elsewhere.clear();
    }

    /// The turn that may come next, if one may.
    fn next_grantable(&self, chance: &mut SeededRng) -> Option<(CallId, String)> {
        let taken = |key: &String| {
            let here = self
                .locks
                .values()
                .any(|(held, stands)| held == key && *stands != LockStatus::Waiting);
            here || self.held_elsewhere.contains(key)
        };
        let may = |stands: LockStatus, key: &String| match stands {
            LockStatus::Waiting => !taken(key),
            LockStatus::Granted => true,
            LockStatus::Held => false,
        };
        let mut free: Vec<_> = self
            .locks
            .iter()
            .filter(|(_, (key, stands))| may(*stands, key))
            .map(|(call_id, (key, _))| (*call_id, key.clone()))
            .collect();
        chance.take(&mut free)
    }

    /// T8: what runs alone has its turn, and nothing else of that key has it too.
    pub(crate) fn check(&self, state: &SessionState) {
        let mut running = BTreeSet::new();
        let calls = state.active.run.iter().flat_map(|run| &run.calls);
        for call in calls.filter(|call| call.tool.starts_with("alone")) {
            if let CallPhase::Running { .. } = call.phase {
                let turn = self.locks.get(&call.call_id);
                let Some((key, LockStatus::Held)) = turn else {
                    panic!("T8: it runs without its turn: {turn:?}");
                };
                assert!(running.insert(key), "T8: two run at once");
                assert!(!self.held_elsewhere.contains(key), "T8: somebody else runs, too");
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
    /// Somebody's turn comes, if it may; who does not take it leaves.
    pub(crate) fn grant_lock(&mut self, chance: &mut SeededRng) -> bool {
        let Some((call_id, key)) = self.locks.next_grantable(chance) else { return false };
        self.locks.locks.insert(call_id, (key.clone(), LockStatus::Granted));
        let input = Input::ExclusiveLockGranted { call_id, key: key.clone() };
        self.apply_input(input).expect("facts are never refused");
        if self.is_crash_pending() {
            return true; // Who dies has left.
        }
        let (phase, turns) = (phase_of(&self.state, call_id), &mut self.locks);
        if let Some((held, stands)) = turns.locks.get_mut(&call_id)
            && *held == key
        {
            *stands = LockStatus::Held;
            turns.exclusive_starts += u32::from(matches!(phase, Some(CallPhase::Running { .. })));
        }
        self.locks.release_unused(&self.state);
        true
    }
}
