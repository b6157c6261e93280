//! Renders calls, results and outcomes as lines. Pure.

use super::{
    gateway_message::{RequestUsage, RunOutcome},
    styled_line::StyledLine,
};
use crate::cli::terminal::Style;
use greenroom_core::{amount::format_amount, policy::units::USD};
use serde_json::Value;

/// Maximum rows of a call and of a result.
const ROWS_MAX: usize = 2;

/// Renders a call: its tool and its arguments, shortened.
pub(super) fn call_line(tool: &str, args: &Value) -> StyledLine {
    let line = StyledLine::with_indent(0).text("● ").styled(Style::Bold, tool).rows_max(ROWS_MAX);
    match format_arguments(args).as_str() {
        "" => line,
        args => line.styled(Style::Dim, &format!("  {args}")),
    }
}

/// Formats arguments as `name=value` pairs.
pub(super) fn format_arguments(args: &Value) -> String {
    match args {
        Value::Object(map) => {
            let pairs = map.iter().map(|(name, value)| format!("{name}={}", format_short(value)));
            pairs.collect::<Vec<_>>().join(" ")
        }
        Value::Null => String::new(),
        Value::String(raw) => raw.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => args.to_string(),
    }
}

fn format_short(value: &Value) -> String {
    match value {
        Value::String(text) if !text.is_empty() && !text.contains(char::is_whitespace) => {
            text.clone()
        }
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => value.to_string(),
    }
}

/// Renders the result of a call, shortened.
pub(super) fn result_line(result: &Value, is_error: bool) -> StyledLine {
    if !is_error {
        let text = match result {
            Value::String(text) => text.split_whitespace().collect::<Vec<_>>().join(" "),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => result.to_string(),
        };
        return StyledLine::with_indent(2)
            .styled(Style::Green, "→ ")
            .styled(Style::Dim, &text)
            .rows_max(ROWS_MAX);
    }
    let label = match result["reason"].as_str().unwrap_or_default() {
        "authorization_denied" => "denied",
        "invalid_arguments" => "invalid arguments",
        "unknown_tool" => "unknown tool",
        "outcome_unknown" => "outcome unknown",
        "refused" | "limit_exceeded" => "not run",
        "error" | "" => "failed",
        other => other,
    };
    let error = result["error"].as_str().map_or_else(|| result.to_string(), str::to_owned);
    // The reason of a refusal should be complete.
    StyledLine::with_indent(2).styled(Style::Red, &format!("✗ {label}: ")).text(&error).rows_max(6)
}

/// Renders why an answer is not complete; `None` for a complete one.
pub(super) fn stop_notice(stop_reason: &str) -> Option<StyledLine> {
    let notice = match stop_reason {
        "length" => "Truncated at the token limit",
        "refusal" => "Refused by the model",
        "content_filter" => "Blocked by the provider's content filter",
        "empty" => "The model returned no text",
        _ => return None,
    };
    Some(StyledLine::with_indent(0).styled(Style::Yellow, notice))
}

/// Renders the outcome and the usage of a request.
pub(super) fn outcome_line(outcome: RunOutcome, usage: RequestUsage) -> StyledLine {
    let (about, unknown) = if usage.estimated { ("about ", ", cost unknown") } else { ("", "") };
    let known = |usd| format!(", {}", format_amount(usd, USD));
    let cost = usage.cost_usd.map_or_else(|| unknown.to_owned(), known);
    let (input, output) = (usage.input_tokens, usage.output_tokens);
    let tokens = format!("{about}{input} tokens in, {output} out{cost}");
    let line = StyledLine::with_indent(0);
    match outcome {
        RunOutcome::Completed => line.styled(Style::Dim, &tokens),
        RunOutcome::Cancelled => {
            line.styled(Style::Yellow, "cancelled").styled(Style::Dim, &format!("  {tokens}"))
        }
        RunOutcome::Failed => {
            line.styled(Style::Red, "failed").styled(Style::Dim, &format!("  {tokens}"))
        }
    }
}

/// Renders a value as lines of `name  value`; nested values are JSON.
pub(super) fn field_lines(value: &Value, indent: usize) -> Vec<StyledLine> {
    let Value::Object(map) = value else {
        let text = value.as_str().map_or_else(|| format!("{value:#}"), str::to_owned);
        return text.lines().map(|line| StyledLine::with_indent(indent).text(line)).collect();
    };
    let name_columns = map.keys().map(|name| name.chars().count()).max().unwrap_or(0).min(24);
    let mut lines = Vec::new();
    for (name, value) in map {
        let text = match value {
            Value::Object(_) | Value::Array(_) => format!("{value:#}"),
            Value::String(text) if !text.is_empty() => text.clone(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
        };
        let mut rows = text.lines();
        let first = rows.next().unwrap_or_default();
        let name = format!("{name:name_columns$}  ");
        lines.push(StyledLine::with_indent(indent).styled(Style::Dim, &name).text(first));
        lines.extend(rows.map(|row| StyledLine::with_indent(indent + 2).text(row)));
    }
    lines
}

/// Renders a note of the chat.
pub(super) fn note_line(text: &str) -> StyledLine {
    StyledLine::with_indent(0).styled(Style::Dim, text)
}

/// Renders an error.
pub(super) fn error_line(text: &str) -> StyledLine {
    StyledLine::with_indent(0).styled(Style::Red, "! ").text(text)
}
