//! Measures the duration of a start: with many stored sessions, and with runs interrupted by a crash.

use crate::{
    delta_marker::ReceivedDeltas,
    load::{Client, Session},
    provider::Provider,
    target::{BenchTarget, Durability},
};
use std::time::{Duration, Instant};

/// The result of one repetition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColdStartResult {
    /// Seconds from the start until the server is ready, with the sessions stored.
    pub(crate) ready_s: f64,
    /// Resident memory at that time in MiB.
    pub(crate) resident_mib: f64,
    /// Seconds from the start until every interrupted run has called its model again.
    pub(crate) recovered_s: f64,
}

/// Number of connections that create the stored sessions.
const FILLERS: usize = 32;
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Stores `stored` sessions and measures a start; interrupts `runs` runs and measures another start.
pub(crate) async fn measure(
    provider: &Provider,
    stored: usize,
    runs: usize,
) -> anyhow::Result<ColdStartResult> {
    let greenroom = BenchTarget::Greenroom(Durability::Process);
    let running = greenroom.start(&provider.url()).await?;
    let mut fillers = Vec::new();
    for filler in 0..FILLERS {
        let mut client = Client::connect(&running).await?;
        fillers.push(tokio::spawn(async move {
            for number in (filler..stored).step_by(FILLERS) {
                client.session("held", number).await?;
            }
            anyhow::Ok(())
        }));
    }
    for filler in fillers {
        filler.await??;
    }
    let folder = running.crash();

    let start = Instant::now();
    let running = greenroom.start_in(folder, &provider.url()).await?;
    let ready_s = start.elapsed().as_secs_f64();
    let resident_mib = running.server.resident_kib()? as f64 / 1024.0;

    provider.hold();
    let mut clients = Vec::new();
    for number in 0..runs {
        let mut client = Client::connect(&running).await?;
        let session: Session = client.session("held", stored + number).await?;
        client.send(&session).await?;
        client.read_deltas(&mut ReceivedDeltas::default(), 1).await?;
        clients.push(client);
    }
    let folder = running.crash();
    let requests_before = provider.requests();
    let start = Instant::now();
    let running = greenroom.start_in(folder, &provider.url()).await?;
    while provider.requests() < requests_before + runs as u64 {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    let recovered_s = start.elapsed().as_secs_f64();
    provider.release();
    drop(running);
    Ok(ColdStartResult { ready_s, resident_mib, recovered_s })
}
