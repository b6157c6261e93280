//! Measures the memory of a streaming session. The provider holds many sessions in the middle of a
//! message, and each has a client.

use crate::{
    delta_marker::ReceivedDeltas,
    load::{Client, Session},
    provider::Provider,
    target::BenchTarget,
};

/// The result of one repetition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryResult {
    /// Resident memory of the idle process in MiB.
    pub(crate) idle_mib: f64,
    /// Additional memory per streaming session in KiB.
    pub(crate) session_kib: f64,
}

/// Deltas received by each client before memory is sampled.
const DELTAS_BEFORE_SAMPLE: u32 = 5;

/// Starts a target, opens the sessions and samples its memory.
pub(crate) async fn measure(
    target: BenchTarget,
    provider: &Provider,
    sessions: usize,
) -> anyhow::Result<MemoryResult> {
    provider.hold();
    let running = target.start(&provider.url()).await?;
    let idle = running.server.resident_kib()?;
    // Memory allocated once, at the first run, does not count.
    let mut clients = Vec::new();
    let first = open(Client::connect(&running).await?, 0).await?;
    clients.push(first);
    let before = running.server.resident_kib()?;
    for number in 1..=sessions {
        clients.push(open(Client::connect(&running).await?, number).await?);
    }
    let after = running.server.resident_kib()?;
    provider.release();
    for (mut client, _, mut received) in clients {
        client.finish(&mut received).await?;
    }
    Ok(MemoryResult {
        idle_mib: idle as f64 / 1024.0,
        session_kib: after.saturating_sub(before) as f64 / sessions as f64,
    })
}

async fn open(
    mut client: Client,
    number: usize,
) -> anyhow::Result<(Client, Session, ReceivedDeltas)> {
    let session = client.session("held", number).await?;
    let mut received = ReceivedDeltas::default();
    client.send(&session).await?;
    client.read_deltas(&mut received, DELTAS_BEFORE_SAMPLE).await?;
    Ok((client, session, received))
}
