//! MCP tool servers: connects to the configured servers and implements the tool ports (T1).
//!
//! [`start`] creates the connections from the configuration; it is called once at start. All knowledge
//! of the MCP wire protocol is in this module. `docs/tools.md` documents its behaviour.

mod address_policy;
mod call;
mod child_process;
mod connector;
#[cfg(test)]
mod decoder_fuzz;
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
use greenroom_core::policy::{Catalog, NameOwners};
use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

/// Default time for a server to start, complete the handshake and list its tools.
pub const START_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// Default maximum bytes of one message of a server. A longer result is truncated while it is
/// received, so this also limits the memory of a call.
pub const MESSAGE_BYTES_MAX_DEFAULT: usize = 2 * 1024 * 1024;
/// Maximum number of tools read from one server; further tools are ignored.
pub(crate) const TOOLS_LISTED_MAX: usize = 4096;
/// Maximum number of pages read of a server's list.
pub(crate) const LIST_PAGES_MAX: usize = 256;

/// The configuration of an MCP server.
#[derive(Clone)]
pub struct ToolServerConfig {
    /// The name, unique among the servers.
    pub name: String,
    /// The transport and its parameters.
    pub transport: ToolTransport,
    /// True if the server's tool annotations are trusted (G1).
    pub trusted: bool,
    /// The start of the MCP session.
    pub lifecycle: McpLifecycle,
    /// Time to start, complete the handshake and list the tools.
    pub start_timeout: Duration,
    /// Maximum bytes of one of its messages.
    pub message_bytes_max: usize,
    /// Redacts the server's secrets in connection errors (E7).
    pub redactor: Arc<Redactor>,
}

/// The transport of a server. Not `Debug`, because environment and headers contain secrets.
#[derive(Clone)]
pub enum ToolTransport {
    /// A child process that communicates over standard input and output.
    Stdio {
        /// The program; searched in `PATH` unless it contains a slash. No shell is involved.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Its environment, in addition to [`INHERITED_ENVIRONMENT`].
        env: BTreeMap<String, String>,
        /// Its working folder; `None` inherits that of this process.
        cwd: Option<PathBuf>,
    },
    /// Streamable HTTP.
    Http {
        /// The URL.
        url: String,
        /// Headers of every request.
        headers: BTreeMap<String, String>,
        /// True if the URL may resolve to a private address (X5).
        allow_private: bool,
    },
}

/// The variables that child processes inherit; all others must be configured (X5).
pub const INHERITED_ENVIRONMENT: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];

/// The start of the MCP session with a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum McpLifecycle {
    /// Send `server/discover`, and fall back to `initialize` if the server rejects it. A server that
    /// ignores unknown requests delays the start by ten seconds; configure `Initialize` for it.
    #[default]
    Auto,
    /// Send `initialize`: protocol revisions up to 2025-11-25.
    Initialize,
    /// Send `server/discover`: protocol revisions from 2026-07-28.
    Discover,
}

impl ToolServerConfig {
    /// Creates the configuration of a server with default limits.
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
            let expose = |(key, secret): (&String, &configuration::Secret)| {
                (key.clone(), secret.expose().to_owned())
            };
            secrets.iter().map(expose).collect()
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

/// Starts connecting to all servers on the current arbiter and returns immediately.
/// [`ToolServers::wait_until_started`] waits for the servers.
pub fn start(
    servers: impl IntoIterator<Item = ToolServerConfig>,
    catalog: Catalog,
    board: &StatusBoard,
    clock: &Arc<dyn Clock>,
) -> ToolServers {
    start_with_built_in(servers, None, (catalog, NameOwners::default()), board, clock)
}

/// Same as [`start`], with an additional server of built-in tools and stored owners of tool names.
pub fn start_with_built_in(
    servers: impl IntoIterator<Item = ToolServerConfig>,
    built_in: Option<ToolServerSpec>,
    (catalog, names): (Catalog, NameOwners),
    board: &StatusBoard,
    clock: &Arc<dyn Clock>,
) -> ToolServers {
    let spec = |config: ToolServerConfig| ToolServerSpec {
        name: config.name.clone(),
        trusted: config.trusted,
        server: Arc::new(connector::McpConnector::new(config)),
    };
    ToolServers::start(catalog, names, servers.into_iter().map(spec).chain(built_in), board, clock)
}
