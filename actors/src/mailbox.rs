//! Sends messages to actors and counts them for the status board. The only module that may use
//! actix's `do_send`.
//!
//! `do_send` ignores the capacity of a mailbox and drops the message silently if the actor has
//! stopped. Requests therefore use [`Mailbox::try_send`], which is bounded and returns an error.
//! [`Mailbox::send`] is for messages that are bounded by construction: at most one answer for each
//! accepted request, and committed events sent to a shared actor. `send_over_capacity` is for the
//! last message to a subscriber that is being detached.

use crate::status_board::StatusEntry;
use actix::{Actor, Addr, Handler, Message, Recipient, dev::ToEnvelope, prelude::SendError};

/// The address of an actor, with the actor's status board entry.
pub struct Mailbox<A: Actor> {
    address: Addr<A>,
    status_entry: StatusEntry,
}

impl<A: Actor> Clone for Mailbox<A> {
    fn clone(&self) -> Self {
        Self { address: self.address.clone(), status_entry: self.status_entry.clone() }
    }
}

/// The reason why a message was not accepted. Returns the message.
#[derive(Debug)]
pub enum TrySendError<M> {
    /// The mailbox is full.
    Full(M),
    /// The actor has stopped.
    Closed(M),
}

impl<A: Actor> Mailbox<A> {
    /// Creates a mailbox for the actor that `status_entry` belongs to.
    pub fn new(address: Addr<A>, status_entry: StatusEntry) -> Self {
        Self { address, status_entry }
    }

    /// Sends a request, subject to the mailbox's capacity.
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

    /// Sends a message that is bounded by construction. Does nothing if the actor has stopped.
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

    /// Sends a request and waits for the answer. Returns `None` if the actor has stopped.
    pub async fn request<M>(&self, message: M) -> Option<M::Result>
    where
        M: Message + Send + 'static,
        M::Result: Send,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M>,
    {
        self.status_entry.record_sent();
        self.address.send(message).await.ok()
    }

    /// True if the actor accepts messages.
    pub fn is_open(&self) -> bool {
        self.address.connected()
    }
}

/// Sends a recipient the last message it receives, even if its mailbox is full. Does nothing if the
/// actor has stopped.
pub(crate) fn send_over_capacity<M>(listener: &Recipient<M>, message: M)
where
    M: Message + Send,
    M::Result: Send,
{
    #[expect(clippy::disallowed_methods, reason = "this is the wrapper")]
    listener.do_send(message);
}
