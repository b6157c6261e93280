//! A client's ears: server-sent events and WebSockets, read by a few lines of our own, so that the
//! server's parsers are not what judges the server.

use crate::harness::{TEST_TIMEOUT, TOKEN};
use futures::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use std::collections::VecDeque;
use tokio::net::TcpStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream,
    tungstenite::{Message, client::IntoClientRequest as _},
};

/// One thing the server said.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Frame {
    /// Where the client is now; empty for control frames.
    pub(crate) cursor: String,
    pub(crate) data: Value,
}

impl Frame {
    pub(crate) fn kind(&self) -> &str {
        self.data["type"].as_str().unwrap_or_default()
    }

    pub(crate) fn text(&self, key: &str) -> &str {
        self.data[key].as_str().unwrap_or_default()
    }
}

/// A response of server-sent events.
pub(crate) struct Stream {
    response: reqwest::Response,
    unread: Vec<u8>,
    ready: VecDeque<Frame>,
}

impl Stream {
    pub(crate) fn new(response: reqwest::Response) -> Self {
        Self { response, unread: Vec::new(), ready: VecDeque::new() }
    }

    /// The next frame, or nothing at the end.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            let bytes = self.response.chunk().await.expect("the stream goes on")?;
            self.unread.extend_from_slice(&bytes);
            while let Some(end) = self.unread.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.unread.drain(..end + 2).collect();
                let block = String::from_utf8(block).expect("events are UTF-8");
                self.ready.extend(frame(&block));
            }
        }
    }

    /// Frames up to the first of that type, with it.
    pub(crate) async fn read_until(&mut self, kind: &str) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            let last = frame.kind() == kind;
            frames.push(frame);
            if last {
                return frames;
            }
        }
        panic!("no {kind} in {}", format_frames(&frames));
    }

    /// Frames until the text of the open message is at least so long.
    pub(crate) async fn read_text(&mut self, chars: usize) -> Vec<Frame> {
        let mut frames = Vec::new();
        while streamed_text(&frames).chars().count() < chars {
            frames.push(self.next().await.expect("the text goes on"));
        }
        frames
    }

    /// All that is left.
    pub(crate) async fn read_to_end(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }
}

fn frame(block: &str) -> Option<Frame> {
    let field = |name: &str| {
        let mut lines = block.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    };
    assert_eq!(field("event"), None, "frames have no name");
    let data = serde_json::from_str(field("data")?).expect("data is JSON");
    Some(Frame { cursor: field("id").unwrap_or_default().to_owned(), data })
}

/// A WebSocket.
pub(crate) struct Socket(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Socket {
    pub(crate) async fn open(base: &str, path: &str) -> Self {
        Self::open_as(base, path, TOKEN).await
    }

    /// The same, with somebody's own credential.
    pub(crate) async fn open_as(base: &str, path: &str, token: &str) -> Self {
        let mut request = format!("{base}{path}").into_client_request().expect("it is an address");
        let bearer = format!("Bearer {token}").parse().expect("it is a header");
        request.headers_mut().insert("authorization", bearer);
        let opened = tokio::time::timeout(TEST_TIMEOUT, tokio_tungstenite::connect_async(request));
        Self(opened.await.expect("the server answers").expect("the socket opens").0)
    }

    pub(crate) async fn send(&mut self, frame: Value) {
        self.send_text(&frame.to_string()).await;
    }

    pub(crate) async fn send_text(&mut self, text: &str) {
        self.0.send(Message::text(text)).await.expect("the socket is open");
    }

    pub(crate) async fn next(&mut self) -> Value {
        // Over all of it: pings are no news.
        let text = tokio::time::timeout(TEST_TIMEOUT, self.next_text()).await;
        serde_json::from_str(&text.expect("the server has something to say")).expect("it is JSON")
    }

    async fn next_text(&mut self) -> String {
        loop {
            match self.0.next().await.expect("the socket is open") {
                Ok(Message::Text(text)) => return text.to_string(),
                Ok(Message::Ping(_) | Message::Pong(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Frames up to the first of that type, with it.
    pub(crate) async fn read_until(&mut self, kind: &str) -> Vec<Value> {
        let mut frames = Vec::new();
        loop {
            let frame = self.next().await;
            let last = frame["type"] == kind;
            frames.push(frame);
            if last {
                return frames;
            }
        }
    }

    /// The answer to the frame of that id, and what came before it.
    pub(crate) async fn read_response(&mut self, id: &str) -> (Value, Vec<Value>) {
        let mut before = Vec::new();
        loop {
            let frame = self.next().await;
            if frame["id"] == id {
                return (frame, before);
            }
            before.push(frame);
        }
    }
}

/// The types, with deltas of text as one, and without what only says how things are stored.
pub(crate) fn kinds(frames: &[Frame]) -> Vec<&str> {
    let mut kinds: Vec<_> = frames.iter().map(Frame::kind).collect();
    kinds.dedup_by(|next, before| *next == "text" && *before == "text");
    kinds
}

/// The same, of these types only.
pub(crate) fn kinds_of<'a>(frames: &'a [Frame], wanted: &[&str]) -> Vec<&'a str> {
    let mut kinds: Vec<_> =
        frames.iter().map(Frame::kind).filter(|kind| wanted.contains(kind)).collect();
    kinds.dedup_by(|next, before| *next == "text" && *before == "text");
    kinds
}

/// All text that was streamed.
pub(crate) fn streamed_text(frames: &[Frame]) -> String {
    frames.iter().filter(|frame| frame.kind() == "text").map(|frame| frame.text("text")).collect()
}

/// The text of the last complete message.
pub(crate) fn last_message_text(frames: &[Frame]) -> &str {
    let last = frames.iter().rev().find(|frame| frame.kind() == "message_completed");
    last.map_or("", |frame| frame.text("text"))
}

/// Those of one type.
pub(crate) fn of_kind<'a>(frames: &'a [Frame], kind: &str) -> Vec<&'a Frame> {
    frames.iter().filter(|frame| frame.kind() == kind).collect()
}

/// The only one of its type.
pub(crate) fn single_frame<'a>(frames: &'a [Frame], kind: &str) -> &'a Frame {
    let found = of_kind(frames, kind);
    assert_eq!(found.len(), 1, "of {kind} in {}", format_frames(frames));
    found[0]
}

/// For people who read a failure.
pub(crate) fn format_frames(frames: &[Frame]) -> String {
    frames.iter().map(|frame| format!("\n{} {}", frame.cursor, frame.data)).collect()
}
