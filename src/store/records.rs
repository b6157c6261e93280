//! API keys and the audit log, read from either database; and what is written together with an
//! audit entry. Must not know what an entry means. Entries that events make are written with them.

use super::{
    Store,
    query::{Query, Readers, Row, Snapshot},
    read::{all, first, rows, taken},
    writer::Request,
};
use crate::{
    audit::{AuditLog, AuditQuery, Entry, Head, Order, Sealed},
    auth::{ApiKey, KeyId, KeyStore, key::KEYS_MAX},
    store::error::journal_error,
};
use async_trait::async_trait;
use greenroom_actors::ports::JournalError;
use greenroom_core::{
    Timestamp,
    ids::{Seq, SessionId, UserId},
    json::Digest,
};

/// Rows of the audit log that are read at once to check them.
const PAGE: usize = 1000;

const SELECT_KEYS: &str = "SELECT key_id, user_id, role, name, created_at, revoked_at
    FROM api_keys ORDER BY key_id LIMIT 0 + $1";
const SELECT_KEY: &str = "SELECT key_id, user_id, role, name, created_at, revoked_at
    FROM api_keys WHERE hash = $1";
/// The noted end of the audit log.
pub(super) const SELECT_HEAD: &str = "SELECT n, hash FROM audit_head";

/// What is written together with an audit entry.
pub(super) enum Change {
    /// Nothing.
    None,
    /// A new key, with its hash.
    AddKey(Box<ApiKey>, Digest),
    /// A key that works no more.
    RevokeKey(KeyId, Timestamp),
    /// A session that goes, if its last event is still this one.
    Purge(SessionId, Seq),
}

/// The end of the audit log, from what [`SELECT_HEAD`] found.
pub(super) fn head(row: &Row) -> sqlx::Result<Head> {
    Ok(Head { n: row.number(0)?.unsigned_abs(), hash: hash(row, 1)? })
}

/// Rows of the audit log.
fn select(query: &AuditQuery) -> Query {
    let mut sql = Query::new("SELECT n, hash, content FROM audit");
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
        Order::Oldest => " ORDER BY n LIMIT 0 + ",
        Order::Newest => " ORDER BY n DESC LIMIT 0 + ",
    };
    sql.push_bind(order, rows(query.limit));
    sql
}

/// A row that [`select`] found.
fn sealed(row: &Row) -> sqlx::Result<Sealed> {
    Ok(Sealed {
        n: row.number(0)?.unsigned_abs(),
        hash: hash(row, 1)?,
        content: row.text(2)?.to_owned(),
    })
}

/// A hash, whatever somebody may have put in its place: what is none matches nothing.
fn hash(row: &Row, index: usize) -> sqlx::Result<Digest> {
    let bytes = row.bytes(index)?;
    Ok(bytes.try_into().map_or_else(|_| Digest::of_bytes(bytes), |bytes: [u8; 32]| bytes.into()))
}

/// Shows `each` the rows of the audit log in order until it returns false; tells the log's noted
/// end.
pub(super) async fn each_audit_row(
    snapshot: &mut Snapshot,
    mut each: impl FnMut(Sealed) -> bool,
) -> sqlx::Result<Option<Head>> {
    let mut query = AuditQuery { limit: PAGE, ..AuditQuery::default() };
    loop {
        let page = snapshot.all(select(&query)).await?;
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
    snapshot.all(Query::new(SELECT_HEAD)).await?.first().map(head).transpose()
}

/// All keys, oldest first.
pub(super) async fn keys(readers: &Readers) -> Result<Vec<ApiKey>, JournalError> {
    let found = all(readers, Query::new(SELECT_KEYS).bind(rows(KEYS_MAX))).await?;
    found.iter().map(key).collect()
}

#[async_trait]
impl AuditLog for Store {
    async fn append_audit(&self, entry: Entry) -> Result<(), JournalError> {
        self.writer.ask(|| Ok(Request::Record { change: Change::None, entry })).await
    }

    async fn audit(&self, query: AuditQuery) -> Result<Vec<Sealed>, JournalError> {
        let found = all(&self.readers, select(&query)).await?;
        found.iter().map(|row| sealed(row).map_err(|error| journal_error(&error))).collect()
    }
}

#[async_trait]
impl KeyStore for Store {
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
        let found = first(&self.readers, Query::new(SELECT_KEY).bind(&hash.as_bytes()[..])).await?;
        found.as_ref().map(key).transpose()
    }
}

fn key(row: &Row) -> Result<ApiKey, JournalError> {
    let corrupt = |what: &dyn std::fmt::Display| JournalError::Corrupt(format!("a key: {what}"));
    Ok(ApiKey {
        key_id: KeyId(taken(row.id(0))?),
        user: UserId::parse(taken(row.text(1))?).map_err(|error| corrupt(&error))?,
        role: taken(row.text(2))?.parse().map_err(|error| corrupt(&error))?,
        name: taken(row.optional_text(3))?.map(str::to_owned),
        created_at: Timestamp(taken(row.number(4))?),
        revoked_at: taken(row.optional_number(5))?.map(Timestamp),
    })
}

/// Every question that is asked of the audit log and the keys, and the index that answers it on
/// SQLite. The keys, which are few, are listed from end to end.
#[cfg(test)]
pub(super) fn every_query() -> Vec<(Query, &'static str)> {
    use crate::audit::Action;
    let all = AuditQuery { before: Some(9), limit: 1, ..AuditQuery::default() };
    let session_id = Some(SessionId(uuid::Uuid::nil()));
    let session = AuditQuery { session_id, ..all.clone() };
    let user = AuditQuery { user: Some("ada".to_owned()), ..all.clone() };
    let action = AuditQuery { action: Some(Action::KeyCreated), ..all.clone() };
    let newest = |query: &AuditQuery| select(&AuditQuery { order: Order::Newest, ..query.clone() });
    vec![
        (select(&all), "PRIMARY KEY"),
        (newest(&all), "PRIMARY KEY"),
        (select(&session), "audit_by_session"),
        (newest(&session), "audit_by_session"),
        (select(&user), "audit_by_user"),
        (newest(&user), "audit_by_user"),
        (select(&action), "audit_by_action"),
        (newest(&action), "audit_by_action"),
        (Query::new(SELECT_KEY).bind(&[0; 32][..]), "api_keys"),
        (Query::new(SELECT_KEYS).bind(1), "SCAN api_keys"),
    ]
}
