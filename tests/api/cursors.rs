//! Any place in a session is a place to go on from, over any transport: random places, random
//! departures, clients of different speed (E2, E3).

use crate::{
    harness::{TestServer, TestServerBuilder},
    rng::SeededRng,
    scripts::{ORDER, STORY, tool_call_script},
    stream::{Frame, Socket, Stream},
};
use greenroom::rehearsal::ProviderProtocol;
use reqwest::Method;
use serde_json::{Value, json};

/// Places that are tried in a finished session.
const CURSORS_TRIED: usize = 150;
/// Clients that come and go while a message is told.
const CLIENTS: usize = 6;

/// A story that breaks off in its middle the first time, so that its step restarts.
const BREAKING_STORY: &str = r#"
[[rule]]
user = "breaks"
chunk = { text = 5, delay_ms = 3 }
cut = { after = 300, times = 1 }
[[rule.reply]]
for_each = "range(8)"
text = "Zoë über Ærø – 🚀 number {{ item }} of the fleet is late; "
"#;

/// What a client was told, in a form that does not show in how many pieces.
#[derive(Clone, Debug, PartialEq)]
enum ReceivedItem {
    Event(Value),
    Text(String),
}

/// Adds what a frame says. What was heard of a message that is void is forgotten.
fn add(told: &mut Vec<ReceivedItem>, event: Value) {
    if event["type"] == "text" {
        let text = event["text"].as_str().unwrap();
        match told.last_mut() {
            Some(ReceivedItem::Text(before)) => before.push_str(text),
            _ => told.push(ReceivedItem::Text(text.to_owned())),
        }
        return;
    }
    if event["type"] == "message_discarded" {
        told.pop_if(|last| matches!(last, ReceivedItem::Text(_)));
    }
    told.push(ReceivedItem::Event(event));
}

/// A connection of either kind.
enum Connection {
    Events(Box<Stream>),
    Socket(Box<Socket>),
}

impl Connection {
    async fn open(server: &TestServer, chance: &mut SeededRng, session: &str, cursor: &str) -> Self {
        match chance.below(3) {
            0 => Self::Events(Box::new(server.subscribe(session, cursor).await)),
            1 => Self::Events(Box::new(server.subscribe_with_last_event_id(session, cursor).await)),
            _ => {
                let path = format!("/agent/stream/{session}?after={cursor}");
                Self::Socket(Box::new(server.socket(&path).await))
            }
        }
    }

    /// The next frame, in the form of server-sent events.
    async fn next(&mut self) -> Frame {
        let socket = match self {
            Self::Events(stream) => return stream.next().await.expect("the stream goes on"),
            Self::Socket(socket) => socket,
        };
        let frame = socket.next().await;
        let mut data = frame["payload"].clone();
        for (name, there) in
            [("type", "type"), ("seq", "seq"), ("session_id", "session_id"), ("at", "timestamp")]
        {
            data[name] = frame[there].clone();
        }
        data["step"] = frame["step_index"].clone();
        if frame["type"] == "waiting_for_approval" {
            // Only frames of a socket have these before the plan.
            let payload = data.as_object_mut().unwrap();
            for name in ["purpose", "tool_count"] {
                payload.remove(name).unwrap();
            }
        }
        Frame { cursor: frame["cursor"].as_str().unwrap().to_owned(), data }
    }

    /// Everything up to event `head`.
    async fn read_until(&mut self, head: u64) -> Vec<ReceivedItem> {
        let mut told = Vec::new();
        loop {
            let frame = self.next().await;
            let last = frame.data["seq"] == head && frame.kind() != "text";
            add(&mut told, without_text_position(frame.data));
            if last {
                return told;
            }
        }
    }
}

/// The time of a piece of text is that of its sending, and its place the last event's.
fn without_text_position(mut event: Value) -> Value {
    if event["type"] == "text" {
        event = json!({"type": "text", "text": event["text"]});
    }
    event
}

/// What remains to be told of a finished session after that place: events from the log, and before
/// each message's completion its text, or the rest of it.
fn expected_after(log: &[Value], seq: u64, offset: usize) -> Vec<ReceivedItem> {
    let mut told = Vec::new();
    let mut heard = offset;
    for event in log.iter().skip(usize::try_from(seq).unwrap()) {
        if event["type"] == "message_started" {
            heard = 0;
        }
        if event["type"] == "message_completed" {
            let text = event["text"].as_str().unwrap();
            if heard < text.len() {
                add(&mut told, json!({"type": "text", "text": text[heard..]}));
            }
        }
        add(&mut told, event.clone());
    }
    told
}

/// All places of a session: after each event, and inside each message that was completed.
fn all_cursors(log: &[Value]) -> Vec<(u64, usize)> {
    let mut places = vec![(0, 0)];
    let mut open = Vec::new();
    for event in log {
        let seq = event["seq"].as_u64().unwrap();
        match event["type"].as_str().unwrap() {
            "message_started" => open = vec![seq],
            "message_discarded" => open.clear(),
            "message_completed" => {
                let text = event["text"].as_str().unwrap();
                let offsets = text.char_indices().map(|(at, _)| at).chain([text.len()]);
                let inside = offsets.filter(|at| *at > 0);
                places.extend(inside.flat_map(|at| open.iter().map(move |seq| (*seq, at))));
                open.clear();
            }
            _ if !open.is_empty() => open.push(seq),
            _ => {}
        }
        places.push((seq, 0));
    }
    places
}

fn format_cursor((seq, offset): (u64, usize)) -> String {
    if offset == 0 { seq.to_string() } else { format!("{seq}.{offset}") }
}

#[actix_web::test]
async fn e3_finished_session_resumes_at_every_cursor() {
    let seed = uuid::Uuid::new_v4().as_u64_pair().0;
    eprintln!("seed {seed}");
    let mut chance = SeededRng::new(seed);
    let script =
        format!("{STORY}{BREAKING_STORY}{}", tool_call_script("market_order_create", ORDER));
    let server = TestServerBuilder::with_script(ProviderProtocol::Anthropic, &script).start().await;
    let session = server.create_session_at(1).await;
    for message in ["story", "breaks"] {
        server.chat_to_end(&session, message).await;
    }
    let body = json!({"session_id": session, "message": "go", "until": "pause"});
    let asked = server.chat_with(body).await.read_to_end().await;
    let plan_id = &asked.last().unwrap().data["plan_id"];
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
    let places = all_cursors(&log);
    assert!(places.len() > 1000, "{} places", places.len());
    for _ in 0..CURSORS_TRIED {
        let place = *chance.pick(&places);
        let at = format_cursor(place);
        let expected = expected_after(&log, place.0, place.1);
        let limit = 1 + chance.below(20);
        let path = format!("/agent/session/{session}/events?after={at}&limit={limit}");
        let page = server.get(&path).await.expect_ok();
        let page = page["events"].as_array().unwrap();
        let from = usize::try_from(place.0).unwrap();
        assert_eq!(*page, log[from..log.len().min(from + limit)], "seed {seed}: {path}");
        if place.0 == head {
            continue;
        }
        let mut line = Connection::open(&server, &mut chance, &session, &at).await;
        assert_eq!(line.read_until(head).await, expected, "seed {seed}: after {at}");
    }
}

#[actix_web::test]
async fn e2_e3_reconnecting_clients_receive_each_item_once() {
    let seed = uuid::Uuid::new_v4().as_u64_pair().0;
    eprintln!("seed {seed}");
    let mut chance = SeededRng::new(seed);
    let server = TestServerBuilder::with_script(
        ProviderProtocol::OpenAi,
        &format!("{STORY}{BREAKING_STORY}"),
    )
    .start()
    .await;
    let session = server.create_session_at(1).await;
    let seeds: Vec<_> = (0..CLIENTS).map(|_| chance.next()).collect();
    let runs = async {
        for message in ["story", "breaks", "story"] {
            server.chat_to_end(&session, message).await;
        }
    };
    let clients = seeds.iter().enumerate().map(|(speed, seed)| {
        let (server, session) = (&server, &session);
        async move { run_client(server, session, *seed, speed).await }
    });
    let (heard, ()) = futures::join!(futures::future::join_all(clients), runs);
    let log = server.events(&session).await;
    let restarts = log.iter().filter(|event| event["type"] == "message_discarded").count();
    assert_eq!(restarts, 1, "the step restarted");
    let expected = expected_after(&log, 0, 0);
    for (client, (told, connections)) in heard.into_iter().enumerate() {
        assert_eq!(told, expected, "seed {seed}: client {client}");
        assert!(connections > 3, "client {client} came {connections} times");
    }
}

/// Connects, listens for a while, leaves, and comes back where it was, until three runs are over.
async fn run_client(
    server: &TestServer,
    session: &str,
    seed: u64,
    speed: usize,
) -> (Vec<ReceivedItem>, u32) {
    let mut chance = SeededRng::new(seed);
    let (mut told, mut cursor, mut ends, mut connections) = (Vec::new(), "0".to_owned(), 0, 0);
    loop {
        let mut line = Connection::open(server, &mut chance, session, &cursor).await;
        connections += 1;
        for _ in 0..1 + chance.below(40) {
            let frame = line.next().await;
            cursor.clone_from(&frame.cursor);
            ends += u32::from(frame.kind() == "done");
            add(&mut told, without_text_position(frame.data));
            if ends == 3 {
                return (told, connections);
            }
            // Some read slowly; nobody waits for them.
            let pause = std::time::Duration::from_millis(speed as u64);
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
    let inside = (1..text.len()).find(|at| !text.is_char_boundary(*at)).unwrap();
    let cases = [
        ("nonsense".to_owned(), 400, "cursor_invalid"),
        ("-1".to_owned(), 400, "cursor_invalid"),
        (format!("{started}."), 400, "cursor_invalid"),
        (format!("{started}.5.1"), 400, "cursor_invalid"),
        ("99999999999999999999".to_owned(), 400, "cursor_invalid"),
        // No message is open there.
        ("1.5".to_owned(), 400, "cursor_invalid"),
        (format!("{head}.5"), 400, "cursor_invalid"),
        // In the middle of a character.
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
