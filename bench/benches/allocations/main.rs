//! What the parts allocate, counted exactly, beside the times that `parts` has measured: one table
//! each, printed, and written to the file that `--write` names. Run by `make bench-core`.

mod criterion_results;
#[path = "../parts/samples.rs"]
mod samples;
#[path = "../parts/session_driver.rs"]
mod session_driver;
#[path = "../parts/subscribers.rs"]
mod subscribers;

use allocation_counter::{AllocationInfo, measure};
use audience::{SubscriberGroup, sample_delta};
use greenroom::{dialect::Dialect, redaction::Redactor};
use greenroom_actors::feed::FeedItem;
use greenroom_core::model::{anthropic, delta::Delta, openai};
use samples::{ANTHROPIC, OPENAI, following};
use std::{env, fmt::Write as _, fs};
use world::SessionDriver;

/// How often each thing is done: what happens rarely, as a buffer that grows, is shared by all.
const ITERATIONS: u64 = 1_000;

fn main() {
    let mut table = String::from("| of one | allocations | bytes |\n|---|---|---|\n");
    let mut row = |name: &str, found: &AllocationInfo| {
        let each = |sum: u64| sum as f64 / ITERATIONS as f64;
        let (count, bytes) = (each(found.count_total), each(found.bytes_total));
        writeln!(table, "| {name} | {count:.1} | {bytes:.0} |").expect("writing to a string");
    };
    row("piece of text parsed, `anthropic`", &parsed_by_anthropic());
    row("piece of text parsed, `openai`", &parsed_by_openai());
    row("run through `decide` and `evolve`, the first", &runs(0));
    row("run through `decide` and `evolve`, after 1,000", &runs(1_000));
    for (name, item) in
        [("piece of text", samples::delta()), ("event, a tool's result,", samples::event())]
    {
        for (dialect, of) in [("agent", Dialect::Agent), ("task", Dialect::Task)] {
            row(&format!("{name} encoded, `{dialect}`"), &encoded(of, &item));
        }
        row(&format!("{name} encoded, `gateway`"), &encoded_for_gateway(&item));
    }
    for subscribers in [1, 1_000] {
        row(
            &format!("piece of text through the bus to {subscribers}"),
            &fan_out_allocations(subscribers),
        );
    }
    let report = format!(
        "# What the parts cost\n\n\
         Written by `make bench-core`; [README.md](README.md) says where whole runs are measured. \
         Compare rows with each other, not with other machines.\n\n\
         ## Time\n\nProcessor time: the median by criterion, and its 95% interval.\n\n{}\n\
         ## Allocations\n\nEach is the mean of {ITERATIONS}.\n\n{table}",
        criterion_results::table()
    );
    println!("{report}");
    let mut arguments = env::args().skip_while(|argument| argument != "--write").skip(1);
    if let Some(path) = arguments.next() {
        // Cargo runs it in the crate's folder.
        fs::write(path, report).expect("the file can be written");
    }
}

/// Each piece in a chunk of its own, as they come when they come one by one.
fn parsed_by_anthropic() -> AllocationInfo {
    let (mut parser, mut deltas) = (anthropic::Parser::new(), Vec::<Delta>::with_capacity(8));
    parser.push(ANTHROPIC.start.as_bytes(), &mut deltas).expect("good");
    measure(|| {
        for _ in 0..ITERATIONS {
            deltas.clear();
            parser.push(ANTHROPIC.piece.as_bytes(), &mut deltas).expect("good");
        }
    })
}

fn parsed_by_openai() -> AllocationInfo {
    let (mut parser, mut deltas) = (openai::Parser::new(), Vec::<Delta>::with_capacity(8));
    parser.push(OPENAI.start.as_bytes(), &mut deltas).expect("good");
    measure(|| {
        for _ in 0..ITERATIONS {
            deltas.clear();
            parser.push(OPENAI.piece.as_bytes(), &mut deltas).expect("good");
        }
    })
}

/// Each is of a session of just so many runs.
fn runs(before: u32) -> AllocationInfo {
    let world = SessionDriver::after_runs(before);
    let mut worlds = vec![world; ITERATIONS as usize];
    measure(|| worlds.iter_mut().for_each(SessionDriver::run))
}

fn encoded(dialect: Dialect, item: &FeedItem) -> AllocationInfo {
    let redactor = Redactor::default();
    measure(|| (0..ITERATIONS).for_each(|_| samples::encode(dialect, item, &redactor)))
}

fn encoded_for_gateway(item: &FeedItem) -> AllocationInfo {
    let (redactor, following) = (Redactor::default(), following());
    let encode = |_| samples::encode_for_gateway(item, &following, &redactor);
    measure(|| (0..ITERATIONS).for_each(encode))
}

fn fan_out_allocations(subscribers: usize) -> AllocationInfo {
    let system = actix::System::new();
    let audience = system.block_on(SubscriberGroup::start(subscribers));
    let pieces: Vec<_> = (0..ITERATIONS).map(|_| sample_delta()).collect();
    measure(|| {
        system.block_on(async {
            for piece in pieces {
                audience.tell(piece).await;
            }
        });
    })
}
