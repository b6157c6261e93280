//! The open calls of the chat and their status.

use crate::cli::{
    chat::{render, styled_line::StyledLine},
    terminal::{Style, format_duration},
};
use greenroom_core::Timestamp;
use serde_json::Value;

/// Maximum number of calls displayed.
const SHOWN_MAX: usize = 6;

/// The open calls, in the order they were proposed.
#[derive(Debug, Default)]
pub(super) struct OpenCalls(Vec<OpenCall>);

#[derive(Debug)]
struct OpenCall {
    id: String,
    tool: String,
    args: Value,
    status: CallStatus,
}

#[derive(Debug)]
enum CallStatus {
    /// Proposed by the model.
    Proposed,
    /// Waiting for approval.
    AwaitingApproval,
    /// Running.
    Running,
    /// Running, with its last progress report.
    Progressing(String),
    /// Failed and waiting for the next attempt.
    Retrying { attempt: String, reason: String, until: Option<Timestamp> },
}

impl OpenCalls {
    pub(super) fn insert(&mut self, id: String, tool: String, args: Value) {
        self.0.retain(|call| call.id != id);
        self.0.push(OpenCall { id, tool, args, status: CallStatus::Proposed });
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
        let parts = [done.as_str(), event["message"].as_str().unwrap_or_default()];
        let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        self.set_status(id, CallStatus::Progressing(parts.join(" ")));
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

    /// Replaces the arguments of a call after a human has edited them.
    pub(super) fn set_arguments(&mut self, id: &str, args: &Value) {
        if let Some(call) = self.0.iter_mut().find(|call| call.id == id) {
            call.args = args.clone();
        }
    }

    /// Removes a call that has ended and returns its arguments.
    pub(super) fn remove(&mut self, id: &str) -> Option<Value> {
        let index = self.0.iter().position(|call| call.id == id)?;
        Some(self.0.remove(index).args)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if a call's line has a countdown.
    pub(super) fn has_countdown(&self) -> bool {
        self.0.iter().any(|call| matches!(call.status, CallStatus::Retrying { .. }))
    }

    pub(super) fn render_lines(&self, now: Timestamp) -> Vec<StyledLine> {
        let mut lines: Vec<_> = self.0.iter().take(SHOWN_MAX).map(|call| call.line(now)).collect();
        if let Some(hidden_count) = self.0.len().checked_sub(SHOWN_MAX).filter(|count| *count > 0) {
            lines.push(render::note_line(&format!("  and {hidden_count} more calls")));
        }
        lines
    }

    fn set_status(&mut self, id: &str, status: CallStatus) {
        if let Some(call) = self.0.iter_mut().find(|call| call.id == id) {
            call.status = status;
        }
    }
}

impl OpenCall {
    fn line(&self, now: Timestamp) -> StyledLine {
        let (style, status) = match &self.status {
            CallStatus::Proposed => (Style::Dim, "proposed".to_owned()),
            CallStatus::AwaitingApproval => (Style::Yellow, "waiting for approval".to_owned()),
            CallStatus::Running => (Style::Green, "running …".to_owned()),
            CallStatus::Progressing(progress) => (Style::Green, format!("running … {progress}")),
            CallStatus::Retrying { attempt, reason, until } => {
                let until = until.filter(|until| *until > now);
                let until = until.map_or("now".to_owned(), |until| {
                    format!("in {}", format_duration(until.saturating_duration_since(now)))
                });
                (Style::Yellow, format!("attempt {attempt} failed, retrying {until}: {reason}"))
            }
        };
        let line = StyledLine::with_indent(0).text("○ ").styled(Style::Bold, &self.tool).text("  ");
        line.styled(style, &status).rows_max(1)
    }
}
