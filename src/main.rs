//! The `greenroom` binary.

use clap::Parser as _;
use greenroom::cli::rehearse;

/// An actor-based, event-driven runtime for LLM agents.
#[derive(clap::Parser)]
#[command(name = "greenroom", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Rehearse(rehearse::RehearseArgs),
}

#[actix_web::main]
async fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Rehearse(args) => rehearse::run(args).await,
    }
}
