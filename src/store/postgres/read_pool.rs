//! The connections that read, on a thread of their own: a connection belongs to the runtime that
//! made it, and those who ask are on many.

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

/// Rows that wait for whoever asked for them.
const ROW_BUFFER_MAX: usize = 64;
/// How long a question waits for a connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a connection that nobody uses is kept.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// The connections that read.
pub(in crate::store) struct PostgresReadPool {
    pool: PgPool,
    runtime: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl PostgresReadPool {
    /// Makes no connection yet.
    pub(super) fn start(address: &PostgresAddress, connections: u32) -> sqlx::Result<Self> {
        let options = Connector::new(address, Access::Read).options;
        let runtime = runtime()?;
        let handle = runtime.handle().clone();
        let pool = {
            let _inside = runtime.enter();
            PgPoolOptions::new()
                .max_connections(connections.max(1))
                .acquire_timeout(ACQUIRE_TIMEOUT)
                .idle_timeout(IDLE_TIMEOUT)
                .connect_lazy_with(options)
        };
        let (stop, stopped) = oneshot::channel();
        let closing = pool.clone();
        let thread =
            thread::Builder::new().name("journal-readers".to_owned()).spawn(move || {
                runtime.block_on(async {
                    // Told, or forgotten: both mean that nobody asks any more.
                    drop(stopped.await);
                    drop(tokio::time::timeout(ACQUIRE_TIMEOUT, closing.close()).await);
                });
            })?;
        Ok(Self { pool, runtime: handle, stop: Some(stop), thread: Some(thread) })
    }

    /// The rows, one by one; whoever drops the stream gets no more.
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
            tracing::error!("the journal's readers had panicked");
        }
    }
}
