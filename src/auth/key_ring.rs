//! The keys that came by lately, so that a request does not cost a look-up in the database; and
//! those that were revoked, so that what a key has opened does not outlive it.

use super::key::{ApiKey, KeyId, KeyStore};
use greenroom_actors::ports::JournalError;
use greenroom_core::json::Digest;
use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Keys that are remembered; beyond it all are forgotten and looked up again.
const REMEMBERED_MAX: usize = 10_000;

/// The way to the keys.
pub(super) struct KeyRing {
    store: Arc<dyn KeyStore>,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    /// By hash: looking one up tells nothing of the key by its timing.
    valid: HashMap<Digest, Arc<ApiKey>>,
    /// Revoked since the start; no more than there are keys.
    revoked: HashSet<KeyId>,
}

impl KeyRing {
    pub(super) fn new(store: Arc<dyn KeyStore>) -> Self {
        Self { store, memory: Mutex::default() }
    }

    pub(super) fn store(&self) -> &dyn KeyStore {
        &*self.store
    }

    /// The key with that hash, if there is one and it works.
    pub(super) async fn find(&self, hash: Digest) -> Result<Option<Arc<ApiKey>>, JournalError> {
        if let Some(key) = self.memory().valid.get(&hash) {
            return Ok(Some(key.clone()));
        }
        let found = self.store.key_of(hash).await?.filter(|key| key.revoked_at.is_none());
        let Some(key) = found.map(Arc::new) else { return Ok(None) };
        let mut memory = self.memory();
        // It may have been revoked since it was read.
        if memory.revoked.contains(&key.key_id) {
            return Ok(None);
        }
        if memory.valid.len() >= REMEMBERED_MAX {
            memory.valid.clear();
        }
        memory.valid.insert(hash, key.clone());
        Ok(Some(key))
    }

    /// From here on the key opens nothing.
    pub(super) fn forget(&self, key_id: KeyId) {
        let mut memory = self.memory();
        memory.revoked.insert(key_id);
        memory.valid.retain(|_, key| key.key_id != key_id);
    }

    pub(super) fn is_revoked(&self, key_id: KeyId) -> bool {
        self.memory().revoked.contains(&key_id)
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyRing(…)")
    }
}
