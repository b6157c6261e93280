//! The connections that read, on a thread of their own: a connection belongs to the runtime that
//! made it, and those who ask are on many.

use super::connect::{Access, Connector, answered};
use crate::store::{PostgresAddress, query::Query, writer::runtime};
use futures::{StreamExt as _, TryStreamExt as _, stream::BoxStream};
use sqlx::{
    PgPool,
    postgres::{PgPoolOptions, PgRow},
};
use std::{thread, time::Duration};
use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot},
};
use tokio_stream::wrappers::ReceiverStream;

/// Rows that wait for whoever asked for them.
const ROWS_AHEAD: usize = 64;
/// How long a question waits for a connection.
const ACQUIRE_MAX: Duration = Duration::from_secs(3);
/// How long a connection that nobody uses is kept.
const IDLE_MAX: Duration = Duration::from_secs(600);

/// The connections that read.
pub(in crate::store) struct Readers {
    pool: PgPool,
    runtime: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Readers {
    /// Makes no connection yet.
    pub(super) fn start(address: &PostgresAddress, connections: u32) -> sqlx::Result<Self> {
        let options = Connector::new(address, Access::Read).options;
        let runtime = runtime()?;
        let handle = runtime.handle().clone();
        let pool = {
            let _inside = runtime.enter();
            PgPoolOptions::new()
                .max_connections(connections.max(1))
                .acquire_timeout(ACQUIRE_MAX)
                .idle_timeout(IDLE_MAX)
                .connect_lazy_with(options)
        };
        let (stop, stopped) = oneshot::channel();
        let closing = pool.clone();
        let thread =
            thread::Builder::new().name("journal-readers".to_owned()).spawn(move || {
                runtime.block_on(async {
                    // Told, or forgotten: both mean that nobody asks any more.
                    drop(stopped.await);
                    drop(tokio::time::timeout(ACQUIRE_MAX, closing.close()).await);
                });
            })?;
        Ok(Self { pool, runtime: handle, stop: Some(stop), thread: Some(thread) })
    }

    /// The rows, one by one; whoever drops the stream gets no more.
    pub(in crate::store) fn rows(&self, query: Query) -> BoxStream<'static, sqlx::Result<PgRow>> {
        let (sender, receiver) = mpsc::channel(ROWS_AHEAD);
        let pool = self.pool.clone();
        self.runtime.spawn(async move {
            let mut rows = query.for_postgres().fetch(&pool);
            loop {
                let row = answered(rows.try_next()).await.transpose();
                let Some(row) = row else { return };
                let is_last = row.is_err();
                if sender.send(row).await.is_err() || is_last {
                    return;
                }
            }
        });
        ReceiverStream::new(receiver).boxed()
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.stop = None;
        let Some(thread) = self.thread.take() else { return };
        if thread.join().is_err() {
            tracing::error!("the journal's readers had panicked");
        }
    }
}
