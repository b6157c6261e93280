//! The contract, case by case, over the port alone.

use crate::fixtures::{
    NEW_YEAR, all_events, approval_id, approval_row, commit, decision, is_conflict, message_commit,
    message_event, parent, read_log, session_id, session_row, user, with_rows,
};
use futures::future::join_all;
use greenroom_actors::ports::{
    ApprovalQuery, Commit, Journal, JournalError, ParentFilter, PurgeRequest, SessionCounts,
    SessionQuery,
};
use greenroom_core::{
    Timestamp,
    budget::{BudgetMeasure, SpendingEntry, SpendingPrecondition, SpendingTotals, SpendingUpdate},
    ids::{Seq, SessionId},
    policy::{Autonomy, BudgetPeriod, Settings},
    session::{ApprovalState, SessionRow, SessionStatus},
    time::Day,
};
use std::{collections::BTreeSet, sync::Arc};

/// Declares a test of each case for one database. `$open` gives a journal over an empty database,
/// with whatever must outlive the case.
macro_rules! contract {
    ($open:path: $($case:ident),+ $(,)?) => {$(
        #[tokio::test]
        async fn $case() {
            let (journal, _kept) = $open().await;
            crate::cases::$case(journal).await;
        }
    )+};
}

/// Declares a test of every case there is.
macro_rules! whole_contract {
    ($open:path) => {
        crate::cases::contract! { $open:
            every_kind_of_event_reads_back_as_it_was,
            large_events_read_back_whole,
            reading_starts_and_stops_anywhere,
            what_does_not_exist_is_empty,
            an_append_that_does_not_follow_the_head_conflicts,
            a_conflict_leaves_nothing_behind,
            commits_that_make_no_sense_are_refused,
            many_sessions_append_at_once,
            one_of_those_who_append_to_the_same_session_wins,
            a_session_that_appends_twice_at_once_keeps_its_order,
            a_session_row_is_the_last_one_written,
            sessions_are_listed_newest_first_in_stable_pages,
            sessions_are_counted_by_owner,
            children_are_listed_by_their_parent_and_asked_for_at_their_root,
            running_sessions_are_found_again,
            an_approval_row_is_the_last_one_written,
            approvals_are_listed_by_every_filter,
            pending_deadlines_are_those_of_what_waits,
            settings_are_kept_by_user,
            what_is_spent_is_added_up_by_day_month_and_measure,
            of_those_who_race_for_the_last_of_a_budget_one_wins,
            a_purged_session_is_gone_and_what_its_user_spent_is_not,
            a_session_that_moved_on_is_not_purged,
            a_sound_database_checks_well,
        }
    };
}

pub(crate) use {contract, whole_contract};

type JournalUnderTest = Arc<dyn Journal>;

async fn append(journal: &JournalUnderTest, commit: Commit) {
    journal.append(commit).await.unwrap();
}

/// D1, D7
pub(crate) async fn every_kind_of_event_reads_back_as_it_was(journal: JournalUnderTest) {
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

pub(crate) async fn large_events_read_back_whole(journal: JournalUnderTest) {
    let large = "ä\"\\\u{1F980}\n".repeat(120_000);
    assert!(large.len() > 1024 * 1024);
    let sessions: Vec<u32> = (1..=6).collect();
    // More than one group's bytes at once.
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

pub(crate) async fn reading_starts_and_stops_anywhere(journal: JournalUnderTest) {
    let id = session_id(1);
    let mut head = 0;
    for size in [1, 5, 2, 1, 3] {
        append(&journal, message_commit(id, head, size, "word")).await;
        head += size;
    }
    // A neighbour, so that the wrong session's events would be seen.
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
    for beyond in [i64::MAX as u64 - 1, i64::MAX as u64, u64::MAX] {
        assert_eq!(journal.load_events(id, Seq(beyond), 5).await.unwrap(), []);
    }
}

pub(crate) async fn what_does_not_exist_is_empty(journal: JournalUnderTest) {
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

/// D1: compare-and-append.
pub(crate) async fn an_append_that_does_not_follow_the_head_conflicts(journal: JournalUnderTest) {
    let id = session_id(1);
    assert!(is_conflict(&journal.append(message_commit(id, 1, 1, "too early")).await));
    append(&journal, message_commit(id, 0, 3, "first")).await;
    append(&journal, message_commit(id, 3, 2, "second")).await;
    // The beginning, a boundary, the middle of a commit, beyond the head.
    for head in [0, 3, 1, 4, 6, 100] {
        let result = journal.append(message_commit(id, head, 2, "wrong")).await;
        assert!(is_conflict(&result), "after {head}: {result:?}");
    }
    append(&journal, message_commit(id, 5, 1, "third")).await;
    let seqs: Vec<u64> = read_log(&*journal, id).await.iter().map(|record| record.seq.0).collect();
    assert_eq!(seqs, [1, 2, 3, 4, 5, 6]);
}

pub(crate) async fn a_conflict_leaves_nothing_behind(journal: JournalUnderTest) {
    let row = session_row(1, "alice", SessionStatus::Running);
    let asked = approval_row(1, 1, "alice", ApprovalState::Pending);
    let first = message_commit(session_id(1), 0, 2, "first");
    append(&journal, with_rows(first, Some(row.clone()), vec![asked.clone()])).await;

    let late_row = SessionRow { title: Some("late".to_owned()), ..row.clone() };
    let late_asked = approval_row(1, 1, "alice", ApprovalState::Cancelled);
    let never_asked = approval_row(2, 1, "alice", ApprovalState::Pending);
    let late = message_commit(session_id(1), 0, 3, "late");
    let late = with_rows(late, Some(late_row), vec![late_asked, never_asked]);
    assert!(is_conflict(&journal.append(late).await));

    assert_eq!(read_log(&*journal, session_id(1)).await.len(), 2);
    assert_eq!(journal.load_session(session_id(1)).await.unwrap(), Some(row));
    assert_eq!(journal.load_approval(approval_id(1)).await.unwrap(), Some(asked));
    assert_eq!(journal.load_approval(approval_id(2)).await.unwrap(), None);
}

pub(crate) async fn commits_that_make_no_sense_are_refused(journal: JournalUnderTest) {
    let id = session_id(1);
    let foreign_row = session_row(2, "alice", SessionStatus::Idle);
    let foreign_approval = approval_row(1, 2, "alice", ApprovalState::Pending);
    let senseless = [
        commit(id, 0, vec![]),
        commit(id, 0, vec![message_event(2, "starts too late")]),
        commit(id, 0, vec![message_event(1, "a"), message_event(3, "gap")]),
        commit(id, 0, vec![message_event(1, "a"), message_event(1, "twice")]),
        commit(id, u64::MAX, vec![message_event(1, "wraps around")]),
        with_rows(message_commit(id, 0, 1, "x"), Some(foreign_row), vec![]),
        with_rows(message_commit(id, 0, 1, "x"), None, vec![foreign_approval]),
    ];
    for commit in senseless {
        let result = journal.append(commit.clone()).await;
        let Err(JournalError::Corrupt(why)) = result else { panic!("{commit:?}: {result:?}") };
        assert!(why.contains(&id.to_string()), "{why}");
    }
    assert_eq!(journal.load_head(id).await.unwrap(), Seq(0));
    assert_eq!(journal.load_session(session_id(2)).await.unwrap(), None);
    append(&journal, message_commit(id, 0, 1, "sense")).await;
}

/// D4: what is appended together is stored whole and apart.
pub(crate) async fn many_sessions_append_at_once(journal: JournalUnderTest) {
    let one = |n: u32| {
        let journal = journal.clone();
        async move {
            for round in 0..4 {
                let mut commit =
                    message_commit(session_id(n), round * 2, 2, &format!("session {n}"));
                if (u64::from(n) + round).is_multiple_of(3) {
                    let row = session_row(n, "alice", SessionStatus::Idle);
                    let asked = approval_row(n, n, "alice", ApprovalState::Pending);
                    commit = with_rows(commit, Some(row), vec![asked]);
                }
                journal.append(commit).await.unwrap();
            }
        }
    };
    join_all((1..=300).map(one)).await;
    for n in 1..=300 {
        let expected =
            message_commit(session_id(n), 0, 8, &format!("session {n}")).records.to_vec();
        assert_eq!(read_log(&*journal, session_id(n)).await, expected);
        let row = journal.load_session(session_id(n)).await.unwrap();
        assert_eq!(row, Some(session_row(n, "alice", SessionStatus::Idle)));
    }
}

/// D1: exactly one wins, and bystanders are not hurt.
pub(crate) async fn one_of_those_who_append_to_the_same_session_wins(journal: JournalUnderTest) {
    let contended = session_id(1);
    for round in 0..3 {
        let rivals = (0..20_u32).map(|rival| {
            let mut commit = message_commit(contended, round, 1, &format!("rival {rival}"));
            let row = session_row(1, &format!("rival-{rival}"), SessionStatus::Idle);
            commit = with_rows(commit, Some(row), vec![]);
            journal.append(commit)
        });
        let bystanders =
            (2..40).map(|n| journal.append(message_commit(session_id(n), round, 1, "bystander")));
        let (rivals, bystanders) =
            futures::future::join(join_all(rivals), join_all(bystanders)).await;
        for result in bystanders {
            result.unwrap();
        }
        let winners: Vec<usize> = (0..rivals.len()).filter(|n| rivals[*n].is_ok()).collect();
        assert_eq!(winners.len(), 1, "{rivals:?}");
        assert_eq!(rivals.iter().filter(|result| is_conflict(result)).count(), 19);
        let stored = read_log(&*journal, contended).await;
        let text = format!("rival {} {}", winners[0], round + 1);
        assert_eq!(stored.last(), Some(&message_event(round + 1, &text)));
        let row = journal.load_session(contended).await.unwrap().unwrap();
        assert_eq!(row.owner, user(&format!("rival-{}", winners[0])));
    }
}

pub(crate) async fn a_session_that_appends_twice_at_once_keeps_its_order(
    journal: JournalUnderTest,
) {
    let id = session_id(1);
    let appends = (0..50).map(|head| journal.append(message_commit(id, head, 1, "step")));
    for result in join_all(appends).await {
        result.unwrap();
    }
    assert_eq!(read_log(&*journal, id).await, message_commit(id, 0, 50, "step").records.to_vec());
}

pub(crate) async fn a_session_row_is_the_last_one_written(journal: JournalUnderTest) {
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

/// S1: pages do not shift when sessions are created or changed meanwhile.
pub(crate) async fn sessions_are_listed_newest_first_in_stable_pages(journal: JournalUnderTest) {
    let owner = |n: u32| if n.is_multiple_of(3) { "bob" } else { "alice" };
    let create = |n: u32| {
        let row = session_row(n, owner(n), SessionStatus::Idle);
        append(&journal, with_rows(message_commit(session_id(n), 0, 1, "x"), Some(row), vec![]))
    };
    for n in 10..30 {
        create(n).await;
    }
    for who in [None, Some("alice"), Some("bob")] {
        let mut expected: Vec<SessionId> =
            (10..30).filter(|n| who.is_none_or(|who| owner(*n) == who)).map(session_id).collect();
        expected.reverse();
        let mut listed = Vec::new();
        let mut query = SessionQuery { owner: who.map(user), limit: 4, ..SessionQuery::default() };
        let mut newcomer = 40 + who.map_or(0, |who| who.len() as u32) * 10;
        loop {
            let page = journal.list_sessions(query.clone()).await.unwrap();
            assert!(page.len() <= 4);
            let Some(last) = page.last() else { break };
            query.before = Some(last.session_id);
            listed.extend(page.iter().map(|row| row.session_id));
            create(newcomer).await;
            newcomer += 1;
        }
        listed.retain(|id| *id < session_id(30));
        assert_eq!(listed, expected);
    }
    let query = SessionQuery { limit: 0, ..SessionQuery::default() };
    assert_eq!(journal.list_sessions(query).await.unwrap(), []);
}

/// S8
pub(crate) async fn children_are_listed_by_their_parent_and_asked_for_at_their_root(
    journal: JournalUnderTest,
) {
    let mut waiting = Vec::new();
    for (n, above) in [(1, None), (2, Some(1)), (3, Some(1)), (4, None), (5, Some(4))] {
        let mut row = session_row(n, "alice", SessionStatus::Idle);
        row.parent = above.map(|above| Arc::new(parent(above)));
        let mut asked = approval_row(n, n, "alice", ApprovalState::Pending);
        asked.root = above.map(|above| parent(above).root);
        let commit = message_commit(session_id(n), 0, 1, "x");
        append(&journal, with_rows(commit, Some(row), vec![asked.clone()])).await;
        waiting.push(asked);
    }
    for (descent, expected) in [
        (ParentFilter::Any, vec![5, 4, 3, 2, 1]),
        (ParentFilter::Roots, vec![4, 1]),
        (ParentFilter::ChildrenOf(session_id(1)), vec![3, 2]),
        (ParentFilter::ChildrenOf(session_id(2)), vec![]),
    ] {
        for owner in [None, Some(user("alice"))] {
            let query = SessionQuery { owner, parent_filter: descent, before: None, limit: 9 };
            let listed = journal.list_sessions(query.clone()).await.unwrap();
            let listed: Vec<_> = listed.iter().map(|row| row.session_id).collect();
            let expected: Vec<_> = expected.iter().map(|n| session_id(*n)).collect();
            assert_eq!(listed, expected, "{query:?}");
        }
    }
    for (asked_at, expected) in [(1, vec![3, 2, 1]), (2, vec![2]), (4, vec![5, 4])] {
        let session_id = Some(session_id(asked_at));
        let query = ApprovalQuery { session_id, limit: 9, ..ApprovalQuery::default() };
        let listed = journal.list_approvals(query).await.unwrap();
        let expected: Vec<_> = expected.iter().map(|n| waiting[*n - 1].clone()).collect();
        assert_eq!(listed, expected, "{asked_at}");
    }
}

/// X4
pub(crate) async fn sessions_are_counted_by_owner(journal: JournalUnderTest) {
    use SessionStatus::{Closed, Idle, Running, Waiting};
    for (n, status) in (1..).zip([Idle, Idle, Idle, Running, Running, Waiting, Closed]) {
        let row = session_row(n, "alice", status);
        append(&journal, with_rows(message_commit(session_id(n), 0, 1, "x"), Some(row), vec![]))
            .await;
    }
    let row = session_row(50, "bob", Waiting);
    append(&journal, with_rows(message_commit(session_id(50), 0, 1, "x"), Some(row), vec![])).await;
    let counts = async |name: &str| journal.count_sessions(&user(name)).await.unwrap();
    assert_eq!(counts("alice").await, SessionCounts { open: 6, running: 3 });
    assert_eq!(counts("bob").await, SessionCounts { open: 1, running: 1 });
    let row = session_row(50, "bob", Closed);
    append(&journal, with_rows(message_commit(session_id(50), 1, 1, "x"), Some(row), vec![])).await;
    assert_eq!(counts("bob").await, SessionCounts::default());
}

/// D2
pub(crate) async fn running_sessions_are_found_again(journal: JournalUnderTest) {
    use SessionStatus::{Closed, Idle, Running, Waiting};
    for (n, status) in (1..).zip([Running, Idle, Waiting, Running, Closed]) {
        let row = session_row(n, "alice", status);
        append(&journal, with_rows(message_commit(session_id(n), 0, 1, "x"), Some(row), vec![]))
            .await;
    }
    let found: BTreeSet<SessionId> =
        journal.list_unfinished_sessions().await.unwrap().into_iter().collect();
    assert_eq!(found, [session_id(1), session_id(4)].into());
    let row = session_row(4, "alice", Idle);
    append(&journal, with_rows(message_commit(session_id(4), 1, 1, "x"), Some(row), vec![])).await;
    assert_eq!(journal.list_unfinished_sessions().await.unwrap(), [session_id(1)]);
}

/// G11
pub(crate) async fn an_approval_row_is_the_last_one_written(journal: JournalUnderTest) {
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

/// G11
pub(crate) async fn approvals_are_listed_by_every_filter(journal: JournalUnderTest) {
    use ApprovalState::{Cancelled, Decided, Expired, Pending};
    let states = [Pending, Decided, Expired, Cancelled];
    let mut rows = Vec::new();
    for n in 0..24_u32 {
        let (session, state) = (n % 3, states[n as usize % 4]);
        let owner = if session == 0 { "alice" } else { "bob" };
        rows.push(approval_row(n, session, owner, state));
    }
    for session in 0..3 {
        let of_session = rows.iter().filter(|row| row.session_id == session_id(session));
        let commit = message_commit(session_id(session), 0, 1, "x");
        append(&journal, with_rows(commit, None, of_session.cloned().collect())).await;
    }
    rows.reverse();
    for owner in [None, Some(user("alice")), Some(user("bob"))] {
        for session_id in [None, Some(session_id(1))] {
            for state in [None, Some(Pending), Some(Decided), Some(Expired), Some(Cancelled)] {
                for before in [None, Some(approval_id(13))] {
                    let owner = owner.clone();
                    let query = ApprovalQuery { owner, session_id, state, before, limit: 5 };
                    let is_meant = |row: &&greenroom_core::session::ApprovalRow| {
                        query.owner.as_ref().is_none_or(|owner| row.owner == *owner)
                            && session_id.is_none_or(|id| row.session_id == id)
                            && state.is_none_or(|state| row.state == state)
                            && before.is_none_or(|id| row.approval.approval_id < id)
                    };
                    let expected: Vec<_> = rows.iter().filter(is_meant).take(5).cloned().collect();
                    let listed = journal.list_approvals(query.clone()).await.unwrap();
                    assert_eq!(listed, expected, "{query:?}");
                }
            }
        }
    }
}

/// G10, G11
pub(crate) async fn pending_deadlines_are_those_of_what_waits(journal: JournalUnderTest) {
    let mut forever = approval_row(2, 1, "alice", ApprovalState::Pending);
    Arc::make_mut(&mut forever.approval).deadline = None;
    let waiting = approval_row(1, 1, "alice", ApprovalState::Pending);
    let deadline = waiting.approval.deadline;
    let closed = approval_row(3, 1, "alice", ApprovalState::Expired);
    let first = message_commit(session_id(1), 0, 1, "x");
    append(&journal, with_rows(first, None, vec![forever, waiting, closed])).await;
    let mut found = journal.list_pending_deadlines().await.unwrap();
    found.sort();
    let expected =
        [(approval_id(1), session_id(1), deadline), (approval_id(2), session_id(1), None)];
    assert_eq!(found, expected);
    let moot = approval_row(1, 1, "alice", ApprovalState::Cancelled);
    append(&journal, with_rows(message_commit(session_id(1), 1, 1, "x"), None, vec![moot])).await;
    assert_eq!(journal.list_pending_deadlines().await.unwrap(), [expected[1]]);
}

/// G4
pub(crate) async fn settings_are_kept_by_user(journal: JournalUnderTest) {
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

/// A commit of a new session that spends, and takes for granted that there is room.
fn spending(n: u32, day: Day, amount: f64, limit: Option<(BudgetPeriod, f64)>) -> Commit {
    let measure = || BudgetMeasure::from_unit("ISK \u{1F980} 'x'");
    let claim = |(period, limit)| SpendingPrecondition { measure: measure(), period, day, limit };
    let posting = SpendingUpdate {
        user: user("alice"),
        entries: vec![SpendingEntry { measure: measure(), day, amount }],
        preconditions: limit.map(claim).into_iter().collect(),
    };
    let mut commit = message_commit(session_id(n), 0, 1, "spends");
    commit.projection.spending_update = Some(posting);
    commit
}

/// G6
pub(crate) async fn what_is_spent_is_added_up_by_day_month_and_measure(journal: JournalUnderTest) {
    let today = Timestamp(NEW_YEAR).day();
    let first = today.first_of_month();
    let days = [Day(first.0 - 1), first, first, today, Day(today.0 + 1)];
    for ((n, day), amount) in (1..).zip(days).zip([1.5, 10.0, -2.0, 100.0, 1000.0]) {
        append(&journal, spending(n, day, amount, None)).await;
    }
    let spent = journal.load_spending(&user("alice"), today).await.unwrap();
    let expected = SpendingTotals { day: 1108.0, month: 1108.0, total: 1109.5 };
    // New year's day is the first of its month.
    assert_eq!(spent, [(BudgetMeasure::from_unit("ISK \u{1F980} 'x'"), expected)].into());
    assert_eq!(journal.load_spending(&user("bob"), today).await.unwrap(), [].into());
}

/// G6: whoever comes too late is told, and has written nothing.
pub(crate) async fn of_those_who_race_for_the_last_of_a_budget_one_wins(journal: JournalUnderTest) {
    let today = Timestamp(NEW_YEAR).day();
    let limit = Some((BudgetPeriod::Day, 25.0));
    append(&journal, spending(90, Day(today.0 - 1), 100.0, None)).await;
    append(&journal, spending(91, today, 5.0, limit)).await;
    let results = join_all((1..=20).map(|n| journal.append(spending(n, today, 10.0, limit)))).await;
    let is_refused = |result: &Result<(), _>| matches!(result, Err(JournalError::BudgetExceeded));
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 2, "{results:?}");
    assert_eq!(results.iter().filter(|result| is_refused(result)).count(), 18, "{results:?}");
    for (n, result) in (1..).zip(&results) {
        let head = journal.load_head(session_id(n)).await.unwrap();
        assert_eq!(head, Seq(u64::from(result.is_ok())));
    }
    let month = Some((BudgetPeriod::Month, 125.0));
    assert!(is_refused(&journal.append(spending(92, today, 101.0, month)).await));
    append(&journal, spending(93, today, 100.0, month)).await;
    let spent = journal.load_spending(&user("alice"), today).await.unwrap();
    assert_eq!(spent.values().map(|spent| spent.day).collect::<Vec<_>>(), [125.0]);
}

fn purge(n: u32, head: u64) -> PurgeRequest {
    let at = Timestamp(NEW_YEAR);
    PurgeRequest { session_id: session_id(n), expected_head: Seq(head), by: user("alice"), at }
}

/// S1: nothing of it is left, its neighbours are untouched, and a budget is not reset by it.
pub(crate) async fn a_purged_session_is_gone_and_what_its_user_spent_is_not(
    journal: JournalUnderTest,
) {
    let today = Timestamp(NEW_YEAR).day();
    for n in [1, 2] {
        let row = session_row(n, "alice", SessionStatus::Running);
        let asked = approval_row(n, n, "alice", ApprovalState::Pending);
        let mut first = with_rows(message_commit(session_id(n), 0, 3, "x"), Some(row), vec![asked]);
        first.projection.spending_update =
            spending(n, today, 10.0, None).projection.spending_update;
        append(&journal, first).await;
        append(&journal, message_commit(session_id(n), 3, 2, "y")).await;
    }
    journal.purge(purge(1, 5)).await.unwrap();
    assert_eq!(journal.load_head(session_id(1)).await.unwrap(), Seq(0));
    assert_eq!(read_log(&*journal, session_id(1)).await, []);
    assert_eq!(journal.load_session(session_id(1)).await.unwrap(), None);
    assert_eq!(journal.load_approval(approval_id(1)).await.unwrap(), None);
    assert_eq!(journal.list_unfinished_sessions().await.unwrap(), [session_id(2)]);
    assert_eq!(journal.list_pending_deadlines().await.unwrap().len(), 1);
    let counts = journal.count_sessions(&user("alice")).await.unwrap();
    assert_eq!(counts, SessionCounts { open: 1, running: 1 });
    assert_eq!(read_log(&*journal, session_id(2)).await.len(), 5);
    let spent = journal.load_spending(&user("alice"), today).await.unwrap();
    assert_eq!(spent.values().map(|spent| spent.total).collect::<Vec<_>>(), [20.0]);
    // Who still believes in it is refused, and so is who purges it again.
    assert!(is_conflict(&journal.append(message_commit(session_id(1), 5, 1, "late")).await));
    assert!(is_conflict(&journal.purge(purge(1, 5)).await));
    assert!(is_conflict(&journal.purge(purge(1, 0)).await));
}

/// S1
pub(crate) async fn a_session_that_moved_on_is_not_purged(journal: JournalUnderTest) {
    append(&journal, message_commit(session_id(1), 0, 3, "x")).await;
    for head in [0, 2, 4] {
        assert!(is_conflict(&journal.purge(purge(1, head)).await));
    }
    let appends = (3..23).map(|head| journal.append(message_commit(session_id(1), head, 1, "x")));
    let (appended, purged) =
        futures::future::join(join_all(appends), journal.purge(purge(1, 10))).await;
    // Either it came in between and ended what followed, or it came too late.
    let stored = read_log(&*journal, session_id(1)).await.len();
    let refused = appended.iter().filter(|result| is_conflict(result)).count();
    match purged {
        Ok(()) => assert_eq!((stored, refused), (0, 13)),
        Err(JournalError::Conflict) => assert_eq!((stored, refused), (23, 0)),
        Err(error) => panic!("{error}"),
    }
}

pub(crate) async fn a_sound_database_checks_well(journal: JournalUnderTest) {
    for result in join_all((0..5).map(|_| journal.check_health())).await {
        result.unwrap();
    }
}
