//! Clients that read slowly, not at all, or vanish without closing the connection (E4): the server
//! never waits for them, and their memory is bounded.

use crate::{
    harness::{TEST_TIMEOUT, TOKEN, TestServer, TestServerBuilder},
    scripts::STALLS_ONCE,
    stream::{last_message_text, streamed_text},
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};

/// Number of clients that do not read.
const SLOW: usize = 40;
/// Number of messages sent to the slow clients, of about 380 KB each.
const MESSAGES: usize = 8;
/// Maximum memory of a client that does not read: the data queued in its pipe and its connection,
/// the frame being encoded, and allocator overhead.
const MAX_BYTES_PER_CLIENT: u64 = 2 * 1024 * 1024;

/// An output limit that allows the long messages.
const MAX_TOKENS: &str = "max_tokens = 1000000";

const LONG: &str = r#"
[[rule]]
user = "long"
chunk = { text = 3000, delay_ms = 0 }
[[rule.reply]]
for_each = "range(32)"
text = "{{ 'Zoë über Ærø – and the fleet goes home. ' * 280 }}"
"#;

/// Opens a connection with a small receive buffer and subscribes to a session's events.
async fn slow_client(server: &TestServer, session: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let address = server.url().trim_start_matches("http://").parse().unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    let request = format!(
        "GET /agent/session/{session}/events?after=0 HTTP/1.1\r\nhost: {address}\r\n\
         authorization: Bearer {TOKEN}\r\naccept: text/event-stream\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    stream
}

/// Returns the resident memory of the server process, in bytes.
fn resident_memory(server: &TestServer) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Returns the number of subscribers of a session.
async fn subscriber_count(server: &TestServer, session: &str) -> u64 {
    let path = format!("/admin/actors?prefix=/subscribers/{session}&kind=Subscriber");
    server.get(&path).await.expect_ok()["total"].as_u64().unwrap()
}

/// Waits until a session has `count` subscribers.
async fn wait_for_subscribers(server: &TestServer, session: &str, count: u64) {
    let poll = async {
        while subscriber_count(server, session).await != count {
            tokio::time::sleep(crate::harness::POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, poll).await.expect("the number of subscribers changes");
}

#[actix_web::test]
async fn e4_slow_readers_delay_no_other_client_and_use_bounded_memory() {
    let server = TestServerBuilder::with_script(ProviderProtocol::OpenAi, LONG)
        .with_agent_config(MAX_TOKENS)
        .start()
        .await;
    let session = server.create_session_at(1).await;
    // One run first, so that memory allocated once is not counted.
    server.chat_to_end(&session, "long").await;
    let before = resident_memory(&server);
    let mut slow_clients = Vec::new();
    for _ in 0..SLOW {
        slow_clients.push(slow_client(&server, &session).await);
    }
    let mut published = 0;
    for _ in 0..MESSAGES {
        // A client that reads receives everything in time: the server does not wait for the others.
        let frames = server.chat_to_end(&session, "long").await;
        published += last_message_text(&frames).len();
        assert!(
            last_message_text(&frames).len() > 300_000
                && streamed_text(&frames) == last_message_text(&frames)
        );
        for client in &mut slow_clients {
            client.read_u8().await.unwrap();
        }
    }
    let cost = resident_memory(&server).saturating_sub(before);
    eprintln!(
        "{SLOW} clients did not read {} MB each; the server grew by {:.1} MB, {} KB a client",
        published / 1_000_000,
        cost as f64 / 1e6,
        cost / SLOW as u64 / 1000,
    );
    assert!(cost < MAX_BYTES_PER_CLIENT * SLOW as u64, "{cost} bytes for {SLOW} clients");
    assert!(published > 2_900_000, "the text exceeds the buffers of a connection");
    // A slow client that starts to read has missed nothing.
    let mut client = slow_clients.pop().unwrap();
    let head = server.get(&format!("/agent/session/{session}")).await.expect_ok()["head"].clone();
    let last = format!("\"seq\":{head},");
    let (mut text, mut buffer) = (String::new(), vec![0; 256 * 1024]);
    let catch_up = async {
        while !(text.ends_with("\n\n\r\n") && text.contains(&last)) {
            let count = client.read(&mut buffer).await.unwrap();
            text.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, catch_up).await.expect("the client catches up");
    let mut numbers: Vec<u64> = Vec::new();
    for line in text.lines().filter(|line| line.starts_with("id: ") && !line.contains('.')) {
        numbers.push(line.trim_start_matches("id: ").trim().parse().unwrap());
    }
    let mut expected = numbers.clone();
    expected.sort_unstable();
    expected.dedup();
    assert_eq!(numbers, expected, "in order, without repetition");
}

/// A receive window that stays closed simulates a peer that acknowledges nothing.
#[cfg(target_os = "linux")]
#[actix_web::test]
async fn e4_client_that_vanished_is_detached() {
    let setup = TestServerBuilder::with_script(ProviderProtocol::Anthropic, LONG)
        .with_agent_config(MAX_TOKENS)
        .with_config("[limits]\nheartbeat = \"300ms\"");
    let server = setup.start().await;
    let session = server.create_session_at(1).await;
    let vanished = slow_client(&server, &session).await;
    wait_for_subscribers(&server, &session, 1).await;
    // Sends more than the buffers of a connection hold; the client reads none of it.
    for _ in 0..MESSAGES {
        server.chat_to_end(&session, "long").await;
    }
    wait_for_subscribers(&server, &session, 0).await;
    drop(vanished);
}

#[actix_web::test]
async fn e4_unresponsive_socket_is_detached_and_responsive_socket_stays() {
    let setup = TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE)
        .with_config("[limits]\nheartbeat = \"200ms\"");
    let server = setup.start().await;
    let session = server.create_session_at(1).await;
    // This socket is open but never polled, so no ping is answered.
    let silent = server.socket(&format!("/agent/stream/{session}")).await;
    let mut responsive = server.socket(&format!("/agent/stream/{session}")).await;
    wait_for_subscribers(&server, &session, 2).await;
    let detached = async {
        wait_for_subscribers(&server, &session, 1).await;
        server.chat_to_end(&session, "again").await;
    };
    let (frames, ()) = futures::join!(responsive.read_until("done"), detached);
    assert_eq!(frames.last().unwrap()["payload"]["outcome"], "completed");
    drop(silent);
}

#[actix_web::test]
async fn x4_freed_subscriber_slot_can_be_reused_on_any_transport() {
    let limits = "[limits]\nsubscribers_per_session = 2";
    let server = TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE)
        .with_config(limits)
        .start()
        .await;
    let session = server.create_session_at(1).await;
    let path = format!("/agent/stream/{session}");
    let first = server.socket(&path).await;
    let second = server.subscribe(&session, "0").await;
    wait_for_subscribers(&server, &session, 2).await;
    let expect_refused = |request: reqwest::RequestBuilder| async {
        crate::harness::send(request).await.expect_problem(429, "too_many_subscribers");
    };
    let events = format!("/agent/session/{session}/events");
    let request = |path: &str| server.request(reqwest::Method::GET, path);
    expect_refused(request(&events).header("accept", "text/event-stream")).await;
    let upgrade = request(&path).header("connection", "upgrade").header("upgrade", "websocket");
    expect_refused(upgrade).await;
    let mut shared_socket = server.socket("/agent/stream").await;
    shared_socket.send(json!({"type": "subscribe", "session_id": session})).await;
    assert_eq!(shared_socket.next().await["code"], "too_many_subscribers");
    drop((first, second));
    wait_for_subscribers(&server, &session, 0).await;
    shared_socket.send(json!({"type": "subscribe", "id": 1, "session_id": session})).await;
    assert_eq!(shared_socket.next().await["type"], "ack");
    wait_for_subscribers(&server, &session, 1).await;
}
