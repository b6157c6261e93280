//! Data that survives a restart on PostgreSQL, and the API keys and audit log there (X2, X6).

use crate::{
    fixtures::{
        NEW_YEAR, all_events, approval_row, commit, read_log, session_id, session_row, user,
        with_rows,
    },
    postgres::open,
    support::Postgres,
};
use greenroom::{
    audit::{
        AuditAction, AuditEntry, AuditLog as _, AuditOrder, AuditOutcome, AuditQuery, ChainError,
        entries_for_commit,
    },
    auth::{ApiKey, KeyId, KeyStore as _, Role},
    ceilings::{CeilingStore as _, StoredCeilings},
    store::{AuditError, DatabaseLocation, verify_audit},
};
use greenroom_actors::ports::{Journal as _, JournalError, PurgeRequest};
use greenroom_core::{
    Timestamp,
    json::Digest,
    policy::{Ceilings, NameOwners},
    session::{ApprovalState, SessionStatus},
};
use serde_json::{Value, json};
use sqlx::Connection as _;
use uuid::Uuid;

fn database(address: &str) -> DatabaseLocation {
    address.parse().unwrap()
}

fn entry() -> AuditEntry {
    AuditEntry::new(Timestamp(NEW_YEAR), AuditAction::KeyCreated, AuditOutcome::Done, None)
}

#[tokio::test]
async fn acknowledged_writes_survive_restart() {
    let address = Postgres::shared().create_database().await;
    let journal = open(&address).await;
    assert_eq!((journal.migration().from_version, journal.migration().to_version), (0, 9));
    let row = session_row(1, "alice", SessionStatus::Running);
    let pending_approval = approval_row(1, 1, "alice", ApprovalState::Pending);
    let first = commit(session_id(1), 0, all_events());
    journal
        .append(with_rows(first, Some(row.clone()), vec![pending_approval.clone()]))
        .await
        .unwrap();
    drop(journal);
    let journal = open(&address).await;
    assert_eq!((journal.migration().from_version, journal.migration().to_version), (9, 9));
    assert_eq!(read_log(&journal, session_id(1)).await, all_events());
    assert_eq!(journal.load_session(session_id(1)).await.unwrap(), Some(row));
    assert_eq!(
        journal.load_approval(pending_approval.approval.approval_id).await.unwrap(),
        Some(pending_approval)
    );
    assert_eq!(journal.list_unfinished_sessions().await.unwrap(), [session_id(1)]);
}

/// Key names are stored unchanged, except that PostgreSQL cannot store U+0000.
#[tokio::test]
async fn x2_keys_are_stored_by_hash() {
    let address = Postgres::shared().create_database().await;
    let journal = open(&address).await;
    let key = |n: u128, name: Option<&str>| ApiKey {
        key_id: KeyId(Uuid::from_u128(n)),
        user: user("ünïcödé 'x'"),
        role: Role::Approver,
        name: name.map(str::to_owned),
        created_at: Timestamp(NEW_YEAR),
        revoked_at: None,
    };
    let hash = |n: u128| Digest::hash_bytes(&n.to_be_bytes());
    journal.store_key(&key(1, Some("night\0shift")), hash(1), entry()).await.unwrap();
    journal.store_key(&key(2, None), hash(2), entry()).await.unwrap();
    let first = key(1, Some("night\u{FFFD}shift"));
    assert_eq!(journal.list_keys().await.unwrap(), [first.clone(), key(2, None)]);
    assert_eq!(journal.find_key_by_hash(hash(2)).await.unwrap(), Some(key(2, None)));
    assert_eq!(journal.find_key_by_hash(hash(3)).await.unwrap(), None);
    journal.revoke_key(first.key_id, Timestamp(NEW_YEAR + 1), entry()).await.unwrap();
    journal.revoke_key(first.key_id, Timestamp(NEW_YEAR + 2), entry()).await.unwrap();
    let revoked = ApiKey { revoked_at: Some(Timestamp(NEW_YEAR + 1)), ..first };
    assert_eq!(journal.find_key_by_hash(hash(1)).await.unwrap(), Some(revoked));
    // A key whose hash exists already is not stored, and neither is its audit row.
    assert!(journal.store_key(&key(4, None), hash(2), entry()).await.is_err());
    assert_eq!(verify_audit(database(&address), None).await.unwrap().n, 4);
}

#[tokio::test]
async fn x6_commit_and_audit_rows_are_stored_together_and_listed() {
    let address = Postgres::shared().create_database().await;
    let journal = open(&address).await;
    let pending_approval = vec![approval_row(1, 1, "alice", ApprovalState::Pending)];
    let expected =
        entries_for_commit(session_id(1), &all_events(), &pending_approval, journal.digest_key());
    let first = commit(session_id(1), 0, all_events());
    journal.append(with_rows(first.clone(), None, pending_approval)).await.unwrap();
    assert!(journal.append(first).await.is_err());
    let everything = AuditQuery { limit: usize::MAX, ..AuditQuery::default() };
    let rows = journal.list_audit_rows(everything.clone()).await.unwrap();
    let contents = rows.iter().map(|row| {
        let mut content: Value = serde_json::from_str(&row.content).unwrap();
        assert_eq!(content["n"].take(), row.n);
        content.as_object_mut().unwrap().remove("n");
        content
    });
    assert!(contents.eq(expected.iter().map(|entry| json!(entry))));
    let filters = [
        AuditQuery { session_id: Some(session_id(1)), ..everything.clone() },
        AuditQuery { action: Some(AuditAction::ApprovalDecided), ..everything.clone() },
        AuditQuery { user: Some("bob".to_owned()), ..everything.clone() },
        AuditQuery { after: 3, before: Some(6), ..everything.clone() },
        AuditQuery { user: Some("no\0body".to_owned()), ..everything.clone() },
    ];
    let mut counts = Vec::new();
    for filter in filters {
        counts.push(journal.list_audit_rows(filter).await.unwrap().len());
    }
    assert_eq!((counts[0], counts[3], counts[4]), (rows.len(), 2, 0));
    assert!(counts[1] > 0 && counts[2] > 0 && counts[2] < rows.len(), "{counts:?}");
    let before = Some(rows.len() as u64);
    let newest = AuditQuery { order: AuditOrder::Newest, before, limit: 2, ..everything };
    let newest: Vec<u64> =
        journal.list_audit_rows(newest).await.unwrap().iter().map(|row| row.n).collect();
    assert_eq!(newest, [rows.len() as u64 - 1, rows.len() as u64 - 2]);
}

/// The audit log keeps its rows and gets one that names the user who purged the session.
#[tokio::test]
async fn s1_x6_purge_is_recorded_in_audit_log() {
    let address = Postgres::shared().create_database().await;
    let journal = open(&address).await;
    journal.append(commit(session_id(1), 0, all_events())).await.unwrap();
    let before = verify_audit(database(&address), None).await.unwrap();
    let expected_head = journal.load_head(session_id(1)).await.unwrap();
    let (by, at) = (user("bob"), Timestamp(NEW_YEAR));
    let purge = PurgeRequest { session_id: session_id(1), expected_head, by, at };
    journal.purge(purge.clone()).await.unwrap();
    assert!(journal.purge(purge).await.is_err());
    let after = verify_audit(database(&address), Some(before)).await.unwrap();
    assert_eq!(after.n, before.n + 1);
    let query = AuditQuery { after: before.n, limit: 9, ..AuditQuery::default() };
    let row = journal.list_audit_rows(query).await.unwrap().pop().unwrap();
    assert!(row.content.contains("session_purged") && row.content.contains("bob"), "{row:?}");
}

#[tokio::test]
async fn x6_changes_to_audit_tables_are_detected() {
    let address = Postgres::shared().create_database().await;
    let journal = open(&address).await;
    for _ in 0..4 {
        journal.append_audit(entry()).await.unwrap();
    }
    let head = verify_audit(database(&address), None).await.unwrap();
    assert_eq!(head.n, 4);
    let mut other = sqlx::PgConnection::connect(&address).await.unwrap();
    for statement in ["UPDATE audit SET content = '{}'", "DELETE FROM audit", "TRUNCATE audit"] {
        let error = sqlx::raw_sql(statement).execute(&mut other).await.unwrap_err();
        assert!(error.to_string().contains("append-only"), "{error}");
    }
    let tampering = "ALTER TABLE audit DISABLE TRIGGER ALL;
        UPDATE audit SET content = replace(content, 'done', 'gone') WHERE n = 2";
    sqlx::raw_sql(tampering).execute(&mut other).await.unwrap();
    let error = verify_audit(database(&address), None).await.unwrap_err();
    assert!(matches!(error, AuditError::Broken(ChainError::Changed { n: 2 })), "{error}");
    let truncation = "UPDATE audit SET content = replace(content, 'gone', 'done') WHERE n = 2;
        DELETE FROM audit WHERE n = 4";
    sqlx::raw_sql(truncation).execute(&mut other).await.unwrap();
    let error = verify_audit(database(&address), Some(head)).await.unwrap_err();
    assert!(matches!(error, AuditError::Broken(ChainError::Truncated { n: 4, .. })), "{error}");
}

#[tokio::test]
async fn e7_digest_key_is_created_once_for_each_database() {
    let digest = Digest::hash_bytes(b"x");
    let address = Postgres::shared().create_database().await;
    let first = open(&address).await.digest_key().apply(digest);
    assert_eq!(open(&address).await.digest_key().apply(digest), first);
    let other = Postgres::shared().create_database().await;
    assert_ne!(open(&other).await.digest_key().apply(digest), first);
}

#[tokio::test]
async fn g19_owners_of_tool_names_survive_reopening() {
    let address = Postgres::shared().create_database().await;
    let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(name, server)| ((*name).to_owned(), (*server).to_owned())).collect()
    };
    let store = open(&address).await;
    store.store_tool_names(pairs(&[("both", "lab"), ("frob", "lab")])).await.unwrap();
    store.store_tool_names(pairs(&[("both", "evil")])).await.unwrap();
    drop(store);
    let expected = NameOwners::from_stored(pairs(&[("both", "evil"), ("frob", "lab")]));
    assert_eq!(open(&address).await.load_tool_names().await.unwrap(), expected);
}

#[tokio::test]
async fn g17_ceilings_are_replaced_with_their_audit_row() {
    let address = Postgres::shared().create_database().await;
    let journal = open(&address).await;
    let empty = StoredCeilings::default();
    assert_eq!(journal.load_ceilings().await.unwrap(), empty);
    let ceilings: Ceilings =
        serde_json::from_value(json!({"users": {"ünï": {"autonomy_level": 1}}})).unwrap();
    let changed = StoredCeilings { version: 1, ceilings };
    journal.store_ceilings(&changed, entry()).await.unwrap();
    assert_eq!(journal.load_ceilings().await.unwrap(), changed);
    // A change that does not follow the stored version stores nothing.
    for version in [1, 3] {
        let stale = StoredCeilings { version, ..empty.clone() };
        let result = journal.store_ceilings(&stale, entry()).await;
        assert!(matches!(result, Err(JournalError::Conflict)), "{result:?}");
    }
    drop(journal);
    let journal = open(&address).await;
    assert_eq!(journal.load_ceilings().await.unwrap(), changed);
    let query = AuditQuery { limit: 10, ..AuditQuery::default() };
    assert_eq!(journal.list_audit_rows(query).await.unwrap().len(), 1);
}
