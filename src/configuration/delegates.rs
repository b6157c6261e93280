//! Validates the delegates of agents (S8): they must exist and must not form a cycle.

use super::ConfigurationError;
use greenroom_core::{agent::AgentProfile, ids::AgentName};
use serde::{Deserialize, de::IgnoredAny};
use std::collections::BTreeMap;
use toml::Spanned;

/// Maximum number of delegates of one agent.
const DELEGATES_MAX: usize = 64;

type Agents = BTreeMap<AgentName, AgentProfile>;

/// Validates the delegates of all agents. An error names the line of the invalid list.
pub(super) fn validate_delegates(
    agents: &Agents,
    depth_max: usize,
    location: &str,
    text: &str,
) -> Result<(), ConfigurationError> {
    for (name, agent) in agents {
        let problem = find_problem(agent, agents).or_else(|| {
            find_too_deep_chain(vec![name], agents, depth_max)
                .map(|chain| describe_chain(&chain, depth_max))
        });
        if let Some(problem) = problem {
            let line = find_line(name, text).map(|line| format!(":{line}")).unwrap_or_default();
            return Err(ConfigurationError::invalid(
                format_args!("{location}{line}, agents.{name}"),
                problem,
            ));
        }
    }
    Ok(())
}

fn find_problem(agent: &AgentProfile, agents: &Agents) -> Option<String> {
    let delegates = &agent.delegates;
    if delegates.len() > DELEGATES_MAX {
        return Some(format!(
            "delegates has {} entries; the limit is {DELEGATES_MAX}",
            delegates.len()
        ));
    }
    delegates.iter().enumerate().find_map(|(index, name)| match agents.get(name) {
        None => Some(format!("delegates contains the unknown agent `{name}`")),
        // Nothing would provide the inputs of its workflow, and its restrictions would not apply.
        Some(delegate) if delegate.workflow.is_some() => Some(format!(
            "delegates contains `{name}`, whose runs start with a workflow; a delegate must not \
             have one"
        )),
        Some(_) if delegates[..index].contains(name) => {
            Some(format!("delegates contains `{name}` twice"))
        }
        Some(_) => None,
    })
}

/// Returns the first chain of delegates starting with `chain` that exceeds `depth_max` or is a cycle.
fn find_too_deep_chain<'a>(
    chain: Vec<&'a AgentName>,
    agents: &'a Agents,
    depth_max: usize,
) -> Option<Vec<&'a AgentName>> {
    // The first agent of the chain is not a child session.
    if chain.len() > depth_max + 1 {
        return Some(chain);
    }
    let delegates = chain.last().and_then(|last| agents.get(*last)).map(|last| &last.delegates);
    delegates.into_iter().flatten().find_map(|delegate| {
        if chain.contains(&delegate) {
            let cycle = chain.iter().copied().chain([delegate]);
            return Some(cycle.collect());
        }
        let longer = chain.iter().copied().chain([delegate]);
        find_too_deep_chain(longer.collect(), agents, depth_max)
    })
}

fn describe_chain(chain: &[&AgentName], depth_max: usize) -> String {
    let names: Vec<_> = chain.iter().map(|name| name.as_str()).collect();
    let chain = names.join(" → ");
    match names.split_last() {
        Some((last, before)) if before.contains(last) => {
            format!("delegates form a cycle: {chain}")
        }
        Some(_) | None => {
            format!("delegates exceed limits.delegation_depth, which is {depth_max}: {chain}")
        }
    }
}

#[derive(Deserialize)]
struct FileSpans {
    #[serde(default)]
    agents: BTreeMap<String, AgentSpans>,
}

#[derive(Deserialize)]
struct AgentSpans {
    delegates: Option<Spanned<IgnoredAny>>,
}

/// Returns the line of the agent's delegates in the file; `None` if the environment sets them.
fn find_line(agent: &AgentName, text: &str) -> Option<usize> {
    let spans: FileSpans = toml::from_str(text).ok()?;
    let delegates = spans.agents.get(agent.as_str())?.delegates.as_ref()?;
    Some(text.get(..delegates.span().start)?.matches('\n').count() + 1)
}
