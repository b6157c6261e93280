//! Tests of the HTTP API over real sockets, with scripted models and tools.

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
        let runtime = TestRuntime::start(model, FakeTools::new()).await;
        let auth = Authenticator::new(AdminToken::parse(TOKEN).unwrap());
        let state = AppState::new(runtime.runtime.clone(), auth, TestRuntime::agent());
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
        Self { runtime, address, server: handle }
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
            Err(tokio_tungstenite::tungstenite::Error::Http(response)) => {
                Err(response.status().as_u16())
            }
            Err(error) => panic!("{error}"),
        }
    }

    async fn stop(self) {
        self.server.stop(false).await;
    }
}

/// Receives frames up to and including the first for which `is_last` is true.
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

async fn send(client: &mut TestSocket, frame: Value) {
    client.send(Message::text(frame.to_string())).await.unwrap();
}

fn session_text(frames: &[Value], session: &str) -> String {
    let deltas =
        frames.iter().filter(|frame| frame["type"] == "text" && frame["session_id"] == *session);
    deltas.filter_map(|frame| frame["payload"]["text"].as_str()).collect()
}

#[actix_web::test]
async fn e2_one_websocket_carries_many_sessions() {
    let replies = ["first", "second"].map(ModelReply::text);
    let server = HttpTestServer::start(ScriptedModel::with_replies(replies)).await;
    let first = server.runtime.create_session().await.to_string();
    let second = server.runtime.create_session().await.to_string();
    let mut client = server.connect("/agent/stream", None).await.unwrap();
    for (id, session, expected) in [(1, &first, "first"), (2, &second, "second")] {
        send(&mut client, json!({"type": "subscribe", "id": id, "session_id": session})).await;
        frames(&mut client, |frame| frame["type"] == "ack" && frame["id"] == id).await;
        send(&mut client, json!({"type": "send", "session_id": session, "message": "hi"})).await;
        let received = frames(&mut client, |frame| frame["type"] == "done").await;
        assert_eq!(session_text(&received, session), expected);
        // The response to `send` is independent of the stream: either may arrive last.
        let is_ack = |frame: &Value| frame["type"] == "ack" && frame["run_id"].is_string();
        if !received.iter().any(is_ack) {
            frames(&mut client, is_ack).await;
        }
    }
    server.stop().await;
}

#[actix_web::test]
async fn w2_administrator_watches_all_sessions_on_one_websocket() {
    let server =
        HttpTestServer::start(ScriptedModel::with_replies([ModelReply::text("hello")])).await;
    let mut client = server.connect("/agent/stream", None).await.unwrap();
    send(&mut client, json!({"type": "watch", "id": 1})).await;
    let ack = frames(&mut client, |frame| frame["type"] == "ack").await;
    assert_eq!(ack[0]["watching"], true);
    let tailing = async {
        let board = &server.runtime.runtime.status_board;
        while !board.snapshots("/subscribers/all/").iter().any(|actor| actor.state == "tailing") {
            tokio::task::yield_now().await;
        }
    };
    with_timeout("the subscriber", tailing).await;
    let session = server.runtime.create_session().await;
    server.runtime.submit(session, "hi").await;
    let received = frames(&mut client, |frame| frame["type"] == "done").await;
    assert!(received.iter().all(|frame| frame["session_id"] == session.to_string()));
    let seqs: Vec<_> = received.iter().filter_map(|frame| frame["seq"].as_u64()).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "committed events, no deltas");
    send(&mut client, json!({"type": "unwatch", "id": 2})).await;
    let ack = frames(&mut client, |frame| frame["type"] == "ack").await;
    assert_eq!(ack.last().unwrap()["watching"], false);
    server.stop().await;
}

#[actix_web::test]
async fn invalid_frame_gets_an_error_and_binary_frame_closes_the_connection() {
    let server = HttpTestServer::start(ScriptedModel::with_replies([])).await;
    let session = server.runtime.create_session().await;
    let path = format!("/agent/stream/{session}");
    let mut client = server.connect(&path, None).await.unwrap();
    client.send(Message::text("{nonsense")).await.unwrap();
    send(&mut client, json!({"type": "cancel", "id": "c"})).await;
    let responses = frames(&mut client, |frame| frame["id"] == "c").await;
    let codes: Vec<_> = responses.iter().filter_map(|frame| frame["code"].as_str()).collect();
    assert_eq!(codes, ["malformed_json", "no_run"]);
    client.send(Message::binary(vec![1])).await.unwrap();
    let close = with_timeout("the close frame", async {
        loop {
            if let Message::Close(reason) = client.next().await.unwrap().unwrap() {
                return reason.unwrap().code;
            }
        }
    });
    assert_eq!(close.await, CloseCode::Unsupported);
    server.stop().await;
}

#[actix_web::test]
async fn x3_websocket_from_another_origin_is_rejected() {
    let server = HttpTestServer::start(ScriptedModel::with_replies([])).await;
    let own_origin = format!("http://{}", server.address);
    assert!(server.connect("/agent/stream", Some(&own_origin)).await.is_ok());
    for (origin, status) in [("http://evil.test", 403), ("null", 403)] {
        let refused = server.connect("/agent/stream", Some(origin)).await.err();
        assert_eq!(refused, Some(status), "{origin}");
    }
    server.stop().await;
}

#[actix_web::test]
async fn e3_websocket_resumes_within_a_message() {
    let gate = Gate::closed();
    let reply = ModelReply::new().delta("héllo ").wait(&gate).delta("world").finished();
    let server = HttpTestServer::start(ScriptedModel::with_replies([reply])).await;
    let session_id = server.runtime.create_session().await;
    let path = format!("/agent/stream/{session_id}");
    let mut client = server.connect(&path, None).await.unwrap();
    send(&mut client, json!({"type": "send", "message": "hi"})).await;
    let received = frames(&mut client, |frame| frame["type"] == "text").await;
    let cursor = received.last().unwrap()["cursor"].as_str().unwrap().to_owned();
    drop(client);
    let mut client = server.connect(&format!("{path}?after={cursor}"), None).await.unwrap();
    gate.open();
    let rest = frames(&mut client, |frame| frame["type"] == "done").await;
    let session = session_id.to_string();
    assert_eq!(session_text(&received, &session) + &session_text(&rest, &session), "héllo world");
    server.stop().await;
}

/// Returns a reply that exceeds the capacity of pipe, flow control and socket buffers together.
fn long_reply() -> (ModelReply, String) {
    let deltas: Vec<_> = (0..2_000).map(|number| format!("{number:0>400} ")).collect();
    let reply = deltas.iter().fold(ModelReply::new(), |reply, delta| reply.delta(delta)).finished();
    (reply, deltas.concat())
}

#[actix_web::test]
async fn e4_slow_websocket_misses_nothing_and_does_not_slow_the_run() {
    let (reply, text) = long_reply();
    let server = HttpTestServer::start(ScriptedModel::with_replies([reply])).await;
    let session_id = server.runtime.create_session().await;
    let path = format!("/agent/stream/{session_id}");
    let mut client = server.connect(&path, None).await.unwrap();
    let run_id = server.runtime.submit(session_id, "hi").await;
    server.runtime.wait_for_run_end(session_id, run_id).await;
    let received = frames(&mut client, |frame| frame["type"] == "done").await;
    assert!(session_text(&received, &session_id.to_string()) == text, "the text is complete");
    server.stop().await;
}

#[actix_web::test]
async fn e4_slow_event_stream_misses_nothing_and_ends() {
    let (reply, text) = long_reply();
    let server = HttpTestServer::start(ScriptedModel::with_replies([reply])).await;
    let session_id = server.runtime.create_session().await;
    let response = reqwest_client()
        .post(format!("http://{}/agent/chat/stream", server.address))
        .bearer_auth(TOKEN)
        .json(&json!({"session_id": session_id, "message": "hi"}))
        .send()
        .await
        .unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let is_end = |event: &_| {
        matches!(event, greenroom_core::session::SessionEvent::RunCompleted { .. }).then_some(())
    };
    server
        .runtime
        .wait_for(session_id, "the end", |events| events.iter().find_map(|e| is_end(&e.event)))
        .await;
    let body = with_timeout("the body", response.text()).await.unwrap();
    let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
    let received: Vec<Value> = data.map(|json| serde_json::from_str(json).unwrap()).collect();
    let received_text: String = received
        .iter()
        .filter(|frame| frame["type"] == "text")
        .filter_map(|frame| frame["text"].as_str())
        .collect();
    assert!(received_text == text, "the text is complete");
    assert_eq!(received.last().unwrap()["type"], "done");
    server.stop().await;
}

fn reqwest_client() -> reqwest::Client {
    // Another test may have installed the provider already.
    drop(rustls::crypto::ring::default_provider().install_default());
    reqwest::Client::new()
}
