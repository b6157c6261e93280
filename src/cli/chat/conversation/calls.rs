//! The calls that are going on.

use crate::cli::{
    chat::{line::Line, show},
    terminal::{Style, span},
};
use greenroom_core::Timestamp;
use serde_json::Value;

/// Calls that are shown at once.
const SHOWN_MAX: usize = 6;

/// The open calls, in the order they were proposed.
#[derive(Debug, Default)]
pub(super) struct Calls(Vec<Call>);

#[derive(Debug)]
struct Call {
    id: String,
    tool: String,
    args: Value,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// The model wants it.
    Proposed,
    /// A person is asked.
    Asked,
    /// It runs.
    Running,
    /// It tells how far it is.
    Progressing(String),
    /// It failed, and is tried again.
    Retrying { attempt: String, reason: String, until: Option<Timestamp> },
}

impl Calls {
    pub(super) fn propose(&mut self, id: String, tool: String, args: Value) {
        self.0.retain(|call| call.id != id);
        self.0.push(Call { id, tool, args, phase: Phase::Proposed });
    }

    pub(super) fn ask(&mut self, id: &str) {
        self.set(id, Phase::Asked);
    }

    pub(super) fn start(&mut self, id: &str) {
        self.set(id, Phase::Running);
    }

    pub(super) fn progress(&mut self, id: &str, event: &Value) {
        let done = match (event["progress"].as_f64(), event["total"].as_f64()) {
            (Some(done), Some(total)) if total > 0.0 => {
                format!("{:.0} %", (done / total * 100.0).clamp(0.0, 100.0))
            }
            (Some(done), _) => format!("{done}"),
            (None, _) => String::new(),
        };
        let told = [done.as_str(), event["message"].as_str().unwrap_or_default()];
        let told: Vec<_> = told.into_iter().filter(|part| !part.is_empty()).collect();
        self.set(id, Phase::Progressing(told.join(" ")));
    }

    pub(super) fn retry(
        &mut self,
        id: &str,
        attempt: &Value,
        reason: &str,
        until: Option<Timestamp>,
    ) {
        let (attempt, reason) = (attempt.to_string(), reason.to_owned());
        self.set(id, Phase::Retrying { attempt, reason, until });
    }

    /// A person changed what it is passed.
    pub(super) fn edit(&mut self, id: &str, args: &Value) {
        if let Some(call) = self.0.iter_mut().find(|call| call.id == id) {
            call.args = args.clone();
        }
    }

    /// It is over; what it was passed.
    pub(super) fn end(&mut self, id: &str) -> Option<Value> {
        let at = self.0.iter().position(|call| call.id == id)?;
        Some(self.0.remove(at).args)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of them has a time to count down to.
    pub(super) fn are_counting(&self) -> bool {
        self.0.iter().any(|call| matches!(call.phase, Phase::Retrying { .. }))
    }

    pub(super) fn lines(&self, now: Timestamp) -> Vec<Line> {
        let mut lines: Vec<_> = self.0.iter().take(SHOWN_MAX).map(|call| call.line(now)).collect();
        if let Some(more) = self.0.len().checked_sub(SHOWN_MAX).filter(|more| *more > 0) {
            lines.push(show::note(&format!("  and {more} more calls")));
        }
        lines
    }

    fn set(&mut self, id: &str, phase: Phase) {
        if let Some(call) = self.0.iter_mut().find(|call| call.id == id) {
            call.phase = phase;
        }
    }
}

impl Call {
    fn line(&self, now: Timestamp) -> Line {
        let (style, phase) = match &self.phase {
            Phase::Proposed => (Style::Dim, "proposed".to_owned()),
            Phase::Asked => (Style::Yellow, "waits for a word".to_owned()),
            Phase::Running => (Style::Green, "runs …".to_owned()),
            Phase::Progressing(told) => (Style::Green, format!("runs … {told}")),
            Phase::Retrying { attempt, reason, until } => {
                let until = until.filter(|until| *until > now);
                let until = until.map_or("now".to_owned(), |until| {
                    format!("in {}", span(until.until_from(now)))
                });
                (Style::Yellow, format!("attempt {attempt} failed, again {until}: {reason}"))
            }
        };
        let line = Line::at(0).text("○ ").styled(Style::Bold, &self.tool).text("  ");
        line.styled(style, &phase).rows_max(1)
    }
}
