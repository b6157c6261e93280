//! Feedback on messages and calls, statistics, and the export of sessions (C5).

use crate::{
    harness::{TestServer, TestServerBuilder, send},
    scripts::{ORDER, tool_call_script},
    stream::{Frame, format_frames, frames_of_kind, single_frame},
};
use greenroom::rehearsal::ProviderProtocol;
use reqwest::Method;
use serde_json::{Value, json};

on_both_wires!(c5_feedback_is_stored_counted_and_exported);

fn order_setup(wire: ProviderProtocol) -> TestServerBuilder {
    TestServerBuilder::with_script(wire, &tool_call_script("market_order_create", ORDER))
}

/// Sends `go`, answers the plan, and returns the frames after it.
async fn run_order(server: &TestServer, session: &str, decision: &str) -> Vec<Frame> {
    let body = json!({"session_id": session, "message": "go", "until": "pause"});
    let frames = server.chat_with(body).await.read_to_end().await;
    let plan = &single_frame(&frames, "waiting_for_approval").data["plan"];
    let path = format!("/agent/approvals/{}", plan["approval_id"].as_str().unwrap());
    server.post(&path, json!({"decision": decision})).await.expect_ok();
    let after = frames.last().unwrap().data["seq"].as_u64().unwrap();
    server.subscribe(session, &after.to_string()).await.read_until("done").await
}

/// Returns the lines of an export.
async fn export(server: &TestServer, query: &str) -> Vec<Value> {
    let response = server.get(&format!("/agent/export{query}")).await;
    assert_eq!(response.status, 200, "{}", response.body);
    assert_eq!(response.headers["content-type"], "application/jsonl");
    match response.body {
        Value::Null => Vec::new(),
        Value::String(text) => {
            text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
        }
        line @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            vec![line]
        }
    }
}

async fn c5_feedback_is_stored_counted_and_exported(wire: ProviderProtocol) {
    let server = order_setup(wire).start().await;
    let session = server.create_session_at(1).await;
    let frames = run_order(&server, &session, "approve").await;
    let messages = frames_of_kind(&frames, "message_completed");
    let message = messages.last().unwrap().data["message_id"].clone();
    let call = single_frame(&frames, "tool_call_completed").data["call_id"].clone();
    run_order(&server, &session, "reject").await;

    let rate = |stars: u8| json!({"session_id": session, "message_id": message, "rating": stars});
    let response = server.post("/agent/feedback", rate(2)).await.expect_ok();
    assert_eq!(response["run_id"], single_frame(&frames, "done").data["run_id"], "{response}");
    let mut better = rate(5);
    better["comment"] = json!("quick and right");
    server.post("/agent/feedback", better).await.expect_ok();
    let verdict = json!({"session_id": session, "call_id": call, "verdict": "good"});
    server.post("/agent/feedback", verdict).await.expect_ok();
    let all = server.events(&session).await;
    let ratings: Vec<_> = all.iter().filter(|event| event["type"] == "feedback_given").collect();
    assert_eq!(ratings.len(), 3);
    assert_eq!((&ratings[1]["rating"], &ratings[1]["about"]), (&json!(5), &json!("message")));

    // A later rating of the same user replaces the earlier one.
    let counted = server.get("/agent/statistics").await.expect_ok();
    let agent = &counted["agents"]["default"];
    assert_eq!((&agent["runs"], &agent["completed"]), (&json!(2), &json!(2)), "{counted}");
    assert_eq!(agent["rating"], json!({"count": 1, "average": 5.0, "stars": [0, 0, 0, 0, 1]}));
    let tool = &counted["tools"]["market_order_create"];
    assert_eq!((&tool["calls"], &tool["asked"]), (&json!(2), &json!(2)), "{counted}");
    assert_eq!((&tool["approved"], &tool["rejected"]), (&json!(1), &json!(1)));
    assert_eq!((&tool["approval_rate"], &tool["verdicts"]["good"]), (&json!(0.5), &json!(1)));
    assert_eq!(tool["call_ms"]["count"], 1, "one of them ran");
    // The rejected call counts neither as a success nor as a failure of the tool.
    assert_eq!((&tool["completed"], &tool["failed"]), (&json!(1), &json!(0)));
    assert_eq!((&tool["refused"], &tool["failure_rate"]), (&json!(1), &json!(0.0)));
    // Four steps of one model without a price. Models and agents report the same usage.
    let model = &counted["models"]["scripted"];
    assert_eq!((&model["steps"], &model["step_ms"]["count"]), (&json!(4), &json!(4)));
    assert_eq!((&model["usage"], &model["usage"]["cost_usd"]), (&agent["usage"], &Value::Null));
    let done = all.iter().filter(|event| event["type"] == "done");
    let tokens: u64 = done.map(|done| done["usage"]["output_tokens"].as_u64().unwrap()).sum();
    assert_eq!(model["usage"]["output_tokens"], tokens);
    let plans = &counted["approvals"]["plan"];
    assert_eq!((&plans["asked"], &plans["decided"]), (&json!(2), &json!(2)));
    assert!(plans["wait_ms"]["p95"].as_u64() >= plans["wait_ms"]["p50"].as_u64(), "{plans}");
    let timeline_sum = |figure: &str| -> u64 {
        let buckets = counted["timeline"]["buckets"].as_array().unwrap().iter();
        buckets.map(|bucket| bucket.pointer(figure).unwrap().as_u64().unwrap()).sum()
    };
    assert_eq!((timeline_sum("/runs/completed"), timeline_sum("/calls/completed")), (2, 1));
    assert_eq!((timeline_sum("/calls/refused"), timeline_sum("/step_ms/count")), (1, 4));
    let output_tokens = timeline_sum("/usage/output_tokens");
    assert_eq!(Some(output_tokens), model["usage"]["output_tokens"].as_u64());
    // The statistics since a time in the future are empty.
    let later = server.get("/agent/statistics?since=2999-01-01T00:00:00Z").await.expect_ok();
    assert_eq!(later["timeline"]["buckets"], json!([]));
    server.get("/agent/statistics?since=yesterday").await.expect_problem(400, "invalid_query");
    assert_eq!(counted["looked_at"]["complete"], true);

    let lines = export(&server, "").await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    let messages = lines[0]["messages"].as_array().unwrap();
    let roles: Vec<_> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    let run_roles = ["user", "assistant", "tool", "assistant"];
    let roles: Vec<_> = roles.iter().filter(|role| **role != "system").copied().collect();
    assert_eq!(roles, [run_roles, run_roles].concat());
    let message = messages.iter().find(|message| message["tool_calls"].is_array()).unwrap();
    let function = &message["tool_calls"][0]["function"];
    let arguments: Value = serde_json::from_str(function["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(
        (&function["name"], &arguments["type_id"]),
        (&json!("market_order_create"), &json!(34))
    );
    let tools = lines[0]["tools"].as_array().unwrap();
    assert!(tools.iter().any(|tool| tool["function"]["name"] == "market_order_create"));
    assert_eq!(lines[0]["feedback"].as_array().unwrap().len(), 3);
}

#[actix_web::test]
async fn c5_invalid_feedback_is_rejected() {
    let server = order_setup(ProviderProtocol::OpenAi).start().await;
    let session = server.create_session_at(1).await;
    let frames = run_order(&server, &session, "approve").await;
    let messages = frames_of_kind(&frames, "message_completed");
    let message = &messages.last().unwrap().data["message_id"];
    let unknown_id = "0198c0de-0000-7000-8000-000000000001";
    for (body, status, code) in [
        (json!({}), 422, "invalid_request"),
        (json!({"message_id": message}), 422, "invalid_request"),
        (json!({"message_id": message, "rating": 6}), 422, "invalid_request"),
        (json!({"message_id": message, "rating": 5, "verdict": "good"}), 422, "invalid_request"),
        (json!({"call_id": unknown_id, "rating": 5}), 422, "invalid_request"),
        (json!({"message_id": "other", "rating": 5}), 404, "message_not_found"),
        (json!({"call_id": unknown_id, "verdict": "wrong"}), 404, "call_not_found"),
    ] {
        let mut body = body;
        body["session_id"] = json!(session);
        server.post("/agent/feedback", body).await.expect_problem(status, code);
    }
    let body = json!({"session_id": unknown_id, "message_id": message, "rating": 3});
    server.post("/agent/feedback", body).await.expect_problem(404, "session_not_found");
}

#[actix_web::test]
async fn c5_users_export_their_own_sessions_and_admins_all() {
    let server = order_setup(ProviderProtocol::Anthropic).start().await;
    for user in ["ann", "bob"] {
        let session = server.create_session(json!({"user_id": user, "autonomy_level": 1})).await;
        server.chat_to_end(&session, "again").await;
    }
    let empty = server.create_session(json!({})).await;
    let lines = export(&server, "").await;
    let users: Vec<_> = lines.iter().map(|line| line["user_id"].as_str().unwrap()).collect();
    assert_eq!(users, ["bob", "ann"], "the newest first, without the empty session {empty}");
    // The next page starts after the session of the first line.
    let rest = format!("?before={}", lines[0]["session_id"].as_str().unwrap());
    assert_eq!(export(&server, &rest).await, lines[1..]);
    assert_eq!(export(&server, "?user=ann").await, lines[1..]);

    let key = json!({"name": "ann's", "user": "ann", "role": "user"});
    let key = server.post("/admin/keys", key).await;
    assert!(key.status.is_success(), "{}", key.body);
    let secret = key.body["key"].as_str().or(key.body["secret"].as_str()).unwrap().to_owned();
    let get =
        |path: &str| send(server.request_without_token(Method::GET, path).bearer_auth(&secret));
    let own_export = get("/agent/export").await;
    assert_eq!(
        own_export.body["user_id"], "ann",
        "only the session of this user: {}",
        own_export.body
    );
    get("/agent/export?user=bob").await.expect_problem(403, "forbidden");
    get("/agent/statistics?user=bob").await.expect_problem(403, "forbidden");
    let counted = get("/agent/statistics").await.expect_ok();
    assert_eq!(counted["looked_at"]["sessions"], 1, "{counted}");
}

#[actix_web::test]
async fn e7_exports_are_redacted() {
    let script = tool_call_script(
        "create_bookmark",
        r#"{ name = "x", system = "Jita", api_key = "hunter2" }"#,
    );
    let server = TestServerBuilder::with_script(ProviderProtocol::OpenAi, &script).start().await;
    let session = server.create_session_at(1).await;
    let frames = server.chat_to_end(&session, "go").await;
    assert!(!frames_of_kind(&frames, "done").is_empty(), "{}", format_frames(&frames));
    let lines = export(&server, "").await;
    let text = lines[0].to_string();
    assert!(text.contains("[redacted]") && !text.contains("hunter2"), "{text}");
}
