//! Exclusive locks across sessions, as the tool server observes them (T8). The market's catalog
//! gives `wallet_transfer` the key `'wallet:' + user.id`; orders have no key.

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

/// Creates a session whose calls need no approval up to a budget of 1,000,000 ISK.
async fn unrestricted_session(server: &TestServer) -> String {
    let limit = json!({"amount": 1_000_000, "unit": "ISK"});
    let settings = json!({"autonomy_level": 3, "budget_limit": limit});
    server.patch("/agent/settings", settings).await.expect_ok();
    server.create_session_at(3).await
}

/// Starts a run in an unrestricted session of another user; returns the session's id.
async fn start_run_of_other_user(server: &TestServer) -> String {
    let body = json!({"user_id": "eve", "role": "user"});
    let key = server.post("/admin/keys", body).await;
    let key = key.body["key"].as_str().unwrap().to_owned();
    let send_as_user = |method, path: &str, body: Value| {
        send(server.request_without_token(method, path).bearer_auth(&key).json(&body))
    };
    let limit = json!({"amount": 1_000_000, "unit": "ISK"});
    let settings = json!({"autonomy_level": 3, "budget_limit": limit});
    send_as_user(Method::PATCH, "/agent/settings", settings).await.expect_ok();
    let created = send_as_user(Method::POST, "/agent/session", json!({"autonomy_level": 3})).await;
    let created = created.expect_ok();
    let session = created["session_id"].as_str().unwrap().to_owned();
    let message = json!({"session_id": session, "message": "go"});
    let body = server
        .request_without_token(Method::POST, "/agent/chat/stream")
        .bearer_auth(&key)
        .json(&message);
    // The run continues without a subscriber.
    drop(server.stream(body).await);
    session
}

/// Returns the maximum number of concurrent calls of a tool, and the number of its calls.
fn max_concurrency(spans: &[Value], tool: &str) -> (usize, usize) {
    let (mut running, mut max, mut total) = (0, 0, 0);
    for span in spans.iter().filter(|span| span["tool"] == tool) {
        match span["is"].as_str().unwrap() {
            "begun" => (running, total) = (running + 1, total + 1),
            _ => running -= 1,
        }
        max = max.max(running);
    }
    (max, total)
}

async fn wait_until_waiting_for_lock(server: &TestServer, session: &str) {
    let poll = async {
        loop {
            let actor = server.get(&format!("/admin/actors/sessions/{session}")).await.expect_ok();
            let reason = actor["actor"]["waiting"]["for_whom"].as_str().unwrap_or_default();
            if reason.starts_with("exclusive lock wallet:") {
                return;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, poll).await.expect("the call waits for the lock");
}

#[actix_web::test]
async fn t8_transfers_of_one_wallet_never_overlap_in_the_tool_server() {
    let folder = tempfile::tempdir().unwrap();
    let spans = folder.path().join("spans.jsonl");
    let server =
        transfer_setup().with_market_env("MARKET_SPANS", spans.to_str().unwrap()).start().await;
    let mut sessions = Vec::new();
    for _ in 0..4 {
        sessions.push(unrestricted_session(&server).await);
    }
    let runs = sessions.iter().map(|session| server.chat_to_end(session, "go"));
    for frames in futures::future::join_all(runs).await {
        assert_eq!(
            frames_of_kind(&frames, "tool_call_completed").len(),
            1,
            "{}",
            format_frames(&frames)
        );
    }
    assert_eq!(
        max_concurrency(&crate::harness::read_json_lines(&spans), "wallet_transfer"),
        (1, 4)
    );
}

#[actix_web::test]
async fn t8_calls_without_a_key_run_concurrently() {
    let script = tool_call_script("market_order_create", ORDER);
    let setup = TestServerBuilder::with_script(ProviderProtocol::OpenAi, &script)
        .with_market_env("MARKET_HANG", "market_order_create");
    let server = setup.start().await;
    let (first, second) =
        (unrestricted_session(&server).await, unrestricted_session(&server).await);
    let _runs = (server.chat(&first, "go").await, server.chat(&second, "go").await);
    // The market answers neither call, so both run at the same time.
    server.wait_until("both orders are running", |server| server.effects().len() == 2).await;
}

#[actix_web::test]
async fn t8_lock_passes_to_the_next_call_on_cancel_and_other_keys_do_not_wait() {
    let server = transfer_setup().with_market_env("MARKET_HANG", "wallet_transfer").start().await;
    let (first, second) =
        (unrestricted_session(&server).await, unrestricted_session(&server).await);
    let _first_run = server.chat(&first, "go").await;
    server.wait_until("the first transfer is running", |server| server.calls().len() == 1).await;
    let mut second_run = server.chat(&second, "go").await;
    wait_until_waiting_for_lock(&server, &second).await;
    let _other = start_run_of_other_user(&server).await;
    server
        .wait_until("another wallet's transfer is running", |server| server.calls().len() == 2)
        .await;
    wait_until_waiting_for_lock(&server, &second).await;
    assert_eq!(server.calls().len(), 2, "the second call still waits");
    server.post(&format!("/agent/session/{first}/cancel"), json!({})).await.expect_ok();
    server.wait_until("the second call has the lock", |server| server.calls().len() == 3).await;
    server.post(&format!("/agent/session/{second}/cancel"), json!({})).await.expect_ok();
    assert_eq!(second_run.read_until("done").await.last().unwrap().data["outcome"], "cancelled");
}

#[actix_web::test]
async fn t8_retried_call_queues_again_for_its_lock_after_a_crash() {
    let mut server =
        transfer_setup().with_market_env("MARKET_HANG", "wallet_transfer").start().await;
    let (first, second) =
        (unrestricted_session(&server).await, unrestricted_session(&server).await);
    let _first_run = server.chat(&first, "go").await;
    server.wait_until("the first transfer is running", |server| server.calls().len() == 1).await;
    let second_run = server.chat(&second, "go").await;
    wait_until_waiting_for_lock(&server, &second).await;
    drop(second_run);
    server.kill_and_restart().await;
    // The first call's outcome is unknown; it does not hold the lock while it waits for approval.
    server.wait_until("the second call has the lock", |server| server.calls().len() == 2).await;
    let frames = server.wait_for_event(&first, "waiting_for_approval").await;
    let plan = &single_frame(&frames, "waiting_for_approval").data["plan"];
    assert_eq!(plan["kind"], "unknown_outcome", "{plan}");
    let path = format!("/agent/approvals/{}", plan["approval_id"].as_str().unwrap());
    server.post(&path, json!({"decision": "retry"})).await.expect_ok();
    wait_until_waiting_for_lock(&server, &first).await;
    assert_eq!(server.calls().len(), 2, "the first call waits behind the second");
    server.post(&format!("/agent/session/{second}/cancel"), json!({})).await.expect_ok();
    // The call is repeated with its idempotency key. The market has already processed this key, so
    // it answers at once and has no second effect.
    let all = server.wait_for_event(&first, "done").await;
    assert_eq!(frames_of_kind(&all, "tool_call_completed").len(), 1, "{}", format_frames(&all));
    assert_eq!((server.calls().len(), server.effects().len()), (3, 2));
}
