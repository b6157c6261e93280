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
    pub(crate) few_events: Vec<f64>,
    pub(crate) many_events: Vec<f64>,
}

/// A side of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    FewEvents,
    ManyEvents,
}

impl PairedCosts {
    /// Returns the ratio of many to few for each turn.
    pub(crate) fn ratios(&self) -> Vec<f64> {
        self.few_events.iter().zip(&self.many_events).map(|(few, many)| many / few).collect()
    }

    fn push(&mut self, side: Side, cost: f64) {
        match side {
            Side::FewEvents => self.few_events.push(cost),
            Side::ManyEvents => self.many_events.push(cost),
        }
    }
}

/// Returns the order of the two measurements in a turn.
fn measurement_order(turn: usize) -> [Side; 2] {
    if turn.is_multiple_of(2) {
        [Side::FewEvents, Side::ManyEvents]
    } else {
        [Side::ManyEvents, Side::FewEvents]
    }
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
        for side in measurement_order(turn) {
            let cost = match side {
                Side::ManyEvents => client.change(&long, CHANGES).await?,
                Side::FewEvents => {
                    let (mut sum, groups) = (0.0, CHANGES / CHANGES_SHORT);
                    for _ in 0..groups {
                        let short = client.short_sessions().await?;
                        sum += client.change(&short, CHANGES_SHORT).await?;
                    }
                    sum / groups as f64
                }
            };
            result.change_us.push(side, cost);
            let cost = match side {
                Side::ManyEvents => client.run(&long, RUNS).await?,
                Side::FewEvents => {
                    let mut sum = 0.0;
                    for _ in 0..RUNS {
                        let short = client.short_sessions().await?;
                        sum += client.run(&short, 1).await?;
                    }
                    sum / RUNS as f64
                }
            };
            result.run_ms.push(side, cost);
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

    /// Changes the title of every session `changes_per_session` times. Returns the microseconds per
    /// change.
    async fn change(
        &mut self,
        sessions: &[Session],
        changes_per_session: usize,
    ) -> anyhow::Result<f64> {
        let before = self.running.server.own_cpu_seconds()?;
        for _ in 0..changes_per_session {
            for session in sessions {
                self.rename(session).await?;
            }
        }
        let cpu = self.running.server.own_cpu_seconds()? - before;
        Ok(cpu * 1e6 / (changes_per_session * sessions.len()) as f64)
    }

    /// Runs `runs_per_session` runs in every session. Returns the milliseconds per run.
    async fn run(&mut self, sessions: &[Session], runs_per_session: usize) -> anyhow::Result<f64> {
        let before = self.running.server.own_cpu_seconds()?;
        for _ in 0..runs_per_session {
            for session in sessions {
                self.client.run(session).await?;
            }
        }
        let cpu = self.running.server.own_cpu_seconds()? - before;
        Ok(cpu * 1e3 / (runs_per_session * sessions.len()) as f64)
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
    let few_events = greenroom.start(&provider.url()).await?;
    let many_events = greenroom.start_in(folder, &provider.url()).await?;
    for running in [&few_events, &many_events] {
        runs::measure(running, BURST, &mut sessions).await?;
    }
    let mut costs = PairedCosts::default();
    for turn in 0..turns {
        for side in measurement_order(turn) {
            let running = match side {
                Side::FewEvents => &few_events,
                Side::ManyEvents => &many_events,
            };
            let cost = runs::measure(running, BURST, &mut sessions).await?;
            costs.push(side, cost.cpu_ms);
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
