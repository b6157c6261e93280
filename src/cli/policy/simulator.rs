//! Evaluates recorded calls under another configuration.

use super::recorded_calls::{RecordedCall, SessionReplay};
use crate::{configuration::Configuration, startup::SystemClock, tool};
use greenroom_actors::{
    ports::{Clock, ToolHost as _},
    status_board::StatusBoard,
    tool_servers::ServerState,
};
use greenroom_core::{
    agent::AgentProfile,
    amount::Amount,
    approval::Role,
    ids::{AgentName, ToolName},
    message::Arguments,
    policy::{
        Catalog, Ceilings, CriticalRule, Denial, EffectiveCeiling, JudgeContext, Matrix,
        MatrixVerdict, RemoteTool, RiskSource, ServerProfile, Tool, ToolRegistry, Verdict,
        judge_call,
    },
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};

/// The verdict of another configuration on a recorded call.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SimulatedVerdict {
    /// The verdict and its reason.
    Known { verdict: MatrixVerdict, reason: String },
    /// Depends on information that is not available here.
    Unknown { reason: String },
}

/// The policy of another configuration.
pub(super) struct PolicySimulator {
    agents: BTreeMap<AgentName, AgentProfile>,
    matrix: Matrix,
    critical: CriticalRule,
    ceilings: Ceilings,
    tools: ToolSource,
}

/// The source of tool definitions.
enum ToolSource {
    /// The catalog alone; a recorded name may belong to a tool of any server.
    Catalog { catalog: Catalog, servers: Vec<ServerProfile> },
    /// The tool lists of the started servers.
    Servers {
        registry: Arc<ToolRegistry>,
        /// One message per server without tools.
        missing: Vec<String>,
    },
}

impl PolicySimulator {
    /// Creates a simulator. `with_servers` starts the MCP servers and stops them after listing.
    pub(super) async fn start(configuration: Configuration, with_servers: bool) -> Self {
        let Configuration { agents, matrix, critical, ceilings, catalog, mcp_servers, .. } =
            configuration;
        if !with_servers {
            let profile = |(name, server): (String, crate::configuration::McpServerConfig)| {
                ServerProfile { name, trusted: server.trusted, unavailable_reason: None }
            };
            let servers = mcp_servers.into_iter().map(profile).collect();
            let tools = ToolSource::Catalog { catalog, servers };
            return Self { agents, matrix, critical, ceilings, tools };
        }
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let board = StatusBoard::new(clock.clone());
        let tools = tool::start(mcp_servers.into_values().map(Into::into), catalog, &board, &clock);
        tools.wait_until_started().await;
        let statuses = tools.statuses().into_iter();
        let not_ready = statuses.filter(|server| server.state != ServerState::Ready);
        let missing = not_ready.map(|server| {
            let reason = server.reason.unwrap_or_else(|| "not ready".to_owned());
            format!("server {} is unavailable: {reason}", server.name)
        });
        let (missing, registry) = (missing.collect(), tools.tool_registry());
        tools.shut_down().await;
        Self {
            agents,
            matrix,
            critical,
            ceilings,
            tools: ToolSource::Servers { registry, missing },
        }
    }

    /// Returns the verdict on `call` with the session's settings at that time.
    pub(super) fn simulate(
        &self,
        call: &RecordedCall,
        session: &SessionReplay,
    ) -> SimulatedVerdict {
        let Arguments::Json(arguments) = &*call.arguments else {
            return SimulatedVerdict::Unknown { reason: "the arguments are not JSON".to_owned() };
        };
        let Some(agent) = self.agents.get(&session.agent) else {
            return denied(format!("agent `{}` is not configured", session.agent));
        };
        if !agent.can_use_tool(&call.tool) {
            return denied(format!("agent `{}` has no tool `{}`", agent.name, call.tool));
        }
        match &self.tools {
            ToolSource::Servers { registry, missing } => {
                match (registry.get(&call.tool), missing.first()) {
                    (Some(tool), _) => match tool.validate(arguments) {
                        Ok(()) => self.tool_verdict(tool, arguments, agent, session),
                        Err(error) => {
                            denied(format!("the arguments do not match the tool's schema: {error}"))
                        }
                    },
                    (None, Some(missing)) => SimulatedVerdict::Unknown { reason: missing.clone() },
                    (None, None) => denied(format!("no server has a tool `{}`", call.tool)),
                }
            }
            ToolSource::Catalog { catalog, servers } => {
                let named = NamedTool { catalog, servers, name: &call.tool };
                let verdicts = named.candidates().map(|candidate| match candidate {
                    Ok(tool) => self.tool_verdict(&tool, arguments, agent, session),
                    Err(reason) => SimulatedVerdict::Unknown { reason },
                });
                unanimous(verdicts)
            }
        }
    }

    fn tool_verdict(
        &self,
        tool: &Tool,
        arguments: &Value,
        agent: &AgentProfile,
        session: &SessionReplay,
    ) -> SimulatedVerdict {
        let session_id = session.session_id.to_string();
        // Recorded calls count as those of users, as calls without a recorded role do.
        let owner = Some(&session.owner);
        let ceiling = self.ceilings.combine([Role::User], [&agent.name], owner);
        let used_up = ceiling.clone().with_spending(|limit| limit.amount);
        let verdict_with = |remaining, ceiling: &EffectiveCeiling| {
            let context = JudgeContext {
                settings: &session.settings,
                ceiling,
                matrix: &self.matrix,
                critical: self.critical,
                headless: agent.headless,
                user: session.owner.as_str(),
                session: &session_id,
                agent: agent.name.as_str(),
                remaining_budget: remaining,
            };
            from_policy_verdict(judge_call(tool, arguments, &context))
        };
        let limit = session.settings.budget_limit.as_ref().map(|limit| limit.amount);
        let spent = verdict_with(limit.map(|_| Amount::ZERO), &used_up);
        let unspent = verdict_with(limit, &ceiling);
        if known_verdict(&spent) == known_verdict(&unspent) {
            return unspent;
        }
        SimulatedVerdict::Unknown {
            reason: "depends on the remaining budget at that time".to_owned(),
        }
    }
}

fn denied(reason: String) -> SimulatedVerdict {
    SimulatedVerdict::Known { verdict: MatrixVerdict::Deny, reason }
}

fn known_verdict(simulated: &SimulatedVerdict) -> Option<MatrixVerdict> {
    match simulated {
        SimulatedVerdict::Known { verdict, .. } => Some(*verdict),
        SimulatedVerdict::Unknown { .. } => None,
    }
}

fn from_policy_verdict(verdict: Verdict) -> SimulatedVerdict {
    match verdict {
        Verdict::Allow { reason, .. } => {
            SimulatedVerdict::Known { verdict: MatrixVerdict::Allow, reason }
        }
        Verdict::Ask { reason, .. } | Verdict::OverBudget { reason, .. } => {
            SimulatedVerdict::Known { verdict: MatrixVerdict::Ask, reason }
        }
        Verdict::Deny(Denial { reason, .. }) => denied(reason),
    }
}

/// Returns the verdict that all candidates share, or unknown.
fn unanimous(verdicts: impl Iterator<Item = SimulatedVerdict>) -> SimulatedVerdict {
    verdicts
        .reduce(|first, other| {
            if known_verdict(&first).is_none() || known_verdict(&first) == known_verdict(&other) {
                first
            } else if known_verdict(&other).is_none() {
                other
            } else {
                SimulatedVerdict::Unknown {
                    reason: "depends on the server that has the tool; see --with-servers"
                        .to_owned(),
                }
            }
        })
        .unwrap_or_else(|| SimulatedVerdict::Unknown { reason: "the tool is not known".to_owned() })
}

/// A tool known only by its recorded name.
struct NamedTool<'a> {
    catalog: &'a Catalog,
    servers: &'a [ServerProfile],
    name: &'a str,
}

impl<'a> NamedTool<'a> {
    /// Returns the tool's possible definitions, one per server that may have it, or the reason why
    /// a definition is not known.
    fn candidates(self) -> impl Iterator<Item = Result<Tool, String>> + use<'a> {
        let Self { catalog, servers, name } = self;
        // A name that two servers have is prefixed with the server's name.
        let by_prefix = |server: &'a ServerProfile| {
            let remote = name.strip_prefix(server.name.as_str());
            remote.and_then(|rest| rest.strip_prefix("__")).map(|remote| (server.clone(), remote))
        };
        let mut candidates: Vec<_> = servers.iter().filter_map(by_prefix).collect();
        if candidates.is_empty() {
            candidates = servers.iter().map(|server| (server.clone(), name)).collect();
        }
        if candidates.is_empty() {
            // Without servers, the tool is taken for one of a server that the catalog names.
            let profile =
                |server: &str| ServerProfile { name: server.to_owned(), ..Default::default() };
            let named = catalog.server_names().into_iter();
            candidates = named.map(|server| (profile(server), name)).collect();
        }
        if candidates.is_empty() {
            candidates.push((ServerProfile::default(), name));
        }
        candidates
            .into_iter()
            .map(move |(server, remote)| describe_candidate(catalog, &server, name, remote))
    }
}

fn describe_candidate(
    catalog: &Catalog,
    server: &ServerProfile,
    name: &str,
    remote: &str,
) -> Result<Tool, String> {
    let model_name = ToolName::parse(name).map_err(|error| error.to_string())?;
    let remote = RemoteTool {
        name: remote.to_owned(),
        input_schema: json!({"type": "object"}),
        ..RemoteTool::default()
    };
    let tool = catalog.resolve_tool(server, &remote, model_name);
    let is_from_catalog = match tool.risk_source {
        RiskSource::Catalog | RiskSource::CatalogGlob { .. } => true,
        RiskSource::Annotation { .. } | RiskSource::NameWord { .. } | RiskSource::Default => false,
    };
    if server.trusted && !is_from_catalog {
        return Err(format!(
            "the risk depends on annotations of the trusted server {}; see --with-servers",
            server.name
        ));
    }
    Ok(tool)
}

#[cfg(test)]
#[path = "simulator_tests.rs"]
mod tests;
