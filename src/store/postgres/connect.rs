//! Connections to a PostgreSQL server: what they may do, how long anything may take, and the lock of
//! the one that writes.

use super::schema;
use crate::store::{Durability, PostgresAddress, StoreError, error::open_error};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, PgConnection, Row as _, postgres::PgConnectOptions,
};
use std::{future::Future, io, time::Duration};
use uuid::Uuid;

/// How long a server may take to let us in.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the server works on one statement.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long we wait for the answer to one: longer, so that it is the server that gives up first.
/// Beyond it the connection is taken for dead.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);
/// The advisory lock of the writer: "GRNR", and then the schema's name.
const LOCK_CLASS: i32 = 0x4752_4E52;
/// PostgreSQL's word for a lock that could not be had in time: `lock_not_available`.
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// What a connection is for.
#[derive(Clone, Copy)]
pub(super) enum Access {
    /// Reading alone.
    Read,
    /// Writing, with the lock.
    Write(Durability),
}

/// How connections are made.
#[derive(Clone)]
pub(super) struct Connector {
    address: PostgresAddress,
    pub(super) options: PgConnectOptions,
}

impl Connector {
    pub(super) fn new(address: &PostgresAddress, access: Access) -> Self {
        // Statements are not logged: what they carry belongs to users.
        let options = PgConnectOptions::clone(&address.options).disable_statement_logging();
        let statement_timeout = STATEMENT_TIMEOUT.as_millis().to_string();
        let options = options.options([
            ("statement_timeout", statement_timeout.as_str()),
            ("idle_in_transaction_session_timeout", statement_timeout.as_str()),
            // Notices a client that is gone, whose lock another waits for.
            ("tcp_keepalives_idle", "10"),
            ("tcp_keepalives_interval", "5"),
            ("tcp_keepalives_count", "3"),
        ]);
        let options = match access {
            Access::Read => options
                .application_name("greenroom")
                .options([("default_transaction_read_only", "on")]),
            // Known by its name, so that it can be told to go if it is lost and lingers.
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

    /// A connection that holds the lock; waits for it so long.
    pub(super) async fn connect_with_lock(
        &self,
        wait: Duration,
    ) -> Result<PgConnection, StoreError> {
        let mut connection = self.connect().await?;
        match acquire_lock(&mut connection, wait).await {
            Ok(()) => Ok(connection),
            Err(error) if is_lock_held(&error) => Err(StoreError::InUse {
                database: self.address.to_string(),
                lock: "its advisory lock".to_owned(),
            }),
            Err(error) => Err(open_error(&self.address, error)),
        }
    }

    /// The same, after the connection before it was lost: that one must be gone, nobody else may
    /// have taken over, and the schema must be the one we know.
    pub(super) async fn reconnect_with_lock(&self, wait: Duration) -> sqlx::Result<PgConnection> {
        let mut connection = self.try_connect().await?;
        let name = self.options.get_application_name().unwrap_or_default();
        let dismiss = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                       WHERE application_name = $1 AND pid <> pg_backend_pid()";
        let dismissed = sqlx::query(dismiss).bind(name).fetch_all(&mut connection);
        with_timeout(RESPONSE_TIMEOUT, dismissed).await?;
        acquire_lock(&mut connection, wait).await.map_err(|error| {
            if is_lock_held(&error) {
                let taken = "another greenroom process has taken over the database";
                sqlx::Error::Protocol(taken.to_owned())
            } else {
                error
            }
        })?;
        let version = with_timeout(RESPONSE_TIMEOUT, schema::version(&mut connection)).await?;
        if version != Some(schema::VERSION) {
            let changed = "the database's schema is no longer the one that it had at the start";
            return Err(sqlx::Error::Protocol(changed.to_owned()));
        }
        Ok(connection)
    }
}

/// Takes the lock that makes this the only connection that writes; it ends with the connection.
async fn acquire_lock(connection: &mut PgConnection, wait: Duration) -> sqlx::Result<()> {
    let wait = wait.min(STATEMENT_TIMEOUT).as_millis().max(1);
    let set = AssertSqlSafe(format!("SET lock_timeout = {wait}"));
    with_timeout(RESPONSE_TIMEOUT, sqlx::query(set).execute(&mut *connection)).await?;
    let lock = "SELECT pg_advisory_lock($1, hashtext(current_schema()))";
    with_timeout(RESPONSE_TIMEOUT, sqlx::query(lock).bind(LOCK_CLASS).execute(connection))
        .await
        .map(drop)
}

fn is_lock_held(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.as_deref() == Some(LOCK_NOT_AVAILABLE)
}

/// An answer in time, or an error after which the connection is not used again.
pub(super) async fn with_response_timeout<T>(
    answer: impl Future<Output = sqlx::Result<T>>,
) -> sqlx::Result<T> {
    with_timeout(RESPONSE_TIMEOUT, answer).await
}

async fn with_timeout<T>(
    time: Duration,
    answer: impl Future<Output = sqlx::Result<T>>,
) -> sqlx::Result<T> {
    tokio::time::timeout(time, answer).await.unwrap_or_else(|_| {
        let late = format!("PostgreSQL did not answer within {} s", time.as_secs());
        Err(sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, late)))
    })
}

/// The only column of the only row.
pub(super) async fn fetch_scalar<T>(
    connection: &mut PgConnection,
    sql: &'static str,
) -> sqlx::Result<T>
where
    T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    sqlx::query(sql).fetch_one(connection).await?.try_get(0)
}
