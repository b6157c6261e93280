//! Tests the blocks of the tour (docs/tour.md) in the shells that it names, with a live server.
//!
//! Each test runs `tests/tour/run.mjs` with node. Run `scripts/test-deps.sh` first.

#[path = "support/node_script.rs"]
mod node_script;

use node_script::run_node_script;

/// Runs the blocks of the tour in `shell` and asserts that they print what the page shows.
fn run_tour(shell: &str) {
    run_node_script("tests/tour/run.mjs", shell, "test result: ok.");
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
