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

mod codec;
mod database;
mod error;
mod heads;
mod journal;
mod open_sessions;
mod pace;
mod postgres;
mod query;
mod read;
mod read_only;
mod recent;
mod records;
mod spending;
mod sqlite;
mod stored;
mod verify;
mod writer;

pub use database::{Database, PostgresAddress};
pub use error::StoreError;
pub use read_only::ReadOnlyStore;
pub use verify::{AuditError, verify_audit};

use greenroom_actors::ports::JournalError;
use query::Readers;
use serde::{Deserialize, Serialize};
use std::{fmt, time::Duration};
use writer::Writer;

/// Time to wait for a database that another process has locked for a moment.
const BUSY_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// Connections that read, where nothing else is said.
const READERS_DEFAULT: u32 = 4;

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
    pub readers: u32,
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
            readers: READERS_DEFAULT,
            busy_timeout: BUSY_TIMEOUT_DEFAULT,
            size_bytes_max: None,
        }
    }
}

/// What opening or migrating a database did to its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// The schema version before; 0 for a database that did not exist.
    pub from: i64,
    /// The version now.
    pub to: i64,
}

/// What a store has appended since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
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
    readers: Readers,
    database: Database,
    migrated: Migrated,
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
        database: impl Into<Database>,
        options: StoreOptions,
    ) -> Result<Self, StoreError> {
        let database = database.into();
        match &database {
            Database::Sqlite(path) => {
                let (writer, readers, migrated, file) = sqlite::open(path, &options).await?;
                Ok(Self { writer, readers, migrated, database, _file: Some(file) })
            }
            Database::Postgres(address) => {
                let (writer, readers, migrated) = postgres::open(address, &options).await?;
                Ok(Self { writer, readers, migrated, database, _file: None })
            }
        }
    }

    /// Opens a database to look at it alone, also while a server has it open: nothing is created,
    /// migrated or locked.
    pub async fn open_read_only(
        database: impl Into<Database>,
    ) -> Result<ReadOnlyStore, StoreError> {
        ReadOnlyStore::open(&database.into()).await
    }

    /// What was appended since it was opened.
    pub fn written(&self) -> Written {
        self.writer.written()
    }

    /// Leaves everything in order, as dropping the store does, for who can't tell who else still
    /// has it: what is purged is gone from an SQLite file, and the file alone holds everything.
    pub async fn settle(&self) -> Result<(), JournalError> {
        self.writer.ask(|| Ok(writer::Request::Settle)).await
    }

    /// What opening did to the schema.
    pub fn migrated(&self) -> Migrated {
        self.migrated
    }
}

/// Creates the database where there is none, and migrates it to the newest schema.
pub async fn migrate(database: impl Into<Database>) -> Result<Migrated, StoreError> {
    match &database.into() {
        Database::Sqlite(path) => sqlite::migrate(path).await,
        Database::Postgres(address) => postgres::migrate(address).await,
    }
}
