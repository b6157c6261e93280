//! Criterion's clock, of the processor time that this process uses instead of the time that passes:
//! others use the machine, too.

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Of all threads of this process, to the nanosecond.
pub(crate) struct ProcessorTime;

fn now() -> Duration {
    let clock = ClockId::CLOCK_PROCESS_CPUTIME_ID;
    clock_gettime(clock).expect("Linux has this clock").into()
}

impl Measurement for ProcessorTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        now()
    }

    fn end(&self, start: Duration) -> Duration {
        now().saturating_sub(start)
    }

    fn add(&self, one: &Duration, other: &Duration) -> Duration {
        *one + *other
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_nanos() as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        (&WallTime as &'static WallTime).formatter()
    }
}
