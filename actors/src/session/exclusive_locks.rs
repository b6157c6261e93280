//! Requests, tracks and releases the exclusive locks of a session's calls (T8). A call keeps its lock
//! across retries and releases it when the call ends or waits for an approval.

use super::Session;
use crate::exclusive_locks::{AcquireLock, LockRequestId, ReleaseLock};
use actix::{Context, Handler, Message};
use greenroom_core::{call::CallPhase, ids::CallId, session::Input};
use std::collections::BTreeMap;

/// Reports that a call's exclusive lock was granted.
#[derive(Message)]
#[rtype(result = "()")]
pub struct LockGranted {
    /// The lock request.
    pub request_id: LockRequestId,
    /// The call.
    pub call_id: CallId,
    /// The lock's key.
    pub key: String,
}

/// The locks that the session's calls have requested.
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
    /// Other requests are ahead in the queue.
    Waiting,
    /// Granted, but the session has not handled the grant yet.
    Granted,
    /// The session has handled the grant.
    Held,
}

impl SessionLocks {
    pub(super) fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }

    /// True if the call must not start before its lock is granted and the grant is handled.
    pub(super) fn is_waiting(&self, call_id: CallId) -> bool {
        self.locks.get(&call_id).is_some_and(|lock| lock.status != LockStatus::Held)
    }

    /// Returns the key of the first call that waits for a lock.
    pub(super) fn first_waiting_key(&self) -> Option<&str> {
        let waiting = self.locks.values().find(|lock| lock.status == LockStatus::Waiting);
        waiting.map(|lock| lock.key.as_str())
    }

    /// Marks the lock as held once its grant was handled, even if the call did not start.
    pub(super) fn mark_held(&mut self, input: &Input) {
        if let Input::ExclusiveLockGranted { call_id, key } = input
            && let Some(lock) = self.locks.get_mut(call_id)
            && lock.key == *key
            && lock.status == LockStatus::Granted
        {
            lock.status = LockStatus::Held;
        }
    }
}

impl Session {
    /// Requests the call's lock and reports its grant. Idempotent.
    pub(super) fn acquire_lock(&mut self, call_id: CallId, key: String, ctx: &mut Context<Self>) {
        match self.locks.locks.get_mut(&call_id) {
            Some(lock) if lock.key == key => {
                if lock.status == LockStatus::Held {
                    // The call holds the lock since an earlier attempt.
                    lock.status = LockStatus::Granted;
                    let request_id = lock.request_id;
                    self.own_mailbox(ctx).send(LockGranted { request_id, call_id, key });
                }
                return;
            }
            Some(_) => self.release_lock(call_id),
            None => {}
        }
        self.locks.last_request_number += 1;
        let request_id =
            LockRequestId { generation: self.generation, number: self.locks.last_request_number };
        let lock = CallLock { key: key.clone(), request_id, status: LockStatus::Waiting };
        self.locks.locks.insert(call_id, lock);
        let session = self.own_mailbox(ctx);
        self.deps.exclusive_locks.send(AcquireLock { key, request_id, call_id, session });
    }

    /// Releases the locks of calls that have ended, wait for an approval, or were granted a lock
    /// and could not start. A lock holder must never wait for its own session.
    pub(super) fn release_unused_locks(&mut self) {
        if self.locks.is_empty() {
            return;
        }
        let calls = self.state.active.run.iter().flat_map(|run| &run.calls);
        let phases: BTreeMap<_, _> = calls.map(|call| (call.call_id, &call.phase)).collect();
        let is_unused = |(call_id, lock): &(&CallId, &CallLock)| match phases.get(call_id) {
            Some(CallPhase::Running { .. } | CallPhase::BackingOff { .. }) => false,
            Some(CallPhase::Allowed) => lock.status == LockStatus::Held,
            Some(
                CallPhase::Proposed | CallPhase::AwaitingApproval { .. } | CallPhase::Finished(_),
            )
            | None => true,
        };
        let unused: Vec<_> =
            self.locks.locks.iter().filter(is_unused).map(|(call_id, _)| *call_id).collect();
        for call_id in unused {
            self.release_lock(call_id);
        }
    }

    /// Releases every lock because this actor stops.
    pub(super) fn release_all_locks(&mut self) {
        for (_, CallLock { key, request_id, .. }) in std::mem::take(&mut self.locks.locks) {
            self.deps.exclusive_locks.send(ReleaseLock { key, request_id });
        }
    }

    fn release_lock(&mut self, call_id: CallId) {
        if let Some(CallLock { key, request_id, .. }) = self.locks.locks.remove(&call_id) {
            self.deps.exclusive_locks.send(ReleaseLock { key, request_id });
        }
    }
}

impl Handler<LockGranted> for Session {
    type Result = ();

    fn handle(&mut self, granted: LockGranted, ctx: &mut Self::Context) {
        self.status_entry.start_message("LockGranted");
        let LockGranted { request_id, call_id, key } = granted;
        // A grant for a request that was released in the meantime is ignored.
        if let Some(lock) = self.locks.locks.get_mut(&call_id)
            && lock.request_id == request_id
        {
            lock.status = LockStatus::Granted;
            self.handle_fact(Input::ExclusiveLockGranted { call_id, key }, ctx);
        }
        self.status_entry.finish_message();
    }
}
