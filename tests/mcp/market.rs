//! Tests against the market, the example server that can be made to fail.

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

/// Starts a market whose file is in `folder`, with environment variables for faults.
async fn start_market(folder: &Path, env: &[(&str, &str)]) -> ToolServerFixture {
    let file = folder.join("market.jsonl").display().to_string();
    let mut env = env.to_vec();
    env.extend([("MARKET_FILE", file.as_str()), ("MARKET_TEST_TOOLS", "1")]);
    ToolServerFixture::start([stdio_env("market", market_binary(), &[], &env)]).await
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder can be created")
}

#[test]
fn t1_tools_are_listed_with_schemas_and_can_be_called() {
    run(async {
        let folder = folder();
        let fixture = start_market(folder.path(), &[]).await;
        let registry = fixture.tools.tool_registry();
        let tool = registry.get("get_market_stats").unwrap();
        assert_eq!((&*tool.server, tool.unavailable_reason.as_deref()), ("market", None));
        assert!(tool.validate(&json!({"region_id": 1})).unwrap_err().contains("type_id"));
        let output = fixture.call_ok("search_item", json!({"query": "trit"})).await;
        assert!(output.text.contains("Tritanium"), "{}", output.text);
        assert_eq!(output.structured, serde_json::from_str(&output.text).ok());
        fixture.tools.shut_down().await;
        assert_eq!(fixture.status("market").state, ServerState::Stopped);
    });
}

#[test]
fn d3_idempotency_key_is_sent_to_the_tool() {
    run(async {
        let folder = folder();
        let fixture = start_market(folder.path(), &[]).await;
        let output = fixture.call_ok("test_request_meta", json!({})).await;
        let meta = &output.structured.unwrap()["_meta"];
        assert_eq!(meta["greenroom/idempotency_key"], json!("key-1"));
    });
}

#[test]
fn t5_s6_progress_is_forwarded_and_cancellation_reaches_the_tool() {
    run(async {
        let folder = folder();
        let fixture = start_market(folder.path(), &[]).await;
        let (sender, mut progress) = channel();
        let cancel = CancellationToken::new();
        let scan = tool_call("scan_opportunities", json!({"region_id": 10000002, "seconds": 600}));
        let call_task = tokio::spawn(fixture.tools.call_tool(scan, sender, cancel.clone()));
        // The scan takes 600 s; the test waits for its first step only. The market itself sends
        // this progress, so the call is running.
        let call_task = tokio::spawn(async move {
            let first = progress.recv().await;
            cancel.cancel();
            (first, call_task.await.unwrap())
        });
        let (first, outcome) = call_task.await.unwrap();
        let expected = Progress {
            progress: 1.0,
            total: Some(600.0),
            message: Some("scanned 1 of 600 market groups".to_owned()),
        };
        assert_eq!(first, Some(expected));
        let hint = RetryHint::Unspecified;
        assert_eq!(outcome, ToolOutcome::Failed { error: "cancelled".to_owned(), hint });
        // The market records that it stopped, and answers other calls.
        let record = folder.path().join("market.jsonl");
        loop {
            fixture.call_ok("list_bookmarks", json!({})).await;
            let text = std::fs::read_to_string(&record).unwrap();
            if text.contains("scan_cancelled") {
                break;
            }
        }
    });
}

#[test]
fn r1_server_that_exits_during_a_call_has_crashed_and_is_restarted() {
    run(async {
        let folder = folder();
        let fixture = start_market(folder.path(), &[]).await;
        let outcome = fixture.call("test_crash", json!({})).await;
        let ToolOutcome::Crashed { error } = outcome else { panic!("{outcome:?}") };
        assert!(error.contains("exit status: 1"), "{error}");
        fixture.wait_for_status("market", |status| status.state != ServerState::Ready).await;
        let outcome = fixture.call("list_bookmarks", json!({})).await;
        let ToolOutcome::NotSent { error } = outcome else { panic!("{outcome:?}") };
        assert!(error.contains("market") && error.contains("exit status: 1"), "{error}");
        let unavailable =
            fixture.tools.tool_registry().get("list_bookmarks").unwrap().unavailable_reason.clone();
        assert!(unavailable.unwrap().contains("exit status: 1"));
        fixture.wait_for_restart("market", 1).await;
        fixture.call_ok("list_bookmarks", json!({})).await;
        let ServerStatus { reason, restarts, .. } = fixture.status("market");
        assert_eq!((reason, restarts), (None, 1));
        let snapshot = fixture.board.snapshot("/tools/market").unwrap();
        let fields = (snapshot.kind, snapshot.state.as_str(), snapshot.restarts);
        assert_eq!(fields, ("ToolConnection", "ready", 1));
        assert!(snapshot.last_error.unwrap().contains("exit status: 1"));
    });
}

#[test]
fn t4_slow_call_times_out_and_connection_stays_open() {
    run(async {
        let folder = folder();
        let fixture = start_market(folder.path(), &[]).await;
        let mut call = tool_call("test_hang", json!({}));
        call.timeout = Some(Duration::from_millis(50));
        let outcome = fixture.tools.call_tool(call, channel().0, CancellationToken::new()).await;
        assert_eq!(outcome, ToolOutcome::TimedOut { after_ms: 50 });
        fixture.call_ok("list_bookmarks", json!({})).await;
        assert_eq!(fixture.status("market").restarts, 0);
    });
}

#[test]
fn t4_result_of_50_mb_is_truncated_without_buffering_it() {
    const BYTES: usize = 50 * 1024 * 1024;
    run_in_own_process("market::t4_result_of_50_mb_is_truncated_without_buffering_it", async {
        let folder = folder();
        let fixture = start_market(folder.path(), &[]).await;
        fixture.call_ok("list_bookmarks", json!({})).await;
        let before = peak_memory_kib();
        let output = fixture.call_ok("test_huge_result", json!({"bytes": BYTES})).await;
        let growth = peak_memory_kib() - before;
        assert!(growth < 20 * 1024, "memory grew by {growth} KiB");
        assert!(output.truncated && output.text.len() <= 4096);
        let (text, marker) = output.text.split_once('\n').unwrap();
        assert!(text.len() > 4000 && text.bytes().all(|byte| byte == b'x'));
        assert!(marker.starts_with("… [cut: the result had 5242"), "{marker}");
        assert!(marker.ends_with("the limit is 4096]"), "{marker}");
        fixture.call_ok("list_bookmarks", json!({})).await;
    });
}

/// Returns the peak memory of this process, in KiB.
fn peak_memory_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn r1_retry_hint_of_server_is_used() {
    run(async {
        let folder = folder();
        let fixture = start_market(folder.path(), &[]).await;
        let outcome = fixture.call("get_production_cost", json!({"type_id": 587})).await;
        let error = "temporary: price feed unavailable, try again".to_owned();
        assert_eq!(outcome, ToolOutcome::Failed { error, hint: RetryHint::Temporary });
        let outcome = fixture.call("test_fail", json!({"message": "no"})).await;
        let hint = RetryHint::Unspecified;
        assert_eq!(outcome, ToolOutcome::Failed { error: "no".to_owned(), hint });
    });
}

#[test]
fn e6_unusual_values_and_noise_are_handled() {
    run(async {
        let folder = folder();
        let fixture = start_market(folder.path(), &[]).await;
        let output = fixture.call_ok("test_odd_values", json!({})).await;
        let values = output.structured.unwrap();
        assert_eq!(values["largest_u64"], json!(u64::MAX));
        assert!(values["control"].as_str().unwrap().starts_with("nul ␀ bell ␇ escape ␛[31m"));
        assert_eq!(values["empty_key"], json!({"": null}));
        let noise = fixture.call_ok("test_noise", json!({})).await;
        assert_eq!(noise.structured, Some(json!({"noise": "written"})));
    });
}

#[test]
fn x5_flood_on_stderr_neither_blocks_nor_uses_memory() {
    run_in_own_process("market::x5_flood_on_stderr_neither_blocks_nor_uses_memory", async {
        let folder = folder();
        let fixture = start_market(folder.path(), &[("MARKET_STDERR_FLOOD", "1")]).await;
        let before = peak_memory_kib();
        // Long enough to fill the pipe's buffer: the market writes about 500 KB to stderr.
        let scan = json!({"region_id": 10000002, "seconds": 2});
        fixture.call_ok("scan_opportunities", scan).await;
        assert!(peak_memory_kib() - before < 8 * 1024);
    });
}

#[test]
fn error_names_reason_for_call_that_cannot_be_sent() {
    run(async {
        let folder = folder();
        let fixture = start_market(folder.path(), &[]).await;
        let not_sent = |error: &str| ToolOutcome::NotSent { error: error.to_owned() };
        let outcome = fixture.call("no_such_tool", Value::Null).await;
        assert_eq!(outcome, not_sent("there is no tool `no_such_tool`"));
        fixture.tools.shut_down().await;
        let outcome = fixture.call("list_bookmarks", json!({})).await;
        let expected = "tool server `market` is unavailable: the connection was stopped";
        assert_eq!(outcome, not_sent(expected));
    });
}
