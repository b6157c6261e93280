//! Letting the threads that write what was told run, where they share a core with this one.
//!
//! They take the core from nobody, so where pieces of many sessions come together each would wait until
//! the last of them was read (docs/performance.md). What comes in bursts is better written in one go.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Bytes of a piece, at most, that came by itself.
const SHORT_BYTES_MAX: usize = 64;
/// Short pieces after which others are let run.
const PIECES: u32 = 8;
/// Whoever keeps the core for longer had other things to do than to write so few pieces.
const TURN_MAX: Duration = Duration::from_millis(1);
/// Turns that are left out then: a busy machine gets the core often enough.
const TURNS_LEFT_OUT: u32 = 1_000;

/// Knows when it is the others' turn.
#[derive(Default)]
pub(super) struct Courtesy {
    pieces: u32,
    turns_left_out: u32,
}

impl Courtesy {
    /// A piece of so many bytes was told.
    pub(super) fn told(&mut self, bytes: usize) {
        self.told_and(bytes, || {
            let given_at = Instant::now();
            thread::yield_now();
            given_at.elapsed()
        });
    }

    /// `give` gives the core away and says for how long it was gone.
    fn told_and(&mut self, bytes: usize, give: impl FnOnce() -> Duration) {
        if bytes > SHORT_BYTES_MAX {
            return;
        }
        self.pieces += 1;
        if self.pieces < PIECES {
            return;
        }
        self.pieces = 0;
        if self.turns_left_out > 0 {
            self.turns_left_out -= 1;
        } else if give() > TURN_MAX {
            self.turns_left_out = TURNS_LEFT_OUT;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often the core is given away while so many pieces of so many bytes are told.
    fn turns(courtesy: &mut Courtesy, pieces: u32, bytes: usize, gone: Duration) -> u32 {
        let mut turns = 0;
        for _ in 0..pieces {
            courtesy.told_and(bytes, || {
                turns += 1;
                gone
            });
        }
        turns
    }

    #[test]
    fn others_run_after_a_few_short_pieces_and_never_for_long_ones() {
        let mut courtesy = Courtesy::default();
        assert_eq!(turns(&mut courtesy, PIECES - 1, 10, Duration::ZERO), 0);
        assert_eq!(turns(&mut courtesy, 1, 10, Duration::ZERO), 1);
        assert_eq!(turns(&mut courtesy, 10 * PIECES, 10, Duration::ZERO), 10);
        assert_eq!(turns(&mut courtesy, 10 * PIECES, 1_000, Duration::ZERO), 0);
    }

    #[test]
    fn a_core_that_others_keep_is_not_given_away_for_a_while() {
        let mut courtesy = Courtesy::default();
        let pieces = (2 * TURNS_LEFT_OUT + 3) * PIECES;
        assert_eq!(turns(&mut courtesy, pieces, 10, 2 * TURN_MAX), 3);
    }
}
