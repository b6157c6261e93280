//! The queries of sessions, events, approvals, settings and spending, for all databases. Must not
//! write.

use super::{
    codec,
    error::journal_error,
    sql::{ReadPool, SqlQuery, SqlRow},
    stored_commit::state_name,
};
use futures::TryStreamExt as _;
use greenroom_actors::{
    limits::APPROVALS_OF_CALL_MAX,
    ports::{ApprovalQuery, JournalError, ParentFilter, SessionCounts, SessionQuery},
};
use greenroom_core::{
    Timestamp,
    budget::{BudgetMeasure, SpendingTotals},
    ids::{ApprovalId, CallId, Seq, SessionId, UserId},
    policy::Settings,
    session::{ApprovalRow, EventRecord, SessionRow},
    time::Day,
};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// Selects the commits with the events after `$2`; the first commit may start before them. `$3` is
/// at least the number of events to return, since each commit has at least one of them. The limit
/// is a sum, as in every query here: SQLite inspects the value of a bare limit and prepares the
/// statement again whenever another value is bound.
const SELECT_COMMITS: &str = "
    SELECT first_seq, last_seq, codec, events FROM commits
    WHERE session_id = $1 AND last_seq > $2 AND first_seq >= coalesce(
        (SELECT first_seq FROM commits WHERE session_id = $1 AND first_seq <= $2 + 1
         ORDER BY first_seq DESC LIMIT 1), 1)
    ORDER BY first_seq LIMIT 0 + $3";

const SELECT_HEAD: &str = "SELECT last_seq FROM commits WHERE session_id = $1
    ORDER BY first_seq DESC LIMIT 1";
const SELECT_SESSION: &str = "SELECT session_id, content FROM sessions WHERE session_id = $1";
const SELECT_UNFINISHED: &str =
    "SELECT session_id FROM sessions WHERE status = 'running' ORDER BY session_id";
const COUNT_SESSIONS: &str = "SELECT count(*), count(*) FILTER (WHERE status <> 'idle')
    FROM sessions WHERE owner = $1 AND status <> 'closed'";
const SELECT_APPROVAL: &str = "SELECT approval_id, content FROM approvals WHERE approval_id = $1";
const SELECT_APPROVALS_OF_CALL: &str = "
    SELECT approval_id, content FROM approvals
    WHERE approval_id IN (SELECT approval_id FROM approval_calls WHERE call_id = $1)
    ORDER BY approval_id DESC LIMIT 0 + $2";
const SELECT_PENDING: &str = "SELECT approval_id, session_id, deadline FROM approvals
    WHERE state = 'pending' ORDER BY approval_id";
const SELECT_SETTINGS: &str = "SELECT content FROM user_settings WHERE user_id = $1";
const SELECT_SPENDING: &str =
    "SELECT measure, day, CAST(amount AS TEXT) FROM spending WHERE user_id = $1";
const SELECT_HEARTBEAT: &str = "SELECT beat FROM heartbeat";

/// Returns at most `limit` events of a session after `after_seq`.
pub(super) async fn load_events(
    read_pool: &ReadPool,
    session_id: SessionId,
    after_seq: Seq,
    limit: usize,
) -> Result<Vec<EventRecord>, JournalError> {
    let mut records: Vec<EventRecord> = Vec::new();
    // The column can't hold larger numbers, so there are no such events.
    let bound_seq = after_seq.0.cast_signed();
    if !(0..i64::MAX).contains(&bound_seq) {
        return Ok(records);
    }
    let query =
        SqlQuery::new(SELECT_COMMITS).bind(session_id.0).bind(bound_seq).bind(to_sql_limit(limit));
    let mut commits = read_pool.fetch(query);
    while records.len() < limit
        && let Some(commit) = commits.try_next().await.map_err(|e| journal_error(&e))?
    {
        let first = Seq(unsigned_column(&commit, 0)?);
        let last = Seq(unsigned_column(&commit, 1)?);
        let corrupt = |reason: String| {
            JournalError::Corrupt(format!(
                "events {first} to {last} of session {session_id}: {reason}"
            ))
        };
        let format = commit.number(2).map_err(|error| journal_error(&error))?;
        let text = commit.text(3).map_err(|error| corrupt(error.to_string()))?;
        let decoded =
            codec::decode(format, text, first, last).map_err(|error| corrupt(error.to_string()))?;
        let new_records = decoded.into_iter().filter(|record| record.seq > after_seq);
        let head = records.last().map_or(after_seq, |record| record.seq);
        records.extend(new_records.take(limit - records.len()));
        if first > head.next() {
            return Err(corrupt(format!("not contiguous with event {head}")));
        }
    }
    Ok(records)
}

/// Returns the number of a session's last event.
pub(super) async fn load_head(
    read_pool: &ReadPool,
    session_id: SessionId,
) -> Result<Seq, JournalError> {
    match fetch_optional(read_pool, SqlQuery::new(SELECT_HEAD).bind(session_id.0)).await? {
        Some(row) => unsigned_column(&row, 0).map(Seq),
        None => Ok(Seq(0)),
    }
}

/// Returns a session's row.
pub(super) async fn load_session(
    read_pool: &ReadPool,
    session_id: SessionId,
) -> Result<Option<SessionRow>, JournalError> {
    let row = fetch_optional(read_pool, SqlQuery::new(SELECT_SESSION).bind(session_id.0)).await?;
    row.map(|row| decode_row(&row, "session")).transpose()
}

/// Returns sessions, newest first.
pub(super) async fn list_sessions(
    read_pool: &ReadPool,
    query: SessionQuery,
) -> Result<Vec<SessionRow>, JournalError> {
    let rows = fetch_all(read_pool, select_sessions(&query)).await?;
    rows.iter().map(|row| decode_row(row, "session")).collect()
}

/// Returns the sessions whose status is `running`, oldest first.
pub(super) async fn list_unfinished_sessions(
    read_pool: &ReadPool,
) -> Result<Vec<SessionId>, JournalError> {
    let rows = fetch_all(read_pool, SqlQuery::new(SELECT_UNFINISHED)).await?;
    rows.iter().map(|row| column_value(row.id(0)).map(SessionId)).collect()
}

/// Returns the number of a user's open sessions, and the number of those that have a run.
pub(super) async fn count_sessions(
    read_pool: &ReadPool,
    owner: &UserId,
) -> Result<SessionCounts, JournalError> {
    match fetch_optional(read_pool, SqlQuery::new(COUNT_SESSIONS).bind(owner.as_str())).await? {
        Some(row) => Ok(SessionCounts {
            open: unsigned_column(&row, 0)?,
            running: unsigned_column(&row, 1)?,
        }),
        None => Ok(SessionCounts::default()),
    }
}

/// Returns an approval.
pub(super) async fn load_approval(
    read_pool: &ReadPool,
    approval_id: ApprovalId,
) -> Result<Option<ApprovalRow>, JournalError> {
    let row = fetch_optional(read_pool, SqlQuery::new(SELECT_APPROVAL).bind(approval_id.0)).await?;
    row.map(|row| decode_row(&row, "approval")).transpose()
}

/// Returns approvals, newest first.
pub(super) async fn list_approvals(
    read_pool: &ReadPool,
    query: ApprovalQuery,
) -> Result<Vec<ApprovalRow>, JournalError> {
    let rows = fetch_all(read_pool, select_approvals(&query)).await?;
    rows.iter().map(|row| decode_row(row, "approval")).collect()
}

/// Returns the approvals with this call among their steps, newest first.
pub(super) async fn list_approvals_of_call(
    read_pool: &ReadPool,
    call_id: CallId,
) -> Result<Vec<ApprovalRow>, JournalError> {
    let query = SqlQuery::new(SELECT_APPROVALS_OF_CALL)
        .bind(call_id.to_string().as_str())
        .bind(to_sql_limit(APPROVALS_OF_CALL_MAX));
    let rows = fetch_all(read_pool, query).await?;
    rows.iter().map(|row| decode_row(row, "approval")).collect()
}

/// Returns all pending approvals with their deadlines, oldest first.
pub(super) async fn list_pending_deadlines(
    read_pool: &ReadPool,
) -> Result<Vec<(ApprovalId, SessionId, Option<Timestamp>)>, JournalError> {
    let rows = fetch_all(read_pool, SqlQuery::new(SELECT_PENDING)).await?;
    let decode = |row: &SqlRow| {
        let deadline = column_value(row.optional_number(2))?.map(Timestamp);
        Ok((ApprovalId(column_value(row.id(0))?), SessionId(column_value(row.id(1))?), deadline))
    };
    rows.iter().map(decode).collect()
}

/// Returns a user's settings.
pub(super) async fn load_settings(
    read_pool: &ReadPool,
    user: &UserId,
) -> Result<Option<Settings>, JournalError> {
    let row = fetch_optional(read_pool, SqlQuery::new(SELECT_SETTINGS).bind(user.as_str())).await?;
    let Some(row) = row else { return Ok(None) };
    let settings = serde_json::from_str(column_value(row.text(0))?);
    settings
        .map(Some)
        .map_err(|error| JournalError::Corrupt(format!("the settings of user {user}: {error}")))
}

/// Returns the user's spending for each measure, as of `today`. Adds up here, because SQLite has no
/// decimal numbers.
pub(super) async fn load_spending(
    read_pool: &ReadPool,
    user: &UserId,
    today: Day,
) -> Result<BTreeMap<BudgetMeasure, SpendingTotals>, JournalError> {
    let rows = fetch_all(read_pool, SqlQuery::new(SELECT_SPENDING).bind(user.as_str())).await?;
    let mut spending: BTreeMap<BudgetMeasure, SpendingTotals> = BTreeMap::new();
    for row in &rows {
        let measure = BudgetMeasure::from_name(column_value(row.text(0))?);
        let day = i32::try_from(column_value(row.number(1))?).unwrap_or(i32::MAX);
        let amount = column_value(row.amount(2))?;
        spending.entry(measure).or_default().add(Day(day), amount, today);
    }
    Ok(spending)
}

/// Checks that reading works.
pub(super) async fn check_health(read_pool: &ReadPool) -> Result<(), JournalError> {
    fetch_optional(read_pool, SqlQuery::new(SELECT_HEARTBEAT)).await.map(drop)
}

fn select_sessions(query: &SessionQuery) -> SqlQuery {
    let mut sql = SqlQuery::new("SELECT session_id, content FROM sessions WHERE true");
    if let Some(owner) = &query.owner {
        sql.push_bind(" AND owner = ", owner.as_str());
    }
    match query.parent_filter {
        ParentFilter::Any => {}
        ParentFilter::Roots => {
            sql.push(" AND parent IS NULL");
        }
        ParentFilter::ChildrenOf(parent) => {
            sql.push_bind(" AND parent = ", parent.to_string().as_str());
        }
    }
    if let Some(before) = query.before {
        sql.push_bind(" AND session_id < ", before.0);
    }
    sql.push_bind(" ORDER BY session_id DESC LIMIT 0 + ", to_sql_limit(query.limit));
    sql
}

fn select_approvals(query: &ApprovalQuery) -> SqlQuery {
    const SELECT: &str = "SELECT approval_id, content FROM approvals WHERE true";
    let mut sql = SqlQuery::new(SELECT);
    if let Some(session_id) = query.session_id {
        // Two selects, each with its own index. Their results are disjoint.
        sql.push_bind(" AND session_id = ", session_id.0);
        push_filters(&mut sql, query);
        sql.push(" UNION ALL ").push(SELECT);
        sql.push_bind(" AND root = ", session_id.to_string().as_str());
    }
    push_filters(&mut sql, query);
    sql.push_bind(" ORDER BY approval_id DESC LIMIT 0 + ", to_sql_limit(query.limit));
    sql
}

fn push_filters(sql: &mut SqlQuery, query: &ApprovalQuery) {
    if let Some(owner) = &query.owner {
        sql.push_bind(" AND owner = ", owner.as_str());
    }
    if let Some(state) = query.state {
        // Part of the text and not a bound value, so that the partial index of pending rows is
        // used.
        sql.push(" AND state = '").push(state_name(state)).push("'");
    }
    if let Some(before) = query.before {
        sql.push_bind(" AND approval_id < ", before.0);
    }
}

/// Decodes the row stored as JSON in column 1. Column 0 has the row's id.
fn decode_row<T: DeserializeOwned>(row: &SqlRow, row_kind: &str) -> Result<T, JournalError> {
    serde_json::from_str(column_value(row.text(1))?).map_err(|error| {
        match column_value(row.id(0)) {
            Ok(id) => JournalError::Corrupt(format!("the row of {row_kind} {id}: {error}")),
            Err(id_error) => id_error,
        }
    })
}

pub(super) async fn fetch_all(
    read_pool: &ReadPool,
    query: SqlQuery,
) -> Result<Vec<SqlRow>, JournalError> {
    read_pool.fetch_all(query).await.map_err(|error| journal_error(&error))
}

pub(super) async fn fetch_optional(
    read_pool: &ReadPool,
    query: SqlQuery,
) -> Result<Option<SqlRow>, JournalError> {
    read_pool.fetch_optional(query).await.map_err(|error| journal_error(&error))
}

/// Converts the error of reading a column to the port's error.
pub(super) fn column_value<T>(column: sqlx::Result<T>) -> Result<T, JournalError> {
    column.map_err(|error| journal_error(&error))
}

fn unsigned_column(row: &SqlRow, index: usize) -> Result<u64, JournalError> {
    let number = column_value(row.number(index))?;
    u64::try_from(number)
        .map_err(|_| JournalError::Corrupt(format!("{number} is not a valid count")))
}

/// Converts a row limit to an SQL value.
pub(super) fn to_sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Returns every query of the session tables with the SQLite index it must use.
#[cfg(test)]
pub(super) fn every_query() -> Vec<(SqlQuery, &'static str)> {
    let nil = uuid::Uuid::nil();
    let text = |sql| SqlQuery::new(sql).bind("x");
    let id = |sql| SqlQuery::new(sql).bind(nil);
    let owner = || Some(UserId::parse("alice").unwrap());
    let session_id = Some(SessionId(nil));
    let sessions = |owner, parent_filter| {
        select_sessions(&SessionQuery { owner, parent_filter, before: session_id, limit: 1 })
    };
    let (any, roots) = (ParentFilter::Any, ParentFilter::Roots);
    let children = ParentFilter::ChildrenOf(SessionId(nil));
    let approvals = |owner, session_id, state| {
        let before = Some(ApprovalId(nil));
        select_approvals(&ApprovalQuery { owner, session_id, state, before, limit: 1 })
    };
    let pending = Some(greenroom_core::session::ApprovalState::Pending);
    vec![
        (id(SELECT_COMMITS).bind(1).bind(1), "commits_by_session"),
        (id(SELECT_HEAD), "commits_by_session"),
        (id(SELECT_SESSION), "PRIMARY KEY"),
        (SqlQuery::new(SELECT_UNFINISHED), "sessions_running"),
        (text(COUNT_SESSIONS), "COVERING INDEX sessions_open"),
        (id(SELECT_APPROVAL), "approvals_by_id"),
        (text(SELECT_APPROVALS_OF_CALL).bind(1), "approvals_by_id"),
        (text(SELECT_APPROVALS_OF_CALL).bind(1), "PRIMARY KEY (call_id=?)"),
        (SqlQuery::new(SELECT_PENDING), "COVERING INDEX approvals_pending"),
        (text(SELECT_SETTINGS), "PRIMARY KEY"),
        (text(SELECT_SPENDING).bind(1).bind(1), "PRIMARY KEY"),
        (sessions(None, any), "PRIMARY KEY"),
        (sessions(None, roots), "PRIMARY KEY"),
        (sessions(None, children), "sessions_by_parent"),
        (sessions(owner(), any), "sessions_by_owner"),
        (sessions(owner(), roots), "sessions_without_parent"),
        (sessions(owner(), children), "sessions_by_parent"),
        (approvals(None, None, None), "approvals_by_id"),
        (approvals(None, None, pending), "approvals_pending"),
        (approvals(owner(), None, None), "approvals_by_owner"),
        (approvals(None, session_id, None), "approvals_by_session"),
        (approvals(None, session_id, None), "approvals_by_root"),
    ]
}
