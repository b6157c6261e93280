//! What is read from the database, whichever it is. Must not write.

use super::{
    codec,
    error::journal_error,
    query::{Query, Readers, Row},
    stored::state_name,
};
use futures::TryStreamExt as _;
use greenroom_actors::ports::{ApprovalQuery, Descent, JournalError, SessionCounts, SessionQuery};
use greenroom_core::{
    Timestamp,
    budget::{Measure, Spent},
    ids::{ApprovalId, Seq, SessionId, UserId},
    policy::Settings,
    session::{ApprovalRow, EventRecord, SessionRow},
    time::Day,
};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// The commits that hold the events after `$2`, the first of which may begin before them. `$3` is
/// at least their number, as each holds at least one of the events. A sum, as every limit here: SQLite
/// looks at the value of a bare limit, and prepares the statement anew whenever it is bound.
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
const SELECT_PENDING: &str = "SELECT approval_id, session_id, deadline FROM approvals
    WHERE state = 'pending' ORDER BY approval_id";
const SELECT_SETTINGS: &str = "SELECT content FROM user_settings WHERE user_id = $1";
const SELECT_SPENT: &str = "
    SELECT measure,
           sum(amount) FILTER (WHERE day >= $2), sum(amount) FILTER (WHERE day >= $3), sum(amount)
    FROM spending WHERE user_id = $1 GROUP BY measure";
const SELECT_BEAT: &str = "SELECT beat FROM heartbeat";

/// The events of a session after `after`, at most `limit`.
pub(super) async fn events(
    readers: &Readers,
    session_id: SessionId,
    after: Seq,
    limit: usize,
) -> Result<Vec<EventRecord>, JournalError> {
    let mut records: Vec<EventRecord> = Vec::new();
    // No event has a number beyond what the column holds.
    let after_seq = after.0.cast_signed();
    if !(0..i64::MAX).contains(&after_seq) {
        return Ok(records);
    }
    let query = Query::new(SELECT_COMMITS).bind(session_id.0).bind(after_seq).bind(rows(limit));
    let mut commits = readers.rows(query);
    while records.len() < limit
        && let Some(commit) = commits.try_next().await.map_err(|e| journal_error(&e))?
    {
        let first = Seq(count(&commit, 0)?);
        let last = Seq(count(&commit, 1)?);
        let corrupt = |why: String| {
            JournalError::Corrupt(format!(
                "events {first} to {last} of session {session_id}: {why}"
            ))
        };
        let format = commit.number(2).map_err(|error| journal_error(&error))?;
        let text = commit.text(3).map_err(|error| corrupt(error.to_string()))?;
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
pub(super) async fn head(readers: &Readers, session_id: SessionId) -> Result<Seq, JournalError> {
    match first(readers, Query::new(SELECT_HEAD).bind(session_id.0)).await? {
        Some(row) => count(&row, 0).map(Seq),
        None => Ok(Seq(0)),
    }
}

/// One session's row.
pub(super) async fn session(
    readers: &Readers,
    session_id: SessionId,
) -> Result<Option<SessionRow>, JournalError> {
    let found = first(readers, Query::new(SELECT_SESSION).bind(session_id.0)).await?;
    found.map(|row| content(&row, "session")).transpose()
}

/// Sessions, newest first.
pub(super) async fn sessions(
    readers: &Readers,
    query: SessionQuery,
) -> Result<Vec<SessionRow>, JournalError> {
    let found = all(readers, select_sessions(&query)).await?;
    found.iter().map(|row| content(row, "session")).collect()
}

/// Sessions whose status is `running`, oldest first.
pub(super) async fn unfinished_sessions(readers: &Readers) -> Result<Vec<SessionId>, JournalError> {
    let found = all(readers, Query::new(SELECT_UNFINISHED)).await?;
    found.iter().map(|row| taken(row.id(0)).map(SessionId)).collect()
}

/// How many sessions of a user are open, and how many of those have a run.
pub(super) async fn session_counts(
    readers: &Readers,
    owner: &UserId,
) -> Result<SessionCounts, JournalError> {
    match first(readers, Query::new(COUNT_SESSIONS).bind(owner.as_str())).await? {
        Some(row) => Ok(SessionCounts { open: count(&row, 0)?, running: count(&row, 1)? }),
        None => Ok(SessionCounts::default()),
    }
}

/// One question.
pub(super) async fn approval(
    readers: &Readers,
    approval_id: ApprovalId,
) -> Result<Option<ApprovalRow>, JournalError> {
    let found = first(readers, Query::new(SELECT_APPROVAL).bind(approval_id.0)).await?;
    found.map(|row| content(&row, "approval")).transpose()
}

/// Questions, newest first.
pub(super) async fn approvals(
    readers: &Readers,
    query: ApprovalQuery,
) -> Result<Vec<ApprovalRow>, JournalError> {
    let found = all(readers, select_approvals(&query)).await?;
    found.iter().map(|row| content(row, "approval")).collect()
}

/// All questions that wait, oldest first, with their deadlines.
pub(super) async fn pending_deadlines(
    readers: &Readers,
) -> Result<Vec<(ApprovalId, SessionId, Option<Timestamp>)>, JournalError> {
    let found = all(readers, Query::new(SELECT_PENDING)).await?;
    let read = |row: &Row| {
        let deadline = taken(row.optional_number(2))?.map(Timestamp);
        Ok((ApprovalId(taken(row.id(0))?), SessionId(taken(row.id(1))?), deadline))
    };
    found.iter().map(read).collect()
}

/// A user's settings.
pub(super) async fn settings(
    readers: &Readers,
    user: &UserId,
) -> Result<Option<Settings>, JournalError> {
    let found = first(readers, Query::new(SELECT_SETTINGS).bind(user.as_str())).await?;
    let Some(row) = found else { return Ok(None) };
    let settings = serde_json::from_str(taken(row.text(0))?);
    settings
        .map(Some)
        .map_err(|error| JournalError::Corrupt(format!("the settings of user {user}: {error}")))
}

/// What the user has spent of each measure by `today`.
pub(super) async fn spent(
    readers: &Readers,
    user: &UserId,
    today: Day,
) -> Result<BTreeMap<Measure, Spent>, JournalError> {
    let (today, month) = (i64::from(today.0), i64::from(today.first_of_month().0));
    let query = Query::new(SELECT_SPENT).bind(user.as_str()).bind(today).bind(month);
    let found = all(readers, query).await?;
    let amount = |row: &Row, index| Ok(taken(row.optional_amount(index))?.unwrap_or(0.0));
    found
        .iter()
        .map(|row| {
            let (day, month, total) = (amount(row, 1)?, amount(row, 2)?, amount(row, 3)?);
            Ok((Measure::named(taken(row.text(0))?), Spent { day, month, total }))
        })
        .collect()
}

/// Whether reading works.
pub(super) async fn check(readers: &Readers) -> Result<(), JournalError> {
    first(readers, Query::new(SELECT_BEAT)).await.map(drop)
}

fn select_sessions(query: &SessionQuery) -> Query {
    let mut sql = Query::new("SELECT session_id, content FROM sessions WHERE true");
    if let Some(owner) = &query.owner {
        sql.push_bind(" AND owner = ", owner.as_str());
    }
    match query.descent {
        Descent::Any => {}
        Descent::Roots => {
            sql.push(" AND parent IS NULL");
        }
        Descent::ChildrenOf(parent) => {
            sql.push_bind(" AND parent = ", parent.to_string().as_str());
        }
    }
    if let Some(before) = query.before {
        sql.push_bind(" AND session_id < ", before.0);
    }
    sql.push_bind(" ORDER BY session_id DESC LIMIT 0 + ", rows(query.limit));
    sql
}

fn select_approvals(query: &ApprovalQuery) -> Query {
    const SELECT: &str = "SELECT approval_id, content FROM approvals WHERE true";
    let mut sql = Query::new(SELECT);
    if let Some(session_id) = query.session_id {
        // Two questions in one, each with its index: no question stands in both answers.
        sql.push_bind(" AND session_id = ", session_id.0);
        push_filters(&mut sql, query);
        sql.push(" UNION ALL ").push(SELECT);
        sql.push_bind(" AND root = ", session_id.to_string().as_str());
    }
    push_filters(&mut sql, query);
    sql.push_bind(" ORDER BY approval_id DESC LIMIT 0 + ", rows(query.limit));
    sql
}

fn push_filters(sql: &mut Query, query: &ApprovalQuery) {
    if let Some(owner) = &query.owner {
        sql.push_bind(" AND owner = ", owner.as_str());
    }
    if let Some(state) = query.state {
        // Part of the text, not a bound value: only so can the index of what is pending be used.
        sql.push(" AND state = '").push(state_name(state)).push("'");
    }
    if let Some(before) = query.before {
        sql.push_bind(" AND approval_id < ", before.0);
    }
}

/// The row kept as JSON in column 1; its id is in column 0.
fn content<T: DeserializeOwned>(row: &Row, what: &str) -> Result<T, JournalError> {
    serde_json::from_str(taken(row.text(1))?).map_err(|error| match taken(row.id(0)) {
        Ok(id) => JournalError::Corrupt(format!("the row of {what} {id}: {error}")),
        Err(id_too) => id_too,
    })
}

pub(super) async fn all(readers: &Readers, query: Query) -> Result<Vec<Row>, JournalError> {
    readers.all(query).await.map_err(|error| journal_error(&error))
}

pub(super) async fn first(readers: &Readers, query: Query) -> Result<Option<Row>, JournalError> {
    readers.first(query).await.map_err(|error| journal_error(&error))
}

/// What a column holds, with the port's error.
pub(super) fn taken<T>(column: sqlx::Result<T>) -> Result<T, JournalError> {
    column.map_err(|error| journal_error(&error))
}

fn count(row: &Row, index: usize) -> Result<u64, JournalError> {
    let number = taken(row.number(index))?;
    u64::try_from(number)
        .map_err(|_| JournalError::Corrupt(format!("{number} stands where a count is expected")))
}

/// A limit on rows, as SQL has it.
pub(super) fn rows(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Every question that is asked of the tables of sessions, and the index that answers it on SQLite.
#[cfg(test)]
pub(super) fn every_query() -> Vec<(Query, &'static str)> {
    let nil = uuid::Uuid::nil();
    let text = |sql| Query::new(sql).bind("x");
    let id = |sql| Query::new(sql).bind(nil);
    let owner = || Some(UserId::parse("alice").unwrap());
    let session_id = Some(SessionId(nil));
    let sessions = |owner, descent| {
        select_sessions(&SessionQuery { owner, descent, before: session_id, limit: 1 })
    };
    let (any, roots) = (Descent::Any, Descent::Roots);
    let children = Descent::ChildrenOf(SessionId(nil));
    let approvals = |owner, session_id, state| {
        let before = Some(ApprovalId(nil));
        select_approvals(&ApprovalQuery { owner, session_id, state, before, limit: 1 })
    };
    let pending = Some(greenroom_core::session::ApprovalState::Pending);
    vec![
        (id(SELECT_COMMITS).bind(1).bind(1), "commits_by_session"),
        (id(SELECT_HEAD), "commits_by_session"),
        (id(SELECT_SESSION), "PRIMARY KEY"),
        (Query::new(SELECT_UNFINISHED), "sessions_running"),
        (text(COUNT_SESSIONS), "COVERING INDEX sessions_open"),
        (id(SELECT_APPROVAL), "approvals_by_id"),
        (Query::new(SELECT_PENDING), "COVERING INDEX approvals_pending"),
        (text(SELECT_SETTINGS), "PRIMARY KEY"),
        (text(SELECT_SPENT).bind(1).bind(1), "PRIMARY KEY"),
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
