//! `greenroom rehearse`: serves a scripted model until it is interrupted.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;

use super::terminal;
use crate::rehearsal::{RehearsalServer, Script};

/// Serve a scripted model over HTTP, in the Anthropic and OpenAI wire formats
#[derive(Debug, clap::Args)]
pub struct RehearseArgs {
    /// Rehearsal script [default: the built-in script of the market example]
    pub script: Option<PathBuf>,
    /// Address to listen on; port 0 selects a free port
    #[arg(long, env = "GREENROOM_REHEARSE_LISTEN", default_value = "127.0.0.1:7979")]
    pub listen: SocketAddr,
    /// Only validate the script
    #[arg(long)]
    pub check: bool,
}

/// Runs the command.
pub async fn run(args: RehearseArgs) -> anyhow::Result<()> {
    let script = match &args.script {
        Some(path) => {
            Script::load(path).with_context(|| format!("can't use {}", path.display()))?
        }
        None => Script::tour().context("can't use the built-in tour")?,
    };
    if args.check {
        return Ok(terminal::print(&format!("{} rules, no errors\n", script.rules.len()))?);
    }
    let rules = script.rules.len();
    let rehearsal = RehearsalServer::start(script, args.listen)
        .with_context(|| format!("can't listen on {}", args.listen))?;
    let url = rehearsal.url();
    terminal::print(&format!(
        "Serving {rules} rules at {url}\n  ANTHROPIC_BASE_URL={url}\n  OPENAI_BASE_URL={url}/v1\n"
    ))?;
    tokio::signal::ctrl_c().await.context("can't wait for Ctrl-C")?;
    rehearsal.stop().await;
    Ok(())
}
