//! Letting the threads that write what was told run, where they share a core with this one.
//!
//! They take the core from nobody, so where pieces of many sessions come together each would wait until
//! the last of them was read (docs/performance.md). What comes in bursts is better written in one go.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Bytes of a piece, at most, that came by itself.
const SHORT_DELTA_BYTES_MAX: usize = 64;
/// Short pieces after which others are let run.
const SHORT_DELTAS_PER_YIELD: u32 = 8;
/// Whoever keeps the core for longer had other things to do than to write so few pieces.
const YIELD_DURATION_MAX: Duration = Duration::from_millis(1);
/// Turns that are left out then: a busy machine gets the core often enough.
const YIELDS_SKIPPED_WHEN_BUSY: u32 = 1_000;

/// Knows when it is the others' turn.
#[derive(Default)]
pub(super) struct YieldPolicy {
    short_deltas: u32,
    yields_to_skip: u32,
}

impl YieldPolicy {
    /// A piece of so many bytes was told.
    pub(super) fn on_delta_sent(&mut self, bytes: usize) {
        self.on_delta_sent_with(bytes, || {
            let given_at = Instant::now();
            thread::yield_now();
            given_at.elapsed()
        });
    }

    /// `give` gives the core away and says for how long it was gone.
    fn on_delta_sent_with(&mut self, bytes: usize, give: impl FnOnce() -> Duration) {
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
        } else if give() > YIELD_DURATION_MAX {
            self.yields_to_skip = YIELDS_SKIPPED_WHEN_BUSY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often the core is given away while so many pieces of so many bytes are told.
    fn count_yields(courtesy: &mut YieldPolicy, pieces: u32, bytes: usize, gone: Duration) -> u32 {
        let mut turns = 0;
        for _ in 0..pieces {
            courtesy.on_delta_sent_with(bytes, || {
                turns += 1;
                gone
            });
        }
        turns
    }

    #[test]
    fn yields_after_several_short_deltas_and_never_for_long_ones() {
        let mut courtesy = YieldPolicy::default();
        assert_eq!(count_yields(&mut courtesy, SHORT_DELTAS_PER_YIELD - 1, 10, Duration::ZERO), 0);
        assert_eq!(count_yields(&mut courtesy, 1, 10, Duration::ZERO), 1);
        assert_eq!(
            count_yields(&mut courtesy, 10 * SHORT_DELTAS_PER_YIELD, 10, Duration::ZERO),
            10
        );
        assert_eq!(
            count_yields(&mut courtesy, 10 * SHORT_DELTAS_PER_YIELD, 1_000, Duration::ZERO),
            0
        );
    }

    #[test]
    fn skips_yields_after_a_slow_one() {
        let mut courtesy = YieldPolicy::default();
        let pieces = (2 * YIELDS_SKIPPED_WHEN_BUSY + 3) * SHORT_DELTAS_PER_YIELD;
        assert_eq!(count_yields(&mut courtesy, pieces, 10, 2 * YIELD_DURATION_MAX), 3);
    }
}
