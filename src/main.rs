//! The `greenroom` binary.

use clap::Parser as _;
use greenroom::{
    cli::{audit, doctor, events, key, migrate, rehearse, serve, tools},
    telemetry,
};

/// An actor-based, event-driven runtime for LLM agents.
#[derive(clap::Parser)]
#[command(name = "greenroom", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Serve(serve::ServeArgs),
    Tools(tools::ToolsArgs),
    Events(events::EventsArgs),
    Rehearse(rehearse::RehearseArgs),
    Key(key::KeyArgs),
    Audit(audit::AuditArgs),
    Migrate(migrate::MigrateArgs),
    Doctor(doctor::DoctorArgs),
}

#[actix_web::main]
async fn main() -> anyhow::Result<()> {
    let command = Cli::parse().command;
    telemetry::start_logging()?;
    greenroom::install_crypto();
    match command {
        Command::Serve(args) => serve::run(args).await,
        Command::Tools(args) => tools::run(args).await,
        Command::Events(args) => events::run(args).await,
        Command::Rehearse(args) => rehearse::run(args).await,
        Command::Key(args) => key::run(args).await,
        Command::Audit(args) => audit::run(args).await,
        Command::Migrate(args) => migrate::run(args).await,
        Command::Doctor(args) => doctor::run(args).await,
    }
}
