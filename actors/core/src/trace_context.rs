//! The trace context of a run or attempt (A4), in the W3C format.
//!
//! It is derived from the log: the trace is that of the request with the run's message, or else the
//! run's own; each attempt is a span in it. A trace therefore continues after a restart and on another
//! thread without being passed along.

use crate::ids::{AttemptId, RunId};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};
use uuid::Uuid;

/// A span of a trace. `Display` formats the value of the `traceparent` header; `FromStr` parses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct TraceContext {
    /// Id of the trace; never zero.
    pub trace_id: u128,
    /// Id of the span; never zero.
    pub span_id: u64,
}

impl TraceContext {
    /// Returns the span of the run, in the trace of `parent` if there is one.
    pub fn for_run(run_id: RunId, parent: Option<Self>) -> Self {
        let trace_id = parent.map_or(run_id.0.as_u128().max(1), |parent| parent.trace_id);
        Self { trace_id, span_id: Self::span_id_from_uuid(run_id.0) }
    }

    /// Returns the span of an attempt of a step or call of the run.
    pub fn for_attempt(run_id: RunId, parent: Option<Self>, attempt_id: AttemptId) -> Self {
        Self { span_id: Self::span_id_from_uuid(attempt_id.0), ..Self::for_run(run_id, parent) }
    }

    /// Derives a span id from the random half of `id`.
    pub fn span_id_from_uuid(id: Uuid) -> u64 {
        id.as_u64_pair().1.max(1)
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-01", self.trace_id, self.span_id)
    }
}

/// The text is not a valid `traceparent`, or its span is not sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a valid `traceparent` of a sampled span")]
pub struct InvalidTraceparent;

impl FromStr for TraceContext {
    type Err = InvalidTraceparent;

    /// Parses <https://www.w3.org/TR/trace-context/#traceparent-header>. Of an unknown version it
    /// reads the fields of version 00. Rejects a parent that is not sampled: the spans of its trace
    /// would have no recorded parent.
    fn from_str(header: &str) -> Result<Self, InvalidTraceparent> {
        let mut parts = header.split('-');
        let mut hex = |digits: usize| {
            let part =
                parts.next().filter(|part| part.len() == digits).ok_or(InvalidTraceparent)?;
            let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            let number = part.bytes().all(is_hex).then(|| u128::from_str_radix(part, 16));
            number.and_then(Result::ok).ok_or(InvalidTraceparent)
        };
        let (version, trace_id, span_id, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
        let is_supported = (version == 0 && parts.next().is_none()) || (1..0xff).contains(&version);
        let is_sampled = flags & 1 == 1;
        let span_id = u64::try_from(span_id).unwrap_or_default();
        let is_valid = is_supported && trace_id > 0 && span_id > 0;
        (is_valid && is_sampled).then_some(Self { trace_id, span_id }).ok_or(InvalidTraceparent)
    }
}

impl From<TraceContext> for String {
    fn from(trace: TraceContext) -> Self {
        trace.to_string()
    }
}

impl TryFrom<String> for TraceContext {
    type Error = InvalidTraceparent;

    fn try_from(header: String) -> Result<Self, InvalidTraceparent> {
        header.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> RunId {
        RunId(Uuid::from_u128(0x0193_0000_0000_7000_8000_0000_0000_00ab))
    }

    #[test]
    fn a4_traceparent_is_formatted_as_w3c() {
        let attempt = AttemptId(Uuid::from_u128(0x0193_0000_0000_7000_8000_0000_0000_0001));
        assert_eq!(
            TraceContext::for_attempt(run(), None, attempt).to_string(),
            "00-019300000000700080000000000000ab-8000000000000001-01"
        );
        let nil = TraceContext::for_run(RunId(Uuid::nil()), None).to_string();
        assert_eq!(nil, "00-00000000000000000000000000000001-0000000000000001-01");
    }

    #[test]
    fn a4_run_joins_trace_of_its_request() {
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parent: TraceContext = parent.parse().unwrap();
        let joined = TraceContext::for_run(run(), Some(parent));
        assert_eq!(joined.to_string(), "00-4bf92f3577b34da6a3ce929d0e0e4736-80000000000000ab-01");
        assert_eq!(serde_json::from_value(serde_json::json!(parent)).ok(), Some(parent));
    }

    #[test]
    fn a4_traceparent_is_parsed_by_w3c_rules() {
        let ids = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";
        for (header, is_valid) in [
            (format!("00-{ids}-01"), true),
            (format!("00-{ids}-03"), true),
            (format!("01-{ids}-01"), true),
            (format!("cc-{ids}-01-what-the-future-will-be-like"), true),
            // Not sampled.
            (format!("00-{ids}-00"), false),
            (format!("00-{ids}-01-more"), false),
            (format!("ff-{ids}-01"), false),
            (format!("00-{}-01", ids.to_uppercase()), false),
            (format!("00-{ids}"), false),
            (format!("00-{ids}-1"), false),
            (format!("0-{ids}-01"), false),
            (format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)), false),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01".to_owned(), false),
            ("00-4bf92f3577b34da6a3ce929d0e0e473+-00f067aa0ba902b7-01".to_owned(), false),
            (String::new(), false),
            ("-".repeat(10_000), false),
            ("00-äöüäöüäöüäöüäöüä-00f067aa0ba902b7-01".to_owned(), false),
        ] {
            assert_eq!(header.parse::<TraceContext>().is_ok(), is_valid, "{header}");
        }
    }
}
