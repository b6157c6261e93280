//! The training load of the profile-guided build (`make release`): the server's main work in typical
//! proportions, executed on an instrumented build.

use crate::{
    provider::Provider,
    scenario::{fan_out, runs},
    suite::{burst_load, paced_load},
    target::{BenchTarget, Durability},
};
use anyhow::Context as _;

const RUNS_IN_BURSTS: usize = 20;
const SUBSCRIBERS: usize = 100;

/// Starts Greenroom and stops it once it is ready.
pub(crate) async fn start_and_stop() -> anyhow::Result<()> {
    let provider = Provider::start(0)?;
    let mut running = BenchTarget::Greenroom(Durability::Fsync).start(&provider.url()).await?;
    running.server.stop()
}

/// Runs the load on each measured server and stops it gracefully, since the profile is written at a
/// regular exit.
pub(crate) async fn train() -> anyhow::Result<()> {
    let provider = Provider::start(0)?;
    let fsync = Durability::Fsync;
    for target in
        [BenchTarget::BareRelay, BenchTarget::MinimalRelay(fsync), BenchTarget::Greenroom(fsync)]
    {
        let name = target.name();
        let running = target.start(&provider.url()).await;
        let mut running = running.with_context(|| format!("{name} did not start"))?;
        let mut sessions = 0;
        runs::measure(&running, burst_load(RUNS_IN_BURSTS), &mut sessions).await?;
        runs::measure(&running, paced_load(1), &mut sessions).await?;
        if !matches!(target, BenchTarget::MinimalRelay(_)) {
            fan_out::measure(&running, "paced", SUBSCRIBERS, &mut sessions).await?;
        }
        running.server.stop().with_context(|| format!("{name} did not stop"))?;
    }
    Ok(())
}
