//! The journal in an SQLite file: opens it, and puts the rooms together.
//!
//! ```text
//! append ──► writer (one thread) ──► heads: who may ──► batch: one write ──► file
//! read   ──► readers (a small pool) ─────────────────────────────────────────┘
//! ```

mod batch;
mod file;
mod heads;
mod read;
mod read_only;
mod records;
mod schema;
mod spending;
mod writer;

pub use read_only::ReadOnlyJournal;
pub(super) use records::each_audit_row;
pub use schema::Migrated;

use super::{Durability, StoreError, StoreOptions};
use async_trait::async_trait;
use batch::Encoded;
use file::DatabaseFile;
use greenroom_actors::ports::{
    ApprovalQuery, Commit, Journal, JournalError, SessionCounts, SessionQuery,
};
use greenroom_core::{
    Timestamp,
    budget::{Measure, Spent},
    ids::{ApprovalId, Seq, SessionId, UserId},
    policy::Settings,
    session::{ApprovalRow, EventRecord, SessionRow},
    time::Day,
};
use sqlx::{
    ConnectOptions, Connection, SqliteConnection, SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use std::{collections::BTreeMap, fmt, path::Path};
use writer::{Request, Writer};

/// Pages of the write-ahead log after which a commit moves them into the database: 16 MiB, so that
/// the moving is rare and the log small.
const CHECKPOINT_PAGES: u32 = 4096;
/// Bytes the write-ahead log is cut to after it has grown, for example behind a long reader.
const LOG_BYTES_KEPT: u32 = 64 * 1024 * 1024;
/// SQLite's page size, which is set when the database is created and never changed.
const PAGE_BYTES: u32 = 4096;

/// The journal in one SQLite database. It is this process's alone while it is open; dropping it
/// waits for what is being written.
pub struct SqliteJournal {
    // Fields drop in this order: the file's lock goes last.
    writer: Writer,
    readers: SqlitePool,
    migrated: Migrated,
    file: DatabaseFile,
}

impl fmt::Debug for SqliteJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteJournal").field("path", &self.file.path).finish_non_exhaustive()
    }
}

impl SqliteJournal {
    /// Opens the database, creates it and its folder where there is none, and migrates it to the
    /// newest schema.
    pub async fn open(path: &Path, options: StoreOptions) -> Result<Self, StoreError> {
        let (file, connection, migrated) = prepare(path, &options).await?;
        let failed = |source| StoreError::Open { path: file.path.clone(), source };
        let readers = readers(&file.path, &options).await.map_err(failed)?;
        let writer = Writer::start(connection, writer_options(&file.path, &options))
            .map_err(|source| failed(sqlx::Error::Io(source)))?;
        Ok(Self { writer, readers, migrated, file })
    }

    /// Opens a database to look at it alone, also while a server has it open: nothing is created,
    /// migrated or locked.
    pub async fn open_read_only(path: &Path) -> Result<ReadOnlyJournal, StoreError> {
        ReadOnlyJournal::open(path).await
    }

    /// What opening did to the schema.
    pub fn migrated(&self) -> Migrated {
        self.migrated
    }
}

/// Creates the database where there is none, and migrates it to the newest schema.
pub async fn migrate(path: &Path) -> Result<Migrated, StoreError> {
    let (file, connection, migrated) = prepare(path, &StoreOptions::default()).await?;
    let path = file.path.clone();
    batch::settle(connection).await.map_err(|source| StoreError::Open { path, source })?;
    Ok(migrated)
}

async fn prepare(
    path: &Path,
    options: &StoreOptions,
) -> Result<(DatabaseFile, SqliteConnection, Migrated), StoreError> {
    let file = DatabaseFile::claim(path)?;
    let failed = |source| StoreError::Open { path: file.path.clone(), source };
    // A look first, which changes nothing: what is not ours stays as it is.
    let mut look = base_options(&file.path, options).connect().await.map_err(failed)?;
    let version = schema::version(&mut look, &file.path).await?;
    look.close().await.map_err(failed)?;
    file.restrict()?;
    let options = writer_options(&file.path, options);
    let mut connection = options.connect().await.map_err(failed)?;
    let migrated = schema::migrate(&mut connection, &file.path, version).await?;
    Ok((file, connection, migrated))
}

async fn readers(path: &Path, options: &StoreOptions) -> sqlx::Result<SqlitePool> {
    SqlitePoolOptions::new()
        .max_connections(options.readers.max(1))
        // A file does not hang up as a network does: asking first would double the cost.
        .test_before_acquire(false)
        .connect_with(base_options(path, options).read_only(true))
        .await
}

fn base_options(path: &Path, options: &StoreOptions) -> SqliteConnectOptions {
    // Statements are not logged: what they carry belongs to users.
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .busy_timeout(options.busy_timeout)
        .disable_statement_logging()
}

fn writer_options(path: &Path, options: &StoreOptions) -> SqliteConnectOptions {
    let synchronous = match options.durability {
        Durability::Fsync => SqliteSynchronous::Full,
        Durability::Process => SqliteSynchronous::Normal,
    };
    let mut writer = base_options(path, options)
        .page_size(PAGE_BYTES)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(synchronous)
        .pragma("wal_autocheckpoint", CHECKPOINT_PAGES.to_string())
        .pragma("journal_size_limit", LOG_BYTES_KEPT.to_string());
    if let Some(bytes) = options.size_bytes_max {
        let pages = (bytes / u64::from(PAGE_BYTES)).max(1);
        writer = writer.pragma("max_page_count", pages.to_string());
    }
    writer
}

#[async_trait]
impl Journal for SqliteJournal {
    async fn append(&self, commit: Commit) -> Result<(), JournalError> {
        let encode = || Encoded::of(&commit).map(Request::Append).map_err(JournalError::Corrupt);
        self.writer.ask(encode).await
    }

    async fn read(
        &self,
        session_id: SessionId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<EventRecord>, JournalError> {
        read::events(&self.readers, session_id, after, limit).await
    }

    async fn head(&self, session_id: SessionId) -> Result<Seq, JournalError> {
        read::head(&self.readers, session_id).await
    }

    async fn session(&self, session_id: SessionId) -> Result<Option<SessionRow>, JournalError> {
        read::session(&self.readers, session_id).await
    }

    async fn sessions(&self, query: SessionQuery) -> Result<Vec<SessionRow>, JournalError> {
        read::sessions(&self.readers, query).await
    }

    async fn unfinished_sessions(&self) -> Result<Vec<SessionId>, JournalError> {
        read::unfinished_sessions(&self.readers).await
    }

    async fn session_counts(&self, owner: &UserId) -> Result<SessionCounts, JournalError> {
        read::session_counts(&self.readers, owner).await
    }

    async fn approval(&self, approval_id: ApprovalId) -> Result<Option<ApprovalRow>, JournalError> {
        read::approval(&self.readers, approval_id).await
    }

    async fn approvals(&self, query: ApprovalQuery) -> Result<Vec<ApprovalRow>, JournalError> {
        read::approvals(&self.readers, query).await
    }

    async fn pending_deadlines(
        &self,
    ) -> Result<Vec<(ApprovalId, SessionId, Option<Timestamp>)>, JournalError> {
        read::pending_deadlines(&self.readers).await
    }

    async fn settings(&self, user: &UserId) -> Result<Option<Settings>, JournalError> {
        read::settings(&self.readers, user).await
    }

    async fn put_settings(&self, user: &UserId, settings: &Settings) -> Result<(), JournalError> {
        let encode = || {
            let content = serde_json::to_string(settings)
                .map_err(|error| JournalError::Corrupt(format!("settings of {user}: {error}")))?;
            Ok(Request::PutSettings { user: user.to_string(), content })
        };
        self.writer.ask(encode).await
    }

    async fn spent(
        &self,
        user: &UserId,
        today: Day,
    ) -> Result<BTreeMap<Measure, Spent>, JournalError> {
        spending::spent(&self.readers, user, today).await
    }

    async fn check(&self) -> Result<(), JournalError> {
        read::check(&self.readers).await?;
        self.writer.ask(|| Ok(Request::Check)).await
    }
}
