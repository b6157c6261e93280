//! Preflight plans over `/gateway` (G14): edited and skipped steps, of a client of the WebSocket and
//! of `greenroom chat`.

use crate::{
    harness::{TestServer, TestServerBuilder},
    preflight::{order, preflight_script},
    stream::Socket,
    terminal::Terminal,
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};

/// Returns the steps of the session's approved plan.
async fn approved_steps(server: &TestServer, session: &str) -> Vec<Value> {
    let events = server.events(session).await;
    let approved = events.iter().find(|event| event["type"] == "preflight_approved");
    approved.expect("the plan was approved")["steps"].as_array().unwrap().clone()
}

#[actix_web::test]
async fn g14_edited_and_skipped_steps_are_those_of_the_checklist() {
    let script = preflight_script(&[1000, 7, 9], &[1000]);
    let server = TestServerBuilder::with_script(ProviderProtocol::Anthropic, &script).start().await;
    let session = server.create_session(json!({"autonomy_level": 1, "preflight": true})).await;
    let mut socket = server.socket("/gateway").await;
    socket
        .send(json!({"type": "chat.send", "id": "1", "sessionId": session, "content": "go"}))
        .await;
    let checklist = socket.read_until("preflight.checklist").await.pop().unwrap();
    let shown = |index: usize| {
        let step = &checklist["steps"][index];
        json!({"description": step["description"], "toolName": step["toolName"]})
    };
    let approval = |steps: Value| {
        json!({
            "type": "preflight.approval", "id": "answer", "requestId": "1", "approved": true,
            "editedSteps": steps,
        })
    };
    let mut renamed = shown(2);
    renamed["toolName"] = json!("wallet_transfer");
    for (steps, field) in [
        (json!([shown(0), shown(1)]), "editedSteps[2]"),
        (json!([shown(0), shown(1), shown(2), shown(2)]), "editedSteps[3]"),
        (json!([shown(0), shown(1), renamed]), "editedSteps[2].toolName"),
    ] {
        socket.send(approval(steps)).await;
        let error = socket.next().await;
        assert_eq!(
            (&error["type"], &error["code"], &error["field"], &error["requestId"]),
            (&json!("error"), &json!("invalid_request"), &json!(field), &json!("answer"))
        );
        let pending = server.get("/agent/approvals?state=pending").await.expect_ok();
        assert_eq!(pending["approvals"].as_array().unwrap().len(), 1, "{field}");
    }
    let described = json!({"description": "Buy the usual", "toolName": "market_order_create"});
    let mut skipped = shown(1);
    skipped["skip"] = json!(true);
    socket.send(approval(json!([described, skipped, shown(2)]))).await;
    let end = socket.read_until("chat.stream.end").await.pop().unwrap();
    assert_eq!(end["outcome"], "completed");
    let steps = approved_steps(&server, &session).await;
    let column = |name: &str| steps.iter().map(|step| step[name].clone()).collect::<Vec<_>>();
    assert_eq!(column("description"), ["Buy the usual", "Buy 7", "Buy 9"]);
    assert_eq!(column("arguments"), [order(1000), order(7), order(9)]);
    assert_eq!(column("edited"), [json!(true), Value::Null, Value::Null]);
    assert_eq!(column("skipped"), [Value::Null, json!(true), Value::Null]);
    assert_eq!(server.effects().len(), 1, "the described step covers its call");
}

#[actix_web::test]
async fn g14_chat_edits_and_skips_steps_of_a_real_server() {
    let server = TestServerBuilder::tour(ProviderProtocol::Anthropic).start().await;
    let session = server.create_session(json!({"autonomy_level": 1, "preflight": true})).await;
    let mut terminal = Terminal::open(&server, 100, 50, &["chat", "--session", &session], &[]);
    terminal.wait_for_text("›").await;
    terminal.enter("Buy 1000 Tritanium at market price");
    terminal.wait_for_text("Run the plan?").await;
    terminal.enter("s 2");
    terminal.wait_for_text("(skipped) market_order_create").await;
    terminal.enter("s 2");
    terminal
        .wait_until("step 2 included", |screen| {
            let (_, shown_last) = screen.rsplit_once("? Plan").unwrap();
            shown_last.contains("market_order_create") && !shown_last.contains("skipped")
        })
        .await;
    terminal.enter("s 1");
    terminal.wait_for_text("(skipped) get_market_stats").await;
    terminal.enter("e 2");
    terminal.wait_for_text("Step 2 ›").await;
    terminal.enter(" and report");
    terminal.wait_for_text("and report market_order_create").await;
    terminal.enter("y");
    terminal.wait_for_text("Done: order").await;
    terminal.wait_for_text("tokens in").await;
    let steps = approved_steps(&server, &session).await;
    assert_eq!(steps[0]["skipped"], true);
    assert!(steps[1]["description"].as_str().unwrap().ends_with(" and report"), "{steps:?}");
    assert_eq!((&steps[1]["edited"], &steps[1]["arguments"]), (&json!(true), &order(1000)));
    assert_eq!(server.effects().len(), 1);
}

/// Sends a request with a preflight in a new session; returns its socket and its checklist.
async fn start_preflight(server: &TestServer, id: &str) -> (Socket, Value) {
    let mut socket = server.socket("/gateway").await;
    let request = json!({"type": "chat.send", "id": id, "content": "go", "preflight": true});
    socket.send(request).await;
    let checklist = socket.read_until("preflight.checklist").await.pop().unwrap();
    (socket, checklist)
}

async fn end_outcome(socket: &mut Socket) -> Value {
    socket.read_until("chat.stream.end").await.pop().unwrap()["outcome"].clone()
}

#[actix_web::test]
async fn g14_plan_is_answered_on_a_new_connection() {
    const UUID: &str = "f81d4fae-7dec-4d2a-a765-00a0c91e6bf6";
    let script = preflight_script(&[1000], &[1000]);
    let server = TestServerBuilder::with_script(ProviderProtocol::Anthropic, &script).start().await;
    let mut other = server.socket("/gateway").await;
    let approval = |id: &str, approved: bool| json!({"type": "preflight.approval", "id": "a", "requestId": id, "approved": approved});
    for (number, id) in (1..).zip(["1", UUID]) {
        let (mut socket, checklist) = start_preflight(&server, id).await;
        // The price of the scripted model is unknown.
        let cost = &checklist["estimatedCost"];
        assert_eq!((&cost["estimatedUSD"], &cost["costKnown"]), (&json!(0), &json!(false)));
        let warnings = checklist["warnings"].to_string();
        assert!(warnings.contains("the price of the model `scripted` is unknown"), "{warnings}");
        other.send(approval(id, true)).await;
        let frames = socket.read_until("chat.stream.end").await;
        let end = frames.last().unwrap();
        assert_eq!(end["outcome"], "completed");
        assert_eq!(end["usage"].get("costUSD"), None);
        assert_eq!(server.effects().len(), number);
    }
    // Two requests with one id: the answer names the approval.
    let (mut first, checklist) = start_preflight(&server, "1").await;
    let (mut second, _) = start_preflight(&server, "1").await;
    other.send(approval("1", true)).await;
    let error = other.next().await;
    assert_eq!((&error["type"], &error["field"]), (&json!("error"), &json!("requestId")));
    let mut named = approval("1", false);
    named["approvalId"] = checklist["approvalId"].clone();
    other.send(named).await;
    assert_eq!(end_outcome(&mut first).await, "cancelled");
    other.send(approval("1", false)).await;
    assert_eq!(end_outcome(&mut second).await, "cancelled");
    for (id, code) in
        [("1", "approval_not_found"), (UUID, "already_decided"), ("2", "approval_not_found")]
    {
        other.send(approval(id, false)).await;
        assert_eq!(other.next().await["code"], code, "{id}");
    }
}
