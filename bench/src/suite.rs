//! Runs all scenarios with all targets. Targets take turns in each repetition, so that other load on
//! the machine affects all of them.

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

/// With an interval of 20 ms between deltas, 200 clients receive 10,000 deltas per second.
const PACED_CLIENTS: usize = 200;
const BURST_CLIENTS: usize = 50;
/// Turns per repetition in bursts. Turns are short because a machine's speed changes within seconds.
const BURST_ROUNDS: usize = 5;

pub(crate) fn burst_load(runs: usize) -> RunLoad {
    RunLoad { model: "burst", clients: BURST_CLIENTS, runs, start_interval: Duration::ZERO }
}

/// Returns the paced load. The clients start evenly over the duration of one run.
pub(crate) fn paced_load(runs: usize) -> RunLoad {
    let run = PACE * DELTAS_PER_STEP * STEPS;
    let start_interval = run / u32::try_from(PACED_CLIENTS).unwrap_or(1);
    RunLoad { model: "paced", clients: PACED_CLIENTS, runs, start_interval }
}

#[derive(clap::Args)]
pub(crate) struct SuiteArgs {
    /// Repetitions of each measurement
    #[arg(long, default_value_t = 3)]
    repetitions: usize,
    /// Scenarios to run [default: all]
    #[arg(long, value_enum)]
    only: Vec<Scenario>,
    /// Skip the targets that need Node or Python
    #[arg(long)]
    without_peers: bool,
    /// Streaming sessions in the memory scenario
    #[arg(long, default_value_t = 5_000)]
    open_sessions: usize,
    /// Subscribers of the session in the fan-out scenario
    #[arg(long, default_value_t = 1_000)]
    subscribers: usize,
    /// Stored sessions in the cold-start scenario
    #[arg(long, default_value_t = 100_000)]
    stored_sessions: usize,
    /// Events of the long sessions in the growth scenario
    #[arg(long, default_value_t = 10_000)]
    session_events: u64,
    /// Stored events in the growth scenario
    #[arg(long, default_value_t = 1_000_000)]
    stored_events: u64,
    /// File for the tables
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
const MINIMAL: BenchTarget = BenchTarget::MinimalRelay(Durability::Fsync);
/// All targets: the relays, Greenroom, the peers.
const TARGETS: [BenchTarget; 8] = [
    BenchTarget::BareRelay,
    MINIMAL,
    BenchTarget::MinimalRelay(Durability::Process),
    GREENROOM,
    BenchTarget::Greenroom(Durability::Process),
    BenchTarget::AiSdk,
    BenchTarget::FastApi,
    BenchTarget::LangGraph,
];

/// A running target and its results.
struct TargetCosts {
    running: RunningTarget,
    burst: Vec<RunCost>,
    paced: Vec<RunCost>,
}

/// Runs the selected scenarios.
pub(crate) async fn run(arguments: &SuiteArgs) -> anyhow::Result<()> {
    let is_selected = |scenario| arguments.only.is_empty() || arguments.only.contains(&scenario);
    let provider = Provider::start(0)?;
    let mut report = String::new();
    let (burst, paced) = (is_selected(Scenario::Burst), is_selected(Scenario::Paced));
    if burst || paced {
        let tables = run_tables(arguments, &provider, burst, paced);
        report.push_str(&tables.await?);
    }
    if is_selected(Scenario::FanOut) {
        report.push_str(&fan_out_table(arguments, &provider).await?);
    }
    if is_selected(Scenario::Memory) {
        report.push_str(&memory_table(arguments, &provider).await?);
    }
    if is_selected(Scenario::ColdStart) {
        report.push_str(&cold_start_table(arguments, &provider).await?);
    }
    if is_selected(Scenario::Growth) {
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
    for target in TARGETS {
        if target.is_peer() && arguments.without_peers {
            continue;
        }
        let running = target.start(&provider.url()).await;
        let running = running.with_context(|| format!("{} did not start", target.name()))?;
        entries.push(TargetCosts { running, burst: Vec::new(), paced: Vec::new() });
    }
    let mut sessions = 0;
    // A warm-up: interpreters compile hot code, and pools fill.
    for entry in &entries {
        let warm_up = burst_load(6);
        runs::measure(&entry.running, warm_up, &mut sessions).await?;
    }
    for repetition in 1..=arguments.repetitions {
        for turn in 0..BURST_ROUNDS {
            for index in alternating_order(entries.len(), repetition + turn).filter(|_| burst) {
                let entry = &mut entries[index];
                let target = entry.running.target;
                if target.is_peer() && turn > 0 {
                    continue; // One turn of a peer takes as long as all turns of the others.
                }
                let cost = runs::measure(&entry.running, burst_load(8), &mut sessions).await?;
                eprintln!("{repetition}.{turn} burst {}: {cost:?}", target.name());
                entry.burst.push(cost);
            }
        }
        for index in alternating_order(entries.len(), repetition).filter(|_| paced) {
            let entry = &mut entries[index];
            let target = entry.running.target;
            let runs = if target.is_peer() { 2 } else { 4 };
            let cost = runs::measure(&entry.running, paced_load(runs), &mut sessions).await?;
            eprintln!("{repetition} paced {}: {cost:?}", target.name());
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
        writeln!(text, "## Paced runs (`paced`)\n\n{table}")?;
    }
    Ok(text)
}

/// Returns the indices in the order of a turn: ascending in even turns, descending in odd ones,
/// because a target can affect the measurement of the next one.
fn alternating_order(count: usize, turn: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |index| if turn.is_multiple_of(2) { index } else { count - 1 - index })
}

fn table_of_runs(
    entries: &[TargetCosts],
    costs_of: fn(&TargetCosts) -> &Vec<RunCost>,
    with_delays: bool,
) -> Table {
    let minimal = entries.iter().find(|entry| entry.running.target == MINIMAL);
    let minimal = minimal.map(costs_of).into_iter().flatten();
    let minimal: Vec<f64> = minimal.map(|cost| cost.cpu_ms).collect();
    let delays = ["delta p50, ms", "delta p99, ms", "first delta p50, ms"];
    let mut head = vec!["", "processor time per run, ms", "× minimal relay"];
    head.extend(delays.iter().filter(|_| with_delays));
    let mut table = Table::new(&head);
    for entry in entries {
        let costs = costs_of(entry);
        let column = |field: fn(&RunCost) -> f64| costs.iter().map(field).collect::<Vec<_>>();
        let cpu = column(|cost| cost.cpu_ms);
        // Each ratio is within one turn, since the machine's speed changes; peers have fewer turns.
        let minimal = minimal.iter().step_by((minimal.len() / cpu.len().max(1)).max(1));
        let ratios: Vec<f64> =
            cpu.iter().zip(minimal).map(|(cost, minimal)| cost / minimal).collect();
        let name = entry.running.target.name().to_owned();
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
        Table::new(&["", "processor time per delivery, µs", "delta p50, ms", "delta p99, ms"]);
    let running = [
        BenchTarget::BareRelay.start(&provider.url()).await?,
        GREENROOM.start(&provider.url()).await?,
    ];
    let cases = ["paced", "burst"]
        .iter()
        .flat_map(|model| running.iter().map(move |running| (*model, running)));
    let mut cases: Vec<_> = cases.map(|(model, running)| (model, running, Vec::new())).collect();
    let mut sessions = 0;
    for _ in 0..arguments.repetitions {
        for (model, running, results) in &mut cases {
            let subscribers = arguments.subscribers;
            results.push(fan_out::measure(running, model, subscribers, &mut sessions).await?);
        }
    }
    for (model, running, results) in &cases {
        let column = |field: fn(&fan_out::FanOutResult) -> f64| {
            results.iter().map(field).collect::<Vec<_>>()
        };
        let in_bursts = if *model == "burst" { ", in bursts" } else { "" };
        table.push(vec![
            format!("{}{in_bursts}", running.target.name()),
            format_median(&column(|result| result.cpu_us), 1),
            format_median(&column(|result| result.delay_ms_p50), 1),
            format_median(&column(|result| result.delay_ms_p99), 1),
        ]);
    }
    Ok(format!("## One session, {} subscribers (`fan-out`)\n\n{table}\n", arguments.subscribers))
}

async fn memory_table(arguments: &SuiteArgs, provider: &Provider) -> anyhow::Result<String> {
    let mut table =
        Table::new(&["", "idle process, MiB", "sessions", "per streaming session, KiB"]);
    for target in TARGETS {
        // `process` durability does not change the memory.
        let is_variant = matches!(
            target,
            BenchTarget::MinimalRelay(Durability::Process)
                | BenchTarget::Greenroom(Durability::Process)
        );
        if is_variant || target.is_peer() && arguments.without_peers {
            continue;
        }
        // The peers' HTTP clients limit their connections.
        let sessions = if target.is_peer() {
            arguments.open_sessions.min(500)
        } else {
            arguments.open_sessions
        };
        let repetitions = if target.is_peer() { 1 } else { arguments.repetitions };
        let mut results: Vec<MemoryResult> = Vec::new();
        for _ in 0..repetitions {
            results.push(memory::measure(target, provider, sessions).await?);
        }
        let column =
            |field: fn(&MemoryResult) -> f64| results.iter().map(field).collect::<Vec<_>>();
        table.push(vec![
            target.name().to_owned(),
            format_median(&column(|result| result.idle_mib), 1),
            sessions.to_string(),
            format_median(&column(|result| result.session_kib), 1),
        ]);
    }
    Ok(format!("## Memory (`memory`)\n\n{table}\n"))
}

async fn cold_start_table(arguments: &SuiteArgs, provider: &Provider) -> anyhow::Result<String> {
    let interrupted = 1_000;
    let mut results = Vec::new();
    for _ in 0..arguments.repetitions {
        results.push(cold_start::measure(provider, arguments.stored_sessions, interrupted).await?);
    }
    let column = |field: fn(&cold_start::ColdStartResult) -> f64| {
        results.iter().map(field).collect::<Vec<_>>()
    };
    let mut table = Table::new(&["Greenroom", ""]);
    let stored = arguments.stored_sessions;
    table.push(vec![
        format!("ready with {stored} sessions stored, s"),
        format_median(&column(|result| result.ready_s), 2),
    ]);
    table.push(vec![
        "memory when ready, MiB".to_owned(),
        format_median(&column(|result| result.resident_mib), 1),
    ]);
    table.push(vec![
        format!("{interrupted} interrupted runs resumed, s"),
        format_median(&column(|result| result.recovered_s), 2),
    ]);
    Ok(format!("## Cold start (`cold-start`)\n\n{table}\n"))
}

async fn growth_table(arguments: &SuiteArgs, provider: &Provider) -> anyhow::Result<String> {
    // Many short turns, since the ratio within a turn is what matters.
    let turns = arguments.repetitions * 5;
    let (session, stored) = (arguments.session_events, arguments.stored_events);
    let lengths = growth::measure_lengths(provider, session, turns).await?;
    let runs = growth::measure_stored(provider, stored, turns).await?;
    let mut table = Table::new(&["processor time of", "few", "many", "many / few"]);
    let mut row = |name: String, costs: &growth::PairedCosts, digits| {
        let [few_events, many_events] =
            [&costs.few_events, &costs.many_events].map(|costs| format_median(costs, digits));
        table.push(vec![name, few_events, many_events, format_median(&costs.ratios(), 2)]);
    };
    let sessions = format!("in a session of 10 events, of {session}");
    row(format!("a title change {sessions}, µs"), &lengths.change_us, 0);
    row(format!("a run {sessions}, ms"), &lengths.run_ms, 2);
    row(format!("a run in bursts, empty database, {stored} stored events, ms"), &runs, 2);
    Ok(format!("## Growth (`growth`)\n\n{turns} turns.\n\n{table}\n"))
}

/// Returns the head of the report: the version, the machine and the peers.
fn report_header(arguments: &SuiteArgs) -> String {
    let output_of = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        text.unwrap_or_default()
    };
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split(':').nth(1));
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!(
        "# Benchmark results\n\n\
         Written by `make bench`; [README.md](README.md) describes the measurement.\n\
         Medians of {} repetitions, with five turns each in bursts; minimum and maximum in parentheses.\n\n\
         - Greenroom at {}, {}\n\
         - {} cores of {}, Linux {}; load average at the end: {}\n\
         - peers: {}; {}\n\n",
        arguments.repetitions,
        output_of("git", &["describe", "--always", "--dirty"]),
        output_of("rustc", &["--version"]),
        std::thread::available_parallelism().map_or(1, usize::from).max(2),
        cpu.unwrap_or(" unknown").trim(),
        output_of("uname", &["--kernel-release"]),
        load.split(' ').next().unwrap_or_default(),
        "`ai` 7.0.173 on Node 24.21.0",
        "`fastapi` 0.165.0, `openai` 3.54.0 and `langgraph` 1.2.22 on Python 3.11",
    )
}
