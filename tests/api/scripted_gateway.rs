//! A fake server that speaks the gateway protocol and accepts answers to approvals, by a script.
//!
//! For client behaviour that no session of a test server triggers.

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

/// A scripted server: after each frame or request of the client it sends the next frames.
pub(crate) struct ScriptedGateway {
    url: String,
    received: Arc<Mutex<Vec<Value>>>,
}

impl ScriptedGateway {
    /// Starts a server with these scenes. Each frame gets the id of the client's first request.
    pub(crate) async fn start(scenes: Vec<Vec<Value>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
        let url = format!("http://{}", listener.local_addr().expect("the listener has an address"));
        let received = Arc::<Mutex<Vec<Value>>>::default();
        let (input_tx, mut input) = mpsc::channel::<Value>(16);
        let (shared, socket_tx) = (received.clone(), input_tx.clone());
        actix_web::rt::spawn(async move {
            let (socket, _) = listener.accept().await.expect("a client connects");
            let socket = tokio_tungstenite::accept_async(socket).await.expect("a WebSocket opens");
            let (mut outbox, mut inbox) = socket.split();
            actix_web::rt::spawn(async move {
                while let Some(Ok(Message::Text(text))) = inbox.next().await {
                    let frame = serde_json::from_str(&text).expect("a frame is JSON");
                    socket_tx.send(frame).await.unwrap_or_default();
                }
            });
            actix_web::rt::spawn(async move {
                while let Ok((socket, _)) = listener.accept().await {
                    let posted = read_post(socket).await;
                    input_tx.send(posted).await.unwrap_or_default();
                }
            });
            let mut request = Value::Null;
            for scene in scenes {
                let Some(frame) = input.recv().await else { return };
                if request.is_null() {
                    request = frame["id"].clone();
                }
                shared.lock().expect("the lock is not poisoned").push(frame);
                for mut frame in scene {
                    frame["requestId"] = request.clone();
                    let result = outbox.send(Message::text(frame.to_string())).await;
                    result.expect("the client is connected");
                }
            }
            // Keeps the connection open until the client closes it.
            while input.recv().await.is_some() {}
        });
        Self { url, received }
    }

    /// Returns the server's base URL, `http://…`.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the frames and the POST requests (`path` and `body`) that the client sent.
    pub(crate) fn received(&self) -> Vec<Value> {
        self.received.lock().expect("the lock is not poisoned").clone()
    }
}

/// Reads one request with a JSON body and answers it with 200.
async fn read_post(mut socket: TcpStream) -> Value {
    let mut text = String::new();
    let request = async {
        let mut buffer = [0; 4096];
        loop {
            let count = socket.read(&mut buffer).await.expect("the socket is readable");
            text.push_str(&String::from_utf8_lossy(&buffer[..count]));
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            if let Ok(body) = serde_json::from_str::<Value>(body) {
                let path = head.split(' ').nth(1).unwrap_or_default();
                return json!({"path": path, "body": body});
            }
        }
    };
    let posted = tokio::time::timeout(TEST_TIMEOUT, request).await.expect("the body is complete");
    let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
    socket.write_all(answer.as_bytes()).await.expect("the socket is writable");
    posted
}
