//! Messages and runs: messages during a run, repetition, cancellation, disconnects, and the answer
//! as a single response (S4–S6).

use crate::{
    harness::{TestServer, TestServerBuilder, send},
    scripts::{ORDER, STALLED_TEXT, STALLS_ONCE, STORY, tool_call_script},
    stream::{
        format_frames, frames_of_kind, kinds, kinds_of, last_message_text, single_frame,
        streamed_text,
    },
};
use greenroom::rehearsal::ProviderProtocol;
use reqwest::Method;
use serde_json::{Value, json};

on_both_wires!(
    s6_cancel_from_another_client_keeps_the_text,
    s4_message_is_queued_during_a_run,
    s4_message_can_interrupt_the_run,
    s4_steering_message_is_delivered_after_the_decision,
    s5_repeated_message_starts_no_run,
    chat_endpoint_returns_the_complete_answer,
);

async fn cancel(server: &TestServer, session: &str) {
    let path = format!("/agent/session/{session}/cancel");
    server.post(&path, json!({})).await.expect_ok();
}

async fn s6_cancel_from_another_client_keeps_the_text(wire: ProviderProtocol) {
    let server = TestServerBuilder::with_script(wire, STALLS_ONCE).start().await;
    let session = server.create_session_at(1).await;
    let mut stream = server.chat(&session, "stall").await;
    let received = streamed_text(&stream.read_text(20).await);
    // The cancel request names the session, but not the run.
    cancel(&server, &session).await;
    let rest = stream.read_to_end().await;
    let stopped = &single_frame(&rest, "message_completed").data;
    assert_eq!(stopped["stopped"], true);
    let stopped_text = stopped["text"].as_str().unwrap();
    assert!(
        stopped_text.starts_with(&received) && STALLED_TEXT.starts_with(stopped_text),
        "{received:?}, {stopped_text:?}"
    );
    let done = &single_frame(&rest, "done").data;
    assert_eq!(done["outcome"], "cancelled");
    // G6: the output tokens are counted, although the provider reported no usage.
    let tokens = done["usage"]["output_tokens"].as_u64().unwrap();
    assert!(tokens >= stopped_text.len() as u64 / 3, "{tokens} for {stopped_text:?}");
    let messages = server.get(&format!("/agent/session/{session}/messages")).await.expect_ok();
    assert_eq!(messages["messages"][1]["content"], stopped_text);
    assert_eq!(messages["messages"][1]["stopped"], true);
    // No run is left to cancel, and the session stays usable.
    let path = format!("/agent/session/{session}/cancel");
    server.post(&path, json!({})).await.expect_problem(409, "no_run");
    assert_eq!(last_message_text(&server.chat_to_end(&session, "again").await), "Here I am.");
    // The next model request contains only the text received before the cancellation.
    let request = server.rehearsal.requests().pop().unwrap().body.to_string();
    let has_rest = request.contains("second half of it.");
    assert!(request.contains(stopped_text.trim_end()) && !has_rest, "{request}");
}

async fn s4_message_is_queued_during_a_run(wire: ProviderProtocol) {
    let server = TestServerBuilder::with_script(wire, STALLS_ONCE).start().await;
    let session = server.create_session_at(1).await;
    let mut first = server.chat(&session, "stall").await;
    first.read_text(10).await;
    let mut second = server.chat(&session, "again").await;
    let queued = second.next().await.unwrap();
    assert_eq!(queued.kind(), "message_queued", "{queued:?}");
    assert_eq!(queued.data["delivery"], "next_run");
    let busy = json!({"session_id": session, "message": "again", "on_busy": "reject"});
    let busy = server.post("/agent/chat/stream", busy).await.expect_problem(409, "session_busy");
    assert!(busy["run_id"].is_string());
    let messages = server.get(&format!("/agent/session/{session}/messages")).await.expect_ok();
    assert_eq!(messages["queued"][0]["content"], "again");
    cancel(&server, &session).await;
    assert_eq!(single_frame(&first.read_to_end().await, "done").data["outcome"], "cancelled");
    let rest = second.read_to_end().await;
    assert_eq!(kinds_of(&rest, &["message_accepted", "run_started", "text", "done"]).len(), 4);
    assert_eq!(last_message_text(&rest), "Here I am.");
}

async fn s4_message_can_interrupt_the_run(wire: ProviderProtocol) {
    let server = TestServerBuilder::with_script(wire, STALLS_ONCE).start().await;
    let session = server.create_session_at(1).await;
    let mut first = server.chat(&session, "stall").await;
    first.read_text(10).await;
    let body = json!({"session_id": session, "message": "again", "on_busy": "interrupt"});
    let second = server.chat_with(body).await.read_to_end().await;
    assert_eq!(last_message_text(&second), "Here I am.");
    let first = first.read_to_end().await;
    assert_eq!(single_frame(&first, "done").data["outcome"], "cancelled");
    assert_eq!(single_frame(&first, "message_completed").data["stopped"], true);
}

async fn s4_steering_message_is_delivered_after_the_decision(wire: ProviderProtocol) {
    let steered = r#"
[[rule]]
user = "only ten"
[[rule.reply]]
text = "As you say."
"#;
    let script = format!("{}{steered}", tool_call_script("market_order_create", ORDER));
    let server = TestServerBuilder::with_script(wire, &script).start().await;
    let session = server.create_session_at(1).await;
    let mut run = server.chat(&session, "go").await;
    let frames = run.read_until("waiting_for_approval").await;
    let body = json!({"session_id": session, "message": "only ten please", "on_busy": "steer"});
    let mut steering = server.chat_with(body).await;
    let queued = steering.next().await.unwrap();
    assert_eq!((queued.kind(), queued.text("delivery")), ("message_queued", "after_decision"));
    let plan_id = &frames.last().unwrap().data["plan_id"];
    let body = json!({"session_id": session, "plan_id": plan_id});
    server.post("/agent/execute", body).await.expect_ok();
    let rest = run.read_to_end().await;
    assert_eq!(last_message_text(&rest), "As you say.", "{}", format_frames(&rest));
    assert_eq!(frames_of_kind(&rest, "run_started").len(), 0, "the same run continues");
    steering.read_until("done").await;
    assert_eq!(server.rehearsal.requests().len(), 2, "one model call per step");
    assert_eq!(server.effects().len(), 1);
}

async fn s5_repeated_message_starts_no_run(wire: ProviderProtocol) {
    let server = TestServerBuilder::with_script(wire, STORY).start().await;
    let session = server.create_session_at(1).await;
    let body = json!({"session_id": session, "message": "story", "message_id": "m-1"});
    let mut first = server.chat_with(body.clone()).await;
    first.read_text(10).await;
    // Repeats the message during the run and after it.
    let during = server.chat_with(body.clone()).await.read_to_end().await;
    first.read_to_end().await;
    let after = server.chat_with(body).await.read_to_end().await;
    assert_eq!(kinds(&during), kinds(&after));
    assert_eq!(last_message_text(&during), last_message_text(&after));
    assert_eq!(
        streamed_text(&after),
        last_message_text(&after),
        "a finished message is streamed again"
    );
    // The `Idempotency-Key` header is equivalent to `message_id`.
    let body = json!({"session_id": session, "message": "story"});
    let request = server.request(Method::POST, "/agent/chat").header("idempotency-key", "m-1");
    let collected = send(request.json(&body)).await.expect_ok();
    assert_eq!(collected["response"], last_message_text(&after));
    assert_eq!(collected["run_id"], after[0].data["run_id"]);
    assert_eq!(server.rehearsal.requests().len(), 1);
    let other = json!({"session_id": session, "message": "another", "message_id": "m-1"});
    server.post("/agent/chat/stream", other.clone()).await.expect_problem(422, "message_id_reused");
    server.post("/agent/chat", other).await.expect_problem(422, "message_id_reused");
    let runs = server.events(&session).await;
    assert_eq!(runs.iter().filter(|event| event["type"] == "run_started").count(), 1);
}

#[actix_web::test]
async fn s6_disconnect_does_not_cancel_the_run() {
    let server = TestServerBuilder::with_script(ProviderProtocol::Anthropic, STORY).start().await;
    let session = server.create_session_at(1).await;
    let mut stream = server.chat(&session, "tell me a story").await;
    stream.read_text(10).await;
    drop(stream);
    let all = server.wait_for_event(&session, "done").await;
    assert_eq!(single_frame(&all, "done").data["outcome"], "completed");
    assert!(last_message_text(&all).contains("number 11"), "{}", last_message_text(&all));
}

async fn chat_endpoint_returns_the_complete_answer(wire: ProviderProtocol) {
    let server = TestServerBuilder::tour(wire).start().await;
    let message = "What is the current sell price of Tritanium in Jita?";
    let done = server.post("/agent/chat", json!({"message": message, "character_id": 7})).await;
    let done = done.expect_ok();
    assert!(done["response"].as_str().unwrap().contains("**4.12 ISK**"), "{done}");
    assert_eq!((&done["iterations"], &done["outcome"]), (&json!(2), &json!("completed")));
    let call = &done["tool_results"][0];
    assert_eq!((&call["tool"], &call["iteration"]), (&json!("get_market_stats"), &json!(1)));
    assert_eq!(call["result"]["lowest_sell"], 4.12);
    assert_eq!(call["input"]["type_id"], 34);

    let session = done["session_id"].clone();
    let body = json!({"message": "Buy 1000 Tritanium at market price", "session_id": session});
    let paused = server.post("/agent/chat", body.clone()).await;
    assert_eq!(paused.status, 202, "{}", paused.body);
    assert_eq!(paused.body["outcome"], "waiting_for_approval");
    assert_eq!(paused.body["plan"]["steps"][0]["tool"], "market_order_create");
    assert_eq!(paused.body["plan_id"], paused.body["plan"]["plan_id"]);
    cancel(&server, session.as_str().unwrap()).await;

    let denied = json!({"message": "Transfer 100M ISK to character XYZ", "session_id": session});
    let denied = server.post("/agent/chat", denied).await.expect_ok();
    assert_eq!(denied["tool_results"][0]["blocked_by"], "authorization", "{denied}");
    assert!(denied["tool_results"][0]["error"].as_str().unwrap().contains("ASSISTED (L2)"));
    assert_eq!(server.effects(), Vec::<Value>::new());
}

#[actix_web::test]
async fn s1_sessions_are_listed_read_renamed_and_closed() {
    let server =
        TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE).start().await;
    let mut ids = Vec::new();
    for number in 0..5 {
        ids.push(server.create_session(json!({"title": format!("no. {number}")})).await);
    }
    let (mut listed, mut path) = (Vec::new(), "/agent/session?limit=2".to_owned());
    loop {
        let page = server.get(&path).await.expect_ok();
        let sessions = page["sessions"].as_array().unwrap();
        assert!(sessions.len() <= 2);
        listed.extend(sessions.iter().map(|row| row["session_id"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/agent/session?limit=2&before={next}");
    }
    ids.reverse();
    assert_eq!(listed, ids, "newest first, each once");
    let path = format!("/agent/session/{}", ids[0]);
    let patched =
        server.patch(&format!("{path}/settings"), json!({"title": "renamed"})).await.expect_ok();
    assert_eq!(patched["title"], "renamed");
    server.chat_to_end(&ids[0], "again").await;
    server.delete(&path).await.expect_ok();
    let closed = server.get(&path).await.expect_ok();
    assert_eq!(closed["status"], "closed");
    let late_message = json!({"session_id": ids[0], "message": "again"});
    server.post("/agent/chat", late_message).await.expect_problem(409, "session_closed");
    let messages = server.get(&format!("{path}/messages")).await.expect_ok();
    assert_eq!(messages["messages"][1]["content"], "Here I am.");
}

#[actix_web::test]
async fn x4_queues_runs_and_sessions_are_limited() {
    let limits =
        "[limits]\nqueued_messages = 1\nrunning_runs_per_user = 1\nopen_sessions_per_user = 2";
    let server = TestServerBuilder::with_script(ProviderProtocol::Anthropic, STALLS_ONCE)
        .with_config(limits)
        .start()
        .await;
    let session = server.create_session_at(1).await;
    let other = server.create_session_at(1).await;
    let full = server.post("/agent/session", json!({})).await;
    full.expect_problem(429, "too_many_sessions");
    let mut first = server.chat(&session, "stall").await;
    first.read_text(10).await;
    let body = |session: &str| json!({"session_id": session, "message": "again"});
    server.post("/agent/chat", body(&other)).await.expect_problem(429, "too_many_runs");
    let mut second = server.chat_with(body(&session)).await;
    second.next().await;
    server.post("/agent/chat", body(&session)).await.expect_problem(429, "queue_full");
    cancel(&server, &session).await;
    assert_eq!(last_message_text(&second.read_to_end().await), "Here I am.");
}
