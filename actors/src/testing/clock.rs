//! A clock controlled by the test.

use crate::ports::Clock;
use greenroom_core::Timestamp;
use std::{
    sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// A clock with reproducible seeds. It is paused or runs from a fixed instant; a test can advance
/// it in both cases. Actor timers run in real time: an actor that waits for an instant of this
/// clock notices an advance only at its next input.
#[derive(Debug)]
pub struct ManualClock {
    millis: AtomicI64,
    started: Option<Instant>,
    seeds: AtomicU64,
}

impl ManualClock {
    /// The initial time: midnight of 2026-01-01, UTC.
    pub const START: Timestamp = Timestamp(1_767_225_600_000);

    /// Creates a clock that is paused at [`Self::START`].
    pub fn paused() -> Self {
        Self { millis: AtomicI64::new(Self::START.0), started: None, seeds: AtomicU64::new(1) }
    }

    /// Creates a clock that runs in real time from [`Self::START`].
    pub fn running() -> Self {
        Self { started: Some(Instant::now()), ..Self::paused() }
    }

    /// Moves the time forward.
    pub fn advance(&self, duration: Duration) {
        self.millis.fetch_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX), Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        let elapsed = self.started.map(|started| started.elapsed()).unwrap_or_default();
        Timestamp(self.millis.load(Relaxed)).saturating_add(elapsed)
    }

    fn seed(&self) -> u64 {
        // The seeds are far apart, so that values derived from two seeds do not coincide.
        self.seeds.fetch_add(1, Relaxed).wrapping_mul(0xD134_2543_DE82_EF95)
    }
}
