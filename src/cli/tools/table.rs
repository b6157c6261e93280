//! The list of tools as people read it. Pure: rows in, text out.

use super::ToolRow;
use crate::cli::terminal::{COLUMNS, ColorMode, Style, escape_unsafe, pluralize, push_line, wrap};
use greenroom_actors::tool_servers::{ServerState, ServerStatus};
use greenroom_core::policy::{Risk, RiskSource};

/// Columns between columns.
const GAP: usize = 2;
/// Columns of a verdict, with the one after it.
const LEVEL_COLUMNS: usize = 6;
/// A name that is longer gets a line of its own.
const NAME_COLUMNS_MAX: usize = 34;

/// What is listed.
pub(super) struct ToolTable<'a> {
    pub(super) servers: &'a [ServerStatus],
    pub(super) rows: &'a [ToolRow],
    pub(super) paint: ColorMode,
}

/// How wide the columns are.
struct Widths {
    name: usize,
    risk: usize,
    /// Before the last column, which has the rest.
    before_why: usize,
}

impl ToolTable<'_> {
    /// A table for each server, under what is to be said of it.
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

    /// A table for each level of risk, after what is to be said of servers.
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

    fn heading(&self, out: &mut String, name: &str, said: &str) {
        if !out.is_empty() {
            out.push('\n');
        }
        let name = escape_unsafe(name);
        let mut lines = wrap(said, COLUMNS.saturating_sub(name.chars().count() + 2)).into_iter();
        let first = lines.next().unwrap_or_default();
        push_line(out, &format!("{}: {first}", self.paint.paint(Style::Bold, &name)));
        lines.for_each(|line| push_line(out, &format!("  {line}")));
    }

    fn widths(&self) -> Widths {
        let longest = |of: fn(&ToolRow) -> usize| self.rows.iter().map(of).max().unwrap_or(0);
        let name =
            longest(|row| escape_unsafe(&row.name).chars().count()).clamp(4, NAME_COLUMNS_MAX);
        let risk = longest(|row| row.risk.name().len()).max(4);
        let levels = if self.has_verdicts() { 1 } else { 4 };
        let before_why = GAP + name + GAP + risk + GAP + levels * LEVEL_COLUMNS + 1;
        Widths { name, risk, before_why }
    }

    fn has_verdicts(&self) -> bool {
        self.rows.iter().any(|row| row.verdict.is_some())
    }

    fn table(
        &self,
        out: &mut String,
        rows: &[&ToolRow],
        widths: &Widths,
        before_why: impl Fn(&ToolRow) -> String,
    ) {
        let Some(first) = rows.first() else { return };
        let heads: Vec<_> = match &first.verdict {
            Some(verdict) => vec![format!("L{}", verdict.level.level())],
            None => (0..4).map(|level| format!("L{level}")).collect(),
        };
        let heads: String = heads.iter().map(|head| format!("{head:LEVEL_COLUMNS$}")).collect();
        let (name, risk) = (widths.name, widths.risk);
        let head = format!("  {:name$}  {:risk$}  {heads} WHY", "TOOL", "RISK");
        push_line(out, &self.paint.paint(Style::Dim, &head));
        for row in rows {
            self.row(out, row, widths, &before_why(row));
        }
    }

    fn row(&self, out: &mut String, row: &ToolRow, widths: &Widths, before_why: &str) {
        let (name, risk) = (widths.name, widths.risk);
        let mut tool = escape_unsafe(&row.name);
        if tool.chars().count() > name {
            push_line(out, &format!("  {tool}"));
            tool.clear();
        }
        let level = |ruling: &str| {
            let style = match ruling {
                "allow" => Style::Green,
                "deny" => Style::Red,
                _ => Style::Yellow,
            };
            self.paint.paint(style, &format!("{ruling:LEVEL_COLUMNS$}"))
        };
        let levels: String = match &row.verdict {
            Some(verdict) => level(verdict.ruling),
            None => row.levels.iter().map(|ruling| level(ruling)).collect(),
        };
        let why = escape_unsafe(&format!("{before_why}{}", risk_reason(row)));
        let mut before = format!("  {tool:name$}  {:risk$}  {levels} ", row.risk.name());
        for line in wrap(&why, COLUMNS - widths.before_why) {
            push_line(out, &format!("{before}{line}"));
            before = " ".repeat(widths.before_why);
        }
    }
}

/// What is to be said of a server; none is one that is part of Greenroom.
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

/// Why the tool is judged so, and what is special about it.
fn risk_reason(row: &ToolRow) -> String {
    let source = match &row.verdict {
        Some(verdict) if verdict.ruling == "deny" => verdict.why.clone(),
        Some(_) | None => match &row.source {
            RiskSource::Catalog => "the catalog names it".to_owned(),
            RiskSource::CatalogGlob { glob } => format!("the catalog's `{glob}`"),
            RiskSource::Annotation { hint } => format!("its trusted server says {hint}"),
            RiskSource::NameWord { word } => format!("`{word}` in its name"),
            RiskSource::Default => "nothing describes it".to_owned(),
        },
    };
    let unavailable = row.unavailable.as_ref().map(|_| "unavailable".to_owned());
    let said: Vec<_> = [source].into_iter().chain(row.marks.clone()).chain(unavailable).collect();
    said.join(", ")
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
