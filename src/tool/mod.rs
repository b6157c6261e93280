//! Where tools come from: MCP servers, as configuration names them (T1).
//!
//! [`start`] turns configuration into live connections; everything of MCP's wire stays in here.
//! Called once, at start-up. `docs/tools.md` explains to people what this does.

mod address_policy;
mod call;
mod child_process;
mod connector;
mod elicitation;
mod json_repair;
mod late_results;
mod mcp_client;
mod message_scanner;
mod oversized_message;
mod prompts;
mod read_resource;
mod resources;
mod result;
mod stdio;

pub use read_resource::ReadResourceTool;

use crate::{configuration, redaction::Redactor};
use greenroom_actors::{
    ports::Clock,
    status_board::StatusBoard,
    tool_servers::{ToolServerSpec, ToolServers},
};
use greenroom_core::policy::Catalog;
use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

/// Time for a server to start, shake hands and list its tools, where nothing else is said.
pub const START_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// Bytes of one message of a server, where nothing else is said. A longer result is cut while it
/// is read, so this also bounds what a call may hold in memory.
pub const MESSAGE_BYTES_MAX_DEFAULT: usize = 2 * 1024 * 1024;
/// Tools read from one server; the rest of its list is left alone.
pub(crate) const TOOLS_LISTED_MAX: usize = 4096;
/// Pages of one server's list of tools.
pub(crate) const LIST_PAGES_MAX: usize = 256;

/// An MCP server.
#[derive(Clone)]
pub struct ToolServerConfig {
    /// Unique among the servers.
    pub name: String,
    /// How it is reached.
    pub transport: ToolTransport,
    /// Whether its annotations count as much as the catalog (G1).
    pub trusted: bool,
    /// How the conversation begins.
    pub lifecycle: McpLifecycle,
    /// Time to start, shake hands and list its tools.
    pub start_timeout: Duration,
    /// Bytes of one of its messages.
    pub message_bytes_max: usize,
    /// Takes its secrets out of what is told of its failures (E7).
    pub redactor: Arc<Redactor>,
}

/// How a server is reached. No `Debug`: environment and headers hold secrets.
#[derive(Clone)]
pub enum ToolTransport {
    /// A child process, spoken to over its standard input and output.
    Stdio {
        /// The program; looked up in `PATH` unless it has a slash. No shell is involved.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Its environment, besides [`INHERITED_ENVIRONMENT`].
        env: BTreeMap<String, String>,
        /// The folder it starts in; ours if absent.
        cwd: Option<PathBuf>,
    },
    /// Streamable HTTP.
    Http {
        /// Where it is.
        url: String,
        /// Sent with every request.
        headers: BTreeMap<String, String>,
        /// Whether it may be on this machine or in a private network (X5).
        allow_private: bool,
    },
}

/// What children get of our own environment; all else must be named for them (X5).
pub const INHERITED_ENVIRONMENT: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];

/// How a conversation with a server begins: MCP has two ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum McpLifecycle {
    /// Ask with `server/discover`, and shake hands the older way where that is not known. A server
    /// that is silent about what it does not know costs ten seconds: give it `Initialize`.
    #[default]
    Auto,
    /// The handshake of the revisions up to 2025-11-25.
    Initialize,
    /// `server/discover`, as from 2026-07-28 on.
    Discover,
}

impl ToolServerConfig {
    /// A server with the defaults.
    pub fn new(name: impl Into<String>, transport: ToolTransport) -> Self {
        Self {
            name: name.into(),
            transport,
            trusted: false,
            lifecycle: McpLifecycle::default(),
            start_timeout: START_TIMEOUT_DEFAULT,
            message_bytes_max: MESSAGE_BYTES_MAX_DEFAULT,
            redactor: Arc::default(),
        }
    }
}

impl From<&configuration::McpServerConfig> for ToolServerConfig {
    fn from(server: &configuration::McpServerConfig) -> Self {
        let exposed = |secrets: &BTreeMap<String, configuration::Secret>| {
            let own = |(key, secret): (&String, &configuration::Secret)| {
                (key.clone(), secret.expose().to_owned())
            };
            secrets.iter().map(own).collect()
        };
        let transport = match &server.transport {
            configuration::McpTransportConfig::Stdio { command, args, env, cwd } => {
                ToolTransport::Stdio {
                    command: command.clone(),
                    args: args.clone(),
                    env: exposed(env),
                    cwd: cwd.clone(),
                }
            }
            configuration::McpTransportConfig::Http { url, headers } => ToolTransport::Http {
                url: url.clone(),
                headers: exposed(headers),
                allow_private: server.allow_private,
            },
        };
        Self {
            trusted: server.trusted,
            lifecycle: match server.lifecycle {
                configuration::McpLifecycleConfig::Auto => McpLifecycle::Auto,
                configuration::McpLifecycleConfig::Initialize => McpLifecycle::Initialize,
                configuration::McpLifecycleConfig::Discover => McpLifecycle::Discover,
            },
            start_timeout: server.timeout.unwrap_or(START_TIMEOUT_DEFAULT),
            redactor: Arc::new(Redactor::new(server.secrets())),
            ..Self::new(server.name.clone(), transport)
        }
    }
}

impl From<configuration::McpServerConfig> for ToolServerConfig {
    fn from(server: configuration::McpServerConfig) -> Self {
        Self::from(&server)
    }
}

/// Connects to all servers, on the calling arbiter; returns at once ([`Tools::ready`] waits).
pub fn start(
    servers: impl IntoIterator<Item = ToolServerConfig>,
    catalog: Catalog,
    board: &StatusBoard,
    clock: &Arc<dyn Clock>,
) -> ToolServers {
    start_with_built_in(servers, None, catalog, board, clock)
}

/// The same, with tools of our own.
pub fn start_with_built_in(
    servers: impl IntoIterator<Item = ToolServerConfig>,
    built_in: Option<ToolServerSpec>,
    catalog: Catalog,
    board: &StatusBoard,
    clock: &Arc<dyn Clock>,
) -> ToolServers {
    let spec = |config: ToolServerConfig| ToolServerSpec {
        name: config.name.clone(),
        trusted: config.trusted,
        server: Arc::new(connector::McpConnector::new(config)),
    };
    ToolServers::start(catalog, servers.into_iter().map(spec).chain(built_in), board, clock)
}
