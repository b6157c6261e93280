//! The `greenroom` binary.

use clap::Parser as _;
use greenroom::{
    cli::{
        self, approvals, audit, backup, chat, doctor, eval, events, key, migrate, policy, rehearse,
        serve, tools, workflows,
    },
    telemetry::{self, LogVolume},
};
use std::process::ExitCode;

/// The global allocator. With the system's allocator, a tenth of a run's time was spent allocating
/// (docs/performance.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
    Chat(chat::ChatArgs),
    Tools(tools::ToolsArgs),
    Workflows(workflows::WorkflowsArgs),
    Events(events::EventsArgs),
    Approvals(approvals::ApprovalsArgs),
    Policy(policy::PolicyArgs),
    Rehearse(rehearse::RehearseArgs),
    Eval(eval::EvalArgs),
    Key(key::KeyArgs),
    Audit(audit::AuditArgs),
    Backup(backup::BackupArgs),
    Migrate(migrate::MigrateArgs),
    Doctor(doctor::DoctorArgs),
}

#[actix_web::main]
async fn main() -> ExitCode {
    match run(Cli::parse().command).await {
        Ok(code) => code,
        Err(error) => cli::report_error(&error),
    }
}

async fn run(command: Command) -> anyhow::Result<ExitCode> {
    let volume =
        if matches!(command, Command::Eval(_)) { LogVolume::ErrorsOnly } else { LogVolume::Normal };
    telemetry::start_logging(volume)?;
    greenroom::install_crypto();
    match command {
        Command::Serve(args) => serve::run(args).await?,
        Command::Chat(args) => return chat::run(args).await,
        Command::Tools(args) => tools::run(args).await?,
        Command::Workflows(args) => workflows::run(args).await?,
        Command::Events(args) => events::run(args).await?,
        Command::Approvals(args) => approvals::run(args).await?,
        Command::Policy(args) => return policy::run(args).await,
        Command::Eval(args) => return eval::run(args).await,
        Command::Rehearse(args) => rehearse::run(args).await?,
        Command::Key(args) => key::run(args).await?,
        Command::Audit(args) => return audit::run(args).await,
        Command::Backup(args) => backup::run(args).await?,
        Command::Migrate(args) => migrate::run(args).await?,
        Command::Doctor(args) => doctor::run(args).await?,
    }
    Ok(ExitCode::SUCCESS)
}
