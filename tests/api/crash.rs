//! Recovery after SIGKILL at critical points (D2, D3).

use crate::{
    harness::{TestServer, TestServerBuilder},
    scripts::{ORDER, STALLED_TEXT, STALLS_ONCE, tool_call_script},
    stream::{Frame, format_frames, frames_of_kind, kinds_of, last_message_text, single_frame},
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};

on_both_wires!(
    d2_streaming_step_restarts,
    d2_queued_message_runs_after_a_crash,
    d3_non_repeatable_call_is_never_sent_twice,
    d3_retry_answer_runs_the_call_again,
    d3_failed_answer_ends_the_call_with_an_error,
    d3_repeatable_call_is_retried_with_its_idempotency_key,
);

/// Asserts that the events are numbered from 1 without a gap or a repetition.
fn assert_no_gaps(frames: &[Frame]) {
    let events = frames.iter().filter(|frame| !frame.cursor.contains('.'));
    let seqs: Vec<_> = events.map(|frame| frame.data["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "{}", format_frames(frames));
}

async fn d2_streaming_step_restarts(wire: ProviderProtocol) {
    let mut server = TestServerBuilder::with_script(wire, STALLS_ONCE).start().await;
    let session = server.create_session_at(1).await;
    let mut stream = server.chat(&session, "stall").await;
    let received = stream.read_text(10).await;
    let cursor = received.last().unwrap().cursor.clone();
    server.kill_and_restart().await;
    let all = server.wait_for_event(&session, "done").await;
    assert_no_gaps(&all);
    let kinds = ["message_started", "message_discarded", "message_completed", "done"];
    let expected =
        ["message_started", "message_discarded", "message_started", "message_completed", "done"];
    assert_eq!(kinds_of(&all, &kinds), expected, "{}", format_frames(&all));
    assert_eq!(last_message_text(&all), STALLED_TEXT);
    assert_eq!(frames_of_kind(&all, "thinking").len(), 1, "the second attempt is the same step");
    // A client with a cursor in the discarded message receives the discard, then the new message.
    let mut resumed = server.subscribe_with_last_event_id(&session, &cursor).await;
    let rest = resumed.read_until("done").await;
    assert_eq!(rest[0].kind(), "message_discarded", "{}", format_frames(&rest));
    assert_eq!(
        rest[0].data["message_id"],
        single_frame(&rest, "message_discarded").data["message_id"]
    );
    assert_eq!(crate::stream::streamed_text(&rest), STALLED_TEXT);
}

async fn d2_queued_message_runs_after_a_crash(wire: ProviderProtocol) {
    let mut server = TestServerBuilder::with_script(wire, STALLS_ONCE).start().await;
    let session = server.create_session_at(1).await;
    let mut first = server.chat(&session, "stall").await;
    first.read_text(10).await;
    let mut second = server.chat(&session, "again").await;
    second.read_until("message_queued").await;
    server.kill_and_restart().await;
    let mut subscription = server.subscribe(&session, "0").await;
    let mut all = subscription.read_until("done").await;
    all.extend(subscription.read_until("done").await);
    assert_no_gaps(&all);
    let texts: Vec<_> =
        frames_of_kind(&all, "message_completed").iter().map(|frame| frame.text("text")).collect();
    assert_eq!(texts, [STALLED_TEXT, "Here I am."]);
    assert_eq!(frames_of_kind(&all, "run_started").len(), 2);
}

/// Sends `go`, approves the call, waits until the market has executed it, then kills and restarts
/// the server.
async fn kill_during_call(server: &mut TestServer, tool: &str) -> String {
    let session = server.create_session_at(2).await;
    let mut stream = server.chat(&session, "go").await;
    let frames = stream.read_until("waiting_for_approval").await;
    let plan_id = &frames.last().unwrap().data["plan_id"];
    server
        .post("/agent/execute", json!({"session_id": session, "plan_id": plan_id}))
        .await
        .expect_ok();
    server.wait_until("the tool took effect", |server| server.effects().len() == 1).await;
    assert_eq!(server.effects()[0]["tool"], tool);
    server.kill_and_restart().await;
    session
}

async fn d3_non_repeatable_call_is_never_sent_twice(wire: ProviderProtocol) {
    let script = tool_call_script("wallet_transfer", r#"{ to = "XYZ", amount = 5 }"#);
    let setup = TestServerBuilder::with_script(wire, &script)
        .with_market_env("MARKET_HANG", "wallet_transfer");
    let mut server = setup.start().await;
    let session = kill_during_call(&mut server, "wallet_transfer").await;
    let approval = wait_for_unknown_outcome(&server, &session).await;
    assert_eq!(approval["call"]["arguments"], json!({"to": "XYZ", "amount": 5}));
    assert_eq!((&approval["call"]["attempts"], &approval["deadline"]), (&json!(1), &Value::Null));
    // After another start, the same approval is still open and the call is not repeated.
    server.kill_and_restart().await;
    let same_approval = wait_for_unknown_outcome(&server, &session).await;
    assert_eq!(same_approval["approval_id"], approval["approval_id"]);
    assert_eq!((server.effects().len(), server.calls().len()), (1, 1));

    let path = format!("/agent/approvals/{}", approval["approval_id"].as_str().unwrap());
    server.post(&path, json!({"decision": "approve"})).await.expect_problem(422, "wrong_decision");
    let body = json!({"decision": "done", "value": {"transfer": "T-1"}, "reason": "the bank says"});
    let answered = server.post(&path, body.clone()).await.expect_ok();
    assert_eq!(answered["approval"]["answer"]["decision"], "done");
    server.post(&path, body).await.expect_ok();
    server.post(&path, json!({"decision": "retry"})).await.expect_problem(409, "already_decided");

    let all = server.wait_for_event(&session, "done").await;
    assert_no_gaps(&all);
    assert_eq!(
        single_frame(&all, "tool_call_completed").data["result"],
        json!({"transfer": "T-1"})
    );
    assert_eq!(frames_of_kind(&all, "tool_call_attempt_started").len(), 1);
    assert_eq!((server.effects().len(), server.calls().len()), (1, 1));
}

async fn d3_retry_answer_runs_the_call_again(wire: ProviderProtocol) {
    let script = tool_call_script("wallet_transfer", r#"{ to = "XYZ", amount = 5 }"#);
    let setup = TestServerBuilder::with_script(wire, &script)
        .with_market_env("MARKET_HANG", "wallet_transfer");
    let mut server = setup.start().await;
    let session = kill_during_call(&mut server, "wallet_transfer").await;
    let approval = wait_for_unknown_outcome(&server, &session).await;
    let path = format!("/agent/approvals/{}", approval["approval_id"].as_str().unwrap());
    server.post(&path, json!({"decision": "retry"})).await.expect_ok();
    let all = server.wait_for_event(&session, "done").await;
    assert_no_gaps(&all);
    let attempts = frames_of_kind(&all, "tool_call_attempt_started");
    assert_eq!(attempts.last().unwrap().data["attempt"], 2);
    let keys: Vec<_> = server
        .calls()
        .iter()
        .map(|call| call["_meta"]["greenroom/idempotency_key"].clone())
        .collect();
    assert!(keys.len() == 2 && keys[0].is_string() && keys[0] == keys[1], "{keys:?}");
}

async fn d3_failed_answer_ends_the_call_with_an_error(wire: ProviderProtocol) {
    let script = tool_call_script("wallet_transfer", r#"{ to = "XYZ", amount = 5 }"#);
    let setup = TestServerBuilder::with_script(wire, &script)
        .with_market_env("MARKET_HANG", "wallet_transfer");
    let mut server = setup.start().await;
    let session = kill_during_call(&mut server, "wallet_transfer").await;
    let approval = wait_for_unknown_outcome(&server, &session).await;
    let path = format!("/agent/approvals/{}", approval["approval_id"].as_str().unwrap());
    let body = json!({"decision": "failed", "reason": "no entry at the bank"});
    server.post(&path, body).await.expect_ok();
    let all = server.wait_for_event(&session, "done").await;
    let failed = &single_frame(&all, "tool_call_failed").data;
    assert_eq!(failed["reason"], "error");
    assert!(
        failed["error"].as_str().unwrap().contains("did not take effect: no entry at the bank")
    );
    assert!(last_message_text(&all).contains("no entry at the bank"), "the model gets the reason");
    assert_eq!(server.calls().len(), 1);
}

/// Waits for the approval about a call with an unknown outcome.
async fn wait_for_unknown_outcome(server: &TestServer, session: &str) -> Value {
    let mut stream = server.subscribe(session, "0").await;
    loop {
        let frames = stream.read_until("waiting_for_approval").await;
        let plan = frames.last().unwrap().data["plan"].clone();
        if plan["kind"] == "unknown_outcome" {
            return plan;
        }
    }
}

async fn d3_repeatable_call_is_retried_with_its_idempotency_key(wire: ProviderProtocol) {
    let script = tool_call_script("market_order_create", ORDER);
    let setup = TestServerBuilder::with_script(wire, &script)
        .with_market_env("MARKET_HANG", "market_order_create");
    let mut server = setup.start().await;
    let session = kill_during_call(&mut server, "market_order_create").await;
    let all = server.wait_for_event(&session, "done").await;
    assert_no_gaps(&all);
    let order_id = &single_frame(&all, "tool_call_completed").data["result"]["order_id"];
    assert_eq!(*order_id, server.effects()[0]["result"]["order_id"]);
    assert_eq!(server.effects().len(), 1, "one order");
    let keys: Vec<_> = server
        .calls()
        .iter()
        .map(|call| call["_meta"]["greenroom/idempotency_key"].clone())
        .collect();
    assert_eq!(keys.len(), 2, "two attempts");
    assert!(keys[0].is_string() && keys[0] == keys[1], "{keys:?}");
    assert_eq!(frames_of_kind(&all, "waiting_for_approval").len(), 1, "one approval");
}

#[actix_web::test]
async fn d2_step_backoff_resumes() {
    let script = r#"
[[rule]]
user = "limit"
fail = { status = 429, retry_after = 1, times = 1 }
[[rule.reply]]
text = "Back again."
"#;
    let mut server =
        TestServerBuilder::with_script(ProviderProtocol::Anthropic, script).start().await;
    let session = server.create_session_at(1).await;
    let mut stream = server.chat(&session, "limit").await;
    let frames = stream.read_until("step_retrying").await;
    let until = frames.last().unwrap().data["until"].clone();
    server.kill_and_restart().await;
    let all = server.wait_for_event(&session, "done").await;
    assert_no_gaps(&all);
    assert_eq!(single_frame(&all, "step_retrying").data["until"], until);
    let restarted = all.iter().position(|frame| frame.kind() == "step_started").unwrap();
    assert!(all[restarted].text("at") >= until.as_str().unwrap(), "{}", format_frames(&all));
    assert_eq!(last_message_text(&all), "Back again.");
}

#[actix_web::test]
async fn d2_tool_backoff_resumes() {
    let slow = r#"
[tools.get_production_cost]
server = "market"
risk = "read_only"
retry = { max = 5, base = "400ms", cap = "400ms" }
"#;
    let mut server =
        TestServerBuilder::tour(ProviderProtocol::OpenAi).with_config(slow).start().await;
    let session = server.create_session_at(1).await;
    let mut stream = server.chat(&session, "Get production cost for Stabber").await;
    stream.read_until("tool_call_retrying").await;
    server.kill_and_restart().await;
    let all = server.wait_for_event(&session, "done").await;
    assert_no_gaps(&all);
    assert!(last_message_text(&all).contains("9,919,700.00 ISK"), "{}", format_frames(&all));
    assert_eq!(frames_of_kind(&all, "tool_call_completed").len(), 1);
}

#[actix_web::test]
async fn d2_ten_kills_neither_lose_nor_repeat_effects() {
    let mut server = TestServerBuilder::tour(ProviderProtocol::Anthropic).start().await;
    let session = server.create_session_at(3).await;
    for kill in 1..=10 {
        let message = format!("Bookmark Jita as Home {kill}");
        let mut stream = server.chat(&session, &message).await;
        // Kills after each number of events from 1 to 10.
        for _ in 0..kill {
            stream.next().await;
        }
        server.kill_and_restart().await;
        let path = format!("/agent/session/{session}");
        let mut subscription = server.subscribe(&session, "0").await;
        for _ in 0..kill {
            subscription.read_until("done").await;
        }
        assert_eq!(server.get(&path).await.expect_ok()["status"], "idle");
    }
    let names: Vec<_> =
        server.effects().iter().map(|effect| effect["arguments"]["name"].clone()).collect();
    let expected: Vec<_> = (1..=10).map(|kill| json!(format!("Home {kill}"))).collect();
    assert_eq!(names, expected, "each exactly once");
    let mut subscription = server.subscribe(&session, "0").await;
    let mut all = Vec::new();
    for _ in 1..=10 {
        all.extend(subscription.read_until("done").await);
    }
    assert_no_gaps(&all);
    assert!(frames_of_kind(&all, "done").iter().all(|done| done.data["outcome"] == "completed"));
}
