//! Requests per second of each principal, and of each address that tries to sign in (X4): a bucket of
//! tokens each, refilled by time.

use greenroom_core::ids::UserId;
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Those remembered at once. Forgetting one gives it a full bucket, no more.
const BUCKETS_MAX: usize = 10_000;

/// Whose requests are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RequestLimiterKey {
    /// Whoever that credential is.
    Principal(UserId),
    /// Nobody yet, from there; from somewhere unknown.
    Anonymous(Option<IpAddr>),
}

/// Counts requests.
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
    /// One that lets each make so many requests per second, saved up for a second at
    /// most.
    pub fn new(per_second: u32) -> Self {
        Self { per_second: f64::from(per_second.max(1)), buckets: Mutex::default() }
    }

    /// How many per second.
    pub fn per_second(&self) -> u64 {
        self.per_second as u64
    }

    /// Takes one request of theirs, or refuses it.
    pub fn try_acquire(&self, whose: &RequestLimiterKey, now: Instant) -> bool {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if !buckets.contains_key(whose) && buckets.len() >= BUCKETS_MAX {
            // After a second a bucket is full again and no different from a new one.
            buckets.retain(|_, bucket| {
                now.duration_since(bucket.refilled_at) < Duration::from_secs(1)
            });
            if buckets.len() >= BUCKETS_MAX {
                buckets.clear();
            }
        }
        let full = TokenBucket { tokens: self.per_second, refilled_at: now };
        let bucket = buckets.entry(whose.clone()).or_insert(full);
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
        let throttle = RequestLimiter::new(100);
        let start = Instant::now();
        let admitted = (0..150).filter(|_| throttle.try_acquire(&user(1), start)).count();
        assert_eq!(admitted, 100);
        assert!(throttle.try_acquire(&user(2), start));
        assert!(throttle.try_acquire(&RequestLimiterKey::Anonymous(None), start));
        let soon = start + Duration::from_millis(500);
        let admitted = (0..150).filter(|_| throttle.try_acquire(&user(1), soon)).count();
        assert_eq!(admitted, 50);
        let much_later = start + Duration::from_secs(3600);
        let admitted = (0..150).filter(|_| throttle.try_acquire(&user(1), much_later)).count();
        assert_eq!(admitted, 100);
    }

    #[test]
    fn x4_many_principals_do_not_fill_the_memory() {
        let throttle = RequestLimiter::new(1);
        let now = Instant::now();
        for number in 0..=BUCKETS_MAX {
            throttle.try_acquire(&user(number), now);
        }
        assert!(throttle.buckets.lock().unwrap().len() <= BUCKETS_MAX);
    }
}
