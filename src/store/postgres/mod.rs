//! The journal in a PostgreSQL database: connections, schema, the statements that write, and the
//! lock that makes this process the only one that does.
//!
//! The connection that writes holds an advisory lock of the database for as long as it lives: what
//! is written is written by whoever holds the lock, and a connection that was lost holds it until
//! the server is done with what it was doing. So what is remembered of the database (heads, the
//! audit log's end, budgets) is as sound as it is with a file of our own, and a second server can't
//! start, or, if it takes over while the first is cut off, can't be disturbed by it.

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

/// Opens the database, and migrates it to the newest schema. The database itself must exist.
pub(super) async fn open(
    address: &PostgresAddress,
    options: &StoreOptions,
) -> Result<(Writer, sql::ReadPool, MigrationOutcome), StoreError> {
    let failed = |source| open_error(address, source);
    let (runtime, sink, migrated) = prepare(address, options).await?;
    let readers = PostgresReadPool::start(address, options.read_connections).map_err(failed)?;
    let writer = Writer::start(runtime, sink).map_err(|source| failed(source.into()))?;
    Ok((writer, sql::ReadPool::Postgres(readers), migrated))
}

/// Migrates the database to the newest schema.
pub(super) async fn migrate(address: &PostgresAddress) -> Result<MigrationOutcome, StoreError> {
    let (runtime, mut sink, migrated) = prepare(address, &StoreOptions::default()).await?;
    let settle = move || runtime.block_on(sink.checkpoint());
    let settled = tokio::task::spawn_blocking(settle).await;
    let settled = settled.map_err(io::Error::other).map_err(sqlx::Error::Io);
    settled.and_then(|settled| settled).map_err(|source| open_error(address, source))?;
    Ok(migrated)
}

/// Opens a database to look at it alone, also while a server has it open.
pub(super) async fn open_read_only(address: &PostgresAddress) -> Result<sql::ReadPool, StoreError> {
    let mut connection = Connector::new(address, Access::Read).connect().await?;
    schema::validate_version(&mut connection, address).await?;
    let readers =
        PostgresReadPool::start(address, 1).map_err(|source| open_error(address, source))?;
    Ok(sql::ReadPool::Postgres(readers))
}

/// The same, as one moment.
pub(super) async fn open_snapshot(
    address: &PostgresAddress,
) -> Result<SnapshotConnection, StoreError> {
    let mut connection = Connector::new(address, Access::Read).connect().await?;
    schema::validate_version(&mut connection, address).await?;
    Ok(SnapshotConnection::Postgres(connection))
}

/// A text as PostgreSQL can store it, which is any but one with a NUL character. Events are JSON,
/// which escapes it, and names can't have one; this is for what people search for, or call a key.
pub(super) fn replace_nul(mut text: String) -> String {
    if text.contains('\0') {
        text = text.replace('\0', "\u{FFFD}");
    }
    text
}

/// The connection that writes, on the runtime that it belongs to. The writer's thread runs it
/// later: a connection can't be moved from one runtime to another.
async fn prepare(
    address: &PostgresAddress,
    options: &StoreOptions,
) -> Result<(Runtime, PostgresBackend, MigrationOutcome), StoreError> {
    let (address, options) = (address.clone(), options.clone());
    let failed = {
        let address = address.clone();
        move |source: io::Error| open_error(&address, source.into())
    };
    let prepared = tokio::task::spawn_blocking(move || {
        let runtime = writer::runtime().map_err(|source| open_error(&address, source.into()))?;
        let (sink, migrated) = runtime.block_on(PostgresBackend::open(&address, &options))?;
        Ok((runtime, sink, migrated))
    });
    prepared.await.map_err(|error| failed(io::Error::other(error)))?
}
