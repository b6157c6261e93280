//! Validates the gateway's frames with independent schemas: a TypeScript suite with Zod and its own
//! WebSocket client talks to the live server and reads the snapshot frames.

use crate::harness::{TEST_TIMEOUT, TOKEN, TestServerBuilder};
use greenroom::rehearsal::ProviderProtocol;
use std::path::{Path, PathBuf};
use tokio::process::Command;

/// Runs a command and returns its output. Fails if the command fails.
pub(crate) async fn run(command: &mut Command) -> String {
    let output = command.kill_on_drop(true).output();
    let output = tokio::time::timeout(TEST_TIMEOUT, output).await.expect("the command exits");
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {stdout}\n{stderr}");
    stdout
}

/// Compiles the suite and returns its folder. `output` is the folder of the compiled files.
pub(crate) async fn compile_suite(output: &str) -> PathBuf {
    let suite = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gateway-zod");
    let tsc = suite.join("node_modules/.bin/tsc");
    assert!(tsc.exists(), "{} is missing: run scripts/test-deps.sh", tsc.display());
    let mut compile = Command::new(tsc);
    compile.current_dir(&suite).args(["--project", ".", "--outDir", output]);
    run(&mut compile).await;
    suite
}

#[actix_web::test]
async fn e1_live_gateway_matches_the_schema_suite() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let suite = compile_suite("dist").await;
    let server = TestServerBuilder::tour(ProviderProtocol::Anthropic).start().await;
    let url = format!("{}/gateway", server.url().replacen("http", "ws", 1));
    let mut node = Command::new("node");
    node.current_dir(&suite).args(["dist/main.js", &url, TOKEN]);
    for name in ["gateway", "gateway-details", "gateway-approvals"] {
        node.arg(root.join("src/dialect/snapshots").join(name).with_extension("jsonl"));
    }
    let report = run(&mut node).await;
    let report: serde_json::Value = serde_json::from_str(&report).expect("the suite prints JSON");
    assert_eq!(report["types"].as_array().unwrap().len(), 10, "{report}");
}
