//! The gateway's frames against schemas that are not ours: a suite in TypeScript, with Zod and a
//! WebSocket client of its own, talks with the live server and reads the frames on file.

use crate::harness::{TEST_TIMEOUT, TOKEN, TestServerBuilder};
use greenroom::rehearsal::ProviderProtocol;
use std::path::Path;
use tokio::process::Command;

async fn run(command: &mut Command) -> String {
    let ends = command.kill_on_drop(true).output();
    let output = tokio::time::timeout(TEST_TIMEOUT, ends).await.expect("it ends");
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {out}\n{err}");
    out
}

#[actix_web::test]
async fn e1_a_schema_suite_agrees_with_the_live_gateway() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let suite = root.join("tests/gateway-zod");
    let tsc = suite.join("node_modules/.bin/tsc");
    assert!(tsc.exists(), "{} is missing: run scripts/test-deps.sh", tsc.display());
    run(Command::new(tsc).current_dir(&suite).args(["--project", "."])).await;

    let house = TestServerBuilder::tour(ProviderProtocol::Anthropic).start().await;
    let url = format!("{}/gateway", house.url().replacen("http", "ws", 1));
    let mut node = Command::new("node");
    node.current_dir(&suite).args(["dist/main.js", &url, TOKEN]);
    for name in ["gateway", "gateway-details", "gateway-approvals"] {
        node.arg(root.join("src/dialect/snapshots").join(name).with_extension("jsonl"));
    }
    let told = run(&mut node).await;
    let told: serde_json::Value = serde_json::from_str(&told).expect("it prints JSON");
    assert_eq!(told["types"].as_array().unwrap().len(), 10, "{told}");
}
