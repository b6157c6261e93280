//! `greenroom eval` with the market's cases and with cases that fail (C6).

use crate::harness::{market_binary, run};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn repository_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs `greenroom eval` with the tour's configuration in a temporary folder.
async fn run_eval(cases: &Path, extra_args: &[&str]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let configuration = repository_root().join("examples/greenroom.toml");
    let market = market_binary();
    let text = |path: &Path| path.display().to_string();
    let (cases, configuration, market) = (text(cases), text(&configuration), text(&market));
    let args = [&["eval", &cases, "--config", &configuration], extra_args].concat();
    let output = run(folder.path(), &args, &[("MARKET_COMMAND", &market)]).await;
    let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert!(files.is_empty(), "the command leaves no files behind: {files:?}");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

#[actix_web::test]
async fn c6_market_cases_pass() {
    let cases = repository_root().join("examples/evaluation/market.toml");
    let (code, output) = run_eval(&cases, &[]).await;
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("12 of 12 cases passed"), "{output}");
    assert!(output.contains("ask market_order_create"), "{output}");
}

#[actix_web::test]
async fn c6_failed_expectations_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let file: PathBuf = folder.path().join("cases.toml");
    let cases = r#"
[environment]
MARKET_FILE = "{folder}/market.jsonl"
[[case]]
name = "transfers money"
message = "Transfer 100M ISK to character XYZ"
calls = [{ tool = "wallet_transfer", decision = "allow", end = "completed" }]
[[case]]
name = "says hello"
message = "hello"
text.contains = ["nonsense"]
"#;
    std::fs::write(&file, cases).unwrap();
    let (code, output) = run_eval(&file, &[]).await;
    assert_eq!(code, Some(1), "{output}");
    for text in ["0 of 2 cases passed", "expected decision allow, got deny", "does not contain"] {
        assert!(output.contains(text), "{text:?} is not in\n{output}");
    }
    let (code, output) = run_eval(&file, &["--json", "--only", "money"]).await;
    assert_eq!(code, Some(1), "{output}");
    let report: Value =
        serde_json::from_str(&output).unwrap_or_else(|error| panic!("{error}: {output}"));
    assert_eq!(report["cases"][0]["calls"][0]["decision"], "deny");
    assert_eq!((&report["passed"], &report["failed"]), (&Value::from(0), &Value::from(1)));
    std::fs::write(&file, "[[case]]\nname = 'a'\nmessage = 'b'").unwrap();
    let (code, output) = run_eval(&file, &[]).await;
    assert_eq!(code, Some(2), "{output}");
    assert!(output.contains("no expectation"), "{output}");
}
