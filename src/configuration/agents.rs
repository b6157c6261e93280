//! Agents: profiles from what is written of them (S7).

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

/// Steps of a run that configuration may allow.
const STEPS_MAX: u32 = 1_000;
/// Globs over tool names in one profile.
const TOOL_GLOBS_MAX: usize = 1_000;
/// Globs over resources of tool servers in one profile.
const RESOURCE_GLOBS_MAX: usize = 100;
/// Globs over names of skills in one profile.
const SKILL_GLOBS_MAX: usize = 1_000;
/// Models in one profile.
const MODELS_MAX: usize = 16;

/// What the default agent is told where nothing is configured.
const SYSTEM_DEFAULT: &str = "You are a helpful assistant. Use the tools you are given when they \
    help, and say plainly what you did, what you could not do, and why.";

/// What is written for all agents.
pub(super) struct AgentDefaults<'a> {
    pub(super) approvals: &'a RawApprovalRules,
    pub(super) budgets: &'a RawBudgets,
}

/// Every agent, the default one included.
pub(super) fn profiles(
    mut written: BTreeMap<AgentName, RawAgent>,
    choice: &ModelSelector<'_>,
    for_all: &AgentDefaults<'_>,
    surroundings: &LoadContext<'_>,
) -> Result<BTreeMap<AgentName, AgentProfile>, ConfigurationError> {
    let default = AgentName::parse(AGENT_DEFAULT).expect("it is a short word");
    let of_default = written.entry(default).or_default();
    if of_default.system.is_none() && of_default.system_file.is_none() {
        of_default.system = Some(SYSTEM_DEFAULT.to_owned());
    }
    let mut profiles = BTreeMap::new();
    for (name, agent) in written {
        let place = format!("{}, agents.{name}", surroundings.location);
        let profile = profile(name.clone(), agent, choice, for_all, &place, surroundings)?;
        profiles.insert(name, profile);
    }
    Ok(profiles)
}

fn profile(
    name: AgentName,
    written: RawAgent,
    choice: &ModelSelector<'_>,
    for_all: &AgentDefaults<'_>,
    place: &str,
    surroundings: &LoadContext<'_>,
) -> Result<AgentProfile, ConfigurationError> {
    let invalid = |problem: String| ConfigurationError::invalid(place, problem);
    validate_agent(&written).map_err(invalid)?;
    let system = match (written.system, written.system_file) {
        (Some(system), _) => system,
        (None, Some(file)) => source::read_text(&surroundings.base_folder.join(file), place)?,
        (None, None) => String::new(),
    };
    let wanted = written.model.map(|model| vec![model]).or(written.models);
    let models = choice.select(wanted).map_err(invalid)?;
    let approvals =
        approvals::merge_rules(&[for_all.approvals, &written.approvals]).map_err(invalid)?;
    let budgets = budgets::merge_budgets(for_all.budgets, &written.budgets).map_err(invalid)?;
    let usual = AgentProfile::new(name);
    Ok(AgentProfile {
        description: written.description.unwrap_or_default(),
        models,
        system,
        tools: written.tools.unwrap_or(usual.tools),
        inherited_tools: usual.inherited_tools,
        skills: written.skills.unwrap_or(usual.skills),
        resources: written.resources.unwrap_or(usual.resources),
        workflow: written.workflow,
        delegates: written.delegates,
        max_steps: written.max_steps.unwrap_or(usual.max_steps),
        max_tokens: written.max_tokens.unwrap_or(usual.max_tokens),
        headless: written.headless,
        approval_deadlines: approvals,
        budgets,
        name: usual.name,
    })
}

fn validate_agent(written: &RawAgent) -> Result<(), String> {
    if written.model.is_some() && written.models.is_some() {
        return Err("give either `model` or `models`".to_owned());
    }
    if written.system.is_some() && written.system_file.is_some() {
        return Err("give either `system` or `system_file`".to_owned());
    }
    if written.max_steps.is_some_and(|steps| !(1..=STEPS_MAX).contains(&steps)) {
        return Err(format!("max_steps must be 1 to {STEPS_MAX}"));
    }
    if written.max_tokens == Some(0) {
        return Err("max_tokens must be at least 1".to_owned());
    }
    if written.tools.as_ref().is_some_and(|tools| tools.len() > TOOL_GLOBS_MAX) {
        return Err(format!("tools may have at most {TOOL_GLOBS_MAX} entries"));
    }
    if written.skills.as_ref().is_some_and(|skills| skills.len() > SKILL_GLOBS_MAX) {
        return Err(format!("skills may have at most {SKILL_GLOBS_MAX} entries"));
    }
    if written.resources.as_ref().is_some_and(|globs| globs.len() > RESOURCE_GLOBS_MAX) {
        return Err(format!("resources may have at most {RESOURCE_GLOBS_MAX} entries"));
    }
    if written.models.as_ref().is_some_and(|models| models.len() > MODELS_MAX) {
        return Err(format!("models may have at most {MODELS_MAX} entries"));
    }
    Ok(())
}
