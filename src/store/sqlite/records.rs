//! API keys and the audit log: the SQL of both, and the ports over it. Must not know what an entry
//! means. Entries that events make are written with them, in [`super::batch`].

use super::{
    SqliteJournal, base_options, file,
    read::{column, number, rows},
    schema,
    writer::Request,
};
use crate::{
    audit::{AuditLog, AuditQuery, Entry, Head, Sealed},
    auth::{ApiKey, KeyId, KeyStore, key::KEYS_MAX},
    store::{StoreError, StoreOptions, error::journal_error},
};
use async_trait::async_trait;
use greenroom_actors::ports::JournalError;
use greenroom_core::{Timestamp, ids::UserId, json::Digest};
use sqlx::{
    ConnectOptions as _, Connection as _, QueryBuilder, Row as _, Sqlite, SqliteConnection,
    SqlitePool, sqlite::SqliteRow,
};
use std::path::Path;
use uuid::Uuid;

/// Rows of the audit log that are read at once to check them.
const PAGE: usize = 1000;

const APPEND: &str = "
    INSERT INTO audit (n, hash, content) VALUES ($1, $2, $3);
    UPDATE audit_head SET n = $1, hash = $2";
const ADD_KEY: &str = "
    INSERT INTO api_keys (key_id, hash, user_id, role, name, created_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const REVOKE_KEY: &str =
    "UPDATE api_keys SET revoked_at = ?2 WHERE key_id = ?1 AND revoked_at IS NULL";
const SELECT_KEYS: &str = "SELECT key_id, user_id, role, name, created_at, revoked_at
    FROM api_keys ORDER BY key_id LIMIT ?1";
const SELECT_KEY: &str = "SELECT key_id, user_id, role, name, created_at, revoked_at
    FROM api_keys WHERE hash = ?1";
const SELECT_HEAD: &str = "SELECT n, hash FROM audit_head";

/// What is written together with an audit entry.
pub(super) enum Change {
    /// Nothing.
    None,
    /// A new key, with its hash.
    AddKey(Box<ApiKey>, Digest),
    /// A key that works no more.
    RevokeKey(KeyId, Timestamp),
}

/// Writes the change and the row of the audit log, both or, when it errs, neither; a transaction
/// may then be open.
pub(super) async fn write(
    connection: &mut SqliteConnection,
    change: &Change,
    row: &Sealed,
) -> sqlx::Result<()> {
    sqlx::query("BEGIN IMMEDIATE").execute(&mut *connection).await?;
    match change {
        Change::None => {}
        Change::AddKey(key, hash) => {
            let query = sqlx::query(ADD_KEY)
                .bind(key.key_id.0.as_bytes().to_vec())
                .bind(hash.as_bytes().to_vec())
                .bind(key.user.as_str())
                .bind(key.role.name())
                .bind(key.name.as_deref())
                .bind(key.created_at.0);
            query.execute(&mut *connection).await?;
        }
        Change::RevokeKey(key_id, at) => {
            let query = sqlx::query(REVOKE_KEY).bind(key_id.0.as_bytes().to_vec()).bind(at.0);
            query.execute(&mut *connection).await?;
        }
    }
    let query = sqlx::query(APPEND)
        .bind(row.n.cast_signed())
        .bind(row.hash.as_bytes().to_vec())
        .bind(&row.content);
    query.execute(&mut *connection).await?;
    sqlx::query("COMMIT").execute(connection).await.map(drop)
}

/// The noted end of the audit log.
pub(super) async fn head(connection: &mut SqliteConnection) -> sqlx::Result<Option<Head>> {
    let found = sqlx::query(SELECT_HEAD).fetch_optional(connection).await?;
    found
        .map(|row| Ok(Head { n: row.try_get::<i64, _>(0)?.unsigned_abs(), hash: hash(&row, 1)? }))
        .transpose()
}

/// Rows of the audit log.
fn select(query: &AuditQuery) -> QueryBuilder<Sqlite> {
    let mut sql = QueryBuilder::<Sqlite>::new("SELECT n, hash, content FROM audit WHERE n > ");
    sql.push_bind(query.after.min(i64::MAX as u64).cast_signed());
    if let Some(before) = query.before {
        sql.push(" AND n < ").push_bind(before.min(i64::MAX as u64).cast_signed());
    }
    if let Some(session_id) = query.session_id {
        sql.push(" AND session_id = ").push_bind(session_id.to_string());
    }
    if let Some(user) = &query.user {
        sql.push(" AND user_id = ").push_bind(user.clone());
    }
    if let Some(action) = query.action {
        sql.push(" AND action = ").push_bind(action.name());
    }
    sql.push(" ORDER BY n LIMIT ").push_bind(rows(query.limit));
    sql
}

/// A row that [`select`] found.
fn sealed(row: &SqliteRow) -> sqlx::Result<Sealed> {
    let n: i64 = row.try_get(0)?;
    Ok(Sealed { n: n.unsigned_abs(), hash: hash(row, 1)?, content: row.try_get(2)? })
}

/// A hash, whatever somebody may have put in its place: what is none matches nothing.
fn hash(row: &SqliteRow, index: usize) -> sqlx::Result<Digest> {
    let bytes: &[u8] = row.try_get(index)?;
    Ok(bytes.try_into().map_or_else(|_| Digest::of_bytes(bytes), |bytes: [u8; 32]| bytes.into()))
}

/// Shows `each` the rows of the audit log in order until it returns false; tells the log's noted
/// end. Sees one moment of the database, though a server may be writing it.
pub(in crate::store) async fn each_audit_row(
    path: &Path,
    mut each: impl FnMut(Sealed) -> bool,
) -> Result<Option<Head>, StoreError> {
    let path = file::existing(path)?;
    let failed = |source| StoreError::Open { path: path.clone(), source };
    let options = base_options(&path, &StoreOptions::default()).read_only(true);
    let mut connection = options.connect().await.map_err(failed)?;
    let version = schema::version(&mut connection, &path).await?;
    schema::check_is_newest(version, &path)?;
    let noted = walk(&mut connection, &mut each).await.map_err(failed)?;
    connection.close().await.map_err(failed)?;
    Ok(noted)
}

async fn walk(
    connection: &mut SqliteConnection,
    each: &mut impl FnMut(Sealed) -> bool,
) -> sqlx::Result<Option<Head>> {
    let mut transaction = connection.begin().await?;
    let mut query = AuditQuery { limit: PAGE, ..AuditQuery::default() };
    loop {
        let page = select(&query).build().fetch_all(&mut *transaction).await?;
        for row in &page {
            let row = sealed(row)?;
            query.after = row.n;
            if !each(row) {
                return Ok(None);
            }
        }
        if page.len() < PAGE {
            break;
        }
    }
    let noted = head(&mut transaction).await?;
    transaction.commit().await?;
    Ok(noted)
}

/// All keys, oldest first.
pub(super) async fn keys(pool: &SqlitePool) -> Result<Vec<ApiKey>, JournalError> {
    let query = sqlx::query(SELECT_KEYS).bind(rows(KEYS_MAX));
    let found = query.fetch_all(pool).await.map_err(|error| journal_error(&error))?;
    found.iter().map(key).collect()
}

#[async_trait]
impl AuditLog for SqliteJournal {
    async fn append_audit(&self, entry: Entry) -> Result<(), JournalError> {
        self.writer.ask(|| Ok(Request::Record { change: Change::None, entry })).await
    }

    async fn audit(&self, query: AuditQuery) -> Result<Vec<Sealed>, JournalError> {
        let mut sql = select(&query);
        let found = sql.build().fetch_all(&self.readers).await;
        let found = found.map_err(|error| journal_error(&error))?;
        found.iter().map(|row| sealed(row).map_err(|error| journal_error(&error))).collect()
    }
}

#[async_trait]
impl KeyStore for SqliteJournal {
    async fn add_key(&self, key: &ApiKey, hash: Digest, entry: Entry) -> Result<(), JournalError> {
        let change = Change::AddKey(Box::new(key.clone()), hash);
        self.writer.ask(|| Ok(Request::Record { change, entry })).await
    }

    async fn revoke_key(
        &self,
        key_id: KeyId,
        at: Timestamp,
        entry: Entry,
    ) -> Result<(), JournalError> {
        let change = Change::RevokeKey(key_id, at);
        self.writer.ask(|| Ok(Request::Record { change, entry })).await
    }

    async fn keys(&self) -> Result<Vec<ApiKey>, JournalError> {
        keys(&self.readers).await
    }

    async fn key_of(&self, hash: Digest) -> Result<Option<ApiKey>, JournalError> {
        let query = sqlx::query(SELECT_KEY).bind(hash.as_bytes().to_vec());
        let found = query.fetch_optional(&self.readers).await;
        found.map_err(|error| journal_error(&error))?.as_ref().map(key).transpose()
    }
}

fn key(row: &SqliteRow) -> Result<ApiKey, JournalError> {
    let corrupt = |what: &dyn std::fmt::Display| JournalError::Corrupt(format!("a key: {what}"));
    let id = Uuid::from_slice(column(row, 0)?).map_err(|error| corrupt(&error))?;
    Ok(ApiKey {
        key_id: KeyId(id),
        user: UserId::parse(column(row, 1)?).map_err(|error| corrupt(&error))?,
        role: column::<&str>(row, 2)?.parse().map_err(|error| corrupt(&error))?,
        name: column(row, 3)?,
        created_at: Timestamp(number(row, 4)?.cast_signed()),
        revoked_at: column::<Option<i64>>(row, 5)?.map(Timestamp),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::Action;
    use greenroom_core::ids::SessionId;
    use sqlx::{AssertSqlSafe, Execute as _};

    /// However long the log is, its questions find their answers through an index. The keys, which
    /// are few, are listed from end to end.
    #[tokio::test]
    async fn no_query_looks_through_the_audit_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("green.db");
        let journal = SqliteJournal::open(&path, StoreOptions::default()).await.unwrap();
        let all = AuditQuery { before: Some(9), limit: 1, ..AuditQuery::default() };
        let session = AuditQuery { session_id: Some(SessionId(Uuid::nil())), ..all.clone() };
        let user = AuditQuery { user: Some("ada".to_owned()), ..all.clone() };
        let action = AuditQuery { action: Some(Action::KeyCreated), ..all.clone() };
        let fixed =
            [(SELECT_KEY.to_owned(), "api_keys"), (SELECT_KEYS.to_owned(), "SCAN api_keys")];
        let queries = [
            (all, "PRIMARY KEY"),
            (session, "audit_by_session"),
            (user, "audit_by_user"),
            (action, "audit_by_action"),
        ];
        let queries =
            queries.map(|(query, index)| (select(&query).build().sql().as_str().to_owned(), index));
        for (sql, index) in queries.into_iter().chain(fixed) {
            let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
            let rows = sqlx::raw_sql(explain).fetch_all(&journal.readers).await.unwrap();
            let plan: Vec<String> = rows.iter().map(|row| row.get(3)).collect();
            let plan = plan.join("; ");
            assert!(plan.contains(index) && !plan.contains("TEMP B-TREE"), "{sql}: {plan}");
            assert_eq!(plan.contains("SCAN"), index.contains("SCAN"), "{sql}: {plan}");
        }
    }
}
