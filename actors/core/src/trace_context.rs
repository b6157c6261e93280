//! The place of an attempt in its run's trace (A4), as the W3C writes it.
//!
//! It follows from what the log has: the trace is the one that the run's message came in, or else the
//! run itself, and each attempt in it a span. So a trace goes on after a restart and on another
//! thread, and nobody has to carry it along.

use crate::ids::{AttemptId, RunId};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};
use uuid::Uuid;

/// A span of a trace. `Display` gives the value of the header `traceparent`, and `FromStr` reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct TraceContext {
    /// The trace; never zero.
    pub trace_id: u128,
    /// The span; never zero.
    pub span_id: u64,
}

impl TraceContext {
    /// The run itself, in the trace of `parent` where there is one.
    pub fn for_run(run_id: RunId, parent: Option<Self>) -> Self {
        let trace_id = parent.map_or(run_id.0.as_u128().max(1), |parent| parent.trace_id);
        Self { trace_id, span_id: Self::span_id_from_uuid(run_id.0) }
    }

    /// An attempt of one of its steps or calls.
    pub fn for_attempt(run_id: RunId, parent: Option<Self>, attempt_id: AttemptId) -> Self {
        Self { span_id: Self::span_id_from_uuid(attempt_id.0), ..Self::for_run(run_id, parent) }
    }

    /// The span of whatever has this id: the half of it that is chance.
    pub fn span_id_from_uuid(id: Uuid) -> u64 {
        id.as_u64_pair().1.max(1)
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-01", self.trace_id, self.span_id)
    }
}

/// There is no such span, or it is not recorded where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the `traceparent` of a recorded span")]
pub struct InvalidTraceparent;

impl FromStr for TraceContext {
    type Err = InvalidTraceparent;

    /// By <https://www.w3.org/TR/trace-context/#traceparent-header>: of a version that is not known
    /// yet, what version 00 has. A parent that is not recorded is none: its trace would have spans
    /// beneath nothing.
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
        let is_known = version == 0 && parts.next().is_none();
        let is_recorded = flags & 1 == 1;
        let span_id = u64::try_from(span_id).unwrap_or_default();
        let is_one = (is_known || (1..0xff).contains(&version)) && trace_id > 0 && span_id > 0;
        (is_one && is_recorded).then_some(Self { trace_id, span_id }).ok_or(InvalidTraceparent)
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
    fn a4_a_traceparent_is_as_the_w3c_writes_it() {
        let attempt = AttemptId(Uuid::from_u128(0x0193_0000_0000_7000_8000_0000_0000_0001));
        assert_eq!(
            TraceContext::for_attempt(run(), None, attempt).to_string(),
            "00-019300000000700080000000000000ab-8000000000000001-01"
        );
        let nobody = TraceContext::for_run(RunId(Uuid::nil()), None).to_string();
        assert_eq!(nobody, "00-00000000000000000000000000000001-0000000000000001-01");
    }

    #[test]
    fn a4_a_run_that_was_asked_for_within_a_trace_belongs_to_it() {
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parent: TraceContext = parent.parse().unwrap();
        let own = TraceContext::for_run(run(), Some(parent));
        assert_eq!(own.to_string(), "00-4bf92f3577b34da6a3ce929d0e0e4736-80000000000000ab-01");
        assert_eq!(serde_json::from_value(serde_json::json!(parent)).ok(), Some(parent));
    }

    #[test]
    fn a4_a_traceparent_is_read_by_the_w3c_s_rules() {
        let ids = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";
        for (header, is_one) in [
            (format!("00-{ids}-01"), true),
            (format!("00-{ids}-03"), true),
            (format!("01-{ids}-01"), true),
            (format!("cc-{ids}-01-what-the-future-will-be-like"), true),
            // Not recorded.
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
            assert_eq!(header.parse::<TraceContext>().is_ok(), is_one, "{header}");
        }
    }
}
