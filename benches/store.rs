//! Measures the store and prints tables for docs/storage.md: appends on both databases, and a server
//! with 100,000 stored sessions. Run by `make bench-store`. Asserts nothing. `make bench` measures the
//! processor time of appends with many stored events.

#![allow(clippy::unwrap_used, missing_docs)] // a benchmark may panic

#[allow(dead_code)]
#[path = "../tests/store_contract/fixtures.rs"]
mod fixtures;
#[path = "../tests/support/postgres.rs"]
mod support;

use fixtures::{commit, message_event, record, session_row, with_rows};
use futures::{StreamExt as _, future::join_all, stream};
use greenroom::store::{DatabaseLocation, Durability, Store, StoreOptions};
use greenroom_actors::ports::Journal as _;
use greenroom_core::{
    ids::SessionId,
    session::{SessionEvent, SessionStatus},
};
use serde_json::json;
use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use support::Postgres;
use uuid::Uuid;

/// Duration of each append measurement.
const MEASURE_DURATION: Duration = Duration::from_secs(3);
/// Bytes of an event's text.
const TEXT_BYTES: usize = 400;
const STORED: u32 = 100_000;
const ACTIVE: u32 = 1_000;
/// Number of concurrent requests.
const CLIENTS: usize = 16;
const TOKEN: &str = "the-token-of-the-bench-0123456789";

#[tokio::main(flavor = "current_thread")]
async fn main() {
    greenroom::install_crypto();
    // `cargo test --benches` passes `--test` and expects no measurement.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    println!("| database | `durability` | sessions at once | appends/s | sessions per commit |");
    println!("|---|---|---|---|---|");
    let postgres = Postgres::start_with(true);
    for durability in [Durability::Fsync, Durability::Process] {
        for sessions in [1, 16, 128] {
            let folder = tempfile::tempdir().unwrap();
            let database = folder.path().join("green.db").into();
            print_appends_row("SQLite", database, durability, sessions).await;
        }
        for sessions in [1, 16, 128] {
            let database = postgres.create_database().await.parse().unwrap();
            print_appends_row("PostgreSQL", database, durability, sessions).await;
        }
    }
    println!();
    println!("| database | {STORED} sessions stored | memory | with {ACTIVE} active |");
    println!("|---|---|---|---|");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("green.db");
    let file = file.display().to_string();
    measure_many_sessions("SQLite", &file, folder.path()).await;
    let address = postgres.create_database().await;
    measure_many_sessions("PostgreSQL", &address, folder.path()).await;
}

async fn print_appends_row(
    name: &str,
    database: DatabaseLocation,
    durability: Durability,
    sessions: u32,
) {
    let options = StoreOptions { durability, ..StoreOptions::default() };
    let store = Store::open(database, options).await.unwrap();
    let rate = measure_appends(&store, sessions).await;
    let written = store.write_stats();
    let per_commit = written.commits as f64 / written.groups as f64;
    let durability = json!(durability).as_str().unwrap_or_default().to_owned();
    println!("| {name} | `{durability}` | {sessions} | {rate:.0} | {per_commit:.1} |");
}

/// Appends events in concurrent sessions, one at a time each. Returns the appends per second.
async fn measure_appends(store: &Store, sessions: u32) -> f64 {
    let text = "x".repeat(TEXT_BYTES);
    let (start, before) = (Instant::now(), store.write_stats().commits);
    let append_loop = |_: u32| async {
        let session_id = SessionId(Uuid::now_v7());
        let mut head = 0;
        while start.elapsed() < MEASURE_DURATION {
            let next = commit(session_id, head, vec![message_event(head + 1, &text)]);
            store.append(next).await.unwrap();
            head += 1;
        }
    };
    join_all((0..sessions).map(append_loop)).await;
    (store.write_stats().commits - before) as f64 / start.elapsed().as_secs_f64()
}

/// Starts the server on a database with many sessions and runs a chat in some of them.
async fn measure_many_sessions(name: &str, database: &str, folder: &Path) {
    let ids = fill_database(&database.parse().unwrap()).await;
    let start = Instant::now();
    let (mut server, url) = serve(database, folder);
    let ready = start.elapsed();
    let before = resident_mib(&server);
    let client = reqwest::Client::new();
    let chats = stream::iter(&ids[..ACTIVE as usize]).map(|id| {
        let (client, url) = (&client, &url);
        async move {
            let body = json!({"session_id": id, "message": "hello", "user_id": "alice"});
            let request = client.post(format!("{url}/agent/chat/stream")).bearer_auth(TOKEN);
            let response = request.json(&body).send().await.unwrap();
            assert_eq!(response.status(), 200);
            response.bytes().await.unwrap();
        }
    });
    chats.buffer_unordered(CLIENTS).collect::<Vec<()>>().await;
    let after = resident_mib(&server);
    server.kill().unwrap();
    server.wait().unwrap();
    println!(
        "| {name} | ready in {:.2} s | {:.0} MiB | {:.0} MiB |",
        ready.as_secs_f64(),
        before,
        after
    );
}

async fn fill_database(database: &DatabaseLocation) -> Vec<SessionId> {
    let options = StoreOptions { durability: Durability::Process, ..StoreOptions::default() };
    let store = Store::open(database, options).await.unwrap();
    let agent: greenroom_core::ids::AgentName = "default".parse().unwrap();
    let sessions = stream::iter(0..STORED).map(|n| {
        let (store, agent) = (&store, agent.clone());
        async move {
            let mut row = session_row(n, "alice", SessionStatus::Idle);
            row.session_id = SessionId(Uuid::now_v7());
            row.grants.clear();
            let session_id = row.session_id;
            let (owner, settings) = (row.owner.clone(), row.settings.clone());
            row.agent = agent.clone();
            let created =
                SessionEvent::SessionCreated { owner, agent, title: None, settings, parent: None };
            let first = commit(session_id, 0, vec![record(1, created)]);
            store.append(with_rows(first, Some(row), Vec::new())).await.unwrap();
            session_id
        }
    });
    sessions.buffer_unordered(256).collect().await
}

fn serve(database: &str, folder: &Path) -> (Child, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_greenroom"))
        .arg("serve")
        .current_dir(folder)
        .envs([("GREENROOM_DATABASE", database), ("GREENROOM_LISTEN", "127.0.0.1:0")])
        .envs([("GREENROOM_TOKEN", TOKEN), ("GREENROOM_LIMITS__REQUESTS_PER_SECOND", "100000")])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let url = lines.by_ref().find_map(|line| {
        let line = line.unwrap();
        line.trim().strip_prefix("API ").map(|url| url.trim().to_owned())
    });
    std::thread::spawn(move || lines.for_each(drop));
    (child, url.unwrap())
}

/// Returns the resident memory in MiB.
fn resident_mib(server: &Child) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kib: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib / 1024.0
}
