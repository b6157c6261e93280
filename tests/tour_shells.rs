//! Tests the blocks of the tour (docs/tour.md) in the shells that it names, with a live server.
//!
//! Each test runs `tests/tour/run.mjs` with node. Run `scripts/test-deps.sh` first.

use std::{path::Path, process::Command};

/// Runs the blocks of the tour in `shell` and asserts that they print what the page shows. The panic
/// message contains the output of the block that differs.
fn run_tour(shell: &str) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tour/run.mjs");
    let output = Command::new("node")
        .arg(script)
        .arg(shell)
        .env("GREENROOM_BINARY", env!("CARGO_BIN_EXE_greenroom"))
        .output()
        .expect("node starts");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stdout.contains("test result: ok."), "{stdout}{stderr}");
}

/// The `sh` of Debian.
#[test]
fn t7_tour_prints_what_its_page_shows_in_dash() {
    run_tour("dash");
}

#[test]
fn t7_tour_prints_what_its_page_shows_in_bash() {
    run_tour("bash");
}

#[test]
fn t7_tour_prints_what_its_page_shows_in_zsh() {
    run_tour("zsh");
}
