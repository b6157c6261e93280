//! The connection that writes to an SQLite database.

use super::batch;
use crate::{
    audit::{Head, Sealed},
    store::{
        query::Row,
        records::{self, Change},
        stored::Encoded,
        writer::Sink,
    },
};
use greenroom_core::{
    budget::Claim,
    ids::{Seq, SessionId, UserId},
};
use serde_json::json;
use sqlx::{
    ConnectOptions as _, Connection as _, Row as _, SqliteConnection, sqlite::SqliteConnectOptions,
};
use uuid::Uuid;

/// The last event of each of these sessions, whose ids are in the second value, one after another.
const SELECT_HEADS: &str = "
    SELECT substr(?2, value, 16),
           (SELECT last_seq FROM commits WHERE session_id = substr(?2, value, 16)
            ORDER BY first_seq DESC LIMIT 1)
    FROM json_each(?1)";
const SELECT_CLAIMED: &str = "
    SELECT coalesce(sum(amount), 0.0) FROM spending
    WHERE user_id = ?1 AND measure = ?2 AND day >= ?3";
const APPEND_AUDIT: &str = "
    INSERT INTO audit (n, hash, content) VALUES ($1, $2, $3);
    UPDATE audit_head SET n = $1, hash = $2";
const ADD_KEY: &str = "
    INSERT INTO api_keys (key_id, hash, user_id, role, name, created_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const REVOKE_KEY: &str =
    "UPDATE api_keys SET revoked_at = ?2 WHERE key_id = ?1 AND revoked_at IS NULL";
const PURGE: &str = "
    DELETE FROM commits WHERE session_id = $1;
    DELETE FROM approvals WHERE session_id = $1;
    DELETE FROM sessions WHERE session_id = $1";
const PUT_SETTINGS: &str = "INSERT INTO user_settings (user_id, content) VALUES (?1, ?2)
    ON CONFLICT (user_id) DO UPDATE SET content = excluded.content";
const BEAT: &str = "INSERT INTO heartbeat (id, beat) VALUES (1, 1)
    ON CONFLICT (id) DO UPDATE SET beat = beat + 1";

/// The connection, and how another one is made.
pub(super) struct SqliteSink {
    connection: Option<SqliteConnection>,
    options: SqliteConnectOptions,
}

impl SqliteSink {
    /// Over an open connection.
    pub(super) fn over(connection: SqliteConnection, options: SqliteConnectOptions) -> Self {
        Self { connection: Some(connection), options }
    }

    async fn connected(&mut self) -> sqlx::Result<&mut SqliteConnection> {
        match &mut self.connection {
            Some(connection) => Ok(connection),
            none => Ok(none.insert(self.options.connect().await?)),
        }
    }
}

impl Sink for SqliteSink {
    async fn heads(&mut self, sessions: &[SessionId]) -> sqlx::Result<Vec<(SessionId, Seq)>> {
        let ids: Vec<u8> = sessions.iter().flat_map(|id| *id.0.as_bytes()).collect();
        // SQL counts from 1.
        let starts: Vec<usize> = (0..sessions.len()).map(|n| n * 16 + 1).collect();
        let query = sqlx::query(SELECT_HEADS).bind(json!(starts).to_string()).bind(ids);
        let rows = query.fetch_all(self.connected().await?).await?;
        let head = |row: &sqlx::sqlite::SqliteRow| {
            let head: Option<i64> = row.try_get(1)?;
            Ok((SessionId(row.try_get::<Uuid, _>(0)?), Seq(head.unwrap_or(0).unsigned_abs())))
        };
        rows.iter().map(head).collect()
    }

    async fn claimed(&mut self, user: &UserId, claim: &Claim) -> sqlx::Result<f64> {
        let first = claim.first_day().map_or(i32::MIN, |day| day.0);
        let query = sqlx::query(SELECT_CLAIMED).bind(user.as_str()).bind(claim.measure.name());
        query.bind(first).fetch_one(self.connected().await?).await?.try_get(0)
    }

    async fn audit_head(&mut self) -> sqlx::Result<Option<Head>> {
        let query = sqlx::query(records::SELECT_HEAD);
        let found = query.fetch_optional(self.connected().await?).await?;
        found.map(|row| records::head(&Row::Sqlite(row))).transpose()
    }

    async fn store(&mut self, commits: &[&Encoded], sealed: &[Sealed]) -> sqlx::Result<()> {
        batch::store(self.connected().await?, commits, sealed).await
    }

    async fn record(&mut self, change: &Change, row: &Sealed) -> sqlx::Result<()> {
        let connection = self.connected().await?;
        sqlx::query("BEGIN IMMEDIATE").execute(&mut *connection).await?;
        match change {
            Change::None => {}
            Change::AddKey(key, hash) => {
                let query = sqlx::query(ADD_KEY)
                    .bind(key.key_id.0)
                    .bind(hash.as_bytes().to_vec())
                    .bind(key.user.as_str())
                    .bind(key.role.name())
                    .bind(key.name.as_deref())
                    .bind(key.created_at.0);
                query.execute(&mut *connection).await?;
            }
            Change::RevokeKey(key_id, at) => {
                let query = sqlx::query(REVOKE_KEY).bind(key_id.0).bind(at.0);
                query.execute(&mut *connection).await?;
            }
            Change::Purge(session_id, _) => {
                sqlx::query(PURGE).bind(session_id.0).execute(&mut *connection).await?;
            }
        }
        let query = sqlx::query(APPEND_AUDIT)
            .bind(row.n.cast_signed())
            .bind(row.hash.as_bytes().to_vec())
            .bind(&row.content);
        query.execute(&mut *connection).await?;
        sqlx::query("COMMIT").execute(connection).await.map(drop)
    }

    async fn put_settings(&mut self, user: &str, content: &str) -> sqlx::Result<()> {
        let query = sqlx::query(PUT_SETTINGS).bind(user).bind(content);
        query.execute(self.connected().await?).await.map(drop)
    }

    async fn beat(&mut self) -> sqlx::Result<()> {
        sqlx::query(BEAT).execute(self.connected().await?).await.map(drop)
    }

    async fn reset(&mut self) {
        if let Some(connection) = self.connection.take()
            && let Err(error) = connection.close().await
        {
            tracing::debug!(%error, "closing the connection failed");
        }
    }

    /// Moves what is in the write-ahead log into the database, as far as nobody reads it, and
    /// closes.
    async fn settle(&mut self) -> sqlx::Result<()> {
        let Some(mut connection) = self.connection.take() else { return Ok(()) };
        sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut connection).await?;
        connection.close().await
    }
}

/// Every statement of the writer that has to find something, and the index that it finds it by.
#[cfg(test)]
pub(super) fn every_statement() -> Vec<(&'static str, &'static str)> {
    let mut statements = vec![
        (SELECT_HEADS, "commits_by_session"),
        (SELECT_CLAIMED, "PRIMARY KEY"),
        (REVOKE_KEY, "PRIMARY KEY"),
    ];
    let tables = ["commits_by_session", "approvals_by_session", "PRIMARY KEY"];
    statements.extend(PURGE.split(';').zip(tables));
    statements
}
