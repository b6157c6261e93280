//! The WebSocket `/gateway`: requests and their streams, approvals, and lost connections.

use crate::{
    harness::{TestServer, TestServerBuilder},
    scripts::{ORDER, STALLED_TEXT, STALLS_ONCE, STORY, tool_call_script},
    stream::Socket,
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};

on_both_wires!(
    request_is_answered_by_a_stream,
    g9_call_approval_runs_rejects_or_grants,
    s5_repeated_request_streams_the_remainder,
);

/// Sends a message as request `id`.
async fn chat(socket: &mut Socket, session: &str, id: &str, content: &str) {
    let frame = json!({"type": "chat.send", "id": id, "sessionId": session, "content": content});
    socket.send(frame).await;
}

async fn send_approval(socket: &mut Socket, call: &Value, approved: bool) {
    let frame = json!({
        "type": "tool.approval.response", "id": "word", "toolCallId": call, "approved": approved,
    });
    socket.send(frame).await;
}

fn of_type<'a>(frames: &'a [Value], kind: &str) -> Vec<&'a Value> {
    frames.iter().filter(|frame| frame["type"] == kind).collect()
}

fn types(frames: &[Value]) -> Vec<&str> {
    let mut types: Vec<_> = frames.iter().map(|frame| frame["type"].as_str().unwrap()).collect();
    types.dedup_by(|next, before| *next == "chat.stream.delta" && next == before);
    types
}

/// Returns the concatenated text deltas, without those of discarded messages.
fn streamed_text(frames: &[Value]) -> String {
    let discarded: Vec<_> = frames
        .iter()
        .filter(|frame| frame["discarded"] == true)
        .map(|frame| frame["messageId"].clone())
        .collect();
    let is_kept = |frame: &&&Value| !discarded.contains(&frame["messageId"]);
    let deltas = of_type(frames, "chat.stream.delta");
    deltas.iter().filter(is_kept).map(|frame| frame["delta"].as_str().unwrap()).collect()
}

async fn request_is_answered_by_a_stream(wire: ProviderProtocol) {
    let server = TestServerBuilder::tour(wire).start().await;
    let mut socket = server.socket("/gateway").await;
    let message = "What is the current sell price of Tritanium in Jita?";
    socket.send(json!({"type": "chat.send", "id": "r-1", "content": message})).await;
    let frames = socket.read_until("chat.stream.end").await;
    let expected = [
        "chat.stream.start",
        "chat.stream.delta",
        "tool.call",
        "tool.result",
        "chat.stream.delta",
        "chat.stream.end",
    ];
    assert_eq!(types(&frames), expected);
    assert!(frames.iter().all(|frame| frame["requestId"] == "r-1"), "{frames:?}");
    assert!(frames.iter().all(|frame| frame["cursor"].is_string()), "{frames:?}");
    let (call, result) = (of_type(&frames, "tool.call")[0], of_type(&frames, "tool.result")[0]);
    assert_eq!(call["args"], json!({"region_id": 10_000_002, "type_id": 34}));
    for name in ["toolCallId", "toolName"] {
        assert_eq!(call[name], result[name]);
    }
    assert_eq!(result["result"]["hub"], "Jita");
    assert!(
        streamed_text(&frames).contains("**Tritanium** sells for **4.12 ISK**"),
        "{}",
        streamed_text(&frames)
    );
    let (start, end) = (&frames[0], frames.last().unwrap());
    assert_eq!((&start["model"], &end["outcome"]), (&json!("scripted"), &json!("completed")));
    let session =
        server.get(&format!("/agent/session/{}", start["sessionId"].as_str().unwrap())).await;
    let usage = &session.expect_ok()["usage"];
    assert_eq!(end["usage"]["inputTokens"], usage["input_tokens"]);
    assert_eq!(end["usage"]["outputTokens"], usage["output_tokens"]);
    assert_eq!(end["usage"]["costUSD"], Value::Null);
}

async fn g9_call_approval_runs_rejects_or_grants(wire: ProviderProtocol) {
    let server =
        TestServerBuilder::with_script(wire, &tool_call_script("market_order_create", ORDER))
            .start()
            .await;
    let session = server.create_session_at(1).await;
    let mut socket = server.socket("/gateway").await;
    for (number, approved) in [(1, false), (2, true)] {
        chat(&mut socket, &session, &format!("r-{number}"), "go").await;
        let frames = socket.read_until("tool.approval.request").await;
        let request = frames.last().unwrap();
        let call = of_type(&frames, "tool.call")[0];
        for name in ["requestId", "toolCallId", "toolName", "args"] {
            assert_eq!(request[name], call[name]);
        }
        assert_eq!(request["risk"], "medium");
        send_approval(&mut socket, &request["toolCallId"], approved).await;
        let frames = socket.read_until("chat.stream.end").await;
        let result = of_type(&frames, "tool.result")[0];
        assert_eq!(result.get("isError").is_some(), !approved, "{result}");
        assert_eq!(server.effects().len(), usize::from(approved));
        if !approved {
            assert_eq!(result["result"]["reason"], "rejected");
        }
    }
    // An approval for the session creates a grant, so the next call needs no approval.
    chat(&mut socket, &session, "r-3", "go").await;
    let request = socket.read_until("tool.approval.request").await.pop().unwrap();
    let response = json!({
        "type": "tool.approval.response", "id": "w", "toolCallId": request["toolCallId"],
        "approved": true, "sessionApprove": true,
    });
    socket.send(response.clone()).await;
    socket.read_until("chat.stream.end").await;
    let grants = server.get(&format!("/agent/session/{session}/grants")).await.expect_ok();
    assert_eq!(grants["grants"][0]["tool"], "market_order_create");
    chat(&mut socket, &session, "r-4", "go").await;
    let frames = socket.read_until("chat.stream.end").await;
    assert!(of_type(&frames, "tool.approval.request").is_empty(), "{frames:?}");
    assert_eq!(server.effects().len(), 3);
    // Repeating the answer has no effect; a different answer fails and names the first one.
    socket.send(response).await;
    send_approval(&mut socket, &request["toolCallId"], false).await;
    let refused = socket.next().await;
    assert_eq!((&refused["type"], &refused["code"]), (&json!("error"), &json!("already_decided")));
    assert_eq!(
        (&refused["requestId"], &refused["first"][0]["by"]),
        (&json!("word"), &json!("admin"))
    );
    assert_eq!(refused["first"][0]["surface"], "websocket");
    assert_eq!(refused["message"], "already approved for the session by admin");
}

async fn s5_repeated_request_streams_the_remainder(wire: ProviderProtocol) {
    let server = TestServerBuilder::with_script(wire, STORY).start().await;
    let mut first = server.socket("/gateway").await;
    let id = "f81d4fae-7dec-4d2a-a765-00a0c91e6bf6";
    let send = json!({"type": "chat.send", "id": id, "content": "a story"});
    first.send(send.clone()).await;
    let mut received = Vec::new();
    while streamed_text(&received).chars().count() < 100 {
        received.push(first.next().await);
    }
    drop(first);
    let mut second = server.socket("/gateway").await;
    let mut resumed = send.clone();
    resumed["after"] = received.last().unwrap()["cursor"].clone();
    second.send(resumed).await;
    received.extend(second.read_until("chat.stream.end").await);
    // Without a cursor, the stream starts at the beginning.
    let mut third = server.socket("/gateway").await;
    third.send(send).await;
    let whole = third.read_until("chat.stream.end").await;
    assert_eq!(streamed_text(&received), streamed_text(&whole));
    assert_eq!(types(&received), types(&whole));
    assert_eq!(whole[0], received[0], "the same session and the same run");
    let sessions = server.get("/agent/session").await.expect_ok();
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 1);
    let reused = json!({"type": "chat.send", "id": id, "content": "another one"});
    third.send(reused).await;
    let refused = third.next().await;
    assert_eq!(
        (&refused["code"], &refused["requestId"]),
        (&json!("message_id_reused"), &json!(id))
    );
}

/// Returns the ids of the calls for which approval is requested, in order.
fn requested_call_ids(frames: &[Value]) -> Vec<Value> {
    let requests = of_type(frames, "tool.approval.request").into_iter();
    requests.map(|frame| frame["toolCallId"].clone()).collect()
}

#[actix_web::test]
async fn g11_open_approvals_are_requested_again_after_a_crash_and_decided_ones_are_not() {
    let mut server = TestServerBuilder::tour(ProviderProtocol::Anthropic).start().await;
    let session = server.create_session_at(1).await;
    let mut socket = server.socket("/gateway").await;
    chat(&mut socket, &session, "r-1", "Stock up").await;
    let mut frames = socket.read_until("tool.approval.request").await;
    frames.extend(socket.read_until("tool.approval.request").await);
    let calls = requested_call_ids(&frames);
    send_approval(&mut socket, &calls[0], true).await;
    let frames = socket.read_until("tool.result").await;
    let cursor = frames.last().unwrap()["cursor"].clone();
    server.kill_and_restart().await;

    // From the beginning, and from the last received cursor.
    for after in [Value::Null, cursor] {
        let mut socket = server.socket("/gateway").await;
        let send = json!({
            "type": "chat.send", "id": "r-1", "sessionId": session, "content": "Stock up",
            "after": after,
        });
        socket.send(send).await;
        let frames = socket.read_until("tool.approval.request").await;
        assert_eq!(requested_call_ids(&frames), calls[1..], "{frames:?}");
        assert_eq!(frames[0]["type"] == "chat.stream.start", after.is_null());
    }
    // A request that is queued behind an open approval receives that approval request.
    let mut socket = server.socket("/gateway").await;
    chat(&mut socket, &session, "r-2", "What is the current sell price of Tritanium in Jita?")
        .await;
    let first = socket.next().await;
    assert_eq!(
        (&first["type"], &first["requestId"]),
        (&json!("tool.approval.request"), &json!("r-1"))
    );
    let second = socket.next().await;
    assert_eq!((&second["requestId"], &second["queued"]), (&json!("r-2"), &json!(true)));
    send_approval(&mut socket, &first["toolCallId"], true).await;
    let frames = socket.read_until("chat.stream.end").await;
    assert!(frames.iter().all(|frame| frame["requestId"] == "r-2"), "{frames:?}");
    let tools: Vec<_> = server.effects().iter().map(|effect| effect["tool"].clone()).collect();
    let order = "market_order_create";
    assert_eq!(tools, [order, order, "create_shopping_list"], "each once");
}

#[actix_web::test]
async fn m3_discarded_text_is_withdrawn() {
    // The text is sent before the stalled attempt ends.
    let server = TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE)
        .with_model_config("idle_timeout = \"1s\"")
        .start()
        .await;
    let session = server.create_session_at(1).await;
    let mut socket = server.socket("/gateway").await;
    chat(&mut socket, &session, "r-1", "stall").await;
    let frames = socket.read_until("chat.stream.end").await;
    let discarded = frames.iter().filter(|frame| frame["discarded"] == true);
    assert_eq!(discarded.count(), 1, "{frames:?}");
    assert_eq!(streamed_text(&frames), STALLED_TEXT);
    // A client that only appends deltas.
    let deltas = of_type(&frames, "chat.stream.delta").into_iter();
    let appended: String = deltas.map(|frame| frame["delta"].as_str().unwrap()).collect();
    let withdrawn = "\n[The answer was interrupted. The text above is withdrawn.]\n";
    let (before, after) = appended.split_once(withdrawn).expect("the text is withdrawn");
    assert!(STALLED_TEXT.starts_with(before) && !before.is_empty(), "{before}");
    assert_eq!(after, STALLED_TEXT);
}

#[actix_web::test]
async fn s6_cancelled_or_failed_request_ends_its_stream() {
    let script = format!(
        "{STALLS_ONCE}\n[[rule]]\nuser = 'refuse'\nfail = {{ status = 401, message = 'no such key' }}\n[[rule.reply]]\ntext = 'never'"
    );
    let server = TestServerBuilder::with_script(ProviderProtocol::Anthropic, &script).start().await;
    let session = server.create_session_at(1).await;
    let mut socket = server.socket("/gateway").await;
    chat(&mut socket, &session, "r-1", "stall").await;
    socket.read_until("chat.stream.delta").await;
    server.post(&format!("/agent/session/{session}/cancel"), json!({})).await.expect_ok();
    let end = socket.read_until("chat.stream.end").await.pop().unwrap();
    assert_eq!((&end["outcome"], &end["requestId"]), (&json!("cancelled"), &json!("r-1")));

    chat(&mut socket, &session, "r-2", "refuse").await;
    let frames = socket.read_until("chat.stream.end").await;
    let frames: Vec<_> =
        frames.into_iter().filter(|frame| frame["type"] != "chat.stream.delta").collect();
    assert_eq!(types(&frames), ["chat.stream.start", "error", "chat.stream.end"]);
    assert_eq!(
        (&frames[1]["code"], &frames[1]["reason"]),
        (&json!("run_failed"), &json!("model_error"))
    );
    assert!(frames[1]["message"].as_str().unwrap().contains("no such key"), "{frames:?}");
    assert_eq!(frames[2]["outcome"], "failed");
}

#[actix_web::test]
async fn details_option_adds_events_that_the_dialect_does_not_define() {
    let server = TestServerBuilder::tour(ProviderProtocol::Anthropic).start().await;
    let session = server.create_session_at(1).await;
    let mut socket = server.socket("/gateway?details=true").await;
    chat(&mut socket, &session, "r-1", "Get production cost for Stabber").await;
    let frames = socket.read_until("chat.stream.end").await;
    let agent_event_count = |kind: &str| {
        let events = of_type(&frames, "agent.event").into_iter();
        events.filter(|frame| frame["event"]["type"] == kind).count()
    };
    assert_eq!(agent_event_count("tool_call_retrying"), 2, "{frames:?}");
    let counts = ["tool_call_started", "done", "thinking"].map(agent_event_count);
    assert_eq!(counts, [0, 0, 2]);
    // The frames of both kinds contain each event of the run exactly once.
    let run_events = server.events(&session).await.into_iter();
    let run_events: Vec<_> = run_events.filter(|event| event["run_id"].is_string()).collect();
    let seq = |frame: &Value| -> u64 {
        let cursor = frame["cursor"].as_str().unwrap();
        cursor.split('.').next().unwrap().parse().unwrap()
    };
    let event_frames = frames.iter().filter(|frame| frame["type"] != "chat.stream.delta");
    let expected: Vec<_> = run_events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(event_frames.map(seq).collect::<Vec<_>>(), expected);
}

async fn send_expecting_error(socket: &mut Socket, frame: Value) -> (String, Value) {
    socket.send(frame).await;
    let response = socket.next().await;
    assert_eq!(response["type"], "error", "{response}");
    assert!(!response["message"].as_str().unwrap().is_empty());
    (response["code"].as_str().unwrap().to_owned(), response)
}

async fn create_user_key(server: &TestServer, user: &str) -> String {
    let key = server.post("/admin/keys", json!({"user_id": user, "role": "user"})).await;
    assert_eq!(key.status, 201);
    key.body["key"].as_str().unwrap().to_owned()
}

#[actix_web::test]
async fn x2_x4_invalid_and_foreign_requests_are_rejected_and_the_socket_stays_open() {
    let server = TestServerBuilder::with_script(
        ProviderProtocol::Anthropic,
        &tool_call_script("market_order_create", ORDER),
    )
    .start()
    .await;
    let foreign = server.create_session_at(1).await;
    let mut owner = server.socket("/gateway").await;
    chat(&mut owner, &foreign, "r-1", "go").await;
    let request = owner.read_until("tool.approval.request").await.pop().unwrap();
    let key = create_user_key(&server, "eve").await;
    let mut socket =
        Socket::open_as(&server.url().replacen("http", "ws", 1), "/gateway", &key).await;
    let unknown_id = "0198c0de-0000-7000-8000-000000000001";
    let long = "x".repeat(256 * 1024 + 1);
    for (frame, code) in [
        (json!([1]), "invalid_request"),
        (json!({"id": "a"}), "invalid_request"),
        (json!({"type": "chat.shout", "id": "a"}), "unknown_type"),
        (json!({"type": "chat.send", "id": "a", "content": " "}), "invalid_request"),
        (json!({"type": "chat.send", "id": "a"}), "invalid_request"),
        (json!({"type": "chat.send", "content": "hi"}), "invalid_request"),
        (json!({"type": "chat.send", "id": "a", "content": long}), "message_too_large"),
        (
            json!({"type": "chat.send", "id": "a", "content": "go", "sessionId": foreign}),
            "session_not_found",
        ),
        (
            json!({"type": "chat.send", "id": "a", "content": "go", "sessionId": "x"}),
            "invalid_request",
        ),
        (json!({"type": "chat.send", "id": "a", "content": "go", "after": "99"}), "cursor_ahead"),
        (
            json!({"type": "tool.approval.response", "id": "a", "toolCallId": unknown_id, "approved": true}),
            "approval_not_found",
        ),
        (
            json!({"type": "tool.approval.response", "id": "a", "toolCallId": request["toolCallId"],
                "approved": true}),
            "approval_not_found",
        ),
        (
            json!({"type": "preflight.approval", "id": "a", "requestId": "r-1", "approved": true}),
            "approval_not_found",
        ),
    ] {
        let (actual_code, response) = send_expecting_error(&mut socket, frame.clone()).await;
        assert_eq!(actual_code, code, "{response}");
        if frame["id"] == "a" {
            assert_eq!(response["requestId"], "a");
        }
    }
    assert_eq!(server.effects().len(), 0);
    // Another user's request id can be reused; the request creates a session of the caller.
    socket.send(json!({"type": "chat.send", "id": "r-1", "content": "again"})).await;
    let frames = socket.read_until("chat.stream.end").await;
    assert_eq!(streamed_text(&frames), "Here I am.");
    let own_session = frames[0]["sessionId"].as_str().unwrap();
    assert_ne!(own_session, foreign);
    let session = server.get(&format!("/agent/session/{own_session}")).await.expect_ok();
    assert_eq!(session["user_id"], "eve");
}
