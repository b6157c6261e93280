//! A cache of recently used API keys, which saves a query per request, and the set of revoked keys,
//! by which open streams and sockets of a key end.

use super::api_key::{ApiKey, KeyId, KeyStore};
use greenroom_actors::ports::JournalError;
use greenroom_core::json::Digest;
use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Maximum cached keys; when it is reached, the cache is cleared.
const CACHED_KEYS_MAX: usize = 10_000;

/// The cache in front of the key store.
pub(super) struct KeyCache {
    store: Arc<dyn KeyStore>,
    cached: Mutex<CachedKeys>,
}

#[derive(Default)]
struct CachedKeys {
    /// By hash: the duration of a lookup reveals nothing about a key.
    valid: HashMap<Digest, Arc<ApiKey>>,
    /// Keys revoked since the start; bounded by the number of keys.
    revoked: HashSet<KeyId>,
}

impl KeyCache {
    pub(super) fn new(store: Arc<dyn KeyStore>) -> Self {
        Self { store, cached: Mutex::default() }
    }

    pub(super) fn store(&self) -> &dyn KeyStore {
        &*self.store
    }

    /// Returns the valid key with this hash, if there is one.
    pub(super) async fn find(&self, hash: Digest) -> Result<Option<Arc<ApiKey>>, JournalError> {
        if let Some(key) = self.lock().valid.get(&hash) {
            return Ok(Some(key.clone()));
        }
        let valid = self.store.find_key_by_hash(hash).await?.filter(|key| key.revoked_at.is_none());
        let Some(key) = valid.map(Arc::new) else { return Ok(None) };
        let mut cached = self.lock();
        // The key may have been revoked since it was loaded.
        if cached.revoked.contains(&key.key_id) {
            return Ok(None);
        }
        if cached.valid.len() >= CACHED_KEYS_MAX {
            cached.valid.clear();
        }
        cached.valid.insert(hash, key.clone());
        Ok(Some(key))
    }

    /// Marks the key as revoked; it is rejected from now on.
    pub(super) fn mark_revoked(&self, key_id: KeyId) {
        let mut cached = self.lock();
        cached.revoked.insert(key_id);
        cached.valid.retain(|_, key| key.key_id != key_id);
    }

    pub(super) fn is_revoked(&self, key_id: KeyId) -> bool {
        self.lock().revoked.contains(&key_id)
    }

    fn lock(&self) -> MutexGuard<'_, CachedKeys> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for KeyCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyCache(…)")
    }
}
