//! The child process of a stdio server: its environment, its standard error and its termination (X5).
//!
//! One task owns the child from spawn to wait, so no zombies remain. The child runs in its own process
//! group, so its descendants are terminated with it. Does not know MCP. Used by `connector`.

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

/// Time to exit after standard input is closed, before SIGTERM.
const STDIN_CLOSE_GRACE: Duration = Duration::from_secs(1);
/// Time to exit after SIGTERM, before SIGKILL.
const SIGTERM_GRACE: Duration = Duration::from_secs(2);
/// Maximum bytes of one logged line.
const LOG_LINE_BYTES_MAX: usize = 1024;
/// Maximum bytes of the last line of standard error in an error.
const LAST_STDERR_LINE_BYTES_MAX: usize = 300;
/// Maximum number of lines logged in each [`LOG_WINDOW`].
const LOG_LINES_MAX: u32 = 20;
const LOG_WINDOW: Duration = Duration::from_secs(1);

/// A running child process. Dropping it terminates the process.
pub(super) struct ChildProcess {
    stop: CancellationToken,
    exited: CancellationToken,
    exit_text: Arc<Mutex<Option<String>>>,
    last_stderr_line: Arc<Mutex<String>>,
    _stop_on_drop: DropGuard,
}

/// Observes the exit of a [`ChildProcess`].
#[derive(Clone)]
pub(super) struct ProcessExit {
    exited: CancellationToken,
    exit_text: Arc<Mutex<Option<String>>>,
    last_stderr_line: Arc<Mutex<String>>,
}

/// Starts a program without a shell, in its own process group. The error is human-readable.
pub(super) fn spawn(
    server: &str,
    command: &str,
    args: &[String],
    env: &BTreeMap<String, String>,
    cwd: Option<&Path>,
) -> Result<(ChildProcess, ChildStdin, ChildStdout), String> {
    if let Some(cwd) = cwd.filter(|cwd| !cwd.is_dir()) {
        return Err(format!("the working folder {} does not exist", cwd.display()));
    }
    let mut program = Command::new(command);
    program
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
        program.current_dir(cwd);
    }
    let mut child = program.spawn().map_err(|error| format!("can't start `{command}`: {error}"))?;
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
    /// Requests termination. The caller should close standard input first.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    /// Returns an observer of the exit.
    pub(super) fn exit(&self) -> ProcessExit {
        ProcessExit {
            exited: self.exited.clone(),
            exit_text: self.exit_text.clone(),
            last_stderr_line: self.last_stderr_line.clone(),
        }
    }
}

impl ProcessExit {
    /// Waits until the process has exited and its status has been collected.
    pub(super) async fn wait(&self) {
        self.exited.cancelled().await;
    }

    /// Returns the exit status, if the process has exited, and its last line of standard error.
    pub(super) fn describe(&self) -> String {
        let exit_text = lock(&self.exit_text).clone();
        let last_stderr_line = lock(&self.last_stderr_line).clone();
        let mut text = exit_text.unwrap_or_else(|| "the process is still running".to_owned());
        if !last_stderr_line.is_empty() {
            text.push_str("; last line of stderr: ");
            text.push_str(&last_stderr_line);
        }
        text
    }
}

/// Waits for the child's exit. Terminates the child when `stop` is cancelled.
async fn supervise(mut child: Child, stop: CancellationToken, exit: ProcessExit) {
    let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
    let signal = |signal: Signal| {
        // An error means that the group has no process left.
        group.is_some_and(|group| killpg(group, signal).is_ok())
    };
    let status = tokio::select! {
        status = child.wait() => status,
        () = stop.cancelled() => match timeout(STDIN_CLOSE_GRACE, child.wait()).await {
            Ok(status) => status,
            Err(_) => {
                signal(Signal::SIGTERM);
                match timeout(SIGTERM_GRACE, child.wait()).await {
                    Ok(status) => status,
                    Err(_) => {
                        signal(Signal::SIGKILL);
                        child.wait().await
                    }
                }
            }
        },
    };
    // Kills remaining descendants, which may hold the pipes open.
    signal(Signal::SIGKILL);
    *lock(&exit.exit_text) = Some(describe(status));
    exit.exited.cancel();
}

fn describe(status: std::io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => format!("the process exited ({status})"),
        Err(error) => format!("waiting for the process failed: {error}"),
    }
}

/// Reads standard error to its end, so that the child never blocks on it, and logs its lines.
async fn drain_stderr(
    server: String,
    mut stderr: impl AsyncRead + Unpin,
    last_stderr_line: Arc<Mutex<String>>,
) {
    let mut output_log = OutputLog::new(server);
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
            let text = output_log.log_line("stderr", &line);
            if !text.is_empty() {
                *lock(&last_stderr_line) = truncate(&text, LAST_STDERR_LINE_BYTES_MAX).to_owned();
            }
            line.clear();
        }
    }
}

/// Logs output of a server that is not part of the protocol, at a limited rate.
pub(super) struct OutputLog {
    server: String,
    window_start: Instant,
    logged: u32,
    suppressed: u64,
}

impl OutputLog {
    pub(super) fn new(server: String) -> Self {
        Self { server, window_start: Instant::now(), logged: 0, suppressed: 0 }
    }

    /// Logs one line within the rate limit and returns it as text.
    pub(super) fn log_line(&mut self, stream: &'static str, line: &[u8]) -> String {
        let line = &line[..line.len().min(LOG_LINE_BYTES_MAX)];
        let text = String::from_utf8_lossy(line).trim().to_owned();
        if self.window_start.elapsed() >= LOG_WINDOW {
            if self.suppressed > 0 {
                tracing::debug!(
                    server = self.server,
                    lines = self.suppressed,
                    "output of a tool server not logged: rate limit exceeded"
                );
            }
            (self.window_start, self.logged, self.suppressed) = (Instant::now(), 0, 0);
        }
        if self.logged < LOG_LINES_MAX {
            self.logged += 1;
            tracing::debug!(server = self.server, stream, %text, "output of a tool server");
        } else {
            self.suppressed += 1;
        }
        text
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
