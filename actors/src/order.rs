//! The orders that an administrator can give to a live actor (A2).
//!
//! Each actor registers on the status board which orders it supports and the recipient for them, so
//! the sender needs neither the actor's address nor its type. An order has no reply: its effect is
//! visible on the status board.

use actix::Message;
use greenroom_core::ids::UserId;
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// An order to a live actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ActorOrder {
    /// Stop the current work and do not start it again automatically.
    Stop,
    /// Stop the current work and start it again.
    Restart,
}

impl ActorOrder {
    /// Returns the order's name in the HTTP API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Restart => "restart",
        }
    }
}

/// Delivers an order to an actor.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ExecuteOrder {
    /// The status board path of the actor. A recipient may serve several paths.
    pub path: Arc<str>,
    /// The order.
    pub order: ActorOrder,
    /// The administrator who gave the order.
    pub by: UserId,
}

/// The reason why an order was not delivered.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum OrderError {
    /// No live actor has the path.
    #[error("no live actor at this path")]
    NotFound,
    /// The actor does not support the order.
    #[error("{kind} supports {}", format_supported(supported))]
    NotSupported {
        /// The actor's kind.
        kind: &'static str,
        /// The orders that the actor supports.
        supported: &'static [ActorOrder],
    },
    /// The actor's mailbox has no room for the order.
    #[error("the actor's mailbox is full")]
    MailboxFull,
}

fn format_supported(supported: &[ActorOrder]) -> String {
    match supported {
        [] => "no orders".to_owned(),
        orders => format!(
            "only the order {}",
            orders.iter().map(|order| order.name()).collect::<Vec<_>>().join(" or ")
        ),
    }
}
