//! The audit log and the API keys on SQLite (X2, X6): rows are written in the transaction of the
//! change they record, and changes to the file are detected.

use crate::{
    fixtures::{
        NEW_YEAR, all_events, approval_id, approval_row, commit, is_conflict, message_commit,
        session_id, session_row, user, with_rows,
    },
    sqlite::{execute, open, second_connection},
};
use futures::future::join_all;
use greenroom::{
    audit::{
        AuditAction, AuditEntry, AuditLog, AuditOrder, AuditOutcome, AuditQuery, AuditRow,
        ChainError, ChainHead, entries_for_commit,
    },
    auth::{ApiKey, KeyId, KeyStore, Role},
    ceilings::{CeilingStore as _, StoredCeilings},
    store::{AuditError, Store, verify_audit},
};
use greenroom_actors::ports::{Journal, JournalError, PurgeRequest};
use greenroom_core::{
    Timestamp,
    ids::Seq,
    json::Digest,
    policy::Ceilings,
    session::{ApprovalState, SessionEvent, SessionStatus},
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use uuid::Uuid;

fn everything() -> AuditQuery {
    AuditQuery { limit: usize::MAX, ..AuditQuery::default() }
}

async fn rows(journal: &Store) -> Vec<AuditRow> {
    journal.list_audit_rows(everything()).await.unwrap()
}

/// Returns the content of the rows without `n`.
fn contents(rows: &[AuditRow]) -> Vec<Value> {
    let content = |row: &AuditRow| {
        let Value::Object(mut content) = serde_json::from_str(&row.content).unwrap() else {
            panic!("{}", row.content)
        };
        assert_eq!(content.remove("n"), Some(json!(row.n)));
        Value::Object(content)
    };
    rows.iter().map(content).collect()
}

fn closed(n: u32, head: u64) -> greenroom_actors::ports::Commit {
    let closed = SessionEvent::SessionClosed { by: user("alice") };
    commit(session_id(n), head, vec![crate::fixtures::record(head + 1, closed)])
}

fn entry(reason: &str) -> AuditEntry {
    let at = Timestamp(NEW_YEAR);
    let entry = AuditEntry::new(at, AuditAction::UserSettingsChanged, AuditOutcome::Done, None);
    AuditEntry { reason: Some(reason.to_owned()), ..entry }
}

fn key(n: u128) -> (ApiKey, Digest) {
    let key = ApiKey {
        key_id: KeyId(Uuid::from_u128(n)),
        user: user("ünïcödé 'x'"),
        role: Role::Approver,
        name: (n == 1).then(|| "night shift".to_owned()),
        created_at: Timestamp(NEW_YEAR),
        revoked_at: None,
    };
    (key, Digest::hash_bytes(&n.to_be_bytes()))
}

#[tokio::test]
async fn x6_commit_and_audit_rows_are_stored_atomically() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let journal = open(&path).await;
    let pending_approval = vec![approval_row(1, 1, "alice", ApprovalState::Pending)];
    let expected =
        entries_for_commit(session_id(1), &all_events(), &pending_approval, journal.digest_key());
    assert!(!expected.is_empty());
    let first = commit(session_id(1), 0, all_events());
    let row = session_row(1, "alice", SessionStatus::Closed);
    journal.append(with_rows(first.clone(), Some(row), pending_approval)).await.unwrap();
    let entries: Vec<Value> = expected.iter().map(|entry| json!(entry)).collect();
    assert_eq!(contents(&rows(&journal).await), entries);

    assert!(is_conflict(&journal.append(first).await));
    assert_eq!(rows(&journal).await.len(), entries.len(), "a rejected commit adds no row");
    let head = verify_audit(&path, None).await.unwrap();
    assert_eq!(head.n, entries.len() as u64);

    // A commit with audit rows and without a projection, and a commit without audit rows.
    journal.append(closed(2, 0)).await.unwrap();
    journal.append(message_commit(session_id(3), 0, 3, "x")).await.unwrap();
    drop(journal);
    let journal = open(&path).await;
    journal.append_audit(entry("after the restart")).await.unwrap();
    let all = rows(&journal).await;
    assert_eq!(all.len(), entries.len() + 2);
    assert_eq!(all.last().unwrap().n, head.n + 2);
    assert_eq!(verify_audit(&path, Some(head)).await.unwrap(), all.last().unwrap().head());
    drop(journal);
    assert_eq!(verify_audit(&path, Some(head)).await.unwrap().n, head.n + 2);
}

/// The audit log keeps its rows and gets one that names the user who purged the session. The file
/// no longer contains any text of the session.
#[tokio::test]
async fn s1_x6_purge_is_recorded_in_audit_log_and_removes_session_from_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let journal = open(&path).await;
    journal.append(closed(1, 0)).await.unwrap();
    journal.append(message_commit(session_id(1), 1, 40, "unforgettable")).await.unwrap();
    let before = verify_audit(&path, None).await.unwrap();
    let (expected_head, by, at) = (Seq(41), user("bob"), Timestamp(NEW_YEAR));
    let purge = PurgeRequest { session_id: session_id(1), expected_head, by, at };
    journal.purge(purge.clone()).await.unwrap();
    assert!(is_conflict(&journal.purge(purge).await));
    let after = verify_audit(&path, Some(before)).await.unwrap();
    assert_eq!(after.n, before.n + 1);
    let row = rows(&journal).await.pop().unwrap();
    assert!(row.content.contains("session_purged") && row.content.contains("bob"), "{row:?}");
    drop(journal);
    let file = std::fs::read(&path).unwrap();
    let text = b"unforgettable";
    assert!(!file.windows(text.len()).any(|window| window == text));
}

#[tokio::test]
async fn x6_concurrent_writes_keep_chain_valid() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let journal = open(&path).await;
    let commits = join_all((1..=60).map(|n| journal.append(closed(n, 0))));
    let entries = join_all((0..20).map(|n| journal.append_audit(entry(&n.to_string()))));
    let outdated_commits = join_all((1..=20).map(|n| journal.append(closed(n, 5))));
    let (commits, entries, outdated_commits) = futures::join!(commits, entries, outdated_commits);
    assert!(commits.into_iter().chain(entries).all(|result| result.is_ok()));
    assert!(outdated_commits.iter().all(is_conflict));
    let numbers: Vec<u64> = rows(&journal).await.iter().map(|row| row.n).collect();
    assert_eq!(numbers, (1..=80).collect::<Vec<_>>());
    assert_eq!(verify_audit(&path, None).await.unwrap().n, 80);
}

#[tokio::test]
async fn x6_list_audit_rows_applies_every_filter() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(&folder.path().join("green.db")).await;
    journal.append(closed(1, 0)).await.unwrap();
    journal.append(closed(2, 0)).await.unwrap();
    journal.append_audit(entry("a")).await.unwrap();
    journal.append(commit(session_id(1), 1, vec![denied(2)])).await.unwrap();
    let all = everything();
    let session = AuditQuery { session_id: Some(session_id(1)), ..all.clone() };
    let alice = AuditQuery { user: Some("alice".to_owned()), ..all.clone() };
    let unknown_user = AuditQuery { user: Some("bob".to_owned()), ..all.clone() };
    let changed = AuditQuery { action: Some(AuditAction::UserSettingsChanged), ..all.clone() };
    let between = AuditQuery { after: 1, before: Some(4), ..all.clone() };
    let page = AuditQuery { after: 1, limit: 1, ..all.clone() };
    let newest = AuditQuery { order: AuditOrder::Newest, ..all.clone() };
    let newest_page = AuditQuery { before: Some(4), limit: 2, ..newest.clone() };
    let newest_of_session = AuditQuery { session_id: Some(session_id(1)), ..newest.clone() };
    for (query, expected) in [
        (all, vec![1, 2, 3, 4]),
        (session, vec![1, 4]),
        (alice, vec![1, 2]),
        (unknown_user, vec![]),
        (changed, vec![3]),
        (between, vec![2, 3]),
        (page, vec![2]),
        (newest, vec![4, 3, 2, 1]),
        (newest_page, vec![3, 2]),
        (newest_of_session, vec![4, 1]),
        (AuditQuery { after: u64::MAX, ..everything() }, vec![]),
    ] {
        let rows = journal.list_audit_rows(query.clone()).await.unwrap();
        let rows: Vec<u64> = rows.iter().map(|row| row.n).collect();
        assert_eq!(rows, expected, "{query:?}");
    }
}

fn denied(seq: u64) -> greenroom_core::session::EventRecord {
    let is_denial =
        |event: &SessionEvent| matches!(event, SessionEvent::AuthorizationDenied { .. });
    let denied = all_events().into_iter().find(|record| is_denial(&record.event)).unwrap();
    crate::fixtures::record(seq, denied.event)
}

/// Creates an intact audit log of five rows, with its path and its chain head.
async fn valid_audit_log() -> (TempDir, PathBuf, ChainHead) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let journal = open(&path).await;
    for n in 1..=5 {
        journal.append(closed(n, 0)).await.unwrap();
    }
    drop(journal);
    let head = verify_audit(&path, None).await.unwrap();
    (folder, path, head)
}

async fn verify_error(path: &Path, anchor: Option<ChainHead>) -> ChainError {
    match verify_audit(path, anchor).await {
        Err(AuditError::Broken(broken)) => broken,
        other => panic!("the change was not detected: {other:?}"),
    }
}

#[tokio::test]
async fn x6_changes_to_audit_file_are_detected() {
    const DROP_TRIGGERS: &str = "DROP TRIGGER audit_stays; DROP TRIGGER audit_remains;";
    for (sql, expected) in [
        (
            "UPDATE audit SET content = replace(content, 'alice', 'mallory') WHERE n = 3",
            ChainError::Changed { n: 3 },
        ),
        ("UPDATE audit SET hash = zeroblob(32) WHERE n = 3", ChainError::Changed { n: 3 }),
        ("UPDATE audit SET hash = x'00' WHERE n = 3", ChainError::Changed { n: 3 }),
        ("UPDATE audit SET content = '{}' WHERE n = 3", ChainError::Changed { n: 3 }),
        ("DELETE FROM audit WHERE n = 3", ChainError::Missing { n: 3, found: 4 }),
        (
            "UPDATE audit SET n = 99 WHERE n = 2; UPDATE audit SET n = 2 WHERE n = 4;
             UPDATE audit SET n = 4 WHERE n = 99",
            ChainError::Moved { n: 2, claimed: json!(4) },
        ),
        ("DELETE FROM audit WHERE n > 3", ChainError::Truncated { n: 4, expected: 5 }),
        ("DELETE FROM audit", ChainError::Truncated { n: 1, expected: 5 }),
        ("DELETE FROM audit_head", ChainError::HeadMissing),
        ("UPDATE audit_head SET n = 4", ChainError::HeadMismatch { n: 5 }),
    ] {
        let (_folder, path, _) = valid_audit_log().await;
        let mut other = second_connection(&path).await;
        execute(&mut other, DROP_TRIGGERS).await;
        execute(&mut other, sql).await;
        assert_eq!(verify_error(&path, None).await, expected, "{sql}");
    }
}

/// As described in `docs/security.md`: removed last rows are detected with an anchor.
#[tokio::test]
async fn x6_truncation_with_head_is_detected_only_by_anchor() {
    let (_folder, path, head) = valid_audit_log().await;
    let mut other = second_connection(&path).await;
    let cut = "DROP TRIGGER audit_remains; DELETE FROM audit WHERE n > 3;
        UPDATE audit_head SET n = 3, hash = (SELECT hash FROM audit WHERE n = 3)";
    execute(&mut other, cut).await;
    assert_eq!(verify_audit(&path, None).await.unwrap().n, 3);
    assert_eq!(verify_error(&path, Some(head)).await, ChainError::Truncated { n: 4, expected: 5 });
}

#[tokio::test]
async fn x6_audit_rows_reject_update_and_delete() {
    let (_folder, path, head) = valid_audit_log().await;
    let mut other = second_connection(&path).await;
    for sql in ["DELETE FROM audit", "UPDATE audit SET content = '{}'"] {
        let error = sqlx::raw_sql(sql).execute(&mut other).await.unwrap_err().to_string();
        assert!(error.contains("append-only"), "{error}");
    }
    assert_eq!(verify_audit(&path, None).await.unwrap(), head);
}

#[tokio::test]
async fn x2_keys_are_found_by_hash_also_when_revoked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let journal = open(&path).await;
    let (first, first_hash) = key(1);
    let (second, second_hash) = key(2);
    journal.store_key(&first, first_hash, entry("one")).await.unwrap();
    journal.store_key(&second, second_hash, entry("two")).await.unwrap();
    assert_eq!(journal.find_key_by_hash(first_hash).await.unwrap(), Some(first.clone()));
    assert_eq!(journal.find_key_by_hash(Digest::hash_bytes(b"other")).await.unwrap(), None);

    let at = Timestamp(NEW_YEAR + 5);
    journal.revoke_key(first.key_id, at, entry("revoked")).await.unwrap();
    let later = Timestamp(NEW_YEAR + 6);
    journal.revoke_key(first.key_id, later, entry("again")).await.unwrap();
    drop(journal);
    let journal = open(&path).await;
    let first = ApiKey { revoked_at: Some(at), ..first };
    assert_eq!(journal.find_key_by_hash(first_hash).await.unwrap(), Some(first.clone()));
    assert_eq!(journal.list_keys().await.unwrap(), [first, second]);
    let rows = contents(&rows(&journal).await);
    let reasons: Vec<Value> = rows.into_iter().map(|row| row["reason"].clone()).collect();
    assert_eq!(reasons, ["one", "two", "revoked", "again"]);
}

/// A key that cannot be stored adds no audit row, and the chain stays valid.
#[tokio::test]
async fn x6_failed_change_adds_no_audit_row() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let journal = open(&path).await;
    let (api_key, hash) = key(1);
    journal.store_key(&api_key, hash, entry("one")).await.unwrap();
    journal.store_key(&api_key, hash, entry("twice")).await.unwrap_err();
    journal.append(closed(1, 0)).await.unwrap();
    assert_eq!(rows(&journal).await.len(), 2);
    assert_eq!(verify_audit(&path, None).await.unwrap().n, 2);
}

/// The audit row of a decision takes the tool from the approval row in the same commit.
#[tokio::test]
async fn x6_audit_row_of_decision_names_its_tool() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(&folder.path().join("green.db")).await;
    let pending_approval = approval_row(1, 1, "alice", ApprovalState::Decided);
    let decided = SessionEvent::ApprovalDecided {
        approval_id: approval_id(1),
        steps: vec![crate::fixtures::decision(1)],
        answer: None,
        closed: true,
    };
    let decided = commit(session_id(1), 0, vec![crate::fixtures::record(1, decided)]);
    journal.append(with_rows(decided, None, vec![pending_approval])).await.unwrap();
    let row = &contents(&rows(&journal).await)[0];
    let fields = [&row["user"], &row["tool"], &row["outcome"], &row["surface"]];
    assert_eq!(fields, ["bob", "place_order", "rejected", "websocket"]);
}

#[tokio::test]
async fn g17_ceilings_are_replaced_with_their_audit_row() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("green.db");
    let journal = open(&path).await;
    let empty = StoredCeilings::default();
    assert_eq!(journal.load_ceilings().await.unwrap(), empty);
    let ceilings: Ceilings =
        serde_json::from_value(json!({"users": {"ünï": {"autonomy_level": 1}}})).unwrap();
    let changed = StoredCeilings { version: 1, ceilings };
    journal.store_ceilings(&changed, entry("ceilings")).await.unwrap();
    assert_eq!(journal.load_ceilings().await.unwrap(), changed);
    // A change that does not follow the stored version stores nothing.
    for version in [1, 3] {
        let stale = StoredCeilings { version, ..empty.clone() };
        let result = journal.store_ceilings(&stale, entry("ceilings")).await;
        assert!(matches!(result, Err(JournalError::Conflict)), "{result:?}");
    }
    drop(journal);
    let journal = open(&path).await;
    assert_eq!(journal.load_ceilings().await.unwrap(), changed);
    let query = AuditQuery { limit: 10, ..AuditQuery::default() };
    assert_eq!(journal.list_audit_rows(query).await.unwrap().len(), 1);
}
