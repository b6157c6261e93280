//! The connection to the gateway, kept: when it is lost it comes back by itself, and requests that
//! are not over are sent again, to go on where they were cut off. Knows frames as far as that takes,
//! and nothing of what is shown.

use crate::cli::client::Client;
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

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// What comes over the link.
#[derive(Debug)]
pub(super) enum Said {
    /// A frame of the server.
    Frame(Value),
    /// The connection is lost; it is tried again after that time.
    Lost { why: String, again_in: Duration },
    /// It is back.
    Back,
    /// The server will not have us; nothing more comes.
    Refused(String),
}

/// A connection that is kept.
pub(super) struct Link {
    frames: mpsc::Sender<Value>,
    said: mpsc::Receiver<Said>,
}

impl Link {
    /// Connects. Errs if that does not work at once.
    pub(super) async fn open(client: &Client) -> anyhow::Result<Self> {
        let socket = match connect(client).await {
            Ok(socket) => socket,
            Err(Unconnected::Refused(why)) => anyhow::bail!("the server refuses: {why}"),
            Err(Unconnected::Unreachable(why)) => {
                anyhow::bail!("no server answers at {}: {why}", client.base())
            }
        };
        let (frames, outbox) = mpsc::channel(FRAMES_MAX);
        let (inbox, said) = mpsc::channel(FRAMES_MAX);
        let keeper =
            Keeper { client: client.clone(), outbox, inbox, open: Vec::new(), unsent: None };
        tokio::spawn(keeper.keep(socket));
        Ok(Self { frames, said })
    }

    /// Sends a frame, now or when the connection is back. A `chat.send` is sent again after every
    /// loss until its request is over.
    pub(super) async fn send(&self, frame: Value) {
        // Its task ends after `Refused` alone, which is on its way.
        self.frames.send(frame).await.unwrap_or_default();
    }

    /// What comes next; `None` after [`Said::Refused`].
    pub(super) async fn next(&mut self) -> Option<Said> {
        self.said.recv().await
    }

    /// What is there already.
    pub(super) fn ready(&mut self) -> Option<Said> {
        self.said.try_recv().ok()
    }
}

/// Why there is no connection.
enum Unconnected {
    /// Trying again may help.
    Unreachable(String),
    /// It won't.
    Refused(String),
}

async fn connect(client: &Client) -> Result<Socket, Unconnected> {
    let unreachable = |why: &dyn std::fmt::Display| Unconnected::Unreachable(why.to_string());
    let request = client.upgrade("/gateway?details=true").map_err(|error| unreachable(&error))?;
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, connect_async(request)).await;
    match connected {
        Err(_) => Err(Unconnected::Unreachable("it does not answer".to_owned())),
        Ok(Ok((socket, _))) => Ok(socket),
        Ok(Err(tungstenite::Error::Http(answer))) => {
            let status = answer.status();
            let problem = answer.body().as_deref().unwrap_or_default();
            let problem: Value = serde_json::from_slice(problem).unwrap_or_default();
            let why = problem["detail"].as_str().map_or_else(|| status.to_string(), str::to_owned);
            // Too many requests pass, and so does a server that starts or stops.
            let passes = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
            Err(if passes { Unconnected::Unreachable(why) } else { Unconnected::Refused(why) })
        }
        Ok(Err(error)) => Err(unreachable(&error)),
    }
}

/// The task that keeps the connection.
struct Keeper {
    client: Client,
    outbox: mpsc::Receiver<Value>,
    inbox: mpsc::Sender<Said>,
    open: Vec<Request>,
    /// What was to be sent when the connection broke.
    unsent: Option<Value>,
}

/// A request that is not over.
struct Request {
    id: String,
    /// As it is to be sent: with the place where its stream goes on.
    frame: Value,
    started: bool,
}

/// Nobody uses the link any more.
struct Unused;

impl Keeper {
    async fn keep(mut self, socket: Socket) {
        let mut socket = socket;
        loop {
            let why = match self.talk(&mut socket).await {
                Ok(why) => why,
                Err(Unused) => return,
            };
            socket = match self.reconnect(why).await {
                Some(socket) => socket,
                None => return,
            };
        }
    }

    /// Until there is a connection again, and requests go on over it; `None` if there will be none.
    async fn reconnect(&mut self, mut why: String) -> Option<Socket> {
        let mut delay = DELAY_BASE;
        loop {
            let lost = Said::Lost { why, again_in: delay };
            self.inbox.send(lost).await.ok()?;
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(DELAY_CAP);
            match connect(&self.client).await {
                Ok(mut socket) => match self.send_again(&mut socket).await {
                    Ok(()) => {
                        self.inbox.send(Said::Back).await.ok()?;
                        return Some(socket);
                    }
                    Err(error) => why = error.to_string(),
                },
                Err(Unconnected::Unreachable(error)) => why = error,
                Err(Unconnected::Refused(why)) => {
                    self.inbox.send(Said::Refused(why)).await.ok()?;
                    return None;
                }
            }
        }
    }

    async fn send_again(&mut self, socket: &mut Socket) -> Result<(), tungstenite::Error> {
        for request in &self.open {
            socket.send(Message::text(request.frame.to_string())).await?;
        }
        if let Some(frame) = &self.unsent {
            socket.send(Message::text(frame.to_string())).await?;
            self.unsent = None;
        }
        Ok(())
    }

    /// Carries frames both ways until the connection is lost; says why.
    async fn talk(&mut self, socket: &mut Socket) -> Result<String, Unused> {
        loop {
            tokio::select! {
                frame = self.outbox.recv() => {
                    let frame = frame.ok_or(Unused)?;
                    self.note_sent(&frame);
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
                        let again = self.note_heard(&frame);
                        self.inbox.send(Said::Frame(frame)).await.map_err(|_| Unused)?;
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

    fn note_sent(&mut self, frame: &Value) {
        if frame["type"] == "chat.send"
            && let Some(id) = frame["id"].as_str()
        {
            self.open.retain(|request| request.id != id);
            let (id, frame) = (id.to_owned(), frame.clone());
            self.open.push(Request { id, frame, started: false });
        }
    }

    /// Learns where requests stand; what must be sent again, if anything.
    fn note_heard(&mut self, frame: &Value) -> Option<Value> {
        let id = frame["requestId"].as_str()?;
        let at = self.open.iter().position(|request| request.id == id)?;
        let request = &mut self.open[at];
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
                self.open.remove(at);
            }
            "error" => match frame["code"].as_str()? {
                "stream_broken" => return Some(request.frame.clone()),
                // The connection ends soon, and then it is sent again.
                "server_draining" | "draining" => {}
                // It was not taken at all.
                _ if !request.started => {
                    self.open.remove(at);
                }
                _ => {}
            },
            _ => {}
        }
        None
    }
}

/// A `chat.send`.
pub(super) fn chat_send(id: &str, session: Option<&str>, content: &str) -> Value {
    let mut frame = json!({"type": "chat.send", "id": id, "content": content});
    if let Some(session) = session {
        frame["sessionId"] = session.into();
    }
    frame
}
