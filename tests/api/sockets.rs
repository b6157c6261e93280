//! The WebSocket `/agent/stream` for several sessions: all client operations over one connection.

use crate::{
    harness::{TEST_TIMEOUT, TOKEN, TestServerBuilder},
    scripts::{ORDER, STALLS_ONCE, tool_call_script},
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

#[actix_web::test]
async fn e2_one_socket_serves_many_sessions() {
    let script = format!("{}{STALLS_ONCE}", tool_call_script("market_order_create", ORDER));
    let server = TestServerBuilder::with_script(ProviderProtocol::Anthropic, &script).start().await;
    let (first, second) = (server.create_session_at(1).await, server.create_session_at(1).await);
    let mut socket = server.socket("/agent/stream").await;
    for (id, session) in [("s1", &first), ("s2", &second)] {
        socket.send(json!({"type": "subscribe", "id": id, "session_id": session})).await;
        let (ack, _) = socket.read_response(id).await;
        assert_eq!((&ack["type"], &ack["session_id"]), (&json!("ack"), &json!(session)));
    }
    let send = json!({"type": "send", "id": "m1", "session_id": first, "message": "go"});
    socket.send(send.clone()).await;
    let (ack, mut frames) = socket.read_response("m1").await;
    assert_eq!((&ack["type"], &ack["repeated"]), (&json!("ack"), &json!(false)));
    let send = json!({"type": "send", "id": "m2", "session_id": second, "message": "stall"});
    socket.send(send).await;
    frames.extend(socket.read_until("waiting_for_approval").await);
    let request = frames.last().unwrap();
    assert_eq!(request["session_id"], json!(first));
    assert_eq!(request["payload"]["tool_count"], 1);
    assert_eq!(request["payload"]["purpose"], "Execute 1 tool");
    let plan_id = request["plan_id"].clone();
    assert_eq!(request["payload"]["plan"]["plan_id"], plan_id);
    let decide = json!({"type": "decide", "id": "d", "plan_id": plan_id, "decision": "approve"});
    socket.send(decide.clone()).await;
    let (ack, mut between) = socket.read_response("d").await;
    assert_eq!((&ack["type"], &ack["closed"]), (&json!("ack"), &json!(true)), "{ack}");
    let is_done = |frames: &[Value], session: &str| {
        frames.iter().any(|frame| frame["type"] == "done" && frame["session_id"] == session)
    };
    while !is_done(&between, &first) {
        between.push(socket.next().await);
    }
    let decided = between.iter().find(|frame| frame["type"] == "approval_decided").unwrap();
    assert_eq!(decided["payload"]["steps"][0]["surface"], "websocket");
    assert_eq!(server.effects().len(), 1);

    socket.send(json!({"type": "cancel", "id": "c", "session_id": second})).await;
    let (ack, mut between) = socket.read_response("c").await;
    assert_eq!(ack["type"], "ack", "{ack}");
    while !is_done(&between, &second) {
        between.push(socket.next().await);
    }
    socket.send(json!({"type": "unsubscribe", "id": "u", "session_id": first})).await;
    let (ack, _) = socket.read_response("u").await;
    assert_eq!(ack["subscribed"], true);
    server.chat_to_end(&first, "again").await;
    server.chat_to_end(&second, "again").await;
    let frames = socket.read_until("done").await;
    assert!(frames.iter().all(|frame| frame["session_id"] == json!(second)), "{frames:?}");
}

#[actix_web::test]
async fn invalid_frames_are_answered_and_the_connection_stays_open() {
    let server =
        TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE).start().await;
    let session = server.create_session_at(1).await;
    let mut socket = server.socket("/agent/stream").await;
    let unknown_id = "0198c0de-0000-7000-8000-000000000001";
    for (text, code) in [
        ("{ this is not JSON".to_owned(), "malformed_json"),
        ("[1, 2]".to_owned(), "invalid_request"),
        (String::new(), "invalid_request"),
        (r#"{"type": "explode"}"#.to_owned(), "unknown_type"),
        (r#"{"type": "send", "message": "hi"}"#.to_owned(), "invalid_request"),
        (json!({"type": "subscribe", "session_id": unknown_id}).to_string(), "session_not_found"),
        (
            json!({"type": "subscribe", "session_id": session, "after": "x"}).to_string(),
            "cursor_invalid",
        ),
        (
            json!({"type": "subscribe", "session_id": session, "after": 99}).to_string(),
            "cursor_ahead",
        ),
        (
            json!({"type": "send", "session_id": session, "message": " "}).to_string(),
            "invalid_request",
        ),
        (
            json!({"type": "send", "session_id": session, "message": "hi", "preflite": true})
                .to_string(),
            "invalid_request",
        ),
        (json!({"type": "cancel", "session_id": session}).to_string(), "no_run"),
        (
            json!({"type": "decide", "plan_id": unknown_id, "decision": "approve"}).to_string(),
            "approval_not_found",
        ),
    ] {
        socket.send_text(&text).await;
        let response = socket.next().await;
        let actual = (&response["type"], &response["code"]);
        assert_eq!(actual, (&json!("error"), &json!(code)), "{text}: {response}");
        assert!(!response["detail"].as_str().unwrap().is_empty());
    }
    socket.send(json!({"type": "subscribe", "id": 1, "session_id": session})).await;
    let send = json!({"type": "send", "id": 2, "session_id": session, "message": "again"});
    socket.send(send).await;
    let frames = socket.read_until("done").await;
    assert!(frames.iter().any(|frame| frame["payload"]["text"] == "Here I am."), "{frames:?}");
}

#[actix_web::test]
async fn x4_frame_with_excessive_length_is_rejected_before_its_payload_arrives() {
    let server =
        TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE).start().await;
    let address = server.url().trim_start_matches("http://").to_owned();
    let mut socket = TcpStream::connect(&address).await.unwrap();
    let request = format!(
        "GET /agent/stream HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {TOKEN}\r\n\
         connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101"));
    // Only a frame header: 300 MiB of masked text.
    socket.write_all(&[0x81, 0xFF, 0, 0, 0, 0, 0x12, 0xC0, 0, 0, 1, 2, 3, 4]).await.unwrap();
    let close_frame = tokio::time::timeout(TEST_TIMEOUT, async {
        loop {
            let (kind, length) = (socket.read_u8().await.unwrap(), socket.read_u8().await.unwrap());
            let mut payload = vec![0; usize::from(length)];
            socket.read_exact(&mut payload).await.unwrap();
            if kind == 0x88 {
                return payload;
            }
        }
    });
    let close = close_frame.await.expect("the server closes the connection");
    assert_eq!(u16::from_be_bytes([close[0], close[1]]), 1009);
    assert_eq!(&close[2..], b"message exceeds the limit of 1048576 bytes");
}

#[actix_web::test]
async fn x4_invalid_frames_count_as_requests() {
    let limits = "[limits]\nrequests_per_second = 5";
    let server = TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE)
        .with_config(limits)
        .start()
        .await;
    let mut socket = server.socket("/agent/stream").await;
    for _ in 0..20 {
        socket.send_text("{ this is not JSON").await;
    }
    let mut codes = Vec::new();
    for _ in 0..20 {
        codes.push(socket.next().await["code"].as_str().unwrap().to_owned());
    }
    assert!(codes.iter().any(|code| code == "malformed_json"), "{codes:?}");
    assert!(codes.iter().any(|code| code == "rate_limited"), "{codes:?}");
}
