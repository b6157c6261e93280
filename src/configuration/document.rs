//! What a configuration file may say, word for word. Nothing is resolved here.

use super::{
    Durability, Limits,
    approvals::{Approvals, WrittenRules},
    budgets::WrittenBudgets,
    models::WrittenModel,
    redaction::WrittenRedaction,
    servers::WrittenServer,
};
use crate::store::Database;
use greenroom_core::{
    duration::Span,
    ids::AgentName,
    policy::{Matrix, Settings, UnknownTools, catalog::CatalogEntry},
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
pub(super) struct Document {
    pub(super) listen: SocketAddr,
    pub(super) database: Database,
    pub(super) durability: Durability,
    pub(super) drain: Span,
    pub(super) flush: Span,
    pub(super) otlp_endpoint: Option<String>,
    pub(super) rehearsal: Option<PathBuf>,
    pub(super) mcp_servers_file: Option<PathBuf>,
    pub(super) skills: Vec<PathBuf>,
    pub(super) workflows: Vec<PathBuf>,
    pub(super) context: Context,
    pub(super) policy: Matrix,
    pub(super) unknown_tools: UnknownTools,
    pub(super) include: Vec<PathBuf>,
    pub(super) tools: BTreeMap<String, CatalogEntry>,
    pub(super) agents: BTreeMap<AgentName, WrittenAgent>,
    pub(super) models: BTreeMap<String, WrittenModel>,
    #[serde(rename = "mcpServers")]
    pub(super) mcp_servers: BTreeMap<String, WrittenServer>,
    pub(super) limits: Limits,
    pub(super) approvals: Approvals,
    pub(super) budgets: WrittenBudgets,
    pub(super) defaults: Defaults,
    pub(super) redaction: WrittenRedaction,
}

impl Default for Document {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7878)),
            database: Database::Sqlite(PathBuf::from("greenroom.db")),
            durability: Durability::default(),
            drain: Span(Duration::from_secs(10)),
            flush: Span(Duration::ZERO),
            otlp_endpoint: None,
            rehearsal: None,
            mcp_servers_file: None,
            skills: Vec::new(),
            workflows: Vec::new(),
            context: Context::default(),
            policy: Matrix::default(),
            unknown_tools: UnknownTools::default(),
            include: Vec::new(),
            tools: BTreeMap::new(),
            agents: BTreeMap::new(),
            models: BTreeMap::new(),
            mcp_servers: BTreeMap::new(),
            limits: Limits::default(),
            approvals: Approvals::default(),
            budgets: WrittenBudgets::default(),
            defaults: Defaults::default(),
            redaction: WrittenRedaction::default(),
        }
    }
}

/// A file that `include` names: tools alone.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Included {
    pub(super) include: Vec<PathBuf>,
    pub(super) tools: BTreeMap<String, CatalogEntry>,
}

/// `[agents.NAME]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WrittenAgent {
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
    pub(super) approvals: WrittenRules,
    pub(super) budgets: WrittenBudgets,
}

/// `[context]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Context {
    pub(super) system: Option<String>,
    pub(super) system_file: Option<PathBuf>,
    pub(super) compact_at: Option<u8>,
}

/// `[defaults]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Defaults {
    pub(super) settings: Settings,
}
