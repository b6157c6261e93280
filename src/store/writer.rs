//! The one writer: takes what waits, writes it as one group, and answers each (D4). Must not know
//! SQL, which is each database's [`Sink`].
//!
//! It has a thread and a small runtime of its own, so that commits go on however busy the actors'
//! threads are, and so that dropping the journal can wait for the last group.

use super::{
    Written,
    error::journal_error,
    heads::{Heads, Trust},
    open_sessions::{OF_ONE_USER_MAX, OpenSessions},
    pace::Pace,
    recent::Recent,
    records::Change,
    spending,
    stored::Encoded,
};
use crate::audit::{Entry, Head, Sealed};
use greenroom_actors::ports::JournalError;
use greenroom_core::{
    budget::Claim,
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

type Answer = Result<(), JournalError>;

/// What the writer needs of a database: the one connection that writes. It connects when it is
/// asked for something and has none; whatever errs may leave a transaction open, and the writer then
/// [`reset`](Self::reset)s it.
pub(super) trait Sink: Send + 'static {
    /// The last event of each of these sessions; 0 for those that do not exist.
    async fn heads(&mut self, sessions: &[SessionId]) -> sqlx::Result<Vec<(SessionId, Seq)>>;

    /// What is stored of what the claim limits.
    async fn claimed(&mut self, user: &UserId, claim: &Claim) -> sqlx::Result<f64>;

    /// The user's open sessions, at most `limit` of them.
    async fn open_sessions(
        &mut self,
        owner: &UserId,
        limit: usize,
    ) -> sqlx::Result<Vec<(SessionId, SessionStatus)>>;

    /// The noted end of the audit log.
    async fn audit_head(&mut self) -> sqlx::Result<Option<Head>>;

    /// Stores all of these commits, with the rows of the audit log that they make, or, when it
    /// errs, none.
    async fn store(&mut self, commits: &[&Encoded], sealed: &[Sealed]) -> sqlx::Result<()>;

    /// Makes the change and writes the row of the audit log, both or, when it errs, neither.
    async fn record(&mut self, change: &Change, row: &Sealed) -> sqlx::Result<()>;

    /// Stores a user's settings.
    async fn put_settings(&mut self, user: &str, content: &str) -> sqlx::Result<()>;

    /// Whether writing works, by writing.
    async fn beat(&mut self) -> sqlx::Result<()>;

    /// Gives the connection up.
    async fn reset(&mut self);

    /// Gives the connection up, and leaves everything in order.
    async fn settle(&mut self) -> sqlx::Result<()>;
}

/// What the writer is asked for.
pub(super) enum Request {
    /// Append a commit.
    Append(Encoded),
    /// Store a user's settings, as JSON.
    PutSettings { user: String, content: String },
    /// Append an audit entry, and make the change that it tells of.
    Record { change: Change, entry: Entry },
    /// Find out which sessions the user has open, for [`Writer::open_sessions`].
    LearnOpen(UserId),
    /// See whether writing works.
    Check,
    /// Leave everything in order, after what came before. It goes on if it is asked for more.
    Settle,
}

struct Waiting {
    request: Request,
    answer: oneshot::Sender<Answer>,
}

/// A runtime for one thread.
pub(super) fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// What was appended.
#[derive(Default)]
struct Counts {
    commits: AtomicU64,
    groups: AtomicU64,
}

/// The way to the writer.
pub(super) struct Writer {
    counts: Arc<Counts>,
    recent: Recent,
    open: OpenSessions,
    queue: Option<mpsc::Sender<Waiting>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Writer {
    /// Starts the writer on a thread of its own, which runs `runtime`.
    pub(super) fn start(runtime: Runtime, sink: impl Sink) -> io::Result<Self> {
        let (queue, requests) = mpsc::channel(QUEUE_MAX);
        let counts = Arc::<Counts>::default();
        let recent = Recent::default();
        let open = OpenSessions::default();
        let mut work = Work {
            sink,
            heads: Heads::default(),
            recent: recent.clone(),
            open: open.clone(),
            audit_head: None,
            is_failing: false,
            pace: Pace::default(),
            counts: counts.clone(),
            batch_seconds: histogram!("greenroom_journal_batch_seconds"),
            batch_commits: histogram!("greenroom_journal_batch_commits"),
        };
        let thread = thread::Builder::new()
            .name("journal-writer".to_owned())
            .spawn(move || runtime.block_on(work.run(requests)))?;
        Ok(Self { counts, recent, open, queue: Some(queue), thread: Some(thread) })
    }

    /// What was appended lately.
    pub(super) fn recent(&self) -> &Recent {
        &self.recent
    }

    /// Which sessions users have open, as far as it was asked for.
    pub(super) fn open_sessions(&self) -> &OpenSessions {
        &self.open
    }

    /// What was appended since it started.
    pub(super) fn written(&self) -> Written {
        let Counts { commits, groups } = &*self.counts;
        Written { commits: commits.load(Relaxed), groups: groups.load(Relaxed) }
    }

    /// Waits for its turn, makes the request, and waits for the answer. A caller that goes away
    /// while waiting for the answer leaves the request behind; it is still performed.
    pub(super) async fn ask(
        &self,
        request: impl FnOnce() -> Result<Request, JournalError>,
    ) -> Answer {
        let stopped = || JournalError::Unavailable("the journal's writer has stopped".to_owned());
        let queue = self.queue.as_ref().ok_or_else(stopped)?;
        let place = queue.reserve().await.map_err(|_| stopped())?;
        let (answer, answered) = oneshot::channel();
        // Encoded only now, so that the queue's length bounds the memory of what waits.
        place.send(Waiting { request: request()?, answer });
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

struct Work<S> {
    sink: S,
    heads: Heads,
    recent: Recent,
    open: OpenSessions,
    /// The audit log's last row, once it is known. Sound because one process alone writes.
    audit_head: Option<Head>,
    is_failing: bool,
    pace: Pace,
    counts: Arc<Counts>,
    batch_seconds: Histogram,
    batch_commits: Histogram,
}

impl<S: Sink> Work<S> {
    async fn run(&mut self, mut requests: mpsc::Receiver<Waiting>) {
        while let Some(first) = requests.recv().await {
            if first.request.session().is_some()
                && let Some(wait) = self.pace.wait(Instant::now())
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
            let sessions = group.iter().filter_map(|waiting| waiting.request.session());
            self.pace.begin(sessions, Instant::now());
            self.perform(group).await;
        }
        if let Err(error) = self.sink.settle().await {
            tracing::warn!(%error, "the database could not be closed cleanly");
        }
    }

    async fn perform(&mut self, group: Vec<Waiting>) {
        let mut appends = Vec::new();
        let mut checks = Vec::new();
        let mut settles = Vec::new();
        for Waiting { request, answer } in group {
            match request {
                Request::Append(commit) => appends.push((commit, answer)),
                Request::Check => checks.push(answer),
                Request::LearnOpen(owner) => {
                    let read = self.sink.open_sessions(&owner, OF_ONE_USER_MAX + 1).await;
                    let learnt = self.noted(read).await;
                    reply(answer, learnt.map(|sessions| self.open.learn(owner, sessions)));
                }
                Request::Settle => settles.push(answer),
                Request::PutSettings { user, content } => {
                    let stored = self.sink.put_settings(&user, &content).await;
                    reply(answer, self.noted(stored).await);
                }
                Request::Record { change, entry } => {
                    let recorded = self.record(&change, &entry).await;
                    let recorded = self.noted(recorded).await;
                    let went = |done| if done { Ok(()) } else { Err(JournalError::Conflict) };
                    reply(answer, recorded.and_then(went));
                }
            }
        }
        if !appends.is_empty() {
            self.append_all(appends).await;
        }
        if !checks.is_empty() {
            let checked = self.sink.beat().await;
            let checked = self.noted(checked).await;
            checks.into_iter().for_each(|answer| reply(answer, checked.clone()));
        }
        if !settles.is_empty() {
            let settled = self.sink.settle().await;
            let settled = self.noted(settled).await;
            settles.into_iter().for_each(|answer| reply(answer, settled.clone()));
        }
    }

    async fn append_all(&mut self, appends: Vec<(Encoded, oneshot::Sender<Answer>)>) {
        let commits: Vec<&Encoded> = appends.iter().map(|(commit, _)| commit).collect();
        let mut appended = self.append(&commits, Trust::Remembered).await;
        if appended.as_ref().is_err_and(is_taken) {
            // A place in a log was taken that was thought free: judge all again by what is stored.
            self.start_over().await;
            appended = self.append(&commits, Trust::Stored).await;
        }
        match self.noted(appended).await {
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
    async fn append(&mut self, commits: &[&Encoded], trust: Trust) -> sqlx::Result<Vec<Answer>> {
        self.heads.learn(&mut self.sink, commits, trust).await?;
        let have_room = spending::have_room(&mut self.sink, commits).await?;
        let funded: Vec<&Encoded> = commits
            .iter()
            .zip(&have_room)
            .filter_map(|(commit, has_room)| has_room.then_some(*commit))
            .collect();
        let (verdicts, written) = self.heads.judge(&funded);
        let accepted: Vec<&Encoded> = funded
            .iter()
            .zip(&verdicts)
            .filter_map(|(commit, follows)| follows.then_some(*commit))
            .collect();
        if !accepted.is_empty() {
            let entries = || accepted.iter().flat_map(|commit| &commit.audit);
            let mut sealed = Vec::new();
            if entries().next().is_some() {
                let mut head = self.known_audit_head().await?;
                sealed = entries().map(|entry| head.seal(entry)).collect();
            }
            let began = Instant::now();
            self.sink.store(&accepted, &sealed).await?;
            self.batch_seconds.record(began.elapsed().as_secs_f64());
            self.batch_commits.record(accepted.len() as f64);
            self.heads.remember(written);
            self.recent.note(&accepted);
            self.open.note(&accepted);
            self.counts.commits.fetch_add(accepted.len() as u64, Relaxed);
            self.counts.groups.fetch_add(1, Relaxed);
            self.audit_head = sealed.last().map(Sealed::head).or(self.audit_head);
        }
        let mut follow = verdicts.into_iter();
        let answer = |has_room| match has_room {
            false => Err(JournalError::OverBudget),
            true if follow.next().unwrap_or(false) => Ok(()),
            true => Err(JournalError::Conflict),
        };
        Ok(have_room.into_iter().map(answer).collect())
    }

    /// Whether it was done: a session that has moved on is not purged.
    async fn record(&mut self, change: &Change, entry: &Entry) -> sqlx::Result<bool> {
        if let Change::Purge(session_id, expected) = *change {
            let head = self.sink.heads(&[session_id]).await?;
            let is_expected = |(_, head): &(SessionId, Seq)| *head == expected;
            if expected == Seq(0) || !head.first().is_some_and(is_expected) {
                return Ok(false);
            }
            // It has none once it is gone; and if that fails, all are forgotten.
            self.heads.forget();
        }
        let mut head = self.known_audit_head().await?;
        let row = head.seal(entry);
        self.sink.record(change, &row).await?;
        if let Change::Purge(session_id, _) = *change {
            self.recent.remove(session_id);
            // Whose it was is not known here; it is seldom enough.
            self.open.forget();
        }
        self.audit_head = Some(head);
        Ok(true)
    }

    /// The audit log's last row. Where its note is gone, the rows go on from nothing, and a check
    /// of the log says so; refusing every write for it would help nobody.
    async fn known_audit_head(&mut self) -> sqlx::Result<Head> {
        match self.audit_head {
            Some(head) => Ok(head),
            None => {
                let head = self.sink.audit_head().await?.unwrap_or(Head::empty());
                Ok(*self.audit_head.insert(head))
            }
        }
    }

    /// What callers are told of a result. Tells the operator when writing stops working and when
    /// it works again, once each.
    async fn noted<T>(&mut self, result: sqlx::Result<T>) -> Result<T, JournalError> {
        match &result {
            Ok(_) if self.is_failing => tracing::info!("the database can be written again"),
            Ok(_) => {}
            Err(error) => {
                if !self.is_failing {
                    tracing::error!(%error, "the database can't be written");
                }
                self.start_over().await;
            }
        }
        self.is_failing = result.is_err();
        result.map_err(|error| journal_error(&error))
    }

    /// Forgets everything about the database: whatever a failed write left, the next one finds a
    /// fresh connection without a transaction, and reads the heads that count.
    async fn start_over(&mut self) {
        self.heads.forget();
        self.recent.forget();
        self.open.forget();
        self.audit_head = None;
        self.sink.reset().await;
    }
}

impl Request {
    /// The session that it commits to.
    fn session(&self) -> Option<SessionId> {
        match self {
            Self::Append(commit) => Some(commit.session_id),
            Self::PutSettings { .. }
            | Self::Record { .. }
            | Self::LearnOpen(_)
            | Self::Check
            | Self::Settle => None,
        }
    }

    /// About how many bytes it writes.
    fn size(&self) -> usize {
        match self {
            Self::Append(commit) => commit.size(),
            Self::PutSettings { content, .. } => content.len(),
            Self::Record { .. } | Self::LearnOpen(_) | Self::Check | Self::Settle => 0,
        }
    }
}

/// Whether a commit's place in its log was taken.
fn is_taken(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.is_unique_violation())
}

fn reply(answer: oneshot::Sender<Answer>, with: Answer) {
    // Who asked may have gone away; the write stands.
    drop(answer.send(with));
}
