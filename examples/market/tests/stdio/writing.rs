//! The tools that write: the record file, idempotency keys, restarts.

use std::{fs::OpenOptions, io::Write as _};

use serde_json::{Value, json};

use crate::harness::{ERAS, Era, TestDir};

fn order(quantity: u64) -> Value {
    json!({
        "type_id": 34, "region_id": 10_000_002, "side": "buy",
        "quantity": quantity, "price": 4.05,
    })
}

#[test]
fn an_order_is_one_line_of_the_record() {
    for era in ERAS {
        let desk = TestDir::new();
        let mut market = desk.open(era);
        let placed = market.call_keyed("market_order_create", order(1000), Some("k1"));
        let expected = json!({
            "order_id": 7001, "status": "open", "side": "buy",
            "region_id": 10_000_002, "region": "The Forge",
            "type_id": 34, "name": "Tritanium",
            "quantity": 1000, "price": 4.05, "total": 4050.0,
            "wallet_balance": 1_249_995_950.0,
        });
        assert_eq!(placed, expected);
        let mut records = desk.records();
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

/// D3: the same call under the same key is done once.
#[test]
fn the_same_key_twice_is_recorded_once() {
    let desk = TestDir::new();
    let mut market = desk.open(Era::Stateless);
    let first = market.call_keyed("market_order_create", order(1000), Some("k1"));
    let meta = json!({ "greenroom/idempotency_key": "k1" });
    let again = market.call_with("market_order_create", order(1000), meta.clone());
    assert_eq!(again["structuredContent"], first);
    assert_eq!(again["_meta"], json!({ "greenroom/replayed": true }));
    assert_eq!(desk.records().len(), 1);

    let other = market.call_with("market_order_create", order(9), meta.clone());
    assert_eq!(other["structuredContent"]["error"]["code"], "idempotency_key_reused");
    assert_eq!(desk.records().len(), 1);

    // A key belongs to one tool, and no key means no memory.
    let list = json!({ "name": "Minerals" });
    assert_eq!(market.call_keyed("create_shopping_list", list, Some("k1"))["list_id"], 1);
    assert_eq!(market.call("market_order_create", order(1000))["order_id"], 7002);
    assert_eq!(desk.records().len(), 3);

    let long = json!({ "greenroom/idempotency_key": "k".repeat(257) });
    let refused = market.call_with("market_order_create", order(1), long);
    assert_eq!(refused["structuredContent"]["error"]["code"], "idempotency_key_too_long");
}

#[test]
fn a_restart_keeps_everything() {
    let desk = TestDir::new();
    let mut market = desk.open(Era::Handshake);
    market.call("create_shopping_list", json!({ "name": "Rifter run" }));
    market.call("create_shopping_list", json!({ "name": "Spare" }));
    market.call("delete_shopping_list", json!({ "list_id": 2 }));
    market.call("add_shopping_item", json!({ "list_id": 1, "type_id": 34, "quantity": 20_000 }));
    market.call("add_shopping_item", json!({ "list_id": 1, "type_id": 34, "quantity": 7_000 }));
    market.call("create_bookmark", json!({ "name": "Home", "system": "Jita" }));
    market.call("update_bookmark", json!({ "bookmark_id": 1, "name": "Trade hub" }));
    market.call_keyed("wallet_transfer", json!({ "to": "Aura", "amount": 50e6 }), Some("pay"));
    market.kill();

    let mut market = desk.open(Era::Stateless);
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

    // Ids go on, the wallet too, and a key from before is still known.
    let pay = json!({ "to": "Aura", "amount": 50e6 });
    let paid = market.call_keyed("wallet_transfer", pay.clone(), Some("pay"));
    assert_eq!(paid["transfer_id"], 1);
    assert_eq!(market.call("wallet_transfer", pay)["wallet_balance"], 1_150_000_000.0);
    assert_eq!(market.call("create_shopping_list", json!({ "name": "Next" }))["list_id"], 3);
}

#[test]
fn a_cut_off_last_line_is_ignored_and_reported() {
    let desk = TestDir::new();
    let mut market = desk.open(Era::Handshake);
    market.call_keyed("market_order_create", order(1), Some("k1"));
    market.kill();
    let whole = std::fs::read(desk.file()).unwrap();
    let mut file = OpenOptions::new().append(true).open(desk.file()).unwrap();
    file.write_all(&whole[..whole.len() - 5]).unwrap();

    let mut market = desk.open(Era::Handshake);
    assert_eq!(desk.records().len(), 1, "the rest of the cut-off line is gone");
    assert_eq!(market.call("market_order_create", order(2))["order_id"], 7002);
    let (status, errors) = market.close();
    assert!(status.success());
    assert_eq!(errors, "market: ignoring a cut-off record in line 2\n");
    assert_eq!(desk.records().len(), 2);
}

#[test]
fn a_record_that_is_none_stops_the_start() {
    let desk = TestDir::new();
    std::fs::write(desk.file(), "{\"tool\":\"mystery\"}\n").unwrap();
    let (status, errors) = desk.spawn(&[]).close();
    assert_eq!(status.code(), Some(1));
    assert!(errors.contains("line 1 of"), "{errors}");
    assert!(errors.contains("is not a record"), "{errors}");
}

#[test]
fn the_wallet_can_not_be_overdrawn() {
    let desk = TestDir::new();
    let mut market = desk.open(Era::Handshake);
    let (error, text) =
        market.call_expecting_error("wallet_transfer", json!({ "to": "Aura", "amount": 2e9 }));
    assert_eq!(error["code"], "insufficient_funds");
    assert_eq!(text, "the transfer needs 2000000000.00 ISK but the wallet holds 1250000000.00 ISK");
    let (error, _) = market.call_expecting_error("market_order_create", order(1_000_000_000));
    assert_eq!(error["code"], "insufficient_funds");
    assert_eq!(desk.records().len(), 0);
}

/// Many writes on the wire at once, from two servers that share one file: every
/// effect is one whole line, and no id is given twice.
#[test]
fn concurrent_writes_are_each_recorded_once() {
    const EACH: usize = 50;
    let desk = TestDir::new();
    let mut servers = [desk.open(Era::Handshake), desk.open(Era::Stateless)];
    let mut asked = Vec::new();
    for number in 0..EACH {
        for (which, market) in servers.iter_mut().enumerate() {
            // The two servers are asked for the same thing under the same key.
            let meta = json!({ "greenroom/idempotency_key": format!("k{number}") });
            let name = json!({ "name": format!("list {number}") });
            asked.push((which, market.start_call("create_shopping_list", name, meta)));
        }
    }
    let mut ids: Vec<u64> = asked
        .into_iter()
        .map(|(which, id)| {
            let answer = servers[which].response_to(id).unwrap();
            answer["result"]["structuredContent"]["list_id"].as_u64().unwrap()
        })
        .collect();
    ids.sort_unstable();
    let twice_each: Vec<u64> = (1..=EACH as u64).flat_map(|id| [id, id]).collect();
    assert_eq!(ids, twice_each);
    assert_eq!(desk.records().len(), EACH);
}
