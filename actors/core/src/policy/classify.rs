//! How dangerous a tool is and why, by the order of G1; and whether it may run twice (R1).

use super::catalog::{Match, RemoteTool, ServerFacts, UnknownTools, first};
use super::{Risk, RiskSource, names};

/// What policy needs to know of a tool.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Classification {
    pub(super) risk: Risk,
    pub(super) source: RiskSource,
    pub(super) repeatable: bool,
    pub(super) denied: Option<String>,
}

/// Settles what the catalog's `entries` for the tool, its server and its name say together.
pub(super) fn classify(
    entries: &[Match<'_>],
    server: &ServerFacts,
    remote: &RemoteTool,
    unknown_tools: UnknownTools,
) -> Classification {
    let (risk, source) = by_catalog(entries)
        .or_else(|| server.trusted.then(|| by_annotations(remote)).flatten())
        .or_else(|| by_words(&remote.name))
        .unwrap_or((Risk::default(), RiskSource::Default));
    let repeatable = first(entries, |entry| entry.idempotent)
        .unwrap_or_else(|| said_repeatable(risk, &source, server, remote));
    let denied = match first(entries, |entry| entry.deny) {
        Some(true) => Some("the catalog says so".to_owned()),
        Some(false) => None,
        None if source == RiskSource::Default && unknown_tools == UnknownTools::Deny => {
            Some("nothing says how dangerous it is, and unknown tools are denied".to_owned())
        }
        None => None,
    };
    Classification { risk, source, repeatable, denied }
}

fn by_catalog(entries: &[Match<'_>]) -> Option<(Risk, RiskSource)> {
    entries.iter().find_map(|(glob, entry)| {
        let source = match glob {
            None => RiskSource::Catalog,
            Some(glob) => RiskSource::CatalogGlob { glob: (*glob).to_owned() },
        };
        entry.stated_risk().map(|risk| (risk, source))
    })
}

fn by_annotations(remote: &RemoteTool) -> Option<(Risk, RiskSource)> {
    let hints = remote.annotations;
    let (risk, hint) = match (hints.read_only_hint, hints.destructive_hint) {
        (Some(true), _) => (Risk::ReadOnly, "readOnlyHint = true"),
        (_, Some(true)) => (Risk::WriteHighRisk, "destructiveHint = true"),
        (_, Some(false)) => (Risk::WriteLowRisk, "destructiveHint = false"),
        // MCP: what writes is destructive unless it says otherwise.
        (Some(false), None) => (Risk::WriteHighRisk, "readOnlyHint = false"),
        (None, None) => return None,
    };
    Some((risk, RiskSource::Annotation { hint: hint.to_owned() }))
}

fn by_words(name: &str) -> Option<(Risk, RiskSource)> {
    names::risk_of_words(name).map(|(risk, word)| (risk, RiskSource::NameWord { word }))
}

/// Whether somebody we believe says that it may run twice. A guess from the name is nobody.
fn said_repeatable(
    risk: Risk,
    source: &RiskSource,
    server: &ServerFacts,
    remote: &RemoteTool,
) -> bool {
    let read_only = match source {
        RiskSource::Catalog | RiskSource::CatalogGlob { .. } | RiskSource::Annotation { .. } => {
            risk == Risk::ReadOnly
        }
        RiskSource::NameWord { .. } | RiskSource::Default => false,
    };
    read_only || (server.trusted && remote.annotations.idempotent_hint == Some(true))
}
