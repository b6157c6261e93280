//! `greenroom tools`: lists every tool with its risk, the reason of the risk, and the verdict at
//! each autonomy level (G1, G3).

mod catalog;
mod table;

use super::{
    ConfigArgs, UsageError,
    terminal::{self, ColorMode},
};
use crate::{
    configuration::Configuration,
    skill::SkillLibrary,
    startup::{self, SystemClock},
    store::{DatabaseLocation, Store},
    tool,
};
use greenroom_actors::{
    ports::{Clock, ToolHost as _},
    status_board::StatusBoard,
};
use greenroom_core::{
    agent::AgentProfile,
    call::RetryPolicy,
    duration::{ConfigDuration, DurationLimit},
    ids::AgentName,
    limits,
    policy::{
        Autonomy, BUILT_IN_SERVER, CriticalRule, EffectiveCeiling, JudgeContext, Matrix,
        NameOwners, Risk, RiskSource, Settings, Tool, Verdict, judge_tool,
    },
};
use serde::Serialize;
use std::{collections::BTreeSet, sync::Arc};

/// List the tools with their risk and its reason
#[derive(Debug, clap::Args)]
pub struct ToolsArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Only this autonomy level, with the reason of each denial
    #[arg(long, value_name = "0-3", value_parser = clap::value_parser!(u8).range(0..=3))]
    level: Option<u8>,
    /// Only the tools of this agent, with its verdicts
    #[arg(long, value_name = "NAME")]
    agent: Option<AgentName>,
    /// Group by server or by risk
    #[arg(long, value_enum, default_value_t)]
    by: ToolGrouping,
    /// Print JSON, one object with `servers`, `tools` and `catalog`
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum ToolGrouping {
    /// By server
    #[default]
    Server,
    /// By risk
    Risk,
}

/// Runs the command.
pub async fn run(args: ToolsArgs) -> anyhow::Result<()> {
    let configuration = args.config.load()?;
    let agent = args.agent.as_ref().map(|name| find_agent(&configuration, name)).transpose()?;
    let level = args.level.map(|level| Autonomy::ALL[usize::from(level.min(3))]);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let board = StatusBoard::new(clock.clone());
    let skills = Arc::new(SkillLibrary::open(configuration.skills.clone()));
    let built_in = startup::built_in_server(&configuration, &skills, &Arc::default());
    let trusted: BTreeSet<String> = configuration
        .mcp_servers
        .values()
        .filter(|server| server.trusted)
        .map(|server| server.name.clone())
        .chain([BUILT_IN_SERVER.to_owned()])
        .collect();
    let servers = configuration.mcp_servers.into_values().map(Into::into);
    let catalog = (configuration.catalog.clone(), stored_names(&configuration.database).await);
    let tools = tool::start_with_built_in(servers, built_in, catalog, &board, &clock);
    tools.wait_until_started().await;
    let (registry, servers) = (tools.tool_registry(), tools.statuses());
    tools.shut_down().await;
    let viewer = ToolViewer {
        matrix: &configuration.matrix,
        critical: configuration.critical,
        settings: &configuration.default_settings,
        agent: agent.as_ref(),
        level,
    };
    let visible = registry.iter().filter(|tool| viewer.can_use(tool));
    let rows: Vec<_> = visible.map(|tool| viewer.to_row(tool)).collect();
    let entries = configuration.catalog.list_entries(&registry, |server| trusted.contains(server));
    if args.json {
        let listing = serde_json::json!({ "servers": servers, "tools": rows, "catalog": entries });
        return Ok(terminal::print(&format!("{listing:#}\n"))?);
    }
    let paint = ColorMode::for_stdout();
    let table = table::ToolTable { servers: &servers, rows: &rows, paint };
    let text = match args.by {
        ToolGrouping::Server => table.by_server(),
        ToolGrouping::Risk => table.by_risk(),
    };
    Ok(terminal::print(&(text + &catalog::report(&entries, &servers)))?)
}

/// Returns the owners of short tool names in the database, if it can be read. Otherwise, the first of
/// two servers by name has the short name.
async fn stored_names(database: &DatabaseLocation) -> NameOwners {
    let names = async {
        Store::open_read_only(database.clone())
            .await?
            .load_tool_names()
            .await
            .map_err(anyhow::Error::from)
    };
    names.await.unwrap_or_default()
}

fn find_agent(configuration: &Configuration, name: &AgentName) -> Result<AgentProfile, UsageError> {
    configuration.agents.get(name).cloned().ok_or_else(|| {
        let known: Vec<_> = configuration.agents.keys().map(AgentName::as_str).collect();
        UsageError(format!("agent `{name}` not found; configured: {}", known.join(", ")))
    })
}

/// The context in which tools are evaluated.
struct ToolViewer<'a> {
    matrix: &'a Matrix,
    critical: CriticalRule,
    settings: &'a Settings,
    agent: Option<&'a AgentProfile>,
    level: Option<Autonomy>,
}

#[derive(Clone, Debug, Serialize)]
struct ToolRow {
    name: String,
    server: String,
    risk: Risk,
    source: RiskSource,
    repeatable: bool,
    parallel: bool,
    /// Traits that are unusual for the tool's risk, and its limits.
    marks: Vec<String>,
    /// Verdicts at levels 0 to 3.
    levels: [&'static str; 4],
    /// Verdict at the level given by `--level`.
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<LevelVerdict>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unavailable: Option<String>,
}

/// A verdict at one autonomy level, with its reason.
#[derive(Clone, Debug, Serialize)]
struct LevelVerdict {
    level: Autonomy,
    #[serde(rename = "ruling")]
    verdict: &'static str,
    #[serde(rename = "why")]
    reason: String,
}

impl ToolViewer<'_> {
    fn can_use(&self, tool: &Tool) -> bool {
        self.agent.is_none_or(|agent| agent.can_use_tool(tool.name.as_str()))
    }

    fn verdict_at(&self, tool: &Tool, level: Autonomy) -> LevelVerdict {
        let settings = Settings { autonomy_level: level, ..self.settings.clone() };
        let context = JudgeContext {
            settings: &settings,
            ceiling: EffectiveCeiling::UNLIMITED,
            matrix: self.matrix,
            critical: self.critical,
            headless: self.agent.is_some_and(|agent| agent.headless),
            user: "",
            session: "",
            agent: self.agent.map_or("", |agent| agent.name.as_str()),
            remaining_budget: None,
        };
        let (verdict, reason) = match judge_tool(tool, &context) {
            Verdict::Allow { reason, .. } => ("allow", reason),
            Verdict::Ask { reason, .. } | Verdict::OverBudget { reason, .. } => ("ask", reason),
            Verdict::Deny(denial) => ("deny", denial.reason),
        };
        LevelVerdict { level, verdict, reason }
    }

    fn to_row(&self, tool: &Tool) -> ToolRow {
        ToolRow {
            name: tool.name.to_string(),
            server: tool.server.to_string(),
            risk: tool.risk,
            source: tool.risk_source.clone(),
            repeatable: tool.repeatable,
            parallel: tool.parallel,
            marks: notable_traits(tool),
            levels: Autonomy::ALL.map(|level| self.verdict_at(tool, level).verdict),
            verdict: self.level.map(|level| self.verdict_at(tool, level)),
            unavailable: tool.unavailable_reason.clone(),
        }
    }
}

/// Returns the traits of a tool that differ from the usual ones of its risk.
fn notable_traits(tool: &Tool) -> Vec<String> {
    let mut marks = Vec::new();
    let is_read_only = tool.risk == Risk::ReadOnly;
    match tool.repeatable {
        true if !is_read_only => marks.push("idempotent".to_owned()),
        false if is_read_only => marks.push("not retried".to_owned()),
        true | false => {}
    }
    match tool.parallel {
        true if !is_read_only => marks.push("parallel".to_owned()),
        false if is_read_only => marks.push("not parallel".to_owned()),
        true | false => {}
    }
    match tool.constraints.len() {
        0 => {}
        1 => marks.push("1 constraint".to_owned()),
        count => marks.push(format!("{count} constraints")),
    }
    if let Some(cost) = &tool.cost {
        marks.push(format!("costs {}", cost.unit));
    }
    if tool.exclusive.is_some() {
        marks.push("exclusive".to_owned());
    }
    if tool.timeout != Some(limits::TOOL_TIMEOUT_DEFAULT) {
        marks.push(format!("timeout {}", DurationLimit(tool.timeout)));
    }
    if tool.result_bytes_max != limits::TOOL_RESULT_BYTES_DEFAULT {
        marks.push(format!("results up to {} bytes", tool.result_bytes_max));
    }
    let (retry, default) = (tool.retry, RetryPolicy::default());
    if retry != default {
        let (base, cap) = (ConfigDuration(retry.initial_delay), ConfigDuration(retry.max_delay));
        marks.push(match retry.retries_max {
            0 => "no retries".to_owned(),
            max if max == default.retries_max => format!("retries after {base} to {cap}"),
            max => format!("{max} retries after {base} to {cap}"),
        });
    }
    marks
}
