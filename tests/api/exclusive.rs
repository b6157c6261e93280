//! Calls that run one at a time, across sessions, as the tools' own server sees them (T8). The
//! market's catalog gives `wallet_transfer` the key `'wallet:' + user.id`; orders have none.

use crate::{
    harness::{POLL_INTERVAL, TEST_TIMEOUT, TestServer, TestServerBuilder, send},
    scripts::{ORDER, tool_call_script},
    stream::{format_frames, frames_of_kind, single_frame},
};
use greenroom::rehearsal::ProviderProtocol;
use reqwest::Method;
use serde_json::{Value, json};

const TRANSFER: &str = r#"{ to = "XYZ", amount = 5 }"#;

fn transfer_setup() -> TestServerBuilder {
    TestServerBuilder::with_script(
        ProviderProtocol::Anthropic,
        &tool_call_script("wallet_transfer", TRANSFER),
    )
}

/// A session that asks for nothing that costs less than that.
async fn unrestricted_session(server: &TestServer) -> String {
    let limit = json!({"amount": 1_000_000, "unit": "ISK"});
    let settings = json!({"autonomy_level": 3, "budget_limit": limit});
    server.patch("/agent/settings", settings).await.expect_ok();
    server.create_session_at(3).await
}

/// A free session of another user, who has told it to go.
async fn start_run_of_other_user(server: &TestServer) -> String {
    let wish = json!({"user_id": "eve", "role": "user"});
    let key = server.post("/admin/keys", wish).await;
    let key = key.body["key"].as_str().unwrap().to_owned();
    let ask = |method, path: &str, body: Value| {
        send(server.request_without_token(method, path).bearer_auth(&key).json(&body))
    };
    let limit = json!({"amount": 1_000_000, "unit": "ISK"});
    let settings = json!({"autonomy_level": 3, "budget_limit": limit});
    ask(Method::PATCH, "/agent/settings", settings).await.expect_ok();
    let created =
        ask(Method::POST, "/agent/session", json!({"autonomy_level": 3})).await.expect_ok();
    let session = created["session_id"].as_str().unwrap().to_owned();
    let message = json!({"session_id": session, "message": "go"});
    let body = server
        .request_without_token(Method::POST, "/agent/chat/stream")
        .bearer_auth(&key)
        .json(&message);
    // It goes on by itself.
    drop(server.stream(body).await);
    session
}

/// How many calls of the tool were under way at most, and how many there were.
fn max_concurrency(spans: &[Value], tool: &str) -> (usize, usize) {
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

async fn wait_until_waiting_for_lock(server: &TestServer, session: &str) {
    let waits = async {
        loop {
            let actor = server.get(&format!("/admin/actors/sessions/{session}")).await.expect_ok();
            let whom = actor["actor"]["waiting"]["for_whom"].as_str().unwrap_or_default();
            if whom.starts_with("its turn: wallet:") {
                return;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, waits).await.expect("it gets in line");
}

#[actix_web::test]
async fn t8_transfers_of_one_wallet_never_overlap_in_the_server_that_makes_them() {
    let folder = tempfile::tempdir().unwrap();
    let spans = folder.path().join("spans.jsonl");
    let server = transfer_setup().with_market_env("MARKET_SPANS", spans.to_str().unwrap()).start().await;
    let mut sessions = Vec::new();
    for _ in 0..4 {
        sessions.push(unrestricted_session(&server).await);
    }
    let runs = sessions.iter().map(|session| server.chat_to_end(session, "go"));
    for frames in futures::future::join_all(runs).await {
        assert_eq!(frames_of_kind(&frames, "tool_call_completed").len(), 1, "{}", format_frames(&frames));
    }
    assert_eq!(
        max_concurrency(&crate::harness::read_json_lines(&spans), "wallet_transfer"),
        (1, 4)
    );
}

#[actix_web::test]
async fn t8_calls_without_a_key_do_not_wait() {
    let script = tool_call_script("market_order_create", ORDER);
    let setup = TestServerBuilder::with_script(ProviderProtocol::OpenAi, &script)
        .with_market_env("MARKET_HANG", "market_order_create");
    let server = setup.start().await;
    let (one, two) = (unrestricted_session(&server).await, unrestricted_session(&server).await);
    let _runs = (server.chat(&one, "go").await, server.chat(&two, "go").await);
    // Neither is ever answered, so both are under way at once.
    server.wait_until("both orders are under way", |server| server.effects().len() == 2).await;
}

#[actix_web::test]
async fn t8_a_turn_passes_on_when_its_holder_is_cancelled_and_others_wallets_do_not_wait() {
    let server = transfer_setup().with_market_env("MARKET_HANG", "wallet_transfer").start().await;
    let (one, two) = (unrestricted_session(&server).await, unrestricted_session(&server).await);
    let _first = server.chat(&one, "go").await;
    server.wait_until("the first transfer is under way", |server| server.calls().len() == 1).await;
    let mut second = server.chat(&two, "go").await;
    wait_until_waiting_for_lock(&server, &two).await;
    let _other = start_run_of_other_user(&server).await;
    server
        .wait_until("another wallet's transfer is under way", |server| server.calls().len() == 2)
        .await;
    wait_until_waiting_for_lock(&server, &two).await;
    assert_eq!(server.calls().len(), 2, "the second waits on");
    server.post(&format!("/agent/session/{one}/cancel"), json!({})).await.expect_ok();
    server.wait_until("the second has its turn", |server| server.calls().len() == 3).await;
    server.post(&format!("/agent/session/{two}/cancel"), json!({})).await.expect_ok();
    assert_eq!(second.read_until("done").await.last().unwrap().data["outcome"], "cancelled");
}

#[actix_web::test]
async fn t8_who_held_the_turn_when_the_process_died_gets_in_line_again_if_a_person_repeats_it() {
    let mut server = transfer_setup().with_market_env("MARKET_HANG", "wallet_transfer").start().await;
    let (one, two) = (unrestricted_session(&server).await, unrestricted_session(&server).await);
    let _first = server.chat(&one, "go").await;
    server.wait_until("the first transfer is under way", |server| server.calls().len() == 1).await;
    let second = server.chat(&two, "go").await;
    wait_until_waiting_for_lock(&server, &two).await;
    drop(second);
    server.kill_and_restart().await;
    // Nobody knows what became of the first: it holds nobody up while a person looks.
    server.wait_until("the second has its turn", |server| server.calls().len() == 2).await;
    let asked = server.wait_for_event(&one, "waiting_for_approval").await;
    let plan = &single_frame(&asked, "waiting_for_approval").data["plan"];
    assert_eq!(plan["kind"], "unknown_outcome", "{plan}");
    let path = format!("/agent/approvals/{}", plan["approval_id"].as_str().unwrap());
    server.post(&path, json!({"decision": "retry"})).await.expect_ok();
    wait_until_waiting_for_lock(&server, &one).await;
    assert_eq!(server.calls().len(), 2, "the first waits behind the second now");
    server.post(&format!("/agent/session/{two}/cancel"), json!({})).await.expect_ok();
    // It is made under its old key, which the market knows: it answers at once, and nothing is
    // done twice.
    let all = server.wait_for_event(&one, "done").await;
    assert_eq!(frames_of_kind(&all, "tool_call_completed").len(), 1, "{}", format_frames(&all));
    assert_eq!((server.calls().len(), server.effects().len()), (3, 2));
}
