//! The work that a build is trained on (`make release`): what a server spends its time on, in the
//! proportions of a busy day, asked of a build that notes which of its code is run.

use crate::{
    provider::Provider,
    scenario::{fan_out, runs},
    suite::{burst_load, paced_load},
    target::{BenchTarget, Durability},
};
use anyhow::Context as _;

const RUNS_IN_BURSTS: usize = 20;
const SUBSCRIBERS: usize = 100;

/// Starts Greenroom, and ends it once it is ready.
pub(crate) async fn start_and_stop() -> anyhow::Result<()> {
    let provider = Provider::start(0)?;
    let mut running = BenchTarget::Greenroom(Durability::Fsync).start(&provider.url()).await?;
    running.server.stop()
}

/// Works each server that is measured, and ends it in peace, since what was noted is written then.
pub(crate) async fn train() -> anyhow::Result<()> {
    let provider = Provider::start(0)?;
    let fsync = Durability::Fsync;
    for contestant in
        [BenchTarget::BareRelay, BenchTarget::MinimalRelay(fsync), BenchTarget::Greenroom(fsync)]
    {
        let name = contestant.name();
        let running = contestant.start(&provider.url()).await;
        let mut running = running.with_context(|| format!("{name} did not start"))?;
        let mut sessions = 0;
        runs::measure(&running, burst_load(RUNS_IN_BURSTS), &mut sessions).await?;
        runs::measure(&running, paced_load(1), &mut sessions).await?;
        if !matches!(contestant, BenchTarget::MinimalRelay(_)) {
            fan_out::measure(&running, "paced", SUBSCRIBERS, &mut sessions).await?;
        }
        running.server.stop().with_context(|| format!("{name} did not end"))?;
    }
    Ok(())
}
