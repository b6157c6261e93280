//! An in-memory journal that satisfies the contract of [`Journal`], except for injected faults.

use super::{Gate, lock};
use crate::{
    limits::APPROVALS_OF_CALL_MAX,
    ports::{
        ApprovalQuery, Commit, Journal, JournalError, ParentFilter, PurgeRequest, RequestRow,
        SessionCounts, SessionQuery,
    },
};
use async_trait::async_trait;
use greenroom_core::{
    Timestamp,
    amount::Amount,
    budget::{BudgetMeasure, SpendingEntry, SpendingPrecondition, SpendingTotals, SpendingUpdate},
    ids::{ApprovalId, CallId, MessageId, Seq, SessionId, UserId},
    policy::Settings,
    session::{ApprovalRow, ApprovalState, EventRecord, SessionRow, SessionStatus},
    time::Day,
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};
use tokio::sync::watch;

/// The journal operation a fault applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalOperation {
    /// [`Journal::append`].
    Append,
    /// [`Journal::load_events`].
    Read,
}

/// A fault to inject.
#[derive(Clone, Debug)]
pub enum JournalFault {
    /// Fails; nothing is stored.
    Unavailable,
    /// Fails although everything is stored.
    UnavailableAfterStoring,
    /// Fails with a conflict; nothing is stored.
    Conflict,
    /// Panics; nothing is stored.
    Panic,
    /// Waits at the gate before the operation.
    Wait(Gate),
    /// Stores, then waits at the gate before the operation returns.
    WaitAfterStoring(Gate),
}

/// An in-memory journal. Clones share their data until one of them is [`Self::crash`]ed.
#[derive(Clone)]
pub struct MemoryJournal {
    stored: Arc<Mutex<StoredData>>,
    changed: Arc<watch::Sender<u64>>,
    rules: Arc<Mutex<Vec<FaultRule>>>,
    dead: Arc<AtomicBool>,
}

/// The stored data. Events are stored as JSON, so that encoding errors show in tests.
#[derive(Default)]
struct StoredData {
    events: BTreeMap<SessionId, Vec<String>>,
    sessions: BTreeMap<SessionId, SessionRow>,
    approvals: BTreeMap<ApprovalId, ApprovalRow>,
    settings: BTreeMap<UserId, Settings>,
    requests: BTreeMap<(UserId, MessageId), RequestRow>,
    spending: BTreeMap<(UserId, BudgetMeasure, Day), Amount>,
}

struct FaultRule {
    operation: JournalOperation,
    session_id: Option<SessionId>,
    fault: JournalFault,
    times: usize,
}

impl Default for MemoryJournal {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryJournal {
    /// Creates an empty journal.
    pub fn new() -> Self {
        Self {
            stored: Arc::default(),
            changed: Arc::new(watch::Sender::new(0)),
            rules: Arc::default(),
            dead: Arc::default(),
        }
    }

    /// Makes the next `times` matching operations fail with `fault`. Faults apply in order.
    pub fn inject_fault(&self, operation: JournalOperation, fault: JournalFault, times: usize) {
        lock(&self.rules).push(FaultRule { operation, session_id: None, fault, times });
    }

    /// Same as [`Self::inject_fault`], for one session only.
    pub fn inject_session_fault(
        &self,
        session_id: SessionId,
        operation: JournalOperation,
        fault: JournalFault,
        times: usize,
    ) {
        let session_id = Some(session_id);
        lock(&self.rules).push(FaultRule { operation, session_id, fault, times });
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        lock(&self.rules).clear();
    }

    /// Simulates a crash: operations on this journal never complete and store nothing. The returned
    /// journal contains the stored data.
    pub fn crash(&self) -> Self {
        self.dead.store(true, Relaxed);
        Self { dead: Arc::default(), rules: Arc::default(), ..self.clone() }
    }

    /// Returns all events of a session.
    pub fn events(&self, session_id: SessionId) -> Vec<EventRecord> {
        lock(&self.stored).read(session_id, Seq(0), usize::MAX)
    }

    /// Returns a receiver of the number of commits and purges so far.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn next_fault(
        &self,
        operation: JournalOperation,
        session_id: SessionId,
    ) -> Option<JournalFault> {
        let mut rules = lock(&self.rules);
        let matches = |rule: &FaultRule| {
            rule.operation == operation && rule.session_id.is_none_or(|id| id == session_id)
        };
        let index = rules.iter().position(matches)?;
        let rule = &mut rules[index];
        let fault = rule.fault.clone();
        rule.times -= 1;
        if rule.times == 0 {
            rules.remove(index);
        }
        Some(fault)
    }

    async fn hang_if_crashed(&self) {
        if self.dead.load(Relaxed) {
            std::future::pending::<()>().await;
        }
    }

    fn store(&self, commit: Commit) -> Result<(), JournalError> {
        lock(&self.stored).append(commit)?;
        self.changed.send_modify(|count| *count += 1);
        Ok(())
    }
}

fn unavailable() -> JournalError {
    JournalError::Unavailable("injected fault".to_owned())
}

impl StoredData {
    fn head(&self, session_id: SessionId) -> Seq {
        let count = self.events.get(&session_id).map_or(0, Vec::len);
        Seq(u64::try_from(count).expect("a test stores few events"))
    }

    fn append(&mut self, commit: Commit) -> Result<(), JournalError> {
        let Commit { session_id, expected_head, records, projection } = commit;
        if self.head(session_id) != expected_head {
            return Err(JournalError::Conflict);
        }
        if let Some(update) = &projection.spending_update {
            self.record_spending(update)?;
        }
        assert!(!records.is_empty(), "a commit without events");
        let mut seq = expected_head;
        let log = self.events.entry(session_id).or_default();
        for record in records.iter() {
            seq = seq.next();
            assert_eq!(record.seq, seq, "events must be numbered without gaps");
            log.push(serde_json::to_string(record).expect("an event is serializable"));
        }
        if let Some(row) = projection.session {
            self.sessions.insert(session_id, row);
        }
        for row in projection.approvals {
            self.approvals.insert(row.approval.approval_id, row);
        }
        Ok(())
    }

    fn purge(&mut self, purge: &PurgeRequest) -> Result<(), JournalError> {
        let session_id = purge.session_id;
        let head = self.head(session_id);
        if head == Seq(0) || head != purge.expected_head {
            return Err(JournalError::Conflict);
        }
        self.events.remove(&session_id);
        self.sessions.remove(&session_id);
        self.approvals.retain(|_, row| row.session_id != session_id);
        self.requests.retain(|_, row| row.session_id != session_id);
        Ok(())
    }

    fn record_spending(&mut self, update: &SpendingUpdate) -> Result<(), JournalError> {
        let mut spending = self.spending.clone();
        for SpendingEntry { measure, day, amount } in &update.entries {
            let key = (update.user.clone(), measure.clone(), *day);
            *spending.entry(key).or_default() += *amount;
        }
        let sum_spending = |precondition: &SpendingPrecondition| {
            let first_day = precondition.first_day();
            let entries = spending.iter().filter(|((user, measure, day), _)| {
                *user == update.user
                    && *measure == precondition.measure
                    && first_day.is_none_or(|first_day| *day >= first_day)
            });
            entries.map(|(_, amount)| *amount).sum::<Amount>()
        };
        if !update
            .preconditions
            .iter()
            .all(|precondition| precondition.is_met(sum_spending(precondition)))
        {
            return Err(JournalError::BudgetExceeded);
        }
        self.spending = spending;
        Ok(())
    }

    fn read(&self, session_id: SessionId, after_seq: Seq, limit: usize) -> Vec<EventRecord> {
        let after_seq = usize::try_from(after_seq.0).unwrap_or(usize::MAX);
        let log = self.events.get(&session_id).into_iter().flatten().skip(after_seq).take(limit);
        log.map(|json| serde_json::from_str(json).expect("a stored event is valid")).collect()
    }
}

#[async_trait]
impl Journal for MemoryJournal {
    async fn append(&self, commit: Commit) -> Result<(), JournalError> {
        self.hang_if_crashed().await;
        match self.next_fault(JournalOperation::Append, commit.session_id) {
            None => self.store(commit)?,
            Some(JournalFault::Unavailable) => return Err(unavailable()),
            Some(JournalFault::UnavailableAfterStoring) => {
                self.store(commit)?;
                return Err(unavailable());
            }
            Some(JournalFault::Conflict) => return Err(JournalError::Conflict),
            Some(JournalFault::Panic) => panic!("injected panic of the journal"),
            Some(JournalFault::Wait(gate)) => {
                gate.wait().await;
                self.hang_if_crashed().await;
                self.store(commit)?;
            }
            Some(JournalFault::WaitAfterStoring(gate)) => {
                self.store(commit)?;
                gate.wait().await;
            }
        }
        self.hang_if_crashed().await;
        Ok(())
    }

    async fn load_events(
        &self,
        session_id: SessionId,
        after_seq: Seq,
        limit: usize,
    ) -> Result<Vec<EventRecord>, JournalError> {
        self.hang_if_crashed().await;
        let page = || lock(&self.stored).read(session_id, after_seq, limit);
        match self.next_fault(JournalOperation::Read, session_id) {
            None => Ok(page()),
            Some(JournalFault::Unavailable | JournalFault::UnavailableAfterStoring) => {
                Err(unavailable())
            }
            Some(JournalFault::Conflict) => Err(JournalError::Conflict),
            Some(JournalFault::Panic) => panic!("injected panic of the journal"),
            Some(JournalFault::Wait(gate) | JournalFault::WaitAfterStoring(gate)) => {
                gate.wait().await;
                self.hang_if_crashed().await;
                Ok(page())
            }
        }
    }

    async fn load_head(&self, session_id: SessionId) -> Result<Seq, JournalError> {
        self.hang_if_crashed().await;
        Ok(lock(&self.stored).head(session_id))
    }

    async fn load_session(
        &self,
        session_id: SessionId,
    ) -> Result<Option<SessionRow>, JournalError> {
        Ok(lock(&self.stored).sessions.get(&session_id).cloned())
    }

    async fn list_sessions(&self, query: SessionQuery) -> Result<Vec<SessionRow>, JournalError> {
        let SessionQuery { owner, parent_filter, before, limit } = query;
        let stored = lock(&self.stored);
        let is_match = |row: &&SessionRow| {
            let parent = row.parent.as_ref().map(|parent| parent.session_id);
            let parent_matches = match parent_filter {
                ParentFilter::Any => true,
                ParentFilter::Roots => parent.is_none(),
                ParentFilter::ChildrenOf(parent_id) => parent == Some(parent_id),
            };
            parent_matches
                && owner.as_ref().is_none_or(|owner| row.owner == *owner)
                && before.is_none_or(|before| row.session_id < before)
        };
        Ok(stored.sessions.values().rev().filter(is_match).take(limit).cloned().collect())
    }

    async fn list_unfinished_sessions(&self) -> Result<Vec<SessionId>, JournalError> {
        let stored = lock(&self.stored);
        let running = stored.sessions.values().filter(|row| row.status == SessionStatus::Running);
        Ok(running.map(|row| row.session_id).collect())
    }

    async fn count_sessions(&self, owner: &UserId) -> Result<SessionCounts, JournalError> {
        let mut counts = SessionCounts::default();
        for row in lock(&self.stored).sessions.values().filter(|row| row.owner == *owner) {
            match row.status {
                SessionStatus::Closed => {}
                SessionStatus::Idle => counts.open += 1,
                SessionStatus::Running | SessionStatus::Waiting => {
                    counts.open += 1;
                    counts.running += 1;
                }
            }
        }
        Ok(counts)
    }

    async fn load_approval(
        &self,
        approval_id: ApprovalId,
    ) -> Result<Option<ApprovalRow>, JournalError> {
        Ok(lock(&self.stored).approvals.get(&approval_id).cloned())
    }

    async fn list_approvals(&self, query: ApprovalQuery) -> Result<Vec<ApprovalRow>, JournalError> {
        let ApprovalQuery { owner, session_id, state, before, limit } = query;
        let stored = lock(&self.stored);
        let is_match = |row: &&ApprovalRow| {
            let root = row.root.map(|root| root.session_id);
            owner.as_ref().is_none_or(|owner| row.owner == *owner)
                && session_id.is_none_or(|id| row.session_id == id || root == Some(id))
                && state.is_none_or(|state| row.state == state)
                && before.is_none_or(|before| row.approval.approval_id < before)
        };
        Ok(stored.approvals.values().rev().filter(is_match).take(limit).cloned().collect())
    }

    async fn list_approvals_of_call(
        &self,
        call_id: CallId,
    ) -> Result<Vec<ApprovalRow>, JournalError> {
        let stored = lock(&self.stored);
        let has_call =
            |row: &&ApprovalRow| row.approval.steps().iter().any(|step| step.call_id == call_id);
        let rows = stored.approvals.values().rev().filter(has_call);
        Ok(rows.take(APPROVALS_OF_CALL_MAX).cloned().collect())
    }

    async fn store_request(
        &self,
        row: &RequestRow,
        valid_since: Timestamp,
    ) -> Result<(), JournalError> {
        let requests = &mut lock(&self.stored).requests;
        let key = (row.user.clone(), row.request_id.clone());
        if requests.get(&key).is_none_or(|stored| stored.at < valid_since) {
            requests.insert(key, row.clone());
        }
        Ok(())
    }

    async fn find_request(
        &self,
        user: &UserId,
        request_id: &MessageId,
        valid_since: Timestamp,
    ) -> Result<Option<RequestRow>, JournalError> {
        let stored = lock(&self.stored);
        let row = stored.requests.get(&(user.clone(), request_id.clone()));
        Ok(row.filter(|row| row.at >= valid_since).cloned())
    }

    async fn list_pending_deadlines(
        &self,
    ) -> Result<Vec<(ApprovalId, SessionId, Option<Timestamp>)>, JournalError> {
        let stored = lock(&self.stored);
        let pending = stored.approvals.values().filter(|row| row.state == ApprovalState::Pending);
        let to_deadline =
            |row: &ApprovalRow| (row.approval.approval_id, row.session_id, row.approval.deadline);
        Ok(pending.map(to_deadline).collect())
    }

    async fn load_settings(&self, user: &UserId) -> Result<Option<Settings>, JournalError> {
        Ok(lock(&self.stored).settings.get(user).cloned())
    }

    async fn store_settings(&self, user: &UserId, settings: &Settings) -> Result<(), JournalError> {
        lock(&self.stored).settings.insert(user.clone(), settings.clone());
        Ok(())
    }

    async fn load_spending(
        &self,
        user: &UserId,
        today: Day,
    ) -> Result<BTreeMap<BudgetMeasure, SpendingTotals>, JournalError> {
        self.hang_if_crashed().await;
        let mut totals: BTreeMap<BudgetMeasure, SpendingTotals> = BTreeMap::new();
        for ((owner, measure, day), amount) in &lock(&self.stored).spending {
            if owner == user {
                totals.entry(measure.clone()).or_default().add(*day, *amount, today);
            }
        }
        Ok(totals)
    }

    async fn purge(&self, purge: PurgeRequest) -> Result<(), JournalError> {
        self.hang_if_crashed().await;
        lock(&self.stored).purge(&purge)?;
        self.changed.send_modify(|count| *count += 1);
        Ok(())
    }

    async fn check_health(&self) -> Result<(), JournalError> {
        Ok(())
    }
}
