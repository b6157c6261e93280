//! Measures the delivery of one session's stream to many subscribers.

use crate::{
    delta_marker::{DELTAS_PER_STEP, ReceivedDeltas, STEPS},
    load::Client,
    report::quantile,
    target::RunningTarget,
};

/// The result of one repetition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FanOutResult {
    /// Processor time per delta and subscriber in microseconds.
    pub(crate) cpu_us: f64,
    /// Delay of a delta from the provider to a subscriber in milliseconds.
    pub(crate) delay_ms_p50: f64,
    pub(crate) delay_ms_p99: f64,
}

/// Runs one repetition with the provider's model `model`.
pub(crate) async fn measure(
    running: &RunningTarget,
    model: &str,
    subscribers: usize,
    sessions: &mut usize,
) -> anyhow::Result<FanOutResult> {
    let mut sender = Client::connect(running).await?;
    *sessions += 1;
    let session = sender.session(model, *sessions).await?;
    let mut followers = Vec::new();
    for _ in 0..subscribers {
        let mut follower = Client::connect(running).await?;
        follower.follow(&session).await?;
        followers.push(follower);
    }
    let before = running.server.own_cpu_seconds()?;
    let deltas = DELTAS_PER_STEP * STEPS;
    let follow = |mut follower: Client| async move {
        let mut received = ReceivedDeltas::default();
        follower.read_deltas(&mut received, deltas).await?;
        anyhow::Ok(received)
    };
    let tasks: Vec<_> =
        followers.into_iter().map(|follower| tokio::spawn(follow(follower))).collect();
    sender.run(&session).await?;
    let mut delays = Vec::new();
    for task in tasks {
        let received = task.await??;
        delays.extend(received.delays_us.iter().map(|delay| f64::from(*delay) / 1e3));
    }
    let cpu = running.server.own_cpu_seconds()? - before;
    Ok(FanOutResult {
        cpu_us: cpu * 1e6 / (subscribers as f64 * f64::from(deltas)),
        delay_ms_p50: quantile(&delays, 0.5),
        delay_ms_p99: quantile(&delays, 0.99),
    })
}
