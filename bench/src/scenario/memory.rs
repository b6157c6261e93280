//! What a session occupies while it streams: so many that the provider holds in the middle of a
//! message, all read by a client.

use crate::{
    delta_marker::ReceivedDeltas,
    load::{Client, Session},
    provider::Provider,
    target::BenchTarget,
};

/// What was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryResult {
    /// MiB of the process before anything happens.
    pub(crate) idle_mib: f64,
    /// KiB more for each session that streams.
    pub(crate) session_kib: f64,
}

/// Deltas that a client has heard when memory is looked at.
const DELTAS_BEFORE_SAMPLE: u32 = 5;

/// Starts the contestant afresh, opens so many sessions, and looks.
pub(crate) async fn measure(
    contestant: BenchTarget,
    provider: &Provider,
    sessions: usize,
) -> anyhow::Result<MemoryResult> {
    provider.hold();
    let running = contestant.start(&provider.url()).await?;
    let idle = running.server.resident_kib()?;
    // What the first run needs once is not a session's.
    let mut clients = Vec::new();
    let first = open(Client::connect(&running).await?, 0).await?;
    clients.push(first);
    let before = running.server.resident_kib()?;
    for number in 1..=sessions {
        clients.push(open(Client::connect(&running).await?, number).await?);
    }
    let after = running.server.resident_kib()?;
    provider.release();
    for (mut client, _, mut heard) in clients {
        client.finish(&mut heard).await?;
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
    let mut heard = ReceivedDeltas::default();
    client.send(&session).await?;
    client.read_deltas(&mut heard, DELTAS_BEFORE_SAMPLE).await?;
    Ok((client, session, heard))
}
