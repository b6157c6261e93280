//! Whose turn it is among calls that must run alone (T8): a line for each key, across sessions and
//! tools; the first in it has its turn.
//!
//! One in a process. Sessions enter when a call would begin, and leave when it has ended or waits
//! for a person, or when they end themselves. Nothing of it is stored: after a restart the calls
//! that go on enter again. It knows neither tools nor why a key is what it is.

use crate::{
    limits::SHARED_ACTOR_MAILBOX_MAX,
    mailbox::Mailbox,
    session::{LockGranted, Session},
    status_board::StatusEntry,
};
use actix::{Actor, Context, Handler, Message};
use greenroom_core::ids::CallId;
use std::collections::{BTreeMap, VecDeque};

/// A place in a line. No place is ever given twice, so that what comes late for an old one is not
/// taken for a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequestId {
    /// Which of all actors of sessions.
    pub generation: u64,
    /// Which of its places.
    pub number: u64,
}

/// The actor.
pub struct ExclusiveLocks {
    /// Never an empty line. As long as calls under way: a session has a few at once.
    queues: BTreeMap<String, VecDeque<LockRequest>>,
    /// Places that are not the first of their line.
    waiting_count: usize,
    status_entry: StatusEntry,
}

struct LockRequest {
    request_id: LockRequestId,
    call_id: CallId,
    session: Mailbox<Session>,
}

impl ExclusiveLocks {
    /// Without lines.
    pub fn new(status_entry: StatusEntry) -> Self {
        Self { queues: BTreeMap::new(), waiting_count: 0, status_entry }
    }

    /// Tells the first of the line that it is its turn; those that are gone are passed over.
    fn grant_to_first(&mut self, key: &str) {
        let Some(line) = self.queues.get_mut(key) else { return };
        while let Some(first) = line.front() {
            if first.session.is_open() {
                let LockRequest { request_id: ticket, call_id, session } = first;
                let (ticket, call_id, key) = (*ticket, *call_id, key.to_owned());
                return session.send(LockGranted { request_id: ticket, call_id, key });
            }
            line.pop_front();
            self.waiting_count -= usize::from(!line.is_empty());
        }
        self.queues.remove(key);
    }

    fn update_status(&self) {
        let waiting_for = match self.waiting_count {
            0 => None,
            1 => Some("calls that run alone, for 1 other".to_owned()),
            count => Some(format!("calls that run alone, for {count} others")),
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

/// A call would begin.
#[derive(Message)]
#[rtype(result = "()")]
pub struct AcquireLock {
    /// The line.
    pub key: String,
    /// The place.
    pub request_id: LockRequestId,
    /// The call.
    pub call_id: CallId,
    /// Its session.
    pub session: Mailbox<Session>,
}

impl Handler<AcquireLock> for ExclusiveLocks {
    type Result = ();

    fn handle(&mut self, enter: AcquireLock, _ctx: &mut Self::Context) {
        self.status_entry.record_handled();
        let AcquireLock { key, request_id: ticket, call_id, session } = enter;
        let line = self.queues.entry(key.clone()).or_default();
        line.push_back(LockRequest { request_id: ticket, call_id, session });
        let is_first = line.len() == 1;
        self.waiting_count += usize::from(!is_first);
        if is_first {
            self.grant_to_first(&key);
        }
        self.update_status();
    }
}

/// A place is free: its call has ended, or does not want to run now.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ReleaseLock {
    /// The line.
    pub key: String,
    /// The place.
    pub request_id: LockRequestId,
}

impl Handler<ReleaseLock> for ExclusiveLocks {
    type Result = ();

    fn handle(
        &mut self,
        ReleaseLock { key, request_id: ticket }: ReleaseLock,
        _ctx: &mut Self::Context,
    ) {
        self.status_entry.record_handled();
        let Some(line) = self.queues.get_mut(&key) else { return };
        let Some(index) = line.iter().position(|place| place.request_id == ticket) else { return };
        line.remove(index);
        // One of the others moved up, or the one that left had waited.
        self.waiting_count -= usize::from(index > 0 || !line.is_empty());
        if index == 0 {
            self.grant_to_first(&key);
        }
        self.update_status();
    }
}
