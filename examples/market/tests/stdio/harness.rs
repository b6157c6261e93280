//! Runs the binary and exchanges hand-written lines of JSON-RPC with it, so that the tests cover the
//! wire format and not a client library.

use std::{
    collections::VecDeque,
    io::{BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Maximum time for a response. Reached only if the server hangs.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// The protocol lifecycle of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ProtocolLifecycle {
    /// `initialize`, then bare requests.
    Handshake,
    /// No handshake; every request carries its version and capabilities.
    Stateless,
}

pub(crate) const LIFECYCLES: [ProtocolLifecycle; 2] =
    [ProtocolLifecycle::Handshake, ProtocolLifecycle::Stateless];

/// A temporary folder for the files of a test.
pub(crate) struct TestDir {
    folder: TempDir,
}

impl TestDir {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("market.jsonl")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.folder.path().join("calls.jsonl")
    }

    pub(crate) fn records(&self) -> Vec<Value> {
        read_json_lines(&self.file())
    }

    pub(crate) fn open(&self, lifecycle: ProtocolLifecycle) -> MarketProcess {
        self.open_with(lifecycle, &[])
    }

    pub(crate) fn open_with(
        &self,
        lifecycle: ProtocolLifecycle,
        environment: &[(&str, &str)],
    ) -> MarketProcess {
        let mut market = self.spawn(environment);
        market.lifecycle = lifecycle;
        if lifecycle == ProtocolLifecycle::Handshake {
            market.initialize("2025-11-25");
        }
        market
    }

    /// Starts the binary without sending a message.
    pub(crate) fn spawn(&self, environment: &[(&str, &str)]) -> MarketProcess {
        let mut child = Command::new(env!("CARGO_BIN_EXE_greenroom-market"))
            .env_clear()
            .env("MARKET_FILE", self.file())
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = BufReader::new(child.stderr.take().unwrap());
        MarketProcess {
            stdin: child.stdin.take(),
            stdout: lines(stdout),
            stderr: lines(stderr),
            child,
            lifecycle: ProtocolLifecycle::Handshake,
            last_id: 0,
            notifications: VecDeque::new(),
            responses: VecDeque::new(),
        }
    }
}

pub(crate) fn read_json_lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn lines(mut reader: impl std::io::BufRead + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        loop {
            let mut line = Vec::new();
            match reader.read_until(b'\n', &mut line) {
                Ok(read) if read > 0 && sender.send(line).is_ok() => {}
                Ok(_) | Err(_) => return,
            }
        }
    });
    receiver
}

/// A running server and its pending messages.
pub(crate) struct MarketProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Receiver<Vec<u8>>,
    stderr: Receiver<Vec<u8>>,
    lifecycle: ProtocolLifecycle,
    last_id: u64,
    notifications: VecDeque<Value>,
    responses: VecDeque<Value>,
}

impl MarketProcess {
    pub(crate) fn initialize(&mut self, version: &str) -> Value {
        let response = self.request(
            "initialize",
            json!({
                "protocolVersion": version,
                "capabilities": {},
                "clientInfo": { "name": "test", "version": "1" },
            }),
        );
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        response
    }

    pub(crate) fn send(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(format!("{message}\n").as_bytes()).unwrap();
        stdin.flush().unwrap();
    }

    /// Sends a request without waiting and returns its id.
    pub(crate) fn start(&mut self, method: &str, mut params: Value) -> u64 {
        self.last_id += 1;
        if self.lifecycle == ProtocolLifecycle::Stateless {
            let meta = params["_meta"].as_object().cloned().unwrap_or_default();
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
            });
            params["_meta"].as_object_mut().unwrap().extend(meta);
        }
        let id = self.last_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// Returns the next line of standard output; `None` if the server has exited.
    pub(crate) fn line(&mut self) -> Option<Vec<u8>> {
        match self.stdout.recv_timeout(RESPONSE_TIMEOUT) {
            Ok(line) => Some(line),
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("no line in {RESPONSE_TIMEOUT:?}"),
        }
    }

    fn message(&mut self) -> Option<Value> {
        self.line().map(|line| serde_json::from_slice(&line).unwrap())
    }

    /// Returns the response to a request; other messages are kept.
    pub(crate) fn response_to(&mut self, id: u64) -> Option<Value> {
        if let Some(index) = self.responses.iter().position(|response| response["id"] == id) {
            return self.responses.remove(index);
        }
        loop {
            let message = self.message()?;
            if message["id"] == id {
                return Some(message);
            }
            if message.get("method").is_some() {
                self.notifications.push_back(message);
            } else {
                self.responses.push_back(message);
            }
        }
    }

    /// Returns the next notification.
    pub(crate) fn notification(&mut self) -> Value {
        while self.notifications.is_empty() {
            let message = self.message().expect("the server is running");
            if message.get("method").is_some() {
                return message;
            }
            self.responses.push_back(message);
        }
        self.notifications.pop_front().unwrap()
    }

    pub(crate) fn notifications_so_far(&mut self) -> Vec<Value> {
        self.notifications.drain(..).collect()
    }

    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.start(method, params);
        self.response_to(id).expect("the server responds")
    }

    pub(crate) fn start_call(&mut self, tool: &str, arguments: Value, meta: Value) -> u64 {
        let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
        self.start("tools/call", params)
    }

    /// Returns the complete tool result.
    pub(crate) fn call_with(&mut self, tool: &str, arguments: Value, meta: Value) -> Value {
        let id = self.start_call(tool, arguments, meta);
        let response = self.response_to(id).expect("the server responds");
        assert!(response.get("error").is_none(), "{tool}: {response}");
        response["result"].clone()
    }

    /// Returns the structured content of a call that must succeed.
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.call_keyed(tool, arguments, None)
    }

    pub(crate) fn call_keyed(&mut self, tool: &str, arguments: Value, key: Option<&str>) -> Value {
        let meta = key.map_or_else(|| json!({}), |k| json!({ "greenroom/idempotency_key": k }));
        let result = self.call_with(tool, arguments, meta);
        assert_eq!(result["isError"], false, "{tool}: {result}");
        let text = result["content"][0]["text"].as_str().unwrap();
        let parsed: Value = serde_json::from_str(text).unwrap();
        assert_eq!(parsed, result["structuredContent"], "text and structured content of {tool}");
        parsed
    }

    /// Returns the `error` object and the text of a call that must fail.
    pub(crate) fn call_expecting_error(&mut self, tool: &str, arguments: Value) -> (Value, String) {
        let result = self.call_with(tool, arguments, json!({}));
        assert_eq!(result["isError"], true, "{tool}: {result}");
        let text = result["content"][0]["text"].as_str().unwrap().to_owned();
        (result["structuredContent"]["error"].clone(), text)
    }

    /// Closes standard input, waits, and returns the exit status and standard error.
    pub(crate) fn close(mut self) -> (ExitStatus, String) {
        drop(self.stdin.take());
        let errors: Vec<u8> = self.stderr.iter().flatten().collect();
        (self.child.wait().unwrap(), String::from_utf8_lossy(&errors).into_owned())
    }

    /// Waits for the server to exit by itself.
    pub(crate) fn wait_for_exit(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    pub(crate) fn stderr_line(&mut self) -> Vec<u8> {
        self.stderr.recv_timeout(RESPONSE_TIMEOUT).unwrap()
    }

    /// Kills the server, which simulates a crash.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for MarketProcess {
    fn drop(&mut self) {
        // A failed test must not leave a server behind. The server may have exited already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
