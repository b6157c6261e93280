//! Budgets through the whole server (G6): reserved, reached, raised, stopped, and raced for.

use crate::{
    harness::{TestServer, TestServerBuilder},
    scripts::{ORDER, tool_call_script},
    stream::{Frame, format_frames, kinds_of, frames_of_kind, single_frame},
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};

/// What one order of [`ORDER`] costs.
const COST: f64 = 41.2;

fn order_setup() -> TestServerBuilder {
    TestServerBuilder::with_script(
        ProviderProtocol::OpenAi,
        &tool_call_script("market_order_create", ORDER),
    )
}

/// A user who may spend so much ISK, at a level that asks for nothing but that.
async fn set_budget_limit(server: &TestServer, amount: f64) {
    let limit = json!({"amount": amount, "unit": "ISK"});
    let settings = json!({"autonomy_level": 3, "budget_limit": limit});
    server.patch("/agent/settings", settings).await.expect_ok();
}

/// The question of that kind among these frames.
fn approval_of_kind<'a>(frames: &'a [Frame], kind: &str) -> &'a Value {
    let questions = frames_of_kind(frames, "waiting_for_approval");
    let plan = questions.iter().map(|frame| &frame.data["plan"]).find(|plan| plan["kind"] == kind);
    plan.unwrap_or_else(|| panic!("no {kind}: {}", format_frames(frames)))
}

async fn decide(server: &TestServer, question: &Value, body: Value) -> Value {
    let path = format!("/agent/approvals/{}", question["approval_id"].as_str().unwrap());
    server.post(&path, body).await.expect_ok()
}

#[actix_web::test]
async fn g6_one_of_two_racing_sessions_gets_the_remaining_budget() {
    let server = order_setup().start().await;
    set_budget_limit(&server, 60.0).await;
    let (one, two) = (server.create_session_at(3).await, server.create_session_at(3).await);
    let until_paused = |session: String| {
        let server = &server;
        async move {
            let body = json!({"session_id": session, "message": "go", "until": "pause"});
            server.chat_with(body).await.read_to_end().await
        }
    };
    let (one, two) = futures::join!(until_paused(one), until_paused(two));
    let ended = |frames: &[Frame]| frames.last().unwrap().kind() == "done";
    assert_ne!(ended(&one), ended(&two), "{}\n{}", format_frames(&one), format_frames(&two));
    assert_eq!(server.effects().len(), 1);
    let (winner, loser) = if ended(&one) { (one, two) } else { (two, one) };
    assert_eq!(
        single_frame(&winner, "budget_reserved").data["cost"],
        json!({"amount": COST, "unit": "ISK"})
    );

    let asked = approval_of_kind(&loser, "budget");
    let budget = json!({"scope": "user", "period": "total", "measure": "ISK", "limit": 60.0});
    assert_eq!((&asked["budget"], &asked["spent"]), (&budget, &json!(COST)), "{asked}");
    assert_eq!(asked["needed"], json!(COST));
    let elsewhere = json!([{"what": "the user's other sessions and earlier runs", "amount": COST}]);
    assert_eq!(asked["spent_on"], elsewhere);

    let path = format!("/agent/approvals/{}", asked["approval_id"].as_str().unwrap());
    server
        .post(&path, json!({"decision": "raise", "value": 70}))
        .await
        .expect_problem(422, "invalid_answer");
    decide(&server, asked, json!({"decision": "raise", "value": 100})).await;
    let all = server.wait_for_event(loser[0].text("agent_id"), "done").await;
    assert_eq!(server.effects().len(), 2);
    let order = ["budget_reached", "budget_raised", "budget_reserved", "tool_call_attempt_started"];
    assert_eq!(kinds_of(&all, &order), order, "{}", format_frames(&all));
}

#[actix_web::test]
async fn g6_definite_failure_releases_the_reservation_across_a_crash() {
    let unknown_item = ORDER.replace("type_id = 34", "type_id = 999999");
    let script = tool_call_script("market_order_create", &unknown_item);
    let mut server = TestServerBuilder::with_script(ProviderProtocol::OpenAi, &script).start().await;
    set_budget_limit(&server, 60.0).await;
    let session = server.create_session_at(3).await;
    let failed = server.chat_to_end(&session, "go").await;
    assert_eq!(
        single_frame(&failed, "tool_call_failed").data["reason"],
        "error",
        "{}",
        format_frames(&failed)
    );
    // Had it not been released, there would be no room for another.
    let again = server.chat_to_end(&session, "go").await;
    assert!(frames_of_kind(&again, "budget_reached").is_empty(), "{}", format_frames(&again));
    assert_eq!(frames_of_kind(&again, "budget_reserved").len(), 1);
    server.kill_and_restart().await;
    let after = server.chat_to_end(&session, "go").await;
    assert!(frames_of_kind(&after, "budget_reached").is_empty(), "{}", format_frames(&after));
}

#[actix_web::test]
async fn g6_spent_budget_survives_a_restart() {
    let mut server = order_setup().start().await;
    set_budget_limit(&server, 60.0).await;
    let session = server.create_session_at(3).await;
    assert_eq!(server.chat_to_end(&session, "go").await.last().unwrap().kind(), "done");
    server.kill_and_restart().await;
    let body = json!({"session_id": session, "message": "go", "until": "pause"});
    let frames = server.chat_with(body).await.read_to_end().await;
    let asked = approval_of_kind(&frames, "budget");
    assert_eq!(asked["spent_on"], json!([{"what": "market_order_create", "amount": COST}]));
    // It waits through another restart, and who stops it ends the run.
    server.kill_and_restart().await;
    let word = json!({"decision": "stop", "reason": "enough"});
    let taken = decide(&server, asked, word).await;
    assert_eq!(taken["approval"]["answer"]["decision"], "stop");
    let all = server.wait_for_event(&session, "error").await;
    let error = &single_frame(&all, "error").data;
    assert_eq!(error["code"], "budget_reached", "{error}");
    assert!(error["error"].as_str().unwrap().contains("stopped the run"), "{error}");
    assert_eq!(server.effects().len(), 1);
}

#[actix_web::test]
async fn g6_token_budget_is_checked_before_each_step() {
    let setup = TestServerBuilder::with_script(
        ProviderProtocol::Anthropic,
        &tool_call_script("get_market_prices", "{ type_ids = [34] }"),
    );
    let server = setup.with_agent_config("budgets = { run = { tokens = 1 } }").start().await;
    let session = server.create_session_at(1).await;
    let body = json!({"session_id": session, "message": "go", "until": "pause"});
    let frames = server.chat_with(body).await.read_to_end().await;
    // What ran was not cut off: the step that reached it finished.
    assert_eq!(frames_of_kind(&frames, "step_completed").len(), 1, "{}", format_frames(&frames));
    assert_eq!(frames_of_kind(&frames, "tool_call_completed").len(), 1);
    let asked = approval_of_kind(&frames, "budget");
    assert_eq!(
        (&asked["budget"]["scope"], &asked["budget"]["measure"]),
        (&json!("run"), &json!("tokens"))
    );
    assert!(asked["spent"].as_f64().unwrap() > 1.0, "{asked}");
    decide(&server, asked, json!({"decision": "raise", "value": 1_000_000})).await;
    let all = server.wait_for_event(&session, "done").await;
    assert_eq!(frames_of_kind(&all, "step_completed").len(), 2, "{}", format_frames(&all));
}
