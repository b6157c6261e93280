//! The classification of a tool: its risk and the source of the risk, in the order of G1, and its
//! repeatability (R1).

use super::catalog::{RemoteTool, ServerProfile, UnknownToolPolicy};
use super::catalog_match::{EntryMatch, first_flag};
use super::{BUILT_IN_SERVER, Risk, RiskSource, name_words};

/// The classification of a tool.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Classification {
    pub(super) risk: Risk,
    pub(super) source: RiskSource,
    pub(super) repeatable: bool,
    pub(super) denial_reason: Option<String>,
}

/// Classifies a tool from the catalog `entries` that match it, the most specific first, its server,
/// its annotations and its name.
pub(super) fn classify(
    entries: &[EntryMatch<'_>],
    server: &ServerProfile,
    remote: &RemoteTool,
    unknown_tools: UnknownToolPolicy,
) -> Classification {
    let (risk, source) = determine_risk(entries, server, remote);
    let repeatable = first_flag(entries, true, |entry| entry.idempotent)
        .unwrap_or_else(|| is_declared_repeatable(risk, &source, server, remote));
    let denial_reason = if is_denied_by_catalog(entries) {
        Some("the catalog denies it".to_owned())
    } else if unknown_tools == UnknownToolPolicy::Deny && is_unknown(entries, server) {
        Some("the catalog does not name it, and unknown tools are denied".to_owned())
    } else {
        None
    };
    Classification { risk, source, repeatable, denial_reason }
}

/// Returns the risk from the first source that states one. Entries that may only restrict can raise
/// it: the most specific of those that precede the source, and the entry with the tool's exact name.
fn determine_risk(
    entries: &[EntryMatch<'_>],
    server: &ServerProfile,
    remote: &RemoteTool,
) -> (Risk, RiskSource) {
    let exact = entries.iter().find(|found| found.is_exact_on_any_server());
    let mut minimum = exact.and_then(EntryMatch::stated_risk);
    let mut stated = None;
    for found in entries {
        let Some(risk) = found.stated_risk() else { continue };
        if found.can_permit {
            stated = Some(risk);
            break;
        }
        minimum.get_or_insert(risk);
    }
    let stated_by_catalog = stated.is_some();
    let (risk, source) = stated
        .or_else(|| server.trusted.then(|| risk_from_annotations(remote)).flatten())
        .or_else(|| risk_from_name(server, remote))
        .unwrap_or((Risk::default(), RiskSource::Default));
    match minimum {
        Some(minimum) if minimum.0 > risk || (minimum.0 == risk && !stated_by_catalog) => minimum,
        Some(_) | None => (risk, source),
    }
}

/// Returns true if the catalog denies the tool on this server, or by its exact name on every server.
fn is_denied_by_catalog(entries: &[EntryMatch<'_>]) -> bool {
    let exact = entries.iter().find(|found| found.is_exact_on_any_server());
    exact.is_some_and(|found| found.entry.deny == Some(true))
        || first_flag(entries, false, |entry| entry.deny) == Some(true)
}

/// Returns true if no entry that may permit states the tool's risk or exempts it from
/// `unknown_tools`. An entry that sets only a timeout, for example, does not make a tool known.
fn is_unknown(entries: &[EntryMatch<'_>], server: &ServerProfile) -> bool {
    let permits = |found: &EntryMatch<'_>| {
        found.can_permit && (found.stated_risk().is_some() || found.entry.deny == Some(false))
    };
    server.name != BUILT_IN_SERVER && !entries.iter().any(permits)
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

/// Returns the risk that the words of the name suggest. The names of a server that is not trusted
/// never lower a risk below the default.
fn risk_from_name(server: &ServerProfile, remote: &RemoteTool) -> Option<(Risk, RiskSource)> {
    let (risk, word) = name_words::risk_from_words(&remote.name)?;
    (server.trusted || risk >= Risk::default()).then_some((risk, RiskSource::NameWord { word }))
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
