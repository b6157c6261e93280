//! Copies an SQLite database page by page with SQLite's backup API, and checks the copy (D10).
//!
//! All pages are copied under one read transaction. In write-ahead mode it sees one commit, and the
//! server continues to write; only the write-ahead log can't shrink until the copy is made.

use super::{file, open_error, schema};
use crate::store::{
    StoreError, StoreOptions,
    backup::{BackupError, BackupSummary},
};
use rusqlite::{
    Connection, ErrorCode, OpenFlags,
    backup::{Backup, StepResult},
    ffi,
};
use sqlx::{ConnectOptions as _, Connection as _, Row as _, SqliteConnection};
use std::{io, path::Path};

/// Number of pages for `Backup::step` that stands for all pages.
const ALL_PAGES: i32 = -1;

const COUNT_CONTENT: &str = "
    SELECT (SELECT count(*) FROM sessions),
           (SELECT coalesce(sum(last_seq - first_seq + 1), 0) FROM commits)";

/// Copies the database `source` to the existing, empty file `target`, and checks the copy. The
/// source may have an older schema.
pub(in crate::store) async fn copy_database(
    source: &Path,
    target: &Path,
) -> Result<BackupSummary, BackupError> {
    let source = file::resolve_existing(source)?;
    validate_source(&source).await?;
    let copied = {
        let (source, target) = (source.clone(), target.to_owned());
        tokio::task::spawn_blocking(move || copy_pages(&source, &target)).await
    };
    let copied = copied.map_err(|error| sqlx::Error::Io(io::Error::other(error)));
    let sql_error = |action| {
        let path = source.clone();
        move |source| BackupError::Sql { action, path, source }
    };
    copied
        .and_then(|copied| copied.map_err(super::backend::to_sqlx_error))
        .map_err(sql_error("copy"))?;
    let mut copy =
        base_copy_options(target).connect().await.map_err(sql_error("read the copy of"))?;
    let summary = inspect(&mut copy, &source, target).await?;
    copy.close().await.map_err(sql_error("read the copy of"))?;
    Ok(summary)
}

/// Rejects a file of another program, of a newer version, or without tables.
async fn validate_source(source: &Path) -> Result<(), StoreError> {
    let options = super::base_options(source, &StoreOptions::default()).read_only(true);
    let to_store_error = |error| open_error(source, error);
    let mut connection = options.connect().await.map_err(to_store_error)?;
    let version = schema::version(&mut connection, source).await?;
    connection.close().await.map_err(to_store_error)?;
    if version == 0 { schema::validate_version(version, source) } else { Ok(()) }
}

/// Copies all pages. Memory is bounded by the page caches of both connections.
fn copy_pages(source: &Path, target: &Path) -> rusqlite::Result<()> {
    let source = Connection::open_with_flags(
        source,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    source.busy_timeout(StoreOptions::default().busy_timeout)?;
    let mut target = Connection::open_with_flags(
        target,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    // An interrupted copy is discarded, so it needs neither a journal nor a sync per step.
    target.pragma_update(None, "journal_mode", "OFF")?;
    target.pragma_update(None, "synchronous", "OFF")?;
    let step = Backup::new(&source, &mut target)?.step(ALL_PAGES)?;
    if step == StepResult::Done {
        return Ok(());
    }
    let busy = ffi::Error { code: ErrorCode::DatabaseBusy, extended_code: ffi::SQLITE_BUSY };
    Err(rusqlite::Error::SqliteFailure(busy, None))
}

/// Returns options that open the copy without a lock and without files beside it. Nothing else has
/// it open.
fn base_copy_options(target: &Path) -> sqlx::sqlite::SqliteConnectOptions {
    super::base_options(target, &StoreOptions::default()).read_only(true).immutable(true)
}

/// Checks the copy's pages, its indexes and its version, and counts its content.
async fn inspect(
    copy: &mut SqliteConnection,
    source: &Path,
    target: &Path,
) -> Result<BackupSummary, BackupError> {
    let to_store_error = |error| BackupError::Store(open_error(source, error));
    let check = sqlx::query("PRAGMA integrity_check(1)").fetch_one(&mut *copy).await;
    let report: String = check.and_then(|row| row.try_get(0)).map_err(to_store_error)?;
    if report != "ok" {
        // The lines start with a title.
        let detail = report.lines().last().unwrap_or_default().to_owned();
        let database = source.display().to_string();
        return Err(StoreError::Corrupted { database, detail }.into());
    }
    let schema_version = schema::version(copy, source).await?;
    let counts = sqlx::query_as(COUNT_CONTENT).fetch_one(copy).await;
    let (sessions, events): (i64, i64) = counts.map_err(to_store_error)?;
    let metadata = target.metadata().map_err(|source| BackupError::File {
        action: "read",
        path: target.to_owned(),
        source,
    })?;
    Ok(BackupSummary {
        schema_version,
        sessions: sessions.unsigned_abs(),
        events: events.unsigned_abs(),
        bytes: metadata.len(),
    })
}
