//! `greenroom-market`: an MCP server over stdio with market tools of every risk.
//!
//! It is Greenroom's worked example: small bundled data, writes that really
//! write, one flaky tool, one slow tool. Standard output carries the protocol
//! and nothing else; standard error carries a few lines for the operator.
//!
//! `main` wires the rooms together: [`market`] (what is for sale), [`ledger`]
//! (what was done), [`server`] (the protocol), [`faults`] (switches for tests).

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

/// Where effects are recorded when `MARKET_FILE` is not set.
const RECORD_FILE_DEFAULT: &str = "market.jsonl";

fn main() -> anyhow::Result<()> {
    // One thread is enough: every tool but the scan answers without waiting.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(serve());
    // A call that never answers must not keep a server whose client has left.
    runtime.shutdown_background();
    served
}

async fn serve() -> anyhow::Result<()> {
    let path = std::env::var_os("MARKET_FILE").unwrap_or_else(|| RECORD_FILE_DEFAULT.into());
    let market = Arc::new(market::Market::bundled().context("reading the bundled market data")?);
    let ledger = ledger::Ledger::open(path.into(), Arc::clone(&market))
        .context("opening the record file (MARKET_FILE)")?;
    let faults = faults::Faults::from_env();
    faults.start_flood();

    let departure = disconnect::ClientDisconnect::default();
    let input = disconnect::WatchedInput::new(departure.clone());
    let server = server::MarketServer::new(market, ledger, faults, departure)?;
    let running = match server.serve((input, tokio::io::stdout())).await {
        Ok(running) => running,
        // A client that leaves before saying anything is not an error.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(error).context("starting the MCP conversation"),
    };
    running.waiting().await.context("serving MCP over stdio")?;
    Ok(())
}
