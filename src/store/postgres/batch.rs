//! Stores a group of commits in PostgreSQL with one statement, which is atomic without an explicit
//! transaction. Must not know the callers, nor decide if a commit may be appended.

use super::replace_nul;
use crate::{
    audit::AuditRow,
    store::{
        codec,
        stored_commit::{StoredApproval, StoredCommit, StoredSession},
    },
};
use greenroom_core::{
    amount::Amount,
    ids::{ApprovalId, SessionId},
};
use sqlx::PgConnection;
use std::collections::BTreeMap;
use uuid::Uuid;

const INSERT_COMMITS: &str = "
    INSERT INTO commits (session_id, first_seq, last_seq, at, codec, events)
    SELECT session_id, first_seq, last_seq, at, $6, events
    FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[])
    AS new (session_id, first_seq, last_seq, at, events)";

/// The same, with the rows derived from the log. A row that several commits of the group change
/// occurs once, with its last value: one statement can't change a row twice.
const STORE_ALL: &str = "
    WITH new_commits AS (
        INSERT INTO commits (session_id, first_seq, last_seq, at, codec, events)
        SELECT session_id, first_seq, last_seq, at, $6, events
        FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[])
        AS new (session_id, first_seq, last_seq, at, events)
    ), new_sessions AS (
        INSERT INTO sessions (session_id, owner, status, content)
        SELECT * FROM unnest($7::uuid[], $8::text[], $9::text[], $10::text[])
        ON CONFLICT (session_id) DO UPDATE
        SET content = excluded.content, owner = excluded.owner, status = excluded.status
    ), new_approvals AS (
        INSERT INTO approvals (approval_id, session_id, owner, state, deadline, content)
        SELECT * FROM unnest($11::uuid[], $12::uuid[], $13::text[], $14::text[], $15::bigint[],
                             $16::text[])
        ON CONFLICT (approval_id) DO UPDATE
        SET content = excluded.content, owner = excluded.owner, state = excluded.state,
            deadline = excluded.deadline
    ), new_audit AS (
        INSERT INTO audit (n, hash, content)
        SELECT * FROM unnest($17::bigint[], $18::bytea[], $19::text[])
    ), new_head AS (
        UPDATE audit_head SET n = $20, hash = $21 WHERE $20 IS NOT NULL
    )
    INSERT INTO spending (user_id, measure, day, amount)
    SELECT user_id, measure, day, amount::numeric
    FROM unnest($22::text[], $23::text[], $24::bigint[], $25::text[])
    AS new (user_id, measure, day, amount)
    ON CONFLICT (user_id, measure, day) DO UPDATE SET amount = spending.amount + excluded.amount";

type Statement<'q> = sqlx::query::Query<'q, sqlx::Postgres, sqlx::postgres::PgArguments>;

/// Stores all commits and their rows of the audit log atomically.
pub(super) async fn store_commits(
    connection: &mut PgConnection,
    commits: &[&StoredCommit],
    audit_rows: &[AuditRow],
) -> sqlx::Result<()> {
    let sessions: BTreeMap<SessionId, &StoredSession> = commits
        .iter()
        .filter_map(|commit| Some((commit.session_id, commit.session.as_ref()?)))
        .collect();
    let approvals: BTreeMap<ApprovalId, (SessionId, &StoredApproval)> = commits
        .iter()
        .flat_map(|commit| commit.approvals.iter().map(|row| (row.id, (commit.session_id, row))))
        .collect();
    let spending = sum_spends(commits);
    let is_only_events =
        sessions.is_empty() && approvals.is_empty() && audit_rows.is_empty() && spending.is_empty();
    let query = if is_only_events {
        bind_commits(sqlx::query(INSERT_COMMITS), commits)
    } else {
        let query = bind_commits(sqlx::query(STORE_ALL), commits);
        let query = bind_approvals(bind_sessions(query, &sessions), &approvals);
        bind_spends(bind_audit(query, audit_rows), spending)
    };
    query.execute(connection).await.map(drop)
}

fn bind_commits<'q>(query: Statement<'q>, commits: &'q [&StoredCommit]) -> Statement<'q> {
    query
        .bind(collect_column(commits, |commit| commit.session_id.0))
        .bind(collect_column(commits, |commit| commit.expected_head.next().0.cast_signed()))
        .bind(collect_column(commits, |commit| commit.last_seq.0.cast_signed()))
        .bind(collect_column(commits, |commit| commit.at))
        .bind(collect_column(commits, |commit| commit.events.as_str()))
        .bind(codec::FORMAT)
}

fn bind_sessions<'q>(
    query: Statement<'q>,
    rows: &BTreeMap<SessionId, &'q StoredSession>,
) -> Statement<'q> {
    query
        .bind(rows.keys().map(|id| id.0).collect::<Vec<Uuid>>())
        .bind(rows.values().map(|row| row.owner.as_str()).collect::<Vec<_>>())
        .bind(rows.values().map(|row| row.status).collect::<Vec<_>>())
        .bind(rows.values().map(|row| row.content.as_str()).collect::<Vec<_>>())
}

fn bind_approvals<'q>(
    query: Statement<'q>,
    rows: &BTreeMap<ApprovalId, (SessionId, &'q StoredApproval)>,
) -> Statement<'q> {
    query
        .bind(rows.keys().map(|id| id.0).collect::<Vec<Uuid>>())
        .bind(rows.values().map(|(session_id, _)| session_id.0).collect::<Vec<Uuid>>())
        .bind(rows.values().map(|(_, row)| row.owner.as_str()).collect::<Vec<_>>())
        .bind(rows.values().map(|(_, row)| row.state).collect::<Vec<_>>())
        .bind(rows.values().map(|(_, row)| row.deadline).collect::<Vec<_>>())
        .bind(rows.values().map(|(_, row)| row.content.as_str()).collect::<Vec<_>>())
}

/// Binds the new rows and the new head, which is null if there are no rows.
fn bind_audit<'q>(query: Statement<'q>, audit_rows: &'q [AuditRow]) -> Statement<'q> {
    let last = audit_rows.last();
    query
        .bind(collect_column(audit_rows, |row| row.n.cast_signed()))
        .bind(collect_column(audit_rows, |row| row.hash.as_bytes().to_vec()))
        .bind(collect_column(audit_rows, |row| row.content.as_str()))
        .bind(last.map(|row| row.n.cast_signed()))
        .bind(last.map(|row| row.hash.as_bytes().to_vec()))
}

/// A user, a measure and a day.
type SpendKey = (String, String, i64);

fn bind_spends(query: Statement<'_>, spending: BTreeMap<SpendKey, Amount>) -> Statement<'_> {
    let (mut users, mut measures, mut days) = (Vec::new(), Vec::new(), Vec::new());
    let amounts: Vec<_> = spending.values().map(|amount| amount.to_plain_text()).collect();
    for (user, measure, day) in spending.into_keys() {
        users.push(user);
        measures.push(measure);
        days.push(day);
    }
    query.bind(users).bind(measures).bind(days).bind(amounts)
}

/// Returns the sums that the commits add to their users' spending.
fn sum_spends(commits: &[&StoredCommit]) -> BTreeMap<SpendKey, Amount> {
    let mut spending = BTreeMap::new();
    for update in commits.iter().filter_map(|commit| commit.spending_update.as_ref()) {
        for entry in &update.entries {
            let measure = replace_nul(entry.measure.name().to_owned());
            let key = (update.user.to_string(), measure, i64::from(entry.day.0));
            *spending.entry(key).or_insert(Amount::ZERO) += entry.amount;
        }
    }
    spending
}

fn collect_column<'r, R, T>(rows: &'r [R], value_of: impl Fn(&'r R) -> T) -> Vec<T> {
    rows.iter().map(value_of).collect()
}
