//! The child process of a stdio server: its environment, its standard error, its end (X5).
//!
//! One task owns the child from birth to burial, so there are no zombies; a process group of its
//! own takes its children along. Knows nothing of MCP. Used by `mcp`.

use greenroom_core::text::truncate;
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use std::{
    collections::BTreeMap,
    path::Path,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::{Instant, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::INHERITED_ENVIRONMENT;

/// Time to leave after the standard input was closed, before SIGTERM.
const STDIN_CLOSE_GRACE: Duration = Duration::from_secs(1);
/// Time to leave after SIGTERM, before SIGKILL.
const SIGTERM_GRACE: Duration = Duration::from_secs(2);
/// Bytes kept of one line of noise.
const LOG_LINE_BYTES_MAX: usize = 1024;
/// Bytes of the last line of standard error that are quoted as a reason.
const LAST_STDERR_LINE_BYTES_MAX: usize = 300;
/// Lines of noise that are logged in each [`NOISE_WINDOW`].
const LOG_LINES_MAX: u32 = 20;
const LOG_WINDOW: Duration = Duration::from_secs(1);

/// A child that runs. Dropping this ends it.
pub(super) struct ChildProcess {
    stop: CancellationToken,
    exited: CancellationToken,
    exit_text: Arc<Mutex<Option<String>>>,
    last_stderr_line: Arc<Mutex<String>>,
    _stop_on_drop: DropGuard,
}

/// What is known of a child after [`Process`] was given away.
#[derive(Clone)]
pub(super) struct ProcessExit {
    gone: CancellationToken,
    ended: Arc<Mutex<Option<String>>>,
    last_words: Arc<Mutex<String>>,
}

/// Starts a program, without a shell, in a process group of its own. The error is for people.
pub(super) fn spawn(
    server: &str,
    command: &str,
    args: &[String],
    env: &BTreeMap<String, String>,
    cwd: Option<&Path>,
) -> Result<(ChildProcess, ChildStdin, ChildStdout), String> {
    if let Some(cwd) = cwd.filter(|cwd| !cwd.is_dir()) {
        return Err(format!("its folder {} does not exist", cwd.display()));
    }
    let mut prepared = Command::new(command);
    prepared
        .args(args)
        .env_clear()
        .envs(INHERITED_ENVIRONMENT.iter().filter_map(|key| Some((key, std::env::var_os(key)?))))
        .envs(env)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    if let Some(cwd) = cwd {
        prepared.current_dir(cwd);
    }
    let mut child =
        prepared.spawn().map_err(|error| format!("`{command}` can't be started: {error}"))?;
    let (Some(stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(format!("`{command}` has no pipes"));
    };
    let stop = CancellationToken::new();
    let process = ChildProcess {
        exited: CancellationToken::new(),
        exit_text: Arc::default(),
        last_stderr_line: Arc::default(),
        _stop_on_drop: stop.clone().drop_guard(),
        stop,
    };
    tokio::spawn(drain_stderr(server.to_owned(), stderr, process.last_stderr_line.clone()));
    tokio::spawn(supervise(child, process.stop.clone(), process.exit()));
    Ok((process, stdin, stdout))
}

impl ChildProcess {
    /// Asks it to leave; its standard input should be closed by now.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    /// A look at its end for others.
    pub(super) fn exit(&self) -> ProcessExit {
        ProcessExit {
            gone: self.exited.clone(),
            ended: self.exit_text.clone(),
            last_words: self.last_stderr_line.clone(),
        }
    }
}

impl ProcessExit {
    /// Waits until the process is gone and buried.
    pub(super) async fn wait(&self) {
        self.gone.cancelled().await;
    }

    /// How it ended, if it did, and the last line it wrote to standard error.
    pub(super) fn describe(&self) -> String {
        let ended = lock(&self.ended).clone();
        let last_words = lock(&self.last_words).clone();
        let mut text = ended.unwrap_or_else(|| "its process is still running".to_owned());
        if !last_words.is_empty() {
            text.push_str("; the last it wrote: ");
            text.push_str(&last_words);
        }
        text
    }
}

/// Waits for the child's end, or brings it about.
async fn supervise(mut child: Child, stop: CancellationToken, fate: ProcessExit) {
    let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
    let signal = |signal: Signal| {
        // An error means that nobody is left to get it.
        group.is_some_and(|group| killpg(group, signal).is_ok())
    };
    let ended = tokio::select! {
        ended = child.wait() => ended,
        () = stop.cancelled() => match timeout(STDIN_CLOSE_GRACE, child.wait()).await {
            Ok(ended) => ended,
            Err(_) => {
                signal(Signal::SIGTERM);
                match timeout(SIGTERM_GRACE, child.wait()).await {
                    Ok(ended) => ended,
                    Err(_) => {
                        signal(Signal::SIGKILL);
                        child.wait().await
                    }
                }
            }
        },
    };
    // Its own children have lost their purpose, and may hold its pipes open.
    signal(Signal::SIGKILL);
    *lock(&fate.ended) = Some(describe(ended));
    fate.gone.cancel();
}

fn describe(ended: std::io::Result<ExitStatus>) -> String {
    match ended {
        Ok(status) => format!("its process ended ({status})"),
        Err(error) => format!("its process is lost: {error}"),
    }
}

/// Reads standard error to its end, so that the child never blocks on it, and logs what fits.
async fn drain_stderr(
    server: String,
    mut stderr: impl AsyncRead + Unpin,
    last_words: Arc<Mutex<String>>,
) {
    let mut noise = OutputLog::new(server);
    let mut buffer = vec![0; 8 * 1024];
    let mut line = Vec::new();
    while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
        for &byte in &buffer[..read] {
            if byte != b'\n' {
                if line.len() < LOG_LINE_BYTES_MAX {
                    line.push(byte);
                }
                continue;
            }
            let text = noise.log_line("stderr", &line);
            if !text.is_empty() {
                *lock(&last_words) = truncate(&text, LAST_STDERR_LINE_BYTES_MAX).to_owned();
            }
            line.clear();
        }
    }
}

/// Logs what a server should not have said, at a bounded rate.
pub(super) struct OutputLog {
    server: String,
    window: Instant,
    logged: u32,
    withheld: u64,
}

impl OutputLog {
    pub(super) fn new(server: String) -> Self {
        Self { server, window: Instant::now(), logged: 0, withheld: 0 }
    }

    /// Takes one line and returns it as text.
    pub(super) fn log_line(&mut self, stream: &'static str, line: &[u8]) -> String {
        let line = &line[..line.len().min(LOG_LINE_BYTES_MAX)];
        let text = String::from_utf8_lossy(line).trim().to_owned();
        if self.window.elapsed() >= LOG_WINDOW {
            if self.withheld > 0 {
                tracing::debug!(server = self.server, lines = self.withheld, "noise not logged");
            }
            (self.window, self.logged, self.withheld) = (Instant::now(), 0, 0);
        }
        if self.logged < LOG_LINES_MAX {
            self.logged += 1;
            tracing::debug!(server = self.server, stream, %text, "a tool server says");
        } else {
            self.withheld += 1;
        }
        text
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
