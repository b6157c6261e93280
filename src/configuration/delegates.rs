//! Whom agents may hand tasks to (S8): only agents there are, and never in a circle.

use super::ConfigurationError;
use greenroom_core::{agent::AgentProfile, ids::AgentName};
use serde::{Deserialize, de::IgnoredAny};
use std::collections::BTreeMap;
use toml::Spanned;

/// Agents that one may hand tasks to.
const DELEGATES_MAX: usize = 64;

type Agents = BTreeMap<AgentName, AgentProfile>;

/// Checks what all agents say of it; an error names the line that says it.
pub(super) fn validate_delegates(
    agents: &Agents,
    depth_max: usize,
    place: &str,
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
                format_args!("{place}{line}, agents.{name}"),
                problem,
            ));
        }
    }
    Ok(())
}

fn find_problem(agent: &AgentProfile, agents: &Agents) -> Option<String> {
    let delegates = &agent.delegates;
    if delegates.len() > DELEGATES_MAX {
        return Some(format!("delegates may have at most {DELEGATES_MAX} entries"));
    }
    delegates.iter().enumerate().find_map(|(index, to)| match agents.get(to) {
        None => Some(format!("delegates names `{to}`, and there is no such agent")),
        // Its inputs would be nobody's to give, and what it narrows would be left out.
        Some(other) if other.workflow.is_some() => Some(format!(
            "delegates names `{to}`, whose runs begin with a workflow; tasks are handed to agents \
             without one"
        )),
        Some(_) if delegates[..index].contains(to) => Some(format!("delegates names `{to}` twice")),
        Some(_) => None,
    })
}

/// The first chain of tasks from the end of `chain` on that goes on for too long, as a circle does.
fn find_too_deep_chain<'a>(
    chain: Vec<&'a AgentName>,
    agents: &'a Agents,
    depth_max: usize,
) -> Option<Vec<&'a AgentName>> {
    // The first is no child.
    if chain.len() > depth_max + 1 {
        return Some(chain);
    }
    let delegates = chain.last().and_then(|last| agents.get(*last)).map(|last| &last.delegates);
    delegates.into_iter().flatten().find_map(|to| {
        if chain.contains(&to) {
            let circle = chain.iter().copied().chain([to]);
            return Some(circle.collect());
        }
        let longer = chain.iter().copied().chain([to]);
        find_too_deep_chain(longer.collect(), agents, depth_max)
    })
}

fn describe_chain(chain: &[&AgentName], depth_max: usize) -> String {
    let words: Vec<_> = chain.iter().map(|name| name.as_str()).collect();
    let chain = words.join(" → ");
    match words.split_last() {
        Some((last, before)) if before.contains(last) => {
            format!("delegates leads in a circle: {chain}")
        }
        Some(_) | None => format!(
            "delegates leads deeper than limits.delegation_depth, which is {depth_max}: {chain}"
        ),
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

/// The line on which the agent says it; `None` where the environment does.
fn find_line(agent: &AgentName, text: &str) -> Option<usize> {
    let lines: FileSpans = toml::from_str(text).ok()?;
    let said = lines.agents.get(agent.as_str())?.delegates.as_ref()?;
    Some(text.get(..said.span().start)?.matches('\n').count() + 1)
}
