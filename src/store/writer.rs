//! The only writer of the database: collects the waiting requests, writes them as one group, and
//! answers each request (D4). Must not know SQL, which is in the [`WriterBackend`] of each
//! database.
//!
//! The writer has its own thread and a small runtime, so that commits do not depend on the load of
//! the actors' threads, and so that dropping the journal can wait for the last group.

use super::{
    WriteStats,
    admin_records::AuditedChange,
    error::journal_error,
    group_commit_delay::GroupCommitDelay,
    head_cache::{HeadCache, HeadSource},
    log_tail_cache::LogTailCache,
    open_session_cache::{CACHED_SESSIONS_PER_USER_MAX, OpenSessionCache},
    queries::to_sql_limit,
    spending_check,
    stored_commit::StoredCommit,
};
use crate::audit::{AuditEntry, AuditRow, ChainHead};
use greenroom_actors::{
    limits::EXPIRED_REQUESTS_DELETED_MAX,
    ports::{JournalError, RequestRow},
};
use greenroom_core::{
    Timestamp,
    amount::Amount,
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

/// Maximum requests in the queue. Beyond it, callers wait before their commit is encoded.
const QUEUE_MAX: usize = 256;
/// Maximum requests in a group.
const GROUP_REQUESTS_MAX: usize = 256;
/// Number of bytes after which a group accepts no more requests.
const GROUP_BYTES_MAX: usize = 4 * 1024 * 1024;

type WriteResult = Result<(), JournalError>;

/// The database operations of the writer, on the only connection that writes. The backend connects
/// when it is called without a connection. An operation that fails may leave a transaction open;
/// the writer then calls [`disconnect`](Self::disconnect).
pub(super) trait WriterBackend: Send + 'static {
    /// Returns the last event of each session; 0 for sessions that do not exist.
    async fn load_heads(&mut self, sessions: &[SessionId]) -> sqlx::Result<Vec<(SessionId, Seq)>>;

    /// Returns the stored spending that `precondition` limits.
    async fn load_counted_spending(
        &mut self,
        user: &UserId,
        precondition: &SpendingPrecondition,
    ) -> sqlx::Result<Amount>;

    /// Returns at most `limit` open sessions of the user.
    async fn list_open_sessions(
        &mut self,
        owner: &UserId,
        limit: usize,
    ) -> sqlx::Result<Vec<(SessionId, SessionStatus)>>;

    /// Returns the stored head of the audit log.
    async fn load_audit_head(&mut self) -> sqlx::Result<Option<ChainHead>>;

    /// Returns the version of the stored ceilings.
    async fn load_ceilings_version(&mut self) -> sqlx::Result<u64>;

    /// Stores all commits and their rows of the audit log atomically.
    async fn store_commits(
        &mut self,
        commits: &[&StoredCommit],
        audit_rows: &[AuditRow],
    ) -> sqlx::Result<()>;

    /// Makes the change and stores the row of the audit log atomically.
    async fn store_change(&mut self, change: &AuditedChange, row: &AuditRow) -> sqlx::Result<()>;

    /// Stores a user's settings.
    async fn store_settings(&mut self, user: &str, content: &str) -> sqlx::Result<()>;

    /// Deletes at most `deleted_max` requests that were stored before `valid_since`, and stores this
    /// one unless the user has a valid one with its id.
    async fn store_request(
        &mut self,
        row: &RequestRow,
        valid_since: Timestamp,
        deleted_max: i64,
    ) -> sqlx::Result<()>;

    /// Stores owners of short tool names, as pairs of name and server, in one transaction.
    async fn store_tool_names(&mut self, names: &[(String, String)]) -> sqlx::Result<()>;

    /// Checks with a write that the database is writable.
    async fn write_heartbeat(&mut self) -> sqlx::Result<()>;

    /// Drops the connection.
    async fn disconnect(&mut self);

    /// Writes everything to the database file where that applies, and closes the connection.
    async fn checkpoint(&mut self) -> sqlx::Result<()>;
}

/// A request to the writer.
pub(super) enum WriteRequest {
    /// Append a commit.
    Append(StoredCommit),
    /// Store a user's settings, as JSON.
    StoreSettings { user: String, content: String },
    /// Store a request of a chat client.
    StoreRequest { row: RequestRow, valid_since: Timestamp },
    /// Store owners of short tool names, as pairs of name and server.
    StoreToolNames(Vec<(String, String)>),
    /// Append an audit entry and make the change that it records.
    StoreChange { change: AuditedChange, entry: AuditEntry },
    /// Load the user's open sessions into [`Writer::open_sessions`].
    LoadOpenSessions(UserId),
    /// Check that writing works.
    Heartbeat,
    /// Checkpoint the database after the preceding requests. The writer stays usable.
    Checkpoint,
}

struct QueuedRequest {
    request: WriteRequest,
    reply: oneshot::Sender<WriteResult>,
}

/// Creates a single-threaded runtime.
pub(super) fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Number of commits and groups written.
#[derive(Default)]
struct WriteCounters {
    commits: AtomicU64,
    groups: AtomicU64,
}

/// The handle of the writer.
pub(super) struct Writer {
    counters: Arc<WriteCounters>,
    log_tails: LogTailCache,
    open_sessions: OpenSessionCache,
    queue: Option<mpsc::Sender<QueuedRequest>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Writer {
    /// Starts the writer on its own thread, which runs `runtime`.
    pub(super) fn start(runtime: Runtime, backend: impl WriterBackend) -> io::Result<Self> {
        let (queue, requests) = mpsc::channel(QUEUE_MAX);
        let counters = Arc::<WriteCounters>::default();
        let log_tails = LogTailCache::default();
        let open_sessions = OpenSessionCache::default();
        let mut work = WriterTask {
            backend,
            heads: HeadCache::default(),
            log_tails: log_tails.clone(),
            open_sessions: open_sessions.clone(),
            audit_head: None,
            is_failing: false,
            group_timer: GroupCommitDelay::default(),
            counters: counters.clone(),
            batch_seconds: histogram!("greenroom_journal_batch_seconds"),
            batch_commits: histogram!("greenroom_journal_batch_commits"),
        };
        let thread = thread::Builder::new()
            .name("journal-writer".to_owned())
            .spawn(move || runtime.block_on(work.run(requests)))?;
        Ok(Self { counters, log_tails, open_sessions, queue: Some(queue), thread: Some(thread) })
    }

    /// Returns the cache of the newest events and rows.
    pub(super) fn log_tails(&self) -> &LogTailCache {
        &self.log_tails
    }

    /// Returns the cache of the users' open sessions.
    pub(super) fn open_sessions(&self) -> &OpenSessionCache {
        &self.open_sessions
    }

    /// Returns the number of writes since the writer was started.
    pub(super) fn stats(&self) -> WriteStats {
        let WriteCounters { commits, groups } = &*self.counters;
        WriteStats { commits: commits.load(Relaxed), groups: groups.load(Relaxed) }
    }

    /// Waits for room in the queue, builds the request, and waits for its result. A request is
    /// still performed if its caller is dropped while it waits for the result.
    pub(super) async fn submit(
        &self,
        request: impl FnOnce() -> Result<WriteRequest, JournalError>,
    ) -> WriteResult {
        let stopped = || JournalError::Unavailable("the journal's writer has stopped".to_owned());
        let queue = self.queue.as_ref().ok_or_else(stopped)?;
        let permit = queue.reserve().await.map_err(|_| stopped())?;
        let (reply, response) = oneshot::channel();
        // Encoded only now, so that the length of the queue bounds the memory of waiting requests.
        permit.send(QueuedRequest { request: request()?, reply });
        response.await.unwrap_or_else(|_| Err(stopped()))
    }
}

impl Drop for Writer {
    /// Waits until the writer has processed its queue, so that the file is free afterwards.
    fn drop(&mut self) {
        self.queue = None;
        let Some(thread) = self.thread.take() else { return };
        if thread.join().is_err() {
            tracing::error!("the journal's writer panicked");
        }
    }
}

struct WriterTask<S> {
    backend: S,
    heads: HeadCache,
    log_tails: LogTailCache,
    open_sessions: OpenSessionCache,
    /// The last row of the audit log, once loaded. Relies on this process being the only writer.
    audit_head: Option<ChainHead>,
    is_failing: bool,
    group_timer: GroupCommitDelay,
    counters: Arc<WriteCounters>,
    batch_seconds: Histogram,
    batch_commits: Histogram,
}

impl<S: WriterBackend> WriterTask<S> {
    async fn run(&mut self, mut requests: mpsc::Receiver<QueuedRequest>) {
        while let Some(first) = requests.recv().await {
            if first.request.session_id().is_some()
                && let Some(delay) = self.group_timer.delay(Instant::now())
            {
                tokio::time::sleep(delay).await;
            }
            let mut bytes = first.request.size();
            let mut group = vec![first];
            while group.len() < GROUP_REQUESTS_MAX && bytes < GROUP_BYTES_MAX {
                let Ok(next) = requests.try_recv() else { break };
                bytes += next.request.size();
                group.push(next);
            }
            let sessions = group.iter().filter_map(|queued| queued.request.session_id());
            self.group_timer.group_started(sessions, Instant::now());
            self.process_group(group).await;
        }
        if let Err(error) = self.backend.checkpoint().await {
            tracing::warn!(%error, "failed to close the database cleanly");
        }
    }

    async fn process_group(&mut self, group: Vec<QueuedRequest>) {
        let mut appends = Vec::new();
        let mut heartbeats = Vec::new();
        let mut checkpoints = Vec::new();
        for QueuedRequest { request, reply } in group {
            match request {
                WriteRequest::Append(commit) => appends.push((commit, reply)),
                WriteRequest::Heartbeat => heartbeats.push(reply),
                WriteRequest::LoadOpenSessions(owner) => {
                    let loaded = self
                        .backend
                        .list_open_sessions(&owner, CACHED_SESSIONS_PER_USER_MAX + 1)
                        .await;
                    let sessions = self.report_result(loaded).await;
                    send_reply(
                        reply,
                        sessions.map(|sessions| self.open_sessions.insert_user(owner, sessions)),
                    );
                }
                WriteRequest::Checkpoint => checkpoints.push(reply),
                WriteRequest::StoreSettings { user, content } => {
                    let result = self.backend.store_settings(&user, &content).await;
                    send_reply(reply, self.report_result(result).await);
                }
                WriteRequest::StoreRequest { row, valid_since } => {
                    let deleted_max = to_sql_limit(EXPIRED_REQUESTS_DELETED_MAX);
                    let result = self.backend.store_request(&row, valid_since, deleted_max).await;
                    send_reply(reply, self.report_result(result).await);
                }
                WriteRequest::StoreToolNames(names) => {
                    let result = self.backend.store_tool_names(&names).await;
                    send_reply(reply, self.report_result(result).await);
                }
                WriteRequest::StoreChange { change, entry } => {
                    let result = self.store_change(&change, &entry).await;
                    let result = self.report_result(result).await;
                    let to_result = |done| if done { Ok(()) } else { Err(JournalError::Conflict) };
                    send_reply(reply, result.and_then(to_result));
                }
            }
        }
        if !appends.is_empty() {
            self.append_and_reply(appends).await;
        }
        if !heartbeats.is_empty() {
            let result = self.backend.write_heartbeat().await;
            let result = self.report_result(result).await;
            heartbeats.into_iter().for_each(|reply| send_reply(reply, result.clone()));
        }
        if !checkpoints.is_empty() {
            let result = self.backend.checkpoint().await;
            let result = self.report_result(result).await;
            checkpoints.into_iter().for_each(|reply| send_reply(reply, result.clone()));
        }
    }

    async fn append_and_reply(
        &mut self,
        appends: Vec<(StoredCommit, oneshot::Sender<WriteResult>)>,
    ) {
        let commits: Vec<&StoredCommit> = appends.iter().map(|(commit, _)| commit).collect();
        let mut result = self.append(&commits, HeadSource::Cache).await;
        if result.as_ref().is_err_and(is_seq_conflict) {
            // The cached heads were wrong: validate all commits again with the stored heads.
            self.reset().await;
            result = self.append(&commits, HeadSource::Database).await;
        }
        match self.report_result(result).await {
            Ok(answers) => {
                for ((_, reply), result) in appends.into_iter().zip(answers) {
                    send_reply(reply, result);
                }
            }
            Err(error) => {
                appends.into_iter().for_each(|(_, reply)| send_reply(reply, Err(error.clone())));
            }
        }
    }

    /// Appends all commits that follow their session's head and whose preconditions are met.
    /// Returns the result of each commit.
    async fn append(
        &mut self,
        commits: &[&StoredCommit],
        head_source: HeadSource,
    ) -> sqlx::Result<Vec<WriteResult>> {
        self.heads.load_missing(&mut self.backend, commits, head_source).await?;
        let met_preconditions =
            spending_check::validate_preconditions(&mut self.backend, commits).await?;
        let affordable: Vec<&StoredCommit> = commits
            .iter()
            .zip(&met_preconditions)
            .filter_map(|(commit, is_met)| is_met.then_some(*commit))
            .collect();
        let (verdicts, written) = self.heads.validate_commits(&affordable);
        let accepted: Vec<&StoredCommit> = affordable
            .iter()
            .zip(&verdicts)
            .filter_map(|(commit, follows)| follows.then_some(*commit))
            .collect();
        if !accepted.is_empty() {
            let entries = || accepted.iter().flat_map(|commit| &commit.audit);
            let mut audit_rows = Vec::new();
            if entries().next().is_some() {
                let mut head = self.load_audit_head().await?;
                audit_rows = entries().map(|entry| head.append(entry)).collect();
            }
            let started_at = Instant::now();
            self.backend.store_commits(&accepted, &audit_rows).await?;
            self.batch_seconds.record(started_at.elapsed().as_secs_f64());
            self.batch_commits.record(accepted.len() as f64);
            self.heads.update(written);
            self.log_tails.insert_commits(&accepted);
            self.open_sessions.apply_commits(&accepted);
            self.counters.commits.fetch_add(accepted.len() as u64, Relaxed);
            self.counters.groups.fetch_add(1, Relaxed);
            self.audit_head = audit_rows.last().map(AuditRow::head).or(self.audit_head);
        }
        let mut verdicts = verdicts.into_iter();
        let to_result = |is_met| match is_met {
            false => Err(JournalError::BudgetExceeded),
            true if verdicts.next().unwrap_or(false) => Ok(()),
            true => Err(JournalError::Conflict),
        };
        Ok(met_preconditions.into_iter().map(to_result).collect())
    }

    /// Makes an audited change. Returns false if it is a purge of a session that has newer events, or
    /// replaces ceilings of another version.
    async fn store_change(
        &mut self,
        change: &AuditedChange,
        entry: &AuditEntry,
    ) -> sqlx::Result<bool> {
        if let AuditedChange::Purge(session_id, expected) = *change {
            let head = self.backend.load_heads(&[session_id]).await?;
            let is_expected = |(_, head): &(SessionId, Seq)| *head == expected;
            if expected == Seq(0) || !head.first().is_some_and(is_expected) {
                return Ok(false);
            }
            // A purged session has no head. If the purge fails, the heads are loaded again.
            self.heads.clear();
        }
        if let AuditedChange::SetCeilings { version, .. } = change
            && self.backend.load_ceilings_version().await?.checked_add(1) != Some(*version)
        {
            return Ok(false);
        }
        let mut head = self.load_audit_head().await?;
        let row = head.append(entry);
        self.backend.store_change(change, &row).await?;
        if let AuditedChange::Purge(session_id, _) = *change {
            self.log_tails.remove(session_id);
            // The session's owner is not known here. Purges are rare, so the whole cache is
            // cleared.
            self.open_sessions.clear();
        }
        self.audit_head = Some(head);
        Ok(true)
    }

    /// Returns the last row of the audit log. If the stored head is missing, the chain continues
    /// from an empty head, and a verification of the log reports it. Rejecting every write instead
    /// would not help.
    async fn load_audit_head(&mut self) -> sqlx::Result<ChainHead> {
        match self.audit_head {
            Some(head) => Ok(head),
            None => {
                let head = self.backend.load_audit_head().await?.unwrap_or(ChainHead::empty());
                Ok(*self.audit_head.insert(head))
            }
        }
    }

    /// Converts a result for the callers. Logs once when writing starts to fail, and once when it
    /// works again. Resets the writer after a failure.
    async fn report_result<T>(&mut self, result: sqlx::Result<T>) -> Result<T, JournalError> {
        match &result {
            Ok(_) if self.is_failing => tracing::info!("writing to the database works again"),
            Ok(_) => {}
            Err(error) => {
                if !self.is_failing {
                    tracing::error!(%error, "failed to write to the database");
                }
                self.reset().await;
            }
        }
        self.is_failing = result.is_err();
        result.map_err(|error| journal_error(&error))
    }

    /// Clears all cached state and drops the connection. After a failed write, the next one uses a
    /// new connection without a transaction, and loads the stored heads.
    async fn reset(&mut self) {
        self.heads.clear();
        self.log_tails.clear();
        self.open_sessions.clear();
        self.audit_head = None;
        self.backend.disconnect().await;
    }
}

impl WriteRequest {
    /// Returns the session that the request commits to.
    fn session_id(&self) -> Option<SessionId> {
        match self {
            Self::Append(commit) => Some(commit.session_id),
            Self::StoreSettings { .. }
            | Self::StoreRequest { .. }
            | Self::StoreToolNames(_)
            | Self::StoreChange { .. }
            | Self::LoadOpenSessions(_)
            | Self::Heartbeat
            | Self::Checkpoint => None,
        }
    }

    /// Returns the approximate number of bytes to write.
    fn size(&self) -> usize {
        match self {
            Self::Append(commit) => commit.size(),
            Self::StoreSettings { content, .. } => content.len(),
            Self::StoreToolNames(names) => {
                names.iter().map(|(name, server)| name.len() + server.len()).sum()
            }
            Self::StoreRequest { .. }
            | Self::StoreChange { .. }
            | Self::LoadOpenSessions(_)
            | Self::Heartbeat
            | Self::Checkpoint => 0,
        }
    }
}

/// True if another commit with the same number exists in the session's log.
fn is_seq_conflict(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.is_unique_violation())
}

fn send_reply(reply: oneshot::Sender<WriteResult>, result: WriteResult) {
    // The caller may have been dropped; the write is still done.
    drop(reply.send(result));
}
