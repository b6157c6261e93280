//! Killed again and again, at every moment that matters, under load: nothing is lost, and nothing is
//! done twice (D1, D2, D3, E2).
//!
//! Several houses play side by side, each with a real `greenroom`, a real market and a scripted
//! model. Its server is killed at random moments and at named points (`GREENROOM_FAULT`), started
//! again on the same files, and so on; its clients go on regardless, and note what they were told.
//! After the last start all that is open is brought to an end, but for some questions that are left
//! to wait. Then an independent [`checker`] reads what clients saw, the log and the market's record.
//!
//! Most of it is played on SQLite, in one house with the wait for the disk, and a fifth as many kills on
//! PostgreSQL. `CRASH_KILLS` is how often, `CRASH_HOUSES` how many houses, `CRASH_SEED` what chance begins with;
//! a failure prints its seed. The same seed plays the same kills and lines; what the machine makes
//! of them differs, as always with real time.
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

/// Kills, all houses together, where nothing else is said.
const KILLS: u64 = 200;
/// Houses side by side.
const SERVERS: u64 = 4;
/// One in so many houses waits for the disk at every commit.
const FSYNC_EVERY: u64 = 4;
/// Houses with a database on a PostgreSQL server, and what share of the kills they have.
const POSTGRES_SERVERS: u64 = 2;
const POSTGRES_SHARE: u64 = 5;
/// People who write in one house.
const USERS: u64 = 5;
/// One in so many questions is left to wait for ever.
const LEFT_WAITING: usize = 4;

#[actix_web::test]
async fn d1_d2_d3_nothing_is_lost_and_nothing_is_done_twice() {
    let kills = number("CRASH_KILLS").unwrap_or(KILLS);
    let houses = number("CRASH_HOUSES").unwrap_or(SERVERS).max(1);
    let kinds = (0..houses).map(|house| server_config(Database::File, house));
    let counts = run_all("SQLite", kills, kinds.collect()).await;
    if kills >= KILLS {
        assert_coverage(&counts);
    }
}

#[actix_web::test]
async fn d5_nothing_is_lost_and_nothing_is_done_twice_on_postgresql() {
    let kills = number("CRASH_KILLS").unwrap_or(KILLS) / POSTGRES_SHARE;
    let mut kinds = Vec::new();
    for house in 0..POSTGRES_SERVERS {
        // One of either durability.
        let address = Postgres::shared().create_database().await;
        kinds.push(server_config(Database::Postgres(address), house * (FSYNC_EVERY - 1)));
    }
    run_all("PostgreSQL", kills, kinds).await;
}

/// Houses differ in what an acknowledged commit waits for, and in how they talk with the market.
fn server_config(database: Database, house: u64) -> ServerConfig {
    let durability = if house % FSYNC_EVERY == FSYNC_EVERY - 1 { "fsync" } else { "process" };
    let lifecycle = if house.is_multiple_of(2) { "discover" } else { "initialize" };
    ServerConfig { database, durability, lifecycle }
}

/// Plays in all houses at once; prints and returns the counts.
async fn run_all(database: &str, kills: u64, kinds: Vec<ServerConfig>) -> BTreeMap<String, u64> {
    let seed = number("CRASH_SEED").unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0);
    let houses = kinds.len() as u64;
    eprintln!("on {database}: CRASH_SEED={seed} kills={kills} houses={houses}");
    let began = Instant::now();
    let plays = (0..).zip(kinds).map(|(house, kind)| {
        let share = kills / houses + u64::from(house < kills % houses);
        run_server(kind, seed.wrapping_add(house), share)
    });
    let outcomes = join_all(plays).await;
    let mut counts = BTreeMap::new();
    for outcome in &outcomes {
        for (what, count) in &outcome.counts {
            *counts.entry(what.clone()).or_insert(0) += count;
        }
    }
    // At once, as another play may be printing, too.
    let lines: Vec<_> =
        counts.iter().map(|(what, count)| format!("  {count:>8} {what}\n")).collect();
    eprintln!("on {database} in {:.0?}:\n{}", began.elapsed(), lines.concat());
    let broken: Vec<_> = outcomes.iter().flat_map(|outcome| &outcome.violations).collect();
    assert!(broken.is_empty(), "CRASH_SEED={seed}: {} broken promises:\n{}", broken.len(), {
        let lines: Vec<_> = broken.iter().take(20).map(|what| what.as_str()).collect();
        lines.join("\n")
    });
    assert_eq!(counts.get("kills").copied().unwrap_or_default(), kills);
    counts
}

/// A play in which nothing happened would pass as well.
fn assert_coverage(counts: &BTreeMap<String, u64>) {
    let kills = harness::points().chain(["at a random moment"]).map(|it| format!("kills {it}"));
    let played = [
        "questions unknown_outcome",
        "questions plan",
        "questions budget",
        "questions preflight",
        "questions elicitation",
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
    for what in kills.chain(played.map(str::to_owned)) {
        assert!(counts.contains_key(&what), "nobody saw {what}: {counts:?}");
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not `{text}`")))
}

/// What came of one house.
struct CrashTestResult {
    counts: BTreeMap<String, u64>,
    violations: Vec<String>,
}

async fn run_server(kind: ServerConfig, seed: u64, kills: u64) -> CrashTestResult {
    let mut chance = SeededRng::new(seed);
    let mut theatre = CrashHarness::new(kind, chance.next());
    let stage = theatre.clients.clone();
    let players: Vec<_> =
        (0..USERS).map(|_| spawn(users::run_user(stage.clone(), chance.next()))).collect();
    let clerk = spawn(users::run_approver(stage.clone(), chance.next()));
    for _ in 0..kills {
        theatre.run_until_killed().await;
    }
    stage.is_stopping.store(true, Relaxed);
    assert!(theatre.start(None).await, "it starts once more: {}", theatre.log_tail());
    let mut listeners = Vec::new();
    for player in join_all(players).await {
        listeners.extend(player.expect("a player does not fail"));
    }
    clerk.await.expect("who answers does not fail");
    let sessions = settle_sessions(&stage, &mut chance).await;
    let heads = sessions.iter().map(|(id, session)| (id.clone(), session.events.len() as u64));
    stage.heads.send_replace(Some(heads.collect()));
    join_all(listeners).await;
    let (database, folder) = (&theatre.config.database, theatre.folder());
    let stored = collect::load_stored_seqs(database, folder).await;
    let spent = collect::spent(database, folder).await;
    let history = History {
        sessions,
        stored,
        acknowledged: lock(&stage.acknowledged).clone(),
        subscriber_logs: lock(&stage.subscriber_logs).clone(),
        market_calls: collect::read_market_calls(folder),
        effects: collect::effects(folder),
        answers: collect::answers(folder),
        spent,
    };
    let violations = checker::find_violations(&history);
    let mut broken: Vec<_> = violations.iter().map(ToString::to_string).collect();
    if !broken.is_empty() {
        broken.push(format!("the files of it are in {}", theatre.keep_files().display()));
    }
    CrashTestResult { counts: counts(&theatre, &history), violations: broken }
}

/// Answers what waits, but for some of it, until nothing goes on any more; what there is then.
async fn settle_sessions(
    stage: &Arc<ClientContext>,
    chance: &mut SeededRng,
) -> BTreeMap<String, history::Session> {
    let mut left = Vec::<Value>::new();
    let settles = async {
        loop {
            let waiting = users::list_pending_approvals(stage).await;
            let fresh: Vec<_> = waiting
                .into_iter()
                .filter(|question| left.iter().all(|id| *id != question["approval_id"]))
                .collect();
            for question in &fresh {
                // A tool that asks runs meanwhile, and so does its session.
                let may_wait = question["kind"] != "elicitation";
                // Some in any case, so that a play always ends with sessions that wait.
                if may_wait && (left.len() < 2 || chance.one_in(LEFT_WAITING)) {
                    left.push(question["approval_id"].clone());
                } else {
                    users::answer_approval(stage, chance, question).await;
                }
            }
            if fresh.is_empty() && collect::is_settled(stage, &left).await {
                return;
            }
            retry_pause().await;
        }
    };
    // What has not settled by then is the checker's to say.
    drop(tokio::time::timeout(TEST_TIMEOUT, settles).await);
    collect::sessions(stage).await
}

fn counts(theatre: &CrashHarness, history: &History) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::<String, u64>::new();
    let mut add = |what: &str, count: usize| {
        *counts.entry(what.to_owned()).or_default() += count as u64;
    };
    for (point, kills) in &theatre.kills {
        add("kills", *kills as usize);
        add(&format!("kills {point}"), *kills as usize);
    }
    add("sessions", history.sessions.len());
    add("commands acknowledged", history.acknowledged.len());
    add("calls that reached the market", history.market_calls.len());
    add("effects of the market", history.effects.len());
    add("answers that reached the market", history.answers.len());
    add("listeners", history.subscriber_logs.len());
    for hearing in &history.subscriber_logs {
        add("frames heard", hearing.frames.len());
        add("connections of listeners", hearing.connections as usize);
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
                    add(&format!("questions {kind}"), 1);
                }
                _ => {}
            }
        }
    }
    counts
}
