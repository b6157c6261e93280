//! Clients can resume a session at any cursor, over any transport: random cursors, random
//! disconnects, clients of different speed (E2, E3).

use crate::{
    harness::{TestServer, TestServerBuilder},
    rng::SeededRng,
    scripts::{ORDER, STORY, tool_call_script},
    stream::{Frame, Socket, Stream},
};
use greenroom::rehearsal::ProviderProtocol;
use reqwest::Method;
use serde_json::{Value, json};

/// Number of random cursors tested in a finished session.
const CURSOR_SAMPLES: usize = 150;
/// Number of clients that reconnect while messages are streamed.
const CLIENTS: usize = 6;

/// A story whose stream is cut in the middle the first time, so that its step restarts.
const BREAKING_STORY: &str = r#"
[[rule]]
user = "breaks"
chunk = { text = 5, delay_ms = 3 }
cut = { after = 300, times = 1 }
[[rule.reply]]
for_each = "range(8)"
text = "Zoë über Ærø – 🚀 number {{ item }} of the fleet is late; "
"#;

/// An item that a client received: an event, or text regardless of its division into deltas.
#[derive(Clone, Debug, PartialEq)]
enum ReceivedItem {
    Event(Value),
    Text(String),
}

/// Appends a frame to the received items. A discarded message removes its text.
fn push_item(items: &mut Vec<ReceivedItem>, event: Value) {
    if event["type"] == "text" {
        let text = event["text"].as_str().unwrap();
        match items.last_mut() {
            Some(ReceivedItem::Text(before)) => before.push_str(text),
            _ => items.push(ReceivedItem::Text(text.to_owned())),
        }
        return;
    }
    if event["type"] == "message_discarded" {
        items.pop_if(|last| matches!(last, ReceivedItem::Text(_)));
    }
    items.push(ReceivedItem::Event(event));
}

/// A subscription over server-sent events or a WebSocket.
enum Connection {
    Events(Box<Stream>),
    Socket(Box<Socket>),
}

impl Connection {
    async fn open(server: &TestServer, rng: &mut SeededRng, session: &str, cursor: &str) -> Self {
        match rng.next_below(3) {
            0 => Self::Events(Box::new(server.subscribe(session, cursor).await)),
            1 => Self::Events(Box::new(server.subscribe_with_last_event_id(session, cursor).await)),
            _ => {
                let path = format!("/agent/stream/{session}?after={cursor}");
                Self::Socket(Box::new(server.socket(&path).await))
            }
        }
    }

    /// Receives the next frame, converted to the form of server-sent events.
    async fn next(&mut self) -> Frame {
        let socket = match self {
            Self::Events(stream) => return stream.next().await.expect("the stream is open"),
            Self::Socket(socket) => socket,
        };
        let frame = socket.next().await;
        let mut data = frame["payload"].clone();
        for (name, socket_name) in
            [("type", "type"), ("seq", "seq"), ("session_id", "session_id"), ("at", "timestamp")]
        {
            data[name] = frame[socket_name].clone();
        }
        data["step"] = frame["step_index"].clone();
        if frame["type"] == "waiting_for_approval" {
            // Only frames of a socket have these two keys beside the plan.
            let payload = data.as_object_mut().unwrap();
            for name in ["purpose", "tool_count"] {
                payload.remove(name).unwrap();
            }
        }
        Frame { cursor: frame["cursor"].as_str().unwrap().to_owned(), data }
    }

    /// Receives all items up to and including event `head`.
    async fn read_until(&mut self, head: u64) -> Vec<ReceivedItem> {
        let mut items = Vec::new();
        loop {
            let frame = self.next().await;
            let last = frame.data["seq"] == head && frame.kind() != "text";
            push_item(&mut items, without_text_position(frame.data));
            if last {
                return items;
            }
        }
    }
}

/// Removes the position and time of a text delta: they depend on when it was sent.
fn without_text_position(mut event: Value) -> Value {
    if event["type"] == "text" {
        event = json!({"type": "text", "text": event["text"]});
    }
    event
}

/// Returns the items that a client receives of a finished session after a cursor: the events of the
/// log, and before each completed message its text or the rest of it.
fn expected_after(log: &[Value], seq: u64, offset: usize) -> Vec<ReceivedItem> {
    let mut items = Vec::new();
    let mut text_offset = offset;
    for event in log.iter().skip(usize::try_from(seq).unwrap()) {
        if event["type"] == "message_started" {
            text_offset = 0;
        }
        if event["type"] == "message_completed" {
            let text = event["text"].as_str().unwrap();
            if text_offset < text.len() {
                push_item(&mut items, json!({"type": "text", "text": text[text_offset..]}));
            }
        }
        push_item(&mut items, event.clone());
    }
    items
}

/// Returns all cursors of a session: after each event, and inside each completed message.
fn all_cursors(log: &[Value]) -> Vec<(u64, usize)> {
    let mut cursors = vec![(0, 0)];
    let mut open = Vec::new();
    for event in log {
        let seq = event["seq"].as_u64().unwrap();
        match event["type"].as_str().unwrap() {
            "message_started" => open = vec![seq],
            "message_discarded" => open.clear(),
            "message_completed" => {
                let text = event["text"].as_str().unwrap();
                let offsets = text.char_indices().map(|(offset, _)| offset).chain([text.len()]);
                let inside = offsets.filter(|offset| *offset > 0);
                cursors
                    .extend(inside.flat_map(|offset| open.iter().map(move |seq| (*seq, offset))));
                open.clear();
            }
            _ if !open.is_empty() => open.push(seq),
            _ => {}
        }
        cursors.push((seq, 0));
    }
    cursors
}

fn format_cursor((seq, offset): (u64, usize)) -> String {
    if offset == 0 { seq.to_string() } else { format!("{seq}.{offset}") }
}

#[actix_web::test]
async fn e3_finished_session_resumes_at_every_cursor() {
    let seed = uuid::Uuid::new_v4().as_u64_pair().0;
    eprintln!("seed {seed}");
    let mut rng = SeededRng::new(seed);
    let script =
        format!("{STORY}{BREAKING_STORY}{}", tool_call_script("market_order_create", ORDER));
    let server = TestServerBuilder::with_script(ProviderProtocol::Anthropic, &script).start().await;
    let session = server.create_session_at(1).await;
    for message in ["story", "breaks"] {
        server.chat_to_end(&session, message).await;
    }
    let body = json!({"session_id": session, "message": "go", "until": "pause"});
    let frames = server.chat_with(body).await.read_to_end().await;
    let plan_id = &frames.last().unwrap().data["plan_id"];
    server
        .post("/agent/reject", json!({"session_id": session, "plan_id": plan_id}))
        .await
        .expect_ok();
    let mut all = server.subscribe(&session, "0").await;
    for _ in 0..3 {
        all.read_until("done").await;
    }
    let log = server.events(&session).await;
    assert!(log.iter().any(|event| event["type"] == "message_discarded"));
    let head = log.len() as u64;
    let cursors = all_cursors(&log);
    assert!(cursors.len() > 1000, "{} cursors", cursors.len());
    for _ in 0..CURSOR_SAMPLES {
        let (seq, offset) = *rng.pick(&cursors);
        let cursor = format_cursor((seq, offset));
        let expected = expected_after(&log, seq, offset);
        let limit = 1 + rng.next_below(20);
        let path = format!("/agent/session/{session}/events?after={cursor}&limit={limit}");
        let page = server.get(&path).await.expect_ok();
        let page = page["events"].as_array().unwrap();
        let from = usize::try_from(seq).unwrap();
        assert_eq!(*page, log[from..log.len().min(from + limit)], "seed {seed}: {path}");
        if seq == head {
            continue;
        }
        let mut connection = Connection::open(&server, &mut rng, &session, &cursor).await;
        assert_eq!(connection.read_until(head).await, expected, "seed {seed}: after {cursor}");
    }
}

#[actix_web::test]
async fn e2_e3_reconnecting_clients_receive_each_item_once() {
    let seed = uuid::Uuid::new_v4().as_u64_pair().0;
    eprintln!("seed {seed}");
    let mut rng = SeededRng::new(seed);
    let server = TestServerBuilder::with_script(
        ProviderProtocol::OpenAi,
        &format!("{STORY}{BREAKING_STORY}"),
    )
    .start()
    .await;
    let session = server.create_session_at(1).await;
    let seeds: Vec<_> = (0..CLIENTS).map(|_| rng.next()).collect();
    let runs = async {
        for message in ["story", "breaks", "story"] {
            server.chat_to_end(&session, message).await;
        }
    };
    let clients = seeds.iter().enumerate().map(|(delay_ms, seed)| {
        let (server, session) = (&server, &session);
        async move { run_client(server, session, *seed, delay_ms).await }
    });
    let (results, ()) = futures::join!(futures::future::join_all(clients), runs);
    let log = server.events(&session).await;
    let restarts = log.iter().filter(|event| event["type"] == "message_discarded").count();
    assert_eq!(restarts, 1, "the step restarted");
    let expected = expected_after(&log, 0, 0);
    for (client, (items, connections)) in results.into_iter().enumerate() {
        assert_eq!(items, expected, "seed {seed}: client {client}");
        assert!(connections > 3, "client {client} connected {connections} times");
    }
}

/// Connects, reads some frames, disconnects and resumes at its cursor, until three runs are over.
async fn run_client(
    server: &TestServer,
    session: &str,
    seed: u64,
    delay_ms: usize,
) -> (Vec<ReceivedItem>, u32) {
    let mut rng = SeededRng::new(seed);
    let (mut items, mut cursor, mut runs, mut connections) = (Vec::new(), "0".to_owned(), 0, 0);
    loop {
        let mut connection = Connection::open(server, &mut rng, session, &cursor).await;
        connections += 1;
        for _ in 0..1 + rng.next_below(40) {
            let frame = connection.next().await;
            cursor.clone_from(&frame.cursor);
            runs += u32::from(frame.kind() == "done");
            push_item(&mut items, without_text_position(frame.data));
            if runs == 3 {
                return (items, connections);
            }
            // Some clients read slowly; the server does not wait for them.
            let pause = std::time::Duration::from_millis(delay_ms as u64);
            tokio::time::sleep(pause).await;
        }
    }
}

#[actix_web::test]
async fn e3_invalid_cursor_is_rejected_on_every_transport() {
    let server = TestServerBuilder::with_script(ProviderProtocol::Anthropic, STORY).start().await;
    let session = server.create_session_at(1).await;
    server.chat_to_end(&session, "story").await;
    let log = server.events(&session).await;
    let head = log.len() as u64;
    let completed = log.iter().find(|event| event["type"] == "message_completed").unwrap();
    let started = completed["seq"].as_u64().unwrap() - 1;
    let text = completed["text"].as_str().unwrap();
    let inside = (1..text.len()).find(|offset| !text.is_char_boundary(*offset)).unwrap();
    let cases = [
        ("nonsense".to_owned(), 400, "cursor_invalid"),
        ("-1".to_owned(), 400, "cursor_invalid"),
        (format!("{started}."), 400, "cursor_invalid"),
        (format!("{started}.5.1"), 400, "cursor_invalid"),
        ("99999999999999999999".to_owned(), 400, "cursor_invalid"),
        // No message is open at that event.
        ("1.5".to_owned(), 400, "cursor_invalid"),
        (format!("{head}.5"), 400, "cursor_invalid"),
        // Inside a multi-byte character.
        (format!("{started}.{inside}"), 400, "cursor_invalid"),
        (format!("{}", head + 1), 409, "cursor_ahead"),
        (format!("{started}.{}", text.len() + 1), 409, "cursor_ahead"),
    ];
    for (cursor, status, code) in cases {
        let path = format!("/agent/session/{session}/events?after={cursor}");
        server.get(&path).await.expect_problem(status, code);
        let stream = || server.request(Method::GET, &path).header("accept", "text/event-stream");
        crate::harness::send(stream()).await.expect_problem(status, code);
        let path = format!("/agent/session/{session}/events");
        let resumed = server.request(Method::GET, &path).header("last-event-id", &cursor);
        let resumed = resumed.header("accept", "text/event-stream");
        crate::harness::send(resumed).await.expect_problem(status, code);
        let path = format!("/agent/stream/{session}?after={cursor}");
        let upgrade = server.request(Method::GET, &path).header("connection", "upgrade");
        crate::harness::send(upgrade.header("upgrade", "websocket"))
            .await
            .expect_problem(status, code);
        let mut socket = server.socket("/agent/stream").await;
        let frame = json!({"type": "subscribe", "session_id": session, "after": cursor});
        socket.send(frame).await;
        let answer = socket.next().await;
        assert_eq!((&answer["code"], &answer["status"]), (&json!(code), &json!(status)));
    }
}
