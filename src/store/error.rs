//! Why a database does not open ([`StoreError`], for the operator), and how SQL errors become the
//! port's [`JournalError`].

use greenroom_actors::ports::JournalError;
use std::{io, path::PathBuf};

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
    #[error("the database {path} is in use by another greenroom process (it holds {lock})")]
    InUse {
        /// The database.
        path: PathBuf,
        /// The lock file.
        lock: PathBuf,
    },
    /// The file is something else.
    #[error("{path} is not an SQLite database")]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// The database belongs to another program.
    #[error("{path} is an SQLite database, but not one of greenroom's")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A newer version of greenroom has migrated it (D5).
    #[error(
        "the database {path} has schema version {found}, but this greenroom knows only versions up to {known}; use a newer greenroom"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest version known here.
        known: i64,
    },
    /// It is of an older version of greenroom, and was to be read as it is.
    #[error(
        "the database {path} has schema version {found}, and {known} is read; `greenroom migrate` brings it there"
    )]
    Older {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The version known here.
        known: i64,
    },
    /// A migration failed; the database is as it was.
    #[error("can't migrate {path} to schema version {version}")]
    Migration {
        /// The file.
        path: PathBuf,
        /// The version that could not be reached.
        version: i64,
        /// Why it failed.
        #[source]
        source: sqlx::Error,
    },
    /// SQLite refused something else.
    #[error("can't open the database {path}")]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: sqlx::Error,
    },
}

/// SQLite's primary result codes that mean the file is damaged: `SQLITE_CORRUPT`,
/// `SQLITE_NOTADB`.
const DAMAGED: [u32; 2] = [11, 26];

/// SQLite's primary result code of an error, where SQLite made it.
pub(super) fn sqlite_code(error: &sqlx::Error) -> Option<u32> {
    let code = error.as_database_error()?.code()?;
    // The low byte of an extended code is the primary one.
    code.parse::<u32>().ok().map(|extended| extended & 0xff)
}

/// Whether the file is no database, or no longer one.
pub(super) fn is_damage(error: &sqlx::Error) -> bool {
    sqlite_code(error).is_some_and(|code| DAMAGED.contains(&code))
}

/// What the port's callers are told of an SQL error.
pub(super) fn journal_error(error: &sqlx::Error) -> JournalError {
    let reason = error.to_string();
    let unreadable = matches!(error, sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_));
    if unreadable || is_damage(error) {
        JournalError::Corrupt(reason)
    } else {
        JournalError::Unavailable(reason)
    }
}
