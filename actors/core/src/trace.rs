//! The place of an attempt in its run's trace (A4), as the W3C writes it.
//!
//! It follows from ids that the log has: the run is the trace, each attempt in it a span. So a trace
//! goes on after a restart and on another thread, and nobody has to carry it along.

use crate::ids::{AttemptId, RunId};
use std::fmt;
use uuid::Uuid;

/// A span of a trace. `Display` gives the value of the header `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The trace; never zero.
    pub trace_id: u128,
    /// The span; never zero.
    pub span_id: u64,
}

impl Trace {
    /// The run itself.
    pub fn of_run(run_id: RunId) -> Self {
        Self { trace_id: run_id.0.as_u128().max(1), span_id: Self::span_of(run_id.0) }
    }

    /// An attempt of one of its steps or calls.
    pub fn of_attempt(run_id: RunId, attempt_id: AttemptId) -> Self {
        Self { span_id: Self::span_of(attempt_id.0), ..Self::of_run(run_id) }
    }

    /// The span of whatever has this id: the half of it that is chance.
    pub fn span_of(id: Uuid) -> u64 {
        id.as_u64_pair().1.max(1)
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-01", self.trace_id, self.span_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a4_a_traceparent_is_as_the_w3c_writes_it() {
        let run = RunId(Uuid::from_u128(0x0193_0000_0000_7000_8000_0000_0000_00ab));
        let attempt = AttemptId(Uuid::from_u128(0x0193_0000_0000_7000_8000_0000_0000_0001));
        assert_eq!(
            Trace::of_attempt(run, attempt).to_string(),
            "00-019300000000700080000000000000ab-8000000000000001-01"
        );
        let nobody = Trace::of_run(RunId(Uuid::nil())).to_string();
        assert_eq!(nobody, "00-00000000000000000000000000000001-0000000000000001-01");
    }
}
