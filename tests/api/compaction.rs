//! A long conversation, whose older part is summarised again and again (C4). The rehearsal refuses
//! what a provider would, such as a call without its result.

use crate::{
    harness::{TestServer, TestServerBuilder},
    scripts::tool_call_script,
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};

on_both_wires!(c4_200_turns_are_compacted_and_every_request_is_valid);

const TURNS: usize = 200;

/// Who is asked for a summary says how much there was before.
const SUMMARISES: &str = r#"
[[rule]]
user = '<conversation>'
[[rule.reply]]
text = "The fleet is doing well, and Zoë wants Tritanium."
"#;

async fn c4_200_turns_are_compacted_and_every_request_is_valid(
    wire: ProviderProtocol,
) {
    let price = tool_call_script("get_price", "{ type_id = 34, region_id = 10000002 }");
    let server = TestServerBuilder::with_script(wire, &format!("{SUMMARISES}{price}"))
        .with_model_config("context_tokens = 6000")
        .with_agent_config("max_tokens = 512\ntools = ['get_price']")
        .start()
        .await;
    let session = server.create_session_at(1).await;
    for turn in 1..=TURNS {
        let message = format!("go on with turn {turn}: what does Tritanium cost in Jita now?");
        let body = json!({"session_id": session, "message": message});
        let answered = server.post("/agent/chat", body).await.expect_ok();
        assert_eq!(answered["outcome"], "completed", "turn {turn}: {answered}");
        assert_eq!(answered["tool_results"].as_array().map(Vec::len), Some(1), "{answered}");
    }
    let summarised = summaries(&server, &session).await;
    assert!(summarised.len() >= 2, "{summarised:?}");
    assert!(summarised.is_sorted(), "each stands for more: {summarised:?}");

    // The model goes on from the summary: the first turns are not told any more, the last ones are.
    let requests = server.rehearsal.requests();
    let last = requests.last().unwrap().body.to_string();
    let has = |text: &str| last.contains(text);
    assert!(has("Zoë wants Tritanium") && has(&format!("turn {TURNS}:")) && !has("turn 1:"));
    let messages = |body: &Value| body["messages"].as_array().unwrap().len();
    let longest = requests.iter().map(|request| messages(&request.body)).max().unwrap();
    assert!(longest < TURNS, "{longest} messages in one request");

    // What the last step was told can be looked at; and the log has everything.
    let told = server.get(&format!("/agent/session/{session}/context?step=2")).await.expect_ok();
    let sections = told["sections"].as_array().unwrap();
    let conversation = sections.iter().find(|it| it["name"] == "conversation").unwrap();
    assert_eq!(conversation["summarised"].as_u64(), summarised.last().copied(), "{told}");
    assert!(told["tokens"].as_u64() < told["window_tokens"].as_u64(), "{told}");
    let first = server.get(&format!("/agent/session/{session}/messages?limit=1")).await.expect_ok();
    assert!(first["messages"][0]["content"].as_str().unwrap().contains("turn 1:"));
}

/// For how many messages each summary stands. Nothing else may have happened on the way to them.
async fn summaries(server: &TestServer, session: &str) -> Vec<u64> {
    let events = server.events(session).await;
    for wrong in ["step_retrying", "step_model_fallback", "context_compaction_failed", "error"] {
        let found = events.iter().find(|event| event["type"] == wrong);
        assert!(found.is_none(), "{found:?}");
    }
    let compacted = events.iter().filter(|event| event["type"] == "context_compacted");
    compacted.map(|event| event["through"].as_u64().unwrap()).collect()
}
