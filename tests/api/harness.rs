//! A whole house for one test: a scripted model, the market's MCP server, and the real `greenroom`
//! binary as a child that can be killed. It knows how to start, kill and ask; it judges nothing.

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

/// Nothing here takes so long unless it is broken.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The administrator's token.
pub(crate) const TOKEN: &str = "the-token-of-the-tests-0123456789";
/// The providers' key, which must never be seen.
pub(crate) const MODEL_KEY: &str = "rehearsal-key-0123456789";
/// Between two looks at what no event tells.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// What a test wants to be different from the tour.
pub(crate) struct TestServerBuilder {
    wire: ProviderProtocol,
    script: String,
    top_level_config: String,
    configuration: String,
    agent: String,
    model: String,
    market_env: Vec<(String, String)>,
    catalog: String,
    database: String,
}

impl TestServerBuilder {
    /// The README's tour, without its pauses.
    pub(crate) fn tour(wire: ProviderProtocol) -> Self {
        let path = root().join("examples/rehearsal/market.toml");
        let script = std::fs::read_to_string(path).expect("the tour can be read");
        let slow = "delay_ms = 120\nchunk = { text = 12, delay_ms = 12 }";
        assert!(script.contains(slow), "the tour's pace stands elsewhere");
        Self::with_script(wire, &script.replace(slow, "").replace("delay_ms = 70", "delay_ms = 5"))
    }

    /// A script of the test's own.
    pub(crate) fn with_script(wire: ProviderProtocol, script: &str) -> Self {
        Self {
            wire,
            script: script.to_owned(),
            top_level_config: String::new(),
            configuration: String::new(),
            agent: String::new(),
            model: String::new(),
            market_env: Vec::new(),
            catalog: "examples/market/catalog.toml".to_owned(),
            database: "greenroom.db".to_owned(),
        }
    }

    /// Another database than a file in the folder.
    pub(crate) fn database(mut self, database: &str) -> Self {
        database.clone_into(&mut self.database);
        self
    }

    /// More tables of configuration.
    pub(crate) fn with_config(mut self, configuration: &str) -> Self {
        self.configuration.push_str(configuration);
        self.configuration.push('\n');
        self
    }

    /// A key of configuration that is in no table.
    pub(crate) fn with_top_level_config(mut self, line: &str) -> Self {
        self.top_level_config.push_str(line);
        self
    }

    /// More keys of the default agent.
    pub(crate) fn agent(mut self, keys: &str) -> Self {
        self.agent.push_str(keys);
        self.agent.push('\n');
        self
    }

    /// More keys of the scripted model.
    pub(crate) fn model(mut self, keys: &str) -> Self {
        self.model.push_str(keys);
        self.model.push('\n');
        self
    }

    /// Tables of tools instead of the market's own catalog.
    pub(crate) fn with_catalog(mut self, tools: &str) -> Self {
        self.catalog = String::new();
        self.with_config(tools)
    }

    /// Something that the market is to do.
    pub(crate) fn market(mut self, name: &str, value: &str) -> Self {
        self.market_env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts everything.
    pub(crate) async fn start(self) -> TestServer {
        // The clients of the test need it too; another test may have installed it.
        greenroom::install_crypto();
        let folder = tempfile::tempdir().expect("there is room for files");
        let script = Script::parse(&self.script).expect("the script is good");
        let rehearsal = RehearsalServer::start(script, ([127, 0, 0, 1], 0).into());
        let rehearsal = rehearsal.expect("there is a free port");
        self.write_configuration(folder.path(), &rehearsal.url());
        let client = reqwest::Client::builder().timeout(TEST_TIMEOUT).build();
        let client = client.expect("a client can be built");
        let database = self.database;
        let server = ServerProcess::start(folder.path(), "127.0.0.1:0", &database).await;
        TestServer { server: Some(server), rehearsal, client, folder, database }
    }

    fn write_configuration(&self, folder: &Path, url: &str) {
        let (wire, base_url) = match self.wire {
            ProviderProtocol::Anthropic => ("anthropic", url.to_owned()),
            ProviderProtocol::OpenAi => ("openai", format!("{url}/v1")),
        };
        let quoted = |path: PathBuf| json!(path.display().to_string());
        let own_env: String =
            self.market_env.iter().map(|(key, value)| format!(", {key} = {value:?}")).collect();
        let include = match self.catalog.as_str() {
            "" => String::new(),
            catalog => format!("include = [{}]", quoted(root().join(catalog))),
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
        std::fs::write(folder.join("greenroom.toml"), text).expect("the file can be written");
    }

    /// The configuration, with a limit of requests that no test meets unless it names one: tests look
    /// again more often than people do.
    fn config_with_rate_limit(&self) -> String {
        const GENEROUS: &str = "[limits]\nrequests_per_second = 100000\n";
        if self.configuration.contains("requests_per_second") {
            self.configuration.clone()
        } else if self.configuration.contains("[limits]\n") {
            self.configuration.replacen("[limits]\n", GENEROUS, 1)
        } else {
            format!("{}{GENEROUS}", self.configuration)
        }
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The market's program. Tests don't build it: built for itself alone it would be compiled with
/// other features, and everything after it again.
pub(crate) fn market_binary() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_greenroom")).with_file_name("greenroom-market");
    assert!(path.exists(), "{} is missing: run `cargo build --workspace`", path.display());
    path
}

/// The `greenroom` binary, with nothing from the environment that changes what it does.
fn greenroom(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_greenroom"));
    command.current_dir(folder).kill_on_drop(true);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let changes = ["GREENROOM_", "ANTHROPIC_", "OPENAI_", "MARKET_"];
        if changes.iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command
}

/// Runs the program to its end in that folder.
pub(crate) async fn run(folder: &Path, args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = greenroom(folder);
    command.args(args).env("MODEL_KEY", MODEL_KEY);
    let ends = command.envs(env.iter().copied()).output();
    let output = tokio::time::timeout(TEST_TIMEOUT, ends).await.expect("the command ends");
    output.expect("the program can be started")
}

/// A running server; dropping it kills it.
struct ServerProcess {
    child: Child,
    address: String,
    log: PathBuf,
}

impl ServerProcess {
    async fn start(folder: &Path, listen: &str, database: &str) -> Self {
        let log = folder.join("server.log");
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&log);
        let mut child = greenroom(folder)
            .arg("serve")
            .envs([("GREENROOM_LISTEN", listen), ("GREENROOM_TOKEN", TOKEN)])
            .envs([("GREENROOM_DATABASE", database), ("MODEL_KEY", MODEL_KEY)])
            .stdout(Stdio::piped())
            .stderr(file.expect("the log can be written"))
            .spawn()
            .expect("the program can be started");
        let stdout = child.stdout.take().expect("it is piped");
        let mut lines = BufReader::new(stdout).lines();
        let found = async {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(address) = line.trim().strip_prefix("API ") {
                    return Some(address.trim().to_owned());
                }
            }
            None
        };
        let found = tokio::time::timeout(TEST_TIMEOUT, found).await;
        let Ok(Some(address)) = found else {
            let told = std::fs::read_to_string(&log).unwrap_or_default();
            panic!("the server does not start: {told}");
        };
        // It goes on writing; somebody must read.
        actix_web::rt::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { child, address, log }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let told = std::fs::read_to_string(&self.log).unwrap_or_default();
            eprintln!("---- the server's log ----\n{told}--------");
        }
    }
}

/// All that runs for one test.
pub(crate) struct TestServer {
    server: Option<ServerProcess>,
    pub(crate) rehearsal: RehearsalServer,
    client: reqwest::Client,
    folder: TempDir,
    database: String,
}

/// What the server answered.
#[derive(Debug)]
pub(crate) struct ApiResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl ApiResponse {
    /// The body of what must have gone well.
    pub(crate) fn expect_ok(self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        self.body
    }

    /// The body of a refusal, which must be a problem document with this status and code.
    pub(crate) fn expect_problem(self, status: u16, code: &str) -> Value {
        let Self { status: found, headers, body } = self;
        assert_eq!((found.as_u16(), body["code"].as_str()), (status, Some(code)), "{body}");
        let kind = headers.get("content-type").map(|kind| kind.to_str().unwrap_or_default());
        assert_eq!(kind, Some("application/problem+json"), "{body}");
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

    /// Where the server is, as `http://…`.
    pub(crate) fn url(&self) -> &str {
        &self.server().address
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// `kill -9`, and waits until it is dead.
    pub(crate) async fn kill(&mut self) {
        let mut server = self.server.take().expect("the server runs");
        server.child.kill().await.expect("it can be killed");
    }

    /// Tells it to stop, as a service manager does, and waits for its end.
    pub(crate) async fn stop(&mut self) -> std::process::ExitStatus {
        self.send_sigterm();
        self.wait_for_exit().await
    }

    /// The server's process.
    pub(crate) fn pid(&self) -> i32 {
        let id = self.server().child.id();
        id.and_then(|id| i32::try_from(id).ok()).expect("it lives")
    }

    /// Tells it to stop.
    pub(crate) fn send_sigterm(&self) {
        let id = nix::unistd::Pid::from_raw(self.pid());
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).expect("it can be told");
    }

    /// Waits for its end.
    pub(crate) async fn wait_for_exit(&mut self) -> std::process::ExitStatus {
        let mut server = self.server.take().expect("the server runs");
        let end = tokio::time::timeout(TEST_TIMEOUT, server.child.wait()).await;
        end.expect("it ends").expect("its end is known")
    }

    /// Starts it again, with the same files.
    pub(crate) async fn start(&mut self) {
        assert!(self.server.is_none(), "the server runs");
        self.server =
            Some(ServerProcess::start(self.folder.path(), "127.0.0.1:0", &self.database).await);
    }

    /// The same, and where it was before: at `url`, which clients remember.
    pub(crate) async fn start_at(&mut self, url: &str) {
        assert!(self.server.is_none(), "the server runs");
        let listen = url.trim_start_matches("http://");
        self.server = Some(ServerProcess::start(self.folder.path(), listen, &self.database).await);
    }

    pub(crate) async fn kill_and_restart(&mut self) {
        self.kill().await;
        self.start().await;
    }

    /// A request with the administrator's token.
    pub(crate) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.request_without_token(method, path).bearer_auth(TOKEN)
    }

    /// A request without a token.
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

    /// A new session; its id.
    pub(crate) async fn create_session(&self, wish: Value) -> String {
        let created = self.post("/agent/session", wish).await.expect_ok();
        created["session_id"].as_str().expect("it has an id").to_owned()
    }

    /// A new session at that autonomy level.
    pub(crate) async fn create_session_at(&self, level: u8) -> String {
        if level > 1 {
            self.patch("/agent/settings", json!({"autonomy_level": level})).await.expect_ok();
        }
        self.create_session(json!({"autonomy_level": level})).await
    }

    /// The stream of a request that must be answered with one.
    pub(crate) async fn stream(&self, request: reqwest::RequestBuilder) -> Stream {
        let response = request.send().await.expect("the server answers");
        let status = response.status();
        if status != 200 {
            panic!("{status}: {}", response.text().await.unwrap_or_default());
        }
        let kind = response.headers()["content-type"].to_str().unwrap_or_default().to_owned();
        assert!(kind.starts_with("text/event-stream"), "{kind}");
        Stream::new(response)
    }

    /// Says something and listens to its run.
    pub(crate) async fn chat(&self, session: &str, message: &str) -> Stream {
        self.chat_with(json!({"session_id": session, "message": message})).await
    }

    pub(crate) async fn chat_with(&self, body: Value) -> Stream {
        self.stream(self.request(Method::POST, "/agent/chat/stream").json(&body)).await
    }

    /// Says something and listens to the end.
    pub(crate) async fn chat_to_end(
        &self,
        session: &str,
        message: &str,
    ) -> Vec<crate::stream::Frame> {
        self.chat(session, message).await.read_to_end().await
    }

    /// Listens to a session from a cursor on.
    pub(crate) async fn subscribe(&self, session: &str, after: &str) -> Stream {
        let path = format!("/agent/session/{session}/events?after={after}");
        self.stream(self.request(Method::GET, &path).header("accept", "text/event-stream")).await
    }

    /// The same, with the header that browsers use.
    pub(crate) async fn subscribe_with_last_event_id(
        &self,
        session: &str,
        last_event_id: &str,
    ) -> Stream {
        let path = format!("/agent/session/{session}/events");
        let request = self.request(Method::GET, &path).header("accept", "text/event-stream");
        self.stream(request.header("last-event-id", last_event_id)).await
    }

    /// All events of a session, page by page.
    pub(crate) async fn events(&self, session: &str) -> Vec<Value> {
        let (mut events, mut after) = (Vec::new(), json!(0));
        loop {
            let path = format!("/agent/session/{session}/events?after={after}&limit=7");
            let page = self.get(&path).await.expect_ok();
            let found = page["events"].as_array().expect("a page has events").clone();
            if found.is_empty() {
                return events;
            }
            events.extend(found);
            after = page["next"].clone();
        }
    }

    /// A WebSocket.
    pub(crate) async fn socket(&self, path: &str) -> Socket {
        Socket::open(&self.url().replacen("http", "ws", 1), path).await
    }

    /// The effects that the market wrote down.
    pub(crate) fn effects(&self) -> Vec<Value> {
        read_json_lines(&self.folder.path().join("market.jsonl"))
    }

    /// The calls that reached the market.
    pub(crate) fn calls(&self) -> Vec<Value> {
        read_json_lines(&self.folder.path().join("calls.jsonl"))
    }

    /// Waits until what no event tells is so.
    pub(crate) async fn wait_until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let waits = async {
            while !is_so(self) {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, waits).await.unwrap_or_else(|_| panic!("never: {what}"));
    }

    /// Waits until the session has gone through that many events of a type; returns them all.
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
    let text = response.text().await.expect("the answer is whole");
    let body = match text.is_empty() {
        true => Value::Null,
        false => serde_json::from_str(&text).unwrap_or(Value::String(text)),
    };
    ApiResponse { status, headers, body }
}

pub(crate) fn read_json_lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // A line that is being written has no end yet.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}
