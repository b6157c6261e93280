//! A real pseudo-terminal with a real program in it: keys go in, and what a person would see comes out
//! of a terminal emulator.

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

/// Between two looks at the screen.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Rows that have gone up and can still be seen.
const SCROLLBACK: usize = 1000;

/// A terminal, and who runs in it; dropping it kills them.
pub(crate) struct Terminal {
    seen: Arc<Mutex<TerminalOutput>>,
    keys: Box<dyn Write + Send>,
    child: Box<dyn Child + Send + Sync>,
    master: Box<dyn MasterPty + Send>,
}

struct TerminalOutput {
    emulator: vt100::Parser,
    /// Everything that came, as it came.
    raw: Vec<u8>,
}

fn size(columns: u16, rows: u16) -> PtySize {
    PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 }
}

/// The environment of a person at that server's command line.
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
    /// `greenroom` with these arguments, in a terminal of that size, with more environment.
    pub(crate) fn open(
        server: &TestServer,
        columns: u16,
        rows: u16,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Self {
        Self::open_at(server.url(), server.folder(), columns, rows, args, env)
    }

    /// The same, for a server at that address.
    pub(crate) fn open_at(
        url: &str,
        folder: &Path,
        columns: u16,
        rows: u16,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Self {
        let pair = native_pty_system().openpty(size(columns, rows)).expect("there are terminals");
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
        let child = pair.slave.spawn_command(command).expect("the program can be started");
        let keys = pair.master.take_writer().expect("it can be typed at");
        let mut reader = pair.master.try_clone_reader().expect("it can be looked at");
        let count = |count: u16| NonZeroU16::new(count).expect("it has a size");
        let emulator = vt100::Parser::new(count(rows), count(columns), SCROLLBACK);
        let seen = Arc::new(Mutex::new(TerminalOutput { emulator, raw: Vec::new() }));
        let shared = seen.clone();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Ends with the program.
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                let mut seen = shared.lock().expect("nobody panics with it");
                seen.emulator.process(&buffer[..count]);
                seen.raw.extend_from_slice(&buffer[..count]);
            }
        });
        Self { seen, keys, child, master: pair.master }
    }

    /// Presses keys, as the bytes that a terminal sends for them.
    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("it can be typed at");
        self.keys.flush().expect("it can be typed at");
    }

    /// Types a line and presses Enter.
    pub(crate) fn enter(&mut self, line: &str) {
        self.press(&format!("{line}\r"));
    }

    /// Everything that can be seen, rows that have gone up included, without the blanks at the ends.
    pub(crate) fn screen(&self) -> String {
        let mut seen = self.seen.lock().expect("nobody panics with it");
        let screen = seen.emulator.screen_mut();
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

    /// The same on one line, wherever lines were broken.
    pub(crate) fn text_on_one_line(&self) -> String {
        self.screen().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Waits until what is seen is so.
    pub(crate) async fn wait_until(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        let waits = async {
            while !is_so(&self.text_on_one_line()) {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        if tokio::time::timeout(TEST_TIMEOUT, waits).await.is_err() {
            panic!("never seen: {what}\n{}", self.screen());
        }
    }

    /// Waits until that text is seen.
    pub(crate) async fn wait_for_text(&self, text: &str) {
        self.wait_until(text, |seen| seen.contains(text)).await;
    }

    /// The bytes that came.
    pub(crate) fn raw(&self) -> String {
        let seen = self.seen.lock().expect("nobody panics with it");
        String::from_utf8_lossy(&seen.raw).into_owned()
    }

    /// Makes the terminal that large.
    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        let count = |count: u16| NonZeroU16::new(count).expect("it has a size");
        let mut seen = self.seen.lock().expect("nobody panics with it");
        seen.emulator.set_size(count(rows), count(columns));
        self.master.resize(size(columns, rows)).expect("it can be resized");
    }

    /// Waits for the program's end; its exit code.
    pub(crate) async fn wait_for_exit(&mut self) -> u32 {
        let ends = async {
            loop {
                if let Some(status) = self.child.try_wait().expect("its end is known") {
                    return status.exit_code();
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        match tokio::time::timeout(TEST_TIMEOUT, ends).await {
            Ok(code) => code,
            Err(_) => panic!("it does not end:\n{}", self.screen()),
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.child.kill().unwrap_or_default();
    }
}
