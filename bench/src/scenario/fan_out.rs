//! What it costs to tell many: one session that streams, followed by a thousand.

use crate::{
    delta_marker::{DELTAS_PER_STEP, ReceivedDeltas, STEPS},
    load::Client,
    report::quantile,
    target::RunningTarget,
};

/// What was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FanOutResult {
    /// Microseconds of processor time for each delta told to each subscriber.
    pub(crate) cpu_us: f64,
    /// Milliseconds that a delta took from the provider to a subscriber.
    pub(crate) delay_ms_p50: f64,
    pub(crate) delay_ms_p99: f64,
}

/// One repetition, with the provider's model `model`.
pub(crate) async fn measure(
    running: &RunningTarget,
    model: &str,
    subscribers: usize,
    sessions: &mut usize,
) -> anyhow::Result<FanOutResult> {
    let mut speaker = Client::connect(running).await?;
    *sessions += 1;
    let session = speaker.session(model, *sessions).await?;
    let mut followers = Vec::new();
    for _ in 0..subscribers {
        let mut follower = Client::connect(running).await?;
        follower.follow(&session).await?;
        followers.push(follower);
    }
    let before = running.server.own_cpu_seconds()?;
    let deltas = DELTAS_PER_STEP * STEPS;
    let follow = |mut follower: Client| async move {
        let mut heard = ReceivedDeltas::default();
        follower.read_deltas(&mut heard, deltas).await?;
        anyhow::Ok(heard)
    };
    let tasks: Vec<_> =
        followers.into_iter().map(|follower| tokio::spawn(follow(follower))).collect();
    speaker.run(&session).await?;
    let mut delays = Vec::new();
    for task in tasks {
        let heard = task.await??;
        delays.extend(heard.delays_us.iter().map(|delay| f64::from(*delay) / 1e3));
    }
    let cpu = running.server.own_cpu_seconds()? - before;
    Ok(FanOutResult {
        cpu_us: cpu * 1e6 / (subscribers as f64 * f64::from(deltas)),
        delay_ms_p50: quantile(&delays, 0.5),
        delay_ms_p99: quantile(&delays, 0.99),
    })
}
