//! What happens when nobody answers (G10), through the whole house.

use crate::{
    harness::{House, Setup, send},
    scripts::{ORDER, calls},
    stream::{of_kind, the, told},
};
use greenroom::rehearsal::Wire;
use greenroom_core::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use std::time::UNIX_EPOCH;

/// A house whose questions have these rules, and a session that waits for a person.
async fn waiting(rules: &str) -> (House, String, Value) {
    let script = calls("market_order_create", ORDER);
    let setup = Setup::script(Wire::OpenAi, &script)
        .with(&format!("[agents.hasty]\nmodel = \"scripted\"\n[agents.hasty.approvals]\n{rules}"));
    let house = setup.start().await;
    let session = house.session(json!({"agent": "hasty", "autonomy_level": 1})).await;
    let body = json!({"session_id": session, "message": "go", "until": "pause"});
    let frames = house.chat_with(body).await.rest().await;
    let plan = the(&frames, "waiting_for_approval").data["plan"].clone();
    (house, session, plan)
}

#[actix_web::test]
async fn g10_what_nobody_answers_goes_to_another_role() {
    let rules = "deadline = \"1s\"\non_deadline = \"escalate\"\nescalate_to = \"admin\"\nescalate_deadline = \"10m\"";
    let (house, session, plan) = waiting(rules).await;
    assert_eq!(plan["on_deadline"], "escalate");
    let key = house.post("/admin/keys", json!({"user": "ann", "role": "approver"})).await.body;
    let all = house.wait_for(&session, "approval_escalated").await;
    assert_eq!(the(&all, "approval_escalated").data["to"], "admin", "{}", told(&all));
    let path = format!("/agent/approvals/{}", plan["approval_id"].as_str().unwrap());
    assert_eq!(house.get(&path).await.ok()["escalated_to"], "admin");
    // An approver may answer, but not this any more.
    let request = house.anonymous(Method::POST, &path).bearer_auth(key["key"].as_str().unwrap());
    let refused = send(request.json(&json!({"decision": "approve"}))).await;
    refused.problem(403, "role_required");
    house.post(&path, json!({"decision": "approve"})).await.ok();
    let all = house.wait_for(&session, "done").await;
    assert!(of_kind(&all, "approval_expired").is_empty(), "{}", told(&all));
    assert_eq!(house.effects().len(), 1);
}

#[actix_web::test]
async fn g10_a_question_may_wait_beyond_its_deadline() {
    let (mut house, session, plan) = waiting("deadline = \"10ms\"\non_deadline = \"wait\"").await;
    house.crash().await;
    let path = format!("/agent/approvals/{}", plan["approval_id"].as_str().unwrap());
    let row = house.get(&path).await.ok();
    assert_eq!((&row["state"], &row["on_deadline"]), (&json!("pending"), &json!("wait")));
    house.post(&path, json!({"decision": "approve"})).await.ok();
    house.wait_for(&session, "done").await;
    assert_eq!(house.effects().len(), 1);
}

#[actix_web::test]
async fn g10_a_deadline_passes_while_the_process_is_down() {
    let (mut house, session, plan) = waiting("deadline = \"1s\"").await;
    house.kill().await;
    let deadline: Timestamp = serde_json::from_value(plan["deadline"].clone()).unwrap();
    let now = || UNIX_EPOCH.elapsed().unwrap().as_millis();
    house.until("the deadline", |_| now() > deadline.0.unsigned_abs().into()).await;
    house.start().await;
    let all = house.wait_for(&session, "done").await;
    let failed = &the(&all, "tool_call_failed").data;
    assert_eq!(failed["reason"], "expired", "{}", told(&all));
    assert_eq!(of_kind(&all, "approval_expired").len(), 1);
    assert_eq!(house.effects().len(), 0);
}
