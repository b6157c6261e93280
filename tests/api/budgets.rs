//! Budgets through the whole house (G6): reserved, reached, raised, stopped, and raced for.

use crate::{
    harness::{House, Setup},
    scripts::{ORDER, calls},
    stream::{Frame, kinds_of, of_kind, the, told},
};
use greenroom::rehearsal::Wire;
use serde_json::{Value, json};

/// What one order of [`ORDER`] costs.
const COST: f64 = 41.2;

fn selling() -> Setup {
    Setup::script(Wire::OpenAi, &calls("market_order_create", ORDER))
}

/// A user who may spend so much ISK, at a level that asks for nothing but that.
async fn spender(house: &House, amount: f64) {
    let limit = json!({"amount": amount, "unit": "ISK"});
    let settings = json!({"autonomy_level": 3, "budget_limit": limit});
    house.patch("/agent/settings", settings).await.ok();
}

/// The question of that kind among these frames.
fn question<'a>(frames: &'a [Frame], kind: &str) -> &'a Value {
    let questions = of_kind(frames, "waiting_for_approval");
    let plan = questions.iter().map(|frame| &frame.data["plan"]).find(|plan| plan["kind"] == kind);
    plan.unwrap_or_else(|| panic!("no {kind}: {}", told(frames)))
}

async fn decide(house: &House, question: &Value, body: Value) -> Value {
    let path = format!("/agent/approvals/{}", question["approval_id"].as_str().unwrap());
    house.post(&path, body).await.ok()
}

#[actix_web::test]
async fn g6_of_two_sessions_racing_for_the_last_of_a_budget_one_wins() {
    let house = selling().start().await;
    spender(&house, 60.0).await;
    let (one, two) = (house.session_at(3).await, house.session_at(3).await);
    let until_paused = |session: String| {
        let house = &house;
        async move {
            let body = json!({"session_id": session, "message": "go", "until": "pause"});
            house.chat_with(body).await.rest().await
        }
    };
    let (one, two) = futures::join!(until_paused(one), until_paused(two));
    let ended = |frames: &[Frame]| frames.last().unwrap().kind() == "done";
    assert_ne!(ended(&one), ended(&two), "{}\n{}", told(&one), told(&two));
    assert_eq!(house.effects().len(), 1);
    let (winner, loser) = if ended(&one) { (one, two) } else { (two, one) };
    assert_eq!(
        the(&winner, "budget_reserved").data["cost"],
        json!({"amount": COST, "unit": "ISK"})
    );

    let asked = question(&loser, "budget");
    let budget = json!({"scope": "user", "period": "total", "measure": "ISK", "limit": 60.0});
    assert_eq!((&asked["budget"], &asked["spent"]), (&budget, &json!(COST)), "{asked}");
    assert_eq!(asked["needed"], json!(COST));
    let elsewhere = json!([{"what": "the user's other sessions and earlier runs", "amount": COST}]);
    assert_eq!(asked["spent_on"], elsewhere);

    let path = format!("/agent/approvals/{}", asked["approval_id"].as_str().unwrap());
    house
        .post(&path, json!({"decision": "raise", "value": 70}))
        .await
        .problem(422, "invalid_answer");
    decide(&house, asked, json!({"decision": "raise", "value": 100})).await;
    let all = house.wait_for(loser[0].text("agent_id"), "done").await;
    assert_eq!(house.effects().len(), 2);
    let order = ["budget_reached", "budget_raised", "budget_reserved", "tool_call_attempt_started"];
    assert_eq!(kinds_of(&all, &order), order, "{}", told(&all));
}

#[actix_web::test]
async fn g6_a_reservation_survives_a_crash_and_a_definite_failure_releases_it() {
    let unknown_item = ORDER.replace("type_id = 34", "type_id = 999999");
    let script = calls("market_order_create", &unknown_item);
    let mut house = Setup::script(Wire::OpenAi, &script).start().await;
    spender(&house, 60.0).await;
    let session = house.session_at(3).await;
    let failed = house.say(&session, "go").await;
    assert_eq!(the(&failed, "tool_call_failed").data["reason"], "error", "{}", told(&failed));
    // Had it not been released, there would be no room for another.
    let again = house.say(&session, "go").await;
    assert!(of_kind(&again, "budget_reached").is_empty(), "{}", told(&again));
    assert_eq!(of_kind(&again, "budget_reserved").len(), 1);
    house.crash().await;
    let after = house.say(&session, "go").await;
    assert!(of_kind(&after, "budget_reached").is_empty(), "{}", told(&after));
}

#[actix_web::test]
async fn g6_what_was_spent_stays_spent_after_a_restart() {
    let mut house = selling().start().await;
    spender(&house, 60.0).await;
    let session = house.session_at(3).await;
    assert_eq!(house.say(&session, "go").await.last().unwrap().kind(), "done");
    house.crash().await;
    let body = json!({"session_id": session, "message": "go", "until": "pause"});
    let frames = house.chat_with(body).await.rest().await;
    let asked = question(&frames, "budget");
    assert_eq!(asked["spent_on"], json!([{"what": "market_order_create", "amount": COST}]));
    // It waits through another restart, and who stops it ends the run.
    house.crash().await;
    let word = json!({"decision": "stop", "reason": "enough"});
    let taken = decide(&house, asked, word).await;
    assert_eq!(taken["approval"]["answer"]["decision"], "stop");
    let all = house.wait_for(&session, "error").await;
    let error = &the(&all, "error").data;
    assert_eq!(error["code"], "budget_reached", "{error}");
    assert!(error["error"].as_str().unwrap().contains("stopped the run"), "{error}");
    assert_eq!(house.effects().len(), 1);
}

#[actix_web::test]
async fn g6_tokens_are_counted_before_each_step() {
    let setup = Setup::script(Wire::Anthropic, &calls("get_market_prices", "{ type_ids = [34] }"));
    let house = setup.agent("budgets = { run = { tokens = 1 } }").start().await;
    let session = house.session_at(1).await;
    let body = json!({"session_id": session, "message": "go", "until": "pause"});
    let frames = house.chat_with(body).await.rest().await;
    // What ran was not cut off: the step that reached it finished.
    assert_eq!(of_kind(&frames, "step_completed").len(), 1, "{}", told(&frames));
    assert_eq!(of_kind(&frames, "tool_call_completed").len(), 1);
    let asked = question(&frames, "budget");
    assert_eq!(
        (&asked["budget"]["scope"], &asked["budget"]["measure"]),
        (&json!("run"), &json!("tokens"))
    );
    assert!(asked["spent"].as_f64().unwrap() > 1.0, "{asked}");
    decide(&house, asked, json!({"decision": "raise", "value": 1_000_000})).await;
    let all = house.wait_for(&session, "done").await;
    assert_eq!(of_kind(&all, "step_completed").len(), 2, "{}", told(&all));
}
