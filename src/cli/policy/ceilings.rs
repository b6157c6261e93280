//! `greenroom policy show`: the policy table and the ceilings of a configuration and its database.

use crate::{
    cli::{ConfigArgs, terminal},
    configuration::Configuration,
    store::{DatabaseLocation, Store},
};
use anyhow::Context as _;
use greenroom_core::{
    approval::Role,
    ids::{AgentName, UserId},
    policy::{Autonomy, BudgetLimit, CeilingLimit, Ceilings, Risk},
};
use serde_json::json;

/// Width of a column of the policy table.
const COLUMN: usize = 18;

#[derive(Debug, clap::Args)]
pub(super) struct ShowArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Only the ceilings that apply to sessions of this agent
    #[arg(long, value_name = "AGENT")]
    agent: Option<AgentName>,
    /// Only the ceilings that apply to this user
    #[arg(long, value_name = "USER")]
    user: Option<UserId>,
    /// Only the ceilings that apply to this role
    #[arg(long, value_name = "ROLE")]
    role: Option<Role>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command. The ceilings that administrators have set are read from the database, if it
/// exists.
pub(super) async fn show(args: ShowArgs) -> anyhow::Result<()> {
    let configuration = args.config.load()?;
    let ceilings = load_ceilings(&configuration).await?;
    let limits = applying_limits(&ceilings, &args);
    let text = if args.json {
        let matrix = Autonomy::ALL
            .map(|level| Risk::ALL.map(|risk| json!(configuration.matrix.cell(level, risk))));
        format!("{:#}\n", json!({"matrix": matrix, "ceilings": limits}))
    } else {
        format!("{}\n{}", render_matrix(&configuration), render_limits(&limits))
    };
    Ok(terminal::print(&text)?)
}

async fn load_ceilings(configuration: &Configuration) -> anyhow::Result<Ceilings> {
    if let DatabaseLocation::Sqlite(path) = &configuration.database
        && !path.exists()
    {
        return Ok(configuration.ceilings.clone());
    }
    let store = Store::open_read_only(&configuration.database).await;
    let stored = store.context("can't read the stored ceilings")?.load_ceilings().await?;
    Ok(configuration.ceilings.narrowed_to(&stored.ceilings))
}

/// Returns the limits of the selected ceilings; without a selection, those of all ceilings.
fn applying_limits(ceilings: &Ceilings, args: &ShowArgs) -> Vec<CeilingLimit> {
    if args.agent.is_some() || args.user.is_some() || args.role.is_some() {
        return ceilings.combine(args.role, &args.agent, args.user.as_ref()).limits();
    }
    ceilings.limits()
}

fn render_matrix(configuration: &Configuration) -> String {
    let mut text = format!("{:4}", "");
    for risk in Risk::ALL {
        text.push_str(&format!("{:COLUMN$}", risk.name()));
    }
    text.truncate(text.trim_end().len());
    for level in Autonomy::ALL {
        let cells = Risk::ALL.map(|risk| {
            let cell = json!(configuration.matrix.cell(level, risk));
            format!("{:COLUMN$}", cell.as_str().unwrap_or_default())
        });
        text.push_str(&format!("\nL{}  {}", level.level(), cells.concat().trim_end()));
    }
    text.push('\n');
    text
}

fn render_limits(limits: &[CeilingLimit]) -> String {
    if limits.is_empty() {
        return "no ceilings\n".to_owned();
    }
    let line = |limit: &CeilingLimit| {
        let CeilingLimit { field, value, ceiling } = limit;
        let budget: Option<BudgetLimit> = serde_json::from_value(value.clone()).ok();
        let budget = budget.filter(|_| *field == "budget_limits");
        let value = budget.map_or_else(|| value.to_string(), |budget| budget.to_string());
        format!("{}\n", terminal::escape_unsafe(&format!("{field} = {value}, {ceiling}")))
    };
    limits.iter().map(line).collect()
}
