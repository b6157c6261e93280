//! SQLite journals when the database is locked, full, damaged or changed by another process (D8).

use crate::{
    fixtures::{
        approval_id, approval_row, is_conflict, is_unavailable, message_commit, read_log,
        session_id, session_row, user, with_rows,
    },
    sqlite::{execute, open, second_connection},
};
use greenroom::store::{Store, StoreError, StoreOptions};
use greenroom_actors::ports::{Journal, JournalError};
use greenroom_core::{
    ids::Seq,
    session::{ApprovalState, SessionStatus},
};
use std::{path::Path, time::Duration};

#[tokio::test]
async fn d8_locked_database_is_unavailable_until_unlocked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let busy_timeout = Duration::from_millis(1);
    let options = StoreOptions { busy_timeout, ..StoreOptions::default() };
    let journal = Store::open(&path, options).await.unwrap();
    journal.append(message_commit(session_id(1), 0, 1, "before")).await.unwrap();

    let mut other = second_connection(&path).await;
    execute(&mut other, "BEGIN IMMEDIATE").await;
    let row = session_row(1, "alice", SessionStatus::Idle);
    let pending_approval = approval_row(1, 1, "alice", ApprovalState::Pending);
    let during =
        with_rows(message_commit(session_id(1), 1, 1, "during"), Some(row), vec![pending_approval]);
    assert!(is_unavailable(&journal.append(during.clone()).await));
    assert!(is_unavailable(&journal.append(message_commit(session_id(1), 1, 1, "plain")).await));
    let settings = greenroom_core::policy::Settings::default();
    assert!(is_unavailable(&journal.store_settings(&user("alice"), &settings).await));
    assert!(is_unavailable(&journal.check_health().await));
    // Reads still work.
    assert_eq!(journal.load_head(session_id(1)).await.unwrap(), Seq(1));

    execute(&mut other, "ROLLBACK").await;
    assert_eq!(journal.load_session(session_id(1)).await.unwrap(), None);
    assert_eq!(journal.load_approval(approval_id(1)).await.unwrap(), None);
    journal.append(during).await.unwrap();
    journal.check_health().await.unwrap();
    assert_eq!(read_log(&journal, session_id(1)).await.len(), 2);
}

#[tokio::test]
async fn d8_full_disk_rejects_writes_and_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let options = StoreOptions { size_bytes_max: Some(512 * 1024), ..StoreOptions::default() };
    let journal = Store::open(&path, options).await.unwrap();
    let text = "x".repeat(16 * 1024);
    let mut stored = 0;
    let result = loop {
        assert!(stored < 64, "the database never fills up");
        // Every second commit also changes a row, and is therefore written in a transaction.
        let mut commit = message_commit(session_id(1), stored, 1, &text);
        if stored % 2 == 0 {
            commit = with_rows(commit, Some(session_row(1, "a", SessionStatus::Idle)), vec![]);
        }
        match journal.append(commit).await {
            Ok(()) => stored += 1,
            error => break error,
        }
    };
    assert!(matches!(&result, Err(JournalError::Unavailable(why)) if why.contains("full")));
    assert!(stored > 10);
    let row = session_row(2, "alice", SessionStatus::Running);
    let large = with_rows(message_commit(session_id(2), 0, 8, &text), Some(row), vec![]);
    assert!(is_unavailable(&journal.append(large.clone()).await));
    assert_eq!(journal.load_head(session_id(2)).await.unwrap(), Seq(0));
    assert_eq!(journal.load_session(session_id(2)).await.unwrap(), None);
    assert_eq!(journal.load_head(session_id(1)).await.unwrap(), Seq(stored));

    execute(&mut second_connection(&path).await, "DELETE FROM commits").await;
    journal.append(large).await.unwrap();
    assert_eq!(journal.load_head(session_id(2)).await.unwrap(), Seq(8));
}

/// The unique key of the table detects a write that is missing in the writer's cache.
#[tokio::test]
async fn foreign_write_conflicts_only_for_its_session() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let journal = open(&path).await;
    for n in 1..=3 {
        journal.append(message_commit(session_id(n), 0, 2, "x")).await.unwrap();
    }
    let insert_seq_3 = "INSERT INTO commits (session_id, first_seq, last_seq, at, codec, events)
        SELECT session_id, 3, 3, at, codec, '[]' FROM commits ORDER BY id LIMIT 1";
    execute(&mut second_connection(&path).await, insert_seq_3).await;

    let appends = (1..=4).map(|n| {
        let head = if n == 4 { 0 } else { 2 };
        let row = session_row(n, "alice", SessionStatus::Idle);
        journal.append(with_rows(message_commit(session_id(n), head, 1, "y"), Some(row), vec![]))
    });
    let results = futures::future::join_all(appends).await;
    assert!(is_conflict(&results[0]), "{:?}", results[0]);
    assert!(results[1..].iter().all(Result::is_ok), "{results:?}");
    assert_eq!(journal.load_session(session_id(1)).await.unwrap(), None);
    assert_eq!(journal.load_head(session_id(4)).await.unwrap(), Seq(1));
}

/// Opens the same database again, with empty caches.
async fn reopen(journal: Store, path: &Path) -> Store {
    drop(journal);
    open(path).await
}

#[tokio::test]
async fn d8_damage_error_names_events() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let mut journal = open(&path).await;
    let damages = [
        "UPDATE commits SET events = '[{\"seq\":' WHERE first_seq = 3",
        "UPDATE commits SET events = x'ff' WHERE first_seq = 3",
        "UPDATE commits SET codec = 99 WHERE first_seq = 3",
        "UPDATE commits SET events = '[]' WHERE first_seq = 3",
        "DELETE FROM commits WHERE first_seq = 3",
    ];
    for (n, damage) in (1..).zip(damages) {
        let id = session_id(n);
        for head in [0, 2, 4] {
            journal.append(message_commit(id, head, 2, "x")).await.unwrap();
        }
        execute(&mut second_connection(&path).await, damage).await;
        journal = reopen(journal, &path).await;
        let JournalError::Corrupt(why) = journal.load_events(id, Seq(0), 100).await.unwrap_err()
        else {
            panic!("not reported as damage: {damage}")
        };
        let place = if damage.starts_with("DELETE") { "events 5 to 6" } else { "events 3 to 4" };
        assert!(why.contains(place) && why.contains(&id.to_string()), "{damage}: {why}");
        // Events before the damage can be read.
        assert_eq!(journal.load_events(id, Seq(0), 2).await.unwrap().len(), 2);
    }
}

#[tokio::test]
async fn d8_damaged_row_error_names_id() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let journal = open(&path).await;
    let row = session_row(1, "alice", SessionStatus::Idle);
    let pending_approval = approval_row(1, 1, "alice", ApprovalState::Pending);
    let commit =
        with_rows(message_commit(session_id(1), 0, 1, "x"), Some(row), vec![pending_approval]);
    journal.append(commit).await.unwrap();
    let damage = "UPDATE sessions SET content = '{}'; UPDATE approvals SET content = '[]'";
    execute(&mut second_connection(&path).await, damage).await;
    let journal = reopen(journal, &path).await;
    let session_error = journal.load_session(session_id(1)).await.unwrap_err();
    assert!(matches!(&session_error, JournalError::Corrupt(why)
        if why.contains(&session_id(1).to_string())));
    let approval_error = journal.load_approval(approval_id(1)).await.unwrap_err();
    assert!(matches!(&approval_error, JournalError::Corrupt(why)
        if why.contains(&approval_id(1).to_string())));
}

/// Returns the bytes of a file with `commits` commits of 100 events in session 1.
async fn filled_database(path: &Path, commits: u64) -> Vec<u8> {
    let journal = open(path).await;
    let text = "x".repeat(3_000);
    for n in 0..commits {
        journal.append(message_commit(session_id(1), n * 100, 100, &text)).await.unwrap();
    }
    journal.checkpoint().await.unwrap();
    std::fs::read(path).unwrap()
}

/// Writes `bytes` with one page overwritten to a file and opens it.
async fn open_with_corrupt_page(
    folder: &Path,
    mut bytes: Vec<u8>,
    page: usize,
) -> Result<Store, StoreError> {
    let path = folder.join("ruined.db");
    bytes[page * 4096..][..4096].fill(0x11);
    std::fs::write(&path, bytes).unwrap();
    Store::open(&path, StoreOptions::default()).await
}

/// A small file is checked completely when it is opened; of a large file only the newest entries.
#[tokio::test]
async fn d8_file_with_corrupt_page_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let small = filled_database(&folder.path().join("small.db"), 2).await;
    let large = filled_database(&folder.path().join("large.db"), 120).await;
    assert!(large.len() > 33 * 1024 * 1024, "{}", large.len());
    let last = |bytes: &[u8]| bytes.len() / 4096 - 1;
    for (page, bytes) in
        [(last(&small), small.clone()), (last(&small) / 2, small), (last(&large), large)]
    {
        let size = bytes.len();
        let result = open_with_corrupt_page(folder.path(), bytes, page).await;
        let error = result.expect_err(&format!("page {page} of {size} bytes"));
        assert!(matches!(error, StoreError::Corrupted { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("ruined.db") && text.contains("docs/storage.md"), "{text}");
    }
}

#[tokio::test]
async fn d8_damage_inside_large_file_is_reported_when_read() {
    let folder = tempfile::tempdir().unwrap();
    let large = filled_database(&folder.path().join("large.db"), 120).await;
    let middle = large.len() / 4096 / 2;
    let journal = open_with_corrupt_page(folder.path(), large, middle).await.unwrap();
    let error = journal.load_events(session_id(1), Seq(0), 12_000).await.unwrap_err();
    let JournalError::Corrupt(why) = error else { panic!("not reported as damage: {error}") };
    assert!(why.contains(&session_id(1).to_string()) || why.contains("malformed"), "{why}");
    // Events before the damage can be read, and other sessions are unaffected.
    assert_eq!(journal.load_events(session_id(1), Seq(0), 1_000).await.unwrap().len(), 1_000);
    journal.append(message_commit(session_id(2), 0, 1, "y")).await.unwrap();
}

/// The recovery commands in `docs/storage.md`, to which the error message of a damaged file refers.
#[tokio::test]
async fn d8_documented_recovery_saves_readable_data_of_damaged_file() {
    let page = std::fs::read_to_string("docs/storage.md").unwrap();
    let (_, section) = page.split_once("\n## A damaged file\n").unwrap();
    let (_, recipe) = section.split_once("```sh\n").unwrap();
    let (recipe, _) = recipe.split_once("```").unwrap();

    let folder = tempfile::tempdir().unwrap();
    let journal = open(&folder.path().join("greenroom.db")).await;
    for n in 1..=40 {
        journal.append(message_commit(session_id(n), 0, 1, &"x".repeat(3_000))).await.unwrap();
    }
    drop(journal);
    let mut bytes = std::fs::read(folder.path().join("greenroom.db")).unwrap();
    let middle = bytes.len() / 4096 / 2 * 4096;
    bytes[middle..][..4096].fill(0x11);
    std::fs::write(folder.path().join("greenroom.db"), bytes).unwrap();
    let result = Store::open(&folder.path().join("greenroom.db"), StoreOptions::default()).await;
    assert!(matches!(result, Err(StoreError::Corrupted { .. })), "{result:?}");

    let recipe = recipe.replace("/a/safe/place/", "safe/");
    std::fs::create_dir(folder.path().join("safe")).unwrap();
    let mut shell = std::process::Command::new("sh");
    let output = shell.args(["-c", &recipe]).current_dir(folder.path()).output().unwrap();
    assert!(folder.path().join("safe/greenroom.db").exists(), "{output:?}");
    let saved = open(&folder.path().join("saved.db")).await;
    assert_eq!(saved.migration().from_version, saved.migration().to_version);
    assert_eq!(read_log(&saved, session_id(1)).await.len(), 1);
}
