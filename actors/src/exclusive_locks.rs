//! Grants exclusive locks to calls that must run alone (T8): one queue of requests for each key,
//! across sessions and tools. The first request of a queue holds the lock.
//!
//! There is one such actor in a process. A session requests a lock before a call starts, and
//! releases it when the call has ended or waits for an approval, or when the session's actor stops.
//! Nothing is stored: after a restart the resumed calls request their locks again. The actor knows
//! neither the tools nor the meaning of a key.

use crate::{
    limits::SHARED_ACTOR_MAILBOX_MAX,
    mailbox::Mailbox,
    session::{LockGranted, Session},
    status_board::StatusEntry,
};
use actix::{Actor, Context, Handler, Message};
use greenroom_core::ids::CallId;
use std::collections::{BTreeMap, VecDeque};

/// The id of a lock request. Ids are never reused, so a late message about an old request is not
/// mistaken for one about a new request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequestId {
    /// The generation of the session's actor, unique in the process.
    pub generation: u64,
    /// The number of the request within that actor.
    pub number: u64,
}

/// The actor that grants exclusive locks.
pub struct ExclusiveLocks {
    /// The requests for each key. A queue is never empty; a session has only a few requests at
    /// once.
    queues: BTreeMap<String, VecDeque<LockRequest>>,
    /// The number of requests that are not the first of their queue.
    waiting_count: usize,
    status_entry: StatusEntry,
}

struct LockRequest {
    request_id: LockRequestId,
    call_id: CallId,
    session: Mailbox<Session>,
}

impl ExclusiveLocks {
    /// Creates an actor without lock requests.
    pub fn new(status_entry: StatusEntry) -> Self {
        Self { queues: BTreeMap::new(), waiting_count: 0, status_entry }
    }

    /// Grants the lock to the first request of the queue. Requests of stopped sessions are removed.
    fn grant_to_first(&mut self, key: &str) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        while let Some(first) = queue.front() {
            if first.session.is_open() {
                let LockRequest { request_id, call_id, session } = first;
                let (request_id, call_id, key) = (*request_id, *call_id, key.to_owned());
                return session.send(LockGranted { request_id, call_id, key });
            }
            queue.pop_front();
            self.waiting_count -= usize::from(!queue.is_empty());
        }
        self.queues.remove(key);
    }

    fn update_status(&self) {
        let waiting_for = match self.waiting_count {
            0 => None,
            1 => Some("lock release, 1 call waiting".to_owned()),
            count => Some(format!("lock release, {count} calls waiting")),
        };
        self.status_entry
            .set_state(if self.queues.is_empty() { "idle" } else { "taken" }, waiting_for);
    }
}

impl Actor for ExclusiveLocks {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(SHARED_ACTOR_MAILBOX_MAX);
        self.update_status();
    }
}

/// Requests a lock for a call that is about to start.
#[derive(Message)]
#[rtype(result = "()")]
pub struct AcquireLock {
    /// The lock's key.
    pub key: String,
    /// The id of the request.
    pub request_id: LockRequestId,
    /// The call.
    pub call_id: CallId,
    /// The session of the call, which receives [`LockGranted`].
    pub session: Mailbox<Session>,
}

impl Handler<AcquireLock> for ExclusiveLocks {
    type Result = ();

    fn handle(&mut self, request: AcquireLock, _ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        let AcquireLock { key, request_id, call_id, session } = request;
        let queue = self.queues.entry(key.clone()).or_default();
        queue.push_back(LockRequest { request_id, call_id, session });
        let is_first = queue.len() == 1;
        self.waiting_count += usize::from(!is_first);
        if is_first {
            self.grant_to_first(&key);
        }
        self.update_status();
    }
}

/// Releases a lock, or withdraws a request that waits for it.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ReleaseLock {
    /// The lock's key.
    pub key: String,
    /// The id of the request.
    pub request_id: LockRequestId,
}

impl Handler<ReleaseLock> for ExclusiveLocks {
    type Result = ();

    fn handle(&mut self, ReleaseLock { key, request_id }: ReleaseLock, _ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        let Some(queue) = self.queues.get_mut(&key) else { return };
        let Some(index) = queue.iter().position(|request| request.request_id == request_id) else {
            return;
        };
        queue.remove(index);
        // The next request becomes the first, or the removed request was itself waiting.
        self.waiting_count -= usize::from(index > 0 || !queue.is_empty());
        if index == 0 {
            self.grant_to_first(&key);
        }
        self.update_status();
    }
}
