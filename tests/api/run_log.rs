//! The server's log of a run is what `docs/operations.md` shows (E7).

use crate::harness::TestServerBuilder;
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};
use std::{collections::BTreeSet, path::Path};

/// A line without times, ids and texts: its level, its message and the names of its fields.
type Line = (String, String, BTreeSet<String>);

/// Parses a line as it is printed at a terminal.
fn parse_text(line: &str) -> Line {
    let mut words = line.split_whitespace().skip(1);
    let level = words.next().unwrap().to_owned();
    let (mut message, mut fields) = (Vec::new(), BTreeSet::new());
    for word in words {
        match word.split_once('=') {
            Some((name, _))
                if name.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase()) =>
            {
                fields.insert(name.to_owned());
            }
            _ if fields.is_empty() => message.push(word),
            _ => {}
        }
    }
    (level, message.join(" "), fields)
}

/// Parses a line in JSON.
fn parse_json(line: &str) -> Line {
    let line: Value = serde_json::from_str(line).expect("a log line is JSON");
    let fields = line["fields"].as_object().unwrap();
    let names = fields.keys().filter(|name| *name != "message").cloned().collect();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&line["level"]), text(&fields["message"]), names)
}

#[actix_web::test]
async fn e7_log_of_a_run_is_as_documented() {
    let server = TestServerBuilder::tour(ProviderProtocol::Anthropic).start().await;
    let session = server.create_session_at(1).await;
    let mut stream = server.chat(&session, MESSAGE).await;
    let frames = stream.read_until("waiting_for_approval").await;
    let path = format!("/agent/approvals/{}", frames.last().unwrap().text("plan_id"));
    server.post(&path, json!({"decision": "approve"})).await.expect_ok();
    stream.read_to_end().await;
    let log = std::fs::read_to_string(server.folder().join("server.log")).unwrap();
    let logged: Vec<Line> =
        log.lines().filter(|line| line.contains(&session)).map(parse_json).collect();

    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operations.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, logs) = page.split_once("## Logs").unwrap();
    let (_, block) = logs.split_once("```text\n").unwrap();
    let (block, _) = block.split_once("\n```").unwrap();
    let documented: Vec<Line> = block.lines().map(parse_text).collect();
    assert_eq!(logged, documented, "{log}");
}

/// The message of the documented run.
const MESSAGE: &str = "Buy 1000 Tritanium at market price";
