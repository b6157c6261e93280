//! A circuit breaker (R4): what fails again and again is left alone for a while, and then asked by
//! one first.
//!
//! Pure: time comes in with each question. Whoever asks gets a [`Pass`] or is [`Refused`], and says
//! in the end how it went.
//!
//! | state | asked | a success | a failure | nothing heard |
//! |---|---|---|---|---|
//! | closed | passes | counts anew | counts; at the limit it opens | |
//! | open | refused; after its rest one passes: half open | too late to count | too late to count | |
//! | half open | refused while the one is under way | closes | opens, for twice as long | the next one passes |

use crate::time::Timestamp;
use serde::Serialize;
use std::time::Duration;
use utoipa::ToSchema;

/// When a breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerConfig {
    /// Failures in a row that open it.
    pub failures_max: u32,
    /// Its first rest; each further one is twice as long.
    pub open_duration: Duration,
    /// Its longest rest.
    pub open_duration_max: Duration,
    /// How long the one that passes a half open breaker may take before another may pass.
    pub probe_timeout: Duration,
}

/// The breaker of one endpoint.
#[derive(Clone, Debug)]
pub struct CircuitBreaker {
    config: BreakerConfig,
    phase: BreakerPhase,
    /// Which phase a pass was given in: what comes of an earlier one changes nothing.
    epoch: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BreakerPhase {
    Closed { failures: u32 },
    Open { until: Timestamp, times_opened: u32 },
    HalfOpen { probe_until: Timestamp, times_opened: u32 },
}

/// What a breaker does with those who ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = CircuitState)]
pub enum CircuitState {
    /// All pass.
    Closed,
    /// Nobody passes.
    Open,
    /// One is under way to see.
    HalfOpen,
}

impl CircuitState {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// Leave to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitPermit {
    epoch: u64,
}

/// Not now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitOpenError {
    /// When it is worth asking again.
    pub retry_at: Timestamp,
}

/// How a try went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The endpoint answered, whatever it said.
    Success,
    /// It did not.
    Failure,
    /// The try was given up, and nothing is known.
    Unknown,
}

impl CircuitBreaker {
    /// A closed one.
    pub fn new(config: BreakerConfig) -> Self {
        Self { config, phase: BreakerPhase::Closed { failures: 0 }, epoch: 0 }
    }

    /// What it does with those who ask.
    pub fn state(&self) -> CircuitState {
        match self.phase {
            BreakerPhase::Closed { .. } => CircuitState::Closed,
            BreakerPhase::Open { .. } => CircuitState::Open,
            BreakerPhase::HalfOpen { .. } => CircuitState::HalfOpen,
        }
    }

    /// When the next may pass, if none may now.
    pub fn open_until(&self) -> Option<Timestamp> {
        match self.phase {
            BreakerPhase::Closed { .. } => None,
            BreakerPhase::Open { until, .. }
            | BreakerPhase::HalfOpen { probe_until: until, .. } => Some(until),
        }
    }

    /// Whether a try may be made now.
    pub fn try_acquire(&mut self, now: Timestamp) -> Result<CircuitPermit, CircuitOpenError> {
        match self.phase {
            BreakerPhase::Closed { .. } => {}
            BreakerPhase::Open { until, times_opened }
            | BreakerPhase::HalfOpen { probe_until: until, times_opened } => {
                if now < until {
                    return Err(CircuitOpenError { retry_at: until });
                }
                let probe_until = now.saturating_add(self.config.probe_timeout);
                self.enter(BreakerPhase::HalfOpen { probe_until, times_opened });
            }
        }
        Ok(CircuitPermit { epoch: self.epoch })
    }

    /// Takes how the try of `pass` went.
    pub fn report(&mut self, pass: CircuitPermit, heard: RequestOutcome, now: Timestamp) {
        if pass.epoch != self.epoch {
            return;
        }
        match (self.phase, heard) {
            (BreakerPhase::Closed { .. }, RequestOutcome::Success) => {
                self.phase = BreakerPhase::Closed { failures: 0 }
            }
            (BreakerPhase::Closed { .. }, RequestOutcome::Unknown) => {}
            (BreakerPhase::Closed { failures }, RequestOutcome::Failure) => {
                let failures = failures.saturating_add(1);
                if failures >= self.config.failures_max {
                    self.trip(0, now);
                } else {
                    self.phase = BreakerPhase::Closed { failures };
                }
            }
            // Nobody holds a pass of this phase.
            (
                BreakerPhase::Open { .. },
                RequestOutcome::Success | RequestOutcome::Failure | RequestOutcome::Unknown,
            ) => {}
            (BreakerPhase::HalfOpen { .. }, RequestOutcome::Success) => {
                self.enter(BreakerPhase::Closed { failures: 0 })
            }
            (BreakerPhase::HalfOpen { times_opened, .. }, RequestOutcome::Failure) => {
                self.trip(times_opened, now)
            }
            (BreakerPhase::HalfOpen { times_opened, .. }, RequestOutcome::Unknown) => {
                self.enter(BreakerPhase::Open { until: now, times_opened });
            }
        }
    }

    /// Lets all pass again: the endpoint is another one now.
    pub fn reset(&mut self) {
        self.enter(BreakerPhase::Closed { failures: 0 });
    }

    fn trip(&mut self, times_opened: u32, now: Timestamp) {
        let doubled = self.config.open_duration.saturating_mul(2u32.saturating_pow(times_opened));
        let until = now.saturating_add(doubled.min(self.config.open_duration_max));
        self.enter(BreakerPhase::Open { until, times_opened: times_opened.saturating_add(1) });
    }

    fn enter(&mut self, phase: BreakerPhase) {
        self.phase = phase;
        self.epoch += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: BreakerConfig = BreakerConfig {
        failures_max: 3,
        open_duration: Duration::from_secs(10),
        open_duration_max: Duration::from_secs(35),
        probe_timeout: Duration::from_secs(60),
    };

    /// Seconds from the beginning.
    fn at(seconds: i64) -> Timestamp {
        Timestamp(seconds * 1000)
    }

    /// One who asks at that second and hears at once.
    fn tries(breaker: &mut CircuitBreaker, second: i64, heard: RequestOutcome) -> CircuitState {
        let pass = breaker.try_acquire(at(second)).expect("it may be tried");
        breaker.report(pass, heard, at(second));
        breaker.state()
    }

    fn opened(second: i64) -> CircuitBreaker {
        let mut breaker = CircuitBreaker::new(POLICY);
        for _ in 0..3 {
            tries(&mut breaker, second, RequestOutcome::Failure);
        }
        breaker
    }

    #[test]
    fn r4_consecutive_failures_open_the_breaker_and_success_resets_the_count() {
        use RequestOutcome::{Failure, Success, Unknown};
        let cases: [(&[RequestOutcome], CircuitState); 6] = [
            (&[Failure, Failure], CircuitState::Closed),
            (&[Failure, Failure, Failure], CircuitState::Open),
            (&[Failure, Failure, Success, Failure, Failure], CircuitState::Closed),
            (&[Failure, Unknown, Failure, Unknown], CircuitState::Closed),
            (&[Failure, Unknown, Failure, Failure], CircuitState::Open),
            (&[Success, Success, Failure, Failure, Failure], CircuitState::Open),
        ];
        for (heard, state) in cases {
            let mut breaker = CircuitBreaker::new(POLICY);
            for heard in heard {
                tries(&mut breaker, 0, *heard);
            }
            assert_eq!(breaker.state(), state, "{heard:?}");
        }
    }

    #[test]
    fn r4_one_probe_is_permitted_after_the_open_duration() {
        let mut breaker = opened(0);
        assert_eq!(breaker.try_acquire(at(9)), Err(CircuitOpenError { retry_at: at(10) }));
        let probe = breaker.try_acquire(at(10)).unwrap();
        assert_eq!(breaker.state(), CircuitState::HalfOpen);
        assert_eq!(
            breaker.try_acquire(at(11)),
            Err(CircuitOpenError { retry_at: at(70) }),
            "one is enough"
        );
        breaker.report(probe, RequestOutcome::Success, at(12));
        assert_eq!(breaker.state(), CircuitState::Closed);
        assert_eq!(
            tries(&mut breaker, 12, RequestOutcome::Failure),
            CircuitState::Closed,
            "it counts anew"
        );
    }

    #[test]
    fn r4_each_rest_is_twice_as_long_up_to_the_longest() {
        let mut breaker = opened(0);
        let mut now = 10;
        for rest in [20, 35, 35] {
            assert_eq!(tries(&mut breaker, now, RequestOutcome::Failure), CircuitState::Open);
            assert_eq!(breaker.open_until(), Some(at(now + rest)));
            now += rest;
        }
        assert_eq!(tries(&mut breaker, now, RequestOutcome::Success), CircuitState::Closed);
        for _ in 0..3 {
            tries(&mut breaker, now, RequestOutcome::Failure);
        }
        assert_eq!(breaker.open_until(), Some(at(now + 10)), "and begins anew");
    }

    #[test]
    fn r4_lost_probe_does_not_keep_the_breaker_half_open() {
        let mut breaker = opened(0);
        assert_eq!(tries(&mut breaker, 10, RequestOutcome::Unknown), CircuitState::Open);
        let lost = breaker.try_acquire(at(10)).unwrap();
        let next = breaker.try_acquire(at(70)).unwrap();
        breaker.report(lost, RequestOutcome::Success, at(71));
        assert_eq!(breaker.state(), CircuitState::HalfOpen, "it is not asked any more");
        breaker.report(next, RequestOutcome::Success, at(71));
        assert_eq!(breaker.state(), CircuitState::Closed);
    }

    #[test]
    fn r4_outcomes_of_earlier_epochs_are_ignored() {
        for heard in [RequestOutcome::Success, RequestOutcome::Failure, RequestOutcome::Unknown] {
            let mut breaker = CircuitBreaker::new(POLICY);
            let early = breaker.try_acquire(at(0)).unwrap();
            for _ in 0..3 {
                tries(&mut breaker, 0, RequestOutcome::Failure);
            }
            breaker.report(early, heard, at(5));
            assert_eq!((breaker.state(), breaker.open_until()), (CircuitState::Open, Some(at(10))));
        }
    }

    #[test]
    fn r4_another_endpoint_begins_anew() {
        let mut breaker = opened(0);
        breaker.reset();
        assert_eq!(tries(&mut breaker, 0, RequestOutcome::Failure), CircuitState::Closed);
    }
}
