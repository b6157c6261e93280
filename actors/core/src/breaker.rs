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
pub struct Policy {
    /// Failures in a row that open it.
    pub failures_max: u32,
    /// Its first rest; each further one is twice as long.
    pub rest: Duration,
    /// Its longest rest.
    pub rest_max: Duration,
    /// How long the one that passes a half open breaker may take before another may pass.
    pub probe_max: Duration,
}

/// The breaker of one endpoint.
#[derive(Clone, Debug)]
pub struct Breaker {
    policy: Policy,
    phase: Phase,
    /// Which phase a pass was given in: what comes of an earlier one changes nothing.
    epoch: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Closed { failures: u32 },
    Open { until: Timestamp, rests: u32 },
    HalfOpen { probe_until: Timestamp, rests: u32 },
}

/// What a breaker does with those who ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = CircuitState)]
pub enum State {
    /// All pass.
    Closed,
    /// Nobody passes.
    Open,
    /// One is under way to see.
    HalfOpen,
}

impl State {
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
pub struct Pass {
    epoch: u64,
}

/// Not now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// When it is worth asking again.
    pub until: Timestamp,
}

/// How a try went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The endpoint answered, whatever it said.
    Success,
    /// It did not.
    Failure,
    /// The try was given up, and nothing is known.
    Nothing,
}

impl Breaker {
    /// A closed one.
    pub fn new(policy: Policy) -> Self {
        Self { policy, phase: Phase::Closed { failures: 0 }, epoch: 0 }
    }

    /// What it does with those who ask.
    pub fn state(&self) -> State {
        match self.phase {
            Phase::Closed { .. } => State::Closed,
            Phase::Open { .. } => State::Open,
            Phase::HalfOpen { .. } => State::HalfOpen,
        }
    }

    /// When the next may pass, if none may now.
    pub fn rests_until(&self) -> Option<Timestamp> {
        match self.phase {
            Phase::Closed { .. } => None,
            Phase::Open { until, .. } | Phase::HalfOpen { probe_until: until, .. } => Some(until),
        }
    }

    /// Whether a try may be made now.
    pub fn ask(&mut self, now: Timestamp) -> Result<Pass, Refused> {
        match self.phase {
            Phase::Closed { .. } => {}
            Phase::Open { until, rests } | Phase::HalfOpen { probe_until: until, rests } => {
                if now < until {
                    return Err(Refused { until });
                }
                let probe_until = now.after(self.policy.probe_max);
                self.enter(Phase::HalfOpen { probe_until, rests });
            }
        }
        Ok(Pass { epoch: self.epoch })
    }

    /// Takes how the try of `pass` went.
    pub fn hear(&mut self, pass: Pass, heard: Heard, now: Timestamp) {
        if pass.epoch != self.epoch {
            return;
        }
        match (self.phase, heard) {
            (Phase::Closed { .. }, Heard::Success) => self.phase = Phase::Closed { failures: 0 },
            (Phase::Closed { .. }, Heard::Nothing) => {}
            (Phase::Closed { failures }, Heard::Failure) => {
                let failures = failures.saturating_add(1);
                if failures >= self.policy.failures_max {
                    self.open(0, now);
                } else {
                    self.phase = Phase::Closed { failures };
                }
            }
            // Nobody holds a pass of this phase.
            (Phase::Open { .. }, Heard::Success | Heard::Failure | Heard::Nothing) => {}
            (Phase::HalfOpen { .. }, Heard::Success) => self.enter(Phase::Closed { failures: 0 }),
            (Phase::HalfOpen { rests, .. }, Heard::Failure) => self.open(rests, now),
            (Phase::HalfOpen { rests, .. }, Heard::Nothing) => {
                self.enter(Phase::Open { until: now, rests });
            }
        }
    }

    /// Lets all pass again: the endpoint is another one now.
    pub fn reset(&mut self) {
        self.enter(Phase::Closed { failures: 0 });
    }

    fn open(&mut self, rests: u32, now: Timestamp) {
        let doubled = self.policy.rest.saturating_mul(2u32.saturating_pow(rests));
        let until = now.after(doubled.min(self.policy.rest_max));
        self.enter(Phase::Open { until, rests: rests.saturating_add(1) });
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.epoch += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Policy = Policy {
        failures_max: 3,
        rest: Duration::from_secs(10),
        rest_max: Duration::from_secs(35),
        probe_max: Duration::from_secs(60),
    };

    /// Seconds from the beginning.
    fn at(seconds: i64) -> Timestamp {
        Timestamp(seconds * 1000)
    }

    /// One who asks at that second and hears at once.
    fn tries(breaker: &mut Breaker, second: i64, heard: Heard) -> State {
        let pass = breaker.ask(at(second)).expect("it may be tried");
        breaker.hear(pass, heard, at(second));
        breaker.state()
    }

    fn opened(second: i64) -> Breaker {
        let mut breaker = Breaker::new(POLICY);
        for _ in 0..3 {
            tries(&mut breaker, second, Heard::Failure);
        }
        breaker
    }

    #[test]
    fn r4_failures_in_a_row_open_it_and_a_success_counts_anew() {
        use Heard::{Failure, Nothing, Success};
        let cases: [(&[Heard], State); 6] = [
            (&[Failure, Failure], State::Closed),
            (&[Failure, Failure, Failure], State::Open),
            (&[Failure, Failure, Success, Failure, Failure], State::Closed),
            (&[Failure, Nothing, Failure, Nothing], State::Closed),
            (&[Failure, Nothing, Failure, Failure], State::Open),
            (&[Success, Success, Failure, Failure, Failure], State::Open),
        ];
        for (heard, state) in cases {
            let mut breaker = Breaker::new(POLICY);
            for heard in heard {
                tries(&mut breaker, 0, *heard);
            }
            assert_eq!(breaker.state(), state, "{heard:?}");
        }
    }

    #[test]
    fn r4_after_its_rest_one_passes_to_see() {
        let mut breaker = opened(0);
        assert_eq!(breaker.ask(at(9)), Err(Refused { until: at(10) }));
        let probe = breaker.ask(at(10)).unwrap();
        assert_eq!(breaker.state(), State::HalfOpen);
        assert_eq!(breaker.ask(at(11)), Err(Refused { until: at(70) }), "one is enough");
        breaker.hear(probe, Heard::Success, at(12));
        assert_eq!(breaker.state(), State::Closed);
        assert_eq!(tries(&mut breaker, 12, Heard::Failure), State::Closed, "it counts anew");
    }

    #[test]
    fn r4_each_rest_is_twice_as_long_up_to_the_longest() {
        let mut breaker = opened(0);
        let mut now = 10;
        for rest in [20, 35, 35] {
            assert_eq!(tries(&mut breaker, now, Heard::Failure), State::Open);
            assert_eq!(breaker.rests_until(), Some(at(now + rest)));
            now += rest;
        }
        assert_eq!(tries(&mut breaker, now, Heard::Success), State::Closed);
        for _ in 0..3 {
            tries(&mut breaker, now, Heard::Failure);
        }
        assert_eq!(breaker.rests_until(), Some(at(now + 10)), "and begins anew");
    }

    #[test]
    fn r4_one_that_is_given_up_or_never_comes_back_does_not_keep_it_half_open() {
        let mut breaker = opened(0);
        assert_eq!(tries(&mut breaker, 10, Heard::Nothing), State::Open);
        let lost = breaker.ask(at(10)).unwrap();
        let next = breaker.ask(at(70)).unwrap();
        breaker.hear(lost, Heard::Success, at(71));
        assert_eq!(breaker.state(), State::HalfOpen, "it is not asked any more");
        breaker.hear(next, Heard::Success, at(71));
        assert_eq!(breaker.state(), State::Closed);
    }

    #[test]
    fn r4_what_began_before_it_opened_changes_nothing() {
        for heard in [Heard::Success, Heard::Failure, Heard::Nothing] {
            let mut breaker = Breaker::new(POLICY);
            let early = breaker.ask(at(0)).unwrap();
            for _ in 0..3 {
                tries(&mut breaker, 0, Heard::Failure);
            }
            breaker.hear(early, heard, at(5));
            assert_eq!((breaker.state(), breaker.rests_until()), (State::Open, Some(at(10))));
        }
    }

    #[test]
    fn r4_another_endpoint_begins_anew() {
        let mut breaker = opened(0);
        breaker.reset();
        assert_eq!(tries(&mut breaker, 0, Heard::Failure), State::Closed);
    }
}
