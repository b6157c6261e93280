//! Queries of the PostgreSQL store take the same time however much is stored (D6). The database
//! holds 100,000 sessions, each with a commit, an approval, an audit row and spending. No growing
//! table may be scanned completely by any query of the port, according to the statistics of the
//! server. Each query runs often enough that the server uses a generic plan.

use crate::{
    fixtures::{
        NEW_YEAR, approval_id, approval_row, message_commit, message_event, record, session_id,
        session_row, user, with_rows,
    },
    postgres::open,
    support::Postgres,
};
use greenroom::{
    audit::{AuditAction, AuditEntry, AuditLog as _, AuditOutcome, AuditQuery},
    auth::{ApiKey, KeyId, KeyStore as _, Role},
    store::Store,
};
use greenroom_actors::ports::{
    ApprovalQuery, Journal as _, PurgeRequest, RequestRow, SessionQuery,
};
use greenroom_core::{
    Timestamp,
    budget::{BudgetMeasure, SpendingEntry, SpendingPrecondition, SpendingUpdate},
    ids::{CallId, MessageId, Seq},
    json::Digest,
    policy::{BudgetPeriod, Settings},
    session::{ApprovalState, SessionEvent, SessionStatus},
};
use sqlx::{PgConnection, Row as _};
use std::{collections::BTreeMap, time::Duration};
use uuid::Uuid;

const STORED: u32 = 100_000;
/// Runs of each query. After some runs the server makes a generic plan.
const RUNS: u32 = 12;
/// Tables that grow with the number of sessions.
const GROWING_TABLES: [&str; 7] =
    ["approval_calls", "approvals", "audit", "commits", "requests", "sessions", "spending"];

/// Fills every table as after long use: 100 users with 1,000 sessions each, of which few are active.
async fn fill(connection: &mut PgConnection) {
    let ids: Vec<Uuid> = (1..=STORED).map(|n| session_id(n).0).collect();
    let approval_ids: Vec<Uuid> = (1..=STORED).map(|n| approval_id(n).0).collect();
    let sessions = "INSERT INTO sessions (session_id, owner, status, content)
        SELECT id, 'user-' || n % 100,
               CASE n % 1000 WHEN 1 THEN 'running' WHEN 2 THEN 'waiting' WHEN 3 THEN 'closed' ELSE 'idle' END,
               replace($2, $3, id::text)
        FROM unnest($1::uuid[]) WITH ORDINALITY AS ids (id, n)";
    let row = session_row(0, "user-1", SessionStatus::Idle);
    sqlx::query(sessions)
        .bind(&ids)
        .bind(serde_json::to_string(&row).unwrap())
        .bind(session_id(0).to_string())
        .execute(&mut *connection)
        .await
        .unwrap();
    let commits = "INSERT INTO commits (session_id, first_seq, last_seq, at, codec, events)
        SELECT id, 1, 1, 0, 1, $2 FROM unnest($1::uuid[]) AS ids (id)";
    let events = serde_json::to_string(&[message_event(1, "x")]).unwrap();
    sqlx::query(commits).bind(&ids).bind(events).execute(&mut *connection).await.unwrap();
    let approvals = "INSERT INTO approvals (approval_id, session_id, owner, state, deadline, content)
        SELECT id, session_id, 'user-' || n % 100, CASE n % 1000 WHEN 2 THEN 'pending' ELSE 'decided' END,
               $5, replace(replace($3, $4, id::text), $6, id::text)
        FROM unnest($1::uuid[], $2::uuid[]) WITH ORDINALITY AS ids (id, session_id, n)";
    let row = approval_row(0, 0, "user-1", ApprovalState::Pending);
    sqlx::query(approvals)
        .bind(&approval_ids)
        .bind(&ids)
        .bind(serde_json::to_string(&row).unwrap())
        .bind(approval_id(0).0.to_string())
        .bind(NEW_YEAR)
        .bind(row.approval.steps()[0].call_id.to_string())
        .execute(&mut *connection)
        .await
        .unwrap();
    let requests = "INSERT INTO requests (user_id, request_id, session_id, digest, at)
        SELECT 'user-' || n % 100, id::text, id, decode(repeat('00', 32), 'hex'), n
        FROM unnest($1::uuid[]) WITH ORDINALITY AS ids (id, n)";
    sqlx::query(requests).bind(&ids).execute(&mut *connection).await.unwrap();
    let audit = "INSERT INTO audit (n, hash, content)
        SELECT 1000 + n, decode(repeat('00', 32), 'hex'), json_build_object(
            'session_id', id, 'user', 'user-' || n % 100,
            'action', CASE n % 1000 WHEN 1 THEN 'key_created' ELSE 'tool_call_completed' END)::text
        FROM unnest($1::uuid[]) WITH ORDINALITY AS ids (id, n)";
    sqlx::query(audit).bind(&ids).execute(&mut *connection).await.unwrap();
    let further_rows = "UPDATE audit_head SET n = 101000;
        INSERT INTO spending (user_id, measure, day, amount)
        SELECT 'user-' || u, measure, day, 1.0 FROM generate_series(0, 99) AS u,
               unnest(ARRAY['tokens', 'usd', 'ISK']) AS measure, generate_series(20000, 20333) AS day;
        INSERT INTO user_settings SELECT 'user-' || u, '{}' FROM generate_series(0, 99) AS u";
    sqlx::raw_sql(further_rows).execute(connection).await.unwrap();
}

/// Runs every query of the store once.
async fn run_every_query(store: &Store, n: u32) {
    let owner = user(&format!("user-{}", n % 100));
    // A session that is not in the writer's cache, and a new session; with all rows of a projection.
    for (session, head) in [(1_000 * n + 500, 1), (STORED + n, 0)] {
        let row = session_row(session, owner.as_str(), SessionStatus::Idle);
        let pending_approval =
            approval_row(session, session, owner.as_str(), ApprovalState::Decided);
        let mut commit = with_rows(
            message_commit(session_id(session), head, 2, "x"),
            Some(row),
            vec![pending_approval],
        );
        let (measure, day) = (BudgetMeasure::from_unit("ISK"), Timestamp(NEW_YEAR).day());
        commit.projection.spending_update = Some(SpendingUpdate {
            user: owner.clone(),
            entries: vec![SpendingEntry { measure: measure.clone(), day, amount: 1.into() }],
            preconditions: vec![SpendingPrecondition {
                measure,
                period: BudgetPeriod::Month,
                day,
                limit: 1_000_000_000.into(),
            }],
        });
        store.append(commit).await.unwrap();
        let closed = SessionEvent::SessionClosed { by: owner.clone() };
        let records = vec![record(head + 3, closed)];
        store
            .append(crate::fixtures::commit(session_id(session), head + 2, records))
            .await
            .unwrap();
    }
    let existing = session_id(1_000 * n + 500);
    for after in [0, 2, 3, 4] {
        store.load_events(existing, Seq(after), 500).await.unwrap();
    }
    assert_eq!(store.load_head(existing).await.unwrap(), Seq(4));
    store.load_session(existing).await.unwrap().unwrap();
    store.load_approval(approval_id(n)).await.unwrap().unwrap();
    let call_id = CallId(approval_id(n).0);
    assert_eq!(store.list_approvals_of_call(call_id).await.unwrap().len(), 1);
    let request_id = MessageId::parse(&existing.to_string()).unwrap();
    let request = RequestRow {
        user: owner.clone(),
        request_id: request_id.clone(),
        session_id: existing,
        digest: Digest::hash_bytes(b"x"),
        at: Timestamp(i64::from(STORED)),
    };
    store.store_request(&request, Timestamp(i64::from(40 * n))).await.unwrap();
    store.find_request(&owner, &request_id, Timestamp(0)).await.unwrap().unwrap();
    store.load_settings(&owner).await.unwrap().unwrap();
    store.store_settings(&owner, &Settings::default()).await.unwrap();
    store.load_spending(&owner, Timestamp(NEW_YEAR).day()).await.unwrap();
    assert!(store.count_sessions(&owner).await.unwrap().open > 900);
    assert_eq!(store.list_unfinished_sessions().await.unwrap().len(), 100);
    assert_eq!(store.list_pending_deadlines().await.unwrap().len(), 100);
    let key = Digest::hash_bytes(&n.to_be_bytes());
    assert!(store.find_key_by_hash(key).await.unwrap().is_some());
    for owner in [None, Some(owner.clone())] {
        for before in [None, Some(session_id(STORED / 2))] {
            let query =
                SessionQuery { owner: owner.clone(), before, limit: 50, ..SessionQuery::default() };
            assert!(!store.list_sessions(query).await.unwrap().is_empty());
        }
        for (session_id, state, before) in [
            (None, None, None),
            (None, None, Some(approval_id(STORED / 2))),
            (None, Some(ApprovalState::Pending), None),
            (None, Some(ApprovalState::Pending), Some(approval_id(STORED / 2))),
            (Some(existing), None, None),
            (Some(existing), Some(ApprovalState::Pending), None),
        ] {
            let owner = owner.clone();
            let query = ApprovalQuery { owner, session_id, state, before, limit: 50 };
            store.list_approvals(query).await.unwrap();
        }
    }
    let all = AuditQuery { limit: 100, after: u64::from(n), ..AuditQuery::default() };
    let old = AuditQuery { before: Some(50_000), ..all.clone() };
    let session = AuditQuery { session_id: Some(existing), ..all.clone() };
    let user_only = AuditQuery { user: Some(owner.to_string()), ..all.clone() };
    let action = AuditQuery { action: Some(AuditAction::KeyCreated), ..all.clone() };
    let unknown_user = AuditQuery { user: Some("nobody".to_owned()), ..all.clone() };
    let both = AuditQuery { action: Some(AuditAction::KeyCreated), ..user_only.clone() };
    for query in [all, old, session, user_only, action, unknown_user, both] {
        store.list_audit_rows(query).await.unwrap();
    }
    let (session_id, at) = (session_id(1_000 * n + 600), Timestamp(NEW_YEAR));
    store.purge(PurgeRequest { session_id, expected_head: Seq(1), by: owner, at }).await.unwrap();
    store.check_health().await.unwrap();
}

async fn add_keys(store: &Store) {
    for n in 1..=2 * RUNS {
        let (key_id, created_at) = (KeyId(Uuid::from_u128(n.into())), Timestamp(NEW_YEAR));
        let key = ApiKey {
            key_id,
            user: user("ann"),
            role: Role::User,
            name: None,
            created_at,
            revoked_at: None,
        };
        let entry = AuditEntry::new(created_at, AuditAction::KeyCreated, AuditOutcome::Done, None);
        store.store_key(&key, Digest::hash_bytes(&n.to_be_bytes()), entry).await.unwrap();
    }
}

/// Returns, by table, the number of rows read by sequential scans, and the number of index scans.
async fn scan_counts(connection: &mut PgConnection) -> BTreeMap<String, (i64, i64)> {
    // A connection reports its statistics at the latest when it is closed.
    let others = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name LIKE 'greenroom%'";
    while sqlx::query(others).fetch_one(&mut *connection).await.unwrap().get::<i64, _>(0) > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let counts =
        "SELECT relname::text, seq_tup_read, coalesce(idx_scan, 0) FROM pg_stat_user_tables";
    let rows = sqlx::query(counts).fetch_all(connection).await.unwrap();
    rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2)))).collect()
}

#[tokio::test]
async fn d6_no_query_scans_a_whole_table() {
    let address = Postgres::shared().create_database().await;
    add_keys(&open(&address).await).await;
    let database = address.rsplit('/').next().unwrap();
    let mut other = Postgres::shared().connect(database).await;
    fill(&mut other).await;
    // First without statistics of the planner, then with them.
    for round in 0..2 {
        if round == 1 {
            sqlx::raw_sql("ANALYZE").execute(&mut other).await.unwrap();
        }
        let before = scan_counts(&mut other).await;
        let store = open(&address).await;
        for n in 1..=RUNS {
            run_every_query(&store, round * RUNS + n).await;
        }
        drop(store);
        let after = scan_counts(&mut other).await;
        for table in GROWING_TABLES {
            let ((rows_before, scans_before), (rows_after, scans_after)) =
                (before[table], after[table]);
            assert_eq!(rows_after - rows_before, 0, "sequential scan of {table}, round {round}");
            assert!(scans_after - scans_before >= i64::from(RUNS), "{table}: no query ran");
        }
    }
}
