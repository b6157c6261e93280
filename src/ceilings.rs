//! The ceilings that administrators set at run time, within those of the configuration (G17).
//!
//! Owns the port [`CeilingStore`] and the [`CeilingRegistry`], which combines the configured
//! ceilings with the stored ones and publishes the result to all sessions. Does not know HTTP or
//! SQL. The core decides what a ceiling means.

use crate::audit::AuditEntry;
use async_trait::async_trait;
use greenroom_actors::{governance::ArcCell, ports::JournalError};
use greenroom_core::{
    ids::AgentName,
    policy::{CeilingExceeded, Ceilings, InvalidCeilings},
};
use std::{collections::BTreeSet, sync::Arc};
use tokio::sync::Mutex;

/// Maximum bytes of the stored ceilings, as JSON.
pub const CEILINGS_BYTES_MAX: usize = 256 * 1024;

/// The ceilings in the database. Version 0 is the empty value that no administrator has set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredCeilings {
    /// The number of changes so far.
    pub version: u64,
    /// The ceilings.
    pub ceilings: Ceilings,
}

/// The store of the ceilings that administrators set.
#[async_trait]
pub trait CeilingStore: Send + Sync + 'static {
    /// Returns the stored ceilings.
    async fn load_ceilings(&self) -> Result<StoredCeilings, JournalError>;

    /// Replaces the stored ceilings, which must have the version before that of `ceilings`, and
    /// appends the audit entry, atomically. Otherwise fails with [`JournalError::Conflict`].
    async fn store_ceilings(
        &self,
        ceilings: &StoredCeilings,
        entry: AuditEntry,
    ) -> Result<(), JournalError>;
}

/// The reason why ceilings are not replaced.
#[derive(Debug, thiserror::Error)]
pub enum CeilingChangeError {
    /// The ceilings were changed since the caller read them.
    #[error("the ceilings have version {current}; read them again")]
    VersionConflict {
        /// The version of the stored ceilings.
        current: u64,
    },
    /// The ceilings are not valid.
    #[error(transparent)]
    Invalid(#[from] InvalidCeilings),
    /// A ceiling names an agent that is not configured.
    #[error("agents.{0}: there is no agent `{0}`")]
    UnknownAgent(AgentName),
    /// The ceilings are too large.
    #[error("{bytes} bytes; the limit is {CEILINGS_BYTES_MAX}")]
    TooLarge {
        /// The size as JSON.
        bytes: usize,
    },
    /// A value is wider than the configuration file permits.
    #[error("{0} in the configuration file")]
    Exceeded(CeilingExceeded),
    /// The server has no store for ceilings.
    #[error("this server stores no ceilings")]
    NoStore,
    /// Storing failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// The configured and the stored ceilings. Sessions read their intersection at each evaluation.
pub struct CeilingRegistry {
    configured: Ceilings,
    agents: BTreeSet<AgentName>,
    store: Option<Arc<dyn CeilingStore>>,
    /// The stored ceilings. Locked during a change, so that changes take effect in their order.
    stored: Mutex<StoredCeilings>,
    in_force: ArcCell<Ceilings>,
}

impl CeilingRegistry {
    /// Creates a registry whose ceilings can't be changed.
    pub fn fixed(in_force: ArcCell<Ceilings>) -> Self {
        let configured = (*in_force.get()).clone();
        let (agents, stored) = (BTreeSet::new(), Mutex::default());
        Self { configured, agents, store: None, stored, in_force }
    }

    /// Loads the stored ceilings and combines them with the configured ones. Changes may only name
    /// these agents.
    pub async fn open(
        configured: Ceilings,
        agents: impl IntoIterator<Item = AgentName>,
        store: Arc<dyn CeilingStore>,
    ) -> Result<Self, JournalError> {
        let stored = store.load_ceilings().await?;
        let in_force = ArcCell::new(configured.narrowed_to(&stored.ceilings));
        let (agents, stored) = (agents.into_iter().collect(), Mutex::new(stored));
        Ok(Self { configured, agents, store: Some(store), stored, in_force })
    }

    /// Returns the cell from which sessions read the ceilings in force.
    pub fn in_force(&self) -> &ArcCell<Ceilings> {
        &self.in_force
    }

    /// Returns the ceilings of the configuration.
    pub fn configured(&self) -> &Ceilings {
        &self.configured
    }

    /// Returns the stored ceilings.
    pub async fn stored(&self) -> StoredCeilings {
        self.stored.lock().await.clone()
    }

    /// Replaces the stored ceilings, if they still have the version `expected`. `entry` creates the
    /// audit entry from the ceilings before the change. Every evaluation that begins after this
    /// returns reads the new ceilings.
    pub async fn replace(
        &self,
        expected: u64,
        ceilings: Ceilings,
        entry: impl FnOnce(&Ceilings, &Ceilings) -> AuditEntry + Send,
    ) -> Result<StoredCeilings, CeilingChangeError> {
        let store = self.store.as_ref().ok_or(CeilingChangeError::NoStore)?;
        self.validate(&ceilings)?;
        let mut stored = self.stored.lock().await;
        let current = stored.version;
        if current != expected {
            return Err(CeilingChangeError::VersionConflict { current });
        }
        let entry = entry(&stored.ceilings, &ceilings);
        let changed = StoredCeilings { version: current + 1, ceilings };
        store.store_ceilings(&changed, entry).await.map_err(|error| match error {
            JournalError::Conflict => CeilingChangeError::VersionConflict { current },
            error @ (JournalError::BudgetExceeded
            | JournalError::Unavailable(_)
            | JournalError::Corrupt(_)) => error.into(),
        })?;
        self.in_force.set(self.configured.narrowed_to(&changed.ceilings));
        stored.clone_from(&changed);
        Ok(changed)
    }

    fn validate(&self, ceilings: &Ceilings) -> Result<(), CeilingChangeError> {
        ceilings.validate()?;
        let is_unknown = |name: &&AgentName| !self.agents.contains(*name);
        if let Some(name) = ceilings.agents.keys().find(is_unknown) {
            return Err(CeilingChangeError::UnknownAgent(name.clone()));
        }
        let json = serde_json::to_vec(ceilings);
        let bytes = json.map_or(usize::MAX, |json| json.len());
        if bytes > CEILINGS_BYTES_MAX {
            return Err(CeilingChangeError::TooLarge { bytes });
        }
        ceilings.validate_within(&self.configured).map_err(CeilingChangeError::Exceeded)
    }
}
