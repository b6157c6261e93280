//! A database that is only looked at: what `greenroom policy check` reads beside a running server.
//! There is nothing here to write with.

use super::{file, read, readers, records, schema};
use crate::{
    auth::ApiKey,
    store::{StoreError, StoreOptions},
};
use greenroom_actors::ports::{JournalError, SessionQuery};
use greenroom_core::{
    ids::{Seq, SessionId},
    session::{EventRecord, SessionRow},
};
use sqlx::SqlitePool;
use std::{fmt, path::Path, path::PathBuf};

/// The log in an SQLite database, to be read alone. Each answer is of one moment; between two, a
/// server that has the database open may have gone on.
pub struct ReadOnlyJournal {
    readers: SqlitePool,
    path: PathBuf,
}

impl fmt::Debug for ReadOnlyJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadOnlyJournal").field("path", &self.path).finish_non_exhaustive()
    }
}

impl ReadOnlyJournal {
    pub(super) async fn open(path: &Path) -> Result<Self, StoreError> {
        let path = file::existing(path)?;
        let failed = |source| StoreError::Open { path: path.clone(), source };
        let options = StoreOptions { readers: 1, ..StoreOptions::default() };
        let readers = readers(&path, &options).await.map_err(failed)?;
        let mut connection = readers.acquire().await.map_err(failed)?;
        let version = schema::version(&mut connection, &path).await?;
        drop(connection);
        schema::check_is_newest(version, &path)?;
        Ok(Self { readers, path })
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
