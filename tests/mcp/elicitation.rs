//! Tool servers that request input from the user during a call (T1): "everything" from npm with a
//! request of its own, and the market with the mechanisms of both MCP revisions.

use crate::harness::{
    ToolServerFixture, channel, market_binary, run, stdio, stdio_env, test_dep, tool_call,
};
use greenroom::tool::{McpLifecycle, ToolServerConfig};
use greenroom_actors::ports::{ElicitationChannel, ElicitationRequest, ToolHost};
use greenroom_core::{
    approval::{ElicitationAnswer, ElicitationMode},
    call::{ToolOutcome, ToolOutput},
};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

fn everything() -> ToolServerConfig {
    stdio("everything", test_dep("npm/node_modules/.bin/mcp-server-everything"), &["stdio"])
}

fn market_server(folder: &tempfile::TempDir, lifecycle: McpLifecycle) -> ToolServerConfig {
    let record = folder.path().join("market.jsonl").display().to_string();
    ToolServerConfig {
        lifecycle,
        ..stdio_env("market", market_binary(), &[], &[("MARKET_FILE", &record)])
    }
}

/// Starts a call of the tool. Its elicitation requests arrive on the returned channel.
fn call(
    fixture: &ToolServerFixture,
    tool: &str,
    arguments: Value,
    timeout: Duration,
) -> (tokio::task::JoinHandle<ToolOutcome>, mpsc::Receiver<ElicitationRequest>, CancellationToken) {
    let (sender, receiver) = mpsc::channel(1);
    let mut call = tool_call(tool, arguments);
    (call.elicitation, call.timeout) = (ElicitationChannel::new(sender), Some(timeout));
    let cancel = CancellationToken::new();
    let call_task = tokio::spawn(fixture.tools.call_tool(call, channel().0, cancel.clone()));
    (call_task, receiver, cancel)
}

const CALL_TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn t1_everything_elicits_by_a_request_of_its_own() {
    run(async {
        let fixture = ToolServerFixture::start([everything()]).await;
        let tool = "trigger-elicitation-request";
        assert!(fixture.names().contains(&tool.to_owned()), "{:?}", fixture.names());
        let (call_task, mut requests, _) = call(&fixture, tool, json!({}), CALL_TIMEOUT);
        let request = requests.recv().await.expect("the tool requests input");
        let ElicitationMode::Form { schema } = &request.elicitation.mode else {
            panic!("{request:?}")
        };
        assert!(schema["properties"]["name"].is_object(), "{schema}");
        let answer = request.elicitation.clone().validated().unwrap();
        let answer = answer.validate_answer(&json!({"name": "Ann"})).unwrap();
        request.reply.send(answer).unwrap();
        let ToolOutcome::Completed(ToolOutput { text, .. }) = call_task.await.unwrap() else {
            panic!("the call failed");
        };
        assert!(text.contains("Ann"), "{text}");

        let (call_task, mut requests, _) = call(&fixture, tool, json!({}), CALL_TIMEOUT);
        let request = requests.recv().await.expect("the tool requests input again");
        request.reply.send(ElicitationAnswer::Declined).unwrap();
        let ToolOutcome::Completed(ToolOutput { text, .. }) = call_task.await.unwrap() else {
            panic!("the call failed");
        };
        assert!(text.contains("declined"), "{text}");
        fixture.tools.shut_down().await;
    });
}

#[test]
fn t1_elicitation_without_channel_is_declined() {
    run(async {
        let fixture = ToolServerFixture::start([everything()]).await;
        let output = fixture.call_ok("trigger-elicitation-request", json!({})).await;
        assert!(output.text.contains("declined"), "{}", output.text);
        fixture.tools.shut_down().await;
    });
}

/// Checks the elicitation of the market in one of the two revisions.
async fn check_market_elicitation(lifecycle: McpLifecycle) {
    let folder = tempfile::tempdir().unwrap();
    let fixture = ToolServerFixture::start([market_server(&folder, lifecycle)]).await;
    let (tool, arguments) = ("choose_hangar", json!({"type_id": 587}));
    // T4: the timeout of a call does not include the time for an answer. The first answer takes
    // longer than the timeout.
    let (timeout, mut answer_delay) = (Duration::from_secs(2), Duration::from_millis(2_300));
    for (answer, expected) in [
        (
            ElicitationAnswer::Accepted(Some(json!({"hangar": "south", "crates": 2}))),
            Ok(json!({"type_id": 587, "item": "Rifter", "hangar": "south", "crates": 2})),
        ),
        (ElicitationAnswer::Declined, Err("declined to choose")),
        (ElicitationAnswer::Cancelled, Err("no hangar was chosen")),
    ] {
        let (call_task, mut requests, _) = call(&fixture, tool, arguments.clone(), timeout);
        let request = requests.recv().await.expect("the tool requests input");
        assert_eq!(request.elicitation.message, "Which hangar shall Rifter go to?");
        let ElicitationMode::Form { schema } = &request.elicitation.mode else {
            panic!("{request:?}")
        };
        assert_eq!(schema["required"], json!(["hangar"]));
        tokio::time::sleep(std::mem::take(&mut answer_delay)).await;
        request.reply.send(answer).unwrap();
        match (call_task.await.unwrap(), expected) {
            (ToolOutcome::Completed(output), Ok(expected)) => {
                assert_eq!(output.structured, Some(expected));
            }
            (ToolOutcome::Failed { error, .. }, Err(text)) => {
                assert!(error.contains(text), "{error}");
            }
            (outcome, expected) => panic!("{outcome:?} is not {expected:?}"),
        }
    }
    // S6: the elicitation of a cancelled call is withdrawn.
    let (call_task, mut requests, cancel) = call(&fixture, tool, arguments, CALL_TIMEOUT);
    let request = requests.recv().await.expect("the tool requests input");
    cancel.cancel();
    request.withdrawn.cancelled().await;
    assert!(
        matches!(call_task.await.unwrap(), ToolOutcome::Failed { error, .. } if error == "cancelled")
    );
    let output = fixture.call_ok("get_item_info", json!({"type_id": 587})).await;
    assert!(output.text.contains("Rifter"), "the next call fails: {}", output.text);
    fixture.tools.shut_down().await;
}

#[test]
fn t1_t4_market_elicits_with_revision_2026_07_28() {
    run(check_market_elicitation(McpLifecycle::Discover));
}

#[test]
fn t1_t4_market_elicits_with_revision_2025_11_25() {
    run(check_market_elicitation(McpLifecycle::Initialize));
}

#[test]
fn t1_elicitation_of_older_server_with_several_running_calls_is_declined() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let fixture =
            ToolServerFixture::start([market_server(&folder, McpLifecycle::Initialize)]).await;
        let slow = json!({"region_id": 10_000_002, "seconds": 600});
        let (scan_task, _, cancel) = call(&fixture, "scan_opportunities", slow, CALL_TIMEOUT);
        let (progress, mut progress_updates) = channel();
        let long =
            tool_call("scan_opportunities", json!({"region_id": 10_000_002, "seconds": 600}));
        let second_cancel = CancellationToken::new();
        let second_scan =
            tokio::spawn(fixture.tools.call_tool(long, progress, second_cancel.clone()));
        progress_updates.recv().await.expect("the call runs");
        let (call_task, mut requests, _) =
            call(&fixture, "choose_hangar", json!({"type_id": 587}), CALL_TIMEOUT);
        let outcome = call_task.await.unwrap();
        assert!(
            matches!(&outcome, ToolOutcome::Failed { error, .. } if error.contains("declined to choose")),
            "{outcome:?}"
        );
        assert!(requests.recv().await.is_none(), "the request cannot be assigned to a call");
        cancel.cancel();
        second_cancel.cancel();
        drop((scan_task.await, second_scan.await));
        fixture.tools.shut_down().await;
    });
}
