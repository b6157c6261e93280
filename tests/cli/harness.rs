//! A server of its own for a test, as people start it: the binary, a folder, and port 0; and the
//! command line beside it.

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
/// Nothing here takes so long unless it hangs.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The market server's binary, built if it isn't up to date: another package's binary is not
/// Cargo's business when only this test is asked for.
pub(crate) fn market_binary() -> PathBuf {
    static BUILT: std::sync::Once = std::sync::Once::new();
    BUILT.call_once(|| {
        let built = std::process::Command::new(env!("CARGO"))
            .args(["build", "--quiet", "-p", "greenroom-market"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .unwrap();
        assert!(built.success());
    });
    Path::new(env!("CARGO_BIN_EXE_greenroom")).parent().unwrap().join("greenroom-market")
}

/// A folder with a configuration, and what a model would say.
pub(crate) struct TestWorkspace {
    pub(crate) folder: TempDir,
}

/// How a command ended.
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

    /// Whether it printed all these texts, wherever lines were broken.
    #[track_caller]
    pub(crate) fn assert_prints(&self, texts: &[&str]) {
        let on_one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let out = on_one_line(&self.out);
        for text in texts {
            assert!(out.contains(&on_one_line(text)), "{text:?} is not in {self:#?}");
        }
    }
}

/// Two orders that are asked for, and a list that is not.
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

const CATALOG: &str = r#"
[tools.market_order_create]
risk = "write_high_risk"
[tools.create_shopping_list]
risk = "write_low_risk"
idempotent = true
"#;

impl TestWorkspace {
    pub(crate) fn new() -> Self {
        let desk = Self { folder: tempfile::tempdir().unwrap() };
        desk.write("script.toml", SCRIPT);
        desk.write("greenroom.toml", &desk.configuration(CATALOG));
        desk
    }

    /// The configuration with another end.
    pub(crate) fn configuration(&self, end: &str) -> String {
        let market = market_binary();
        let (market, file) = (market.display(), self.folder.path().join("market.jsonl"));
        format!(
            "database = \"desk.db\"\nrehearsal = \"script.toml\"\n{end}\n\
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
            .env("GREENROOM_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&self, args: &[&str]) -> CommandOutput {
        self.run_at("127.0.0.1:1", args).await
    }

    /// Runs a command beside what listens at that address.
    pub(crate) async fn run_at(&self, address: &str, args: &[&str]) -> CommandOutput {
        self.run_with(&[("GREENROOM_LISTEN", address)], args).await
    }

    /// Runs a command with these variables.
    pub(crate) async fn run_with(
        &self,
        variables: &[(&str, &str)],
        args: &[&str],
    ) -> CommandOutput {
        let mut command = self.command(args);
        let ended = command.envs(variables.iter().copied()).output();
        let ended = tokio::time::timeout(TEST_TIMEOUT, ended).await.unwrap().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (out, err) = (text(ended.stdout), text(ended.stderr));
        CommandOutput { code: ended.status.code().unwrap(), out, err }
    }

    /// Starts a command beside what listens at that address, with that for standard output.
    pub(crate) fn spawn(&self, address: &str, args: &[&str], stdout: Stdio) -> Child {
        let mut command = self.command(args);
        command.env("GREENROOM_LISTEN", address).stdout(stdout).spawn().unwrap()
    }

    pub(crate) async fn start_server(self) -> RunningServer {
        let mut command = self.command(&["serve"]);
        let command = command.env("GREENROOM_LISTEN", "127.0.0.1:0").stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = async {
            loop {
                let line = lines.next_line().await.unwrap().unwrap();
                if let Some((_, address)) = line.split_once("API        http://") {
                    return address.trim().to_owned();
                }
            }
        };
        let address = tokio::time::timeout(TEST_TIMEOUT, address).await.unwrap();
        RunningServer { workspace: self, _child: child, _lines: lines, address }
    }
}

/// A running server, killed in the end.
pub(crate) struct RunningServer {
    pub(crate) workspace: TestWorkspace,
    _child: Child,
    _lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
    pub(crate) address: String,
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
        let answer = request.bearer_auth(TOKEN).send();
        let answer = tokio::time::timeout(TEST_TIMEOUT, answer).await.unwrap().unwrap();
        answer.json().await.unwrap()
    }

    /// Says something that leads to a plan; the plan's id.
    pub(crate) async fn plan(&self) -> String {
        let answer = self.post("/agent/chat", json!({"message": "stock up"})).await;
        answer["plan_id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }
}
