//! Queued messages are listed, changed and withdrawn over REST and WebSocket (S10).

use crate::{
    harness::{TestServer, TestServerBuilder, send},
    scripts::{ORDER, STALLS_ONCE, tool_call_script},
    stream::{Frame, Socket, Stream, format_frames, kinds_of, last_message_text, single_frame},
};
use greenroom::rehearsal::ProviderProtocol;
use reqwest::Method;
use serde_json::{Value, json};

/// The model answers "again" with "Here I am."; its first run stalls, so that messages queue.
async fn start_with_stalled_run() -> (TestServer, String, Stream) {
    let server =
        TestServerBuilder::with_script(ProviderProtocol::Anthropic, STALLS_ONCE).start().await;
    let session = server.create_session_at(1).await;
    let mut first = server.chat(&session, "stall").await;
    first.read_text(10).await;
    (server, session, first)
}

/// Queues a message, and returns the stream of its run after the frame `message_queued`.
async fn queue_message(server: &TestServer, session: &str, id: &str, text: &str) -> Stream {
    let body = json!({"session_id": session, "message": text, "message_id": id});
    let mut stream = server.chat_with(body).await;
    assert_eq!(stream.next().await.unwrap().kind(), "message_queued");
    stream
}

async fn cancel(server: &TestServer, session: &str) {
    server.post(&format!("/agent/session/{session}/cancel"), json!({})).await.expect_ok();
}

fn item_path(session: &str, id: &str) -> String {
    format!("/agent/session/{session}/queue/{id}")
}

/// Returns the ids and texts of the queued messages.
async fn list_queue(server: &TestServer, session: &str) -> Value {
    let list = server.get(&format!("/agent/session/{session}/queue")).await.expect_ok();
    let queued = list["queued"].as_array().unwrap().iter();
    queued.map(|queued| json!([queued["message_id"], queued["message"]])).collect()
}

fn outcomes(frames: &[Frame]) -> Vec<&str> {
    kinds_of(frames, &["queued_message_changed", "queued_message_withdrawn", "run_started", "done"])
}

#[actix_web::test]
async fn s10_queued_messages_are_listed_changed_and_withdrawn() {
    let (mut server, session, _first) = start_with_stalled_run().await;
    drop(queue_message(&server, &session, "m-2", "mistake").await);
    let mut withdrawn = queue_message(&server, &session, "m-3", "never").await;
    assert_eq!(list_queue(&server, &session).await, json!([["m-2", "mistake"], ["m-3", "never"]]));

    let change = json!({"message": "again"});
    let path = item_path(&session, "m-2");
    let update = server.patch(&path, change.clone()).await.expect_ok();
    assert_eq!((&update["status"], &update["repeated"]), (&json!("changed"), &json!(false)));
    let update = server.patch(&path, change.clone()).await.expect_ok();
    assert_eq!((&update["status"], &update["repeated"]), (&json!("changed"), &json!(true)));

    let path = item_path(&session, "m-3");
    let update = server.delete(&path).await.expect_ok();
    assert_eq!((&update["status"], &update["repeated"]), (&json!("withdrawn"), &json!(false)));
    let update = server.delete(&path).await.expect_ok();
    assert_eq!((&update["status"], &update["repeated"]), (&json!("withdrawn"), &json!(true)));
    server.patch(&path, change.clone()).await.expect_problem(409, "message_withdrawn");

    // The stream of a withdrawn message ends.
    let frames = withdrawn.read_to_end().await;
    assert_eq!(outcomes(&frames), ["queued_message_withdrawn", "done"]);
    assert_eq!(single_frame(&frames, "done").data["outcome"], "cancelled");
    assert_eq!(list_queue(&server, &session).await, json!([["m-2", "again"]]));
    let messages = server.get(&format!("/agent/session/{session}/messages")).await.expect_ok();
    assert_eq!(messages["queued"].as_array().unwrap().len(), 1, "{messages}");
    assert_eq!(messages["queued"][0]["content"], "again");

    // The queue survives a crash as it was changed.
    server.kill_and_restart().await;
    let body = json!({"session_id": session, "message": "mistake", "message_id": "m-2"});
    let frames = server.chat_with(body).await.read_to_end().await;
    assert_eq!(outcomes(&frames), ["queued_message_changed", "run_started", "done"]);
    assert_eq!(last_message_text(&frames), "Here I am.", "{}", format_frames(&frames));
    let path = item_path(&session, "m-2");
    let other = json!({"message": "another"});
    server.patch(&path, other).await.expect_problem(409, "message_started");
    server.delete(&path).await.expect_problem(409, "message_started");
    server.patch(&path, change).await.expect_ok();
    assert_eq!(list_queue(&server, &session).await, json!([]));
}

#[actix_web::test]
async fn s5_s10_repeated_request_states_what_happened_to_the_message() {
    let (server, session, _first) = start_with_stalled_run().await;
    drop(queue_message(&server, &session, "m-2", "mistake").await);
    drop(queue_message(&server, &session, "m-3", "never").await);
    server.patch(&item_path(&session, "m-2"), json!({"message": "again"})).await.expect_ok();
    server.delete(&item_path(&session, "m-3")).await.expect_ok();

    let chat =
        |id: &str, text: &str| json!({"session_id": session, "message": text, "message_id": id});
    let withdrawn = server.post("/agent/chat", chat("m-3", "never")).await.expect_ok();
    assert_eq!(withdrawn["message_status"], "withdrawn", "{withdrawn}");
    assert_eq!(withdrawn["outcome"], "cancelled");
    let frames = server.chat_with(chat("m-3", "never")).await.read_to_end().await;
    assert_eq!(outcomes(&frames), ["queued_message_withdrawn", "done"]);

    let mut socket = server.socket(&format!("/agent/stream/{session}")).await;
    for (id, message_id, text, status) in [
        ("a", "m-2", "mistake", "changed"),
        ("b", "m-2", "again", "changed"),
        ("c", "m-3", "never", "withdrawn"),
    ] {
        let frame = json!({"type": "send", "id": id, "message_id": message_id, "message": text});
        socket.send(frame).await;
        let (ack, _) = socket.read_response(id).await;
        assert_eq!((&ack["type"], &ack["repeated"]), (&json!("ack"), &json!(true)), "{ack}");
        assert_eq!(ack["message_status"], status, "{ack}");
    }
    let other = server.post("/agent/chat", chat("m-2", "something else")).await;
    other.expect_problem(422, "message_id_reused");

    cancel(&server, &session).await;
    let changed = server.post("/agent/chat", chat("m-2", "mistake")).await.expect_ok();
    assert_eq!(
        (&changed["message_status"], &changed["response"]),
        (&json!("changed"), &json!("Here I am."))
    );
    assert_eq!(server.rehearsal.requests().len(), 2, "no run is started twice");
}

#[actix_web::test]
async fn s10_waiting_request_ends_when_its_message_is_withdrawn() {
    let (server, session, _first) = start_with_stalled_run().await;
    let body = json!({"session_id": session, "message": "never", "message_id": "m/2 ä?"});
    let request = server.request(Method::POST, "/agent/chat").json(&body);
    let waiting = actix_web::rt::spawn(send(request));
    let mut events = server.subscribe(&session, "0").await;
    events.read_until("message_queued").await;
    // A message id is the client's; in a path it is percent-encoded.
    let path = item_path(&session, "m%2F2%20%C3%A4%3F");
    let update = server.delete(&path).await.expect_ok();
    assert_eq!(update["message_id"], "m/2 ä?");
    let response = waiting.await.unwrap().expect_ok();
    assert_eq!(response["message_status"], "withdrawn", "{response}");
    assert_eq!(response["outcome"], "cancelled");
}

#[actix_web::test]
async fn s4_s10_steering_message_is_changed_and_withdrawn_before_its_delivery() {
    let script = format!(
        "{}\n[[rule]]\nuser = \"only five\"\n[[rule.reply]]\ntext = \"As you say.\"\n",
        tool_call_script("market_order_create", ORDER)
    );
    let server = TestServerBuilder::with_script(ProviderProtocol::OpenAi, &script).start().await;
    let session = server.create_session_at(1).await;
    let mut run = server.chat(&session, "go").await;
    let frames = run.read_until("waiting_for_approval").await;
    let plan_id = frames.last().unwrap().data["plan_id"].clone();
    let mut socket = server.socket(&format!("/agent/stream/{session}?after=0")).await;
    for id in ["m-1", "m-2"] {
        let frame = json!({"type": "send", "id": id, "message_id": id, "message": "only ten", "on_busy": "steer"});
        socket.send(frame).await;
        socket.read_response(id).await;
    }
    socket.send(json!({"type": "queue", "id": "q"})).await;
    let (list, _) = socket.read_response("q").await;
    let deliveries = list["queued"].as_array().unwrap().iter();
    let deliveries: Vec<_> = deliveries.map(|queued| queued["delivery"].clone()).collect();
    assert_eq!(deliveries, ["after_decision", "after_decision"], "{list}");
    let change =
        json!({"type": "queue_change", "id": "c", "message_id": "m-1", "message": "only five"});
    socket.send(change).await;
    let (ack, _) = socket.read_response("c").await;
    assert_eq!((&ack["type"], &ack["status"]), (&json!("ack"), &json!("changed")), "{ack}");
    socket.send(json!({"type": "queue_withdraw", "id": "w", "message_id": "m-2"})).await;
    let (ack, _) = socket.read_response("w").await;
    assert_eq!((&ack["type"], &ack["status"]), (&json!("ack"), &json!("withdrawn")), "{ack}");

    let body = json!({"session_id": session, "plan_id": plan_id});
    server.post("/agent/execute", body).await.expect_ok();
    let rest = run.read_to_end().await;
    let texts: Vec<_> = rest
        .iter()
        .filter(|frame| frame.kind() == "message_accepted")
        .map(|frame| frame.text("text"))
        .collect();
    assert_eq!(texts, ["only five"], "{}", format_frames(&rest));
    assert_eq!(last_message_text(&rest), "As you say.");
    socket.send(json!({"type": "queue_withdraw", "id": "x", "message_id": "m-1"})).await;
    let (error, _) = socket.read_response("x").await;
    assert_eq!((&error["type"], &error["code"]), (&json!("error"), &json!("message_started")));
}

#[actix_web::test]
async fn s10_changed_message_is_validated_like_a_new_one() {
    let (server, session, _first) = start_with_stalled_run().await;
    drop(queue_message(&server, &session, "m-2", "again").await);
    let path = item_path(&session, "m-2");
    let long = "x".repeat(256 * 1024 + 1);
    for (body, status, code, field) in [
        (json!({"message": ""}), 422, "invalid_request", json!("message")),
        (json!({"message": " \n"}), 422, "invalid_request", json!("message")),
        (json!({}), 422, "invalid_request", json!("message")),
        (json!({"message": 1}), 422, "invalid_request", json!("message")),
        (json!({"message": "x", "on_busy": "steer"}), 422, "invalid_request", json!("on_busy")),
        (json!({"message": "x", "workflow": {}}), 422, "invalid_request", json!("workflow")),
        (json!({"message": "x [redacted]"}), 422, "invalid_request", json!("message")),
        (json!({"message": long}), 413, "message_too_large", Value::Null),
    ] {
        let problem = server.patch(&path, body).await.expect_problem(status, code);
        assert_eq!(problem["field"], field, "{problem}");
    }
    let change = json!({"message": "x"});
    let missing = item_path(&session, "m-9");
    server.patch(&missing, change.clone()).await.expect_problem(404, "message_not_found");
    server.delete(&missing).await.expect_problem(404, "message_not_found");
    let long_id = item_path(&session, &"x".repeat(129));
    server.delete(&long_id).await.expect_problem(400, "invalid_id");
    assert_eq!(list_queue(&server, &session).await, json!([["m-2", "again"]]));
}

#[actix_web::test]
async fn x14_queue_is_reached_only_by_owner_and_administrators() {
    let (server, session, _first) = start_with_stalled_run().await;
    drop(queue_message(&server, &session, "m-2", "again").await);
    let key = |user: &'static str, role: &'static str| {
        let server = &server;
        async move {
            let body = json!({"user_id": user, "role": role});
            let key = server.post("/admin/keys", body).await.body;
            key["key"].as_str().unwrap().to_owned()
        }
    };
    let path = item_path(&session, "m-2");
    for (user, role) in [("eve", "user"), ("adam", "approver")] {
        let key = key(user, role).await;
        let request =
            |method, path: &str| server.request_without_token(method, path).bearer_auth(&key);
        let list = format!("/agent/session/{session}/queue");
        send(request(Method::GET, &list)).await.expect_problem(404, "session_not_found");
        let change = request(Method::PATCH, &path).json(&json!({"message": "x"}));
        send(change).await.expect_problem(404, "session_not_found");
        send(request(Method::DELETE, &path)).await.expect_problem(404, "session_not_found");
        let base = server.url().replacen("http", "ws", 1);
        let mut socket = Socket::open_as(&base, "/agent/stream", &key).await;
        for frame in [
            json!({"type": "queue", "id": "q", "session_id": session}),
            json!({"type": "queue_change", "id": "q", "session_id": session, "message_id": "m-2", "message": "x"}),
            json!({"type": "queue_withdraw", "id": "q", "session_id": session, "message_id": "m-2"}),
        ] {
            socket.send(frame).await;
            let (error, _) = socket.read_response("q").await;
            assert_eq!(error["code"], "session_not_found", "{error}");
        }
    }
    assert_eq!(list_queue(&server, &session).await, json!([["m-2", "again"]]));

    // X6: who changed and withdrew the message is audited, without its text.
    server.patch(&path, json!({"message": "something secret"})).await.expect_ok();
    server.delete(&path).await.expect_ok();
    for action in ["queued_message_changed", "queued_message_withdrawn"] {
        let rows = server.get(&format!("/admin/audit?action={action}")).await.expect_ok();
        let rows = rows["rows"].as_array().unwrap().clone();
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert_eq!(rows[0]["details"]["message_id"], "m-2", "{rows:?}");
        assert!(rows[0]["user"].is_string(), "{rows:?}");
        assert!(!rows[0].to_string().contains("secret"), "{rows:?}");
    }
}

#[actix_web::test]
async fn s1_s10_fork_has_no_queue() {
    let (server, session, _first) = start_with_stalled_run().await;
    drop(queue_message(&server, &session, "m-2", "again").await);
    server.patch(&item_path(&session, "m-2"), json!({"message": "other"})).await.expect_ok();
    let fork = server.post(&format!("/agent/session/{session}/fork"), json!({})).await.expect_ok();
    let fork = fork["session_id"].as_str().unwrap();
    assert_eq!(list_queue(&server, fork).await, json!([]));
    let missing = server.delete(&item_path(fork, "m-2")).await;
    missing.expect_problem(404, "message_not_found");
}
