//! Yields the CPU to the threads that write to clients, where they share a core with this thread.
//!
//! Those threads never preempt this one. Without a yield, short deltas of many sessions would each
//! wait until the last of them was processed (docs/performance.md). Bursts are better written
//! together, so long deltas do not cause a yield.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Maximum bytes of a delta that counts as short, which means that it arrived alone.
const SHORT_DELTA_BYTES_MAX: usize = 64;
/// Number of short deltas after which the thread yields.
const SHORT_DELTAS_PER_YIELD: u32 = 8;
/// A longer yield shows that the other threads did more than write a few deltas.
const YIELD_DURATION_MAX: Duration = Duration::from_millis(1);
/// Number of yields to skip after a slow one: a busy machine switches threads often enough.
const YIELDS_SKIPPED_WHEN_BUSY: u32 = 1_000;

/// Decides when the thread yields.
#[derive(Default)]
pub(super) struct YieldPolicy {
    short_deltas: u32,
    yields_to_skip: u32,
}

impl YieldPolicy {
    /// Counts a delta of `bytes` bytes that was sent, and yields if it is time to.
    pub(super) fn on_delta_sent(&mut self, bytes: usize) {
        self.on_delta_sent_with(bytes, || {
            let started_at = Instant::now();
            thread::yield_now();
            started_at.elapsed()
        });
    }

    /// The same, with a replaceable yield. `yield_now` yields and returns the time it took.
    fn on_delta_sent_with(&mut self, bytes: usize, yield_now: impl FnOnce() -> Duration) {
        if bytes > SHORT_DELTA_BYTES_MAX {
            return;
        }
        self.short_deltas += 1;
        if self.short_deltas < SHORT_DELTAS_PER_YIELD {
            return;
        }
        self.short_deltas = 0;
        if self.yields_to_skip > 0 {
            self.yields_to_skip -= 1;
        } else if yield_now() > YIELD_DURATION_MAX {
            self.yields_to_skip = YIELDS_SKIPPED_WHEN_BUSY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of yields while `deltas` deltas of `bytes` bytes each are sent.
    fn count_yields(policy: &mut YieldPolicy, deltas: u32, bytes: usize, took: Duration) -> u32 {
        let mut yields = 0;
        for _ in 0..deltas {
            policy.on_delta_sent_with(bytes, || {
                yields += 1;
                took
            });
        }
        yields
    }

    #[test]
    fn yields_after_several_short_deltas_and_never_for_long_ones() {
        let mut policy = YieldPolicy::default();
        assert_eq!(count_yields(&mut policy, SHORT_DELTAS_PER_YIELD - 1, 10, Duration::ZERO), 0);
        assert_eq!(count_yields(&mut policy, 1, 10, Duration::ZERO), 1);
        assert_eq!(count_yields(&mut policy, 10 * SHORT_DELTAS_PER_YIELD, 10, Duration::ZERO), 10);
        assert_eq!(
            count_yields(&mut policy, 10 * SHORT_DELTAS_PER_YIELD, 1_000, Duration::ZERO),
            0
        );
    }

    #[test]
    fn skips_yields_after_a_slow_one() {
        let mut policy = YieldPolicy::default();
        let deltas = (2 * YIELDS_SKIPPED_WHEN_BUSY + 3) * SHORT_DELTAS_PER_YIELD;
        assert_eq!(count_yields(&mut policy, deltas, 10, 2 * YIELD_DURATION_MAX), 3);
    }
}
