//! The audit log (X6): who decided what, when, and with what result; chained by hashes, so that a
//! row that was changed, moved or removed shows. `docs/security.md` explains it to people.
//!
//! Owns what an entry is ([`entry`]), which entries the events of a session make ([`rows`]) and
//! the chain ([`chain`]), all of it pure; and the port [`AuditLog`] that the store implements.
//! Knows nothing of SQL or HTTP. The store calls [`rows_of`] within the transaction that stores the
//! events, so that no decision is without its entry; what has no event is appended by itself.

mod chain;
mod entry;
mod session_entries;
#[cfg(test)]
mod session_entries_tests;

pub use chain::{AuditRow, ChainError, ChainHead, ChainVerifier};
pub use entry::{AuditAction, AuditActor, AuditEntry, AuditOutcome};
pub use session_entries::{entries_for_commit, entry_for_purge};

use async_trait::async_trait;
use greenroom_actors::ports::JournalError;
use greenroom_core::ids::SessionId;
use serde::Deserialize;
use utoipa::ToSchema;

/// Where audit entries are kept.
#[async_trait]
pub trait AuditLog: Send + Sync + 'static {
    /// Appends one entry. When this returns `Ok` it is durable.
    async fn append_audit(&self, entry: AuditEntry) -> Result<(), JournalError>;

    /// Rows in the order that is asked for.
    async fn list_audit_rows(&self, query: AuditQuery) -> Result<Vec<AuditRow>, JournalError>;
}

/// Which rows.
#[derive(Clone, Debug, Default)]
pub struct AuditQuery {
    /// Only of this session.
    pub session_id: Option<SessionId>,
    /// Only of what this user did.
    pub user: Option<String>,
    /// Only this action.
    pub action: Option<AuditAction>,
    /// Only rows with a greater number.
    pub after: u64,
    /// Only rows with a smaller number.
    pub before: Option<u64>,
    /// Which come first.
    pub order: AuditOrder,
    /// At most so many.
    pub limit: usize,
}

/// Which rows come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AuditOrder)]
pub enum AuditOrder {
    /// The oldest, as they were written.
    #[default]
    Oldest,
    /// The newest.
    Newest,
}

impl AuditQuery {
    /// What comes after a page that ended with row `n`.
    pub fn advance_past(&mut self, n: u64) {
        match self.order {
            AuditOrder::Oldest => self.after = n,
            AuditOrder::Newest => self.before = Some(n),
        }
    }
}
