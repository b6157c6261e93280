//! Agents are profiles in configuration (S7).

use crate::{
    approval::ApprovalDeadlines,
    budget::{Budget, BudgetMeasure, BudgetScope},
    context::READ_SKILL_TOOL,
    delegation::DELEGATE_TOOL,
    ids::AgentName,
    limits,
    uri::has_dot_segment,
};
use std::sync::Arc;

/// The built-in tool that reads resources of tool servers.
pub const READ_RESOURCE_TOOL: &str = "read_resource";

/// What a session's agent is.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentProfile {
    /// Its name.
    pub name: AgentName,
    /// For people.
    pub description: String,
    /// The models to use, by their names in configuration; the first that works.
    pub models: Vec<String>,
    /// The system prompt.
    pub system: String,
    /// Globs over tool names (`*` matches any text); a tool must match one. `["*"]` is all.
    pub tools: Vec<String>,
    /// Globs of which a tool must match one, too: of a child, those of a workflow above it (S8).
    pub inherited_tools: Option<Arc<[String]>>,
    /// Globs over the names of skills that it may read (C2). `["*"]` is all.
    pub skills: Vec<String>,
    /// Globs over `server:uri` of the resources of tool servers that it may read (T1); none by default.
    pub resources: Vec<String>,
    /// The workflow of its runs that are started with none (S7).
    pub workflow: Option<String>,
    /// The agents that it may hand tasks to (S8).
    pub delegates: Vec<AgentName>,
    /// Steps of a run (S2).
    pub max_steps: u32,
    /// Output tokens of a step (S2).
    pub max_tokens: u32,
    /// Nobody is there to ask: what would ask is denied (G13).
    pub headless: bool,
    /// How long people have to answer, and what then (G10).
    pub approval_deadlines: ApprovalDeadlines,
    /// What its runs, sessions and users may spend (G6).
    pub budgets: Vec<Budget>,
}

impl AgentProfile {
    /// The profile with every default.
    pub fn new(name: AgentName) -> Self {
        Self {
            name,
            description: String::new(),
            models: Vec::new(),
            system: String::new(),
            tools: vec!["*".to_owned()],
            inherited_tools: None,
            skills: vec!["*".to_owned()],
            resources: Vec::new(),
            workflow: None,
            delegates: Vec::new(),
            max_steps: limits::STEPS_PER_RUN_DEFAULT,
            max_tokens: limits::OUTPUT_TOKENS_DEFAULT,
            headless: false,
            approval_deadlines: ApprovalDeadlines::default(),
            budgets: Vec::new(),
        }
    }

    /// Whether a budget limits what models may cost its user.
    pub fn has_user_model_budget(&self) -> bool {
        let limits_models = |budget: &Budget| match budget.measure {
            BudgetMeasure::Tokens | BudgetMeasure::Usd => budget.scope == BudgetScope::User,
            BudgetMeasure::Unit(_) => false,
        };
        self.budgets.iter().any(limits_models)
    }

    /// Whether the agent may read that resource of a tool server, or fill in that template of some.
    /// One with a dot segment nobody may: it would mean another than the globs see (X5).
    pub fn can_read_resource(&self, server: &str, uri: &str) -> bool {
        if has_dot_segment(uri) {
            return false;
        }
        let name = format!("{server}:{uri}");
        self.resources.iter().any(|glob| crate::text::glob_matches(glob, &name))
    }

    /// Whether the agent may see the tool of that name. Whether it reads skills is said by `skills`,
    /// whether it reads resources by `resources`, whether it hands on tasks by `delegates`.
    pub fn can_use_tool(&self, tool: &str) -> bool {
        let matches_one =
            |globs: &[String]| globs.iter().any(|glob| crate::text::glob_matches(glob, tool));
        let is_within = self.inherited_tools.as_deref().is_none_or(matches_one);
        match tool {
            READ_SKILL_TOOL => !self.skills.is_empty(),
            READ_RESOURCE_TOOL => !self.resources.is_empty() && is_within,
            DELEGATE_TOOL => !self.delegates.is_empty() && is_within,
            _ => matches_one(&self.tools) && is_within,
        }
    }
}
