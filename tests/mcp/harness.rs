//! Starts tool servers as the program does, and waits for changes of their status.

use actix_rt::System;
use greenroom::tool::{self, ToolServerConfig, ToolTransport};
use greenroom_actors::{
    ports::{Clock, ElicitationChannel, LateResultHandler, Progress, ToolCall, ToolHost},
    status_board::StatusBoard,
    tool_servers::{ServerState, ServerStatus, ToolServers},
};
use greenroom_core::{
    Timestamp,
    call::{ToolOutcome, ToolOutput},
    policy::Catalog,
};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Limit of a test. Every test is much faster, unless something is broken.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }

    fn seed(&self) -> u64 {
        0
    }
}

/// Runs a test as the program runs, on an actix system.
pub(crate) fn run<F: Future<Output = ()>>(test: F) {
    // No test uses TLS, but building an HTTP client requires a crypto provider.
    drop(rustls::crypto::ring::default_provider().install_default());
    System::new().block_on(async {
        tokio::time::timeout(TEST_TIMEOUT, test).await.expect("the test takes too long");
    });
}

/// Runs a test in a process of its own, because the test measures its process. `name` is the name of
/// the test function, with its module.
pub(crate) fn run_in_own_process<F: Future<Output = ()>>(name: &str, test: F) {
    const IS_CHILD: &str = "GREENROOM_TEST_RUNS_ALONE";
    if std::env::var_os(IS_CHILD).is_some() {
        return run(test);
    }
    let executable = std::env::current_exe().expect("the test has a path");
    let mut command = Command::new(executable);
    let output = command.args(["--exact", name, "--nocapture"]).env(IS_CHILD, "1").output();
    let output = output.expect("the test can be run");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("1 passed"), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
}

/// The tools of some servers, and the status board of their connections.
pub(crate) struct ToolServerFixture {
    pub(crate) tools: ToolServers,
    pub(crate) board: StatusBoard,
}

impl ToolServerFixture {
    /// Starts the servers and waits until each is ready or has failed.
    pub(crate) async fn start(servers: impl IntoIterator<Item = ToolServerConfig>) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(FixedClock);
        let board = StatusBoard::new(clock.clone());
        let tools = tool::start(servers, Catalog::default(), &board, &clock);
        tools.wait_until_started().await;
        Self { tools, board }
    }

    pub(crate) fn status(&self, server: &str) -> ServerStatus {
        let statuses = self.tools.statuses();
        let status = statuses.into_iter().find(|status| status.name == server);
        status.expect("the server is configured")
    }

    /// Waits until the status of the server fulfils the condition.
    pub(crate) async fn wait_for_status(
        &self,
        server: &str,
        condition: impl Fn(&ServerStatus) -> bool,
    ) {
        let mut versions = self.tools.subscribe_changes();
        while !condition(&self.status(server)) {
            versions.changed().await.expect("the tool servers run");
        }
    }

    pub(crate) async fn wait_for_restart(&self, server: &str, restarts: u64) {
        self.wait_for_status(server, |status| {
            status.state == ServerState::Ready && status.restarts >= restarts
        })
        .await;
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.tools.tool_registry().iter().map(|tool| tool.name.to_string()).collect()
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> ToolOutcome {
        let (progress, _) = mpsc::channel(1);
        self.tools.call_tool(tool_call(tool, arguments), progress, CancellationToken::new()).await
    }

    /// Calls a tool that is expected to succeed.
    pub(crate) async fn call_ok(&self, tool: &str, arguments: Value) -> ToolOutput {
        let outcome = self.call(tool, arguments).await;
        let ToolOutcome::Completed(output) = outcome else { panic!("{tool}: {outcome:?}") };
        output
    }
}

pub(crate) fn tool_call(tool: &str, arguments: Value) -> ToolCall {
    ToolCall {
        caller: None,
        tool: tool.to_owned(),
        arguments,
        idempotency_key: "key-1".to_owned(),
        timeout: Some(TEST_TIMEOUT),
        result_bytes_max: 4096,
        elicitation: ElicitationChannel::default(),
        late_result: LateResultHandler::default(),
    }
}

pub(crate) fn channel() -> (mpsc::Sender<Progress>, mpsc::Receiver<Progress>) {
    mpsc::channel(16)
}

pub(crate) fn stdio(name: &str, command: impl AsRef<Path>, args: &[&str]) -> ToolServerConfig {
    stdio_env(name, command, args, &[])
}

pub(crate) fn stdio_env(
    name: &str,
    command: impl AsRef<Path>,
    args: &[&str],
    env: &[(&str, &str)],
) -> ToolServerConfig {
    let to_owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    ToolServerConfig::new(
        name,
        ToolTransport::Stdio {
            command: command.as_ref().display().to_string(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            env: env.iter().map(to_owned).collect(),
            cwd: None,
        },
    )
}

pub(crate) fn http(name: &str, url: &str, allow_private: bool) -> ToolServerConfig {
    let headers = BTreeMap::new();
    ToolServerConfig::new(name, ToolTransport::Http { url: url.to_owned(), headers, allow_private })
}

/// Returns the path of the market's program. This function does not build it: a build of that
/// package alone would use other features, and the next build would have to compile everything
/// again.
pub(crate) fn market_binary() -> &'static Path {
    static MARKET: OnceLock<PathBuf> = OnceLock::new();
    MARKET.get_or_init(|| {
        let path = Path::new(env!("CARGO_BIN_EXE_greenroom")).with_file_name("greenroom-market");
        assert!(path.exists(), "{} is missing: run `cargo build --workspace`", path.display());
        path
    })
}

/// Returns the path of a program that `scripts/test-deps.sh` installs.
pub(crate) fn test_dep(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/test-deps").join(path);
    assert!(path.exists(), "{} is missing: run scripts/test-deps.sh", path.display());
    path
}
