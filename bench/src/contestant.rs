//! Who is measured: how each is started, spoken to, and understood.

use crate::{
    process::{SERVER_CORE, Server, free_port, listens, on_core},
    wire::Connection,
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
pub(crate) enum Contestant {
    /// Passes the provider's bytes on, and does nothing else.
    Bare,
    /// Parses, has a task per session, runs the tool, stores the messages.
    Least(Durability),
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
pub(crate) struct Dialect {
    /// A piece of text, or several.
    pub(crate) delta: &'static str,
    /// The tool's result.
    pub(crate) result: Option<&'static str>,
    /// The end.
    pub(crate) end: &'static str,
    /// How often the end comes in one run.
    pub(crate) ends: u32,
}

impl Contestant {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare relay",
            Self::Least(Durability::Fsync) => "least full relay",
            Self::Least(Durability::Process) => "least full relay, `process`",
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
            Self::Bare | Self::Least(_) | Self::Greenroom(_) => false,
            Self::AiSdk | Self::FastApi | Self::LangGraph => true,
        }
    }

    pub(crate) fn dialect(self) -> Dialect {
        match self {
            Self::Bare => {
                Dialect { delta: "data: {\"id\"", result: None, end: "data: [DONE]", ends: 2 }
            }
            Self::Least(_) | Self::Greenroom(_) => Dialect {
                delta: "data: {\"type\":\"text\"",
                result: Some("data: {\"type\":\"tool_call_completed\""),
                end: "data: {\"type\":\"done\"",
                ends: 1,
            },
            Self::AiSdk => Dialect {
                delta: "data: {\"type\":\"text-delta\"",
                result: Some("data: {\"type\":\"tool-output-available\""),
                end: "data: [DONE]",
                ends: 1,
            },
            Self::FastApi | Self::LangGraph => Dialect {
                delta: "data: {\"type\": \"text\"",
                result: Some("data: {\"type\": \"tool_call_completed\""),
                end: "data: {\"type\": \"done\"",
                ends: 1,
            },
        }
    }

    /// Starts it with an empty database; ready when this returns.
    pub(crate) async fn start(self, provider: &str) -> anyhow::Result<Running> {
        let folder = tempfile::tempdir_in(disk())?;
        self.start_in(folder, provider).await
    }

    /// The same with what is stored in `folder`.
    pub(crate) async fn start_in(self, folder: TempDir, provider: &str) -> anyhow::Result<Running> {
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
            Self::Bare => {
                let mut command = on_core(SERVER_CORE, &own);
                command.args(["bare", &address, provider]);
                command
            }
            Self::Least(durability) => {
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
        if let Err(error) = listens(&server, port).await {
            let told = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
            return Err(error.context(told));
        }
        let address = address.parse()?;
        if let Self::Greenroom(_) = self {
            // It listens before it serves, to know early that the port is free.
            Connection::open(address).await?.ask("GET", "/readyz", TOKEN, "").await?;
        }
        Ok(Running { contestant: self, server, address, folder })
    }
}

/// Databases are put on the disk that the build is on: `/tmp` may be memory, which makes a sync free.
fn disk() -> PathBuf {
    let own = env::current_exe().ok();
    own.and_then(|own| own.parent().map(Path::to_owned)).unwrap_or_default()
}

/// One that is running.
pub(crate) struct Running {
    pub(crate) contestant: Contestant,
    pub(crate) server: Server,
    pub(crate) address: SocketAddr,
    /// What it stores, and its log.
    folder: TempDir,
}

impl Running {
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
