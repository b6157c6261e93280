//! The keys of a configuration file, in their raw form. Resolves nothing.

use super::{
    Durability, Limits,
    approvals::{ApprovalsSection, RawApprovalRules},
    budgets::RawBudgets,
    mcp_servers::RawMcpServer,
    models::RawModel,
    redaction::RawRedaction,
};
use crate::store::DatabaseLocation;
use greenroom_core::{
    duration::ConfigDuration,
    ids::AgentName,
    policy::{Ceilings, Matrix, Settings, Units, UnknownToolPolicy, catalog::CatalogEntry},
};
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

/// `greenroom.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ConfigFile {
    pub(super) listen: SocketAddr,
    pub(super) database: DatabaseLocation,
    pub(super) durability: Durability,
    pub(super) drain: ConfigDuration,
    pub(super) flush: ConfigDuration,
    pub(super) otlp_endpoint: Option<String>,
    pub(super) rehearsal: Option<PathBuf>,
    pub(super) mcp_servers_file: Option<PathBuf>,
    pub(super) skills: Vec<PathBuf>,
    pub(super) workflows: Vec<PathBuf>,
    pub(super) context: RawContext,
    pub(super) policy: Matrix,
    pub(super) unknown_tools: UnknownToolPolicy,
    pub(super) include: Vec<PathBuf>,
    /// The server of the tools of this file, unless an entry names another one.
    pub(super) server: Option<String>,
    pub(super) tools: BTreeMap<String, CatalogEntry>,
    pub(super) agents: BTreeMap<AgentName, RawAgent>,
    pub(super) models: BTreeMap<String, RawModel>,
    #[serde(rename = "mcpServers")]
    pub(super) mcp_servers: BTreeMap<String, RawMcpServer>,
    pub(super) limits: Limits,
    pub(super) approvals: ApprovalsSection,
    pub(super) budgets: RawBudgets,
    pub(super) ceilings: Ceilings,
    pub(super) units: Units,
    pub(super) defaults: RawDefaults,
    pub(super) redaction: RawRedaction,
}

impl Default for ConfigFile {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7878)),
            database: DatabaseLocation::Sqlite(PathBuf::from("greenroom.db")),
            durability: Durability::default(),
            drain: ConfigDuration(Duration::from_secs(10)),
            flush: ConfigDuration(Duration::ZERO),
            otlp_endpoint: None,
            rehearsal: None,
            mcp_servers_file: None,
            skills: Vec::new(),
            workflows: Vec::new(),
            context: RawContext::default(),
            policy: Matrix::default(),
            unknown_tools: UnknownToolPolicy::default(),
            include: Vec::new(),
            server: None,
            tools: BTreeMap::new(),
            agents: BTreeMap::new(),
            models: BTreeMap::new(),
            mcp_servers: BTreeMap::new(),
            limits: Limits::default(),
            approvals: ApprovalsSection::default(),
            budgets: RawBudgets::default(),
            ceilings: Ceilings::default(),
            units: Units::default(),
            defaults: RawDefaults::default(),
            redaction: RawRedaction::default(),
        }
    }
}

/// A file named by `include`. It contains only tools, their server and further includes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct IncludedFile {
    pub(super) include: Vec<PathBuf>,
    pub(super) server: Option<String>,
    pub(super) tools: BTreeMap<String, CatalogEntry>,
}

/// `[agents.NAME]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawAgent {
    pub(super) description: Option<String>,
    pub(super) model: Option<String>,
    pub(super) models: Option<Vec<String>>,
    pub(super) system: Option<String>,
    pub(super) system_file: Option<PathBuf>,
    pub(super) tools: Option<Vec<String>>,
    pub(super) skills: Option<Vec<String>>,
    pub(super) resources: Option<Vec<String>>,
    pub(super) workflow: Option<String>,
    pub(super) delegates: Vec<AgentName>,
    pub(super) max_steps: Option<u32>,
    pub(super) max_tokens: Option<u32>,
    pub(super) headless: bool,
    pub(super) approvals: RawApprovalRules,
    pub(super) budgets: RawBudgets,
}

/// `[context]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawContext {
    pub(super) system: Option<String>,
    pub(super) system_file: Option<PathBuf>,
    pub(super) compact_at: Option<u8>,
}

/// `[defaults]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawDefaults {
    pub(super) settings: Settings,
}
