//! The calls that are going on.

use crate::cli::{
    chat::{render, styled_line::StyledLine},
    terminal::{Style, format_duration},
};
use greenroom_core::Timestamp;
use serde_json::Value;

/// Calls that are shown at once.
const SHOWN_MAX: usize = 6;

/// The open calls, in the order they were proposed.
#[derive(Debug, Default)]
pub(super) struct OpenCalls(Vec<OpenCall>);

#[derive(Debug)]
struct OpenCall {
    id: String,
    tool: String,
    args: Value,
    phase: CallStatus,
}

#[derive(Debug)]
enum CallStatus {
    /// The model wants it.
    Proposed,
    /// A person is asked.
    AwaitingApproval,
    /// It runs.
    Running,
    /// It tells how far it is.
    Progressing(String),
    /// It failed, and is tried again.
    Retrying { attempt: String, reason: String, until: Option<Timestamp> },
}

impl OpenCalls {
    pub(super) fn insert(&mut self, id: String, tool: String, args: Value) {
        self.0.retain(|call| call.id != id);
        self.0.push(OpenCall { id, tool, args, phase: CallStatus::Proposed });
    }

    pub(super) fn set_awaiting_approval(&mut self, id: &str) {
        self.set_status(id, CallStatus::AwaitingApproval);
    }

    pub(super) fn set_running(&mut self, id: &str) {
        self.set_status(id, CallStatus::Running);
    }

    pub(super) fn set_progress(&mut self, id: &str, event: &Value) {
        let done = match (event["progress"].as_f64(), event["total"].as_f64()) {
            (Some(done), Some(total)) if total > 0.0 => {
                format!("{:.0} %", (done / total * 100.0).clamp(0.0, 100.0))
            }
            (Some(done), _) => format!("{done}"),
            (None, _) => String::new(),
        };
        let told = [done.as_str(), event["message"].as_str().unwrap_or_default()];
        let told: Vec<_> = told.into_iter().filter(|part| !part.is_empty()).collect();
        self.set_status(id, CallStatus::Progressing(told.join(" ")));
    }

    pub(super) fn set_retrying(
        &mut self,
        id: &str,
        attempt: &Value,
        reason: &str,
        until: Option<Timestamp>,
    ) {
        let (attempt, reason) = (attempt.to_string(), reason.to_owned());
        self.set_status(id, CallStatus::Retrying { attempt, reason, until });
    }

    /// A person changed what it is passed.
    pub(super) fn set_arguments(&mut self, id: &str, args: &Value) {
        if let Some(call) = self.0.iter_mut().find(|call| call.id == id) {
            call.args = args.clone();
        }
    }

    /// It is over; what it was passed.
    pub(super) fn remove(&mut self, id: &str) -> Option<Value> {
        let at = self.0.iter().position(|call| call.id == id)?;
        Some(self.0.remove(at).args)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of them has a time to count down to.
    pub(super) fn has_countdown(&self) -> bool {
        self.0.iter().any(|call| matches!(call.phase, CallStatus::Retrying { .. }))
    }

    pub(super) fn render_lines(&self, now: Timestamp) -> Vec<StyledLine> {
        let mut lines: Vec<_> = self.0.iter().take(SHOWN_MAX).map(|call| call.line(now)).collect();
        if let Some(more) = self.0.len().checked_sub(SHOWN_MAX).filter(|more| *more > 0) {
            lines.push(render::note_line(&format!("  and {more} more calls")));
        }
        lines
    }

    fn set_status(&mut self, id: &str, phase: CallStatus) {
        if let Some(call) = self.0.iter_mut().find(|call| call.id == id) {
            call.phase = phase;
        }
    }
}

impl OpenCall {
    fn line(&self, now: Timestamp) -> StyledLine {
        let (style, phase) = match &self.phase {
            CallStatus::Proposed => (Style::Dim, "proposed".to_owned()),
            CallStatus::AwaitingApproval => (Style::Yellow, "waits for a word".to_owned()),
            CallStatus::Running => (Style::Green, "runs …".to_owned()),
            CallStatus::Progressing(told) => (Style::Green, format!("runs … {told}")),
            CallStatus::Retrying { attempt, reason, until } => {
                let until = until.filter(|until| *until > now);
                let until = until.map_or("now".to_owned(), |until| {
                    format!("in {}", format_duration(until.saturating_duration_since(now)))
                });
                (Style::Yellow, format!("attempt {attempt} failed, again {until}: {reason}"))
            }
        };
        let line = StyledLine::with_indent(0).text("○ ").styled(Style::Bold, &self.tool).text("  ");
        line.styled(style, &phase).rows_max(1)
    }
}
