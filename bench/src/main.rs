//! What Greenroom costs, beside the least that could be done and beside what people use. `make bench`
//! runs all of it and writes `bench/results.md`; `bench/README.md` explains the figures.
//!
//! This program is the load, the provider and the limits. The measured server has a core of its
//! own, and what is compared is the processor time that the operating system says it used.

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

/// The server's, so that the relays differ from it in what they do alone.
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
    /// Measure everything, print the tables and write them to a file.
    Run(suite::SuiteArgs),
    /// Work a build that notes which of its code is run.
    Train {
        /// Start the server, ask whether it is ready, and end it.
        #[arg(long)]
        start_only: bool,
    },
    /// Be the scripted provider.
    Provider {
        /// Where to listen, on the loopback.
        port: u16,
    },
    /// Be the relay that does nothing.
    Bare {
        /// Where to listen.
        address: SocketAddr,
        /// The provider, as an OpenAI client is pointed at it.
        provider: String,
    },
    /// Be the relay that does the least that is useful.
    Least {
        /// Where to listen.
        address: SocketAddr,
        /// The provider, as an OpenAI client is pointed at it.
        provider: String,
        /// A file that is not there yet.
        database: PathBuf,
        /// When a message counts as stored.
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
        Command::Least { address, provider, database, durability } => {
            system.block_on(relay::minimal::serve(address, &provider, &database, durability))
        }
    }
}

/// Does `work` on the core of the load.
fn run_on_load_core(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    process::move_to_core(process::LOAD_CORE)?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}
