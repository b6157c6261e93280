//! The journal in an SQLite file: the file, the schema, and the two kinds of connections to it.
//!
//! ```text
//! append ──► writer (one thread) ──► heads: who may ──► batch: one write ──► file
//! read   ──► readers (a small pool) ─────────────────────────────────────────┘
//! ```

mod batch;
mod damage;
mod file;
mod schema;
mod sink;
#[cfg(test)]
mod tests;

use super::{
    Migrated, StoreError, StoreOptions, error,
    query::{Readers, Snapshot},
    writer::{self, Sink as _, Writer},
};
pub(super) use file::DatabaseFile;
use sink::SqliteSink;
use sqlx::{
    ConnectOptions, Connection, SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use std::path::Path;

/// Pages of the write-ahead log after which a commit moves them into the database: 16 MiB, so that
/// the moving is rare and the log small.
const CHECKPOINT_PAGES: u32 = 4096;
/// Bytes the write-ahead log is cut to after it has grown, for example behind a long reader.
const LOG_BYTES_KEPT: u32 = 64 * 1024 * 1024;
/// SQLite's page size, which is set when the database is created and never changed.
const PAGE_BYTES: u32 = 4096;

/// Opens the database, creates it and its folder where there is none, and migrates it to the
/// newest schema. It is this process's alone as long as the file is kept.
pub(super) async fn open(
    path: &Path,
    options: &StoreOptions,
) -> Result<(Writer, Readers, Migrated, DatabaseFile), StoreError> {
    let (file, sink, migrated) = prepare(path, options).await?;
    let failed = |source| open_error(&file.path, source);
    let readers = readers(&file.path, options).await.map_err(failed)?;
    let writer = writer::runtime()
        .and_then(|runtime| Writer::start(runtime, sink))
        .map_err(|source| failed(sqlx::Error::Io(source)))?;
    Ok((writer, Readers::Sqlite(readers), migrated, file))
}

/// Creates the database where there is none, and migrates it to the newest schema.
pub(super) async fn migrate(path: &Path) -> Result<Migrated, StoreError> {
    let options = StoreOptions::default();
    let (file, mut sink, migrated) = prepare(path, &options).await?;
    sink.settle().await.map_err(|source| open_error(&file.path, source))?;
    Ok(migrated)
}

/// Opens a database to look at it alone, also while a server has it open: nothing is created,
/// migrated or locked.
pub(super) async fn look(path: &Path) -> Result<Readers, StoreError> {
    let path = file::existing(path)?;
    let failed = |source| open_error(&path, source);
    let options = StoreOptions { readers: 1, ..StoreOptions::default() };
    let readers = readers(&path, &options).await.map_err(failed)?;
    let mut connection = readers.acquire().await.map_err(failed)?;
    let version = schema::version(&mut connection, &path).await?;
    drop(connection);
    schema::check_is_newest(version, &path)?;
    Ok(Readers::Sqlite(readers))
}

/// The same, as one moment.
pub(super) async fn snapshot(path: &Path) -> Result<Snapshot, StoreError> {
    let path = file::existing(path)?;
    let options = base_options(&path, &StoreOptions::default()).read_only(true);
    let connection = options.connect().await;
    let mut connection = connection.map_err(|source| open_error(&path, source))?;
    let version = schema::version(&mut connection, &path).await?;
    schema::check_is_newest(version, &path)?;
    Ok(Snapshot::Sqlite(connection))
}

fn open_error(path: &Path, source: sqlx::Error) -> StoreError {
    error::open_error(&path.display(), source)
}

async fn prepare(
    path: &Path,
    options: &StoreOptions,
) -> Result<(DatabaseFile, SqliteSink, Migrated), StoreError> {
    let file = DatabaseFile::claim(path)?;
    let failed = |source| open_error(&file.path, source);
    // A look first, which changes nothing: what is not ours stays as it is.
    let mut look = base_options(&file.path, options).connect().await.map_err(failed)?;
    let version = schema::version(&mut look, &file.path).await?;
    look.close().await.map_err(failed)?;
    file.restrict()?;
    let migrator = migrator_options(&file.path, options);
    let mut connection = migrator.connect().await.map_err(failed)?;
    let migrated = schema::migrate(&mut connection, &file.path, version).await?;
    let bytes = file.path.metadata().map_err(|source| failed(source.into()))?.len();
    if let Some(what) = damage::find(&mut connection, bytes).await.map_err(failed)? {
        return Err(StoreError::Damaged { database: file.path.display().to_string(), what });
    }
    // Before this one closes: the last to close folds the write-ahead log into the database.
    let sink = SqliteSink::open(&file.path, options).map_err(failed)?;
    connection.close().await.map_err(failed)?;
    Ok((file, sink, migrated))
}

async fn readers(path: &Path, options: &StoreOptions) -> sqlx::Result<SqlitePool> {
    SqlitePoolOptions::new()
        .max_connections(options.readers.max(1))
        // A file does not hang up as a network does: asking first would double the cost.
        .test_before_acquire(false)
        .connect_with(base_options(path, options).read_only(true))
        .await
}

fn base_options(path: &Path, options: &StoreOptions) -> SqliteConnectOptions {
    // Statements are not logged: what they carry belongs to users.
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .busy_timeout(options.busy_timeout)
        .disable_statement_logging()
}

/// The options of the connection that makes the schema.
fn migrator_options(path: &Path, options: &StoreOptions) -> SqliteConnectOptions {
    base_options(path, options)
        .page_size(PAGE_BYTES)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
}
