//! The cases of the contract, which use the journal port only.

use crate::fixtures::{
    NEW_YEAR, all_events, approval_id, approval_row, commit, decision, is_conflict, message_commit,
    message_event, parent, read_log, session_id, session_row, user, with_rows,
};
use futures::future::join_all;
use greenroom_actors::ports::{
    ApprovalQuery, Commit, Journal, JournalError, ParentFilter, PurgeRequest, RequestRow,
    SessionCounts, SessionQuery,
};
use greenroom_core::{
    Timestamp,
    amount::Amount,
    budget::{BudgetMeasure, SpendingEntry, SpendingPrecondition, SpendingTotals, SpendingUpdate},
    ids::{MessageId, Seq, SessionId},
    json::Digest,
    policy::{Autonomy, BudgetPeriod, Settings},
    session::{ApprovalRow, ApprovalState, SessionRow, SessionStatus},
    time::Day,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    slice,
    sync::Arc,
};

/// Declares a test of each case for one database. `$open` returns a journal over an empty database
/// and a guard that lives as long as the case.
macro_rules! contract {
    ($open:path: $($case:ident),+ $(,)?) => {$(
        #[tokio::test]
        async fn $case() {
            let (journal, _guard) = $open().await;
            crate::cases::$case(journal).await;
        }
    )+};
}

/// Declares a test of each existing case.
macro_rules! contract_tests {
    ($open:path) => {
        crate::cases::contract! { $open:
            d1_d7_every_event_type_round_trips,
            large_events_round_trip,
            load_events_returns_requested_range,
            missing_entries_load_as_empty,
            d1_append_not_at_head_conflicts,
            conflicting_append_stores_nothing,
            inconsistent_commits_are_rejected,
            d4_concurrent_appends_of_many_sessions_are_stored_separately,
            d1_exactly_one_concurrent_append_to_a_session_succeeds,
            pipelined_appends_of_a_session_keep_their_order,
            load_session_returns_latest_row,
            s1_list_sessions_returns_newest_first_in_stable_pages,
            x4_count_sessions_counts_by_owner,
            s8_children_are_listed_by_parent_and_their_approvals_at_the_root,
            d2_list_unfinished_sessions_returns_running_sessions,
            g11_load_approval_returns_latest_row,
            g11_list_approvals_applies_every_filter,
            g11_approvals_of_a_call_are_listed_newest_first,
            s5_request_is_known_until_it_expires_or_its_session_is_purged,
            g10_g11_list_pending_deadlines_returns_pending_approvals,
            g4_settings_are_stored_by_user,
            g6_spending_is_summed_by_day_month_and_measure,
            g6_concurrent_spending_never_exceeds_a_budget,
            g6_decimal_amounts_are_summed_exactly,
            s1_purge_deletes_session_and_keeps_spending,
            s1_purge_with_outdated_head_conflicts,
            check_health_succeeds_on_intact_database,
        }
    };
}

pub(crate) use {contract, contract_tests};

type JournalUnderTest = Arc<dyn Journal>;

async fn append(journal: &JournalUnderTest, commit: Commit) {
    journal.append(commit).await.unwrap();
}

pub(crate) async fn d1_d7_every_event_type_round_trips(journal: JournalUnderTest) {
    let records = all_events();
    append(&journal, commit(session_id(1), 0, records.clone())).await;
    for (n, record) in (2..).zip(&records) {
        let mut alone = record.clone();
        alone.seq = Seq(1);
        append(&journal, commit(session_id(n), 0, vec![alone.clone()])).await;
        assert_eq!(read_log(&*journal, session_id(n)).await, [alone]);
    }
    assert_eq!(read_log(&*journal, session_id(1)).await, records);
    assert_eq!(journal.load_head(session_id(1)).await.unwrap(), records.last().unwrap().seq);
}

pub(crate) async fn large_events_round_trip(journal: JournalUnderTest) {
    let large = "ä\"\\\u{1F980}\n".repeat(120_000);
    assert!(large.len() > 1024 * 1024);
    let sessions: Vec<u32> = (1..=6).collect();
    // Together more bytes than fit into one group of the writer.
    let appends = sessions.iter().map(|n| {
        journal.append(commit(
            session_id(*n),
            0,
            vec![message_event(1, &large), message_event(2, "small")],
        ))
    });
    for result in join_all(appends).await {
        result.unwrap();
    }
    for n in sessions {
        assert_eq!(
            read_log(&*journal, session_id(n)).await,
            [message_event(1, &large), message_event(2, "small")]
        );
    }
}

pub(crate) async fn load_events_returns_requested_range(journal: JournalUnderTest) {
    let id = session_id(1);
    let mut head = 0;
    for size in [1, 5, 2, 1, 3] {
        append(&journal, message_commit(id, head, size, "word")).await;
        head += size;
    }
    // A second session, so that events of a wrong session would be noticed.
    append(&journal, message_commit(session_id(2), 0, 40, "other")).await;
    let whole = read_log(&*journal, id).await;
    assert_eq!(whole.len(), 12);
    for after in 0..=13_usize {
        for limit in 0..=13 {
            let page = journal.load_events(id, Seq(after as u64), limit).await.unwrap();
            let expected: Vec<_> = whole.iter().skip(after).take(limit).cloned().collect();
            assert_eq!(page, expected, "after {after}, at most {limit}");
        }
    }
    for seq in [i64::MAX as u64 - 1, i64::MAX as u64, u64::MAX] {
        assert_eq!(journal.load_events(id, Seq(seq), 5).await.unwrap(), []);
    }
}

pub(crate) async fn missing_entries_load_as_empty(journal: JournalUnderTest) {
    let id = session_id(1);
    assert_eq!(journal.load_head(id).await.unwrap(), Seq(0));
    assert_eq!(read_log(&*journal, id).await, []);
    assert_eq!(journal.load_session(id).await.unwrap(), None);
    assert_eq!(journal.load_approval(approval_id(1)).await.unwrap(), None);
    assert_eq!(journal.load_settings(&user("alice")).await.unwrap(), None);
    assert_eq!(journal.count_sessions(&user("alice")).await.unwrap(), SessionCounts::default());
    assert_eq!(journal.list_unfinished_sessions().await.unwrap(), []);
    assert_eq!(journal.list_pending_deadlines().await.unwrap(), []);
    let query = SessionQuery { limit: 10, ..SessionQuery::default() };
    assert_eq!(journal.list_sessions(query).await.unwrap(), []);
    let query = ApprovalQuery { limit: 10, ..ApprovalQuery::default() };
    assert_eq!(journal.list_approvals(query).await.unwrap(), []);
}

/// An append succeeds only at the head of the log.
pub(crate) async fn d1_append_not_at_head_conflicts(journal: JournalUnderTest) {
    let id = session_id(1);
    assert!(is_conflict(&journal.append(message_commit(id, 1, 1, "too early")).await));
    append(&journal, message_commit(id, 0, 3, "first")).await;
    append(&journal, message_commit(id, 3, 2, "second")).await;
    // The start, a commit boundary, inside a commit (twice), beyond the head (twice).
    for head in [0, 3, 1, 4, 6, 100] {
        let result = journal.append(message_commit(id, head, 2, "wrong")).await;
        assert!(is_conflict(&result), "after {head}: {result:?}");
    }
    append(&journal, message_commit(id, 5, 1, "third")).await;
    let seqs: Vec<u64> = read_log(&*journal, id).await.iter().map(|record| record.seq.0).collect();
    assert_eq!(seqs, [1, 2, 3, 4, 5, 6]);
}

pub(crate) async fn conflicting_append_stores_nothing(journal: JournalUnderTest) {
    let row = session_row(1, "alice", SessionStatus::Running);
    let pending_approval = approval_row(1, 1, "alice", ApprovalState::Pending);
    let first = message_commit(session_id(1), 0, 2, "first");
    append(&journal, with_rows(first, Some(row.clone()), vec![pending_approval.clone()])).await;

    let late_row = SessionRow { title: Some("late".to_owned()), ..row.clone() };
    let late_approval = approval_row(1, 1, "alice", ApprovalState::Cancelled);
    let late_new_approval = approval_row(2, 1, "alice", ApprovalState::Pending);
    let late_commit = message_commit(session_id(1), 0, 3, "late");
    let late_commit =
        with_rows(late_commit, Some(late_row), vec![late_approval, late_new_approval]);
    assert!(is_conflict(&journal.append(late_commit).await));

    assert_eq!(read_log(&*journal, session_id(1)).await.len(), 2);
    assert_eq!(journal.load_session(session_id(1)).await.unwrap(), Some(row));
    assert_eq!(journal.load_approval(approval_id(1)).await.unwrap(), Some(pending_approval));
    assert_eq!(journal.load_approval(approval_id(2)).await.unwrap(), None);
}

pub(crate) async fn inconsistent_commits_are_rejected(journal: JournalUnderTest) {
    let id = session_id(1);
    let foreign_row = session_row(2, "alice", SessionStatus::Idle);
    let foreign_approval = approval_row(1, 2, "alice", ApprovalState::Pending);
    let inconsistent_commits = [
        commit(id, 0, vec![]),
        commit(id, 0, vec![message_event(2, "starts too late")]),
        commit(id, 0, vec![message_event(1, "a"), message_event(3, "gap")]),
        commit(id, 0, vec![message_event(1, "a"), message_event(1, "twice")]),
        commit(id, u64::MAX, vec![message_event(1, "wraps around")]),
        with_rows(message_commit(id, 0, 1, "x"), Some(foreign_row), vec![]),
        with_rows(message_commit(id, 0, 1, "x"), None, vec![foreign_approval]),
    ];
    for commit in inconsistent_commits {
        let result = journal.append(commit.clone()).await;
        let Err(JournalError::Corrupt(why)) = result else { panic!("{commit:?}: {result:?}") };
        assert!(why.contains(&id.to_string()), "{why}");
    }
    assert_eq!(journal.load_head(id).await.unwrap(), Seq(0));
    assert_eq!(journal.load_session(session_id(2)).await.unwrap(), None);
    append(&journal, message_commit(id, 0, 1, "sense")).await;
}

/// Commits that are written as one group are stored completely and separately.
pub(crate) async fn d4_concurrent_appends_of_many_sessions_are_stored_separately(
    journal: JournalUnderTest,
) {
    let append_session = |n: u32| {
        let journal = journal.clone();
        async move {
            for round in 0..4 {
                let mut commit =
                    message_commit(session_id(n), round * 2, 2, &format!("session {n}"));
                if (u64::from(n) + round).is_multiple_of(3) {
                    let row = session_row(n, "alice", SessionStatus::Idle);
                    let pending_approval = approval_row(n, n, "alice", ApprovalState::Pending);
                    commit = with_rows(commit, Some(row), vec![pending_approval]);
                }
                journal.append(commit).await.unwrap();
            }
        }
    };
    join_all((1..=300).map(append_session)).await;
    for n in 1..=300 {
        let expected =
            message_commit(session_id(n), 0, 8, &format!("session {n}")).records.to_vec();
        assert_eq!(read_log(&*journal, session_id(n)).await, expected);
        let row = journal.load_session(session_id(n)).await.unwrap();
        assert_eq!(row, Some(session_row(n, "alice", SessionStatus::Idle)));
    }
}

/// Exactly one of the conflicting appends succeeds; appends to other sessions are unaffected.
pub(crate) async fn d1_exactly_one_concurrent_append_to_a_session_succeeds(
    journal: JournalUnderTest,
) {
    let contended = session_id(1);
    for round in 0..3 {
        let competing_appends = (0..20_u32).map(|competitor| {
            let mut commit =
                message_commit(contended, round, 1, &format!("competitor {competitor}"));
            let row = session_row(1, &format!("competitor-{competitor}"), SessionStatus::Idle);
            commit = with_rows(commit, Some(row), vec![]);
            journal.append(commit)
        });
        let bystanders =
            (2..40).map(|n| journal.append(message_commit(session_id(n), round, 1, "bystander")));
        let (competing_appends, bystanders) =
            futures::future::join(join_all(competing_appends), join_all(bystanders)).await;
        for result in bystanders {
            result.unwrap();
        }
        let winners: Vec<usize> =
            (0..competing_appends.len()).filter(|n| competing_appends[*n].is_ok()).collect();
        assert_eq!(winners.len(), 1, "{competing_appends:?}");
        assert_eq!(competing_appends.iter().filter(|result| is_conflict(result)).count(), 19);
        let stored = read_log(&*journal, contended).await;
        let text = format!("competitor {} {}", winners[0], round + 1);
        assert_eq!(stored.last(), Some(&message_event(round + 1, &text)));
        let row = journal.load_session(contended).await.unwrap().unwrap();
        assert_eq!(row.owner, user(&format!("competitor-{}", winners[0])));
    }
}

pub(crate) async fn pipelined_appends_of_a_session_keep_their_order(journal: JournalUnderTest) {
    let id = session_id(1);
    let appends = (0..50).map(|head| journal.append(message_commit(id, head, 1, "step")));
    for result in join_all(appends).await {
        result.unwrap();
    }
    assert_eq!(read_log(&*journal, id).await, message_commit(id, 0, 50, "step").records.to_vec());
}

pub(crate) async fn load_session_returns_latest_row(journal: JournalUnderTest) {
    let mut row = session_row(1, "alice", SessionStatus::Running);
    append(
        &journal,
        with_rows(message_commit(session_id(1), 0, 1, "x"), Some(row.clone()), vec![]),
    )
    .await;
    assert_eq!(journal.load_session(session_id(1)).await.unwrap(), Some(row.clone()));
    append(&journal, message_commit(session_id(1), 1, 1, "unchanged")).await;
    assert_eq!(journal.load_session(session_id(1)).await.unwrap(), Some(row.clone()));
    row.title = None;
    row.status = SessionStatus::Closed;
    Arc::make_mut(&mut row.settings).allowed_regions = Some([10].into());
    append(
        &journal,
        with_rows(message_commit(session_id(1), 2, 1, "x"), Some(row.clone()), vec![]),
    )
    .await;
    assert_eq!(journal.load_session(session_id(1)).await.unwrap(), Some(row));
}

/// Pages do not shift when sessions are created or changed between two requests.
pub(crate) async fn s1_list_sessions_returns_newest_first_in_stable_pages(
    journal: JournalUnderTest,
) {
    let owner = |n: u32| if n.is_multiple_of(3) { "bob" } else { "alice" };
    let create = |n: u32| {
        let row = session_row(n, owner(n), SessionStatus::Idle);
        append(&journal, with_rows(message_commit(session_id(n), 0, 1, "x"), Some(row), vec![]))
    };
    for n in 10..30 {
        create(n).await;
    }
    for owner_filter in [None, Some("alice"), Some("bob")] {
        let is_listed = |n: &u32| owner_filter.is_none_or(|name| owner(*n) == name);
        let mut expected: Vec<SessionId> = (10..30).filter(is_listed).map(session_id).collect();
        expected.reverse();
        let mut listed = Vec::new();
        let mut query =
            SessionQuery { owner: owner_filter.map(user), limit: 4, ..SessionQuery::default() };
        let mut new_session = 40 + owner_filter.map_or(0, |name| name.len() as u32) * 10;
        loop {
            let page = journal.list_sessions(query.clone()).await.unwrap();
            assert!(page.len() <= 4);
            let Some(last) = page.last() else { break };
            query.before = Some(last.session_id);
            listed.extend(page.iter().map(|row| row.session_id));
            create(new_session).await;
            new_session += 1;
        }
        listed.retain(|id| *id < session_id(30));
        assert_eq!(listed, expected);
    }
    let query = SessionQuery { limit: 0, ..SessionQuery::default() };
    assert_eq!(journal.list_sessions(query).await.unwrap(), []);
}

pub(crate) async fn s8_children_are_listed_by_parent_and_their_approvals_at_the_root(
    journal: JournalUnderTest,
) {
    let mut approvals = Vec::new();
    for (n, parent_n) in [(1, None), (2, Some(1)), (3, Some(1)), (4, None), (5, Some(4))] {
        let mut row = session_row(n, "alice", SessionStatus::Idle);
        row.parent = parent_n.map(|parent_n| Arc::new(parent(parent_n)));
        let mut pending_approval = approval_row(n, n, "alice", ApprovalState::Pending);
        pending_approval.root = parent_n.map(|parent_n| parent(parent_n).root);
        let commit = message_commit(session_id(n), 0, 1, "x");
        append(&journal, with_rows(commit, Some(row), vec![pending_approval.clone()])).await;
        approvals.push(pending_approval);
    }
    for (parent_filter, expected) in [
        (ParentFilter::Any, vec![5, 4, 3, 2, 1]),
        (ParentFilter::Roots, vec![4, 1]),
        (ParentFilter::ChildrenOf(session_id(1)), vec![3, 2]),
        (ParentFilter::ChildrenOf(session_id(2)), vec![]),
    ] {
        for owner in [None, Some(user("alice"))] {
            let query = SessionQuery { owner, parent_filter, before: None, limit: 9 };
            let listed = journal.list_sessions(query.clone()).await.unwrap();
            let listed: Vec<_> = listed.iter().map(|row| row.session_id).collect();
            let expected: Vec<_> = expected.iter().map(|n| session_id(*n)).collect();
            assert_eq!(listed, expected, "{query:?}");
        }
    }
    for (session, expected) in [(1, vec![3, 2, 1]), (2, vec![2]), (4, vec![5, 4])] {
        let session_id = Some(session_id(session));
        let query = ApprovalQuery { session_id, limit: 9, ..ApprovalQuery::default() };
        let listed = journal.list_approvals(query).await.unwrap();
        let expected: Vec<_> = expected.iter().map(|n| approvals[*n - 1].clone()).collect();
        assert_eq!(listed, expected, "{session}");
    }
}

pub(crate) async fn x4_count_sessions_counts_by_owner(journal: JournalUnderTest) {
    use SessionStatus::{Closed, Idle, Running, Waiting};
    for (n, status) in (1..).zip([Idle, Idle, Idle, Running, Running, Waiting, Closed]) {
        let row = session_row(n, "alice", status);
        append(&journal, with_rows(message_commit(session_id(n), 0, 1, "x"), Some(row), vec![]))
            .await;
    }
    let row = session_row(50, "bob", Waiting);
    append(&journal, with_rows(message_commit(session_id(50), 0, 1, "x"), Some(row), vec![])).await;
    let count = async |name: &str| journal.count_sessions(&user(name)).await.unwrap();
    assert_eq!(count("alice").await, SessionCounts { open: 6, running: 3 });
    assert_eq!(count("bob").await, SessionCounts { open: 1, running: 1 });
    let row = session_row(50, "bob", Closed);
    append(&journal, with_rows(message_commit(session_id(50), 1, 1, "x"), Some(row), vec![])).await;
    assert_eq!(count("bob").await, SessionCounts::default());
}

pub(crate) async fn d2_list_unfinished_sessions_returns_running_sessions(
    journal: JournalUnderTest,
) {
    use SessionStatus::{Closed, Idle, Running, Waiting};
    for (n, status) in (1..).zip([Running, Idle, Waiting, Running, Closed]) {
        let row = session_row(n, "alice", status);
        append(&journal, with_rows(message_commit(session_id(n), 0, 1, "x"), Some(row), vec![]))
            .await;
    }
    let unfinished: BTreeSet<SessionId> =
        journal.list_unfinished_sessions().await.unwrap().into_iter().collect();
    assert_eq!(unfinished, [session_id(1), session_id(4)].into());
    let row = session_row(4, "alice", Idle);
    append(&journal, with_rows(message_commit(session_id(4), 1, 1, "x"), Some(row), vec![])).await;
    assert_eq!(journal.list_unfinished_sessions().await.unwrap(), [session_id(1)]);
}

pub(crate) async fn g11_load_approval_returns_latest_row(journal: JournalUnderTest) {
    let mut row = approval_row(1, 1, "alice", ApprovalState::Pending);
    let other = approval_row(2, 1, "alice", ApprovalState::Pending);
    let first = message_commit(session_id(1), 0, 1, "x");
    append(&journal, with_rows(first, None, vec![row.clone(), other.clone()])).await;
    assert_eq!(journal.load_approval(approval_id(1)).await.unwrap(), Some(row.clone()));
    row.state = ApprovalState::Decided;
    row.decisions = vec![decision(1)];
    row.closed_at = Some(Timestamp(1));
    append(&journal, with_rows(message_commit(session_id(1), 1, 1, "x"), None, vec![row.clone()]))
        .await;
    assert_eq!(journal.load_approval(approval_id(1)).await.unwrap(), Some(row));
    assert_eq!(journal.load_approval(approval_id(2)).await.unwrap(), Some(other));
}

pub(crate) async fn g11_list_approvals_applies_every_filter(journal: JournalUnderTest) {
    use ApprovalState::{Cancelled, Decided, Expired, Pending};
    let states = [Pending, Decided, Expired, Cancelled];
    let mut rows = Vec::new();
    for n in 0..24_u32 {
        let (session, state) = (n % 3, states[n as usize % 4]);
        let owner = if session == 0 { "alice" } else { "bob" };
        rows.push(approval_row(n, session, owner, state));
    }
    for session in 0..3 {
        let session_rows = rows.iter().filter(|row| row.session_id == session_id(session));
        let commit = message_commit(session_id(session), 0, 1, "x");
        append(&journal, with_rows(commit, None, session_rows.cloned().collect())).await;
    }
    rows.reverse();
    for owner in [None, Some(user("alice")), Some(user("bob"))] {
        for session_id in [None, Some(session_id(1))] {
            for state in [None, Some(Pending), Some(Decided), Some(Expired), Some(Cancelled)] {
                for before in [None, Some(approval_id(13))] {
                    let owner = owner.clone();
                    let query = ApprovalQuery { owner, session_id, state, before, limit: 5 };
                    let is_expected = |row: &&greenroom_core::session::ApprovalRow| {
                        query.owner.as_ref().is_none_or(|owner| row.owner == *owner)
                            && session_id.is_none_or(|id| row.session_id == id)
                            && state.is_none_or(|state| row.state == state)
                            && before.is_none_or(|id| row.approval.approval_id < id)
                    };
                    let expected: Vec<_> =
                        rows.iter().filter(is_expected).take(5).cloned().collect();
                    let listed = journal.list_approvals(query.clone()).await.unwrap();
                    assert_eq!(listed, expected, "{query:?}");
                }
            }
        }
    }
}

pub(crate) async fn g11_approvals_of_a_call_are_listed_newest_first(journal: JournalUnderTest) {
    let of_call = |row: &ApprovalRow| row.approval.steps()[0].call_id;
    let first = approval_row(1, 1, "alice", ApprovalState::Expired);
    // The second approval asks for the same call again.
    let mut second = approval_row(2, 1, "alice", ApprovalState::Pending);
    Arc::make_mut(&mut second.approval).subject = first.approval.subject.clone();
    let other = approval_row(3, 2, "bob", ApprovalState::Pending);
    let rows = vec![first.clone(), second.clone()];
    append(&journal, with_rows(message_commit(session_id(1), 0, 1, "x"), None, rows)).await;
    let rows = vec![other.clone()];
    append(&journal, with_rows(message_commit(session_id(2), 0, 1, "x"), None, rows)).await;
    let listed = async |row: &ApprovalRow| journal.list_approvals_of_call(of_call(row)).await;
    assert_eq!(listed(&first).await.unwrap(), [second.clone(), first.clone()]);
    second.state = ApprovalState::Decided;
    let rows = vec![second.clone()];
    append(&journal, with_rows(message_commit(session_id(1), 1, 1, "x"), None, rows)).await;
    assert_eq!(listed(&first).await.unwrap(), [second, first.clone()]);
    assert_eq!(listed(&other).await.unwrap(), slice::from_ref(&other));
    journal.purge(purge_request(1, 2)).await.unwrap();
    assert_eq!(listed(&first).await.unwrap(), []);
    assert_eq!(listed(&other).await.unwrap(), [other]);
}

pub(crate) async fn s5_request_is_known_until_it_expires_or_its_session_is_purged(
    journal: JournalUnderTest,
) {
    let request = |owner: &str, id: &str, session: u32, at: i64| RequestRow {
        user: user(owner),
        request_id: MessageId::parse(id).unwrap(),
        session_id: session_id(session),
        digest: Digest::hash_bytes(&at.to_be_bytes()),
        at: Timestamp(at),
    };
    let find = async |row: &RequestRow, since: i64| {
        journal.find_request(&row.user, &row.request_id, Timestamp(since)).await.unwrap()
    };
    let store = async |row: &RequestRow, since: i64| {
        journal.store_request(row, Timestamp(since)).await.unwrap();
    };
    let first = request("alice", "a'1", 1, 100);
    assert_eq!(find(&first, 0).await, None);
    store(&first, 50).await;
    assert_eq!(find(&first, 100).await, Some(first.clone()));
    assert_eq!(find(&first, 101).await, None, "expired");
    // The first request with an id wins while it is valid. Another user's id is another request.
    store(&request("alice", "a'1", 2, 150), 100).await;
    assert_eq!(find(&first, 100).await, Some(first.clone()));
    let of_bob = request("bob", "a'1", 2, 150);
    store(&of_bob, 100).await;
    assert_eq!(find(&of_bob, 100).await, Some(of_bob.clone()));
    let again = request("alice", "a'1", 3, 200);
    store(&again, 101).await;
    assert_eq!(find(&first, 0).await, Some(again.clone()));
    // Storing a request deletes expired ones.
    store(&request("carol", "c", 3, 300), 180).await;
    assert_eq!(find(&of_bob, 0).await, None);
    assert_eq!(find(&again, 0).await, Some(again.clone()));
    append(&journal, message_commit(session_id(3), 0, 1, "x")).await;
    journal.purge(purge_request(3, 1)).await.unwrap();
    assert_eq!(find(&again, 0).await, None);
}

pub(crate) async fn g10_g11_list_pending_deadlines_returns_pending_approvals(
    journal: JournalUnderTest,
) {
    let mut without_deadline = approval_row(2, 1, "alice", ApprovalState::Pending);
    Arc::make_mut(&mut without_deadline.approval).deadline = None;
    let with_deadline = approval_row(1, 1, "alice", ApprovalState::Pending);
    let deadline = with_deadline.approval.deadline;
    let closed = approval_row(3, 1, "alice", ApprovalState::Expired);
    let first = message_commit(session_id(1), 0, 1, "x");
    append(&journal, with_rows(first, None, vec![without_deadline, with_deadline, closed])).await;
    let mut deadlines = journal.list_pending_deadlines().await.unwrap();
    deadlines.sort();
    let expected =
        [(approval_id(1), session_id(1), deadline), (approval_id(2), session_id(1), None)];
    assert_eq!(deadlines, expected);
    let cancelled = approval_row(1, 1, "alice", ApprovalState::Cancelled);
    append(&journal, with_rows(message_commit(session_id(1), 1, 1, "x"), None, vec![cancelled]))
        .await;
    assert_eq!(journal.list_pending_deadlines().await.unwrap(), [expected[1]]);
}

pub(crate) async fn g4_settings_are_stored_by_user(journal: JournalUnderTest) {
    let mut settings = Settings { autonomy_level: Autonomy::Assisted, ..Settings::default() };
    settings.blocked_tools.insert("drop_table".parse().unwrap());
    journal.store_settings(&user("al'ice"), &settings).await.unwrap();
    journal.store_settings(&user("bob"), &Settings::default()).await.unwrap();
    assert_eq!(journal.load_settings(&user("al'ice")).await.unwrap(), Some(settings.clone()));
    settings.require_confirmation = false;
    journal.store_settings(&user("al'ice"), &settings).await.unwrap();
    assert_eq!(journal.load_settings(&user("al'ice")).await.unwrap(), Some(settings));
    assert_eq!(journal.load_settings(&user("bob")).await.unwrap(), Some(Settings::default()));
    assert_eq!(journal.load_settings(&user("carol")).await.unwrap(), None);
}

/// Returns a commit of a new session that records spending, on condition that it stays within
/// `limit`.
fn amount(text: &str) -> Amount {
    Amount::parse_exact(text).unwrap()
}

fn spending(n: u32, day: Day, amount: Amount, limit: Option<(BudgetPeriod, Amount)>) -> Commit {
    let measure = || BudgetMeasure::from_unit("ISK \u{1F980} 'x'");
    let precondition =
        |(period, limit)| SpendingPrecondition { measure: measure(), period, day, limit };
    let update = SpendingUpdate {
        user: user("alice"),
        entries: vec![SpendingEntry { measure: measure(), day, amount }],
        preconditions: limit.map(precondition).into_iter().collect(),
    };
    let mut commit = message_commit(session_id(n), 0, 1, "spends");
    commit.projection.spending_update = Some(update);
    commit
}

pub(crate) async fn g6_spending_is_summed_by_day_month_and_measure(journal: JournalUnderTest) {
    let today = Timestamp(NEW_YEAR).day();
    let first = today.first_of_month();
    let days = [Day(first.0 - 1), first, first, today, Day(today.0 + 1)];
    for ((n, day), text) in (1..).zip(days).zip(["1.5", "10", "-2", "100", "1000.000001"]) {
        append(&journal, spending(n, day, amount(text), None)).await;
    }
    let totals = journal.load_spending(&user("alice"), today).await.unwrap();
    let day = amount("1108.000001");
    let expected = SpendingTotals { day, month: day, total: amount("1109.500001") };
    // 1 January is the first day of its month.
    assert_eq!(totals, [(BudgetMeasure::from_unit("ISK \u{1F980} 'x'"), expected)].into());
    assert_eq!(journal.load_spending(&user("bob"), today).await.unwrap(), [].into());
}

/// An append that would exceed the budget fails with `BudgetExceeded` and stores nothing.
pub(crate) async fn g6_concurrent_spending_never_exceeds_a_budget(journal: JournalUnderTest) {
    let today = Timestamp(NEW_YEAR).day();
    let limit = Some((BudgetPeriod::Day, 25.into()));
    append(&journal, spending(90, Day(today.0 - 1), 100.into(), None)).await;
    append(&journal, spending(91, today, 5.into(), limit)).await;
    let results =
        join_all((1..=20).map(|n| journal.append(spending(n, today, 10.into(), limit)))).await;
    let is_over_budget =
        |result: &Result<(), _>| matches!(result, Err(JournalError::BudgetExceeded));
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 2, "{results:?}");
    assert_eq!(results.iter().filter(|result| is_over_budget(result)).count(), 18, "{results:?}");
    for (n, result) in (1..).zip(&results) {
        let head = journal.load_head(session_id(n)).await.unwrap();
        assert_eq!(head, Seq(u64::from(result.is_ok())));
    }
    let month = Some((BudgetPeriod::Month, 125.into()));
    assert!(is_over_budget(&journal.append(spending(92, today, amount("100.01"), month)).await));
    append(&journal, spending(93, today, 100.into(), month)).await;
    let totals = journal.load_spending(&user("alice"), today).await.unwrap();
    assert_eq!(totals.values().map(|totals| totals.day).collect::<Vec<_>>(), [125.into()]);
}

/// Sums of decimals are exact: ten times 0.1 is 1, which a binary floating-point sum misses.
pub(crate) async fn g6_decimal_amounts_are_summed_exactly(journal: JournalUnderTest) {
    let today = Timestamp(NEW_YEAR).day();
    let limit = Some((BudgetPeriod::Total, 1.into()));
    for n in 1..=10 {
        append(&journal, spending(n, today, amount("0.1"), limit)).await;
    }
    let smallest = spending(11, today, amount("0.000000000001"), limit);
    assert!(matches!(journal.append(smallest).await, Err(JournalError::BudgetExceeded)));
    let large = amount("99999999999999999999.999999999999");
    append(&journal, spending(12, today, large, None)).await;
    append(&journal, spending(13, today, -amount("0.3"), None)).await;
    let totals = journal.load_spending(&user("alice"), today).await.unwrap();
    let expected = large + amount("0.7");
    assert_eq!(totals.values().map(|totals| totals.total).collect::<Vec<_>>(), [expected]);
}

/// Spending as floating-point sums left it, on day 1.
pub(crate) const FLOATING_POINT_SPENDING: &str = "
    INSERT INTO spending (user_id, measure, day, amount) VALUES
    ('alice', 'ISK', 1, 374799.99999999994), ('alice', 'usd', 1, 6.000000000000001e-05),
    ('alice', 'gold', 1, 864197523.8399999), ('alice', 'silver', 1, 4120.0),
    ('alice', 'tokens', 1, 123456789012.0), ('alice', 'tin', 1, 1.4210854715202004e-14)";

/// Asserts that [`FLOATING_POINT_SPENDING`] has become decimal, and that amounts add up.
pub(crate) async fn assert_decimal_spending(journal: &dyn Journal) {
    let isk = |n, isk: &str| {
        let mut commit = spending(n, Day(1), amount(isk), None);
        let update = commit.projection.spending_update.as_mut().unwrap();
        update.entries[0].measure = BudgetMeasure::from_unit("ISK");
        commit
    };
    journal.append(isk(1, "0.01")).await.unwrap();
    let totals = journal.load_spending(&user("alice"), Day(1)).await.unwrap();
    let totals = totals.iter().map(|(measure, totals)| (measure.name(), totals.total));
    let expected = [
        ("ISK", "374800.01"),
        ("gold", "864197523.84"),
        ("silver", "4120"),
        ("tin", "0"),
        ("tokens", "123456789012"),
        ("usd", "0.00006"),
    ];
    let expected = expected.map(|(measure, text)| (measure, amount(text)));
    assert_eq!(totals.collect::<BTreeMap<_, _>>(), expected.into());
}

fn purge_request(n: u32, head: u64) -> PurgeRequest {
    let at = Timestamp(NEW_YEAR);
    PurgeRequest { session_id: session_id(n), expected_head: Seq(head), by: user("alice"), at }
}

/// Deletes every row of the session, leaves other sessions unchanged and does not reset a budget.
pub(crate) async fn s1_purge_deletes_session_and_keeps_spending(journal: JournalUnderTest) {
    let today = Timestamp(NEW_YEAR).day();
    for n in [1, 2] {
        let row = session_row(n, "alice", SessionStatus::Running);
        let pending_approval = approval_row(n, n, "alice", ApprovalState::Pending);
        let mut first =
            with_rows(message_commit(session_id(n), 0, 3, "x"), Some(row), vec![pending_approval]);
        first.projection.spending_update =
            spending(n, today, 10.into(), None).projection.spending_update;
        append(&journal, first).await;
        append(&journal, message_commit(session_id(n), 3, 2, "y")).await;
    }
    journal.purge(purge_request(1, 5)).await.unwrap();
    assert_eq!(journal.load_head(session_id(1)).await.unwrap(), Seq(0));
    assert_eq!(read_log(&*journal, session_id(1)).await, []);
    assert_eq!(journal.load_session(session_id(1)).await.unwrap(), None);
    assert_eq!(journal.load_approval(approval_id(1)).await.unwrap(), None);
    assert_eq!(journal.list_unfinished_sessions().await.unwrap(), [session_id(2)]);
    assert_eq!(journal.list_pending_deadlines().await.unwrap().len(), 1);
    let counts = journal.count_sessions(&user("alice")).await.unwrap();
    assert_eq!(counts, SessionCounts { open: 1, running: 1 });
    assert_eq!(read_log(&*journal, session_id(2)).await.len(), 5);
    let totals = journal.load_spending(&user("alice"), today).await.unwrap();
    assert_eq!(totals.values().map(|totals| totals.total).collect::<Vec<_>>(), [20.into()]);
    // A later append to the session conflicts, and so does a second purge.
    assert!(is_conflict(&journal.append(message_commit(session_id(1), 5, 1, "late")).await));
    assert!(is_conflict(&journal.purge(purge_request(1, 5)).await));
    assert!(is_conflict(&journal.purge(purge_request(1, 0)).await));
}

pub(crate) async fn s1_purge_with_outdated_head_conflicts(journal: JournalUnderTest) {
    append(&journal, message_commit(session_id(1), 0, 3, "x")).await;
    for head in [0, 2, 4] {
        assert!(is_conflict(&journal.purge(purge_request(1, head)).await));
    }
    let appends = (3..23).map(|head| journal.append(message_commit(session_id(1), head, 1, "x")));
    let (appended, purged) =
        futures::future::join(join_all(appends), journal.purge(purge_request(1, 10))).await;
    // The purge runs between two appends and makes the later ones conflict, or it runs too late.
    let stored = read_log(&*journal, session_id(1)).await.len();
    let conflicts = appended.iter().filter(|result| is_conflict(result)).count();
    match purged {
        Ok(()) => assert_eq!((stored, conflicts), (0, 13)),
        Err(JournalError::Conflict) => assert_eq!((stored, conflicts), (23, 0)),
        Err(error) => panic!("{error}"),
    }
}

pub(crate) async fn check_health_succeeds_on_intact_database(journal: JournalUnderTest) {
    for result in join_all((0..5).map(|_| journal.check_health())).await {
        result.unwrap();
    }
}
