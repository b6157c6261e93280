//! PostgreSQL journals when the server stops, a connection is closed, a statement is cancelled, or
//! another process holds the database (D5, D8).

use crate::cases::{FLOATING_POINT_SPENDING, assert_decimal_spending};
use crate::{
    fixtures::{is_conflict, is_unavailable, message_commit, read_log, session_id},
    postgres::{open, open_with},
    support::{PASSWORD, Postgres},
};
use greenroom::store::{self, DatabaseLocation, Store, StoreError, StoreOptions};
use greenroom_actors::ports::Journal as _;
use greenroom_core::ids::Seq;
use sqlx::{Connection as _, PgConnection, Row as _};
use std::{error::Error as _, time::Duration};

/// Opens a connection besides the journal's own.
async fn second_connection(address: &str) -> PgConnection {
    PgConnection::connect(address).await.unwrap()
}

async fn execute(connection: &mut PgConnection, sql: &'static str) {
    sqlx::raw_sql(sql).execute(connection).await.unwrap();
}

fn short_timeout_options() -> StoreOptions {
    StoreOptions { busy_timeout: Duration::from_millis(1), ..StoreOptions::default() }
}

fn database(address: &str) -> DatabaseLocation {
    address.parse().unwrap()
}

async fn open_error(address: &str) -> StoreError {
    Store::open(database(address), short_timeout_options()).await.unwrap_err()
}

/// Waits until the journal has reconnected. The time at which it notices a lost connection is not
/// defined.
async fn wait_until_available(journal: &Store) {
    while journal.check_health().await.is_err() {
        tokio::task::yield_now().await;
    }
}

const WRITERS: &str = "SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE 'greenroom writer %'";
const TERMINATE_WRITERS: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE 'greenroom writer %'";

#[tokio::test]
async fn d5_second_open_fails_until_first_store_is_closed() {
    let address = Postgres::shared().create_database().await;
    let first = open(&address).await;
    let error = open_error(&address).await;
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    let text = format!("{error} {error:?} {:?}", database(&address));
    assert!(text.contains("advisory lock") && text.contains("127.0.0.1"), "{text}");
    assert!(!text.contains(PASSWORD), "{text}");
    first.append(message_commit(session_id(1), 0, 1, "x")).await.unwrap();
    let read_only = Store::open_read_only(database(&address)).await.unwrap();
    assert_eq!(read_only.load_events(session_id(1), Seq(0), 9).await.unwrap().len(), 1);
    drop(first);
    assert_eq!(read_log(&open(&address).await, session_id(1)).await.len(), 1);
    // A read-only store does not take the lock.
    drop(read_only);
}

#[tokio::test]
async fn d5_newer_database_is_rejected_unchanged() {
    let address = Postgres::shared().create_database().await;
    let first = store::migrate(database(&address)).await.unwrap();
    assert_eq!((first.from_version, first.to_version), (0, 9));
    let second = store::migrate(database(&address)).await.unwrap();
    assert_eq!((second.from_version, second.to_version), (9, 9));
    let mut other = second_connection(&address).await;
    execute(&mut other, "UPDATE greenroom_schema SET version = 99").await;
    let error = open_error(&address).await;
    assert!(matches!(error, StoreError::SchemaTooNew { found: 99, known: 9, .. }), "{error}");
    let error = Store::open_read_only(database(&address)).await.unwrap_err();
    assert!(matches!(error, StoreError::SchemaTooNew { found: 99, .. }), "{error}");
    execute(&mut other, "UPDATE greenroom_schema SET version = 1").await;
    let error = Store::open_read_only(database(&address)).await.unwrap_err();
    assert!(matches!(error, StoreError::SchemaTooOld { found: 1, .. }), "{error}");
    execute(&mut other, "UPDATE greenroom_schema SET version = 9").await;
    open(&address).await.check_health().await.unwrap();
}

/// A journal whose connection was closed does not write to a database that a newer version has
/// migrated since.
#[tokio::test]
async fn d5_reconnected_journal_does_not_write_to_newer_schema() {
    let address = Postgres::shared().create_database().await;
    let journal = open(&address).await;
    journal.append(message_commit(session_id(1), 0, 1, "x")).await.unwrap();
    let mut other = second_connection(&address).await;
    execute(&mut other, "UPDATE greenroom_schema SET version = 10").await;
    execute(&mut other, TERMINATE_WRITERS).await;
    for _ in 0..3 {
        assert!(is_unavailable(&journal.append(message_commit(session_id(1), 1, 1, "y")).await));
    }
    execute(&mut other, "UPDATE greenroom_schema SET version = 9").await;
    journal.append(message_commit(session_id(1), 1, 1, "y")).await.unwrap();
}

/// A database of version 8, in which amounts are floating-point numbers.
#[tokio::test]
async fn d5_g6_amounts_are_decimal_after_migration_from_version_8() {
    let address = Postgres::shared().create_database().await;
    drop(open(&address).await);
    let mut other = second_connection(&address).await;
    for statement in [
        "ALTER TABLE spending ALTER COLUMN amount TYPE DOUBLE PRECISION",
        FLOATING_POINT_SPENDING,
        "UPDATE greenroom_schema SET version = 8",
    ] {
        execute(&mut other, statement).await;
    }
    assert_decimal_spending(&open(&address).await).await;
}

#[tokio::test]
async fn d5_foreign_database_is_rejected_unchanged() {
    let address = Postgres::shared().create_database().await;
    let mut other = second_connection(&address).await;
    execute(&mut other, "CREATE TABLE songs (title TEXT)").await;
    let error = open_error(&address).await;
    assert!(matches!(error, StoreError::ForeignDatabase { .. }), "{error}");
    let tables = "SELECT count(*) FROM pg_class WHERE relkind = 'r'
                  AND relnamespace = current_schema()::regnamespace";
    let count: i64 = sqlx::query(tables).fetch_one(&mut other).await.unwrap().get(0);
    assert_eq!(count, 1);
}

/// E7: the errors do not contain the password, for any kind of wrong address.
#[tokio::test]
async fn d5_failed_login_error_names_server_without_password() {
    let address = Postgres::shared().create_database().await;
    let wrong_addresses = [
        address.replace(PASSWORD, "wrong-secret"),
        address.replace("test_", "no_such_"),
        address.replace("green:", "nobody:"),
        "postgres://green:wrong-secret@127.0.0.1:1/x".to_owned(),
    ];
    for address in wrong_addresses {
        let error = open_error(&address).await;
        assert!(matches!(error, StoreError::Open { .. }), "{error}");
        let source = error.source().unwrap();
        let text = format!("{error} {error:?} {source}");
        assert!(!text.contains(PASSWORD) && !text.contains("wrong-secret"), "{text}");
        assert!(error.to_string().contains("127.0.0.1"), "{error}");
    }
}

/// No acknowledged commit is lost, no commit is stored twice, and the journal recovers by itself.
#[tokio::test]
async fn d8_server_restart_under_load_is_unavailable_then_recovers() {
    let mut server = Postgres::start();
    let address = server.create_database().await;
    let journal = open(&address).await;
    for is_crash in [false, true] {
        // Runs until each session has got an error.
        let load = async {
            let append_until_error = |n: u32| {
                let journal = &journal;
                async move {
                    let (id, mut acknowledged) = (session_id(n), 0);
                    loop {
                        let Ok(head) = journal.load_head(id).await else { return acknowledged };
                        if journal.append(message_commit(id, head.0, 2, "x")).await.is_err() {
                            return acknowledged;
                        }
                        acknowledged = head.0 + 2;
                    }
                }
            };
            futures::future::join_all((1..=20).map(append_until_error)).await
        };
        let journal_is_busy = async {
            while journal.load_head(session_id(20)).await.is_ok_and(|head| head < Seq(6)) {
                tokio::task::yield_now().await;
            }
        };
        let mut load = Box::pin(load);
        tokio::select! {
            _ = &mut load => panic!("an append failed before the server was stopped"),
            () = journal_is_busy => {}
        }
        // On a blocking thread, because stopping the server may take long.
        server = tokio::task::spawn_blocking(move || {
            if is_crash {
                server.crash()
            } else {
                server.stop()
            }
            server
        })
        .await
        .unwrap();
        let acknowledged = load.await;
        assert!(is_unavailable(&journal.append(message_commit(session_id(99), 0, 1, "x")).await));
        assert!(is_unavailable(&journal.check_health().await));

        server = tokio::task::spawn_blocking(move || {
            server.resume();
            server
        })
        .await
        .unwrap();
        wait_until_available(&journal).await;
        for (n, acknowledged) in (1..).zip(acknowledged) {
            let stored = read_log(&journal, session_id(n)).await;
            let count = stored.len() as u64;
            assert!(count >= acknowledged, "{count} of {acknowledged}");
            journal.append(message_commit(session_id(n), count, 2, "x")).await.unwrap();
            let expected = message_commit(session_id(n), 0, count + 2, "x").records;
            assert_eq!(read_log(&journal, session_id(n)).await, expected.to_vec());
        }
        assert_eq!(journal.load_head(session_id(99)).await.unwrap(), Seq(0));
    }
}

#[tokio::test]
async fn d8_closed_connection_is_reopened() {
    let address = Postgres::shared().create_database().await;
    let journal = open(&address).await;
    journal.append(message_commit(session_id(1), 0, 2, "x")).await.unwrap();
    let mut other = second_connection(&address).await;
    for head in 2..5 {
        execute(&mut other, TERMINATE_WRITERS).await;
        // The loss is noticed when the connection is used.
        assert!(is_unavailable(
            &journal.append(message_commit(session_id(1), head, 1, "lost")).await
        ));
        journal.append(message_commit(session_id(1), head, 1, "x")).await.unwrap();
    }
    assert_eq!(read_log(&journal, session_id(1)).await.len(), 5);
    assert_eq!(sqlx::query(WRITERS).fetch_all(&mut other).await.unwrap().len(), 1);
    // The same for read connections.
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE datname = current_database() AND application_name = 'greenroom'";
    execute(&mut other, cut).await;
    while journal.load_head(session_id(1)).await.is_err() {}
}

#[tokio::test]
async fn d8_cancelled_statement_stores_nothing() {
    let address = Postgres::shared().create_database().await;
    let journal = open(&address).await;
    journal.append(message_commit(session_id(1), 0, 1, "x")).await.unwrap();
    let mut blocker = second_connection(&address).await;
    execute(&mut blocker, "BEGIN; LOCK TABLE commits").await;
    let append = journal.append(message_commit(session_id(1), 1, 1, "y"));
    let cancel = async {
        let mut other = second_connection(&address).await;
        let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'
            AND application_name LIKE 'greenroom writer %'";
        while sqlx::query(cancel).fetch_all(&mut other).await.unwrap().is_empty() {}
    };
    let (appended, ()) = futures::join!(append, cancel);
    assert!(is_unavailable(&appended), "{appended:?}");
    execute(&mut blocker, "ROLLBACK").await;
    assert_eq!(journal.load_head(session_id(1)).await.unwrap(), Seq(1));
    journal.append(message_commit(session_id(1), 1, 1, "y")).await.unwrap();
}

/// Two processes never both write to a database, no matter how the first one loses its connection.
#[tokio::test]
async fn d5_disconnected_process_cannot_write_after_takeover() {
    let address = Postgres::shared().create_database().await;
    let first = open_with(&address, short_timeout_options()).await;
    first.append(message_commit(session_id(1), 0, 2, "first")).await.unwrap();
    let mut other = second_connection(&address).await;
    execute(&mut other, TERMINATE_WRITERS).await;
    // The server releases the lock when it has closed the connection.
    let second = open(&address).await;
    second.append(message_commit(session_id(1), 2, 2, "second")).await.unwrap();
    for _ in 0..3 {
        let result = first.append(message_commit(session_id(1), 2, 1, "first")).await;
        let reason = result.unwrap_err().to_string();
        assert!(reason.contains("terminat") || reason.contains("taken over"), "{reason}");
    }
    assert_eq!(read_log(&first, session_id(1)).await.len(), 4, "reads still work");
    drop(second);
    wait_until_available(&first).await;
    let outdated_append = first.append(message_commit(session_id(1), 2, 1, "first")).await;
    assert!(is_conflict(&outdated_append), "the cached head was cleared: {outdated_append:?}");
    first.append(message_commit(session_id(1), 4, 1, "first")).await.unwrap();
}

/// The unique key of the table detects a write that is missing in the writer's cache.
#[tokio::test]
async fn foreign_write_conflicts_only_for_its_session() {
    let address = Postgres::shared().create_database().await;
    let journal = open(&address).await;
    for n in 1..=3 {
        journal.append(message_commit(session_id(n), 0, 2, "x")).await.unwrap();
    }
    let insert_seq_3 = "INSERT INTO commits (session_id, first_seq, last_seq, at, codec, events)
        SELECT session_id, 3, 3, at, codec, '[]' FROM commits ORDER BY id LIMIT 1";
    execute(&mut second_connection(&address).await, insert_seq_3).await;
    let appends = (1..=3).map(|n| journal.append(message_commit(session_id(n), 2, 1, "y")));
    let results = futures::future::join_all(appends).await;
    assert!(is_conflict(&results[0]), "{:?}", results[0]);
    assert!(results[1..].iter().all(Result::is_ok), "{results:?}");
}
