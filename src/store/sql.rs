//! SQL queries for both databases: text, bound values and result rows. Queries are written once, in
//! SQL that both databases support; each database executes them in its own way.

use super::postgres;
use futures::{StreamExt as _, TryStreamExt as _, stream::BoxStream};
use greenroom_core::amount::Amount;
use sqlx::{
    AssertSqlSafe, Connection as _, PgConnection, Postgres, Row as _, Sqlite, SqliteConnection,
    SqlitePool, postgres::PgRow, sqlite::SqliteRow,
};
use uuid::Uuid;

/// A bound value of a query.
#[derive(Clone, Debug)]
pub(super) enum SqlValue {
    Id(Uuid),
    Text(String),
    Number(i64),
    Bytes(Vec<u8>),
}

impl From<Uuid> for SqlValue {
    fn from(id: Uuid) -> Self {
        Self::Id(id)
    }
}

impl From<&str> for SqlValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for SqlValue {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<&[u8]> for SqlValue {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.to_owned())
    }
}

/// A query. Its text is part of the program; all external input is bound as values.
#[derive(Clone, Debug)]
pub(super) struct SqlQuery {
    sql: String,
    values: Vec<SqlValue>,
}

impl SqlQuery {
    pub(super) fn new(sql: &'static str) -> Self {
        Self { sql: sql.to_owned(), values: Vec::new() }
    }

    /// Binds the value of the next `$n` in the text.
    pub(super) fn bind(mut self, value: impl Into<SqlValue>) -> Self {
        self.values.push(value.into());
        self
    }

    /// Appends text.
    pub(super) fn push(&mut self, sql: &'static str) -> &mut Self {
        self.sql.push_str(sql);
        self
    }

    /// Appends text and a bound value after it.
    pub(super) fn push_bind(&mut self, sql: &'static str, value: impl Into<SqlValue>) -> &mut Self {
        self.values.push(value.into());
        self.sql.push_str(sql);
        self.sql.push('$');
        self.sql.push_str(&self.values.len().to_string());
        self
    }

    #[cfg(test)]
    pub(super) fn sql(&self) -> &str {
        &self.sql
    }

    fn into_sqlite(self) -> sqlx::query::Query<'static, Sqlite, sqlx::sqlite::SqliteArguments> {
        let query = sqlx::query(AssertSqlSafe(self.sql));
        self.values.into_iter().fold(query, |query, value| match value {
            SqlValue::Id(id) => query.bind(id),
            SqlValue::Text(text) => query.bind(text),
            SqlValue::Number(number) => query.bind(number),
            SqlValue::Bytes(bytes) => query.bind(bytes),
        })
    }

    pub(super) fn into_postgres(
        self,
    ) -> sqlx::query::Query<'static, Postgres, sqlx::postgres::PgArguments> {
        let query = sqlx::query(AssertSqlSafe(self.sql));
        self.values.into_iter().fold(query, |query, value| match value {
            SqlValue::Id(id) => query.bind(id),
            SqlValue::Text(text) => query.bind(postgres::replace_nul(text)),
            SqlValue::Number(number) => query.bind(number),
            SqlValue::Bytes(bytes) => query.bind(bytes),
        })
    }
}

/// A result row. Columns are numbered from 0.
pub(super) enum SqlRow {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

/// Reads the column at `$index` as the type that the context requires.
macro_rules! column {
    ($row:expr, $index:expr) => {
        match $row {
            SqlRow::Sqlite(row) => row.try_get($index),
            SqlRow::Postgres(row) => row.try_get($index),
        }
    };
}

impl SqlRow {
    pub(super) fn id(&self, index: usize) -> sqlx::Result<Uuid> {
        column!(self, index)
    }

    /// Returns a reference, because the text may be large.
    pub(super) fn text(&self, index: usize) -> sqlx::Result<&str> {
        column!(self, index)
    }

    pub(super) fn optional_text(&self, index: usize) -> sqlx::Result<Option<&str>> {
        column!(self, index)
    }

    pub(super) fn bytes(&self, index: usize) -> sqlx::Result<&[u8]> {
        column!(self, index)
    }

    pub(super) fn number(&self, index: usize) -> sqlx::Result<i64> {
        column!(self, index)
    }

    pub(super) fn optional_number(&self, index: usize) -> sqlx::Result<Option<i64>> {
        column!(self, index)
    }

    /// Returns the amount of a column with its decimal text.
    pub(super) fn amount(&self, index: usize) -> sqlx::Result<Amount> {
        parse_amount(self.text(index)?)
    }
}

/// Parses a stored amount.
pub(super) fn parse_amount(text: &str) -> sqlx::Result<Amount> {
    Amount::parse_exact(text).map_err(|problem| sqlx::Error::Decode(Box::new(problem)))
}

/// The connections that read. They can't write.
pub(super) enum ReadPool {
    Sqlite(SqlitePool),
    Postgres(postgres::PostgresReadPool),
}

impl ReadPool {
    /// Returns the rows one by one, as they are polled.
    pub(super) fn fetch(&self, query: SqlQuery) -> BoxStream<'_, sqlx::Result<SqlRow>> {
        match self {
            Self::Sqlite(pool) => query.into_sqlite().fetch(pool).map_ok(SqlRow::Sqlite).boxed(),
            Self::Postgres(pool) => pool.fetch(query).map_ok(SqlRow::Postgres).boxed(),
        }
    }

    pub(super) async fn fetch_all(&self, query: SqlQuery) -> sqlx::Result<Vec<SqlRow>> {
        self.fetch(query).try_collect().await
    }

    pub(super) async fn fetch_optional(&self, query: SqlQuery) -> sqlx::Result<Option<SqlRow>> {
        self.fetch(query).try_next().await
    }
}

/// A connection that sees one snapshot of the database, even while a server is writing.
pub(super) enum SnapshotConnection {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

impl SnapshotConnection {
    /// Starts the transaction that fixes the snapshot.
    pub(super) async fn start_snapshot(&mut self) -> sqlx::Result<()> {
        match self {
            Self::Sqlite(connection) => sqlx::query("BEGIN").execute(connection).await.map(drop),
            Self::Postgres(connection) => {
                let begin = sqlx::query("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY");
                begin.execute(connection).await.map(drop)
            }
        }
    }

    pub(super) async fn fetch_all(&mut self, query: SqlQuery) -> sqlx::Result<Vec<SqlRow>> {
        match self {
            Self::Sqlite(connection) => {
                query.into_sqlite().fetch(connection).map_ok(SqlRow::Sqlite).try_collect().await
            }
            Self::Postgres(connection) => {
                query.into_postgres().fetch(connection).map_ok(SqlRow::Postgres).try_collect().await
            }
        }
    }

    pub(super) async fn close(self) -> sqlx::Result<()> {
        match self {
            Self::Sqlite(connection) => connection.close().await,
            Self::Postgres(connection) => connection.close().await,
        }
    }
}
