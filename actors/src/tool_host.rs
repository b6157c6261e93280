//! All tool servers together: one book of their tools, and each call to the right connection.
//!
//! [`Tools`] is the [`ToolHost`] of the running program. Connections put what they learn on the
//! [`Shelf`]; readers take a snapshot of it and wait for nobody. It knows nothing of wires.

use actix::Actor;
use futures::future::{BoxFuture, FutureExt, join_all};
use greenroom_core::{
    call::ToolOutcome,
    policy::{Catalog, RemoteTool, ServerFacts, ServerTools, ToolBook},
};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, RwLock},
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    mailbox::Mailbox,
    observation::Board,
    ports::{Clock, Progress, ToolCall, ToolHost},
    tool_connection::{Restart, Stop, ToolConnection, ToolLink, ToolServer},
};

/// A server to be connected.
pub struct ServerSpec {
    /// Its name in configuration.
    pub name: String,
    /// Whether its annotations count (G1).
    pub trusted: bool,
    /// How it is reached.
    pub server: Arc<dyn ToolServer>,
}

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// It is being started.
    Starting,
    /// It answers.
    Ready,
    /// It failed; another try comes.
    BackingOff,
    /// It was stopped.
    Stopped,
}

/// A server, as administrators see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerStatus {
    /// Its name in configuration.
    pub name: String,
    /// What its connection is doing.
    pub state: ServerState,
    /// Why it is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Tools it listed last.
    pub tools: usize,
    /// Times it was brought back.
    pub restarts: u64,
}

/// Every tool there is, wherever it runs. Cheap to clone.
#[derive(Clone)]
pub struct Tools {
    shelf: Arc<Shelf>,
    connections: Arc<BTreeMap<String, Mailbox<ToolConnection>>>,
}

impl Tools {
    /// Starts a connection for each server, on the calling arbiter, and returns at once; see
    /// [`Tools::ready`]. Of two servers with one name the later stands.
    pub fn start(
        catalog: Catalog,
        servers: impl IntoIterator<Item = ServerSpec>,
        board: &Board,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let specs: BTreeMap<String, ServerSpec> =
            servers.into_iter().map(|spec| (spec.name.clone(), spec)).collect();
        let shelf = Arc::new(Shelf::new(catalog, specs.values()));
        let mut connections = BTreeMap::new();
        for (name, spec) in specs {
            let watch = board.watch(format!("/tools/{name}"), "ToolConnection");
            let connection = ToolConnection::new(
                name.as_str().into(),
                spec.server,
                shelf.clone(),
                clock.clone(),
                watch.clone(),
            );
            connections.insert(name, Mailbox::new(connection.start(), watch));
        }
        Self { shelf, connections: Arc::new(connections) }
    }

    /// Resolves when every server is ready or has failed its first start.
    pub fn ready(&self) -> impl Future<Output = ()> + Send + 'static {
        let shelf = self.shelf.clone();
        let mut versions = shelf.version.subscribe();
        async move {
            while !shelf.snapshot().servers.values().all(|entry| entry.settled) {
                if versions.changed().await.is_err() {
                    return;
                }
            }
        }
    }

    /// All servers, by name.
    pub fn status(&self) -> Vec<ServerStatus> {
        let snapshot = self.shelf.snapshot();
        snapshot.servers.iter().map(|(name, entry)| entry.status(name)).collect()
    }

    /// A number that changes whenever [`Tools::status`] or the book may have.
    pub fn versions(&self) -> watch::Receiver<u64> {
        self.shelf.version.subscribe()
    }

    /// Ends one server's connection and connects anew. `false` if there is no such server, or its
    /// connection was stopped for good.
    pub fn restart(&self, name: &str) -> bool {
        self.connections.get(name).is_some_and(|connection| connection.post(Restart).is_ok())
    }

    /// Ends all connections; resolves when every server is gone.
    pub fn shutdown(&self) -> impl Future<Output = ()> + Send + 'static {
        let connections = self.connections.clone();
        // No answer means that the actor is gone already.
        async move { drop(join_all(connections.values().map(|it| it.ask(Stop))).await) }
    }
}

impl ToolHost for Tools {
    fn book(&self) -> Arc<ToolBook> {
        self.shelf.snapshot().book.clone()
    }

    fn servers(&self) -> Vec<ServerStatus> {
        self.status()
    }

    fn call(
        &self,
        mut call: ToolCall,
        progress: mpsc::Sender<Progress>,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, ToolOutcome> {
        let snapshot = self.shelf.snapshot();
        let not_sent = |error: String| futures::future::ready(ToolOutcome::NotSent { error });
        let Some(tool) = snapshot.book.get(&call.tool) else {
            return not_sent(format!("there is no tool `{}`", call.tool)).boxed();
        };
        let entry = snapshot.servers.get(&tool.server);
        let Some(link) = entry.and_then(|entry| entry.link.as_ref()) else {
            let reason = entry.and_then(|entry| entry.reason.as_deref()).unwrap_or("not connected");
            let server = &tool.server;
            return not_sent(format!("tool server `{server}` is unavailable: {reason}")).boxed();
        };
        tool.remote_name.clone_into(&mut call.tool);
        link.call(call, progress, cancel)
    }
}

/// What the connections know, for everyone to read. Written by [`ToolConnection`] alone.
pub(crate) struct Shelf {
    catalog: Catalog,
    /// Held while a new snapshot is made, so that none is lost.
    writing: Mutex<()>,
    snapshot: RwLock<Arc<Snapshot>>,
    version: watch::Sender<u64>,
}

#[derive(Clone, Default)]
struct Snapshot {
    servers: BTreeMap<String, Entry>,
    book: Arc<ToolBook>,
}

#[derive(Clone)]
struct Entry {
    listed: Arc<ServerTools>,
    link: Option<Arc<dyn ToolLink>>,
    state: ServerState,
    reason: Option<String>,
    restarts: u64,
    settled: bool,
}

impl Entry {
    fn status(&self, name: &str) -> ServerStatus {
        ServerStatus {
            name: name.to_owned(),
            state: self.state,
            reason: self.reason.clone(),
            tools: self.listed.tools.len(),
            restarts: self.restarts,
        }
    }

    fn set(&mut self, tools: Option<Vec<RemoteTool>>, unavailable: Option<String>) {
        let listed = Arc::make_mut(&mut self.listed);
        if let Some(tools) = tools {
            listed.tools = tools;
        }
        listed.server.unavailable.clone_from(&unavailable);
        self.reason = unavailable;
    }
}

impl Shelf {
    fn new<'a>(catalog: Catalog, specs: impl Iterator<Item = &'a ServerSpec>) -> Self {
        let entry = |spec: &ServerSpec| {
            let server =
                ServerFacts { name: spec.name.clone(), trusted: spec.trusted, unavailable: None };
            let entry = Entry {
                listed: Arc::new(ServerTools { server, tools: Vec::new() }),
                link: None,
                state: ServerState::Starting,
                reason: Some("it is starting".to_owned()),
                restarts: 0,
                settled: false,
            };
            (spec.name.clone(), entry)
        };
        let servers = specs.map(entry).collect();
        let snapshot = Snapshot { servers, book: Arc::default() };
        Self {
            catalog,
            writing: Mutex::default(),
            snapshot: RwLock::new(Arc::new(snapshot)),
            version: watch::Sender::new(0),
        }
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A server is being started, for the `restarts`th time after the first.
    pub(crate) fn starting(&self, name: &str, restarts: u64) {
        self.change(name, |entry| {
            entry.state = ServerState::Starting;
            entry.link = None;
            entry.restarts = restarts;
            let reason = match entry.reason.take() {
                Some(reason) if restarts > 0 => reason,
                _ => "it is starting".to_owned(),
            };
            entry.set(None, Some(reason));
        });
    }

    /// A server answers, and these are its tools.
    pub(crate) fn ready(&self, name: &str, link: Arc<dyn ToolLink>, tools: Vec<RemoteTool>) {
        self.change(name, |entry| {
            entry.state = ServerState::Ready;
            entry.link = Some(link);
            entry.settled = true;
            entry.set(Some(tools), None);
        });
    }

    /// A server can't be used; its tools stay known.
    pub(crate) fn gone(&self, name: &str, state: ServerState, reason: String) {
        self.change(name, |entry| {
            entry.state = state;
            entry.link = None;
            entry.settled = true;
            entry.set(None, Some(reason));
        });
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut Entry)) {
        let writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = Snapshot::clone(&self.snapshot());
        if let Some(entry) = next.servers.get_mut(name) {
            change(entry);
        }
        let listed = next.servers.values().map(|entry| &*entry.listed);
        next.book = Arc::new(self.catalog.book(listed));
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        drop(writing);
        self.version.send_modify(|version| *version += 1);
    }
}
