//! The ids of requests over `/gateway` (S5), the members of `chat.send`, and `chat.cancel` (S6).

use crate::{
    harness::{TestServer, TestServerBuilder},
    scripts::{ORDER, STALLS_ONCE, tool_call_script},
    stream::Socket,
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};

const UUID: &str = "f81d4fae-7dec-4d2a-a765-00a0c91e6bf6";
/// Answers every message.
const ANSWER: &str = "[[rule]]\n[[rule.reply]]\ntext = 'Here I am.'";

async fn start(script: &str) -> TestServer {
    TestServerBuilder::with_script(ProviderProtocol::Anthropic, script).start().await
}

fn request(id: &str, content: &str) -> Value {
    json!({"type": "chat.send", "id": id, "content": content})
}

fn in_session(session: &Value, id: &str, content: &str) -> Value {
    let mut request = request(id, content);
    request["sessionId"] = session.clone();
    request
}

/// Sends a request, reads its answer to the end, and returns its session and run.
async fn answer(socket: &mut Socket, request: Value) -> (Value, Value) {
    socket.send(request).await;
    let frames = socket.read_until("chat.stream.end").await;
    let start = &frames[0];
    assert_eq!(start["type"], "chat.stream.start", "{frames:?}");
    (start["sessionId"].clone(), start["runId"].clone())
}

/// Sends a frame that fails, and returns its code and field.
async fn error(socket: &mut Socket, frame: Value) -> (Value, Value) {
    socket.send(frame).await;
    let error = socket.next().await;
    assert_eq!(error["type"], "error", "{error}");
    (error["code"].clone(), error["field"].clone())
}

fn reused() -> (Value, Value) {
    (json!("message_id_reused"), json!("id"))
}

async fn session_count(server: &TestServer) -> usize {
    let sessions = server.get("/agent/session").await.expect_ok();
    sessions["sessions"].as_array().unwrap().len()
}

#[actix_web::test]
async fn s5_counting_id_is_known_on_its_connection_and_in_its_session() {
    let server = start(ANSWER).await;
    let mut first = server.socket("/gateway").await;
    let (session, run) = answer(&mut first, request("1", "hello")).await;
    // On its connection.
    assert_eq!(answer(&mut first, request("1", "hello")).await, (session.clone(), run.clone()));
    assert_eq!(error(&mut first, request("1", "other")).await, reused());
    // Another connection begins its own conversation, with the same or with other content.
    for content in ["hello", "other"] {
        let mut tab = server.socket("/gateway").await;
        let (own_session, own_run) = answer(&mut tab, request("1", content)).await;
        assert!(own_session != session && own_run != run);
        assert_eq!(error(&mut tab, in_session(&session, "1", content)).await, reused());
    }
    // In its session, from any connection.
    let mut other = server.socket("/gateway").await;
    let repeated = answer(&mut other, in_session(&session, "1", "hello")).await;
    assert_eq!(repeated, (session.clone(), run.clone()));
    // Other content on a new connection is another request, which can be repeated too.
    let mut other = server.socket("/gateway").await;
    let (same_session, second_run) = answer(&mut other, in_session(&session, "1", "next")).await;
    assert_eq!(same_session, session);
    assert_ne!(second_run, run);
    for socket in [&mut other, &mut server.socket("/gateway").await] {
        let repeated = answer(socket, in_session(&session, "1", "next")).await;
        assert_eq!(repeated, (session.clone(), second_run.clone()));
    }
    // A cursor without a known request can't be the beginning of a conversation.
    let mut resumed = request("1", "hello");
    resumed["after"] = json!("3");
    let mut other = server.socket("/gateway").await;
    assert_eq!(error(&mut other, resumed).await.0, "cursor_ahead");
    assert_eq!(session_count(&server).await, 3);
}

#[actix_web::test]
async fn s5_random_id_is_known_to_its_user_for_a_day() {
    let mut server = start(ANSWER).await;
    let mut socket = server.socket("/gateway").await;
    let (session, run) = answer(&mut socket, request(UUID, "hello")).await;
    let expected = (session.clone(), run.clone());
    let mut other = server.socket("/gateway").await;
    assert_eq!(answer(&mut other, request(UUID, "hello")).await, expected);
    assert_eq!(error(&mut other, request(UUID, "other")).await, reused());
    let foreign = json!(server.create_session_at(1).await);
    let mut other = server.socket("/gateway").await;
    assert_eq!(error(&mut other, in_session(&foreign, UUID, "hello")).await, reused());
    assert_eq!(answer(&mut other, in_session(&session, UUID, "hello")).await, expected);
    server.kill_and_restart().await;
    let mut other = server.socket("/gateway").await;
    assert_eq!(answer(&mut other, request(UUID, "hello")).await, expected);
    assert_eq!(session_count(&server).await, 2);

    // Another user's id is another request.
    let key = server.post("/admin/keys", json!({"user_id": "eve", "role": "user"})).await;
    let key = key.body["key"].as_str().unwrap().to_owned();
    let base = server.url().replacen("http", "ws", 1);
    let mut socket = Socket::open_as(&base, "/gateway", &key).await;
    assert_ne!(answer(&mut socket, request(UUID, "hello")).await.0, session);
    // A purge also removes what is known of its requests.
    let path = format!("/agent/session/{}?purge=true", session.as_str().unwrap());
    server.delete(&path).await.expect_ok();
    let mut socket = server.socket("/gateway").await;
    assert_ne!(answer(&mut socket, request(UUID, "other")).await.0, session);
}

/// A request with a random id is stored before its session, so its repetition creates the session.
#[actix_web::test]
async fn s5_request_that_a_limit_rejected_can_be_repeated() {
    let server = TestServerBuilder::with_script(ProviderProtocol::Anthropic, ANSWER)
        .with_config("[limits]\nopen_sessions_per_user = 1")
        .start()
        .await;
    let first = server.create_session_at(1).await;
    let mut socket = server.socket("/gateway").await;
    assert_eq!(error(&mut socket, request(UUID, "hello")).await.0, "too_many_sessions");
    server.delete(&format!("/agent/session/{first}")).await.expect_ok();
    let answered = answer(&mut socket, request(UUID, "hello")).await;
    let mut other = server.socket("/gateway").await;
    assert_eq!(answer(&mut other, request(UUID, "hello")).await, answered);
}

#[actix_web::test]
async fn x14_new_session_has_the_requested_agent_and_level_within_the_users_settings() {
    let server = TestServerBuilder::with_script(
        ProviderProtocol::Anthropic,
        &tool_call_script("market_order_create", ORDER),
    )
    .with_config("[agents.trader]\nmodel = \"scripted\"")
    .start()
    .await;
    server.patch("/agent/settings", json!({"autonomy_level": 2})).await.expect_ok();
    let send = |id: &str, members: Value| {
        let mut request = request(id, "again");
        request.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        request
    };
    let mut socket = server.socket("/gateway").await;
    let wider = send("1", json!({"autonomyLevel": 3}));
    assert_eq!(
        error(&mut socket, wider).await,
        (json!("settings_widened"), json!("autonomyLevel"))
    );
    let unknown = send("2", json!({"agent": "nobody"}));
    assert_eq!(error(&mut socket, unknown).await.0, "unknown_agent");
    let session = json!(server.create_session_at(1).await);
    for (field, value) in [("agent", json!("trader")), ("autonomyLevel", json!(0))] {
        let named = send("3", json!({"sessionId": session, field: value}));
        let expected = (json!("invalid_request"), json!(field));
        assert_eq!(error(&mut socket, named).await, expected);
    }
    assert_eq!(session_count(&server).await, 1, "a rejected request creates no session");
    let members = json!({"agent": "trader", "autonomyLevel": 0, "preflight": true});
    let (session, run) = answer(&mut socket, send("4", members)).await;
    let path = format!("/agent/session/{}", session.as_str().unwrap());
    let created = server.get(&path).await.expect_ok();
    let actual = (&created["agent"], &created["settings"]["autonomy_level"]);
    assert_eq!(actual, (&json!("trader"), &json!(0)));
    let events = server.events(session.as_str().unwrap()).await;
    let started = events.iter().find(|event| event["type"] == "run_started").unwrap();
    assert_eq!((&started["run_id"], &started["preflight"]), (&run, &json!(true)));
    // Content is named as the client names it.
    let empty = (json!("invalid_request"), json!("content"));
    assert_eq!(error(&mut socket, request("5", " ")).await, empty);
}

async fn end_outcome(socket: &mut Socket) -> Value {
    socket.read_until("chat.stream.end").await.pop().unwrap()["outcome"].clone()
}

#[actix_web::test]
async fn s6_x14_request_is_cancelled_by_its_id_or_session_with_the_rights_of_its_user() {
    let server = start(&STALLS_ONCE.replace("times = 1", "times = 9")).await;
    let mut socket = server.socket("/gateway").await;
    let mut other = server.socket("/gateway").await;
    let key = server.post("/admin/keys", json!({"user_id": "eve", "role": "user"})).await;
    let key = key.body["key"].as_str().unwrap().to_owned();
    let base = server.url().replacen("http", "ws", 1);
    let mut foreign = Socket::open_as(&base, "/gateway", &key).await;
    for id in ["1", UUID, "3"] {
        socket.send(request(id, "stall")).await;
        let frames = socket.read_until("chat.stream.delta").await;
        let session = &frames[0]["sessionId"];
        let by_session = json!({"type": "chat.cancel", "sessionId": session});
        let mut by_both = by_session.clone();
        by_both["id"] = json!(id);
        for cancel in [by_session.clone(), by_both.clone()] {
            assert_eq!(error(&mut foreign, cancel).await.0, "session_not_found");
        }
        let by_id = json!({"type": "chat.cancel", "id": id});
        match id {
            // On the connection of the request.
            "1" => {
                assert_eq!(error(&mut other, by_id.clone()).await.1, "id");
                socket.send(by_id).await;
            }
            // A random id, on any connection of its user.
            UUID => {
                assert_eq!(error(&mut foreign, by_id.clone()).await.1, "id");
                other.send(by_id).await;
            }
            _ => {
                let mut unknown = by_session.clone();
                unknown["id"] = json!("unknown");
                assert_eq!(error(&mut other, unknown).await.1, "id");
                other.send(by_both).await;
            }
        }
        assert_eq!(end_outcome(&mut socket).await, "cancelled");
        assert_eq!(error(&mut other, by_session).await.0, "no_run");
    }
    socket.send(request("4", "stall")).await;
    let frames = socket.read_until("chat.stream.delta").await;
    other.send(json!({"type": "chat.cancel", "sessionId": frames[0]["sessionId"]})).await;
    assert_eq!(end_outcome(&mut socket).await, "cancelled");
    assert_eq!(error(&mut other, json!({"type": "chat.cancel"})).await.1, "id");
}

#[actix_web::test]
async fn g9_critical_call_is_approved_once_and_a_notice_reports_it() {
    let script = tool_call_script("wallet_transfer", r#"{ to = "XYZ", amount = 5 }"#);
    let server = start(&script).await;
    server.patch("/agent/settings", json!({"autonomy_level": 2})).await.expect_ok();
    let session = json!(server.create_session_at(2).await);
    let mut socket = server.socket("/gateway").await;
    for number in [1, 2] {
        socket.send(in_session(&session, &number.to_string(), "go")).await;
        let approval = socket.read_until("tool.approval.request").await.pop().unwrap();
        assert_eq!(
            (&approval["grantable"], &approval["risk"]),
            (&json!(false), &json!("high")),
            "asked again for each call"
        );
        let response = json!({
            "type": "tool.approval.response", "id": "word", "toolCallId": approval["toolCallId"],
            "approved": true, "sessionApprove": true,
        });
        socket.send(response.clone()).await;
        let frames = socket.read_until("chat.stream.end").await;
        let notices: Vec<_> = frames.iter().filter(|frame| frame["notice"] == true).collect();
        let text = "\n[Approved once, not for the session: wallet_transfer is critical and can't be \
                    granted.]\n";
        let expected = json!({
            "type": "chat.stream.delta", "requestId": number.to_string(), "delta": text,
            "notice": true,
        });
        assert_eq!(notices, [&expected]);
        assert_eq!(server.effects().len(), number);
        // Repeating the answer has no effect.
        socket.send(response).await;
        assert_eq!(socket.next().await, expected);
        assert_eq!(server.effects().len(), number);
    }
}

#[actix_web::test]
async fn g9_call_is_approved_on_a_new_connection() {
    let server = start(&tool_call_script("market_order_create", ORDER)).await;
    let mut socket = server.socket("/gateway").await;
    socket.send(request("1", "go")).await;
    let approval = socket.read_until("tool.approval.request").await.pop().unwrap();
    assert_eq!(approval["grantable"], true);
    let mut other = server.socket("/gateway").await;
    let response = json!({
        "type": "tool.approval.response", "id": "word", "toolCallId": approval["toolCallId"],
        "approved": true, "sessionApprove": true,
    });
    other.send(response).await;
    assert_eq!(end_outcome(&mut socket).await, "completed");
    assert_eq!(server.effects().len(), 1);
}
