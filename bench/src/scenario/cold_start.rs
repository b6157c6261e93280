//! How long a start takes: with many sessions stored, and with runs that a crash interrupted.

use crate::{
    delta_marker::ReceivedDeltas,
    load::{Client, Session},
    provider::Provider,
    target::{BenchTarget, Durability},
};
use std::time::{Duration, Instant};

/// What was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColdStartResult {
    /// Seconds until it says that it is ready, with the sessions stored.
    pub(crate) ready_s: f64,
    /// MiB it occupies then.
    pub(crate) resident_mib: f64,
    /// Seconds from the start until every interrupted run asks its model again.
    pub(crate) recovered_s: f64,
}

/// Connections that fill the database.
const FILLERS: usize = 32;
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Stores `stored` sessions, starts on them; interrupts `runs` runs, and starts again.
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
    let asked = provider.requests();
    let start = Instant::now();
    let running = greenroom.start_in(folder, &provider.url()).await?;
    while provider.requests() < asked + runs as u64 {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    let recovered_s = start.elapsed().as_secs_f64();
    provider.release();
    drop(running);
    Ok(ColdStartResult { ready_s, resident_mib, recovered_s })
}
