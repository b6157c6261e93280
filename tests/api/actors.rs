//! Live actors, watched and ordered about (A2).

use crate::{
    harness::{TestServer, TestServerBuilder},
    scripts::{ORDER, STALLED_TEXT, STALLS_ONCE, tool_call_script},
    stream::{format_frames, kinds_of, last_message_text, of_kind, single_frame},
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};

on_both_wires!(
    a2_a_model_stream_that_is_restarted_is_a_step_that_is_tried_again,
    a2_a_session_that_is_restarted_goes_on_from_its_log,
);

async fn send_order(house: &TestServer, path: &str, order: &str) {
    let answer = house.post(&format!("/admin/actors{path}/{order}"), json!({})).await;
    assert_eq!(answer.status, 202, "{}", answer.body);
    assert_eq!(answer.body, json!({"path": path, "order": order}));
}

async fn a2_a_model_stream_that_is_restarted_is_a_step_that_is_tried_again(wire: ProviderProtocol) {
    let house = TestServerBuilder::with_script(wire, STALLS_ONCE).start().await;
    let session = house.create_session_at(1).await;
    let mut stream = house.chat(&session, "stall").await;
    stream.read_text(10).await;
    send_order(&house, &format!("/sessions/{session}/steps/1"), "restart").await;
    let all = house.wait_for_event(&session, "done").await;
    let expected =
        ["message_started", "message_discarded", "step_retrying", "message_started", "done"];
    let of_message = ["message_started", "message_discarded", "step_retrying", "done"];
    assert_eq!(kinds_of(&all, &of_message), expected, "{}", format_frames(&all));
    assert!(
        single_frame(&all, "step_retrying").text("reason").contains("administrator"),
        "{}",
        format_frames(&all)
    );
    assert_eq!(last_message_text(&all), STALLED_TEXT);
}

#[actix_web::test]
async fn a2_a_model_stream_that_is_stopped_ends_its_run() {
    // The next request has both messages, since the first was never answered.
    let again = "[[rule]]\nuser = \"again\"\n[[rule.reply]]\ntext = \"Here I am.\"\n";
    let house =
        TestServerBuilder::with_script(ProviderProtocol::OpenAi, &format!("{again}{STALLS_ONCE}"))
            .start()
            .await;
    let session = house.create_session_at(1).await;
    let mut stream = house.chat(&session, "stall").await;
    stream.read_text(10).await;
    send_order(&house, &format!("/sessions/{session}/steps/1"), "stop").await;
    let rest = stream.read_to_end().await;
    let error = rest.last().unwrap();
    assert!(error.text("error").contains("an administrator stopped"), "{}", format_frames(&rest));
    // The session stays usable.
    assert_eq!(last_message_text(&house.chat_to_end(&session, "again").await), "Here I am.");
}

async fn a2_a_session_that_is_restarted_goes_on_from_its_log(wire: ProviderProtocol) {
    let house =
        TestServerBuilder::with_script(wire, &tool_call_script("market_order_create", ORDER))
            .start()
            .await;
    let session = house.create_session_at(1).await;
    let mut stream = house.chat(&session, "go").await;
    let asked = stream.read_until("waiting_for_approval").await;
    let path = format!("/sessions/{session}");
    let started_at = |actor: Value| actor["actor"]["started_at"].clone();
    let before = started_at(house.get(&format!("/admin/actors{path}")).await.expect_ok());
    send_order(&house, &path, "restart").await;
    // Whoever listens hears on, and the question is the same.
    let plan_id = asked.last().unwrap().text("plan_id");
    let execute = json!({"session_id": session, "plan_id": plan_id});
    let path_now = format!("/admin/actors{path}");
    loop {
        let now = house.get(&path_now).await;
        if now.status == 200 && started_at(now.body) != before {
            break;
        }
        tokio::time::sleep(crate::harness::POLL_INTERVAL).await;
    }
    house.post("/agent/execute", execute).await.expect_ok();
    assert_eq!(stream.read_to_end().await.last().unwrap().kind(), "done");
    assert_eq!(house.effects().len(), 1);
}

#[actix_web::test]
async fn a2_stopping_a_session_cancels_its_run() {
    let house = TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE).start().await;
    let session = house.create_session_at(1).await;
    let mut stream = house.chat(&session, "stall").await;
    stream.read_text(10).await;
    send_order(&house, &format!("/sessions/{session}"), "stop").await;
    let rest = stream.read_to_end().await;
    assert_eq!(rest.last().unwrap().data["outcome"], "cancelled", "{}", format_frames(&rest));
    // Idle as it is now, it leaves memory.
    send_order(&house, &format!("/sessions/{session}"), "stop").await;
    let path = format!("/admin/actors/sessions/{session}");
    while house.get(&path).await.status == 200 {
        tokio::time::sleep(crate::harness::POLL_INTERVAL).await;
    }
}

#[actix_web::test]
async fn a2_d3_of_a_stopped_call_that_may_not_repeat_a_person_is_asked() {
    let script = tool_call_script("wallet_transfer", r#"{ to = "XYZ", amount = 5 }"#);
    let house = TestServerBuilder::with_script(ProviderProtocol::OpenAi, &script)
        .market("MARKET_HANG", "wallet_transfer")
        .start()
        .await;
    let limit = json!({"amount": 100, "unit": "ISK"});
    house
        .patch("/agent/settings", json!({"autonomy_level": 3, "budget_limit": limit}))
        .await
        .expect_ok();
    let session = house.create_session_at(3).await;
    let mut stream = house.chat(&session, "go").await;
    let heard = stream.read_until("tool_call_attempt_started").await;
    house.wait_until("the tool took effect", |house| house.effects().len() == 1).await;
    let call = single_frame(&heard, "tool_call_started").text("call_id");
    send_order(&house, &format!("/sessions/{session}/calls/{call}"), "stop").await;
    let asked = stream.read_until("waiting_for_approval").await;
    let plan = &asked.last().unwrap().data["plan"];
    assert_eq!(plan["kind"], "unknown_outcome", "{plan}");
    assert_eq!(house.calls().len(), 1);
}

#[actix_web::test]
async fn a2_a_tool_server_stays_away_until_it_is_restarted() {
    let house = TestServerBuilder::with_script(
        ProviderProtocol::OpenAi,
        &tool_call_script("list_bookmarks", "{}"),
    )
    .start()
    .await;
    let session = house.create_session_at(1).await;
    send_order(&house, "/tools/market", "stop").await;
    wait_for_market_state(&house, "stopped").await;
    let failed = house.chat_to_end(&session, "go").await;
    let failure = &single_frame(&failed, "tool_call_failed").data;
    assert_eq!(failure["reason"], "unavailable", "{}", format_frames(&failed));
    send_order(&house, "/tools/market", "restart").await;
    wait_for_market_state(&house, "ready").await;
    let done = house.chat_to_end(&session, "go").await;
    assert_eq!(of_kind(&done, "tool_call_completed").len(), 1, "{}", format_frames(&done));
}

async fn wait_for_market_state(house: &TestServer, state: &str) {
    let looks = async {
        while house.get("/agent/tools").await.expect_ok()["servers"][0]["state"] != state {
            tokio::time::sleep(crate::harness::POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(crate::harness::TEST_TIMEOUT, looks).await.expect("the market gets there");
}

#[actix_web::test]
async fn a2_orders_that_an_actor_does_not_take_are_refused_and_all_are_audited() {
    let house = TestServerBuilder::tour(ProviderProtocol::OpenAi).start().await;
    for (path, code, status) in [
        ("/desk/stop", "order_refused", 409),
        ("/bus/0/restart", "order_refused", 409),
        ("/sessions/nobody/stop", "actor_not_found", 404),
        ("/nowhere/at/all/restart", "actor_not_found", 404),
    ] {
        house.post(&format!("/admin/actors{path}"), json!({})).await.expect_problem(status, code);
    }
    let refused = house.post("/admin/actors/desk/stop", json!({})).await.body;
    assert_eq!(refused["takes"], json!([]));
    house
        .post("/admin/actors/desk/sideways", json!({}))
        .await
        .expect_problem(405, "method_not_allowed");
    send_order(&house, "/tools/market", "restart").await;
    let wish = json!({"user_id": "eve", "role": "user"});
    let key = house.post("/admin/keys", wish).await.body["key"].as_str().unwrap().to_owned();
    let request =
        house.request_without_token(reqwest::Method::POST, "/admin/actors/tools/market/stop");
    crate::harness::send(request.bearer_auth(key)).await.expect_problem(403, "forbidden");
    let rows = house.get("/admin/audit?action=actor_restarted").await.expect_ok()["rows"].clone();
    let told: Vec<_> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (&row["details"]["path"], &row["outcome"]))
        .collect();
    assert_eq!(
        told,
        [
            (&json!("/bus/0"), &json!("refused")),
            (&json!("/nowhere/at/all"), &json!("refused")),
            (&json!("/tools/market"), &json!("done")),
        ]
    );
    assert_eq!(rows[2]["user"], "admin");
}

#[actix_web::test]
async fn a2_what_changes_among_actors_is_a_stream() {
    let house = TestServerBuilder::with_script(ProviderProtocol::OpenAi, STALLS_ONCE).start().await;
    let request = house.request(reqwest::Method::GET, "/admin/actors?prefix=/sessions");
    let mut changes = house.stream(request.header("accept", "text/event-stream")).await;
    assert_eq!(
        changes.next().await.unwrap().data,
        json!({"type": "actors", "changed": [], "gone": []})
    );
    let session = house.create_session_at(1).await;
    let _stream = house.chat(&session, "stall").await;
    let path = format!("/sessions/{session}");
    let waits_for_the_model = |frame: &Value| {
        frame["changed"].as_array().unwrap().iter().any(|actor| {
            actor["path"] == path.as_str() && actor["waiting"]["for_whom"] == "the model"
        })
    };
    while !waits_for_the_model(&changes.next().await.unwrap().data) {}
    house.post(&format!("/agent/session/{session}/cancel"), json!({})).await.expect_ok();
    let step = json!(format!("{path}/steps/1"));
    while !changes.next().await.unwrap().data["gone"].as_array().unwrap().contains(&step) {}
}
