//! The writing tools: the record file, idempotency keys and restarts.

use std::{fs::OpenOptions, io::Write as _};

use serde_json::{Value, json};

use crate::harness::{LIFECYCLES, ProtocolLifecycle, TestDir};

fn order(quantity: u64) -> Value {
    json!({
        "type_id": 34, "region_id": 10_000_002, "side": "buy",
        "quantity": quantity, "price": 4.05,
    })
}

#[test]
fn order_is_one_line_of_the_record_file() {
    for lifecycle in LIFECYCLES {
        let dir = TestDir::new();
        let mut market = dir.open(lifecycle);
        let placed = market.call_keyed("market_order_create", order(1000), Some("k1"));
        let expected = json!({
            "order_id": 7001, "status": "open", "side": "buy",
            "region_id": 10_000_002, "region": "The Forge",
            "type_id": 34, "name": "Tritanium",
            "quantity": 1000, "price": 4.05, "total": 4050.0,
            "wallet_balance": 1_249_995_950.0,
        });
        assert_eq!(placed, expected);
        let mut records = dir.records();
        assert_eq!(records.len(), 1);
        let at = records[0].as_object_mut().unwrap().remove("at").unwrap();
        assert_eq!(at.as_str().unwrap().len(), "2026-11-21T22:20:34.875Z".len());
        let expected = json!({
            "tool": "market_order_create", "arguments": order(1000),
            "idempotency_key": "k1", "result": placed,
        });
        assert_eq!(records[0], expected);
    }
}

/// A repeated call with the same key has one effect.
#[test]
fn d3_repeated_key_is_recorded_once() {
    let dir = TestDir::new();
    let mut market = dir.open(ProtocolLifecycle::Stateless);
    let first = market.call_keyed("market_order_create", order(1000), Some("k1"));
    let meta = json!({ "greenroom/idempotency_key": "k1" });
    let repeated_reply = market.call_with("market_order_create", order(1000), meta.clone());
    assert_eq!(repeated_reply["structuredContent"], first);
    assert_eq!(repeated_reply["_meta"], json!({ "greenroom/replayed": true }));
    assert_eq!(dir.records().len(), 1);

    let other = market.call_with("market_order_create", order(9), meta.clone());
    assert_eq!(other["structuredContent"]["error"]["code"], "idempotency_key_reused");
    assert_eq!(dir.records().len(), 1);

    // A key belongs to one tool. A call without a key is not deduplicated.
    let list = json!({ "name": "Minerals" });
    assert_eq!(market.call_keyed("create_shopping_list", list, Some("k1"))["list_id"], 1);
    assert_eq!(market.call("market_order_create", order(1000))["order_id"], 7002);
    assert_eq!(dir.records().len(), 3);

    let long = json!({ "greenroom/idempotency_key": "k".repeat(257) });
    let refused = market.call_with("market_order_create", order(1), long);
    assert_eq!(refused["structuredContent"]["error"]["code"], "idempotency_key_too_long");
}

#[test]
fn restart_keeps_the_state() {
    let dir = TestDir::new();
    let mut market = dir.open(ProtocolLifecycle::Handshake);
    market.call("create_shopping_list", json!({ "name": "Rifter run" }));
    market.call("create_shopping_list", json!({ "name": "Spare" }));
    market.call("delete_shopping_list", json!({ "list_id": 2 }));
    market.call("add_shopping_item", json!({ "list_id": 1, "type_id": 34, "quantity": 20_000 }));
    market.call("add_shopping_item", json!({ "list_id": 1, "type_id": 34, "quantity": 7_000 }));
    market.call("create_bookmark", json!({ "name": "Home", "system": "Jita" }));
    market.call("update_bookmark", json!({ "bookmark_id": 1, "name": "Trade hub" }));
    market.call_keyed("wallet_transfer", json!({ "to": "Aura", "amount": 50e6 }), Some("pay"));
    market.kill();

    let mut market = dir.open(ProtocolLifecycle::Stateless);
    let list = market.call("get_shopping_list", json!({ "list_id": 1 }));
    let expected = json!({
        "list_id": 1, "name": "Rifter run", "estimated_cost": 111_240.0,
        "items": [{ "type_id": 34, "name": "Tritanium", "quantity": 27_000 }],
    });
    assert_eq!(list, expected);
    let (error, _) = market.call_expecting_error("get_shopping_list", json!({ "list_id": 2 }));
    assert_eq!(error["code"], "unknown_list");
    let bookmarks = market.call("list_bookmarks", json!({}));
    let home = json!({ "bookmark_id": 1, "name": "Trade hub", "system": "Jita" });
    assert_eq!(bookmarks["bookmarks"], json!([home]));
    let csv = market.call("export_shopping_list", json!({ "list_id": 1, "format": "csv" }));
    assert_eq!(csv["text"], "type_id,name,quantity\n34,Tritanium,27000");

    // Ids and the balance continue, and an earlier key is still known.
    let pay = json!({ "to": "Aura", "amount": 50e6 });
    let paid = market.call_keyed("wallet_transfer", pay.clone(), Some("pay"));
    assert_eq!(paid["transfer_id"], 1);
    assert_eq!(market.call("wallet_transfer", pay)["wallet_balance"], 1_150_000_000.0);
    assert_eq!(market.call("create_shopping_list", json!({ "name": "Next" }))["list_id"], 3);
}

#[test]
fn incomplete_last_line_is_ignored_and_reported() {
    let dir = TestDir::new();
    let mut market = dir.open(ProtocolLifecycle::Handshake);
    market.call_keyed("market_order_create", order(1), Some("k1"));
    market.kill();
    let record = std::fs::read(dir.file()).unwrap();
    let mut file = OpenOptions::new().append(true).open(dir.file()).unwrap();
    file.write_all(&record[..record.len() - 5]).unwrap();

    let mut market = dir.open(ProtocolLifecycle::Handshake);
    assert_eq!(dir.records().len(), 1, "the incomplete line is removed");
    assert_eq!(market.call("market_order_create", order(2))["order_id"], 7002);
    let (status, errors) = market.close();
    assert!(status.success());
    assert_eq!(errors, "market: ignoring an incomplete record in line 2\n");
    assert_eq!(dir.records().len(), 2);
}

#[test]
fn invalid_record_prevents_the_start() {
    let dir = TestDir::new();
    std::fs::write(dir.file(), "{\"tool\":\"mystery\"}\n").unwrap();
    let (status, errors) = dir.spawn(&[]).close();
    assert_eq!(status.code(), Some(1));
    assert!(errors.contains("line 1 of"), "{errors}");
    assert!(errors.contains("is not a record"), "{errors}");
}

#[test]
fn wallet_cannot_be_overdrawn() {
    let dir = TestDir::new();
    let mut market = dir.open(ProtocolLifecycle::Handshake);
    let (error, text) =
        market.call_expecting_error("wallet_transfer", json!({ "to": "Aura", "amount": 2e9 }));
    assert_eq!(error["code"], "insufficient_funds");
    assert_eq!(text, "the transfer needs 2000000000.00 ISK but the wallet holds 1250000000.00 ISK");
    let (error, _) = market.call_expecting_error("market_order_create", order(1_000_000_000));
    assert_eq!(error["code"], "insufficient_funds");
    assert_eq!(dir.records().len(), 0);
}

/// Two servers that share one file write concurrently: every effect is one complete line, and no id is
/// assigned twice.
#[test]
fn concurrent_writes_are_each_recorded_once() {
    const EACH: usize = 50;
    let dir = TestDir::new();
    let mut servers =
        [dir.open(ProtocolLifecycle::Handshake), dir.open(ProtocolLifecycle::Stateless)];
    let mut calls = Vec::new();
    for number in 0..EACH {
        for (server, market) in servers.iter_mut().enumerate() {
            // Both servers get the same call with the same key.
            let meta = json!({ "greenroom/idempotency_key": format!("k{number}") });
            let name = json!({ "name": format!("list {number}") });
            calls.push((server, market.start_call("create_shopping_list", name, meta)));
        }
    }
    let mut ids: Vec<u64> = calls
        .into_iter()
        .map(|(server, id)| {
            let response = servers[server].response_to(id).unwrap();
            response["result"]["structuredContent"]["list_id"].as_u64().unwrap()
        })
        .collect();
    ids.sort_unstable();
    let twice_each: Vec<u64> = (1..=EACH as u64).flat_map(|id| [id, id]).collect();
    assert_eq!(ids, twice_each);
    assert_eq!(dir.records().len(), EACH);
}
