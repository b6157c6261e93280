//! `greenroom tools`: every tool, how dangerous it is and why, and what each level of autonomy may
//! do with it (G1, G3).

use super::ConfigArgs;
use crate::{startup::SystemClock, tool};
use greenroom_actors::{
    observation::Board,
    ports::{Clock, ToolHost as _},
};
use greenroom_core::policy::{
    Autonomy, JudgeContext, Matrix, RiskSource, Settings, Tool, Verdict, judge_any,
};
use serde::Serialize;
use std::sync::Arc;

/// List the tools, their risk and why they have it.
#[derive(Debug, clap::Args)]
pub struct ToolsArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Print JSON, one object with `servers` and `tools`
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub async fn run(args: ToolsArgs) -> anyhow::Result<()> {
    let configuration = args.config.load()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let board = Board::new(clock.clone());
    let servers = configuration.mcp_servers.into_values().map(Into::into);
    let tools = tool::start(servers, configuration.catalog, &board, &clock);
    tools.ready().await;
    let book = tools.book();
    let rows: Vec<_> = book
        .iter()
        .map(|tool| Row::of(tool, &configuration.matrix, &configuration.settings))
        .collect();
    let servers = tools.status();
    tools.shutdown().await;
    if args.json {
        let listing = serde_json::json!({ "servers": servers, "tools": rows });
        println!("{}", serde_json::to_string_pretty(&listing)?);
        return Ok(());
    }
    for server in &servers {
        let what = server.reason.clone().unwrap_or_else(|| format!("{} tools", server.tools));
        println!("{}: {what}", server.name);
    }
    if !rows.is_empty() {
        println!();
        print_table(&rows);
    }
    Ok(())
}

#[derive(Serialize)]
struct Row {
    name: String,
    server: String,
    risk: &'static str,
    source: RiskSource,
    repeatable: bool,
    parallel: bool,
    /// By level, 0 to 3.
    levels: [&'static str; 4],
    #[serde(skip_serializing_if = "Option::is_none")]
    unavailable: Option<String>,
}

impl Row {
    fn of(tool: &Tool, matrix: &Matrix, settings: &Settings) -> Self {
        let at = |autonomy_level| {
            let settings = Settings { autonomy_level, ..settings.clone() };
            let judging = JudgeContext {
                settings: &settings,
                matrix,
                headless: false,
                user: "",
                session: "",
                agent: "",
                remaining: None,
            };
            match judge_any(tool, &judging) {
                Verdict::Allow { .. } => "allow",
                Verdict::Ask { .. } => "ask",
                Verdict::Deny(_) => "deny",
            }
        };
        Self {
            name: tool.name.to_string(),
            server: tool.server.clone(),
            risk: tool.risk.name(),
            source: tool.risk_source.clone(),
            repeatable: tool.repeatable,
            parallel: tool.parallel,
            levels: Autonomy::ALL.map(at),
            unavailable: tool.unavailable.clone(),
        }
    }

    fn why(&self) -> String {
        match &self.source {
            RiskSource::Catalog => "the catalog names it".to_owned(),
            RiskSource::CatalogGlob { glob } => format!("the catalog's `{glob}`"),
            RiskSource::Annotation { hint } => format!("its trusted server says {hint}"),
            RiskSource::NameWord { word } => format!("`{word}` in its name"),
            RiskSource::Default => "nothing describes it".to_owned(),
        }
    }
}

fn print_table(rows: &[Row]) {
    let longest = |of: fn(&Row) -> usize| rows.iter().map(of).max().unwrap_or(0);
    let name = longest(|row| row.name.len()).max(4);
    let server = longest(|row| row.server.len()).max(6);
    println!(
        "{:name$}  {:server$}  {:15}  {:5}  {:5}  {:5}  {:5}  WHY",
        "TOOL", "SERVER", "RISK", "L0", "L1", "L2", "L3"
    );
    for row in rows {
        let [l0, l1, l2, l3] = row.levels;
        let unavailable = match &row.unavailable {
            Some(reason) => format!(" (unavailable: {reason})"),
            None => String::new(),
        };
        println!(
            "{:name$}  {:server$}  {:15}  {l0:5}  {l1:5}  {l2:5}  {l3:5}  {}{unavailable}",
            row.name,
            row.server,
            row.risk,
            row.why()
        );
    }
}
