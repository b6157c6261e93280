//! Calls that run one at a time, across sessions, as the tools' own server sees them (T8). The
//! market's catalog gives `wallet_transfer` the key `'wallet:' + user.id`; orders have none.

use crate::{
    harness::{House, LOOK_AGAIN, PATIENCE, Setup, send},
    scripts::{ORDER, calls},
    stream::{of_kind, the, told},
};
use greenroom::rehearsal::Wire;
use reqwest::Method;
use serde_json::{Value, json};

const TRANSFER: &str = r#"{ to = "XYZ", amount = 5 }"#;

fn transferring() -> Setup {
    Setup::script(Wire::Anthropic, &calls("wallet_transfer", TRANSFER))
}

/// A session that asks for nothing that costs less than that.
async fn free_session(house: &House) -> String {
    let limit = json!({"amount": 1_000_000, "unit": "ISK"});
    let settings = json!({"autonomy_level": 3, "budget_limit": limit});
    house.patch("/agent/settings", settings).await.ok();
    house.session_at(3).await
}

/// A free session of another user, who has told it to go.
async fn of_somebody_else(house: &House) -> String {
    let wish = json!({"user_id": "eve", "role": "user"});
    let key = house.post("/admin/keys", wish).await;
    let key = key.body["key"].as_str().unwrap().to_owned();
    let ask = |method, path: &str, body: Value| {
        send(house.anonymous(method, path).bearer_auth(&key).json(&body))
    };
    let limit = json!({"amount": 1_000_000, "unit": "ISK"});
    let settings = json!({"autonomy_level": 3, "budget_limit": limit});
    ask(Method::PATCH, "/agent/settings", settings).await.ok();
    let created = ask(Method::POST, "/agent/session", json!({"autonomy_level": 3})).await.ok();
    let session = created["session_id"].as_str().unwrap().to_owned();
    let message = json!({"session_id": session, "message": "go"});
    let body = house.anonymous(Method::POST, "/agent/chat/stream").bearer_auth(&key).json(&message);
    // It goes on by itself.
    drop(house.stream(body).await);
    session
}

/// How many calls of the tool were under way at most, and how many there were.
fn at_once(spans: &[Value], tool: &str) -> (usize, usize) {
    let (mut now, mut most, mut all) = (0, 0, 0);
    for span in spans.iter().filter(|span| span["tool"] == tool) {
        match span["is"].as_str().unwrap() {
            "begun" => (now, all) = (now + 1, all + 1),
            _ => now -= 1,
        }
        most = most.max(now);
    }
    (most, all)
}

async fn waits_for_its_turn(house: &House, session: &str) {
    let waits = async {
        loop {
            let actor = house.get(&format!("/admin/actors/sessions/{session}")).await.ok();
            let whom = actor["actor"]["waiting"]["for_whom"].as_str().unwrap_or_default();
            if whom.starts_with("its turn: wallet:") {
                return;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    tokio::time::timeout(PATIENCE, waits).await.expect("it gets in line");
}

#[actix_web::test]
async fn t8_transfers_of_one_wallet_never_overlap_in_the_server_that_makes_them() {
    let folder = tempfile::tempdir().unwrap();
    let spans = folder.path().join("spans.jsonl");
    let house = transferring().market("MARKET_SPANS", spans.to_str().unwrap()).start().await;
    let mut sessions = Vec::new();
    for _ in 0..4 {
        sessions.push(free_session(&house).await);
    }
    let runs = sessions.iter().map(|session| house.say(session, "go"));
    for frames in futures::future::join_all(runs).await {
        assert_eq!(of_kind(&frames, "tool_call_completed").len(), 1, "{}", told(&frames));
    }
    assert_eq!(at_once(&crate::harness::lines(&spans), "wallet_transfer"), (1, 4));
}

#[actix_web::test]
async fn t8_calls_without_a_key_do_not_wait() {
    let script = calls("market_order_create", ORDER);
    let setup = Setup::script(Wire::OpenAi, &script).market("MARKET_HANG", "market_order_create");
    let house = setup.start().await;
    let (one, two) = (free_session(&house).await, free_session(&house).await);
    let _runs = (house.chat(&one, "go").await, house.chat(&two, "go").await);
    // Neither is ever answered, so both are under way at once.
    house.until("both orders are under way", |house| house.effects().len() == 2).await;
}

#[actix_web::test]
async fn t8_a_turn_passes_on_when_its_holder_is_cancelled_and_others_wallets_do_not_wait() {
    let house = transferring().market("MARKET_HANG", "wallet_transfer").start().await;
    let (one, two) = (free_session(&house).await, free_session(&house).await);
    let _first = house.chat(&one, "go").await;
    house.until("the first transfer is under way", |house| house.calls().len() == 1).await;
    let mut second = house.chat(&two, "go").await;
    waits_for_its_turn(&house, &two).await;
    let _other = of_somebody_else(&house).await;
    house.until("another wallet's transfer is under way", |house| house.calls().len() == 2).await;
    waits_for_its_turn(&house, &two).await;
    assert_eq!(house.calls().len(), 2, "the second waits on");
    house.post(&format!("/agent/session/{one}/cancel"), json!({})).await.ok();
    house.until("the second has its turn", |house| house.calls().len() == 3).await;
    house.post(&format!("/agent/session/{two}/cancel"), json!({})).await.ok();
    assert_eq!(second.until("done").await.last().unwrap().data["outcome"], "cancelled");
}

#[actix_web::test]
async fn t8_who_held_the_turn_when_the_process_died_gets_in_line_again_if_a_person_repeats_it() {
    let mut house = transferring().market("MARKET_HANG", "wallet_transfer").start().await;
    let (one, two) = (free_session(&house).await, free_session(&house).await);
    let _first = house.chat(&one, "go").await;
    house.until("the first transfer is under way", |house| house.calls().len() == 1).await;
    let second = house.chat(&two, "go").await;
    waits_for_its_turn(&house, &two).await;
    drop(second);
    house.crash().await;
    // Nobody knows what became of the first: it holds nobody up while a person looks.
    house.until("the second has its turn", |house| house.calls().len() == 2).await;
    let asked = house.wait_for(&one, "waiting_for_approval").await;
    let plan = &the(&asked, "waiting_for_approval").data["plan"];
    assert_eq!(plan["kind"], "unknown_outcome", "{plan}");
    let path = format!("/agent/approvals/{}", plan["approval_id"].as_str().unwrap());
    house.post(&path, json!({"decision": "retry"})).await.ok();
    waits_for_its_turn(&house, &one).await;
    assert_eq!(house.calls().len(), 2, "the first waits behind the second now");
    house.post(&format!("/agent/session/{two}/cancel"), json!({})).await.ok();
    // It is made under its old key, which the market knows: it answers at once, and nothing is
    // done twice.
    let all = house.wait_for(&one, "done").await;
    assert_eq!(of_kind(&all, "tool_call_completed").len(), 1, "{}", told(&all));
    assert_eq!((house.calls().len(), house.effects().len()), (3, 2));
}
