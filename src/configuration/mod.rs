//! The configuration: loaded, typed and validated once at start.
//!
//! [`Configuration::load`] is a function of the files and of the environment, which the caller passes
//! as a map. `config_file` defines the keys of a file, `source` locates and merges the sources (files,
//! includes, environment) and records locations for errors, `toml_error` explains invalid values, and
//! the other modules convert the raw values to the types that the rest of Greenroom uses.
//! `docs/configuration.md` documents the keys.

mod agents;
mod approvals;
mod budgets;
mod ceilings;
mod config_file;
#[cfg(test)]
mod decoder_fuzz;
mod delegates;
mod expansion;
mod limits;
mod mcp_servers;
mod models;
mod redaction;
mod secrets;
mod source;
mod toml_error;

pub use crate::store::Durability;
pub use limits::Limits;
pub use mcp_servers::{McpLifecycleConfig, McpServerConfig, McpTransportConfig};
pub use models::{MaxTokensParameter, ModelEndpoint, ModelWireFormat, REHEARSAL};

use crate::store::DatabaseLocation;
use greenroom_core::{
    agent::AgentProfile,
    ids::AgentName,
    limits::COMPACT_AT_DEFAULT,
    policy::{
        Catalog, Ceilings, CriticalRule, Matrix, Settings, Units, budget_limit::validate_unit,
    },
};
use regex::Regex;
use std::{
    collections::BTreeMap,
    fmt, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// The environment variables, by name.
pub type Environment = BTreeMap<String, String>;

/// The configuration file that is loaded if none is named.
pub const FILE_DEFAULT: &str = "greenroom.toml";

/// The agent of sessions that name none. It always exists.
pub const AGENT_DEFAULT: &str = "default";

/// Maximum number of skill folders, and of workflow folders.
const FOLDERS_MAX: usize = 64;

/// The complete configuration.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The configuration file, if there is one.
    pub file: Option<PathBuf>,
    /// The address that the server listens on.
    pub listen: SocketAddr,
    /// The database: the path of a file, relative to the working folder, or a PostgreSQL URL.
    pub database: DatabaseLocation,
    /// The durability that a commit waits for (D4).
    pub durability: Durability,
    /// Maximum time for running attempts to end after a shutdown request (D8).
    pub drain_timeout: Duration,
    /// Time for which text deltas and tool progress are collected before they are sent (E5).
    pub flush_interval: Duration,
    /// The base URL of the OTLP/HTTP collector that receives traces (A4).
    pub otlp_endpoint: Option<String>,
    /// The administrator's token, if the environment sets it (X1).
    pub admin_token: Option<Secret>,
    /// Agents by name, including [`AGENT_DEFAULT`] (S7).
    pub agents: BTreeMap<AgentName, AgentProfile>,
    /// Models by name: all models that agents use, except [`REHEARSAL`].
    pub models: BTreeMap<String, ModelEndpoint>,
    /// The rehearsal's script; `None` selects the built-in script (M5).
    pub rehearsal: Option<PathBuf>,
    /// The system prompt of all agents, placed before an agent's own prompt (C1).
    pub system_prompt: String,
    /// Percentage of the available context at which older messages are summarized; `None` disables
    /// compaction (C4).
    pub compact_at: Option<u8>,
    /// The folders that are scanned for skills (C2).
    pub skills: Vec<PathBuf>,
    /// The folders that are scanned for workflows (C3).
    pub workflows: Vec<PathBuf>,
    /// MCP servers by name (T1).
    pub mcp_servers: BTreeMap<String, McpServerConfig>,
    /// The policy matrix, autonomy level × risk (G3).
    pub matrix: Matrix,
    /// The configured properties of tools (G1).
    pub catalog: Catalog,
    /// The units of costs and their decimals.
    pub units: Arc<Units>,
    /// Limits on client requests (X4).
    pub limits: Limits,
    /// The ceilings, the outer bound of those that administrators set at run time (G17).
    pub ceilings: Ceilings,
    /// The rule for critical calls (G12).
    pub critical: CriticalRule,
    /// The settings of users who have stored none (G4).
    pub default_settings: Settings,
    /// Patterns that are redacted in addition to secrets (E7).
    pub redaction_patterns: Vec<Regex>,
    /// Words of keys whose values are redacted, in addition to the built-in ones (E7).
    pub redaction_keys: Vec<String>,
}

/// The reason why the configuration cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// A referenced file cannot be read.
    #[error("{named_by}: can't read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The source of the reference: a file or the command line.
        named_by: String,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// A value is invalid.
    #[error("{location}: {problem}")]
    Invalid {
        /// File and line, or the environment variable.
        location: String,
        /// The description of the problem.
        problem: String,
    },
    /// The server would accept remote connections without authentication (X1).
    #[error(
        "listening on {0} would expose the server without authentication; set GREENROOM_TOKEN, \
         create an API key with `greenroom key create`, or listen on 127.0.0.1"
    )]
    UnauthenticatedExposure(SocketAddr),
}

impl ConfigurationError {
    fn invalid(location: impl fmt::Display, problem: impl fmt::Display) -> Self {
        Self::Invalid { location: location.to_string(), problem: problem.to_string() }
    }
}

/// A secret text. Its `Debug` form does not contain the text.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Returns the text.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Returns the OTLP endpoint: from the configuration file, else from OpenTelemetry's environment
/// variable.
fn otlp_endpoint(
    configured: Option<String>,
    context: &LoadContext<'_>,
) -> Result<Option<String>, ConfigurationError> {
    const VARIABLE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
    let variable = context.environment.get(VARIABLE).filter(|value| !value.is_empty());
    let (location, endpoint) = match (configured, variable) {
        (Some(endpoint), _) => (format!("{}, otlp_endpoint", context.location), endpoint),
        (None, Some(endpoint)) => (VARIABLE.to_owned(), endpoint.clone()),
        (None, None) => return Ok(None),
    };
    let url = reqwest::Url::parse(&endpoint).ok();
    match url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host()) {
        Some(_) => Ok(Some(endpoint)),
        None => Err(ConfigurationError::invalid(
            location,
            "must be an HTTP URL such as http://localhost:4318",
        )),
    }
}

impl Configuration {
    /// Loads the file and all files that it references, then applies `environment`.
    ///
    /// Without `file`, loads the file that `GREENROOM_CONFIG` names, else [`FILE_DEFAULT`] in the
    /// working folder if it exists, else no file: every key has a default.
    pub fn load(
        file: Option<&Path>,
        environment: &Environment,
    ) -> Result<Self, ConfigurationError> {
        let source = source::ConfigSource::load(file, environment)?;
        let location = source.location();
        let document = source.document;
        document.defaults.settings.validate().map_err(|error| {
            ConfigurationError::invalid(format_args!("{location}, defaults.settings"), error)
        })?;
        if let Some(limit) = &document.defaults.settings.budget_limit
            && let Some(problem) = limit.amount_problem()
        {
            let location = format!("{location}, defaults.settings");
            return Err(ConfigurationError::invalid(location, problem));
        }
        for unit in document.units.names() {
            validate_unit(unit).map_err(|problem| {
                let location = format!("{location}, units.{unit}");
                ConfigurationError::invalid(location, format!("the name {problem}"))
            })?;
        }
        let units = Arc::new(document.units);
        let context = LoadContext { location: &location, base_folder: &source.folder, environment };
        let models = models::endpoints(document.models, &context)?;
        let selector =
            models::ModelSelector { models: &models, has_rehearsal: document.rehearsal.is_some() };
        let defaults = agents::AgentDefaults {
            approvals: &document.approvals.rules,
            budgets: &document.budgets,
        };
        let agents = agents::profiles(document.agents, &selector, &defaults, &context)?;
        ceilings::validate_ceilings(&document.ceilings, &agents).map_err(|problem| {
            ConfigurationError::invalid(format_args!("{location}, ceilings"), problem)
        })?;
        let depth_max = document.limits.delegation_depth.get();
        delegates::validate_delegates(&agents, depth_max, &location, &source.text)?;
        let mcp_servers =
            mcp_servers::load_servers(document.mcp_servers, document.mcp_servers_file, &context)?;
        let system = load_system_prompt(&document.context, &context)?;
        let compact_at = document.context.compact_at.unwrap_or(COMPACT_AT_DEFAULT);
        if !(compact_at == 0 || (40..=95).contains(&compact_at)) {
            let problem =
                format!("compact_at must be 40 to 95 (percent) or 0 (never), not {compact_at}");
            return Err(ConfigurationError::invalid(format_args!("{location}, context"), problem));
        }
        for (key, folders) in [("skills", &document.skills), ("workflows", &document.workflows)] {
            if folders.len() > FOLDERS_MAX {
                let problem =
                    format!("{key} has {} entries; the limit is {FOLDERS_MAX}", folders.len());
                return Err(ConfigurationError::invalid(&location, problem));
            }
        }
        let folders = |paths: &[PathBuf]| -> Vec<PathBuf> {
            paths.iter().map(|path| source.folder.join(path)).collect()
        };
        document
            .limits
            .validate()
            .map_err(|problem| ConfigurationError::invalid(&location, problem))?;
        let invalid_redaction = |problem: String| {
            ConfigurationError::invalid(format_args!("{location}, redaction"), problem)
        };
        Ok(Self {
            file: source.file,
            listen: document.listen,
            database: document.database,
            durability: document.durability,
            drain_timeout: document.drain.0,
            flush_interval: document.flush.0,
            otlp_endpoint: otlp_endpoint(document.otlp_endpoint, &context)?,
            admin_token: environment
                .get("GREENROOM_TOKEN")
                .filter(|token| !token.is_empty())
                .cloned()
                .map(Secret),
            agents,
            models,
            rehearsal: document.rehearsal.map(|path| source.folder.join(path)),
            system_prompt: system,
            compact_at: Some(compact_at).filter(|percent| *percent > 0),
            skills: folders(&document.skills),
            workflows: folders(&document.workflows),
            mcp_servers,
            matrix: document.policy,
            catalog: Catalog::new(
                source.tools.into_iter().map(|((_, key), entry)| (key, entry)),
                document.unknown_tools,
            )
            .with_units(units.clone()),
            units,
            limits: document.limits,
            critical: CriticalRule {
                min_role: document.approvals.critical_role,
                four_eyes: document.approvals.four_eyes,
            },
            ceilings: document.ceilings,
            default_settings: document.defaults.settings,
            redaction_patterns: redaction::compile_patterns(&document.redaction)
                .map_err(invalid_redaction)?,
            redaction_keys: redaction::validate_keys(&document.redaction)
                .map_err(invalid_redaction)?,
        })
    }

    /// Rejects a listen address that other machines can reach unless requests must be authenticated
    /// (X1): by the administrator's token from the environment, or by an API key (`has_keys`).
    pub fn validate_exposure(&self, has_keys: bool) -> Result<(), ConfigurationError> {
        if self.listen.ip().to_canonical().is_loopback() || self.admin_token.is_some() || has_keys {
            Ok(())
        } else {
            Err(ConfigurationError::UnauthenticatedExposure(self.listen))
        }
    }
}

/// Returns the system prompt of all agents.
fn load_system_prompt(
    raw: &config_file::RawContext,
    context: &LoadContext<'_>,
) -> Result<String, ConfigurationError> {
    let location = format!("{}, context", context.location);
    match (&raw.system, &raw.system_file) {
        (Some(_), Some(_)) => Err(ConfigurationError::invalid(
            location,
            "set either `system` or `system_file`, not both",
        )),
        (Some(system), None) => Ok(system.clone()),
        (None, Some(file)) => source::read_text(&context.base_folder.join(file), &location),
        (None, None) => Ok(String::new()),
    }
}

/// The context of a configuration file while it is loaded.
struct LoadContext<'a> {
    /// The path of the file, for errors.
    location: &'a str,
    /// The folder that relative paths start from.
    base_folder: &'a Path,
    environment: &'a Environment,
}

#[cfg(test)]
mod tests;
