//! The journal in an SQLite file: the file, the schema, the write connection and the read pool.
//!
//! ```text
//! append ──► writer (one thread) ──► heads: check ──► batch: one transaction ──► file
//! read   ──► read pool ──────────────────────────────────────────────────────────┘
//! ```

mod backend;
mod backup;
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
pub(super) use backup::copy_database;
pub(super) use file::DatabaseFile;
use sqlx::{
    ConnectOptions, Connection, SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use std::path::Path;

/// Number of pages of the write-ahead log after which a commit checkpoints it: 16 MiB, so that
/// checkpoints are rare and the log stays small.
const CHECKPOINT_PAGES: u32 = 4096;
/// Bytes the write-ahead log is truncated to after it has grown, for example due to a long reader.
const WAL_SIZE_LIMIT_BYTES: u32 = 64 * 1024 * 1024;
/// SQLite's page size. Set when the database is created and never changed.
const PAGE_BYTES: u32 = 4096;

/// Opens the database, creates it and its directory if they are missing, and migrates it to the
/// newest schema. The returned [`DatabaseFile`] holds the lock of the database.
pub(super) async fn open(
    path: &Path,
    options: &StoreOptions,
) -> Result<(Writer, ReadPool, MigrationOutcome, DatabaseFile), StoreError> {
    let (file, backend, migration) = prepare(path, options).await?;
    let to_store_error = |source| open_error(&file.path, source);
    let read_pool = open_read_pool(&file.path, options).await.map_err(to_store_error)?;
    let writer = writer::runtime()
        .and_then(|runtime| Writer::start(runtime, backend))
        .map_err(|source| to_store_error(sqlx::Error::Io(source)))?;
    Ok((writer, ReadPool::Sqlite(read_pool), migration, file))
}

/// Creates the database if it is missing, and migrates it to the newest schema.
pub(super) async fn migrate(path: &Path) -> Result<MigrationOutcome, StoreError> {
    let options = StoreOptions::default();
    let (file, mut backend, migration) = prepare(path, &options).await?;
    backend.checkpoint().await.map_err(|source| open_error(&file.path, source))?;
    Ok(migration)
}

/// Opens a database only for reading, even while a server has it open. Creates, migrates and locks
/// nothing.
pub(super) async fn open_read_only(path: &Path) -> Result<ReadPool, StoreError> {
    let path = file::resolve_existing(path)?;
    let to_store_error = |source| open_error(&path, source);
    let options = StoreOptions { read_connections: 1, ..StoreOptions::default() };
    let read_pool = open_read_pool(&path, &options).await.map_err(to_store_error)?;
    let mut connection = read_pool.acquire().await.map_err(to_store_error)?;
    let version = schema::version(&mut connection, &path).await?;
    drop(connection);
    schema::validate_version(version, &path)?;
    Ok(ReadPool::Sqlite(read_pool))
}

/// Opens a connection for a snapshot of the database, with the same guarantees.
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
    let to_store_error = |source| open_error(&file.path, source);
    // Checks the version without a change, so that a file of another program stays unmodified.
    let mut inspector =
        base_options(&file.path, options).connect().await.map_err(to_store_error)?;
    let version = schema::version(&mut inspector, &file.path).await?;
    inspector.close().await.map_err(to_store_error)?;
    file.restrict_permissions()?;
    let migrator = migrator_options(&file.path, options);
    let mut connection = migrator.connect().await.map_err(to_store_error)?;
    let migration = schema::migrate(&mut connection, &file.path, version).await?;
    let bytes = file.path.metadata().map_err(|source| to_store_error(source.into()))?.len();
    let corruption =
        corruption::find_corruption(&mut connection, bytes).await.map_err(to_store_error)?;
    if let Some(detail) = corruption {
        return Err(StoreError::Corrupted { database: file.path.display().to_string(), detail });
    }
    // Opened before the other connection closes: the last one to close checkpoints the log.
    let backend = SqliteBackend::open(&file.path, options).map_err(to_store_error)?;
    connection.close().await.map_err(to_store_error)?;
    Ok((file, backend, migration))
}

async fn open_read_pool(path: &Path, options: &StoreOptions) -> sqlx::Result<SqlitePool> {
    SqlitePoolOptions::new()
        .max_connections(options.read_connections.max(1))
        // Unlike a network connection, a file connection can't break; a test would double the cost.
        .test_before_acquire(false)
        .connect_with(base_options(path, options).read_only(true))
        .await
}

fn base_options(path: &Path, options: &StoreOptions) -> SqliteConnectOptions {
    // Statements are not logged because they contain users' data.
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .busy_timeout(options.busy_timeout)
        .disable_statement_logging()
}

/// Returns the options of the connection that migrates the schema.
fn migrator_options(path: &Path, options: &StoreOptions) -> SqliteConnectOptions {
    base_options(path, options)
        .page_size(PAGE_BYTES)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
}
