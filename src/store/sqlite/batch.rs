//! Stores a group of commits in one SQLite transaction. Must not know the callers, nor decide if a
//! commit may be appended.

use crate::{
    audit::{AuditRow, ChainHead},
    store::{
        codec,
        stored_commit::{StoredCommit, StoredSession},
    },
};
use greenroom_core::{amount::Amount, budget::SpendingEntry};
use rusqlite::{Connection, OptionalExtension as _, params, types::Type};

pub(super) const BEGIN: &str = "BEGIN IMMEDIATE";
pub(super) const COMMIT: &str = "COMMIT";
const INSERT_COMMIT: &str = "
    INSERT INTO commits (session_id, first_seq, last_seq, at, codec, events)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const UPDATE_SESSION: &str = "UPDATE sessions SET content = ?2, status = ?3 WHERE session_id = ?1";
const INSERT_SESSION: &str = "
    INSERT INTO sessions (session_id, content, status, owner, parent) VALUES (?1, ?2, ?3, ?4, ?5)";
const UPSERT_APPROVAL: &str = "
    INSERT INTO approvals (approval_id, content, session_id, owner, state, deadline)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)
    ON CONFLICT (approval_id) DO UPDATE
    SET content = excluded.content, owner = excluded.owner, state = excluded.state,
        deadline = excluded.deadline";
const INSERT_AUDIT: &str = "INSERT INTO audit (n, hash, content) VALUES (?1, ?2, ?3)";
const UPDATE_AUDIT_HEAD: &str = "UPDATE audit_head SET n = ?1, hash = ?2";
const SELECT_SPENDING: &str =
    "SELECT amount FROM spending WHERE user_id = ?1 AND measure = ?2 AND day = ?3";
const STORE_SPENDING: &str = "
    INSERT INTO spending (user_id, measure, day, amount) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (user_id, measure, day) DO UPDATE SET amount = excluded.amount";

/// Capacity of the statement cache. Each statement of the writer is prepared once and cached.
pub(super) const CACHED_STATEMENTS_MAX: usize = 32;

/// Stores all commits and their rows of the audit log atomically. After an error, a transaction may
/// be open.
pub(super) fn store_commits(
    connection: &Connection,
    commits: &[&StoredCommit],
    audit_rows: &[AuditRow],
) -> rusqlite::Result<()> {
    execute(connection, BEGIN)?;
    for commit in commits {
        store_commit(connection, commit)?;
    }
    append_audit(connection, audit_rows)?;
    execute(connection, COMMIT)
}

fn store_commit(connection: &Connection, commit: &StoredCommit) -> rusqlite::Result<()> {
    let id = &commit.session_id.0.as_bytes()[..];
    let (first_seq, last_seq) = (commit.expected_head.next().0, commit.last_seq.0);
    connection.prepare_cached(INSERT_COMMIT)?.execute(params![
        id,
        first_seq.cast_signed(),
        last_seq.cast_signed(),
        commit.at,
        codec::FORMAT,
        commit.events,
    ])?;
    if let Some(row) = &commit.session {
        store_session(connection, id, row)?;
    }
    for row in &commit.approvals {
        let approval_id = &row.id.0.as_bytes()[..];
        let values = params![approval_id, row.content, id, row.owner, row.state, row.deadline];
        connection.prepare_cached(UPSERT_APPROVAL)?.execute(values)?;
    }
    if let Some(update) = &commit.spending_update {
        for entry in &update.entries {
            add_spending(connection, update.user.as_str(), entry)?;
        }
    }
    Ok(())
}

/// Adds an amount to the day's spending. SQLite has no decimal numbers, so it is added here.
fn add_spending(
    connection: &Connection,
    user: &str,
    entry: &SpendingEntry,
) -> rusqlite::Result<()> {
    let SpendingEntry { measure, day, amount } = entry;
    let key = params![user, measure.name(), day.0];
    let mut select = connection.prepare_cached(SELECT_SPENDING)?;
    let stored = select.query_row(key, |row| get_amount(row, 0)).optional()?;
    let sum = (stored.unwrap_or_default() + *amount).to_plain_text();
    let values = params![user, measure.name(), day.0, sum];
    connection.prepare_cached(STORE_SPENDING)?.execute(values).map(drop)
}

/// Returns the amount of a column with its decimal text.
pub(super) fn get_amount(row: &rusqlite::Row<'_>, index: usize) -> rusqlite::Result<Amount> {
    let text = row.get_ref(index)?.as_str()?;
    Amount::parse_exact(text).map_err(|problem| {
        rusqlite::Error::FromSqlConversionFailure(index, Type::Text, Box::new(problem))
    })
}

/// Updates or inserts the session's row. An upsert would update every index of the table.
fn store_session(connection: &Connection, id: &[u8], row: &StoredSession) -> rusqlite::Result<()> {
    let StoredSession { content, owner, parent, status } = row;
    let changed =
        connection.prepare_cached(UPDATE_SESSION)?.execute(params![id, content, status])?;
    if changed == 0 {
        let values = params![id, content, status, owner, parent];
        connection.prepare_cached(INSERT_SESSION)?.execute(values)?;
    }
    Ok(())
}

/// Appends rows to the audit log and updates its stored head.
pub(super) fn append_audit(
    connection: &Connection,
    audit_rows: &[AuditRow],
) -> rusqlite::Result<()> {
    let Some(last_row) = audit_rows.last() else { return Ok(()) };
    let mut insert = connection.prepare_cached(INSERT_AUDIT)?;
    for row in audit_rows {
        insert.execute(params![row.n.cast_signed(), &row.hash.as_bytes()[..], row.content])?;
    }
    let ChainHead { n, hash } = last_row.head();
    let head = params![n.cast_signed(), &hash.as_bytes()[..]];
    connection.prepare_cached(UPDATE_AUDIT_HEAD)?.execute(head).map(drop)
}

/// Executes a statement without parameters.
pub(super) fn execute(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute(()).map(drop)
}
