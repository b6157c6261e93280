//! The connection to the gateway. After a loss it reconnects and sends unfinished requests again, so
//! that their streams continue where they were cut off.
//!
//! The connection reads only the members of a frame that it needs for this, and knows nothing about
//! what is displayed.

use crate::cli::client::ApiClient;
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::{net::TcpStream, sync::mpsc};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{self, Message, http::StatusCode},
};

/// Maximum number of frames queued in each direction.
const FRAMES_MAX: usize = 256;
/// Timeout of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time without data after which the connection counts as lost; the server pings every 15 s.
const SILENCE_MAX: Duration = Duration::from_secs(45);
/// Delay before the first attempt to reconnect; doubles with each attempt.
const DELAY_BASE: Duration = Duration::from_millis(200);
/// Maximum delay between attempts.
const DELAY_CAP: Duration = Duration::from_secs(5);

type ClientSocket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// An event of the connection.
#[derive(Debug)]
pub(super) enum ConnectionEvent {
    /// A frame from the server.
    Frame(Value),
    /// The connection is lost; the next attempt to reconnect follows after `retry_in`.
    Lost { reason: String, retry_in: Duration },
    /// The connection is established again.
    Reconnected,
    /// The server refused the connection with this reason; no event follows.
    Refused(String),
}

/// A handle to the connection's task.
pub(super) struct GatewayConnection {
    frames: mpsc::Sender<Value>,
    events: mpsc::Receiver<ConnectionEvent>,
}

impl GatewayConnection {
    /// Connects and starts the task. Fails if the first attempt fails.
    pub(super) async fn open(client: &ApiClient) -> anyhow::Result<Self> {
        let socket = match connect(client).await {
            Ok(socket) => socket,
            Err(ConnectError::Refused(reason)) => {
                anyhow::bail!("the server refused the connection: {reason}")
            }
            Err(ConnectError::Unreachable(reason)) => {
                anyhow::bail!("no server at {}: {reason}", client.base_url())
            }
        };
        let (frames, outbox) = mpsc::channel(FRAMES_MAX);
        let (inbox, events) = mpsc::channel(FRAMES_MAX);
        let task = ConnectionTask {
            client: client.clone(),
            outbox,
            inbox,
            open_requests: Vec::new(),
            unsent: None,
        };
        tokio::spawn(task.run(socket));
        Ok(Self { frames, events })
    }

    /// Sends a frame, at the latest after the next reconnect. A `chat.send` is sent again after every
    /// loss until its request ends.
    pub(super) async fn send(&self, frame: Value) {
        // The task ends only after it has queued `Refused`.
        self.frames.send(frame).await.unwrap_or_default();
    }

    /// Returns the next event; `None` after [`ConnectionEvent::Refused`].
    pub(super) async fn next(&mut self) -> Option<ConnectionEvent> {
        self.events.recv().await
    }

    /// Returns the next event if there is one already.
    pub(super) fn try_next(&mut self) -> Option<ConnectionEvent> {
        self.events.try_recv().ok()
    }
}

/// The reason for a failed attempt to connect.
enum ConnectError {
    /// A later attempt may succeed.
    Unreachable(String),
    /// A later attempt would fail as well.
    Refused(String),
}

async fn connect(client: &ApiClient) -> Result<ClientSocket, ConnectError> {
    let unreachable = |error: &dyn std::fmt::Display| ConnectError::Unreachable(error.to_string());
    let request =
        client.websocket_request("/gateway?details=true").map_err(|error| unreachable(&error))?;
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, connect_async(request)).await;
    match connected {
        Err(_) => Err(ConnectError::Unreachable(format!(
            "no response within {} s",
            CONNECT_TIMEOUT.as_secs()
        ))),
        Ok(Ok((socket, _))) => Ok(socket),
        Ok(Err(tungstenite::Error::Http(response))) => {
            let status = response.status();
            let problem = response.body().as_deref().unwrap_or_default();
            let problem: Value = serde_json::from_slice(problem).unwrap_or_default();
            let detail = problem["detail"].as_str();
            let reason = detail.map_or_else(|| status.to_string(), str::to_owned);
            // A rate limit and a server that starts or stops are temporary.
            let is_temporary = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
            Err(match is_temporary {
                true => ConnectError::Unreachable(reason),
                false => ConnectError::Refused(reason),
            })
        }
        Ok(Err(error)) => Err(unreachable(&error)),
    }
}

/// The task that owns the socket.
struct ConnectionTask {
    client: ApiClient,
    outbox: mpsc::Receiver<Value>,
    inbox: mpsc::Sender<ConnectionEvent>,
    open_requests: Vec<TrackedRequest>,
    /// A frame that was not sent before the connection broke.
    unsent: Option<Value>,
}

/// A request that has not ended.
struct TrackedRequest {
    id: String,
    /// The frame to send after a loss, with the cursor at which the stream continues.
    frame: Value,
    started: bool,
}

/// Error: the handle of the connection was dropped.
struct HandleDropped;

impl ConnectionTask {
    async fn run(mut self, socket: ClientSocket) {
        let mut socket = socket;
        loop {
            let reason = match self.exchange_frames(&mut socket).await {
                Ok(reason) => reason,
                Err(HandleDropped) => return,
            };
            socket = match self.reconnect(reason).await {
                Some(socket) => socket,
                None => return,
            };
        }
    }

    /// Reconnects and sends open requests again. Returns `None` if the server refuses or the handle
    /// is dropped.
    async fn reconnect(&mut self, mut reason: String) -> Option<ClientSocket> {
        let mut delay = DELAY_BASE;
        loop {
            let lost = ConnectionEvent::Lost { reason, retry_in: delay };
            self.inbox.send(lost).await.ok()?;
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(DELAY_CAP);
            match connect(&self.client).await {
                Ok(mut socket) => match self.resend_open_requests(&mut socket).await {
                    Ok(()) => {
                        self.inbox.send(ConnectionEvent::Reconnected).await.ok()?;
                        return Some(socket);
                    }
                    Err(error) => reason = error.to_string(),
                },
                Err(ConnectError::Unreachable(error)) => reason = error,
                Err(ConnectError::Refused(reason)) => {
                    self.inbox.send(ConnectionEvent::Refused(reason)).await.ok()?;
                    return None;
                }
            }
        }
    }

    async fn resend_open_requests(
        &mut self,
        socket: &mut ClientSocket,
    ) -> Result<(), tungstenite::Error> {
        for request in &self.open_requests {
            socket.send(Message::text(request.frame.to_string())).await?;
        }
        if let Some(frame) = &self.unsent {
            socket.send(Message::text(frame.to_string())).await?;
            self.unsent = None;
        }
        Ok(())
    }

    /// Exchanges frames until the connection is lost. Returns the reason of the loss.
    async fn exchange_frames(
        &mut self,
        socket: &mut ClientSocket,
    ) -> Result<String, HandleDropped> {
        loop {
            tokio::select! {
                frame = self.outbox.recv() => {
                    let frame = frame.ok_or(HandleDropped)?;
                    self.track_sent(&frame);
                    if let Err(error) = socket.send(Message::text(frame.to_string())).await {
                        // `track_sent` has recorded a `chat.send` for sending again.
                        self.unsent = Some(frame).filter(|frame| frame["type"] != "chat.send");
                        return Ok(error.to_string());
                    }
                }
                received = tokio::time::timeout(SILENCE_MAX, socket.next()) => match received {
                    Err(_) => {
                        let seconds = SILENCE_MAX.as_secs();
                        return Ok(format!("no data from the server for {seconds} s"));
                    }
                    Ok(None) => return Ok("the server closed the connection".to_owned()),
                    Ok(Some(Err(error))) => return Ok(error.to_string()),
                    Ok(Some(Ok(Message::Text(text)))) => {
                        let Ok(frame) = serde_json::from_str::<Value>(&text) else { continue };
                        let resend = self.track_received(&frame);
                        self.inbox.send(ConnectionEvent::Frame(frame)).await.map_err(|_| HandleDropped)?;
                        if let Some(frame) = resend {
                            tokio::time::sleep(DELAY_BASE).await;
                            if let Err(error) = socket.send(Message::text(frame.to_string())).await {
                                return Ok(error.to_string());
                            }
                        }
                    }
                    Ok(Some(Ok(Message::Close(_)))) => {
                        return Ok("the server closed the connection".to_owned());
                    }
                    // tungstenite answers pings when it reads.
                    Ok(Some(Ok(
                        Message::Ping(_)
                        | Message::Pong(_)
                        | Message::Binary(_)
                        | Message::Frame(_),
                    ))) => {}
                },
            }
        }
    }

    fn track_sent(&mut self, frame: &Value) {
        if frame["type"] == "chat.send"
            && let Some(id) = frame["id"].as_str()
        {
            self.open_requests.retain(|request| request.id != id);
            let (id, frame) = (id.to_owned(), frame.clone());
            self.open_requests.push(TrackedRequest { id, frame, started: false });
        }
    }

    /// Updates the open requests from a received frame. Returns the frame to send again, if any.
    fn track_received(&mut self, frame: &Value) -> Option<Value> {
        let id = frame["requestId"].as_str()?;
        let index = self.open_requests.iter().position(|request| request.id == id)?;
        let request = &mut self.open_requests[index];
        if frame["cursor"].is_string() && request.started {
            request.frame["after"] = frame["cursor"].clone();
        }
        match frame["type"].as_str()? {
            "chat.stream.start" => {
                request.started = true;
                request.frame["sessionId"] = frame["sessionId"].clone();
                request.frame["after"] = frame["cursor"].clone();
            }
            "chat.stream.end" => {
                self.open_requests.remove(index);
            }
            "error" => match frame["code"].as_str()? {
                "stream_broken" => return Some(request.frame.clone()),
                // The server closes the connection soon; the request is sent again after that.
                "server_draining" | "draining" => {}
                // The server rejected the request.
                _ if !request.started => {
                    self.open_requests.remove(index);
                }
                _ => {}
            },
            _ => {}
        }
        None
    }
}

/// Builds a `chat.send` frame.
pub(super) fn chat_send_frame(id: &str, session: Option<&str>, content: &str) -> Value {
    let mut frame = json!({"type": "chat.send", "id": id, "content": content});
    if let Some(session) = session {
        frame["sessionId"] = session.into();
    }
    frame
}
