//! The schema's versions on PostgreSQL: which one a database has, and how it comes to the newest
//! (D5). Must not know what the tables are for.
//!
//! Migrations are embedded, append-only and paired with SQLite's. The version stands in a table of
//! its own, set in the same transaction that makes it true.

use super::connect::fetch_scalar;
use crate::store::{MigrationOutcome, PostgresAddress, StoreError, error::open_error};
use sqlx::{AssertSqlSafe, PgConnection};

/// Every migration there ever was, in order: the first leads to version 1.
const MIGRATIONS: &[&str] = &[
    include_str!("../../../migrations/postgres/0001_sessions.sql"),
    include_str!("../../../migrations/postgres/0002_keys_and_audit.sql"),
    include_str!("../../../migrations/postgres/0003_spending.sql"),
    include_str!("../../../migrations/postgres/0004_children.sql"),
];

/// The version this program works with.
pub(super) const VERSION: i64 = MIGRATIONS.len() as i64;

/// The table of the version, made by the first migration.
const CREATE_VERSION: &str = "
    CREATE TABLE IF NOT EXISTS greenroom_schema (
        id      BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
        version BIGINT NOT NULL
    );";
const HAS_VERSION: &str = "SELECT count(*) FROM pg_class
    WHERE relname = 'greenroom_schema' AND relnamespace = current_schema()::regnamespace";
const COUNT_TABLES: &str = "SELECT count(*) FROM pg_class
    WHERE relkind IN ('r', 'p') AND relnamespace = current_schema()::regnamespace";
const SELECT_VERSION: &str = "SELECT coalesce(max(version), 0) FROM greenroom_schema";

/// The version, if the schema is one of ours.
pub(super) async fn version(connection: &mut PgConnection) -> sqlx::Result<Option<i64>> {
    if fetch_scalar::<i64>(connection, HAS_VERSION).await? == 0 {
        return Ok(None);
    }
    fetch_scalar(connection, SELECT_VERSION).await.map(Some)
}

/// The version, 0 for an empty schema. Refuses what is newer than this program and what is another
/// program's; changes nothing.
async fn known_version(
    connection: &mut PgConnection,
    address: &PostgresAddress,
) -> Result<i64, StoreError> {
    let failed = |source| open_error(address, source);
    match version(connection).await.map_err(failed)? {
        Some(found) if found > VERSION => {
            Err(StoreError::SchemaTooNew { database: address.to_string(), found, known: VERSION })
        }
        Some(found) => Ok(found),
        None if fetch_scalar::<i64>(connection, COUNT_TABLES).await.map_err(failed)? == 0 => Ok(0),
        None => Err(StoreError::ForeignDatabase { database: address.to_string() }),
    }
}

/// Refuses a database that must be migrated before it can be read.
pub(super) async fn validate_version(
    connection: &mut PgConnection,
    address: &PostgresAddress,
) -> Result<(), StoreError> {
    let found = known_version(connection, address).await?;
    if found == VERSION {
        return Ok(());
    }
    Err(StoreError::SchemaTooOld { database: address.to_string(), found, known: VERSION })
}

/// Brings the database to the newest version.
pub(super) async fn migrate(
    connection: &mut PgConnection,
    address: &PostgresAddress,
) -> Result<MigrationOutcome, StoreError> {
    let from = known_version(connection, address).await?;
    for (version, migration) in (1..).zip(MIGRATIONS) {
        if version <= from {
            continue;
        }
        // The text is this program's own: nothing in it comes from outside.
        let script = AssertSqlSafe(format!(
            "BEGIN;
             {CREATE_VERSION}
             {migration}
             INSERT INTO greenroom_schema (id, version) VALUES (1, {version})
             ON CONFLICT (id) DO UPDATE SET version = excluded.version;
             COMMIT;"
        ));
        // An unfinished transaction ends with the connection, which the caller gives up.
        sqlx::raw_sql(script).execute(&mut *connection).await.map_err(|source| {
            StoreError::Migration { database: address.to_string(), version, source }
        })?;
    }
    Ok(MigrationOutcome { from_version: from, to_version: VERSION })
}
