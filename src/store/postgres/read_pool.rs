//! The pool of read connections, on its own thread: a connection belongs to the runtime that
//! created it, and the callers are on many runtimes.

use super::connect::{Access, Connector, with_response_timeout};
use crate::store::{PostgresAddress, sql::SqlQuery, writer::runtime};
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

/// Maximum number of rows that wait for the caller.
const ROW_BUFFER_MAX: usize = 64;
/// Time a query waits for a connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(3);
/// Time after which an unused connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// The pool of read connections.
pub(in crate::store) struct PostgresReadPool {
    pool: PgPool,
    runtime: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl PostgresReadPool {
    /// Starts the pool. Connections are created on demand.
    pub(super) fn start(address: &PostgresAddress, connections: u32) -> sqlx::Result<Self> {
        let options = Connector::new(address, Access::Read).options;
        let runtime = runtime()?;
        let handle = runtime.handle().clone();
        let pool = {
            let _guard = runtime.enter();
            PgPoolOptions::new()
                .max_connections(connections.max(1))
                .acquire_timeout(ACQUIRE_TIMEOUT)
                .idle_timeout(IDLE_TIMEOUT)
                .connect_lazy_with(options)
        };
        let (stop, stop_signal) = oneshot::channel();
        let closing_pool = pool.clone();
        let thread =
            thread::Builder::new().name("journal-readers".to_owned()).spawn(move || {
                runtime.block_on(async {
                    // A message and a dropped sender both mean that the pool is no longer used.
                    drop(stop_signal.await);
                    drop(tokio::time::timeout(ACQUIRE_TIMEOUT, closing_pool.close()).await);
                });
            })?;
        Ok(Self { pool, runtime: handle, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns the rows one by one. Dropping the stream cancels the query.
    pub(in crate::store) fn fetch(
        &self,
        query: SqlQuery,
    ) -> BoxStream<'static, sqlx::Result<PgRow>> {
        let (sender, receiver) = mpsc::channel(ROW_BUFFER_MAX);
        let pool = self.pool.clone();
        self.runtime.spawn(async move {
            let mut rows = query.into_postgres().fetch(&pool);
            loop {
                let row = with_response_timeout(rows.try_next()).await.transpose();
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

impl Drop for PostgresReadPool {
    fn drop(&mut self) {
        self.stop = None;
        let Some(thread) = self.thread.take() else { return };
        if thread.join().is_err() {
            tracing::error!("the journal's read pool panicked");
        }
    }
}
