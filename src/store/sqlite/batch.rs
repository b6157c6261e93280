//! A group of commits as one write to SQLite: the one piece of SQL that stores them all or none. Must not know who waits for the answers, nor which commits may be appended.
//!
//! SQLite gets the rows of a table as two values: the raw bytes of all of them, one after another,
//! and a small JSON array that says where each begins and what its columns are. So the large texts
//! are copied, never parsed, by SQLite, and a group costs one hand-over to the connection's thread
//! however many sessions are in it.

use crate::{
    audit::Sealed,
    store::{codec, stored::Encoded},
};
use greenroom_core::budget::Spend;
use serde_json::json;
use sqlx::SqliteConnection;

const INSERT_COMMITS: &str = "
    INSERT INTO commits (session_id, first_seq, last_seq, at, codec, events)
    SELECT substr(?2, value->>0, 16), value->>2, value->>3, value->>4, value->>5,
           CAST(substr(?2, (value->>0) + 16, value->>1) AS TEXT)
    FROM json_each(?1)";

/// `$7` and `$8` are the audit log's new rows, `$9` and `$10` its head. Named so, and not `?7`,
/// each statement has no more parameters than it uses.
macro_rules! store_all {
    ($($audit:literal)?) => {
        concat!(
            "BEGIN IMMEDIATE;
    INSERT INTO commits (session_id, first_seq, last_seq, at, codec, events)
    SELECT substr($2, value->>0, 16), value->>2, value->>3, value->>4, value->>5,
           CAST(substr($2, (value->>0) + 16, value->>1) AS TEXT)
    FROM json_each($1);
    INSERT INTO sessions (session_id, content, owner, status)
    SELECT substr($4, value->>0, 16), CAST(substr($4, (value->>0) + 16, value->>1) AS TEXT),
           value->>2, value->>3
    FROM json_each($3) WHERE true
    ON CONFLICT (session_id) DO UPDATE
    SET content = excluded.content, owner = excluded.owner, status = excluded.status;
    INSERT INTO approvals (approval_id, content, session_id, owner, state, deadline)
    SELECT substr($6, value->>0, 16), CAST(substr($6, (value->>0) + 16, value->>1) AS TEXT),
           unhex(value->>2), value->>3, value->>4, value->>5
    FROM json_each($5) WHERE true
    ON CONFLICT (approval_id) DO UPDATE
    SET content = excluded.content, owner = excluded.owner, state = excluded.state,
        deadline = excluded.deadline;",
            $($audit,)?
            "COMMIT"
        )
    };
}

const STORE_ALL: &str = store_all!();
const STORE_AUDITED: &str = store_all!(
    "INSERT INTO audit (hash, content, n)
    SELECT substr($8, value->>0, 32), CAST(substr($8, (value->>0) + 32, value->>1) AS TEXT),
           value->>2
    FROM json_each($7);
    UPDATE audit_head SET n = $9, hash = $10;"
);
/// The same with spending; the audit log's head is null where the log has no new rows.
const STORE_POSTED: &str = store_all!(
    "INSERT INTO audit (hash, content, n)
    SELECT substr($8, value->>0, 32), CAST(substr($8, (value->>0) + 32, value->>1) AS TEXT),
           value->>2
    FROM json_each($7);
    UPDATE audit_head SET n = $9, hash = $10 WHERE $9 IS NOT NULL;
    INSERT INTO spending (user_id, measure, day, amount)
    SELECT value->>0, value->>1, value->>2, value->>3 FROM json_each($11) WHERE true
    ON CONFLICT (user_id, measure, day) DO UPDATE SET amount = amount + excluded.amount;"
);

/// The rows of one table: their bytes, and where each begins.
#[derive(Default)]
struct Slab {
    bytes: Vec<u8>,
    rows: String,
}

impl Slab {
    /// Adds a row: its id, which has the same length in each, its text, and its further columns as JSON values.
    fn push(&mut self, id: &[u8], text: &str, columns: &[serde_json::Value]) {
        // SQL counts from 1.
        let start = self.bytes.len() + 1;
        self.bytes.extend_from_slice(id);
        self.bytes.extend_from_slice(text.as_bytes());
        let separator = if self.rows.is_empty() { "[" } else { "," };
        self.rows.push_str(separator);
        self.rows.push_str(&format!("[{start},{}", text.len()));
        for column in columns {
            self.rows.push(',');
            self.rows.push_str(&column.to_string());
        }
        self.rows.push(']');
    }

    fn into_values(mut self) -> (String, Vec<u8>) {
        self.rows.push_str(if self.rows.is_empty() { "[]" } else { "]" });
        (self.rows, self.bytes)
    }
}

/// Stores all of these commits, with the rows of the audit log that they make, or, when it errs,
/// none; a transaction may then be open.
pub(super) async fn store(
    connection: &mut SqliteConnection,
    commits: &[&Encoded],
    sealed: &[Sealed],
) -> sqlx::Result<()> {
    let mut events = Slab::default();
    let mut sessions = Slab::default();
    let mut approvals = Slab::default();
    for commit in commits {
        let id = commit.session_id.0.as_bytes();
        let (first, last) = (commit.expected_head.next().0, commit.last_seq.0);
        let columns = [json!(first), json!(last), json!(commit.at), json!(codec::FORMAT)];
        events.push(id, &commit.events, &columns);
        if let Some(row) = &commit.session {
            sessions.push(id, &row.content, &[json!(row.owner), json!(row.status)]);
        }
        for row in &commit.approvals {
            let session_id = commit.session_id.0.simple().to_string();
            let columns =
                [json!(session_id), json!(row.owner), json!(row.state), json!(row.deadline)];
            approvals.push(row.id.0.as_bytes(), &row.content, &columns);
        }
    }
    let only_events = sessions.rows.is_empty() && approvals.rows.is_empty();
    let (rows, bytes) = events.into_values();
    let audited = sealed.last();
    let spends = spends_of(commits);
    // A transaction around a single statement costs more than the statement.
    let mut query = sqlx::query(match audited {
        _ if !spends.is_empty() => STORE_POSTED,
        Some(_) => STORE_AUDITED,
        None if only_events => INSERT_COMMITS,
        None => STORE_ALL,
    });
    query = query.bind(rows).bind(bytes);
    if !only_events || audited.is_some() || !spends.is_empty() {
        for slab in [sessions, approvals] {
            let (rows, bytes) = slab.into_values();
            query = query.bind(rows).bind(bytes);
        }
    }
    if audited.is_some() || !spends.is_empty() {
        let mut audit = Slab::default();
        sealed
            .iter()
            .for_each(|row| audit.push(row.hash.as_bytes(), &row.content, &[json!(row.n)]));
        let (rows, bytes) = audit.into_values();
        query = query.bind(rows).bind(bytes);
        query = query.bind(audited.map(|last| last.n.cast_signed()));
        query = query.bind(audited.map(|last| last.hash.as_bytes().to_vec()));
    }
    if !spends.is_empty() {
        query = query.bind(json!(spends).to_string());
    }
    query.execute(connection).await.map(drop)
}

/// What the commits add to their users' spending, as JSON values.
fn spends_of(commits: &[&Encoded]) -> Vec<serde_json::Value> {
    let postings = commits.iter().filter_map(|commit| commit.posting.as_ref());
    let rows = postings.flat_map(|posting| {
        let row = |spend: &Spend| json!([posting.user, spend.measure, spend.day.0, spend.amount]);
        posting.spends.iter().map(row)
    });
    rows.collect()
}
