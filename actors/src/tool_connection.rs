//! One MCP server: starts it, lists its tools, watches it, and brings it back when it is gone (T2).
//!
//! Owns the life of the connection and nothing of its wire: the world is behind [`ToolServer`] and
//! [`ToolLink`]. What it learns it puts on the [`Shelf`], where calls and administrators read it
//! without queueing here. Started by [`crate::tool_host`], which also stops and restarts it.

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

/// A server that can be connected to, again and again.
pub trait ToolServer: Send + Sync + 'static {
    /// Starts it and shakes hands. Ends within the server's start timeout; dropping the future
    /// leaves nothing behind. The error is for people.
    fn connect(&self) -> BoxFuture<'static, Result<Arc<dyn ToolClient>, String>>;
}

/// A connection that is up, or was.
pub trait ToolClient: Send + Sync + 'static {
    /// The tools the server lists now.
    fn list_tools(&self) -> BoxFuture<'static, Result<Vec<RemoteTool>, String>>;

    /// Runs one attempt; as [`crate::ports::ToolHost::call`], but `call.tool` is the server's own
    /// name for the tool.
    fn call_tool(
        &self,
        call: ToolCall,
        progress: mpsc::Sender<Progress>,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, ToolOutcome>;

    /// The prompts the server lists now; `server` in them is left empty.
    fn list_prompts(&self) -> BoxFuture<'static, Vec<ServerPrompt>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// The text of a prompt.
    fn get_prompt(
        &self,
        name: &str,
        _arguments: Map<String, Value>,
    ) -> BoxFuture<'static, Result<String, String>> {
        let error = format!("there is no prompt `{name}`");
        Box::pin(std::future::ready(Err(error)))
    }

    /// The resources the server lists now, and its templates; `server` in them is left empty.
    fn list_resources(&self) -> BoxFuture<'static, Vec<ServerResource>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// What a resource holds, at most so many bytes of it.
    fn read_resource(
        &self,
        uri: &str,
        _bytes_max: usize,
    ) -> BoxFuture<'static, Result<ToolOutput, String>> {
        let error = format!("there is no resource `{uri}`");
        Box::pin(std::future::ready(Err(error)))
    }

    /// Waits until the server says that its list has changed since the last time this was asked.
    fn changed(&self) -> BoxFuture<'static, ()>;

    /// Waits until the connection is gone; says why.
    fn closed(&self) -> BoxFuture<'static, String>;

    /// Ends the connection, and the process behind it; returns when both are gone.
    fn close(&self) -> BoxFuture<'static, ()>;
}

/// The actor of one server. Started with [`ToolConnection::start`].
pub struct ToolConnection {
    name: Arc<str>,
    server: Arc<dyn ToolServer>,
    directory: Arc<ServerDirectory>,
    clock: Arc<dyn Clock>,
    status_entry: StatusEntry,
    state: ConnectionState,
    /// Which connection this is; news of an earlier one is ignored.
    generation: u64,
    /// Failures in a row.
    failures: u32,
}

enum ConnectionState {
    Starting { work: SpawnHandle },
    Ready { link: Arc<dyn ToolClient>, since: Instant },
    BackingOff { timer: SpawnHandle },
    Stopped,
}

impl ToolConnection {
    /// An actor that connects as soon as it is started.
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
        let (generation, connecting) = (self.generation, self.server.connect());
        let work = async move {
            let link = connecting.await?;
            match link.list_tools().await {
                Ok(tools) => Ok((link, tools)),
                Err(error) => {
                    link.close().await;
                    Err(format!("its tools can't be listed: {error}"))
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

    /// Plans the next try.
    fn back_off(&mut self, reason: String, ctx: &mut Context<Self>) {
        let delay = reconnect_delay(self.failures, self.clock.seed());
        self.failures = self.failures.saturating_add(1);
        let timer = ctx.notify_later(RetryConnect { generation: self.generation }, delay);
        self.state = ConnectionState::BackingOff { timer };
        self.status_entry.record_failure(&reason);
        self.status_entry.set_state("backing off", Some(format!("its next start, in {delay:.1?}")));
        tracing::warn!(server = %self.name, %reason, ?delay, "a tool server is unavailable");
        self.directory.mark_unavailable(&self.name, ServerState::BackingOff, reason);
    }

    fn watch_tool_list(&self, link: &Arc<dyn ToolClient>, ctx: &mut Context<Self>) {
        let (generation, changed) = (self.generation, link.changed());
        ctx.spawn(changed.into_actor(self).map(move |(), _, ctx| {
            ctx.notify(ToolListChanged { generation });
        }));
    }

    /// Leaves the present state; what was connected is handed over to be closed.
    fn disconnect(&mut self, ctx: &mut Context<Self>) -> Option<Arc<dyn ToolClient>> {
        match std::mem::replace(&mut self.state, ConnectionState::Stopped) {
            ConnectionState::Starting { work: handle }
            | ConnectionState::BackingOff { timer: handle } => {
                ctx.cancel_future(handle);
                None
            }
            ConnectionState::Ready { link, .. } => Some(link),
            ConnectionState::Stopped => None,
        }
    }
}

impl Actor for ToolConnection {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let obeys = ctx.address().downgrade().recipient();
        self.status_entry.accept_orders(&[ActorOrder::Stop, ActorOrder::Restart], obeys);
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

/// The server answered, or did not.
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
        self.status_entry.start_message("Connected");
        match message.result {
            Ok((link, tools)) => {
                tracing::info!(server = %self.name, tools = tools.len(), "a tool server is ready");
                let (generation, closed) = (self.generation, link.closed());
                ctx.spawn(closed.into_actor(self).map(move |reason, _, ctx| {
                    ctx.notify(ConnectionClosed { generation, reason });
                }));
                self.watch_tool_list(&link, ctx);
                self.status_entry.set_state("ready", None);
                self.directory.mark_ready(&self.name, link.clone(), tools);
                self.state = ConnectionState::Ready { link, since: Instant::now() };
            }
            Err(reason) => self.back_off(reason, ctx),
        }
        self.status_entry.finish_message();
    }
}

/// The connection is gone.
#[derive(Message)]
#[rtype(result = "()")]
struct ConnectionClosed {
    generation: u64,
    reason: String,
}

impl Handler<ConnectionClosed> for ToolConnection {
    type Result = ();

    fn handle(&mut self, message: ConnectionClosed, ctx: &mut Self::Context) {
        let ConnectionState::Ready { link, since } = &self.state else { return };
        if message.generation != self.generation {
            return;
        }
        self.status_entry.start_message("Closed");
        if since.elapsed() >= CONNECTION_STABLE_AFTER {
            self.failures = 0;
        }
        // Whatever is left of it goes away beside us.
        actix_rt::spawn(link.close());
        self.back_off(message.reason, ctx);
        self.status_entry.finish_message();
    }
}

/// It is time for another try.
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
            self.status_entry.start_message("Retry");
            self.connect(ctx);
            self.status_entry.finish_message();
        }
    }
}

/// The server says that its list is another one now.
#[derive(Message)]
#[rtype(result = "()")]
struct ToolListChanged {
    generation: u64,
}

impl Handler<ToolListChanged> for ToolConnection {
    type Result = ();

    fn handle(&mut self, message: ToolListChanged, ctx: &mut Self::Context) {
        let ConnectionState::Ready { link, .. } = &self.state else { return };
        if message.generation != self.generation {
            return;
        }
        self.status_entry.start_message("ListChanged");
        let (generation, listing) = (self.generation, link.list_tools());
        ctx.spawn(listing.into_actor(self).map(move |result, _, ctx| {
            ctx.notify(ToolListReloaded { generation, result });
        }));
        self.status_entry.finish_message();
    }
}

/// The list was read again.
#[derive(Message)]
#[rtype(result = "()")]
struct ToolListReloaded {
    generation: u64,
    result: Result<Vec<RemoteTool>, String>,
}

impl Handler<ToolListReloaded> for ToolConnection {
    type Result = ();

    fn handle(&mut self, message: ToolListReloaded, ctx: &mut Self::Context) {
        let ConnectionState::Ready { link, .. } = &self.state else { return };
        if message.generation != self.generation {
            return;
        }
        self.status_entry.start_message("Relisted");
        match message.result {
            Ok(tools) => self.directory.mark_ready(&self.name, link.clone(), tools),
            // The old list stays: it is the best there is.
            Err(error) => {
                tracing::warn!(server = %self.name, %error, "a changed list of tools can't be read");
                self.status_entry.record_failure(&error);
            }
        }
        // A server that announces without end must not keep us listing without end.
        let link = link.clone();
        ctx.run_later(TOOL_LIST_RELOAD_INTERVAL, move |actor, ctx| {
            actor.watch_tool_list(&link, ctx)
        });
        self.status_entry.finish_message();
    }
}

/// Ends the connection and the actor; answered when the server is gone.
#[derive(Message)]
#[rtype(result = "()")]
pub struct StopConnection;

impl Handler<StopConnection> for ToolConnection {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, _: StopConnection, ctx: &mut Self::Context) -> Self::Result {
        self.status_entry.start_message("Stop");
        self.status_entry.set_state("stopped", None);
        self.generation += 1;
        let link = self.disconnect(ctx);
        let closing = async move {
            if let Some(link) = link {
                link.close().await;
            }
        };
        Box::pin(closing.into_actor(self).map(|(), actor, ctx| {
            actor.status_entry.finish_message();
            ctx.stop();
        }))
    }
}

/// Stopped, it stays away until it is restarted (A2).
impl Handler<ExecuteOrder> for ToolConnection {
    type Result = ();

    fn handle(&mut self, ExecuteOrder { order, .. }: ExecuteOrder, ctx: &mut Self::Context) {
        match order {
            ActorOrder::Restart => self.handle(RestartConnection, ctx),
            ActorOrder::Stop => {
                self.status_entry.start_message("Obey");
                // What is on its way from this connection is of no interest any more.
                self.generation += 1;
                if let Some(link) = self.disconnect(ctx) {
                    actix_rt::spawn(link.close());
                }
                let reason = "an administrator stopped it".to_owned();
                self.status_entry
                    .set_state("stopped", Some("an administrator, to restart it".to_owned()));
                self.directory.mark_unavailable(&self.name, ServerState::Stopped, reason);
                self.status_entry.finish_message();
            }
        }
    }
}

/// Ends the connection, if there is one, and connects anew at once.
#[derive(Message)]
#[rtype(result = "()")]
pub struct RestartConnection;

impl Handler<RestartConnection> for ToolConnection {
    type Result = ();

    fn handle(&mut self, _: RestartConnection, ctx: &mut Self::Context) {
        self.status_entry.start_message("Restart");
        if let Some(link) = self.disconnect(ctx) {
            actix_rt::spawn(link.close());
        }
        self.failures = 0;
        self.connect(ctx);
        self.status_entry.finish_message();
    }
}

/// The delay after so many failures in a row: doubles up to a cap; the second half of it is chance,
/// so that servers that died together don't come back together.
fn reconnect_delay(failures: u32, seed: u64) -> Duration {
    let doubled = RECONNECT_DELAY_BASE.saturating_mul(2u32.saturating_pow(failures.min(16)));
    let whole = doubled.min(RECONNECT_DELAY_CAP);
    let per_mille = u32::try_from(seed % 1000).unwrap_or_default();
    whole / 2 + whole / 2 * per_mille / 1000
}

#[cfg(test)]
#[path = "tool_connection_tests.rs"]
mod tests;
