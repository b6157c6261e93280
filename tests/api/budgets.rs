//! Budgets (G6): reservation, exhaustion, raising, stopping, and concurrent sessions.

use crate::{
    harness::{TestServer, TestServerBuilder},
    scripts::{ORDER, tool_call_script},
    stream::{Frame, format_frames, frames_of_kind, kinds_of, single_frame},
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};

/// Cost of one [`ORDER`] in ISK.
const COST: f64 = 41.2;

fn order_setup() -> TestServerBuilder {
    TestServerBuilder::with_script(
        ProviderProtocol::OpenAi,
        &tool_call_script("market_order_create", ORDER),
    )
}

/// Limits the user's spending to `amount` ISK, at a level where only a budget needs approval.
async fn set_budget_limit(server: &TestServer, amount: f64) {
    let limit = json!({"amount": amount, "unit": "ISK"});
    let settings = json!({"autonomy_level": 3, "budget_limit": limit});
    server.patch("/agent/settings", settings).await.expect_ok();
}

/// Returns the approval of kind `kind` among these frames; panics if there is none.
fn approval_of_kind<'a>(frames: &'a [Frame], kind: &str) -> &'a Value {
    let approvals = frames_of_kind(frames, "waiting_for_approval");
    let plan = approvals.iter().map(|frame| &frame.data["plan"]).find(|plan| plan["kind"] == kind);
    plan.unwrap_or_else(|| panic!("no {kind}: {}", format_frames(frames)))
}

async fn answer_approval(server: &TestServer, approval: &Value, body: Value) -> Value {
    let path = format!("/agent/approvals/{}", approval["approval_id"].as_str().unwrap());
    server.post(&path, body).await.expect_ok()
}

#[actix_web::test]
async fn g6_one_of_two_racing_sessions_gets_the_remaining_budget() {
    let server = order_setup().start().await;
    set_budget_limit(&server, 60.0).await;
    let (first, second) = (server.create_session_at(3).await, server.create_session_at(3).await);
    let until_paused = |session: String| {
        let server = &server;
        async move {
            let body = json!({"session_id": session, "message": "go", "until": "pause"});
            server.chat_with(body).await.read_to_end().await
        }
    };
    let (first, second) = futures::join!(until_paused(first), until_paused(second));
    let is_done = |frames: &[Frame]| frames.last().unwrap().kind() == "done";
    assert_ne!(
        is_done(&first),
        is_done(&second),
        "{}\n{}",
        format_frames(&first),
        format_frames(&second)
    );
    assert_eq!(server.effects().len(), 1);
    let (winner, loser) = if is_done(&first) { (first, second) } else { (second, first) };
    assert_eq!(
        single_frame(&winner, "budget_reserved").data["cost"],
        json!({"amount": COST, "unit": "ISK"})
    );

    let approval = approval_of_kind(&loser, "budget");
    let budget = json!({"scope": "user", "period": "total", "measure": "ISK", "limit": 60});
    assert_eq!((&approval["budget"], &approval["spent"]), (&budget, &json!(COST)), "{approval}");
    assert_eq!(approval["needed"], json!(COST));
    let elsewhere = json!([{"what": "the user's other sessions and earlier runs", "amount": COST}]);
    assert_eq!(approval["spent_on"], elsewhere);

    let path = format!("/agent/approvals/{}", approval["approval_id"].as_str().unwrap());
    server
        .post(&path, json!({"decision": "raise", "value": 70}))
        .await
        .expect_problem(422, "invalid_answer");
    answer_approval(&server, approval, json!({"decision": "raise", "value": 100})).await;
    let all = server.wait_for_event(loser[0].text("agent_id"), "done").await;
    assert_eq!(server.effects().len(), 2);
    let kinds = ["budget_reached", "budget_raised", "budget_reserved", "tool_call_attempt_started"];
    assert_eq!(kinds_of(&all, &kinds), kinds, "{}", format_frames(&all));
}

#[actix_web::test]
async fn g6_definite_failure_releases_the_reservation_across_a_crash() {
    let unknown_item = ORDER.replace("type_id = 34", "type_id = 999999");
    let script = tool_call_script("market_order_create", &unknown_item);
    let mut server =
        TestServerBuilder::with_script(ProviderProtocol::OpenAi, &script).start().await;
    set_budget_limit(&server, 60.0).await;
    let session = server.create_session_at(3).await;
    let failed = server.chat_to_end(&session, "go").await;
    assert_eq!(
        single_frame(&failed, "tool_call_failed").data["reason"],
        "error",
        "{}",
        format_frames(&failed)
    );
    // Without the release, the budget would have no room for another order.
    let second_run = server.chat_to_end(&session, "go").await;
    assert!(
        frames_of_kind(&second_run, "budget_reached").is_empty(),
        "{}",
        format_frames(&second_run)
    );
    assert_eq!(frames_of_kind(&second_run, "budget_reserved").len(), 1);
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
    let approval = approval_of_kind(&frames, "budget");
    assert_eq!(approval["spent_on"], json!([{"what": "market_order_create", "amount": COST}]));
    // The approval survives another restart, and answering it with `stop` ends the run.
    server.kill_and_restart().await;
    let body = json!({"decision": "stop", "reason": "enough"});
    let answered = answer_approval(&server, approval, body).await;
    assert_eq!(answered["approval"]["answer"]["decision"], "stop");
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
    // The step that reached the budget was not interrupted.
    assert_eq!(frames_of_kind(&frames, "step_completed").len(), 1, "{}", format_frames(&frames));
    assert_eq!(frames_of_kind(&frames, "tool_call_completed").len(), 1);
    let approval = approval_of_kind(&frames, "budget");
    assert_eq!(
        (&approval["budget"]["scope"], &approval["budget"]["measure"]),
        (&json!("run"), &json!("tokens"))
    );
    assert!(approval["spent"].as_f64().unwrap() > 1.0, "{approval}");
    answer_approval(&server, approval, json!({"decision": "raise", "value": 1_000_000})).await;
    let all = server.wait_for_event(&session, "done").await;
    assert_eq!(frames_of_kind(&all, "step_completed").len(), 2, "{}", format_frames(&all));
}
