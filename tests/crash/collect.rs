//! Reads the data for the checker: the log over public HTTP, the database, and the market's record.

use crate::{
    harness::ClientContext,
    history::{ElicitationAnswer, MarketCall, MarketEffect, Session},
    users::list_pending_approvals,
};
use reqwest::Method;
use serde_json::Value;
use sqlx::{
    ConnectOptions as _, Connection as _, PgConnection, SqliteConnection,
    sqlite::SqliteConnectOptions,
};
use std::{collections::BTreeMap, path::Path};

async fn get_json(context: &ClientContext, path: &str) -> Value {
    let response = context.request_with_retry(Method::GET, path, Value::Null).await;
    assert!(response.is_ok(), "{path}: {} {}", response.status, response.body);
    response.body
}

/// Lists all sessions, page by page.
async fn list_sessions(context: &ClientContext) -> Vec<Value> {
    let mut listed = Vec::new();
    let mut path = "/agent/session?limit=200".to_owned();
    loop {
        let page = get_json(context, &path).await;
        listed.extend(page["sessions"].as_array().cloned().unwrap_or_default());
        let Some(next) = page["next"].as_str() else { return listed };
        path = format!("/agent/session?limit=200&before={next}");
    }
}

/// Returns true if every session is idle or waits only for approvals in `ignored_approvals`, and no
/// approval has a short deadline after which its session would continue.
pub(crate) async fn is_settled(context: &ClientContext, ignored_approvals: &[Value]) -> bool {
    // In this order: once nothing runs, no further approval is requested.
    let sessions = list_sessions(context).await;
    let pending = list_pending_approvals(context).await;
    let is_stable = |session: &Value| {
        let belongs_to_session =
            |approval: &&Value| approval["session_id"] == session["session_id"];
        let mut approvals = pending.iter().filter(belongs_to_session);
        session["status"] != "waiting"
            || session["agent"] != "hasty"
            || approvals.any(|approval| approval["deadline"].is_null())
    };
    let is_ignored = |approval: &Value| ignored_approvals.contains(&approval["approval_id"]);
    let is_idle =
        sessions.iter().all(|session| session["status"] != "running" && is_stable(session));
    is_idle && pending.iter().all(is_ignored)
}

/// Loads all sessions with their events and open approvals.
pub(crate) async fn load_sessions(context: &ClientContext) -> BTreeMap<String, Session> {
    let mut sessions = BTreeMap::new();
    for session in list_sessions(context).await {
        let id = session["session_id"].as_str().expect("a session has an id").to_owned();
        let (mut events, mut after) = (Vec::new(), Value::from(0));
        loop {
            let path = format!("/agent/session/{id}/events?after={after}&limit=500");
            let page = get_json(context, &path).await;
            let page_events = page["events"].as_array().cloned().unwrap_or_default();
            if page_events.is_empty() {
                break;
            }
            events.extend(page_events);
            after = page["next"].clone();
        }
        let path = format!("/agent/approvals?state=pending&session_id={id}");
        let approvals = get_json(context, &path).await;
        let approvals = approvals["approvals"].as_array().cloned().unwrap_or_default();
        let approval_ids = approvals
            .iter()
            .filter_map(|approval| Some(approval["approval_id"].as_str()?.to_owned()));
        let status = session["status"].as_str().unwrap_or_default().to_owned();
        sessions.insert(id, Session { status, pending_approvals: approval_ids.collect(), events });
    }
    sessions
}

/// The location of a server's database.
#[derive(Clone)]
pub(crate) enum Database {
    File,
    Postgres(String),
}

/// Loads the `seq`s of the stored events by session.
pub(crate) async fn load_stored_seqs(
    database: &Database,
    folder: &Path,
) -> BTreeMap<String, Vec<u64>> {
    let rows: Vec<(uuid::Uuid, i64)> = match database {
        Database::File => {
            let query = "SELECT session_id, value->>'seq' FROM commits, json_each(events) \
                        ORDER BY commits.id, json_each.key";
            let rows = sqlx::query_as(query).fetch_all(&mut open_sqlite(folder).await).await;
            rows.expect("the database is readable")
        }
        Database::Postgres(address) => {
            let query = "SELECT session_id, (event->>'seq')::bigint FROM commits, \
                        json_array_elements(events::json) WITH ORDINALITY AS events (event, place) \
                        ORDER BY id, place";
            let rows = sqlx::query_as(query).fetch_all(&mut connect_postgres(address).await).await;
            rows.expect("the database is readable")
        }
    };
    let mut stored = BTreeMap::<String, Vec<u64>>::new();
    for (session, seq) in rows {
        let seq = u64::try_from(seq).expect("a `seq` is positive");
        stored.entry(session.to_string()).or_default().push(seq);
    }
    stored
}

/// Loads the stored spending in ISK.
pub(crate) async fn load_spending(database: &Database, folder: &Path) -> f64 {
    let sum = "SELECT coalesce(sum(CAST(amount AS DOUBLE PRECISION)), 0.0) FROM spending WHERE measure = 'ISK'";
    let spent: Result<f64, _> = match database {
        Database::File => sqlx::query_scalar(sum).fetch_one(&mut open_sqlite(folder).await).await,
        Database::Postgres(address) => {
            sqlx::query_scalar(sum).fetch_one(&mut connect_postgres(address).await).await
        }
    };
    spent.expect("the database is readable")
}

async fn open_sqlite(folder: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(folder.join("greenroom.db")).read_only(true);
    options.connect().await.expect("the file can be opened")
}

async fn connect_postgres(address: &str) -> PgConnection {
    PgConnection::connect(address).await.expect("the server responds")
}

/// Reads the calls received by the market.
pub(crate) fn read_market_calls(folder: &Path) -> Vec<MarketCall> {
    let to_call = |line: Value| MarketCall {
        tool: line["tool"].as_str().unwrap_or_default().to_owned(),
        key: idempotency_key(&line),
        arguments: line["arguments"].clone(),
    };
    let lines = read_json_lines(&folder.join("calls.jsonl")).into_iter();
    lines.filter(|line| line["input_responses"].is_null()).map(to_call).collect()
}

/// Reads the answers to elicitations received by the market.
pub(crate) fn read_answers(folder: &Path) -> Vec<ElicitationAnswer> {
    let to_answer = |line: Value| {
        let answer = line["input_responses"].as_object()?.values().next()?.clone();
        Some(ElicitationAnswer { key: idempotency_key(&line), answer })
    };
    read_json_lines(&folder.join("calls.jsonl")).into_iter().filter_map(to_answer).collect()
}

fn idempotency_key(line: &Value) -> String {
    line["_meta"]["greenroom/idempotency_key"].as_str().unwrap_or_default().to_owned()
}

/// Reads the effects recorded by the market.
pub(crate) fn read_effects(folder: &Path) -> Vec<MarketEffect> {
    let to_effect = |line: Value| MarketEffect {
        tool: line["tool"].as_str().unwrap_or_default().to_owned(),
        key: line["idempotency_key"].as_str().unwrap_or_default().to_owned(),
        arguments: line["arguments"].clone(),
        result: line["result"].clone(),
    };
    let lines = read_json_lines(&folder.join("market.jsonl")).into_iter();
    // The market also records cancelled scans, which are not effects.
    lines.filter(|line| line["tool"] != "scan_cancelled").map(to_effect).collect()
}

fn read_json_lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let complete_lines = text.rfind('\n').map_or("", |end| &text[..end]);
    complete_lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("each line is JSON"))
        .collect()
}
