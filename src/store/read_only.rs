//! A database that is only looked at: what `greenroom policy check` reads beside a running server.
//! There is nothing here to write with.

use super::{Database, StoreError, postgres, query::Readers, read, records, sqlite};
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
    readers: Readers,
    database: Database,
}

impl fmt::Debug for ReadOnlyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadOnlyStore").field("database", &self.database).finish_non_exhaustive()
    }
}

impl ReadOnlyStore {
    pub(super) async fn open(database: &Database) -> Result<Self, StoreError> {
        let readers = match database {
            Database::Sqlite(path) => sqlite::look(path).await?,
            Database::Postgres(address) => postgres::look(address).await?,
        };
        Ok(Self { readers, database: database.clone() })
    }

    /// The events after `after`, at most `limit`, in order.
    pub async fn read(
        &self,
        session_id: SessionId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<EventRecord>, JournalError> {
        read::events(&self.readers, session_id, after, limit).await
    }

    /// All API keys, oldest first.
    pub async fn keys(&self) -> Result<Vec<ApiKey>, JournalError> {
        records::keys(&self.readers).await
    }

    /// One session's row.
    pub async fn session(&self, session_id: SessionId) -> Result<Option<SessionRow>, JournalError> {
        read::session(&self.readers, session_id).await
    }

    /// Sessions, newest first.
    pub async fn sessions(&self, query: SessionQuery) -> Result<Vec<SessionRow>, JournalError> {
        read::sessions(&self.readers, query).await
    }
}
