//! Messages and runs: what becomes of a message while a run is going, repetitions, cancelling,
//! clients that go away, and the answer in one piece (S4–S6).

use crate::{
    harness::{House, Setup, send},
    scripts::{ORDER, STALLED, STALLS_ONCE, STORY, calls},
    stream::{answer, kinds, kinds_of, of_kind, said, the, told},
};
use greenroom::rehearsal::Wire;
use reqwest::Method;
use serde_json::{Value, json};

on_both_wires!(
    s6_a_cancel_from_another_client_keeps_the_text,
    s4_a_message_waits_for_the_run_before_it,
    s4_a_message_may_interrupt_the_run,
    s4_a_steering_message_is_read_after_the_decision,
    s5_a_repeated_message_starts_nothing,
    chat_answers_in_one_piece,
);

async fn cancel(house: &House, session: &str) {
    let path = format!("/agent/session/{session}/cancel");
    house.post(&path, json!({})).await.ok();
}

async fn s6_a_cancel_from_another_client_keeps_the_text(wire: Wire) {
    let house = Setup::script(wire, STALLS_ONCE).start().await;
    let session = house.session_at(1).await;
    let mut stream = house.chat(&session, "stall").await;
    let heard = said(&stream.until_text(20).await);
    // Another client: it knows the session, not the run.
    cancel(&house, &session).await;
    let rest = stream.rest().await;
    let stopped = &the(&rest, "message_completed").data;
    assert_eq!(stopped["stopped"], true);
    let kept = stopped["text"].as_str().unwrap();
    assert!(kept.starts_with(&heard) && STALLED.starts_with(kept), "{heard:?}, {kept:?}");
    let done = &the(&rest, "done").data;
    assert_eq!(done["outcome"], "cancelled");
    // G6: what it said counts, though the provider did not come to count it.
    let tokens = done["usage"]["output_tokens"].as_u64().unwrap();
    assert!(tokens >= kept.len() as u64 / 3, "{tokens} for {kept:?}");
    let messages = house.get(&format!("/agent/session/{session}/messages")).await.ok();
    assert_eq!(messages["messages"][1]["content"], kept);
    assert_eq!(messages["messages"][1]["stopped"], true);
    // There is nothing left to cancel, and the session is usable.
    let path = format!("/agent/session/{session}/cancel");
    house.post(&path, json!({})).await.problem(409, "no_run");
    assert_eq!(answer(&house.say(&session, "again").await), "Here I am.");
    // The model is not told more than it had said.
    let asked = house.rehearsal.requests().pop().unwrap().body.to_string();
    assert!(asked.contains(kept.trim_end()) && !asked.contains("second half of it."), "{asked}");
}

async fn s4_a_message_waits_for_the_run_before_it(wire: Wire) {
    let house = Setup::script(wire, STALLS_ONCE).start().await;
    let session = house.session_at(1).await;
    let mut first = house.chat(&session, "stall").await;
    first.until_text(10).await;
    let mut second = house.chat(&session, "again").await;
    let queued = second.next().await.unwrap();
    assert_eq!(queued.kind(), "message_queued", "{queued:?}");
    assert_eq!(queued.data["delivery"], "next_run");
    let busy = json!({"session_id": session, "message": "again", "on_busy": "reject"});
    let busy = house.post("/agent/chat/stream", busy).await.problem(409, "session_busy");
    assert!(busy["run_id"].is_string());
    let messages = house.get(&format!("/agent/session/{session}/messages")).await.ok();
    assert_eq!(messages["queued"][0]["content"], "again");
    cancel(&house, &session).await;
    assert_eq!(the(&first.rest().await, "done").data["outcome"], "cancelled");
    let rest = second.rest().await;
    assert_eq!(kinds_of(&rest, &["message_accepted", "run_started", "text", "done"]).len(), 4);
    assert_eq!(answer(&rest), "Here I am.");
}

async fn s4_a_message_may_interrupt_the_run(wire: Wire) {
    let house = Setup::script(wire, STALLS_ONCE).start().await;
    let session = house.session_at(1).await;
    let mut first = house.chat(&session, "stall").await;
    first.until_text(10).await;
    let wish = json!({"session_id": session, "message": "again", "on_busy": "interrupt"});
    let second = house.chat_with(wish).await.rest().await;
    assert_eq!(answer(&second), "Here I am.");
    let first = first.rest().await;
    assert_eq!(the(&first, "done").data["outcome"], "cancelled");
    assert_eq!(the(&first, "message_completed").data["stopped"], true);
}

async fn s4_a_steering_message_is_read_after_the_decision(wire: Wire) {
    let steered = r#"
[[rule]]
user = "only ten"
[[rule.reply]]
text = "As you say."
"#;
    let script = format!("{}{steered}", calls("market_order_create", ORDER));
    let house = Setup::script(wire, &script).start().await;
    let session = house.session_at(1).await;
    let mut run = house.chat(&session, "go").await;
    let asked = run.until("waiting_for_approval").await;
    let wish = json!({"session_id": session, "message": "only ten please", "on_busy": "steer"});
    let mut steering = house.chat_with(wish).await;
    let queued = steering.next().await.unwrap();
    assert_eq!((queued.kind(), queued.text("delivery")), ("message_queued", "after_decision"));
    let plan_id = &asked.last().unwrap().data["plan_id"];
    let wish = json!({"session_id": session, "plan_id": plan_id});
    house.post("/agent/execute", wish).await.ok();
    let rest = run.rest().await;
    assert_eq!(answer(&rest), "As you say.", "{}", told(&rest));
    assert_eq!(of_kind(&rest, "run_started").len(), 0, "it is the same run");
    steering.until("done").await;
    assert_eq!(house.rehearsal.requests().len(), 2, "one model call a step");
    assert_eq!(house.effects().len(), 1);
}

async fn s5_a_repeated_message_starts_nothing(wire: Wire) {
    let house = Setup::script(wire, STORY).start().await;
    let session = house.session_at(1).await;
    let body = json!({"session_id": session, "message": "story", "message_id": "m-1"});
    let mut first = house.chat_with(body.clone()).await;
    first.until_text(10).await;
    // While it runs, and after.
    let during = house.chat_with(body.clone()).await.rest().await;
    first.rest().await;
    let after = house.chat_with(body).await.rest().await;
    assert_eq!(kinds(&during), kinds(&after));
    assert_eq!(answer(&during), answer(&after));
    assert_eq!(said(&after), answer(&after), "a finished message is streamed again");
    // The header stands for the same.
    let body = json!({"session_id": session, "message": "story"});
    let request = house.request(Method::POST, "/agent/chat").header("idempotency-key", "m-1");
    let collected = send(request.json(&body)).await.ok();
    assert_eq!(collected["response"], answer(&after));
    assert_eq!(collected["run_id"], after[0].data["run_id"]);
    assert_eq!(house.rehearsal.requests().len(), 1);
    let other = json!({"session_id": session, "message": "another", "message_id": "m-1"});
    house.post("/agent/chat/stream", other.clone()).await.problem(422, "message_id_reused");
    house.post("/agent/chat", other).await.problem(422, "message_id_reused");
    let runs = house.events(&session).await;
    assert_eq!(runs.iter().filter(|event| event["type"] == "run_started").count(), 1);
}

#[actix_web::test]
async fn s6_a_client_that_goes_away_cancels_nothing() {
    let house = Setup::script(Wire::Anthropic, STORY).start().await;
    let session = house.session_at(1).await;
    let mut stream = house.chat(&session, "tell me a story").await;
    stream.until_text(10).await;
    drop(stream);
    let all = house.wait_for(&session, "done").await;
    assert_eq!(the(&all, "done").data["outcome"], "completed");
    assert!(answer(&all).contains("number 11"), "{}", answer(&all));
}

async fn chat_answers_in_one_piece(wire: Wire) {
    let house = Setup::tour(wire).start().await;
    let question = "What is the current sell price of Tritanium in Jita?";
    let done = house.post("/agent/chat", json!({"message": question, "character_id": 7})).await;
    let done = done.ok();
    assert!(done["response"].as_str().unwrap().contains("**4.12 ISK**"), "{done}");
    assert_eq!((&done["iterations"], &done["outcome"]), (&json!(2), &json!("completed")));
    let call = &done["tool_results"][0];
    assert_eq!((&call["tool"], &call["iteration"]), (&json!("get_market_stats"), &json!(1)));
    assert_eq!(call["result"]["lowest_sell"], 4.12);
    assert_eq!(call["input"]["type_id"], 34);

    let session = done["session_id"].clone();
    let body = json!({"message": "Buy 1000 Tritanium at market price", "session_id": session});
    let paused = house.post("/agent/chat", body.clone()).await;
    assert_eq!(paused.status, 202, "{}", paused.body);
    assert_eq!(paused.body["outcome"], "waiting_for_approval");
    assert_eq!(paused.body["plan"]["steps"][0]["tool"], "market_order_create");
    assert_eq!(paused.body["plan_id"], paused.body["plan"]["plan_id"]);
    cancel(&house, session.as_str().unwrap()).await;

    let denied = json!({"message": "Transfer 100M ISK to character XYZ", "session_id": session});
    let denied = house.post("/agent/chat", denied).await.ok();
    assert_eq!(denied["tool_results"][0]["blocked_by"], "authorization", "{denied}");
    assert!(denied["tool_results"][0]["error"].as_str().unwrap().contains("ASSISTED (L2)"));
    assert_eq!(house.effects(), Vec::<Value>::new());
}

#[actix_web::test]
async fn s1_sessions_are_listed_read_renamed_and_closed() {
    let house = Setup::script(Wire::OpenAi, STALLS_ONCE).start().await;
    let mut ids = Vec::new();
    for number in 0..5 {
        ids.push(house.session(json!({"title": format!("no. {number}")})).await);
    }
    let (mut found, mut path) = (Vec::new(), "/agent/session?limit=2".to_owned());
    loop {
        let page = house.get(&path).await.ok();
        let sessions = page["sessions"].as_array().unwrap();
        assert!(sessions.len() <= 2);
        found.extend(sessions.iter().map(|one| one["session_id"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/agent/session?limit=2&before={next}");
    }
    ids.reverse();
    assert_eq!(found, ids, "newest first, each once");
    let path = format!("/agent/session/{}", ids[0]);
    let patched = house.patch(&format!("{path}/settings"), json!({"title": "renamed"})).await.ok();
    assert_eq!(patched["title"], "renamed");
    house.say(&ids[0], "again").await;
    house.delete(&path).await.ok();
    let closed = house.get(&path).await.ok();
    assert_eq!(closed["status"], "closed");
    let late = json!({"session_id": ids[0], "message": "again"});
    house.post("/agent/chat", late).await.problem(409, "session_closed");
    let kept = house.get(&format!("{path}/messages")).await.ok();
    assert_eq!(kept["messages"][1]["content"], "Here I am.");
}

#[actix_web::test]
async fn x4_what_waits_is_bounded() {
    let limits =
        "[limits]\nqueued_messages = 1\nrunning_runs_per_user = 1\nopen_sessions_per_user = 2";
    let house = Setup::script(Wire::Anthropic, STALLS_ONCE).with(limits).start().await;
    let session = house.session_at(1).await;
    let other = house.session_at(1).await;
    let full = house.post("/agent/session", json!({})).await;
    full.problem(429, "too_many_sessions");
    let mut first = house.chat(&session, "stall").await;
    first.until_text(10).await;
    let say = |session: &str| json!({"session_id": session, "message": "again"});
    house.post("/agent/chat", say(&other)).await.problem(429, "too_many_runs");
    let mut second = house.chat_with(say(&session)).await;
    second.next().await;
    house.post("/agent/chat", say(&session)).await.problem(429, "queue_full");
    cancel(&house, &session).await;
    assert_eq!(answer(&second.rest().await), "Here I am.");
}
