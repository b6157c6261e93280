//! Tests the tour in `docs/governance.md`: runs every block of commands in one shell, against the
//! real binary with the example's configuration, and checks that the output contains the lines
//! printed below each block.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

const TOKEN: &str = "the-token-of-the-tour-0123456789";

/// A block of commands, and the lines that its output must contain, in order.
#[derive(Debug, Default)]
struct TourBlock {
    commands: String,
    expected: Vec<String>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the blocks of the section "The tour".
fn parse_blocks(page: &str) -> Vec<TourBlock> {
    let tour = page.split("\n## The tour\n").nth(1).expect("the page has a tour");
    let tour = tour.split("\n## ").next().unwrap_or_default();
    let mut blocks: Vec<TourBlock> = Vec::new();
    let mut fence = None;
    for line in tour.lines() {
        match (fence, line) {
            (None, "```sh") => {
                blocks.push(TourBlock::default());
                fence = Some("sh");
            }
            (None, "```text") => fence = Some("text"),
            (Some(_), "```") => fence = None,
            (Some("sh"), _) => {
                let block = blocks.last_mut().unwrap();
                block.commands.push_str(line);
                block.commands.push('\n');
            }
            (Some(_), _) => blocks.last_mut().unwrap().expected.push(line.to_owned()),
            (None, _) => {}
        }
    }
    blocks
}

/// A running server, killed on drop.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn binary() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_greenroom"))
}

/// Starts the server of the example in `folder` and returns it with its address.
fn start_server(folder: &Path) -> (Server, String) {
    let mut child = Command::new(binary())
        .args(["serve", "--config"])
        .arg(root().join("examples/greenroom.toml"))
        .current_dir(folder)
        .env_remove("ANTHROPIC_API_KEY")
        .env_remove("OPENAI_API_KEY")
        .env("MARKET_COMMAND", binary().with_file_name("greenroom-market"))
        .env("GREENROOM_LISTEN", "127.0.0.1:0")
        .env("GREENROOM_TOKEN", TOKEN)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let address = lines.find_map(|line| {
        let line = line.unwrap();
        let start = line.find("http://127.0.0.1:")? + "http://".len();
        let rest = &line[start..];
        let end = rest.find(|c: char| c != '.' && c != ':' && !c.is_ascii_digit());
        Some(rest[..end.unwrap_or(rest.len())].to_owned())
    });
    // The server blocks when nothing reads its output.
    std::thread::spawn(move || lines.for_each(drop));
    (Server(child), address.expect("the server prints its address"))
}

#[test]
fn g1_to_g16_governance_tour_prints_documented_output() {
    let page = std::fs::read_to_string(root().join("docs/governance.md")).unwrap();
    let blocks = parse_blocks(&page);
    assert!(blocks.len() >= 8, "blocks are missing: {blocks:?}");
    let folder = tempfile::tempdir().unwrap();
    let (_server, address) = start_server(folder.path());

    // All blocks run in one shell, because later blocks use variables of earlier ones.
    let mut script = "set -euo pipefail\n".to_owned();
    for (number, block) in (1..).zip(&blocks) {
        script.push_str(&format!("echo '=== block {number}'\n{}", block.commands));
    }
    script.push_str("echo '=== end'\n");
    let path =
        format!("{}:{}", binary().parent().unwrap().display(), std::env::var("PATH").unwrap());
    let file = folder.path().join("tour.sh");
    std::fs::write(&file, script).unwrap();
    let shell = Command::new("bash")
        .arg(&file)
        .current_dir(folder.path())
        .env("PATH", path)
        .env("URL", format!("http://{address}"))
        .env("GREENROOM_LISTEN", &address)
        .env("GREENROOM_TOKEN", TOKEN)
        .env("GREENROOM_CONFIG", root().join("examples/greenroom.toml"))
        .env("MARKET_COMMAND", binary().with_file_name("greenroom-market"))
        .stdin(Stdio::null())
        .output();
    let output = shell.unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let log = format!("{stdout}\n--- on standard error\n{stderr}");
    assert!(output.status.success() && stdout.contains("=== end"), "{log}");
    let parts: Vec<_> = stdout.split("=== ").skip(1).collect();
    for (block, part) in blocks.iter().zip(parts) {
        let mut rest = part;
        for line in &block.expected {
            let start = rest
                .find(line.as_str())
                .unwrap_or_else(|| panic!("no {line:?} in:\n{part}\n{log}"));
            rest = &rest[start + line.len()..];
        }
    }
}
