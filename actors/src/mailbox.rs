//! Sending to actors: the one place that may use actix's `do_send`, and that counts for the board.
//!
//! `do_send` ignores a mailbox's capacity and drops silently when the actor is gone. So requests
//! go through [`Mailbox::post`], which is bounded and says when it failed; [`Mailbox::tell`] is for
//! what is bounded by construction: at most one answer for each accepted request, and committed
//! events on their way to a hub; [`send_last`] for the one message after which a listener is let go.

use crate::status_board::StatusEntry;
use actix::{Actor, Addr, Handler, Message, Recipient, dev::ToEnvelope, prelude::SendError};

/// The address of an actor, with its entry on the board.
pub struct Mailbox<A: Actor> {
    address: Addr<A>,
    status_entry: StatusEntry,
}

impl<A: Actor> Clone for Mailbox<A> {
    fn clone(&self) -> Self {
        Self { address: self.address.clone(), status_entry: self.status_entry.clone() }
    }
}

/// Why a message was not taken; it comes back.
#[derive(Debug)]
pub enum TrySendError<M> {
    /// The mailbox is full.
    Full(M),
    /// The actor is gone.
    Closed(M),
}

impl<A: Actor> Mailbox<A> {
    /// The address of the actor that `watch` shows.
    pub fn new(address: Addr<A>, status_entry: StatusEntry) -> Self {
        Self { address, status_entry }
    }

    /// Asks for something: bounded by the mailbox.
    pub fn try_send<M>(&self, message: M) -> Result<(), TrySendError<M>>
    where
        M: Message + Send + 'static,
        M::Result: Send,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M>,
    {
        self.status_entry.record_sent();
        self.address.try_send(message).map_err(|error| {
            self.status_entry.undo_sent();
            match error {
                SendError::Full(message) => TrySendError::Full(message),
                SendError::Closed(message) => TrySendError::Closed(message),
            }
        })
    }

    /// Tells something that is bounded by construction. Nothing happens when the actor is gone.
    pub fn send<M>(&self, message: M)
    where
        M: Message + Send + 'static,
        M::Result: Send,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M>,
    {
        self.status_entry.record_sent();
        #[expect(clippy::disallowed_methods, reason = "this is the wrapper")]
        self.address.do_send(message);
    }

    /// Asks and waits for the answer; `None` when the actor is gone.
    pub async fn ask<M>(&self, message: M) -> Option<M::Result>
    where
        M: Message + Send + 'static,
        M::Result: Send,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M>,
    {
        self.status_entry.record_sent();
        self.address.send(message).await.ok()
    }

    /// Whether the actor still takes messages.
    pub fn is_open(&self) -> bool {
        self.address.connected()
    }
}

/// Sends a listener the last message it is sent, beyond what its mailbox takes. Nothing happens when
/// it is gone.
pub(crate) fn send_over_capacity<M>(listener: &Recipient<M>, message: M)
where
    M: Message + Send,
    M::Result: Send,
{
    #[expect(clippy::disallowed_methods, reason = "this is the wrapper")]
    listener.do_send(message);
}
