//! What is read from the database, over the readers' connections. Must not write.

use super::batch::state_name;
use crate::store::{codec, error::journal_error};
use futures::TryStreamExt;
use greenroom_actors::ports::{ApprovalQuery, JournalError, SessionCounts, SessionQuery};
use greenroom_core::{
    Timestamp,
    ids::{ApprovalId, Seq, SessionId, UserId},
    policy::Settings,
    session::{ApprovalRow, EventRecord, SessionRow},
};
use serde::de::DeserializeOwned;
use sqlx::{QueryBuilder, Row, Sqlite, SqlitePool, sqlite::SqliteRow};
use uuid::Uuid;

/// The commits that hold the events after `?2`, the first of which may begin before them. `?3` is
/// at least their number, as each holds at least one of the events.
const SELECT_COMMITS: &str = "
    SELECT first_seq, last_seq, codec, events FROM commits
    WHERE session_id = ?1 AND last_seq > ?2 AND first_seq >= coalesce(
        (SELECT first_seq FROM commits WHERE session_id = ?1 AND first_seq <= ?2 + 1
         ORDER BY first_seq DESC LIMIT 1), 1)
    ORDER BY first_seq LIMIT ?3";

const SELECT_HEAD: &str = "SELECT last_seq FROM commits WHERE session_id = ?1
    ORDER BY first_seq DESC LIMIT 1";
const SELECT_SESSION: &str = "SELECT session_id, content FROM sessions WHERE session_id = ?1";
const SELECT_UNFINISHED: &str =
    "SELECT session_id FROM sessions WHERE status = 'running' ORDER BY session_id";
const COUNT_SESSIONS: &str = "SELECT count(*), count(*) FILTER (WHERE status <> 'idle')
    FROM sessions WHERE owner = ?1 AND status <> 'closed'";
const SELECT_APPROVAL: &str = "SELECT approval_id, content FROM approvals WHERE approval_id = ?1";
const SELECT_PENDING: &str = "SELECT approval_id, session_id, deadline FROM approvals
    WHERE state = 'pending' ORDER BY approval_id";
const SELECT_SETTINGS: &str = "SELECT content FROM user_settings WHERE user_id = ?1";

/// The events of a session after `after`, at most `limit`.
pub(super) async fn events(
    pool: &SqlitePool,
    session_id: SessionId,
    after: Seq,
    limit: usize,
) -> Result<Vec<EventRecord>, JournalError> {
    let mut records: Vec<EventRecord> = Vec::new();
    // No event has a number beyond what the column holds.
    let Ok(after_seq) = i64::try_from(after.0) else { return Ok(records) };
    let query =
        sqlx::query(SELECT_COMMITS).bind(key(session_id.0)).bind(after_seq).bind(rows(limit));
    let mut commits = query.fetch(pool);
    while records.len() < limit
        && let Some(commit) = commits.try_next().await.map_err(|e| journal_error(&e))?
    {
        let first = Seq(number(&commit, 0)?);
        let last = Seq(number(&commit, 1)?);
        let corrupt = |why: String| {
            JournalError::Corrupt(format!(
                "events {first} to {last} of session {session_id}: {why}"
            ))
        };
        let format: i64 = column(&commit, 2)?;
        // By reference: the text may be large.
        let text: &str = commit.try_get(3).map_err(|error| corrupt(error.to_string()))?;
        let decoded =
            codec::decode(format, text, first, last).map_err(|error| corrupt(error.to_string()))?;
        let wanted = decoded.into_iter().filter(|record| record.seq > after);
        let head = records.last().map_or(after, |record| record.seq);
        records.extend(wanted.take(limit - records.len()));
        if first > head.next() {
            return Err(corrupt(format!("they do not follow event {head}")));
        }
    }
    Ok(records)
}

/// The number of a session's last event.
pub(super) async fn head(pool: &SqlitePool, session_id: SessionId) -> Result<Seq, JournalError> {
    let found = sqlx::query(SELECT_HEAD).bind(key(session_id.0)).fetch_optional(pool).await;
    match found.map_err(|error| journal_error(&error))? {
        Some(row) => number(&row, 0).map(Seq),
        None => Ok(Seq(0)),
    }
}

/// One session's row.
pub(super) async fn session(
    pool: &SqlitePool,
    session_id: SessionId,
) -> Result<Option<SessionRow>, JournalError> {
    let found = sqlx::query(SELECT_SESSION).bind(key(session_id.0)).fetch_optional(pool).await;
    found.map_err(|error| journal_error(&error))?.map(|row| content(&row, "session")).transpose()
}

/// Sessions, newest first.
pub(super) async fn sessions(
    pool: &SqlitePool,
    query: SessionQuery,
) -> Result<Vec<SessionRow>, JournalError> {
    let mut sql = select_sessions(&query);
    let found = sql.build().fetch_all(pool).await.map_err(|error| journal_error(&error))?;
    found.iter().map(|row| content(row, "session")).collect()
}

/// Sessions whose status is `running`, oldest first.
pub(super) async fn unfinished_sessions(pool: &SqlitePool) -> Result<Vec<SessionId>, JournalError> {
    let found = sqlx::query(SELECT_UNFINISHED)
        .fetch_all(pool)
        .await
        .map_err(|error| journal_error(&error))?;
    found.iter().map(|row| id(row, 0).map(SessionId)).collect()
}

/// How many sessions of a user are open, and how many of those have a run.
pub(super) async fn session_counts(
    pool: &SqlitePool,
    owner: &UserId,
) -> Result<SessionCounts, JournalError> {
    let found = sqlx::query(COUNT_SESSIONS).bind(owner.as_str()).fetch_one(pool).await;
    let row = found.map_err(|error| journal_error(&error))?;
    Ok(SessionCounts { open: number(&row, 0)?, running: number(&row, 1)? })
}

/// One question.
pub(super) async fn approval(
    pool: &SqlitePool,
    approval_id: ApprovalId,
) -> Result<Option<ApprovalRow>, JournalError> {
    let found = sqlx::query(SELECT_APPROVAL).bind(key(approval_id.0)).fetch_optional(pool).await;
    found.map_err(|error| journal_error(&error))?.map(|row| content(&row, "approval")).transpose()
}

/// Questions, newest first.
pub(super) async fn approvals(
    pool: &SqlitePool,
    query: ApprovalQuery,
) -> Result<Vec<ApprovalRow>, JournalError> {
    let mut sql = select_approvals(&query);
    let found = sql.build().fetch_all(pool).await.map_err(|error| journal_error(&error))?;
    found.iter().map(|row| content(row, "approval")).collect()
}

/// All questions that wait, oldest first, with their deadlines.
pub(super) async fn pending_deadlines(
    pool: &SqlitePool,
) -> Result<Vec<(ApprovalId, SessionId, Option<Timestamp>)>, JournalError> {
    let found =
        sqlx::query(SELECT_PENDING).fetch_all(pool).await.map_err(|error| journal_error(&error))?;
    let read = |row: &SqliteRow| {
        let deadline = column::<Option<i64>>(row, 2)?.map(Timestamp);
        Ok((ApprovalId(id(row, 0)?), SessionId(id(row, 1)?), deadline))
    };
    found.iter().map(read).collect()
}

/// A user's settings.
pub(super) async fn settings(
    pool: &SqlitePool,
    user: &UserId,
) -> Result<Option<Settings>, JournalError> {
    let found = sqlx::query(SELECT_SETTINGS).bind(user.as_str()).fetch_optional(pool).await;
    let Some(row) = found.map_err(|error| journal_error(&error))? else { return Ok(None) };
    let settings = serde_json::from_str(column(&row, 0)?);
    settings
        .map(Some)
        .map_err(|error| JournalError::Corrupt(format!("the settings of user {user}: {error}")))
}

/// Whether reading works.
pub(super) async fn check(pool: &SqlitePool) -> Result<(), JournalError> {
    let query = sqlx::query("SELECT beat FROM heartbeat");
    query.fetch_optional(pool).await.map(drop).map_err(|error| journal_error(&error))
}

fn select_sessions(query: &SessionQuery) -> QueryBuilder<Sqlite> {
    let mut sql =
        QueryBuilder::<Sqlite>::new("SELECT session_id, content FROM sessions WHERE true");
    if let Some(owner) = &query.owner {
        sql.push(" AND owner = ").push_bind(owner.to_string());
    }
    if let Some(before) = query.before {
        sql.push(" AND session_id < ").push_bind(key(before.0));
    }
    sql.push(" ORDER BY session_id DESC LIMIT ").push_bind(rows(query.limit));
    sql
}

fn select_approvals(query: &ApprovalQuery) -> QueryBuilder<Sqlite> {
    let mut sql =
        QueryBuilder::<Sqlite>::new("SELECT approval_id, content FROM approvals WHERE true");
    if let Some(owner) = &query.owner {
        sql.push(" AND owner = ").push_bind(owner.to_string());
    }
    if let Some(session_id) = query.session_id {
        sql.push(" AND session_id = ").push_bind(key(session_id.0));
    }
    if let Some(state) = query.state {
        // Part of the text, not a bound value: only so can the index of what is pending be used.
        sql.push(" AND state = '").push(state_name(state)).push("'");
    }
    if let Some(before) = query.before {
        sql.push(" AND approval_id < ").push_bind(key(before.0));
    }
    sql.push(" ORDER BY approval_id DESC LIMIT ").push_bind(rows(query.limit));
    sql
}

/// The row kept as JSON in column 1; its id is in column 0.
fn content<T: DeserializeOwned>(row: &SqliteRow, what: &str) -> Result<T, JournalError> {
    serde_json::from_str(column(row, 1)?).map_err(|error| match id(row, 0) {
        Ok(id) => JournalError::Corrupt(format!("the row of {what} {id}: {error}")),
        Err(id_too) => id_too,
    })
}

/// An id as the tables have it.
fn key(id: Uuid) -> Vec<u8> {
    id.into_bytes().into()
}

fn id(row: &SqliteRow, index: usize) -> Result<Uuid, JournalError> {
    Uuid::from_slice(column(row, index)?)
        .map_err(|error| JournalError::Corrupt(format!("an id is none: {error}")))
}

pub(super) fn column<'r, T>(row: &'r SqliteRow, index: usize) -> Result<T, JournalError>
where
    T: sqlx::Decode<'r, Sqlite> + sqlx::Type<Sqlite>,
{
    row.try_get(index).map_err(|error| journal_error(&error))
}

pub(super) fn number(row: &SqliteRow, index: usize) -> Result<u64, JournalError> {
    let number: i64 = column(row, index)?;
    u64::try_from(number)
        .map_err(|_| JournalError::Corrupt(format!("{number} stands where a count is expected")))
}

/// A limit on rows, as SQL has it.
pub(super) fn rows(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{SqliteJournal, StoreOptions};
    use greenroom_core::session::ApprovalState;
    use sqlx::{AssertSqlSafe, Execute};

    /// D6: however much is stored, every question finds its answer through an index, already in
    /// its order. Only the indexes of what is running or pending are read from end to end.
    #[tokio::test]
    async fn no_query_looks_through_a_table() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("green.db");
        let journal = SqliteJournal::open(&path, StoreOptions::default()).await.unwrap();
        let fixed = [
            (SELECT_COMMITS, "commits_by_session"),
            (SELECT_HEAD, "commits_by_session"),
            (SELECT_SESSION, "PRIMARY KEY"),
            (SELECT_UNFINISHED, "sessions_running"),
            (COUNT_SESSIONS, "COVERING INDEX sessions_open"),
            (SELECT_APPROVAL, "approvals_by_id"),
            (SELECT_PENDING, "COVERING INDEX approvals_pending"),
            (SELECT_SETTINGS, "PRIMARY KEY"),
        ];
        let mut queries: Vec<(String, &str)> =
            fixed.into_iter().map(|(sql, index)| (sql.to_owned(), index)).collect();

        let owner = || Some(UserId::parse("alice").unwrap());
        let session_id = Some(SessionId(Uuid::nil()));
        let sessions = |owner, index| {
            let query = SessionQuery { owner, before: session_id, limit: 1 };
            (select_sessions(&query).build().sql().as_str().to_owned(), index)
        };
        queries.push(sessions(None, "PRIMARY KEY"));
        queries.push(sessions(owner(), "sessions_by_owner"));
        let approvals = |owner, session_id, state, index| {
            let before = Some(ApprovalId(Uuid::nil()));
            let query = ApprovalQuery { owner, session_id, state, before, limit: 1 };
            (select_approvals(&query).build().sql().as_str().to_owned(), index)
        };
        let pending = Some(ApprovalState::Pending);
        queries.push(approvals(None, None, None, "approvals_by_id"));
        queries.push(approvals(None, None, pending, "approvals_pending"));
        queries.push(approvals(owner(), None, None, "approvals_by_owner"));
        queries.push(approvals(None, session_id, None, "approvals_by_session"));

        for (sql, index) in queries {
            let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
            let rows = sqlx::raw_sql(explain).fetch_all(&journal.readers).await.unwrap();
            let plan: Vec<String> = rows.iter().map(|row| row.get(3)).collect();
            let plan = plan.join("; ");
            assert!(plan.contains(index), "{sql}: {plan}");
            assert!(!plan.contains("TEMP B-TREE"), "{sql}: {plan}");
            let is_short =
                ["sessions_running", "approvals_pending"].iter().any(|i| plan.contains(i));
            assert!(is_short || !plan.contains("SCAN"), "{sql}: {plan}");
        }
    }
}
