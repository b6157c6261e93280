//! Results of read-only tools, used again for as long as the catalog says (T6).
//!
//! A result is kept under its tool's server and name and the digest of its arguments, whoever asked:
//! servers are not told who calls. Bounded; the oldest go first.

use crate::limits::{CACHED_BYTES_MAX, CACHED_RESULT_BYTES_MAX, CACHED_RESULTS_MAX};
use greenroom_core::{Timestamp, call::ToolOutput, json::Digest, policy::Tool};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Under what a result is kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CacheKey {
    server: Arc<str>,
    digest: String,
}

impl CacheKey {
    /// The key of a call of `tool` with these arguments.
    pub(crate) fn new(tool: &Tool, arguments: &Value) -> Self {
        let digest = Digest::hash_json(&json!([tool.remote_name, arguments])).to_string();
        Self { server: tool.server.clone(), digest }
    }
}

/// The results.
#[derive(Default)]
pub(crate) struct ResultCache(Mutex<CacheState>);

#[derive(Default)]
struct CacheState {
    results: BTreeMap<CacheKey, CacheEntry>,
    /// Keys by age, with the number of the entry that was put then.
    order: VecDeque<(CacheKey, u64)>,
    bytes: usize,
    number: u64,
}

struct CacheEntry {
    output: ToolOutput,
    until: Timestamp,
    bytes: usize,
    number: u64,
}

impl ResultCache {
    /// The result, marked as one that was kept.
    pub(crate) fn get(&self, key: &CacheKey, now: Timestamp) -> Option<ToolOutput> {
        let kept = self.lock();
        let entry = kept.results.get(key).filter(|entry| now < entry.until)?;
        Some(ToolOutput { cached: true, ..entry.output.clone() })
    }

    /// Keeps a result for so long, unless it is too large.
    pub(crate) fn insert(&self, key: CacheKey, output: &ToolOutput, now: Timestamp, ttl: Duration) {
        let structured = output.structured.as_ref().map_or(0, |value| value.to_string().len());
        let bytes = output.text.len() + structured;
        if bytes > CACHED_RESULT_BYTES_MAX {
            return;
        }
        let mut kept = self.lock();
        kept.remove(&key);
        kept.number += 1;
        let number = kept.number;
        let entry =
            CacheEntry { output: output.clone(), until: now.saturating_add(ttl), bytes, number };
        kept.results.insert(key.clone(), entry);
        kept.order.push_back((key, number));
        kept.bytes += bytes;
        while kept.results.len() > CACHED_RESULTS_MAX || kept.bytes > CACHED_BYTES_MAX {
            let Some((key, number)) = kept.order.pop_front() else { break };
            if kept.results.get(&key).is_some_and(|entry| entry.number == number) {
                kept.remove(&key);
            }
        }
        // Keys that were put again stand in the order more than once.
        if kept.order.len() > 2 * CACHED_RESULTS_MAX {
            let CacheState { results, order, .. } = &mut *kept;
            order.retain(|(key, number)| results.get(key).is_some_and(|it| it.number == *number));
        }
    }

    /// Forgets what came from that server.
    pub(crate) fn remove_server(&self, server: &str) {
        let mut kept = self.lock();
        let of_server = kept.results.keys().filter(|key| *key.server == *server);
        let gone: Vec<CacheKey> = of_server.cloned().collect();
        gone.iter().for_each(|key| kept.remove(key));
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
        let found = cache.get(&key(1), Timestamp(59_999)).unwrap();
        assert_eq!(found, ToolOutput { cached: true, ..output("a") });
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
    fn t6_it_is_bounded_in_number_and_bytes() {
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
