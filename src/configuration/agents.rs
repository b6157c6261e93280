//! Agents: converts `[agents.NAME]` tables to profiles (S7).

use super::{
    AGENT_DEFAULT, ConfigurationError, LoadContext,
    approvals::{self, RawApprovalRules},
    budgets::{self, RawBudgets},
    config_file::RawAgent,
    models::ModelSelector,
    source,
};
use greenroom_core::{agent::AgentProfile, ids::AgentName};
use std::collections::BTreeMap;

/// Maximum of `max_steps`.
const STEPS_MAX: u32 = 1_000;
/// Maximum number of tool globs of a profile.
const TOOL_GLOBS_MAX: usize = 1_000;
/// Maximum number of resource globs of a profile.
const RESOURCE_GLOBS_MAX: usize = 100;
/// Maximum number of skill globs of a profile.
const SKILL_GLOBS_MAX: usize = 1_000;
/// Maximum number of models of a profile.
const MODELS_MAX: usize = 16;

/// The system prompt of the default agent if none is configured.
const SYSTEM_DEFAULT: &str = "You are a helpful assistant. Use the tools you are given when they \
    help, and say plainly what you did, what you could not do, and why.";

/// The rules that apply to all agents.
pub(super) struct AgentDefaults<'a> {
    pub(super) approvals: &'a RawApprovalRules,
    pub(super) budgets: &'a RawBudgets,
}

/// Returns the profiles of all agents, including the default agent.
pub(super) fn profiles(
    mut raw: BTreeMap<AgentName, RawAgent>,
    selector: &ModelSelector<'_>,
    defaults: &AgentDefaults<'_>,
    context: &LoadContext<'_>,
) -> Result<BTreeMap<AgentName, AgentProfile>, ConfigurationError> {
    let default_name = AgentName::parse(AGENT_DEFAULT).expect("`default` is a valid agent name");
    let default_agent = raw.entry(default_name).or_default();
    if default_agent.system.is_none() && default_agent.system_file.is_none() {
        default_agent.system = Some(SYSTEM_DEFAULT.to_owned());
    }
    let mut profiles = BTreeMap::new();
    for (name, agent) in raw {
        let location = format!("{}, agents.{name}", context.location);
        let profile = profile(name.clone(), agent, selector, defaults, &location, context)?;
        profiles.insert(name, profile);
    }
    Ok(profiles)
}

fn profile(
    name: AgentName,
    raw: RawAgent,
    selector: &ModelSelector<'_>,
    defaults: &AgentDefaults<'_>,
    location: &str,
    context: &LoadContext<'_>,
) -> Result<AgentProfile, ConfigurationError> {
    let invalid = |problem: String| ConfigurationError::invalid(location, problem);
    validate_agent(&raw).map_err(invalid)?;
    let system = match (raw.system, raw.system_file) {
        (Some(system), _) => system,
        (None, Some(file)) => source::read_text(&context.base_folder.join(file), location)?,
        (None, None) => String::new(),
    };
    let names = raw.model.map(|model| vec![model]).or(raw.models);
    let models = selector.select(names).map_err(invalid)?;
    let approvals =
        approvals::merge_rules(&[defaults.approvals, &raw.approvals]).map_err(invalid)?;
    let budgets = budgets::merge_budgets(defaults.budgets, &raw.budgets).map_err(invalid)?;
    let builtin = AgentProfile::new(name);
    Ok(AgentProfile {
        description: raw.description.unwrap_or_default(),
        models,
        system,
        tools: raw.tools.unwrap_or(builtin.tools),
        inherited_tools: builtin.inherited_tools,
        skills: raw.skills.unwrap_or(builtin.skills),
        resources: raw.resources.unwrap_or(builtin.resources),
        workflow: raw.workflow,
        delegates: raw.delegates,
        max_steps: raw.max_steps.unwrap_or(builtin.max_steps),
        max_tokens: raw.max_tokens.unwrap_or(builtin.max_tokens),
        headless: raw.headless,
        approval_deadlines: approvals,
        budgets,
        name: builtin.name,
    })
}

fn validate_agent(raw: &RawAgent) -> Result<(), String> {
    if raw.model.is_some() && raw.models.is_some() {
        return Err("set either `model` or `models`, not both".to_owned());
    }
    if raw.system.is_some() && raw.system_file.is_some() {
        return Err("set either `system` or `system_file`, not both".to_owned());
    }
    if let Some(steps) = raw.max_steps.filter(|steps| !(1..=STEPS_MAX).contains(steps)) {
        return Err(format!("max_steps must be 1 to {STEPS_MAX}, not {steps}"));
    }
    if raw.max_tokens == Some(0) {
        return Err("max_tokens must be at least 1, not 0".to_owned());
    }
    let lists = [
        ("tools", &raw.tools, TOOL_GLOBS_MAX),
        ("skills", &raw.skills, SKILL_GLOBS_MAX),
        ("resources", &raw.resources, RESOURCE_GLOBS_MAX),
        ("models", &raw.models, MODELS_MAX),
    ];
    for (key, entries, max) in lists {
        if let Some(entries) = entries.as_ref().filter(|entries| entries.len() > max) {
            return Err(format!("{key} has {} entries; the limit is {max}", entries.len()));
        }
    }
    Ok(())
}
