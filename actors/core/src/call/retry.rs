//! When a failed attempt is tried again, and after how long (R1, R2).

use super::outcome::{RetryHint, ToolOutcome};
use crate::limits;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How often and when attempts are repeated: exponential backoff with full jitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// Retries after the first attempt.
    pub retries_max: u32,
    /// The first delay's upper end.
    pub initial_delay: Duration,
    /// The longest delay.
    pub max_delay: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            retries_max: limits::RETRIES_DEFAULT,
            initial_delay: limits::RETRY_BASE_DEFAULT,
            max_delay: limits::RETRY_CAP_DEFAULT,
        }
    }
}

impl RetryPolicy {
    /// The delay after failed attempt number `attempt` (1 is the first): a random part, `jitter`
    /// in 0..1, of `base * 2^(attempt - 1)`, which the cap limits.
    pub fn delay(&self, attempt: u32, jitter: f64) -> Duration {
        let doubled = 2u32.saturating_pow(attempt.saturating_sub(1));
        self.initial_delay
            .saturating_mul(doubled)
            .min(self.max_delay)
            .mul_f64(jitter.clamp(0.0, 1.0))
    }

    /// Whether another attempt is allowed after attempt number `attempt` failed.
    pub fn allows_retry_after(&self, attempt: u32) -> bool {
        attempt <= self.retries_max
    }
}

/// What an attempt's end means for its call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailureAction {
    /// Another attempt is safe and may help.
    Retry {
        /// Why the attempt failed, for people.
        reason: String,
        /// The end if there is no other attempt.
        final_failure: CallFailure,
    },
    /// It failed for good.
    Fail(CallFailure),
    /// It may or may not have taken effect, and must not be repeated without a person's word (D3).
    OutcomeUnknown {
        /// What was seen.
        reason: String,
    },
}

/// A definite failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallFailure {
    /// Its kind, on the wire.
    pub reason: super::CallFailureReason,
    /// What the model and people read.
    pub error: String,
}

/// Judges an attempt that did not complete. `repeatable` is the tool's ([`crate::policy::Tool`]).
pub fn classify_failure(outcome: &ToolOutcome, repeatable: bool) -> Option<FailureAction> {
    use super::CallFailureReason as R;
    let fail = |reason, error: String| CallFailure { reason, error };
    let next = match outcome {
        ToolOutcome::Completed(_) => return None,
        ToolOutcome::NotSent { error } => FailureAction::Retry {
            reason: error.clone(),
            final_failure: fail(R::Unavailable, error.clone()),
        },
        ToolOutcome::Failed { error, hint } => {
            let failure = fail(R::Error, error.clone());
            let passing = match hint {
                RetryHint::DidNotRun => true,
                RetryHint::Permanent => false,
                RetryHint::Temporary => repeatable,
                RetryHint::Unspecified => repeatable && is_temporary_error_text(error),
            };
            if passing {
                FailureAction::Retry { reason: error.clone(), final_failure: failure }
            } else {
                FailureAction::Fail(failure)
            }
        }
        ToolOutcome::TimedOut { after_ms } => {
            let error = format!("no answer within {after_ms} ms");
            classify_unanswered(error, R::Timeout, repeatable)
        }
        ToolOutcome::Crashed { error } => {
            classify_unanswered(error.clone(), R::Crashed, repeatable)
        }
    };
    Some(next)
}

fn classify_unanswered(
    error: String,
    reason: super::CallFailureReason,
    repeatable: bool,
) -> FailureAction {
    if repeatable {
        let otherwise = CallFailure { reason, error: error.clone() };
        FailureAction::Retry { reason: error, final_failure: otherwise }
    } else {
        FailureAction::OutcomeUnknown { reason: error }
    }
}

/// The last resort (R1): what a tool's error text sounds like.
fn is_temporary_error_text(error: &str) -> bool {
    const SIGNS: [&str; 8] = [
        "temporar",
        "unavailable",
        "timeout",
        "timed out",
        "rate limit",
        "too many requests",
        "connection refused",
        "connection reset",
    ];
    let error = error.to_lowercase();
    SIGNS.iter().any(|sign| error.contains(sign))
}

#[cfg(test)]
mod tests {
    use super::{super::CallFailureReason, *};

    fn action_name(outcome: ToolOutcome, repeatable: bool) -> &'static str {
        match classify_failure(&outcome, repeatable) {
            None => "done",
            Some(FailureAction::Retry { .. }) => "retry",
            Some(FailureAction::Fail(_)) => "fail",
            Some(FailureAction::OutcomeUnknown { .. }) => "unknown",
        }
    }

    #[test]
    fn r1_only_what_is_safe_is_repeated() {
        let failed = |error: &str, hint| ToolOutcome::Failed { error: error.into(), hint };
        let crashed = || ToolOutcome::Crashed { error: "child died".into() };
        let cases = [
            (failed("no such type", RetryHint::Unspecified), "fail", "fail"),
            (failed("Service Unavailable", RetryHint::Unspecified), "retry", "fail"),
            (failed("try later", RetryHint::Temporary), "retry", "fail"),
            (failed("slow down", RetryHint::DidNotRun), "retry", "retry"),
            (failed("temporarily out of budget", RetryHint::Permanent), "fail", "fail"),
            (ToolOutcome::NotSent { error: "no child".into() }, "retry", "retry"),
            (ToolOutcome::TimedOut { after_ms: 5 }, "retry", "unknown"),
            (crashed(), "retry", "unknown"),
        ];
        for (outcome, repeatable, not_repeatable) in cases {
            assert_eq!(action_name(outcome.clone(), true), repeatable, "{outcome:?}");
            assert_eq!(action_name(outcome.clone(), false), not_repeatable, "{outcome:?}");
        }
    }

    #[test]
    fn r1_a_timeout_that_is_not_repeated_keeps_its_reason() {
        let Some(FailureAction::Retry { final_failure: otherwise, .. }) =
            classify_failure(&ToolOutcome::TimedOut { after_ms: 5 }, true)
        else {
            panic!("expected a retry");
        };
        assert_eq!(otherwise.reason, CallFailureReason::Timeout);
    }

    #[test]
    fn r2_delays_double_up_to_the_cap_and_jitter_is_full() {
        let policy = RetryPolicy::default();
        let ends: Vec<_> = (1..=7).map(|attempt| policy.delay(attempt, 1.0).as_secs()).collect();
        assert_eq!(ends, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(policy.delay(3, 0.0), Duration::ZERO);
        assert_eq!(policy.delay(3, 0.5), Duration::from_secs(2));
        assert_eq!(policy.delay(u32::MAX, 1.0), Duration::from_secs(30));
    }

    #[test]
    fn r2_three_retries_are_four_attempts() {
        let policy = RetryPolicy::default();
        assert!(policy.allows_retry_after(3));
        assert!(!policy.allows_retry_after(4));
    }
}
