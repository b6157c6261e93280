//! Who may run alone, as a session's shell and the turnstile keep it (T8): a turn comes late, or
//! not before others are done, or is gone when the process died.

use crate::{chance::Chance, world::World};
use greenroom_core::{
    call::{Call, CallPhase},
    ids::CallId,
    session::{Input, SessionState},
};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stands {
    Waiting,
    /// It is told, or about to be.
    Granted,
    /// Its call has begun.
    Held,
}

/// The turns of this session's calls, and what other sessions hold.
#[derive(Default)]
pub(crate) struct Turns {
    calls: BTreeMap<CallId, (String, Stands)>,
    elsewhere: BTreeSet<String>,
    began_alone: u32,
}

impl Turns {
    /// The call asks for its turn; more than once if it must.
    pub(crate) fn enter(&mut self, call_id: CallId, key: &str) {
        match self.calls.get_mut(&call_id) {
            Some((asked, Stands::Held)) if asked == key => {
                self.calls.insert(call_id, (key.to_owned(), Stands::Granted));
            }
            Some((asked, _)) if asked == key => {}
            Some(_) | None => {
                self.calls.insert(call_id, (key.to_owned(), Stands::Waiting));
            }
        }
    }

    /// What ended, or waits for a person, has left.
    pub(crate) fn settle(&mut self, state: &SessionState) {
        self.calls.retain(|call_id, (_, stands)| match phase_of(state, *call_id) {
            Some(CallPhase::Running { .. } | CallPhase::BackingOff { .. }) => true,
            Some(CallPhase::Allowed) => *stands != Stands::Held,
            Some(
                CallPhase::Proposed | CallPhase::AwaitingApproval { .. } | CallPhase::Finished(_),
            )
            | None => false,
        });
    }

    pub(crate) fn forget(&mut self) {
        self.calls.clear();
    }

    pub(crate) fn awaits(&self, call_id: CallId) -> bool {
        self.calls.get(&call_id).is_some_and(|(_, stands)| *stands != Stands::Held)
    }

    pub(crate) fn somebody_else_acts(&mut self, chance: &mut Chance) {
        let key = *chance.pick(&["wallet", "ledger"]);
        let is_free =
            !self.calls.values().any(|(held, stands)| held == key && *stands != Stands::Waiting);
        if !self.elsewhere.remove(key) && is_free {
            self.elsewhere.insert(key.to_owned());
        }
    }

    pub(crate) fn others_leave(&mut self) {
        self.elsewhere.clear();
    }

    /// The turn that may come next, if one may.
    fn next(&self, chance: &mut Chance) -> Option<(CallId, String)> {
        let taken = |key: &String| {
            let here =
                self.calls.values().any(|(held, stands)| held == key && *stands != Stands::Waiting);
            here || self.elsewhere.contains(key)
        };
        let may = |stands: Stands, key: &String| match stands {
            Stands::Waiting => !taken(key),
            Stands::Granted => true,
            Stands::Held => false,
        };
        let mut free: Vec<_> = self
            .calls
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
                let turn = self.calls.get(&call.call_id);
                let Some((key, Stands::Held)) = turn else {
                    panic!("T8: it runs without its turn: {turn:?}");
                };
                assert!(running.insert(key), "T8: two run at once");
                assert!(!self.elsewhere.contains(key), "T8: somebody else runs, too");
            }
        }
    }

    pub(crate) fn began_alone(&self) -> u32 {
        self.began_alone
    }
}

fn phase_of(state: &SessionState, call_id: CallId) -> Option<CallPhase> {
    let mut calls = state.active.run.iter().flat_map(|run| &run.calls);
    calls.find(|call: &&Call| call.call_id == call_id).map(|call| call.phase.clone())
}

impl World {
    /// Somebody's turn comes, if it may; who does not take it leaves.
    pub(crate) fn a_turn_comes(&mut self, chance: &mut Chance) -> bool {
        let Some((call_id, key)) = self.turns.next(chance) else { return false };
        self.turns.calls.insert(call_id, (key.clone(), Stands::Granted));
        let input = Input::TurnGranted { call_id, key: key.clone() };
        self.take(input).expect("facts are never refused");
        if self.is_dying() {
            return true; // Who dies has left.
        }
        let (phase, turns) = (phase_of(&self.state, call_id), &mut self.turns);
        if let Some((held, stands)) = turns.calls.get_mut(&call_id)
            && *held == key
        {
            *stands = Stands::Held;
            turns.began_alone += u32::from(matches!(phase, Some(CallPhase::Running { .. })));
        }
        self.turns.settle(&self.state);
        true
    }
}
