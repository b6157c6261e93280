//! What the model is told (C1): the request of a step, assembled from its parts; the skills that are
//! read on demand (C2).

mod assembler;
mod compaction;
mod front_matter;
pub mod skill;
pub mod tokens;
mod window;
pub mod workflow;

pub use assembler::{Manifest, Section, SectionName, assemble, inspect};
pub(crate) use compaction::{Compact, summary_of};
pub use skill::{READ_SKILL, Skill, SkillBook, SkillFile};
pub use workflow::{InputKind, StartedWorkflow, Workflow};

use crate::limits::{COMPACT_AT_DEFAULT, CONTEXT_TOKENS_DEFAULT};
use std::{collections::BTreeMap, sync::Arc};

/// What configuration and files say of what models are told. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ContextRules {
    /// What every agent is told, before its own prompt.
    pub system: Arc<str>,
    /// The tokens that models' contexts hold, by their names in configuration.
    pub windows: Arc<BTreeMap<String, u64>>,
    /// The skills there are now.
    pub skills: Arc<SkillBook>,
    /// Percent of a conversation's room at which its older part is summarised; `None` is never (C4).
    pub compact_at: Option<u8>,
}

impl Default for ContextRules {
    fn default() -> Self {
        let compact_at = Some(COMPACT_AT_DEFAULT);
        Self { system: Arc::from(""), windows: Arc::default(), skills: Arc::default(), compact_at }
    }
}

impl ContextRules {
    /// The tokens that the context of that model is taken to hold.
    pub fn window_of(&self, model: &str) -> u64 {
        self.windows.get(model).copied().unwrap_or(CONTEXT_TOKENS_DEFAULT)
    }
}
