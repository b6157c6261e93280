//! Whether an event costs the same however much there was before it: in a session of ten events and
//! in one of ten thousand, and with nothing else stored and with a million events in the way.
//!
//! Both sides take short turns, the first of them by turns, too; what counts is the ratio within one
//! turn. Models are told the end of a conversation alone (`brief` in `greenroom.toml`): what they are
//! told may cost what it is long, what was before it may not.

use crate::{
    load::{Client, ClientPool, Session},
    provider::Provider,
    scenario::runs::{self, RunLoad},
    target::{BenchTarget, Durability, RunningTarget},
};
use std::time::Duration;
use tempfile::TempDir;

/// Events of a short session before it is measured.
const EVENTS_FEW: u64 = 10;
/// Sessions that are spoken to in turn, so that neither side has all of the cache for one of them.
const SESSIONS_PER_GROUP: usize = 4;
/// Changes in a turn of each long session; short ones get them by tens, and stay short.
const CHANGES: usize = 200;
const CHANGES_SHORT: usize = 10;
/// Runs in a turn of each long session; short ones get one.
const RUNS: usize = 20;
/// What fills the database.
const FILLERS: (usize, usize) = (50, 40);
/// A turn where little and where much is stored.
const BURST: RunLoad =
    RunLoad { model: "burst", clients: 50, runs: 20, start_interval: Duration::ZERO };

/// What one thing cost where little was before it and where much was, a turn each.
#[derive(Debug, Default)]
pub(crate) struct PairedCosts {
    pub(crate) few: Vec<f64>,
    pub(crate) many: Vec<f64>,
}

impl PairedCosts {
    /// How much more it is where much was, turn by turn.
    pub(crate) fn ratios(&self) -> Vec<f64> {
        self.few.iter().zip(&self.many).map(|(few, many)| many / few).collect()
    }

    fn push(&mut self, is_many: bool, cost: f64) {
        if is_many { self.many.push(cost) } else { self.few.push(cost) }
    }
}

/// Whose turn it is, first and then.
fn order(turn: usize) -> [bool; 2] {
    let many_first = !turn.is_multiple_of(2);
    [many_first, !many_first]
}

/// What is found in long and in short sessions.
#[derive(Debug, Default)]
pub(crate) struct LengthResult {
    /// Microseconds of processor time of a change of the title, which is one event.
    pub(crate) change_us: PairedCosts,
    /// Milliseconds of a run.
    pub(crate) run_ms: PairedCosts,
}

/// Measures sessions of `events` events beside short ones.
pub(crate) async fn lengths(
    provider: &Provider,
    events: u64,
    turns: usize,
) -> anyhow::Result<LengthResult> {
    let running = BenchTarget::Greenroom(Durability::Fsync).start(&provider.url()).await?;
    let mut talk =
        GrowthClient { client: Client::connect(&running).await?, running: &running, told: 0 };
    let mut long = Vec::new();
    for _ in 0..SESSIONS_PER_GROUP {
        let session = talk.session().await?;
        while talk.client.head(&session).await? < events {
            talk.client.run(&session).await?;
        }
        long.push(session);
    }
    let mut found = LengthResult::default();
    for turn in 0..turns {
        for is_long in order(turn) {
            let cost = if is_long {
                talk.change(&long, CHANGES).await?
            } else {
                let (mut sum, groups) = (0.0, CHANGES / CHANGES_SHORT);
                for _ in 0..groups {
                    let short = talk.short().await?;
                    sum += talk.change(&short, CHANGES_SHORT).await?;
                }
                sum / groups as f64
            };
            found.change_us.push(is_long, cost);
            let cost = if is_long {
                talk.run(&long, RUNS).await?
            } else {
                let mut sum = 0.0;
                for _ in 0..RUNS {
                    let short = talk.short().await?;
                    sum += talk.run(&short, 1).await?;
                }
                sum / RUNS as f64
            };
            found.run_ms.push(is_long, cost);
        }
    }
    Ok(found)
}

/// One client that speaks to one session after the other.
struct GrowthClient<'a> {
    client: Client,
    running: &'a RunningTarget,
    /// Numbers users and titles.
    told: usize,
}

impl GrowthClient<'_> {
    async fn session(&mut self) -> anyhow::Result<Session> {
        self.told += 1;
        self.client.session("brief", self.told).await
    }

    /// Sessions of so few events.
    async fn short(&mut self) -> anyhow::Result<Vec<Session>> {
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
        self.told += 1;
        self.client.rename(session, &format!("title {}", self.told)).await
    }

    /// Microseconds of one of `each` changes to every session.
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

    /// Milliseconds of one of `each` runs in every session.
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

/// Milliseconds of a run in bursts, where nothing was stored and where `events` events were.
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
    let mut found = PairedCosts::default();
    for turn in 0..turns {
        for is_many in order(turn) {
            let running = if is_many { &many } else { &few };
            let cost = runs::measure(running, BURST, &mut sessions).await?;
            found.push(is_many, cost.cpu_ms);
        }
    }
    Ok(found)
}

/// A folder with a database of so many events, which runs like those that are measured have left.
async fn fill_database(
    provider: &Provider,
    events: u64,
    sessions: &mut usize,
) -> anyhow::Result<TempDir> {
    let running = BenchTarget::Greenroom(Durability::Process).start(&provider.url()).await?;
    let mut client = Client::connect(&running).await?;
    let first = client.session(BURST.model, 0).await?;
    client.run(&first).await?;
    let of_each = client.head(&first).await?;
    let mut stored = of_each;
    while stored < events {
        let crowd = ClientPool::connect(&running, BURST.model, FILLERS, sessions).await?;
        crowd.run(Duration::ZERO).await?;
        stored += of_each * (FILLERS.0 * FILLERS.1) as u64;
        eprintln!("{stored} events stored");
    }
    Ok(running.crash())
}
