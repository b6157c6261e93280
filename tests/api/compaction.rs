//! Repeated compaction of a long conversation (C4). The scripted model rejects requests that a
//! provider would reject, such as a call without its result.

use crate::{
    harness::{TestServer, TestServerBuilder},
    scripts::tool_call_script,
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};

on_both_wires!(c4_200_turns_are_compacted_and_every_request_is_valid);

const TURNS: usize = 200;

/// A script that answers requests for a summary.
const SUMMARY_SCRIPT: &str = r#"
[[rule]]
user = '<conversation>'
[[rule.reply]]
text = "The fleet is doing well, and Zoë wants Tritanium."
"#;

async fn c4_200_turns_are_compacted_and_every_request_is_valid(wire: ProviderProtocol) {
    let price = tool_call_script("get_price", "{ type_id = 34, region_id = 10000002 }");
    let server = TestServerBuilder::with_script(wire, &format!("{SUMMARY_SCRIPT}{price}"))
        .with_model_config("context_tokens = 6000")
        .with_agent_config("max_tokens = 512\ntools = ['get_price']")
        .start()
        .await;
    let session = server.create_session_at(1).await;
    for turn in 1..=TURNS {
        let message = format!("go on with turn {turn}: what does Tritanium cost in Jita now?");
        let body = json!({"session_id": session, "message": message});
        let response = server.post("/agent/chat", body).await.expect_ok();
        assert_eq!(response["outcome"], "completed", "turn {turn}: {response}");
        assert_eq!(response["tool_results"].as_array().map(Vec::len), Some(1), "{response}");
    }
    let summarised = summarised_counts(&server, &session).await;
    assert!(summarised.len() >= 2, "{summarised:?}");
    assert!(summarised.is_sorted(), "each summary covers more messages: {summarised:?}");

    // Requests contain the summary instead of the first turns, and the last turns.
    let requests = server.rehearsal.requests();
    let last = requests.last().unwrap().body.to_string();
    let has = |text: &str| last.contains(text);
    assert!(has("Zoë wants Tritanium") && has(&format!("turn {TURNS}:")) && !has("turn 1:"));
    let messages = |body: &Value| body["messages"].as_array().unwrap().len();
    let longest = requests.iter().map(|request| messages(&request.body)).max().unwrap();
    assert!(longest < TURNS, "{longest} messages in one request");

    // The context of the last step can be read, and the log still has all messages.
    let context = server.get(&format!("/agent/session/{session}/context?step=2")).await.expect_ok();
    let sections = context["sections"].as_array().unwrap();
    let conversation = sections.iter().find(|row| row["name"] == "conversation").unwrap();
    assert_eq!(conversation["summarised"].as_u64(), summarised.last().copied(), "{context}");
    assert!(context["tokens"].as_u64() < context["window_tokens"].as_u64(), "{context}");
    let first = server.get(&format!("/agent/session/{session}/messages?limit=1")).await.expect_ok();
    assert!(first["messages"][0]["content"].as_str().unwrap().contains("turn 1:"));
}

/// Returns the number of messages covered by each summary. Fails if a step was retried or failed.
async fn summarised_counts(server: &TestServer, session: &str) -> Vec<u64> {
    let events = server.events(session).await;
    for kind in ["step_retrying", "step_model_fallback", "context_compaction_failed", "error"] {
        let event = events.iter().find(|event| event["type"] == kind);
        assert!(event.is_none(), "{event:?}");
    }
    let compacted = events.iter().filter(|event| event["type"] == "context_compacted");
    compacted.map(|event| event["through"].as_u64().unwrap()).collect()
}
