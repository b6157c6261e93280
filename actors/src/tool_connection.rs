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
    limits::{CONNECTION_STABLE_AFTER, RECONNECT_DELAY_BASE, RECONNECT_DELAY_CAP, RELIST_INTERVAL},
    observation::Watch,
    order::{Obey, Order},
    ports::{Clock, Progress, ServerPrompt, ServerResource, ToolCall},
    tool_host::{ServerState, Shelf},
};

/// A server that can be connected to, again and again.
pub trait ToolServer: Send + Sync + 'static {
    /// Starts it and shakes hands. Ends within the server's start timeout; dropping the future
    /// leaves nothing behind. The error is for people.
    fn connect(&self) -> BoxFuture<'static, Result<Arc<dyn ToolLink>, String>>;
}

/// A connection that is up, or was.
pub trait ToolLink: Send + Sync + 'static {
    /// The tools the server lists now.
    fn list(&self) -> BoxFuture<'static, Result<Vec<RemoteTool>, String>>;

    /// Runs one attempt; as [`crate::ports::ToolHost::call`], but `call.tool` is the server's own
    /// name for the tool.
    fn call(
        &self,
        call: ToolCall,
        progress: mpsc::Sender<Progress>,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, ToolOutcome>;

    /// The prompts the server lists now; `server` in them is left empty.
    fn prompts(&self) -> BoxFuture<'static, Vec<ServerPrompt>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// The text of a prompt.
    fn prompt(
        &self,
        name: &str,
        _arguments: Map<String, Value>,
    ) -> BoxFuture<'static, Result<String, String>> {
        let error = format!("there is no prompt `{name}`");
        Box::pin(std::future::ready(Err(error)))
    }

    /// The resources the server lists now, and its templates; `server` in them is left empty.
    fn resources(&self) -> BoxFuture<'static, Vec<ServerResource>> {
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
    shelf: Arc<Shelf>,
    clock: Arc<dyn Clock>,
    watch: Watch,
    state: State,
    /// Which connection this is; news of an earlier one is ignored.
    generation: u64,
    /// Failures in a row.
    failures: u32,
}

enum State {
    Starting { work: SpawnHandle },
    Ready { link: Arc<dyn ToolLink>, since: Instant },
    BackingOff { timer: SpawnHandle },
    Stopped,
}

impl ToolConnection {
    /// An actor that connects as soon as it is started.
    pub(crate) fn new(
        name: Arc<str>,
        server: Arc<dyn ToolServer>,
        shelf: Arc<Shelf>,
        clock: Arc<dyn Clock>,
        watch: Watch,
    ) -> Self {
        Self {
            name,
            server,
            shelf,
            clock,
            watch,
            state: State::Stopped,
            generation: 0,
            failures: 0,
        }
    }

    fn connect(&mut self, ctx: &mut Context<Self>) {
        self.generation += 1;
        self.watch.set_restarts(self.generation - 1);
        let (generation, connecting) = (self.generation, self.server.connect());
        let work = async move {
            let link = connecting.await?;
            match link.list().await {
                Ok(tools) => Ok((link, tools)),
                Err(error) => {
                    link.close().await;
                    Err(format!("its tools can't be listed: {error}"))
                }
            }
        };
        let work = ctx.spawn(work.into_actor(self).map(move |result, _, ctx| {
            ctx.notify(Connected { generation, result });
        }));
        self.state = State::Starting { work };
        self.watch.set_state("starting", Some(format!("the server {}", self.name)));
        self.shelf.starting(&self.name, generation - 1);
    }

    /// Plans the next try.
    fn back_off(&mut self, reason: String, ctx: &mut Context<Self>) {
        let delay = delay(self.failures, self.clock.seed());
        self.failures = self.failures.saturating_add(1);
        let timer = ctx.notify_later(Retry { generation: self.generation }, delay);
        self.state = State::BackingOff { timer };
        self.watch.fail(&reason);
        self.watch.set_state("backing off", Some(format!("its next start, in {delay:.1?}")));
        tracing::warn!(server = %self.name, %reason, ?delay, "a tool server is unavailable");
        self.shelf.gone(&self.name, ServerState::BackingOff, reason);
    }

    fn wait_for_change(&self, link: &Arc<dyn ToolLink>, ctx: &mut Context<Self>) {
        let (generation, changed) = (self.generation, link.changed());
        ctx.spawn(changed.into_actor(self).map(move |(), _, ctx| {
            ctx.notify(ListChanged { generation });
        }));
    }

    /// Leaves the present state; what was connected is handed over to be closed.
    fn leave(&mut self, ctx: &mut Context<Self>) -> Option<Arc<dyn ToolLink>> {
        match std::mem::replace(&mut self.state, State::Stopped) {
            State::Starting { work: handle } | State::BackingOff { timer: handle } => {
                ctx.cancel_future(handle);
                None
            }
            State::Ready { link, .. } => Some(link),
            State::Stopped => None,
        }
    }
}

impl Actor for ToolConnection {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let obeys = ctx.address().downgrade().recipient();
        self.watch.obeys(&[Order::Stop, Order::Restart], obeys);
        self.connect(ctx);
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        let reason = match self.state {
            State::Stopped => "the connection was stopped",
            State::Starting { .. } | State::Ready { .. } | State::BackingOff { .. } => {
                "the connection's actor failed"
            }
        };
        self.shelf.gone(&self.name, ServerState::Stopped, reason.to_owned());
    }
}

/// The server answered, or did not.
#[derive(Message)]
#[rtype(result = "()")]
struct Connected {
    generation: u64,
    result: Result<(Arc<dyn ToolLink>, Vec<RemoteTool>), String>,
}

impl Handler<Connected> for ToolConnection {
    type Result = ();

    fn handle(&mut self, message: Connected, ctx: &mut Self::Context) {
        if message.generation != self.generation {
            return;
        }
        self.watch.begin("Connected");
        match message.result {
            Ok((link, tools)) => {
                tracing::info!(server = %self.name, tools = tools.len(), "a tool server is ready");
                let (generation, closed) = (self.generation, link.closed());
                ctx.spawn(closed.into_actor(self).map(move |reason, _, ctx| {
                    ctx.notify(Closed { generation, reason });
                }));
                self.wait_for_change(&link, ctx);
                self.watch.set_state("ready", None);
                self.shelf.ready(&self.name, link.clone(), tools);
                self.state = State::Ready { link, since: Instant::now() };
            }
            Err(reason) => self.back_off(reason, ctx),
        }
        self.watch.end();
    }
}

/// The connection is gone.
#[derive(Message)]
#[rtype(result = "()")]
struct Closed {
    generation: u64,
    reason: String,
}

impl Handler<Closed> for ToolConnection {
    type Result = ();

    fn handle(&mut self, message: Closed, ctx: &mut Self::Context) {
        let State::Ready { link, since } = &self.state else { return };
        if message.generation != self.generation {
            return;
        }
        self.watch.begin("Closed");
        if since.elapsed() >= CONNECTION_STABLE_AFTER {
            self.failures = 0;
        }
        // Whatever is left of it goes away beside us.
        actix_rt::spawn(link.close());
        self.back_off(message.reason, ctx);
        self.watch.end();
    }
}

/// It is time for another try.
#[derive(Message)]
#[rtype(result = "()")]
struct Retry {
    generation: u64,
}

impl Handler<Retry> for ToolConnection {
    type Result = ();

    fn handle(&mut self, message: Retry, ctx: &mut Self::Context) {
        if message.generation == self.generation && matches!(self.state, State::BackingOff { .. }) {
            self.watch.begin("Retry");
            self.connect(ctx);
            self.watch.end();
        }
    }
}

/// The server says that its list is another one now.
#[derive(Message)]
#[rtype(result = "()")]
struct ListChanged {
    generation: u64,
}

impl Handler<ListChanged> for ToolConnection {
    type Result = ();

    fn handle(&mut self, message: ListChanged, ctx: &mut Self::Context) {
        let State::Ready { link, .. } = &self.state else { return };
        if message.generation != self.generation {
            return;
        }
        self.watch.begin("ListChanged");
        let (generation, listing) = (self.generation, link.list());
        ctx.spawn(listing.into_actor(self).map(move |result, _, ctx| {
            ctx.notify(Relisted { generation, result });
        }));
        self.watch.end();
    }
}

/// The list was read again.
#[derive(Message)]
#[rtype(result = "()")]
struct Relisted {
    generation: u64,
    result: Result<Vec<RemoteTool>, String>,
}

impl Handler<Relisted> for ToolConnection {
    type Result = ();

    fn handle(&mut self, message: Relisted, ctx: &mut Self::Context) {
        let State::Ready { link, .. } = &self.state else { return };
        if message.generation != self.generation {
            return;
        }
        self.watch.begin("Relisted");
        match message.result {
            Ok(tools) => self.shelf.ready(&self.name, link.clone(), tools),
            // The old list stays: it is the best there is.
            Err(error) => {
                tracing::warn!(server = %self.name, %error, "a changed list of tools can't be read");
                self.watch.fail(&error);
            }
        }
        // A server that announces without end must not keep us listing without end.
        let link = link.clone();
        ctx.run_later(RELIST_INTERVAL, move |actor, ctx| actor.wait_for_change(&link, ctx));
        self.watch.end();
    }
}

/// Ends the connection and the actor; answered when the server is gone.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Stop;

impl Handler<Stop> for ToolConnection {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) -> Self::Result {
        self.watch.begin("Stop");
        self.watch.set_state("stopped", None);
        self.generation += 1;
        let link = self.leave(ctx);
        let closing = async move {
            if let Some(link) = link {
                link.close().await;
            }
        };
        Box::pin(closing.into_actor(self).map(|(), actor, ctx| {
            actor.watch.end();
            ctx.stop();
        }))
    }
}

/// Stopped, it stays away until it is restarted (A2).
impl Handler<Obey> for ToolConnection {
    type Result = ();

    fn handle(&mut self, Obey { order, .. }: Obey, ctx: &mut Self::Context) {
        match order {
            Order::Restart => self.handle(Restart, ctx),
            Order::Stop => {
                self.watch.begin("Obey");
                // What is on its way from this connection is of no interest any more.
                self.generation += 1;
                if let Some(link) = self.leave(ctx) {
                    actix_rt::spawn(link.close());
                }
                let reason = "an administrator stopped it".to_owned();
                self.watch.set_state("stopped", Some("an administrator, to restart it".to_owned()));
                self.shelf.gone(&self.name, ServerState::Stopped, reason);
                self.watch.end();
            }
        }
    }
}

/// Ends the connection, if there is one, and connects anew at once.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Restart;

impl Handler<Restart> for ToolConnection {
    type Result = ();

    fn handle(&mut self, _: Restart, ctx: &mut Self::Context) {
        self.watch.begin("Restart");
        if let Some(link) = self.leave(ctx) {
            actix_rt::spawn(link.close());
        }
        self.failures = 0;
        self.connect(ctx);
        self.watch.end();
    }
}

/// The delay after so many failures in a row: doubles up to a cap; the second half of it is chance,
/// so that servers that died together don't come back together.
fn delay(failures: u32, seed: u64) -> Duration {
    let doubled = RECONNECT_DELAY_BASE.saturating_mul(2u32.saturating_pow(failures.min(16)));
    let whole = doubled.min(RECONNECT_DELAY_CAP);
    let per_mille = u32::try_from(seed % 1000).unwrap_or_default();
    whole / 2 + whole / 2 * per_mille / 1000
}

#[cfg(test)]
#[path = "tool_connection_tests.rs"]
mod tests;
