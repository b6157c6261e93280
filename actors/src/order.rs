//! What an administrator may tell a live actor (A2).
//!
//! Each actor puts on the board which orders it takes and where to; who orders needs neither its
//! address nor its kind. An order is told, not asked: the board shows what became of it.

use actix::Message;
use greenroom_core::ids::UserId;
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// An order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ActorOrder {
    /// End what you do, and do not begin it again by yourself.
    Stop,
    /// End what you do, and begin it again.
    Restart,
}

impl ActorOrder {
    /// Its name in the surface.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Restart => "restart",
        }
    }
}

/// An order, on its way to an actor.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ExecuteOrder {
    /// Whom it is for; an actor may stand on the board for others.
    pub path: Arc<str>,
    /// What it is.
    pub order: ActorOrder,
    /// Who gives it.
    pub by: UserId,
}

/// Why an order was not told.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum OrderError {
    /// No actor is there.
    #[error("no live actor stands there")]
    NotFound,
    /// It takes no such order.
    #[error("{kind} takes {}", format_supported(takes))]
    NotSupported {
        /// What stands there.
        kind: &'static str,
        /// What it takes.
        takes: &'static [ActorOrder],
    },
    /// It is too busy to hear.
    #[error("the actor's mailbox is full")]
    MailboxFull,
}

fn format_supported(takes: &[ActorOrder]) -> String {
    match takes {
        [] => "no orders".to_owned(),
        orders => format!(
            "only the order {}",
            orders.iter().map(|order| order.name()).collect::<Vec<_>>().join(" or ")
        ),
    }
}
