//! The catalog: what configuration says of tools, and the book of tools made from it and from what
//! the servers list (G1).
//!
//! It does not know where entries were read from; what an entry leaves open is settled in `classify`.

use super::{Constraint, CostRule, Expression, Risk, Tool, ToolRegistry, budget_limit, tool_names};
use crate::{
    call::RetryPolicy,
    duration::{ConfigDuration, DurationLimit},
    limits,
    text::{glob_matches, truncate},
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What the catalog says of a tool, or of all tools that match a glob. What is absent is left to
/// less specific entries, then to the server, then to defaults.
///
/// Reading one checks that it makes sense, so that the error can say where it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, remote = "Self")]
pub struct CatalogEntry {
    /// The only server whose tools it means.
    pub server: Option<String>,
    /// How dangerous it is.
    pub risk: Option<Risk>,
    /// `true` is `risk = "read_only"` in other words.
    pub read_only: Option<bool>,
    /// Whether running it twice does what running it once does (R1).
    pub idempotent: Option<bool>,
    /// Whether its calls may run beside others (S3).
    pub parallel: Option<bool>,
    /// Time for one attempt; `"none"` is no limit (T4).
    pub timeout: Option<DurationLimit>,
    /// Bytes of a result that are kept (T4).
    pub result_bytes_max: Option<usize>,
    /// How often and when failed attempts are tried again (R2).
    pub retry: Option<RetryEntry>,
    /// In place of the server's.
    pub description: Option<String>,
    /// Whether it may never run; `false` exempts it from `unknown_tools = "deny"`.
    pub deny: Option<bool>,
    /// What must hold of its calls (G5). Those of less specific entries must hold too.
    pub constraints: Vec<Constraint>,
    /// What a call costs (G5).
    pub cost: Option<Expression>,
    /// The unit of the cost.
    pub cost_unit: Option<String>,
    /// The key by which its calls run one at a time across sessions (T8).
    pub exclusive: Option<Expression>,
    /// How long its results may be used again (T6); of read-only tools alone.
    pub cache: Option<ConfigDuration>,
}

/// A tool's own retries; what is absent is the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryEntry {
    /// Retries after the first attempt; written `max`.
    #[serde(rename = "max")]
    pub retries_max: Option<u32>,
    /// The first delay's upper end.
    pub base: Option<ConfigDuration>,
    /// The longest delay.
    pub cap: Option<ConfigDuration>,
}

impl RetryEntry {
    pub(super) fn to_retry_policy(self) -> RetryPolicy {
        let usual = RetryPolicy::default();
        RetryPolicy {
            retries_max: self.retries_max.unwrap_or(usual.retries_max),
            initial_delay: self.base.map_or(usual.initial_delay, |base| base.0),
            max_delay: self.cap.map_or(usual.max_delay, |cap| cap.0),
        }
    }
}

impl CatalogEntry {
    /// The risk it states, in either way.
    pub(super) fn stated_risk(&self) -> Option<Risk> {
        self.risk.or_else(|| (self.read_only == Some(true)).then_some(Risk::ReadOnly))
    }

    fn cost_rule(&self) -> Option<CostRule> {
        let unit = self.cost_unit.as_deref().unwrap_or(budget_limit::UNIT_DEFAULT);
        self.cost.clone().map(|amount| CostRule { amount, unit: unit.to_owned() })
    }

    fn find_problem(&self) -> Option<String> {
        if self.constraints.len() > limits::CONSTRAINTS_MAX {
            return Some(format!("constraints may have at most {}", limits::CONSTRAINTS_MAX));
        }
        if let Some(unit) = &self.cost_unit {
            if self.cost.is_none() {
                return Some("cost_unit is the unit of a cost, and there is none".to_owned());
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
            return Some(format!("cache is for read-only tools, and its risk is \"{risk}\""));
        }
        if self.cache.is_some_and(|cache| cache.0 > limits::RESULT_CACHE_TTL_MAX) {
            return Some("cache must be at most \"1d\"".to_owned());
        }
        let most = limits::TOOL_RESULT_BYTES_MAX;
        if self.result_bytes_max.is_some_and(|bytes| bytes == 0 || bytes > most) {
            return Some(format!("result_bytes_max must be 1 to {most}"));
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
        // The derived function, which `remote` makes an inherent one.
        let entry = Self::deserialize(deserializer)?;
        entry.find_problem().map_or(Ok(entry), |problem| Err(serde::de::Error::custom(problem)))
    }
}

/// What happens to tools that only the default describes (G1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownToolPolicy {
    /// They are `write_high_risk`.
    #[default]
    WriteHighRisk,
    /// They never run.
    Deny,
}

/// Everything configuration says of tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    exact: BTreeMap<String, CatalogEntry>,
    /// The most specific first.
    globs: Vec<(String, CatalogEntry)>,
    unknown_tools: UnknownToolPolicy,
}

/// An MCP server, as far as policy cares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerProfile {
    /// Its name in configuration.
    pub name: String,
    /// Whether configuration says that its annotations are true.
    pub trusted: bool,
    /// Why its tools can't be called now, if they can't (T2).
    pub unavailable_reason: Option<String>,
}

/// A tool as its server lists it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RemoteTool {
    /// The server's name for it.
    pub name: String,
    /// For the model.
    pub description: String,
    /// JSON Schema of the arguments.
    pub input_schema: Value,
    /// What the server says of its effects.
    pub annotations: ToolAnnotations,
}

/// MCP's tool annotations: hints, which only trusted servers' tools are judged by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolAnnotations {
    /// It changes nothing.
    pub read_only_hint: Option<bool>,
    /// It may destroy.
    pub destructive_hint: Option<bool>,
    /// Twice is as once.
    pub idempotent_hint: Option<bool>,
    /// It reaches beyond a closed domain. No rule asks for it.
    pub open_world_hint: Option<bool>,
}

/// A server and what it lists.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerTools {
    /// The server.
    pub server: ServerProfile,
    /// Its tools; beyond [`limits::TOOLS_PER_SERVER_MAX`] they are left out.
    pub tools: Vec<RemoteTool>,
}

impl Catalog {
    /// The catalog of these entries, by exact name or glob (`*` stands for any text). A name is
    /// the server's for its tool, or `server__tool`.
    pub fn new(
        entries: impl IntoIterator<Item = (String, CatalogEntry)>,
        unknown_tools: UnknownToolPolicy,
    ) -> Self {
        let mut catalog = Self { unknown_tools, ..Self::default() };
        for (name, entry) in entries {
            if name.contains('*') {
                catalog.globs.push((name, entry));
            } else {
                catalog.exact.insert(name, entry);
            }
        }
        // More literal characters are more specific; the text decides between equals.
        let literal = |glob: &str| glob.chars().filter(|c| *c != '*').count();
        catalog.globs.sort_by(|(a, _), (b, _)| literal(b).cmp(&literal(a)).then_with(|| a.cmp(b)));
        catalog
    }

    /// What happens to tools that only the default describes.
    pub fn unknown_tools(&self) -> UnknownToolPolicy {
        self.unknown_tools
    }

    /// The book of what all servers list, whatever order they come in.
    pub fn build_registry<'a>(
        &self,
        servers: impl IntoIterator<Item = &'a ServerTools>,
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
        let assigned = tool_names::assign_names(&origins);
        let tools = assigned.into_iter().filter_map(|(origin, name)| {
            let (server, remote) = listed.get(&origin)?;
            Some(self.resolve_tool(server, remote, name))
        });
        ToolRegistry::new(tools)
    }

    /// The tool `remote` of `server`, to be called `name`: everything that is to be known of it.
    pub fn resolve_tool(
        &self,
        server: &ServerProfile,
        remote: &RemoteTool,
        name: crate::ids::ToolName,
    ) -> Tool {
        let entries = self.entries(server, remote);
        let verdict = super::classify::classify(&entries, server, remote, self.unknown_tools);
        let stated = |of: fn(&CatalogEntry) -> Option<DurationLimit>| first_stated(&entries, of);
        let description = first_stated(&entries, |entry| entry.description.as_deref());
        let description = description.unwrap_or(&remote.description);
        Tool {
            name,
            server: server.name.as_str().into(),
            remote_name: remote.name.clone(),
            description: truncate(description, limits::TOOL_DESCRIPTION_BYTES_MAX).to_owned(),
            validator: super::schema::compile(&remote.input_schema),
            input_schema: remote.input_schema.clone(),
            parallel: first_stated(&entries, |entry| entry.parallel)
                .unwrap_or(verdict.risk == Risk::ReadOnly),
            timeout: stated(|entry| entry.timeout)
                .map_or(Some(limits::TOOL_TIMEOUT_DEFAULT), |limit| limit.0),
            result_bytes_max: first_stated(&entries, |entry| entry.result_bytes_max)
                .unwrap_or(limits::TOOL_RESULT_BYTES_DEFAULT),
            retry: first_stated(&entries, |entry| entry.retry)
                .unwrap_or_default()
                .to_retry_policy(),
            unavailable_reason: server.unavailable_reason.clone(),
            risk: verdict.risk,
            risk_source: verdict.source,
            repeatable: verdict.repeatable,
            denial_reason: verdict.denial_reason,
            // A constraint is never lifted by a nearer entry: whoever wrote it relies on it.
            constraints: entries
                .iter()
                .flat_map(|(_, entry)| &entry.constraints)
                .cloned()
                .collect(),
            cost: first_stated(&entries, CatalogEntry::cost_rule),
            exclusive: first_stated(&entries, |entry| entry.exclusive.clone()),
            // What writes, or may write, is never answered from memory.
            cache_ttl: first_stated(&entries, |entry| entry.cache)
                .map(|span| span.0)
                .filter(|_| verdict.risk == Risk::ReadOnly && verdict.repeatable),
        }
    }

    /// The entries that mean this tool, the most specific first; each with its glob, if it is one.
    fn entries(&self, server: &ServerProfile, remote: &RemoteTool) -> Vec<EntryMatch<'_>> {
        let qualified = tool_names::qualified_name(&server.name, &remote.name);
        let names = [qualified.as_str(), remote.name.as_str()];
        let exact =
            names.iter().filter_map(|name| self.exact.get(*name)).map(|entry| (None, entry));
        let globs = self
            .globs
            .iter()
            .filter(|(glob, _)| names.iter().any(|name| glob_matches(glob, name)))
            .map(|(glob, entry)| (Some(glob.as_str()), entry));
        let mut entries: Vec<_> = exact
            .chain(globs)
            .filter(|(_, entry)| entry.server.as_ref().is_none_or(|only| *only == server.name))
            .collect();
        // A legal name may already look qualified; one entry counts once.
        entries.dedup();
        entries
    }
}

/// A glob, if it is not an exact name, and its entry.
pub(super) type EntryMatch<'a> = (Option<&'a str>, &'a CatalogEntry);

/// The first answer of the entries, the most specific first.
pub(super) fn first_stated<'a, T>(
    entries: &[EntryMatch<'a>],
    of: impl Fn(&'a CatalogEntry) -> Option<T>,
) -> Option<T> {
    entries.iter().find_map(|(_, entry)| of(entry))
}

#[cfg(test)]
#[path = "catalog_tests.rs"]
mod tests;
