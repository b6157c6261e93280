//! Errors of opening a database ([`StoreError`], for the operator), and the conversion of SQL
//! errors to the port's [`JournalError`].

use greenroom_actors::ports::JournalError;
use std::{fmt, io, path::PathBuf};

/// The reason why a database can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file or its directory can't be used.
    #[error("can't {action} {path}")]
    File {
        /// The action that failed.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Another greenroom process, or this one, has the database open.
    #[error("the database {database} is in use by another greenroom process (it holds {lock})")]
    InUse {
        /// The database.
        database: String,
        /// The lock.
        lock: String,
    },
    /// The file is not an SQLite database.
    #[error("{path} is not an SQLite database")]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// The database is damaged.
    #[error(
        "the database {database} is damaged ({detail}); restore a backup, or save what can be read of it: see \"A damaged file\" in docs/storage.md"
    )]
    Corrupted {
        /// The database.
        database: String,
        /// The damage found.
        detail: String,
    },
    /// The database belongs to another program.
    #[error("{database} is a database of another program, not of greenroom")]
    ForeignDatabase {
        /// The database.
        database: String,
    },
    /// A newer version of greenroom has migrated the database (D5).
    #[error(
        "the database {database} has schema version {found}; this greenroom supports versions up to {known}; use a newer greenroom"
    )]
    SchemaTooNew {
        /// The database.
        database: String,
        /// The schema version of the database.
        found: i64,
        /// The newest version supported.
        known: i64,
    },
    /// The schema is older than this version of greenroom and must be migrated before it is read.
    #[error(
        "the database {database} has schema version {found}; this greenroom reads version {known}; run `greenroom migrate`"
    )]
    SchemaTooOld {
        /// The database.
        database: String,
        /// The schema version of the database.
        found: i64,
        /// The version that this greenroom reads.
        known: i64,
    },
    /// A migration failed; the database is unchanged.
    #[error("can't migrate {database} to schema version {version}")]
    Migration {
        /// The database.
        database: String,
        /// The target version of the failed migration.
        version: i64,
        /// The cause.
        #[source]
        source: sqlx::Error,
    },
    /// Opening the database failed for another reason.
    #[error("can't open the database {database}")]
    Open {
        /// The database.
        database: String,
        /// The cause.
        #[source]
        source: sqlx::Error,
    },
}

/// SQLite's primary result code for a damaged file: `SQLITE_CORRUPT`.
const SQLITE_CORRUPT: u32 = 11;
/// SQLite's primary result code for a file that is not a database: `SQLITE_NOTADB`.
const SQLITE_NOTADB: u32 = 26;
/// PostgreSQL's codes for damaged data: `data_corrupted`, `index_corrupted`.
const POSTGRES_CORRUPT: [&str; 2] = ["XX001", "XX002"];

/// True if the error shows that the database is damaged.
pub(super) fn is_corruption(error: &sqlx::Error) -> bool {
    let Some(error) = error.as_database_error() else { return false };
    if error.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().is_some() {
        return error.code().is_some_and(|code| POSTGRES_CORRUPT.contains(&&*code));
    }
    sqlite_code(error) == Some(SQLITE_CORRUPT)
}

/// True if the error shows that the file is not an SQLite database.
pub(super) fn is_not_a_database(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(sqlite_code) == Some(SQLITE_NOTADB)
}

/// Returns the primary result code, which is the low byte of an extended one.
fn sqlite_code(error: &dyn sqlx::error::DatabaseError) -> Option<u32> {
    Some(error.code()?.parse::<u32>().ok()? & 0xff)
}

/// Returns the error for a failure to open `database`.
pub(super) fn open_error(database: &impl fmt::Display, source: sqlx::Error) -> StoreError {
    let database = database.to_string();
    if is_corruption(&source) {
        StoreError::Corrupted { database, detail: source.to_string() }
    } else {
        StoreError::Open { database, source }
    }
}

/// Converts an SQL error to the port's error.
pub(super) fn journal_error(error: &sqlx::Error) -> JournalError {
    let reason = error.to_string();
    let unreadable = matches!(error, sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_));
    if unreadable || is_corruption(error) || is_not_a_database(error) {
        JournalError::Corrupt(reason)
    } else {
        JournalError::Unavailable(reason)
    }
}
