//! The one writer: takes what waits, writes it as one group, and answers each (D4). Must not know
//! SQL, which is [`super::batch`]'s.
//!
//! It has a thread and a small runtime of its own, so that commits go on however busy the actors'
//! threads are, and so that dropping the journal can wait for the last group.

use super::{
    batch::{self, Encoded},
    heads::{Heads, Trust},
    records::{self, Change},
    spending,
};
use crate::{
    audit::{Entry, Head, Sealed},
    store::error::journal_error,
};
use greenroom_actors::ports::JournalError;
use sqlx::{ConnectOptions, Connection, SqliteConnection, sqlite::SqliteConnectOptions};
use std::{io, thread};
use tokio::sync::{mpsc, oneshot};

/// Requests that wait for the writer; beyond it callers wait before their commit is encoded.
const QUEUE_MAX: usize = 256;
/// Requests in one group.
const GROUP_REQUESTS_MAX: usize = 256;
/// Bytes after which a group takes no more requests.
const GROUP_BYTES_MAX: usize = 4 * 1024 * 1024;

type Answer = Result<(), JournalError>;

/// What the writer is asked for.
pub(super) enum Request {
    /// Append a commit.
    Append(Encoded),
    /// Store a user's settings, as JSON.
    PutSettings { user: String, content: String },
    /// Append an audit entry, and make the change that it tells of.
    Record { change: Change, entry: Entry },
    /// See whether writing works.
    Check,
}

struct Waiting {
    request: Request,
    answer: oneshot::Sender<Answer>,
}

/// The way to the writer.
pub(super) struct Writer {
    queue: Option<mpsc::Sender<Waiting>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Writer {
    /// Starts the writer over an open connection; it makes new ones with `options`.
    pub(super) fn start(
        connection: SqliteConnection,
        options: SqliteConnectOptions,
    ) -> io::Result<Self> {
        let (queue, requests) = mpsc::channel(QUEUE_MAX);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let mut work = Work {
            connection: Some(connection),
            options,
            heads: Heads::default(),
            audit_head: None,
            is_failing: false,
        };
        let thread = thread::Builder::new()
            .name("journal-writer".to_owned())
            .spawn(move || runtime.block_on(work.run(requests)))?;
        Ok(Self { queue: Some(queue), thread: Some(thread) })
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

struct Work {
    connection: Option<SqliteConnection>,
    options: SqliteConnectOptions,
    heads: Heads,
    /// The audit log's last row, once it is known. Sound because one process alone writes.
    audit_head: Option<Head>,
    is_failing: bool,
}

impl Work {
    async fn run(&mut self, mut requests: mpsc::Receiver<Waiting>) {
        while let Some(first) = requests.recv().await {
            let mut bytes = first.request.size();
            let mut group = vec![first];
            while group.len() < GROUP_REQUESTS_MAX && bytes < GROUP_BYTES_MAX {
                let Ok(next) = requests.try_recv() else { break };
                bytes += next.request.size();
                group.push(next);
            }
            self.perform(group).await;
        }
        if let Some(connection) = self.connection.take()
            && let Err(error) = batch::settle(connection).await
        {
            tracing::warn!(%error, "the database could not be closed cleanly");
        }
    }

    async fn perform(&mut self, group: Vec<Waiting>) {
        let mut appends = Vec::new();
        let mut checks = Vec::new();
        for Waiting { request, answer } in group {
            match request {
                Request::Append(commit) => appends.push((commit, answer)),
                Request::Check => checks.push(answer),
                Request::PutSettings { user, content } => {
                    let stored = self.put_settings(&user, &content).await;
                    reply(answer, self.noted(stored).await);
                }
                Request::Record { change, entry } => {
                    let recorded = self.record(&change, &entry).await;
                    reply(answer, self.noted(recorded).await);
                }
            }
        }
        if !appends.is_empty() {
            self.append_all(appends).await;
        }
        if !checks.is_empty() {
            let checked = self.check().await;
            let checked = self.noted(checked).await;
            checks.into_iter().for_each(|answer| reply(answer, checked.clone()));
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
        let connection = connected(&mut self.connection, &self.options).await?;
        self.heads.learn(connection, commits, trust).await?;
        let have_room = spending::have_room(connection, commits).await?;
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
                let mut head = known(&mut self.audit_head, connection).await?;
                sealed = entries().map(|entry| head.seal(entry)).collect();
            }
            batch::store(connection, &accepted, &sealed).await?;
            self.heads.remember(written);
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

    async fn record(&mut self, change: &Change, entry: &Entry) -> sqlx::Result<()> {
        let connection = connected(&mut self.connection, &self.options).await?;
        let mut head = known(&mut self.audit_head, connection).await?;
        let row = head.seal(entry);
        records::write(connection, change, &row).await?;
        self.audit_head = Some(head);
        Ok(())
    }

    async fn put_settings(&mut self, user: &str, content: &str) -> sqlx::Result<()> {
        let connection = connected(&mut self.connection, &self.options).await?;
        batch::put_settings(connection, user, content).await
    }

    async fn check(&mut self) -> sqlx::Result<()> {
        batch::beat(connected(&mut self.connection, &self.options).await?).await
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
        self.audit_head = None;
        if let Some(connection) = self.connection.take()
            && let Err(error) = connection.close().await
        {
            tracing::debug!(%error, "closing the connection failed");
        }
    }
}

impl Request {
    /// About how many bytes it writes.
    fn size(&self) -> usize {
        match self {
            Self::Append(commit) => commit.size(),
            Self::PutSettings { content, .. } => content.len(),
            Self::Record { .. } | Self::Check => 0,
        }
    }
}

async fn connected<'a>(
    connection: &'a mut Option<SqliteConnection>,
    options: &SqliteConnectOptions,
) -> sqlx::Result<&'a mut SqliteConnection> {
    match connection {
        Some(connection) => Ok(connection),
        None => Ok(connection.insert(options.connect().await?)),
    }
}

/// The audit log's last row. Where its note is gone, the rows go on from nothing, and a check of the
/// log says so; refusing every write for it would help nobody.
async fn known(head: &mut Option<Head>, connection: &mut SqliteConnection) -> sqlx::Result<Head> {
    match *head {
        Some(head) => Ok(head),
        None => Ok(*head.insert(records::head(connection).await?.unwrap_or(Head::empty()))),
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
