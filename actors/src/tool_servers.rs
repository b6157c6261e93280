//! All tool servers together: one book of their tools, and each call to the right connection.
//!
//! [`Tools`] is the [`ToolHost`] of the running program. Connections put what they learn on the
//! [`Shelf`]; readers take a snapshot of it and wait for nobody. It knows nothing of wires.

use actix::Actor;
use futures::future::{BoxFuture, FutureExt, join_all};
use greenroom_core::{
    call::{ToolOutcome, ToolOutput},
    circuit_breaker,
    policy::{Catalog, RemoteTool, ServerProfile, ServerTools, ToolRegistry},
};
use serde::Serialize;
use serde_json::{Map, Value};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, RwLock},
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    circuit_breaker::EndpointBreaker,
    mailbox::Mailbox,
    ports::{Clock, Progress, ServerPrompt, ServerResource, ToolCall, ToolHost},
    result_cache::{self, ResultCache},
    status_board::StatusBoard,
    tool_connection::{RestartConnection, StopConnection, ToolClient, ToolConnection, ToolServer},
};
use utoipa::ToSchema;

/// A server to be connected.
pub struct ToolServerSpec {
    /// Its name in configuration.
    pub name: String,
    /// Whether its annotations count (G1).
    pub trusted: bool,
    /// How it is reached.
    pub server: Arc<dyn ToolServer>,
}

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
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
    /// Whether it is asked, or left alone because it failed again and again (R4).
    pub circuit: circuit_breaker::CircuitState,
}

/// Every tool there is, wherever it runs. Cheap to clone.
#[derive(Clone)]
pub struct ToolServers {
    directory: Arc<ServerDirectory>,
    connections: Arc<BTreeMap<String, Connection>>,
    results: Arc<ResultCache>,
    clock: Arc<dyn Clock>,
}

/// A server's actor, and its circuit.
struct Connection {
    mailbox: Mailbox<ToolConnection>,
    circuit: Arc<EndpointBreaker>,
}

impl ToolServers {
    /// Starts a connection for each server, on the calling arbiter, and returns at once; see
    /// [`Tools::ready`]. Of two servers with one name the later stands.
    pub fn start(
        catalog: Catalog,
        servers: impl IntoIterator<Item = ToolServerSpec>,
        board: &StatusBoard,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let specs: BTreeMap<String, ToolServerSpec> =
            servers.into_iter().map(|spec| (spec.name.clone(), spec)).collect();
        let directory = Arc::new(ServerDirectory::new(catalog, specs.values()));
        let mut connections = BTreeMap::new();
        for (name, spec) in specs {
            let watch = board.register(format!("/tools/{name}"), "ToolConnection");
            let connection = ToolConnection::new(
                name.as_str().into(),
                spec.server,
                directory.clone(),
                clock.clone(),
                watch.clone(),
            );
            let what = format!("the tool server `{name}`");
            let circuit = EndpointBreaker::new(&format!("tools/{name}"), what, board, clock);
            let mailbox = Mailbox::new(connection.start(), watch);
            connections.insert(name, Connection { mailbox, circuit });
        }
        let (connections, results) = (Arc::new(connections), Arc::default());
        Self { directory, connections, results, clock: clock.clone() }
    }

    /// Resolves when every server is ready or has failed its first start.
    pub fn wait_until_started(&self) -> impl Future<Output = ()> + Send + 'static {
        let shelf = self.directory.clone();
        let mut versions = shelf.version.subscribe();
        async move {
            while !shelf.snapshot().servers.values().all(|entry| entry.first_start_done) {
                if versions.changed().await.is_err() {
                    return;
                }
            }
        }
    }

    /// All servers, by name.
    pub fn statuses(&self) -> Vec<ServerStatus> {
        let snapshot = self.directory.snapshot();
        let circuit = |name: &str| {
            let connection = self.connections.get(name);
            connection.map_or(circuit_breaker::CircuitState::Closed, |connection| {
                connection.circuit.state()
            })
        };
        let servers = snapshot.servers.iter();
        servers.map(|(name, entry)| entry.status(name, circuit(name))).collect()
    }

    /// A number that changes whenever [`Tools::status`] or the book may have.
    pub fn subscribe_changes(&self) -> watch::Receiver<u64> {
        self.directory.version.subscribe()
    }

    /// Ends one server's connection and connects anew. `false` if there is no such server, or its
    /// connection was stopped for good.
    pub fn restart(&self, name: &str) -> bool {
        self.results.remove_server(name);
        self.connections.get(name).is_some_and(|connection| {
            connection.circuit.reset();
            connection.mailbox.try_send(RestartConnection).is_ok()
        })
    }

    /// Ends all connections; resolves when every server is gone.
    pub fn shut_down(&self) -> impl Future<Output = ()> + Send + 'static {
        let connections = self.connections.clone();
        // No answer means that the actor is gone already.
        async move {
            drop(join_all(connections.values().map(|it| it.mailbox.ask(StopConnection))).await)
        }
    }
}

impl ToolHost for ToolServers {
    fn tool_registry(&self) -> Arc<ToolRegistry> {
        self.directory.snapshot().registry.clone()
    }

    fn server_statuses(&self) -> Vec<ServerStatus> {
        self.statuses()
    }

    fn list_prompts(&self) -> BoxFuture<'static, Vec<ServerPrompt>> {
        let snapshot = self.directory.snapshot();
        let of_server = |(name, entry): (&String, &ServerEntry)| {
            let (name, link) = (name.clone(), entry.client.clone()?);
            Some(async move {
                let mut prompts = link.list_prompts().await;
                prompts.iter_mut().for_each(|prompt| prompt.server.clone_from(&name));
                prompts
            })
        };
        let asked: Vec<_> = snapshot.servers.iter().filter_map(of_server).collect();
        join_all(asked).map(|prompts| prompts.into_iter().flatten().collect()).boxed()
    }

    fn get_prompt(
        &self,
        server: &str,
        name: &str,
        arguments: Map<String, Value>,
    ) -> BoxFuture<'static, Result<String, String>> {
        let snapshot = self.directory.snapshot();
        match snapshot.servers.get(server).and_then(|entry| entry.client.as_ref()) {
            Some(link) => link.get_prompt(name, arguments),
            None => {
                let error = format!("the tool server `{server}` is not connected");
                futures::future::ready(Err(error)).boxed()
            }
        }
    }

    fn list_resources(&self) -> BoxFuture<'static, Vec<ServerResource>> {
        let snapshot = self.directory.snapshot();
        let of_server = |(name, entry): (&String, &ServerEntry)| {
            let (name, link) = (name.clone(), entry.client.clone()?);
            Some(async move {
                let mut resources = link.list_resources().await;
                resources.iter_mut().for_each(|it| it.server.clone_from(&name));
                resources
            })
        };
        let asked: Vec<_> = snapshot.servers.iter().filter_map(of_server).collect();
        join_all(asked).map(|resources| resources.into_iter().flatten().collect()).boxed()
    }

    fn read_resource(
        &self,
        server: &str,
        uri: &str,
        bytes_max: usize,
    ) -> BoxFuture<'static, Result<ToolOutput, String>> {
        let snapshot = self.directory.snapshot();
        match snapshot.servers.get(server).and_then(|entry| entry.client.as_ref()) {
            Some(link) => link.read_resource(uri, bytes_max),
            None => {
                let error = format!("the tool server `{server}` is not connected");
                futures::future::ready(Err(error)).boxed()
            }
        }
    }

    fn call_tool(
        &self,
        mut call: ToolCall,
        progress: mpsc::Sender<Progress>,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, ToolOutcome> {
        let snapshot = self.directory.snapshot();
        let not_sent = |error: String| futures::future::ready(ToolOutcome::NotSent { error });
        let Some(tool) = snapshot.registry.get(&call.tool) else {
            return not_sent(format!("there is no tool `{}`", call.tool)).boxed();
        };
        let kept =
            tool.cache_ttl.map(|ttl| (result_cache::CacheKey::new(tool, &call.arguments), ttl));
        if let Some(output) =
            kept.as_ref().and_then(|(key, _)| self.results.get(key, self.clock.now()))
        {
            return futures::future::ready(ToolOutcome::Completed(output)).boxed();
        }
        let entry = snapshot.servers.get(&*tool.server);
        let Some(link) = entry.and_then(|entry| entry.client.as_ref()) else {
            let reason = entry.and_then(|entry| entry.reason.as_deref()).unwrap_or("not connected");
            let server = &tool.server;
            return not_sent(format!("tool server `{server}` is unavailable: {reason}")).boxed();
        };
        let Some(connection) = self.connections.get(&*tool.server) else {
            return not_sent(format!("tool server `{}` is not connected", tool.server)).boxed();
        };
        let mut trying = match connection.circuit.try_acquire() {
            Ok(trying) => trying,
            Err(open) => return not_sent(open.to_string()).boxed(),
        };
        tool.remote_name.clone_into(&mut call.tool);
        let answer = link.call_tool(call, progress, cancel.clone());
        let (results, clock) = (self.results.clone(), self.clock.clone());
        let heard = move |outcome: ToolOutcome| {
            // What was stopped says nothing of the server.
            if cancel.is_cancelled() {
                return outcome;
            }
            match &outcome {
                ToolOutcome::Completed(output) => {
                    trying.record_success();
                    if let Some((key, ttl)) = kept {
                        results.insert(key, output, clock.now(), ttl);
                    }
                }
                ToolOutcome::Failed { .. } => trying.record_success(),
                ToolOutcome::NotSent { error } | ToolOutcome::Crashed { error } => {
                    trying.record_failure(error);
                }
                ToolOutcome::TimedOut { after_ms } => {
                    trying.record_failure(&format!("no answer within {after_ms} ms"));
                }
            }
            outcome
        };
        answer.map(heard).boxed()
    }
}

/// What the connections know, for everyone to read. Written by [`ToolConnection`] alone.
pub(crate) struct ServerDirectory {
    catalog: Catalog,
    /// Held while a new snapshot is made, so that none is lost.
    writing: Mutex<()>,
    snapshot: RwLock<Arc<DirectorySnapshot>>,
    version: watch::Sender<u64>,
}

#[derive(Clone, Default)]
struct DirectorySnapshot {
    servers: BTreeMap<String, ServerEntry>,
    registry: Arc<ToolRegistry>,
}

#[derive(Clone)]
struct ServerEntry {
    server_tools: Arc<ServerTools>,
    client: Option<Arc<dyn ToolClient>>,
    state: ServerState,
    reason: Option<String>,
    restarts: u64,
    first_start_done: bool,
}

impl ServerEntry {
    fn status(&self, name: &str, circuit: circuit_breaker::CircuitState) -> ServerStatus {
        ServerStatus {
            circuit,
            name: name.to_owned(),
            state: self.state,
            reason: self.reason.clone(),
            tools: self.server_tools.tools.len(),
            restarts: self.restarts,
        }
    }

    fn set_availability(&mut self, tools: Option<Vec<RemoteTool>>, unavailable: Option<String>) {
        let listed = Arc::make_mut(&mut self.server_tools);
        if let Some(tools) = tools {
            listed.tools = tools;
        }
        listed.server.unavailable_reason.clone_from(&unavailable);
        self.reason = unavailable;
    }
}

impl ServerDirectory {
    fn new<'a>(catalog: Catalog, specs: impl Iterator<Item = &'a ToolServerSpec>) -> Self {
        let entry = |spec: &ToolServerSpec| {
            let server = ServerProfile {
                name: spec.name.clone(),
                trusted: spec.trusted,
                unavailable_reason: None,
            };
            let entry = ServerEntry {
                server_tools: Arc::new(ServerTools { server, tools: Vec::new() }),
                client: None,
                state: ServerState::Starting,
                reason: Some("it is starting".to_owned()),
                restarts: 0,
                first_start_done: false,
            };
            (spec.name.clone(), entry)
        };
        let servers = specs.map(entry).collect();
        let snapshot = DirectorySnapshot { servers, registry: Arc::default() };
        Self {
            catalog,
            writing: Mutex::default(),
            snapshot: RwLock::new(Arc::new(snapshot)),
            version: watch::Sender::new(0),
        }
    }

    fn snapshot(&self) -> Arc<DirectorySnapshot> {
        self.snapshot.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A server is being started, for the `restarts`th time after the first.
    pub(crate) fn mark_starting(&self, name: &str, restarts: u64) {
        self.update(name, |entry| {
            entry.state = ServerState::Starting;
            entry.client = None;
            entry.restarts = restarts;
            let reason = match entry.reason.take() {
                Some(reason) if restarts > 0 => reason,
                _ => "it is starting".to_owned(),
            };
            entry.set_availability(None, Some(reason));
        });
    }

    /// A server answers, and these are its tools.
    pub(crate) fn mark_ready(&self, name: &str, link: Arc<dyn ToolClient>, tools: Vec<RemoteTool>) {
        self.update(name, |entry| {
            entry.state = ServerState::Ready;
            entry.client = Some(link);
            entry.first_start_done = true;
            entry.set_availability(Some(tools), None);
        });
    }

    /// A server can't be used; its tools stay known.
    pub(crate) fn mark_unavailable(&self, name: &str, state: ServerState, reason: String) {
        self.update(name, |entry| {
            entry.state = state;
            entry.client = None;
            entry.first_start_done = true;
            entry.set_availability(None, Some(reason));
        });
    }

    fn update(&self, name: &str, change: impl FnOnce(&mut ServerEntry)) {
        let writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = DirectorySnapshot::clone(&self.snapshot());
        if let Some(entry) = next.servers.get_mut(name) {
            change(entry);
        }
        let listed = next.servers.values().map(|entry| &*entry.server_tools);
        next.registry = Arc::new(self.catalog.build_registry(listed));
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        drop(writing);
        self.version.send_modify(|version| *version += 1);
    }
}
