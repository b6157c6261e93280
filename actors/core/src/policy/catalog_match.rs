//! The catalog entries that match a tool, and what each of them may do (G1, G19).
//!
//! An entry that names its server is written for one tool and may permit: lower the risk, exempt
//! from `unknown_tools`, declare the tool repeatable, describe it. An entry without a server matches
//! tools of every server, also of one that takes another's tool names. On servers that are not
//! trusted, such an entry only restricts.

use super::catalog::{CatalogEntry, RemoteTool, ServerProfile};
use super::{Risk, RiskSource, tool_names};
use crate::text::glob_matches;

/// A catalog entry that matches a tool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct EntryMatch<'a> {
    /// The key of the entry: a name or a glob.
    pub(super) key: &'a str,
    /// The entry.
    pub(super) entry: &'a CatalogEntry,
    /// True if the entry applies to a single server.
    pub(super) names_server: bool,
    /// True if the entry may permit; false if it may only restrict.
    pub(super) can_permit: bool,
}

impl<'a> EntryMatch<'a> {
    /// Matches an entry with the tool `remote` of `server`.
    pub(super) fn new(
        key: &'a str,
        entry: &'a CatalogEntry,
        server: &ServerProfile,
        remote: &RemoteTool,
    ) -> Option<Self> {
        let matches = |name: &str| if is_glob(key) { glob_matches(key, name) } else { key == name };
        let matches_qualified = || matches(&tool_names::qualified_name(&server.name, &remote.name));
        let named_server = server_of_key(key);
        let is_match = match (&entry.server, named_server) {
            (Some(only), _) => {
                *only == server.name && (matches(&remote.name) || matches_qualified())
            }
            // `server__tool` is no tool of another server that has this name.
            (None, Some(named)) => {
                named == tool_names::legal_text(&server.name) && matches_qualified()
            }
            (None, None) => matches(&remote.name) || matches_qualified(),
        };
        let names_server = entry.server.is_some() || named_server.is_some();
        let can_permit = names_server || server.trusted;
        is_match.then_some(Self { key, entry, names_server, can_permit })
    }

    /// Returns the risk that the entry states, and its source.
    pub(super) fn stated_risk(&self) -> Option<(Risk, RiskSource)> {
        let source = match is_glob(self.key) {
            false => RiskSource::Catalog,
            true => RiskSource::CatalogGlob { glob: self.key.to_owned() },
        };
        self.entry.stated_risk().map(|risk| (risk, source))
    }

    /// Returns true if the entry applies to a tool of exactly this name, on any server.
    pub(super) fn is_exact_on_any_server(&self) -> bool {
        !is_glob(self.key) && !self.names_server
    }

    /// Returns the rank of the entry: the lowest is the most specific one. Globs with more literal
    /// characters are more specific; ties are ordered by text.
    pub(super) fn rank(&self) -> impl Ord + use<'a> {
        let literal = self.key.chars().filter(|c| *c != '*').count();
        let literal_rank = std::cmp::Reverse(if is_glob(self.key) { literal } else { usize::MAX });
        (literal_rank, !self.names_server, server_of_key(self.key).is_none(), self.key)
    }
}

/// Returns true if the key of an entry is a glob.
pub(super) fn is_glob(key: &str) -> bool {
    key.contains('*')
}

/// Returns the server in a key `server__tool` or `server__glob`.
pub(super) fn server_of_key(key: &str) -> Option<&str> {
    let (server, _) = key.split_once(tool_names::SEPARATOR)?;
    Some(server).filter(|server| !server.is_empty() && !is_glob(server))
}

/// Returns the first value that an entry states, the most specific entry first.
pub(super) fn first_stated<'a, T>(
    entries: &[EntryMatch<'a>],
    field: impl Fn(&'a CatalogEntry) -> Option<T>,
) -> Option<T> {
    entries.iter().find_map(|found| field(found.entry))
}

/// Same as [`first_stated`], of the entries that may permit.
pub(super) fn first_permitted<'a, T>(
    entries: &[EntryMatch<'a>],
    field: impl Fn(&'a CatalogEntry) -> Option<T>,
) -> Option<T> {
    entries.iter().filter(|found| found.can_permit).find_map(|found| field(found.entry))
}

/// Returns the first flag that an entry states, except permissions of entries that may only
/// restrict.
pub(super) fn first_flag<'a>(
    entries: &[EntryMatch<'a>],
    permission: bool,
    field: impl Fn(&'a CatalogEntry) -> Option<bool>,
) -> Option<bool> {
    let stated = |found: &EntryMatch<'a>| {
        field(found.entry).filter(|flag| found.can_permit || *flag != permission)
    };
    entries.iter().find_map(stated)
}
