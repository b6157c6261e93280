//! A minimal HTTP/1.1 implementation for the load and the provider. Both share a core; a full client
//! would leave less load for the measured server.

use anyhow::{Context as _, bail, ensure};
use bytes::{Buf as _, BytesMut};
use std::net::SocketAddr;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

const READ_BYTES: usize = 16 * 1024;
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// A client's connection, kept alive between requests.
pub(crate) struct Connection {
    stream: TcpStream,
    /// Received bytes that are not processed yet.
    raw: BytesMut,
    /// Bytes of the body without chunk framing.
    body: BytesMut,
    framing: Framing,
}

/// The framing of a body.
#[derive(Debug)]
enum Framing {
    /// Number of remaining bytes.
    Length(usize),
    /// Chunked. Number of remaining bytes of the current chunk, including its line end.
    Chunked(usize),
    /// The body is complete.
    Ended,
}

impl Connection {
    /// Connects to `address`.
    pub(crate) async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (raw, body) = (BytesMut::new(), BytesMut::new());
        Ok(Self { stream, raw, body, framing: Framing::Ended })
    }

    /// Sends a request and reads the head of the response. Fails if the status is not 200.
    pub(crate) async fn send_request(
        &mut self,
        method: &str,
        path: &str,
        token: &str,
        body: &str,
    ) -> anyhow::Result<()> {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\naccept: text/event-stream, */*\r\n\
             content-length: {length}\r\n\r\n{body}"
        );
        self.stream.write_all(request.as_bytes()).await?;
        let end = loop {
            if let Some(end) = head_end(&self.raw) {
                break end;
            }
            ensure!(self.raw.len() < HEAD_BYTES_MAX, "the response head exceeds its limit");
            self.fill().await?;
        };
        let head = String::from_utf8_lossy(&self.raw.split_to(end)).to_ascii_lowercase();
        self.body.clear();
        self.framing = match header(&head, "content-length") {
            Some(length) => Framing::Length(length.parse()?),
            None => Framing::Chunked(0),
        };
        if !head.starts_with("http/1.1 200") {
            let mut body = String::new();
            while let Some(line) = self.line().await? {
                body.push_str(&String::from_utf8_lossy(&line));
            }
            bail!("{}: {body}", head.lines().next().unwrap_or_default());
        }
        Ok(())
    }

    /// Returns the next line of the body without its end; `None` at the end of the body.
    pub(crate) async fn line(&mut self) -> anyhow::Result<Option<BytesMut>> {
        loop {
            if let Some(end) = self.body.iter().position(|byte| *byte == b'\n') {
                let line = self.body.split_to(end);
                self.body.advance(1);
                return Ok(Some(line));
            }
            if !self.unwrap_chunks()? {
                return Ok((!self.body.is_empty()).then(|| self.body.split()));
            }
            if !self.body.contains(&b'\n') && !matches!(self.framing, Framing::Ended) {
                self.fill().await?;
            }
        }
    }

    /// Moves received bytes of the body out of their framing. Returns false at the end of the body.
    fn unwrap_chunks(&mut self) -> anyhow::Result<bool> {
        loop {
            match &mut self.framing {
                Framing::Ended => return Ok(false),
                Framing::Length(remaining) => {
                    let count = (*remaining).min(self.raw.len());
                    self.body.extend_from_slice(&self.raw[..count]);
                    self.raw.advance(count);
                    *remaining -= count;
                    if *remaining == 0 {
                        self.framing = Framing::Ended;
                    }
                    return Ok(true);
                }
                Framing::Chunked(0) => {
                    let Some(end) = self.raw.windows(2).position(|pair| pair == b"\r\n") else {
                        return Ok(true);
                    };
                    let size = std::str::from_utf8(&self.raw[..end])?;
                    let size = usize::from_str_radix(size, 16).context("invalid chunk size")?;
                    if size == 0 {
                        if self.raw.len() < end + 4 {
                            return Ok(true);
                        }
                        self.raw.advance(end + 4);
                        self.framing = Framing::Ended;
                        return Ok(true);
                    }
                    self.raw.advance(end + 2);
                    self.framing = Framing::Chunked(size + 2);
                }
                Framing::Chunked(remaining) => {
                    if self.raw.is_empty() {
                        return Ok(true);
                    }
                    // The last two bytes of a chunk are its line end.
                    let count = (*remaining).min(self.raw.len());
                    let text = count.min(remaining.saturating_sub(2));
                    self.body.extend_from_slice(&self.raw[..text]);
                    self.raw.advance(count);
                    *remaining -= count;
                }
            }
        }
    }

    async fn fill(&mut self) -> anyhow::Result<()> {
        self.raw.reserve(READ_BYTES);
        let read = self.stream.read_buf(&mut self.raw).await?;
        ensure!(read > 0, "the server closed the connection");
        Ok(())
    }
}

/// Returns the index of the first byte after the head.
pub(crate) fn head_end(raw: &[u8]) -> Option<usize> {
    raw.windows(4).position(|bytes| bytes == b"\r\n\r\n").map(|index| index + 4)
}

/// Returns the value of a header. `head` must be in lower case.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
}

/// Reads a request and returns its body; `None` if the client closed the connection.
pub(crate) async fn request(
    stream: &mut TcpStream,
    raw: &mut BytesMut,
) -> anyhow::Result<Option<BytesMut>> {
    loop {
        if let Some(start) = head_end(raw) {
            let head = String::from_utf8_lossy(&raw[..start]).to_ascii_lowercase();
            let length: usize =
                header(&head, "content-length").context("no content-length header")?.parse()?;
            while raw.len() < start + length {
                ensure!(stream.read_buf(raw).await? > 0, "incomplete request");
            }
            raw.advance(start);
            return Ok(Some(raw.split_to(length)));
        }
        ensure!(raw.len() < HEAD_BYTES_MAX, "the request head exceeds its limit");
        if stream.read_buf(raw).await? == 0 {
            return Ok(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn body_is_parsed_at_any_segmentation() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answers = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                       4\r\none\n\r\n8\r\ntwo\nthre\r\n2\r\ne\n\r\n0\r\n\r\n\
                       HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfour\n";
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            for byte in answers.bytes() {
                stream.write_all(&[byte]).await.unwrap();
                tokio::task::yield_now().await;
            }
        });
        let mut connection = Connection::open(address).await.unwrap();
        let mut lines = Vec::new();
        for _ in 0..2 {
            connection.send_request("GET", "/", "", "").await.unwrap();
            while let Some(line) = connection.line().await.unwrap() {
                lines.push(String::from_utf8(line.to_vec()).unwrap());
            }
        }
        assert_eq!(lines, ["one", "two", "three", "four"]);
    }
}
