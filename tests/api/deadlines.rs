//! What happens when nobody answers (G10), through the whole house.

use crate::{
    harness::{TestServer, TestServerBuilder, send},
    scripts::{ORDER, tool_call_script},
    stream::{format_frames, of_kind, single_frame},
};
use greenroom::rehearsal::ProviderProtocol;
use greenroom_core::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use std::time::UNIX_EPOCH;

/// A house whose questions have these rules, and a session that waits for a person.
async fn start_until_approval(rules: &str) -> (TestServer, String, Value) {
    let script = tool_call_script("market_order_create", ORDER);
    let setup = TestServerBuilder::with_script(ProviderProtocol::OpenAi, &script).with_config(
        &format!("[agents.hasty]\nmodel = \"scripted\"\n[agents.hasty.approvals]\n{rules}"),
    );
    let house = setup.start().await;
    let session = house.create_session(json!({"agent": "hasty", "autonomy_level": 1})).await;
    let body = json!({"session_id": session, "message": "go", "until": "pause"});
    let frames = house.chat_with(body).await.read_to_end().await;
    let plan = single_frame(&frames, "waiting_for_approval").data["plan"].clone();
    (house, session, plan)
}

#[actix_web::test]
async fn g10_what_nobody_answers_goes_to_another_role() {
    let rules = "deadline = \"1s\"\non_deadline = \"escalate\"\nescalate_to = \"admin\"\nescalate_deadline = \"10m\"";
    let (house, session, plan) = start_until_approval(rules).await;
    assert_eq!(plan["on_deadline"], "escalate");
    let key = house.post("/admin/keys", json!({"user": "ann", "role": "approver"})).await.body;
    let all = house.wait_for_event(&session, "approval_escalated").await;
    assert_eq!(
        single_frame(&all, "approval_escalated").data["to"],
        "admin",
        "{}",
        format_frames(&all)
    );
    let path = format!("/agent/approvals/{}", plan["approval_id"].as_str().unwrap());
    assert_eq!(house.get(&path).await.expect_ok()["escalated_to"], "admin");
    // An approver may answer, but not this any more.
    let request =
        house.request_without_token(Method::POST, &path).bearer_auth(key["key"].as_str().unwrap());
    let refused = send(request.json(&json!({"decision": "approve"}))).await;
    refused.expect_problem(403, "role_required");
    house.post(&path, json!({"decision": "approve"})).await.expect_ok();
    let all = house.wait_for_event(&session, "done").await;
    assert!(of_kind(&all, "approval_expired").is_empty(), "{}", format_frames(&all));
    assert_eq!(house.effects().len(), 1);
}

#[actix_web::test]
async fn g10_a_question_may_wait_beyond_its_deadline() {
    let (mut house, session, plan) =
        start_until_approval("deadline = \"10ms\"\non_deadline = \"wait\"").await;
    house.kill_and_restart().await;
    let path = format!("/agent/approvals/{}", plan["approval_id"].as_str().unwrap());
    let row = house.get(&path).await.expect_ok();
    assert_eq!((&row["state"], &row["on_deadline"]), (&json!("pending"), &json!("wait")));
    house.post(&path, json!({"decision": "approve"})).await.expect_ok();
    house.wait_for_event(&session, "done").await;
    assert_eq!(house.effects().len(), 1);
}

#[actix_web::test]
async fn g10_a_deadline_passes_while_the_process_is_down() {
    let (mut house, session, plan) = start_until_approval("deadline = \"1s\"").await;
    house.kill().await;
    let deadline: Timestamp = serde_json::from_value(plan["deadline"].clone()).unwrap();
    let now = || UNIX_EPOCH.elapsed().unwrap().as_millis();
    house.wait_until("the deadline", |_| now() > deadline.0.unsigned_abs().into()).await;
    house.start().await;
    let all = house.wait_for_event(&session, "done").await;
    let failed = &single_frame(&all, "tool_call_failed").data;
    assert_eq!(failed["reason"], "expired", "{}", format_frames(&all));
    assert_eq!(of_kind(&all, "approval_expired").len(), 1);
    assert_eq!(house.effects().len(), 0);
}
