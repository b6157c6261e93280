//! Compares the cost of an event with few and with many earlier events: in sessions of ten events and
//! of ten thousand, and with an empty database and with a million stored events.
//!
//! Each short turn measures both sides; the order of the sides alternates. The result is the ratio
//! within a turn. The model gets only the end of a conversation (`brief` in
//! `greenroom.toml`), since the cost of a model request may depend on its length.

use crate::{
    load::{Client, ClientPool, Session},
    provider::Provider,
    scenario::runs::{self, RunLoad},
    target::{BenchTarget, Durability, RunningTarget},
};
use std::time::Duration;
use tempfile::TempDir;

/// Events of a short session before its measurement.
const EVENTS_FEW: u64 = 10;
/// Sessions used in turn, so that no single session stays in the processor's cache.
const SESSIONS_PER_GROUP: usize = 4;
/// Changes per turn and long session. A short session gets [`CHANGES_SHORT`], so that it stays short.
const CHANGES: usize = 200;
const CHANGES_SHORT: usize = 10;
/// Runs per turn and long session. A short session gets one.
const RUNS: usize = 20;
/// Clients and runs per client that fill the database.
const FILLERS: (usize, usize) = (50, 40);
/// The load of one turn in the comparison by stored events.
const BURST: RunLoad =
    RunLoad { model: "burst", clients: 50, runs: 20, start_interval: Duration::ZERO };

/// The cost with few and with many earlier events, one value per turn.
#[derive(Debug, Default)]
pub(crate) struct PairedCosts {
    pub(crate) few: Vec<f64>,
    pub(crate) many: Vec<f64>,
}

impl PairedCosts {
    /// Returns the ratio of many to few for each turn.
    pub(crate) fn ratios(&self) -> Vec<f64> {
        self.few.iter().zip(&self.many).map(|(few, many)| many / few).collect()
    }

    fn push(&mut self, is_many: bool, cost: f64) {
        if is_many { self.many.push(cost) } else { self.few.push(cost) }
    }
}

/// Returns the order of the two measurements in a turn; true means many earlier events.
fn order(turn: usize) -> [bool; 2] {
    let many_first = !turn.is_multiple_of(2);
    [many_first, !many_first]
}

/// The costs in short and in long sessions.
#[derive(Debug, Default)]
pub(crate) struct LengthResult {
    /// Processor time of a change of the title in microseconds. A change commits one event.
    pub(crate) change_us: PairedCosts,
    /// Processor time of a run in milliseconds.
    pub(crate) run_ms: PairedCosts,
}

/// Compares sessions of `events` events with short ones.
pub(crate) async fn measure_lengths(
    provider: &Provider,
    events: u64,
    turns: usize,
) -> anyhow::Result<LengthResult> {
    let running = BenchTarget::Greenroom(Durability::Fsync).start(&provider.url()).await?;
    let mut client =
        GrowthClient { client: Client::connect(&running).await?, running: &running, counter: 0 };
    let mut long = Vec::new();
    for _ in 0..SESSIONS_PER_GROUP {
        let session = client.session().await?;
        while client.client.head(&session).await? < events {
            client.client.run(&session).await?;
        }
        long.push(session);
    }
    let mut result = LengthResult::default();
    for turn in 0..turns {
        for is_long in order(turn) {
            let cost = if is_long {
                client.change(&long, CHANGES).await?
            } else {
                let (mut sum, groups) = (0.0, CHANGES / CHANGES_SHORT);
                for _ in 0..groups {
                    let short = client.short_sessions().await?;
                    sum += client.change(&short, CHANGES_SHORT).await?;
                }
                sum / groups as f64
            };
            result.change_us.push(is_long, cost);
            let cost = if is_long {
                client.run(&long, RUNS).await?
            } else {
                let mut sum = 0.0;
                for _ in 0..RUNS {
                    let short = client.short_sessions().await?;
                    sum += client.run(&short, 1).await?;
                }
                sum / RUNS as f64
            };
            result.run_ms.push(is_long, cost);
        }
    }
    Ok(result)
}

/// A client that uses one session after the other.
struct GrowthClient<'a> {
    client: Client,
    running: &'a RunningTarget,
    /// Number of the last user or title.
    counter: usize,
}

impl GrowthClient<'_> {
    async fn session(&mut self) -> anyhow::Result<Session> {
        self.counter += 1;
        self.client.session("brief", self.counter).await
    }

    /// Creates sessions of [`EVENTS_FEW`] events.
    async fn short_sessions(&mut self) -> anyhow::Result<Vec<Session>> {
        let mut sessions = Vec::new();
        for _ in 0..SESSIONS_PER_GROUP {
            let session = self.session().await?;
            for _ in 1..EVENTS_FEW {
                self.rename(&session).await?;
            }
            sessions.push(session);
        }
        Ok(sessions)
    }

    async fn rename(&mut self, session: &Session) -> anyhow::Result<()> {
        self.counter += 1;
        self.client.rename(session, &format!("title {}", self.counter)).await
    }

    /// Changes the title of every session `each` times. Returns the microseconds per change.
    async fn change(&mut self, sessions: &[Session], each: usize) -> anyhow::Result<f64> {
        let before = self.running.server.own_cpu_seconds()?;
        for _ in 0..each {
            for session in sessions {
                self.rename(session).await?;
            }
        }
        let cpu = self.running.server.own_cpu_seconds()? - before;
        Ok(cpu * 1e6 / (each * sessions.len()) as f64)
    }

    /// Runs `each` runs in every session. Returns the milliseconds per run.
    async fn run(&mut self, sessions: &[Session], each: usize) -> anyhow::Result<f64> {
        let before = self.running.server.own_cpu_seconds()?;
        for _ in 0..each {
            for session in sessions {
                self.client.run(session).await?;
            }
        }
        let cpu = self.running.server.own_cpu_seconds()? - before;
        Ok(cpu * 1e3 / (each * sessions.len()) as f64)
    }
}

/// Compares runs in bursts on an empty database with those on a database of `events` events.
pub(crate) async fn measure_stored(
    provider: &Provider,
    events: u64,
    turns: usize,
) -> anyhow::Result<PairedCosts> {
    let greenroom = BenchTarget::Greenroom(Durability::Fsync);
    let mut sessions = 0;
    let folder = fill_database(provider, events, &mut sessions).await?;
    let few = greenroom.start(&provider.url()).await?;
    let many = greenroom.start_in(folder, &provider.url()).await?;
    for running in [&few, &many] {
        runs::measure(running, BURST, &mut sessions).await?;
    }
    let mut costs = PairedCosts::default();
    for turn in 0..turns {
        for is_many in order(turn) {
            let running = if is_many { &many } else { &few };
            let cost = runs::measure(running, BURST, &mut sessions).await?;
            costs.push(is_many, cost.cpu_ms);
        }
    }
    Ok(costs)
}

/// Creates a folder with a database of about `events` events, written by runs of the measured kind.
async fn fill_database(
    provider: &Provider,
    events: u64,
    sessions: &mut usize,
) -> anyhow::Result<TempDir> {
    let running = BenchTarget::Greenroom(Durability::Process).start(&provider.url()).await?;
    let mut client = Client::connect(&running).await?;
    let first = client.session(BURST.model, 0).await?;
    client.run(&first).await?;
    let events_per_run = client.head(&first).await?;
    let mut stored = events_per_run;
    while stored < events {
        let pool = ClientPool::connect(&running, BURST.model, FILLERS, sessions).await?;
        pool.run(Duration::ZERO).await?;
        stored += events_per_run * (FILLERS.0 * FILLERS.1) as u64;
        eprintln!("{stored} events stored");
    }
    Ok(running.crash())
}
