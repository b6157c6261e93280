//! The dialect that a client selects, on every kind of stream (E1).

use crate::{
    harness::{TestServer, TestServerBuilder, send},
    scripts::{ORDER, tool_call_script},
    stream::{Frame, format_frames},
};
use greenroom::rehearsal::ProviderProtocol;
use reqwest::Method;
use serde_json::{Value, json};

on_both_wires!(e1_task_dialect_has_a_call_before_each_result);

/// Returns the data of event frames, without text deltas, whose division varies.
fn event_data(frames: &[Frame]) -> Vec<Value> {
    frames.iter().filter(|frame| frame.kind() != "text").map(|frame| frame.data.clone()).collect()
}

/// Asserts that the `task` frames equal the native ones, except that each tool call has a
/// `tool_call` frame and a later `tool_result` frame with the same ids.
fn assert_task_frames_match(native: &[Value], task: &[Value]) {
    let is_call = |frame: &&Value| frame["type"] == "tool_call";
    let is_result = |frame: &&Value| frame["type"] == "tool_result";
    let started = native.iter().filter(|frame| frame["type"] == "tool_call_started").count();
    assert_eq!(task.iter().filter(is_call).count(), started);
    assert_eq!(task.iter().filter(is_result).count(), started);
    for result in task.iter().filter(is_result) {
        let before = |frame: &Value| frame["seq"].as_u64() < result["seq"].as_u64();
        let mut calls = task.iter().filter(is_call).filter(|call| before(call));
        let call = calls.find(|call| call["call_id"] == result["call_id"]);
        let call = call.unwrap_or_else(|| panic!("no call before {result}"));
        for name in ["agent_id", "agent_type", "task_id", "tool_name"] {
            assert!(call[name].is_string() && call[name] == result[name], "{name}: {result}");
        }
        assert!(call["timestamp"].is_string() && result["timestamp"].is_string());
        assert!(call["tool_input"].is_object());
        let has = |name| result.get(name).is_some();
        match result["success"].as_bool() {
            Some(true) => assert!(has("tool_output") && !has("error"), "{result}"),
            Some(false) => assert!(has("error") && !has("tool_output"), "{result}"),
            None => panic!("{result}"),
        }
    }
    let call_kinds = ["tool_call_started", "tool_call_completed", "tool_call_failed"];
    let is_no_call = |frame: &&Value| !call_kinds.contains(&frame["type"].as_str().unwrap());
    let is_shared = |frame: &&Value| !is_call(frame) && !is_result(frame);
    let (native, task): (Vec<_>, Vec<_>) =
        (native.iter().filter(is_no_call).collect(), task.iter().filter(is_shared).collect());
    assert_eq!(task, native);
}

async fn event_pages(server: &TestServer, session: &str, dialect: &str) -> Vec<Value> {
    let path = format!("/agent/session/{session}/events?limit=500{dialect}");
    server.get(&path).await.expect_ok()["events"].as_array().unwrap().clone()
}

async fn e1_task_dialect_has_a_call_before_each_result(wire: ProviderProtocol) {
    let server = TestServerBuilder::tour(wire).start().await;
    let session = server.create_session_at(1).await;
    // Parallel calls, retries, a denial, and a plan that is approved.
    server.chat_to_end(&session, "Which ships were destroyed most in Jita last week?").await;
    server.chat_to_end(&session, "Transfer 100M ISK to character XYZ").await;
    let path = "/agent/chat/stream?dialect=task";
    let body = json!({"session_id": session, "message": "Buy 1000 Tritanium at market price"});
    let mut live = server.stream(server.request(Method::POST, path).json(&body)).await;
    let before = live.read_until("waiting_for_approval").await;
    let plan = &before.last().unwrap().data["plan_id"];
    let body = json!({"session_id": session, "plan_id": plan});
    let execute = server.request(Method::POST, "/agent/execute?dialect=task").json(&body);
    let mut rest = server.stream(execute.header("accept", "text/event-stream")).await;
    let rest = rest.read_to_end().await;
    assert!(rest.iter().any(|frame| frame.kind() == "tool_result"), "{}", format_frames(&rest));
    let received = [before, live.read_to_end().await].concat();
    assert!(
        received.iter().any(|frame| frame.kind() == "tool_call"),
        "{}",
        format_frames(&received)
    );

    let (native, task) = (
        event_pages(&server, &session, "").await,
        event_pages(&server, &session, "&dialect=task").await,
    );
    assert_task_frames_match(&native, &task);
    let denied = task.iter().find(|frame| frame["blocked_by"] == "authorization").unwrap();
    assert!(denied["error"].as_str().unwrap().contains("requires autonomy level"), "{denied}");
    assert!(task.iter().any(|frame| frame["type"] == "authorization_denied"));

    // A replayed stream and a WebSocket return the same frames.
    let events = format!("/agent/session/{session}/events?dialect=task");
    let request = server.request(Method::GET, &events).header("accept", "text/event-stream");
    let mut stream = server.stream(request).await;
    let mut streamed = Vec::new();
    while streamed.iter().filter(|frame: &&Frame| frame.kind() == "done").count() < 3 {
        streamed.push(stream.next().await.unwrap());
    }
    assert_eq!(event_data(&streamed), task);
    let mut socket = server.socket(&format!("/agent/stream/{session}?dialect=task")).await;
    let frames = socket.read_until("tool_result").await;
    let call = frames.iter().find(|frame| frame["type"] == "tool_call").unwrap();
    let result = &frames.last().unwrap()["payload"];
    assert_eq!(
        (&call["payload"]["tool_name"], &result["success"]),
        (&result["tool_name"], &json!(true))
    );
}

#[actix_web::test]
async fn e3_resume_between_two_frames_of_one_event_repeats_both() {
    let server = TestServerBuilder::tour(ProviderProtocol::Anthropic).start().await;
    let session = server.create_session_at(1).await;
    server.chat_to_end(&session, "Transfer 100M ISK to character XYZ").await;
    let subscribe = |after: String| {
        let path = format!("/agent/session/{session}/events?dialect=task");
        let request = server.request(Method::GET, &path).header("accept", "text/event-stream");
        server.stream(request.header("last-event-id", after))
    };
    let whole = subscribe("0".to_owned()).await.read_until("done").await;
    let index = whole.iter().position(|frame| frame.kind() == "authorization_denied").unwrap();
    assert_eq!(whole[index + 1].kind(), "tool_result");
    assert_eq!(whole[index].data["seq"], whole[index + 1].data["seq"]);
    let resumed = subscribe(whole[index].cursor.clone()).await.read_until("done").await;
    assert_eq!(event_data(&resumed)[..2], event_data(&whole[index..index + 2])[..]);
    let resumed = subscribe(whole[index + 1].cursor.clone()).await.read_until("done").await;
    assert_eq!(event_data(&resumed), event_data(&whole[index + 2..]));
}

#[actix_web::test]
async fn e1_unknown_dialect_is_rejected_without_effect() {
    let server = TestServerBuilder::with_script(
        ProviderProtocol::Anthropic,
        &tool_call_script("market_order_create", ORDER),
    )
    .start()
    .await;
    let session = server.create_session_at(1).await;
    let mut stream = server.chat(&session, "go").await;
    let frames = stream.read_until("waiting_for_approval").await;
    let plan = frames.last().unwrap().data["plan_id"].clone();
    let head = server.get(&format!("/agent/session/{session}")).await.expect_ok()["head"].clone();
    let events = format!("/agent/session/{session}/events?dialect=klingon");
    let socket = format!("/agent/stream/{session}?dialect=klingon");
    let plan = json!({"session_id": session, "plan_id": plan});
    let message = json!({"session_id": session, "message": "again"});
    for (method, path, body, stream) in [
        (Method::GET, events.as_str(), Value::Null, false),
        (Method::GET, events.as_str(), Value::Null, true),
        (Method::GET, "/admin/events?dialect=klingon", Value::Null, true),
        (Method::GET, socket.as_str(), Value::Null, false),
        (Method::GET, "/agent/stream?dialect=gateway", Value::Null, false),
        (Method::POST, "/agent/chat/stream?dialect=klingon", message, true),
        (Method::POST, "/agent/execute?dialect=klingon", plan, true),
    ] {
        let mut request = server.request(method, path);
        if !body.is_null() {
            request = request.json(&body);
        }
        if stream {
            request = request.header("accept", "text/event-stream");
        }
        let problem = send(request).await.expect_problem(400, "unknown_dialect");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("`agent` and `task`"), "{path}: {detail}");
    }
    assert_eq!(server.get(&format!("/agent/session/{session}")).await.expect_ok()["head"], head);
}
