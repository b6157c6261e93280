//! What another configuration decides of a recorded call, or why that can't be told.

use super::recorded_calls::{RecordedCall, SessionReplay};
use crate::{configuration::Configuration, startup::SystemClock, tool};
use greenroom_actors::{
    ports::{Clock, ToolHost as _},
    status_board::StatusBoard,
    tool_servers::ServerState,
};
use greenroom_core::{
    agent::AgentProfile,
    ids::{AgentName, ToolName},
    message::Arguments,
    policy::{
        Catalog, Denial, JudgeContext, Matrix, MatrixVerdict, RemoteTool, RiskSource,
        ServerProfile, Tool, ToolRegistry, Verdict, judge_call,
    },
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};

/// What would be decided.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SimulatedVerdict {
    /// This.
    Known { ruling: MatrixVerdict, why: String },
    /// That depends on what is not known here.
    Unknown { why: String },
}

/// The other configuration.
pub(super) struct PolicySimulator {
    agents: BTreeMap<AgentName, AgentProfile>,
    matrix: Matrix,
    tools: ToolSource,
}

/// Where tools are known from.
enum ToolSource {
    /// The catalog alone: a recorded name may be any server's tool.
    Catalog { catalog: Catalog, servers: Vec<ServerProfile> },
    /// What the servers listed.
    Servers {
        registry: Arc<ToolRegistry>,
        /// Servers whose tools are not known, and why.
        missing: Vec<String>,
    },
}

impl PolicySimulator {
    /// By that configuration; with its MCP servers started for a moment, if they are to be asked.
    pub(super) async fn start(configuration: Configuration, with_servers: bool) -> Self {
        let Configuration { agents, matrix, catalog, mcp_servers, .. } = configuration;
        if !with_servers {
            let facts = |(name, server): (String, crate::configuration::McpServerConfig)| {
                ServerProfile { name, trusted: server.trusted, unavailable_reason: None }
            };
            let servers = mcp_servers.into_iter().map(facts).collect();
            return Self { agents, matrix, tools: ToolSource::Catalog { catalog, servers } };
        }
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let board = StatusBoard::new(clock.clone());
        let tools = tool::start(mcp_servers.into_values().map(Into::into), catalog, &board, &clock);
        tools.wait_until_started().await;
        let status = tools.statuses().into_iter();
        let not_ready = status.filter(|server| server.state != ServerState::Ready);
        let missing = not_ready.map(|server| {
            let reason = server.reason.unwrap_or_else(|| "not ready".to_owned());
            format!("the server {} is unavailable: {reason}", server.name)
        });
        let (missing, book) = (missing.collect(), tools.tool_registry());
        tools.shut_down().await;
        Self { agents, matrix, tools: ToolSource::Servers { registry: book, missing } }
    }

    /// What it decides of the call, in the session as it was then.
    pub(super) fn simulate(
        &self,
        call: &RecordedCall,
        session: &SessionReplay,
    ) -> SimulatedVerdict {
        let Arguments::Json(arguments) = &*call.arguments else {
            return SimulatedVerdict::Unknown { why: "its arguments are no JSON".to_owned() };
        };
        let Some(agent) = self.agents.get(&session.agent) else {
            return denied(format!("there is no agent `{}`", session.agent));
        };
        if !agent.can_use_tool(&call.tool) {
            return denied(format!("the agent `{}` has no tool `{}`", agent.name, call.tool));
        }
        match &self.tools {
            ToolSource::Servers { registry: book, missing } => {
                match (book.get(&call.tool), missing.first()) {
                    (Some(tool), _) => match tool.validate(arguments) {
                        Ok(()) => self.tool_verdict(tool, arguments, agent, session),
                        Err(error) => denied(format!("its arguments do not fit any more: {error}")),
                    },
                    (None, Some(missing)) => SimulatedVerdict::Unknown { why: missing.clone() },
                    (None, None) => denied(format!("no server has a tool `{}`", call.tool)),
                }
            }
            ToolSource::Catalog { catalog, servers } => {
                let named = NamedTool { catalog, servers, name: &call.tool };
                let findings = named.candidates().map(|candidate| match candidate {
                    Ok(tool) => self.tool_verdict(&tool, arguments, agent, session),
                    Err(why) => SimulatedVerdict::Unknown { why },
                });
                unanimous(findings)
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
        let with = |remaining| {
            let judging = JudgeContext {
                settings: &session.settings,
                matrix: &self.matrix,
                headless: agent.headless,
                user: session.owner.as_str(),
                session: &session_id,
                agent: agent.name.as_str(),
                remaining_budget: remaining,
            };
            from_policy_verdict(judge_call(tool, arguments, &judging))
        };
        let limit = session.settings.budget_limit.as_ref().map(|limit| limit.amount);
        let (spent, unspent) = (with(limit.map(|_| 0.0)), with(limit));
        if known_verdict(&spent) == known_verdict(&unspent) {
            return unspent;
        }
        SimulatedVerdict::Unknown { why: "it depends on what was left of the budget".to_owned() }
    }
}

fn denied(why: String) -> SimulatedVerdict {
    SimulatedVerdict::Known { ruling: MatrixVerdict::Deny, why }
}

fn known_verdict(finding: &SimulatedVerdict) -> Option<MatrixVerdict> {
    match finding {
        SimulatedVerdict::Known { ruling, .. } => Some(*ruling),
        SimulatedVerdict::Unknown { .. } => None,
    }
}

fn from_policy_verdict(verdict: Verdict) -> SimulatedVerdict {
    match verdict {
        Verdict::Allow { reason: why, .. } => {
            SimulatedVerdict::Known { ruling: MatrixVerdict::Allow, why }
        }
        Verdict::Ask { reason: why, .. } | Verdict::OverBudget { reason: why, .. } => {
            SimulatedVerdict::Known { ruling: MatrixVerdict::Ask, why }
        }
        Verdict::Deny(Denial { reason, .. }) => denied(reason),
    }
}

/// What all candidates agree on.
fn unanimous(findings: impl Iterator<Item = SimulatedVerdict>) -> SimulatedVerdict {
    findings
        .reduce(|one, other| {
            if known_verdict(&one).is_none() || known_verdict(&one) == known_verdict(&other) {
                one
            } else if known_verdict(&other).is_none() {
                other
            } else {
                SimulatedVerdict::Unknown {
                    why: "it depends on which server has the tool; see --with-servers".to_owned(),
                }
            }
        })
        .unwrap_or_else(|| SimulatedVerdict::Unknown {
            why: "nothing is known of the tool".to_owned(),
        })
}

/// A tool of which only the name was recorded.
struct NamedTool<'a> {
    catalog: &'a Catalog,
    servers: &'a [ServerProfile],
    name: &'a str,
}

impl<'a> NamedTool<'a> {
    /// The tool, as each server could have it; the error says why a server's can't be known.
    fn candidates(self) -> impl Iterator<Item = Result<Tool, String>> + use<'a> {
        let Self { catalog, servers, name } = self;
        // A name that two servers have gets its server's before it.
        let of = |server: &'a ServerProfile| {
            let remote = name.strip_prefix(server.name.as_str());
            remote.and_then(|rest| rest.strip_prefix("__")).map(|remote| (server.clone(), remote))
        };
        let mut candidates: Vec<_> = servers.iter().filter_map(of).collect();
        if candidates.is_empty() {
            candidates = servers.iter().map(|server| (server.clone(), name)).collect();
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
    let said_by_catalog = match tool.risk_source {
        RiskSource::Catalog | RiskSource::CatalogGlob { .. } => true,
        RiskSource::Annotation { .. } | RiskSource::NameWord { .. } | RiskSource::Default => false,
    };
    if server.trusted && !said_by_catalog {
        return Err(format!(
            "its risk comes from what the trusted server {} says of it; see --with-servers",
            server.name
        ));
    }
    Ok(tool)
}

#[cfg(test)]
#[path = "simulator_tests.rs"]
mod tests;
