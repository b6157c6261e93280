//! MCP over a child's standard input and output: a message a line, and no line held that is longer
//! than the limit (T4). Used by `mcp`.

use rmcp::{
    RoleClient,
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use std::{io, sync::Arc};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    process::{ChildStdin, ChildStdout},
    sync::{Mutex, mpsc},
};
use tokio_util::sync::CancellationToken;

use super::{
    child_process::{ChildProcess, OutputLog},
    json_repair::repair_json,
    oversized_message::OversizedMessage,
};

/// Bytes read at once.
const READ_BYTES: usize = 64 * 1024;
/// Messages read and not yet looked at. Few, since each may be as long as the limit.
const INCOMING_MESSAGES_MAX: usize = 2;

/// The conversation with a child.
pub(super) struct StdioTransport {
    writer: Arc<Mutex<Option<ChildStdin>>>,
    incoming: mpsc::Receiver<RxJsonRpcMessage<RoleClient>>,
    /// Fires when everything the child said has been handed over and no more will come.
    ended: CancellationToken,
    process: ChildProcess,
}

/// A message could not be written.
#[derive(Debug, thiserror::Error)]
#[error("can't write to the process: {source}")]
pub(super) struct WriteError {
    /// Whether a part of it was.
    pub(super) is_partial: bool,
    source: io::Error,
}

impl StdioTransport {
    pub(super) fn new(
        server: &str,
        process: ChildProcess,
        stdin: ChildStdin,
        stdout: ChildStdout,
        bytes_max: usize,
        ended: CancellationToken,
    ) -> Self {
        let (sender, incoming) = mpsc::channel(INCOMING_MESSAGES_MAX);
        let noise = OutputLog::new(server.to_owned());
        tokio::spawn(read(LineSplitter::new(bytes_max), stdout, sender, noise));
        Self { writer: Arc::new(Mutex::new(Some(stdin))), incoming, ended, process }
    }
}

impl Transport<RoleClient> for StdioTransport {
    type Error = WriteError;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let writer = self.writer.clone();
        async move {
            let not_begun = |source| WriteError { is_partial: false, source };
            let mut line = serde_json::to_vec(&item).map_err(|error| not_begun(error.into()))?;
            line.push(b'\n');
            let mut writer = writer.lock().await;
            match writer.as_mut() {
                Some(stdin) => write(stdin, &line).await,
                None => Err(not_begun(io::ErrorKind::BrokenPipe.into())),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let message = self.incoming.recv().await;
        if message.is_none() {
            self.ended.cancel();
        }
        message
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        // A write may be stuck in there, in which case the signals come sooner.
        if let Ok(mut writer) = self.writer.try_lock() {
            *writer = None;
        }
        self.process.stop();
        Ok(())
    }
}

async fn write(stdin: &mut (impl AsyncWrite + Unpin), line: &[u8]) -> Result<(), WriteError> {
    let mut written = 0;
    while written < line.len() {
        match stdin.write(&line[written..]).await {
            Ok(0) => {
                let source = io::ErrorKind::WriteZero.into();
                return Err(WriteError { is_partial: written > 0, source });
            }
            Ok(more) => written += more,
            Err(source) => return Err(WriteError { is_partial: written > 0, source }),
        }
    }
    stdin.flush().await.map_err(|source| WriteError { is_partial: true, source })
}

/// Reads to the end, or until nobody listens any more.
async fn read(
    mut lines: LineSplitter,
    mut stdout: impl AsyncRead + Unpin,
    sender: mpsc::Sender<RxJsonRpcMessage<RoleClient>>,
    mut noise: OutputLog,
) {
    let mut buffer = vec![0; READ_BYTES];
    while let Ok(read @ 1..) = stdout.read(&mut buffer).await {
        let mut rest = &buffer[..read];
        while let Some(line) = lines.next_line(&mut rest) {
            let Some(message) = parse(line, &mut noise) else { continue };
            if sender.send(message).await.is_err() {
                return;
            }
        }
    }
}

fn parse(line: StdioLine, noise: &mut OutputLog) -> Option<RxJsonRpcMessage<RoleClient>> {
    match line {
        StdioLine::Whole(bytes) => {
            if let Ok(message) = serde_json::from_slice(&bytes) {
                return Some(message);
            }
            let mended = serde_json::from_str(&repair_json(&String::from_utf8_lossy(&bytes))).ok();
            // Nested too deep for the parser: whoever waits for it is not left to wait.
            let message = mended.or_else(|| parse_truncated(OversizedMessage::new(bytes.clone())));
            if message.is_none() && !bytes.trim_ascii().is_empty() {
                noise.log_line("stdout", &bytes);
            }
            message
        }
        StdioLine::Oversized(oversize) => {
            let bytes = oversize.bytes();
            let message = parse_truncated(oversize);
            let kept = message.is_some();
            tracing::warn!(bytes, kept, "a tool server's message was too long to be read whole");
            message
        }
    }
}

/// The answer that the message is, cut to what can be read of it.
fn parse_truncated(message: OversizedMessage) -> Option<RxJsonRpcMessage<RoleClient>> {
    serde_json::from_value(message.into_truncated_response()?).ok()
}

/// A line, without its end.
enum StdioLine {
    Whole(Vec<u8>),
    Oversized(OversizedMessage),
}

/// Splits bytes into lines and holds at most so many of one.
struct LineSplitter {
    bytes_max: usize,
    partial: Vec<u8>,
    oversize: Option<OversizedMessage>,
}

impl LineSplitter {
    fn new(bytes_max: usize) -> Self {
        Self { bytes_max, partial: Vec::new(), oversize: None }
    }

    /// Takes bytes from `rest` up to the end of a line; nothing if they end before.
    fn next_line(&mut self, rest: &mut &[u8]) -> Option<StdioLine> {
        let end = rest.iter().position(|&byte| byte == b'\n');
        let (now, after) = rest.split_at(end.unwrap_or(rest.len()));
        *rest = after.get(1..).unwrap_or_default();
        if let Some(oversize) = &mut self.oversize {
            oversize.skip(now);
        } else if self.partial.len() + now.len() <= self.bytes_max {
            self.partial.extend_from_slice(now);
        } else {
            let (kept, dropped) = now.split_at(self.bytes_max - self.partial.len());
            self.partial.extend_from_slice(kept);
            let mut oversize = OversizedMessage::new(std::mem::take(&mut self.partial));
            oversize.skip(dropped);
            self.oversize = Some(oversize);
        }
        end?;
        let line = match self.oversize.take() {
            Some(oversize) => StdioLine::Oversized(oversize),
            None => StdioLine::Whole(std::mem::take(&mut self.partial)),
        };
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of `text` read in pieces of `size`: their text, or the length of too long ones.
    fn lines(text: &str, size: usize, bytes_max: usize) -> Vec<Result<String, usize>> {
        let mut lines = LineSplitter::new(bytes_max);
        let mut found = Vec::new();
        for mut piece in text.as_bytes().chunks(size) {
            while let Some(line) = lines.next_line(&mut piece) {
                found.push(match line {
                    StdioLine::Whole(bytes) => Ok(String::from_utf8(bytes).unwrap()),
                    StdioLine::Oversized(oversize) => Err(oversize.bytes()),
                });
            }
        }
        found
    }

    #[test]
    fn x4_an_answer_that_is_nested_too_deep_is_read_as_far_as_it_can_be() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":7,"result":{{"content":[{{"type":"text","text":"done"}}],"structuredContent":{{"a":{deep}}}}}}}"#
        );
        let mut noise = OutputLog::new("deep".to_owned());
        let message =
            parse(StdioLine::Whole(line.into_bytes()), &mut noise).expect("it is an answer");
        let message = serde_json::to_value(&message).unwrap();
        let found = (&message["id"], &message["result"]["content"][0]["text"]);
        assert_eq!(found, (&7.into(), &"done".into()), "{message}");
        // What is no answer is noise.
        for line in ["[[[", "{\"id\": 1", "starting up"] {
            assert!(parse(StdioLine::Whole(line.into()), &mut noise).is_none(), "{line}");
        }
    }

    #[test]
    fn lines_are_the_same_in_whatever_pieces_they_come() {
        let whole = |text: &str| Ok(text.to_owned());
        for size in 1..12 {
            let found = lines("ab\n\nabcdef\nabcde\nx", size, 5);
            assert_eq!(found, [whole("ab"), whole(""), Err(6), whole("abcde")], "{size}");
        }
    }
}
