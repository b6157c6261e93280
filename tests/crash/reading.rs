//! Reading what there is at the end: the log over public HTTP, the database file, and what the
//! market wrote down.

use crate::{
    history::{Arrival, Effect, Session},
    players::waiting,
    theatre::Stage,
};
use reqwest::Method;
use serde_json::Value;
use sqlx::{ConnectOptions as _, Row as _, sqlite::SqliteConnectOptions};
use std::{collections::BTreeMap, path::Path};

async fn get(stage: &Stage, path: &str) -> Value {
    let answer = stage.insist(Method::GET, path, Value::Null).await;
    assert!(answer.is_ok(), "{path}: {} {}", answer.status, answer.body);
    answer.body
}

/// All sessions, page by page.
async fn listed(stage: &Stage) -> Vec<Value> {
    let mut listed = Vec::new();
    let mut path = "/agent/session?limit=200".to_owned();
    loop {
        let page = get(stage, &path).await;
        listed.extend(page["sessions"].as_array().cloned().unwrap_or_default());
        let Some(next) = page["next"].as_str() else { return listed };
        path = format!("/agent/session?limit=200&before={next}");
    }
}

/// Whether no session has anything to do but wait for answers that are `left` out, and none will go
/// on by itself, as what waits with a short deadline does.
pub(crate) async fn is_settled(stage: &Stage, left: &[Value]) -> bool {
    // In this order: where nothing runs, no question comes after.
    let sessions = listed(stage).await;
    let waiting = waiting(stage).await;
    let stays = |session: &Value| {
        let of_it = |question: &&Value| question["session_id"] == session["session_id"];
        let mut questions = waiting.iter().filter(of_it);
        session["status"] != "waiting"
            || session["agent"] != "hasty"
            || questions.any(|question| question["deadline"].is_null())
    };
    let is_left = |question: &Value| left.contains(&question["approval_id"]);
    let idle = sessions.iter().all(|session| session["status"] != "running" && stays(session));
    idle && waiting.iter().all(is_left)
}

/// The sessions as the server tells them.
pub(crate) async fn sessions(stage: &Stage) -> BTreeMap<String, Session> {
    let mut sessions = BTreeMap::new();
    for session in listed(stage).await {
        let id = session["session_id"].as_str().expect("it has an id").to_owned();
        let (mut events, mut after) = (Vec::new(), Value::from(0));
        loop {
            let path = format!("/agent/session/{id}/events?after={after}&limit=500");
            let page = get(stage, &path).await;
            let found = page["events"].as_array().cloned().unwrap_or_default();
            if found.is_empty() {
                break;
            }
            events.extend(found);
            after = page["next"].clone();
        }
        let path = format!("/agent/approvals?state=pending&session_id={id}");
        let questions = get(stage, &path).await;
        let questions = questions["approvals"].as_array().cloned().unwrap_or_default();
        let questions =
            questions.iter().filter_map(|it| Some(it["approval_id"].as_str()?.to_owned()));
        let status = session["status"].as_str().unwrap_or_default().to_owned();
        sessions.insert(id, Session { status, questions: questions.collect(), events });
    }
    sessions
}

/// The numbers of the events in the file, by session.
pub(crate) async fn stored(folder: &Path) -> BTreeMap<String, Vec<u64>> {
    let options = SqliteConnectOptions::new().filename(folder.join("greenroom.db")).read_only(true);
    let mut connection = options.connect().await.expect("the file can be opened");
    let rows = "SELECT session_id, value->>'seq' FROM commits, json_each(events) \
                ORDER BY commits.id, json_each.key";
    let rows = sqlx::query(rows).fetch_all(&mut connection).await.expect("it can be read");
    let mut stored = BTreeMap::<String, Vec<u64>>::new();
    for row in rows {
        let session: Vec<u8> = row.get(0);
        let id = uuid::Uuid::from_slice(&session).expect("an id is a UUID").to_string();
        let seq: i64 = row.get(1);
        stored.entry(id).or_default().push(u64::try_from(seq).expect("it is positive"));
    }
    stored
}

/// The calls that reached the market.
pub(crate) fn arrivals(folder: &Path) -> Vec<Arrival> {
    let arrival = |line: Value| Arrival {
        tool: line["tool"].as_str().unwrap_or_default().to_owned(),
        key: line["_meta"]["greenroom/idempotency_key"].as_str().unwrap_or_default().to_owned(),
        arguments: line["arguments"].clone(),
    };
    lines(&folder.join("calls.jsonl")).into_iter().map(arrival).collect()
}

/// What the market did.
pub(crate) fn effects(folder: &Path) -> Vec<Effect> {
    let effect = |line: Value| Effect {
        tool: line["tool"].as_str().unwrap_or_default().to_owned(),
        key: line["idempotency_key"].as_str().unwrap_or_default().to_owned(),
        arguments: line["arguments"].clone(),
        result: line["result"].clone(),
    };
    let lines = lines(&folder.join("market.jsonl")).into_iter();
    // That a scan was stopped is noted, and is no effect.
    lines.filter(|line| line["tool"] != "scan_cancelled").map(effect).collect()
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}
