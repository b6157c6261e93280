//! API keys and the audit log: the queries for all databases, and the changes that are stored with
//! an audit entry. Entries derived from events are stored with their commit. Must not know the
//! meaning of an entry.

use super::{
    Store,
    queries::{column_value, fetch_all, fetch_optional, to_sql_limit},
    sql::{ReadPool, SnapshotConnection, SqlQuery, SqlRow},
    writer::WriteRequest,
};
use crate::{
    audit::{AuditEntry, AuditLog, AuditOrder, AuditQuery, AuditRow, ChainHead},
    auth::{ApiKey, KeyId, KeyStore, api_key::KEYS_MAX},
    ceilings::{CeilingStore, StoredCeilings},
    store::error::journal_error,
};
use async_trait::async_trait;
use greenroom_actors::ports::JournalError;
use greenroom_core::{
    Timestamp,
    ids::{Seq, SessionId, UserId},
    json::Digest,
};

/// Number of rows of the audit log that are read in one query to verify them.
const AUDIT_PAGE_ROWS: usize = 1000;

const SELECT_KEYS: &str = "SELECT key_id, user_id, role, name, created_at, revoked_at
    FROM api_keys ORDER BY key_id LIMIT 0 + $1";
const SELECT_KEY: &str = "SELECT key_id, user_id, role, name, created_at, revoked_at
    FROM api_keys WHERE hash = $1";
const SELECT_CEILINGS: &str = "SELECT version, content FROM ceilings WHERE id = 1";
/// Selects the stored head of the audit log.
pub(super) const SELECT_AUDIT_HEAD: &str = "SELECT n, hash FROM audit_head";

/// A change that is stored together with an audit entry.
pub(super) enum AuditedChange {
    /// No change.
    None,
    /// Add a key, with its hash.
    AddKey(Box<ApiKey>, Digest),
    /// Revoke a key.
    RevokeKey(KeyId, Timestamp),
    /// Replace the ceilings of the version before. Has no effect on ceilings of another version.
    SetCeilings {
        /// The new version.
        version: u64,
        /// The new ceilings, as JSON.
        content: String,
    },
    /// Purge a session. Has no effect if the session has a newer event than this one.
    Purge(SessionId, Seq),
}

/// Decodes a row of [`SELECT_AUDIT_HEAD`].
pub(super) fn decode_audit_head(row: &SqlRow) -> sqlx::Result<ChainHead> {
    Ok(ChainHead { n: row.number(0)?.unsigned_abs(), hash: decode_hash(row, 1)? })
}

/// Builds the query of the audit log.
fn select_audit(query: &AuditQuery) -> SqlQuery {
    let mut sql = SqlQuery::new("SELECT n, hash, content FROM audit");
    sql.push_bind(" WHERE n > ", query.after.min(i64::MAX as u64).cast_signed());
    if let Some(before) = query.before {
        sql.push_bind(" AND n < ", before.min(i64::MAX as u64).cast_signed());
    }
    if let Some(session_id) = query.session_id {
        sql.push_bind(" AND session_id = ", session_id.to_string().as_str());
    }
    if let Some(user) = &query.user {
        sql.push_bind(" AND user_id = ", user.as_str());
    }
    if let Some(action) = query.action {
        sql.push_bind(" AND action = ", action.name());
    }
    let order = match query.order {
        AuditOrder::Oldest => " ORDER BY n LIMIT 0 + ",
        AuditOrder::Newest => " ORDER BY n DESC LIMIT 0 + ",
    };
    sql.push_bind(order, to_sql_limit(query.limit));
    sql
}

/// Decodes a row of [`select_audit`].
fn decode_audit_row(row: &SqlRow) -> sqlx::Result<AuditRow> {
    Ok(AuditRow {
        n: row.number(0)?.unsigned_abs(),
        hash: decode_hash(row, 1)?,
        content: row.text(2)?.to_owned(),
    })
}

/// Decodes a hash. A value of another length, which only tampering can cause, becomes a hash that
/// matches nothing.
fn decode_hash(row: &SqlRow, index: usize) -> sqlx::Result<Digest> {
    let bytes = row.bytes(index)?;
    Ok(bytes.try_into().map_or_else(|_| Digest::hash_bytes(bytes), |bytes: [u8; 32]| bytes.into()))
}

/// Calls `visit` with the rows of the audit log in order until it returns false. Returns the stored
/// head of the log.
pub(super) async fn visit_audit_rows(
    snapshot: &mut SnapshotConnection,
    mut visit: impl FnMut(AuditRow) -> bool,
) -> sqlx::Result<Option<ChainHead>> {
    let mut query = AuditQuery { limit: AUDIT_PAGE_ROWS, ..AuditQuery::default() };
    loop {
        let page = snapshot.fetch_all(select_audit(&query)).await?;
        for row in &page {
            let row = decode_audit_row(row)?;
            query.after = row.n;
            if !visit(row) {
                return Ok(None);
            }
        }
        if page.len() < AUDIT_PAGE_ROWS {
            break;
        }
    }
    snapshot
        .fetch_all(SqlQuery::new(SELECT_AUDIT_HEAD))
        .await?
        .first()
        .map(decode_audit_head)
        .transpose()
}

/// Returns all keys, oldest first.
pub(super) async fn list_keys(read_pool: &ReadPool) -> Result<Vec<ApiKey>, JournalError> {
    let rows =
        fetch_all(read_pool, SqlQuery::new(SELECT_KEYS).bind(to_sql_limit(KEYS_MAX))).await?;
    rows.iter().map(decode_key).collect()
}

/// Returns the stored ceilings.
pub(super) async fn load_ceilings(read_pool: &ReadPool) -> Result<StoredCeilings, JournalError> {
    let row = fetch_optional(read_pool, SqlQuery::new(SELECT_CEILINGS)).await?;
    let missing = || JournalError::Corrupt("the row of the ceilings is missing".to_owned());
    let row = row.ok_or_else(missing)?;
    let ceilings = serde_json::from_str(column_value(row.text(1))?);
    let corrupt = |error| JournalError::Corrupt(format!("the ceilings: {error}"));
    Ok(StoredCeilings {
        version: column_value(row.number(0))?.unsigned_abs(),
        ceilings: ceilings.map_err(corrupt)?,
    })
}

#[async_trait]
impl AuditLog for Store {
    async fn append_audit(&self, entry: AuditEntry) -> Result<(), JournalError> {
        self.writer
            .submit(|| Ok(WriteRequest::StoreChange { change: AuditedChange::None, entry }))
            .await
    }

    async fn list_audit_rows(&self, query: AuditQuery) -> Result<Vec<AuditRow>, JournalError> {
        let rows = fetch_all(&self.read_pool, select_audit(&query)).await?;
        rows.iter()
            .map(|row| decode_audit_row(row).map_err(|error| journal_error(&error)))
            .collect()
    }
}

#[async_trait]
impl KeyStore for Store {
    async fn store_key(
        &self,
        key: &ApiKey,
        hash: Digest,
        entry: AuditEntry,
    ) -> Result<(), JournalError> {
        let change = AuditedChange::AddKey(Box::new(key.clone()), hash);
        self.writer.submit(|| Ok(WriteRequest::StoreChange { change, entry })).await
    }

    async fn revoke_key(
        &self,
        key_id: KeyId,
        at: Timestamp,
        entry: AuditEntry,
    ) -> Result<(), JournalError> {
        let change = AuditedChange::RevokeKey(key_id, at);
        self.writer.submit(|| Ok(WriteRequest::StoreChange { change, entry })).await
    }

    async fn list_keys(&self) -> Result<Vec<ApiKey>, JournalError> {
        list_keys(&self.read_pool).await
    }

    async fn find_key_by_hash(&self, hash: Digest) -> Result<Option<ApiKey>, JournalError> {
        let row =
            fetch_optional(&self.read_pool, SqlQuery::new(SELECT_KEY).bind(&hash.as_bytes()[..]))
                .await?;
        row.as_ref().map(decode_key).transpose()
    }
}

#[async_trait]
impl CeilingStore for Store {
    async fn load_ceilings(&self) -> Result<StoredCeilings, JournalError> {
        load_ceilings(&self.read_pool).await
    }

    async fn store_ceilings(
        &self,
        ceilings: &StoredCeilings,
        entry: AuditEntry,
    ) -> Result<(), JournalError> {
        let to_error = |error| JournalError::Corrupt(format!("the ceilings: {error}"));
        let content = serde_json::to_string(&ceilings.ceilings).map_err(to_error)?;
        let change = AuditedChange::SetCeilings { version: ceilings.version, content };
        self.writer.submit(|| Ok(WriteRequest::StoreChange { change, entry })).await
    }
}

fn decode_key(row: &SqlRow) -> Result<ApiKey, JournalError> {
    let corrupt =
        |problem: &dyn std::fmt::Display| JournalError::Corrupt(format!("API key: {problem}"));
    Ok(ApiKey {
        key_id: KeyId(column_value(row.id(0))?),
        user: UserId::parse(column_value(row.text(1))?).map_err(|error| corrupt(&error))?,
        role: column_value(row.text(2))?.parse().map_err(|error| corrupt(&error))?,
        name: column_value(row.optional_text(3))?.map(str::to_owned),
        created_at: Timestamp(column_value(row.number(4))?),
        revoked_at: column_value(row.optional_number(5))?.map(Timestamp),
    })
}

/// Returns every query of the audit log and the keys with the SQLite index it must use. The list of
/// keys is a full scan, since there are few of them.
#[cfg(test)]
pub(super) fn every_query() -> Vec<(SqlQuery, &'static str)> {
    use crate::audit::AuditAction;
    let all = AuditQuery { before: Some(9), limit: 1, ..AuditQuery::default() };
    let session_id = Some(SessionId(uuid::Uuid::nil()));
    let session = AuditQuery { session_id, ..all.clone() };
    let user = AuditQuery { user: Some("ada".to_owned()), ..all.clone() };
    let action = AuditQuery { action: Some(AuditAction::KeyCreated), ..all.clone() };
    let newest = |query: &AuditQuery| {
        select_audit(&AuditQuery { order: AuditOrder::Newest, ..query.clone() })
    };
    vec![
        (select_audit(&all), "PRIMARY KEY"),
        (newest(&all), "PRIMARY KEY"),
        (select_audit(&session), "audit_by_session"),
        (newest(&session), "audit_by_session"),
        (select_audit(&user), "audit_by_user"),
        (newest(&user), "audit_by_user"),
        (select_audit(&action), "audit_by_action"),
        (newest(&action), "audit_by_action"),
        (SqlQuery::new(SELECT_KEY).bind(&[0; 32][..]), "api_keys"),
        (SqlQuery::new(SELECT_CEILINGS), "INTEGER PRIMARY KEY"),
        (SqlQuery::new(SELECT_KEYS).bind(1), "SCAN api_keys"),
    ]
}
