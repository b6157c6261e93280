//! A clock for criterion that measures the processor time of this process. Unlike wall-clock time, it
//! excludes other work on the machine.

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Measures the processor time of all threads of this process, in nanoseconds.
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

    fn add(&self, first: &Duration, second: &Duration) -> Duration {
        *first + *second
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
