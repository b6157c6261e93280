//! What people think of answers and calls, what is counted of it, and conversations taken out (C5).

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

/// Says go, and answers the plan.
async fn order(server: &TestServer, session: &str, decision: &str) -> Vec<Frame> {
    let body = json!({"session_id": session, "message": "go", "until": "pause"});
    let frames = server.chat_with(body).await.read_to_end().await;
    let plan = &single_frame(&frames, "waiting_for_approval").data["plan"];
    let path = format!("/agent/approvals/{}", plan["approval_id"].as_str().unwrap());
    server.post(&path, json!({"decision": decision})).await.expect_ok();
    let after = frames.last().unwrap().data["seq"].as_u64().unwrap();
    server.subscribe(session, &after.to_string()).await.read_until("done").await
}

/// The lines of an export.
async fn export(server: &TestServer, query: &str) -> Vec<Value> {
    let answer = server.get(&format!("/agent/export{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.headers["content-type"], "application/jsonl");
    match answer.body {
        Value::Null => Vec::new(),
        Value::String(text) => {
            text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
        }
        one @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => vec![one],
    }
}

async fn c5_feedback_is_stored_counted_and_exported(wire: ProviderProtocol) {
    let server = order_setup(wire).start().await;
    let session = server.create_session_at(1).await;
    let frames = order(&server, &session, "approve").await;
    let said = frames_of_kind(&frames, "message_completed").last().unwrap().data["message_id"].clone();
    let call = single_frame(&frames, "tool_call_completed").data["call_id"].clone();
    order(&server, &session, "reject").await;

    let rate = |stars: u8| json!({"session_id": session, "message_id": said, "rating": stars});
    let given = server.post("/agent/feedback", rate(2)).await.expect_ok();
    assert_eq!(given["run_id"], single_frame(&frames, "done").data["run_id"], "{given}");
    let mut better = rate(5);
    better["comment"] = json!("quick and right");
    server.post("/agent/feedback", better).await.expect_ok();
    let verdict = json!({"session_id": session, "call_id": call, "verdict": "good"});
    server.post("/agent/feedback", verdict).await.expect_ok();
    let all = server.events(&session).await;
    let given: Vec<_> = all.iter().filter(|event| event["type"] == "feedback_given").collect();
    assert_eq!(given.len(), 3);
    assert_eq!((&given[1]["rating"], &given[1]["about"]), (&json!(5), &json!("message")));

    // Who says something anew takes back what they said.
    let counted = server.get("/agent/statistics").await.expect_ok();
    let agent = &counted["agents"]["default"];
    assert_eq!((&agent["runs"], &agent["completed"]), (&json!(2), &json!(2)), "{counted}");
    assert_eq!(agent["rating"], json!({"count": 1, "average": 5.0, "stars": [0, 0, 0, 0, 1]}));
    let tool = &counted["tools"]["market_order_create"];
    assert_eq!((&tool["calls"], &tool["asked"]), (&json!(2), &json!(2)), "{counted}");
    assert_eq!((&tool["approved"], &tool["rejected"]), (&json!(1), &json!(1)));
    assert_eq!((&tool["approval_rate"], &tool["verdicts"]["good"]), (&json!(0.5), &json!(1)));
    assert_eq!(tool["call_ms"]["count"], 1, "one of them ran");
    // One call was ended by a person, and so says nothing of the tool.
    assert_eq!((&tool["completed"], &tool["failed"]), (&json!(1), &json!(0)));
    assert_eq!((&tool["refused"], &tool["failure_rate"]), (&json!(1), &json!(0.0)));
    // Four steps of one model, whose price nobody knows; each is counted once, wherever it shows.
    let model = &counted["models"]["scripted"];
    assert_eq!((&model["steps"], &model["step_ms"]["count"]), (&json!(4), &json!(4)));
    assert_eq!((&model["usage"], &model["usage"]["cost_usd"]), (&agent["usage"], &Value::Null));
    let done = all.iter().filter(|event| event["type"] == "done");
    let tokens: u64 = done.map(|done| done["usage"]["output_tokens"].as_u64().unwrap()).sum();
    assert_eq!(model["usage"]["output_tokens"], tokens);
    let asked = &counted["approvals"]["plan"];
    assert_eq!((&asked["asked"], &asked["decided"]), (&json!(2), &json!(2)));
    assert!(asked["wait_ms"]["p95"].as_u64() >= asked["wait_ms"]["p50"].as_u64(), "{asked}");
    let over_time = |figure: &str| -> u64 {
        let buckets = counted["timeline"]["buckets"].as_array().unwrap().iter();
        buckets.map(|bucket| bucket.pointer(figure).unwrap().as_u64().unwrap()).sum()
    };
    assert_eq!((over_time("/runs/completed"), over_time("/calls/completed")), (2, 1));
    assert_eq!((over_time("/calls/refused"), over_time("/step_ms/count")), (1, 4));
    assert_eq!(Some(over_time("/usage/output_tokens")), model["usage"]["output_tokens"].as_u64());
    // What happened before is not counted, nor is anything that is still to come.
    let later = server.get("/agent/statistics?since=2999-01-01T00:00:00Z").await.expect_ok();
    assert_eq!(later["timeline"]["buckets"], json!([]));
    server.get("/agent/statistics?since=yesterday").await.expect_problem(400, "invalid_query");
    assert_eq!(counted["looked_at"]["complete"], true);

    let lines = export(&server, "").await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    let messages = lines[0]["messages"].as_array().unwrap();
    let roles: Vec<_> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    let of_run = ["user", "assistant", "tool", "assistant"];
    let spoken: Vec<_> = roles.iter().filter(|role| **role != "system").copied().collect();
    assert_eq!(spoken, [of_run, of_run].concat());
    let called = messages.iter().find(|message| message["tool_calls"].is_array()).unwrap();
    let function = &called["tool_calls"][0]["function"];
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
    let frames = order(&server, &session, "approve").await;
    let said = &frames_of_kind(&frames, "message_completed").last().unwrap().data["message_id"];
    let nobody = "0198c0de-0000-7000-8000-000000000001";
    for (body, status, code) in [
        (json!({}), 422, "invalid_request"),
        (json!({"message_id": said}), 422, "invalid_request"),
        (json!({"message_id": said, "rating": 6}), 422, "invalid_request"),
        (json!({"message_id": said, "rating": 5, "verdict": "good"}), 422, "invalid_request"),
        (json!({"call_id": nobody, "rating": 5}), 422, "invalid_request"),
        (json!({"message_id": "other", "rating": 5}), 404, "message_not_found"),
        (json!({"call_id": nobody, "verdict": "wrong"}), 404, "call_not_found"),
    ] {
        let mut body = body;
        body["session_id"] = json!(session);
        server.post("/agent/feedback", body).await.expect_problem(status, code);
    }
    let nowhere = json!({"session_id": nobody, "message_id": said, "rating": 3});
    server.post("/agent/feedback", nowhere).await.expect_problem(404, "session_not_found");
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
    assert_eq!(users, ["bob", "ann"], "the newest first, and nothing of {empty}");
    // From where the first line ends.
    let rest = format!("?before={}", lines[0]["session_id"].as_str().unwrap());
    assert_eq!(export(&server, &rest).await, lines[1..]);
    assert_eq!(export(&server, "?user=ann").await, lines[1..]);

    let key = json!({"name": "ann's", "user": "ann", "role": "user"});
    let key = server.post("/admin/keys", key).await;
    assert!(key.status.is_success(), "{}", key.body);
    let secret = key.body["key"].as_str().or(key.body["secret"].as_str()).unwrap().to_owned();
    let get =
        |path: &str| send(server.request_without_token(Method::GET, path).bearer_auth(&secret));
    let own = get("/agent/export").await;
    assert_eq!(own.body["user_id"], "ann", "one line of her own: {}", own.body);
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
