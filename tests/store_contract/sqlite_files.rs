//! What SQLite journals do with files: modes, locks, and files that are something else.

use crate::{
    fixtures::{message_commit, parent, read_log, session_id, session_row, with_rows},
    sqlite::{execute, open, second_connection},
};
use greenroom::store::{self, Store, StoreError, StoreOptions};
use greenroom_actors::ports::{Journal, ParentFilter, SessionQuery};
use greenroom_core::{ids::Seq, session::SessionStatus};
use std::{error::Error, fs, path::Path, sync::Arc};

async fn open_error(path: &Path) -> StoreError {
    Store::open(path, StoreOptions::default()).await.unwrap_err()
}

/// E7: whatever the process's umask and whatever the files were.
#[cfg(unix)]
#[tokio::test]
async fn the_files_are_their_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/er/green.db");
    let files = ["", "-wal", "-shm", ".lock"].map(|end| format!("{}{end}", path.display()));
    let assert_private = || {
        for file in &files {
            let mode = fs::metadata(file).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{file}");
        }
    };
    let journal = open(&path).await;
    journal.append(message_commit(session_id(1), 0, 1, "x")).await.unwrap();
    assert_private();
    drop(journal);

    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let journal = open(&path).await;
    journal.append(message_commit(session_id(1), 1, 1, "x")).await.unwrap();
    assert_private();
}

#[tokio::test]
async fn a_second_opener_is_refused_until_the_first_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let first = open(&path).await;
    let error = open_error(&path).await;
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("green.db.lock"), "{error}");
    assert!(matches!(store::migrate(&path).await, Err(StoreError::InUse { .. })));
    #[cfg(unix)]
    {
        let other_name = folder.path().join("other.db");
        std::os::unix::fs::symlink(&path, &other_name).unwrap();
        assert!(matches!(open_error(&other_name).await, StoreError::InUse { .. }));
    }
    first.append(message_commit(session_id(1), 0, 1, "x")).await.unwrap();
    drop(first);
    assert_eq!(read_log(&open(&path).await, session_id(1)).await.len(), 1);
}

/// D5
#[tokio::test]
async fn a_newer_database_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    drop(open(&path).await);
    execute(&mut second_connection(&path).await, "PRAGMA user_version = 99").await;
    let error = open_error(&path).await;
    assert!(matches!(error, StoreError::SchemaTooNew { found: 99, known: 5, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("green.db") && text.contains("99"), "{text}");

    execute(&mut second_connection(&path).await, "PRAGMA user_version = 5").await;
    open(&path).await.check_health().await.unwrap();
}

#[tokio::test]
async fn another_programs_database_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("songs.db");
    fs::write(&path, "").unwrap();
    execute(&mut second_connection(&path).await, "CREATE TABLE songs (title TEXT)").await;
    let before = (fs::read(&path).unwrap(), fs::metadata(&path).unwrap().permissions());
    let error = open_error(&path).await;
    assert!(matches!(error, StoreError::ForeignDatabase { .. }), "{error}");
    let after = (fs::read(&path).unwrap(), fs::metadata(&path).unwrap().permissions());
    assert_eq!(after, before);
}

#[tokio::test]
async fn what_is_no_database_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    let mut pretender = b"SQLite format 3\0".to_vec();
    pretender.resize(8192, b'x');
    for content in [b"hello, these are my notes".as_slice(), b"x", &pretender] {
        fs::write(&path, content).unwrap();
        let error = open_error(&path).await;
        assert!(matches!(error, StoreError::NotADatabase { .. }), "{error:?}");
        assert!(error.to_string().contains("notes.txt"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), content);
        // Only SQLite can tell the pretender, and only once the file is locked.
        let beside = fs::read_dir(folder.path()).unwrap().count() - 1;
        assert_eq!(beside, usize::from(content == pretender));
    }
}

#[tokio::test]
async fn an_impossible_path_is_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let below_a_file = folder.path().join("file/green.db");
    for path in [folder.path(), &below_a_file] {
        let error = open_error(path).await;
        assert!(matches!(error, StoreError::File { .. }), "{error:?}");
        assert!(error.to_string().contains(folder.path().to_str().unwrap()), "{error}");
        assert!(error.source().is_some());
    }
}

#[tokio::test]
async fn migrating_twice_does_nothing_the_second_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/green.db");
    let first = store::migrate(&path).await.unwrap();
    assert_eq!((first.from_version, first.to_version), (0, 5));
    let second = store::migrate(&path).await.unwrap();
    assert_eq!((second.from_version, second.to_version), (5, 5));
    open(&path).await.check_health().await.unwrap();
}

/// D5, S8: as version 4 left it, with parents that are looked up in the content.
#[tokio::test]
async fn children_are_found_in_a_database_of_the_version_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let mut row = session_row(2, "alice", SessionStatus::Idle);
    row.parent = Some(Arc::new(parent(1)));
    let commit = with_rows(message_commit(session_id(2), 0, 1, "x"), Some(row), vec![]);
    open(&path).await.append(commit).await.unwrap();
    for statement in [
        "DROP INDEX sessions_by_parent",
        "DROP INDEX sessions_without_parent",
        "ALTER TABLE sessions DROP COLUMN parent",
        "ALTER TABLE sessions ADD COLUMN parent TEXT
            GENERATED ALWAYS AS (content->>'$.parent.session_id') VIRTUAL",
        "CREATE INDEX sessions_by_parent ON sessions (parent, session_id) WHERE parent IS NOT NULL",
        "CREATE INDEX sessions_without_parent ON sessions (owner, session_id) WHERE parent IS NULL",
        "PRAGMA user_version = 4",
    ] {
        execute(&mut second_connection(&path).await, statement).await;
    }
    let journal = open(&path).await;
    assert_eq!((journal.migration().from_version, journal.migration().to_version), (4, 5));
    let parent_filter = ParentFilter::ChildrenOf(session_id(1));
    let query = SessionQuery { parent_filter, limit: 9, ..SessionQuery::default() };
    let children = journal.list_sessions(query).await.unwrap();
    assert_eq!(children.iter().map(|row| row.session_id).collect::<Vec<_>>(), [session_id(2)]);
}

#[tokio::test]
async fn names_that_mean_something_to_sqlite_are_plain_files() {
    let folder = tempfile::tempdir().unwrap();
    for name in [":memory:", "a?mode=memory", "100%25.db", "file:x"] {
        let path = folder.path().join(name);
        open(&path).await.append(message_commit(session_id(1), 0, 1, "x")).await.unwrap();
        assert!(path.metadata().unwrap().len() > 0, "{name}");
        assert_eq!(read_log(&open(&path).await, session_id(1)).await.len(), 1, "{name}");
    }
}

/// G16: a look beside the server, and after it.
#[tokio::test]
async fn a_database_can_be_read_while_it_is_open_and_when_it_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let journal = open(&path).await;
    journal.append(message_commit(session_id(1), 0, 2, "before")).await.unwrap();

    let beside = Store::open_read_only(&path).await.unwrap();
    let read = |after| beside.load_events(session_id(1), Seq(after), 10);
    assert_eq!(read(0).await.unwrap(), read_log(&journal, session_id(1)).await);
    journal.append(message_commit(session_id(1), 2, 1, "meanwhile")).await.unwrap();
    assert_eq!(read(2).await.unwrap().len(), 1);
    // Who looks keeps nobody out.
    drop(journal);
    let journal = open(&path).await;
    drop(beside);
    journal.append(message_commit(session_id(1), 3, 1, "after")).await.unwrap();
    let whole = read_log(&journal, session_id(1)).await;
    drop(journal);

    let alone = Store::open_read_only(&path).await.unwrap();
    assert_eq!(alone.load_events(session_id(1), Seq(0), 10).await.unwrap(), whole);
}

/// G16: who only looks creates, migrates and changes nothing.
#[tokio::test]
async fn what_cannot_be_read_as_it_is_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let refusal = async |path: &Path| Store::open_read_only(path).await.unwrap_err();
    assert!(matches!(refusal(&path).await, StoreError::File { .. }));
    assert!(!path.exists());

    fs::write(&path, "").unwrap();
    let error = refusal(&path).await;
    assert!(matches!(error, StoreError::SchemaTooOld { found: 0, known: 5, .. }), "{error}");
    assert!(error.to_string().contains("greenroom migrate"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"");

    drop(open(&path).await);
    execute(&mut second_connection(&path).await, "PRAGMA user_version = 99").await;
    assert!(matches!(refusal(&path).await, StoreError::SchemaTooNew { found: 99, .. }));
    fs::write(&path, "some notes").unwrap();
    assert!(matches!(refusal(&path).await, StoreError::NotADatabase { .. }));
}
