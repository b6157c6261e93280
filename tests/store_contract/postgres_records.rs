//! What a restart keeps on PostgreSQL, and the keys and the audit log there (X2, X6).

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
    store::{AuditError, DatabaseLocation, verify_audit},
};
use greenroom_actors::ports::{Journal as _, PurgeRequest};
use greenroom_core::{
    Timestamp,
    json::Digest,
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
async fn a_restart_sees_everything_acknowledged() {
    let address = Postgres::shared().create_database().await;
    let journal = open(&address).await;
    assert_eq!((journal.migration().from_version, journal.migration().to_version), (0, 4));
    let row = session_row(1, "alice", SessionStatus::Running);
    let asked = approval_row(1, 1, "alice", ApprovalState::Pending);
    let first = commit(session_id(1), 0, all_events());
    journal.append(with_rows(first, Some(row.clone()), vec![asked.clone()])).await.unwrap();
    drop(journal);
    let journal = open(&address).await;
    assert_eq!((journal.migration().from_version, journal.migration().to_version), (4, 4));
    assert_eq!(read_log(&journal, session_id(1)).await, all_events());
    assert_eq!(journal.load_session(session_id(1)).await.unwrap(), Some(row));
    assert_eq!(journal.load_approval(asked.approval.approval_id).await.unwrap(), Some(asked));
    assert_eq!(journal.list_unfinished_sessions().await.unwrap(), [session_id(1)]);
}

/// X2: names that people give come back, but for the one character that PostgreSQL can't hold.
#[tokio::test]
async fn x2_keys_are_kept_by_their_hash() {
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
    // A hash that is taken leaves neither key nor row.
    assert!(journal.store_key(&key(4, None), hash(2), entry()).await.is_err());
    assert_eq!(verify_audit(database(&address), None).await.unwrap().n, 4);
}

#[tokio::test]
async fn x6_the_events_of_a_commit_and_their_rows_are_stored_together_and_found_again() {
    let address = Postgres::shared().create_database().await;
    let journal = open(&address).await;
    let asked = vec![approval_row(1, 1, "alice", ApprovalState::Pending)];
    let expected = entries_for_commit(session_id(1), &all_events(), &asked);
    let first = commit(session_id(1), 0, all_events());
    journal.append(with_rows(first.clone(), None, asked)).await.unwrap();
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
    let found: Vec<usize> = {
        let mut found = Vec::new();
        for filter in filters {
            found.push(journal.list_audit_rows(filter).await.unwrap().len());
        }
        found
    };
    assert_eq!((found[0], found[3], found[4]), (rows.len(), 2, 0));
    assert!(found[1] > 0 && found[2] > 0 && found[2] < rows.len(), "{found:?}");
    let before = Some(rows.len() as u64);
    let newest = AuditQuery { order: AuditOrder::Newest, before, limit: 2, ..everything };
    let newest: Vec<u64> =
        journal.list_audit_rows(newest).await.unwrap().iter().map(|row| row.n).collect();
    assert_eq!(newest, [rows.len() as u64 - 1, rows.len() as u64 - 2]);
}

/// S1, X6: the audit log keeps what it has, and says who wanted the session gone.
#[tokio::test]
async fn s1_x6_a_purge_is_in_the_audit_log() {
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
async fn x6_whatever_somebody_does_to_the_tables_is_found_out() {
    let address = Postgres::shared().create_database().await;
    let journal = open(&address).await;
    for _ in 0..4 {
        journal.append_audit(entry()).await.unwrap();
    }
    let head = verify_audit(database(&address), None).await.unwrap();
    assert_eq!(head.n, 4);
    let mut outsider = sqlx::PgConnection::connect(&address).await.unwrap();
    for accident in ["UPDATE audit SET content = '{}'", "DELETE FROM audit", "TRUNCATE audit"] {
        let refused = sqlx::raw_sql(accident).execute(&mut outsider).await.unwrap_err();
        assert!(refused.to_string().contains("append-only"), "{refused}");
    }
    let tampering = "ALTER TABLE audit DISABLE TRIGGER ALL;
        UPDATE audit SET content = replace(content, 'done', 'gone') WHERE n = 2";
    sqlx::raw_sql(tampering).execute(&mut outsider).await.unwrap();
    let found = verify_audit(database(&address), None).await.unwrap_err();
    assert!(matches!(found, AuditError::Broken(ChainError::Changed { n: 2 })), "{found}");
    let back = "UPDATE audit SET content = replace(content, 'gone', 'done') WHERE n = 2;
        DELETE FROM audit WHERE n = 4";
    sqlx::raw_sql(back).execute(&mut outsider).await.unwrap();
    let found = verify_audit(database(&address), Some(head)).await.unwrap_err();
    assert!(matches!(found, AuditError::Broken(ChainError::Truncated { n: 4, .. })), "{found}");
}
