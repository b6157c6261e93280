//! The journal in a PostgreSQL database: connections, schema, the statements that write, and the
//! lock that makes this process the only writer.
//!
//! The write connection holds an advisory lock of the database until it ends. Only the holder of
//! the lock writes, and a lost connection keeps the lock until the server has finished its
//! statement. The cached state of the database (heads, the end of the audit log, budgets) is
//! therefore as reliable as with a file. A second server can't start, and a server that takes over
//! after this one was cut off can't be disturbed by it.

mod backend;
mod batch;
mod connect;
mod read_pool;
mod schema;
#[cfg(test)]
mod tests;

pub(super) use read_pool::PostgresReadPool;

use super::{
    MigrationOutcome, PostgresAddress, StoreError, StoreOptions,
    error::open_error,
    sql::{self, SnapshotConnection},
    writer::{self, Writer, WriterBackend as _},
};
use backend::PostgresBackend;
use connect::{Access, Connector};
use std::io;
use tokio::runtime::Runtime;

/// Opens the database and migrates it to the newest schema. The database itself must exist.
pub(super) async fn open(
    address: &PostgresAddress,
    options: &StoreOptions,
) -> Result<(Writer, sql::ReadPool, MigrationOutcome), StoreError> {
    let to_store_error = |source| open_error(address, source);
    let (runtime, backend, migration) = prepare(address, options).await?;
    let read_pool =
        PostgresReadPool::start(address, options.read_connections).map_err(to_store_error)?;
    let writer = Writer::start(runtime, backend).map_err(|source| to_store_error(source.into()))?;
    Ok((writer, sql::ReadPool::Postgres(read_pool), migration))
}

/// Migrates the database to the newest schema.
pub(super) async fn migrate(address: &PostgresAddress) -> Result<MigrationOutcome, StoreError> {
    let (runtime, mut backend, migration) = prepare(address, &StoreOptions::default()).await?;
    let checkpoint = move || runtime.block_on(backend.checkpoint());
    let result = tokio::task::spawn_blocking(checkpoint).await;
    let result = result.map_err(io::Error::other).map_err(sqlx::Error::Io);
    result.and_then(|result| result).map_err(|source| open_error(address, source))?;
    Ok(migration)
}

/// Opens a database only for reading, even while a server has it open.
pub(super) async fn open_read_only(address: &PostgresAddress) -> Result<sql::ReadPool, StoreError> {
    let mut connection = Connector::new(address, Access::Read).connect().await?;
    schema::validate_version(&mut connection, address).await?;
    let read_pool =
        PostgresReadPool::start(address, 1).map_err(|source| open_error(address, source))?;
    Ok(sql::ReadPool::Postgres(read_pool))
}

/// Opens a connection for a snapshot of the database, even while a server has it open.
pub(super) async fn open_snapshot(
    address: &PostgresAddress,
) -> Result<SnapshotConnection, StoreError> {
    let mut connection = Connector::new(address, Access::Read).connect().await?;
    schema::validate_version(&mut connection, address).await?;
    Ok(SnapshotConnection::Postgres(connection))
}

/// Replaces NUL characters, which PostgreSQL can't store in a text. Events are JSON, which escapes
/// NUL, and names can't contain it; this is for search texts and key names.
pub(super) fn replace_nul(mut text: String) -> String {
    if text.contains('\0') {
        text = text.replace('\0', "\u{FFFD}");
    }
    text
}

/// Creates the write connection on its own runtime. The writer's thread runs that runtime later: a
/// connection can't be moved between runtimes.
async fn prepare(
    address: &PostgresAddress,
    options: &StoreOptions,
) -> Result<(Runtime, PostgresBackend, MigrationOutcome), StoreError> {
    let (address, options) = (address.clone(), options.clone());
    let to_store_error = {
        let address = address.clone();
        move |source: io::Error| open_error(&address, source.into())
    };
    let preparation = tokio::task::spawn_blocking(move || {
        let runtime = writer::runtime().map_err(|source| open_error(&address, source.into()))?;
        let (backend, migration) = runtime.block_on(PostgresBackend::open(&address, &options))?;
        Ok((runtime, backend, migration))
    });
    preparation.await.map_err(|error| to_store_error(io::Error::other(error)))?
}
