//! The `greenroom` binary.

use clap::Parser as _;
use greenroom::cli::{migrate, rehearse};

/// An actor-based, event-driven runtime for LLM agents.
#[derive(clap::Parser)]
#[command(name = "greenroom", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Migrate(migrate::MigrateArgs),
    Rehearse(rehearse::RehearseArgs),
}

#[actix_web::main]
async fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Migrate(args) => migrate::run(args).await,
        Command::Rehearse(args) => rehearse::run(args).await,
    }
}
