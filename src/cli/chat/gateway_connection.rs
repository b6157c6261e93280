//! The connection to the gateway, kept: when it is lost it comes back by itself, and requests that
//! are not over are sent again, to go on where they were cut off. Knows frames as far as that takes,
//! and nothing of what is shown.

use crate::cli::client::ApiClient;
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::{net::TcpStream, sync::mpsc};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{self, Message, http::StatusCode},
};

/// Frames on their way in or out.
const FRAMES_MAX: usize = 256;
/// Time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Without a sign of life for so long the server counts as gone; it pings every 15 s.
const SILENCE_MAX: Duration = Duration::from_secs(45);
/// Delay before the first try to connect again; doubles with each.
const DELAY_BASE: Duration = Duration::from_millis(200);
/// Longest delay.
const DELAY_CAP: Duration = Duration::from_secs(5);

type ClientSocket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// What comes over the link.
#[derive(Debug)]
pub(super) enum ConnectionEvent {
    /// A frame of the server.
    Frame(Value),
    /// The connection is lost; it is tried again after that time.
    Lost { why: String, again_in: Duration },
    /// It is back.
    Reconnected,
    /// The server will not have us; nothing more comes.
    Refused(String),
}

/// A connection that is kept.
pub(super) struct GatewayConnection {
    frames: mpsc::Sender<Value>,
    events: mpsc::Receiver<ConnectionEvent>,
}

impl GatewayConnection {
    /// Connects. Errs if that does not work at once.
    pub(super) async fn open(client: &ApiClient) -> anyhow::Result<Self> {
        let socket = match connect(client).await {
            Ok(socket) => socket,
            Err(ConnectError::Refused(why)) => anyhow::bail!("the server refuses: {why}"),
            Err(ConnectError::Unreachable(why)) => {
                anyhow::bail!("no server answers at {}: {why}", client.base_url())
            }
        };
        let (frames, outbox) = mpsc::channel(FRAMES_MAX);
        let (inbox, said) = mpsc::channel(FRAMES_MAX);
        let keeper = ConnectionTask {
            client: client.clone(),
            outbox,
            inbox,
            open_requests: Vec::new(),
            unsent: None,
        };
        tokio::spawn(keeper.run(socket));
        Ok(Self { frames, events: said })
    }

    /// Sends a frame, now or when the connection is back. A `chat.send` is sent again after every
    /// loss until its request is over.
    pub(super) async fn send(&self, frame: Value) {
        // Its task ends after `Refused` alone, which is on its way.
        self.frames.send(frame).await.unwrap_or_default();
    }

    /// What comes next; `None` after [`Said::Refused`].
    pub(super) async fn next(&mut self) -> Option<ConnectionEvent> {
        self.events.recv().await
    }

    /// What is there already.
    pub(super) fn try_next(&mut self) -> Option<ConnectionEvent> {
        self.events.try_recv().ok()
    }
}

/// Why there is no connection.
enum ConnectError {
    /// Trying again may help.
    Unreachable(String),
    /// It won't.
    Refused(String),
}

async fn connect(client: &ApiClient) -> Result<ClientSocket, ConnectError> {
    let unreachable = |why: &dyn std::fmt::Display| ConnectError::Unreachable(why.to_string());
    let request =
        client.websocket_request("/gateway?details=true").map_err(|error| unreachable(&error))?;
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, connect_async(request)).await;
    match connected {
        Err(_) => Err(ConnectError::Unreachable("it does not answer".to_owned())),
        Ok(Ok((socket, _))) => Ok(socket),
        Ok(Err(tungstenite::Error::Http(answer))) => {
            let status = answer.status();
            let problem = answer.body().as_deref().unwrap_or_default();
            let problem: Value = serde_json::from_slice(problem).unwrap_or_default();
            let why = problem["detail"].as_str().map_or_else(|| status.to_string(), str::to_owned);
            // Too many requests pass, and so does a server that starts or stops.
            let passes = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
            Err(if passes { ConnectError::Unreachable(why) } else { ConnectError::Refused(why) })
        }
        Ok(Err(error)) => Err(unreachable(&error)),
    }
}

/// The task that keeps the connection.
struct ConnectionTask {
    client: ApiClient,
    outbox: mpsc::Receiver<Value>,
    inbox: mpsc::Sender<ConnectionEvent>,
    open_requests: Vec<TrackedRequest>,
    /// What was to be sent when the connection broke.
    unsent: Option<Value>,
}

/// A request that is not over.
struct TrackedRequest {
    id: String,
    /// As it is to be sent: with the place where its stream goes on.
    frame: Value,
    started: bool,
}

/// Nobody uses the link any more.
struct ConnectionDropped;

impl ConnectionTask {
    async fn run(mut self, socket: ClientSocket) {
        let mut socket = socket;
        loop {
            let why = match self.exchange_frames(&mut socket).await {
                Ok(why) => why,
                Err(ConnectionDropped) => return,
            };
            socket = match self.reconnect(why).await {
                Some(socket) => socket,
                None => return,
            };
        }
    }

    /// Until there is a connection again, and requests go on over it; `None` if there will be none.
    async fn reconnect(&mut self, mut why: String) -> Option<ClientSocket> {
        let mut delay = DELAY_BASE;
        loop {
            let lost = ConnectionEvent::Lost { why, again_in: delay };
            self.inbox.send(lost).await.ok()?;
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(DELAY_CAP);
            match connect(&self.client).await {
                Ok(mut socket) => match self.resend_open_requests(&mut socket).await {
                    Ok(()) => {
                        self.inbox.send(ConnectionEvent::Reconnected).await.ok()?;
                        return Some(socket);
                    }
                    Err(error) => why = error.to_string(),
                },
                Err(ConnectError::Unreachable(error)) => why = error,
                Err(ConnectError::Refused(why)) => {
                    self.inbox.send(ConnectionEvent::Refused(why)).await.ok()?;
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

    /// Carries frames both ways until the connection is lost; says why.
    async fn exchange_frames(
        &mut self,
        socket: &mut ClientSocket,
    ) -> Result<String, ConnectionDropped> {
        loop {
            tokio::select! {
                frame = self.outbox.recv() => {
                    let frame = frame.ok_or(ConnectionDropped)?;
                    self.track_sent(&frame);
                    if let Err(error) = socket.send(Message::text(frame.to_string())).await {
                        // A `chat.send` is sent again anyway.
                        self.unsent = Some(frame).filter(|frame| frame["type"] != "chat.send");
                        return Ok(error.to_string());
                    }
                }
                read = tokio::time::timeout(SILENCE_MAX, socket.next()) => match read {
                    Err(_) => return Ok("the server says nothing any more".to_owned()),
                    Ok(None) => return Ok("the server closed the connection".to_owned()),
                    Ok(Some(Err(error))) => return Ok(error.to_string()),
                    Ok(Some(Ok(Message::Text(text)))) => {
                        let Ok(frame) = serde_json::from_str::<Value>(&text) else { continue };
                        let again = self.track_received(&frame);
                        self.inbox.send(ConnectionEvent::Frame(frame)).await.map_err(|_| ConnectionDropped)?;
                        if let Some(again) = again {
                            tokio::time::sleep(DELAY_BASE).await;
                            if let Err(error) = socket.send(Message::text(again.to_string())).await {
                                return Ok(error.to_string());
                            }
                        }
                    }
                    Ok(Some(Ok(Message::Close(_)))) => {
                        return Ok("the server closed the connection".to_owned());
                    }
                    // Reading answers pings.
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

    /// Learns where requests stand; what must be sent again, if anything.
    fn track_received(&mut self, frame: &Value) -> Option<Value> {
        let id = frame["requestId"].as_str()?;
        let at = self.open_requests.iter().position(|request| request.id == id)?;
        let request = &mut self.open_requests[at];
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
                self.open_requests.remove(at);
            }
            "error" => match frame["code"].as_str()? {
                "stream_broken" => return Some(request.frame.clone()),
                // The connection ends soon, and then it is sent again.
                "server_draining" | "draining" => {}
                // It was not taken at all.
                _ if !request.started => {
                    self.open_requests.remove(at);
                }
                _ => {}
            },
            _ => {}
        }
        None
    }
}

/// A `chat.send`.
pub(super) fn chat_send_frame(id: &str, session: Option<&str>, content: &str) -> Value {
    let mut frame = json!({"type": "chat.send", "id": id, "content": content});
    if let Some(session) = session {
        frame["sessionId"] = session.into();
    }
    frame
}
