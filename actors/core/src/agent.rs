//! Agent profiles, which configuration defines (S7).

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

/// The profile of a session's agent.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentProfile {
    /// The name.
    pub name: AgentName,
    /// The description, for humans and for agents that delegate to this one.
    pub description: String,
    /// The models, by their names in configuration. The first one that works is used.
    pub models: Vec<String>,
    /// The system prompt.
    pub system: String,
    /// Globs over tool names (`*` matches any text). A tool must match at least one; `["*"]`
    /// matches all.
    pub tools: Vec<String>,
    /// Further globs, of which a tool must match at least one. Set for a child: the globs of an
    /// ancestor's workflow (S8).
    pub inherited_tools: Option<Arc<[String]>>,
    /// Globs over the names of the skills that the agent may read (C2). `["*"]` matches all.
    pub skills: Vec<String>,
    /// Globs over `server:uri` of the resources that the agent may read (T1). Empty by default.
    pub resources: Vec<String>,
    /// The workflow of runs that are started without one (S7).
    pub workflow: Option<String>,
    /// The agents to which the agent may delegate (S8).
    pub delegates: Vec<AgentName>,
    /// Maximum number of steps of a run (S2).
    pub max_steps: u32,
    /// Maximum number of output tokens of a step (S2).
    pub max_tokens: u32,
    /// True if no human is available to answer approvals. A verdict of ask then means deny (G13).
    pub headless: bool,
    /// The deadlines of approvals (G10).
    pub approval_deadlines: ApprovalDeadlines,
    /// The budgets of runs, sessions and users (G6).
    pub budgets: Vec<Budget>,
}

impl AgentProfile {
    /// Creates a profile with default values.
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

    /// Returns true if a budget limits the user's spending on models.
    pub fn has_user_model_budget(&self) -> bool {
        let limits_models = |budget: &Budget| match budget.measure {
            BudgetMeasure::Tokens | BudgetMeasure::Usd => budget.scope == BudgetScope::User,
            BudgetMeasure::Unit(_) => false,
        };
        self.budgets.iter().any(limits_models)
    }

    /// Returns true if the agent may read a resource of a server, or resources of a template. A URI
    /// with a dot segment is never allowed, because it could denote a resource other than the one
    /// that the globs match (X5).
    pub fn can_read_resource(&self, server: &str, uri: &str) -> bool {
        if has_dot_segment(uri) {
            return false;
        }
        let name = format!("{server}:{uri}");
        self.resources.iter().any(|glob| crate::text::glob_matches(glob, &name))
    }

    /// Returns true if the agent may use a tool. `skills`, `resources` and `delegates` control the
    /// built-in tools that read skills, read resources and delegate.
    pub fn can_use_tool(&self, tool: &str) -> bool {
        let matches_any =
            |globs: &[String]| globs.iter().any(|glob| crate::text::glob_matches(glob, tool));
        let is_within = self.inherited_tools.as_deref().is_none_or(matches_any);
        match tool {
            READ_SKILL_TOOL => !self.skills.is_empty(),
            READ_RESOURCE_TOOL => !self.resources.is_empty() && is_within,
            DELEGATE_TOOL => !self.delegates.is_empty() && is_within,
            _ => matches_any(&self.tools) && is_within,
        }
    }
}
