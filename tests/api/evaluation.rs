//! `greenroom eval` with the cases of the market, and with cases that are not as expected (C6).

use crate::harness::{market_binary, run};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs it with the tour's configuration in a folder of its own.
async fn run_eval(cases: &Path, more: &[&str]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let (configuration, market) = (root().join("examples/greenroom.toml"), market_binary());
    let text = |path: &Path| path.display().to_string();
    let (cases, configuration, market) = (text(cases), text(&configuration), text(&market));
    let args = [&["eval", &cases, "--config", &configuration], more].concat();
    let output = run(folder.path(), &args, &[("MARKET_COMMAND", &market)]).await;
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert!(left.is_empty(), "it leaves nothing behind: {left:?}");
    let told = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), told(&output.stdout) + &told(&output.stderr))
}

#[actix_web::test]
async fn c6_the_market_s_cases_are_as_expected() {
    let (code, told) = run_eval(&root().join("examples/evaluation/market.toml"), &[]).await;
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("12 of 12 cases passed"), "{told}");
    assert!(told.contains("ask market_order_create"), "{told}");
}

#[actix_web::test]
async fn c6_what_is_not_as_expected_is_named_and_fails() {
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
    let (code, told) = run_eval(&file, &[]).await;
    assert_eq!(code, Some(1), "{told}");
    for words in ["0 of 2 cases passed", "expected decision allow, got deny", "does not contain"] {
        assert!(told.contains(words), "{words:?} is not in\n{told}");
    }
    let (code, told) = run_eval(&file, &["--json", "--only", "money"]).await;
    assert_eq!(code, Some(1), "{told}");
    let told: Value = serde_json::from_str(&told).unwrap_or_else(|error| panic!("{error}: {told}"));
    assert_eq!(told["cases"][0]["calls"][0]["decision"], "deny");
    assert_eq!((&told["passed"], &told["failed"]), (&Value::from(0), &Value::from(1)));
    std::fs::write(&file, "[[case]]\nname = 'a'\nmessage = 'b'").unwrap();
    let (code, told) = run_eval(&file, &[]).await;
    assert_eq!(code, Some(2), "{told}");
    assert!(told.contains("no expectation"), "{told}");
}
