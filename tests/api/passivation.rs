//! Passivation (D6): idle sessions leave memory and resume when they are needed.

use crate::{
    harness::{TEST_TIMEOUT, TestServer, TestServerBuilder},
    scripts::{ORDER, STALLS_ONCE, tool_call_script},
    stream::{format_frames, frames_of_kind, kinds_of, last_message_text, single_frame},
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::json;
use std::time::Duration;

/// A short idle time after which sessions are passivated.
const IDLE: &str = "[limits]\nidle_timeout = \"40ms\"\n";
const IDLE_MS: u64 = 40;
/// Number of messages sent around the time of passivation.
const MESSAGES: u64 = 60;

/// Waits until the session has no live actor.
async fn wait_until_passivated(server: &TestServer, session: &str) {
    let poll = async {
        loop {
            let path = format!("/admin/actors?kind=Session&prefix=/sessions/{session}");
            if server.get(&path).await.expect_ok()["total"] == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, poll).await.expect("the session is passivated");
}

/// Starts a server and a session that waits for approval of an order; returns both and the plan.
async fn start_passivated_approval(extra_config: &str) -> (TestServer, String, serde_json::Value) {
    let script = tool_call_script("market_order_create", ORDER);
    let setup = TestServerBuilder::with_script(ProviderProtocol::Anthropic, &script);
    let server = setup.with_config(&format!("{IDLE}{extra_config}")).start().await;
    let agent = if extra_config.is_empty() { "default" } else { "hasty" };
    let session = server.create_session(json!({"agent": agent, "autonomy_level": 1})).await;
    let body = json!({"session_id": session, "message": "go", "until": "pause"});
    let frames = server.chat_with(body).await.read_to_end().await;
    let plan = single_frame(&frames, "waiting_for_approval").data["plan"].clone();
    (server, session, plan)
}

#[actix_web::test]
async fn d6_passivated_session_resumes_for_a_message() {
    let server = TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE)
        .with_config(IDLE)
        .start()
        .await;
    let session = server.create_session_at(1).await;
    for run_count in 1..=3 {
        wait_until_passivated(&server, &session).await;
        assert_eq!(last_message_text(&server.chat_to_end(&session, "again").await), "Here I am.");
        let messages = server.get(&format!("/agent/session/{session}/messages")).await.expect_ok();
        assert_eq!(messages["messages"].as_array().unwrap().len(), 2 * run_count);
    }
}

#[actix_web::test]
async fn d6_g11_passivated_session_resumes_for_a_decision() {
    let (server, session, plan) = start_passivated_approval("").await;
    wait_until_passivated(&server, &session).await;
    assert_eq!(
        server.get(&format!("/agent/session/{session}")).await.expect_ok()["status"],
        "waiting"
    );
    let body = json!({"session_id": session, "plan_id": plan["plan_id"]});
    server.post("/agent/execute", body).await.expect_ok();
    let all = server.wait_for_event(&session, "done").await;
    assert_eq!(single_frame(&all, "done").data["outcome"], "completed", "{}", format_frames(&all));
    assert_eq!(server.effects().len(), 1);
}

#[actix_web::test]
async fn d6_g10_passivated_session_resumes_at_a_deadline() {
    let rules = "[agents.hasty]\nmodel = \"scripted\"\napprovals = { deadline = \"700ms\" }";
    let (server, session, plan) = start_passivated_approval(rules).await;
    wait_until_passivated(&server, &session).await;
    let all = server.wait_for_event(&session, "done").await;
    let kinds = ["waiting_for_approval", "approval_expired", "tool_call_failed", "done"];
    assert_eq!(kinds_of(&all, &kinds), kinds, "{}", format_frames(&all));
    assert_eq!(single_frame(&all, "tool_call_failed").data["reason"], "expired");
    let body = json!({"session_id": session, "plan_id": plan["plan_id"]});
    server.post("/agent/execute", body).await.expect_problem(409, "approval_expired");
    assert_eq!(server.effects().len(), 0);
}

#[actix_web::test]
async fn d6_no_message_is_lost_during_passivation() {
    let server = TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE)
        .with_config(IDLE)
        .start()
        .await;
    let session = server.create_session_at(1).await;
    for number in 0..MESSAGES {
        server.chat_to_end(&session, "again").await;
        // Waits until about the moment of passivation.
        let pause = IDLE_MS - 10 + number % 20;
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    let mut subscription = server.subscribe(&session, "0").await;
    let mut all = Vec::new();
    for _ in 0..MESSAGES {
        all.extend(subscription.read_until("done").await);
    }
    assert_eq!(frames_of_kind(&all, "message_accepted").len() as u64, MESSAGES);
    assert!(frames_of_kind(&all, "done").iter().all(|done| done.data["outcome"] == "completed"));
}
