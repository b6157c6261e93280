//! Forks of a session at any of its events (S1).

use crate::{
    harness::{TestServer, TestServerBuilder},
    scripts::{ORDER, tool_call_script},
    stream::{frames_of_kind, last_message_text, single_frame},
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};

on_both_wires!(s1_fork_continues_while_the_original_waits_for_approval,);

async fn fork(server: &TestServer, session: &str, body: Value) -> Value {
    server.post(&format!("/agent/session/{session}/fork"), body).await.expect_ok()
}

async fn s1_fork_continues_while_the_original_waits_for_approval(wire: ProviderProtocol) {
    let mut server =
        TestServerBuilder::with_script(wire, &tool_call_script("market_order_create", ORDER))
            .start()
            .await;
    let session = server.create_session(json!({"autonomy_level": 1, "title": "Ore"})).await;
    let mut stream = server.chat(&session, "go").await;
    let frames = stream.read_until("waiting_for_approval").await;
    let plan = frames.last().unwrap().data["plan"].clone();

    let forked = fork(&server, &session, json!({})).await;
    let other = forked["session_id"].as_str().unwrap().to_owned();
    assert_eq!((&forked["title"], &forked["status"]), (&json!("Ore"), &json!("idle")));
    let first = server.events(&other).await[0].clone();
    assert_eq!(
        (&first["type"], &first["seq"], &first["from"]),
        (&json!("session_forked"), &json!(1), &json!(session))
    );
    let waiting = server.get(&format!("/agent/approvals?session_id={other}")).await.expect_ok();
    assert_eq!(waiting["approvals"], json!([]), "approvals are not copied");

    // In the fork, the open call is reported as cancelled to clients and to the model.
    let messages = server.get(&format!("/agent/session/{other}/messages")).await.expect_ok();
    let call = &messages["messages"][1]["metadata"]["tool_calls"][0];
    assert_eq!((&call["tool"], &call["status"]), (&json!("market_order_create"), &json!("failed")));
    assert!(call["error"].as_str().unwrap().starts_with("Cancelled"), "{call}");
    server.kill_and_restart().await;
    assert_eq!(last_message_text(&server.chat_to_end(&other, "again").await), "Here I am.");

    // Approving the original's plan runs the call once, in the original only.
    let path = format!("/agent/approvals/{}", plan["plan_id"].as_str().unwrap());
    server.post(&path, json!({"decision": "approve"})).await.expect_ok();
    let all = server.wait_for_event(&session, "done").await;
    assert_eq!(frames_of_kind(&all, "tool_call_completed").len(), 1);
    assert_eq!(server.effects().len(), 1);
    let fork_events = server.wait_for_event(&other, "done").await;
    assert!(frames_of_kind(&fork_events, "tool_call_attempt_started").is_empty());
}

#[actix_web::test]
async fn s1_session_can_be_forked_at_each_event() {
    let server = TestServerBuilder::with_script(
        ProviderProtocol::OpenAi,
        &tool_call_script("get_item_info", "{ type_id = 34 }"),
    )
    .start()
    .await;
    let session = server.create_session_at(1).await;
    server.chat_to_end(&session, "go").await;
    let events = server.events(&session).await;
    let mut counts = Vec::new();
    for event in &events {
        let forked = fork(&server, &session, json!({"at_seq": event["seq"]})).await;
        let other = forked["session_id"].as_str().unwrap();
        let messages = server.get(&format!("/agent/session/{other}/messages")).await.expect_ok();
        counts.push(messages["messages"].as_array().unwrap().len());
        let frames = server.chat_to_end(other, "again").await;
        let outcome = &single_frame(&frames, "done").data["outcome"];
        assert_eq!(outcome, "completed", "at {}", event["seq"]);
    }
    assert!(counts.is_sorted() && counts[0] == 0 && *counts.last().unwrap() == 3, "{counts:?}");
    // Pages contain the copied messages and those sent in the fork.
    let forked = fork(&server, &session, json!({})).await;
    let other = forked["session_id"].as_str().unwrap();
    server.chat_to_end(other, "again").await;
    let path = format!("/agent/session/{other}/messages");
    let whole = server.get(&path).await.expect_ok()["messages"].clone();
    assert_eq!(whole.as_array().unwrap().len(), 5);
    for limit in 1..=5 {
        let (mut paged, mut after) = (Vec::new(), "0".to_owned());
        loop {
            let page = server.get(&format!("{path}?limit={limit}&after={after}")).await.expect_ok();
            let messages = page["messages"].as_array().unwrap();
            assert!(messages.len() <= limit && !messages.is_empty(), "{page}");
            paged.extend(messages.clone());
            let Some(next) = page["next"].as_str() else { break };
            after = next.to_owned();
        }
        assert_eq!(json!(paged), whole, "{limit} at a time");
    }
    let path = format!("/agent/session/{session}/fork");
    for at_seq in [json!(0), json!(events.len() + 1), json!("x")] {
        server.post(&path, json!({"at_seq": at_seq})).await.expect_problem(422, "invalid_request");
    }
    // A fork of a fork of a closed session.
    server.delete(&format!("/agent/session/{session}")).await.expect_ok();
    let forked = fork(&server, &session, json!({"title": "Second"})).await;
    let second_fork = fork(&server, forked["session_id"].as_str().unwrap(), json!({})).await;
    assert_eq!(second_fork["title"], "Second");
    let all = server.chat_to_end(second_fork["session_id"].as_str().unwrap(), "again").await;
    assert_eq!(single_frame(&all, "done").data["outcome"], "completed");
}
