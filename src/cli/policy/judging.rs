//! What another configuration decides of a recorded call, or why that can't be told.

use super::recorded::{RecordedCall, Recording};
use crate::{configuration::Configuration, startup::SystemClock, tool};
use greenroom_actors::{
    observation::Board,
    ports::{Clock, ToolHost as _},
    tool_host::ServerState,
};
use greenroom_core::{
    agent::AgentProfile,
    ids::{AgentName, ToolName},
    message::Arguments,
    policy::{
        Catalog, Denial, JudgeContext, Matrix, RemoteTool, RiskSource, Ruling, ServerFacts, Tool,
        ToolBook, Verdict, judge,
    },
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};

/// What would be decided.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Finding {
    /// This.
    Ruled { ruling: Ruling, why: String },
    /// That depends on what is not known here.
    Unknown { why: String },
}

/// The other configuration.
pub(super) struct Judging {
    agents: BTreeMap<AgentName, AgentProfile>,
    matrix: Matrix,
    tools: Source,
}

/// Where tools are known from.
enum Source {
    /// The catalog alone: a recorded name may be any server's tool.
    Catalog { catalog: Catalog, servers: Vec<ServerFacts> },
    /// What the servers listed.
    Servers {
        book: Arc<ToolBook>,
        /// Servers whose tools are not known, and why.
        missing: Vec<String>,
    },
}

impl Judging {
    /// By that configuration; with its MCP servers started for a moment, if they are to be asked.
    pub(super) async fn start(configuration: Configuration, with_servers: bool) -> Self {
        let Configuration { agents, matrix, catalog, mcp_servers, .. } = configuration;
        if !with_servers {
            let facts = |(name, server): (String, crate::configuration::McpServer)| ServerFacts {
                name,
                trusted: server.trusted,
                unavailable: None,
            };
            let servers = mcp_servers.into_iter().map(facts).collect();
            return Self { agents, matrix, tools: Source::Catalog { catalog, servers } };
        }
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let board = Board::new(clock.clone());
        let tools = tool::start(mcp_servers.into_values().map(Into::into), catalog, &board, &clock);
        tools.ready().await;
        let status = tools.status().into_iter();
        let not_ready = status.filter(|server| server.state != ServerState::Ready);
        let missing = not_ready.map(|server| {
            let reason = server.reason.unwrap_or_else(|| "not ready".to_owned());
            format!("the server {} is unavailable: {reason}", server.name)
        });
        let (missing, book) = (missing.collect(), tools.book());
        tools.shutdown().await;
        Self { agents, matrix, tools: Source::Servers { book, missing } }
    }

    /// What it decides of the call, in the session as it was then.
    pub(super) fn judge(&self, call: &RecordedCall, session: &Recording) -> Finding {
        let Arguments::Json(arguments) = &*call.arguments else {
            return Finding::Unknown { why: "its arguments are no JSON".to_owned() };
        };
        let Some(agent) = self.agents.get(&session.agent) else {
            return deny(format!("there is no agent `{}`", session.agent));
        };
        if !agent.may_use(&call.tool) {
            return deny(format!("the agent `{}` has no tool `{}`", agent.name, call.tool));
        }
        match &self.tools {
            Source::Servers { book, missing } => match (book.get(&call.tool), missing.first()) {
                (Some(tool), _) => match tool.validate(arguments) {
                    Ok(()) => self.verdict(tool, arguments, agent, session),
                    Err(error) => deny(format!("its arguments do not fit any more: {error}")),
                },
                (None, Some(missing)) => Finding::Unknown { why: missing.clone() },
                (None, None) => deny(format!("no server has a tool `{}`", call.tool)),
            },
            Source::Catalog { catalog, servers } => {
                let named = Named { catalog, servers, name: &call.tool };
                let findings = named.candidates().map(|candidate| match candidate {
                    Ok(tool) => self.verdict(&tool, arguments, agent, session),
                    Err(why) => Finding::Unknown { why },
                });
                one_of(findings)
            }
        }
    }

    fn verdict(
        &self,
        tool: &Tool,
        arguments: &Value,
        agent: &AgentProfile,
        session: &Recording,
    ) -> Finding {
        let session_id = session.session_id.to_string();
        let with = |remaining| {
            let judging = JudgeContext {
                settings: &session.settings,
                matrix: &self.matrix,
                headless: agent.headless,
                user: session.owner.as_str(),
                session: &session_id,
                agent: agent.name.as_str(),
                remaining,
            };
            finding(judge(tool, arguments, &judging))
        };
        let limit = session.settings.budget_limit.as_ref().map(|limit| limit.amount);
        let (spent, unspent) = (with(limit.map(|_| 0.0)), with(limit));
        if ruling(&spent) == ruling(&unspent) {
            return unspent;
        }
        Finding::Unknown { why: "it depends on what was left of the budget".to_owned() }
    }
}

fn deny(why: String) -> Finding {
    Finding::Ruled { ruling: Ruling::Deny, why }
}

fn ruling(finding: &Finding) -> Option<Ruling> {
    match finding {
        Finding::Ruled { ruling, .. } => Some(*ruling),
        Finding::Unknown { .. } => None,
    }
}

fn finding(verdict: Verdict) -> Finding {
    match verdict {
        Verdict::Allow { why, .. } => Finding::Ruled { ruling: Ruling::Allow, why },
        Verdict::Ask { why, .. } | Verdict::OverBudget { why, .. } => {
            Finding::Ruled { ruling: Ruling::Ask, why }
        }
        Verdict::Deny(Denial { reason, .. }) => deny(reason),
    }
}

/// What all candidates agree on.
fn one_of(findings: impl Iterator<Item = Finding>) -> Finding {
    findings
        .reduce(|one, other| {
            if ruling(&one).is_none() || ruling(&one) == ruling(&other) {
                one
            } else if ruling(&other).is_none() {
                other
            } else {
                Finding::Unknown {
                    why: "it depends on which server has the tool; see --with-servers".to_owned(),
                }
            }
        })
        .unwrap_or_else(|| Finding::Unknown { why: "nothing is known of the tool".to_owned() })
}

/// A tool of which only the name was recorded.
struct Named<'a> {
    catalog: &'a Catalog,
    servers: &'a [ServerFacts],
    name: &'a str,
}

impl<'a> Named<'a> {
    /// The tool, as each server could have it; the error says why a server's can't be known.
    fn candidates(self) -> impl Iterator<Item = Result<Tool, String>> + use<'a> {
        let Self { catalog, servers, name } = self;
        // A name that two servers have gets its server's before it.
        let of = |server: &'a ServerFacts| {
            let remote = name.strip_prefix(server.name.as_str());
            remote.and_then(|rest| rest.strip_prefix("__")).map(|remote| (server.clone(), remote))
        };
        let mut candidates: Vec<_> = servers.iter().filter_map(of).collect();
        if candidates.is_empty() {
            candidates = servers.iter().map(|server| (server.clone(), name)).collect();
        }
        if candidates.is_empty() {
            candidates.push((ServerFacts::default(), name));
        }
        candidates.into_iter().map(move |(server, remote)| describe(catalog, &server, name, remote))
    }
}

fn describe(
    catalog: &Catalog,
    server: &ServerFacts,
    name: &str,
    remote: &str,
) -> Result<Tool, String> {
    let model_name = ToolName::parse(name).map_err(|error| error.to_string())?;
    let remote = RemoteTool {
        name: remote.to_owned(),
        input_schema: json!({"type": "object"}),
        ..RemoteTool::default()
    };
    let tool = catalog.describe(server, &remote, model_name);
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
#[path = "judging_tests.rs"]
mod tests;
