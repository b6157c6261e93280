//! MCP servers: `[mcpServers.NAME]`, and the same in the JSON that other hosts read (T1).

use super::{
    ConfigurationError, LoadContext, Secret, expansion::expand, secrets, source, toml_error,
};
use greenroom_core::duration::ConfigDuration;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

/// Servers that may be configured.
const SERVERS_MAX: usize = 256;
/// Characters of a server's name.
const NAME_CHARS_MAX: usize = 64;
/// The name of the tools that are part of Greenroom.
const RESERVED: &str = "built-in";

/// An MCP server and how to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpServerConfig {
    /// Its name in configuration.
    pub name: String,
    /// How to reach it.
    pub transport: McpTransportConfig,
    /// Whether its annotations are true (G1).
    pub trusted: bool,
    /// How the conversation starts.
    pub lifecycle: McpLifecycleConfig,
    /// Time for it to start and list its tools; absent, the host's default.
    pub timeout: Option<Duration>,
    /// Whether its URL may be in a private range (X5).
    pub allow_private: bool,
    /// What the environment gave for `${…}` and must never be shown (E7).
    pub env_secrets: Vec<Secret>,
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum McpTransportConfig {
    /// A child process, over its standard input and output.
    Stdio {
        /// The program: a name to be found on the path, or an absolute path.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Its environment, beyond the few variables every program needs (X5).
        env: BTreeMap<String, Secret>,
        /// Its working folder; absent, ours.
        cwd: Option<PathBuf>,
    },
    /// Streamable HTTP.
    Http {
        /// Where.
        url: String,
        /// Sent with every request.
        headers: BTreeMap<String, Secret>,
    },
}

/// How the conversation with a server starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpLifecycleConfig {
    /// Discover, and initialise if the server does not know that.
    #[default]
    Auto,
    /// Initialise: revisions up to 2025-11-25.
    Initialize,
    /// Discover: revisions from 2026-07-28 on.
    Discover,
}

/// A server as it is written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawMcpServer {
    command: Option<String>,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    url: Option<String>,
    headers: BTreeMap<String, String>,
    /// `stdio` or `http`; the other keys say it already.
    #[serde(rename = "type")]
    kind: Option<String>,
    disabled: bool,
    trusted: bool,
    lifecycle: McpLifecycleConfig,
    timeout: Option<ConfigDuration>,
    allow_private: bool,
}

/// The keys of [`WrittenServer`]: what of the familiar JSON means something here.
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

/// Every server of the document and of the file it names; disabled ones are left out.
pub(super) fn load_servers(
    written: BTreeMap<String, RawMcpServer>,
    file: Option<PathBuf>,
    surroundings: &LoadContext<'_>,
) -> Result<BTreeMap<String, McpServerConfig>, ConfigurationError> {
    let mut servers = BTreeMap::new();
    add(&mut servers, written, surroundings)?;
    if let Some(file) = file {
        let path = surroundings.base_folder.join(file);
        let text = source::read_text(&path, surroundings.location)?;
        let place = path.display().to_string();
        let familiar = parse_mcp_json(&text)
            .map_err(|problem| ConfigurationError::invalid(&place, problem))?;
        let folder = source::folder_of(&path);
        let environment = surroundings.environment;
        add(
            &mut servers,
            familiar,
            &LoadContext { location: &place, base_folder: &folder, environment },
        )?;
    }
    Ok(servers)
}

fn add(
    servers: &mut BTreeMap<String, McpServerConfig>,
    written: BTreeMap<String, RawMcpServer>,
    surroundings: &LoadContext<'_>,
) -> Result<(), ConfigurationError> {
    for (name, server) in written {
        let invalid = |problem: String| {
            ConfigurationError::invalid(
                format_args!("{}, mcpServers.{name}", surroundings.location),
                problem,
            )
        };
        if server.disabled {
            continue;
        }
        let server = resolve(&name, server, surroundings).map_err(invalid)?;
        if servers.len() >= SERVERS_MAX {
            return Err(invalid(format!("there may be at most {SERVERS_MAX} servers")));
        }
        if servers.insert(name.clone(), server).is_some() {
            return Err(invalid("it is configured twice".to_owned()));
        }
    }
    Ok(())
}

/// The servers of `{"mcpServers": {…}}`. Other hosts' keys are passed over.
fn parse_mcp_json(text: &str) -> Result<BTreeMap<String, RawMcpServer>, String> {
    #[derive(Deserialize)]
    struct McpJson {
        #[serde(rename = "mcpServers")]
        servers: BTreeMap<String, serde_json::Map<String, Value>>,
    }
    let familiar: McpJson = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let read = |(name, mut server): (String, serde_json::Map<String, Value>)| {
        // A number is another host's timeout, in a unit we don't know.
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
    familiar.servers.into_iter().map(read).collect()
}

fn resolve(
    name: &str,
    written: RawMcpServer,
    surroundings: &LoadContext<'_>,
) -> Result<McpServerConfig, String> {
    let characters = name.chars().count();
    if name == RESERVED || !(1..=NAME_CHARS_MAX).contains(&characters) {
        return Err(format!(
            "a server's name has 1 to {NAME_CHARS_MAX} characters and is not `{RESERVED}`"
        ));
    }
    if let Some(kind) = &written.kind
        && !matches!(kind.as_str(), "stdio" | "http" | "streamable-http" | "streamableHttp")
    {
        return Err(format!("the transport `{kind}` is not known; there are stdio and http"));
    }
    let mut taken = Vec::new();
    let mut expand = |text: &str| expand(text, surroundings.environment, &mut taken);
    let transport = match (&written.command, &written.url) {
        (Some(command), None) => {
            let command = expand(command)?;
            let cwd = written.cwd.as_deref().map(&mut expand).transpose()?;
            McpTransportConfig::Stdio {
                command: resolve_command(&command, surroundings.base_folder),
                args: written
                    .args
                    .iter()
                    .map(|argument| expand(argument))
                    .collect::<Result<_, _>>()?,
                env: expand_values(written.env, &mut expand)?,
                cwd: cwd.map(|cwd| surroundings.base_folder.join(cwd)),
            }
        }
        (None, Some(url)) => {
            let url = expand(url)?;
            if !(url.starts_with("http://") || url.starts_with("https://")) {
                return Err("url must start with http:// or https://".to_owned());
            }
            McpTransportConfig::Http { url, headers: expand_values(written.headers, &mut expand)? }
        }
        (None, None) | (Some(_), Some(_)) => {
            return Err("give either `command` or `url`".to_owned());
        }
    };
    taken.retain(|secret| {
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
        trusted: written.trusted,
        lifecycle: written.lifecycle,
        timeout: written.timeout.map(|timeout| timeout.0),
        allow_private: written.allow_private,
        env_secrets: taken,
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

/// A bare name is found on the path; a path is relative to the file that names it.
fn resolve_command(command: &str, folder: &Path) -> String {
    if !command.contains('/') {
        return command.to_owned();
    }
    let path = folder.join(command);
    // A child may get another working folder, which must not change the program.
    std::path::absolute(&path).unwrap_or(path).to_string_lossy().into_owned()
}
