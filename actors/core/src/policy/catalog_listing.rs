//! The entries of a catalog, compared with the tools that servers list: for administrators who check
//! a catalog (G1, G19).

use super::catalog::{Catalog, CatalogEntry, RemoteTool, ServerProfile};
use super::catalog_match::{EntryMatch, server_of_key};
use super::{Risk, Tool, ToolRegistry};
use crate::ids::ToolName;
use serde::Serialize;

/// An entry of the catalog, and its effect on the tools of a registry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListedEntry {
    /// The name or glob.
    pub name: String,
    /// The server that the entry names.
    pub server: Option<String>,
    /// The risk that the entry states.
    pub risk: Option<Risk>,
    /// Number of tools that the entry matches.
    pub tools: usize,
    /// The first tool whose risk the entry would lower if it named the tool's server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_lowered: Option<ToolName>,
}

impl Catalog {
    /// Returns all entries, with their effect on the tools of `registry`. `is_trusted` says whether a
    /// server is marked `trusted`.
    pub fn list_entries(
        &self,
        registry: &ToolRegistry,
        is_trusted: impl Fn(&str) -> bool,
    ) -> Vec<ListedEntry> {
        let list = |(key, entry): (&str, &CatalogEntry)| {
            let matches = |tool: &&Tool| {
                let trusted = is_trusted(&tool.server);
                let server =
                    ServerProfile { name: tool.server.to_string(), trusted, ..Default::default() };
                let remote = RemoteTool { name: tool.remote_name.clone(), ..Default::default() };
                EntryMatch::new(key, entry, &server, &remote).map(|found| found.can_permit)
            };
            let tools = registry.iter().map(|tool| &**tool);
            let matched: Vec<_> = tools.filter_map(|tool| Some((tool, matches(&tool)?))).collect();
            let risk = entry.stated_risk();
            let is_lower = |tool: &Tool| risk.is_some_and(|risk| risk < tool.risk);
            let not_lowered =
                matched.iter().find(|(tool, can_permit)| !can_permit && is_lower(tool));
            ListedEntry {
                name: key.to_owned(),
                server: entry.server.as_deref().or(server_of_key(key)).map(str::to_owned),
                risk,
                tools: matched.len(),
                not_lowered: not_lowered.map(|(tool, _)| tool.name.clone()),
            }
        };
        self.iter().map(list).collect()
    }
}
