//! Retry rules: when a failed attempt is repeated, and after which delay (R1, R2).

use super::outcome::{RetryHint, ToolOutcome};
use crate::limits;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The number and timing of retries: exponential backoff with full jitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// Maximum number of retries after the first attempt.
    pub retries_max: u32,
    /// Upper bound of the first delay.
    pub initial_delay: Duration,
    /// Upper bound of every delay.
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
    /// Returns the delay after failed attempt number `attempt` (starting at 1): the fraction
    /// `jitter` (0 to 1) of `initial_delay * 2^(attempt - 1)`, where the product is capped at
    /// `max_delay`.
    pub fn delay(&self, attempt: u32, jitter: f64) -> Duration {
        let doubled = 2u32.saturating_pow(attempt.saturating_sub(1));
        self.initial_delay
            .saturating_mul(doubled)
            .min(self.max_delay)
            .mul_f64(jitter.clamp(0.0, 1.0))
    }

    /// Returns true if another attempt is allowed after attempt number `attempt` failed.
    pub fn allows_retry_after(&self, attempt: u32) -> bool {
        attempt <= self.retries_max
    }
}

/// The action that the outcome of an unsuccessful attempt requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailureAction {
    /// Another attempt is safe and may succeed.
    Retry {
        /// The reason of the failure, for humans.
        reason: String,
        /// The failure of the call if there is no other attempt.
        final_failure: CallFailure,
    },
    /// The call failed permanently.
    Fail(CallFailure),
    /// The call may or may not have taken effect. A human must decide before it is repeated (D3).
    OutcomeUnknown {
        /// The observed failure.
        reason: String,
    },
}

/// A definite failure of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallFailure {
    /// The reason, as on the wire.
    pub reason: super::CallFailureReason,
    /// The error text that the model and humans read.
    pub error: String,
}

/// Returns the action for an unsuccessful attempt; `None` if the attempt completed. `repeatable` is
/// the property of the tool ([`crate::policy::Tool`]).
pub fn classify_failure(outcome: &ToolOutcome, repeatable: bool) -> Option<FailureAction> {
    use super::CallFailureReason as R;
    let fail = |reason, error: String| CallFailure { reason, error };
    let action = match outcome {
        ToolOutcome::Completed(_) => return None,
        ToolOutcome::NotSent { error } => FailureAction::Retry {
            reason: error.clone(),
            final_failure: fail(R::Unavailable, error.clone()),
        },
        ToolOutcome::Failed { error, hint } => {
            let failure = fail(R::Error, error.clone());
            let should_retry = match hint {
                RetryHint::DidNotRun => true,
                RetryHint::Permanent => false,
                RetryHint::Temporary => repeatable,
                RetryHint::Unspecified => repeatable && is_temporary_error_text(error),
            };
            if should_retry {
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
    Some(action)
}

fn classify_unanswered(
    error: String,
    reason: super::CallFailureReason,
    repeatable: bool,
) -> FailureAction {
    if repeatable {
        let final_failure = CallFailure { reason, error: error.clone() };
        FailureAction::Retry { reason: error, final_failure }
    } else {
        FailureAction::OutcomeUnknown { reason: error }
    }
}

/// Returns true if an error text suggests a temporary failure. Used only if the tool gives no hint
/// (R1).
fn is_temporary_error_text(error: &str) -> bool {
    const PATTERNS: [&str; 8] = [
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
    PATTERNS.iter().any(|pattern| error.contains(pattern))
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
    fn r1_failed_attempt_is_retried_only_if_safe() {
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
    fn r1_exhausted_timeout_keeps_its_reason() {
        let Some(FailureAction::Retry { final_failure, .. }) =
            classify_failure(&ToolOutcome::TimedOut { after_ms: 5 }, true)
        else {
            panic!("expected a retry");
        };
        assert_eq!(final_failure.reason, CallFailureReason::Timeout);
    }

    #[test]
    fn r2_delay_doubles_up_to_cap_with_full_jitter() {
        let policy = RetryPolicy::default();
        let upper_bounds: Vec<_> =
            (1..=7).map(|attempt| policy.delay(attempt, 1.0).as_secs()).collect();
        assert_eq!(upper_bounds, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(policy.delay(3, 0.0), Duration::ZERO);
        assert_eq!(policy.delay(3, 0.5), Duration::from_secs(2));
        assert_eq!(policy.delay(u32::MAX, 1.0), Duration::from_secs(30));
    }

    #[test]
    fn r2_default_policy_allows_four_attempts() {
        let policy = RetryPolicy::default();
        assert!(policy.allows_retry_after(3));
        assert!(!policy.allows_retry_after(4));
    }
}
