//! Test clients for server-sent events and WebSockets. They parse frames themselves, so that the
//! tests do not depend on the server's parsers.

use crate::harness::{TEST_TIMEOUT, TOKEN};
use futures::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use std::collections::VecDeque;
use tokio::net::TcpStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream,
    tungstenite::{Message, client::IntoClientRequest as _},
};

/// A frame that the server sent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Frame {
    /// The client's cursor after this frame; empty for control frames.
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

    /// Receives the next frame, or `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            let bytes = self.response.chunk().await.expect("the stream can be read")?;
            self.unread.extend_from_slice(&bytes);
            while let Some(end) = self.unread.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.unread.drain(..end + 2).collect();
                let block = String::from_utf8(block).expect("events are UTF-8");
                self.ready.extend(parse_frame(&block));
            }
        }
    }

    /// Reads up to and including the first frame of type `kind`.
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

    /// Reads until the streamed text has at least `chars` characters.
    pub(crate) async fn read_text(&mut self, chars: usize) -> Vec<Frame> {
        let mut frames = Vec::new();
        while streamed_text(&frames).chars().count() < chars {
            frames.push(self.next().await.expect("the stream has more text"));
        }
        frames
    }

    /// Reads all remaining frames.
    pub(crate) async fn read_to_end(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }
}

fn parse_frame(block: &str) -> Option<Frame> {
    let field = |name: &str| {
        let mut lines = block.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    };
    assert_eq!(field("event"), None, "frames have no event name");
    let data = serde_json::from_str(field("data")?).expect("data is JSON");
    Some(Frame { cursor: field("id").unwrap_or_default().to_owned(), data })
}

/// A WebSocket.
pub(crate) struct Socket(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Socket {
    pub(crate) async fn open(base: &str, path: &str) -> Self {
        Self::open_as(base, path, TOKEN).await
    }

    /// Opens a WebSocket with the given token.
    pub(crate) async fn open_as(base: &str, path: &str, token: &str) -> Self {
        let mut request = format!("{base}{path}").into_client_request().expect("the URL is valid");
        let bearer = format!("Bearer {token}").parse().expect("the token is a valid header");
        request.headers_mut().insert("authorization", bearer);
        let socket = tokio::time::timeout(TEST_TIMEOUT, tokio_tungstenite::connect_async(request));
        Self(socket.await.expect("the server answers").expect("the socket opens").0)
    }

    pub(crate) async fn send(&mut self, frame: Value) {
        self.send_text(&frame.to_string()).await;
    }

    pub(crate) async fn send_text(&mut self, text: &str) {
        self.0.send(Message::text(text)).await.expect("the socket is open");
    }

    pub(crate) async fn next(&mut self) -> Value {
        // The timeout covers all messages until the next text: pings do not extend it.
        let text = tokio::time::timeout(TEST_TIMEOUT, self.next_text()).await;
        serde_json::from_str(&text.expect("the server sends a frame")).expect("a frame is JSON")
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

    /// Reads up to and including the first frame of type `kind`.
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

    /// Reads up to the response to the frame `id`; returns it and the frames before it.
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

/// Returns the types of the frames; consecutive text deltas count as one.
pub(crate) fn kinds(frames: &[Frame]) -> Vec<&str> {
    let mut kinds: Vec<_> = frames.iter().map(Frame::kind).collect();
    kinds.dedup_by(|next, before| *next == "text" && *before == "text");
    kinds
}

/// Returns the types of the frames that are among `selected`; consecutive text deltas count as one.
pub(crate) fn kinds_of<'a>(frames: &'a [Frame], selected: &[&str]) -> Vec<&'a str> {
    let mut kinds: Vec<_> =
        frames.iter().map(Frame::kind).filter(|kind| selected.contains(kind)).collect();
    kinds.dedup_by(|next, before| *next == "text" && *before == "text");
    kinds
}

/// Returns the concatenated text deltas.
pub(crate) fn streamed_text(frames: &[Frame]) -> String {
    frames.iter().filter(|frame| frame.kind() == "text").map(|frame| frame.text("text")).collect()
}

/// Returns the text of the last complete message.
pub(crate) fn last_message_text(frames: &[Frame]) -> &str {
    let last = frames.iter().rev().find(|frame| frame.kind() == "message_completed");
    last.map_or("", |frame| frame.text("text"))
}

/// Returns the frames of type `kind`.
pub(crate) fn frames_of_kind<'a>(frames: &'a [Frame], kind: &str) -> Vec<&'a Frame> {
    frames.iter().filter(|frame| frame.kind() == kind).collect()
}

/// Returns the frame of type `kind`; panics unless there is exactly one.
pub(crate) fn single_frame<'a>(frames: &'a [Frame], kind: &str) -> &'a Frame {
    let matches = frames_of_kind(frames, kind);
    assert_eq!(matches.len(), 1, "number of {kind} frames in {}", format_frames(frames));
    matches[0]
}

/// Formats frames for the message of a failed assertion.
pub(crate) fn format_frames(frames: &[Frame]) -> String {
    frames.iter().map(|frame| format!("\n{} {}", frame.cursor, frame.data)).collect()
}
