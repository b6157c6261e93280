//! The write connection to a PostgreSQL database.

use super::{
    batch,
    connect::{Access, Connector, with_response_timeout},
    replace_nul, schema,
};
use crate::store::sql::parse_amount;
use crate::{
    audit::{AuditRow, ChainHead},
    store::{
        MigrationOutcome, PostgresAddress, StoreError, StoreOptions,
        admin_records::{self, AuditedChange},
        sql::SqlRow,
        stored_commit::{StoredCommit, parse_status},
        writer::WriterBackend,
    },
};
use greenroom_actors::ports::RequestRow;
use greenroom_core::{
    Timestamp,
    amount::Amount,
    budget::SpendingPrecondition,
    ids::{Seq, SessionId, UserId},
    session::SessionStatus,
};
use sqlx::{Connection as _, PgConnection, Row as _, postgres::PgRow};
use std::time::Duration;
use uuid::Uuid;

const SELECT_HEADS: &str = "
    SELECT wanted.key, (SELECT last_seq FROM commits WHERE session_id = wanted.key
                        ORDER BY first_seq DESC LIMIT 1)
    FROM unnest($1::uuid[]) AS wanted (key)";
const SELECT_COUNTED_SPENDING: &str = "
    SELECT coalesce(sum(amount), 0)::text FROM spending
    WHERE user_id = $1 AND measure = $2 AND day >= $3";
const SELECT_OPEN_SESSIONS: &str = "
    SELECT session_id, status FROM sessions WHERE owner = $1 AND status <> 'closed' LIMIT $2";
const APPEND_AUDIT: &str = "
    WITH head AS (UPDATE audit_head SET n = $1, hash = $2)
    INSERT INTO audit (n, hash, content) VALUES ($1, $2, $3)";
const ADD_KEY: &str = "
    WITH head AS (UPDATE audit_head SET n = $1, hash = $2),
         row AS (INSERT INTO audit (n, hash, content) VALUES ($1, $2, $3))
    INSERT INTO api_keys (key_id, hash, user_id, role, name, created_at)
    VALUES ($4, $5, $6, $7, $8, $9)";
const REVOKE_KEY: &str = "
    WITH head AS (UPDATE audit_head SET n = $1, hash = $2),
         row AS (INSERT INTO audit (n, hash, content) VALUES ($1, $2, $3))
    UPDATE api_keys SET revoked_at = $5 WHERE key_id = $4 AND revoked_at IS NULL";
const DELETE_EXPIRED_REQUESTS: &str = "
    DELETE FROM requests WHERE id IN (
        SELECT id FROM requests WHERE at < $1 ORDER BY at LIMIT $2)";
const STORE_REQUEST: &str = "
    INSERT INTO requests (user_id, request_id, session_id, digest, at) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (user_id, request_id) DO UPDATE
    SET session_id = excluded.session_id, digest = excluded.digest, at = excluded.at
    WHERE requests.at < $6";
const PURGE: &str = "
    WITH head AS (UPDATE audit_head SET n = $1, hash = $2),
         row AS (INSERT INTO audit (n, hash, content) VALUES ($1, $2, $3)),
         log AS (DELETE FROM commits WHERE session_id = $4),
         requested AS (DELETE FROM requests WHERE session_id = $4),
         asked AS (DELETE FROM approvals WHERE session_id = $4)
    DELETE FROM sessions WHERE session_id = $4";
const SELECT_CEILINGS_VERSION: &str = "SELECT version FROM ceilings WHERE id = 1";
const UPDATE_CEILINGS: &str = "
    WITH head AS (UPDATE audit_head SET n = $1, hash = $2),
         row AS (INSERT INTO audit (n, hash, content) VALUES ($1, $2, $3))
    UPDATE ceilings SET version = $4, content = $5 WHERE id = 1";
const UPSERT_SETTINGS: &str = "INSERT INTO user_settings (user_id, content) VALUES ($1, $2)
    ON CONFLICT (user_id) DO UPDATE SET content = excluded.content";
const UPSERT_TOOL_NAMES: &str = "
    INSERT INTO tool_names (name, server) SELECT * FROM unnest($1::text[], $2::text[])
    ON CONFLICT (name) DO UPDATE SET server = excluded.server";
const UPSERT_HEARTBEAT: &str = "INSERT INTO heartbeat (id, beat) VALUES (1, 1)
    ON CONFLICT (id) DO UPDATE SET beat = heartbeat.beat + 1";

/// The write connection, and the connector that replaces it.
pub(super) struct PostgresBackend {
    connection: Option<PgConnection>,
    connector: Connector,
    lock_timeout: Duration,
}

impl PostgresBackend {
    /// Connects, acquires the lock, and migrates the schema to the newest version.
    pub(super) async fn open(
        address: &PostgresAddress,
        options: &StoreOptions,
    ) -> Result<(Self, MigrationOutcome), StoreError> {
        let connector = Connector::new(address, Access::Write(options.durability));
        let lock_timeout = options.busy_timeout;
        let mut connection = connector.connect_with_lock(lock_timeout).await?;
        let migration = schema::migrate(&mut connection, address).await?;
        Ok((Self { connection: Some(connection), connector, lock_timeout }, migration))
    }

    async fn ensure_connected(&mut self) -> sqlx::Result<&mut PgConnection> {
        match &mut self.connection {
            Some(connection) => Ok(connection),
            missing => {
                Ok(missing.insert(self.connector.reconnect_with_lock(self.lock_timeout).await?))
            }
        }
    }
}

impl WriterBackend for PostgresBackend {
    async fn load_heads(&mut self, sessions: &[SessionId]) -> sqlx::Result<Vec<(SessionId, Seq)>> {
        let ids: Vec<Uuid> = sessions.iter().map(|id| id.0).collect();
        let query = sqlx::query(SELECT_HEADS).bind(ids);
        let rows = with_response_timeout(query.fetch_all(self.ensure_connected().await?)).await?;
        let to_head = |row: &PgRow| {
            let head: Option<i64> = row.try_get(1)?;
            Ok((SessionId(row.try_get(0)?), Seq(head.unwrap_or(0).unsigned_abs())))
        };
        rows.iter().map(to_head).collect()
    }

    async fn load_counted_spending(
        &mut self,
        user: &UserId,
        precondition: &SpendingPrecondition,
    ) -> sqlx::Result<Amount> {
        let first_day = precondition.first_day().map_or(i64::MIN, |day| day.0.into());
        let measure = replace_nul(precondition.measure.name().to_owned());
        let query =
            sqlx::query(SELECT_COUNTED_SPENDING).bind(user.as_str()).bind(measure).bind(first_day);
        let row = with_response_timeout(query.fetch_one(self.ensure_connected().await?)).await?;
        parse_amount(row.try_get(0)?)
    }

    async fn list_open_sessions(
        &mut self,
        owner: &UserId,
        limit: usize,
    ) -> sqlx::Result<Vec<(SessionId, SessionStatus)>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let query = sqlx::query(SELECT_OPEN_SESSIONS).bind(owner.as_str()).bind(limit);
        let rows = with_response_timeout(query.fetch_all(self.ensure_connected().await?)).await?;
        let to_session = |row: &PgRow| {
            let status: &str = row.try_get(1)?;
            Ok((SessionId(row.try_get(0)?), parse_status(status)))
        };
        rows.iter().map(to_session).collect()
    }

    async fn load_audit_head(&mut self) -> sqlx::Result<Option<ChainHead>> {
        let query = sqlx::query(admin_records::SELECT_AUDIT_HEAD);
        let row =
            with_response_timeout(query.fetch_optional(self.ensure_connected().await?)).await?;
        row.map(|row| admin_records::decode_audit_head(&SqlRow::Postgres(row))).transpose()
    }

    async fn load_ceilings_version(&mut self) -> sqlx::Result<u64> {
        let query = sqlx::query(SELECT_CEILINGS_VERSION);
        let row = with_response_timeout(query.fetch_one(self.ensure_connected().await?)).await?;
        let version: i64 = row.try_get(0)?;
        Ok(version.unsigned_abs())
    }

    async fn store_commits(
        &mut self,
        commits: &[&StoredCommit],
        audit_rows: &[AuditRow],
    ) -> sqlx::Result<()> {
        with_response_timeout(batch::store_commits(
            self.ensure_connected().await?,
            commits,
            audit_rows,
        ))
        .await
    }

    async fn store_change(&mut self, change: &AuditedChange, row: &AuditRow) -> sqlx::Result<()> {
        let connection = self.ensure_connected().await?;
        let query = sqlx::query(match change {
            AuditedChange::None => APPEND_AUDIT,
            AuditedChange::AddKey(..) => ADD_KEY,
            AuditedChange::RevokeKey(..) => REVOKE_KEY,
            AuditedChange::SetCeilings { .. } => UPDATE_CEILINGS,
            AuditedChange::Purge(..) => PURGE,
        });
        let hash = row.hash.as_bytes().to_vec();
        let query = query.bind(row.n.cast_signed()).bind(hash).bind(&row.content);
        let query = match change {
            AuditedChange::None => query,
            AuditedChange::AddKey(key, hash) => query
                .bind(key.key_id.0)
                .bind(hash.as_bytes().to_vec())
                .bind(key.user.as_str())
                .bind(key.role.name())
                .bind(key.name.clone().map(replace_nul))
                .bind(key.created_at.0),
            AuditedChange::RevokeKey(key_id, at) => query.bind(key_id.0).bind(at.0),
            AuditedChange::SetCeilings { version, content } => {
                query.bind(version.cast_signed()).bind(content)
            }
            AuditedChange::Purge(session_id, _) => query.bind(session_id.0),
        };
        with_response_timeout(query.execute(connection)).await.map(drop)
    }

    async fn store_settings(&mut self, user: &str, content: &str) -> sqlx::Result<()> {
        let query = sqlx::query(UPSERT_SETTINGS).bind(user).bind(content);
        with_response_timeout(query.execute(self.ensure_connected().await?)).await.map(drop)
    }

    async fn store_request(
        &mut self,
        row: &RequestRow,
        valid_since: Timestamp,
        deleted_max: i64,
    ) -> sqlx::Result<()> {
        let connection = self.ensure_connected().await?;
        // Two transactions: the deletion has no effect on valid rows.
        let query = sqlx::query(DELETE_EXPIRED_REQUESTS).bind(valid_since.0).bind(deleted_max);
        with_response_timeout(query.execute(&mut *connection)).await?;
        let query = sqlx::query(STORE_REQUEST)
            .bind(row.user.as_str())
            .bind(row.request_id.as_str())
            .bind(row.session_id.0)
            .bind(row.digest.as_bytes().to_vec())
            .bind(row.at.0)
            .bind(valid_since.0);
        with_response_timeout(query.execute(connection)).await.map(drop)
    }

    async fn store_tool_names(&mut self, names: &[(String, String)]) -> sqlx::Result<()> {
        let (names, servers): (Vec<&str>, Vec<&str>) =
            names.iter().map(|(name, server)| (name.as_str(), server.as_str())).unzip();
        let query = sqlx::query(UPSERT_TOOL_NAMES).bind(names).bind(servers);
        with_response_timeout(query.execute(self.ensure_connected().await?)).await.map(drop)
    }

    async fn write_heartbeat(&mut self) -> sqlx::Result<()> {
        let query = sqlx::query(UPSERT_HEARTBEAT);
        with_response_timeout(query.execute(self.ensure_connected().await?)).await.map(drop)
    }

    /// Drops the connection without closing it. The next connection terminates it if needed.
    async fn disconnect(&mut self) {
        self.connection = None;
    }

    async fn checkpoint(&mut self) -> sqlx::Result<()> {
        match self.connection.take() {
            Some(connection) => with_response_timeout(connection.close()).await,
            None => Ok(()),
        }
    }
}
