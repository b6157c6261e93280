//! The scripted provider: OpenAI's chat completions over raw sockets. The first step has forty text
//! deltas and a tool call; the step with the tool's result has forty more.
//!
//! The request's `model` selects the delivery: `burst` sends a step in a few writes; `paced` sends
//! each delta in its own TCP segment, [`PACE`] apart; `held` sends the first deltas at once and the
//! rest after [`Provider::release`].

use crate::{
    delta_marker::{self, DELTAS_PER_STEP},
    http,
};
use anyhow::Context as _;
use bytes::BytesMut;
use std::{
    fmt::Write as _,
    net::{Ipv4Addr, SocketAddr, TcpListener as StdListener},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpStream},
    sync::watch,
    time::{Instant, sleep_until},
};

/// Interval between two paced deltas.
pub(crate) const PACE: Duration = Duration::from_millis(20);
/// Deltas in one write of a burst.
const DELTAS_PER_WRITE: u32 = 10;
/// Deltas sent before holding.
const DELTAS_BEFORE_HOLD: u32 = 5;

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                    transfer-encoding: chunked\r\n\r\n";
const TOOL_CALL: [&str; 2] = [
    r#"{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"read_skill","arguments":"{\"na"}}]}"#,
    r#"{"tool_calls":[{"index":0,"function":{"arguments":"me\":\"prices\"}"}}]}"#,
];
const USAGE: &str = r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":80,"total_tokens":180}}"#;

/// A running provider in its own thread.
pub(crate) struct Provider {
    address: SocketAddr,
    requests: Arc<AtomicU64>,
    is_held: watch::Sender<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeliveryMode {
    Burst,
    Paced,
    Held,
}

impl Provider {
    /// Starts a provider on the port; 0 selects a free one.
    pub(crate) fn start(port: u16) -> anyhow::Result<Self> {
        let listener = StdListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let requests = Arc::<AtomicU64>::default();
        let (hold_sender, hold_receiver) = watch::channel(true);
        let counted = requests.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("provider".to_owned()).spawn(move || {
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).expect("the listener is valid");
                loop {
                    let Ok((stream, _)) = listener.accept().await else { continue };
                    let (requests, is_held) = (counted.clone(), hold_receiver.clone());
                    tokio::spawn(async move {
                        // An error is expected: a killed server closes its connections.
                        drop(serve(stream, &requests, is_held).await);
                    });
                }
            });
        })?;
        Ok(Self { address, requests, is_held: hold_sender })
    }

    /// Returns the base URL for an OpenAI client.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Returns the number of requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    /// Holds responses for the model `held`.
    pub(crate) fn hold(&self) {
        self.is_held.send_replace(true);
    }

    /// Releases held responses.
    pub(crate) fn release(&self) {
        self.is_held.send_replace(false);
    }
}

async fn serve(
    mut stream: TcpStream,
    requests: &AtomicU64,
    mut is_held: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let mut raw = BytesMut::new();
    while let Some(body) = http::request(&mut stream, &mut raw).await? {
        requests.fetch_add(1, Relaxed);
        let mode = match last_string_value(&body, "model").context("the request has no model")? {
            b"burst" => DeliveryMode::Burst,
            b"paced" => DeliveryMode::Paced,
            _ => DeliveryMode::Held,
        };
        let has_result = last_string_value(&body, "role") == Some(b"tool");
        stream.write_all(HEAD.as_bytes()).await?;
        stream_step(&mut stream, mode, &mut is_held).await?;
        let end = end_of_step(has_result);
        stream.write_all(&end).await?;
    }
    Ok(())
}

/// Streams the text deltas of a step.
async fn stream_step(
    stream: &mut TcpStream,
    mode: DeliveryMode,
    is_held: &mut watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let mut next = Instant::now();
    for number in 0..DELTAS_PER_STEP {
        let count = match mode {
            DeliveryMode::Burst if number % DELTAS_PER_WRITE != 0 => continue,
            DeliveryMode::Burst => DELTAS_PER_WRITE,
            DeliveryMode::Paced => {
                sleep_until(next).await;
                next += PACE;
                1
            }
            DeliveryMode::Held => {
                if number == DELTAS_BEFORE_HOLD {
                    is_held.wait_for(|is_held| !is_held).await?;
                }
                1
            }
        };
        let mut events = String::new();
        for number in number..number + count {
            let text = delta_marker::marked_text(number);
            push_chunk(&mut events, &format!(r#"{{"content":"{text}"}}"#), "null");
        }
        stream.write_all(&http_chunk(&events)).await?;
    }
    Ok(())
}

/// Encodes the end of a step: the tool call or the stop, the usage, and the end of the body.
fn end_of_step(has_result: bool) -> Vec<u8> {
    let mut events = String::new();
    if has_result {
        push_chunk(&mut events, "{}", r#""stop""#);
    } else {
        TOOL_CALL.iter().for_each(|delta| push_chunk(&mut events, delta, "null"));
        push_chunk(&mut events, "{}", r#""tool_calls""#);
    }
    events.push_str("data: ");
    events.push_str(USAGE);
    events.push_str("\n\ndata: [DONE]\n\n");
    let mut end = http_chunk(&events);
    end.extend_from_slice(b"0\r\n\r\n");
    end
}

fn push_chunk(events: &mut String, delta: &str, finish_reason: &str) {
    write!(
        events,
        "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\
         \"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish_reason}}}]}}\n\n"
    )
    .expect("writing to a string");
}

/// Encodes the events as one HTTP chunk.
fn http_chunk(events: &str) -> Vec<u8> {
    format!("{:x}\r\n{events}\r\n", events.len()).into_bytes()
}

/// Returns the string after the last `"name":` of a JSON text.
fn last_string_value<'a>(json: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let quoted = format!("\"{name}\"");
    let start = json.windows(quoted.len()).rposition(|part| part == quoted.as_bytes())?;
    let rest = &json[start + quoted.len()..];
    let rest = rest.strip_prefix(b":")?.trim_ascii_start().strip_prefix(b"\"")?;
    rest.split(|byte| *byte == b'"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_string_value_finds_role_and_model() {
        let body =
            br#"{"model": "paced","messages":[{"role":"user"},{"role":"tool","content":"x"}]}"#;
        assert_eq!(last_string_value(body, "role"), Some(&b"tool"[..]));
        assert_eq!(last_string_value(body, "model"), Some(&b"paced"[..]));
        assert_eq!(last_string_value(body, "missing"), None);
    }
}
