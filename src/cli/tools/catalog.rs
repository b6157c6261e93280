//! Reports catalog entries that have no effect: entries that match no tool, and entries that name no
//! server and therefore do not lower a risk (G19). Pure.

use crate::cli::terminal::{COLUMNS, escape_unsafe, push_line, wrap};
use greenroom_actors::tool_servers::{ServerState, ServerStatus};
use greenroom_core::policy::{ListedEntry, Risk};
use std::collections::BTreeMap;

/// Returns the report. Empty if every entry has an effect.
pub(super) fn report(entries: &[ListedEntry], servers: &[ServerStatus]) -> String {
    let mut out = String::new();
    let unmatched: Vec<_> = entries.iter().filter(|entry| entry.tools == 0).collect();
    let mut by_server: BTreeMap<Option<&str>, Vec<&ListedEntry>> = BTreeMap::new();
    for entry in unmatched {
        by_server.entry(entry.server.as_deref()).or_default().push(entry);
    }
    for (server, entries) in by_server {
        let line = format!(
            "warning: {} without a tool, {}: {}",
            pluralize_entries(entries.len()),
            cause(server, servers),
            risk_counts(&entries)
        );
        out.push('\n');
        push_lines(&mut out, &line);
        for entry in entries {
            let risk = entry.risk.map_or("no risk", Risk::name);
            push_lines(&mut out, &format!("  {}: {risk}", escape_unsafe(&entry.name)));
        }
    }
    for entry in entries {
        if let Some(tool) = &entry.not_lowered {
            let name = escape_unsafe(&entry.name);
            let line = format!(
                "warning: the catalog entry `{name}` names no server, so it does not lower the risk of \
                 `{}`, whose server is not trusted",
                escape_unsafe(tool.as_str())
            );
            out.push('\n');
            push_lines(&mut out, &line);
        }
    }
    out
}

fn push_lines(out: &mut String, text: &str) {
    wrap(text, COLUMNS).iter().for_each(|line| push_line(out, line));
}

fn pluralize_entries(count: usize) -> String {
    match count {
        1 => "1 catalog entry".to_owned(),
        count => format!("{count} catalog entries"),
    }
}

/// Returns the reason why entries of a server match no tool.
fn cause(server: Option<&str>, servers: &[ServerStatus]) -> String {
    let Some(name) = server else { return "of any server".to_owned() };
    let status = servers.iter().find(|status| status.name == name);
    let name = escape_unsafe(name);
    match status.map(|status| status.state) {
        None => format!("as server `{name}` is not configured"),
        Some(ServerState::Ready) => format!("of server `{name}`"),
        Some(ServerState::Starting | ServerState::BackingOff | ServerState::Stopped) => {
            format!("as server `{name}` is unavailable")
        }
    }
}

fn risk_counts(entries: &[&ListedEntry]) -> String {
    let count = |risk: Option<Risk>| entries.iter().filter(|entry| entry.risk == risk).count();
    let risks = Risk::ALL.map(|risk| (risk.name(), count(Some(risk))));
    let counts = risks.into_iter().chain([("without a risk", count(None))]);
    let counts = counts.filter(|(_, count)| *count > 0);
    counts.map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, server: Option<&str>, risk: Risk, tools: usize) -> ListedEntry {
        let server = server.map(str::to_owned);
        ListedEntry { name: name.to_owned(), server, risk: Some(risk), tools, not_lowered: None }
    }

    #[test]
    fn g19_entries_without_effect_are_reported() {
        let mut unnamed = entry("get_it", None, Risk::ReadOnly, 1);
        unnamed.not_lowered = Some("get_it".parse().unwrap());
        let entries = [
            entry("used", Some("eve"), Risk::ReadOnly, 1),
            entry("get_a", Some("eve"), Risk::ReadOnly, 0),
            entry("get_b", Some("eve"), Risk::ReadOnly, 0),
            entry("add_c", Some("eve"), Risk::WriteLowRisk, 0),
            entry("gone_*", None, Risk::Critical, 0),
            unnamed,
        ];
        let expected = "
warning: 1 catalog entry without a tool, of any server: 1 critical
gone_*: critical

warning: 3 catalog entries without a tool, as server `eve` is not configured: 2 read_only, 1
write_low_risk
get_a: read_only
get_b: read_only
add_c: write_low_risk

warning: the catalog entry `get_it` names no server, so it does not lower the risk of `get_it`,
whose server is not trusted
";
        let trim = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
        assert_eq!(trim(&report(&entries, &[])), trim(expected));
        assert_eq!(report(&entries[..1], &[]), "");
    }
}
