//! The keys that came by lately, so that a request does not cost a look-up in the database; and
//! those that were revoked, so that what a key has opened does not outlive it.

use super::api_key::{ApiKey, KeyId, KeyStore};
use greenroom_actors::ports::JournalError;
use greenroom_core::json::Digest;
use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Keys that are remembered; beyond it all are forgotten and looked up again.
const CACHED_KEYS_MAX: usize = 10_000;

/// The way to the keys.
pub(super) struct KeyCache {
    store: Arc<dyn KeyStore>,
    cached: Mutex<CachedKeys>,
}

#[derive(Default)]
struct CachedKeys {
    /// By hash: looking one up tells nothing of the key by its timing.
    valid: HashMap<Digest, Arc<ApiKey>>,
    /// Revoked since the start; no more than there are keys.
    revoked: HashSet<KeyId>,
}

impl KeyCache {
    pub(super) fn new(store: Arc<dyn KeyStore>) -> Self {
        Self { store, cached: Mutex::default() }
    }

    pub(super) fn store(&self) -> &dyn KeyStore {
        &*self.store
    }

    /// The key with that hash, if there is one and it works.
    pub(super) async fn find(&self, hash: Digest) -> Result<Option<Arc<ApiKey>>, JournalError> {
        if let Some(key) = self.lock().valid.get(&hash) {
            return Ok(Some(key.clone()));
        }
        let found = self.store.find_key_by_hash(hash).await?.filter(|key| key.revoked_at.is_none());
        let Some(key) = found.map(Arc::new) else { return Ok(None) };
        let mut memory = self.lock();
        // It may have been revoked since it was read.
        if memory.revoked.contains(&key.key_id) {
            return Ok(None);
        }
        if memory.valid.len() >= CACHED_KEYS_MAX {
            memory.valid.clear();
        }
        memory.valid.insert(hash, key.clone());
        Ok(Some(key))
    }

    /// From here on the key opens nothing.
    pub(super) fn mark_revoked(&self, key_id: KeyId) {
        let mut memory = self.lock();
        memory.revoked.insert(key_id);
        memory.valid.retain(|_, key| key.key_id != key_id);
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
        f.write_str("KeyRing(…)")
    }
}
