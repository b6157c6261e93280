//! `greenroom-market`: an MCP server over stdio with market tools of every risk.
//!
//! It is Greenroom's example server: small bundled data, writes with lasting effects, one flaky tool
//! and one slow tool. Standard output carries only the protocol; standard error has messages for the
//! operator.
//!
//! `main` connects the modules: [`market`] (the data), [`ledger`] (the recorded effects), [`server`]
//! (the protocol) and [`faults`] (switches for tests).

use std::sync::Arc;

use anyhow::Context as _;
use rmcp::ServiceExt as _;

mod arguments;
mod disconnect;
mod errors;
mod faults;
mod hangar;
mod ledger;
mod market;
mod queries;
mod scan;
mod server;
mod state;
mod tool_list;

/// The record file if `MARKET_FILE` is not set.
const RECORD_FILE_DEFAULT: &str = "market.jsonl";

fn main() -> anyhow::Result<()> {
    // One thread is enough: every tool except the scan returns without waiting.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(serve());
    // A hanging call must not keep the process alive after the client has disconnected.
    runtime.shutdown_background();
    result
}

async fn serve() -> anyhow::Result<()> {
    let path = std::env::var_os("MARKET_FILE").unwrap_or_else(|| RECORD_FILE_DEFAULT.into());
    let market = Arc::new(market::Market::bundled().context("reading the bundled market data")?);
    let ledger = ledger::Ledger::open(path.into(), Arc::clone(&market))
        .context("opening the record file (MARKET_FILE)")?;
    let faults = faults::Faults::from_env();
    faults.start_flood();

    let disconnect = disconnect::ClientDisconnect::default();
    let input = disconnect::WatchedInput::new(disconnect.clone());
    let server = server::MarketServer::new(market, ledger, faults, disconnect)?;
    let running = match server.serve((input, tokio::io::stdout())).await {
        Ok(running) => running,
        // A disconnect before the first message is not an error.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(error).context("starting the MCP session"),
    };
    running.waiting().await.context("serving MCP over stdio")?;
    Ok(())
}
