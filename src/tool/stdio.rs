//! MCP over the standard input and output of a child process: one message per line. Never stores more
//! of a line than the size limit (T4). Used by `connector`.

use greenroom_core::json::from_value;
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

/// Size of the read buffer in bytes.
const READ_BYTES: usize = 64 * 1024;
/// Maximum number of received, unprocessed messages. Small, because each may be as long as the limit.
const INCOMING_MESSAGES_MAX: usize = 2;

/// The transport to a child process.
pub(super) struct StdioTransport {
    writer: Arc<Mutex<Option<ChildStdin>>>,
    incoming: mpsc::Receiver<RxJsonRpcMessage<RoleClient>>,
    /// Cancelled when all output of the child has been delivered and no more will arrive.
    ended: CancellationToken,
    process: ChildProcess,
}

/// The error of a message that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("can't write to the process: {source}")]
pub(super) struct WriteError {
    /// True if a part of the message may have been written.
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
        let output_log = OutputLog::new(server.to_owned());
        tokio::spawn(read(LineSplitter::new(bytes_max), stdout, sender, output_log));
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
            let not_written = |source| WriteError { is_partial: false, source };
            let mut line = serde_json::to_vec(&item).map_err(|error| not_written(error.into()))?;
            line.push(b'\n');
            let mut writer = writer.lock().await;
            match writer.as_mut() {
                Some(stdin) => write(stdin, &line).await,
                None => Err(not_written(io::ErrorKind::BrokenPipe.into())),
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
        // A blocked write may hold the lock; standard input then remains open until the signals.
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
            Ok(written_bytes) => written += written_bytes,
            Err(source) => return Err(WriteError { is_partial: written > 0, source }),
        }
    }
    stdin.flush().await.map_err(|source| WriteError { is_partial: true, source })
}

/// Reads messages until the output ends or the receiver is dropped.
async fn read(
    mut lines: LineSplitter,
    mut stdout: impl AsyncRead + Unpin,
    sender: mpsc::Sender<RxJsonRpcMessage<RoleClient>>,
    mut output_log: OutputLog,
) {
    let mut buffer = vec![0; READ_BYTES];
    while let Ok(read @ 1..) = stdout.read(&mut buffer).await {
        let mut rest = &buffer[..read];
        while let Some(line) = lines.next_line(&mut rest) {
            let Some(message) = parse(line, &mut output_log) else { continue };
            if sender.send(message).await.is_err() {
                return;
            }
        }
    }
}

fn parse(line: StdioLine, output_log: &mut OutputLog) -> Option<RxJsonRpcMessage<RoleClient>> {
    match line {
        StdioLine::Whole(bytes) => {
            if let Ok(message) = serde_json::from_slice(&bytes) {
                return Some(message);
            }
            let repaired =
                serde_json::from_str(&repair_json(&String::from_utf8_lossy(&bytes))).ok();
            // Nested too deep for the parser: a truncated response still ends its request.
            let message =
                repaired.or_else(|| parse_truncated(OversizedMessage::new(bytes.clone())));
            if message.is_none() && !bytes.trim_ascii().is_empty() {
                output_log.log_line("stdout", &bytes);
            }
            message
        }
        StdioLine::Oversized(oversized) => {
            let bytes = oversized.bytes();
            let message = parse_truncated(oversized);
            let is_repaired = message.is_some();
            tracing::warn!(
                bytes,
                kept = is_repaired,
                "a message of a tool server exceeds the size limit"
            );
            message
        }
    }
}

/// Parses the message as a truncated response.
fn parse_truncated(message: OversizedMessage) -> Option<RxJsonRpcMessage<RoleClient>> {
    from_value(&message.into_truncated_response()?).ok()
}

/// A line without its line break.
enum StdioLine {
    Whole(Vec<u8>),
    Oversized(OversizedMessage),
}

/// Splits bytes into lines and stores at most `bytes_max` bytes of a line.
struct LineSplitter {
    bytes_max: usize,
    partial: Vec<u8>,
    oversized: Option<OversizedMessage>,
}

impl LineSplitter {
    fn new(bytes_max: usize) -> Self {
        Self { bytes_max, partial: Vec::new(), oversized: None }
    }

    /// Consumes `rest` up to the end of a line and returns the line; `None` if no line ends in `rest`.
    fn next_line(&mut self, rest: &mut &[u8]) -> Option<StdioLine> {
        let end = rest.iter().position(|&byte| byte == b'\n');
        let (chunk, after) = rest.split_at(end.unwrap_or(rest.len()));
        *rest = after.get(1..).unwrap_or_default();
        if let Some(oversized) = &mut self.oversized {
            oversized.skip(chunk);
        } else if self.partial.len() + chunk.len() <= self.bytes_max {
            self.partial.extend_from_slice(chunk);
        } else {
            let (stored_part, skipped_part) = chunk.split_at(self.bytes_max - self.partial.len());
            self.partial.extend_from_slice(stored_part);
            let mut oversized = OversizedMessage::new(std::mem::take(&mut self.partial));
            oversized.skip(skipped_part);
            self.oversized = Some(oversized);
        }
        end?;
        let line = match self.oversized.take() {
            Some(oversized) => StdioLine::Oversized(oversized),
            None => StdioLine::Whole(std::mem::take(&mut self.partial)),
        };
        Some(line)
    }
}

/// Parses the messages of an output that was read in `chunks`.
#[cfg(test)]
pub(super) fn parse_chunks(
    chunks: &[Vec<u8>],
    bytes_max: usize,
) -> Vec<RxJsonRpcMessage<RoleClient>> {
    let (mut lines, mut output_log) =
        (LineSplitter::new(bytes_max), OutputLog::new("server".to_owned()));
    let mut messages = Vec::new();
    for mut chunk in chunks.iter().map(Vec::as_slice) {
        while let Some(line) = lines.next_line(&mut chunk) {
            messages.extend(parse(line, &mut output_log));
        }
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits `text`, read in chunks of `size` bytes. An oversized line is returned as its length.
    fn lines(text: &str, size: usize, bytes_max: usize) -> Vec<Result<String, usize>> {
        let mut splitter = LineSplitter::new(bytes_max);
        let mut lines = Vec::new();
        for mut chunk in text.as_bytes().chunks(size) {
            while let Some(line) = splitter.next_line(&mut chunk) {
                lines.push(match line {
                    StdioLine::Whole(bytes) => Ok(String::from_utf8(bytes).unwrap()),
                    StdioLine::Oversized(oversized) => Err(oversized.bytes()),
                });
            }
        }
        lines
    }

    #[test]
    fn x4_response_nested_too_deep_is_read_partially() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":7,"result":{{"content":[{{"type":"text","text":"done"}}],"structuredContent":{{"a":{deep}}}}}}}"#
        );
        let mut output_log = OutputLog::new("deep".to_owned());
        let message =
            parse(StdioLine::Whole(line.into_bytes()), &mut output_log).expect("a response");
        let message = serde_json::to_value(&message).unwrap();
        let id_and_text = (&message["id"], &message["result"]["content"][0]["text"]);
        assert_eq!(id_and_text, (&7.into(), &"done".into()), "{message}");
        // Other text is only logged.
        for line in ["[[[", "{\"id\": 1", "starting up"] {
            assert!(parse(StdioLine::Whole(line.into()), &mut output_log).is_none(), "{line}");
        }
    }

    #[test]
    fn lines_do_not_depend_on_chunk_size() {
        let line = |text: &str| Ok(text.to_owned());
        for size in 1..12 {
            let lines = lines("ab\n\nabcdef\nabcde\nx", size, 5);
            assert_eq!(lines, [line("ab"), line(""), Err(6), line("abcde")], "{size}");
        }
    }
}
