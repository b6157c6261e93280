//! Orders to live actors and the stream of actor changes (A2).

use crate::{
    harness::{TestServer, TestServerBuilder},
    scripts::{ORDER, STALLED_TEXT, STALLS_ONCE, tool_call_script},
    stream::{format_frames, frames_of_kind, kinds_of, last_message_text, single_frame},
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};

on_both_wires!(
    a2_restarted_model_stream_retries_its_step,
    a2_restarted_session_resumes_from_its_log,
);

async fn send_order(server: &TestServer, path: &str, order: &str) {
    let response = server.post(&format!("/admin/actors{path}/{order}"), json!({})).await;
    assert_eq!(response.status, 202, "{}", response.body);
    assert_eq!(response.body, json!({"path": path, "order": order}));
}

async fn a2_restarted_model_stream_retries_its_step(wire: ProviderProtocol) {
    let server = TestServerBuilder::with_script(wire, STALLS_ONCE).start().await;
    let session = server.create_session_at(1).await;
    let mut stream = server.chat(&session, "stall").await;
    stream.read_text(10).await;
    send_order(&server, &format!("/sessions/{session}/steps/1"), "restart").await;
    let all = server.wait_for_event(&session, "done").await;
    let expected =
        ["message_started", "message_discarded", "step_retrying", "message_started", "done"];
    let kinds = ["message_started", "message_discarded", "step_retrying", "done"];
    assert_eq!(kinds_of(&all, &kinds), expected, "{}", format_frames(&all));
    assert!(
        single_frame(&all, "step_retrying").text("reason").contains("administrator"),
        "{}",
        format_frames(&all)
    );
    assert_eq!(last_message_text(&all), STALLED_TEXT);
}

#[actix_web::test]
async fn a2_stopped_model_stream_ends_its_run() {
    // The next model request has both messages, because the first one was never answered.
    let again_rule = "[[rule]]\nuser = \"again\"\n[[rule.reply]]\ntext = \"Here I am.\"\n";
    let server = TestServerBuilder::with_script(
        ProviderProtocol::OpenAi,
        &format!("{again_rule}{STALLS_ONCE}"),
    )
    .start()
    .await;
    let session = server.create_session_at(1).await;
    let mut stream = server.chat(&session, "stall").await;
    stream.read_text(10).await;
    send_order(&server, &format!("/sessions/{session}/steps/1"), "stop").await;
    let rest = stream.read_to_end().await;
    let error = rest.last().unwrap();
    assert!(error.text("error").contains("an administrator stopped"), "{}", format_frames(&rest));
    // The session stays usable.
    assert_eq!(last_message_text(&server.chat_to_end(&session, "again").await), "Here I am.");
}

async fn a2_restarted_session_resumes_from_its_log(wire: ProviderProtocol) {
    let server =
        TestServerBuilder::with_script(wire, &tool_call_script("market_order_create", ORDER))
            .start()
            .await;
    let session = server.create_session_at(1).await;
    let mut stream = server.chat(&session, "go").await;
    let frames = stream.read_until("waiting_for_approval").await;
    let path = format!("/sessions/{session}");
    let started_at = |actor: Value| actor["actor"]["started_at"].clone();
    let before = started_at(server.get(&format!("/admin/actors{path}")).await.expect_ok());
    send_order(&server, &path, "restart").await;
    // The stream stays open, and the approval keeps its id.
    let plan_id = frames.last().unwrap().text("plan_id");
    let execute = json!({"session_id": session, "plan_id": plan_id});
    let actor_path = format!("/admin/actors{path}");
    loop {
        let actor = server.get(&actor_path).await;
        if actor.status == 200 && started_at(actor.body) != before {
            break;
        }
        tokio::time::sleep(crate::harness::POLL_INTERVAL).await;
    }
    server.post("/agent/execute", execute).await.expect_ok();
    assert_eq!(stream.read_to_end().await.last().unwrap().kind(), "done");
    assert_eq!(server.effects().len(), 1);
}

#[actix_web::test]
async fn a2_stopped_session_cancels_its_run() {
    let server =
        TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE).start().await;
    let session = server.create_session_at(1).await;
    let mut stream = server.chat(&session, "stall").await;
    stream.read_text(10).await;
    send_order(&server, &format!("/sessions/{session}"), "stop").await;
    let rest = stream.read_to_end().await;
    assert_eq!(rest.last().unwrap().data["outcome"], "cancelled", "{}", format_frames(&rest));
    // The session is idle now, so stopping it passivates its actor.
    send_order(&server, &format!("/sessions/{session}"), "stop").await;
    let path = format!("/admin/actors/sessions/{session}");
    while server.get(&path).await.status == 200 {
        tokio::time::sleep(crate::harness::POLL_INTERVAL).await;
    }
}

#[actix_web::test]
async fn a2_d3_stopped_non_repeatable_call_requests_approval() {
    let script = tool_call_script("wallet_transfer", r#"{ to = "XYZ", amount = 5 }"#);
    let server = TestServerBuilder::with_script(ProviderProtocol::OpenAi, &script)
        .with_market_env("MARKET_HANG", "wallet_transfer")
        .start()
        .await;
    let limit = json!({"amount": 100, "unit": "ISK"});
    server
        .patch("/agent/settings", json!({"autonomy_level": 3, "budget_limit": limit}))
        .await
        .expect_ok();
    let session = server.create_session_at(3).await;
    let mut stream = server.chat(&session, "go").await;
    let frames = stream.read_until("tool_call_attempt_started").await;
    server.wait_until("the tool took effect", |server| server.effects().len() == 1).await;
    let call = single_frame(&frames, "tool_call_started").text("call_id");
    send_order(&server, &format!("/sessions/{session}/calls/{call}"), "stop").await;
    let frames = stream.read_until("waiting_for_approval").await;
    let plan = &frames.last().unwrap().data["plan"];
    assert_eq!(plan["kind"], "unknown_outcome", "{plan}");
    assert_eq!(server.calls().len(), 1);
}

#[actix_web::test]
async fn a2_stopped_tool_server_stays_unavailable_until_restarted() {
    let server = TestServerBuilder::with_script(
        ProviderProtocol::OpenAi,
        &tool_call_script("list_bookmarks", "{}"),
    )
    .start()
    .await;
    let session = server.create_session_at(1).await;
    send_order(&server, "/tools/market", "stop").await;
    wait_for_market_state(&server, "stopped").await;
    let failed = server.chat_to_end(&session, "go").await;
    let failure = &single_frame(&failed, "tool_call_failed").data;
    assert_eq!(failure["reason"], "unavailable", "{}", format_frames(&failed));
    send_order(&server, "/tools/market", "restart").await;
    wait_for_market_state(&server, "ready").await;
    let done = server.chat_to_end(&session, "go").await;
    assert_eq!(frames_of_kind(&done, "tool_call_completed").len(), 1, "{}", format_frames(&done));
}

async fn wait_for_market_state(server: &TestServer, state: &str) {
    let poll = async {
        while server.get("/agent/tools").await.expect_ok()["servers"][0]["state"] != state {
            tokio::time::sleep(crate::harness::POLL_INTERVAL).await;
        }
    };
    let result = tokio::time::timeout(crate::harness::TEST_TIMEOUT, poll).await;
    result.expect("the market reaches the state");
}

#[actix_web::test]
async fn a2_unsupported_orders_are_refused_and_every_order_is_audited() {
    let server = TestServerBuilder::tour(ProviderProtocol::OpenAi).start().await;
    for (path, code, status) in [
        ("/desk/stop", "order_refused", 409),
        ("/bus/0/restart", "order_refused", 409),
        ("/sessions/nobody/stop", "actor_not_found", 404),
        ("/nowhere/at/all/restart", "actor_not_found", 404),
    ] {
        server.post(&format!("/admin/actors{path}"), json!({})).await.expect_problem(status, code);
    }
    let refused = server.post("/admin/actors/desk/stop", json!({})).await.body;
    assert_eq!(refused["takes"], json!([]));
    server
        .post("/admin/actors/desk/sideways", json!({}))
        .await
        .expect_problem(405, "method_not_allowed");
    send_order(&server, "/tools/market", "restart").await;
    let body = json!({"user_id": "eve", "role": "user"});
    let key = server.post("/admin/keys", body).await.body["key"].as_str().unwrap().to_owned();
    let request =
        server.request_without_token(reqwest::Method::POST, "/admin/actors/tools/market/stop");
    crate::harness::send(request.bearer_auth(key)).await.expect_problem(403, "forbidden");
    let rows = server.get("/admin/audit?action=actor_restarted").await.expect_ok()["rows"].clone();
    let outcomes: Vec<_> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (&row["details"]["path"], &row["outcome"]))
        .collect();
    assert_eq!(
        outcomes,
        [
            (&json!("/bus/0"), &json!("refused")),
            (&json!("/nowhere/at/all"), &json!("refused")),
            (&json!("/tools/market"), &json!("done")),
        ]
    );
    assert_eq!(rows[2]["user"], "admin");
}

#[actix_web::test]
async fn a2_actor_changes_are_streamed() {
    let server =
        TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE).start().await;
    let request = server.request(reqwest::Method::GET, "/admin/actors?prefix=/sessions");
    let mut changes = server.stream(request.header("accept", "text/event-stream")).await;
    assert_eq!(
        changes.next().await.unwrap().data,
        json!({"type": "actors", "changed": [], "gone": []})
    );
    let session = server.create_session_at(1).await;
    let _stream = server.chat(&session, "stall").await;
    let path = format!("/sessions/{session}");
    let is_waiting_for_model = |frame: &Value| {
        frame["changed"].as_array().unwrap().iter().any(|actor| {
            actor["path"] == path.as_str() && actor["waiting"]["for_whom"] == "the model"
        })
    };
    while !is_waiting_for_model(&changes.next().await.unwrap().data) {}
    server.post(&format!("/agent/session/{session}/cancel"), json!({})).await.expect_ok();
    let step = json!(format!("{path}/steps/1"));
    while !changes.next().await.unwrap().data["gone"].as_array().unwrap().contains(&step) {}
}
