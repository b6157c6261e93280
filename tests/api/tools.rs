//! Tools: huge and unusual results, progress, cancellation, crashes, logs (T2, T4, T5, E6, E7, S6).

use crate::{
    harness::{MODEL_KEY, TestServerBuilder},
    scripts::tool_call_script,
    stream::{Frame, format_frames, frames_of_kind, last_message_text, single_frame},
};
use greenroom::rehearsal::ProviderProtocol;
use serde_json::{Value, json};

on_both_wires!(t4_huge_result_is_truncated_with_a_marker, e6_unusual_values_reach_client_and_model);

const TEST_TOOLS: &str =
    "[tools.\"test_*\"]\nserver = 'market'\nrisk = 'read_only'\nretry = { max = 1, base = '5ms' }";

fn with_test_tools(wire: ProviderProtocol, tool: &str, arguments: &str) -> TestServerBuilder {
    TestServerBuilder::with_script(wire, &tool_call_script(tool, arguments))
        .with_config(TEST_TOOLS)
        .with_market_env("MARKET_TEST_TOOLS", "1")
}

async fn t4_huge_result_is_truncated_with_a_marker(wire: ProviderProtocol) {
    let server = with_test_tools(wire, "test_huge_result", "{ bytes = 50000000 }").start().await;
    let session = server.create_session_at(1).await;
    let frames = server.chat_to_end(&session, "go").await;
    let completed = &single_frame(&frames, "tool_call_completed").data;
    assert_eq!(completed["truncated"], true);
    let result = completed["result"].as_str().unwrap();
    assert!(result.len() <= 256 * 1024, "{} bytes", result.len());
    let end = &result[result.len() - 120..];
    assert!(end.contains("cut") || end.contains("truncated"), "a marker, in {end:?}");
    assert!(server.rehearsal.requests()[1].body.to_string().len() < 600 * 1024);
    assert_eq!(last_message_text(&server.chat_to_end(&session, "again").await), "Here I am.");
}

async fn e6_unusual_values_reach_client_and_model(wire: ProviderProtocol) {
    let server = with_test_tools(wire, "test_odd_values", "{}").start().await;
    let session = server.create_session_at(1).await;
    let frames = server.chat_to_end(&session, "go").await;
    let result = &single_frame(&frames, "tool_call_completed").data["result"];
    assert_eq!(result["astral"], "🚀");
    assert_eq!(result["largest_u64"], json!(u64::MAX));
    assert!(result["control"].as_str().unwrap().starts_with("nul "));
    assert_eq!(
        single_frame(&frames, "done").data["outcome"],
        "completed",
        "{}",
        format_frames(&frames)
    );
    assert_eq!(server.events(&session).await.len(), replayed_frames(&server, &session).await.len());
}

async fn replayed_frames(server: &crate::harness::TestServer, session: &str) -> Vec<Frame> {
    let frames = server.wait_for_event(session, "done").await;
    frames.into_iter().filter(|frame| frame.kind() != "text").collect()
}

#[actix_web::test]
async fn s6_running_tool_reports_progress_and_can_be_cancelled() {
    let scan = tool_call_script("scan_opportunities", "{ region_id = 10000002, seconds = 500 }");
    let server = TestServerBuilder::with_script(ProviderProtocol::Anthropic, &scan).start().await;
    let session = server.create_session_at(1).await;
    let mut stream = server.chat(&session, "go").await;
    let frames = stream.read_until("tool_call_progress").await;
    let progress = &frames.last().unwrap().data;
    assert!(progress["progress"].is_number() && progress["tool"] == "scan_opportunities");
    let path = format!("/agent/session/{session}/cancel");
    server.post(&path, json!({})).await.expect_ok();
    let rest = stream.read_to_end().await;
    assert_eq!(single_frame(&rest, "tool_call_failed").data["reason"], "cancelled");
    assert_eq!(single_frame(&rest, "done").data["outcome"], "cancelled");
    // The tool received the cancellation.
    server
        .wait_until("the scan stops", |server| {
            server.effects().iter().any(|line| line.to_string().contains("scan_cancelled"))
        })
        .await;
    assert_eq!(last_message_text(&server.chat_to_end(&session, "again").await), "Here I am.");
}

#[actix_web::test]
async fn t2_tools_stay_listed_after_their_server_crashes() {
    let server = with_test_tools(ProviderProtocol::OpenAi, "test_crash", "{}").start().await;
    let session = server.create_session_at(1).await;
    let frames = server.chat_to_end(&session, "go").await;
    let failed = &single_frame(&frames, "tool_call_failed").data;
    assert_eq!(failed["retries_exhausted"], true, "{failed}");
    assert_eq!(frames_of_kind(&frames, "tool_call_retrying").len(), 1);
    assert_eq!(single_frame(&frames, "done").data["outcome"], "completed");
    let tools = server.get("/agent/tools").await.expect_ok();
    assert!(tools["tools"].as_array().unwrap().len() >= 20, "the tools stay listed: {tools}");
}

#[actix_web::test]
async fn t2_failed_tool_server_does_not_affect_others() {
    let broken_server = "[mcpServers.broken]\ncommand = '/nonexistent/program'";
    let server = TestServerBuilder::tour(ProviderProtocol::Anthropic)
        .with_config(broken_server)
        .start()
        .await;
    let listed = server.get("/admin/actors?kind=ToolConnection").await.expect_ok();
    let actors = listed["actors"].as_array().unwrap();
    let connection = actors.iter().find(|actor| actor["state"] != "ready").unwrap();
    assert!(connection["path"].as_str().unwrap().ends_with("broken"), "{connection}");
    assert!(!connection["last_error"].as_str().unwrap().is_empty(), "{connection}");
    let servers = server.get("/agent/tools").await.expect_ok()["servers"].clone();
    let status = |name: &str| {
        let servers = servers.as_array().unwrap();
        servers.iter().find(|server| server["name"] == name).unwrap().clone()
    };
    assert_eq!(status("market")["state"], "ready");
    let reason = status("broken")["reason"].clone();
    assert!(reason.as_str().unwrap().contains("/nonexistent/program"), "{servers}");
    let session = server.create_session_at(1).await;
    let frames =
        server.chat_to_end(&session, "What is the current sell price of Tritanium in Jita?").await;
    assert!(last_message_text(&frames).contains("4.12 ISK"));
}

#[actix_web::test]
async fn t4_call_that_exceeds_its_timeout_fails() {
    let config = "[tools.test_hang]\nserver = 'market'\nrisk = 'read_only'\ntimeout = '50ms'\nretry = { max = 1, base = '5ms' }\n\
                 [tools.wallet_transfer]\nserver = 'market'\nrisk = 'write_low_risk'\ntimeout = '2s'";
    let setup = TestServerBuilder::with_script(
        ProviderProtocol::Anthropic,
        &tool_call_script("test_hang", "{}"),
    )
    .with_config(config);
    let server = setup.with_market_env("MARKET_TEST_TOOLS", "1").start().await;
    let session = server.create_session_at(1).await;
    let frames = server.chat_to_end(&session, "go").await;
    assert_eq!(frames_of_kind(&frames, "tool_call_retrying").len(), 1);
    let failed = &single_frame(&frames, "tool_call_failed").data;
    assert_eq!(
        (&failed["reason"], &failed["retries_exhausted"]),
        (&json!("timeout"), &json!(true))
    );
}

#[actix_web::test]
async fn e7_calls_are_logged_redacted_and_failures_as_warnings() {
    let arguments = "{ name = 'Home', system = 'Jita', password = 'open sesame' }";
    let server = TestServerBuilder::with_script(
        ProviderProtocol::Anthropic,
        &tool_call_script("create_bookmark", arguments),
    )
    .start()
    .await;
    let session = server.create_session_at(1).await;
    server.chat_to_end(&session, "go").await;
    let log = std::fs::read_to_string(server.folder().join("server.log")).unwrap();
    let line = |message: &str| {
        let line = log.lines().find(|line| line.contains(message));
        line.unwrap_or_else(|| panic!("no {message} in {log}")).to_owned()
    };
    // The fields have the same values as the events.
    let fields = |line: &str| serde_json::from_str::<Value>(line).unwrap()["fields"].clone();
    let called = line(r#""message":"tool call proposed""#);
    assert_eq!(fields(&called)["tool"], "create_bookmark");
    assert!(called.contains(r#""level":"INFO""#) && called.contains(&session), "{called}");
    assert!(called.contains("create_bookmark") && called.contains("[redacted]"), "{called}");
    let failed = line(r#""message":"tool call failed""#);
    assert!(failed.contains(r#""level":"WARN""#) && failed.contains("password"), "{failed}");
    let failed_fields = fields(&failed);
    assert_eq!(
        (&failed_fields["tool"], &failed_fields["reason"]),
        (&json!("create_bookmark"), &json!("invalid_arguments"))
    );
    assert!(!failed_fields["error"].as_str().unwrap().starts_with('"'), "{failed}");
    assert!(!log.contains("open sesame"));
}

#[actix_web::test]
async fn e7_unreachable_server_reports_only_its_origin() {
    let away = "[mcpServers.away]\nallow_private = true\n\
                url = 'http://127.0.0.1:1/s/${MODEL_KEY}/mcp?key=QueryS3cret'";
    let server =
        TestServerBuilder::tour(ProviderProtocol::Anthropic).with_config(away).start().await;
    let listed = server.get("/agent/tools").await.expect_ok();
    let servers = listed["servers"].as_array().unwrap();
    let away = servers.iter().find(|server| server["name"] == "away").unwrap();
    let reason = away["reason"].as_str().unwrap();
    assert!(reason.contains("for url (http://127.0.0.1:1)"), "{reason}");
    let log = std::fs::read_to_string(server.folder().join("server.log")).unwrap();
    // A log line of the HTTP library contains the whole URL.
    assert!(log.contains("http://127.0.0.1:1/s/[redacted]/mcp?[redacted]"), "{log}");
    assert!(!log.contains(MODEL_KEY) && !log.contains("QueryS3cret"), "{log}");
}
