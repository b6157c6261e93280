//! A database that is only looked at: what `greenroom policy check` reads beside a running server.
//! There is nothing here to write with.

use super::{
    DatabaseLocation, StoreError, admin_records, postgres, queries, sql::ReadPool, sqlite,
};
use crate::auth::ApiKey;
use greenroom_actors::ports::{JournalError, SessionQuery};
use greenroom_core::{
    ids::{Seq, SessionId},
    session::{EventRecord, SessionRow},
};
use std::fmt;

/// The log in a database, to be read alone. Each answer is of one moment; between two, a server
/// that has the database open may have gone on.
pub struct ReadOnlyStore {
    readers: ReadPool,
    database: DatabaseLocation,
}

impl fmt::Debug for ReadOnlyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadOnlyStore").field("database", &self.database).finish_non_exhaustive()
    }
}

impl ReadOnlyStore {
    pub(super) async fn open(database: &DatabaseLocation) -> Result<Self, StoreError> {
        let readers = match database {
            DatabaseLocation::Sqlite(path) => sqlite::open_read_only(path).await?,
            DatabaseLocation::Postgres(address) => postgres::open_read_only(address).await?,
        };
        Ok(Self { readers, database: database.clone() })
    }

    /// The events after `after`, at most `limit`, in order.
    pub async fn load_events(
        &self,
        session_id: SessionId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<EventRecord>, JournalError> {
        queries::load_events(&self.readers, session_id, after, limit).await
    }

    /// All API keys, oldest first.
    pub async fn list_keys(&self) -> Result<Vec<ApiKey>, JournalError> {
        admin_records::list_keys(&self.readers).await
    }

    /// One session's row.
    pub async fn load_session(
        &self,
        session_id: SessionId,
    ) -> Result<Option<SessionRow>, JournalError> {
        queries::load_session(&self.readers, session_id).await
    }

    /// Sessions, newest first.
    pub async fn list_sessions(
        &self,
        query: SessionQuery,
    ) -> Result<Vec<SessionRow>, JournalError> {
        queries::list_sessions(&self.readers, query).await
    }
}
