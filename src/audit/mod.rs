//! The audit log (X6): who decided what, when, and with what result; chained by hashes, so that a
//! row that was changed, moved or removed shows. `docs/security.md` explains it to people.
//!
//! Owns what an entry is ([`entry`]), which entries the events of a session make ([`rows`]) and
//! the chain ([`chain`]), all of it pure; and the port [`AuditLog`] that the store implements.
//! Knows nothing of SQL or HTTP. The store calls [`rows_of`] within the transaction that stores the
//! events, so that no decision is without its entry; what has no event is appended by itself.

mod chain;
mod entry;
mod rows;
#[cfg(test)]
mod rows_tests;

pub use chain::{Broken, Head, Sealed, Verifier};
pub use entry::{Action, Actor, Entry, Outcome};
pub use rows::{row_of_purge, rows_of};

use async_trait::async_trait;
use greenroom_actors::ports::JournalError;
use greenroom_core::ids::SessionId;
use serde::Deserialize;
use utoipa::ToSchema;

/// Where audit entries are kept.
#[async_trait]
pub trait AuditLog: Send + Sync + 'static {
    /// Appends one entry. When this returns `Ok` it is durable.
    async fn append_audit(&self, entry: Entry) -> Result<(), JournalError>;

    /// Rows in the order that is asked for.
    async fn audit(&self, query: AuditQuery) -> Result<Vec<Sealed>, JournalError>;
}

/// Which rows.
#[derive(Clone, Debug, Default)]
pub struct AuditQuery {
    /// Only of this session.
    pub session_id: Option<SessionId>,
    /// Only of what this user did.
    pub user: Option<String>,
    /// Only this action.
    pub action: Option<Action>,
    /// Only rows with a greater number.
    pub after: u64,
    /// Only rows with a smaller number.
    pub before: Option<u64>,
    /// Which come first.
    pub order: Order,
    /// At most so many.
    pub limit: usize,
}

/// Which rows come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AuditOrder)]
pub enum Order {
    /// The oldest, as they were written.
    #[default]
    Oldest,
    /// The newest.
    Newest,
}

impl AuditQuery {
    /// What comes after a page that ended with row `n`.
    pub fn go_on_after(&mut self, n: u64) {
        match self.order {
            Order::Oldest => self.after = n,
            Order::Newest => self.before = Some(n),
        }
    }
}
