//! What the parts cost alone: `make bench-core`. Compare rows with each other, not with other
//! machines; `bench/README.md` says where whole runs are measured.

mod world;

use actix::{Actor, Context, Handler};
use criterion::{BatchSize, Criterion, Throughput};
use futures::future::join_all;
use greenroom::{
    dialect::{Dialect, gateway},
    redaction::Redactor,
    startup::SystemClock,
    store::{Durability, Store, StoreOptions},
};
use greenroom_actors::{
    event_bus::{Attach, Attachment, EventBus, Heard, Live, Peek, Publish},
    feed::{FeedItem, FeedKind},
    observation::Board,
    ports::{Commit, Journal as _, NoMeter},
};
use greenroom_core::{
    Timestamp,
    cursor::Cursor,
    ids::{AgentName, MessageId, RunId, Seq, SessionId},
    model::{
        anthropic,
        delta::{Delta, StopReason},
        openai,
    },
    session::{EventRecord, Projection, SessionEvent},
};
use std::{cell::Cell, hint::black_box, sync::Arc, time::Duration};
use uuid::Uuid;
use world::World;

/// Pieces of text in a stream that is parsed.
const DELTAS: u64 = 1_000;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    parsers(&mut criterion);
    runs(&mut criterion);
    encoders(&mut criterion);
    appends(&mut criterion);
    fan_out(&mut criterion);
    criterion.final_summary();
}

fn parsers(criterion: &mut Criterion) {
    let piece = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"twelve chars\"}}\n\n";
    let start = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":1}}}\n\n\
                 event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n";
    let anthropic = format!("{start}{}", piece.repeat(DELTAS as usize));
    let piece = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"twelve chars\"},\"finish_reason\":null}]}\n\n";
    let openai = piece.repeat(DELTAS as usize);
    let mut group = criterion.benchmark_group("parser, pieces of text");
    group.throughput(Throughput::Elements(DELTAS));
    group.bench_function("anthropic", |bencher| {
        bencher.iter(|| {
            let mut deltas: Vec<Delta> = Vec::new();
            anthropic::Parser::new().push(anthropic.as_bytes(), &mut deltas).expect("good");
            deltas.len()
        });
    });
    group.bench_function("openai", |bencher| {
        bencher.iter(|| {
            let mut deltas: Vec<Delta> = Vec::new();
            openai::Parser::new().push(openai.as_bytes(), &mut deltas).expect("good");
            deltas.len()
        });
    });
}

/// The same however long a session is.
fn runs(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decide and evolve, runs of two steps and a call");
    for before in [0, 1_000] {
        group.bench_function(format!("after {before} runs"), |bencher| {
            let mut world = World::new();
            (0..before).for_each(|_| world.run());
            bencher.iter(|| world.run());
        });
    }
}

fn item(kind: FeedKind) -> FeedItem {
    let agent = AgentName::parse("trader").expect("a name");
    let cursor = Cursor { seq: Seq(7), offset: 300 };
    FeedItem { session_id: SessionId(Uuid::from_u128(1)), agent, cursor, kind }
}

fn message_id() -> MessageId {
    MessageId::parse("0198c0de-0000-7000-8000-000000000001").expect("an id")
}

fn encoders(criterion: &mut Criterion) {
    let run_id = RunId(Uuid::from_u128(2));
    let text = "twelve chars".into();
    let delta = item(FeedKind::Delta { run_id, step: 1, message_id: message_id(), text });
    let text = "Some forty words of text would stand here. ".repeat(8);
    let completed = SessionEvent::MessageCompleted {
        message_id: message_id(),
        text,
        reasoning: Vec::new(),
        stop_reason: StopReason::EndTurn,
        stopped: false,
    };
    let event = item(FeedKind::Event(record(7, completed).into()));
    let (redactor, at) = (Redactor::default(), Timestamp(1));
    let mut group = criterion.benchmark_group("encoder, frames");
    for (name, item) in [("delta", &delta), ("event", &event)] {
        for (dialect, of) in [("agent", Dialect::Agent), ("task", Dialect::Task)] {
            group.bench_function(format!("{dialect}, {name}"), |bencher| {
                bencher.iter(|| {
                    of.encode(item, at, &redactor, |frame| {
                        black_box(serde_json::to_string(&frame.flat()).unwrap_or_default());
                    });
                });
            });
        }
        let following = gateway::Following {
            request_id: message_id(),
            taken: Seq(1),
            model: "m".to_owned(),
            details: false,
            asked: gateway::Asked::default(),
        };
        group.bench_function(format!("gateway, {name}"), |bencher| {
            bencher.iter(|| {
                gateway::encode(item, &following, at, &redactor, &mut |frame| {
                    black_box(frame);
                });
            });
        });
    }
}

fn record(seq: u64, event: SessionEvent) -> EventRecord {
    let run_id = Some(RunId(Uuid::from_u128(2)));
    EventRecord { seq: Seq(seq), at: Timestamp(1), run_id, step: Some(1), event }
}

/// An event of about 400 bytes after `head`.
fn commit(session_id: SessionId, head: u64) -> Commit {
    let text = "x".repeat(400).into();
    let digest = greenroom_core::json::Digest::of_bytes(b"x");
    let accepted = SessionEvent::MessageAccepted { message_id: message_id(), text, digest };
    Commit {
        session_id,
        expected_head: Seq(head),
        records: [record(head + 1, accepted)].into(),
        projection: Projection::default(),
    }
}

fn appends(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let mut group = criterion.benchmark_group("journal, appends");
    for durability in [Durability::Fsync, Durability::Process] {
        let folder = tempfile::tempdir().expect("a folder");
        let options = StoreOptions { durability, ..StoreOptions::default() };
        let path = folder.path().join("bench.db");
        let store = runtime.block_on(Store::open(path.as_path(), options)).expect("a store");
        for sessions in [1, 50] {
            let mut head = 0;
            let ids: Vec<_> = (0..sessions).map(|_| SessionId(Uuid::now_v7())).collect();
            group.throughput(Throughput::Elements(sessions));
            group.bench_function(format!("{durability:?}, {sessions} at once"), |bencher| {
                bencher.iter(|| {
                    let all = ids.iter().map(|id| store.append(commit(*id, head)));
                    for appended in runtime.block_on(join_all(all)) {
                        appended.expect("it follows");
                    }
                    head += 1;
                });
            });
        }
    }
}

/// A subscriber that counts.
struct Counter(std::rc::Rc<Cell<usize>>);

impl Actor for Counter {
    type Context = Context<Self>;
}

impl Handler<Live> for Counter {
    type Result = ();

    fn handle(&mut self, live: Live, _: &mut Self::Context) {
        black_box(live);
        self.0.set(self.0.get() + 1);
    }
}

fn fan_out(criterion: &mut Criterion) {
    let system = actix::System::new();
    let mut group = criterion.benchmark_group("bus, a piece of text to subscribers");
    for subscribers in [1_usize, 1_000] {
        group.throughput(Throughput::Elements(subscribers as u64));
        group.bench_function(subscribers.to_string(), |bencher| {
            let told = std::rc::Rc::<Cell<usize>>::default();
            let session_id = SessionId(Uuid::from_u128(1));
            let board = Board::new(Arc::new(SystemClock));
            let bus = system.block_on(async {
                let watch = board.watch("/bus", "EventBus");
                let bus = EventBus::new(watch, Arc::new(NoMeter), Duration::ZERO).start();
                for _ in 0..subscribers {
                    let recipient = Counter(told.clone()).start().recipient();
                    let attachment = Attachment::new(board.watch("/subscriber", "Subscriber"));
                    bus.send(Attach { session_id, attachment, recipient }).await.expect("it lives");
                }
                let started = SessionEvent::MessageStarted { message_id: message_id() };
                let agent = AgentName::parse("trader").expect("a name");
                let records = [record(1, started)].into();
                let at = std::time::Instant::now();
                bus.send(Publish { session_id, agent, records, at }).await.expect("it lives");
                bus
            });
            let heard = || Heard {
                session_id,
                run_id: RunId(Uuid::from_u128(2)),
                step: 1,
                message_id: message_id(),
                text: "twelve chars".to_owned(),
            };
            bencher.iter_batched(
                heard,
                |heard| {
                    let until = told.get() + subscribers;
                    system.block_on(async {
                        bus.send(heard).await.expect("it lives");
                        while told.get() < until {
                            bus.send(Peek(session_id)).await.expect("it lives");
                        }
                    });
                },
                BatchSize::SmallInput,
            );
        });
    }
}
