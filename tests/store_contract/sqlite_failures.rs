//! What SQLite journals do when the database is locked, full, damaged or changed by others (D8).

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
async fn a_locked_database_is_unavailable_until_it_is_free() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let busy_timeout = Duration::from_millis(1);
    let options = StoreOptions { busy_timeout, ..StoreOptions::default() };
    let journal = Store::open(&path, options).await.unwrap();
    journal.append(message_commit(session_id(1), 0, 1, "before")).await.unwrap();

    let mut outsider = second_connection(&path).await;
    execute(&mut outsider, "BEGIN IMMEDIATE").await;
    let row = session_row(1, "alice", SessionStatus::Idle);
    let asked = approval_row(1, 1, "alice", ApprovalState::Pending);
    let during = with_rows(message_commit(session_id(1), 1, 1, "during"), Some(row), vec![asked]);
    assert!(is_unavailable(&journal.append(during.clone()).await));
    assert!(is_unavailable(&journal.append(message_commit(session_id(1), 1, 1, "plain")).await));
    let settings = greenroom_core::policy::Settings::default();
    assert!(is_unavailable(&journal.store_settings(&user("alice"), &settings).await));
    assert!(is_unavailable(&journal.check_health().await));
    // Reads go on.
    assert_eq!(journal.load_head(session_id(1)).await.unwrap(), Seq(1));

    execute(&mut outsider, "ROLLBACK").await;
    assert_eq!(journal.load_session(session_id(1)).await.unwrap(), None);
    assert_eq!(journal.load_approval(approval_id(1)).await.unwrap(), None);
    journal.append(during).await.unwrap();
    journal.check_health().await.unwrap();
    assert_eq!(read_log(&journal, session_id(1)).await.len(), 2);
}

#[tokio::test]
async fn a_full_disk_refuses_and_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let options = StoreOptions { size_bytes_max: Some(512 * 1024), ..StoreOptions::default() };
    let journal = Store::open(&path, options).await.unwrap();
    let text = "x".repeat(16 * 1024);
    let mut stored = 0;
    let refused = loop {
        assert!(stored < 64, "it never fills up");
        // Every other one changes rows, too, and so takes the way of the transaction.
        let mut commit = message_commit(session_id(1), stored, 1, &text);
        if stored % 2 == 0 {
            commit = with_rows(commit, Some(session_row(1, "a", SessionStatus::Idle)), vec![]);
        }
        match journal.append(commit).await {
            Ok(()) => stored += 1,
            refused => break refused,
        }
    };
    assert!(matches!(&refused, Err(JournalError::Unavailable(why)) if why.contains("full")));
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

/// The key of the table stands behind what the writer remembers.
#[tokio::test]
async fn a_write_behind_the_journals_back_is_a_conflict_for_its_session_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let journal = open(&path).await;
    for n in 1..=3 {
        journal.append(message_commit(session_id(n), 0, 2, "x")).await.unwrap();
    }
    let takes_seq_3 = "INSERT INTO commits (session_id, first_seq, last_seq, at, codec, events)
        SELECT session_id, 3, 3, at, codec, '[]' FROM commits ORDER BY id LIMIT 1";
    execute(&mut second_connection(&path).await, takes_seq_3).await;

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

/// The same database, with nothing of it in memory.
async fn reopen(journal: Store, path: &Path) -> Store {
    drop(journal);
    open(path).await
}

#[tokio::test]
async fn damage_is_told_with_its_place() {
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
            panic!("{damage} is not seen as damage")
        };
        let place = if damage.starts_with("DELETE") { "events 5 to 6" } else { "events 3 to 4" };
        assert!(why.contains(place) && why.contains(&id.to_string()), "{damage}: {why}");
        // What is before the damage can be read.
        assert_eq!(journal.load_events(id, Seq(0), 2).await.unwrap().len(), 2);
    }
}

#[tokio::test]
async fn damaged_rows_are_told_with_their_ids() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let journal = open(&path).await;
    let row = session_row(1, "alice", SessionStatus::Idle);
    let asked = approval_row(1, 1, "alice", ApprovalState::Pending);
    let commit = with_rows(message_commit(session_id(1), 0, 1, "x"), Some(row), vec![asked]);
    journal.append(commit).await.unwrap();
    let damage = "UPDATE sessions SET content = '{}'; UPDATE approvals SET content = '[]'";
    execute(&mut second_connection(&path).await, damage).await;
    let journal = reopen(journal, &path).await;
    let of_session = journal.load_session(session_id(1)).await.unwrap_err();
    assert!(matches!(&of_session, JournalError::Corrupt(why)
        if why.contains(&session_id(1).to_string())));
    let of_approval = journal.load_approval(approval_id(1)).await.unwrap_err();
    assert!(matches!(&of_approval, JournalError::Corrupt(why)
        if why.contains(&approval_id(1).to_string())));
}

/// A file with so many commits of 100 events in session 1.
async fn filled(path: &Path, commits: u64) -> Vec<u8> {
    let journal = open(path).await;
    let text = "x".repeat(3_000);
    for n in 0..commits {
        journal.append(message_commit(session_id(1), n * 100, 100, &text)).await.unwrap();
    }
    journal.checkpoint().await.unwrap();
    std::fs::read(path).unwrap()
}

/// Opens a file of these bytes, of which a page is ruined.
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

/// A small file is read from end to end when it is opened, of a large one the newest entries.
#[tokio::test]
async fn d8_a_file_with_a_ruined_page_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let small = filled(&folder.path().join("small.db"), 2).await;
    let large = filled(&folder.path().join("large.db"), 120).await;
    assert!(large.len() > 33 * 1024 * 1024, "{}", large.len());
    let last = |bytes: &[u8]| bytes.len() / 4096 - 1;
    for (page, bytes) in
        [(last(&small), small.clone()), (last(&small) / 2, small), (last(&large), large)]
    {
        let size = bytes.len();
        let refused = open_with_corrupt_page(folder.path(), bytes, page).await;
        let refused = refused.expect_err(&format!("page {page} of {size} bytes"));
        assert!(matches!(refused, StoreError::Corrupted { .. }), "{refused:?}");
        let told = refused.to_string();
        assert!(told.contains("ruined.db") && told.contains("docs/storage.md"), "{told}");
    }
}

#[tokio::test]
async fn d8_damage_inside_a_large_file_is_told_where_it_is_met() {
    let folder = tempfile::tempdir().unwrap();
    let large = filled(&folder.path().join("large.db"), 120).await;
    let middle = large.len() / 4096 / 2;
    let journal = open_with_corrupt_page(folder.path(), large, middle).await.unwrap();
    let met = journal.load_events(session_id(1), Seq(0), 12_000).await.unwrap_err();
    let JournalError::Corrupt(why) = met else { panic!("it is not seen as damage: {met}") };
    assert!(why.contains(&session_id(1).to_string()) || why.contains("malformed"), "{why}");
    // What is before it can be read, and others go on.
    assert_eq!(journal.load_events(session_id(1), Seq(0), 1_000).await.unwrap().len(), 1_000);
    journal.append(message_commit(session_id(2), 0, 1, "y")).await.unwrap();
}

/// What the error message of a damaged file sends people to, done as it stands there.
#[tokio::test]
async fn d8_what_can_be_read_of_a_damaged_file_is_saved_as_the_documentation_says() {
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
    let refused = Store::open(&folder.path().join("greenroom.db"), StoreOptions::default()).await;
    assert!(matches!(refused, Err(StoreError::Corrupted { .. })), "{refused:?}");

    let recipe = recipe.replace("/a/safe/place/", "safe/");
    std::fs::create_dir(folder.path().join("safe")).unwrap();
    let mut shell = std::process::Command::new("sh");
    let done = shell.args(["-c", &recipe]).current_dir(folder.path()).output().unwrap();
    assert!(folder.path().join("safe/greenroom.db").exists(), "{done:?}");
    let saved = open(&folder.path().join("saved.db")).await;
    assert_eq!(saved.migration().from_version, saved.migration().to_version);
    assert_eq!(read_log(&saved, session_id(1)).await.len(), 1);
}
