//! The journal in a database: the log of every session, the rows derived from it, user settings,
//! API keys and the audit log.
//!
//! Owns files, SQL and the stored form of events. Knows nothing of actors, HTTP or the meaning of
//! events: it implements the port [`greenroom_actors::ports::Journal`] and is called through it.
//! `docs/storage.md` describes it for operators.
//!
//! ```text
//! append ──► writer (one thread) ──► heads, spending: check ──► backend: one write ──┬─► database
//!                                                                                    └─► caches
//! read   ──► caches, else read pool: query, decode ─────────────────────────────────────► database
//! ```
//!
//! Code shared by all databases is in this module: the `writer` and its checks, the `queries` and
//! `admin_records`, and the stored form of a commit (`stored_commit`). Each database has a module
//! with its connections, its schema and the statements that write.

mod admin_records;
mod backup;
mod codec;
mod database;
#[cfg(test)]
mod decoder_fuzz;
mod digest_key;
mod error;
mod group_commit_delay;
mod head_cache;
mod journal;
mod log_tail_cache;
mod open_session_cache;
mod postgres;
mod queries;
mod read_only;
mod requests;
mod spending_check;
mod sql;
mod sqlite;
mod stored_commit;
mod tool_names;
mod verify;
mod writer;

pub use backup::{BackupError, BackupSummary, backup};
pub use database::{DatabaseLocation, PostgresAddress};
pub use error::StoreError;
pub use read_only::ReadOnlyStore;
pub use verify::{AuditError, verify_audit};

use crate::redaction::DigestKey;
use greenroom_actors::ports::JournalError;
use serde::{Deserialize, Serialize};
use sql::ReadPool;
use std::{fmt, time::Duration};
use writer::Writer;

/// Time to wait for a lock that another process holds on the database.
const BUSY_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// Number of read connections, unless configured.
const READ_CONNECTIONS_DEFAULT: u32 = 4;

/// The kind of failure that an acknowledged commit survives (D4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Survives a power failure of the machine.
    #[default]
    Fsync,
    /// Survives a kill of the process. The last commits may be lost in a power failure.
    Process,
}

/// Options for opening a database.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The kind of failure that an acknowledged commit survives.
    pub durability: Durability,
    /// Number of read connections; at least 1.
    pub read_connections: u32,
    /// Time a write waits for a lock before it fails.
    pub busy_timeout: Duration,
    /// Maximum bytes of an SQLite file; `None` for no limit. At the limit, writes fail as on a full
    /// disk.
    pub size_bytes_max: Option<u64>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            durability: Durability::default(),
            read_connections: READ_CONNECTIONS_DEFAULT,
            busy_timeout: BUSY_TIMEOUT_DEFAULT,
            size_bytes_max: None,
        }
    }
}

/// The schema change made by opening or migrating a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigrationOutcome {
    /// The previous schema version; 0 for a database that did not exist.
    pub from_version: i64,
    /// The current version.
    pub to_version: i64,
}

/// Number of writes since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteStats {
    /// Number of commits of sessions.
    pub commits: u64,
    /// Number of groups written for these commits. Commits in a group share one wait for the disk
    /// (D4).
    pub groups: u64,
}

/// All stored data, in one database. This process has exclusive write access to the database while
/// the store is open. Dropping the store waits for pending writes.
pub struct Store {
    // Fields are dropped in this order: the lock of the file is released last.
    writer: Writer,
    read_pool: ReadPool,
    digest_key: DigestKey,
    database: DatabaseLocation,
    migration: MigrationOutcome,
    _file: Option<sqlite::DatabaseFile>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("database", &self.database).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the database, creates it if it is missing, and migrates it to the newest schema.
    pub async fn open(
        database: impl Into<DatabaseLocation>,
        options: StoreOptions,
    ) -> Result<Self, StoreError> {
        let database = database.into();
        let (writer, read_pool, migration, file) = match &database {
            DatabaseLocation::Sqlite(path) => {
                let (writer, read_pool, migration, file) = sqlite::open(path, &options).await?;
                (writer, read_pool, migration, Some(file))
            }
            DatabaseLocation::Postgres(address) => {
                let (writer, read_pool, migration) = postgres::open(address, &options).await?;
                (writer, read_pool, migration, None)
            }
        };
        let digest_key = digest_key::load_digest_key(&read_pool, &database).await?;
        Ok(Self { writer, read_pool, digest_key, database, migration, _file: file })
    }

    /// Opens a database only for reading, even while a server has it open. Creates, migrates and
    /// locks nothing.
    pub async fn open_read_only(
        database: impl Into<DatabaseLocation>,
    ) -> Result<ReadOnlyStore, StoreError> {
        ReadOnlyStore::open(&database.into()).await
    }

    /// Returns the key of the digests of arguments and results. It is created with the database, and
    /// is the same for every server that opens it.
    pub fn digest_key(&self) -> &DigestKey {
        &self.digest_key
    }

    /// Returns the number of writes since the store was opened.
    pub fn write_stats(&self) -> WriteStats {
        self.writer.stats()
    }

    /// Performs the cleanup that dropping the store does, for callers that can't ensure that they
    /// drop the last reference: purged data is overwritten, and an SQLite file contains all data
    /// without its write-ahead log.
    pub async fn checkpoint(&self) -> Result<(), JournalError> {
        self.writer.submit(|| Ok(writer::WriteRequest::Checkpoint)).await
    }

    /// Returns the schema change made by opening the store.
    pub fn migration(&self) -> MigrationOutcome {
        self.migration
    }
}

/// Creates the database if it is missing, and migrates it to the newest schema.
pub async fn migrate(
    database: impl Into<DatabaseLocation>,
) -> Result<MigrationOutcome, StoreError> {
    match &database.into() {
        DatabaseLocation::Sqlite(path) => sqlite::migrate(path).await,
        DatabaseLocation::Postgres(address) => postgres::migrate(address).await,
    }
}
