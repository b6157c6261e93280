//! Measures the processor time of single components; run by `make bench-core`. Compare rows with each
//! other, not with other machines. `bench/README.md` describes the measurement of whole runs.

mod processor_time;
mod samples;
mod session_driver;
mod subscribers;

use criterion::{BatchSize, Criterion, Throughput};
use futures::future::join_all;
use greenroom::{
    dialect::Dialect,
    redaction::Redactor,
    store::{Durability, Store, StoreOptions},
};
use greenroom_actors::ports::{Commit, Journal as _};
use greenroom_core::{
    ids::{Seq, SessionId, UserId},
    model::{anthropic, delta::Delta, openai},
    session::{Projection, SessionEvent},
};
use processor_time::ProcessorTime;
use samples::{ANTHROPIC, OPENAI, WireSample, followed_run, message_id, record};
use session_driver::SessionDriver;
use subscribers::{SubscriberGroup, sample_delta};
use uuid::Uuid;

/// Text deltas in a parsed stream.
const DELTAS: u64 = 1_000;

type CpuCriterion = Criterion<ProcessorTime>;

fn main() {
    let mut criterion = Criterion::default().with_measurement(ProcessorTime).configure_from_args();
    parsers(&mut criterion);
    runs(&mut criterion);
    encoders(&mut criterion);
    appends(&mut criterion);
    fan_out(&mut criterion);
    criterion.final_summary();
}

fn parsers(criterion: &mut CpuCriterion) {
    let stream = |wire: WireSample| format!("{}{}", wire.start, wire.delta.repeat(DELTAS as usize));
    let (anthropic, openai) = (stream(ANTHROPIC), stream(OPENAI));
    let mut group = criterion.benchmark_group("parser, text deltas");
    group.throughput(Throughput::Elements(DELTAS));
    group.bench_function("anthropic", |bencher| {
        bencher.iter(|| {
            let mut deltas: Vec<Delta> = Vec::new();
            anthropic::Parser::new().push(anthropic.as_bytes(), &mut deltas).expect("valid stream");
            deltas.len()
        });
    });
    group.bench_function("openai", |bencher| {
        bencher.iter(|| {
            let mut deltas: Vec<Delta> = Vec::new();
            openai::Parser::new().push(openai.as_bytes(), &mut deltas).expect("valid stream");
            deltas.len()
        });
    });
}

/// Measures one run in sessions of different length. The cost should not depend on the length.
fn runs(criterion: &mut CpuCriterion) {
    let mut group = criterion.benchmark_group("decide and evolve, runs of two steps and a call");
    for previous_runs in [0, 1_000, 10_000] {
        group.bench_function(format!("after {previous_runs} runs"), |bencher| {
            let driver = SessionDriver::after_runs(previous_runs);
            let run = |mut driver: SessionDriver| {
                driver.run();
                driver
            };
            bencher.iter_batched(|| driver.clone(), run, BatchSize::SmallInput);
        });
    }
}

fn encoders(criterion: &mut CpuCriterion) {
    let (redactor, run) = (Redactor::default(), followed_run());
    let mut group = criterion.benchmark_group("encoder, frames");
    for (name, item) in [("delta", samples::delta()), ("event", samples::event())] {
        for (name_of_dialect, dialect) in [("agent", Dialect::Agent), ("task", Dialect::Task)] {
            group.bench_function(format!("{name_of_dialect}, {name}"), |bencher| {
                bencher.iter(|| samples::encode(dialect, &item, &redactor));
            });
        }
        group.bench_function(format!("gateway, {name}"), |bencher| {
            bencher.iter(|| samples::encode_for_gateway(&item, &run, &redactor));
        });
    }
}

/// Builds a commit of one event of about 400 bytes after `head`.
fn commit(session_id: SessionId, head: u64) -> Commit {
    let text = "x".repeat(400).into();
    let digest = greenroom_core::json::Digest::hash_bytes(b"x");
    let authors = UserId::parse("ann").expect("a valid id").into();
    let accepted =
        SessionEvent::MessageAccepted { message_id: message_id(), text, digest, authors };
    Commit {
        session_id,
        expected_head: Seq(head),
        records: [record(head + 1, accepted)].into(),
        projection: Projection::default(),
    }
}

fn appends(criterion: &mut CpuCriterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("the runtime starts");
    let mut group = criterion.benchmark_group("journal, appends");
    for durability in [Durability::Fsync, Durability::Process] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let options = StoreOptions { durability, ..StoreOptions::default() };
        let path = folder.path().join("bench.db");
        let store =
            runtime.block_on(Store::open(path.as_path(), options)).expect("the store opens");
        for sessions in [1, 50] {
            let mut head = 0;
            let ids: Vec<_> = (0..sessions).map(|_| SessionId(Uuid::now_v7())).collect();
            group.throughput(Throughput::Elements(sessions));
            group.bench_function(format!("{durability:?}, {sessions} at once"), |bencher| {
                bencher.iter(|| {
                    let appends = ids.iter().map(|id| store.append(commit(*id, head)));
                    for result in runtime.block_on(join_all(appends)) {
                        result.expect("the head matches");
                    }
                    head += 1;
                });
            });
        }
    }
}

fn fan_out(criterion: &mut CpuCriterion) {
    let system = actix::System::new();
    let mut group = criterion.benchmark_group("bus, a text delta to subscribers");
    for subscribers in [1_usize, 1_000] {
        group.throughput(Throughput::Elements(subscribers as u64));
        group.bench_function(subscribers.to_string(), |bencher| {
            let group = system.block_on(SubscriberGroup::start(subscribers));
            let publish = |delta| system.block_on(group.publish_delta(delta));
            bencher.iter_batched(sample_delta, publish, BatchSize::SmallInput);
        });
    }
}
