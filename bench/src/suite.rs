//! All scenarios with all contestants, in one go: repetitions take turns, so that whatever else the
//! machine does falls on all alike.

use crate::{
    delta_marker::{DELTAS_PER_STEP, STEPS},
    provider::{PACE, Provider},
    report::{Table, format_median},
    scenario::{
        cold_start, fan_out, growth,
        memory::{self, MemoryResult},
        runs::{self, RunCost, RunLoad},
    },
    target::{BenchTarget, Durability, RunningTarget},
};
use anyhow::Context as _;
use std::{fmt::Write as _, path::PathBuf, process::Command, time::Duration};

/// Deltas of one step come 20 ms apart, so these make 10,000 in a second.
const PACED_CLIENTS: usize = 200;
const BURST_CLIENTS: usize = 50;
/// Turns of one repetition in bursts. Short ones, as a machine may be half as fast a second later.
const BURST_ROUNDS: usize = 5;

pub(crate) fn burst_load(runs: usize) -> RunLoad {
    RunLoad { model: "burst", clients: BURST_CLIENTS, runs, start_interval: Duration::ZERO }
}

/// The clients begin evenly over the time that one run takes, so that they do not speak in chorus.
pub(crate) fn paced_load(runs: usize) -> RunLoad {
    let run = PACE * DELTAS_PER_STEP * STEPS;
    let apart = run / u32::try_from(PACED_CLIENTS).unwrap_or(1);
    RunLoad { model: "paced", clients: PACED_CLIENTS, runs, start_interval: apart }
}

#[derive(clap::Args)]
pub(crate) struct SuiteArgs {
    /// How often each thing is measured.
    #[arg(long, default_value_t = 3)]
    repetitions: usize,
    /// What to measure; everything unless named.
    #[arg(long, value_enum)]
    only: Vec<Scenario>,
    /// Leave out what needs Node and Python.
    #[arg(long)]
    without_peers: bool,
    /// Sessions that stream at once while memory is measured.
    #[arg(long, default_value_t = 5_000)]
    open_sessions: usize,
    /// Subscribers of one session.
    #[arg(long, default_value_t = 1_000)]
    subscribers: usize,
    /// Sessions that are stored before a start.
    #[arg(long, default_value_t = 100_000)]
    stored_sessions: usize,
    /// Events of the sessions that are long.
    #[arg(long, default_value_t = 10_000)]
    session_events: u64,
    /// Events that are stored where there are many.
    #[arg(long, default_value_t = 1_000_000)]
    stored_events: u64,
    /// Where the tables go.
    #[arg(long)]
    write: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Scenario {
    Burst,
    Paced,
    Memory,
    FanOut,
    ColdStart,
    Growth,
}

const GREENROOM: BenchTarget = BenchTarget::Greenroom(Durability::Fsync);
const LEAST: BenchTarget = BenchTarget::MinimalRelay(Durability::Fsync);
/// The limits first, then we, then the peers.
const CONTESTANTS: [BenchTarget; 8] = [
    BenchTarget::BareRelay,
    LEAST,
    BenchTarget::MinimalRelay(Durability::Process),
    GREENROOM,
    BenchTarget::Greenroom(Durability::Process),
    BenchTarget::AiSdk,
    BenchTarget::FastApi,
    BenchTarget::LangGraph,
];

/// A contestant that is running, with what was found of it.
struct TargetCosts {
    running: RunningTarget,
    burst: Vec<RunCost>,
    paced: Vec<RunCost>,
}

/// Measures what is asked for.
pub(crate) async fn run(arguments: &SuiteArgs) -> anyhow::Result<()> {
    let wants = |scenario| arguments.only.is_empty() || arguments.only.contains(&scenario);
    let provider = Provider::start(0)?;
    let mut report = String::new();
    if wants(Scenario::Burst) || wants(Scenario::Paced) {
        let tables =
            run_tables(arguments, &provider, wants(Scenario::Burst), wants(Scenario::Paced));
        report.push_str(&tables.await?);
    }
    if wants(Scenario::FanOut) {
        report.push_str(&fan_out_table(arguments, &provider).await?);
    }
    if wants(Scenario::Memory) {
        report.push_str(&memory_table(arguments, &provider).await?);
    }
    if wants(Scenario::ColdStart) {
        report.push_str(&cold_start_table(arguments, &provider).await?);
    }
    if wants(Scenario::Growth) {
        report.push_str(&growth_table(arguments, &provider).await?);
    }
    println!("{report}");
    if let Some(path) = &arguments.write {
        let text = format!("{}{report}", report_header(arguments));
        std::fs::write(path, text).with_context(|| format!("can't write {}", path.display()))?;
    }
    Ok(())
}

async fn run_tables(
    arguments: &SuiteArgs,
    provider: &Provider,
    burst: bool,
    paced: bool,
) -> anyhow::Result<String> {
    let mut entries = Vec::new();
    for contestant in CONTESTANTS {
        if contestant.is_peer() && arguments.without_peers {
            continue;
        }
        let running = contestant.start(&provider.url()).await;
        let running = running.with_context(|| format!("{} did not start", contestant.name()))?;
        entries.push(TargetCosts { running, burst: Vec::new(), paced: Vec::new() });
    }
    let mut sessions = 0;
    // Interpreters compile what is hot, and pools fill.
    for entry in &entries {
        let warm_up = burst_load(6);
        runs::measure(&entry.running, warm_up, &mut sessions).await?;
    }
    for repetition in 1..=arguments.repetitions {
        for turn in 0..BURST_ROUNDS {
            for at in alternating_order(entries.len(), repetition + turn).filter(|_| burst) {
                let entry = &mut entries[at];
                let contestant = entry.running.contestant;
                if contestant.is_peer() && turn > 0 {
                    continue; // One turn of them takes as long as all of the others'.
                }
                let cost = runs::measure(&entry.running, burst_load(8), &mut sessions).await?;
                eprintln!("{repetition}.{turn} burst {}: {cost:?}", contestant.name());
                entry.burst.push(cost);
            }
        }
        for at in alternating_order(entries.len(), repetition).filter(|_| paced) {
            let entry = &mut entries[at];
            let contestant = entry.running.contestant;
            let runs = if contestant.is_peer() { 2 } else { 4 };
            let cost = runs::measure(&entry.running, paced_load(runs), &mut sessions).await?;
            eprintln!("{repetition} paced {}: {cost:?}", contestant.name());
            entry.paced.push(cost);
        }
    }
    let mut text = String::new();
    if burst {
        let table = table_of_runs(&entries, |entry| &entry.burst, false);
        writeln!(text, "## Runs in bursts (`burst`)\n\n{table}")?;
    }
    if paced {
        let table = table_of_runs(&entries, |entry| &entry.paced, true);
        writeln!(text, "## Runs whose deltas come one by one (`paced`)\n\n{table}")?;
    }
    Ok(text)
}

/// Places in the order of that turn: who comes after another finds the machine as that one left it.
fn alternating_order(places: usize, turn: usize) -> impl Iterator<Item = usize> {
    (0..places).map(move |place| if turn.is_multiple_of(2) { place } else { places - 1 - place })
}

fn table_of_runs(
    entries: &[TargetCosts],
    of: fn(&TargetCosts) -> &Vec<RunCost>,
    with_delays: bool,
) -> Table {
    let least = entries.iter().find(|entry| entry.running.contestant == LEAST);
    let least: Vec<f64> = least.map(of).into_iter().flatten().map(|cost| cost.cpu_ms).collect();
    let delays = ["delta p50, ms", "delta p99, ms", "first delta p50, ms"];
    let mut head = vec!["", "processor time of a run, ms", "× least full"];
    head.extend(delays.iter().filter(|_| with_delays));
    let mut table = Table::new(&head);
    for entry in entries {
        let costs = of(entry);
        let column = |field: fn(&RunCost) -> f64| costs.iter().map(field).collect::<Vec<_>>();
        let cpu = column(|cost| cost.cpu_ms);
        // Of one turn each, since the machine is not the same in all; peers have fewer.
        let least = least.iter().step_by((least.len() / cpu.len().max(1)).max(1));
        let ratios: Vec<f64> = cpu.iter().zip(least).map(|(own, least)| own / least).collect();
        let name = entry.running.contestant.name().to_owned();
        let mut row = vec![name, format_median(&cpu, 2), format_median(&ratios, 2)];
        if with_delays {
            row.push(format_median(&column(|cost| cost.delay_ms_p50), 2));
            row.push(format_median(&column(|cost| cost.delay_ms_p99), 1));
            row.push(format_median(&column(|cost| cost.first_ms_p50), 1));
        }
        table.push(row);
    }
    table
}

async fn fan_out_table(arguments: &SuiteArgs, provider: &Provider) -> anyhow::Result<String> {
    let mut table =
        Table::new(&["", "processor time of a delivery, µs", "delta p50, ms", "delta p99, ms"]);
    let running = [
        BenchTarget::BareRelay.start(&provider.url()).await?,
        GREENROOM.start(&provider.url()).await?,
    ];
    let ways =
        ["paced", "burst"].iter().flat_map(|model| running.iter().map(move |of| (*model, of)));
    let mut found: Vec<_> = ways.map(|(model, running)| (model, running, Vec::new())).collect();
    let mut sessions = 0;
    for _ in 0..arguments.repetitions {
        for (model, running, found) in &mut found {
            let subscribers = arguments.subscribers;
            found.push(fan_out::measure(running, model, subscribers, &mut sessions).await?);
        }
    }
    for (model, running, found) in &found {
        let column =
            |field: fn(&fan_out::FanOutResult) -> f64| found.iter().map(field).collect::<Vec<_>>();
        let in_bursts = if *model == "burst" { ", in bursts" } else { "" };
        table.push(vec![
            format!("{}{in_bursts}", running.contestant.name()),
            format_median(&column(|told| told.cpu_us), 1),
            format_median(&column(|told| told.delay_ms_p50), 1),
            format_median(&column(|told| told.delay_ms_p99), 1),
        ]);
    }
    Ok(format!("## One session, {} subscribers (`fan-out`)\n\n{table}\n", arguments.subscribers))
}

async fn memory_table(arguments: &SuiteArgs, provider: &Provider) -> anyhow::Result<String> {
    let mut table =
        Table::new(&["", "idle process, MiB", "sessions", "each while it streams, KiB"]);
    for contestant in CONTESTANTS {
        let is_twin = matches!(
            contestant,
            BenchTarget::MinimalRelay(Durability::Process)
                | BenchTarget::Greenroom(Durability::Process)
        );
        if is_twin || contestant.is_peer() && arguments.without_peers {
            continue;
        }
        // The clients of peers have limits of their own on connections.
        let sessions = if contestant.is_peer() {
            arguments.open_sessions.min(500)
        } else {
            arguments.open_sessions
        };
        let repetitions = if contestant.is_peer() { 1 } else { arguments.repetitions };
        let mut found: Vec<MemoryResult> = Vec::new();
        for _ in 0..repetitions {
            found.push(memory::measure(contestant, provider, sessions).await?);
        }
        let column = |field: fn(&MemoryResult) -> f64| found.iter().map(field).collect::<Vec<_>>();
        table.push(vec![
            contestant.name().to_owned(),
            format_median(&column(|occupied| occupied.idle_mib), 1),
            sessions.to_string(),
            format_median(&column(|occupied| occupied.session_kib), 1),
        ]);
    }
    Ok(format!("## Memory (`memory`)\n\n{table}\n"))
}

async fn cold_start_table(arguments: &SuiteArgs, provider: &Provider) -> anyhow::Result<String> {
    let interrupted = 1_000;
    let mut found = Vec::new();
    for _ in 0..arguments.repetitions {
        found.push(cold_start::measure(provider, arguments.stored_sessions, interrupted).await?);
    }
    let column = |field: fn(&cold_start::ColdStartResult) -> f64| {
        found.iter().map(field).collect::<Vec<_>>()
    };
    let mut table = Table::new(&["Greenroom", ""]);
    let stored = arguments.stored_sessions;
    table.push(vec![
        format!("ready with {stored} sessions stored, s"),
        format_median(&column(|started| started.ready_s), 2),
    ]);
    table.push(vec![
        "it occupies then, MiB".to_owned(),
        format_median(&column(|started| started.resident_mib), 1),
    ]);
    table.push(vec![
        format!("{interrupted} interrupted runs go on after, s"),
        format_median(&column(|started| started.recovered_s), 2),
    ]);
    Ok(format!("## Cold start (`cold-start`)\n\n{table}\n"))
}

async fn growth_table(arguments: &SuiteArgs, provider: &Provider) -> anyhow::Result<String> {
    // Short turns, and many of them: the ratio is what matters.
    let turns = arguments.repetitions * 5;
    let (session, stored) = (arguments.session_events, arguments.stored_events);
    let lengths = growth::lengths(provider, session, turns).await?;
    let runs = growth::measure_stored(provider, stored, turns).await?;
    let mut table = Table::new(&["processor time of", "few", "many", "many / few"]);
    let mut row = |name: String, found: &growth::PairedCosts, digits| {
        let [few, many] = [&found.few, &found.many].map(|costs| format_median(costs, digits));
        table.push(vec![name, few, many, format_median(&found.ratios(), 2)]);
    };
    let sessions = format!("in a session of 10 events, of {session}");
    row(format!("a change of the title {sessions}, µs"), &lengths.change_us, 0);
    row(format!("a run {sessions}, ms"), &lengths.run_ms, 2);
    row(format!("a run in bursts, nothing stored before, {stored} events, ms"), &runs, 2);
    Ok(format!("## As work grows (`growth`)\n\n{turns} turns.\n\n{table}\n"))
}

/// Where and with what it was measured.
fn report_header(arguments: &SuiteArgs) -> String {
    let says = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        text.unwrap_or_default()
    };
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split(':').nth(1));
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!(
        "# What it costs\n\n\
         Written by `make bench`, which repeats it; [README.md](README.md) says what is measured and how.\n\
         Medians of {} repetitions that took turns, five turns each in bursts, with the least and the most.\n\n\
         - Greenroom at {}, {}\n\
         - {} cores of {}, Linux {}; load of the machine at the end: {}\n\
         - peers: {}; {}\n\n",
        arguments.repetitions,
        says("git", &["describe", "--always", "--dirty"]),
        says("rustc", &["--version"]),
        std::thread::available_parallelism().map_or(1, usize::from).max(2),
        cpu.unwrap_or(" unknown").trim(),
        says("uname", &["--kernel-release"]),
        load.split(' ').next().unwrap_or_default(),
        "`ai` 7.0.173 on Node 24.21.0",
        "`fastapi` 0.165.0, `openai` 3.54.0 and `langgraph` 1.2.22 on Python 3.11",
    )
}
