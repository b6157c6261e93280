//! The measured targets: how to start each of them and how to read its stream.

use crate::{
    http::Connection,
    process::{SERVER_CORE, Server, free_port, on_core, wait_until_listening},
};
use std::{
    env,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
};
use tempfile::TempDir;

/// The admin token of the measured Greenroom.
const TOKEN: &str = "the-token-of-the-bench-0123456789";

/// A measured target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BenchTarget {
    /// Forwards the provider's bytes and does nothing else.
    BareRelay,
    /// Parses the stream, has a task per session, runs the tool, stores the messages.
    MinimalRelay(Durability),
    /// The release build of Greenroom.
    Greenroom(Durability),
    /// The AI SDK on Node.
    AiSdk,
    /// A hand-written loop in Python.
    FastApi,
    /// LangGraph behind FastAPI.
    LangGraph,
}

/// The durability of acknowledged data: on disk, or in the operating system's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Durability {
    Fsync,
    Process,
}

impl Durability {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::Process => "process",
        }
    }
}

/// The beginnings of the lines of a target's stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamMarkers {
    /// A line with one or more text deltas.
    pub(crate) delta: &'static str,
    /// The line of the tool's result.
    pub(crate) result: Option<&'static str>,
    /// The line that ends a run.
    pub(crate) end: &'static str,
    /// Number of `end` lines in a run.
    pub(crate) ends: u32,
}

impl BenchTarget {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::BareRelay => "bare relay",
            Self::MinimalRelay(Durability::Fsync) => "minimal relay",
            Self::MinimalRelay(Durability::Process) => "minimal relay, `process`",
            Self::Greenroom(Durability::Fsync) => "**Greenroom**",
            Self::Greenroom(Durability::Process) => "**Greenroom**, `process`",
            Self::AiSdk => "AI SDK, Node",
            Self::FastApi => "FastAPI loop, Python",
            Self::LangGraph => "LangGraph behind FastAPI",
        }
    }

    /// True for another agent server, whose runs cost milliseconds.
    pub(crate) fn is_peer(self) -> bool {
        match self {
            Self::BareRelay | Self::MinimalRelay(_) | Self::Greenroom(_) => false,
            Self::AiSdk | Self::FastApi | Self::LangGraph => true,
        }
    }

    pub(crate) fn markers(self) -> StreamMarkers {
        match self {
            Self::BareRelay => {
                StreamMarkers { delta: "data: {\"id\"", result: None, end: "data: [DONE]", ends: 2 }
            }
            Self::MinimalRelay(_) | Self::Greenroom(_) => StreamMarkers {
                delta: "data: {\"type\":\"text\"",
                result: Some("data: {\"type\":\"tool_call_completed\""),
                end: "data: {\"type\":\"done\"",
                ends: 1,
            },
            Self::AiSdk => StreamMarkers {
                delta: "data: {\"type\":\"text-delta\"",
                result: Some("data: {\"type\":\"tool-output-available\""),
                end: "data: [DONE]",
                ends: 1,
            },
            Self::FastApi | Self::LangGraph => StreamMarkers {
                delta: "data: {\"type\": \"text\"",
                result: Some("data: {\"type\": \"tool_call_completed\""),
                end: "data: {\"type\": \"done\"",
                ends: 1,
            },
        }
    }

    /// Starts the target with an empty database and waits until it is ready.
    pub(crate) async fn start(self, provider: &str) -> anyhow::Result<RunningTarget> {
        let folder = tempfile::tempdir_in(database_dir())?;
        self.start_in(folder, provider).await
    }

    /// Starts the target with the data in `folder` and waits until it is ready.
    pub(crate) async fn start_in(
        self,
        folder: TempDir,
        provider: &str,
    ) -> anyhow::Result<RunningTarget> {
        let port = free_port()?;
        let address = format!("127.0.0.1:{port}");
        let program = env::current_exe()?.display().to_string();
        let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
        let database = folder.path().join("bench.db").display().to_string();
        let peer = |name: &str| {
            let start = crate_dir.join("peers").join(name).join("start.sh").display().to_string();
            let mut command = on_core(SERVER_CORE, &start);
            command.args([&port.to_string(), provider]);
            command
        };
        let mut command = match self {
            Self::BareRelay => {
                let mut command = on_core(SERVER_CORE, &program);
                command.args(["bare", &address, provider]);
                command
            }
            Self::MinimalRelay(durability) => {
                let mut command = on_core(SERVER_CORE, &program);
                command.args(["least", &address, provider, &database, durability.name()]);
                command
            }
            Self::Greenroom(durability) => {
                let binary = PathBuf::from(&program).with_file_name("greenroom");
                let binary = binary.display().to_string();
                let mut command = on_core(SERVER_CORE, &binary);
                let config = crate_dir.join("greenroom.toml").display().to_string();
                command.args(["serve", "--config", &config]);
                for model in ["BRIEF", "BURST", "PACED", "HELD"] {
                    command.env(format!("GREENROOM_MODELS__{model}__BASE_URL"), provider);
                }
                command
                    .env("GREENROOM_LISTEN", &address)
                    .env("GREENROOM_DATABASE", &database)
                    .env("GREENROOM_DURABILITY", durability.name())
                    .env("GREENROOM_TOKEN", TOKEN);
                command
            }
            Self::AiSdk => peer("ai-sdk"),
            Self::FastApi => peer("fastapi"),
            Self::LangGraph => peer("langgraph"),
        };
        let log = std::fs::File::create(folder.path().join("log"))?;
        command.stdout(log.try_clone()?).stderr(log).stdin(Stdio::null());
        let server = Server::start(command)?;
        if let Err(error) = wait_until_listening(&server, port).await {
            let output = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
            return Err(error.context(output));
        }
        let address = address.parse()?;
        if let Self::Greenroom(_) = self {
            // Greenroom binds its port before it is ready, so that it detects a used port early.
            Connection::open(address).await?.send_request("GET", "/readyz", TOKEN, "").await?;
        }
        Ok(RunningTarget { target: self, server, address, folder })
    }
}

/// Returns the folder for databases. It is on the disk of the build, since `/tmp` may be in memory,
/// where a sync is free.
fn database_dir() -> PathBuf {
    let program = env::current_exe().ok();
    program.and_then(|program| program.parent().map(Path::to_owned)).unwrap_or_default()
}

/// A running target.
pub(crate) struct RunningTarget {
    pub(crate) target: BenchTarget,
    pub(crate) server: Server,
    pub(crate) address: SocketAddr,
    /// The target's data and its log.
    folder: TempDir,
}

impl RunningTarget {
    /// Returns the admin token.
    pub(crate) fn token(&self) -> &'static str {
        TOKEN
    }

    /// Kills the target and returns its data.
    pub(crate) fn crash(mut self) -> TempDir {
        self.server.kill();
        self.folder
    }
}
