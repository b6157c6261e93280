//! Runs a test script with node and checks its last line.

use std::{path::Path, process::Command};

/// Runs `script`, a path below the repository, with one argument and the path of the server's binary
/// in `GREENROOM_BINARY`. Asserts that it succeeds and prints `expected`. The panic message contains
/// its output.
pub(crate) fn run_node_script(script: &str, argument: &str, expected: &str) {
    let output = Command::new("node")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(script))
        .arg(argument)
        .env("GREENROOM_BINARY", env!("CARGO_BIN_EXE_greenroom"))
        .output()
        .expect("node starts");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stdout.contains(expected), "{stdout}{stderr}");
}
