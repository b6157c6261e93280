//! The schema version of a PostgreSQL database, and the migrations to the newest one (D5). Must not
//! know the purpose of the tables.
//!
//! Migrations are embedded and append-only; their numbers are independent of SQLite's. The version is
//! stored in its own table and updated in the transaction of the migration.

use super::connect::fetch_scalar;
use crate::store::{MigrationOutcome, PostgresAddress, StoreError, error::open_error};
use sqlx::{AssertSqlSafe, PgConnection};

/// All migrations, in order. The first one leads to version 1.
const MIGRATIONS: &[&str] = &[
    include_str!("../../../migrations/postgres/0001_sessions.sql"),
    include_str!("../../../migrations/postgres/0002_keys_and_audit.sql"),
    include_str!("../../../migrations/postgres/0003_spending.sql"),
    include_str!("../../../migrations/postgres/0004_children.sql"),
    include_str!("../../../migrations/postgres/0005_digest_key.sql"),
    include_str!("../../../migrations/postgres/0006_requests.sql"),
    include_str!("../../../migrations/postgres/0007_tool_names.sql"),
    include_str!("../../../migrations/postgres/0008_ceilings.sql"),
    include_str!("../../../migrations/postgres/0009_decimal_amounts.sql"),
];

/// The schema version of this program.
pub(super) const VERSION: i64 = MIGRATIONS.len() as i64;

/// Creates the table of the version. Executed before each migration.
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

/// Returns the version if the schema belongs to greenroom.
pub(super) async fn version(connection: &mut PgConnection) -> sqlx::Result<Option<i64>> {
    if fetch_scalar::<i64>(connection, HAS_VERSION).await? == 0 {
        return Ok(None);
    }
    fetch_scalar(connection, SELECT_VERSION).await.map(Some)
}

/// Returns the version; 0 for an empty schema. Rejects a newer version and a schema of another
/// program. Changes nothing.
async fn known_version(
    connection: &mut PgConnection,
    address: &PostgresAddress,
) -> Result<i64, StoreError> {
    let to_store_error = |source| open_error(address, source);
    match version(connection).await.map_err(to_store_error)? {
        Some(version) if version > VERSION => Err(StoreError::SchemaTooNew {
            database: address.to_string(),
            found: version,
            known: VERSION,
        }),
        Some(version) => Ok(version),
        None if fetch_scalar::<i64>(connection, COUNT_TABLES).await.map_err(to_store_error)?
            == 0 =>
        {
            Ok(0)
        }
        None => Err(StoreError::ForeignDatabase { database: address.to_string() }),
    }
}

/// Rejects a database that must be migrated before it is read.
pub(super) async fn validate_version(
    connection: &mut PgConnection,
    address: &PostgresAddress,
) -> Result<(), StoreError> {
    let version = known_version(connection, address).await?;
    if version == VERSION {
        return Ok(());
    }
    Err(StoreError::SchemaTooOld { database: address.to_string(), found: version, known: VERSION })
}

/// Migrates the database to the newest version.
pub(super) async fn migrate(
    connection: &mut PgConnection,
    address: &PostgresAddress,
) -> Result<MigrationOutcome, StoreError> {
    let from_version = known_version(connection, address).await?;
    for (version, migration) in (1..).zip(MIGRATIONS) {
        if version <= from_version {
            continue;
        }
        // The text is part of the program and contains no external input.
        let script = AssertSqlSafe(format!(
            "BEGIN;
             {CREATE_VERSION}
             {migration}
             INSERT INTO greenroom_schema (id, version) VALUES (1, {version})
             ON CONFLICT (id) DO UPDATE SET version = excluded.version;
             COMMIT;"
        ));
        // After an error, the caller drops the connection, which ends the transaction.
        sqlx::raw_sql(script).execute(&mut *connection).await.map_err(|source| {
            StoreError::Migration { database: address.to_string(), version, source }
        })?;
    }
    Ok(MigrationOutcome { from_version, to_version: VERSION })
}
