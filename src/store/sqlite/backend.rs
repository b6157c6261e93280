//! The write connection to an SQLite database.
//!
//! It uses [`rusqlite`] and not sqlx, which runs a thread for every connection. The writer already
//! has a thread, and passing each statement to another one cost more than the statement
//! (docs/performance.md).

use super::{
    CHECKPOINT_PAGES, PAGE_BYTES, WAL_SIZE_LIMIT_BYTES,
    batch::{self, BEGIN, CACHED_STATEMENTS_MAX, COMMIT, execute},
};
use crate::{
    audit::{AuditRow, ChainHead},
    store::{
        Durability, StoreOptions,
        admin_records::AuditedChange,
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
    json::Digest,
    session::SessionStatus,
};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, params};
use sqlx::error::{DatabaseError, ErrorKind};
use std::{
    borrow::Cow,
    error::Error,
    fmt,
    path::{Path, PathBuf},
};
use uuid::Uuid;

const SELECT_HEAD: &str = "
    SELECT last_seq FROM commits WHERE session_id = ?1 ORDER BY first_seq DESC LIMIT 1";
const SELECT_COUNTED_SPENDING: &str = "
    SELECT amount FROM spending WHERE user_id = ?1 AND measure = ?2 AND day >= ?3";
const SELECT_OPEN_SESSIONS: &str = "
    SELECT session_id, status FROM sessions WHERE owner = ?1 AND status <> 'closed' LIMIT 0 + ?2";
const SELECT_AUDIT_HEAD: &str = "SELECT n, hash FROM audit_head";
const ADD_KEY: &str = "
    INSERT INTO api_keys (key_id, hash, user_id, role, name, created_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const REVOKE_KEY: &str =
    "UPDATE api_keys SET revoked_at = ?2 WHERE key_id = ?1 AND revoked_at IS NULL";
const DELETE_EXPIRED_REQUESTS: &str = "
    DELETE FROM requests WHERE id IN (
        SELECT id FROM requests WHERE at < ?1 ORDER BY at LIMIT 0 + ?2)";
const STORE_REQUEST: &str = "
    INSERT INTO requests (user_id, request_id, session_id, digest, at) VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT (user_id, request_id) DO UPDATE
    SET session_id = excluded.session_id, digest = excluded.digest, at = excluded.at
    WHERE requests.at < ?6";
const PURGE: [&str; 4] = [
    "DELETE FROM requests WHERE session_id = ?1",
    "DELETE FROM commits WHERE session_id = ?1",
    "DELETE FROM approvals WHERE session_id = ?1",
    "DELETE FROM sessions WHERE session_id = ?1",
];
const SELECT_CEILINGS_VERSION: &str = "SELECT version FROM ceilings WHERE id = 1";
const UPDATE_CEILINGS: &str = "UPDATE ceilings SET version = ?1, content = ?2 WHERE id = 1";
const UPSERT_SETTINGS: &str = "INSERT INTO user_settings (user_id, content) VALUES (?1, ?2)
    ON CONFLICT (user_id) DO UPDATE SET content = excluded.content";
const UPSERT_TOOL_NAME: &str = "INSERT INTO tool_names (name, server) VALUES (?1, ?2)
    ON CONFLICT (name) DO UPDATE SET server = excluded.server";
const UPSERT_HEARTBEAT: &str = "INSERT INTO heartbeat (id, beat) VALUES (1, 1)
    ON CONFLICT (id) DO UPDATE SET beat = beat + 1";

/// The write connection, and the parameters to replace it.
pub(super) struct SqliteBackend {
    connection: Option<Connection>,
    path: PathBuf,
    options: StoreOptions,
}

impl SqliteBackend {
    /// Connects to an existing database that has the newest schema.
    pub(super) fn open(path: &Path, options: &StoreOptions) -> sqlx::Result<Self> {
        let (path, options) = (path.to_owned(), options.clone());
        let connection = Some(connect(&path, &options).map_err(to_sqlx_error)?);
        Ok(Self { connection, path, options })
    }

    /// Runs `operation` on the connection, which is created if needed.
    fn with_connection<T>(
        &mut self,
        operation: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> sqlx::Result<T> {
        let connection = match &self.connection {
            Some(connection) => connection,
            None => {
                self.connection.insert(connect(&self.path, &self.options).map_err(to_sqlx_error)?)
            }
        };
        operation(connection).map_err(to_sqlx_error)
    }
}

impl WriterBackend for SqliteBackend {
    async fn load_heads(&mut self, sessions: &[SessionId]) -> sqlx::Result<Vec<(SessionId, Seq)>> {
        self.with_connection(|connection| {
            let mut select = connection.prepare_cached(SELECT_HEAD)?;
            let mut to_head = |session_id: &SessionId| {
                let id = &session_id.0.as_bytes()[..];
                let head: Option<i64> = select.query_row([id], |row| row.get(0)).optional()?;
                Ok((*session_id, Seq(head.unwrap_or(0).unsigned_abs())))
            };
            sessions.iter().map(&mut to_head).collect()
        })
    }

    async fn load_counted_spending(
        &mut self,
        user: &UserId,
        precondition: &SpendingPrecondition,
    ) -> sqlx::Result<Amount> {
        let first_day = precondition.first_day().map_or(i32::MIN, |day| day.0);
        self.with_connection(|connection| {
            let values = params![user.as_str(), precondition.measure.name(), first_day];
            let mut select = connection.prepare_cached(SELECT_COUNTED_SPENDING)?;
            let amounts = select.query_map(values, |row| batch::get_amount(row, 0))?;
            amounts.sum()
        })
    }

    async fn list_open_sessions(
        &mut self,
        owner: &UserId,
        limit: usize,
    ) -> sqlx::Result<Vec<(SessionId, SessionStatus)>> {
        self.with_connection(|connection| {
            let mut select = connection.prepare_cached(SELECT_OPEN_SESSIONS)?;
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let to_session = |row: &rusqlite::Row<'_>| {
                let (id, status): ([u8; 16], String) = (row.get(0)?, row.get(1)?);
                Ok((SessionId(Uuid::from_bytes(id)), parse_status(&status)))
            };
            select.query_map(params![owner.as_str(), limit], to_session)?.collect()
        })
    }

    async fn load_audit_head(&mut self) -> sqlx::Result<Option<ChainHead>> {
        self.with_connection(|connection| {
            let mut select = connection.prepare_cached(SELECT_AUDIT_HEAD)?;
            let to_head = |row: &rusqlite::Row<'_>| {
                let (n, hash): (i64, Vec<u8>) = (row.get(0)?, row.get(1)?);
                // A value of another length, which only tampering can cause, matches no hash.
                let hash = <[u8; 32]>::try_from(&hash[..]);
                let hash = hash.map_or_else(|_| Digest::hash_bytes(&[]), Digest::from);
                Ok(ChainHead { n: n.unsigned_abs(), hash })
            };
            select.query_row((), to_head).optional()
        })
    }

    async fn load_ceilings_version(&mut self) -> sqlx::Result<u64> {
        self.with_connection(|connection| {
            let mut select = connection.prepare_cached(SELECT_CEILINGS_VERSION)?;
            let version: i64 = select.query_row((), |row| row.get(0))?;
            Ok(version.unsigned_abs())
        })
    }

    async fn store_commits(
        &mut self,
        commits: &[&StoredCommit],
        audit_rows: &[AuditRow],
    ) -> sqlx::Result<()> {
        self.with_connection(|connection| batch::store_commits(connection, commits, audit_rows))
    }

    async fn store_change(&mut self, change: &AuditedChange, row: &AuditRow) -> sqlx::Result<()> {
        self.with_connection(|connection| {
            execute(connection, BEGIN)?;
            match change {
                AuditedChange::None => {}
                AuditedChange::AddKey(key, hash) => {
                    connection.prepare_cached(ADD_KEY)?.execute(params![
                        &key.key_id.0.as_bytes()[..],
                        &hash.as_bytes()[..],
                        key.user.as_str(),
                        key.role.name(),
                        key.name.as_deref(),
                        key.created_at.0,
                    ])?;
                }
                AuditedChange::RevokeKey(key_id, at) => {
                    let values = params![&key_id.0.as_bytes()[..], at.0];
                    connection.prepare_cached(REVOKE_KEY)?.execute(values)?;
                }
                AuditedChange::SetCeilings { version, content } => {
                    let values = params![version.cast_signed(), content];
                    connection.prepare_cached(UPDATE_CEILINGS)?.execute(values)?;
                }
                AuditedChange::Purge(session_id, _) => {
                    for sql in PURGE {
                        connection.prepare_cached(sql)?.execute([&session_id.0.as_bytes()[..]])?;
                    }
                }
            }
            batch::append_audit(connection, std::slice::from_ref(row))?;
            execute(connection, COMMIT)
        })
    }

    async fn store_settings(&mut self, user: &str, content: &str) -> sqlx::Result<()> {
        self.with_connection(|connection| {
            connection.prepare_cached(UPSERT_SETTINGS)?.execute([user, content]).map(drop)
        })
    }

    async fn store_request(
        &mut self,
        row: &RequestRow,
        valid_since: Timestamp,
        deleted_max: i64,
    ) -> sqlx::Result<()> {
        self.with_connection(|connection| {
            execute(connection, BEGIN)?;
            let expired = params![valid_since.0, deleted_max];
            connection.prepare_cached(DELETE_EXPIRED_REQUESTS)?.execute(expired)?;
            connection.prepare_cached(STORE_REQUEST)?.execute(params![
                row.user.as_str(),
                row.request_id.as_str(),
                &row.session_id.0.as_bytes()[..],
                &row.digest.as_bytes()[..],
                row.at.0,
                valid_since.0,
            ])?;
            execute(connection, COMMIT)
        })
    }

    async fn store_tool_names(&mut self, names: &[(String, String)]) -> sqlx::Result<()> {
        self.with_connection(|connection| {
            execute(connection, BEGIN)?;
            for (name, server) in names {
                connection.prepare_cached(UPSERT_TOOL_NAME)?.execute([name, server])?;
            }
            execute(connection, COMMIT)
        })
    }

    async fn write_heartbeat(&mut self) -> sqlx::Result<()> {
        self.with_connection(|connection| execute(connection, UPSERT_HEARTBEAT))
    }

    async fn disconnect(&mut self) {
        if let Some(connection) = self.connection.take()
            && let Err((_, error)) = connection.close()
        {
            tracing::debug!(%error, "closing the connection failed");
        }
    }

    /// Checkpoints the write-ahead log, as far as readers allow, and closes the connection.
    async fn checkpoint(&mut self) -> sqlx::Result<()> {
        let Some(connection) = self.connection.take() else { return Ok(()) };
        connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))
            .map_err(to_sqlx_error)?;
        connection.close().map_err(|(_, error)| to_sqlx_error(error))
    }
}

fn connect(path: &Path, options: &StoreOptions) -> rusqlite::Result<Connection> {
    // Fails if the file is missing. The connection is not shared between threads.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(options.busy_timeout)?;
    connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS_MAX);
    let pragma =
        |name: &str, value: &dyn rusqlite::ToSql| connection.pragma_update(None, name, value);
    pragma("page_size", &PAGE_BYTES)?;
    pragma("journal_mode", &"WAL")?;
    pragma(
        "synchronous",
        &match options.durability {
            Durability::Fsync => "FULL",
            Durability::Process => "NORMAL",
        },
    )?;
    // Purged data is overwritten.
    pragma("secure_delete", &"ON")?;
    pragma("wal_autocheckpoint", &CHECKPOINT_PAGES)?;
    pragma("journal_size_limit", &WAL_SIZE_LIMIT_BYTES)?;
    if let Some(bytes) = options.size_bytes_max {
        let pages = (bytes / u64::from(PAGE_BYTES)).max(1);
        pragma("max_page_count", &pages.cast_signed())?;
    }
    Ok(connection)
}

/// Converts an error of rusqlite to the error type of the store.
pub(super) fn to_sqlx_error(error: rusqlite::Error) -> sqlx::Error {
    sqlx::Error::Database(Box::new(RusqliteError(error)))
}

/// An error of [`rusqlite`] that implements the error trait of sqlx.
#[derive(Debug)]
struct RusqliteError(rusqlite::Error);

impl fmt::Display for RusqliteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for RusqliteError {}

impl DatabaseError for RusqliteError {
    fn message(&self) -> &str {
        if let rusqlite::Error::SqliteFailure(_, Some(message)) = &self.0 {
            message
        } else {
            "SQLite rejected the operation"
        }
    }

    /// Returns the extended result code, as sqlx's own errors do.
    fn code(&self) -> Option<Cow<'_, str>> {
        let code = self.0.sqlite_error()?.extended_code;
        Some(Cow::Owned(code.to_string()))
    }

    fn as_error(&self) -> &(dyn Error + Send + Sync + 'static) {
        self
    }

    fn as_error_mut(&mut self) -> &mut (dyn Error + Send + Sync + 'static) {
        self
    }

    fn into_error(self: Box<Self>) -> Box<dyn Error + Send + Sync + 'static> {
        self
    }

    fn kind(&self) -> ErrorKind {
        use rusqlite::ffi::{SQLITE_CONSTRAINT_PRIMARYKEY, SQLITE_CONSTRAINT_UNIQUE};
        match self.0.sqlite_error().map(|error| error.extended_code) {
            Some(SQLITE_CONSTRAINT_PRIMARYKEY | SQLITE_CONSTRAINT_UNIQUE) => {
                ErrorKind::UniqueViolation
            }
            Some(_) | None => ErrorKind::Other,
        }
    }
}

/// Returns every searching statement of the writer with the SQLite index it must use.
#[cfg(test)]
pub(super) fn every_statement() -> Vec<(&'static str, &'static str)> {
    let mut statements = vec![
        (SELECT_HEAD, "commits_by_session"),
        (SELECT_COUNTED_SPENDING, "PRIMARY KEY"),
        (SELECT_OPEN_SESSIONS, "COVERING INDEX sessions_open"),
        (REVOKE_KEY, "PRIMARY KEY"),
        (DELETE_EXPIRED_REQUESTS, "COVERING INDEX requests_by_time"),
        (SELECT_CEILINGS_VERSION, "PRIMARY KEY"),
        (UPDATE_CEILINGS, "PRIMARY KEY"),
    ];
    let tables =
        ["requests_by_session", "commits_by_session", "approvals_by_session", "PRIMARY KEY"];
    statements.extend(PURGE.into_iter().zip(tables));
    statements
}
