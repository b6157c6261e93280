//! Stores messages in SQLite with group commit: one thread writes all queued messages in one
//! transaction and then answers each sender.

use crate::target::Durability;
use rusqlite::Connection;
use std::{path::Path, sync::mpsc, thread};
use tokio::sync::oneshot;

/// Maximum number of messages in a transaction.
const GROUP_MAX: usize = 256;

struct Row {
    session: String,
    content: String,
    stored: oneshot::Sender<()>,
}

/// A handle to the writing thread.
#[derive(Clone)]
pub(super) struct MessageStore(mpsc::Sender<Row>);

impl MessageStore {
    /// Creates a database and starts the thread.
    pub(super) fn open(path: &Path, durability: Durability) -> rusqlite::Result<Self> {
        let database = Connection::open(path)?;
        let synchronous = match durability {
            Durability::Fsync => "FULL",
            Durability::Process => "NORMAL",
        };
        database.execute_batch(&format!(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous};
             CREATE TABLE messages (session TEXT NOT NULL, content TEXT NOT NULL);"
        ))?;
        let (sender, rows) = mpsc::channel();
        thread::spawn(move || {
            while let Ok(first) = rows.recv() {
                let mut group = vec![first];
                group.extend(rows.try_iter().take(GROUP_MAX - 1));
                // On an error the thread panics, the senders get no answer, and the benchmark fails.
                write(&database, group).expect("the transaction is written");
            }
        });
        Ok(Self(sender))
    }

    /// Stores a message; returns once the message is committed.
    pub(super) async fn store(&self, session: &str, content: String) {
        let (stored, is_stored) = oneshot::channel();
        let session = session.to_owned();
        self.0.send(Row { session, content, stored }).expect("the writing thread is running");
        is_stored.await.expect("the message is stored");
    }
}

fn write(database: &Connection, group: Vec<Row>) -> rusqlite::Result<()> {
    database.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let mut insert = database.prepare_cached("INSERT INTO messages VALUES (?1, ?2)")?;
    for row in &group {
        insert.execute([&row.session, &row.content])?;
    }
    database.prepare_cached("COMMIT")?.execute([])?;
    for row in group {
        // The receiver was dropped if the client has closed its connection.
        row.stored.send(()).unwrap_or_default();
    }
    Ok(())
}
