//! The dialect that a client asks for, on every stream there is (E1).

use crate::{
    harness::{TestServer, TestServerBuilder, send},
    scripts::{ORDER, tool_call_script},
    stream::{Frame, format_frames},
};
use greenroom::rehearsal::ProviderProtocol;
use reqwest::Method;
use serde_json::{Value, json};

on_both_wires!(e1_a_task_has_a_call_before_each_result);

/// What the frames of events say; text is cut into pieces as it comes.
fn data(frames: &[Frame]) -> Vec<Value> {
    frames.iter().filter(|frame| frame.kind() != "text").map(|frame| frame.data.clone()).collect()
}

/// Of the tour's frames in both dialects, those of the dialect `task` are the native ones, but for
/// tool calls.
fn check_pairs(native: &[Value], task: &[Value]) {
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
    let of_calls = ["tool_call_started", "tool_call_completed", "tool_call_failed"];
    let other = |frame: &&Value| !of_calls.contains(&frame["type"].as_str().unwrap());
    let own = |frame: &&Value| !is_call(frame) && !is_result(frame);
    let (native, task): (Vec<_>, Vec<_>) =
        (native.iter().filter(other).collect(), task.iter().filter(own).collect());
    assert_eq!(task, native);
}

async fn pages(server: &TestServer, session: &str, dialect: &str) -> Vec<Value> {
    let path = format!("/agent/session/{session}/events?limit=500{dialect}");
    server.get(&path).await.expect_ok()["events"].as_array().unwrap().clone()
}

async fn e1_a_task_has_a_call_before_each_result(wire: ProviderProtocol) {
    let server = TestServerBuilder::tour(wire).start().await;
    let session = server.create_session_at(1).await;
    // Calls in parallel, retries, a denial, and a plan whose steps are decided differently.
    server.chat_to_end(&session, "Which ships were destroyed most in Jita last week?").await;
    server.chat_to_end(&session, "Transfer 100M ISK to character XYZ").await;
    let path = "/agent/chat/stream?dialect=task";
    let body = json!({"session_id": session, "message": "Buy 1000 Tritanium at market price"});
    let mut live = server.stream(server.request(Method::POST, path).json(&body)).await;
    let asked = live.read_until("waiting_for_approval").await;
    let plan = &asked.last().unwrap().data["plan_id"];
    let body = json!({"session_id": session, "plan_id": plan});
    let execute = server.request(Method::POST, "/agent/execute?dialect=task").json(&body);
    let mut rest = server.stream(execute.header("accept", "text/event-stream")).await;
    let rest = rest.read_to_end().await;
    assert!(rest.iter().any(|frame| frame.kind() == "tool_result"), "{}", format_frames(&rest));
    let heard = [asked, live.read_to_end().await].concat();
    assert!(heard.iter().any(|frame| frame.kind() == "tool_call"), "{}", format_frames(&heard));

    let (native, task) =
        (pages(&server, &session, "").await, pages(&server, &session, "&dialect=task").await);
    check_pairs(&native, &task);
    let denied = task.iter().find(|frame| frame["blocked_by"] == "authorization").unwrap();
    assert!(denied["error"].as_str().unwrap().contains("requires autonomy level"), "{denied}");
    assert!(task.iter().any(|frame| frame["type"] == "authorization_denied"));

    // The stream, live and replayed, and a WebSocket's, say the same.
    let events = format!("/agent/session/{session}/events?dialect=task");
    let request = server.request(Method::GET, &events).header("accept", "text/event-stream");
    let mut stream = server.stream(request).await;
    let mut streamed = Vec::new();
    while streamed.iter().filter(|frame: &&Frame| frame.kind() == "done").count() < 3 {
        streamed.push(stream.next().await.unwrap());
    }
    assert_eq!(data(&streamed), task);
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
async fn e3_a_client_that_is_cut_off_between_two_frames_of_one_event_gets_both_again() {
    let server = TestServerBuilder::tour(ProviderProtocol::Anthropic).start().await;
    let session = server.create_session_at(1).await;
    server.chat_to_end(&session, "Transfer 100M ISK to character XYZ").await;
    let listen = |after: String| {
        let path = format!("/agent/session/{session}/events?dialect=task");
        let request = server.request(Method::GET, &path).header("accept", "text/event-stream");
        server.stream(request.header("last-event-id", after))
    };
    let whole = listen("0".to_owned()).await.read_until("done").await;
    let at = whole.iter().position(|frame| frame.kind() == "authorization_denied").unwrap();
    assert_eq!(whole[at + 1].kind(), "tool_result");
    assert_eq!(whole[at].data["seq"], whole[at + 1].data["seq"]);
    let resumed = listen(whole[at].cursor.clone()).await.read_until("done").await;
    assert_eq!(data(&resumed)[..2], data(&whole[at..at + 2])[..]);
    let resumed = listen(whole[at + 1].cursor.clone()).await.read_until("done").await;
    assert_eq!(data(&resumed), data(&whole[at + 2..]));
}

#[actix_web::test]
async fn e1_an_unknown_dialect_is_refused_before_anything_is_done() {
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
