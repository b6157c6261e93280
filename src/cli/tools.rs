//! `greenroom tools`: every tool, how dangerous it is and why, and what each level of autonomy may
//! do with it (G1, G3).

mod table;

use super::{
    ConfigArgs, UsageError,
    terminal::{self, ColorMode},
};
use crate::{
    configuration::Configuration,
    skill::SkillLibrary,
    startup::{self, SystemClock},
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
        Autonomy, JudgeContext, Matrix, Risk, RiskSource, Settings, Tool, Verdict, judge_tool,
    },
};
use serde::Serialize;
use std::sync::Arc;

/// List the tools, their risk and why they have it.
#[derive(Debug, clap::Args)]
pub struct ToolsArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Only this level of autonomy, with the reason of each verdict
    #[arg(long, value_name = "0-3", value_parser = clap::value_parser!(u8).range(0..=3))]
    level: Option<u8>,
    /// As this agent: its tools, and nobody to ask if it is headless
    #[arg(long, value_name = "NAME")]
    agent: Option<AgentName>,
    /// Group by server or by risk
    #[arg(long, value_enum, default_value_t)]
    by: Grouping,
    /// Print JSON, one object with `servers` and `tools`
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Grouping {
    /// The server that has them
    #[default]
    Server,
    /// How dangerous they are
    Risk,
}

/// Runs the command.
pub async fn run(args: ToolsArgs) -> anyhow::Result<()> {
    let configuration = args.config.load()?;
    let agent = args.agent.as_ref().map(|name| agent(&configuration, name)).transpose()?;
    let level = args.level.map(|level| Autonomy::ALL[usize::from(level.min(3))]);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let board = StatusBoard::new(clock.clone());
    let skills = Arc::new(SkillLibrary::open(configuration.skills.clone()));
    let built_in = startup::built_in_server(&configuration, &skills, &Arc::default());
    let servers = configuration.mcp_servers.into_values().map(Into::into);
    let tools = tool::start_with_built_in(servers, built_in, configuration.catalog, &board, &clock);
    tools.wait_until_started().await;
    let (book, servers) = (tools.tool_registry(), tools.statuses());
    tools.shut_down().await;
    let viewer = ToolViewer {
        matrix: &configuration.matrix,
        settings: &configuration.default_settings,
        agent: agent.as_ref(),
        level,
    };
    let seen = book.iter().filter(|tool| viewer.may_see(tool));
    let rows: Vec<_> = seen.map(|tool| viewer.to_row(tool)).collect();
    if args.json {
        let listing = serde_json::json!({ "servers": servers, "tools": rows });
        return Ok(terminal::print(&format!("{listing:#}\n"))?);
    }
    let paint = ColorMode::for_stdout();
    let listing = table::ToolTable { servers: &servers, rows: &rows, paint };
    let text = match args.by {
        Grouping::Server => listing.by_server(),
        Grouping::Risk => listing.by_risk(),
    };
    Ok(terminal::print(&text)?)
}

fn agent(configuration: &Configuration, name: &AgentName) -> Result<AgentProfile, UsageError> {
    configuration.agents.get(name).cloned().ok_or_else(|| {
        let known: Vec<_> = configuration.agents.keys().map(AgentName::as_str).collect();
        UsageError(format!("there is no agent `{name}`, only: {}", known.join(", ")))
    })
}

/// For whom tools are judged.
struct ToolViewer<'a> {
    matrix: &'a Matrix,
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
    /// What else the catalog says of it, where that is not usual.
    marks: Vec<String>,
    /// By level, 0 to 3.
    levels: [&'static str; 4],
    /// At the level that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<LevelVerdict>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unavailable: Option<String>,
}

/// A verdict, in words.
#[derive(Clone, Debug, Serialize)]
struct LevelVerdict {
    level: Autonomy,
    ruling: &'static str,
    why: String,
}

impl ToolViewer<'_> {
    fn may_see(&self, tool: &Tool) -> bool {
        self.agent.is_none_or(|agent| agent.can_use_tool(tool.name.as_str()))
    }

    fn verdict_at(&self, tool: &Tool, level: Autonomy) -> LevelVerdict {
        let settings = Settings { autonomy_level: level, ..self.settings.clone() };
        let judging = JudgeContext {
            settings: &settings,
            matrix: self.matrix,
            headless: self.agent.is_some_and(|agent| agent.headless),
            user: "",
            session: "",
            agent: self.agent.map_or("", |agent| agent.name.as_str()),
            remaining_budget: None,
        };
        let (ruling, why) = match judge_tool(tool, &judging) {
            Verdict::Allow { reason: why, .. } => ("allow", why),
            Verdict::Ask { reason: why, .. } | Verdict::OverBudget { reason: why, .. } => {
                ("ask", why)
            }
            Verdict::Deny(denial) => ("deny", denial.reason),
        };
        LevelVerdict { level, ruling, why }
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
            levels: Autonomy::ALL.map(|level| self.verdict_at(tool, level).ruling),
            verdict: self.level.map(|level| self.verdict_at(tool, level)),
            unavailable: tool.unavailable_reason.clone(),
        }
    }
}

/// What is worth knowing of a tool because others of its risk are not so.
fn notable_traits(tool: &Tool) -> Vec<String> {
    let mut marks = Vec::new();
    let reads = tool.risk == Risk::ReadOnly;
    match tool.repeatable {
        true if !reads => marks.push("idempotent".to_owned()),
        false if reads => marks.push("not retried".to_owned()),
        true | false => {}
    }
    match tool.parallel {
        true if !reads => marks.push("parallel".to_owned()),
        false if reads => marks.push("not parallel".to_owned()),
        true | false => {}
    }
    match tool.constraints.len() {
        0 => {}
        1 => marks.push("1 constraint".to_owned()),
        many => marks.push(format!("{many} constraints")),
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
        marks.push(format!("results to {} bytes", tool.result_bytes_max));
    }
    let (retry, usual) = (tool.retry, RetryPolicy::default());
    if retry != usual {
        let (base, cap) = (ConfigDuration(retry.initial_delay), ConfigDuration(retry.max_delay));
        marks.push(match retry.retries_max {
            0 => "no retries".to_owned(),
            max if max == usual.retries_max => format!("retries after {base} to {cap}"),
            max => format!("{max} retries after {base} to {cap}"),
        });
    }
    marks
}
