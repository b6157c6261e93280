//! Who is measured: how each is started, spoken to, and understood.

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

/// The administrator's token of the measured Greenroom.
const TOKEN: &str = "the-token-of-the-bench-0123456789";

/// Who.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BenchTarget {
    /// Passes the provider's bytes on, and does nothing else.
    BareRelay,
    /// Parses, has a task per session, runs the tool, stores the messages.
    MinimalRelay(Durability),
    /// The server, optimised.
    Greenroom(Durability),
    /// The AI SDK on Node.
    AiSdk,
    /// A loop written by hand in Python.
    FastApi,
    /// LangGraph behind FastAPI.
    LangGraph,
}

/// What is acknowledged is on the disk, or in the operating system's hands.
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

/// How its stream is understood: by how lines begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamMarkers {
    /// A piece of text, or several.
    pub(crate) delta: &'static str,
    /// The tool's result.
    pub(crate) result: Option<&'static str>,
    /// The end.
    pub(crate) end: &'static str,
    /// How often the end comes in one run.
    pub(crate) ends: u32,
}

impl BenchTarget {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::BareRelay => "bare relay",
            Self::MinimalRelay(Durability::Fsync) => "least full relay",
            Self::MinimalRelay(Durability::Process) => "least full relay, `process`",
            Self::Greenroom(Durability::Fsync) => "**Greenroom**",
            Self::Greenroom(Durability::Process) => "**Greenroom**, `process`",
            Self::AiSdk => "AI SDK, Node",
            Self::FastApi => "FastAPI loop, Python",
            Self::LangGraph => "LangGraph behind FastAPI",
        }
    }

    /// Whether its runs cost milliseconds rather than parts of one.
    pub(crate) fn is_peer(self) -> bool {
        match self {
            Self::BareRelay | Self::MinimalRelay(_) | Self::Greenroom(_) => false,
            Self::AiSdk | Self::FastApi | Self::LangGraph => true,
        }
    }

    pub(crate) fn dialect(self) -> StreamMarkers {
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

    /// Starts it with an empty database; ready when this returns.
    pub(crate) async fn start(self, provider: &str) -> anyhow::Result<RunningTarget> {
        let folder = tempfile::tempdir_in(database_dir())?;
        self.start_in(folder, provider).await
    }

    /// The same with what is stored in `folder`.
    pub(crate) async fn start_in(
        self,
        folder: TempDir,
        provider: &str,
    ) -> anyhow::Result<RunningTarget> {
        let port = free_port()?;
        let address = format!("127.0.0.1:{port}");
        let own = env::current_exe()?.display().to_string();
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let database = folder.path().join("bench.db").display().to_string();
        let peer = |name: &str| {
            let start = here.join("peers").join(name).join("start.sh").display().to_string();
            let mut command = on_core(SERVER_CORE, &start);
            command.args([&port.to_string(), provider]);
            command
        };
        let mut command = match self {
            Self::BareRelay => {
                let mut command = on_core(SERVER_CORE, &own);
                command.args(["bare", &address, provider]);
                command
            }
            Self::MinimalRelay(durability) => {
                let mut command = on_core(SERVER_CORE, &own);
                command.args(["least", &address, provider, &database, durability.name()]);
                command
            }
            Self::Greenroom(durability) => {
                let binary = PathBuf::from(&own).with_file_name("greenroom").display().to_string();
                let mut command = on_core(SERVER_CORE, &binary);
                let config = here.join("greenroom.toml").display().to_string();
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
            let told = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
            return Err(error.context(told));
        }
        let address = address.parse()?;
        if let Self::Greenroom(_) = self {
            // It listens before it serves, to know early that the port is free.
            Connection::open(address).await?.send_request("GET", "/readyz", TOKEN, "").await?;
        }
        Ok(RunningTarget { contestant: self, server, address, folder })
    }
}

/// Databases are put on the disk that the build is on: `/tmp` may be memory, which makes a sync free.
fn database_dir() -> PathBuf {
    let own = env::current_exe().ok();
    own.and_then(|own| own.parent().map(Path::to_owned)).unwrap_or_default()
}

/// One that is running.
pub(crate) struct RunningTarget {
    pub(crate) contestant: BenchTarget,
    pub(crate) server: Server,
    pub(crate) address: SocketAddr,
    /// What it stores, and its log.
    folder: TempDir,
}

impl RunningTarget {
    /// The credential for it.
    pub(crate) fn token(&self) -> &'static str {
        TOKEN
    }

    /// Ends it as a crash would, and keeps what it has stored.
    pub(crate) fn crash(mut self) -> TempDir {
        self.server.kill();
        self.folder
    }
}
