//! The tour in `docs/governance.md`, as a reader would follow it: every block of commands in one
//! shell, against the real binary with the example's configuration, and what is printed below a
//! block is looked for in its output.
#![allow(clippy::unwrap_used, reason = "a failed step of a test is its verdict")]

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

const TOKEN: &str = "the-token-of-the-tour-0123456789";

/// A block of commands, and the lines that must be found in what it prints, in order.
#[derive(Debug, Default)]
struct TourBlock {
    commands: String,
    expected: Vec<String>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The stops of the page's tour.
fn parse_blocks(page: &str) -> Vec<TourBlock> {
    let tour = page.split("\n## The tour\n").nth(1).expect("the page has a tour");
    let tour = tour.split("\n## ").next().unwrap_or_default();
    let mut stops: Vec<TourBlock> = Vec::new();
    let mut block = None;
    for line in tour.lines() {
        match (block, line) {
            (None, "```sh") => {
                stops.push(TourBlock::default());
                block = Some("sh");
            }
            (None, "```text") => block = Some("text"),
            (Some(_), "```") => block = None,
            (Some("sh"), _) => {
                let stop = stops.last_mut().unwrap();
                stop.commands.push_str(line);
                stop.commands.push('\n');
            }
            (Some(_), _) => stops.last_mut().unwrap().expected.push(line.to_owned()),
            (None, _) => {}
        }
    }
    stops
}

/// A running server; dropping it kills it.
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

/// The example's server in `folder`, and its address.
fn serve(folder: &Path) -> (Server, String) {
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
    // What it prints later must have somewhere to go.
    std::thread::spawn(move || lines.for_each(drop));
    (Server(child), address.expect("the server says where it listens"))
}

#[test]
fn g1_to_g16_the_tour_of_governance_does_what_it_says() {
    let page = std::fs::read_to_string(root().join("docs/governance.md")).unwrap();
    let stops = parse_blocks(&page);
    assert!(stops.len() >= 8, "the tour has lost its stops: {stops:?}");
    let folder = tempfile::tempdir().unwrap();
    let (_server, address) = serve(folder.path());

    // One shell for all: what a block defines, the next ones use.
    let mut script = "set -euo pipefail\n".to_owned();
    for (number, stop) in (1..).zip(&stops) {
        script.push_str(&format!("echo '=== stop {number}'\n{}", stop.commands));
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
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let told =
        format!("{printed}\n--- on standard error\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && printed.contains("=== end"), "{told}");
    let parts: Vec<_> = printed.split("=== ").skip(1).collect();
    for (stop, part) in stops.iter().zip(parts) {
        let mut rest = part;
        for line in &stop.expected {
            let at = rest
                .find(line.as_str())
                .unwrap_or_else(|| panic!("no {line:?} in:\n{part}\n{told}"));
            rest = &rest[at + line.len()..];
        }
    }
}
