//! Answers that change arguments or create grants (G8, G9).

use crate::{
    harness::{TestServer, TestServerBuilder},
    scripts::{ORDER, tool_call_script},
    stream::{format_frames, frames_of_kind, last_message_text},
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};

on_both_wires!(
    g8_edited_arguments_are_the_ones_executed,
    g9_session_grant_covers_calls_until_revoked,
);

/// Starts a run that waits for approval of one order; returns its session, stream and plan.
async fn start_until_approval(server: &TestServer) -> (String, crate::stream::Stream, Value) {
    let settings = json!({"allowed_regions": [10000002]});
    let session = server.create_session(json!({"autonomy_level": 1, "settings": settings})).await;
    let mut stream = server.chat(&session, "go").await;
    let frames = stream.read_until("waiting_for_approval").await;
    let plan = frames.last().unwrap().data["plan"].clone();
    (session, stream, plan)
}

fn order(quantity: u64) -> Value {
    json!({"type_id": 34, "region_id": 10000002, "side": "buy", "quantity": quantity, "price": 4.12})
}

async fn g8_edited_arguments_are_the_ones_executed(wire: ProviderProtocol) {
    let server =
        TestServerBuilder::with_script(wire, &tool_call_script("market_order_create", ORDER))
            .start()
            .await;
    let (_session, mut stream, plan) = start_until_approval(&server).await;
    let path = format!("/agent/approvals/{}", plan["plan_id"].as_str().unwrap());
    let edit = |arguments: Value| {
        let step = json!({
            "call_id": plan["steps"][0]["call_id"], "decision": "approve",
            "arguments": arguments, "reason": "half of it will do",
        });
        json!({ "steps": [step] })
    };
    // Invalid or forbidden arguments leave the approval pending.
    let mut mistyped = order(5);
    mistyped["quantity"] = json!("five");
    let problem = server.post(&path, edit(mistyped)).await.expect_problem(422, "invalid_edit");
    assert!(problem["detail"].as_str().unwrap().contains("/quantity"), "{problem}");
    let mut elsewhere = order(5);
    elsewhere["region_id"] = json!(99);
    let problem = server.post(&path, edit(elsewhere)).await.expect_problem(422, "invalid_edit");
    assert!(problem["detail"].as_str().unwrap().contains("region"), "{problem}");
    assert_eq!(server.get(&path).await.expect_ok()["state"], "pending");

    server.post(&path, edit(order(5))).await.expect_ok();
    let repeated_reply = server.post(&path, edit(order(5))).await.expect_ok();
    assert_eq!(repeated_reply["repeated"], true);
    server.post(&path, edit(order(6))).await.expect_problem(409, "already_decided");
    let rest = stream.read_to_end().await;
    let effects = server.effects();
    assert_eq!(effects.len(), 1);
    assert_eq!(effects[0]["arguments"]["quantity"], 5);
    // The tool result reports the change and its reason to the model.
    let answer = last_message_text(&rest);
    assert!(answer.contains("changed the arguments"), "{answer}");
    assert!(answer.contains("half of it will do"), "{answer}");
    let allowed = frames_of_kind(&rest, "tool_call_allowed");
    assert_eq!(allowed[0].data["edit"]["arguments"]["quantity"], 5, "{}", format_frames(&rest));
    assert_ne!(allowed[0].data["digest"], plan["steps"][0]["digest"]);
}

#[actix_web::test]
async fn e7_redaction_placeholder_restores_only_redacted_values() {
    let extra = "[redaction]\npatterns = ['badge [a-z]+']\n\
                 [tools.create_bookmark]\nserver = 'market'\nrisk = 'write_high_risk'";
    let arguments = "{ name = 'badge blue', system = 'Jita' }";
    let script = tool_call_script("create_bookmark", arguments);
    let server = TestServerBuilder::with_script(ProviderProtocol::Anthropic, &script)
        .with_config(extra)
        .start()
        .await;
    let (_session, mut stream, plan) = start_until_approval(&server).await;
    let shown = &plan["steps"][0]["arguments"];
    assert_eq!(shown, &json!({"name": "[redacted]", "system": "Jita"}));
    let path = format!("/agent/approvals/{}", plan["plan_id"].as_str().unwrap());
    let edit = |system: &str| {
        let arguments = json!({"name": "[redacted]", "system": system});
        let call = &plan["steps"][0]["call_id"];
        json!({"steps": [{"call_id": call, "decision": "approve", "arguments": arguments}]})
    };
    // A placeholder in place of a value that was not redacted is rejected.
    let problem = server.post(&path, edit("[redacted]")).await.expect_problem(422, "invalid_edit");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("`arguments.system`: contains `[redacted]`"), "{problem}");

    server.post(&path, edit("Amarr")).await.expect_ok();
    stream.read_to_end().await;
    let passed = server.effects()[0]["arguments"].clone();
    assert_eq!(passed, json!({"name": "badge blue", "system": "Amarr"}));
}

async fn g9_session_grant_covers_calls_until_revoked(wire: ProviderProtocol) {
    let mut server =
        TestServerBuilder::with_script(wire, &tool_call_script("market_order_create", ORDER))
            .start()
            .await;
    let (session, mut stream, plan) = start_until_approval(&server).await;
    let path = format!("/agent/approvals/{}", plan["plan_id"].as_str().unwrap());
    let granting =
        |condition: &str| json!({"decision": "approve", "for_session": {"where": condition}});
    server.post(&path, granting("args.quantity <")).await.expect_problem(422, "invalid_grant");
    server.post(&path, granting("args.quantity <= 10")).await.expect_ok();
    let repeated_reply = server.post(&path, granting("args.quantity <= 10")).await.expect_ok();
    assert_eq!(repeated_reply["repeated"], true);
    for other in [granting("args.quantity <= 99"), json!({"decision": "approve"})] {
        let refused = server.post(&path, other).await.expect_problem(409, "already_decided");
        assert_eq!(refused["first"][0]["for_session"], json!({"where": "args.quantity <= 10"}));
    }
    stream.read_to_end().await;

    let grants_path = format!("/agent/session/{session}/grants");
    let grants = server.get(&grants_path).await.expect_ok()["grants"].clone();
    assert_eq!(grants[0]["tool"], "market_order_create");
    assert_eq!(grants[0]["where"], "args.quantity <= 10");
    // The same call needs no approval under the grant.
    let frames = server.chat_to_end(&session, "go").await;
    assert_eq!(
        frames_of_kind(&frames, "waiting_for_approval").len(),
        0,
        "{}",
        format_frames(&frames)
    );
    assert_eq!(server.effects().len(), 2);

    // The grant survives a crash; after it is revoked, calls need approval again.
    server.kill_and_restart().await;
    server.chat_to_end(&session, "go").await;
    assert_eq!(server.effects().len(), 3);
    let grant_path = format!("{grants_path}/{}", grants[0]["grant_id"].as_str().unwrap());
    assert_eq!(server.delete(&grant_path).await.status, 204);
    server.delete(&grant_path).await.expect_problem(404, "grant_not_found");
    let mut stream = server.chat(&session, "go").await;
    stream.read_until("waiting_for_approval").await;
    assert_eq!(server.effects().len(), 3);
}
