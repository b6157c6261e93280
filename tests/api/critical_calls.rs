//! Critical calls: approval by a second user with a role, on every surface (G12).

use crate::{
    harness::{ApiResponse, TestServer, TestServerBuilder, send},
    scripts::tool_call_script,
    stream::{Socket, frames_of_kind, single_frame},
};
use greenroom::rehearsal::ProviderProtocol;
use reqwest::Method;
use serde_json::{Value, json};

/// Starts a server that requires the role `approver` and four eyes, and whose model transfers 1000
/// ISK to Bob for the message "go".
async fn start_server() -> TestServer {
    let script = tool_call_script("wallet_transfer", "{ to = 'Bob', amount = 1000 }");
    let rule = "[approvals]\ncritical_role = 'approver'\nfour_eyes = true";
    TestServerBuilder::with_script(ProviderProtocol::Anthropic, &script)
        .with_config(rule)
        .start()
        .await
}

async fn create_key(server: &TestServer, user: &str, role: &str) -> String {
    let key = server.post("/admin/keys", json!({"user_id": user, "role": role})).await;
    key.body["key"].as_str().unwrap().to_owned()
}

async fn post_as(server: &TestServer, key: &str, path: &str, body: Value) -> ApiResponse {
    let request = server.request_without_token(Method::POST, path);
    send(request.bearer_auth(key).json(&body)).await
}

/// Sets the user's autonomy level to the lowest that does not deny critical calls.
async fn allow_asking(server: &TestServer, user: &str) {
    let path = format!("/agent/settings?user_id={user}");
    server.patch(&path, json!({"autonomy_level": 2})).await.expect_ok();
}

/// Sends the message "go" and returns the plan that waits for approval.
async fn send_message_as(server: &TestServer, key: &str, session: &Value) -> Value {
    let message = json!({"session_id": session, "message": "go", "until": "pause"});
    let request = server.request_without_token(Method::POST, "/agent/chat/stream");
    let frames = server.stream(request.bearer_auth(key).json(&message)).await.read_to_end().await;
    assert_eq!(frames_of_kind(&frames, "tool_call_completed").len(), 0);
    single_frame(&frames, "waiting_for_approval").data["plan"].clone()
}

fn approval_path(plan: &Value) -> String {
    format!("/agent/approvals/{}", plan["plan_id"].as_str().unwrap())
}

/// Approves the plan over REST, a WebSocket and the gateway; each answer is rejected with `code`.
async fn expect_refusals(server: &TestServer, key: &str, plan: &Value, code: &str) {
    let approve = json!({"decision": "approve"});
    post_as(server, key, &approval_path(plan), approve).await.expect_problem(403, code);
    let base = server.url().replacen("http", "ws", 1);
    let mut socket = Socket::open_as(&base, "/agent/stream", key).await;
    let decide = json!({
        "type": "decide", "id": "d", "approval_id": plan["plan_id"], "decision": "approve",
    });
    socket.send(decide).await;
    assert_eq!(socket.read_response("d").await.0["code"], code);
    let mut gateway = Socket::open_as(&base, "/gateway", key).await;
    let call = &plan["steps"][0]["call_id"];
    let response = json!({
        "type": "tool.approval.response", "id": "a", "toolCallId": call, "approved": true,
    });
    gateway.send(response).await;
    let refused = gateway.read_until("error").await.pop().unwrap();
    assert_eq!(refused["code"], code, "{refused}");
    assert_eq!(server.effects(), Vec::<Value>::new());
}

#[actix_web::test]
async fn g12_users_own_settings_do_not_skip_the_approval_of_critical_calls() {
    let server = start_server().await;
    let ada = create_key(&server, "ada", "user").await;
    let settings = json!({
        "autonomy_level": 3, "require_confirmation": false, "allowed_regions": null,
        "budget_limit": {"amount": 1_000_000, "unit": "ISK", "period": "day"},
    });
    let request = server.request_without_token(Method::PATCH, "/agent/settings").bearer_auth(&ada);
    send(request.json(&settings)).await.expect_ok();
    let session = post_as(&server, &ada, "/agent/session", json!({})).await.expect_ok();
    let plan = send_message_as(&server, &ada, &session["session_id"]).await;
    let why = plan["steps"][0]["why"].as_str().unwrap();
    let requirement = "critical calls require approval by a second user with the role `approver`";
    assert!(why.ends_with(requirement), "{why}");
    expect_refusals(&server, &ada, &plan, "approver_required").await;
    // A key with the role does not help the owner.
    let ada_as_admin = create_key(&server, "ada", "admin").await;
    expect_refusals(&server, &ada_as_admin, &plan, "four_eyes").await;
    let carl = create_key(&server, "carl", "approver").await;
    let approve = json!({"decision": "approve"});
    post_as(&server, &carl, &approval_path(&plan), approve).await.expect_ok();
    server.wait_until("the transfer", |server| server.effects().len() == 1).await;
}

#[actix_web::test]
async fn g12_editor_of_a_critical_call_can_not_approve_it() {
    let server = start_server().await;
    let ada = create_key(&server, "ada", "user").await;
    let carl = create_key(&server, "carl", "approver").await;
    let dora = create_key(&server, "dora", "approver").await;
    allow_asking(&server, "ada").await;
    let session = post_as(&server, &ada, "/agent/session", json!({})).await.expect_ok();
    let plan = send_message_as(&server, &ada, &session["session_id"]).await;
    let arguments = json!({"to": "Carl", "amount": 500_000});
    let step = json!({
        "call_id": plan["steps"][0]["call_id"], "decision": "approve", "arguments": arguments,
    });
    let edit = json!({"steps": [step]});
    post_as(&server, &carl, &approval_path(&plan), edit).await.expect_ok();

    let pending = server.get("/agent/approvals?state=pending").await.expect_ok();
    let edited = &pending["approvals"][0];
    let edited = json!({"plan_id": edited["approval_id"], "steps": edited["steps"]});
    assert_eq!(edited["steps"][0]["arguments"], arguments);
    let why = edited["steps"][0]["why"].as_str().unwrap();
    assert!(why.ends_with("; the arguments were edited by carl"), "{why}");
    expect_refusals(&server, &carl, &edited, "four_eyes").await;
    let approve = json!({"decision": "approve"});
    post_as(&server, &dora, &approval_path(&edited), approve).await.expect_ok();
    server.wait_until("the transfer", |server| server.effects().len() == 1).await;
    // The market stores amounts as floating-point numbers.
    assert_eq!(server.effects()[0]["arguments"], json!({"to": "Carl", "amount": 500_000.0}));
}

#[actix_web::test]
async fn g12_author_of_a_message_in_another_users_session_can_not_approve() {
    let server = start_server().await;
    let dora = create_key(&server, "dora", "admin").await;
    allow_asking(&server, "ada").await;
    let session = json!({"user_id": "ada"});
    let session = post_as(&server, &dora, "/agent/session", session).await.expect_ok();
    assert_eq!(session["user_id"], "ada");
    let plan = send_message_as(&server, &dora, &session["session_id"]).await;
    expect_refusals(&server, &dora, &plan, "four_eyes").await;
    // The refusals are audited.
    let rows = server.get("/admin/audit?action=approval_answered").await.expect_ok();
    let rows: Vec<_> = rows["rows"].as_array().unwrap().iter().collect();
    let summaries: Vec<_> = rows.iter().map(|row| (&row["user"], &row["outcome"])).collect();
    let (dora, refused) = (json!("dora"), json!("refused"));
    assert_eq!(summaries, vec![(&dora, &refused); 3]);

    let carl = create_key(&server, "carl", "approver").await;
    let approve = json!({"decision": "approve"});
    post_as(&server, &carl, &approval_path(&plan), approve).await.expect_ok();
    server.wait_until("the transfer", |server| server.effects().len() == 1).await;
}

#[actix_web::test]
async fn g12_key_for_another_user_is_audited_with_its_maker() {
    let server = start_server().await;
    let root = create_key(&server, "root", "admin").await;
    let body = json!({"user_id": "carl", "role": "approver"});
    assert_eq!(post_as(&server, &root, "/admin/keys", body).await.status, 201);
    let rows = server.get("/admin/audit?action=key_created").await.expect_ok();
    let rows = rows["rows"].as_array().unwrap();
    let makers: Vec<_> =
        rows.iter().map(|row| json!([row["user"], row["details"]["user_id"]])).collect();
    assert_eq!(json!(makers), json!([["admin", "root"], ["root", "carl"]]));
}
