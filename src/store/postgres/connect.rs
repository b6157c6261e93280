//! Connections to a PostgreSQL server: their permissions, their timeouts, and the lock of the write
//! connection.

use super::schema;
use crate::store::{Durability, PostgresAddress, StoreError, error::open_error};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, PgConnection, Row as _, postgres::PgConnectOptions,
};
use std::{future::Future, io, time::Duration};
use uuid::Uuid;

/// Timeout for connecting to the server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The server's timeout for one statement.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for the response to one statement. Longer than [`STATEMENT_TIMEOUT`], so that the server
/// gives up first. Beyond it, the connection counts as dead.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);
/// The first key of the writer's advisory lock, "GRNR". The second is a hash of the schema's name.
const LOCK_CLASS: i32 = 0x4752_4E52;
/// PostgreSQL's code for a lock that was not granted in time: `lock_not_available`.
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// The purpose of a connection.
#[derive(Clone, Copy)]
pub(super) enum Access {
    /// Read only.
    Read,
    /// Write, with the lock.
    Write(Durability),
}

/// Creates connections with fixed options.
#[derive(Clone)]
pub(super) struct Connector {
    address: PostgresAddress,
    pub(super) options: PgConnectOptions,
}

impl Connector {
    pub(super) fn new(address: &PostgresAddress, access: Access) -> Self {
        // Statements are not logged because they contain users' data.
        let options = PgConnectOptions::clone(&address.options).disable_statement_logging();
        let statement_timeout = STATEMENT_TIMEOUT.as_millis().to_string();
        let options = options.options([
            ("statement_timeout", statement_timeout.as_str()),
            ("idle_in_transaction_session_timeout", statement_timeout.as_str()),
            // Detects a dead client whose lock another process waits for.
            ("tcp_keepalives_idle", "10"),
            ("tcp_keepalives_interval", "5"),
            ("tcp_keepalives_count", "3"),
        ]);
        let options = match access {
            Access::Read => options
                .application_name("greenroom")
                .options([("default_transaction_read_only", "on")]),
            // The unique name allows terminating this connection after it was lost.
            Access::Write(durability) => options
                .application_name(&format!("greenroom writer {}", Uuid::new_v4()))
                .options([(
                    "synchronous_commit",
                    match durability {
                        Durability::Fsync => "on",
                        Durability::Process => "off",
                    },
                )]),
        };
        Self { address: address.clone(), options }
    }

    pub(super) async fn connect(&self) -> Result<PgConnection, StoreError> {
        self.try_connect().await.map_err(|source| open_error(&self.address, source))
    }

    async fn try_connect(&self) -> sqlx::Result<PgConnection> {
        with_timeout(CONNECT_TIMEOUT, self.options.connect()).await
    }

    /// Connects and acquires the lock, for which it waits at most `lock_timeout`.
    pub(super) async fn connect_with_lock(
        &self,
        lock_timeout: Duration,
    ) -> Result<PgConnection, StoreError> {
        let mut connection = self.connect().await?;
        match acquire_lock(&mut connection, lock_timeout).await {
            Ok(()) => Ok(connection),
            Err(error) if is_lock_held(&error) => Err(StoreError::InUse {
                database: self.address.to_string(),
                lock: "its advisory lock".to_owned(),
            }),
            Err(error) => Err(open_error(&self.address, error)),
        }
    }

    /// Connects again after the previous connection was lost. Terminates the previous connection,
    /// and fails if another process holds the lock or if the schema has changed.
    pub(super) async fn reconnect_with_lock(
        &self,
        lock_timeout: Duration,
    ) -> sqlx::Result<PgConnection> {
        let mut connection = self.try_connect().await?;
        let name = self.options.get_application_name().unwrap_or_default();
        let terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                       WHERE application_name = $1 AND pid <> pg_backend_pid()";
        let terminating = sqlx::query(terminate).bind(name).fetch_all(&mut connection);
        with_timeout(RESPONSE_TIMEOUT, terminating).await?;
        acquire_lock(&mut connection, lock_timeout).await.map_err(|error| {
            if is_lock_held(&error) {
                let message = "another greenroom process has taken over the database";
                sqlx::Error::Protocol(message.to_owned())
            } else {
                error
            }
        })?;
        let version = with_timeout(RESPONSE_TIMEOUT, schema::version(&mut connection)).await?;
        if version != Some(schema::VERSION) {
            let message = "the database's schema has changed since the start";
            return Err(sqlx::Error::Protocol(message.to_owned()));
        }
        Ok(connection)
    }
}

/// Acquires the lock of the write connection. The lock is released when the connection ends.
async fn acquire_lock(connection: &mut PgConnection, lock_timeout: Duration) -> sqlx::Result<()> {
    let lock_timeout = lock_timeout.min(STATEMENT_TIMEOUT).as_millis().max(1);
    let set_timeout = AssertSqlSafe(format!("SET lock_timeout = {lock_timeout}"));
    with_timeout(RESPONSE_TIMEOUT, sqlx::query(set_timeout).execute(&mut *connection)).await?;
    let lock = "SELECT pg_advisory_lock($1, hashtext(current_schema()))";
    with_timeout(RESPONSE_TIMEOUT, sqlx::query(lock).bind(LOCK_CLASS).execute(connection))
        .await
        .map(drop)
}

fn is_lock_held(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.as_deref() == Some(LOCK_NOT_AVAILABLE)
}

/// Waits for a response. After a timeout, the connection must not be used again.
pub(super) async fn with_response_timeout<T>(
    response: impl Future<Output = sqlx::Result<T>>,
) -> sqlx::Result<T> {
    with_timeout(RESPONSE_TIMEOUT, response).await
}

async fn with_timeout<T>(
    limit: Duration,
    response: impl Future<Output = sqlx::Result<T>>,
) -> sqlx::Result<T> {
    tokio::time::timeout(limit, response).await.unwrap_or_else(|_| {
        let message = format!("no response from PostgreSQL within {} s", limit.as_secs());
        Err(sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, message)))
    })
}

/// Returns the only column of the only row.
pub(super) async fn fetch_scalar<T>(
    connection: &mut PgConnection,
    sql: &'static str,
) -> sqlx::Result<T>
where
    T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    sqlx::query(sql).fetch_one(connection).await?.try_get(0)
}
