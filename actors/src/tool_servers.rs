//! All tool servers: one registry of their tools, and the routing of each call to its connection.
//!
//! [`ToolServers`] is the [`ToolHost`] of the program. Connections store their state in the
//! `ServerDirectory`; readers take a snapshot of it without waiting. This module knows no protocol.

use actix::Actor;
use futures::future::{BoxFuture, FutureExt, join_all};
use greenroom_core::{
    call::{ToolOutcome, ToolOutput},
    circuit_breaker,
    policy::{Catalog, NameOwners, RemoteTool, ServerProfile, ServerTools, ToolRegistry},
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

/// The specification of a server to connect.
pub struct ToolServerSpec {
    /// The server's name in configuration.
    pub name: String,
    /// True if the server's annotations are trusted (G1).
    pub trusted: bool,
    /// The way to connect to the server.
    pub server: Arc<dyn ToolServer>,
}

/// The state of a server's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// The server is being started.
    Starting,
    /// The server is connected.
    Ready,
    /// The connection failed. Another attempt is scheduled.
    BackingOff,
    /// The connection was stopped.
    Stopped,
}

/// The status of a server, as shown to administrators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ServerStatus {
    /// The server's name in configuration.
    pub name: String,
    /// The state of the connection.
    pub state: ServerState,
    /// The reason why the server is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Number of tools in the last list.
    pub tools: usize,
    /// Number of restarts.
    pub restarts: u64,
    /// The state of the server's circuit breaker (R4).
    pub circuit: circuit_breaker::CircuitState,
}

/// The tools of all servers. Cheap to clone.
#[derive(Clone)]
pub struct ToolServers {
    directory: Arc<ServerDirectory>,
    connections: Arc<BTreeMap<String, Connection>>,
    results: Arc<ResultCache>,
    clock: Arc<dyn Clock>,
}

/// The connection actor of a server, and the server's circuit breaker.
struct Connection {
    mailbox: Mailbox<ToolConnection>,
    circuit: Arc<EndpointBreaker>,
}

impl ToolServers {
    /// Starts a connection for each server on the calling arbiter, without waiting for it; see
    /// [`Self::wait_until_started`]. Of two servers with the same name, the last one is used.
    ///
    /// `names` are the owners of short tool names that an earlier process stored (G19).
    pub fn start(
        catalog: Catalog,
        names: NameOwners,
        servers: impl IntoIterator<Item = ToolServerSpec>,
        board: &StatusBoard,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let specs: BTreeMap<String, ToolServerSpec> =
            servers.into_iter().map(|spec| (spec.name.clone(), spec)).collect();
        let directory = Arc::new(ServerDirectory::new(catalog, names, specs.values()));
        let mut connections = BTreeMap::new();
        for (name, spec) in specs {
            let status_entry = board.register(format!("/tools/{name}"), "ToolConnection");
            let connection = ToolConnection::new(
                name.as_str().into(),
                spec.server,
                directory.clone(),
                clock.clone(),
                status_entry.clone(),
            );
            let endpoint = format!("the tool server `{name}`");
            let circuit = EndpointBreaker::new(&format!("tools/{name}"), endpoint, board, clock);
            let mailbox = Mailbox::new(connection.start(), status_entry);
            connections.insert(name, Connection { mailbox, circuit });
        }
        let (connections, results) = (Arc::new(connections), Arc::default());
        Self { directory, connections, results, clock: clock.clone() }
    }

    /// Resolves when every server is ready or its first start has failed.
    pub fn wait_until_started(&self) -> impl Future<Output = ()> + Send + 'static {
        let directory = self.directory.clone();
        let mut versions = directory.version.subscribe();
        async move {
            while !directory.snapshot().servers.values().all(|entry| entry.first_start_done) {
                if versions.changed().await.is_err() {
                    return;
                }
            }
        }
    }

    /// Returns the status of all servers, by name.
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

    /// Returns a counter that increases when [`Self::statuses`] or the tool registry may have
    /// changed.
    pub fn subscribe_changes(&self) -> watch::Receiver<u64> {
        self.directory.version.subscribe()
    }

    /// Returns the current owners of short tool names, and their changes.
    pub fn subscribe_names(&self) -> watch::Receiver<NameOwners> {
        self.directory.names.subscribe()
    }

    /// Reconnects a server. Returns false if there is no such server, or if its connection actor
    /// has stopped.
    pub fn restart(&self, name: &str) -> bool {
        self.results.remove_server(name);
        self.connections.get(name).is_some_and(|connection| {
            connection.circuit.reset();
            connection.mailbox.try_send(RestartConnection).is_ok()
        })
    }

    /// Closes all connections. Resolves when every server has ended.
    pub fn shut_down(&self) -> impl Future<Output = ()> + Send + 'static {
        let connections = self.connections.clone();
        // Without a reply, the actor has already stopped.
        async move {
            drop(
                join_all(
                    connections
                        .values()
                        .map(|connection| connection.mailbox.request(StopConnection)),
                )
                .await,
            )
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
        let list_from = |(name, entry): (&String, &ServerEntry)| {
            let (name, client) = (name.clone(), entry.client.clone()?);
            Some(async move {
                let mut prompts = client.list_prompts().await;
                prompts.iter_mut().for_each(|prompt| prompt.server.clone_from(&name));
                prompts
            })
        };
        let requests: Vec<_> = snapshot.servers.iter().filter_map(list_from).collect();
        join_all(requests).map(|prompts| prompts.into_iter().flatten().collect()).boxed()
    }

    fn get_prompt(
        &self,
        server: &str,
        name: &str,
        arguments: Map<String, Value>,
    ) -> BoxFuture<'static, Result<String, String>> {
        let snapshot = self.directory.snapshot();
        match snapshot.servers.get(server).and_then(|entry| entry.client.as_ref()) {
            Some(client) => client.get_prompt(name, arguments),
            None => {
                let error = format!("the tool server `{server}` is not connected");
                futures::future::ready(Err(error)).boxed()
            }
        }
    }

    fn list_resources(&self) -> BoxFuture<'static, Vec<ServerResource>> {
        let snapshot = self.directory.snapshot();
        let list_from = |(name, entry): (&String, &ServerEntry)| {
            let (name, client) = (name.clone(), entry.client.clone()?);
            Some(async move {
                let mut resources = client.list_resources().await;
                resources.iter_mut().for_each(|resource| resource.server.clone_from(&name));
                resources
            })
        };
        let requests: Vec<_> = snapshot.servers.iter().filter_map(list_from).collect();
        join_all(requests).map(|resources| resources.into_iter().flatten().collect()).boxed()
    }

    fn read_resource(
        &self,
        server: &str,
        uri: &str,
        bytes_max: usize,
    ) -> BoxFuture<'static, Result<ToolOutput, String>> {
        let snapshot = self.directory.snapshot();
        match snapshot.servers.get(server).and_then(|entry| entry.client.as_ref()) {
            Some(client) => client.read_resource(uri, bytes_max),
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
        let cache_slot =
            tool.cache_ttl.map(|ttl| (result_cache::CacheKey::new(tool, &call.arguments), ttl));
        if let Some(output) =
            cache_slot.as_ref().and_then(|(key, _)| self.results.get(key, self.clock.now()))
        {
            return futures::future::ready(ToolOutcome::Completed(output)).boxed();
        }
        let entry = snapshot.servers.get(&*tool.server);
        let Some(client) = entry.and_then(|entry| entry.client.as_ref()) else {
            let reason = entry.and_then(|entry| entry.reason.as_deref()).unwrap_or("not connected");
            let server = &tool.server;
            return not_sent(format!("tool server `{server}` is unavailable: {reason}")).boxed();
        };
        let Some(connection) = self.connections.get(&*tool.server) else {
            return not_sent(format!("tool server `{}` is not connected", tool.server)).boxed();
        };
        let mut permit = match connection.circuit.try_acquire() {
            Ok(permit) => permit,
            Err(unavailable) => return not_sent(unavailable.to_string()).boxed(),
        };
        tool.remote_name.clone_into(&mut call.tool);
        let answer = client.call_tool(call, progress, cancel.clone());
        let (results, clock) = (self.results.clone(), self.clock.clone());
        let record_outcome = move |outcome: ToolOutcome| {
            // A cancelled attempt shows nothing about the server.
            if cancel.is_cancelled() {
                return outcome;
            }
            match &outcome {
                ToolOutcome::Completed(output) => {
                    permit.record_success();
                    if let Some((key, ttl)) = cache_slot {
                        results.insert(key, output, clock.now(), ttl);
                    }
                }
                ToolOutcome::Failed { .. } => permit.record_success(),
                ToolOutcome::NotSent { error } | ToolOutcome::Crashed { error } => {
                    permit.record_failure(error);
                }
                ToolOutcome::TimedOut { after_ms } => {
                    permit.record_failure(&format!("no answer within {after_ms} ms"));
                }
            }
            outcome
        };
        answer.map(record_outcome).boxed()
    }
}

/// The state of all connections. Written only by [`ToolConnection`].
pub(crate) struct ServerDirectory {
    catalog: Catalog,
    /// The owners of short tool names. Changed only with `write_lock`.
    names: watch::Sender<NameOwners>,
    /// Held while a new snapshot is built, so that concurrent updates are not lost.
    write_lock: Mutex<()>,
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
        let server_tools = Arc::make_mut(&mut self.server_tools);
        if let Some(tools) = tools {
            server_tools.tools = tools;
        }
        server_tools.server.unavailable_reason.clone_from(&unavailable);
        self.reason = unavailable;
    }
}

impl ServerDirectory {
    fn new<'a>(
        catalog: Catalog,
        names: NameOwners,
        specs: impl Iterator<Item = &'a ToolServerSpec>,
    ) -> Self {
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
                reason: Some("starting".to_owned()),
                restarts: 0,
                first_start_done: false,
            };
            (spec.name.clone(), entry)
        };
        let servers = specs.map(entry).collect();
        let snapshot = DirectorySnapshot { servers, registry: Arc::default() };
        Self {
            catalog,
            names: watch::Sender::new(names),
            write_lock: Mutex::default(),
            snapshot: RwLock::new(Arc::new(snapshot)),
            version: watch::Sender::new(0),
        }
    }

    fn snapshot(&self) -> Arc<DirectorySnapshot> {
        self.snapshot.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records that a server is being started. `restarts` does not count the first start.
    pub(crate) fn mark_starting(&self, name: &str, restarts: u64) {
        self.update(name, |entry| {
            entry.state = ServerState::Starting;
            entry.client = None;
            entry.restarts = restarts;
            let reason = match entry.reason.take() {
                Some(reason) if restarts > 0 => reason,
                _ => "starting".to_owned(),
            };
            entry.set_availability(None, Some(reason));
        });
    }

    /// Records that a server is connected, with its tools.
    pub(crate) fn mark_ready(
        &self,
        name: &str,
        client: Arc<dyn ToolClient>,
        tools: Vec<RemoteTool>,
    ) {
        self.update(name, |entry| {
            entry.state = ServerState::Ready;
            entry.client = Some(client);
            entry.first_start_done = true;
            entry.set_availability(Some(tools), None);
        });
    }

    /// Records that a server is unavailable. Its tools stay in the registry.
    pub(crate) fn mark_unavailable(&self, name: &str, state: ServerState, reason: String) {
        self.update(name, |entry| {
            entry.state = state;
            entry.client = None;
            entry.first_start_done = true;
            entry.set_availability(None, Some(reason));
        });
    }

    fn update(&self, name: &str, change: impl FnOnce(&mut ServerEntry)) {
        let write_guard = self.write_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = DirectorySnapshot::clone(&self.snapshot());
        if let Some(entry) = next.servers.get_mut(name) {
            change(entry);
        }
        let server_tools = || next.servers.values().map(|entry| &*entry.server_tools);
        // At the first start of several servers, the order in which they connect decides nothing: until
        // each has listed its tools or failed, a name without an owner stays without one.
        if next.servers.values().all(|entry| entry.first_start_done) {
            self.names.send_if_modified(|names| names.claim(server_tools()));
        }
        let registry = self.catalog.build_registry_with_names(server_tools(), &self.names.borrow());
        next.registry = Arc::new(registry);
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        drop(write_guard);
        self.version.send_modify(|version| *version += 1);
    }
}
