//! The one writer: takes what waits, writes it as one group, and answers each (D4). Must not know
//! SQL, which is each database's [`Sink`].
//!
//! It has a thread and a small runtime of its own, so that commits go on however busy the actors'
//! threads are, and so that dropping the journal can wait for the last group.

use super::{
    WriteStats,
    admin_records::AuditedChange,
    error::journal_error,
    group_commit_timer::GroupCommitTimer,
    head_cache::{HeadCache, HeadSource},
    log_tail_cache::LogTailCache,
    open_session_cache::{CACHED_SESSIONS_PER_USER_MAX, OpenSessionCache},
    spending_check,
    stored_commit::StoredCommit,
};
use crate::audit::{AuditEntry, AuditRow, ChainHead};
use greenroom_actors::ports::JournalError;
use greenroom_core::{
    budget::SpendingPrecondition,
    ids::{Seq, SessionId, UserId},
    session::SessionStatus,
};
use metrics::{Histogram, histogram};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};
use tokio::{
    runtime::Runtime,
    sync::{mpsc, oneshot},
};

/// Requests that wait for the writer; beyond it callers wait before their commit is encoded.
const QUEUE_MAX: usize = 256;
/// Requests in one group.
const GROUP_REQUESTS_MAX: usize = 256;
/// Bytes after which a group takes no more requests.
const GROUP_BYTES_MAX: usize = 4 * 1024 * 1024;

type WriteResult = Result<(), JournalError>;

/// What the writer needs of a database: the one connection that writes. It connects when it is
/// asked for something and has none; whatever errs may leave a transaction open, and the writer then
/// [`reset`](Self::reset)s it.
pub(super) trait WriterBackend: Send + 'static {
    /// The last event of each of these sessions; 0 for those that do not exist.
    async fn load_heads(&mut self, sessions: &[SessionId]) -> sqlx::Result<Vec<(SessionId, Seq)>>;

    /// What is stored of what the claim limits.
    async fn load_counted_spending(
        &mut self,
        user: &UserId,
        claim: &SpendingPrecondition,
    ) -> sqlx::Result<f64>;

    /// The user's open sessions, at most `limit` of them.
    async fn list_open_sessions(
        &mut self,
        owner: &UserId,
        limit: usize,
    ) -> sqlx::Result<Vec<(SessionId, SessionStatus)>>;

    /// The noted end of the audit log.
    async fn load_audit_head(&mut self) -> sqlx::Result<Option<ChainHead>>;

    /// Stores all of these commits, with the rows of the audit log that they make, or, when it
    /// errs, none.
    async fn store_commits(
        &mut self,
        commits: &[&StoredCommit],
        sealed: &[AuditRow],
    ) -> sqlx::Result<()>;

    /// Makes the change and writes the row of the audit log, both or, when it errs, neither.
    async fn store_change(&mut self, change: &AuditedChange, row: &AuditRow) -> sqlx::Result<()>;

    /// Stores a user's settings.
    async fn store_settings(&mut self, user: &str, content: &str) -> sqlx::Result<()>;

    /// Whether writing works, by writing.
    async fn write_heartbeat(&mut self) -> sqlx::Result<()>;

    /// Gives the connection up.
    async fn disconnect(&mut self);

    /// Gives the connection up, and leaves everything in order.
    async fn checkpoint(&mut self) -> sqlx::Result<()>;
}

/// What the writer is asked for.
pub(super) enum WriteRequest {
    /// Append a commit.
    Append(StoredCommit),
    /// Store a user's settings, as JSON.
    StoreSettings { user: String, content: String },
    /// Append an audit entry, and make the change that it tells of.
    StoreChange { change: AuditedChange, entry: AuditEntry },
    /// Find out which sessions the user has open, for [`Writer::open_sessions`].
    LoadOpenSessions(UserId),
    /// See whether writing works.
    Heartbeat,
    /// Leave everything in order, after what came before. It goes on if it is asked for more.
    Checkpoint,
}

struct QueuedRequest {
    request: WriteRequest,
    reply: oneshot::Sender<WriteResult>,
}

/// A runtime for one thread.
pub(super) fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// What was appended.
#[derive(Default)]
struct WriteCounters {
    commits: AtomicU64,
    groups: AtomicU64,
}

/// The way to the writer.
pub(super) struct Writer {
    counters: Arc<WriteCounters>,
    log_tails: LogTailCache,
    open: OpenSessionCache,
    queue: Option<mpsc::Sender<QueuedRequest>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Writer {
    /// Starts the writer on a thread of its own, which runs `runtime`.
    pub(super) fn start(runtime: Runtime, sink: impl WriterBackend) -> io::Result<Self> {
        let (queue, requests) = mpsc::channel(QUEUE_MAX);
        let counts = Arc::<WriteCounters>::default();
        let recent = LogTailCache::default();
        let open = OpenSessionCache::default();
        let mut work = WriterTask {
            sink,
            heads: HeadCache::default(),
            log_tails: recent.clone(),
            open: open.clone(),
            audit_head: None,
            is_failing: false,
            group_timer: GroupCommitTimer::default(),
            counts: counts.clone(),
            batch_seconds: histogram!("greenroom_journal_batch_seconds"),
            batch_commits: histogram!("greenroom_journal_batch_commits"),
        };
        let thread = thread::Builder::new()
            .name("journal-writer".to_owned())
            .spawn(move || runtime.block_on(work.run(requests)))?;
        Ok(Self {
            counters: counts,
            log_tails: recent,
            open,
            queue: Some(queue),
            thread: Some(thread),
        })
    }

    /// What was appended lately.
    pub(super) fn log_tails(&self) -> &LogTailCache {
        &self.log_tails
    }

    /// Which sessions users have open, as far as it was asked for.
    pub(super) fn open_sessions(&self) -> &OpenSessionCache {
        &self.open
    }

    /// What was appended since it started.
    pub(super) fn stats(&self) -> WriteStats {
        let WriteCounters { commits, groups } = &*self.counters;
        WriteStats { commits: commits.load(Relaxed), groups: groups.load(Relaxed) }
    }

    /// Waits for its turn, makes the request, and waits for the answer. A caller that goes away
    /// while waiting for the answer leaves the request behind; it is still performed.
    pub(super) async fn submit(
        &self,
        request: impl FnOnce() -> Result<WriteRequest, JournalError>,
    ) -> WriteResult {
        let stopped = || JournalError::Unavailable("the journal's writer has stopped".to_owned());
        let queue = self.queue.as_ref().ok_or_else(stopped)?;
        let place = queue.reserve().await.map_err(|_| stopped())?;
        let (answer, answered) = oneshot::channel();
        // Encoded only now, so that the queue's length bounds the memory of what waits.
        place.send(QueuedRequest { request: request()?, reply: answer });
        answered.await.unwrap_or_else(|_| Err(stopped()))
    }
}

impl Drop for Writer {
    /// Lets the writer finish what it has, so that the file is free afterwards.
    fn drop(&mut self) {
        self.queue = None;
        let Some(thread) = self.thread.take() else { return };
        if thread.join().is_err() {
            tracing::error!("the journal's writer had panicked");
        }
    }
}

struct WriterTask<S> {
    sink: S,
    heads: HeadCache,
    log_tails: LogTailCache,
    open: OpenSessionCache,
    /// The audit log's last row, once it is known. Sound because one process alone writes.
    audit_head: Option<ChainHead>,
    is_failing: bool,
    group_timer: GroupCommitTimer,
    counts: Arc<WriteCounters>,
    batch_seconds: Histogram,
    batch_commits: Histogram,
}

impl<S: WriterBackend> WriterTask<S> {
    async fn run(&mut self, mut requests: mpsc::Receiver<QueuedRequest>) {
        while let Some(first) = requests.recv().await {
            if first.request.session_id().is_some()
                && let Some(wait) = self.group_timer.delay(Instant::now())
            {
                tokio::time::sleep(wait).await;
            }
            let mut bytes = first.request.size();
            let mut group = vec![first];
            while group.len() < GROUP_REQUESTS_MAX && bytes < GROUP_BYTES_MAX {
                let Ok(next) = requests.try_recv() else { break };
                bytes += next.request.size();
                group.push(next);
            }
            let sessions = group.iter().filter_map(|waiting| waiting.request.session_id());
            self.group_timer.group_started(sessions, Instant::now());
            self.process_group(group).await;
        }
        if let Err(error) = self.sink.checkpoint().await {
            tracing::warn!(%error, "the database could not be closed cleanly");
        }
    }

    async fn process_group(&mut self, group: Vec<QueuedRequest>) {
        let mut appends = Vec::new();
        let mut checks = Vec::new();
        let mut settles = Vec::new();
        for QueuedRequest { request, reply: answer } in group {
            match request {
                WriteRequest::Append(commit) => appends.push((commit, answer)),
                WriteRequest::Heartbeat => checks.push(answer),
                WriteRequest::LoadOpenSessions(owner) => {
                    let read = self
                        .sink
                        .list_open_sessions(&owner, CACHED_SESSIONS_PER_USER_MAX + 1)
                        .await;
                    let learnt = self.report_result(read).await;
                    reply(answer, learnt.map(|sessions| self.open.insert_user(owner, sessions)));
                }
                WriteRequest::Checkpoint => settles.push(answer),
                WriteRequest::StoreSettings { user, content } => {
                    let stored = self.sink.store_settings(&user, &content).await;
                    reply(answer, self.report_result(stored).await);
                }
                WriteRequest::StoreChange { change, entry } => {
                    let recorded = self.store_change(&change, &entry).await;
                    let recorded = self.report_result(recorded).await;
                    let went = |done| if done { Ok(()) } else { Err(JournalError::Conflict) };
                    reply(answer, recorded.and_then(went));
                }
            }
        }
        if !appends.is_empty() {
            self.append_and_reply(appends).await;
        }
        if !checks.is_empty() {
            let checked = self.sink.write_heartbeat().await;
            let checked = self.report_result(checked).await;
            checks.into_iter().for_each(|answer| reply(answer, checked.clone()));
        }
        if !settles.is_empty() {
            let settled = self.sink.checkpoint().await;
            let settled = self.report_result(settled).await;
            settles.into_iter().for_each(|answer| reply(answer, settled.clone()));
        }
    }

    async fn append_and_reply(
        &mut self,
        appends: Vec<(StoredCommit, oneshot::Sender<WriteResult>)>,
    ) {
        let commits: Vec<&StoredCommit> = appends.iter().map(|(commit, _)| commit).collect();
        let mut appended = self.append(&commits, HeadSource::Cache).await;
        if appended.as_ref().is_err_and(is_seq_conflict) {
            // A place in a log was taken that was thought free: judge all again by what is stored.
            self.reset().await;
            appended = self.append(&commits, HeadSource::Database).await;
        }
        match self.report_result(appended).await {
            Ok(answers) => {
                for ((_, answer), with) in appends.into_iter().zip(answers) {
                    reply(answer, with);
                }
            }
            Err(error) => {
                appends.into_iter().for_each(|(_, answer)| reply(answer, Err(error.clone())));
            }
        }
    }

    /// Appends all commits that follow their session's head and whose claims hold; says for each
    /// what became of it.
    async fn append(
        &mut self,
        commits: &[&StoredCommit],
        trust: HeadSource,
    ) -> sqlx::Result<Vec<WriteResult>> {
        self.heads.load_missing(&mut self.sink, commits, trust).await?;
        let have_room = spending_check::validate_preconditions(&mut self.sink, commits).await?;
        let funded: Vec<&StoredCommit> = commits
            .iter()
            .zip(&have_room)
            .filter_map(|(commit, has_room)| has_room.then_some(*commit))
            .collect();
        let (verdicts, written) = self.heads.validate_commits(&funded);
        let accepted: Vec<&StoredCommit> = funded
            .iter()
            .zip(&verdicts)
            .filter_map(|(commit, follows)| follows.then_some(*commit))
            .collect();
        if !accepted.is_empty() {
            let entries = || accepted.iter().flat_map(|commit| &commit.audit);
            let mut sealed = Vec::new();
            if entries().next().is_some() {
                let mut head = self.load_audit_head().await?;
                sealed = entries().map(|entry| head.append(entry)).collect();
            }
            let began = Instant::now();
            self.sink.store_commits(&accepted, &sealed).await?;
            self.batch_seconds.record(began.elapsed().as_secs_f64());
            self.batch_commits.record(accepted.len() as f64);
            self.heads.update(written);
            self.log_tails.insert_commits(&accepted);
            self.open.apply_commits(&accepted);
            self.counts.commits.fetch_add(accepted.len() as u64, Relaxed);
            self.counts.groups.fetch_add(1, Relaxed);
            self.audit_head = sealed.last().map(AuditRow::head).or(self.audit_head);
        }
        let mut follow = verdicts.into_iter();
        let answer = |has_room| match has_room {
            false => Err(JournalError::BudgetExceeded),
            true if follow.next().unwrap_or(false) => Ok(()),
            true => Err(JournalError::Conflict),
        };
        Ok(have_room.into_iter().map(answer).collect())
    }

    /// Whether it was done: a session that has moved on is not purged.
    async fn store_change(
        &mut self,
        change: &AuditedChange,
        entry: &AuditEntry,
    ) -> sqlx::Result<bool> {
        if let AuditedChange::Purge(session_id, expected) = *change {
            let head = self.sink.load_heads(&[session_id]).await?;
            let is_expected = |(_, head): &(SessionId, Seq)| *head == expected;
            if expected == Seq(0) || !head.first().is_some_and(is_expected) {
                return Ok(false);
            }
            // It has none once it is gone; and if that fails, all are forgotten.
            self.heads.clear();
        }
        let mut head = self.load_audit_head().await?;
        let row = head.append(entry);
        self.sink.store_change(change, &row).await?;
        if let AuditedChange::Purge(session_id, _) = *change {
            self.log_tails.remove(session_id);
            // Whose it was is not known here; it is seldom enough.
            self.open.clear();
        }
        self.audit_head = Some(head);
        Ok(true)
    }

    /// The audit log's last row. Where its note is gone, the rows go on from nothing, and a check
    /// of the log says so; refusing every write for it would help nobody.
    async fn load_audit_head(&mut self) -> sqlx::Result<ChainHead> {
        match self.audit_head {
            Some(head) => Ok(head),
            None => {
                let head = self.sink.load_audit_head().await?.unwrap_or(ChainHead::empty());
                Ok(*self.audit_head.insert(head))
            }
        }
    }

    /// What callers are told of a result. Tells the operator when writing stops working and when
    /// it works again, once each.
    async fn report_result<T>(&mut self, result: sqlx::Result<T>) -> Result<T, JournalError> {
        match &result {
            Ok(_) if self.is_failing => tracing::info!("the database can be written again"),
            Ok(_) => {}
            Err(error) => {
                if !self.is_failing {
                    tracing::error!(%error, "the database can't be written");
                }
                self.reset().await;
            }
        }
        self.is_failing = result.is_err();
        result.map_err(|error| journal_error(&error))
    }

    /// Forgets everything about the database: whatever a failed write left, the next one finds a
    /// fresh connection without a transaction, and reads the heads that count.
    async fn reset(&mut self) {
        self.heads.clear();
        self.log_tails.clear();
        self.open.clear();
        self.audit_head = None;
        self.sink.disconnect().await;
    }
}

impl WriteRequest {
    /// The session that it commits to.
    fn session_id(&self) -> Option<SessionId> {
        match self {
            Self::Append(commit) => Some(commit.session_id),
            Self::StoreSettings { .. }
            | Self::StoreChange { .. }
            | Self::LoadOpenSessions(_)
            | Self::Heartbeat
            | Self::Checkpoint => None,
        }
    }

    /// About how many bytes it writes.
    fn size(&self) -> usize {
        match self {
            Self::Append(commit) => commit.size(),
            Self::StoreSettings { content, .. } => content.len(),
            Self::StoreChange { .. }
            | Self::LoadOpenSessions(_)
            | Self::Heartbeat
            | Self::Checkpoint => 0,
        }
    }
}

/// Whether a commit's place in its log was taken.
fn is_seq_conflict(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.is_unique_violation())
}

fn reply(answer: oneshot::Sender<WriteResult>, with: WriteResult) {
    // Who asked may have gone away; the write stands.
    drop(answer.send(with));
}
