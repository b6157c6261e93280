//! Counts the allocations of the components and combines them with the times measured by `parts`.
//!
//! Prints both tables, and writes them to the file given by `--write`. Run by `make bench-core`.

mod criterion_results;
#[path = "../parts/samples.rs"]
mod samples;
#[path = "../parts/session_driver.rs"]
mod session_driver;
#[path = "../parts/subscribers.rs"]
mod subscribers;

use allocation_counter::{AllocationInfo, measure};
use greenroom::{dialect::Dialect, redaction::Redactor};
use greenroom_actors::feed::FeedItem;
use greenroom_core::model::{anthropic, delta::Delta, openai};
use samples::{ANTHROPIC, OPENAI, followed_run};
use session_driver::SessionDriver;
use std::{env, fmt::Write as _, fs};
use subscribers::{SubscriberGroup, sample_delta};

/// Iterations of each measurement. Rare allocations, such as growing a buffer, are averaged.
const ITERATIONS: u64 = 1_000;

fn main() {
    let mut table = String::from("| per item | allocations | bytes |\n|---|---|---|\n");
    let mut row = |name: &str, info: &AllocationInfo| {
        let per_item = |sum: u64| sum as f64 / ITERATIONS as f64;
        let (count, bytes) = (per_item(info.count_total), per_item(info.bytes_total));
        writeln!(table, "| {name} | {count:.1} | {bytes:.0} |").expect("writing to a string");
    };
    row("text delta parsed, `anthropic`", &parse_anthropic());
    row("text delta parsed, `openai`", &parse_openai());
    row("run through `decide` and `evolve`, the first", &decide_runs(0));
    row("run through `decide` and `evolve`, after 1,000", &decide_runs(1_000));
    for (name, item) in
        [("text delta", samples::delta()), ("event, a tool's result,", samples::event())]
    {
        for (name_of_dialect, dialect) in [("agent", Dialect::Agent), ("task", Dialect::Task)] {
            row(&format!("{name} encoded, `{name_of_dialect}`"), &encode(dialect, &item));
        }
        row(&format!("{name} encoded, `gateway`"), &encode_for_gateway(&item));
    }
    for subscribers in [1, 1_000] {
        row(&format!("text delta through the bus to {subscribers}"), &fan_out(subscribers));
    }
    let report = format!(
        "# Cost of the components\n\n\
         Written by `make bench-core`; [README.md](README.md) describes the measurement of whole runs. \
         Compare rows with each other, not with other machines.\n\n\
         ## Time\n\nProcessor time: median and 95% interval by criterion.\n\n{}\n\
         ## Allocations\n\nMean of {ITERATIONS} iterations.\n\n{table}",
        criterion_results::table()
    );
    println!("{report}");
    let mut arguments = env::args().skip_while(|argument| argument != "--write").skip(1);
    if let Some(path) = arguments.next() {
        // Cargo runs the benchmark in the folder of the crate.
        fs::write(path, report).expect("the report can be written");
    }
}

/// Parses deltas that arrive one per chunk.
fn parse_anthropic() -> AllocationInfo {
    let (mut parser, mut deltas) = (anthropic::Parser::new(), Vec::<Delta>::with_capacity(8));
    parser.push(ANTHROPIC.start.as_bytes(), &mut deltas).expect("valid stream");
    measure(|| {
        for _ in 0..ITERATIONS {
            deltas.clear();
            parser.push(ANTHROPIC.delta.as_bytes(), &mut deltas).expect("valid stream");
        }
    })
}

fn parse_openai() -> AllocationInfo {
    let (mut parser, mut deltas) = (openai::Parser::new(), Vec::<Delta>::with_capacity(8));
    parser.push(OPENAI.start.as_bytes(), &mut deltas).expect("valid stream");
    measure(|| {
        for _ in 0..ITERATIONS {
            deltas.clear();
            parser.push(OPENAI.delta.as_bytes(), &mut deltas).expect("valid stream");
        }
    })
}

/// Runs one run in each of [`ITERATIONS`] sessions that have `previous_runs` runs.
fn decide_runs(previous_runs: u32) -> AllocationInfo {
    let driver = SessionDriver::after_runs(previous_runs);
    let mut drivers = vec![driver; ITERATIONS as usize];
    measure(|| drivers.iter_mut().for_each(SessionDriver::run))
}

fn encode(dialect: Dialect, item: &FeedItem) -> AllocationInfo {
    let redactor = Redactor::default();
    measure(|| (0..ITERATIONS).for_each(|_| samples::encode(dialect, item, &redactor)))
}

fn encode_for_gateway(item: &FeedItem) -> AllocationInfo {
    let (redactor, run) = (Redactor::default(), followed_run());
    let encode = |_| samples::encode_for_gateway(item, &run, &redactor);
    measure(|| (0..ITERATIONS).for_each(encode))
}

fn fan_out(subscribers: usize) -> AllocationInfo {
    let system = actix::System::new();
    let group = system.block_on(SubscriberGroup::start(subscribers));
    let deltas: Vec<_> = (0..ITERATIONS).map(|_| sample_delta()).collect();
    measure(|| {
        system.block_on(async {
            for delta in deltas {
                group.publish_delta(delta).await;
            }
        });
    })
}
