//! The deliberate faults and the test tools.

use serde_json::json;

use crate::harness::{ProtocolLifecycle, TestDir, read_json_lines};

const TEST_TOOLS: (&str, &str) = ("MARKET_TEST_TOOLS", "1");

#[test]
fn test_tools_are_listed_only_when_enabled() {
    let dir = TestDir::new();
    let mut market = dir.open_with(ProtocolLifecycle::Handshake, &[TEST_TOOLS]);
    let list = market.request("tools/list", json!({}));
    let names: Vec<&str> = list["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .filter(|name| name.starts_with("test_"))
        .collect();
    let expected = [
        "test_huge_result",
        "test_hang",
        "test_crash",
        "test_odd_values",
        "test_noise",
        "test_fail",
        "test_request_meta",
    ];
    assert_eq!(names, expected);
}

#[test]
fn huge_result_is_one_line() {
    let dir = TestDir::new();
    let mut market = dir.open_with(ProtocolLifecycle::Stateless, &[TEST_TOOLS]);
    const BYTES: usize = 5_000_000;
    let result = market.call_with("test_huge_result", json!({ "bytes": BYTES }), json!({}));
    assert_eq!(result["content"][0]["text"].as_str().unwrap().len(), BYTES);
    let (error, _) =
        market.call_expecting_error("test_huge_result", json!({ "bytes": 67_108_865 }));
    assert_eq!(error["code"], "invalid_arguments");
}

#[test]
fn odd_values_and_noise_keep_the_protocol_intact() {
    let dir = TestDir::new();
    let mut market = dir.open_with(ProtocolLifecycle::Handshake, &[TEST_TOOLS]);
    let odd = market.call("test_odd_values", json!({}));
    assert_eq!(odd["nan"], "NaN");
    assert_eq!(odd["largest_u64"], u64::MAX);
    assert_eq!(odd["beyond_double"], 9_007_199_254_740_993_u64);
    assert!(odd["control"].as_str().unwrap().contains('\0'));

    let id = market.start_call("test_noise", json!({}), json!({}));
    assert_eq!(market.line().unwrap(), b"debug: this line is not JSON\n");
    assert!(String::from_utf8(market.line().unwrap()).is_err());
    assert_eq!(market.response_to(id).unwrap()["result"]["isError"], false);
}

#[test]
fn scripted_failure_and_request_metadata_are_returned() {
    let dir = TestDir::new();
    let log = dir.log();
    let log = ("MARKET_LOG", log.to_str().unwrap());
    let mut market = dir.open_with(ProtocolLifecycle::Handshake, &[TEST_TOOLS, log]);
    let (error, text) =
        market.call_expecting_error("test_fail", json!({ "message": "rate limit exceeded" }));
    assert_eq!(text, "rate limit exceeded");
    assert_eq!(error["code"], "scripted");

    let meta = json!({ "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" });
    let seen = market.call_with("test_request_meta", json!({}), meta.clone());
    assert_eq!(seen["structuredContent"]["_meta"], meta);

    let calls = read_json_lines(&dir.log());
    let expected = [
        json!({ "tool": "test_fail", "arguments": { "message": "rate limit exceeded" }, "_meta": {} }),
        json!({ "tool": "test_request_meta", "arguments": {}, "_meta": meta }),
    ];
    assert_eq!(calls, expected);
}

#[test]
fn crash_ends_the_process() {
    let dir = TestDir::new();
    let mut market = dir.open_with(ProtocolLifecycle::Stateless, &[TEST_TOOLS]);
    let id = market.start_call("test_crash", json!({}), json!({}));
    assert_eq!(market.response_to(id), None);
    assert_eq!(market.wait_for_exit().code(), Some(1));
}

/// The effect was recorded, but the result was lost; the repetition with the key returns it.
#[test]
fn d3_repetition_after_a_crash_returns_the_recorded_result() {
    let dir = TestDir::new();
    let exit = [("MARKET_EXIT_DURING", "wallet_transfer")];
    let pay = json!({ "to": "Aura", "amount": 1_000_000 });
    let meta = json!({ "greenroom/idempotency_key": "pay" });
    let mut market = dir.open_with(ProtocolLifecycle::Stateless, &exit);
    let id = market.start_call("wallet_transfer", pay.clone(), meta.clone());
    assert_eq!(market.response_to(id), None);
    assert_eq!(market.wait_for_exit().code(), Some(1));
    assert_eq!(dir.records().len(), 1);

    let mut market = dir.open_with(ProtocolLifecycle::Stateless, &exit);
    let paid = market.call_with("wallet_transfer", pay, meta);
    assert_eq!(paid["structuredContent"]["wallet_balance"], 1_249_000_000.0);
    assert_eq!(dir.records().len(), 1);
}

#[test]
fn hanging_tool_does_not_block_other_calls() {
    let dir = TestDir::new();
    let hang = ("MARKET_HANG", "create_bookmark");
    let mut market = dir.open_with(ProtocolLifecycle::Handshake, &[TEST_TOOLS, hang]);
    let test_call = market.start_call("test_hang", json!({}), json!({}));
    let bookmark = json!({ "name": "Home", "system": "Jita" });
    let bookmark_call = market.start_call("create_bookmark", bookmark, json!({}));
    assert_eq!(market.call("list_bookmarks", json!({}))["count"], 1, "the effect was recorded");
    // Cancelled calls get no response: the next response is that of the next call.
    for id in [test_call, bookmark_call] {
        market.send(&json!({
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": { "requestId": id },
        }));
    }
    let next = market.start_call("get_item_info", json!({ "type_id": 34 }), json!({}));
    let line: serde_json::Value = serde_json::from_slice(&market.line().unwrap()).unwrap();
    assert_eq!(line["id"], next);
}

#[test]
fn noise_on_stderr_does_not_affect_stdout() {
    let dir = TestDir::new();
    let mut market = dir.open_with(ProtocolLifecycle::Stateless, &[("MARKET_STDERR_FLOOD", "1")]);
    for _ in 0..300 {
        assert!(market.stderr_line().starts_with(b"market: noise ~~~"));
    }
    assert_eq!(market.call("get_item_info", json!({ "type_id": 34 }))["name"], "Tritanium");
}
