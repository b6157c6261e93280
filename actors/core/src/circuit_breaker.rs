//! A circuit breaker (R4): blocks requests to an endpoint that fails repeatedly, and permits one
//! probe request before it allows all requests again.
//!
//! Pure: every function receives the current time. A caller acquires a [`CircuitPermit`] or gets a
//! [`CircuitOpenError`], and reports the [`RequestOutcome`] of its request.
//!
//! | state | `try_acquire` | success | failure | unknown outcome |
//! |---|---|---|---|---|
//! | closed | permits | resets the count | increments the count; opens at the limit | no change |
//! | open | rejects; after the open duration permits one probe: half open | ignored | ignored | ignored |
//! | half open | rejects until the probe timeout; then permits another probe | closes | opens, twice as long | permits the next probe |

use crate::time::Timestamp;
use serde::Serialize;
use std::time::Duration;
use utoipa::ToSchema;

/// The configuration of a circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerConfig {
    /// Number of consecutive failures that open the circuit.
    pub failures_max: u32,
    /// Duration of the first open phase. Each further one is twice as long.
    pub open_duration: Duration,
    /// Maximum duration of an open phase.
    pub open_duration_max: Duration,
    /// Maximum duration of a probe before another probe is permitted.
    pub probe_timeout: Duration,
}

/// The circuit breaker of one endpoint.
#[derive(Clone, Debug)]
pub struct CircuitBreaker {
    config: BreakerConfig,
    phase: BreakerPhase,
    /// The number of the current phase. Outcomes of permits from an earlier phase are ignored.
    epoch: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BreakerPhase {
    Closed { failures: u32 },
    Open { until: Timestamp, times_opened: u32 },
    HalfOpen { probe_until: Timestamp, times_opened: u32 },
}

/// The state of a circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = CircuitState)]
pub enum CircuitState {
    /// All requests are permitted.
    Closed,
    /// No request is permitted.
    Open,
    /// A probe request is in progress.
    HalfOpen,
}

impl CircuitState {
    /// Returns the wire name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// Permission to send one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitPermit {
    epoch: u64,
}

/// The circuit is open and the request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CircuitOpenError {
    /// The earliest time at which a request can be permitted.
    pub retry_at: Timestamp,
}

/// The outcome of a request, reported to the circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The endpoint answered, with any content.
    Success,
    /// The endpoint did not answer.
    Failure,
    /// The request was abandoned, and its outcome is unknown.
    Unknown,
}

impl CircuitBreaker {
    /// Creates a closed circuit breaker.
    pub fn new(config: BreakerConfig) -> Self {
        Self { config, phase: BreakerPhase::Closed { failures: 0 }, epoch: 0 }
    }

    /// Returns the state.
    pub fn state(&self) -> CircuitState {
        match self.phase {
            BreakerPhase::Closed { .. } => CircuitState::Closed,
            BreakerPhase::Open { .. } => CircuitState::Open,
            BreakerPhase::HalfOpen { .. } => CircuitState::HalfOpen,
        }
    }

    /// Returns the time at which the next request can be permitted; `None` if the circuit is
    /// closed.
    pub fn open_until(&self) -> Option<Timestamp> {
        match self.phase {
            BreakerPhase::Closed { .. } => None,
            BreakerPhase::Open { until, .. }
            | BreakerPhase::HalfOpen { probe_until: until, .. } => Some(until),
        }
    }

    /// Permits a request, or returns the time of the next attempt.
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

    /// Records the outcome of the request that was sent with `permit`.
    pub fn report(&mut self, permit: CircuitPermit, outcome: RequestOutcome, now: Timestamp) {
        if permit.epoch != self.epoch {
            return;
        }
        match (self.phase, outcome) {
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
            // Unreachable: an open phase issues no permits.
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

    /// Closes the circuit, because the endpoint was replaced.
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

    const CONFIG: BreakerConfig = BreakerConfig {
        failures_max: 3,
        open_duration: Duration::from_secs(10),
        open_duration_max: Duration::from_secs(35),
        probe_timeout: Duration::from_secs(60),
    };

    /// Returns the time `seconds` after the start.
    fn time(seconds: i64) -> Timestamp {
        Timestamp(seconds * 1000)
    }

    /// Sends a request at `second` and reports its outcome immediately.
    fn send(breaker: &mut CircuitBreaker, second: i64, outcome: RequestOutcome) -> CircuitState {
        let permit = breaker.try_acquire(time(second)).expect("the request is permitted");
        breaker.report(permit, outcome, time(second));
        breaker.state()
    }

    fn opened_breaker(second: i64) -> CircuitBreaker {
        let mut breaker = CircuitBreaker::new(CONFIG);
        for _ in 0..3 {
            send(&mut breaker, second, RequestOutcome::Failure);
        }
        breaker
    }

    #[test]
    fn r4_consecutive_failures_open_circuit_and_success_resets_count() {
        use RequestOutcome::{Failure, Success, Unknown};
        let cases: [(&[RequestOutcome], CircuitState); 6] = [
            (&[Failure, Failure], CircuitState::Closed),
            (&[Failure, Failure, Failure], CircuitState::Open),
            (&[Failure, Failure, Success, Failure, Failure], CircuitState::Closed),
            (&[Failure, Unknown, Failure, Unknown], CircuitState::Closed),
            (&[Failure, Unknown, Failure, Failure], CircuitState::Open),
            (&[Success, Success, Failure, Failure, Failure], CircuitState::Open),
        ];
        for (outcomes, state) in cases {
            let mut breaker = CircuitBreaker::new(CONFIG);
            for outcome in outcomes {
                send(&mut breaker, 0, *outcome);
            }
            assert_eq!(breaker.state(), state, "{outcomes:?}");
        }
    }

    #[test]
    fn r4_one_probe_is_permitted_after_open_duration() {
        let mut breaker = opened_breaker(0);
        assert_eq!(breaker.try_acquire(time(9)), Err(CircuitOpenError { retry_at: time(10) }));
        let probe = breaker.try_acquire(time(10)).unwrap();
        assert_eq!(breaker.state(), CircuitState::HalfOpen);
        assert_eq!(
            breaker.try_acquire(time(11)),
            Err(CircuitOpenError { retry_at: time(70) }),
            "only one probe is permitted"
        );
        breaker.report(probe, RequestOutcome::Success, time(12));
        assert_eq!(breaker.state(), CircuitState::Closed);
        assert_eq!(
            send(&mut breaker, 12, RequestOutcome::Failure),
            CircuitState::Closed,
            "the failure count was reset"
        );
    }

    #[test]
    fn r4_open_duration_doubles_up_to_maximum() {
        let mut breaker = opened_breaker(0);
        let mut now = 10;
        for open_seconds in [20, 35, 35] {
            assert_eq!(send(&mut breaker, now, RequestOutcome::Failure), CircuitState::Open);
            assert_eq!(breaker.open_until(), Some(time(now + open_seconds)));
            now += open_seconds;
        }
        assert_eq!(send(&mut breaker, now, RequestOutcome::Success), CircuitState::Closed);
        for _ in 0..3 {
            send(&mut breaker, now, RequestOutcome::Failure);
        }
        assert_eq!(breaker.open_until(), Some(time(now + 10)), "the open duration was reset");
    }

    #[test]
    fn r4_lost_probe_does_not_block_further_probes() {
        let mut breaker = opened_breaker(0);
        assert_eq!(send(&mut breaker, 10, RequestOutcome::Unknown), CircuitState::Open);
        let lost = breaker.try_acquire(time(10)).unwrap();
        let next = breaker.try_acquire(time(70)).unwrap();
        breaker.report(lost, RequestOutcome::Success, time(71));
        assert_eq!(breaker.state(), CircuitState::HalfOpen, "the lost probe is ignored");
        breaker.report(next, RequestOutcome::Success, time(71));
        assert_eq!(breaker.state(), CircuitState::Closed);
    }

    #[test]
    fn r4_outcome_of_earlier_epoch_is_ignored() {
        for outcome in [RequestOutcome::Success, RequestOutcome::Failure, RequestOutcome::Unknown] {
            let mut breaker = CircuitBreaker::new(CONFIG);
            let early = breaker.try_acquire(time(0)).unwrap();
            for _ in 0..3 {
                send(&mut breaker, 0, RequestOutcome::Failure);
            }
            breaker.report(early, outcome, time(5));
            assert_eq!(
                (breaker.state(), breaker.open_until()),
                (CircuitState::Open, Some(time(10)))
            );
        }
    }

    #[test]
    fn r4_reset_closes_circuit() {
        let mut breaker = opened_breaker(0);
        breaker.reset();
        assert_eq!(send(&mut breaker, 0, RequestOutcome::Failure), CircuitState::Closed);
    }
}
