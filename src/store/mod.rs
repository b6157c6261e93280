//! The journal in a database: the log of every session, what must agree with it, user settings, API
//! keys and the audit log.
//!
//! Owns files, SQL and the stored form of events. Knows nothing of actors, HTTP or what an event
//! means: it implements the port [`greenroom_actors::ports::Journal`] and is called through it.
//! `docs/storage.md` explains it to people.
//!
//! ```text
//! append ──► writer (one thread) ──► heads, spending: who may ──► sink: one write ──┬─► database
//!                                                                                   └─► recent, open sessions
//! read   ──► recent, else readers: what is asked, decoded ─────────────────────────────► database
//! ```
//!
//! What is the same on every database stands here, once: the `writer` and what it decides by, what
//! is asked and how the answers are read (`read`, `records`), the `stored` form of a commit. A
//! database has a room of its own for its connections, its schema and the statements that write.

mod admin_records;
mod codec;
mod database;
mod error;
mod group_commit_timer;
mod head_cache;
mod journal;
mod log_tail_cache;
mod open_session_cache;
mod postgres;
mod queries;
mod read_only;
mod spending_check;
mod sql;
mod sqlite;
mod stored_commit;
mod verify;
mod writer;

pub use database::{DatabaseLocation, PostgresAddress};
pub use error::StoreError;
pub use read_only::ReadOnlyStore;
pub use verify::{AuditError, verify_audit};

use greenroom_actors::ports::JournalError;
use serde::{Deserialize, Serialize};
use sql::ReadPool;
use std::{fmt, time::Duration};
use writer::Writer;

/// Time to wait for a database that another process has locked for a moment.
const BUSY_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// Connections that read, where nothing else is said.
const READ_CONNECTIONS_DEFAULT: u32 = 4;

/// What an acknowledged commit survives (D4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// The machine losing power.
    #[default]
    Fsync,
    /// The process being killed; the last commits may be lost with the machine's power.
    Process,
}

/// How a database is opened.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// What an acknowledged commit survives.
    pub durability: Durability,
    /// Connections that read, at least 1.
    pub read_connections: u32,
    /// How long a write waits for a lock before it is refused.
    pub busy_timeout: Duration,
    /// Bytes that an SQLite file may grow to; `None` is as many as the disk holds. At the limit
    /// writes are refused as on a full disk.
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

/// What opening or migrating a database did to its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigrationOutcome {
    /// The schema version before; 0 for a database that did not exist.
    pub from_version: i64,
    /// The version now.
    pub to_version: i64,
}

/// What a store has appended since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteStats {
    /// Commits of sessions.
    pub commits: u64,
    /// Writes that they went in; the fewer, the more of them shared the wait for the disk (D4).
    pub groups: u64,
}

/// Everything that is stored, in one database. The database is this process's alone while it is
/// open; dropping it waits for what is being written.
pub struct Store {
    // Fields drop in this order: the file's lock goes last.
    writer: Writer,
    read_pool: ReadPool,
    database: DatabaseLocation,
    migrated: MigrationOutcome,
    _file: Option<sqlite::DatabaseFile>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("database", &self.database).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the database, creates what is missing, and migrates it to the newest schema.
    pub async fn open(
        database: impl Into<DatabaseLocation>,
        options: StoreOptions,
    ) -> Result<Self, StoreError> {
        let database = database.into();
        match &database {
            DatabaseLocation::Sqlite(path) => {
                let (writer, readers, migrated, file) = sqlite::open(path, &options).await?;
                Ok(Self { writer, read_pool: readers, migrated, database, _file: Some(file) })
            }
            DatabaseLocation::Postgres(address) => {
                let (writer, readers, migrated) = postgres::open(address, &options).await?;
                Ok(Self { writer, read_pool: readers, migrated, database, _file: None })
            }
        }
    }

    /// Opens a database to look at it alone, also while a server has it open: nothing is created,
    /// migrated or locked.
    pub async fn open_read_only(
        database: impl Into<DatabaseLocation>,
    ) -> Result<ReadOnlyStore, StoreError> {
        ReadOnlyStore::open(&database.into()).await
    }

    /// What was appended since it was opened.
    pub fn write_stats(&self) -> WriteStats {
        self.writer.stats()
    }

    /// Leaves everything in order, as dropping the store does, for who can't tell who else still
    /// has it: what is purged is gone from an SQLite file, and the file alone holds everything.
    pub async fn checkpoint(&self) -> Result<(), JournalError> {
        self.writer.submit(|| Ok(writer::WriteRequest::Checkpoint)).await
    }

    /// What opening did to the schema.
    pub fn migration(&self) -> MigrationOutcome {
        self.migrated
    }
}

/// Creates the database where there is none, and migrates it to the newest schema.
pub async fn migrate(
    database: impl Into<DatabaseLocation>,
) -> Result<MigrationOutcome, StoreError> {
    match &database.into() {
        DatabaseLocation::Sqlite(path) => sqlite::migrate(path).await,
        DatabaseLocation::Postgres(address) => postgres::migrate(address).await,
    }
}
