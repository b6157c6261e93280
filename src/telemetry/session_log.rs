//! The log lines of session events (E7): one pure function from an event to its line, and the
//! function that redacts and writes lines.
//!
//! INFO shows what runs, WARN what was denied, failed or is repeated, DEBUG the steps between and the
//! complete payloads. Texts are logged as quoted field values, so that they cannot imitate a line.

use crate::redaction::{REDACTED, Redactor};
use greenroom_core::{
    call::CallFailureReason,
    ids::{ApprovalId, CallId, SessionId},
    message::Arguments,
    session::{EventRecord, RunFailureCode, RunStopReason, SessionEvent},
    text::truncate,
};
use serde::Serialize;
use serde_json::Value;
use std::borrow::Cow;
use tracing::{Level, field::display};

/// Maximum bytes of a text in a line at INFO or WARN.
const TEXT_BYTES_MAX: usize = 256;

/// A text or JSON value of an event, not redacted yet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LogText<'a> {
    Text(&'a str),
    Json(&'a Value),
}

/// The line of an event, without its envelope and not redacted yet.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LogLine<'a> {
    pub(super) level: Level,
    pub(super) message: &'static str,
    call_id: Option<CallId>,
    approval_id: Option<ApprovalId>,
    tool: Option<&'a str>,
    attempt: Option<u32>,
    delay_ms: Option<u64>,
    model: Option<&'a str>,
    /// The model of the next attempt.
    next_model: Option<&'a str>,
    /// The user who acted.
    by: Option<&'a str>,
    /// A name that this program defines: the kind of an approval or of a failure.
    kind: Option<&'static str>,
    /// A text of the program, a model, a tool or a user.
    reason: Option<Cow<'a, str>>,
    error: Option<&'a str>,
    input: Option<LogText<'a>>,
    /// The model's text in place of a JSON object.
    arguments_text: Option<Cow<'a, str>>,
    result: Option<LogText<'a>>,
    /// True if the call may have taken effect although it failed.
    maybe_ran: Option<bool>,
    tokens: Option<u64>,
}

impl LogLine<'_> {
    const fn new(level: Level, message: &'static str) -> Self {
        Self {
            level,
            message,
            call_id: None,
            approval_id: None,
            tool: None,
            attempt: None,
            delay_ms: None,
            model: None,
            next_model: None,
            by: None,
            kind: None,
            reason: None,
            error: None,
            input: None,
            arguments_text: None,
            result: None,
            maybe_ran: None,
            tokens: None,
        }
    }
}

/// The complete payload of an event, logged at DEBUG.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PayloadLine<'a> {
    pub(super) message: &'static str,
    call_id: Option<CallId>,
    payload: LogText<'a>,
}

/// Returns the line of an event. An event of a child session has none: the child logs it itself.
pub(super) fn describe_event(event: &SessionEvent) -> Option<LogLine<'_>> {
    use SessionEvent as E;
    let info = |message| LogLine::new(Level::INFO, message);
    let warn = |message| LogLine::new(Level::WARN, message);
    let debug = |message| LogLine::new(Level::DEBUG, message);
    Some(match event {
        E::SessionCreated { owner, .. } => {
            LogLine { by: Some(owner.as_str()), ..info("session created") }
        }
        E::SessionForked { owner, .. } => {
            LogLine { by: Some(owner.as_str()), ..info("session forked") }
        }
        E::SessionSettingsChanged { by, .. } => {
            LogLine { by: Some(by.as_str()), ..info("session settings changed") }
        }
        E::SessionClosed { by } => LogLine { by: Some(by.as_str()), ..info("session closed") },
        E::MessageQueued { .. } => debug("message queued"),
        E::MessageAccepted { .. } => debug("message accepted"),
        E::QueuedMessageChanged { by, .. } => {
            LogLine { by: Some(by.as_str()), ..info("queued message changed") }
        }
        E::QueuedMessageWithdrawn { by, .. } => {
            LogLine { by: Some(by.as_str()), ..info("queued message withdrawn") }
        }
        E::MessageStarted { .. } => debug("message started"),
        E::MessageCompleted { .. } => debug("message completed"),
        E::MessageDiscarded { reason, .. } => {
            LogLine { reason: Some(reason.into()), ..debug("message discarded") }
        }
        E::RunStarted { .. } => info("run started"),
        E::RunCompleted { usage, stop_reason, .. } => LogLine {
            kind: stop_reason
                .filter(|reason| *reason != RunStopReason::End)
                .map(RunStopReason::name),
            tokens: Some(usage.tokens.total()),
            ..info("run completed")
        },
        E::RunCancelled { by, usage, .. } => LogLine {
            by: Some(by.as_str()),
            tokens: Some(usage.tokens.total()),
            ..info("run cancelled")
        },
        E::RunFailed { code, error, usage } => LogLine {
            kind: Some(failure_name(*code)),
            error: Some(error),
            tokens: Some(usage.tokens.total()),
            ..warn("run failed")
        },
        E::StepStarted { attempt, model, .. } => LogLine {
            attempt: Some(*attempt),
            model: Some(model),
            ..debug("model attempt started")
        },
        E::StepCompleted { usage, .. } => {
            LogLine { tokens: Some(usage.tokens.total()), ..debug("model attempt completed") }
        }
        E::StepRetrying { attempt, delay_ms, reason, .. } => LogLine {
            attempt: Some(*attempt),
            delay_ms: Some(*delay_ms),
            reason: Some(reason.into()),
            ..warn("model attempt failed; retrying")
        },
        E::StepModelFallback { attempt, from, to, reason, .. } => LogLine {
            attempt: Some(*attempt),
            model: Some(from),
            next_model: Some(to),
            reason: Some(reason.into()),
            ..warn("model failed; falling back to the next model")
        },
        E::ContextCompacted { .. } => info("context compacted"),
        E::ContextCompactionFailed { reason, .. } => {
            LogLine { reason: Some(reason.into()), ..warn("context compaction failed") }
        }
        E::ToolCallStarted { call_id, tool, arguments, .. } => LogLine {
            call_id: Some(*call_id),
            tool: Some(tool),
            input: Some(match &**arguments {
                Arguments::Json(value @ Value::Object(_)) => LogText::Json(value),
                Arguments::Json(_) | Arguments::Malformed { .. } => LogText::Text("{}"),
            }),
            arguments_text: arguments.unparsed_text(),
            ..info("tool call proposed")
        },
        E::ToolCallAllowed { call_id, .. } => {
            LogLine { call_id: Some(*call_id), ..debug("tool call allowed") }
        }
        E::ToolCallAttemptStarted { call_id, attempt, .. } => LogLine {
            call_id: Some(*call_id),
            attempt: Some(*attempt),
            ..info("tool call started")
        },
        E::ToolCallProgress { call_id, tool, message, .. } => LogLine {
            call_id: Some(*call_id),
            tool: Some(tool),
            reason: message.as_deref().map(Cow::Borrowed),
            ..debug("tool call progress")
        },
        E::ToolCallRetrying { call_id, tool, attempt, delay_ms, reason, maybe_ran, .. } => {
            LogLine {
                call_id: Some(*call_id),
                tool: Some(tool),
                attempt: Some(*attempt),
                delay_ms: Some(*delay_ms),
                reason: Some(reason.into()),
                maybe_ran: Some(*maybe_ran),
                ..warn("tool call failed; retrying")
            }
        }
        E::LateResult { call_id, summary, .. } => LogLine {
            call_id: Some(*call_id),
            result: Some(LogText::Text(summary)),
            ..warn("late result of a tool call")
        },
        E::ToolCallCompleted { call_id, tool, output } => LogLine {
            call_id: Some(*call_id),
            tool: Some(tool),
            result: Some(match &output.structured {
                Some(structured) => LogText::Json(structured),
                None => LogText::Text(&output.text),
            }),
            ..info("tool call completed")
        },
        E::ToolCallFailed { call_id, tool, reason, error, maybe_ran, .. } => LogLine {
            call_id: Some(*call_id),
            tool: Some(tool),
            reason: Some(reason.name().into()),
            error: Some(error),
            maybe_ran: Some(*maybe_ran),
            ..warn(if *reason == CallFailureReason::Rejected {
                "tool call rejected"
            } else {
                "tool call failed"
            })
        },
        E::AuthorizationDenied { call_id, tool, reason, .. } => LogLine {
            call_id: Some(*call_id),
            tool: Some(tool),
            reason: Some(reason.into()),
            ..warn("tool call denied")
        },
        E::ApprovalRequested { approval } => LogLine {
            approval_id: Some(approval.approval_id),
            kind: Some(approval.kind().name()),
            reason: Some((&approval.purpose).into()),
            ..info("approval requested")
        },
        E::ApprovalDecided { approval_id, steps, answer, .. } => LogLine {
            approval_id: Some(*approval_id),
            by: steps
                .first()
                .map(|step| step.by.as_str())
                .or_else(|| answer.as_deref().map(|answer| answer.by.as_str())),
            kind: answer.as_deref().map(|answer| answer.resolution.name()),
            ..info("approval decided")
        },
        E::ApprovalEscalated { approval_id, to, .. } => LogLine {
            approval_id: Some(*approval_id),
            kind: Some(to.name()),
            ..warn("approval escalated")
        },
        E::ApprovalExpired { approval_id } => {
            LogLine { approval_id: Some(*approval_id), ..warn("approval expired") }
        }
        E::ApprovalCancelled { approval_id } => {
            LogLine { approval_id: Some(*approval_id), ..info("approval cancelled") }
        }
        E::PreflightApproved { approval_id, by, .. } => LogLine {
            approval_id: Some(*approval_id),
            by: Some(by.as_str()),
            ..info("preflight approved")
        },
        E::PreflightSkipped { warning } => {
            LogLine { reason: Some(warning.into()), ..warn("preflight skipped") }
        }
        E::BudgetReserved { call_id, tool, .. } => {
            LogLine { call_id: Some(*call_id), tool: Some(tool), ..debug("budget reserved") }
        }
        E::BudgetReached { budget, .. } => {
            LogLine { reason: Some(budget.to_string().into()), ..warn("budget reached") }
        }
        E::BudgetRaised { approval_id, budget, by } => LogLine {
            approval_id: Some(*approval_id),
            by: Some(by.as_str()),
            reason: Some(budget.to_string().into()),
            ..info("budget raised")
        },
        E::GrantAdded { grant } => {
            LogLine { tool: Some(&grant.tool), by: Some(grant.by.as_str()), ..info("grant added") }
        }
        E::GrantRevoked { by, .. } => LogLine { by: Some(by.as_str()), ..info("grant revoked") },
        E::FeedbackGiven { by, .. } => LogLine { by: Some(by.as_str()), ..debug("feedback given") },
        E::ChildGone { call_id, .. } => {
            LogLine { call_id: Some(*call_id), ..warn("child session is missing") }
        }
        E::ChildEvent { .. } => return None,
    })
}

/// Returns the line with the complete payload of an event, if it has one.
pub(super) fn describe_payload(event: &SessionEvent) -> Option<PayloadLine<'_>> {
    let line = |message, payload| PayloadLine { message, call_id: None, payload };
    let of_call = |call_id: &CallId, message, payload| PayloadLine {
        message,
        call_id: Some(*call_id),
        payload,
    };
    if let SessionEvent::MessageAccepted { text, .. } = event {
        return Some(line("user message", LogText::Text(text)));
    } else if let SessionEvent::MessageCompleted { text, .. } = event {
        return Some(line("model message", LogText::Text(text)));
    } else if let SessionEvent::ToolCallStarted { call_id, arguments, .. } = event {
        return Some(of_call(call_id, "tool call input", arguments_text(arguments)));
    } else if let SessionEvent::ToolCallCompleted { call_id, output, .. } = event {
        let result = match &output.structured {
            Some(structured) => LogText::Json(structured),
            None => LogText::Text(&output.text),
        };
        return Some(of_call(call_id, "tool call result", result));
    } else if let SessionEvent::ToolCallFailed { call_id, error, .. } = event {
        return Some(of_call(call_id, "tool call error", LogText::Text(error)));
    }
    None
}

fn failure_name(code: RunFailureCode) -> &'static str {
    match code {
        RunFailureCode::MaxIterations => "max_iterations",
        RunFailureCode::ModelError => "model_error",
        RunFailureCode::ModelUnavailable => "model_unavailable",
        RunFailureCode::BudgetReached => "budget_reached",
        RunFailureCode::ApprovalExpired => "approval_expired",
    }
}

fn arguments_text(arguments: &Arguments) -> LogText<'_> {
    match arguments {
        Arguments::Json(value) => LogText::Json(value),
        Arguments::Malformed { raw, .. } => LogText::Text(raw),
    }
}

/// Writes the lines of an event that the log filter enables.
pub(super) fn log_event(session_id: SessionId, record: &EventRecord, redactor: &Redactor) {
    if !tracing::enabled!(Level::WARN) {
        return;
    }
    if let Some(line) = describe_event(&record.event) {
        match line.level {
            Level::WARN if tracing::enabled!(Level::WARN) => {}
            Level::INFO if tracing::enabled!(Level::INFO) => {}
            Level::DEBUG if tracing::enabled!(Level::DEBUG) => {}
            _ => return,
        }
        write_line(session_id, record, &line, redactor);
    }
    if tracing::enabled!(Level::DEBUG)
        && let Some(PayloadLine { message, call_id, payload }) = describe_payload(&record.event)
    {
        let (run_id, call_id) = (record.run_id.map(display), call_id.map(display));
        let payload = redact_log_text(payload, redactor);
        tracing::debug!(%session_id, run_id, call_id, payload, "{message}");
    }
}

fn write_line(
    session_id: SessionId,
    record: &EventRecord,
    line: &LogLine<'_>,
    redactor: &Redactor,
) {
    let text = |text: &str| shorten(&redactor.redact_text(text));
    let value = |value: LogText<'_>| shorten(&redact_log_text(value, redactor));
    let (tool, model) = (line.tool.map(text), line.model.map(text));
    let (next_model, by) = (line.next_model.map(text), line.by.map(text));
    let (reason, error) = (line.reason.as_deref().map(text), line.error.map(text));
    let (input, result) = (line.input.map(value), line.result.map(value));
    let arguments_text = line.arguments_text.as_deref().map(text);
    macro_rules! write_at {
        ($write:ident) => {
            tracing::$write!(
                %session_id,
                run_id = record.run_id.map(display),
                step = record.step,
                call_id = line.call_id.map(display),
                approval_id = line.approval_id.map(display),
                kind = line.kind,
                tool = tool.as_deref(),
                model = model.as_deref(),
                next_model = next_model.as_deref(),
                attempt = line.attempt,
                delay_ms = line.delay_ms,
                by = by.as_deref(),
                reason = reason.as_deref(),
                input = input.as_deref(),
                arguments_text = arguments_text.as_deref(),
                result = result.as_deref(),
                error = error.as_deref(),
                maybe_ran = line.maybe_ran,
                tokens = line.tokens,
                "{}",
                line.message
            )
        };
    }
    match line.level {
        Level::WARN => write_at!(warn),
        Level::INFO => write_at!(info),
        _ => write_at!(debug),
    }
}

fn shorten(text: &str) -> String {
    truncate(text, TEXT_BYTES_MAX).to_owned()
}

fn redact_log_text(text: LogText<'_>, redactor: &Redactor) -> String {
    match text {
        LogText::Text(text) => redact_as_member(text, redactor),
        LogText::Json(value) => redact_to_json(value, redactor),
    }
}

/// Redacts a text as frames do, also if it is JSON.
fn redact_as_member(text: &str, redactor: &Redactor) -> String {
    // A text stays a text.
    redactor.redact_to_value(text).as_str().unwrap_or(REDACTED).to_owned()
}

fn redact_to_json<T: Serialize>(value: &T, redactor: &Redactor) -> String {
    // Serializing a JSON value cannot fail.
    serde_json::to_string(&redactor.redact(value)).unwrap_or_default()
}

#[cfg(test)]
#[path = "session_log_tests.rs"]
mod tests;
