//! The schema's versions: which one a database has, and how it comes to the newest (D5). Must not
//! know what the tables are for.
//!
//! Migrations are embedded and append-only. The version stands in SQLite's `user_version`, set in
//! the same transaction that makes it true.

use super::open_error;
use crate::store::{MigrationOutcome, StoreError, error::is_not_a_database};
use sqlx::{AssertSqlSafe, SqliteConnection};
use std::path::Path;

/// Marks a database as greenroom's: "GRNR".
const APPLICATION_ID: i64 = 0x4752_4E52;

/// Every migration there ever was, in order: the first leads to version 1.
const MIGRATIONS: &[&str] = &[
    include_str!("../../../migrations/sqlite/0001_sessions.sql"),
    include_str!("../../../migrations/sqlite/0002_keys_and_audit.sql"),
    include_str!("../../../migrations/sqlite/0003_spending.sql"),
    include_str!("../../../migrations/sqlite/0004_children.sql"),
    include_str!("../../../migrations/sqlite/0005_parents.sql"),
];

/// The version this program works with.
const VERSION: i64 = MIGRATIONS.len() as i64;

/// The database's version, 0 for an empty one. Refuses what is newer than this program and what is
/// another program's; changes nothing.
pub(super) async fn version(
    connection: &mut SqliteConnection,
    path: &Path,
) -> Result<i64, StoreError> {
    let query = "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
                 FROM pragma_application_id, pragma_user_version";
    let (application, version, tables): (i64, i64, i64) =
        sqlx::query_as(query).fetch_one(connection).await.map_err(|source| {
            if is_not_a_database(&source) {
                StoreError::NotADatabase { path: path.to_owned() }
            } else {
                open_error(path, source)
            }
        })?;
    let is_empty = application == 0 && version == 0 && tables == 0;
    if application != APPLICATION_ID && !is_empty {
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

/// Refuses a database that must be migrated before it can be read.
pub(super) fn validate_version(version: i64, path: &Path) -> Result<(), StoreError> {
    if version == VERSION {
        return Ok(());
    }
    Err(StoreError::SchemaTooOld { database: name(path), found: version, known: VERSION })
}

/// Brings a database from version `from` to the newest.
pub(super) async fn migrate(
    connection: &mut SqliteConnection,
    path: &Path,
    from: i64,
) -> Result<MigrationOutcome, StoreError> {
    for (version, migration) in (1..).zip(MIGRATIONS) {
        if version <= from {
            continue;
        }
        // The text is this program's own: nothing in it comes from outside.
        let script = AssertSqlSafe(format!(
            "BEGIN IMMEDIATE;
             {migration}
             PRAGMA application_id = {APPLICATION_ID};
             PRAGMA user_version = {version};
             COMMIT;"
        ));
        // An unfinished transaction ends with the connection, which the caller gives up.
        sqlx::raw_sql(script)
            .execute(&mut *connection)
            .await
            .map_err(|source| StoreError::Migration { database: name(path), version, source })?;
    }
    Ok(MigrationOutcome { from_version: from, to_version: VERSION })
}
