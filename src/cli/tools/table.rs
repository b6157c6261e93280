//! Renders the list of tools as text. Pure.

use super::ToolRow;
use crate::cli::terminal::{COLUMNS, ColorMode, Style, escape_unsafe, pluralize, push_line, wrap};
use greenroom_actors::tool_servers::{ServerState, ServerStatus};
use greenroom_core::policy::{Risk, RiskSource};

/// Blank columns between two columns.
const GAP: usize = 2;
/// Columns of a verdict, including the gap after it.
const LEVEL_COLUMNS: usize = 6;
/// Maximum columns of a name; a longer name has a line of its own.
const NAME_COLUMNS_MAX: usize = 34;

/// The servers and tools to render.
pub(super) struct ToolTable<'a> {
    pub(super) servers: &'a [ServerStatus],
    pub(super) rows: &'a [ToolRow],
    pub(super) paint: ColorMode,
}

/// The widths of the columns.
struct Widths {
    name: usize,
    risk: usize,
    /// Columns before the last column, which has the rest of the line.
    before_reason: usize,
}

impl ToolTable<'_> {
    /// Renders a table per server, each below the server's status.
    pub(super) fn by_server(&self) -> String {
        let mut out = String::new();
        let widths = self.widths();
        let listed = self.servers.iter().map(|server| server.name.as_str());
        let unlisted = self.rows.iter().map(|row| row.server.as_str());
        let mut names: Vec<_> = listed.chain(unlisted).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let mut rows: Vec<_> = self.rows.iter().filter(|row| row.server == name).collect();
            rows.sort_by_key(|row| (row.risk, row.name.as_str()));
            let server = self.servers.iter().find(|server| server.name == name);
            self.heading(&mut out, name, &server_status_text(server, rows.len()));
            self.table(&mut out, &rows, &widths, |_| String::new());
        }
        if out.is_empty() {
            out.push_str("No MCP servers are configured, so there are no tools.\n");
        }
        out
    }

    /// Renders the status of each server, then a table per risk.
    pub(super) fn by_risk(&self) -> String {
        let mut out = String::new();
        for server in self.servers {
            let tools = self.rows.iter().filter(|row| row.server == server.name).count();
            let line = format!(
                "{}: {}",
                escape_unsafe(&server.name),
                server_status_text(Some(server), tools)
            );
            wrap(&line, COLUMNS).iter().for_each(|line| push_line(&mut out, line));
        }
        let widths = self.widths();
        let many_servers = self.servers.len() > 1;
        for risk in Risk::ALL {
            let rows: Vec<_> = self.rows.iter().filter(|row| row.risk == risk).collect();
            if rows.is_empty() {
                continue;
            }
            self.heading(&mut out, risk.name(), &pluralize(rows.len(), "tool"));
            let server = |row: &ToolRow| {
                if many_servers { format!("{}: ", row.server) } else { String::new() }
            };
            self.table(&mut out, &rows, &widths, server);
        }
        out
    }

    fn heading(&self, out: &mut String, name: &str, text: &str) {
        if !out.is_empty() {
            out.push('\n');
        }
        let name = escape_unsafe(name);
        let mut lines = wrap(text, COLUMNS.saturating_sub(name.chars().count() + 2)).into_iter();
        let first = lines.next().unwrap_or_default();
        push_line(out, &format!("{}: {first}", self.paint.paint(Style::Bold, &name)));
        lines.for_each(|line| push_line(out, &format!("  {line}")));
    }

    fn widths(&self) -> Widths {
        let longest =
            |length: fn(&ToolRow) -> usize| self.rows.iter().map(length).max().unwrap_or(0);
        let name =
            longest(|row| escape_unsafe(&row.name).chars().count()).clamp(4, NAME_COLUMNS_MAX);
        let risk = longest(|row| row.risk.name().len()).max(4);
        let levels = if self.has_verdicts() { 1 } else { 4 };
        let before_reason = GAP + name + GAP + risk + GAP + levels * LEVEL_COLUMNS + 1;
        Widths { name, risk, before_reason }
    }

    fn has_verdicts(&self) -> bool {
        self.rows.iter().any(|row| row.verdict.is_some())
    }

    fn table(
        &self,
        out: &mut String,
        rows: &[&ToolRow],
        widths: &Widths,
        reason_prefix: impl Fn(&ToolRow) -> String,
    ) {
        let Some(first) = rows.first() else { return };
        let heads: Vec<_> = match &first.verdict {
            Some(verdict) => vec![format!("L{}", verdict.level.level())],
            None => (0..4).map(|level| format!("L{level}")).collect(),
        };
        let heads: String = heads.iter().map(|head| format!("{head:LEVEL_COLUMNS$}")).collect();
        let (name, risk) = (widths.name, widths.risk);
        let head = format!("  {:name$}  {:risk$}  {heads} REASON", "TOOL", "RISK");
        push_line(out, &self.paint.paint(Style::Dim, &head));
        for row in rows {
            self.row(out, row, widths, &reason_prefix(row));
        }
    }

    fn row(&self, out: &mut String, row: &ToolRow, widths: &Widths, reason_prefix: &str) {
        let (name, risk) = (widths.name, widths.risk);
        let mut tool = escape_unsafe(&row.name);
        if tool.chars().count() > name {
            push_line(out, &format!("  {tool}"));
            tool.clear();
        }
        let level = |verdict: &str| {
            let style = match verdict {
                "allow" => Style::Green,
                "deny" => Style::Red,
                _ => Style::Yellow,
            };
            self.paint.paint(style, &format!("{verdict:LEVEL_COLUMNS$}"))
        };
        let levels: String = match &row.verdict {
            Some(verdict) => level(verdict.verdict),
            None => row.levels.iter().map(|verdict| level(verdict)).collect(),
        };
        let reason = escape_unsafe(&format!("{reason_prefix}{}", risk_reason(row)));
        let mut before = format!("  {tool:name$}  {:risk$}  {levels} ", row.risk.name());
        for line in wrap(&reason, COLUMNS - widths.before_reason) {
            push_line(out, &format!("{before}{line}"));
            before = " ".repeat(widths.before_reason);
        }
    }
}

/// Describes a server's status. `None` is the server of built-in tools.
fn server_status_text(server: Option<&ServerStatus>, tools: usize) -> String {
    let Some(server) = server else { return pluralize(tools, "tool") };
    let reason = server.reason.as_deref().map(escape_unsafe);
    match server.state {
        ServerState::Ready => match server.tools == tools {
            true => pluralize(tools, "tool"),
            false => format!("{tools} of {}", pluralize(server.tools, "tool")),
        },
        ServerState::Starting => "unavailable: still starting".to_owned(),
        ServerState::BackingOff | ServerState::Stopped => {
            format!("unavailable: {}", reason.unwrap_or_else(|| "not running".to_owned()))
        }
    }
}

/// Returns the reason of the tool's risk or of its denial, and the tool's marks.
fn risk_reason(row: &ToolRow) -> String {
    let source = match &row.verdict {
        Some(verdict) if verdict.verdict == "deny" => verdict.reason.clone(),
        Some(_) | None => match &row.source {
            RiskSource::Catalog => "catalog".to_owned(),
            RiskSource::CatalogGlob { glob } => format!("catalog pattern `{glob}`"),
            RiskSource::Annotation { hint } => format!("annotation {hint}"),
            RiskSource::NameWord { word } => format!("`{word}` in its name"),
            RiskSource::Default => "default".to_owned(),
        },
    };
    let unavailable = row.unavailable.as_ref().map(|_| "unavailable".to_owned());
    let parts: Vec<_> = [source].into_iter().chain(row.marks.clone()).chain(unavailable).collect();
    parts.join(", ")
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
