//! Why a database does not open ([`StoreError`], for the operator), and how SQL errors become the
//! port's [`JournalError`].

use greenroom_actors::ports::JournalError;
use std::{fmt, io, path::PathBuf};

/// Why a database can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file or its folder can't be used.
    #[error("can't {action} {path}")]
    File {
        /// What was tried.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// Another process, or this one, has it open.
    #[error("the database {database} is in use by another greenroom process (it holds {lock})")]
    InUse {
        /// The database.
        database: String,
        /// The lock.
        lock: String,
    },
    /// The file is something else.
    #[error("{path} is not an SQLite database")]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// The database is one of ours and no longer whole.
    #[error(
        "the database {database} is damaged ({detail}); restore a backup, or save what can be read of it: see \"A damaged file\" in docs/storage.md"
    )]
    Corrupted {
        /// The database.
        database: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The database belongs to another program.
    #[error("{database} is a database, but not one of greenroom's")]
    ForeignDatabase {
        /// The database.
        database: String,
    },
    /// A newer version of greenroom has migrated it (D5).
    #[error(
        "the database {database} has schema version {found}, but this greenroom knows only versions up to {known}; use a newer greenroom"
    )]
    SchemaTooNew {
        /// The database.
        database: String,
        /// Its version.
        found: i64,
        /// The newest version known here.
        known: i64,
    },
    /// It is of an older version of greenroom, and was to be read as it is.
    #[error(
        "the database {database} has schema version {found}, and {known} is read; `greenroom migrate` brings it there"
    )]
    SchemaTooOld {
        /// The database.
        database: String,
        /// Its version.
        found: i64,
        /// The version known here.
        known: i64,
    },
    /// A migration failed; the database is as it was.
    #[error("can't migrate {database} to schema version {version}")]
    Migration {
        /// The database.
        database: String,
        /// The version that could not be reached.
        version: i64,
        /// Why it failed.
        #[source]
        source: sqlx::Error,
    },
    /// The database refused something else.
    #[error("can't open the database {database}")]
    Open {
        /// The database.
        database: String,
        /// Why.
        #[source]
        source: sqlx::Error,
    },
}

/// SQLite's primary result code of a file that is damaged: `SQLITE_CORRUPT`.
const SQLITE_CORRUPT: u32 = 11;
/// SQLite's primary result code of a file that is no database: `SQLITE_NOTADB`.
const SQLITE_NOTADB: u32 = 26;
/// PostgreSQL's codes that mean the same: `data_corrupted`, `index_corrupted`.
const POSTGRES_CORRUPT: [&str; 2] = ["XX001", "XX002"];

/// Whether the database is no longer whole.
pub(super) fn is_corruption(error: &sqlx::Error) -> bool {
    let Some(error) = error.as_database_error() else { return false };
    if error.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().is_some() {
        return error.code().is_some_and(|code| POSTGRES_CORRUPT.contains(&&*code));
    }
    sqlite_code(error) == Some(SQLITE_CORRUPT)
}

/// Whether the file is something else than SQLite's.
pub(super) fn is_not_a_database(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(sqlite_code) == Some(SQLITE_NOTADB)
}

/// The primary result code, which is the low byte of an extended one.
fn sqlite_code(error: &dyn sqlx::error::DatabaseError) -> Option<u32> {
    Some(error.code()?.parse::<u32>().ok()? & 0xff)
}

/// Why `database` does not open.
pub(super) fn open_error(database: &impl fmt::Display, source: sqlx::Error) -> StoreError {
    let database = database.to_string();
    if is_corruption(&source) {
        StoreError::Corrupted { database, detail: source.to_string() }
    } else {
        StoreError::Open { database, source }
    }
}

/// What the port's callers are told of an SQL error.
pub(super) fn journal_error(error: &sqlx::Error) -> JournalError {
    let reason = error.to_string();
    let unreadable = matches!(error, sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_));
    if unreadable || is_corruption(error) || is_not_a_database(error) {
        JournalError::Corrupt(reason)
    } else {
        JournalError::Unavailable(reason)
    }
}
