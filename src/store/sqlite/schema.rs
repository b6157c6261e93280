//! The schema version of an SQLite database, and the migrations to the newest one (D5). Must not
//! know the purpose of the tables.
//!
//! Migrations are embedded and append-only. The version is stored in SQLite's `user_version` and
//! updated in the transaction of the migration.

use super::open_error;
use crate::store::{MigrationOutcome, StoreError, error::is_not_a_database};
use sqlx::{AssertSqlSafe, SqliteConnection};
use std::path::Path;

/// The application id of greenroom's databases: "GRNR".
const APPLICATION_ID: i64 = 0x4752_4E52;

/// All migrations, in order. The first one leads to version 1.
const MIGRATIONS: &[&str] = &[
    include_str!("../../../migrations/sqlite/0001_sessions.sql"),
    include_str!("../../../migrations/sqlite/0002_keys_and_audit.sql"),
    include_str!("../../../migrations/sqlite/0003_spending.sql"),
    include_str!("../../../migrations/sqlite/0004_children.sql"),
    include_str!("../../../migrations/sqlite/0005_parents.sql"),
    include_str!("../../../migrations/sqlite/0006_digest_key.sql"),
    include_str!("../../../migrations/sqlite/0007_requests.sql"),
    include_str!("../../../migrations/sqlite/0008_tool_names.sql"),
    include_str!("../../../migrations/sqlite/0009_ceilings.sql"),
    include_str!("../../../migrations/sqlite/0010_decimal_amounts.sql"),
];

/// The schema version of this program.
const VERSION: i64 = MIGRATIONS.len() as i64;

/// Returns the database's version; 0 for an empty one. Rejects a newer version and a database of
/// another program. Changes nothing.
pub(super) async fn version(
    connection: &mut SqliteConnection,
    path: &Path,
) -> Result<i64, StoreError> {
    let query = "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
                 FROM pragma_application_id, pragma_user_version";
    let (application_id, version, tables): (i64, i64, i64) =
        sqlx::query_as(query).fetch_one(connection).await.map_err(|source| {
            if is_not_a_database(&source) {
                StoreError::NotADatabase { path: path.to_owned() }
            } else {
                open_error(path, source)
            }
        })?;
    let is_empty = application_id == 0 && version == 0 && tables == 0;
    if application_id != APPLICATION_ID && !is_empty {
        return Err(StoreError::ForeignDatabase { database: name(path) });
    }
    if version > VERSION {
        return Err(StoreError::SchemaTooNew {
            database: name(path),
            found: version,
            known: VERSION,
        });
    }
    Ok(version)
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

/// Rejects a database that must be migrated before it is read.
pub(super) fn validate_version(version: i64, path: &Path) -> Result<(), StoreError> {
    if version == VERSION {
        return Ok(());
    }
    Err(StoreError::SchemaTooOld { database: name(path), found: version, known: VERSION })
}

/// Migrates a database from version `from` to the newest version.
pub(super) async fn migrate(
    connection: &mut SqliteConnection,
    path: &Path,
    from_version: i64,
) -> Result<MigrationOutcome, StoreError> {
    for (version, migration) in (1..).zip(MIGRATIONS) {
        if version <= from_version {
            continue;
        }
        // The text is part of the program and contains no external input.
        let script = AssertSqlSafe(format!(
            "BEGIN IMMEDIATE;
             {migration}
             PRAGMA application_id = {APPLICATION_ID};
             PRAGMA user_version = {version};
             COMMIT;"
        ));
        // After an error, the caller drops the connection, which ends the transaction.
        sqlx::raw_sql(script)
            .execute(&mut *connection)
            .await
            .map_err(|source| StoreError::Migration { database: name(path), version, source })?;
    }
    Ok(MigrationOutcome { from_version, to_version: VERSION })
}
