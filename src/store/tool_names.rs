//! The owners of short tool names, which must survive a restart: a server that is the first to connect
//! afterwards must not take the names of another one (G19).

use super::{
    ReadOnlyStore, Store,
    queries::{column_value, fetch_all},
    sql::{ReadPool, SqlQuery},
    writer::WriteRequest,
};
use greenroom_actors::ports::JournalError;
use greenroom_core::policy::NameOwners;
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;

/// Delay after which a failed write is repeated.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// The condition is always true. It states that the rows are read in the order of the key.
const SELECT_TOOL_NAMES: &str = "SELECT name, server FROM tool_names WHERE name >= ''";

impl Store {
    /// Returns the stored owners of short tool names.
    pub async fn load_tool_names(&self) -> Result<NameOwners, JournalError> {
        load(&self.read_pool).await
    }

    /// Stores owners of short tool names, as pairs of name and server.
    pub async fn store_tool_names(&self, names: Vec<(String, String)>) -> Result<(), JournalError> {
        self.writer.submit(|| Ok(WriteRequest::StoreToolNames(names))).await
    }
}

impl Store {
    /// Stores the owners of short tool names whenever they change, until the sender is dropped.
    /// `stored` are those that the database has.
    pub async fn store_tool_name_changes(
        self: Arc<Self>,
        mut names: watch::Receiver<NameOwners>,
        mut stored: NameOwners,
    ) {
        loop {
            let current = names.borrow_and_update().clone();
            let changes = current.changes_since(&stored);
            if !changes.is_empty() {
                if let Err(error) = self.store_tool_names(changes).await {
                    tracing::warn!(%error, "failed to store the names of tools; retrying");
                    tokio::time::sleep(RETRY_DELAY).await;
                    continue;
                }
                stored = current;
            }
            if names.changed().await.is_err() {
                return;
            }
        }
    }
}

impl ReadOnlyStore {
    /// Returns the stored owners of short tool names. Fails if the schema is older.
    pub async fn load_tool_names(&self) -> Result<NameOwners, JournalError> {
        load(self.read_pool()).await
    }
}

async fn load(read_pool: &ReadPool) -> Result<NameOwners, JournalError> {
    let rows = fetch_all(read_pool, SqlQuery::new(SELECT_TOOL_NAMES)).await?;
    let pairs = rows.iter().map(|row| {
        Ok((column_value(row.text(0))?.to_owned(), column_value(row.text(1))?.to_owned()))
    });
    Ok(NameOwners::from_stored(pairs.collect::<Result<Vec<_>, JournalError>>()?))
}

/// Returns every query of this module with the SQLite index it must use.
#[cfg(test)]
pub(super) fn every_query() -> Vec<(SqlQuery, &'static str)> {
    vec![(SqlQuery::new(SELECT_TOOL_NAMES), "PRIMARY KEY")]
}
