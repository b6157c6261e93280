//! Deadlines of approvals (G10): expiry, escalation and waiting beyond the deadline.

use crate::{
    harness::{TestServer, TestServerBuilder, send},
    scripts::{ORDER, tool_call_script},
    stream::{format_frames, frames_of_kind, single_frame},
};
use greenroom::rehearsal::ProviderProtocol;
use greenroom_core::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use std::time::UNIX_EPOCH;

/// Starts a server with these approval rules and a session that waits for approval.
async fn start_until_approval(rules: &str) -> (TestServer, String, Value) {
    let script = tool_call_script("market_order_create", ORDER);
    let setup = TestServerBuilder::with_script(ProviderProtocol::OpenAi, &script).with_config(
        &format!("[agents.hasty]\nmodel = \"scripted\"\n[agents.hasty.approvals]\n{rules}"),
    );
    let server = setup.start().await;
    let session = server.create_session(json!({"agent": "hasty", "autonomy_level": 1})).await;
    let body = json!({"session_id": session, "message": "go", "until": "pause"});
    let frames = server.chat_with(body).await.read_to_end().await;
    let plan = single_frame(&frames, "waiting_for_approval").data["plan"].clone();
    (server, session, plan)
}

#[actix_web::test]
async fn g10_unanswered_approval_escalates_to_another_role() {
    let rules = "deadline = \"1s\"\non_deadline = \"escalate\"\nescalate_to = \"admin\"\nescalate_deadline = \"10m\"";
    let (server, session, plan) = start_until_approval(rules).await;
    assert_eq!(plan["on_deadline"], "escalate");
    let key = server.post("/admin/keys", json!({"user": "ann", "role": "approver"})).await.body;
    let all = server.wait_for_event(&session, "approval_escalated").await;
    assert_eq!(
        single_frame(&all, "approval_escalated").data["to"],
        "admin",
        "{}",
        format_frames(&all)
    );
    let path = format!("/agent/approvals/{}", plan["approval_id"].as_str().unwrap());
    assert_eq!(server.get(&path).await.expect_ok()["escalated_to"], "admin");
    // After the escalation, an approver may no longer answer this approval.
    let request =
        server.request_without_token(Method::POST, &path).bearer_auth(key["key"].as_str().unwrap());
    let refused = send(request.json(&json!({"decision": "approve"}))).await;
    refused.expect_problem(403, "role_required");
    server.post(&path, json!({"decision": "approve"})).await.expect_ok();
    let all = server.wait_for_event(&session, "done").await;
    assert!(frames_of_kind(&all, "approval_expired").is_empty(), "{}", format_frames(&all));
    assert_eq!(server.effects().len(), 1);
}

#[actix_web::test]
async fn g10_approval_can_wait_beyond_its_deadline() {
    let (mut server, session, plan) =
        start_until_approval("deadline = \"10ms\"\non_deadline = \"wait\"").await;
    server.kill_and_restart().await;
    let path = format!("/agent/approvals/{}", plan["approval_id"].as_str().unwrap());
    let row = server.get(&path).await.expect_ok();
    assert_eq!((&row["state"], &row["on_deadline"]), (&json!("pending"), &json!("wait")));
    server.post(&path, json!({"decision": "approve"})).await.expect_ok();
    server.wait_for_event(&session, "done").await;
    assert_eq!(server.effects().len(), 1);
}

#[actix_web::test]
async fn g10_approval_expires_while_the_process_is_down() {
    let (mut server, session, plan) = start_until_approval("deadline = \"1s\"").await;
    server.kill().await;
    let deadline: Timestamp = serde_json::from_value(plan["deadline"].clone()).unwrap();
    let now = || UNIX_EPOCH.elapsed().unwrap().as_millis();
    server.wait_until("the deadline", |_| now() > deadline.0.unsigned_abs().into()).await;
    server.start().await;
    let all = server.wait_for_event(&session, "done").await;
    let failed = &single_frame(&all, "tool_call_failed").data;
    assert_eq!(failed["reason"], "expired", "{}", format_frames(&all));
    assert_eq!(frames_of_kind(&all, "approval_expired").len(), 1);
    assert_eq!(server.effects().len(), 0);
}
