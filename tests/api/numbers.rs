//! Numbers keep every digit from the model to the tool, through plans, edits, events and exports (M2).

use crate::{
    harness::{TestServer, TestServerBuilder},
    scripts::tool_call_script,
    stream::{Stream, frames_of_kind, last_message_text, single_frame},
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};

on_both_wires!(m2_numbers_keep_every_digit_from_model_to_tool);

const ARGUMENTS: &str = concat!(
    r#"{"a":123456789012345678901234567890,"b":0.1000000000000000055511151231257827,"#,
    r#""c":1e+400,"d":-0,"e":100000,"f":1.0}"#
);

/// Starts a server with a tool `first` that returns the text of its arguments, and a script that calls
/// it with `arguments`.
async fn start(wire: ProviderProtocol, arguments: &str, entry: &str) -> TestServer {
    let server = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp/odd_server.py");
    let config = format!(
        "[mcpServers.odd]\ncommand = 'python3'\nargs = [{server:?}, 'numbers']\n\
         [tools.first]\nserver = 'odd'\nrisk = 'write_high_risk'\n{entry}\n"
    );
    let script = tool_call_script("first", &format!("'{arguments}'"));
    TestServerBuilder::with_script(wire, &script).with_config(&config).start().await
}

async fn start_until_approval(server: &TestServer) -> (String, Stream, Value) {
    let session = server.create_session_at(1).await;
    let mut stream = server.chat(&session, "go").await;
    let frames = stream.read_until("waiting_for_approval").await;
    let plan = frames.last().unwrap().data["plan"].clone();
    (session, stream, plan)
}

/// Approves the only call with these arguments, and returns the rest of the stream.
async fn approve(
    server: &TestServer,
    stream: &mut Stream,
    plan: &Value,
    arguments: &Value,
) -> Vec<crate::stream::Frame> {
    let path = format!("/agent/approvals/{}", plan["plan_id"].as_str().unwrap());
    let call_id = &plan["steps"][0]["call_id"];
    let step = json!({"call_id": call_id, "decision": "approve", "arguments": arguments});
    server.post(&path, json!({ "steps": [step] })).await.expect_ok();
    stream.read_to_end().await
}

async fn m2_numbers_keep_every_digit_from_model_to_tool(wire: ProviderProtocol) {
    let server = start(wire, ARGUMENTS, "").await;
    let (session, mut stream, plan) = start_until_approval(&server).await;
    assert_eq!(plan["steps"][0]["arguments"].to_string(), ARGUMENTS);
    let path = format!("/agent/approvals/{}", plan["plan_id"].as_str().unwrap());
    let row = server.get(&path).await.expect_ok();
    assert_eq!(row["steps"][0]["arguments"].to_string(), ARGUMENTS);

    // Sent back unchanged, they are no edit.
    let arguments = plan["steps"][0]["arguments"].clone();
    let rest = approve(&server, &mut stream, &plan, &arguments).await;
    assert!(single_frame(&rest, "tool_call_allowed").data.get("edit").is_none());
    let result = &single_frame(&rest, "tool_call_completed").data;
    assert_eq!(result["result"].to_string(), ARGUMENTS, "{result}");
    assert!(last_message_text(&rest).ends_with(ARGUMENTS), "{}", last_message_text(&rest));
    let events = json!(server.events(&session).await).to_string();
    assert!(events.contains(ARGUMENTS), "{events}");
    let messages = server.get(&format!("/agent/session/{session}/messages")).await.expect_ok();
    assert!(messages.to_string().contains(ARGUMENTS), "{messages}");
}

#[actix_web::test]
async fn m2_edited_numbers_reach_the_tool_with_every_digit() {
    let server = start(ProviderProtocol::Anthropic, ARGUMENTS, "").await;
    let (_session, mut stream, plan) = start_until_approval(&server).await;
    let edited = r#"{"a":987654321098765432109876543210,"b":1e-400}"#;
    let arguments: Value = serde_json::from_str(edited).unwrap();
    let rest = approve(&server, &mut stream, &plan, &arguments).await;
    let allowed = &frames_of_kind(&rest, "tool_call_allowed")[0].data;
    assert_eq!(allowed["edit"]["arguments"].to_string(), edited);
    let result = &single_frame(&rest, "tool_call_completed").data;
    assert_eq!(result["result"].to_string(), edited, "{result}");
}

#[actix_web::test]
async fn m2_call_with_number_that_a_constraint_cannot_represent_is_denied() {
    let entry = "constraints = ['args.a > 0']";
    let server = start(ProviderProtocol::Anthropic, ARGUMENTS, entry).await;
    let session = server.create_session_at(2).await;
    let frames = server.chat(&session, "go").await.read_to_end().await;
    let denied = &single_frame(&frames, "authorization_denied").data;
    let reason = denied["reason"].as_str().unwrap();
    let expected = "`/a`: an expression of the policy can't represent the number exactly";
    assert!(reason.contains(expected), "{reason}");
}

#[actix_web::test]
async fn x4_arguments_that_the_log_cannot_hold_are_invalid() {
    let hostile = r#"{"!":1,"$serde_json::private::Number":{}}"#;
    let server = start(ProviderProtocol::Anthropic, hostile, "").await;
    let session = server.create_session_at(2).await;
    let frames = server.chat(&session, "go").await.read_to_end().await;
    let failed = &single_frame(&frames, "tool_call_failed").data;
    assert!(failed["error"].as_str().unwrap().contains("is reserved"), "{failed}");
    server.chat(&session, "again").await.read_to_end().await;
}
