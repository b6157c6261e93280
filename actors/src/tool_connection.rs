//! The connection to one tool server: starts the server, lists its tools, monitors the connection
//! and reconnects it (T2).
//!
//! The actor owns the life cycle of the connection; the protocol is behind [`ToolServer`] and
//! [`ToolClient`]. It stores the server's state in the `ServerDirectory`, where calls and
//! administrators read it without waiting for the actor. [`crate::tool_servers`] starts, stops and
//! restarts it.

use actix::prelude::*;
use futures::future::BoxFuture;
use greenroom_core::{
    call::{ToolOutcome, ToolOutput},
    policy::RemoteTool,
};
use serde_json::{Map, Value};
use std::{sync::Arc, time::Duration};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    limits::{
        CONNECTION_STABLE_AFTER, RECONNECT_DELAY_BASE, RECONNECT_DELAY_CAP,
        TOOL_LIST_RELOAD_INTERVAL,
    },
    order::{ActorOrder, ExecuteOrder},
    ports::{Clock, Progress, ServerPrompt, ServerResource, ToolCall},
    status_board::StatusEntry,
    tool_servers::{ServerDirectory, ServerState},
};

/// A server that can be connected to repeatedly.
pub trait ToolServer: Send + Sync + 'static {
    /// Starts the server and performs the handshake. Completes within the server's start timeout;
    /// dropping the future releases all resources. The error is a human-readable text.
    fn connect(&self) -> BoxFuture<'static, Result<Arc<dyn ToolClient>, String>>;
}

/// An established connection to a server.
pub trait ToolClient: Send + Sync + 'static {
    /// Returns the tools that the server lists now.
    fn list_tools(&self) -> BoxFuture<'static, Result<Vec<RemoteTool>, String>>;

    /// Runs one attempt, as [`crate::ports::ToolHost::call_tool`] does, except that `call.tool` is
    /// the server's own name of the tool.
    fn call_tool(
        &self,
        call: ToolCall,
        progress: mpsc::Sender<Progress>,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, ToolOutcome>;

    /// Returns the prompts that the server lists now, with an empty `server`.
    fn list_prompts(&self) -> BoxFuture<'static, Vec<ServerPrompt>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// Returns the text of a prompt.
    fn get_prompt(
        &self,
        name: &str,
        _arguments: Map<String, Value>,
    ) -> BoxFuture<'static, Result<String, String>> {
        let error = format!("there is no prompt `{name}`");
        Box::pin(std::future::ready(Err(error)))
    }

    /// Returns the resources and templates that the server lists now, with an empty `server`.
    fn list_resources(&self) -> BoxFuture<'static, Vec<ServerResource>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// Reads at most `bytes_max` bytes of a resource.
    fn read_resource(
        &self,
        uri: &str,
        _bytes_max: usize,
    ) -> BoxFuture<'static, Result<ToolOutput, String>> {
        let error = format!("there is no resource `{uri}`");
        Box::pin(std::future::ready(Err(error)))
    }

    /// Waits until the server reports a change of its list of tools since the previous call.
    fn changed(&self) -> BoxFuture<'static, ()>;

    /// Waits until the connection is closed and returns the reason.
    fn closed(&self) -> BoxFuture<'static, String>;

    /// Closes the connection and stops the server's process. Returns when both have ended.
    fn close(&self) -> BoxFuture<'static, ()>;
}

/// The actor of one server's connection. It is started by
/// [`crate::tool_servers::ToolServers::start`].
pub struct ToolConnection {
    name: Arc<str>,
    server: Arc<dyn ToolServer>,
    directory: Arc<ServerDirectory>,
    clock: Arc<dyn Clock>,
    status_entry: StatusEntry,
    state: ConnectionState,
    /// The number of the current connection. Messages about an earlier one are ignored.
    generation: u64,
    /// The number of consecutive failures.
    failures: u32,
}

enum ConnectionState {
    Starting { work: SpawnHandle },
    Ready { client: Arc<dyn ToolClient>, since: Instant },
    BackingOff { timer: SpawnHandle },
    Stopped,
}

impl ToolConnection {
    /// Creates an actor that connects as soon as it is started.
    pub(crate) fn new(
        name: Arc<str>,
        server: Arc<dyn ToolServer>,
        directory: Arc<ServerDirectory>,
        clock: Arc<dyn Clock>,
        status_entry: StatusEntry,
    ) -> Self {
        Self {
            name,
            server,
            directory,
            clock,
            status_entry,
            state: ConnectionState::Stopped,
            generation: 0,
            failures: 0,
        }
    }

    fn connect(&mut self, ctx: &mut Context<Self>) {
        self.generation += 1;
        self.status_entry.set_restarts(self.generation - 1);
        let (generation, connection) = (self.generation, self.server.connect());
        let work = async move {
            let client = connection.await?;
            match client.list_tools().await {
                Ok(tools) => Ok((client, tools)),
                Err(error) => {
                    client.close().await;
                    Err(format!("can't list tools: {error}"))
                }
            }
        };
        let work = ctx.spawn(work.into_actor(self).map(move |result, _, ctx| {
            ctx.notify(ConnectFinished { generation, result });
        }));
        self.state = ConnectionState::Starting { work };
        self.status_entry.set_state("starting", Some(format!("the server {}", self.name)));
        self.directory.mark_starting(&self.name, generation - 1);
    }

    /// Schedules the next attempt to connect.
    fn back_off(&mut self, reason: String, ctx: &mut Context<Self>) {
        let delay = reconnect_delay(self.failures, self.clock.seed());
        self.failures = self.failures.saturating_add(1);
        let timer = ctx.notify_later(RetryConnect { generation: self.generation }, delay);
        self.state = ConnectionState::BackingOff { timer };
        self.status_entry.record_failure(&reason);
        self.status_entry.set_state("backing off", Some(format!("next start in {delay:.1?}")));
        tracing::warn!(server = %self.name, %reason, ?delay, "tool server is unavailable");
        self.directory.mark_unavailable(&self.name, ServerState::BackingOff, reason);
    }

    fn watch_tool_list(&self, client: &Arc<dyn ToolClient>, ctx: &mut Context<Self>) {
        let (generation, changed) = (self.generation, client.changed());
        ctx.spawn(changed.into_actor(self).map(move |(), _, ctx| {
            ctx.notify(ToolListChanged { generation });
        }));
    }

    /// Leaves the current state. Returns the connection to close, if there is one.
    fn disconnect(&mut self, ctx: &mut Context<Self>) -> Option<Arc<dyn ToolClient>> {
        match std::mem::replace(&mut self.state, ConnectionState::Stopped) {
            ConnectionState::Starting { work: handle }
            | ConnectionState::BackingOff { timer: handle } => {
                ctx.cancel_future(handle);
                None
            }
            ConnectionState::Ready { client, .. } => Some(client),
            ConnectionState::Stopped => None,
        }
    }
}

impl Actor for ToolConnection {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let order_recipient = ctx.address().downgrade().recipient();
        self.status_entry.accept_orders(&[ActorOrder::Stop, ActorOrder::Restart], order_recipient);
        self.connect(ctx);
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        let reason = match self.state {
            ConnectionState::Stopped => "the connection was stopped",
            ConnectionState::Starting { .. }
            | ConnectionState::Ready { .. }
            | ConnectionState::BackingOff { .. } => "the connection's actor failed",
        };
        self.directory.mark_unavailable(&self.name, ServerState::Stopped, reason.to_owned());
    }
}

/// Reports that an attempt to connect has ended.
#[derive(Message)]
#[rtype(result = "()")]
struct ConnectFinished {
    generation: u64,
    result: Result<(Arc<dyn ToolClient>, Vec<RemoteTool>), String>,
}

impl Handler<ConnectFinished> for ToolConnection {
    type Result = ();

    fn handle(&mut self, message: ConnectFinished, ctx: &mut Self::Context) {
        if message.generation != self.generation {
            return;
        }
        self.status_entry.start_message("ConnectFinished");
        match message.result {
            Ok((client, tools)) => {
                tracing::info!(server = %self.name, tools = tools.len(), "tool server is ready");
                let (generation, closed) = (self.generation, client.closed());
                ctx.spawn(closed.into_actor(self).map(move |reason, _, ctx| {
                    ctx.notify(ConnectionClosed { generation, reason });
                }));
                self.watch_tool_list(&client, ctx);
                self.status_entry.set_state("ready", None);
                self.directory.mark_ready(&self.name, client.clone(), tools);
                self.state = ConnectionState::Ready { client, since: Instant::now() };
            }
            Err(reason) => self.back_off(reason, ctx),
        }
        self.status_entry.finish_message();
    }
}

/// Reports that the connection was closed.
#[derive(Message)]
#[rtype(result = "()")]
struct ConnectionClosed {
    generation: u64,
    reason: String,
}

impl Handler<ConnectionClosed> for ToolConnection {
    type Result = ();

    fn handle(&mut self, message: ConnectionClosed, ctx: &mut Self::Context) {
        let ConnectionState::Ready { client, since } = &self.state else { return };
        if message.generation != self.generation {
            return;
        }
        self.status_entry.start_message("ConnectionClosed");
        if since.elapsed() >= CONNECTION_STABLE_AFTER {
            self.failures = 0;
        }
        // Closing releases the rest of the connection in the background.
        actix_rt::spawn(client.close());
        self.back_off(message.reason, ctx);
        self.status_entry.finish_message();
    }
}

/// Starts the next attempt to connect.
#[derive(Message)]
#[rtype(result = "()")]
struct RetryConnect {
    generation: u64,
}

impl Handler<RetryConnect> for ToolConnection {
    type Result = ();

    fn handle(&mut self, message: RetryConnect, ctx: &mut Self::Context) {
        if message.generation == self.generation
            && matches!(self.state, ConnectionState::BackingOff { .. })
        {
            self.status_entry.start_message("RetryConnect");
            self.connect(ctx);
            self.status_entry.finish_message();
        }
    }
}

/// Reports that the server's list of tools has changed.
#[derive(Message)]
#[rtype(result = "()")]
struct ToolListChanged {
    generation: u64,
}

impl Handler<ToolListChanged> for ToolConnection {
    type Result = ();

    fn handle(&mut self, message: ToolListChanged, ctx: &mut Self::Context) {
        let ConnectionState::Ready { client, .. } = &self.state else { return };
        if message.generation != self.generation {
            return;
        }
        self.status_entry.start_message("ToolListChanged");
        let (generation, tool_list) = (self.generation, client.list_tools());
        ctx.spawn(tool_list.into_actor(self).map(move |result, _, ctx| {
            ctx.notify(ToolListReloaded { generation, result });
        }));
        self.status_entry.finish_message();
    }
}

/// Reports that the list of tools was loaded again.
#[derive(Message)]
#[rtype(result = "()")]
struct ToolListReloaded {
    generation: u64,
    result: Result<Vec<RemoteTool>, String>,
}

impl Handler<ToolListReloaded> for ToolConnection {
    type Result = ();

    fn handle(&mut self, message: ToolListReloaded, ctx: &mut Self::Context) {
        let ConnectionState::Ready { client, .. } = &self.state else { return };
        if message.generation != self.generation {
            return;
        }
        self.status_entry.start_message("ToolListReloaded");
        match message.result {
            Ok(tools) => self.directory.mark_ready(&self.name, client.clone(), tools),
            // The previous list stays in use.
            Err(error) => {
                tracing::warn!(server = %self.name, %error, "failed to reload the list of tools");
                self.status_entry.record_failure(&error);
            }
        }
        // The delay limits the reloads of a server that reports changes continuously.
        let client = client.clone();
        ctx.run_later(TOOL_LIST_RELOAD_INTERVAL, move |actor, ctx| {
            actor.watch_tool_list(&client, ctx)
        });
        self.status_entry.finish_message();
    }
}

/// Closes the connection and stops the actor. Replies when the server has ended.
#[derive(Message)]
#[rtype(result = "()")]
pub struct StopConnection;

impl Handler<StopConnection> for ToolConnection {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, _: StopConnection, ctx: &mut Self::Context) -> Self::Result {
        self.status_entry.start_message("StopConnection");
        self.status_entry.set_state("stopped", None);
        self.generation += 1;
        let client = self.disconnect(ctx);
        let closing = async move {
            if let Some(client) = client {
                client.close().await;
            }
        };
        Box::pin(closing.into_actor(self).map(|(), actor, ctx| {
            actor.status_entry.finish_message();
            ctx.stop();
        }))
    }
}

/// Stop closes the connection until it is restarted (A2).
impl Handler<ExecuteOrder> for ToolConnection {
    type Result = ();

    fn handle(&mut self, ExecuteOrder { order, .. }: ExecuteOrder, ctx: &mut Self::Context) {
        match order {
            ActorOrder::Restart => self.handle(RestartConnection, ctx),
            ActorOrder::Stop => {
                self.status_entry.start_message("ExecuteOrder");
                // Messages about this connection that arrive later are ignored.
                self.generation += 1;
                if let Some(client) = self.disconnect(ctx) {
                    actix_rt::spawn(client.close());
                }
                let reason = "stopped by an administrator".to_owned();
                self.status_entry
                    .set_state("stopped", Some("a restart by an administrator".to_owned()));
                self.directory.mark_unavailable(&self.name, ServerState::Stopped, reason);
                self.status_entry.finish_message();
            }
        }
    }
}

/// Closes the connection, if there is one, and connects again immediately.
#[derive(Message)]
#[rtype(result = "()")]
pub struct RestartConnection;

impl Handler<RestartConnection> for ToolConnection {
    type Result = ();

    fn handle(&mut self, _: RestartConnection, ctx: &mut Self::Context) {
        self.status_entry.start_message("RestartConnection");
        if let Some(client) = self.disconnect(ctx) {
            actix_rt::spawn(client.close());
        }
        self.failures = 0;
        self.connect(ctx);
        self.status_entry.finish_message();
    }
}

/// Returns the delay after a number of consecutive failures. It doubles up to a cap. Up to half of
/// it is random, so that servers that failed together do not reconnect together.
fn reconnect_delay(failures: u32, seed: u64) -> Duration {
    let backoff = RECONNECT_DELAY_BASE.saturating_mul(2u32.saturating_pow(failures.min(16)));
    let delay = backoff.min(RECONNECT_DELAY_CAP);
    let per_mille = u32::try_from(seed % 1000).unwrap_or_default();
    delay / 2 + delay / 2 * per_mille / 1000
}

#[cfg(test)]
#[path = "tool_connection_tests.rs"]
mod tests;
