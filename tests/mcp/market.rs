//! The market: our own example, which breaks on purpose.

use greenroom_actors::{
    ports::{Progress, ToolHost},
    tool_servers::{ServerState, ServerStatus},
};
use greenroom_core::call::{ToolOutcome, outcome::RetryHint};
use serde_json::{Value, json};
use std::{path::Path, time::Duration};
use tokio_util::sync::CancellationToken;

use crate::harness::{
    ToolServerFixture, channel, market_binary, run, run_in_own_process, stdio_env, tool_call,
};

/// A market in a folder of its own, with faults.
async fn start_market(folder: &Path, env: &[(&str, &str)]) -> ToolServerFixture {
    let file = folder.join("market.jsonl").display().to_string();
    let mut env = env.to_vec();
    env.extend([("MARKET_FILE", file.as_str()), ("MARKET_TEST_TOOLS", "1")]);
    ToolServerFixture::start([stdio_env("market", market_binary(), &[], &env)]).await
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("there is a place for temporary files")
}

#[test]
fn t1_tools_are_listed_with_their_schemas_and_can_be_called() {
    run(async {
        let folder = folder();
        let rig = start_market(folder.path(), &[]).await;
        let book = rig.tools.tool_registry();
        let tool = book.get("get_market_stats").unwrap();
        assert_eq!((&*tool.server, tool.unavailable_reason.as_deref()), ("market", None));
        assert!(tool.validate(&json!({"region_id": 1})).unwrap_err().contains("type_id"));
        let found = rig.call_ok("search_item", json!({"query": "trit"})).await;
        assert!(found.text.contains("Tritanium"), "{}", found.text);
        assert_eq!(found.structured, serde_json::from_str(&found.text).ok());
        rig.tools.shut_down().await;
        assert_eq!(rig.status("market").state, ServerState::Stopped);
    });
}

#[test]
fn d3_the_idempotency_key_reaches_the_tool() {
    run(async {
        let folder = folder();
        let rig = start_market(folder.path(), &[]).await;
        let seen = rig.call_ok("test_request_meta", json!({})).await;
        let meta = &seen.structured.unwrap()["_meta"];
        assert_eq!(meta["greenroom/idempotency_key"], json!("key-1"));
    });
}

#[test]
fn t5_progress_is_forwarded_and_s6_cancellation_reaches_the_tool() {
    run(async {
        let folder = folder();
        let rig = start_market(folder.path(), &[]).await;
        let (sender, mut progress) = channel();
        let cancel = CancellationToken::new();
        let scan = tool_call("scan_opportunities", json!({"region_id": 10000002, "seconds": 600}));
        let calling = tokio::spawn(rig.tools.call_tool(scan, sender, cancel.clone()));
        // Steps take sixty times longer than they should: the first one is enough. It comes
        // from the market itself, so the call is running.
        let calling = tokio::spawn(async move {
            let first = progress.recv().await;
            cancel.cancel();
            (first, calling.await.unwrap())
        });
        let (first, outcome) = calling.await.unwrap();
        let expected = Progress {
            progress: 1.0,
            total: Some(600.0),
            message: Some("scanned 1 of 600 market groups".to_owned()),
        };
        assert_eq!(first, Some(expected));
        let hint = RetryHint::Unspecified;
        assert_eq!(outcome, ToolOutcome::Failed { error: "cancelled".to_owned(), hint });
        // The market notes that it stopped, and answers other calls.
        let record = folder.path().join("market.jsonl");
        loop {
            rig.call_ok("list_bookmarks", json!({})).await;
            let text = std::fs::read_to_string(&record).unwrap();
            if text.contains("scan_cancelled") {
                break;
            }
        }
    });
}

#[test]
fn r1_a_child_that_dies_during_a_call_has_crashed_and_comes_back() {
    run(async {
        let folder = folder();
        let rig = start_market(folder.path(), &[]).await;
        let outcome = rig.call("test_crash", json!({})).await;
        let ToolOutcome::Crashed { error } = outcome else { panic!("{outcome:?}") };
        assert!(error.contains("exit status: 1"), "{error}");
        rig.wait_for_status("market", |status| status.state != ServerState::Ready).await;
        let outcome = rig.call("list_bookmarks", json!({})).await;
        let ToolOutcome::NotSent { error } = outcome else { panic!("{outcome:?}") };
        assert!(error.contains("market") && error.contains("exit status: 1"), "{error}");
        let unavailable =
            rig.tools.tool_registry().get("list_bookmarks").unwrap().unavailable_reason.clone();
        assert!(unavailable.unwrap().contains("exit status: 1"));
        rig.wait_for_restart("market", 1).await;
        rig.call_ok("list_bookmarks", json!({})).await;
        let ServerStatus { reason, restarts, .. } = rig.status("market");
        assert_eq!((reason, restarts), (None, 1));
        let seen = rig.board.snapshot("/tools/market").unwrap();
        assert_eq!((seen.kind, seen.state.as_str(), seen.restarts), ("ToolConnection", "ready", 1));
        assert!(seen.last_error.unwrap().contains("exit status: 1"));
    });
}

#[test]
fn t4_a_call_that_takes_too_long_times_out_and_the_connection_stays() {
    run(async {
        let folder = folder();
        let rig = start_market(folder.path(), &[]).await;
        let mut call = tool_call("test_hang", json!({}));
        call.timeout = Some(Duration::from_millis(50));
        let outcome = rig.tools.call_tool(call, channel().0, CancellationToken::new()).await;
        assert_eq!(outcome, ToolOutcome::TimedOut { after_ms: 50 });
        rig.call_ok("list_bookmarks", json!({})).await;
        assert_eq!(rig.status("market").restarts, 0);
    });
}

#[test]
fn t4_a_result_of_50_mb_is_cut_and_never_held_whole() {
    const BYTES: usize = 50 * 1024 * 1024;
    run_in_own_process("market::t4_a_result_of_50_mb_is_cut_and_never_held_whole", async {
        let folder = folder();
        let rig = start_market(folder.path(), &[]).await;
        rig.call_ok("list_bookmarks", json!({})).await;
        let before = memory_high_mark();
        let output = rig.call_ok("test_huge_result", json!({"bytes": BYTES})).await;
        let grown = memory_high_mark() - before;
        assert!(grown < 20 * 1024, "it grew by {grown} KiB");
        assert!(output.truncated && output.text.len() <= 4096);
        let (kept, marker) = output.text.split_once('\n').unwrap();
        assert!(kept.len() > 4000 && kept.bytes().all(|byte| byte == b'x'));
        assert!(marker.starts_with("… [cut: the result had 5242"), "{marker}");
        assert!(marker.ends_with("the limit is 4096]"), "{marker}");
        rig.call_ok("list_bookmarks", json!({})).await;
    });
}

/// The most memory this process ever had, in KiB.
fn memory_high_mark() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn r1_retry_hint_of_the_server_is_used() {
    run(async {
        let folder = folder();
        let rig = start_market(folder.path(), &[]).await;
        let outcome = rig.call("get_production_cost", json!({"type_id": 587})).await;
        let error = "temporary: price feed unavailable, try again".to_owned();
        assert_eq!(outcome, ToolOutcome::Failed { error, hint: RetryHint::Temporary });
        let outcome = rig.call("test_fail", json!({"message": "no"})).await;
        let hint = RetryHint::Unspecified;
        assert_eq!(outcome, ToolOutcome::Failed { error: "no".to_owned(), hint });
    });
}

#[test]
fn e6_odd_values_and_noise_do_no_harm() {
    run(async {
        let folder = folder();
        let rig = start_market(folder.path(), &[]).await;
        let output = rig.call_ok("test_odd_values", json!({})).await;
        let values = output.structured.unwrap();
        assert_eq!(values["largest_u64"], json!(u64::MAX));
        assert!(values["control"].as_str().unwrap().starts_with("nul ␀ bell ␇ escape ␛[31m"));
        assert_eq!(values["empty_key"], json!({"": null}));
        let noise = rig.call_ok("test_noise", json!({})).await;
        assert_eq!(noise.structured, Some(json!({"noise": "written"})));
    });
}

#[test]
fn x5_a_flood_on_standard_error_neither_blocks_nor_grows() {
    run_in_own_process("market::x5_a_flood_on_standard_error_neither_blocks_nor_grows", async {
        let folder = folder();
        let rig = start_market(folder.path(), &[("MARKET_STDERR_FLOOD", "1")]).await;
        let before = memory_high_mark();
        // Longer than the pipe's buffer lasts: about 500 KB of noise.
        let scan = json!({"region_id": 10000002, "seconds": 2});
        rig.call_ok("scan_opportunities", scan).await;
        assert!(memory_high_mark() - before < 8 * 1024);
    });
}

#[test]
fn calls_that_cannot_be_sent_say_so() {
    run(async {
        let folder = folder();
        let rig = start_market(folder.path(), &[]).await;
        let not_sent = |error: &str| ToolOutcome::NotSent { error: error.to_owned() };
        let outcome = rig.call("no_such_tool", Value::Null).await;
        assert_eq!(outcome, not_sent("there is no tool `no_such_tool`"));
        rig.tools.shut_down().await;
        let outcome = rig.call("list_bookmarks", json!({})).await;
        let expected = "tool server `market` is unavailable: the connection was stopped";
        assert_eq!(outcome, not_sent(expected));
    });
}
