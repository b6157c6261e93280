//! Time and randomness that tests decide about.

use crate::ports::Clock;
use greenroom_core::Timestamp;
use std::{
    sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// A clock whose seeds repeat from run to run. It stands still, or it flows from a fixed instant;
/// either way a test can move it. Timers of actors run in real time: what waits for an instant of
/// this clock looks at it again only when something else happens.
#[derive(Debug)]
pub struct ManualClock {
    millis: AtomicI64,
    started: Option<Instant>,
    seeds: AtomicU64,
}

impl ManualClock {
    /// 2026-01-01, midnight.
    pub const START: Timestamp = Timestamp(1_767_225_600_000);

    /// A clock that stands still at [`Self::START`].
    pub fn paused() -> Self {
        Self { millis: AtomicI64::new(Self::START.0), started: None, seeds: AtomicU64::new(1) }
    }

    /// A clock that flows in real time from [`Self::START`].
    pub fn running() -> Self {
        Self { started: Some(Instant::now()), ..Self::paused() }
    }

    /// Moves the time forward.
    pub fn advance(&self, by: Duration) {
        self.millis.fetch_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX), Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        let flowed = self.started.map(|started| started.elapsed()).unwrap_or_default();
        Timestamp(self.millis.load(Relaxed)).saturating_add(flowed)
    }

    fn seed(&self) -> u64 {
        // Far apart: what is drawn from one seed must not be drawn from the next as well.
        self.seeds.fetch_add(1, Relaxed).wrapping_mul(0xD134_2543_DE82_EF95)
    }
}
