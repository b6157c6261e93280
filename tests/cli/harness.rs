//! Starts the binary as a user does: a server with its own folder on port 0, and other commands of
//! the command line.

use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// Limit of a command. Every command is much faster, unless it hangs.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the path of the market server's binary and builds it if it is out of date. Cargo does not
/// build the binary of another package when only this test is run.
pub(crate) fn market_binary() -> PathBuf {
    static BUILT: std::sync::Once = std::sync::Once::new();
    BUILT.call_once(|| {
        let status = std::process::Command::new(env!("CARGO"))
            .args(["build", "--quiet", "-p", "greenroom-market"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .unwrap();
        assert!(status.success());
    });
    Path::new(env!("CARGO_BIN_EXE_greenroom")).parent().unwrap().join("greenroom-market")
}

/// A folder with a configuration and a rehearsal script.
pub(crate) struct TestWorkspace {
    pub(crate) folder: TempDir,
}

/// The exit code and output of a command that has ended.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl CommandOutput {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts that standard output contains all `texts`, however its lines are wrapped.
    #[track_caller]
    pub(crate) fn assert_prints(&self, texts: &[&str]) {
        let join_lines = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let out = join_lines(&self.out);
        for text in texts {
            assert!(out.contains(&join_lines(text)), "{text:?} is not in {self:#?}");
        }
    }
}

/// One run with two orders, which need approval, and a shopping list, which does not.
const SCRIPT: &str = r#"
[[rule]]
user = "stock up"
step = 0
[[rule.reply]]
text = "I will order."
[[rule.reply]]
tool_call = { name = "market_order_create", arguments = { type_id = 34, region_id = 10000002, side = "buy", quantity = 100, price = 5 } }
[[rule.reply]]
tool_call = { name = "market_order_create", arguments = { type_id = 35, region_id = 10000002, side = "buy", quantity = 200, price = 9 } }
[[rule.reply]]
tool_call = { name = "create_shopping_list", arguments = { name = "Next week" } }

[[rule]]
user = "stock up"
step = 1
[[rule.reply]]
text = "Done."
"#;

pub(crate) const CATALOG: &str = r#"
[tools.market_order_create]
server = "market"
risk = "write_high_risk"
[tools.create_shopping_list]
server = "market"
risk = "write_low_risk"
idempotent = true
"#;

impl TestWorkspace {
    pub(crate) fn new() -> Self {
        let workspace = Self { folder: tempfile::tempdir().unwrap() };
        workspace.write("script.toml", SCRIPT);
        workspace.write("greenroom.toml", &workspace.configuration(CATALOG));
        workspace
    }

    /// Returns the configuration with `extra` between its top-level keys and its tables.
    pub(crate) fn configuration(&self, extra: &str) -> String {
        let market = market_binary();
        let (market, file) = (market.display(), self.folder.path().join("market.jsonl"));
        format!(
            "database = \"workspace.db\"\nrehearsal = \"script.toml\"\n{extra}\n\
             [agents.default]\napprovals = {{ deadline = \"10m\" }}\n\
             [agents.reader]\ntools = [\"get_*\", \"create_*\"]\nheadless = true\n\
             [mcpServers.market]\ncommand = '{market}'\nenv = {{ MARKET_FILE = '{}' }}\n",
            file.display()
        )
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_greenroom"));
        command
            .args(args)
            .current_dir(self.folder.path())
            .env("GREENROOM_TOKEN", TOKEN)
            .env_remove("ANTHROPIC_API_KEY")
            .env_remove("OPENAI_API_KEY")
            .env_remove("OPENAI_BASE_URL")
            .env("GREENROOM_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs a command until it ends.
    pub(crate) async fn run(&self, args: &[&str]) -> CommandOutput {
        self.run_at("127.0.0.1:1", args).await
    }

    /// Runs a command that expects the server at `address`.
    pub(crate) async fn run_at(&self, address: &str, args: &[&str]) -> CommandOutput {
        self.run_with(&[("GREENROOM_LISTEN", address)], args).await
    }

    /// Runs a command with additional environment variables.
    pub(crate) async fn run_with(
        &self,
        variables: &[(&str, &str)],
        args: &[&str],
    ) -> CommandOutput {
        let mut command = self.command(args);
        let output = command.envs(variables.iter().copied()).output();
        let output = tokio::time::timeout(TEST_TIMEOUT, output).await.unwrap().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (out, err) = (text(output.stdout), text(output.stderr));
        CommandOutput { code: output.status.code().unwrap(), out, err }
    }

    /// Starts a command that expects the server at `address`.
    pub(crate) fn spawn(&self, address: &str, args: &[&str], stdout: Stdio) -> Child {
        let mut command = self.command(args);
        command.env("GREENROOM_LISTEN", address).stdout(stdout).spawn().unwrap()
    }

    pub(crate) async fn start_server(self) -> RunningServer {
        self.start_server_with(&[]).await
    }

    /// Starts a server with additional environment variables.
    pub(crate) async fn start_server_with(self, variables: &[(&str, &str)]) -> RunningServer {
        let mut command = self.command(&["serve"]);
        let command = command.envs(variables.iter().copied());
        let command = command.env("GREENROOM_LISTEN", "127.0.0.1:0").stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The banner has an empty line after its title, and ends with another.
        let banner = async {
            let (mut banner, mut empty_lines) = (Vec::new(), 0);
            while empty_lines < 2 {
                let line = lines.next_line().await.unwrap().unwrap();
                empty_lines += usize::from(line.is_empty());
                banner.push(line);
            }
            banner
        };
        let banner = tokio::time::timeout(TEST_TIMEOUT, banner).await.unwrap();
        let address = banner.iter().find_map(|line| line.strip_prefix("  API        http://"));
        let address = address.unwrap().to_owned();
        RunningServer { workspace: self, _child: child, _lines: lines, address, banner }
    }
}

/// A running server, killed on drop.
pub(crate) struct RunningServer {
    pub(crate) workspace: TestWorkspace,
    _child: Child,
    _lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
    pub(crate) address: String,
    /// The lines that the server printed when it had started.
    pub(crate) banner: Vec<String>,
}

impl RunningServer {
    pub(crate) async fn run(&self, args: &[&str]) -> CommandOutput {
        self.workspace.run_at(&self.address, args).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Value {
        self.request(|client, base| client.post(format!("{base}{path}")).json(&body)).await
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.request(|client, base| client.get(format!("{base}{path}"))).await
    }

    async fn request(
        &self,
        request: impl FnOnce(reqwest::Client, String) -> reqwest::RequestBuilder,
    ) -> Value {
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let request = request(reqwest::Client::new(), format!("http://{}", self.address));
        let response = request.bearer_auth(TOKEN).send();
        let response = tokio::time::timeout(TEST_TIMEOUT, response).await.unwrap().unwrap();
        response.json().await.unwrap()
    }

    /// Sends a message that leads to a plan, and returns the plan's id.
    pub(crate) async fn plan(&self) -> String {
        let response = self.post("/agent/chat", json!({"message": "stock up"})).await;
        response["plan_id"].as_str().unwrap_or_else(|| panic!("{response}")).to_owned()
    }
}
