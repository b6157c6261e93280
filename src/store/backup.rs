//! Copies a database to a new file, even while a server has it open (D10). Only reads the database,
//! and takes no lock that a server needs.
//!
//! The copy is written to a temporary file beside the target, checked, and renamed when it is
//! complete, so that a file with the target's name is always a whole backup. A kill leaves at most
//! the temporary file.

use super::{DatabaseLocation, StoreError, sqlite};
use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};
use tempfile::NamedTempFile;

/// The suffixes of SQLite's files beside a database. Left over from another database, they would be
/// applied to the backup when it is opened.
const COMPANION_SUFFIXES: [&str; 3] = ["-wal", "-shm", "-journal"];

/// The content of a backup, counted in the copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupSummary {
    /// The schema version.
    pub schema_version: i64,
    /// Number of sessions.
    pub sessions: u64,
    /// Number of events in the logs of all sessions.
    pub events: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// The reason why no backup was made.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The target exists and was not overwritten.
    #[error("{path} exists; a backup does not overwrite a file")]
    Exists {
        /// The existing file.
        path: PathBuf,
    },
    /// A file beside the target belongs to another database.
    #[error(
        "{path} is left over from another database and would be applied to the backup; remove it or choose another name"
    )]
    ForeignCompanion {
        /// The file.
        path: PathBuf,
    },
    /// The database is not a file.
    #[error(
        "{database} is a PostgreSQL database; back it up with PostgreSQL's tools, for example `pg_dump --format=custom`: see \"Backup\" in docs/storage.md"
    )]
    NotAFile {
        /// The database.
        database: String,
    },
    /// The backup can't be written.
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
    /// Copying or checking the copy failed.
    #[error("can't {action} {path}")]
    Sql {
        /// The action that failed.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: sqlx::Error,
    },
    /// The database can't be read, or its copy is damaged.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Copies `database` to the new file `target` with mode 0600, checks the copy, and returns its
/// content. The copy has every commit that was acknowledged before the call.
pub async fn backup(
    database: impl Into<DatabaseLocation>,
    target: &Path,
) -> Result<BackupSummary, BackupError> {
    let database = database.into();
    let DatabaseLocation::Sqlite(source) = &database else {
        return Err(BackupError::NotAFile { database: database.to_string() });
    };
    let file_error = |action, path: &Path| {
        let path = path.to_owned();
        move |source| BackupError::File { action, path, source }
    };
    let target = std::path::absolute(target).map_err(file_error("resolve", target))?;
    reject_existing(&target)?;
    let folder = target.parent().unwrap_or(Path::new("/")).to_owned();
    let partial = create_partial(&target, &folder).map_err(file_error("create", &target))?;

    let summary = sqlite::copy_database(source, partial.path()).await?;
    partial.as_file().sync_all().map_err(file_error("write", &target))?;
    partial.persist_noclobber(&target).map_err(|failure| {
        if failure.error.kind() == io::ErrorKind::AlreadyExists {
            BackupError::Exists { path: target.clone() }
        } else {
            file_error("create", &target)(failure.error)
        }
    })?;
    // Makes the name durable too.
    let synced = File::open(&folder).and_then(|folder| folder.sync_all());
    synced.map_err(file_error("write", &folder))?;
    Ok(summary)
}

/// Rejects a target that exists, or whose companion files do.
fn reject_existing(target: &Path) -> Result<(), BackupError> {
    // Does not follow symbolic links: a link without a target exists too.
    let exists = |path: &Path| fs::symlink_metadata(path).is_ok();
    if exists(target) {
        return Err(BackupError::Exists { path: target.to_owned() });
    }
    let companions = COMPANION_SUFFIXES.map(|suffix| {
        let mut path = OsString::from(target);
        path.push(suffix);
        PathBuf::from(path)
    });
    match companions.into_iter().find(|path| exists(path)) {
        Some(path) => Err(BackupError::ForeignCompanion { path }),
        None => Ok(()),
    }
}

/// Creates the temporary file, which only its owner has access to. It is removed when dropped.
fn create_partial(target: &Path, folder: &Path) -> io::Result<NamedTempFile> {
    let mut prefix = OsString::from(".");
    prefix.push(target.file_name().ok_or(io::ErrorKind::IsADirectory)?);
    prefix.push(".");
    tempfile::Builder::new().prefix(&prefix).suffix(".partial").tempfile_in(folder)
}
