//! The rate limit of each principal, and of each address that tries to sign in (X4): one token
//! bucket per key.

use greenroom_core::ids::UserId;
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Maximum number of buckets. A key whose bucket is removed starts again with a full bucket.
const BUCKETS_MAX: usize = 10_000;

/// The key under which requests are counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RequestLimiterKey {
    /// An authenticated user.
    Principal(UserId),
    /// An unauthenticated client, by address if it is known.
    Anonymous(Option<IpAddr>),
}

/// Limits the request rate of each key.
#[derive(Debug)]
pub struct RequestLimiter {
    per_second: f64,
    buckets: Mutex<HashMap<RequestLimiterKey, TokenBucket>>,
}

#[derive(Clone, Copy, Debug)]
struct TokenBucket {
    tokens: f64,
    refilled_at: Instant,
}

impl RequestLimiter {
    /// Creates a limiter that admits `per_second` requests per second and key, with bursts of at
    /// most one second's requests.
    pub fn new(per_second: u32) -> Self {
        Self { per_second: f64::from(per_second.max(1)), buckets: Mutex::default() }
    }

    /// The maximum requests per second.
    pub fn per_second(&self) -> u64 {
        self.per_second as u64
    }

    /// Counts one request of `key`. Returns false if the limit is exceeded.
    pub fn try_acquire(&self, key: &RequestLimiterKey, now: Instant) -> bool {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if !buckets.contains_key(key) && buckets.len() >= BUCKETS_MAX {
            // After one second a bucket is full again and equals a new one.
            buckets.retain(|_, bucket| {
                now.duration_since(bucket.refilled_at) < Duration::from_secs(1)
            });
            if buckets.len() >= BUCKETS_MAX {
                buckets.clear();
            }
        }
        let full = TokenBucket { tokens: self.per_second, refilled_at: now };
        let bucket = buckets.entry(key.clone()).or_insert(full);
        let elapsed = now.saturating_duration_since(bucket.refilled_at).as_secs_f64();
        bucket.tokens = (bucket.tokens + elapsed * self.per_second).min(self.per_second);
        bucket.refilled_at = now;
        let admitted = bucket.tokens >= 1.0;
        if admitted {
            bucket.tokens -= 1.0;
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(number: usize) -> RequestLimiterKey {
        RequestLimiterKey::Principal(UserId::parse(&format!("user-{number}")).unwrap())
    }

    #[test]
    fn x4_rate_is_limited_per_user() {
        let limiter = RequestLimiter::new(100);
        let start = Instant::now();
        let admitted = (0..150).filter(|_| limiter.try_acquire(&user(1), start)).count();
        assert_eq!(admitted, 100);
        assert!(limiter.try_acquire(&user(2), start));
        assert!(limiter.try_acquire(&RequestLimiterKey::Anonymous(None), start));
        let soon = start + Duration::from_millis(500);
        let admitted = (0..150).filter(|_| limiter.try_acquire(&user(1), soon)).count();
        assert_eq!(admitted, 50);
        let much_later = start + Duration::from_secs(3600);
        let admitted = (0..150).filter(|_| limiter.try_acquire(&user(1), much_later)).count();
        assert_eq!(admitted, 100);
    }

    #[test]
    fn x4_number_of_buckets_is_bounded() {
        let limiter = RequestLimiter::new(1);
        let now = Instant::now();
        for number in 0..=BUCKETS_MAX {
            limiter.try_acquire(&user(number), now);
        }
        assert!(limiter.buckets.lock().unwrap().len() <= BUCKETS_MAX);
    }
}
