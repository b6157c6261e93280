//! Measures the cost of a run: in bursts with enough clients to keep the server busy, and paced with
//! 10,000 deltas per second in total.

use crate::{
    delta_marker::{DELTAS_PER_STEP, ReceivedDeltas},
    load::ClientPool,
    report::quantile,
    target::RunningTarget,
};
use std::time::Duration;

/// The load of one repetition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunLoad {
    /// The provider's model.
    pub(crate) model: &'static str,
    pub(crate) clients: usize,
    /// Runs per client.
    pub(crate) runs: usize,
    /// Interval between the starts of two clients.
    pub(crate) start_interval: Duration,
}

/// The result of one repetition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunCost {
    /// Processor time per run in milliseconds.
    pub(crate) cpu_ms: f64,
    /// Delay of a delta from the provider to the client in milliseconds.
    pub(crate) delay_ms_p50: f64,
    pub(crate) delay_ms_p99: f64,
    /// Delay of the first delta of a run in milliseconds.
    pub(crate) first_ms_p50: f64,
}

/// Runs one repetition.
pub(crate) async fn measure(
    running: &RunningTarget,
    load: RunLoad,
    sessions: &mut usize,
) -> anyhow::Result<RunCost> {
    let RunLoad { model, clients, runs, start_interval } = load;
    let pool = ClientPool::connect(running, model, (clients, runs), sessions).await?;
    // A peer may have child processes. The other targets need a finer clock than `cpu_seconds`.
    let cpu_seconds = || match running.target.is_peer() {
        true => running.server.cpu_seconds(),
        false => running.server.own_cpu_seconds(),
    };
    let before = cpu_seconds()?;
    let received = pool.run(start_interval).await?;
    let cpu = cpu_seconds()? - before;
    Ok(RunCost {
        cpu_ms: cpu * 1e3 / (clients * runs) as f64,
        delay_ms_p50: quantile(&sample_delays(&received, 1), 0.5),
        delay_ms_p99: quantile(&sample_delays(&received, 1), 0.99),
        first_ms_p50: quantile(&sample_delays(&received, DELTAS_PER_STEP as usize * 2), 0.5),
    })
}

/// Returns the delay in milliseconds of every `interval`th delta.
fn sample_delays(received: &[ReceivedDeltas], interval: usize) -> Vec<f64> {
    let delays = received.iter().flat_map(|received| received.delays_us.iter().step_by(interval));
    delays.map(|delay| f64::from(*delay) / 1e3).collect()
}
