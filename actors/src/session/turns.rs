//! The turns of a session's calls that must run alone (T8): which it waits for, which it has, and
//! when they are left to others. A turn lasts over retries; it ends with the call, or when the call
//! waits for a person.

use super::Session;
use crate::turnstile::{Enter, Leave, Ticket};
use actix::{Context, Handler, Message};
use greenroom_core::{call::CallPhase, ids::CallId, session::Input};
use std::collections::BTreeMap;

/// It is a call's turn.
#[derive(Message)]
#[rtype(result = "()")]
pub struct TurnCame {
    /// The place in the line.
    pub ticket: Ticket,
    /// The call.
    pub call_id: CallId,
    /// The line.
    pub key: String,
}

/// The turns that were asked for.
#[derive(Default)]
pub(super) struct Turns {
    calls: BTreeMap<CallId, Turn>,
    tickets: u64,
}

struct Turn {
    key: String,
    ticket: Ticket,
    stands: Stands,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stands {
    /// Others are before it.
    Waiting,
    /// Its turn has come; the call is about to be told.
    Come,
    /// The call was told.
    Taken,
}

impl Turns {
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Whether the call can't begin before it is told that its turn has come.
    pub(super) fn awaits(&self, call_id: CallId) -> bool {
        self.calls.get(&call_id).is_some_and(|turn| turn.stands != Stands::Taken)
    }

    /// The first key that a call waits for.
    pub(super) fn awaited_key(&self) -> Option<&str> {
        let waiting = self.calls.values().find(|turn| turn.stands == Stands::Waiting);
        waiting.map(|turn| turn.key.as_str())
    }

    /// The call was told, whatever it made of it.
    pub(super) fn was_told(&mut self, input: &Input) {
        if let Input::TurnGranted { call_id, key } = input
            && let Some(turn) = self.calls.get_mut(call_id)
            && turn.key == *key
            && turn.stands == Stands::Come
        {
            turn.stands = Stands::Taken;
        }
    }
}

impl Session {
    /// Sees to it that the call gets its turn, and is told. It is enough to be asked once.
    pub(super) fn await_turn(&mut self, call_id: CallId, key: String, ctx: &mut Context<Self>) {
        match self.turns.calls.get_mut(&call_id) {
            Some(turn) if turn.key == key => {
                if turn.stands == Stands::Taken {
                    // It has kept its turn since an attempt before.
                    turn.stands = Stands::Come;
                    let ticket = turn.ticket;
                    self.myself(ctx).tell(TurnCame { ticket, call_id, key });
                }
                return;
            }
            Some(_) => self.leave(call_id),
            None => {}
        }
        self.turns.tickets += 1;
        let ticket = Ticket { generation: self.generation, number: self.turns.tickets };
        let turn = Turn { key: key.clone(), ticket, stands: Stands::Waiting };
        self.turns.calls.insert(call_id, turn);
        let session = self.myself(ctx);
        self.around.turnstile.tell(Enter { key, ticket, call_id, session });
    }

    /// Leaves to others the turns of calls that have ended, that wait for a person, or that were
    /// told and could not begin: what holds a turn must not wait for anything of its session.
    pub(super) fn leave_turns(&mut self) {
        if self.turns.is_empty() {
            return;
        }
        let calls = self.state.active.run.iter().flat_map(|run| &run.calls);
        let phases: BTreeMap<_, _> = calls.map(|call| (call.call_id, &call.phase)).collect();
        let is_over = |(call_id, turn): &(&CallId, &Turn)| match phases.get(call_id) {
            Some(CallPhase::Running { .. } | CallPhase::BackingOff { .. }) => false,
            Some(CallPhase::Allowed) => turn.stands == Stands::Taken,
            Some(
                CallPhase::Proposed | CallPhase::AwaitingApproval { .. } | CallPhase::Finished(_),
            )
            | None => true,
        };
        let over: Vec<_> =
            self.turns.calls.iter().filter(is_over).map(|(call_id, _)| *call_id).collect();
        for call_id in over {
            self.leave(call_id);
        }
    }

    /// Leaves every turn: this actor ends.
    pub(super) fn leave_all_turns(&mut self) {
        for (_, Turn { key, ticket, .. }) in std::mem::take(&mut self.turns.calls) {
            self.around.turnstile.tell(Leave { key, ticket });
        }
    }

    fn leave(&mut self, call_id: CallId) {
        if let Some(Turn { key, ticket, .. }) = self.turns.calls.remove(&call_id) {
            self.around.turnstile.tell(Leave { key, ticket });
        }
    }
}

impl Handler<TurnCame> for Session {
    type Result = ();

    fn handle(&mut self, came: TurnCame, ctx: &mut Self::Context) {
        self.watch.begin("TurnCame");
        let TurnCame { ticket, call_id, key } = came;
        // What was left meanwhile is somebody else's.
        if let Some(turn) = self.turns.calls.get_mut(&call_id)
            && turn.ticket == ticket
        {
            turn.stands = Stands::Come;
            self.hear(Input::TurnGranted { call_id, key }, ctx);
        }
        self.watch.end();
    }
}
