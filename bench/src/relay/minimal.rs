//! The minimal relay: parses the provider's stream, keeps the conversation of each session in a task,
//! runs the tool in its own process, and stores each message before its consequences. It has no
//! policy, no events, no resumption and one client per session.

use super::store::MessageStore;
use crate::target::Durability;
use actix_web::{App, HttpResponse, HttpServer, web};
use anyhow::Context as _;
use bytes::{Buf as _, Bytes, BytesMut};
use futures::StreamExt as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    fmt::Write as _,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// Maximum number of frames queued for a client.
const FRAMES_MAX: usize = 64;
/// Maximum number of messages queued for a session.
const MAILBOX_MAX: usize = 16;

type Frames = mpsc::Sender<Result<Bytes, std::convert::Infallible>>;

struct MinimalRelay {
    http: reqwest::Client,
    url: String,
    store: MessageStore,
    sessions: Mutex<HashMap<String, mpsc::Sender<ChatRequest>>>,
}

#[derive(Deserialize)]
struct Chat {
    session: String,
    model: String,
    message: String,
}

struct ChatRequest {
    chat: Chat,
    frames: Frames,
}

/// Serves until the process is killed.
pub(crate) async fn serve(
    address: SocketAddr,
    provider: &str,
    database: &Path,
    durability: Durability,
) -> anyhow::Result<()> {
    let relay = web::Data::new(MinimalRelay {
        http: super::client()?,
        url: format!("{provider}/chat/completions"),
        store: MessageStore::open(database, durability)?,
        sessions: Mutex::default(),
    });
    let app = move || App::new().app_data(relay.clone()).route("/chat", web::post().to(chat));
    Ok(HttpServer::new(app).on_connect(super::on_connect).bind(address)?.run().await?)
}

async fn chat(relay: web::Data<MinimalRelay>, chat: web::Json<Chat>) -> HttpResponse {
    let chat = chat.into_inner();
    let (frames, frame_receiver) = mpsc::channel(FRAMES_MAX);
    let mailbox = {
        let mut sessions = relay.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let mailbox = sessions.entry(chat.session.clone()).or_insert_with(|| {
            let (mailbox, requests) = mpsc::channel(MAILBOX_MAX);
            actix_web::rt::spawn(run_session(relay.clone().into_inner(), requests));
            mailbox
        });
        mailbox.clone()
    };
    drop(mailbox.send(ChatRequest { chat, frames }).await);
    let stream = ReceiverStream::new(frame_receiver);
    HttpResponse::Ok().content_type("text/event-stream").streaming(stream)
}

/// Runs a session: answers one message after the other with the conversation so far.
async fn run_session(relay: Arc<MinimalRelay>, mut requests: mpsc::Receiver<ChatRequest>) {
    let mut messages = Vec::new();
    while let Some(ChatRequest { chat, frames }) = requests.recv().await {
        if let Err(error) = run(&relay, &mut messages, &chat, &frames).await {
            eprintln!("run failed: {error:#}");
        }
    }
}

#[derive(Clone, Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
enum Message {
    User {
        content: String,
    },
    Assistant {
        content: String,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<Value>,
    },
    Tool {
        tool_call_id: String,
        content: String,
    },
}

async fn run(
    relay: &MinimalRelay,
    messages: &mut Vec<Message>,
    chat: &Chat,
    frames: &Frames,
) -> anyhow::Result<()> {
    store_message(relay, chat, messages, Message::User { content: chat.message.clone() }).await?;
    loop {
        let output = step(relay, messages, chat, frames).await?;
        let StepOutput { text: content, calls } = output;
        let functions = calls.iter().map(Call::to_json).collect();
        store_message(relay, chat, messages, Message::Assistant { content, tool_calls: functions })
            .await?;
        if calls.is_empty() {
            send_frame(frames, "data: {\"type\":\"done\"}\n\n".to_owned()).await;
            return Ok(());
        }
        for call in calls {
            let started = json!({"type": "tool_call_started", "tool": call.name});
            let arguments: Value = serde_json::from_str(&call.arguments)?;
            let content = read_skill(arguments["name"].as_str().context("no name")?);
            let id = call.id.clone();
            let result = Message::Tool { tool_call_id: id, content: content.clone() };
            store_message(relay, chat, messages, result).await?;
            let mut events = format!("data: {started}\n\n");
            write!(events, "data: {{\"type\":\"tool_call_completed\",\"result\":")?;
            write!(events, "{}}}\n\n", json!(content))?;
            send_frame(frames, events).await;
        }
    }
}

fn read_skill(_name: &str) -> String {
    "Tritanium sells for 4.12 ISK a unit in Jita.".to_owned()
}

async fn store_message(
    relay: &MinimalRelay,
    chat: &Chat,
    messages: &mut Vec<Message>,
    message: Message,
) -> anyhow::Result<()> {
    relay.store.store(&chat.session, serde_json::to_string(&message)?).await;
    messages.push(message);
    Ok(())
}

async fn send_frame(frames: &Frames, events: String) {
    // The run continues without its client.
    drop(frames.send(Ok(Bytes::from(events))).await);
}

#[derive(Default)]
struct StepOutput {
    text: String,
    calls: Vec<Call>,
}

#[derive(Default)]
struct Call {
    id: String,
    name: String,
    arguments: String,
}

impl Call {
    fn to_json(&self) -> Value {
        let function = json!({"name": self.name, "arguments": self.arguments});
        json!({"id": self.id, "type": "function", "function": function})
    }
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    choices: Vec<Choice<'a>>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: Delta<'a>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    content: Option<std::borrow::Cow<'a, str>>,
    #[serde(default)]
    tool_calls: Vec<Part>,
}

#[derive(Deserialize)]
struct Part {
    index: usize,
    id: Option<String>,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    #[serde(default)]
    name: String,
    #[serde(default)]
    arguments: String,
}

#[derive(Serialize)]
struct Text<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: &'a str,
}

/// Runs one model call. Sends the text of each received chunk in one write.
async fn step(
    relay: &MinimalRelay,
    messages: &[Message],
    chat: &Chat,
    frames: &Frames,
) -> anyhow::Result<StepOutput> {
    let tools = json!([{"type": "function", "function": {"name": "read_skill", "parameters":
        {"type": "object", "properties": {"name": {"type": "string"}}}}}]);
    let body = json!({"model": chat.model, "stream": true, "tools": tools, "messages": messages});
    let request = relay.http.post(&relay.url).header("content-type", "application/json");
    let response = request.body(body.to_string()).send().await?.error_for_status()?;
    let mut bytes = response.bytes_stream();
    let mut raw = BytesMut::new();
    let mut output = StepOutput::default();
    while let Some(chunk) = bytes.next().await {
        raw.extend_from_slice(&chunk?);
        let mut events = String::new();
        while let Some(end) = raw.iter().position(|byte| *byte == b'\n') {
            if let Some(json) = raw[..end].strip_prefix(b"data: ")
                && json != b"[DONE]"
            {
                let chunk: Chunk<'_> = serde_json::from_slice(json)?;
                apply_chunk(chunk, &mut output, &mut events)?;
            }
            raw.advance(end + 1);
        }
        if !events.is_empty() {
            send_frame(frames, events).await;
        }
    }
    Ok(output)
}

fn apply_chunk(
    chunk: Chunk<'_>,
    output: &mut StepOutput,
    events: &mut String,
) -> anyhow::Result<()> {
    for Choice { delta } in chunk.choices {
        if let Some(text) = &delta.content {
            output.text.push_str(text);
            let frame = serde_json::to_string(&Text { kind: "text", text })?;
            write!(events, "data: {frame}\n\n")?;
        }
        for part in delta.tool_calls {
            if output.calls.len() <= part.index {
                output.calls.resize_with(part.index + 1, Call::default);
            }
            let call = &mut output.calls[part.index];
            call.id.push_str(&part.id.unwrap_or_default());
            call.name.push_str(&part.function.name);
            call.arguments.push_str(&part.function.arguments);
        }
    }
    Ok(())
}
