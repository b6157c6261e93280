//! The turns of a session's calls that must run alone (T8): which it waits for, which it has, and
//! when they are left to others. A turn lasts over retries; it ends with the call, or when the call
//! waits for a person.

use super::Session;
use crate::exclusive_locks::{AcquireLock, LockRequestId, ReleaseLock};
use actix::{Context, Handler, Message};
use greenroom_core::{call::CallPhase, ids::CallId, session::Input};
use std::collections::BTreeMap;

/// It is a call's turn.
#[derive(Message)]
#[rtype(result = "()")]
pub struct LockGranted {
    /// The place in the line.
    pub request_id: LockRequestId,
    /// The call.
    pub call_id: CallId,
    /// The line.
    pub key: String,
}

/// The turns that were asked for.
#[derive(Default)]
pub(super) struct SessionLocks {
    locks: BTreeMap<CallId, CallLock>,
    last_request_number: u64,
}

struct CallLock {
    key: String,
    request_id: LockRequestId,
    status: LockStatus,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LockStatus {
    /// Others are before it.
    Waiting,
    /// Its turn has come; the call is about to be told.
    Granted,
    /// The call was told.
    Held,
}

impl SessionLocks {
    pub(super) fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }

    /// Whether the call can't begin before it is told that its turn has come.
    pub(super) fn is_waiting(&self, call_id: CallId) -> bool {
        self.locks.get(&call_id).is_some_and(|turn| turn.status != LockStatus::Held)
    }

    /// The first key that a call waits for.
    pub(super) fn first_waiting_key(&self) -> Option<&str> {
        let waiting = self.locks.values().find(|turn| turn.status == LockStatus::Waiting);
        waiting.map(|turn| turn.key.as_str())
    }

    /// The call was told, whatever it made of it.
    pub(super) fn mark_held(&mut self, input: &Input) {
        if let Input::ExclusiveLockGranted { call_id, key } = input
            && let Some(turn) = self.locks.get_mut(call_id)
            && turn.key == *key
            && turn.status == LockStatus::Granted
        {
            turn.status = LockStatus::Held;
        }
    }
}

impl Session {
    /// Sees to it that the call gets its turn, and is told. It is enough to be asked once.
    pub(super) fn acquire_lock(&mut self, call_id: CallId, key: String, ctx: &mut Context<Self>) {
        match self.locks.locks.get_mut(&call_id) {
            Some(turn) if turn.key == key => {
                if turn.status == LockStatus::Held {
                    // It has kept its turn since an attempt before.
                    turn.status = LockStatus::Granted;
                    let ticket = turn.request_id;
                    self.own_mailbox(ctx).send(LockGranted { request_id: ticket, call_id, key });
                }
                return;
            }
            Some(_) => self.release_lock(call_id),
            None => {}
        }
        self.locks.last_request_number += 1;
        let ticket =
            LockRequestId { generation: self.generation, number: self.locks.last_request_number };
        let turn = CallLock { key: key.clone(), request_id: ticket, status: LockStatus::Waiting };
        self.locks.locks.insert(call_id, turn);
        let session = self.own_mailbox(ctx);
        self.deps.exclusive_locks.send(AcquireLock { key, request_id: ticket, call_id, session });
    }

    /// Leaves to others the turns of calls that have ended, that wait for a person, or that were
    /// told and could not begin: what holds a turn must not wait for anything of its session.
    pub(super) fn release_unused_locks(&mut self) {
        if self.locks.is_empty() {
            return;
        }
        let calls = self.state.active.run.iter().flat_map(|run| &run.calls);
        let phases: BTreeMap<_, _> = calls.map(|call| (call.call_id, &call.phase)).collect();
        let is_over = |(call_id, turn): &(&CallId, &CallLock)| match phases.get(call_id) {
            Some(CallPhase::Running { .. } | CallPhase::BackingOff { .. }) => false,
            Some(CallPhase::Allowed) => turn.status == LockStatus::Held,
            Some(
                CallPhase::Proposed | CallPhase::AwaitingApproval { .. } | CallPhase::Finished(_),
            )
            | None => true,
        };
        let over: Vec<_> =
            self.locks.locks.iter().filter(is_over).map(|(call_id, _)| *call_id).collect();
        for call_id in over {
            self.release_lock(call_id);
        }
    }

    /// Leaves every turn: this actor ends.
    pub(super) fn release_all_locks(&mut self) {
        for (_, CallLock { key, request_id: ticket, .. }) in std::mem::take(&mut self.locks.locks) {
            self.deps.exclusive_locks.send(ReleaseLock { key, request_id: ticket });
        }
    }

    fn release_lock(&mut self, call_id: CallId) {
        if let Some(CallLock { key, request_id: ticket, .. }) = self.locks.locks.remove(&call_id) {
            self.deps.exclusive_locks.send(ReleaseLock { key, request_id: ticket });
        }
    }
}

impl Handler<LockGranted> for Session {
    type Result = ();

    fn handle(&mut self, came: LockGranted, ctx: &mut Self::Context) {
        self.status_entry.start_message("TurnCame");
        let LockGranted { request_id: ticket, call_id, key } = came;
        // What was left meanwhile is somebody else's.
        if let Some(turn) = self.locks.locks.get_mut(&call_id)
            && turn.request_id == ticket
        {
            turn.status = LockStatus::Granted;
            self.handle_fact(Input::ExclusiveLockGranted { call_id, key }, ctx);
        }
        self.status_entry.finish_message();
    }
}
