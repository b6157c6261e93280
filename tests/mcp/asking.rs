//! Servers that ask people while a call runs (T1): "everything" from npm by requests of its own, the
//! market in the way of either revision.

use crate::harness::{Rig, ask, channel, market, run, stdio, stdio_env, test_dep};
use greenroom::tool::{Lifecycle, ToolServerConfig};
use greenroom_actors::ports::{Ask, People, ToolHost};
use greenroom_core::{
    approval::{ElicitationAnswer, Wanted},
    call::{ToolOutcome, ToolOutput},
};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

fn everything() -> ToolServerConfig {
    stdio("everything", test_dep("npm/node_modules/.bin/mcp-server-everything"), &["stdio"])
}

fn market_in(folder: &tempfile::TempDir, lifecycle: Lifecycle) -> ToolServerConfig {
    let record = folder.path().join("market.jsonl").display().to_string();
    ToolServerConfig {
        lifecycle,
        ..stdio_env("market", market(), &[], &[("MARKET_FILE", &record)])
    }
}

/// Calls the tool; its questions come over the channel.
fn call(
    rig: &Rig,
    tool: &str,
    arguments: Value,
    timeout: Duration,
) -> (tokio::task::JoinHandle<ToolOutcome>, mpsc::Receiver<Ask>, CancellationToken) {
    let (asks, asked) = mpsc::channel(1);
    let mut call = ask(tool, arguments);
    (call.people, call.timeout) = (People::over(asks), Some(timeout));
    let cancel = CancellationToken::new();
    let calling = tokio::spawn(rig.tools.call(call, channel().0, cancel.clone()));
    (calling, asked, cancel)
}

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn t1_everything_asks_by_a_request_of_its_own() {
    run(async {
        let rig = Rig::start([everything()]).await;
        let tool = "trigger-elicitation-request";
        assert!(rig.names().contains(&tool.to_owned()), "{:?}", rig.names());
        let (calling, mut asked, _) = call(&rig, tool, json!({}), PATIENCE);
        let question = asked.recv().await.expect("it asks");
        let Wanted::Form { schema } = &question.elicitation.wanted else { panic!("{question:?}") };
        assert!(schema["properties"]["name"].is_object(), "{schema}");
        let answer = question.elicitation.clone().checked().unwrap();
        let answer = answer.accept(&json!({"name": "Ann"})).unwrap();
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
        rig.tools.shutdown().await;
    });
}

#[test]
fn t1_an_agent_without_people_declines() {
    run(async {
        let rig = Rig::start([everything()]).await;
        let output = rig.answer("trigger-elicitation-request", json!({})).await;
        assert!(output.text.contains("declined"), "{}", output.text);
        rig.tools.shutdown().await;
    });
}

/// What both revisions have in common.
async fn try_the_market(lifecycle: Lifecycle) {
    let folder = tempfile::tempdir().unwrap();
    let rig = Rig::start([market_in(&folder, lifecycle)]).await;
    let (tool, rifter) = ("choose_hangar", json!({"type_id": 587}));
    // T4: the time stands still while a person thinks; the first one thinks for longer than there is.
    let (short, mut thinks) = (Duration::from_secs(2), Duration::from_millis(2_300));
    for (answer, expected) in [
        (
            ElicitationAnswer::Accepted(Some(json!({"hangar": "south", "crates": 2}))),
            Ok(json!({"type_id": 587, "item": "Rifter", "hangar": "south", "crates": 2})),
        ),
        (ElicitationAnswer::Declined, Err("would not say")),
        (ElicitationAnswer::Cancelled, Err("nobody said")),
    ] {
        let (calling, mut asked, _) = call(&rig, tool, rifter.clone(), short);
        let question = asked.recv().await.expect("it asks");
        assert_eq!(question.elicitation.message, "Which hangar shall Rifter go to?");
        let Wanted::Form { schema } = &question.elicitation.wanted else { panic!("{question:?}") };
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
    let output = rig.answer("get_item_info", json!({"type_id": 587})).await;
    assert!(output.text.contains("Rifter"), "it goes on: {}", output.text);
    rig.tools.shutdown().await;
}

#[test]
fn t1_t4_the_market_asks_in_the_way_of_2026_07_28() {
    run(try_the_market(Lifecycle::Discover));
}

#[test]
fn t1_t4_the_market_asks_in_the_way_of_2025_11_25() {
    run(try_the_market(Lifecycle::Initialize));
}

#[test]
fn t1_an_older_server_with_several_calls_under_way_asks_nobody() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let rig = Rig::start([market_in(&folder, Lifecycle::Initialize)]).await;
        let slow = json!({"region_id": 10_000_002, "seconds": 600});
        let (scanning, _, cancel) = call(&rig, "scan_opportunities", slow, PATIENCE);
        let (progress, mut seen) = channel();
        let long = ask("scan_opportunities", json!({"region_id": 10_000_002, "seconds": 600}));
        let other = CancellationToken::new();
        let also = tokio::spawn(rig.tools.call(long, progress, other.clone()));
        seen.recv().await.expect("it is under way");
        let (calling, mut asked, _) =
            call(&rig, "choose_hangar", json!({"type_id": 587}), PATIENCE);
        let outcome = calling.await.unwrap();
        assert!(
            matches!(&outcome, ToolOutcome::Failed { error, .. } if error.contains("would not say")),
            "{outcome:?}"
        );
        assert!(asked.recv().await.is_none(), "it might be the wrong person");
        cancel.cancel();
        other.cancel();
        drop((scanning.await, also.await));
        rig.tools.shutdown().await;
    });
}
