//! The surface through real sockets, on test parts.

use super::{AppState, configure};
use crate::auth::{AdminToken, Authenticator};
use actix_web::{App, HttpServer, dev::ServerHandle};
use futures::{SinkExt as _, StreamExt as _};
use greenroom_actors::testing::{
    FakeTools, Gate, ModelReply, ScriptedModel, TestRuntime, with_timeout,
};
use serde_json::{Value, json};
use std::net::SocketAddr;
use tokio_tungstenite::tungstenite::{
    Message, client::IntoClientRequest as _, protocol::frame::coding::CloseCode,
};

const TOKEN: &str = "0123456789abcdef";

struct HttpTestServer {
    runtime: TestRuntime,
    address: SocketAddr,
    server: ServerHandle,
}

type TestSocket =
    tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<tokio::net::TcpStream>>;

impl HttpTestServer {
    async fn start(model: ScriptedModel) -> Self {
        let world = TestRuntime::start(model, FakeTools::new()).await;
        let auth = Authenticator::new(AdminToken::parse(TOKEN).unwrap());
        let state = AppState::new(world.runtime.clone(), auth, TestRuntime::agent());
        let app = move || {
            let state = state.clone();
            App::new().configure(|cfg| configure(cfg, state))
        };
        let server = HttpServer::new(app).workers(1).disable_signals();
        let server = server.bind("127.0.0.1:0").unwrap();
        let address = server.addrs()[0];
        let server = server.run();
        let handle = server.handle();
        actix_web::rt::spawn(server);
        Self { runtime: world, address, server: handle }
    }

    async fn connect(&self, path: &str, origin: Option<&str>) -> Result<TestSocket, u16> {
        let mut request = format!("ws://{}{path}", self.address).into_client_request().unwrap();
        let headers = request.headers_mut();
        headers.insert("authorization", format!("Bearer {TOKEN}").parse().unwrap());
        if let Some(origin) = origin {
            headers.insert("origin", origin.parse().unwrap());
        }
        match tokio_tungstenite::connect_async(request).await {
            Ok((client, _)) => Ok(client),
            Err(tokio_tungstenite::tungstenite::Error::Http(answer)) => {
                Err(answer.status().as_u16())
            }
            Err(error) => panic!("{error}"),
        }
    }

    async fn stop(self) {
        self.server.stop(false).await;
    }
}

/// Frames up to and including the first that `is_last`.
async fn frames(client: &mut TestSocket, is_last: impl Fn(&Value) -> bool) -> Vec<Value> {
    let read = async {
        let mut frames = Vec::new();
        loop {
            if let Message::Text(text) = client.next().await.unwrap().unwrap() {
                frames.push(serde_json::from_str(&text).unwrap());
                if frames.last().is_some_and(&is_last) {
                    return frames;
                }
            }
        }
    };
    with_timeout("frames", read).await
}

async fn say(client: &mut TestSocket, frame: Value) {
    client.send(Message::text(frame.to_string())).await.unwrap();
}

fn text_of(frames: &[Value], session: &str) -> String {
    let of_session =
        frames.iter().filter(|frame| frame["type"] == "text" && frame["session_id"] == *session);
    of_session.filter_map(|frame| frame["payload"]["text"].as_str()).collect()
}

#[actix_web::test]
async fn e2_one_websocket_carries_many_sessions() {
    let replies = ["the one", "the other"].map(ModelReply::text);
    let surface = HttpTestServer::start(ScriptedModel::with_replies(replies)).await;
    let one = surface.runtime.create_session().await.to_string();
    let other = surface.runtime.create_session().await.to_string();
    let mut client = surface.connect("/agent/stream", None).await.unwrap();
    for (id, session) in [(1, &one), (2, &other)] {
        say(&mut client, json!({"type": "subscribe", "id": id, "session_id": session})).await;
        frames(&mut client, |frame| frame["type"] == "ack" && frame["id"] == id).await;
        say(&mut client, json!({"type": "send", "session_id": session, "message": "hi"})).await;
        let heard = frames(&mut client, |frame| frame["type"] == "done").await;
        let expected = if id == 1 { "the one" } else { "the other" };
        assert_eq!(text_of(&heard, session), expected);
        // The answer to `send` and the stream go their own ways: either may be the last.
        let is_answer = |frame: &Value| frame["type"] == "ack" && frame["run_id"].is_string();
        if !heard.iter().any(is_answer) {
            frames(&mut client, is_answer).await;
        }
    }
    surface.stop().await;
}

#[actix_web::test]
async fn w2_an_administrator_watches_all_sessions_on_the_same_websocket() {
    let surface =
        HttpTestServer::start(ScriptedModel::with_replies([ModelReply::text("hello")])).await;
    let mut client = surface.connect("/agent/stream", None).await.unwrap();
    say(&mut client, json!({"type": "watch", "id": 1})).await;
    let ack = frames(&mut client, |frame| frame["type"] == "ack").await;
    assert_eq!(ack[0]["watching"], true);
    let tailing = async {
        let board = &surface.runtime.runtime.status_board;
        while !board.snapshots("/subscribers/all/").iter().any(|actor| actor.state == "tailing") {
            tokio::task::yield_now().await;
        }
    };
    with_timeout("the watcher", tailing).await;
    let session = surface.runtime.create_session().await;
    surface.runtime.submit(session, "hi").await;
    let heard = frames(&mut client, |frame| frame["type"] == "done").await;
    assert!(heard.iter().all(|frame| frame["session_id"] == session.to_string()));
    let seqs: Vec<_> = heard.iter().filter_map(|frame| frame["seq"].as_u64()).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "committed events, no text");
    say(&mut client, json!({"type": "unwatch", "id": 2})).await;
    let ack = frames(&mut client, |frame| frame["type"] == "ack").await;
    assert_eq!(ack.last().unwrap()["watching"], false);
    surface.stop().await;
}

#[actix_web::test]
async fn garbage_is_answered_and_the_connection_stays_until_it_is_binary() {
    let surface = HttpTestServer::start(ScriptedModel::with_replies([])).await;
    let session = surface.runtime.create_session().await;
    let path = format!("/agent/stream/{session}");
    let mut client = surface.connect(&path, None).await.unwrap();
    client.send(Message::text("{nonsense")).await.unwrap();
    say(&mut client, json!({"type": "cancel", "id": "c"})).await;
    let answers = frames(&mut client, |frame| frame["id"] == "c").await;
    let codes: Vec<_> = answers.iter().filter_map(|frame| frame["code"].as_str()).collect();
    assert_eq!(codes, ["malformed_json", "no_run"]);
    client.send(Message::binary(vec![1])).await.unwrap();
    let close = with_timeout("the close", async {
        loop {
            if let Message::Close(reason) = client.next().await.unwrap().unwrap() {
                return reason.unwrap().code;
            }
        }
    });
    assert_eq!(close.await, CloseCode::Unsupported);
    surface.stop().await;
}

#[actix_web::test]
async fn x3_a_page_of_another_site_gets_no_websocket() {
    let surface = HttpTestServer::start(ScriptedModel::with_replies([])).await;
    let own = format!("http://{}", surface.address);
    assert!(surface.connect("/agent/stream", Some(&own)).await.is_ok());
    for (origin, status) in [("http://evil.test", 403), ("null", 403)] {
        let refused = surface.connect("/agent/stream", Some(origin)).await.err();
        assert_eq!(refused, Some(status), "{origin}");
    }
    surface.stop().await;
}

#[actix_web::test]
async fn e3_a_websocket_resumes_inside_of_a_message() {
    let gate = Gate::closed();
    let reply = ModelReply::new().delta("héllo ").wait(&gate).delta("world").done();
    let surface = HttpTestServer::start(ScriptedModel::with_replies([reply])).await;
    let session_id = surface.runtime.create_session().await;
    let path = format!("/agent/stream/{session_id}");
    let mut client = surface.connect(&path, None).await.unwrap();
    say(&mut client, json!({"type": "send", "message": "hi"})).await;
    let heard = frames(&mut client, |frame| frame["type"] == "text").await;
    let cursor = heard.last().unwrap()["cursor"].as_str().unwrap().to_owned();
    drop(client);
    let mut again = surface.connect(&format!("{path}?after={cursor}"), None).await.unwrap();
    gate.open();
    let rest = frames(&mut again, |frame| frame["type"] == "done").await;
    let session = session_id.to_string();
    assert_eq!(text_of(&heard, &session) + &text_of(&rest, &session), "héllo world");
    surface.stop().await;
}

/// More than pipe, flow control and socket buffers hold together.
fn long_reply() -> (ModelReply, String) {
    let pieces: Vec<_> = (0..2_000).map(|number| format!("{number:0>400} ")).collect();
    let reply = pieces.iter().fold(ModelReply::new(), |reply, piece| reply.delta(piece)).done();
    (reply, pieces.concat())
}

#[actix_web::test]
async fn e4_a_websocket_that_reads_late_misses_nothing_and_slows_nobody() {
    let (reply, text) = long_reply();
    let surface = HttpTestServer::start(ScriptedModel::with_replies([reply])).await;
    let session_id = surface.runtime.create_session().await;
    let path = format!("/agent/stream/{session_id}");
    let mut client = surface.connect(&path, None).await.unwrap();
    let run_id = surface.runtime.submit(session_id, "hi").await;
    surface.runtime.wait_for_run_end(session_id, run_id).await;
    let heard = frames(&mut client, |frame| frame["type"] == "done").await;
    assert!(text_of(&heard, &session_id.to_string()) == text, "the text arrives whole");
    surface.stop().await;
}

#[actix_web::test]
async fn e4_a_stream_that_is_read_late_misses_nothing_and_then_ends() {
    let (reply, text) = long_reply();
    let surface = HttpTestServer::start(ScriptedModel::with_replies([reply])).await;
    let session_id = surface.runtime.create_session().await;
    let answer = reqwest_client()
        .post(format!("http://{}/agent/chat/stream", surface.address))
        .bearer_auth(TOKEN)
        .json(&json!({"session_id": session_id, "message": "hi"}))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let is_end = |event: &_| {
        matches!(event, greenroom_core::session::SessionEvent::RunCompleted { .. }).then_some(())
    };
    surface
        .runtime
        .wait_for(session_id, "the end", |events| events.iter().find_map(|e| is_end(&e.event)))
        .await;
    let body = with_timeout("the body", answer.text()).await.unwrap();
    let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
    let heard: Vec<Value> = data.map(|json| serde_json::from_str(json).unwrap()).collect();
    let said: String = heard
        .iter()
        .filter(|frame| frame["type"] == "text")
        .filter_map(|frame| frame["text"].as_str())
        .collect();
    assert!(said == text, "the text arrives whole");
    assert_eq!(heard.last().unwrap()["type"], "done");
    surface.stop().await;
}

fn reqwest_client() -> reqwest::Client {
    // Another test may have been first.
    drop(rustls::crypto::ring::default_provider().install_default());
    reqwest::Client::new()
}
