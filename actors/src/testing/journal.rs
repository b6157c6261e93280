//! A journal in memory that keeps every promise of [`Journal`], until a test tells it not to.

use super::{Gate, lock};
use crate::ports::{
    ApprovalQuery, Commit, Journal, JournalError, ParentFilter, PurgeRequest, SessionCounts,
    SessionQuery,
};
use async_trait::async_trait;
use greenroom_core::{
    Timestamp,
    budget::{BudgetMeasure, SpendingEntry, SpendingPrecondition, SpendingTotals, SpendingUpdate},
    ids::{ApprovalId, Seq, SessionId, UserId},
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

/// What a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalOperation {
    /// [`Journal::append`].
    Append,
    /// [`Journal::read`].
    Read,
}

/// What goes wrong.
#[derive(Clone, Debug)]
pub enum JournalFault {
    /// It fails, and nothing is stored.
    Unavailable,
    /// It fails, although everything is stored.
    UnavailableAfterStoring,
    /// It fails with a conflict, and nothing is stored.
    Conflict,
    /// It panics, and nothing is stored.
    Panic,
    /// It waits at the gate, then goes on.
    Wait(Gate),
    /// It stores, then waits at the gate before it says so.
    WaitAfterStoring(Gate),
}

/// A journal in memory. Clones are the same journal, until one of them is [`Self::crash`]ed.
#[derive(Clone)]
pub struct MemoryJournal {
    stored: Arc<Mutex<Stored>>,
    changed: Arc<watch::Sender<u64>>,
    rules: Arc<Mutex<Vec<FaultRule>>>,
    dead: Arc<AtomicBool>,
}

/// Events are kept as JSON, so that what does not survive storing does not survive here.
#[derive(Default)]
struct Stored {
    events: BTreeMap<SessionId, Vec<String>>,
    sessions: BTreeMap<SessionId, SessionRow>,
    approvals: BTreeMap<ApprovalId, ApprovalRow>,
    settings: BTreeMap<UserId, Settings>,
    spending: BTreeMap<(UserId, BudgetMeasure, Day), f64>,
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
    /// An empty journal.
    pub fn new() -> Self {
        Self {
            stored: Arc::default(),
            changed: Arc::new(watch::Sender::new(0)),
            rules: Arc::default(),
            dead: Arc::default(),
        }
    }

    /// The next `times` operations of that kind meet `fault`. Several wait for their turn.
    pub fn inject_fault(&self, operation: JournalOperation, fault: JournalFault, times: usize) {
        lock(&self.rules).push(FaultRule { operation, session_id: None, fault, times });
    }

    /// Like [`Self::fault`], for one session alone.
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

    /// No more faults.
    pub fn clear_faults(&self) {
        lock(&self.rules).clear();
    }

    /// The process dies: whoever holds this journal never hears from it again and changes nothing
    /// more. What was stored is in the journal that comes back.
    pub fn crash(&self) -> Self {
        self.dead.store(true, Relaxed);
        Self { dead: Arc::default(), rules: Arc::default(), ..self.clone() }
    }

    /// All events of a session.
    pub fn events(&self, session_id: SessionId) -> Vec<EventRecord> {
        lock(&self.stored).read(session_id, Seq(0), usize::MAX)
    }

    /// Tells of every change: the number of appends so far.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn next_fault(
        &self,
        operation: JournalOperation,
        session_id: SessionId,
    ) -> Option<JournalFault> {
        let mut rules = lock(&self.rules);
        let hits = |rule: &FaultRule| {
            rule.operation == operation && rule.session_id.is_none_or(|only| only == session_id)
        };
        let at = rules.iter().position(hits)?;
        let rule = &mut rules[at];
        let fault = rule.fault.clone();
        rule.times -= 1;
        if rule.times == 0 {
            rules.remove(at);
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
    JournalError::Unavailable("a fault of the test".to_owned())
}

impl Stored {
    fn head(&self, session_id: SessionId) -> Seq {
        let count = self.events.get(&session_id).map_or(0, Vec::len);
        Seq(u64::try_from(count).expect("a test writes few events"))
    }

    fn append(&mut self, commit: Commit) -> Result<(), JournalError> {
        let Commit { session_id, expected_head, records, projection } = commit;
        if self.head(session_id) != expected_head {
            return Err(JournalError::Conflict);
        }
        if let Some(posting) = &projection.spending_update {
            self.record_spending(posting)?;
        }
        assert!(!records.is_empty(), "a commit without events");
        let mut seq = expected_head;
        let log = self.events.entry(session_id).or_default();
        for record in records.iter() {
            seq = seq.next();
            assert_eq!(record.seq, seq, "events must be numbered without gaps");
            log.push(serde_json::to_string(record).expect("an event can be written as JSON"));
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
        Ok(())
    }

    fn record_spending(&mut self, posting: &SpendingUpdate) -> Result<(), JournalError> {
        let mut spending = self.spending.clone();
        for SpendingEntry { measure, day, amount } in &posting.entries {
            let key = (posting.user.clone(), measure.clone(), *day);
            *spending.entry(key).or_default() += amount;
        }
        let spent = |claim: &SpendingPrecondition| {
            let first = claim.first_day();
            let counted = spending.iter().filter(|((user, measure, day), _)| {
                *user == posting.user
                    && *measure == claim.measure
                    && first.is_none_or(|first| *day >= first)
            });
            counted.map(|(_, amount)| amount).sum::<f64>()
        };
        if !posting.preconditions.iter().all(|claim| claim.is_met(spent(claim))) {
            return Err(JournalError::BudgetExceeded);
        }
        self.spending = spending;
        Ok(())
    }

    fn read(&self, session_id: SessionId, after: Seq, limit: usize) -> Vec<EventRecord> {
        let after = usize::try_from(after.0).unwrap_or(usize::MAX);
        let log = self.events.get(&session_id).into_iter().flatten().skip(after).take(limit);
        log.map(|text| serde_json::from_str(text).expect("a stored event can be read")).collect()
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
            Some(JournalFault::Panic) => panic!("the test wants the journal to panic"),
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
        after: Seq,
        limit: usize,
    ) -> Result<Vec<EventRecord>, JournalError> {
        self.hang_if_crashed().await;
        let page = || lock(&self.stored).read(session_id, after, limit);
        match self.next_fault(JournalOperation::Read, session_id) {
            None => Ok(page()),
            Some(JournalFault::Unavailable | JournalFault::UnavailableAfterStoring) => {
                Err(unavailable())
            }
            Some(JournalFault::Conflict) => Err(JournalError::Conflict),
            Some(JournalFault::Panic) => panic!("the test wants the journal to panic"),
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
        let wanted = |row: &&SessionRow| {
            let parent = row.parent.as_ref().map(|parent| parent.session_id);
            let is_meant = match parent_filter {
                ParentFilter::Any => true,
                ParentFilter::Roots => parent.is_none(),
                ParentFilter::ChildrenOf(wanted) => parent == Some(wanted),
            };
            is_meant
                && owner.as_ref().is_none_or(|owner| row.owner == *owner)
                && before.is_none_or(|before| row.session_id < before)
        };
        Ok(stored.sessions.values().rev().filter(wanted).take(limit).cloned().collect())
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
        let wanted = |row: &&ApprovalRow| {
            let root = row.root.map(|root| root.session_id);
            owner.as_ref().is_none_or(|owner| row.owner == *owner)
                && session_id.is_none_or(|id| row.session_id == id || root == Some(id))
                && state.is_none_or(|state| row.state == state)
                && before.is_none_or(|before| row.approval.approval_id < before)
        };
        Ok(stored.approvals.values().rev().filter(wanted).take(limit).cloned().collect())
    }

    async fn list_pending_deadlines(
        &self,
    ) -> Result<Vec<(ApprovalId, SessionId, Option<Timestamp>)>, JournalError> {
        let stored = lock(&self.stored);
        let pending = stored.approvals.values().filter(|row| row.state == ApprovalState::Pending);
        let deadline =
            |row: &ApprovalRow| (row.approval.approval_id, row.session_id, row.approval.deadline);
        Ok(pending.map(deadline).collect())
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
        let mut spent: BTreeMap<BudgetMeasure, SpendingTotals> = BTreeMap::new();
        for ((owner, measure, day), amount) in &lock(&self.stored).spending {
            if owner == user {
                spent.entry(measure.clone()).or_default().add(*day, *amount, today);
            }
        }
        Ok(spent)
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
