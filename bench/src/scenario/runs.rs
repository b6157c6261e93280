//! What a run costs: in bursts, by as many clients as keep the server busy; and paced, by as many as
//! make ten thousand deltas a second.

use crate::{
    delta_marker::{DELTAS_PER_STEP, ReceivedDeltas},
    load::ClientPool,
    report::quantile,
    target::RunningTarget,
};
use std::time::Duration;

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunLoad {
    /// The provider's model.
    pub(crate) model: &'static str,
    pub(crate) clients: usize,
    /// Of each client.
    pub(crate) runs: usize,
    /// Between the beginnings of two clients.
    pub(crate) start_interval: Duration,
}

/// What one repetition found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunCost {
    /// Milliseconds of processor time of one run.
    pub(crate) cpu_ms: f64,
    /// Milliseconds that a delta took from the provider to the client.
    pub(crate) delay_ms_p50: f64,
    pub(crate) delay_ms_p99: f64,
    /// The same, of the first delta of a run.
    pub(crate) first_ms_p50: f64,
}

/// One repetition.
pub(crate) async fn measure(
    running: &RunningTarget,
    load: RunLoad,
    sessions: &mut usize,
) -> anyhow::Result<RunCost> {
    let RunLoad { model, clients, runs, start_interval: apart } = load;
    let crowd = ClientPool::connect(running, model, (clients, runs), sessions).await?;
    // Peers may have children; what the others cost is too little for hundredths of a second.
    let cpu_seconds = || match running.contestant.is_peer() {
        true => running.server.cpu_seconds(),
        false => running.server.own_cpu_seconds(),
    };
    let before = cpu_seconds()?;
    let heard = crowd.run(apart).await?;
    let cpu = cpu_seconds()? - before;
    Ok(RunCost {
        cpu_ms: cpu * 1e3 / (clients * runs) as f64,
        delay_ms_p50: quantile(&delays(&heard, 1), 0.5),
        delay_ms_p99: quantile(&delays(&heard, 1), 0.99),
        first_ms_p50: quantile(&delays(&heard, DELTAS_PER_STEP as usize * 2), 0.5),
    })
}

/// The delay in milliseconds of every `each`th delta.
fn delays(heard: &[ReceivedDeltas], each: usize) -> Vec<f64> {
    let delays = heard.iter().flat_map(|heard| heard.delays_us.iter().step_by(each));
    delays.map(|delay| f64::from(*delay) / 1e3).collect()
}
