//! Servers that ask people while a call runs (T1): "everything" from npm by requests of its own, the
//! market in the way of either revision.

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

/// Calls the tool; its questions come over the channel.
fn call(
    rig: &ToolServerFixture,
    tool: &str,
    arguments: Value,
    timeout: Duration,
) -> (tokio::task::JoinHandle<ToolOutcome>, mpsc::Receiver<ElicitationRequest>, CancellationToken) {
    let (asks, asked) = mpsc::channel(1);
    let mut call = tool_call(tool, arguments);
    (call.elicitation, call.timeout) = (ElicitationChannel::new(asks), Some(timeout));
    let cancel = CancellationToken::new();
    let calling = tokio::spawn(rig.tools.call_tool(call, channel().0, cancel.clone()));
    (calling, asked, cancel)
}

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn t1_everything_asks_by_a_request_of_its_own() {
    run(async {
        let rig = ToolServerFixture::start([everything()]).await;
        let tool = "trigger-elicitation-request";
        assert!(rig.names().contains(&tool.to_owned()), "{:?}", rig.names());
        let (calling, mut asked, _) = call(&rig, tool, json!({}), PATIENCE);
        let question = asked.recv().await.expect("it asks");
        let ElicitationMode::Form { schema } = &question.elicitation.mode else {
            panic!("{question:?}")
        };
        assert!(schema["properties"]["name"].is_object(), "{schema}");
        let answer = question.elicitation.clone().validated().unwrap();
        let answer = answer.validate_answer(&json!({"name": "Ann"})).unwrap();
        question.reply.send(answer).unwrap();
        let ToolOutcome::Completed(ToolOutput { text, .. }) = calling.await.unwrap() else {
            panic!("it answers");
        };
        assert!(text.contains("Ann"), "{text}");

        let (calling, mut asked, _) = call(&rig, tool, json!({}), PATIENCE);
        let question = asked.recv().await.expect("it asks again");
        question.reply.send(ElicitationAnswer::Declined).unwrap();
        let ToolOutcome::Completed(ToolOutput { text, .. }) = calling.await.unwrap() else {
            panic!("it answers");
        };
        assert!(text.contains("declined"), "{text}");
        rig.tools.shut_down().await;
    });
}

#[test]
fn t1_an_agent_without_people_declines() {
    run(async {
        let rig = ToolServerFixture::start([everything()]).await;
        let output = rig.call_ok("trigger-elicitation-request", json!({})).await;
        assert!(output.text.contains("declined"), "{}", output.text);
        rig.tools.shut_down().await;
    });
}

/// What both revisions have in common.
async fn check_market_elicitation(lifecycle: McpLifecycle) {
    let folder = tempfile::tempdir().unwrap();
    let rig = ToolServerFixture::start([market_server(&folder, lifecycle)]).await;
    let (tool, rifter) = ("choose_hangar", json!({"type_id": 587}));
    // T4: the time stands still while a person thinks; the first one thinks for longer than there is.
    let (short, mut thinks) = (Duration::from_secs(2), Duration::from_millis(2_300));
    for (answer, expected) in [
        (
            ElicitationAnswer::Accepted(Some(json!({"hangar": "south", "crates": 2}))),
            Ok(json!({"type_id": 587, "item": "Rifter", "hangar": "south", "crates": 2})),
        ),
        (ElicitationAnswer::Declined, Err("declined to choose")),
        (ElicitationAnswer::Cancelled, Err("no hangar was chosen")),
    ] {
        let (calling, mut asked, _) = call(&rig, tool, rifter.clone(), short);
        let question = asked.recv().await.expect("it asks");
        assert_eq!(question.elicitation.message, "Which hangar shall Rifter go to?");
        let ElicitationMode::Form { schema } = &question.elicitation.mode else {
            panic!("{question:?}")
        };
        assert_eq!(schema["required"], json!(["hangar"]));
        tokio::time::sleep(std::mem::take(&mut thinks)).await;
        question.reply.send(answer).unwrap();
        match (calling.await.unwrap(), expected) {
            (ToolOutcome::Completed(output), Ok(expected)) => {
                assert_eq!(output.structured, Some(expected));
            }
            (ToolOutcome::Failed { error, .. }, Err(words)) => {
                assert!(error.contains(words), "{error}");
            }
            (outcome, expected) => panic!("{outcome:?} is not {expected:?}"),
        }
    }
    // S6: who is cancelled asks no more.
    let (calling, mut asked, cancel) = call(&rig, tool, rifter, PATIENCE);
    let question = asked.recv().await.expect("it asks");
    cancel.cancel();
    question.withdrawn.cancelled().await;
    assert!(
        matches!(calling.await.unwrap(), ToolOutcome::Failed { error, .. } if error == "cancelled")
    );
    let output = rig.call_ok("get_item_info", json!({"type_id": 587})).await;
    assert!(output.text.contains("Rifter"), "it goes on: {}", output.text);
    rig.tools.shut_down().await;
}

#[test]
fn t1_t4_the_market_asks_in_the_way_of_2026_07_28() {
    run(check_market_elicitation(McpLifecycle::Discover));
}

#[test]
fn t1_t4_the_market_asks_in_the_way_of_2025_11_25() {
    run(check_market_elicitation(McpLifecycle::Initialize));
}

#[test]
fn t1_an_older_server_with_several_calls_under_way_asks_nobody() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let rig =
            ToolServerFixture::start([market_server(&folder, McpLifecycle::Initialize)]).await;
        let slow = json!({"region_id": 10_000_002, "seconds": 600});
        let (scanning, _, cancel) = call(&rig, "scan_opportunities", slow, PATIENCE);
        let (progress, mut seen) = channel();
        let long =
            tool_call("scan_opportunities", json!({"region_id": 10_000_002, "seconds": 600}));
        let other = CancellationToken::new();
        let also = tokio::spawn(rig.tools.call_tool(long, progress, other.clone()));
        seen.recv().await.expect("it is under way");
        let (calling, mut asked, _) =
            call(&rig, "choose_hangar", json!({"type_id": 587}), PATIENCE);
        let outcome = calling.await.unwrap();
        assert!(
            matches!(&outcome, ToolOutcome::Failed { error, .. } if error.contains("declined to choose")),
            "{outcome:?}"
        );
        assert!(asked.recv().await.is_none(), "it might be the wrong person");
        cancel.cancel();
        other.cancel();
        drop((scanning.await, also.await));
        rig.tools.shut_down().await;
    });
}
