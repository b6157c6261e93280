//! What the model is told (C1): the request of a step, assembled from its parts; the skills that are
//! read on demand (C2).

mod assembler;
mod compaction;
mod conversation_window;
mod front_matter;
pub mod skill;
pub mod token_estimate;
pub mod workflow;

pub use assembler::{
    ContextManifest, ContextSection, SectionName, assemble_request, describe_request,
};
pub(crate) use compaction::{CompactionPlanner, extract_summary};
pub use skill::{READ_SKILL_TOOL, Skill, SkillFile, SkillRegistry};
pub use workflow::{StartedWorkflow, Workflow, WorkflowInputType};

use crate::limits::{COMPACT_AT_DEFAULT, CONTEXT_TOKENS_DEFAULT};
use std::{collections::BTreeMap, sync::Arc};

/// What configuration and files say of what models are told. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ContextConfig {
    /// What every agent is told, before its own prompt.
    pub system: Arc<str>,
    /// The tokens that models' contexts hold, by their names in configuration.
    pub context_windows: Arc<BTreeMap<String, u64>>,
    /// The skills there are now.
    pub skills: Arc<SkillRegistry>,
    /// Percent of a conversation's room at which its older part is summarised; `None` is never (C4).
    pub compact_at: Option<u8>,
}

impl Default for ContextConfig {
    fn default() -> Self {
        let compact_at = Some(COMPACT_AT_DEFAULT);
        Self {
            system: Arc::from(""),
            context_windows: Arc::default(),
            skills: Arc::default(),
            compact_at,
        }
    }
}

impl ContextConfig {
    /// The tokens that the context of that model is taken to hold.
    pub fn context_window(&self, model: &str) -> u64 {
        self.context_windows.get(model).copied().unwrap_or(CONTEXT_TOKENS_DEFAULT)
    }
}
