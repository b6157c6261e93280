//! The classification of a tool: its risk and the source of the risk, in the order of G1, and its
//! repeatability (R1).

use super::catalog::{EntryMatch, RemoteTool, ServerProfile, UnknownToolPolicy, first_stated};
use super::{Risk, RiskSource, tool_names};

/// The classification of a tool.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Classification {
    pub(super) risk: Risk,
    pub(super) source: RiskSource,
    pub(super) repeatable: bool,
    pub(super) denial_reason: Option<String>,
}

/// Classifies a tool from the catalog `entries` that match it, its server, its annotations and its
/// name.
pub(super) fn classify(
    entries: &[EntryMatch<'_>],
    server: &ServerProfile,
    remote: &RemoteTool,
    unknown_tools: UnknownToolPolicy,
) -> Classification {
    let (risk, source) = risk_from_catalog(entries)
        .or_else(|| server.trusted.then(|| risk_from_annotations(remote)).flatten())
        .or_else(|| risk_from_name(&remote.name))
        .unwrap_or((Risk::default(), RiskSource::Default));
    let repeatable = first_stated(entries, |entry| entry.idempotent)
        .unwrap_or_else(|| is_declared_repeatable(risk, &source, server, remote));
    let denial_reason = match first_stated(entries, |entry| entry.deny) {
        Some(true) => Some("the catalog denies it".to_owned()),
        Some(false) => None,
        None if source == RiskSource::Default && unknown_tools == UnknownToolPolicy::Deny => {
            Some("its risk is unknown, and unknown tools are denied".to_owned())
        }
        None => None,
    };
    Classification { risk, source, repeatable, denial_reason }
}

fn risk_from_catalog(entries: &[EntryMatch<'_>]) -> Option<(Risk, RiskSource)> {
    entries.iter().find_map(|(glob, entry)| {
        let source = match glob {
            None => RiskSource::Catalog,
            Some(glob) => RiskSource::CatalogGlob { glob: (*glob).to_owned() },
        };
        entry.stated_risk().map(|risk| (risk, source))
    })
}

fn risk_from_annotations(remote: &RemoteTool) -> Option<(Risk, RiskSource)> {
    let hints = remote.annotations;
    let (risk, hint) = match (hints.read_only_hint, hints.destructive_hint) {
        (Some(true), _) => (Risk::ReadOnly, "readOnlyHint = true"),
        (_, Some(true)) => (Risk::WriteHighRisk, "destructiveHint = true"),
        (_, Some(false)) => (Risk::WriteLowRisk, "destructiveHint = false"),
        // MCP: a tool that writes is destructive unless it states otherwise.
        (Some(false), None) => (Risk::WriteHighRisk, "readOnlyHint = false"),
        (None, None) => return None,
    };
    Some((risk, RiskSource::Annotation { hint: hint.to_owned() }))
}

fn risk_from_name(name: &str) -> Option<(Risk, RiskSource)> {
    tool_names::risk_from_words(name).map(|(risk, word)| (risk, RiskSource::NameWord { word }))
}

/// Returns true if a trusted source declares that the tool may be repeated. A risk guessed from the
/// name is not such a source.
fn is_declared_repeatable(
    risk: Risk,
    source: &RiskSource,
    server: &ServerProfile,
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
