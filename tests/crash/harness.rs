//! A server that is killed repeatedly on the same files, and the context shared by its clients.

use crate::{
    collect::Database,
    history::{AcknowledgedCommand, SubscriberLog},
    rng::SeededRng,
    script,
};
use greenroom::rehearsal::{RehearsalServer, Script};
use reqwest::Method;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    sync::watch,
};

/// Timeout of every operation; reaching it means that something is broken.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The administrator's token.
pub(crate) const TOKEN: &str = "the-token-of-the-tests-0123456789";
/// Maximum time to wait until a server reaches its fault point.
const FAULT_WAIT_MAX: Duration = Duration::from_millis(1500);
/// The signal of `kill -9`.
const SIGKILL: i32 = 9;

/// The named fault points, each with the maximum number of times that it is passed before the kill.
const FAULT_POINTS: [(&str, usize); 10] = [
    ("before_append", 40),
    ("after_append", 40),
    ("before_decision", 2),
    ("after_decision", 2),
    ("before_model", 10),
    ("during_model", 40),
    ("before_tool", 6),
    ("during_tool", 6),
    ("after_tool", 6),
    ("backoff", 3),
];

/// The context shared by all clients of a server.
pub(crate) struct ClientContext {
    /// The server's address while it runs.
    address: watch::Receiver<Option<String>>,
    client: reqwest::Client,
    pub(crate) acknowledged: Mutex<Vec<AcknowledgedCommand>>,
    pub(crate) subscriber_logs: Mutex<Vec<SubscriberLog>>,
    /// No new commands are sent; clients only finish open work.
    pub(crate) is_stopping: AtomicBool,
    /// The last `seq` of each session once nothing more happens. A subscriber that has received them
    /// stops.
    pub(crate) heads: watch::Sender<Option<BTreeMap<String, u64>>>,
    numbers: AtomicU64,
}

/// A response of the server.
pub(crate) struct ApiResponse {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl ApiResponse {
    pub(crate) fn is_ok(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

impl ClientContext {
    /// Waits until the server has an address and returns it.
    pub(crate) async fn address(&self) -> String {
        let mut address = self.address.clone();
        let current = address.wait_for(Option::is_some).await.expect("the harness is open");
        current.clone().expect("there is an address")
    }

    /// Sends a request once. `None` means that the outcome is unknown.
    pub(crate) async fn request(
        &self,
        method: Method,
        path: &str,
        body: Value,
    ) -> Option<ApiResponse> {
        let url = format!("{}{path}", self.address().await);
        let mut request = self.client.request(method.clone(), url).bearer_auth(TOKEN);
        if method != Method::GET {
            request = request.json(&body);
        }
        let response = request.send().await.ok()?;
        let status = response.status().as_u16();
        let text = response.text().await.ok()?;
        let body = if text.is_empty() { Value::Null } else { serde_json::from_str(&text).ok()? };
        Some(ApiResponse { status, body })
    }

    /// Repeats an idempotent request until there is a response.
    pub(crate) async fn request_with_retry(
        &self,
        method: Method,
        path: &str,
        body: Value,
    ) -> ApiResponse {
        loop {
            match self.request(method.clone(), path, body.clone()).await {
                Some(response) if response.status != 503 => return response,
                Some(_) | None => retry_pause().await,
            }
        }
    }

    /// Opens an SSE stream at `cursor`.
    pub(crate) async fn open_event_stream(
        &self,
        path: &str,
        cursor: &str,
    ) -> Option<reqwest::Response> {
        let url = format!("{}{path}", self.address().await);
        let request = self.client.get(url).bearer_auth(TOKEN);
        let request = request.header("accept", "text/event-stream").header("last-event-id", cursor);
        request.send().await.ok()
    }

    /// Sends a message; the response's body is the run's stream, which the caller may drop.
    pub(crate) async fn chat(&self, body: &Value) -> Option<reqwest::Response> {
        let url = format!("{}/agent/chat/stream", self.address().await);
        self.client.post(url).bearer_auth(TOKEN).json(body).send().await.ok()
    }

    pub(crate) fn record_acknowledged(&self, acknowledged: AcknowledgedCommand) {
        lock(&self.acknowledged).push(acknowledged);
    }

    /// Returns a number that is unique in this run.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Relaxed) + 1
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.is_stopping.load(Relaxed)
    }
}

/// Waits between two attempts.
pub(crate) async fn retry_pause() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the names of the fault points.
pub(crate) fn fault_points() -> impl Iterator<Item = &'static str> {
    FAULT_POINTS.iter().map(|(point, _)| *point)
}

/// The properties in which servers differ.
#[derive(Clone)]
pub(crate) struct ServerConfig {
    pub(crate) database: Database,
    /// `process` or `fsync`.
    pub(crate) durability: &'static str,
    /// The MCP lifecycle of the market: `initialize` or `discover`.
    pub(crate) lifecycle: &'static str,
}

/// A server with its files, model and clients.
pub(crate) struct CrashHarness {
    pub(crate) clients: Arc<ClientContext>,
    pub(crate) config: ServerConfig,
    folder: TempDir,
    address_sender: watch::Sender<Option<String>>,
    rng: SeededRng,
    server: Option<ServerProcess>,
    /// Number of kills by fault point.
    pub(crate) kills: BTreeMap<&'static str, u32>,
    _model: RehearsalServer,
}

struct ServerProcess {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl CrashHarness {
    pub(crate) fn new(config: ServerConfig, seed: u64) -> Self {
        greenroom::install_crypto();
        let folder = tempfile::tempdir().expect("a temporary folder can be created");
        let script = Script::parse(&script::script()).expect("the script is valid");
        let model =
            RehearsalServer::start(script, ([127, 0, 0, 1], 0).into()).expect("a port is free");
        let market = market_binary();
        let text = script::configuration(folder.path(), &model.url(), &market, config.lifecycle);
        std::fs::write(folder.path().join("greenroom.toml"), text).expect("the file is writable");
        let (address_sender, address) = watch::channel(None);
        let client = reqwest::Client::builder().read_timeout(TEST_TIMEOUT).build();
        let clients = Arc::new(ClientContext {
            address,
            client: client.expect("a client can be built"),
            acknowledged: Mutex::default(),
            subscriber_logs: Mutex::default(),
            is_stopping: AtomicBool::new(false),
            heads: watch::channel(None).0,
            numbers: AtomicU64::new(0),
        });
        let rng = SeededRng::new(seed);
        let kills = BTreeMap::new();
        Self { clients, config, folder, address_sender, rng, server: None, kills, _model: model }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs the server until it is killed at a named point or at a random moment.
    pub(crate) async fn run_until_killed(&mut self) {
        if self.rng.one_in(3) {
            let moment = Duration::from_millis(self.rng.next() % 900);
            assert!(
                self.start(None).await,
                "the server died before it was killed: {}",
                self.log_tail()
            );
            tokio::time::sleep(moment).await;
            return self.kill("at a random moment").await;
        }
        let (point, passes) = *self.rng.pick(&FAULT_POINTS);
        let fault = format!("{point}:{}", self.rng.next_below(passes) + 1);
        if !self.start(Some(&fault)).await {
            return self.record_fault_exit(point).await;
        }
        let server = self.server.as_mut().expect("the server was started");
        match tokio::time::timeout(FAULT_WAIT_MAX, server.child.wait()).await {
            Ok(_) => self.record_fault_exit(point).await,
            Err(_) => self.kill("at a random moment").await,
        }
    }

    /// Starts the server; returns false if it died before it was ready.
    pub(crate) async fn start(&mut self, fault: Option<&str>) -> bool {
        let log_file = std::fs::OpenOptions::new().create(true).append(true).open(self.log_path());
        let database = match &self.config.database {
            Database::File => "greenroom.db",
            Database::Postgres(address) => address,
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_greenroom"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("GREENROOM_") {
                command.env_remove(name);
            }
        }
        let mut child = command
            .current_dir(self.folder())
            .arg("serve")
            .envs([("GREENROOM_LISTEN", "127.0.0.1:0"), ("GREENROOM_TOKEN", TOKEN)])
            .envs([("GREENROOM_DATABASE", database), ("MODEL_KEY", "key-0123456789")])
            .envs([("GREENROOM_LOG", "warn"), ("GREENROOM_DURABILITY", self.config.durability)])
            .envs(fault.map(|fault| ("GREENROOM_FAULT", fault)))
            .stdout(Stdio::piped())
            .stderr(log_file.expect("the log is writable"))
            .kill_on_drop(true)
            .spawn()
            .expect("the program can be started");
        let stdout = child.stdout.take().expect("stdout is piped");
        let server =
            self.server.insert(ServerProcess { child, lines: BufReader::new(stdout).lines() });
        let address = async {
            while let Ok(Some(line)) = server.lines.next_line().await {
                if let Some(address) = line.trim().strip_prefix("API ") {
                    return Some(address.trim().to_owned());
                }
            }
            None
        };
        let address = tokio::time::timeout(TEST_TIMEOUT, address).await;
        let address = address.expect("the server starts or exits");
        self.address_sender.send_replace(address.clone());
        address.is_some()
    }

    async fn kill(&mut self, moment: &'static str) {
        let mut server = self.server.take().expect("the server runs");
        // The server may just have reached its fault point.
        drop(server.child.start_kill());
        let status = server.child.wait().await.expect("the exit status is known");
        self.record_kill(status, moment);
    }

    async fn record_fault_exit(&mut self, point: &'static str) {
        let mut server = self.server.take().expect("the server was started");
        let status = server.child.wait().await.expect("the exit status is known");
        self.record_kill(status, point);
    }

    fn record_kill(&mut self, status: ExitStatus, point: &'static str) {
        self.address_sender.send_replace(None);
        assert_eq!(status.signal(), Some(SIGKILL), "{status}: {}", self.log_tail());
        *self.kills.entry(point).or_default() += 1;
    }

    fn log_path(&self) -> PathBuf {
        self.folder().join("server.log")
    }

    /// Returns the last lines of the server's log.
    pub(crate) fn log_tail(&self) -> String {
        let log = std::fs::read_to_string(self.log_path()).unwrap_or_default();
        let mut lines: Vec<_> = log.lines().rev().take(40).collect();
        lines.reverse();
        lines.join("\n")
    }

    /// Keeps the files after the test and returns their folder.
    pub(crate) fn persist_files(&mut self) -> PathBuf {
        self.folder.disable_cleanup(true);
        self.folder().to_owned()
    }
}

/// Returns the market's binary. Tests don't build it: built alone, it would be compiled with other
/// features, and so would everything after it.
fn market_binary() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_greenroom")).with_file_name("greenroom-market");
    assert!(path.exists(), "{} is missing: run `cargo build --workspace`", path.display());
    path
}
