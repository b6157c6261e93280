//! The test server: a scripted model server, the market's MCP server and the real `greenroom`
//! binary as a child process that can be killed.
//!
//! The harness starts and stops these processes and sends requests. It checks no behaviour.

use crate::stream::{Socket, Stream};
use greenroom::rehearsal::{ProviderProtocol, RehearsalServer, Script};
use reqwest::{Method, StatusCode, header::HeaderMap};
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

/// Maximum time of any single wait in a test.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The administrator's token.
pub(crate) const TOKEN: &str = "the-token-of-the-tests-0123456789";
/// The API key of the model provider, which must never be shown.
pub(crate) const MODEL_KEY: &str = "rehearsal-key-0123456789";
/// Time between two polls of a state that no event reports.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Builds a [`TestServer`]: a configuration with changes, and the script of its model.
pub(crate) struct TestServerBuilder {
    wire: ProviderProtocol,
    script: String,
    top_level_config: String,
    configuration: String,
    agent: String,
    model: String,
    market_env: Vec<(String, String)>,
    server_env: Vec<(String, String)>,
    catalog_path: String,
    database: String,
}

impl TestServerBuilder {
    /// Returns a builder of a server with the script of the market example, without its delays.
    pub(crate) fn tour(wire: ProviderProtocol) -> Self {
        let path = repository_root().join("examples/rehearsal/market.toml");
        let script = std::fs::read_to_string(path).expect("the script of the tour is readable");
        let slow = "delay_ms = 120\nchunk = { text = 12, delay_ms = 12 }";
        assert!(script.contains(slow), "the delays of the tour's script have changed");
        Self::with_script(wire, &script.replace(slow, "").replace("delay_ms = 70", "delay_ms = 5"))
    }

    /// Returns a builder of a server with the given script.
    pub(crate) fn with_script(wire: ProviderProtocol, script: &str) -> Self {
        Self {
            wire,
            script: script.to_owned(),
            top_level_config: String::new(),
            configuration: String::new(),
            agent: String::new(),
            model: String::new(),
            market_env: Vec::new(),
            server_env: Vec::new(),
            catalog_path: "examples/market/catalog.toml".to_owned(),
            database: "greenroom.db".to_owned(),
        }
    }

    /// Sets the database; the default is a file in the server's folder.
    pub(crate) fn with_database(mut self, database: &str) -> Self {
        database.clone_into(&mut self.database);
        self
    }

    /// Appends tables to the configuration.
    pub(crate) fn with_config(mut self, configuration: &str) -> Self {
        self.configuration.push_str(configuration);
        self.configuration.push('\n');
        self
    }

    /// Adds a key to the top level of the configuration.
    pub(crate) fn with_top_level_config(mut self, line: &str) -> Self {
        self.top_level_config.push_str(line);
        self
    }

    /// Adds keys to the default agent.
    pub(crate) fn with_agent_config(mut self, keys: &str) -> Self {
        self.agent.push_str(keys);
        self.agent.push('\n');
        self
    }

    /// Adds keys to the scripted model.
    pub(crate) fn with_model_config(mut self, keys: &str) -> Self {
        self.model.push_str(keys);
        self.model.push('\n');
        self
    }

    /// Replaces the market's catalog by the given tables.
    pub(crate) fn with_catalog(mut self, tools: &str) -> Self {
        self.catalog_path = String::new();
        self.with_config(tools)
    }

    /// Sets an environment variable of the market's MCP server.
    pub(crate) fn with_market_env(mut self, name: &str, value: &str) -> Self {
        self.market_env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets an environment variable of the server.
    pub(crate) fn with_server_env(mut self, name: &str, value: &str) -> Self {
        self.server_env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts the model server and Greenroom; Greenroom starts the market.
    pub(crate) async fn start(self) -> TestServer {
        // The test's HTTP clients need it too; another test may already have installed it.
        greenroom::install_crypto();
        let folder = tempfile::tempdir().expect("a temporary folder can be created");
        let script = Script::parse(&self.script).expect("the script is valid");
        let rehearsal = RehearsalServer::start(script, ([127, 0, 0, 1], 0).into());
        let rehearsal = rehearsal.expect("there is a free port");
        self.write_configuration(folder.path(), &rehearsal.url());
        let client = reqwest::Client::builder().timeout(TEST_TIMEOUT).build();
        let client = client.expect("a client can be built");
        let database = self.database;
        let env = self.server_env;
        let server = ServerProcess::start(folder.path(), "127.0.0.1:0", &database, &env).await;
        TestServer { server: Some(server), rehearsal, client, folder, database, env }
    }

    fn write_configuration(&self, folder: &Path, url: &str) {
        let (wire, base_url) = match self.wire {
            ProviderProtocol::Anthropic => ("anthropic", url.to_owned()),
            ProviderProtocol::OpenAi => ("openai", format!("{url}/v1")),
        };
        let quoted = |path: PathBuf| json!(path.display().to_string());
        let own_env: String =
            self.market_env.iter().map(|(key, value)| format!(", {key} = {value:?}")).collect();
        let include = match self.catalog_path.as_str() {
            "" => String::new(),
            catalog => format!("include = [{}]", quoted(repository_root().join(catalog))),
        };
        let text = format!(
            r#"
{include}
{top}
[models.scripted]
wire = "{wire}"
model = "rehearsal"
base_url = "{base_url}"
api_key_env = "MODEL_KEY"
{model}
[agents.default]
model = "scripted"
approvals = {{ deadline = "10m" }}
{agent}
[mcpServers.market]
command = {command}
env = {{ MARKET_FILE = {file}, MARKET_LOG = {log}{own_env} }}
{more}"#,
            command = quoted(market_binary()),
            file = quoted(folder.join("market.jsonl")),
            log = quoted(folder.join("calls.jsonl")),
            top = self.top_level_config,
            agent = self.agent,
            model = self.model,
            more = self.config_with_rate_limit(),
        );
        std::fs::write(folder.join("greenroom.toml"), text).expect("the file is writable");
    }

    /// Returns the configuration, with a request limit that no test reaches unless the test sets one:
    /// tests poll more often than users send requests.
    fn config_with_rate_limit(&self) -> String {
        const HIGH_LIMIT: &str = "[limits]\nrequests_per_second = 100000\n";
        if self.configuration.contains("requests_per_second") {
            self.configuration.clone()
        } else if self.configuration.contains("[limits]\n") {
            self.configuration.replacen("[limits]\n", HIGH_LIMIT, 1)
        } else {
            format!("{}{HIGH_LIMIT}", self.configuration)
        }
    }
}

fn repository_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the path of the market's binary. Tests don't build it: built alone, it would be compiled
/// with other features, and so would everything built after it.
pub(crate) fn market_binary() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_greenroom")).with_file_name("greenroom-market");
    assert!(path.exists(), "{} is missing: run `cargo build --workspace`", path.display());
    path
}

/// Builds a command for the `greenroom` binary, without environment variables that change its
/// behaviour.
fn greenroom_command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_greenroom"));
    command.current_dir(folder).kill_on_drop(true);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let prefixes = ["GREENROOM_", "ANTHROPIC_", "OPENAI_", "MARKET_"];
        if prefixes.iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command
}

/// Runs the `greenroom` binary in `folder` until it exits, and returns its output.
pub(crate) async fn run(folder: &Path, args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = greenroom_command(folder);
    command.args(args).env("MODEL_KEY", MODEL_KEY);
    let output = command.envs(env.iter().copied()).output();
    let output = tokio::time::timeout(TEST_TIMEOUT, output).await.expect("the command exits");
    output.expect("the binary can be started")
}

/// A running server process. Dropping it kills the process.
struct ServerProcess {
    child: Child,
    address: String,
    log: PathBuf,
}

impl ServerProcess {
    async fn start(folder: &Path, listen: &str, database: &str, env: &[(String, String)]) -> Self {
        let log = folder.join("server.log");
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&log);
        let mut child = greenroom_command(folder)
            .arg("serve")
            .envs([("GREENROOM_LISTEN", listen), ("GREENROOM_TOKEN", TOKEN)])
            .envs([("GREENROOM_DATABASE", database), ("MODEL_KEY", MODEL_KEY)])
            .envs(env.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::piped())
            .stderr(file.expect("the log is writable"))
            .spawn()
            .expect("the binary can be started");
        let stdout = child.stdout.take().expect("stdout is piped");
        let mut lines = BufReader::new(stdout).lines();
        let address = async {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(address) = line.trim().strip_prefix("API ") {
                    return Some(address.trim().to_owned());
                }
            }
            None
        };
        let address = tokio::time::timeout(TEST_TIMEOUT, address).await;
        let Ok(Some(address)) = address else {
            let log_text = std::fs::read_to_string(&log).unwrap_or_default();
            panic!("the server does not start: {log_text}");
        };
        // The server keeps writing to stdout, so the pipe must be drained.
        actix_web::rt::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { child, address, log }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log_text = std::fs::read_to_string(&self.log).unwrap_or_default();
            eprintln!("---- server log ----\n{log_text}--------");
        }
    }
}

/// The processes, the HTTP client and the files of one test.
pub(crate) struct TestServer {
    server: Option<ServerProcess>,
    pub(crate) rehearsal: RehearsalServer,
    client: reqwest::Client,
    folder: TempDir,
    database: String,
    env: Vec<(String, String)>,
}

/// An HTTP response of the server.
#[derive(Debug)]
pub(crate) struct ApiResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl ApiResponse {
    /// Asserts status 200 and returns the body.
    pub(crate) fn expect_ok(self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        self.body
    }

    /// Asserts a problem document with this status and code, and returns it.
    pub(crate) fn expect_problem(self, status: u16, code: &str) -> Value {
        let Self { status: actual_status, headers, body } = self;
        assert_eq!((actual_status.as_u16(), body["code"].as_str()), (status, Some(code)), "{body}");
        let media_type = headers.get("content-type").map(|kind| kind.to_str().unwrap_or_default());
        assert_eq!(media_type, Some("application/problem+json"), "{body}");
        assert_eq!(body["status"], status, "{body}");
        let detail = body["detail"].as_str().unwrap_or_default();
        assert!(!detail.is_empty() && body["title"].is_string(), "{body}");
        body
    }
}

impl TestServer {
    fn server(&self) -> &ServerProcess {
        self.server.as_ref().expect("the server runs")
    }

    /// Returns the server's base URL, `http://…`.
    pub(crate) fn url(&self) -> &str {
        &self.server().address
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Appends tables to the configuration file; they apply after the next start.
    pub(crate) fn append_config(&self, tables: &str) {
        let path = self.folder().join("greenroom.toml");
        let text = std::fs::read_to_string(&path).expect("the file is readable");
        std::fs::write(path, format!("{text}\n{tables}\n")).expect("the file is writable");
    }

    /// Kills the server with SIGKILL and waits until the process has ended.
    pub(crate) async fn kill(&mut self) {
        let mut server = self.server.take().expect("the server runs");
        server.child.kill().await.expect("the process can be killed");
    }

    /// Sends SIGTERM, as a service manager does, and waits until the process exits.
    pub(crate) async fn stop(&mut self) -> std::process::ExitStatus {
        self.send_sigterm();
        self.wait_for_exit().await
    }

    /// Returns the process id of the server.
    pub(crate) fn pid(&self) -> i32 {
        let id = self.server().child.id();
        id.and_then(|id| i32::try_from(id).ok()).expect("the process runs")
    }

    /// Sends SIGTERM to the server.
    pub(crate) fn send_sigterm(&self) {
        let id = nix::unistd::Pid::from_raw(self.pid());
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).expect("the process runs");
    }

    /// Waits until the server process exits.
    pub(crate) async fn wait_for_exit(&mut self) -> std::process::ExitStatus {
        let mut server = self.server.take().expect("the server runs");
        let status = tokio::time::timeout(TEST_TIMEOUT, server.child.wait()).await;
        status.expect("the process exits").expect("the exit status is known")
    }

    /// Starts the server again, with the same files.
    pub(crate) async fn start(&mut self) {
        assert!(self.server.is_none(), "the server runs");
        self.server = Some(self.start_process("127.0.0.1:0").await);
    }

    /// Starts the server again at its former address `url`, to which clients reconnect.
    pub(crate) async fn start_at(&mut self, url: &str) {
        assert!(self.server.is_none(), "the server runs");
        let listen = url.trim_start_matches("http://");
        self.server = Some(self.start_process(listen).await);
    }

    async fn start_process(&self, listen: &str) -> ServerProcess {
        ServerProcess::start(self.folder.path(), listen, &self.database, &self.env).await
    }

    pub(crate) async fn kill_and_restart(&mut self) {
        self.kill().await;
        self.start().await;
    }

    /// Builds a request with the administrator's token.
    pub(crate) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.request_without_token(method, path).bearer_auth(TOKEN)
    }

    /// Builds a request without a token.
    pub(crate) fn request_without_token(
        &self,
        method: Method,
        path: &str,
    ) -> reqwest::RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url()))
    }

    pub(crate) async fn get(&self, path: &str) -> ApiResponse {
        send(self.request(Method::GET, path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> ApiResponse {
        send(self.request(Method::POST, path).json(&body)).await
    }

    pub(crate) async fn patch(&self, path: &str, body: Value) -> ApiResponse {
        send(self.request(Method::PATCH, path).json(&body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> ApiResponse {
        send(self.request(Method::DELETE, path)).await
    }

    /// Creates a session and returns its id.
    pub(crate) async fn create_session(&self, body: Value) -> String {
        let created = self.post("/agent/session", body).await.expect_ok();
        created["session_id"].as_str().expect("the response has an id").to_owned()
    }

    /// Creates a session at the given autonomy level and returns its id.
    pub(crate) async fn create_session_at(&self, level: u8) -> String {
        if level > 1 {
            self.patch("/agent/settings", json!({"autonomy_level": level})).await.expect_ok();
        }
        self.create_session(json!({"autonomy_level": level})).await
    }

    /// Sends a request and returns its event stream; panics if the response is not a stream.
    pub(crate) async fn stream(&self, request: reqwest::RequestBuilder) -> Stream {
        let response = request.send().await.expect("the server answers");
        let status = response.status();
        if status != 200 {
            panic!("{status}: {}", response.text().await.unwrap_or_default());
        }
        let media_type = response.headers()["content-type"].to_str().unwrap_or_default().to_owned();
        assert!(media_type.starts_with("text/event-stream"), "{media_type}");
        Stream::new(response)
    }

    /// Sends a message and returns the stream of its run.
    pub(crate) async fn chat(&self, session: &str, message: &str) -> Stream {
        self.chat_with(json!({"session_id": session, "message": message})).await
    }

    pub(crate) async fn chat_with(&self, body: Value) -> Stream {
        self.stream(self.request(Method::POST, "/agent/chat/stream").json(&body)).await
    }

    /// Sends a message and returns all frames of its run.
    pub(crate) async fn chat_to_end(
        &self,
        session: &str,
        message: &str,
    ) -> Vec<crate::stream::Frame> {
        self.chat(session, message).await.read_to_end().await
    }

    /// Subscribes to a session's events after the cursor `after`.
    pub(crate) async fn subscribe(&self, session: &str, after: &str) -> Stream {
        let path = format!("/agent/session/{session}/events?after={after}");
        self.stream(self.request(Method::GET, &path).header("accept", "text/event-stream")).await
    }

    /// Subscribes with the cursor in the `Last-Event-ID` header, as browsers do.
    pub(crate) async fn subscribe_with_last_event_id(
        &self,
        session: &str,
        last_event_id: &str,
    ) -> Stream {
        let path = format!("/agent/session/{session}/events");
        let request = self.request(Method::GET, &path).header("accept", "text/event-stream");
        self.stream(request.header("last-event-id", last_event_id)).await
    }

    /// Reads all events of a session, page by page.
    pub(crate) async fn events(&self, session: &str) -> Vec<Value> {
        let (mut events, mut after) = (Vec::new(), json!(0));
        loop {
            let path = format!("/agent/session/{session}/events?after={after}&limit=7");
            let page = self.get(&path).await.expect_ok();
            let batch = page["events"].as_array().expect("a page has events").clone();
            if batch.is_empty() {
                return events;
            }
            events.extend(batch);
            after = page["next"].clone();
        }
    }

    /// Opens a WebSocket.
    pub(crate) async fn socket(&self, path: &str) -> Socket {
        Socket::open(&self.url().replacen("http", "ws", 1), path).await
    }

    /// Reads the effects that the market recorded.
    pub(crate) fn effects(&self) -> Vec<Value> {
        read_json_lines(&self.folder.path().join("market.jsonl"))
    }

    /// Reads the calls that reached the market.
    pub(crate) fn calls(&self) -> Vec<Value> {
        read_json_lines(&self.folder.path().join("calls.jsonl"))
    }

    /// Polls until `condition` holds, for a state that no event reports.
    pub(crate) async fn wait_until(&self, description: &str, condition: impl Fn(&Self) -> bool) {
        let poll = async {
            while !condition(self) {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        let result = tokio::time::timeout(TEST_TIMEOUT, poll).await;
        result.unwrap_or_else(|_| panic!("timed out waiting until {description}"));
    }

    /// Waits for the first event of type `kind`; returns all frames up to it.
    pub(crate) async fn wait_for_event(
        &self,
        session: &str,
        kind: &str,
    ) -> Vec<crate::stream::Frame> {
        self.subscribe(session, "0").await.read_until(kind).await
    }
}

pub(crate) async fn send(request: reqwest::RequestBuilder) -> ApiResponse {
    let response = request.send().await.expect("the server answers");
    let (status, headers) = (response.status(), response.headers().clone());
    let text = response.text().await.expect("the response is complete");
    let body = match text.is_empty() {
        true => Value::Null,
        false => serde_json::from_str(&text).unwrap_or(Value::String(text)),
    };
    ApiResponse { status, headers, body }
}

pub(crate) fn read_json_lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // The last line may still be incomplete.
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    complete.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}
