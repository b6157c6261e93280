//! The output of `greenroom policy check`. Each difference is printed when it is found, so that
//! memory does not grow with the log; the counts follow at the end.

use super::{recorded_calls::RecordedCall, simulator::SimulatedVerdict};
use crate::cli::terminal::{
    self, COLUMNS, ColorMode, Style, escape_unsafe, pluralize, push_line, wrap,
};
use greenroom_core::{ids::SessionId, policy::MatrixVerdict, session::SessionRow};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fmt::Write as _};

/// Columns before a reason's label.
const INDENT: usize = 4;

/// Prints differences and counts calls.
pub(super) struct PolicyReport {
    json: bool,
    paint: ColorMode,
    /// The session of the last printed heading.
    last_heading: Option<SessionId>,
    sessions: usize,
    calls: usize,
    unknown: u64,
    /// Number of differences by recorded and simulated verdict.
    changes: BTreeMap<(&'static str, &'static str), u64>,
}

impl PolicyReport {
    pub(super) fn new(json: bool) -> Self {
        Self {
            json,
            paint: ColorMode::for_stdout(),
            last_heading: None,
            sessions: 0,
            calls: 0,
            unknown: 0,
            changes: BTreeMap::new(),
        }
    }

    /// Counts the session of the first call; resets `is_new`.
    pub(super) fn count_session(&mut self, is_new: &mut bool) {
        self.sessions += usize::from(std::mem::take(is_new));
    }

    /// Counts a call and prints it if its verdict differs.
    pub(super) fn report_call(
        &mut self,
        row: &SessionRow,
        call: &RecordedCall,
        simulated: SimulatedVerdict,
    ) -> anyhow::Result<()> {
        self.calls += 1;
        if simulated.matches_recorded(call.verdict) {
            return Ok(());
        }
        let (would_be, reason) = match simulated {
            SimulatedVerdict::Known { verdict, reason } => {
                let would_be = verdict_name(verdict);
                *self.changes.entry((verdict_name(call.verdict), would_be)).or_default() += 1;
                (would_be, reason)
            }
            SimulatedVerdict::Unknown { reason } => {
                self.unknown += 1;
                ("unknown", reason)
            }
        };
        let text = if self.json {
            let line = json!({
                "type": "difference",
                "at": call.at,
                "session_id": row.session_id,
                "user_id": row.owner,
                "agent": row.agent,
                "call_id": call.call_id,
                "tool": call.tool,
                "was": {"ruling": verdict_name(call.verdict), "risk": call.risk, "why": call.reason},
                "would_be": {"ruling": would_be, "why": reason},
            });
            format!("{line}\n")
        } else {
            self.format_difference(row, call, would_be, &reason)
        };
        Ok(terminal::print(&text)?)
    }

    fn format_difference(
        &mut self,
        row: &SessionRow,
        call: &RecordedCall,
        would_be: &'static str,
        reason: &str,
    ) -> String {
        let mut out = String::new();
        if self.last_heading != Some(row.session_id) {
            if self.last_heading.is_some() {
                out.push('\n');
            }
            self.last_heading = Some(row.session_id);
            let (agent, owner) =
                (escape_unsafe(row.agent.as_str()), escape_unsafe(row.owner.as_str()));
            let id = self.paint.paint(Style::Bold, &row.session_id.to_string());
            push_line(&mut out, &format!("Session {id}  user {owner}  agent {agent}"));
        }
        let at = call.at.to_string();
        let at = at.get(..19).unwrap_or(&at).replace('T', " ");
        let head = format!(
            "  {at}  {:5} → {}  {}",
            verdict_name(call.verdict),
            self.paint.paint(verdict_style(would_be), &format!("{would_be:7}")),
            escape_unsafe(&call.tool),
        );
        push_line(&mut out, &head);
        for (label, text) in [("old", call.reason.as_str()), ("new", reason)] {
            let mut label = format!("{:INDENT$}{label:7}", "");
            for line in wrap(&escape_unsafe(text), COLUMNS - INDENT - 7) {
                push_line(&mut out, &format!("{label}{line}"));
                label = " ".repeat(INDENT + 7);
            }
        }
        out
    }

    /// Prints the counts. Returns true if every decision is known and unchanged.
    pub(super) fn finish(&self) -> anyhow::Result<bool> {
        let different: u64 = self.changes.values().sum();
        let text = if self.json { format!("{}\n", self.counts()) } else { self.summary() };
        terminal::print(&text)?;
        Ok(different == 0 && self.unknown == 0)
    }

    fn counts(&self) -> Value {
        let changes = self.changes.iter();
        let changes: Vec<_> = changes
            .map(|((was, would_be), count)| {
                json!({"was": was, "would_be": would_be, "count": count})
            })
            .collect();
        let different: u64 = self.changes.values().sum();
        json!({
            "type": "summary", "sessions": self.sessions, "calls": self.calls,
            "different": different, "unknown": self.unknown, "changes": changes,
        })
    }

    fn summary(&self) -> String {
        let mut out = String::new();
        if self.last_heading.is_some() {
            out.push('\n');
        }
        let different: u64 = self.changes.values().sum();
        let checked = format!(
            "{} of {} checked",
            pluralize(self.calls, "call"),
            pluralize(self.sessions, "session")
        );
        let differ = match different {
            0 => "no decision differs".to_owned(),
            1 => "1 decision differs".to_owned(),
            count => format!("{count} decisions differ"),
        };
        let changes = self.changes.iter();
        let changes: Vec<_> = changes
            .map(|((was, would_be), count)| format!("{was} → {would_be}: {count}"))
            .collect();
        let changes =
            if changes.is_empty() { String::new() } else { format!(" ({})", changes.join(", ")) };
        let unknown = match self.unknown {
            0 => String::new(),
            unknown => format!("; {unknown} unknown"),
        };
        // Writing to a `String` does not fail.
        writeln!(out, "{checked}: {differ}{changes}{unknown}.").unwrap_or_default();
        out
    }
}

fn verdict_name(verdict: MatrixVerdict) -> &'static str {
    match verdict {
        MatrixVerdict::Allow => "allow",
        MatrixVerdict::Ask => "ask",
        MatrixVerdict::Deny => "deny",
    }
}

fn verdict_style(name: &str) -> Style {
    match name {
        "allow" => Style::Green,
        "deny" => Style::Red,
        _ => Style::Yellow,
    }
}
