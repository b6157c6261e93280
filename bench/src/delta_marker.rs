//! Markers in the text of every delta: its number within the step, and the time of sending by the
//! machine's monotonic clock, which all processes share. The receiver thus detects missing deltas and
//! measures the delay.

use anyhow::{Context as _, bail};
use nix::time::{ClockId, clock_gettime};

/// Number of text deltas in a step.
pub(crate) const DELTAS_PER_STEP: u32 = 40;
/// Number of steps in a run. The first ends with a tool call, the second with the answer.
pub(crate) const STEPS: u32 = 2;
/// Digits of the number, and of the time in microseconds.
const NUMBER_DIGITS: usize = 2;
const TIME_DIGITS: usize = 13;

/// Returns the time of the machine's monotonic clock in microseconds.
pub(crate) fn now_us() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has this clock");
    now.tv_sec().unsigned_abs() * 1_000_000 + now.tv_nsec().unsigned_abs() / 1_000
}

/// Returns the text of delta `number` of a step, marked with the current time.
pub(crate) fn marked_text(number: u32) -> String {
    format!("@{number:0NUMBER_DIGITS$}{:0TIME_DIGITS$} some words ", now_us())
}

/// The deltas received of one run.
#[derive(Debug, Default)]
pub(crate) struct ReceivedDeltas {
    /// Number of deltas so far.
    pub(crate) deltas: u32,
    /// Delay of each delta in microseconds.
    pub(crate) delays_us: Vec<u32>,
}

impl ReceivedDeltas {
    /// Records the markers in `line`. Fails if a delta is missing, repeated or out of order.
    pub(crate) fn record_markers(&mut self, line: &[u8]) -> anyhow::Result<()> {
        let now = now_us();
        let mut rest = line;
        while let Some(start) = rest.iter().position(|byte| *byte == b'@') {
            rest = &rest[start + 1..];
            let digits = rest.get(..NUMBER_DIGITS + TIME_DIGITS).context("incomplete marker")?;
            let (number, time) = digits.split_at(NUMBER_DIGITS);
            let expected = self.deltas % DELTAS_PER_STEP;
            if parse(number)? != u64::from(expected) {
                bail!("got delta {}, expected {expected}", String::from_utf8_lossy(number));
            }
            self.deltas += 1;
            let delay = now.saturating_sub(parse(time)?);
            self.delays_us.push(u32::try_from(delay).unwrap_or(u32::MAX));
        }
        Ok(())
    }

    /// True if all deltas of the run were received.
    pub(crate) fn is_complete(&self) -> bool {
        self.deltas == DELTAS_PER_STEP * STEPS
    }
}

fn parse(digits: &[u8]) -> anyhow::Result<u64> {
    Ok(std::str::from_utf8(digits)?.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_recorded_and_a_missing_delta_is_an_error() {
        let mut received = ReceivedDeltas::default();
        received
            .record_markers(
                format!("{{\"text\":\"{}{}\"}}", marked_text(0), marked_text(1)).as_bytes(),
            )
            .unwrap();
        received.record_markers(marked_text(2).as_bytes()).unwrap();
        assert_eq!(received.deltas, 3);
        received.record_markers(marked_text(4).as_bytes()).unwrap_err();
        received.record_markers(b"@07").unwrap_err();
    }
}
