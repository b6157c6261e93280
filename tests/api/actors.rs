//! Live actors, watched and ordered about (A2).

use crate::{
    harness::{House, Setup},
    scripts::{ORDER, STALLED, STALLS_ONCE, calls},
    stream::{answer, kinds_of, of_kind, the, told},
};
use greenroom::rehearsal::Wire;
use serde_json::{Value, json};

on_both_wires!(
    a2_a_model_stream_that_is_restarted_is_a_step_that_is_tried_again,
    a2_a_session_that_is_restarted_goes_on_from_its_log,
);

async fn order(house: &House, path: &str, order: &str) {
    let answer = house.post(&format!("/admin/actors{path}/{order}"), json!({})).await;
    assert_eq!(answer.status, 202, "{}", answer.body);
    assert_eq!(answer.body, json!({"path": path, "order": order}));
}

async fn a2_a_model_stream_that_is_restarted_is_a_step_that_is_tried_again(wire: Wire) {
    let house = Setup::script(wire, STALLS_ONCE).start().await;
    let session = house.session_at(1).await;
    let mut stream = house.chat(&session, "stall").await;
    stream.until_text(10).await;
    order(&house, &format!("/sessions/{session}/steps/1"), "restart").await;
    let all = house.wait_for(&session, "done").await;
    let expected =
        ["message_started", "message_discarded", "step_retrying", "message_started", "done"];
    let of_message = ["message_started", "message_discarded", "step_retrying", "done"];
    assert_eq!(kinds_of(&all, &of_message), expected, "{}", told(&all));
    assert!(the(&all, "step_retrying").text("reason").contains("administrator"), "{}", told(&all));
    assert_eq!(answer(&all), STALLED);
}

#[actix_web::test]
async fn a2_a_model_stream_that_is_stopped_ends_its_run() {
    // The next request has both messages, since the first was never answered.
    let again = "[[rule]]\nuser = \"again\"\n[[rule.reply]]\ntext = \"Here I am.\"\n";
    let house = Setup::script(Wire::OpenAi, &format!("{again}{STALLS_ONCE}")).start().await;
    let session = house.session_at(1).await;
    let mut stream = house.chat(&session, "stall").await;
    stream.until_text(10).await;
    order(&house, &format!("/sessions/{session}/steps/1"), "stop").await;
    let rest = stream.rest().await;
    let error = rest.last().unwrap();
    assert!(error.text("error").contains("an administrator stopped"), "{}", told(&rest));
    // The session stays usable.
    assert_eq!(answer(&house.say(&session, "again").await), "Here I am.");
}

async fn a2_a_session_that_is_restarted_goes_on_from_its_log(wire: Wire) {
    let house = Setup::script(wire, &calls("market_order_create", ORDER)).start().await;
    let session = house.session_at(1).await;
    let mut stream = house.chat(&session, "go").await;
    let asked = stream.until("waiting_for_approval").await;
    let path = format!("/sessions/{session}");
    let started_at = |actor: Value| actor["actor"]["started_at"].clone();
    let before = started_at(house.get(&format!("/admin/actors{path}")).await.ok());
    order(&house, &path, "restart").await;
    // Whoever listens hears on, and the question is the same.
    let plan_id = asked.last().unwrap().text("plan_id");
    let execute = json!({"session_id": session, "plan_id": plan_id});
    let path_now = format!("/admin/actors{path}");
    loop {
        let now = house.get(&path_now).await;
        if now.status == 200 && started_at(now.body) != before {
            break;
        }
        tokio::time::sleep(crate::harness::LOOK_AGAIN).await;
    }
    house.post("/agent/execute", execute).await.ok();
    assert_eq!(stream.rest().await.last().unwrap().kind(), "done");
    assert_eq!(house.effects().len(), 1);
}

#[actix_web::test]
async fn a2_stopping_a_session_cancels_its_run() {
    let house = Setup::script(Wire::OpenAi, STALLS_ONCE).start().await;
    let session = house.session_at(1).await;
    let mut stream = house.chat(&session, "stall").await;
    stream.until_text(10).await;
    order(&house, &format!("/sessions/{session}"), "stop").await;
    let rest = stream.rest().await;
    assert_eq!(rest.last().unwrap().data["outcome"], "cancelled", "{}", told(&rest));
    // Idle as it is now, it leaves memory.
    order(&house, &format!("/sessions/{session}"), "stop").await;
    let path = format!("/admin/actors/sessions/{session}");
    while house.get(&path).await.status == 200 {
        tokio::time::sleep(crate::harness::LOOK_AGAIN).await;
    }
}

#[actix_web::test]
async fn a2_d3_of_a_stopped_call_that_may_not_repeat_a_person_is_asked() {
    let script = calls("wallet_transfer", r#"{ to = "XYZ", amount = 5 }"#);
    let house =
        Setup::script(Wire::OpenAi, &script).market("MARKET_HANG", "wallet_transfer").start().await;
    let limit = json!({"amount": 100, "unit": "ISK"});
    house.patch("/agent/settings", json!({"autonomy_level": 3, "budget_limit": limit})).await.ok();
    let session = house.session_at(3).await;
    let mut stream = house.chat(&session, "go").await;
    let heard = stream.until("tool_call_attempt_started").await;
    house.until("the tool took effect", |house| house.effects().len() == 1).await;
    let call = the(&heard, "tool_call_started").text("call_id");
    order(&house, &format!("/sessions/{session}/calls/{call}"), "stop").await;
    let asked = stream.until("waiting_for_approval").await;
    let plan = &asked.last().unwrap().data["plan"];
    assert_eq!(plan["kind"], "unknown_outcome", "{plan}");
    assert_eq!(house.calls().len(), 1);
}

#[actix_web::test]
async fn a2_a_tool_server_stays_away_until_it_is_restarted() {
    let house = Setup::script(Wire::OpenAi, &calls("list_bookmarks", "{}")).start().await;
    let session = house.session_at(1).await;
    order(&house, "/tools/market", "stop").await;
    until_market_is(&house, "stopped").await;
    let failed = house.say(&session, "go").await;
    let failure = &the(&failed, "tool_call_failed").data;
    assert_eq!(failure["reason"], "unavailable", "{}", told(&failed));
    order(&house, "/tools/market", "restart").await;
    until_market_is(&house, "ready").await;
    let done = house.say(&session, "go").await;
    assert_eq!(of_kind(&done, "tool_call_completed").len(), 1, "{}", told(&done));
}

async fn until_market_is(house: &House, state: &str) {
    let looks = async {
        while house.get("/agent/tools").await.ok()["servers"][0]["state"] != state {
            tokio::time::sleep(crate::harness::LOOK_AGAIN).await;
        }
    };
    tokio::time::timeout(crate::harness::PATIENCE, looks).await.expect("the market gets there");
}

#[actix_web::test]
async fn a2_orders_that_an_actor_does_not_take_are_refused_and_all_are_audited() {
    let house = Setup::tour(Wire::OpenAi).start().await;
    for (path, code, status) in [
        ("/desk/stop", "order_refused", 409),
        ("/bus/0/restart", "order_refused", 409),
        ("/sessions/nobody/stop", "actor_not_found", 404),
        ("/nowhere/at/all/restart", "actor_not_found", 404),
    ] {
        house.post(&format!("/admin/actors{path}"), json!({})).await.problem(status, code);
    }
    let refused = house.post("/admin/actors/desk/stop", json!({})).await.body;
    assert_eq!(refused["takes"], json!([]));
    house.post("/admin/actors/desk/sideways", json!({})).await.problem(405, "method_not_allowed");
    order(&house, "/tools/market", "restart").await;
    let wish = json!({"user_id": "eve", "role": "user"});
    let key = house.post("/admin/keys", wish).await.body["key"].as_str().unwrap().to_owned();
    let request = house.anonymous(reqwest::Method::POST, "/admin/actors/tools/market/stop");
    crate::harness::send(request.bearer_auth(key)).await.problem(403, "forbidden");
    let rows = house.get("/admin/audit?action=actor_restarted").await.ok()["rows"].clone();
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
    let house = Setup::script(Wire::OpenAi, STALLS_ONCE).start().await;
    let request = house.request(reqwest::Method::GET, "/admin/actors?prefix=/sessions");
    let mut changes = house.stream(request.header("accept", "text/event-stream")).await;
    assert_eq!(
        changes.next().await.unwrap().data,
        json!({"type": "actors", "changed": [], "gone": []})
    );
    let session = house.session_at(1).await;
    let _stream = house.chat(&session, "stall").await;
    let path = format!("/sessions/{session}");
    let waits_for_the_model = |frame: &Value| {
        frame["changed"].as_array().unwrap().iter().any(|actor| {
            actor["path"] == path.as_str() && actor["waiting"]["for_whom"] == "the model"
        })
    };
    while !waits_for_the_model(&changes.next().await.unwrap().data) {}
    house.post(&format!("/agent/session/{session}/cancel"), json!({})).await.ok();
    let step = json!(format!("{path}/steps/1"));
    while !changes.next().await.unwrap().data["gone"].as_array().unwrap().contains(&step) {}
}
