//! Clients that read slowly, not at all, or are gone without a word (E4): nobody waits for them, and
//! they cost a bounded memory.

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

/// Clients that do not read.
const SLOW: usize = 40;
/// Messages that they do not read, of about 380 KB each.
const MESSAGES: usize = 8;
/// What a client that does not read may cost: what waits in its pipe and in the connection, the
/// frame being encoded, and something for the allocator.
const BYTES_EACH: u64 = 2 * 1024 * 1024;

/// The model may say that much.
const LENGTH: &str = "max_tokens = 1000000";

const LONG: &str = r#"
[[rule]]
user = "long"
chunk = { text = 3000, delay_ms = 0 }
[[rule.reply]]
for_each = "range(32)"
text = "{{ 'Zoë über Ærø – and the fleet goes home. ' * 280 }}"
"#;

/// A connection with a small buffer that asks for a session's events.
async fn slow_client(house: &TestServer, session: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let address = house.url().trim_start_matches("http://").parse().unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    let request = format!(
        "GET /agent/session/{session}/events?after=0 HTTP/1.1\r\nhost: {address}\r\n\
         authorization: Bearer {TOKEN}\r\naccept: text/event-stream\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    stream
}

/// The server's memory, in bytes.
fn memory(house: &TestServer) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", house.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// How many listen to that session.
async fn subscriber_count(house: &TestServer, session: &str) -> u64 {
    let path = format!("/admin/actors?prefix=/subscribers/{session}&kind=Subscriber");
    house.get(&path).await.expect_ok()["total"].as_u64().unwrap()
}

/// Waits until so many listen to it.
async fn wait_for_subscribers(house: &TestServer, session: &str, count: u64) {
    let so = async {
        while subscriber_count(house, session).await != count {
            tokio::time::sleep(crate::harness::POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, so).await.expect("they come or are let go of");
}

#[actix_web::test]
async fn e4_who_reads_a_byte_now_and_then_delays_nobody_and_costs_little() {
    let house =
        TestServerBuilder::with_script(ProviderProtocol::OpenAi, LONG).agent(LENGTH).start().await;
    let session = house.create_session_at(1).await;
    // Once before, so that what everybody needs is there.
    house.chat_to_end(&session, "long").await;
    let before = memory(&house);
    let mut crawlers = Vec::new();
    for _ in 0..SLOW {
        crawlers.push(slow_client(&house, &session).await);
    }
    let mut told = 0;
    for _ in 0..MESSAGES {
        // Whoever reads hears all of it, and in time: nothing here waits for the others.
        let frames = house.chat_to_end(&session, "long").await;
        told += last_message_text(&frames).len();
        assert!(
            last_message_text(&frames).len() > 300_000
                && streamed_text(&frames) == last_message_text(&frames)
        );
        for crawler in &mut crawlers {
            crawler.read_u8().await.unwrap();
        }
    }
    let cost = memory(&house).saturating_sub(before);
    eprintln!(
        "{SLOW} clients did not read {} MB each; the server grew by {:.1} MB, {} KB a client",
        told / 1_000_000,
        cost as f64 / 1e6,
        cost / SLOW as u64 / 1000,
    );
    assert!(cost < BYTES_EACH * SLOW as u64, "{cost} bytes for {SLOW} clients");
    assert!(told > 2_900_000, "more than a connection's buffers hold");
    // One of them begins to read, and has missed nothing.
    let mut crawler = crawlers.pop().unwrap();
    let head = house.get(&format!("/agent/session/{session}")).await.expect_ok()["head"].clone();
    let last = format!("\"seq\":{head},");
    let (mut text, mut buffer) = (String::new(), vec![0; 256 * 1024]);
    let reads = async {
        while !(text.ends_with("\n\n\r\n") && text.contains(&last)) {
            let count = crawler.read(&mut buffer).await.unwrap();
            text.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, reads).await.expect("it catches up");
    let mut numbers: Vec<u64> = Vec::new();
    for line in text.lines().filter(|line| line.starts_with("id: ") && !line.contains('.')) {
        numbers.push(line.trim_start_matches("id: ").trim().parse().unwrap());
    }
    let mut expected = numbers.clone();
    expected.sort_unstable();
    expected.dedup();
    assert_eq!(numbers, expected, "in order, and nothing twice");
}

/// Not on loopback alone: a peer that acknowledges nothing is one whose window stays shut.
#[cfg(target_os = "linux")]
#[actix_web::test]
async fn e4_a_client_that_is_gone_without_a_word_is_let_go_of() {
    let setup = TestServerBuilder::with_script(ProviderProtocol::Anthropic, LONG)
        .agent(LENGTH)
        .with_config("[limits]\nheartbeat = \"300ms\"");
    let house = setup.start().await;
    let session = house.create_session_at(1).await;
    let dead = slow_client(&house, &session).await;
    wait_for_subscribers(&house, &session, 1).await;
    // More than the buffers of a connection hold, of which it takes nothing.
    for _ in 0..MESSAGES {
        house.chat_to_end(&session, "long").await;
    }
    wait_for_subscribers(&house, &session, 0).await;
    drop(dead);
}

#[actix_web::test]
async fn e4_a_socket_that_does_not_answer_is_let_go_of_and_one_that_does_stays() {
    let setup = TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE)
        .with_config("[limits]\nheartbeat = \"200ms\"");
    let house = setup.start().await;
    let session = house.create_session_at(1).await;
    // It is open, and nobody polls it: no ping is answered.
    let silent = house.socket(&format!("/agent/stream/{session}")).await;
    let mut lively = house.socket(&format!("/agent/stream/{session}")).await;
    wait_for_subscribers(&house, &session, 2).await;
    let goes = async {
        wait_for_subscribers(&house, &session, 1).await;
        house.chat_to_end(&session, "again").await;
    };
    let (frames, ()) = futures::join!(lively.read_until("done"), goes);
    assert_eq!(frames.last().unwrap()["payload"]["outcome"], "completed");
    drop(silent);
}

#[actix_web::test]
async fn x4_a_place_that_became_free_is_taken_again_on_any_transport() {
    let limits = "[limits]\nsubscribers_per_session = 2";
    let house = TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE)
        .with_config(limits)
        .start()
        .await;
    let session = house.create_session_at(1).await;
    let path = format!("/agent/stream/{session}");
    let first = house.socket(&path).await;
    let second = house.subscribe(&session, "0").await;
    wait_for_subscribers(&house, &session, 2).await;
    let refused = |request: reqwest::RequestBuilder| async {
        crate::harness::send(request).await.expect_problem(429, "too_many_subscribers");
    };
    let events = format!("/agent/session/{session}/events");
    let request = |path: &str| house.request(reqwest::Method::GET, path);
    refused(request(&events).header("accept", "text/event-stream")).await;
    let upgrade = request(&path).header("connection", "upgrade").header("upgrade", "websocket");
    refused(upgrade).await;
    let mut many = house.socket("/agent/stream").await;
    many.send(json!({"type": "subscribe", "session_id": session})).await;
    assert_eq!(many.next().await["code"], "too_many_subscribers");
    drop((first, second));
    wait_for_subscribers(&house, &session, 0).await;
    many.send(json!({"type": "subscribe", "id": 1, "session_id": session})).await;
    assert_eq!(many.next().await["type"], "ack");
    wait_for_subscribers(&house, &session, 1).await;
}
