//! Context assembly (C1): builds the model request of a step from named sections, and holds the
//! skills (C2), workflows (C3) and compaction (C4) that contribute to it.
//!
//! Pure: configuration and files are read elsewhere and arrive as [`ContextConfig`].

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

/// The configured inputs of context assembly. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ContextConfig {
    /// System prompt that precedes the prompt of every agent.
    pub system: Arc<str>,
    /// Context window of each model in tokens, by the model's name in configuration.
    pub context_windows: Arc<BTreeMap<String, u64>>,
    /// The loaded skills.
    pub skills: Arc<SkillRegistry>,
    /// Percentage of the conversation's token budget above which older messages are summarised;
    /// `None` disables compaction (C4).
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
    /// Returns the context window of `model` in tokens, or the default if none is configured.
    pub fn context_window(&self, model: &str) -> u64 {
        self.context_windows.get(model).copied().unwrap_or(CONTEXT_TOKENS_DEFAULT)
    }
}
