//! Whose turn it is among calls that must run alone (T8): a line for each key, across sessions and
//! tools; the first in it has its turn.
//!
//! One in a process. Sessions enter when a call would begin, and leave when it has ended or waits
//! for a person, or when they end themselves. Nothing of it is stored: after a restart the calls
//! that go on enter again. It knows neither tools nor why a key is what it is.

use crate::{
    limits::HUB_MAILBOX_MAX,
    mailbox::Mailbox,
    observation::Watch,
    session::{Session, TurnCame},
};
use actix::{Actor, Context, Handler, Message};
use greenroom_core::ids::CallId;
use std::collections::{BTreeMap, VecDeque};

/// A place in a line. No place is ever given twice, so that what comes late for an old one is not
/// taken for a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Which of all actors of sessions.
    pub generation: u64,
    /// Which of its places.
    pub number: u64,
}

/// The actor.
pub struct Turnstile {
    /// Never an empty line. As long as calls under way: a session has a few at once.
    lines: BTreeMap<String, VecDeque<Place>>,
    /// Places that are not the first of their line.
    waiting: usize,
    watch: Watch,
}

struct Place {
    ticket: Ticket,
    call_id: CallId,
    session: Mailbox<Session>,
}

impl Turnstile {
    /// Without lines.
    pub fn new(watch: Watch) -> Self {
        Self { lines: BTreeMap::new(), waiting: 0, watch }
    }

    /// Tells the first of the line that it is its turn; those that are gone are passed over.
    fn call_first(&mut self, key: &str) {
        let Some(line) = self.lines.get_mut(key) else { return };
        while let Some(first) = line.front() {
            if first.session.is_open() {
                let Place { ticket, call_id, session } = first;
                let (ticket, call_id, key) = (*ticket, *call_id, key.to_owned());
                return session.tell(TurnCame { ticket, call_id, key });
            }
            line.pop_front();
            self.waiting -= usize::from(!line.is_empty());
        }
        self.lines.remove(key);
    }

    fn show(&self) {
        let waiting_for = match self.waiting {
            0 => None,
            1 => Some("calls that run alone, for 1 other".to_owned()),
            count => Some(format!("calls that run alone, for {count} others")),
        };
        self.watch.set_state(if self.lines.is_empty() { "idle" } else { "taken" }, waiting_for);
    }
}

impl Actor for Turnstile {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(HUB_MAILBOX_MAX);
        self.show();
    }
}

/// A call would begin.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Enter {
    /// The line.
    pub key: String,
    /// The place.
    pub ticket: Ticket,
    /// The call.
    pub call_id: CallId,
    /// Its session.
    pub session: Mailbox<Session>,
}

impl Handler<Enter> for Turnstile {
    type Result = ();

    fn handle(&mut self, enter: Enter, _ctx: &mut Self::Context) {
        self.watch.tick();
        let Enter { key, ticket, call_id, session } = enter;
        let line = self.lines.entry(key.clone()).or_default();
        line.push_back(Place { ticket, call_id, session });
        let is_first = line.len() == 1;
        self.waiting += usize::from(!is_first);
        if is_first {
            self.call_first(&key);
        }
        self.show();
    }
}

/// A place is free: its call has ended, or does not want to run now.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Leave {
    /// The line.
    pub key: String,
    /// The place.
    pub ticket: Ticket,
}

impl Handler<Leave> for Turnstile {
    type Result = ();

    fn handle(&mut self, Leave { key, ticket }: Leave, _ctx: &mut Self::Context) {
        self.watch.tick();
        let Some(line) = self.lines.get_mut(&key) else { return };
        let Some(index) = line.iter().position(|place| place.ticket == ticket) else { return };
        line.remove(index);
        // One of the others moved up, or the one that left had waited.
        self.waiting -= usize::from(index > 0 || !line.is_empty());
        if index == 0 {
            self.call_first(&key);
        }
        self.show();
    }
}
