use super::*;
use crate::dialect::samples;
use serde_json::json;
use std::{
    collections::BTreeMap,
    io::{self, Write},
    sync::{Arc, Mutex},
};
use tracing_subscriber::{filter::LevelFilter, fmt, prelude::*};

const SESSION: &str = "0198c0de-0000-7000-8000-00000000000a";

/// Collects the lines of a subscriber.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the lines of `records` at the given level, as JSON.
fn log(level: LevelFilter, records: &[EventRecord]) -> Vec<Value> {
    let lines = Lines::default();
    let writer = lines.clone();
    let layer = fmt::layer().json().with_writer(move || writer.clone());
    let subscriber = tracing_subscriber::registry().with(level).with(layer);
    tracing::subscriber::with_default(subscriber, || {
        for record in records {
            log_event(SESSION.parse().unwrap(), record, &Redactor::default());
        }
    });
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn event_name(record: &EventRecord) -> String {
    json!(record)["type"].as_str().unwrap().to_owned()
}

/// The level of each type of event. A new type must be added here.
#[test]
fn e7_every_event_has_its_log_level() {
    let levels: BTreeMap<String, Option<Level>> = samples::all()
        .iter()
        .map(|record| (event_name(record), describe_event(&record.event).map(|line| line.level)))
        .collect();
    let expected = [
        (
            "WARN",
            "approval_escalated approval_expired authorization_denied budget_reached child_gone \
          context_compaction_failed late_result preflight_skipped run_failed step_model_fallback \
          step_retrying tool_call_failed tool_call_retrying",
        ),
        (
            "INFO",
            "approval_cancelled approval_decided approval_requested budget_raised \
          context_compacted grant_added grant_revoked preflight_approved \
          queued_message_changed queued_message_withdrawn run_cancelled \
          run_completed run_started session_closed session_created session_forked \
          session_settings_changed tool_call_attempt_started tool_call_completed \
          tool_call_started",
        ),
        (
            "DEBUG",
            "budget_reserved feedback_given message_accepted message_completed \
          message_discarded message_queued message_started step_completed step_started \
          tool_call_allowed tool_call_progress",
        ),
        ("none", "child_event"),
    ];
    let expected: BTreeMap<String, Option<Level>> = expected
        .iter()
        .flat_map(|(level, events)| {
            events.split_whitespace().map(|event| (event.to_owned(), level.parse().ok()))
        })
        .collect();
    assert_eq!(levels, expected);
}

#[test]
fn e7_denied_call_is_not_logged_as_started() {
    let events = ["tool_call_started", "authorization_denied"];
    let records: Vec<_> = events
        .iter()
        .flat_map(|name| samples::all().into_iter().find(|record| event_name(record) == *name))
        .collect();
    let lines = log(LevelFilter::INFO, &records);
    let messages: Vec<_> =
        lines.iter().map(|line| (&line["level"], &line["fields"]["message"])).collect();
    let expected = [
        (&json!("INFO"), &json!("tool call proposed")),
        (&json!("WARN"), &json!("tool call denied")),
    ];
    assert_eq!(messages, expected);
    assert!(lines[1]["fields"]["call_id"].is_string() && lines[1]["fields"]["reason"].is_string());
}

/// Payloads are complete at DEBUG, short at INFO, and redacted at both.
#[test]
fn e7_texts_of_log_lines_are_redacted_and_shortened() {
    let long = "x".repeat(2 * TEXT_BYTES_MAX);
    let call_id = "0198c0de-0000-7000-8000-0000000000c1";
    let records = [
        (
            "tool_call_started",
            json!({
                "call_id": call_id, "provider_id": "p", "tool": "t",
                "arguments": {"json": {"api_keys": ["LEAK"], "note": "pwd=LEAK", "long": long}},
                "digest": "0".repeat(64), "risk": "critical", "parallel": false, "repeatable": false,
            }),
        ),
        (
            "tool_call_completed",
            json!({
                "call_id": call_id, "tool": "t",
                "output": {"text": format!("{{\"secret_key\":\"LEAK\"}} {long}")},
            }),
        ),
        (
            "tool_call_retrying",
            json!({
                "call_id": call_id, "tool": "t", "attempt": 1, "failures": 1, "delay_ms": 200,
                "until": "2026-11-21T20:00:00.123Z", "reason": "failed {\"password\":\"LEAK\"}",
            }),
        ),
        (
            "run_failed",
            json!({
                "code": "model_error", "error": "Authorization: Bearer LEAK", "usage": {"input_tokens": 1, "output_tokens": 2, "cached_tokens": 0, "cost_usd": null},
            }),
        ),
        (
            "message_completed",
            json!({
                "message_id": "m", "text": format!("passphrase: LEAK\n{long}"), "stop_reason": "end_turn",
            }),
        ),
    ];
    let record = |(kind, payload): &(&str, Value)| {
        serde_json::from_value::<EventRecord>(json!({
            "seq": 1, "at": "2026-11-21T20:00:00.123Z", "type": kind, "payload": payload,
        }))
        .unwrap_or_else(|error| panic!("{kind}: {error}"))
    };
    let records: Vec<_> = records.iter().map(record).collect();
    for level in [LevelFilter::WARN, LevelFilter::INFO, LevelFilter::TRACE] {
        let lines = log(level, &records);
        assert!(!lines.is_empty());
        for line in &lines {
            let text = line.to_string();
            assert!(!text.contains("LEAK"), "{text}");
            assert_eq!(text.contains(&long), line["fields"]["payload"].is_string(), "{text}");
        }
    }
    let retrying = &log(LevelFilter::WARN, &records)[0]["fields"];
    assert_eq!((&retrying["attempt"], &retrying["delay_ms"]), (&json!(1), &json!(200)));
}

#[test]
fn e7_events_are_not_logged_below_their_level() {
    assert_eq!(log(LevelFilter::ERROR, &samples::all()), Vec::<Value>::new());
    let warnings = log(LevelFilter::WARN, &samples::all());
    assert!(warnings.iter().all(|line| line["level"] == "WARN") && !warnings.is_empty());
}
