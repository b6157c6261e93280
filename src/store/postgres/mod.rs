//! The journal in a PostgreSQL database: connections, schema, the statements that write, and the
//! lock that makes this process the only one that does.
//!
//! The connection that writes holds an advisory lock of the database for as long as it lives: what
//! is written is written by whoever holds the lock, and a connection that was lost holds it until
//! the server is done with what it was doing. So what is remembered of the database (heads, the
//! audit log's end, budgets) is as sound as it is with a file of our own, and a second server can't
//! start, or, if it takes over while the first is cut off, can't be disturbed by it.

mod batch;
mod connect;
mod readers;
mod schema;
mod sink;
#[cfg(test)]
mod tests;

pub(super) use readers::Readers;

use super::{
    Migrated, PostgresAddress, StoreError, StoreOptions,
    error::open_error,
    query::{self, Snapshot},
    writer::{self, Sink as _, Writer},
};
use connect::{Access, Connector};
use sink::PostgresSink;
use std::io;
use tokio::runtime::Runtime;

/// Opens the database, and migrates it to the newest schema. The database itself must exist.
pub(super) async fn open(
    address: &PostgresAddress,
    options: &StoreOptions,
) -> Result<(Writer, query::Readers, Migrated), StoreError> {
    let failed = |source| open_error(address, source);
    let (runtime, sink, migrated) = prepare(address, options).await?;
    let readers = Readers::start(address, options.readers).map_err(failed)?;
    let writer = Writer::start(runtime, sink).map_err(|source| failed(source.into()))?;
    Ok((writer, query::Readers::Postgres(readers), migrated))
}

/// Migrates the database to the newest schema.
pub(super) async fn migrate(address: &PostgresAddress) -> Result<Migrated, StoreError> {
    let (runtime, mut sink, migrated) = prepare(address, &StoreOptions::default()).await?;
    let settle = move || runtime.block_on(sink.settle());
    let settled = tokio::task::spawn_blocking(settle).await;
    let settled = settled.map_err(io::Error::other).map_err(sqlx::Error::Io);
    settled.and_then(|settled| settled).map_err(|source| open_error(address, source))?;
    Ok(migrated)
}

/// Opens a database to look at it alone, also while a server has it open.
pub(super) async fn look(address: &PostgresAddress) -> Result<query::Readers, StoreError> {
    let mut connection = Connector::new(address, Access::Read).connect().await?;
    schema::check_is_newest(&mut connection, address).await?;
    let readers = Readers::start(address, 1).map_err(|source| open_error(address, source))?;
    Ok(query::Readers::Postgres(readers))
}

/// The same, as one moment.
pub(super) async fn snapshot(address: &PostgresAddress) -> Result<Snapshot, StoreError> {
    let mut connection = Connector::new(address, Access::Read).connect().await?;
    schema::check_is_newest(&mut connection, address).await?;
    Ok(Snapshot::Postgres(connection))
}

/// A text as PostgreSQL can store it, which is any but one with a NUL character. Events are JSON,
/// which escapes it, and names can't have one; this is for what people search for, or call a key.
pub(super) fn text(mut text: String) -> String {
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
) -> Result<(Runtime, PostgresSink, Migrated), StoreError> {
    let (address, options) = (address.clone(), options.clone());
    let failed = {
        let address = address.clone();
        move |source: io::Error| open_error(&address, source.into())
    };
    let prepared = tokio::task::spawn_blocking(move || {
        let runtime = writer::runtime().map_err(|source| open_error(&address, source.into()))?;
        let (sink, migrated) = runtime.block_on(PostgresSink::open(&address, &options))?;
        Ok((runtime, sink, migrated))
    });
    prepared.await.map_err(|error| failed(io::Error::other(error)))?
}
