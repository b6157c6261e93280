//! The journal in an SQLite file: the file, the schema, and the two kinds of connections to it.
//!
//! ```text
//! append ──► writer (one thread) ──► heads: who may ──► batch: one write ──► file
//! read   ──► readers (a small pool) ─────────────────────────────────────────┘
//! ```

mod backend;
mod batch;
mod corruption;
mod file;
mod schema;
#[cfg(test)]
mod tests;

use super::{
    MigrationOutcome, StoreError, StoreOptions, error,
    sql::{ReadPool, SnapshotConnection},
    writer::{self, Writer, WriterBackend as _},
};
use backend::SqliteBackend;
pub(super) use file::DatabaseFile;
use sqlx::{
    ConnectOptions, Connection, SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use std::path::Path;

/// Pages of the write-ahead log after which a commit moves them into the database: 16 MiB, so that
/// the moving is rare and the log small.
const CHECKPOINT_PAGES: u32 = 4096;
/// Bytes the write-ahead log is cut to after it has grown, for example behind a long reader.
const WAL_SIZE_LIMIT_BYTES: u32 = 64 * 1024 * 1024;
/// SQLite's page size, which is set when the database is created and never changed.
const PAGE_BYTES: u32 = 4096;

/// Opens the database, creates it and its folder where there is none, and migrates it to the
/// newest schema. It is this process's alone as long as the file is kept.
pub(super) async fn open(
    path: &Path,
    options: &StoreOptions,
) -> Result<(Writer, ReadPool, MigrationOutcome, DatabaseFile), StoreError> {
    let (file, sink, migrated) = prepare(path, options).await?;
    let failed = |source| open_error(&file.path, source);
    let readers = open_read_pool(&file.path, options).await.map_err(failed)?;
    let writer = writer::runtime()
        .and_then(|runtime| Writer::start(runtime, sink))
        .map_err(|source| failed(sqlx::Error::Io(source)))?;
    Ok((writer, ReadPool::Sqlite(readers), migrated, file))
}

/// Creates the database where there is none, and migrates it to the newest schema.
pub(super) async fn migrate(path: &Path) -> Result<MigrationOutcome, StoreError> {
    let options = StoreOptions::default();
    let (file, mut sink, migrated) = prepare(path, &options).await?;
    sink.checkpoint().await.map_err(|source| open_error(&file.path, source))?;
    Ok(migrated)
}

/// Opens a database to look at it alone, also while a server has it open: nothing is created,
/// migrated or locked.
pub(super) async fn open_read_only(path: &Path) -> Result<ReadPool, StoreError> {
    let path = file::resolve_existing(path)?;
    let failed = |source| open_error(&path, source);
    let options = StoreOptions { read_connections: 1, ..StoreOptions::default() };
    let readers = open_read_pool(&path, &options).await.map_err(failed)?;
    let mut connection = readers.acquire().await.map_err(failed)?;
    let version = schema::version(&mut connection, &path).await?;
    drop(connection);
    schema::validate_version(version, &path)?;
    Ok(ReadPool::Sqlite(readers))
}

/// The same, as one moment.
pub(super) async fn open_snapshot(path: &Path) -> Result<SnapshotConnection, StoreError> {
    let path = file::resolve_existing(path)?;
    let options = base_options(&path, &StoreOptions::default()).read_only(true);
    let connection = options.connect().await;
    let mut connection = connection.map_err(|source| open_error(&path, source))?;
    let version = schema::version(&mut connection, &path).await?;
    schema::validate_version(version, &path)?;
    Ok(SnapshotConnection::Sqlite(connection))
}

fn open_error(path: &Path, source: sqlx::Error) -> StoreError {
    error::open_error(&path.display(), source)
}

async fn prepare(
    path: &Path,
    options: &StoreOptions,
) -> Result<(DatabaseFile, SqliteBackend, MigrationOutcome), StoreError> {
    let file = DatabaseFile::open_locked(path)?;
    let failed = |source| open_error(&file.path, source);
    // A look first, which changes nothing: what is not ours stays as it is.
    let mut look = base_options(&file.path, options).connect().await.map_err(failed)?;
    let version = schema::version(&mut look, &file.path).await?;
    look.close().await.map_err(failed)?;
    file.restrict_permissions()?;
    let migrator = migrator_options(&file.path, options);
    let mut connection = migrator.connect().await.map_err(failed)?;
    let migrated = schema::migrate(&mut connection, &file.path, version).await?;
    let bytes = file.path.metadata().map_err(|source| failed(source.into()))?.len();
    if let Some(what) = corruption::find_corruption(&mut connection, bytes).await.map_err(failed)? {
        return Err(StoreError::Corrupted {
            database: file.path.display().to_string(),
            detail: what,
        });
    }
    // Before this one closes: the last to close folds the write-ahead log into the database.
    let sink = SqliteBackend::open(&file.path, options).map_err(failed)?;
    connection.close().await.map_err(failed)?;
    Ok((file, sink, migrated))
}

async fn open_read_pool(path: &Path, options: &StoreOptions) -> sqlx::Result<SqlitePool> {
    SqlitePoolOptions::new()
        .max_connections(options.read_connections.max(1))
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
