//! The figures over time, in time buckets whose width keeps their number bounded.

use super::counters::{DurationSamples, Durations};
use greenroom_core::{Timestamp, usage::ModelUsage};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Maximum number of buckets in a response.
const BUCKETS_MAX: i64 = 60;
/// Possible widths of a bucket, in seconds.
const WIDTHS: [i64; 14] = [
    1,
    5,
    10,
    30,
    60,
    300,
    600,
    1_800,
    3_600,
    4 * 3_600,
    86_400,
    7 * 86_400,
    30 * 86_400,
    365 * 86_400,
];

/// Counters by second.
#[derive(Default)]
pub(super) struct Timeline(BTreeMap<i64, TimelineBucket>);

/// Counters of one bucket.
#[derive(Clone, Default)]
pub(super) struct TimelineBucket {
    pub(super) runs_completed: u64,
    pub(super) runs_failed: u64,
    pub(super) runs_cancelled: u64,
    pub(super) calls_completed: u64,
    pub(super) calls_failed: u64,
    pub(super) calls_denied: u64,
    pub(super) calls_refused: u64,
    pub(super) retries: u64,
    pub(super) usage: ModelUsage,
    pub(super) step_ms: DurationSamples,
}

impl Timeline {
    /// Returns the counters of the second that contains `at`.
    pub(super) fn bucket_mut(&mut self, at: Timestamp) -> &mut TimelineBucket {
        self.0.entry(at.0.div_euclid(1_000)).or_default()
    }

    /// Returns the non-empty buckets, oldest first.
    pub(super) fn view(self) -> TimelineFigures {
        let first = self.0.first_key_value().map_or(0, |(second, _)| *second);
        let last = self.0.last_key_value().map_or(0, |(second, _)| *second);
        let fits = |width: &i64| last.div_euclid(*width) - first.div_euclid(*width) < BUCKETS_MAX;
        let width = WIDTHS.into_iter().find(fits).unwrap_or(WIDTHS[WIDTHS.len() - 1]);
        let mut buckets = BTreeMap::<i64, TimelineBucket>::new();
        for (second, bucket) in self.0 {
            buckets.entry(second.div_euclid(width) * width).or_default().add(bucket);
        }
        let buckets = buckets.into_iter().map(|(second, bucket)| bucket.view(second));
        TimelineFigures { width_s: width, buckets: buckets.collect() }
    }
}

impl TimelineBucket {
    fn add(&mut self, other: Self) {
        for (sum, count) in [
            (&mut self.runs_completed, other.runs_completed),
            (&mut self.runs_failed, other.runs_failed),
            (&mut self.runs_cancelled, other.runs_cancelled),
            (&mut self.calls_completed, other.calls_completed),
            (&mut self.calls_failed, other.calls_failed),
            (&mut self.calls_denied, other.calls_denied),
            (&mut self.calls_refused, other.calls_refused),
            (&mut self.retries, other.retries),
        ] {
            *sum += count;
        }
        self.usage = self.usage.plus(other.usage);
        self.step_ms.append(other.step_ms);
    }

    fn view(self, second: i64) -> BucketFigures {
        BucketFigures {
            at: Timestamp(second * 1_000),
            runs: RunCounts {
                completed: self.runs_completed,
                failed: self.runs_failed,
                cancelled: self.runs_cancelled,
            },
            calls: CallCounts {
                completed: self.calls_completed,
                failed: self.calls_failed,
                denied: self.calls_denied,
                refused: self.calls_refused,
            },
            retries: self.retries,
            usage: self.usage,
            step_ms: self.step_ms.view(),
        }
    }
}

/// The figures over time.
#[derive(Serialize, ToSchema)]
pub(super) struct TimelineFigures {
    /// Width of a bucket, in seconds.
    width_s: i64,
    /// The non-empty buckets, oldest first.
    buckets: Vec<BucketFigures>,
}

/// The figures of one bucket.
#[derive(Serialize, ToSchema)]
struct BucketFigures {
    /// The start of the bucket.
    at: Timestamp,
    /// Runs that ended in the bucket.
    runs: RunCounts,
    /// Calls that ended in the bucket.
    calls: CallCounts,
    /// Retries of steps and calls.
    retries: u64,
    /// Model usage.
    usage: ModelUsage,
    /// Durations of completed steps.
    step_ms: Durations,
}

/// Numbers of ended runs.
#[derive(Serialize, ToSchema)]
struct RunCounts {
    completed: u64,
    failed: u64,
    cancelled: u64,
}

/// Numbers of ended calls.
#[derive(Serialize, ToSchema)]
struct CallCounts {
    completed: u64,
    failed: u64,
    denied: u64,
    /// Rejected or cancelled by a user, or expired without an answer.
    refused: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn timeline(seconds: impl IntoIterator<Item = i64>) -> Value {
        let mut timeline = Timeline::default();
        seconds
            .into_iter()
            .for_each(|second| timeline.bucket_mut(Timestamp(second * 1_000)).retries += 1);
        json!(timeline.view())
    }

    #[test]
    fn w6_number_of_buckets_is_bounded_and_counts_are_complete() {
        assert_eq!(timeline([]), json!({"width_s": 1, "buckets": []}));
        let hour = 1_700_000_000 / 3_600 * 3_600;
        for (seconds, width, count) in [
            (vec![hour], 1, 1),
            (vec![hour, hour + 59], 1, 2),
            (vec![hour, hour + 60], 5, 2),
            ((hour..hour + 3_600).collect(), 60, 60),
            ((hour..hour + 3_601).collect(), 300, 13),
            (vec![0, 1_700_000_000], 365 * 86_400, 2),
        ] {
            let view = timeline(seconds.clone());
            let buckets = view["buckets"].as_array().unwrap();
            assert_eq!((&view["width_s"], buckets.len()), (&json!(width), count));
            let sum: u64 = buckets.iter().map(|bucket| bucket["retries"].as_u64().unwrap()).sum();
            assert_eq!(sum, seconds.len() as u64);
        }
    }
}
