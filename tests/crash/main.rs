//! Crash tests: servers are killed repeatedly under load, at random moments and at named points, and
//! nothing is lost or done twice (D1, D2, D3, E2).
//!
//! Several servers run in parallel, each with a real `greenroom`, a real market and a scripted model.
//! Each is killed at random moments and at named points (`GREENROOM_FAULT`) and started again on the
//! same files; its clients continue and record what they receive. After the last start everything
//! open is finished, except for some approvals that stay open. Then an independent [`checker`] reads
//! the clients' records, the log and the market's record.
//!
//! Most servers use SQLite, one of them with `fsync`; a fifth as many kills use PostgreSQL.
//! `CRASH_KILLS` sets the number of kills, `CRASH_SERVERS` the number of servers, `CRASH_SEED` the seed
//! of the random numbers. A failure prints its seed. The same seed gives the same kills and messages,
//! but timing varies between runs.
#![allow(clippy::unwrap_used, reason = "a failed step of a test is its verdict")]

mod checker;
mod collect;
mod harness;
mod history;
#[path = "../../actors/core/tests/simulation/rng.rs"]
#[allow(dead_code, reason = "the simulation uses more of it")]
mod rng;
mod script;
mod subscribers;
#[path = "../support/postgres.rs"]
mod support;
mod users;

use crate::{
    collect::Database,
    harness::{ClientContext, CrashHarness, ServerConfig, TEST_TIMEOUT, lock, retry_pause},
    history::History,
    rng::SeededRng,
    support::Postgres,
};
use actix_web::rt::spawn;
use futures::future::join_all;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

/// Default number of kills, over all servers.
const KILLS: u64 = 200;
/// Number of servers in parallel.
const SERVERS: u64 = 4;
/// The share of servers that use `fsync`: one in this number.
const FSYNC_EVERY: u64 = 4;
/// Servers with a PostgreSQL database; their number of kills is `CRASH_KILLS / POSTGRES_SHARE`.
const POSTGRES_SERVERS: u64 = 2;
const POSTGRES_SHARE: u64 = 5;
/// Simulated users per server.
const USERS: u64 = 5;
/// The share of approvals that stay open at the end, chosen at random: one in this number.
const UNANSWERED_SHARE: usize = 4;

#[actix_web::test]
async fn d1_d2_d3_nothing_is_lost_and_nothing_is_done_twice() {
    let kills = parse_variable("CRASH_KILLS").unwrap_or(KILLS);
    let servers = parse_variable("CRASH_SERVERS").unwrap_or(SERVERS).max(1);
    let configs = (0..servers).map(|index| server_config(Database::File, index));
    let counts = run_all("SQLite", kills, configs.collect()).await;
    if kills >= KILLS {
        assert_coverage(&counts);
    }
}

#[actix_web::test]
async fn d5_nothing_is_lost_and_nothing_is_done_twice_on_postgresql() {
    let kills = parse_variable("CRASH_KILLS").unwrap_or(KILLS) / POSTGRES_SHARE;
    let mut configs = Vec::new();
    for index in 0..POSTGRES_SERVERS {
        // One server with each durability.
        let address = Postgres::shared().create_database().await;
        configs.push(server_config(Database::Postgres(address), index * (FSYNC_EVERY - 1)));
    }
    run_all("PostgreSQL", kills, configs).await;
}

/// Varies durability and MCP lifecycle by the server's index.
fn server_config(database: Database, index: u64) -> ServerConfig {
    let durability = if index % FSYNC_EVERY == FSYNC_EVERY - 1 { "fsync" } else { "process" };
    let lifecycle = if index.is_multiple_of(2) { "discover" } else { "initialize" };
    ServerConfig { database, durability, lifecycle }
}

/// Runs all servers in parallel; prints and returns the counts.
async fn run_all(database: &str, kills: u64, configs: Vec<ServerConfig>) -> BTreeMap<String, u64> {
    let seed = parse_variable("CRASH_SEED").unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0);
    let servers = configs.len() as u64;
    eprintln!("on {database}: CRASH_SEED={seed} kills={kills} servers={servers}");
    let started_at = Instant::now();
    let runs = (0..).zip(configs).map(|(index, config)| {
        let share = kills / servers + u64::from(index < kills % servers);
        run_server(config, seed.wrapping_add(index), share)
    });
    let outcomes = join_all(runs).await;
    let mut counts = BTreeMap::new();
    for outcome in &outcomes {
        for (label, count) in &outcome.counts {
            *counts.entry(label.clone()).or_insert(0) += count;
        }
    }
    // One write, because another test may be printing too.
    let lines: Vec<_> =
        counts.iter().map(|(label, count)| format!("  {count:>8} {label}\n")).collect();
    eprintln!("on {database} in {:.0?}:\n{}", started_at.elapsed(), lines.concat());
    let violations: Vec<_> = outcomes.iter().flat_map(|outcome| &outcome.violations).collect();
    assert!(violations.is_empty(), "CRASH_SEED={seed}: {} violations:\n{}", violations.len(), {
        let lines: Vec<_> =
            violations.iter().take(20).map(|violation| violation.as_str()).collect();
        lines.join("\n")
    });
    assert_eq!(counts.get("kills").copied().unwrap_or_default(), kills);
    counts
}

/// Fails if something was never exercised, since a run without activity would pass too.
fn assert_coverage(counts: &BTreeMap<String, u64>) {
    let kills =
        harness::fault_points().chain(["at a random moment"]).map(|point| format!("kills {point}"));
    let activities = [
        "approvals unknown_outcome",
        "approvals plan",
        "approvals budget",
        "approvals preflight",
        "approvals elicitation",
        "answers that reached the market",
        "calls allowed by policy",
        "calls allowed by approval",
        "calls allowed by grant",
        "calls allowed by preflight",
        "events budget_raised",
        "events budget_reserved",
        "events grant_revoked",
        "events message_discarded",
        "events step_retrying",
        "events tool_call_retrying",
        "sessions idle",
        "sessions closed",
        "sessions waiting",
        "effects of the market",
    ];
    for label in kills.chain(activities.map(str::to_owned)) {
        assert!(counts.contains_key(&label), "no {label} in {counts:?}");
    }
}

/// Parses an environment variable as a number. Returns `None` if it is not set.
fn parse_variable(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} must be a number, not `{text}`")))
}

/// The result of one server's run.
struct CrashTestResult {
    counts: BTreeMap<String, u64>,
    violations: Vec<String>,
}

async fn run_server(config: ServerConfig, seed: u64, kills: u64) -> CrashTestResult {
    let mut rng = SeededRng::new(seed);
    let mut harness = CrashHarness::new(config, rng.next());
    let context = harness.clients.clone();
    let users: Vec<_> =
        (0..USERS).map(|_| spawn(users::run_user(context.clone(), rng.next()))).collect();
    let approver = spawn(users::run_approver(context.clone(), rng.next()));
    for _ in 0..kills {
        harness.run_until_killed().await;
    }
    context.is_stopping.store(true, Relaxed);
    assert!(harness.start(None).await, "the last start failed: {}", harness.log_tail());
    let mut subscribers = Vec::new();
    for user in join_all(users).await {
        subscribers.extend(user.expect("the user task does not panic"));
    }
    approver.await.expect("the approver task does not panic");
    let sessions = settle_sessions(&context, &mut rng).await;
    let heads = sessions.iter().map(|(id, session)| (id.clone(), session.events.len() as u64));
    context.heads.send_replace(Some(heads.collect()));
    join_all(subscribers).await;
    let (database, folder) = (&harness.config.database, harness.folder());
    let stored = collect::load_stored_seqs(database, folder).await;
    let spent = collect::load_spending(database, folder).await;
    let history = History {
        sessions,
        stored,
        acknowledged: lock(&context.acknowledged).clone(),
        subscriber_logs: lock(&context.subscriber_logs).clone(),
        market_calls: collect::read_market_calls(folder),
        effects: collect::read_effects(folder),
        answers: collect::read_answers(folder),
        spent,
    };
    let violations = checker::find_violations(&history);
    let mut violations: Vec<_> = violations.iter().map(ToString::to_string).collect();
    if !violations.is_empty() {
        violations.push(format!("the files are in {}", harness.persist_files().display()));
    }
    CrashTestResult { counts: count_activities(&harness, &history), violations }
}

/// Answers open approvals, except for some, until all sessions are settled; returns the sessions.
async fn settle_sessions(
    context: &Arc<ClientContext>,
    rng: &mut SeededRng,
) -> BTreeMap<String, history::Session> {
    let mut unanswered = Vec::<Value>::new();
    let settle = async {
        loop {
            let pending = users::list_pending_approvals(context).await;
            let new_approvals: Vec<_> = pending
                .into_iter()
                .filter(|approval| unanswered.iter().all(|id| *id != approval["approval_id"]))
                .collect();
            for approval in &new_approvals {
                // A running elicitation keeps its session running, so it must be answered.
                let may_stay_open = approval["kind"] != "elicitation";
                // Keep at least two, so that a run always ends with waiting sessions.
                if may_stay_open && (unanswered.len() < 2 || rng.one_in(UNANSWERED_SHARE)) {
                    unanswered.push(approval["approval_id"].clone());
                } else {
                    users::answer_approval(context, rng, approval).await;
                }
            }
            if new_approvals.is_empty() && collect::is_settled(context, &unanswered).await {
                return;
            }
            retry_pause().await;
        }
    };
    // The checker reports sessions that have not settled by then.
    drop(tokio::time::timeout(TEST_TIMEOUT, settle).await);
    collect::load_sessions(context).await
}

/// Counts what happened in a run, by label.
fn count_activities(harness: &CrashHarness, history: &History) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::<String, u64>::new();
    let mut add = |label: &str, count: usize| {
        *counts.entry(label.to_owned()).or_default() += count as u64;
    };
    for (point, kills) in &harness.kills {
        add("kills", *kills as usize);
        add(&format!("kills {point}"), *kills as usize);
    }
    add("sessions", history.sessions.len());
    add("commands acknowledged", history.acknowledged.len());
    add("calls that reached the market", history.market_calls.len());
    add("effects of the market", history.effects.len());
    add("answers that reached the market", history.answers.len());
    add("subscribers", history.subscriber_logs.len());
    for log in &history.subscriber_logs {
        add("frames received", log.frames.len());
        add("connections of subscribers", log.connections as usize);
    }
    for session in history.sessions.values() {
        add("events", session.events.len());
        add(&format!("sessions {}", session.status), 1);
        for event in &session.events {
            let kind = event["type"].as_str().unwrap_or_default();
            match kind {
                "run_started" | "message_discarded" | "tool_call_retrying" | "step_retrying"
                | "late_result" | "budget_reserved" | "budget_raised" | "grant_added"
                | "grant_revoked" => add(&format!("events {kind}"), 1),
                "tool_call_allowed" => {
                    let by = event["by"]["kind"].as_str().unwrap_or_default();
                    add(&format!("calls allowed by {by}"), 1);
                }
                "waiting_for_approval" => {
                    let kind = event["plan"]["kind"].as_str().unwrap_or_default();
                    add(&format!("approvals {kind}"), 1);
                }
                _ => {}
            }
        }
    }
    counts
}
