//! Read-only access to a database, such as `greenroom policy check` needs beside a running server.

use super::{
    DatabaseLocation, StoreError, admin_records, postgres, queries, sql::ReadPool, sqlite,
};
use crate::{auth::ApiKey, ceilings::StoredCeilings};
use greenroom_actors::ports::{JournalError, SessionQuery};
use greenroom_core::{
    ids::{Seq, SessionId},
    session::{EventRecord, SessionRow},
};
use std::fmt;

/// A database opened only for reading. Each query sees a consistent state, but a server that has
/// the database open may write between two queries.
pub struct ReadOnlyStore {
    read_pool: ReadPool,
    database: DatabaseLocation,
}

impl fmt::Debug for ReadOnlyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadOnlyStore").field("database", &self.database).finish_non_exhaustive()
    }
}

impl ReadOnlyStore {
    pub(super) async fn open(database: &DatabaseLocation) -> Result<Self, StoreError> {
        let read_pool = match database {
            DatabaseLocation::Sqlite(path) => sqlite::open_read_only(path).await?,
            DatabaseLocation::Postgres(address) => postgres::open_read_only(address).await?,
        };
        Ok(Self { read_pool, database: database.clone() })
    }

    /// Returns the read connections, for queries in other files.
    pub(super) fn read_pool(&self) -> &ReadPool {
        &self.read_pool
    }

    /// Returns at most `limit` events after `after_seq`, in order.
    pub async fn load_events(
        &self,
        session_id: SessionId,
        after_seq: Seq,
        limit: usize,
    ) -> Result<Vec<EventRecord>, JournalError> {
        queries::load_events(&self.read_pool, session_id, after_seq, limit).await
    }

    /// Returns all API keys, oldest first.
    pub async fn list_keys(&self) -> Result<Vec<ApiKey>, JournalError> {
        admin_records::list_keys(&self.read_pool).await
    }

    /// Returns the stored ceilings.
    pub async fn load_ceilings(&self) -> Result<StoredCeilings, JournalError> {
        admin_records::load_ceilings(&self.read_pool).await
    }

    /// Returns a session's row.
    pub async fn load_session(
        &self,
        session_id: SessionId,
    ) -> Result<Option<SessionRow>, JournalError> {
        queries::load_session(&self.read_pool, session_id).await
    }

    /// Returns sessions, newest first.
    pub async fn list_sessions(
        &self,
        query: SessionQuery,
    ) -> Result<Vec<SessionRow>, JournalError> {
        queries::list_sessions(&self.read_pool, query).await
    }
}
