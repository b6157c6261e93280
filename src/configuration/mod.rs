//! Everything that is configured, typed and checked once at the start.
//!
//! [`Configuration::load`] reads files and nothing else: the environment is handed in as a map, so
//! that loading is a function of it and of the files. `document` is what a file may say, `source`
//! finds and layers what is said (files, includes, environment) and knows where it was said,
//! `mistake` says what of it makes no sense, and the other rooms turn it into what the rest of
//! Greenroom uses. What a file means is told to people in `docs/configuration.md`.

mod agents;
mod approvals;
mod budgets;
mod config_file;
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

use crate::{auth::CriticalApprovalRule, store::DatabaseLocation};
use greenroom_core::{
    agent::AgentProfile,
    ids::AgentName,
    limits::COMPACT_AT_DEFAULT,
    policy::{Catalog, Matrix, Settings},
};
use regex::Regex;
use std::{
    collections::BTreeMap,
    fmt, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

/// The environment, as a map.
pub type Environment = BTreeMap<String, String>;

/// The file that is read where none is named.
pub const FILE_DEFAULT: &str = "greenroom.toml";

/// The agent of sessions that name none; it always exists.
pub const AGENT_DEFAULT: &str = "default";

/// Folders of skills, and of workflows.
const FOLDERS_MAX: usize = 64;

/// Everything that is configured.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The file it came from, if there is one.
    pub file: Option<PathBuf>,
    /// Where the server listens.
    pub listen: SocketAddr,
    /// The database: a path, relative to the working folder, or a PostgreSQL server's.
    pub database: DatabaseLocation,
    /// What a commit waits for (D4).
    pub durability: Durability,
    /// How long steps may go on after the server was told to stop (D8).
    pub drain_timeout: Duration,
    /// How long text and the progress of tools are collected before they are sent (E5).
    pub flush_interval: Duration,
    /// Where traces go: the base address of a collector that speaks OTLP over HTTP (A4).
    pub otlp_endpoint: Option<String>,
    /// The administrator's token where the environment sets it (X1).
    pub admin_token: Option<Secret>,
    /// Agents by name; [`AGENT_DEFAULT`] is among them (S7).
    pub agents: BTreeMap<AgentName, AgentProfile>,
    /// Models by name; every agent's are among them, but [`REHEARSAL`].
    pub models: BTreeMap<String, ModelEndpoint>,
    /// The rehearsal's script; `None` is the one that is built in (M5).
    pub rehearsal: Option<PathBuf>,
    /// What every agent is told, before its own prompt (C1).
    pub system_prompt: String,
    /// Percent of a conversation's room at which its older part is summarised; `None` is never (C4).
    pub compact_at: Option<u8>,
    /// Folders in which skills are found (C2).
    pub skills: Vec<PathBuf>,
    /// Folders in which workflows are found (C3).
    pub workflows: Vec<PathBuf>,
    /// MCP servers by name (T1).
    pub mcp_servers: BTreeMap<String, McpServerConfig>,
    /// Autonomy × risk (G3).
    pub matrix: Matrix,
    /// What is said of tools (G1).
    pub catalog: Catalog,
    /// Bounds on what clients may ask for (X4).
    pub limits: Limits,
    /// Who may agree to critical steps (G12).
    pub critical_approval: CriticalApprovalRule,
    /// The settings of users who have stored none (G4).
    pub default_settings: Settings,
    /// What is blacked out besides secrets (E7).
    pub redaction_patterns: Vec<Regex>,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// A file that is named can't be read.
    #[error("{named_by} names {}, which can't be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Who names it: a file, or the command line.
        named_by: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Something that is said makes no sense.
    #[error("{location}: {problem}")]
    Invalid {
        /// File and line, or the environment variable.
        location: String,
        /// What is wrong.
        problem: String,
    },
    /// The server would be open to others without a lock (X1).
    #[error(
        "listening on {0} would let others in without authentication; set GREENROOM_TOKEN, make an \
         API key with `greenroom key create`, or listen on 127.0.0.1"
    )]
    UnauthenticatedExposure(SocketAddr),
}

impl ConfigurationError {
    fn invalid(place: impl fmt::Display, problem: impl fmt::Display) -> Self {
        Self::Invalid { location: place.to_string(), problem: problem.to_string() }
    }
}

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text, for the one place that needs it.
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

/// Where traces go: the document's word, else the variable that OpenTelemetry names.
fn otlp_endpoint(
    written: Option<String>,
    surroundings: &LoadContext<'_>,
) -> Result<Option<String>, ConfigurationError> {
    const VARIABLE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
    let said = surroundings.environment.get(VARIABLE).filter(|said| !said.is_empty());
    let (place, endpoint) = match (written, said) {
        (Some(endpoint), _) => (format!("{}, otlp_endpoint", surroundings.location), endpoint),
        (None, Some(endpoint)) => (VARIABLE.to_owned(), endpoint.clone()),
        (None, None) => return Ok(None),
    };
    let url = reqwest::Url::parse(&endpoint).ok();
    match url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host()) {
        Some(_) => Ok(Some(endpoint)),
        None => Err(ConfigurationError::invalid(
            place,
            "must be an address such as http://localhost:4318",
        )),
    }
}

impl Configuration {
    /// Reads the file and everything it names, and lays `environment` over it.
    ///
    /// Without `file` it is `GREENROOM_CONFIG`'s, else [`FILE_DEFAULT`] in the working folder if
    /// there is one, else nothing: every key has a default.
    pub fn load(
        file: Option<&Path>,
        environment: &Environment,
    ) -> Result<Self, ConfigurationError> {
        let source = source::ConfigSource::load(file, environment)?;
        let place = source.location();
        let document = source.document;
        document.defaults.settings.validate().map_err(|error| {
            ConfigurationError::invalid(format_args!("{place}, defaults.settings"), error)
        })?;
        let surroundings =
            LoadContext { location: &place, base_folder: &source.folder, environment };
        let models = models::endpoints(document.models, &surroundings)?;
        let choice =
            models::ModelSelector { models: &models, has_rehearsal: document.rehearsal.is_some() };
        let for_all = agents::AgentDefaults {
            approvals: &document.approvals.rules,
            budgets: &document.budgets,
        };
        let agents = agents::profiles(document.agents, &choice, &for_all, &surroundings)?;
        let depth_max = document.limits.delegation_depth.get();
        delegates::validate_delegates(&agents, depth_max, &place, &source.text)?;
        let mcp_servers = mcp_servers::load_servers(
            document.mcp_servers,
            document.mcp_servers_file,
            &surroundings,
        )?;
        let system = load_system_prompt(&document.context, &surroundings)?;
        let compact_at = document.context.compact_at.unwrap_or(COMPACT_AT_DEFAULT);
        if !(compact_at == 0 || (40..=95).contains(&compact_at)) {
            let problem = "compact_at must be 40 to 95 (percent), or 0 for never";
            return Err(ConfigurationError::invalid(format_args!("{place}, context"), problem));
        }
        for (key, folders) in [("skills", &document.skills), ("workflows", &document.workflows)] {
            if folders.len() > FOLDERS_MAX {
                let problem = format!("{key} may name at most {FOLDERS_MAX} folders");
                return Err(ConfigurationError::invalid(&place, problem));
            }
        }
        let folders = |paths: &[PathBuf]| -> Vec<PathBuf> {
            paths.iter().map(|path| source.folder.join(path)).collect()
        };
        document
            .limits
            .validate()
            .map_err(|problem| ConfigurationError::invalid(&place, problem))?;
        Ok(Self {
            file: source.file,
            listen: document.listen,
            database: document.database,
            durability: document.durability,
            drain_timeout: document.drain.0,
            flush_interval: document.flush.0,
            otlp_endpoint: otlp_endpoint(document.otlp_endpoint, &surroundings)?,
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
            catalog: Catalog::new(source.tools, document.unknown_tools),
            limits: document.limits,
            critical_approval: CriticalApprovalRule {
                min_role: document.approvals.critical_role,
                four_eyes: document.approvals.four_eyes,
            },
            default_settings: document.defaults.settings,
            redaction_patterns: redaction::compile_patterns(&document.redaction).map_err(
                |problem| ConfigurationError::invalid(format_args!("{place}, redaction"), problem),
            )?,
        })
    }

    /// Refuses to listen where others reach unless somebody must show who they are (X1).
    /// `has_keys` says that authentication beyond the token is configured.
    pub fn validate_exposure(&self, has_keys: bool) -> Result<(), ConfigurationError> {
        if self.listen.ip().to_canonical().is_loopback() || self.admin_token.is_some() || has_keys {
            Ok(())
        } else {
            Err(ConfigurationError::UnauthenticatedExposure(self.listen))
        }
    }
}

/// What every agent is told.
fn load_system_prompt(
    written: &config_file::RawContext,
    surroundings: &LoadContext<'_>,
) -> Result<String, ConfigurationError> {
    let place = format!("{}, context", surroundings.location);
    match (&written.system, &written.system_file) {
        (Some(_), Some(_)) => {
            Err(ConfigurationError::invalid(place, "give either `system` or `system_file`"))
        }
        (Some(system), None) => Ok(system.clone()),
        (None, Some(file)) => source::read_text(&surroundings.base_folder.join(file), &place),
        (None, None) => Ok(String::new()),
    }
}

/// What is around a document: where it was said, and what it may refer to.
struct LoadContext<'a> {
    /// The file, for errors.
    location: &'a str,
    /// Where relative paths start.
    base_folder: &'a Path,
    environment: &'a Environment,
}

#[cfg(test)]
mod tests;
