//! A server that only plays one: it speaks the gateway and takes answers to approvals, by a script.
//! For what a client must understand and no session of these tests leads to.

use crate::harness::TEST_TIMEOUT;
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_tungstenite::tungstenite::Message;

/// One play: each time the client has said something, the next frames are sent.
pub(crate) struct ScriptedGateway {
    url: String,
    received: Arc<Mutex<Vec<Value>>>,
}

impl ScriptedGateway {
    /// Plays these scenes. Their frames belong to whatever request the client made.
    pub(crate) async fn start(scenes: Vec<Vec<Value>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
        let url = format!("http://{}", listener.local_addr().expect("it has an address"));
        let heard = Arc::<Mutex<Vec<Value>>>::default();
        let (said, mut saying) = mpsc::channel::<Value>(16);
        let (shared, cue) = (heard.clone(), said.clone());
        actix_web::rt::spawn(async move {
            let (socket, _) = listener.accept().await.expect("a client comes");
            let socket = tokio_tungstenite::accept_async(socket).await.expect("over a WebSocket");
            let (mut outbox, mut inbox) = socket.split();
            actix_web::rt::spawn(async move {
                while let Some(Ok(Message::Text(text))) = inbox.next().await {
                    let frame = serde_json::from_str(&text).expect("it is JSON");
                    cue.send(frame).await.unwrap_or_default();
                }
            });
            actix_web::rt::spawn(async move {
                while let Ok((socket, _)) = listener.accept().await {
                    let posted = read_post(socket).await;
                    said.send(posted).await.unwrap_or_default();
                }
            });
            let mut request = Value::Null;
            for scene in scenes {
                let Some(frame) = saying.recv().await else { return };
                if request.is_null() {
                    request = frame["id"].clone();
                }
                shared.lock().expect("nobody panics with it").push(frame);
                for mut frame in scene {
                    frame["requestId"] = request.clone();
                    let sent = outbox.send(Message::text(frame.to_string())).await;
                    sent.expect("the client listens");
                }
            }
            // Until it is gone.
            while saying.recv().await.is_some() {}
        });
        Self { url, received: heard }
    }

    /// Where it plays.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// What the client said: frames, and what it posted, with the `path`.
    pub(crate) fn received(&self) -> Vec<Value> {
        self.received.lock().expect("nobody panics with it").clone()
    }
}

/// Reads one request with a JSON body, and answers that it is well.
async fn read_post(mut socket: TcpStream) -> Value {
    let mut text = String::new();
    let reads = async {
        let mut buffer = [0; 4096];
        loop {
            let count = socket.read(&mut buffer).await.expect("it can be read");
            text.push_str(&String::from_utf8_lossy(&buffer[..count]));
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            if let Ok(body) = serde_json::from_str::<Value>(body) {
                let path = head.split(' ').nth(1).unwrap_or_default();
                return json!({"path": path, "body": body});
            }
        }
    };
    let posted = tokio::time::timeout(TEST_TIMEOUT, reads).await.expect("it is whole");
    let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
    socket.write_all(answer.as_bytes()).await.expect("it can be answered");
    posted
}
