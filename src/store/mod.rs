//! The journal on disk: the log of every session, what must agree with it, user settings, API keys
//! and the audit log.
//!
//! Owns files, SQL and the stored form of events. Knows nothing of actors, HTTP or what an event
//! means: it implements the port [`greenroom_actors::ports::Journal`] and is called through it.
//! `docs/storage.md` explains it to people.

mod codec;
mod error;
mod sqlite;
mod verify;

pub use error::StoreError;
pub use sqlite::{Migrated, ReadOnlyJournal, SqliteJournal, migrate};
pub use verify::{AuditError, verify_audit};

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Time to wait for a database that another process has locked for a moment.
const BUSY_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// Connections that read, where nothing else is said.
const READERS_DEFAULT: u32 = 4;

/// What an acknowledged commit survives (D4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// The machine losing power.
    #[default]
    Fsync,
    /// The process being killed; the last commits may be lost with the machine's power.
    Process,
}

/// How a database is opened.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// What an acknowledged commit survives.
    pub durability: Durability,
    /// Connections that read, at least 1.
    pub readers: u32,
    /// How long a write waits for a lock before it is refused.
    pub busy_timeout: Duration,
    /// Bytes that the database file may grow to; `None` is as many as the disk holds. At the
    /// limit writes are refused as on a full disk.
    pub size_bytes_max: Option<u64>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            durability: Durability::default(),
            readers: READERS_DEFAULT,
            busy_timeout: BUSY_TIMEOUT_DEFAULT,
            size_bytes_max: None,
        }
    }
}
