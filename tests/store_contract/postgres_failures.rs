//! What PostgreSQL journals do when the server goes away, a connection is cut, a statement is
//! cancelled, or somebody else has the database (D5, D8).

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

/// A connection beside the journal's own.
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

/// Tries until it works: what was lost comes back by itself, but nothing says when it was noticed.
async fn wait_until_available(journal: &Store) {
    while journal.check_health().await.is_err() {
        tokio::task::yield_now().await;
    }
}

const WRITERS: &str = "SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE 'greenroom writer %'";
const CUT_WRITERS: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE 'greenroom writer %'";

#[tokio::test]
async fn d5_a_second_opener_is_refused_until_the_first_is_gone() {
    let address = Postgres::shared().create_database().await;
    let first = open(&address).await;
    let error = open_error(&address).await;
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    let text = format!("{error} {error:?} {:?}", database(&address));
    assert!(text.contains("advisory lock") && text.contains("127.0.0.1"), "{text}");
    assert!(!text.contains(PASSWORD), "{text}");
    first.append(message_commit(session_id(1), 0, 1, "x")).await.unwrap();
    let beside = Store::open_read_only(database(&address)).await.unwrap();
    assert_eq!(beside.load_events(session_id(1), Seq(0), 9).await.unwrap().len(), 1);
    drop(first);
    assert_eq!(read_log(&open(&address).await, session_id(1)).await.len(), 1);
    // Who looks keeps nobody out.
    drop(beside);
}

#[tokio::test]
async fn d5_a_newer_database_is_refused_and_left_as_it_is() {
    let address = Postgres::shared().create_database().await;
    let first = store::migrate(database(&address)).await.unwrap();
    assert_eq!((first.from_version, first.to_version), (0, 4));
    let second = store::migrate(database(&address)).await.unwrap();
    assert_eq!((second.from_version, second.to_version), (4, 4));
    let mut outsider = second_connection(&address).await;
    execute(&mut outsider, "UPDATE greenroom_schema SET version = 99").await;
    let error = open_error(&address).await;
    assert!(matches!(error, StoreError::SchemaTooNew { found: 99, known: 4, .. }), "{error}");
    let error = Store::open_read_only(database(&address)).await.unwrap_err();
    assert!(matches!(error, StoreError::SchemaTooNew { found: 99, .. }), "{error}");
    execute(&mut outsider, "UPDATE greenroom_schema SET version = 1").await;
    let error = Store::open_read_only(database(&address)).await.unwrap_err();
    assert!(matches!(error, StoreError::SchemaTooOld { found: 1, .. }), "{error}");
    execute(&mut outsider, "UPDATE greenroom_schema SET version = 4").await;
    open(&address).await.check_health().await.unwrap();
}

/// A database that is migrated by a newer version while we were cut off is not written by us.
#[tokio::test]
async fn d5_a_schema_that_changed_meanwhile_is_not_written() {
    let address = Postgres::shared().create_database().await;
    let journal = open(&address).await;
    journal.append(message_commit(session_id(1), 0, 1, "x")).await.unwrap();
    let mut outsider = second_connection(&address).await;
    execute(&mut outsider, "UPDATE greenroom_schema SET version = 5").await;
    execute(&mut outsider, CUT_WRITERS).await;
    for _ in 0..3 {
        assert!(is_unavailable(&journal.append(message_commit(session_id(1), 1, 1, "y")).await));
    }
    execute(&mut outsider, "UPDATE greenroom_schema SET version = 4").await;
    journal.append(message_commit(session_id(1), 1, 1, "y")).await.unwrap();
}

#[tokio::test]
async fn d5_another_programs_database_is_refused_and_left_as_it_is() {
    let address = Postgres::shared().create_database().await;
    let mut outsider = second_connection(&address).await;
    execute(&mut outsider, "CREATE TABLE songs (title TEXT)").await;
    let error = open_error(&address).await;
    assert!(matches!(error, StoreError::ForeignDatabase { .. }), "{error}");
    let tables = "SELECT count(*) FROM pg_class WHERE relkind = 'r'
                  AND relnamespace = current_schema()::regnamespace";
    let count: i64 = sqlx::query(tables).fetch_one(&mut outsider).await.unwrap().get(0);
    assert_eq!(count, 1);
}

/// E7: whatever is wrong with the address, the password is not in what is said of it.
#[tokio::test]
async fn d5_a_server_that_does_not_let_us_in_is_named_without_the_password() {
    let address = Postgres::shared().create_database().await;
    let wrong = [
        address.replace(PASSWORD, "wrong-secret"),
        address.replace("test_", "no_such_"),
        address.replace("green:", "nobody:"),
        "postgres://green:wrong-secret@127.0.0.1:1/x".to_owned(),
    ];
    for address in wrong {
        let error = open_error(&address).await;
        assert!(matches!(error, StoreError::Open { .. }), "{error}");
        let source = error.source().unwrap();
        let told = format!("{error} {error:?} {source}");
        assert!(!told.contains(PASSWORD) && !told.contains("wrong-secret"), "{told}");
        assert!(error.to_string().contains("127.0.0.1"), "{error}");
    }
}

/// D8: nothing acknowledged is lost, nothing is stored twice, and it goes on by itself.
#[tokio::test]
async fn d8_a_server_that_restarts_under_load_is_unavailable_and_then_works() {
    let mut server = Postgres::start();
    let address = server.create_database().await;
    let journal = open(&address).await;
    for crashes in [false, true] {
        // Until each session has seen the outage.
        let load = async {
            let one = |n: u32| {
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
            futures::future::join_all((1..=20).map(one)).await
        };
        let journal_is_busy = async {
            while journal.load_head(session_id(20)).await.is_ok_and(|head| head < Seq(6)) {
                tokio::task::yield_now().await;
            }
        };
        let mut load = Box::pin(load);
        tokio::select! {
            _ = &mut load => panic!("nothing was wrong yet"),
            () = journal_is_busy => {}
        }
        // The server may take as long as it likes; the journal is not waited for.
        server = tokio::task::spawn_blocking(move || {
            if crashes {
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
async fn d8_a_connection_that_is_cut_is_made_again() {
    let address = Postgres::shared().create_database().await;
    let journal = open(&address).await;
    journal.append(message_commit(session_id(1), 0, 2, "x")).await.unwrap();
    let mut outsider = second_connection(&address).await;
    for head in 2..5 {
        execute(&mut outsider, CUT_WRITERS).await;
        // It is noticed when it is used.
        assert!(is_unavailable(
            &journal.append(message_commit(session_id(1), head, 1, "lost")).await
        ));
        journal.append(message_commit(session_id(1), head, 1, "x")).await.unwrap();
    }
    assert_eq!(read_log(&journal, session_id(1)).await.len(), 5);
    assert_eq!(sqlx::query(WRITERS).fetch_all(&mut outsider).await.unwrap().len(), 1);
    // Readers, too.
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE datname = current_database() AND application_name = 'greenroom'";
    execute(&mut outsider, cut).await;
    while journal.load_head(session_id(1)).await.is_err() {}
}

#[tokio::test]
async fn d8_a_statement_that_is_cancelled_stores_nothing() {
    let address = Postgres::shared().create_database().await;
    let journal = open(&address).await;
    journal.append(message_commit(session_id(1), 0, 1, "x")).await.unwrap();
    let mut blocker = second_connection(&address).await;
    execute(&mut blocker, "BEGIN; LOCK TABLE commits").await;
    let append = journal.append(message_commit(session_id(1), 1, 1, "y"));
    let cancel = async {
        let mut outsider = second_connection(&address).await;
        let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'
            AND application_name LIKE 'greenroom writer %'";
        while sqlx::query(cancel).fetch_all(&mut outsider).await.unwrap().is_empty() {}
    };
    let (appended, ()) = futures::join!(append, cancel);
    assert!(is_unavailable(&appended), "{appended:?}");
    execute(&mut blocker, "ROLLBACK").await;
    assert_eq!(journal.load_head(session_id(1)).await.unwrap(), Seq(1));
    journal.append(message_commit(session_id(1), 1, 1, "y")).await.unwrap();
}

/// Two servers of one database never both write, whatever becomes of the first one's connection.
#[tokio::test]
async fn d5_whoever_was_cut_off_can_t_write_while_another_has_taken_over() {
    let address = Postgres::shared().create_database().await;
    let first = open_with(&address, short_timeout_options()).await;
    first.append(message_commit(session_id(1), 0, 2, "first")).await.unwrap();
    let mut outsider = second_connection(&address).await;
    execute(&mut outsider, CUT_WRITERS).await;
    // The lock is free once the server is done with the connection.
    let second = open(&address).await;
    second.append(message_commit(session_id(1), 2, 2, "second")).await.unwrap();
    for _ in 0..3 {
        let refused = first.append(message_commit(session_id(1), 2, 1, "first")).await;
        let why = refused.unwrap_err().to_string();
        assert!(why.contains("terminat") || why.contains("taken over"), "{why}");
    }
    assert_eq!(read_log(&first, session_id(1)).await.len(), 4, "it may go on reading");
    drop(second);
    wait_until_available(&first).await;
    let late = first.append(message_commit(session_id(1), 2, 1, "first")).await;
    assert!(is_conflict(&late), "what it remembered is forgotten: {late:?}");
    first.append(message_commit(session_id(1), 4, 1, "first")).await.unwrap();
}

/// The key of the table stands behind what the writer remembers.
#[tokio::test]
async fn a_write_behind_the_journals_back_is_a_conflict_for_its_session_alone() {
    let address = Postgres::shared().create_database().await;
    let journal = open(&address).await;
    for n in 1..=3 {
        journal.append(message_commit(session_id(n), 0, 2, "x")).await.unwrap();
    }
    let takes_seq_3 = "INSERT INTO commits (session_id, first_seq, last_seq, at, codec, events)
        SELECT session_id, 3, 3, at, codec, '[]' FROM commits ORDER BY id LIMIT 1";
    execute(&mut second_connection(&address).await, takes_seq_3).await;
    let appends = (1..=3).map(|n| journal.append(message_commit(session_id(n), 2, 1, "y")));
    let results = futures::future::join_all(appends).await;
    assert!(is_conflict(&results[0]), "{:?}", results[0]);
    assert!(results[1..].iter().all(Result::is_ok), "{results:?}");
}
