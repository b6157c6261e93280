//! A group of commits as one transaction in SQLite: stores them all or none. Must not know who waits
//! for the answers, nor which commits may be appended.

use crate::{
    audit::{AuditRow, ChainHead},
    store::{
        codec,
        stored_commit::{StoredCommit, StoredSession},
    },
};
use rusqlite::{Connection, params};

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
const ADD_SPENDING: &str = "
    INSERT INTO spending (user_id, measure, day, amount) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (user_id, measure, day) DO UPDATE SET amount = amount + excluded.amount";

/// Every statement of this file is prepared once and kept; so many must have room.
pub(super) const CACHED_STATEMENTS_MAX: usize = 32;

/// Stores all of these commits, with the rows of the audit log that they make, or, when it errs,
/// none; a transaction may then be open.
pub(super) fn store_commits(
    connection: &Connection,
    commits: &[&StoredCommit],
    sealed: &[AuditRow],
) -> rusqlite::Result<()> {
    execute(connection, BEGIN)?;
    for commit in commits {
        store_commit(connection, commit)?;
    }
    append_audit(connection, sealed)?;
    execute(connection, COMMIT)
}

fn store_commit(connection: &Connection, commit: &StoredCommit) -> rusqlite::Result<()> {
    let id = &commit.session_id.0.as_bytes()[..];
    let (first, last) = (commit.expected_head.next().0, commit.last_seq.0);
    connection.prepare_cached(INSERT_COMMIT)?.execute(params![
        id,
        first.cast_signed(),
        last.cast_signed(),
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
    if let Some(posting) = &commit.spending_update {
        let mut add = connection.prepare_cached(ADD_SPENDING)?;
        for spend in &posting.entries {
            let measure = spend.measure.name();
            add.execute(params![posting.user.as_str(), measure, spend.day.0, spend.amount])?;
        }
    }
    Ok(())
}

/// Changes the session's row, or adds it. An upsert would touch every index of the table.
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

/// Adds rows to the audit log, and notes its new end.
pub(super) fn append_audit(connection: &Connection, sealed: &[AuditRow]) -> rusqlite::Result<()> {
    let Some(last) = sealed.last() else { return Ok(()) };
    let mut insert = connection.prepare_cached(INSERT_AUDIT)?;
    for row in sealed {
        insert.execute(params![row.n.cast_signed(), &row.hash.as_bytes()[..], row.content])?;
    }
    let ChainHead { n, hash } = last.head();
    let noted = params![n.cast_signed(), &hash.as_bytes()[..]];
    connection.prepare_cached(UPDATE_AUDIT_HEAD)?.execute(noted).map(drop)
}

/// Executes a statement that takes no values.
pub(super) fn execute(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute(()).map(drop)
}
