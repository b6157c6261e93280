//! The catalog: the configured properties of tools, and the construction of the tool registry from
//! the catalog and the listings of the servers (G1).
//!
//! Does not know where the entries were read from. `catalog_match` finds the entries of a tool,
//! `classify` determines its risk.

use super::catalog_match::{EntryMatch, first_permitted, first_stated, is_glob};
use super::{
    Constraint, CostRule, Expression, NameOwners, Risk, Tool, ToolRegistry, Units, budget_limit,
    tool_names,
};
use crate::{
    call::RetryPolicy,
    duration::{ConfigDuration, DurationLimit},
    limits,
    text::truncate,
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The configured properties of a tool, or of all tools that match a glob. An absent property is
/// taken from less specific entries, then from the server, then from the defaults.
///
/// Deserialization validates the entry, so that the error can name the position in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, remote = "Self")]
pub struct CatalogEntry {
    /// Restricts the entry to tools of this server. An entry without a server, and without one in
    /// its name, only restricts the tools of servers that are not trusted (G19).
    pub server: Option<String>,
    /// The risk.
    pub risk: Option<Risk>,
    /// `true` is equivalent to `risk = "read_only"`.
    pub read_only: Option<bool>,
    /// True if running the tool twice has the same effect as running it once (R1).
    pub idempotent: Option<bool>,
    /// True if calls may run in parallel (S3).
    pub parallel: Option<bool>,
    /// The time limit of one attempt; `"none"` means no limit (T4).
    pub timeout: Option<DurationLimit>,
    /// Maximum bytes of a result; the rest is cut (T4).
    pub result_bytes_max: Option<usize>,
    /// The number and timing of retries (R2).
    pub retry: Option<RetryEntry>,
    /// A description that replaces the server's.
    pub description: Option<String>,
    /// True if the tool may never run; `false` exempts it from `unknown_tools = "deny"`.
    pub deny: Option<bool>,
    /// Constraints on calls, in addition to those of less specific entries (G5).
    pub constraints: Vec<Constraint>,
    /// The cost of a call (G5).
    pub cost: Option<Expression>,
    /// The unit of the cost.
    pub cost_unit: Option<String>,
    /// The key of the exclusive lock that calls take across sessions (T8).
    pub exclusive: Option<Expression>,
    /// The time for which a result may be reused (T6). Only for read-only tools.
    pub cache: Option<ConfigDuration>,
}

/// The retry settings of a tool. Absent settings have default values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryEntry {
    /// Maximum number of retries after the first attempt; configured as `max`.
    #[serde(rename = "max")]
    pub retries_max: Option<u32>,
    /// Upper bound of the first delay.
    pub base: Option<ConfigDuration>,
    /// Upper bound of every delay.
    pub cap: Option<ConfigDuration>,
}

impl RetryEntry {
    pub(super) fn to_retry_policy(self) -> RetryPolicy {
        let default = RetryPolicy::default();
        RetryPolicy {
            retries_max: self.retries_max.unwrap_or(default.retries_max),
            initial_delay: self.base.map_or(default.initial_delay, |base| base.0),
            max_delay: self.cap.map_or(default.max_delay, |cap| cap.0),
        }
    }
}

impl CatalogEntry {
    /// Returns the risk that the entry states with `risk` or `read_only`.
    pub(super) fn stated_risk(&self) -> Option<Risk> {
        self.risk.or_else(|| (self.read_only == Some(true)).then_some(Risk::ReadOnly))
    }

    fn cost_rule(&self, units: &Units) -> Option<CostRule> {
        let unit = self.cost_unit.as_deref().unwrap_or(budget_limit::COST_UNIT_DEFAULT);
        let decimals = units.decimals(unit);
        self.cost.clone().map(|amount| CostRule { amount, unit: unit.to_owned(), decimals })
    }

    fn find_problem(&self) -> Option<String> {
        if self.constraints.len() > limits::CATALOG_ENTRY_CONSTRAINTS_MAX {
            return Some(format!(
                "constraints must have at most {} entries",
                limits::CATALOG_ENTRY_CONSTRAINTS_MAX
            ));
        }
        if let Some(unit) = &self.cost_unit {
            if self.cost.is_none() {
                return Some("cost_unit requires cost".to_owned());
            }
            if let Err(problem) = budget_limit::validate_unit(unit) {
                return Some(format!("cost_unit {problem}"));
            }
        }
        if let (Some(risk), Some(read_only)) = (self.risk, self.read_only)
            && read_only != (risk == Risk::ReadOnly)
        {
            return Some(format!(
                "risk = \"{risk}\" and read_only = {read_only} contradict each other"
            ));
        }
        if let Some(risk) = self.stated_risk().filter(|risk| *risk != Risk::ReadOnly)
            && self.cache.is_some()
        {
            return Some(format!("cache requires a read-only tool; the risk is \"{risk}\""));
        }
        if self.cache.is_some_and(|cache| cache.0 > limits::RESULT_CACHE_TTL_MAX) {
            return Some("cache must be at most \"1d\"".to_owned());
        }
        let bytes_max = limits::TOOL_RESULT_BYTES_MAX;
        if self.result_bytes_max.is_some_and(|bytes| bytes == 0 || bytes > bytes_max) {
            return Some(format!("result_bytes_max must be 1 to {bytes_max}"));
        }
        if self.timeout.and_then(|limit| limit.0).is_some_and(|timeout| timeout.is_zero()) {
            return Some("timeout must be longer than 0 (or \"none\")".to_owned());
        }
        let retry = self.retry?;
        if retry.retries_max.is_some_and(|retries| retries > limits::RETRIES_MAX) {
            return Some(format!("retry.max must be at most {}", limits::RETRIES_MAX));
        }
        let policy = retry.to_retry_policy();
        (policy.initial_delay > policy.max_delay)
            .then(|| "retry.base must be at most retry.cap".to_owned())
    }
}

impl<'de> Deserialize<'de> for CatalogEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Calls the derived function, which `remote = "Self"` makes an inherent function.
        let entry = Self::deserialize(deserializer)?;
        entry.find_problem().map_or(Ok(entry), |problem| Err(serde::de::Error::custom(problem)))
    }
}

/// The treatment of tools that the catalog does not name (G1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownToolPolicy {
    /// The risk comes from annotations or words of the name, else it is `write_high_risk`.
    #[default]
    WriteHighRisk,
    /// The tool is denied, whatever its annotations or its name.
    Deny,
}

/// The configured properties of all tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    /// Entries by exact name; several if they are for different servers.
    exact: BTreeMap<String, Vec<CatalogEntry>>,
    /// Entries with a glob.
    globs: Vec<(String, CatalogEntry)>,
    unknown_tools: UnknownToolPolicy,
    units: Arc<Units>,
}

/// The properties of an MCP server that the policy uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerProfile {
    /// The name in configuration.
    pub name: String,
    /// True if configuration declares the server's annotations trustworthy.
    pub trusted: bool,
    /// The reason why the server's tools can't be called at present (T2).
    pub unavailable_reason: Option<String>,
}

/// A tool as its server lists it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RemoteTool {
    /// The server's name of the tool.
    pub name: String,
    /// The description, for the model.
    pub description: String,
    /// The JSON Schema of the arguments.
    pub input_schema: Value,
    /// The server's hints about the effects of the tool.
    pub annotations: ToolAnnotations,
}

/// MCP's tool annotations. Only the hints of trusted servers are evaluated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolAnnotations {
    /// The tool changes nothing.
    pub read_only_hint: Option<bool>,
    /// The tool may perform destructive updates.
    pub destructive_hint: Option<bool>,
    /// Repeating a call with the same arguments has no additional effect.
    pub idempotent_hint: Option<bool>,
    /// The tool interacts with an open world of external entities. Not evaluated.
    pub open_world_hint: Option<bool>,
}

/// A server and its tools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerTools {
    /// The server.
    pub server: ServerProfile,
    /// The tools. Those beyond [`limits::TOOLS_PER_SERVER_MAX`] are ignored.
    pub tools: Vec<RemoteTool>,
}

impl Catalog {
    /// Creates a catalog from entries, keyed by exact name or glob (`*` matches any text). A name
    /// is the server's name of the tool, or `server__tool`, which matches that server's tool only.
    pub fn new(
        entries: impl IntoIterator<Item = (String, CatalogEntry)>,
        unknown_tools: UnknownToolPolicy,
    ) -> Self {
        let mut catalog = Self { unknown_tools, ..Self::default() };
        for (name, entry) in entries {
            if is_glob(&name) {
                catalog.globs.push((name, entry));
            } else {
                catalog.exact.entry(name).or_default().push(entry);
            }
        }
        catalog
    }

    /// Returns the names of all servers that entries state in `server`.
    pub fn server_names(&self) -> BTreeSet<&str> {
        self.iter().filter_map(|(_, entry)| entry.server.as_deref()).collect()
    }

    /// Iterates over all entries and their keys: the exact names, then the globs.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &CatalogEntry)> {
        let exact = self.exact.iter();
        let exact = exact.flat_map(|(key, list)| list.iter().map(move |entry| (key, entry)));
        let globs = self.globs.iter().map(|(key, entry)| (key, entry));
        exact.chain(globs).map(|(key, entry)| (key.as_str(), entry))
    }

    /// Returns the catalog with these units, to whose decimals costs are rounded.
    #[must_use]
    pub fn with_units(self, units: Arc<Units>) -> Self {
        Self { units, ..self }
    }

    /// Returns the treatment of tools that the catalog does not name.
    pub fn unknown_tools(&self) -> UnknownToolPolicy {
        self.unknown_tools
    }

    /// Builds the registry of the tools of all servers that are configured. Independent of the order
    /// of the servers: of two servers with the same tool, the first by name has the short name.
    pub fn build_registry<'a>(
        &self,
        servers: impl IntoIterator<Item = &'a ServerTools>,
    ) -> ToolRegistry {
        let servers: Vec<_> = servers.into_iter().collect();
        let mut owners = NameOwners::default();
        owners.claim(servers.iter().copied());
        self.build_registry_with_names(servers, &owners)
    }

    /// Builds the registry of the tools of all servers, with these owners of short names (G19).
    pub fn build_registry_with_names<'a>(
        &self,
        servers: impl IntoIterator<Item = &'a ServerTools>,
        owners: &NameOwners,
    ) -> ToolRegistry {
        let mut listed: BTreeMap<tool_names::RemoteToolKey, (&ServerProfile, &RemoteTool)> =
            BTreeMap::new();
        for ServerTools { server, tools } in servers {
            for tool in tools.iter().take(limits::TOOLS_PER_SERVER_MAX) {
                let origin = (server.name.clone(), tool.name.clone());
                listed.entry(origin).or_insert((server, tool));
            }
        }
        let origins: BTreeSet<_> = listed.keys().cloned().collect();
        let assigned = tool_names::assign_names(&origins, owners);
        let tools = assigned.into_iter().filter_map(|(origin, name)| {
            let (server, remote) = listed.get(&origin)?;
            Some(self.resolve_tool(server, remote, name))
        });
        ToolRegistry::new(tools)
    }

    /// Resolves all properties of the tool `remote` of `server`, with the assigned name `name`.
    pub fn resolve_tool(
        &self,
        server: &ServerProfile,
        remote: &RemoteTool,
        name: crate::ids::ToolName,
    ) -> Tool {
        let entries = self.entries(server, remote);
        let classification =
            super::classify::classify(&entries, server, remote, self.unknown_tools);
        let stated =
            |field: fn(&CatalogEntry) -> Option<DurationLimit>| first_stated(&entries, field);
        // The text of an entry for another server's tool must not vouch for this tool.
        let description = first_permitted(&entries, |entry| entry.description.as_deref());
        let description = description.unwrap_or(&remote.description);
        Tool {
            name,
            server: server.name.as_str().into(),
            remote_name: remote.name.clone(),
            description: truncate(description, limits::TOOL_DESCRIPTION_BYTES_MAX).to_owned(),
            validator: super::schema::compile(&remote.input_schema),
            input_schema: remote.input_schema.clone(),
            parallel: first_stated(&entries, |entry| entry.parallel)
                .unwrap_or(classification.risk == Risk::ReadOnly),
            timeout: stated(|entry| entry.timeout)
                .map_or(Some(limits::TOOL_TIMEOUT_DEFAULT), |limit| limit.0),
            result_bytes_max: first_stated(&entries, |entry| entry.result_bytes_max)
                .unwrap_or(limits::TOOL_RESULT_BYTES_DEFAULT),
            retry: first_stated(&entries, |entry| entry.retry)
                .unwrap_or_default()
                .to_retry_policy(),
            unavailable_reason: server.unavailable_reason.clone(),
            risk: classification.risk,
            risk_source: classification.source,
            repeatable: classification.repeatable,
            denial_reason: classification.denial_reason,
            // A more specific entry does not lift the constraints of less specific ones.
            constraints: entries
                .iter()
                .flat_map(|found| &found.entry.constraints)
                .cloned()
                .collect(),
            cost: first_stated(&entries, |entry| entry.cost_rule(&self.units)),
            exclusive: first_stated(&entries, |entry| entry.exclusive.clone()),
            // The results of a tool that may write are never served from the cache.
            cache_ttl: first_stated(&entries, |entry| entry.cache)
                .map(|span| span.0)
                .filter(|_| classification.risk == Risk::ReadOnly && classification.repeatable),
        }
    }

    /// Returns the entries that match a tool, the most specific first.
    fn entries(&self, server: &ServerProfile, remote: &RemoteTool) -> Vec<EntryMatch<'_>> {
        let qualified = tool_names::qualified_name(&server.name, &remote.name);
        let names = BTreeSet::from([qualified.as_str(), remote.name.as_str()]);
        let exact = names.iter().filter_map(|name| self.exact.get_key_value(*name));
        let exact = exact.flat_map(|(key, entries)| entries.iter().map(move |entry| (key, entry)));
        let globs = self.globs.iter().map(|(key, entry)| (key, entry));
        let mut entries: Vec<_> = exact
            .chain(globs)
            .filter_map(|(key, entry)| EntryMatch::new(key, entry, server, remote))
            .collect();
        entries.sort_by_key(EntryMatch::rank);
        entries
    }
}

#[cfg(test)]
#[path = "catalog_tests.rs"]
mod tests;
