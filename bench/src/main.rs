//! Benchmark of Greenroom against minimal relays and other agent servers. `make bench` runs all
//! scenarios and writes `bench/results.md`; `bench/README.md` explains the figures.
//!
//! This program is the load, the scripted provider and the relays. The measured server has its own
//! core. The measured quantity is its processor time as counted by the operating system.

mod delta_marker;
mod http;
mod load;
mod pgo_training;
mod process;
mod provider;
mod relay;
mod report;
mod scenario;
mod suite;
mod target;

use clap::{Parser, Subcommand};
use std::{net::SocketAddr, path::PathBuf};
use target::Durability;

/// The allocator of the server, so that the relays use the same one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the scenarios, print the tables and write them to a file
    Run(suite::SuiteArgs),
    /// Run the training load of a profile-guided build
    Train {
        /// Start the server, wait until it is ready, and stop it
        #[arg(long)]
        start_only: bool,
    },
    /// Run the scripted provider
    Provider {
        /// Port on the loopback address
        port: u16,
    },
    /// Run the bare relay
    Bare {
        /// Address to listen on
        address: SocketAddr,
        /// Base URL of the provider
        provider: String,
    },
    /// Run the minimal relay
    #[command(name = "least")]
    Minimal {
        /// Address to listen on
        address: SocketAddr,
        /// Base URL of the provider
        provider: String,
        /// Path of the database to create
        database: PathBuf,
        /// Durability of stored messages
        durability: Durability,
    },
}

fn main() -> anyhow::Result<()> {
    let system = actix_web::rt::System::new();
    match Arguments::parse().command {
        Command::Run(arguments) => run_on_load_core(suite::run(&arguments)),
        Command::Train { start_only: true } => run_on_load_core(pgo_training::start_and_stop()),
        Command::Train { start_only: false } => run_on_load_core(pgo_training::train()),
        Command::Provider { port } => {
            let provider = provider::Provider::start(port)?;
            println!("{}", provider.url());
            system.block_on(std::future::pending())
        }
        Command::Bare { address, provider } => {
            system.block_on(relay::bare::serve(address, &provider))
        }
        Command::Minimal { address, provider, database, durability } => {
            system.block_on(relay::minimal::serve(address, &provider, &database, durability))
        }
    }
}

/// Runs `work` on the core of the load.
fn run_on_load_core(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    process::move_to_core(process::LOAD_CORE)?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}
