//! A cache of the results of read-only tools, valid for as long as the catalog allows (T6).
//!
//! A result is keyed by its tool's server and name and the digest of its arguments, regardless of
//! the caller, because servers do not know the caller. The cache is bounded; the oldest results are
//! evicted first.

use crate::limits::{CACHED_BYTES_MAX, CACHED_RESULT_BYTES_MAX, CACHED_RESULTS_MAX};
use greenroom_core::{Timestamp, call::ToolOutput, json::Digest, policy::Tool};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The key of a cached result.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CacheKey {
    server: Arc<str>,
    digest: String,
}

impl CacheKey {
    /// Creates the key of a call of `tool` with these arguments.
    pub(crate) fn new(tool: &Tool, arguments: &Value) -> Self {
        let digest = Digest::hash_json(&json!([tool.remote_name, arguments])).to_string();
        Self { server: tool.server.clone(), digest }
    }
}

/// The cached results.
#[derive(Default)]
pub(crate) struct ResultCache(Mutex<CacheState>);

#[derive(Default)]
struct CacheState {
    results: BTreeMap<CacheKey, CacheEntry>,
    /// The keys in order of insertion, each with the number of the entry inserted.
    order: VecDeque<(CacheKey, u64)>,
    bytes: usize,
    number: u64,
}

struct CacheEntry {
    output: ToolOutput,
    expires_at: Timestamp,
    bytes: usize,
    number: u64,
}

impl ResultCache {
    /// Returns the result, marked as cached, unless it has expired.
    pub(crate) fn get(&self, key: &CacheKey, now: Timestamp) -> Option<ToolOutput> {
        let state = self.lock();
        let entry = state.results.get(key).filter(|entry| now < entry.expires_at)?;
        Some(ToolOutput { cached: true, ..entry.output.clone() })
    }

    /// Stores a result for the duration `ttl`, unless the result is too large.
    pub(crate) fn insert(&self, key: CacheKey, output: &ToolOutput, now: Timestamp, ttl: Duration) {
        let structured_bytes =
            output.structured.as_ref().map_or(0, |value| value.to_string().len());
        let bytes = output.text.len() + structured_bytes;
        if bytes > CACHED_RESULT_BYTES_MAX {
            return;
        }
        let mut state = self.lock();
        state.remove(&key);
        state.number += 1;
        let number = state.number;
        let entry = CacheEntry {
            output: output.clone(),
            expires_at: now.saturating_add(ttl),
            bytes,
            number,
        };
        state.results.insert(key.clone(), entry);
        state.order.push_back((key, number));
        state.bytes += bytes;
        while state.results.len() > CACHED_RESULTS_MAX || state.bytes > CACHED_BYTES_MAX {
            let Some((key, number)) = state.order.pop_front() else { break };
            if state.results.get(&key).is_some_and(|entry| entry.number == number) {
                state.remove(&key);
            }
        }
        // A key that was inserted several times occurs several times in the order.
        if state.order.len() > 2 * CACHED_RESULTS_MAX {
            let CacheState { results, order, .. } = &mut *state;
            order.retain(|(key, number)| {
                results.get(key).is_some_and(|entry| entry.number == *number)
            });
        }
    }

    /// Removes the results of a server.
    pub(crate) fn remove_server(&self, server: &str) {
        let mut state = self.lock();
        let server_keys = state.results.keys().filter(|key| *key.server == *server);
        let removed: Vec<CacheKey> = server_keys.cloned().collect();
        removed.iter().for_each(|key| state.remove(key));
    }

    fn lock(&self) -> MutexGuard<'_, CacheState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheState {
    fn remove(&mut self, key: &CacheKey) {
        if let Some(entry) = self.results.remove(key) {
            self.bytes -= entry.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn key(n: usize) -> CacheKey {
        CacheKey { server: format!("s{}", n % 2).into(), digest: n.to_string() }
    }

    fn output(text: &str) -> ToolOutput {
        ToolOutput { text: text.to_owned(), ..ToolOutput::default() }
    }

    #[test]
    fn t6_cached_result_is_reused_until_it_expires() {
        let cache = ResultCache::default();
        cache.insert(key(1), &output("a"), Timestamp(0), MINUTE);
        let cached = cache.get(&key(1), Timestamp(59_999)).unwrap();
        assert_eq!(cached, ToolOutput { cached: true, ..output("a") });
        assert_eq!(cache.get(&key(1), Timestamp(60_000)), None);
        assert_eq!(cache.get(&key(2), Timestamp(0)), None);
        cache.insert(key(1), &output("b"), Timestamp(60_000), MINUTE);
        assert_eq!(cache.get(&key(1), Timestamp(60_000)).unwrap().text, "b");
        cache.remove_server("s0");
        assert!(cache.get(&key(1), Timestamp(60_000)).is_some());
        cache.remove_server("s1");
        assert_eq!(cache.get(&key(1), Timestamp(60_000)), None);
    }

    #[test]
    fn t6_cache_is_bounded_in_number_and_bytes() {
        let cache = ResultCache::default();
        for n in 0..5_000 {
            cache.insert(key(n % 1_500), &output("x"), Timestamp(0), MINUTE);
        }
        assert_eq!(cache.lock().results.len(), CACHED_RESULTS_MAX);
        assert!(cache.lock().order.len() <= 2 * CACHED_RESULTS_MAX);
        assert!(cache.get(&key(4_999 % 1_500), Timestamp(0)).is_some(), "the newest stays");
        let large = "x".repeat(CACHED_RESULT_BYTES_MAX);
        for n in 0..100 {
            cache.insert(key(n), &output(&large), Timestamp(0), MINUTE);
        }
        assert!(cache.lock().bytes <= CACHED_BYTES_MAX);
        let sum: usize = cache.lock().results.values().map(|entry| entry.bytes).sum();
        assert_eq!(cache.lock().bytes, sum);
        cache.insert(key(7_777), &output(&format!("{large}x")), Timestamp(0), MINUTE);
        assert_eq!(cache.get(&key(7_777), Timestamp(0)), None, "too large");
    }
}
