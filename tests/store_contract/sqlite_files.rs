//! The files of SQLite journals: modes, locks, and files that are no database of Greenroom.

use crate::cases::{FLOATING_POINT_SPENDING, assert_decimal_spending};
use crate::{
    fixtures::{
        approval_row, message_commit, parent, read_log, session_id, session_row, with_rows,
    },
    sqlite::{execute, open, second_connection},
};
use greenroom::store::{self, Store, StoreError, StoreOptions};
use greenroom_actors::ports::{Journal, ParentFilter, SessionQuery};
use greenroom_core::{
    ids::Seq,
    policy::NameOwners,
    session::{ApprovalState, SessionStatus},
};
use std::{error::Error, fs, path::Path, sync::Arc};

async fn open_error(path: &Path) -> StoreError {
    Store::open(path, StoreOptions::default()).await.unwrap_err()
}

/// Independent of the umask of the process and of the previous mode of the files.
#[cfg(unix)]
#[tokio::test]
async fn e7_database_files_are_private_to_owner() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/er/green.db");
    let files = ["", "-wal", "-shm", ".lock"].map(|suffix| format!("{}{suffix}", path.display()));
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
async fn d5_second_open_fails_until_first_store_is_closed() {
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

#[tokio::test]
async fn d5_newer_database_is_rejected_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    drop(open(&path).await);
    execute(&mut second_connection(&path).await, "PRAGMA user_version = 99").await;
    let error = open_error(&path).await;
    assert!(matches!(error, StoreError::SchemaTooNew { found: 99, known: 10, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("green.db") && text.contains("99"), "{text}");

    execute(&mut second_connection(&path).await, "PRAGMA user_version = 9").await;
    open(&path).await.check_health().await.unwrap();
}

#[tokio::test]
async fn foreign_database_is_rejected_unchanged() {
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
async fn non_database_file_is_rejected_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    let mut fake_database = b"SQLite format 3\0".to_vec();
    fake_database.resize(8192, b'x');
    for content in [b"hello, these are my notes".as_slice(), b"x", &fake_database] {
        fs::write(&path, content).unwrap();
        let error = open_error(&path).await;
        assert!(matches!(error, StoreError::NotADatabase { .. }), "{error:?}");
        assert!(error.to_string().contains("notes.txt"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), content);
        // Only SQLite detects the fake database, and only after the lock file was created.
        let other_files = fs::read_dir(folder.path()).unwrap().count() - 1;
        assert_eq!(other_files, usize::from(content == fake_database));
    }
}

#[tokio::test]
async fn error_for_invalid_path_names_it() {
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
async fn second_migration_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/green.db");
    let first = store::migrate(&path).await.unwrap();
    assert_eq!((first.from_version, first.to_version), (0, 10));
    let second = store::migrate(&path).await.unwrap();
    assert_eq!((second.from_version, second.to_version), (10, 10));
    open(&path).await.check_health().await.unwrap();
}

/// A database of version 4, in which the parent is read from the content.
#[tokio::test]
async fn d5_s8_g11_children_and_approvals_of_calls_are_found_after_migration_from_version_4() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let mut row = session_row(2, "alice", SessionStatus::Idle);
    row.parent = Some(Arc::new(parent(1)));
    let pending_approval = approval_row(1, 2, "alice", ApprovalState::Pending);
    let rows = vec![pending_approval.clone()];
    let commit = with_rows(message_commit(session_id(2), 0, 1, "x"), Some(row), rows);
    open(&path).await.append(commit).await.unwrap();
    for statement in [
        "DROP INDEX sessions_by_parent",
        "DROP INDEX sessions_without_parent",
        "ALTER TABLE sessions DROP COLUMN parent",
        "ALTER TABLE sessions ADD COLUMN parent TEXT
            GENERATED ALWAYS AS (content->>'$.parent.session_id') VIRTUAL",
        "CREATE INDEX sessions_by_parent ON sessions (parent, session_id) WHERE parent IS NOT NULL",
        "CREATE INDEX sessions_without_parent ON sessions (owner, session_id) WHERE parent IS NULL",
        "DROP TABLE digest_key",
        "DROP TABLE requests",
        "DROP TRIGGER approval_calls_added",
        "DROP TRIGGER approval_calls_removed",
        "DROP TABLE approval_calls",
        "DROP TABLE tool_names",
        "DROP TABLE ceilings",
        "PRAGMA user_version = 4",
    ] {
        execute(&mut second_connection(&path).await, statement).await;
    }
    let journal = open(&path).await;
    assert_eq!((journal.migration().from_version, journal.migration().to_version), (4, 10));
    let parent_filter = ParentFilter::ChildrenOf(session_id(1));
    let query = SessionQuery { parent_filter, limit: 9, ..SessionQuery::default() };
    let children = journal.list_sessions(query).await.unwrap();
    assert_eq!(children.iter().map(|row| row.session_id).collect::<Vec<_>>(), [session_id(2)]);
    // The approvals of each call are derived from the stored approvals.
    let call_id = pending_approval.approval.steps()[0].call_id;
    assert_eq!(journal.list_approvals_of_call(call_id).await.unwrap(), [pending_approval]);
}

/// A database of version 9, in which amounts are floating-point numbers.
#[tokio::test]
async fn d5_g6_amounts_are_decimal_after_migration_from_version_9() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    drop(open(&path).await);
    for statement in [
        "DROP TABLE spending",
        "CREATE TABLE spending (
            user_id TEXT NOT NULL, measure TEXT NOT NULL, day INTEGER NOT NULL,
            amount REAL NOT NULL, PRIMARY KEY (user_id, measure, day)
         ) STRICT, WITHOUT ROWID",
        FLOATING_POINT_SPENDING,
        "PRAGMA user_version = 9",
    ] {
        execute(&mut second_connection(&path).await, statement).await;
    }
    let journal = open(&path).await;
    assert_eq!((journal.migration().from_version, journal.migration().to_version), (9, 10));
    assert_decimal_spending(&journal).await;
}

#[tokio::test]
async fn file_names_special_to_sqlite_are_plain_files() {
    let folder = tempfile::tempdir().unwrap();
    for name in [":memory:", "a?mode=memory", "100%25.db", "file:x"] {
        let path = folder.path().join(name);
        open(&path).await.append(message_commit(session_id(1), 0, 1, "x")).await.unwrap();
        assert!(path.metadata().unwrap().len() > 0, "{name}");
        assert_eq!(read_log(&open(&path).await, session_id(1)).await.len(), 1, "{name}");
    }
}

/// A database can be opened read-only while a server uses it and afterwards.
#[tokio::test]
async fn g16_database_opens_read_only_while_in_use_and_when_closed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let journal = open(&path).await;
    journal.append(message_commit(session_id(1), 0, 2, "before")).await.unwrap();

    let read_only = Store::open_read_only(&path).await.unwrap();
    let read = |after| read_only.load_events(session_id(1), Seq(after), 10);
    assert_eq!(read(0).await.unwrap(), read_log(&journal, session_id(1)).await);
    journal.append(message_commit(session_id(1), 2, 1, "during")).await.unwrap();
    assert_eq!(read(2).await.unwrap().len(), 1);
    // A read-only store does not take the lock.
    drop(journal);
    let journal = open(&path).await;
    drop(read_only);
    journal.append(message_commit(session_id(1), 3, 1, "after")).await.unwrap();
    let whole = read_log(&journal, session_id(1)).await;
    drop(journal);

    let read_only = Store::open_read_only(&path).await.unwrap();
    assert_eq!(read_only.load_events(session_id(1), Seq(0), 10).await.unwrap(), whole);
}

/// Opening a database read-only does not create, migrate or change a file.
#[tokio::test]
async fn g16_read_only_open_rejects_unreadable_files_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let read_error = async |path: &Path| Store::open_read_only(path).await.unwrap_err();
    assert!(matches!(read_error(&path).await, StoreError::File { .. }));
    assert!(!path.exists());

    fs::write(&path, "").unwrap();
    let error = read_error(&path).await;
    assert!(matches!(error, StoreError::SchemaTooOld { found: 0, known: 10, .. }), "{error}");
    assert!(error.to_string().contains("greenroom migrate"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"");

    drop(open(&path).await);
    execute(&mut second_connection(&path).await, "PRAGMA user_version = 99").await;
    assert!(matches!(read_error(&path).await, StoreError::SchemaTooNew { found: 99, .. }));
    fs::write(&path, "some notes").unwrap();
    assert!(matches!(read_error(&path).await, StoreError::NotADatabase { .. }));
}

#[tokio::test]
async fn g19owners_of_tool_names_survive_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(name, server)| ((*name).to_owned(), (*server).to_owned())).collect()
    };
    let store = open(&path).await;
    assert_eq!(store.load_tool_names().await.unwrap(), NameOwners::default());
    store.store_tool_names(pairs(&[("both", "lab"), ("frob", "lab")])).await.unwrap();
    store.store_tool_names(pairs(&[("both", "evil")])).await.unwrap();
    drop(store);
    let expected = NameOwners::from_stored(pairs(&[("both", "evil"), ("frob", "lab")]));
    assert_eq!(open(&path).await.load_tool_names().await.unwrap(), expected);
    let read_only = Store::open_read_only(path.as_path()).await.unwrap();
    assert_eq!(read_only.load_tool_names().await.unwrap(), expected);
}
