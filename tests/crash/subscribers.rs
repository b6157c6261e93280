//! Subscribers that receive a session from its first event to its last, over SSE or a WebSocket, with
//! as many connections as needed. Each connection starts at the last cursor that was received.

use crate::{
    harness::{ClientContext, TEST_TIMEOUT, TOKEN, lock, retry_pause},
    history::{Frame, SubscriberLog},
};
use futures::StreamExt as _;
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::{Error, Message, client::IntoClientRequest as _};

/// The transport of a subscriber.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Transport {
    Events,
    Socket,
}

/// Receives events while the session is in use, and at the end those that are still missing.
pub(crate) async fn run_subscriber(
    context: Arc<ClientContext>,
    session: String,
    transport: Transport,
    mut in_use: watch::Receiver<bool>,
) {
    let name = format!("a subscriber ({transport:?}) of {session}");
    let mut subscriber = SubscriberClient {
        subscriber_log: SubscriberLog { name, session, ..SubscriberLog::default() },
        cursor: "0".to_owned(),
        last_seq: 0,
    };
    let receive_loop = async {
        loop {
            subscriber.connect(&context, transport, u64::MAX).await;
            retry_pause().await;
        }
    };
    tokio::select! {
        () = receive_loop => {}
        _ = in_use.wait_for(|in_use| !in_use) => {}
    }
    let mut heads = context.heads.subscribe();
    let head = match heads.wait_for(Option::is_some).await.expect("the context exists").as_ref() {
        Some(heads) => heads.get(&subscriber.subscriber_log.session).copied().unwrap_or_default(),
        None => 0,
    };
    // The checker reports events that are missing after the timeout.
    let rest = subscriber.receive_until(&context, transport, head);
    drop(tokio::time::timeout(TEST_TIMEOUT, rest).await);
    lock(&context.subscriber_logs).push(subscriber.subscriber_log);
}

struct SubscriberClient {
    subscriber_log: SubscriberLog,
    cursor: String,
    last_seq: u64,
}

impl SubscriberClient {
    async fn receive_until(&mut self, context: &ClientContext, transport: Transport, head: u64) {
        while self.last_seq < head {
            self.connect(context, transport, head).await;
        }
    }

    /// Receives from one connection, until it ends or until event `head`.
    async fn connect(&mut self, context: &ClientContext, transport: Transport, head: u64) {
        self.subscriber_log.connections += 1;
        match transport {
            Transport::Events => self.receive_sse(context, head).await,
            Transport::Socket => self.receive_websocket(context, head).await,
        }
    }

    async fn receive_sse(&mut self, context: &ClientContext, head: u64) {
        let path = format!("/agent/session/{}/events", self.subscriber_log.session);
        let Some(mut response) = context.open_event_stream(&path, &self.cursor).await else {
            return;
        };
        let status = response.status();
        if status != 200 {
            let body = response.text().await.unwrap_or_default();
            return self.record_rejection(status.as_u16(), &body);
        }
        let mut unread = Vec::new();
        while let Ok(Some(bytes)) = response.chunk().await {
            unread.extend_from_slice(&bytes);
            // An incomplete frame was cut off and does not count.
            while let Some(end) = unread.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = unread.drain(..end + 2).collect();
                let block = String::from_utf8(block).expect("events are UTF-8");
                let field = |name: &str| {
                    block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
                };
                let Some(data) = field("data") else { continue };
                let data = serde_json::from_str(data).expect("data is JSON");
                let cursor = field("id").unwrap_or_default().to_owned();
                self.push_frame(Frame { cursor, data, is_websocket: false });
            }
            if self.last_seq >= head {
                return;
            }
        }
    }

    async fn receive_websocket(&mut self, context: &ClientContext, head: u64) {
        let base = context.address().await.replacen("http", "ws", 1);
        let url =
            format!("{base}/agent/stream/{}?after={}", self.subscriber_log.session, self.cursor);
        let mut request = url.into_client_request().expect("the URL is valid");
        let bearer = format!("Bearer {TOKEN}").parse().expect("the header is valid");
        request.headers_mut().insert("authorization", bearer);
        let mut socket = match tokio_tungstenite::connect_async(request).await {
            Ok((socket, _)) => socket,
            Err(Error::Http(response)) => {
                let body = response.body().clone().unwrap_or_default();
                let body = String::from_utf8_lossy(&body).into_owned();
                return self.record_rejection(response.status().as_u16(), &body);
            }
            Err(_) => return,
        };
        while let Some(Ok(message)) = socket.next().await {
            let Message::Text(text) = message else { continue };
            let data: Value = serde_json::from_str(&text).expect("frames are JSON");
            if data["type"] == "error" && data["seq"].is_null() {
                return self.record_rejection(400, &text);
            }
            let cursor = data["cursor"].as_str().unwrap_or_default().to_owned();
            self.push_frame(Frame { cursor, data, is_websocket: true });
            if self.last_seq >= head {
                return;
            }
        }
    }

    fn push_frame(&mut self, frame: Frame) {
        // Control frames have no `seq`.
        let Some(seq) = frame.data["seq"].as_u64() else { return };
        self.cursor.clone_from(&frame.cursor);
        // A frame at the last `seq` may precede the text that follows this event.
        self.last_seq = seq;
        self.subscriber_log.frames.push(frame);
    }

    fn record_rejection(&mut self, status: u16, body: &str) {
        // A server that is starting responds 503, which says nothing about the cursor.
        if [400, 404, 409].contains(&status) {
            self.subscriber_log
                .rejected_cursors
                .push(format!("{} at {}: {body}", status, self.cursor));
        }
    }
}
