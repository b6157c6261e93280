//! Tool names: unique, accepted by model providers, and permanent (G19).
//!
//! Every tool has a **long name**, `server__tool`, which depends on nothing but the server and its name
//! of the tool. A tool has its **short name**, the server's own name, while its server is the owner of
//! that name ([`NameOwners`]). No server can take a name of another one: a short name has no `__`, the
//! part of a long name before the first `__` is the server, and ownership does not end when a server
//! drops a tool.

use super::catalog::{RemoteTool, ServerTools};
use crate::{
    agent::READ_RESOURCE_TOOL, context::READ_SKILL_TOOL, delegation::DELEGATE_TOOL, ids::ToolName,
    json::Digest, limits, preflight::SUBMIT_PLAN_TOOL,
};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of characters of a tool name that model providers accept.
const NAME_CHARS_MAX: usize = 64;
/// Number of digits of the digest in a name.
const DIGEST_CHARS: usize = 8;
/// Maximum characters of the name of a server. Leaves room for `__`, a part of the tool's name and a
/// digest.
pub const SERVER_NAME_CHARS_MAX: usize = 48;

/// The server of the tools that are built into Greenroom. These tools keep their names.
pub const BUILT_IN_SERVER: &str = "built-in";
/// The names of built-in tools, which agents are permitted to use by settings of their own. No other
/// tool has them, also while the built-in tool does not exist.
const RESERVED_NAMES: [&str; 4] =
    [SUBMIT_PLAN_TOOL, DELEGATE_TOOL, READ_SKILL_TOOL, READ_RESOURCE_TOOL];

/// Separates the server from the tool in a long name.
pub(super) const SEPARATOR: &str = "__";

/// The identity of a tool at its server: (server, remote name).
pub(super) type RemoteToolKey = (String, String);

/// The owners of short tool names: the server that had each name first.
///
/// Ownership ends only when another server lists the name while the owner is not configured any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameOwners {
    /// The owner of each name, in legal characters.
    owners: BTreeMap<String, String>,
}

impl NameOwners {
    /// Creates the owners from stored pairs of name and server.
    pub fn from_stored(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { owners: pairs.into_iter().collect() }
    }

    /// Returns the pairs of name and server that `earlier` does not have.
    pub fn changes_since(&self, earlier: &Self) -> Vec<(String, String)> {
        let is_new =
            |(name, server): &(&String, &String)| earlier.owners.get(*name) != Some(*server);
        let changes = self.owners.iter().filter(is_new);
        changes.map(|(name, server)| (name.clone(), server.clone())).collect()
    }

    /// Gives each name without an owner to the first server that lists a tool of that name. `servers`
    /// are all configured servers. Each owns a bounded number of names; its other tools have long
    /// names. Returns true if an owner changed.
    pub fn claim<'a>(&mut self, servers: impl IntoIterator<Item = &'a ServerTools>) -> bool {
        let servers: BTreeMap<String, &[RemoteTool]> = servers
            .into_iter()
            .filter(|tools| tools.server.name != BUILT_IN_SERVER)
            .map(|tools| (legal_text(&tools.server.name), tools.tools.as_slice()))
            .collect();
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for owner in self.owners.values() {
            *counts.entry(owner.clone()).or_default() += 1;
        }
        let mut is_changed = false;
        for (server, tools) in &servers {
            let count = counts.entry(server.clone()).or_default();
            for tool in tools.iter().take(limits::TOOLS_PER_SERVER_MAX) {
                let has_owner = |owner: &String| servers.contains_key(owner);
                if *count < limits::SHORT_NAMES_PER_SERVER_MAX
                    && may_be_short(&tool.name)
                    && !self.owners.get(&tool.name).is_some_and(has_owner)
                {
                    self.owners.insert(tool.name.clone(), server.clone());
                    *count += 1;
                    is_changed = true;
                }
            }
        }
        is_changed
    }

    fn is_owner(&self, (server, remote_name): &RemoteToolKey) -> bool {
        self.owners.get(remote_name).is_some_and(|owner| *owner == legal_text(server))
    }
}

/// Assigns each tool a name that is unique and matches `^[a-zA-Z0-9_-]{1,64}$`. The name does not
/// depend on the other tools. A tool whose digest equals that of another tool of the same server has
/// no name.
pub(super) fn assign_names(
    origins: &BTreeSet<RemoteToolKey>,
    owners: &NameOwners,
) -> BTreeMap<RemoteToolKey, ToolName> {
    let is_built_in = |(server, _): &RemoteToolKey| server == BUILT_IN_SERVER;
    let built_in: BTreeSet<&str> = origins
        .iter()
        .filter(|origin| is_built_in(origin))
        .map(|(_, name)| name.as_str())
        .collect();
    let mut names: BTreeMap<ToolName, RemoteToolKey> = BTreeMap::new();
    for origin in origins {
        let (server, remote_name) = origin;
        let is_short = is_built_in(origin) && is_legal(remote_name)
            || owners.is_owner(origin)
                && may_be_short(remote_name)
                && !built_in.contains(remote_name.as_str());
        let name = if is_short { remote_name.clone() } else { long_name(server, remote_name) };
        if let Ok(name) = ToolName::parse(&name) {
            names.entry(name).or_insert_with(|| origin.clone());
        }
    }
    names.into_iter().map(|(name, origin)| (origin, name)).collect()
}

/// Returns true if a tool may have its own name as its short name.
fn may_be_short(remote_name: &str) -> bool {
    is_legal(remote_name)
        && !remote_name.contains(SEPARATOR)
        && !RESERVED_NAMES.contains(&remote_name)
}

/// Returns the long name of a tool: `server__tool`. A digest replaces what is too long or not legal,
/// and follows what could be taken for a name with a digest.
pub(super) fn long_name(server: &str, remote_name: &str) -> String {
    let qualified = qualified_name(server, remote_name);
    let is_unchanged = remote_name.chars().all(is_legal_char);
    if is_unchanged && is_legal(&qualified) && !ends_like_digest(&qualified) {
        qualified
    } else {
        name_with_digest(server, remote_name)
    }
}

/// Returns every name that denotes the tool, at any time: also those that it does not have at present.
pub(super) fn every_name(server: &str, remote_name: &str) -> [String; 4] {
    [
        remote_name.to_owned(),
        format!("{server}{SEPARATOR}{remote_name}"),
        qualified_name(server, remote_name),
        name_with_digest(server, remote_name),
    ]
}

/// Returns `server__tool` in legal characters. The result may be too long.
pub(super) fn qualified_name(server: &str, remote_name: &str) -> String {
    format!("{}{SEPARATOR}{}", legal_text(server), legal_text(remote_name))
}

/// Returns `text` with `_` in place of characters that are not legal in a name.
pub(super) fn legal_text(text: &str) -> String {
    text.chars().map(|c| if is_legal_char(c) { c } else { '_' }).collect()
}

/// Checks the name of a server, so that the long names of its tools can't be those of another server.
/// The error is a problem that follows "the name".
pub fn validate_server_name(name: &str) -> Result<(), String> {
    let characters = name.chars().count();
    if name == BUILT_IN_SERVER || !(1..=SERVER_NAME_CHARS_MAX).contains(&characters) {
        return Err(format!(
            "must have 1 to {SERVER_NAME_CHARS_MAX} characters and must not be `{BUILT_IN_SERVER}`"
        ));
    }
    let legal = legal_text(name);
    if legal.contains(SEPARATOR) || legal.ends_with('_') {
        return Err(format!(
            "must not contain `{SEPARATOR}` or end in `_`, as it separates the server from the tool in \
             tool names; characters other than letters, digits, `-` and `_` count as `_`"
        ));
    }
    Ok(())
}

/// Returns the name of a server as it is in tool names. Two servers must not have the same.
pub fn server_in_tool_names(name: &str) -> String {
    legal_text(name)
}

fn name_with_digest(server: &str, remote_name: &str) -> String {
    // The third member is a constant of names that were assigned before.
    let name = serde_json::json!([server, remote_name, 1]);
    let digest = Digest::hash_canonical_text(&name).to_string();
    let suffix = &digest[..DIGEST_CHARS];
    let qualified = qualified_name(server, remote_name);
    // `qualified` is ASCII, so bytes equal characters.
    let prefix = crate::text::truncate(&qualified, NAME_CHARS_MAX - 1 - suffix.len());
    format!("{prefix}_{suffix}")
}

fn ends_like_digest(name: &str) -> bool {
    let is_digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    name.rsplit_once('_')
        .is_some_and(|(_, end)| end.len() == DIGEST_CHARS && end.chars().all(is_digit))
}

fn is_legal(name: &str) -> bool {
    (1..=NAME_CHARS_MAX).contains(&name.len()) && name.chars().all(is_legal_char)
}

fn is_legal_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

#[cfg(test)]
#[path = "tool_names_tests.rs"]
mod tests;
