//! The WebSocket of many sessions: everything a client does, over one connection.

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
    let house = TestServerBuilder::with_script(ProviderProtocol::Anthropic, &script).start().await;
    let (one, two) = (house.create_session_at(1).await, house.create_session_at(1).await);
    let mut socket = house.socket("/agent/stream").await;
    for (id, session) in [("s1", &one), ("s2", &two)] {
        socket.send(json!({"type": "subscribe", "id": id, "session_id": session})).await;
        let (ack, _) = socket.read_response(id).await;
        assert_eq!((&ack["type"], &ack["session_id"]), (&json!("ack"), &json!(session)));
    }
    let send = json!({"type": "send", "id": "m1", "session_id": one, "message": "go"});
    socket.send(send.clone()).await;
    let (ack, mut frames) = socket.read_response("m1").await;
    assert_eq!((&ack["type"], &ack["repeated"]), (&json!("ack"), &json!(false)));
    let send = json!({"type": "send", "id": "m2", "session_id": two, "message": "stall"});
    socket.send(send).await;
    frames.extend(socket.read_until("waiting_for_approval").await);
    let asked = frames.last().unwrap();
    assert_eq!(asked["session_id"], json!(one));
    assert_eq!(asked["payload"]["tool_count"], 1);
    assert_eq!(asked["payload"]["purpose"], "Execute 1 tool");
    let plan_id = asked["plan_id"].clone();
    assert_eq!(asked["payload"]["plan"]["plan_id"], plan_id);
    let decide = json!({"type": "decide", "id": "d", "plan_id": plan_id, "decision": "approve"});
    socket.send(decide.clone()).await;
    let (ack, mut between) = socket.read_response("d").await;
    assert_eq!((&ack["type"], &ack["closed"]), (&json!("ack"), &json!(true)), "{ack}");
    let done = |frames: &[Value], session: &str| {
        frames.iter().any(|frame| frame["type"] == "done" && frame["session_id"] == session)
    };
    while !done(&between, &one) {
        between.push(socket.next().await);
    }
    let decided = between.iter().find(|frame| frame["type"] == "approval_decided").unwrap();
    assert_eq!(decided["payload"]["steps"][0]["surface"], "websocket");
    assert_eq!(house.effects().len(), 1);

    socket.send(json!({"type": "cancel", "id": "c", "session_id": two})).await;
    let (ack, mut between) = socket.read_response("c").await;
    assert_eq!(ack["type"], "ack", "{ack}");
    while !done(&between, &two) {
        between.push(socket.next().await);
    }
    socket.send(json!({"type": "unsubscribe", "id": "u", "session_id": one})).await;
    let (ack, _) = socket.read_response("u").await;
    assert_eq!(ack["subscribed"], true);
    house.chat_to_end(&one, "again").await;
    house.chat_to_end(&two, "again").await;
    let frames = socket.read_until("done").await;
    assert!(frames.iter().all(|frame| frame["session_id"] == json!(two)), "{frames:?}");
}

#[actix_web::test]
async fn garbage_is_answered_and_the_connection_goes_on() {
    let house = TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE).start().await;
    let session = house.create_session_at(1).await;
    let mut socket = house.socket("/agent/stream").await;
    let nobody = "0198c0de-0000-7000-8000-000000000001";
    for (text, code) in [
        ("{ this is not JSON".to_owned(), "malformed_json"),
        ("[1, 2]".to_owned(), "invalid_request"),
        (String::new(), "invalid_request"),
        (r#"{"type": "explode"}"#.to_owned(), "unknown_type"),
        (r#"{"type": "send", "message": "hi"}"#.to_owned(), "invalid_request"),
        (json!({"type": "subscribe", "session_id": nobody}).to_string(), "session_not_found"),
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
            json!({"type": "decide", "plan_id": nobody, "decision": "approve"}).to_string(),
            "approval_not_found",
        ),
    ] {
        socket.send_text(&text).await;
        let answered = socket.next().await;
        let found = (&answered["type"], &answered["code"]);
        assert_eq!(found, (&json!("error"), &json!(code)), "{text}: {answered}");
        assert!(!answered["detail"].as_str().unwrap().is_empty());
    }
    socket.send(json!({"type": "subscribe", "id": 1, "session_id": session})).await;
    let send = json!({"type": "send", "id": 2, "session_id": session, "message": "again"});
    socket.send(send).await;
    let frames = socket.read_until("done").await;
    assert!(frames.iter().any(|frame| frame["payload"]["text"] == "Here I am."), "{frames:?}");
}

#[actix_web::test]
async fn x4_a_frame_that_announces_too_much_is_refused_before_it_comes() {
    let house = TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE).start().await;
    let address = house.url().trim_start_matches("http://").to_owned();
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
    // A header alone: 300 MiB of text, masked.
    socket.write_all(&[0x81, 0xFF, 0, 0, 0, 0, 0x12, 0xC0, 0, 0, 1, 2, 3, 4]).await.unwrap();
    let read = tokio::time::timeout(TEST_TIMEOUT, async {
        loop {
            let (kind, length) = (socket.read_u8().await.unwrap(), socket.read_u8().await.unwrap());
            let mut payload = vec![0; usize::from(length)];
            socket.read_exact(&mut payload).await.unwrap();
            if kind == 0x88 {
                return payload;
            }
        }
    });
    let close = read.await.expect("it is closed");
    assert_eq!(u16::from_be_bytes([close[0], close[1]]), 1009);
    assert_eq!(&close[2..], b"frame too large");
}

#[actix_web::test]
async fn x4_frames_that_say_nothing_sensible_count_as_requests_too() {
    let limits = "[limits]\nrequests_per_second = 5";
    let house = TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE)
        .with_config(limits)
        .start()
        .await;
    let mut socket = house.socket("/agent/stream").await;
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
