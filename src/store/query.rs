//! A question to either database: its text, its values, and the rows that answer it. What is asked
//! is written once, in SQL that both understand; how it gets there is each database's own.

use super::postgres;
use futures::{StreamExt as _, TryStreamExt as _, stream::BoxStream};
use sqlx::{
    AssertSqlSafe, Connection as _, PgConnection, Postgres, Row as _, Sqlite, SqliteConnection,
    SqlitePool, postgres::PgRow, sqlite::SqliteRow,
};
use uuid::Uuid;

/// A value in a question.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Id(Uuid),
    Text(String),
    Number(i64),
    Bytes(Vec<u8>),
}

impl From<Uuid> for Value {
    fn from(id: Uuid) -> Self {
        Self::Id(id)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.to_owned())
    }
}

/// A question. Its text is this program's own; whatever comes from outside is a value.
#[derive(Clone, Debug)]
pub(super) struct Query {
    sql: String,
    values: Vec<Value>,
}

impl Query {
    pub(super) fn new(sql: &'static str) -> Self {
        Self { sql: sql.to_owned(), values: Vec::new() }
    }

    /// The value of the text's next `$n`.
    pub(super) fn bind(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }

    /// More text.
    pub(super) fn push(&mut self, sql: &'static str) -> &mut Self {
        self.sql.push_str(sql);
        self
    }

    /// More text, and a value behind it.
    pub(super) fn push_bind(&mut self, sql: &'static str, value: impl Into<Value>) -> &mut Self {
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

    fn for_sqlite(self) -> sqlx::query::Query<'static, Sqlite, sqlx::sqlite::SqliteArguments> {
        let query = sqlx::query(AssertSqlSafe(self.sql));
        self.values.into_iter().fold(query, |query, value| match value {
            Value::Id(id) => query.bind(id),
            Value::Text(text) => query.bind(text),
            Value::Number(number) => query.bind(number),
            Value::Bytes(bytes) => query.bind(bytes),
        })
    }

    pub(super) fn for_postgres(
        self,
    ) -> sqlx::query::Query<'static, Postgres, sqlx::postgres::PgArguments> {
        let query = sqlx::query(AssertSqlSafe(self.sql));
        self.values.into_iter().fold(query, |query, value| match value {
            Value::Id(id) => query.bind(id),
            Value::Text(text) => query.bind(postgres::text(text)),
            Value::Number(number) => query.bind(number),
            Value::Bytes(bytes) => query.bind(bytes),
        })
    }
}

/// A row of an answer. Columns are counted from 0.
pub(super) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

/// The column at `$index`, as whatever type is wanted.
macro_rules! column {
    ($row:expr, $index:expr) => {
        match $row {
            Row::Sqlite(row) => row.try_get($index),
            Row::Postgres(row) => row.try_get($index),
        }
    };
}

impl Row {
    pub(super) fn id(&self, index: usize) -> sqlx::Result<Uuid> {
        column!(self, index)
    }

    /// By reference: it may be large.
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

    pub(super) fn optional_amount(&self, index: usize) -> sqlx::Result<Option<f64>> {
        column!(self, index)
    }
}

/// Where answers come from: connections that read, and can't write.
pub(super) enum Readers {
    Sqlite(SqlitePool),
    Postgres(postgres::Readers),
}

impl Readers {
    /// The rows, one by one as they are wanted.
    pub(super) fn rows(&self, query: Query) -> BoxStream<'_, sqlx::Result<Row>> {
        match self {
            Self::Sqlite(pool) => query.for_sqlite().fetch(pool).map_ok(Row::Sqlite).boxed(),
            Self::Postgres(readers) => readers.rows(query).map_ok(Row::Postgres).boxed(),
        }
    }

    pub(super) async fn all(&self, query: Query) -> sqlx::Result<Vec<Row>> {
        self.rows(query).try_collect().await
    }

    pub(super) async fn first(&self, query: Query) -> sqlx::Result<Option<Row>> {
        self.rows(query).try_next().await
    }
}

/// One connection that sees one moment of the database, though a server may be writing it.
pub(super) enum Snapshot {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

impl Snapshot {
    /// From now on it is this moment.
    pub(super) async fn begin(&mut self) -> sqlx::Result<()> {
        match self {
            Self::Sqlite(connection) => sqlx::query("BEGIN").execute(connection).await.map(drop),
            Self::Postgres(connection) => {
                let begin = sqlx::query("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY");
                begin.execute(connection).await.map(drop)
            }
        }
    }

    pub(super) async fn all(&mut self, query: Query) -> sqlx::Result<Vec<Row>> {
        match self {
            Self::Sqlite(connection) => {
                query.for_sqlite().fetch(connection).map_ok(Row::Sqlite).try_collect().await
            }
            Self::Postgres(connection) => {
                query.for_postgres().fetch(connection).map_ok(Row::Postgres).try_collect().await
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
