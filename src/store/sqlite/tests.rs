use super::backend;
use crate::store::{
    Store, StoreOptions, admin_records, digest_key, queries, requests, sql::ReadPool, tool_names,
};
use rusqlite::{Connection, StatementStatus, ToSql};
use sqlx::{AssertSqlSafe, Row as _};

/// D6: every query finds its rows through an index, in the order of the index. Only the indexes of
/// running and pending rows, and the few keys, are scanned.
async fn assert_index(read_pool: &ReadPool, sql: &str, index: &str) {
    let ReadPool::Sqlite(pool) = read_pool else { panic!("not an SQLite pool") };
    let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
    let rows = sqlx::raw_sql(explain).fetch_all(pool).await.unwrap();
    let plan: Vec<String> = rows.iter().map(|row| row.get(3)).collect();
    let plan = plan.join("; ");
    assert!(plan.contains(index) && !plan.contains("TEMP B-TREE"), "{sql}: {plan}");
    let short_indexes = ["sessions_running", "approvals_pending", "SCAN api_keys"];
    let is_short = short_indexes.iter().any(|index| plan.contains(index));
    // The ids that the writer binds are a list.
    let scans = plan.replace("SCAN json_each", "");
    assert!(is_short || !scans.contains("SCAN"), "{sql}: {plan}");
}

#[tokio::test]
async fn every_query_uses_an_index() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let store = Store::open(&path, StoreOptions::default()).await.unwrap();
    for (query, index) in queries::every_query()
        .into_iter()
        .chain(digest_key::every_query())
        .chain(requests::every_query())
        .chain(tool_names::every_query())
    {
        assert_index(&store.read_pool, query.sql(), index).await;
    }
}

#[tokio::test]
async fn every_audit_query_uses_an_index() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let store = Store::open(&path, StoreOptions::default()).await.unwrap();
    for (query, index) in admin_records::every_query() {
        assert_index(&store.read_pool, query.sql(), index).await;
    }
}

#[tokio::test]
async fn every_writer_statement_uses_an_index() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let store = Store::open(&path, StoreOptions::default()).await.unwrap();
    for (sql, index) in backend::every_statement() {
        assert_index(&store.read_pool, sql, index).await;
    }
}

/// SQLite inspects the value of a bare `LIMIT ?` and prepares the statement again whenever another
/// value is bound, which takes longer than most queries.
#[tokio::test]
async fn statements_are_not_prepared_again_for_other_values() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    drop(Store::open(&path, StoreOptions::default()).await.unwrap());
    let connection = Connection::open(&path).unwrap();
    let queries = queries::every_query().into_iter().chain(admin_records::every_query());
    let queries = queries.map(|(query, _)| query.sql().to_owned());
    let statements = backend::every_statement().into_iter().map(|(sql, _)| sql.to_owned());
    let is_select = |sql: &String| sql.trim_start().starts_with("SELECT");
    let count_reprepares = |sql: &str| {
        let mut statement = connection.prepare(sql).unwrap();
        for value in 1..4_i64 {
            let values = vec![&value as &dyn ToSql; statement.parameter_count()];
            let mut rows = statement.query(&values[..]).unwrap();
            while rows.next().unwrap().is_some() {}
        }
        statement.get_status(StatementStatus::RePrepare)
    };
    // If this fails, SQLite has changed and the limits no longer need to be sums.
    assert!(count_reprepares("SELECT n FROM audit ORDER BY n LIMIT ?1") > 0);
    for sql in queries.chain(statements).filter(is_select) {
        assert_eq!(count_reprepares(&sql), 0, "{sql}");
    }
}
