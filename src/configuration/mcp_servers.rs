//! MCP servers: `[mcpServers.NAME]`, and the `mcpServers` JSON of other MCP hosts (T1).

use super::{
    ConfigurationError, LoadContext, Secret, expansion::expand, secrets, source, toml_error,
};
use greenroom_core::{duration::ConfigDuration, policy};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

/// Maximum number of configured servers.
const SERVERS_MAX: usize = 256;

/// The configuration of an MCP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpServerConfig {
    /// The configured name.
    pub name: String,
    /// The transport and its parameters.
    pub transport: McpTransportConfig,
    /// True if the server's tool annotations are trusted (G1).
    pub trusted: bool,
    /// The start of the MCP session.
    pub lifecycle: McpLifecycleConfig,
    /// Timeout for connecting and listing tools; `None` selects the tool host's default.
    pub timeout: Option<Duration>,
    /// True if the URL may resolve to a private address (X5).
    pub allow_private: bool,
    /// Values of `${…}` variables that are redacted (E7).
    pub env_secrets: Vec<Secret>,
}

/// The transport of an MCP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum McpTransportConfig {
    /// A child process that communicates over standard input and output.
    Stdio {
        /// The program: a name that is searched on the path, or an absolute path.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Its environment, in addition to the inherited variables (X5).
        env: BTreeMap<String, Secret>,
        /// Its working folder; `None` inherits that of this process.
        cwd: Option<PathBuf>,
    },
    /// Streamable HTTP.
    Http {
        /// The URL.
        url: String,
        /// Headers of every request.
        headers: BTreeMap<String, Secret>,
    },
}

/// The start of the MCP session with a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpLifecycleConfig {
    /// Try discovery first; initialize if the server does not support discovery.
    #[default]
    Auto,
    /// Initialize: protocol revisions up to 2025-11-25.
    Initialize,
    /// Discover: protocol revisions from 2026-07-28.
    Discover,
}

/// The raw configuration of a server.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawMcpServer {
    command: Option<String>,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    url: Option<String>,
    headers: BTreeMap<String, String>,
    /// `stdio` or `http`. Redundant, because `command` and `url` determine the transport.
    #[serde(rename = "type")]
    kind: Option<String>,
    disabled: bool,
    trusted: bool,
    lifecycle: McpLifecycleConfig,
    timeout: Option<ConfigDuration>,
    allow_private: bool,
}

/// The keys of [`RawMcpServer`]. Other keys in the JSON of other hosts are ignored.
const KEYS: [&str; 12] = [
    "command",
    "args",
    "env",
    "cwd",
    "url",
    "headers",
    "type",
    "disabled",
    "trusted",
    "lifecycle",
    "timeout",
    "allow_private",
];

/// Returns all enabled servers of the configuration file and of `mcp_servers_file`.
pub(super) fn load_servers(
    raw: BTreeMap<String, RawMcpServer>,
    file: Option<PathBuf>,
    context: &LoadContext<'_>,
) -> Result<BTreeMap<String, McpServerConfig>, ConfigurationError> {
    let mut servers = BTreeMap::new();
    add(&mut servers, raw, context)?;
    if let Some(file) = file {
        let path = context.base_folder.join(file);
        let text = source::read_text(&path, context.location)?;
        let location = path.display().to_string();
        let servers_of_file = parse_mcp_json(&text)
            .map_err(|problem| ConfigurationError::invalid(&location, problem))?;
        let folder = source::folder_of(&path);
        let environment = context.environment;
        add(
            &mut servers,
            servers_of_file,
            &LoadContext { location: &location, base_folder: &folder, environment },
        )?;
    }
    Ok(servers)
}

fn add(
    servers: &mut BTreeMap<String, McpServerConfig>,
    raw: BTreeMap<String, RawMcpServer>,
    context: &LoadContext<'_>,
) -> Result<(), ConfigurationError> {
    for (name, server) in raw {
        let invalid = |problem: String| {
            ConfigurationError::invalid(
                format_args!("{}, mcpServers.{name}", context.location),
                problem,
            )
        };
        if server.disabled {
            continue;
        }
        let server = resolve(&name, server, context).map_err(invalid)?;
        if servers.len() >= SERVERS_MAX {
            return Err(invalid(format!("too many servers; the limit is {SERVERS_MAX}")));
        }
        let in_tool_names = policy::server_in_tool_names(&name);
        let is_same = |other: &&String| policy::server_in_tool_names(other) == in_tool_names;
        if let Some(other) = servers.keys().find(is_same).filter(|other| **other != name) {
            return Err(invalid(format!(
                "the names `{name}` and `{other}` are both `{in_tool_names}` in tool names"
            )));
        }
        if servers.insert(name.clone(), server).is_some() {
            return Err(invalid("configured twice".to_owned()));
        }
    }
    Ok(())
}

/// Parses `{"mcpServers": {…}}`. Ignores the keys of other hosts.
pub(super) fn parse_mcp_json(text: &str) -> Result<BTreeMap<String, RawMcpServer>, String> {
    #[derive(Deserialize)]
    struct McpJson {
        #[serde(rename = "mcpServers")]
        servers: BTreeMap<String, serde_json::Map<String, Value>>,
    }
    let json: McpJson = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let parse_server = |(name, mut server): (String, serde_json::Map<String, Value>)| {
        // Drops a numeric timeout: other hosts use different units for it.
        server.retain(|key, value| {
            KEYS.contains(&key.as_str()) && !(key == "timeout" && value.is_number())
        });
        match serde_path_to_error::deserialize(Value::Object(server)) {
            Ok(server) => Ok((name, server)),
            Err(error) => {
                let problem = toml_error::explain_message(
                    &error.path().to_string(),
                    &error.inner().to_string(),
                );
                Err(format!("mcpServers.{name}: {problem}"))
            }
        }
    };
    json.servers.into_iter().map(parse_server).collect()
}

fn resolve(
    name: &str,
    raw: RawMcpServer,
    context: &LoadContext<'_>,
) -> Result<McpServerConfig, String> {
    policy::validate_server_name(name)
        .map_err(|problem| format!("the server name `{name}` {problem}"))?;
    if let Some(kind) = &raw.kind
        && !matches!(kind.as_str(), "stdio" | "http" | "streamable-http" | "streamableHttp")
    {
        return Err(format!("unknown transport `{kind}`; the transports are stdio and http"));
    }
    let mut env_secrets = Vec::new();
    let mut expand = |text: &str| expand(text, context.environment, &mut env_secrets);
    let transport = match (&raw.command, &raw.url) {
        (Some(command), None) => {
            let command = expand(command)?;
            let cwd = raw.cwd.as_deref().map(&mut expand).transpose()?;
            McpTransportConfig::Stdio {
                command: resolve_command(&command, context.base_folder),
                args: raw.args.iter().map(|argument| expand(argument)).collect::<Result<_, _>>()?,
                env: expand_values(raw.env, &mut expand)?,
                cwd: cwd.map(|cwd| context.base_folder.join(cwd)),
            }
        }
        (None, Some(url)) => {
            let url = expand(url)?;
            if !(url.starts_with("http://") || url.starts_with("https://")) {
                return Err(format!("url must start with http:// or https://, not `{url}`"));
            }
            McpTransportConfig::Http { url, headers: expand_values(raw.headers, &mut expand)? }
        }
        (None, None) | (Some(_), Some(_)) => {
            return Err("set exactly one of `command` and `url`".to_owned());
        }
    };
    env_secrets.retain(|secret| {
        let value = secret.expose();
        let is_origin = match &transport {
            McpTransportConfig::Http { url, .. } => secrets::is_in_origin(value, url),
            McpTransportConfig::Stdio { .. } => false,
        };
        !is_origin && !secrets::is_a_path(value)
    });
    Ok(McpServerConfig {
        name: name.to_owned(),
        transport,
        trusted: raw.trusted,
        lifecycle: raw.lifecycle,
        timeout: raw.timeout.map(|timeout| timeout.0),
        allow_private: raw.allow_private,
        env_secrets,
    })
}

fn expand_values(
    texts: BTreeMap<String, String>,
    expand: &mut impl FnMut(&str) -> Result<String, String>,
) -> Result<BTreeMap<String, Secret>, String> {
    texts
        .into_iter()
        .map(|(name, text)| expand(&text).map(|text| (name, Secret::from(text))))
        .collect()
}

/// Resolves a program: a bare name is searched on the path when the server starts; a path is relative
/// to the file that contains it.
fn resolve_command(command: &str, folder: &Path) -> String {
    if !command.contains('/') {
        return command.to_owned();
    }
    let path = folder.join(command);
    // Absolute, because the child process may run in another working folder.
    std::path::absolute(&path).unwrap_or(path).to_string_lossy().into_owned()
}
