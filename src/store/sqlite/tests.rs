use super::backend;
use crate::store::{Store, StoreOptions, admin_records, queries, sql::ReadPool};
use rusqlite::{Connection, StatementStatus, ToSql};
use sqlx::{AssertSqlSafe, Row as _};

/// D6: however much is stored, every question finds its answer through an index, already in its
/// order. Only the indexes of what is running or pending are read from end to end, and the few
/// keys.
async fn assert_index(readers: &ReadPool, sql: &str, index: &str) {
    let ReadPool::Sqlite(pool) = readers else { panic!("it is SQLite's") };
    let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
    let rows = sqlx::raw_sql(explain).fetch_all(pool).await.unwrap();
    let plan: Vec<String> = rows.iter().map(|row| row.get(3)).collect();
    let plan = plan.join("; ");
    assert!(plan.contains(index) && !plan.contains("TEMP B-TREE"), "{sql}: {plan}");
    let short = ["sessions_running", "approvals_pending", "SCAN api_keys"];
    let is_short = short.iter().any(|short| plan.contains(short));
    // The ids that the writer asks for come as a list.
    let scans = plan.replace("SCAN json_each", "");
    assert!(is_short || !scans.contains("SCAN"), "{sql}: {plan}");
}

#[tokio::test]
async fn every_query_uses_an_index() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let store = Store::open(&path, StoreOptions::default()).await.unwrap();
    for (query, index) in queries::every_query() {
        assert_index(&store.read_pool, query.sql(), index).await;
    }
}

#[tokio::test]
async fn no_query_looks_through_the_audit_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let store = Store::open(&path, StoreOptions::default()).await.unwrap();
    for (query, index) in admin_records::every_query() {
        assert_index(&store.read_pool, query.sql(), index).await;
    }
}

#[tokio::test]
async fn no_statement_of_the_writer_looks_through_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let store = Store::open(&path, StoreOptions::default()).await.unwrap();
    for (sql, index) in backend::every_statement() {
        assert_index(&store.read_pool, sql, index).await;
    }
}

/// SQLite looks at the value of a bare `LIMIT ?`, and then prepares the statement anew whenever another
/// one is bound, which takes longer than most answers.
#[tokio::test]
async fn no_statement_is_prepared_again_for_another_value() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    drop(Store::open(&path, StoreOptions::default()).await.unwrap());
    let connection = Connection::open(&path).unwrap();
    let asked = queries::every_query().into_iter().chain(admin_records::every_query());
    let asked = asked.map(|(query, _)| query.sql().to_owned());
    let written = backend::every_statement().into_iter().map(|(sql, _)| sql.to_owned());
    let read_only = |sql: &String| sql.trim_start().starts_with("SELECT");
    let times_prepared_again = |sql: &str| {
        let mut statement = connection.prepare(sql).unwrap();
        for value in 1..4_i64 {
            let values = vec![&value as &dyn ToSql; statement.parameter_count()];
            let mut rows = statement.query(&values[..]).unwrap();
            while rows.next().unwrap().is_some() {}
        }
        statement.get_status(StatementStatus::RePrepare)
    };
    // Once this is none, neither need the others be a sum.
    assert!(times_prepared_again("SELECT n FROM audit ORDER BY n LIMIT ?1") > 0);
    for sql in asked.chain(written).filter(read_only) {
        assert_eq!(times_prepared_again(&sql), 0, "{sql}");
    }
}
