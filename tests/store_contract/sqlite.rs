//! The contract on SQLite, and the data that survives a restart.

use crate::fixtures::{
    all_events, approval_id, approval_row, commit, message_commit, read_log, session_id,
    session_row, user, with_rows,
};
use greenroom::store::{Durability, Store, StoreOptions};
use greenroom_actors::ports::Journal;
use greenroom_core::{
    json::Digest,
    policy::Settings,
    session::{ApprovalState, SessionStatus},
};
use sqlx::{Connection, SqliteConnection, sqlite::SqliteConnectOptions};
use std::{path::Path, sync::Arc};
use tempfile::TempDir;

pub(crate) async fn open(path: &Path) -> Store {
    Store::open(path, StoreOptions::default()).await.unwrap()
}

/// Opens a connection besides the journal's own.
pub(crate) async fn second_connection(path: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(path);
    SqliteConnection::connect_with(&options).await.unwrap()
}

pub(crate) async fn execute(connection: &mut SqliteConnection, sql: &'static str) {
    sqlx::raw_sql(sql).execute(connection).await.unwrap();
}

async fn open_empty_with(durability: Durability) -> (Arc<dyn Journal>, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let options = StoreOptions { durability, ..StoreOptions::default() };
    let journal = Store::open(&folder.path().join("green.db"), options).await.unwrap();
    (Arc::new(journal), folder)
}

mod durability_fsync {
    async fn open_empty() -> (std::sync::Arc<dyn super::Journal>, super::TempDir) {
        super::open_empty_with(super::Durability::Fsync).await
    }
    crate::cases::contract_tests! { open_empty }
}

mod durability_process {
    async fn open_empty() -> (std::sync::Arc<dyn super::Journal>, super::TempDir) {
        super::open_empty_with(super::Durability::Process).await
    }
    crate::cases::contract_tests! { open_empty }
}

/// Stores at least one entry of each kind; every write is acknowledged.
async fn store_one_of_each(journal: &Store) {
    let row = session_row(1, "alice", SessionStatus::Running);
    let pending_approval = approval_row(1, 1, "alice", ApprovalState::Pending);
    let first = commit(session_id(1), 0, all_events());
    journal.append(with_rows(first, Some(row), vec![pending_approval])).await.unwrap();
    let head = all_events().len() as u64;
    journal.append(message_commit(session_id(1), head, 2, "more")).await.unwrap();
    journal.store_settings(&user("alice"), &Settings::default()).await.unwrap();
}

async fn assert_all_stored(journal: &Store) {
    let head = all_events().len() as u64;
    let mut records = all_events();
    records.extend_from_slice(&message_commit(session_id(1), head, 2, "more").records);
    assert_eq!(read_log(journal, session_id(1)).await, records);
    let row = session_row(1, "alice", SessionStatus::Running);
    assert_eq!(journal.load_session(session_id(1)).await.unwrap(), Some(row));
    let pending_approval = approval_row(1, 1, "alice", ApprovalState::Pending);
    assert_eq!(journal.load_approval(approval_id(1)).await.unwrap(), Some(pending_approval));
    assert_eq!(journal.load_settings(&user("alice")).await.unwrap(), Some(Settings::default()));
    assert_eq!(journal.list_unfinished_sessions().await.unwrap(), [session_id(1)]);
    assert_eq!(journal.list_pending_deadlines().await.unwrap().len(), 1);
    // The journal also accepts new commits.
    journal.append(message_commit(session_id(1), head + 2, 1, "on")).await.unwrap();
}

#[tokio::test]
async fn acknowledged_writes_survive_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let journal = open(&path).await;
    assert_eq!((journal.migration().from_version, journal.migration().to_version), (0, 10));
    store_one_of_each(&journal).await;
    drop(journal);
    let journal = open(&path).await;
    assert_eq!((journal.migration().from_version, journal.migration().to_version), (10, 10));
    assert_all_stored(&journal).await;
}

/// The files as a killed process leaves them contain every acknowledged commit.
#[tokio::test]
async fn d2_acknowledged_writes_survive_kill() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let copy = folder.path().join("copy.db");
    let journal = open(&path).await;
    store_one_of_each(&journal).await;
    for suffix in ["", "-wal"] {
        let name = |path: &Path| format!("{}{suffix}", path.display());
        std::fs::copy(name(&path), name(&copy)).unwrap();
    }
    assert_all_stored(&open(&copy).await).await;
}

/// Commits that arrive during a write are written as one group; only the outdated commit of the
/// group conflicts.
#[tokio::test]
async fn d4_waiting_commits_are_written_as_one_group() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let journal = open(&path).await;
    journal.append(message_commit(session_id(1), 0, 1, "x")).await.unwrap();
    let mut other = second_connection(&path).await;
    execute(&mut other, "BEGIN IMMEDIATE").await;

    let before = commits_in_log(&path);
    // Few enough for one poll, whose work the runtime limits.
    let appends = (1..=40).map(|n| journal.append(message_commit(session_id(n), 0, 1, "x")));
    let mut all = Box::pin(futures::future::join_all(appends));
    // After one poll all commits have been sent to the writer; none can be written yet.
    assert!(futures::poll!(&mut all).is_pending());
    execute(&mut other, "ROLLBACK").await;
    let results = all.await;

    assert!(crate::fixtures::is_conflict(&results[0]));
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 39);
    // At most two groups: commits the writer had already received, and the rest.
    let written = commits_in_log(&path) - before;
    assert!((1..=2).contains(&written), "{written} transactions");
}

/// Returns the number of transactions in the write-ahead log: the last frame of each contains the
/// size of the database.
fn commits_in_log(path: &Path) -> usize {
    const HEADER: usize = 32;
    const FRAME: usize = 24 + 4096;
    let log = std::fs::read(format!("{}-wal", path.display())).unwrap();
    log[HEADER..].chunks_exact(FRAME).filter(|frame| frame[4..8] != [0; 4]).count()
}

#[tokio::test]
async fn e7_digest_key_is_created_once_for_each_database() {
    let folder = tempfile::tempdir().unwrap();
    let digest = Digest::hash_bytes(b"x");
    let key_of = async |name: &str| open(&folder.path().join(name)).await.digest_key().clone();
    let first = key_of("first.db").await.apply(digest);
    assert_eq!(key_of("first.db").await.apply(digest), first);
    assert_ne!(key_of("second.db").await.apply(digest), first);
}
