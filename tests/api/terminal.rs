//! A pseudo-terminal that runs the real binary: tests send keys and read the screen of a terminal
//! emulator.

use crate::harness::{MODEL_KEY, TEST_TIMEOUT, TOKEN, TestServer};
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use std::{
    io::{Read as _, Write},
    num::NonZeroU16,
    path::Path,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

/// Time between two reads of the screen.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Number of rows kept above the screen.
const SCROLLBACK: usize = 1000;

/// A terminal and the process in it. Dropping the terminal kills the process.
pub(crate) struct Terminal {
    output: Arc<Mutex<TerminalOutput>>,
    keys: Box<dyn Write + Send>,
    child: Box<dyn Child + Send + Sync>,
    master: Box<dyn MasterPty + Send>,
}

struct TerminalOutput {
    emulator: vt100::Parser,
    /// All bytes received, unchanged.
    raw: Vec<u8>,
}

fn size(columns: u16, rows: u16) -> PtySize {
    PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 }
}

/// Returns the environment of a user's command line that addresses the server at `url`.
pub(crate) fn environment(url: &str) -> Vec<(String, String)> {
    let path = std::env::var("PATH").unwrap_or_default();
    [
        ("PATH", path.as_str()),
        ("LANG", "C.UTF-8"),
        ("GREENROOM_LISTEN", url.trim_start_matches("http://")),
        ("GREENROOM_TOKEN", TOKEN),
        ("MODEL_KEY", MODEL_KEY),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec()
}

impl Terminal {
    /// Runs `greenroom` with these arguments in a terminal of this size; `env` adds variables.
    pub(crate) fn open(
        server: &TestServer,
        columns: u16,
        rows: u16,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Self {
        Self::open_at(server.url(), server.folder(), columns, rows, args, env)
    }

    /// Opens the same terminal as [`Self::open`], for the server at `url`.
    pub(crate) fn open_at(
        url: &str,
        folder: &Path,
        columns: u16,
        rows: u16,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Self {
        let pair =
            native_pty_system().openpty(size(columns, rows)).expect("a terminal can be opened");
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_greenroom"));
        command.args(args);
        command.cwd(folder);
        command.env_clear();
        command.env("TERM", "xterm-256color");
        for (name, value) in environment(url) {
            command.env(name, value);
        }
        for (name, value) in env {
            command.env(name, value);
        }
        let child = pair.slave.spawn_command(command).expect("the binary can be started");
        let keys = pair.master.take_writer().expect("the terminal accepts keys");
        let mut reader = pair.master.try_clone_reader().expect("the terminal can be read");
        let count = |count: u16| NonZeroU16::new(count).expect("the size is not zero");
        let emulator = vt100::Parser::new(count(rows), count(columns), SCROLLBACK);
        let output = Arc::new(Mutex::new(TerminalOutput { emulator, raw: Vec::new() }));
        let shared = output.clone();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Ends when the program exits.
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                let mut output = shared.lock().expect("the lock is not poisoned");
                output.emulator.process(&buffer[..count]);
                output.raw.extend_from_slice(&buffer[..count]);
            }
        });
        Self { output, keys, child, master: pair.master }
    }

    /// Sends keys, as the bytes that a terminal sends for them.
    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the terminal accepts keys");
        self.keys.flush().expect("the terminal accepts keys");
    }

    /// Types a line and presses Enter.
    pub(crate) fn enter(&mut self, line: &str) {
        self.press(&format!("{line}\r"));
    }

    /// Returns the rows of the screen and of the scrollback, without trailing blanks.
    pub(crate) fn screen(&self) -> String {
        let mut output = self.output.lock().expect("the lock is not poisoned");
        let screen = output.emulator.screen_mut();
        let (rows, columns) = screen.size();
        screen.set_scrollback(SCROLLBACK);
        let above = screen.scrollback();
        let mut lines = Vec::new();
        for back in (0..=above).rev() {
            screen.set_scrollback(back);
            let take = if back == 0 { usize::from(rows.get()) } else { 1 };
            lines.extend(screen.rows(0, columns.get()).take(take));
        }
        let lines: Vec<_> = lines.iter().map(|line| line.trim_end()).collect();
        lines.join("\n").trim_end().to_owned()
    }

    /// Returns [`Self::screen`] with each run of blanks and line breaks replaced by one space.
    pub(crate) fn text_on_one_line(&self) -> String {
        self.screen().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Polls until `condition` holds for the text on one line.
    pub(crate) async fn wait_until(&self, description: &str, condition: impl Fn(&str) -> bool) {
        let poll = async {
            while !condition(&self.text_on_one_line()) {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        if tokio::time::timeout(TEST_TIMEOUT, poll).await.is_err() {
            panic!("timed out waiting for: {description}\n{}", self.screen());
        }
    }

    /// Polls until the screen contains `text`.
    pub(crate) async fn wait_for_text(&self, text: &str) {
        self.wait_until(text, |screen| screen.contains(text)).await;
    }

    /// Returns all bytes received from the program, as text.
    pub(crate) fn raw(&self) -> String {
        let output = self.output.lock().expect("the lock is not poisoned");
        String::from_utf8_lossy(&output.raw).into_owned()
    }

    /// Resizes the terminal.
    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        let count = |count: u16| NonZeroU16::new(count).expect("the size is not zero");
        let mut output = self.output.lock().expect("the lock is not poisoned");
        output.emulator.set_size(count(rows), count(columns));
        self.master.resize(size(columns, rows)).expect("the terminal can be resized");
    }

    /// Waits until the program exits; returns its exit code.
    pub(crate) async fn wait_for_exit(&mut self) -> u32 {
        let exit = async {
            loop {
                if let Some(status) = self.child.try_wait().expect("the exit status is known") {
                    return status.exit_code();
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        match tokio::time::timeout(TEST_TIMEOUT, exit).await {
            Ok(code) => code,
            Err(_) => panic!("the program does not exit:\n{}", self.screen()),
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The program may already have exited.
        self.child.kill().unwrap_or_default();
    }
}
