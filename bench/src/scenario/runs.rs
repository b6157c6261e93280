//! What a run costs: in bursts, by as many clients as keep the server busy; and paced, by as many as
//! make ten thousand deltas a second.

use crate::{
    contestant::Running,
    load::Crowd,
    mark::{DELTAS_PER_STEP, Heard},
    report::quantile,
};
use std::time::Duration;

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// The provider's model.
    pub(crate) model: &'static str,
    pub(crate) clients: usize,
    /// Of each client.
    pub(crate) runs: usize,
    /// Between the beginnings of two clients.
    pub(crate) apart: Duration,
}

/// What one repetition found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
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
    running: &Running,
    load: Load,
    sessions: &mut usize,
) -> anyhow::Result<Cost> {
    let Load { model, clients, runs, apart } = load;
    let crowd = Crowd::gather(running, model, (clients, runs), sessions).await?;
    // Peers may have children; what the others cost is too little for hundredths of a second.
    let cpu_seconds = || match running.contestant.is_peer() {
        true => running.server.cpu_seconds(),
        false => running.server.own_cpu_seconds(),
    };
    let before = cpu_seconds()?;
    let heard = crowd.run(apart).await?;
    let cpu = cpu_seconds()? - before;
    Ok(Cost {
        cpu_ms: cpu * 1e3 / (clients * runs) as f64,
        delay_ms_p50: quantile(&delays(&heard, 1), 0.5),
        delay_ms_p99: quantile(&delays(&heard, 1), 0.99),
        first_ms_p50: quantile(&delays(&heard, DELTAS_PER_STEP as usize * 2), 0.5),
    })
}

/// The delay in milliseconds of every `each`th delta.
fn delays(heard: &[Heard], each: usize) -> Vec<f64> {
    let delays = heard.iter().flat_map(|heard| heard.delays_us.iter().step_by(each));
    delays.map(|delay| f64::from(*delay) / 1e3).collect()
}
