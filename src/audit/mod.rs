//! The audit log (X6): a record of every decision (actor, action, time and outcome), chained by
//! hashes, so that a changed, moved or removed row is detected. `docs/security.md` describes it for
//! users.
//!
//! Owns the entry, the entries of a session's events and the hash chain, all of them pure, and the
//! port [`AuditLog`], which the store implements. Does not know SQL or HTTP. The store calls
//! [`entries_for_commit`] within the transaction that stores the events, so that no decision lacks
//! its entry; entries without an event are appended separately.

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

/// The store of the audit log.
#[async_trait]
pub trait AuditLog: Send + Sync + 'static {
    /// Appends one entry. The entry is durable when this returns `Ok`.
    async fn append_audit(&self, entry: AuditEntry) -> Result<(), JournalError>;

    /// Lists the rows of `query` in its order.
    async fn list_audit_rows(&self, query: AuditQuery) -> Result<Vec<AuditRow>, JournalError>;
}

/// Selects rows of the audit log.
#[derive(Clone, Debug, Default)]
pub struct AuditQuery {
    /// Only rows about this session.
    pub session_id: Option<SessionId>,
    /// Only actions of this user.
    pub user: Option<String>,
    /// Only this action.
    pub action: Option<AuditAction>,
    /// Only rows with a greater number.
    pub after: u64,
    /// Only rows with a smaller number.
    pub before: Option<u64>,
    /// The order of the rows.
    pub order: AuditOrder,
    /// Maximum number of rows.
    pub limit: usize,
}

/// The order of audit rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AuditOrder)]
pub enum AuditOrder {
    /// Oldest first, as written.
    #[default]
    Oldest,
    /// Newest first.
    Newest,
}

impl AuditQuery {
    /// Advances the query to the page after one that ended with row `n`.
    pub fn advance_past(&mut self, n: u64) {
        match self.order {
            AuditOrder::Oldest => self.after = n,
            AuditOrder::Newest => self.before = Some(n),
        }
    }
}
