//! Messages in SQLite with group commit: one thread writes what waits in one transaction, and
//! answers each.

use crate::target::Durability;
use rusqlite::Connection;
use std::{path::Path, sync::mpsc, thread};
use tokio::sync::oneshot;

/// Messages in one transaction.
const GROUP_MAX: usize = 256;

struct Row {
    session: String,
    content: String,
    stored: oneshot::Sender<()>,
}

/// The way to the thread that writes.
#[derive(Clone)]
pub(super) struct MessageStore(mpsc::Sender<Row>);

impl MessageStore {
    /// Opens a new database.
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
                // Who waits hears nothing where it fails, and that ends the benchmark.
                write(&database, group).expect("the disk takes it");
            }
        });
        Ok(Self(sender))
    }

    /// Returns once the message is stored.
    pub(super) async fn store(&self, session: &str, content: String) {
        let (stored, is_stored) = oneshot::channel();
        let session = session.to_owned();
        self.0.send(Row { session, content, stored }).expect("the thread lives as long as we do");
        is_stored.await.expect("it answers each");
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
        // A client may be gone.
        row.stored.send(()).unwrap_or_default();
    }
    Ok(())
}
