//! The marks in the text of every delta: its number in the step, and when it was sent, by the clock
//! that all processes of a machine share. So who reads them knows that nothing is missing, and how
//! long it took.

use anyhow::{Context as _, bail};
use nix::time::{ClockId, clock_gettime};

/// Text deltas of one step.
pub(crate) const DELTAS_PER_STEP: u32 = 40;
/// Steps of one run: the first ends with a tool call, the second with the answer.
pub(crate) const STEPS: u32 = 2;
/// Digits of the number, and of the time in microseconds.
const NUMBER_DIGITS: usize = 2;
const TIME_DIGITS: usize = 13;

/// Microseconds by the machine's monotonic clock.
pub(crate) fn now_us() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has this clock");
    now.tv_sec().unsigned_abs() * 1_000_000 + now.tv_nsec().unsigned_abs() / 1_000
}

/// The text of a step's delta `number`, sent now.
pub(crate) fn marked_text(number: u32) -> String {
    format!("@{number:0NUMBER_DIGITS$}{:0TIME_DIGITS$} some words ", now_us())
}

/// What was heard of one run.
#[derive(Debug, Default)]
pub(crate) struct ReceivedDeltas {
    /// Deltas so far.
    pub(crate) deltas: u32,
    /// Microseconds that each took.
    pub(crate) delays_us: Vec<u32>,
}

impl ReceivedDeltas {
    /// Notes the marks in `line`. Errs when one is missing, is there twice, or came out of order.
    pub(crate) fn record_markers(&mut self, line: &[u8]) -> anyhow::Result<()> {
        let now = now_us();
        let mut rest = line;
        while let Some(at) = rest.iter().position(|byte| *byte == b'@') {
            rest = &rest[at + 1..];
            let digits = rest.get(..NUMBER_DIGITS + TIME_DIGITS).context("a mark was cut")?;
            let (number, time) = digits.split_at(NUMBER_DIGITS);
            let expected = self.deltas % DELTAS_PER_STEP;
            if parse(number)? != u64::from(expected) {
                bail!("delta {} came where {expected} belongs", String::from_utf8_lossy(number));
            }
            self.deltas += 1;
            let delay = now.saturating_sub(parse(time)?);
            self.delays_us.push(u32::try_from(delay).unwrap_or(u32::MAX));
        }
        Ok(())
    }

    /// Whether nothing is missing.
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
    fn marks_are_found_in_order_and_a_missing_one_shows() {
        let mut heard = ReceivedDeltas::default();
        heard
            .record_markers(
                format!("{{\"text\":\"{}{}\"}}", marked_text(0), marked_text(1)).as_bytes(),
            )
            .unwrap();
        heard.record_markers(marked_text(2).as_bytes()).unwrap();
        assert_eq!(heard.deltas, 3);
        heard.record_markers(marked_text(4).as_bytes()).unwrap_err();
        heard.record_markers(b"@07").unwrap_err();
    }
}
