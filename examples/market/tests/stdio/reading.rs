//! The read-only tools, including the flaky one.

use serde_json::{Value, json};

use crate::harness::{LIFECYCLES, ProtocolLifecycle, TestDir};

#[test]
fn market_stats_return_the_price() {
    for lifecycle in LIFECYCLES {
        let dir = TestDir::new();
        let mut market = dir.open(lifecycle);
        let response = market.call("search_item", json!({ "query": "TRIT" }));
        assert_eq!(response["items"], json!([{ "type_id": 34, "name": "Tritanium" }]));
        let stats =
            market.call("get_market_stats", json!({ "region_id": 10_000_002, "type_id": 34 }));
        let expected = json!({
            "region_id": 10_000_002, "region": "The Forge", "hub": "Jita",
            "type_id": 34, "name": "Tritanium",
            "lowest_sell": 4.12, "highest_buy": 3.98, "spread_percent": 3.4,
            "volume": 9_400_000_000_u64,
        });
        assert_eq!(stats, expected);
    }
}

#[test]
fn names_of_losses_are_fetched_in_parallel() {
    let dir = TestDir::new();
    let mut market = dir.open(ProtocolLifecycle::Stateless);
    let losses = market.call("get_war_losses", json!({ "region_id": 10_000_030 }));
    assert_eq!(losses["days"], 7);
    let losses = losses["losses"].as_array().unwrap().clone();
    assert_eq!(losses[2], json!({ "type_id": 587, "destroyed": 479 }));

    // All requests are sent before the first response is read.
    let call_ids: Vec<u64> = losses
        .iter()
        .map(|loss| {
            market.start_call("get_item_info", json!({ "type_id": loss["type_id"] }), json!({}))
        })
        .collect();
    let names: Vec<Value> = call_ids
        .into_iter()
        .map(|id| market.response_to(id).unwrap()["result"]["structuredContent"]["name"].clone())
        .collect();
    let expected = ["Scourge Heavy Missile", "Damage Control II", "Rifter", "Slasher", "Stabber"];
    assert_eq!(names, expected);
}

#[test]
fn regions_are_compared_cheapest_first() {
    let dir = TestDir::new();
    let mut market = dir.open(ProtocolLifecycle::Handshake);
    let compared = market.call("compare_regions", json!({ "type_id": 34 }));
    let prices: Vec<f64> = compared["regions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|region| region["lowest_sell"].as_f64().unwrap())
        .collect();
    assert_eq!(prices, [4.12, 4.18, 4.18, 4.41, 4.8]);
    assert_eq!(compared["buy_in_region_id"], 10_000_002);
    assert_eq!(compared["sell_in_region_id"], 10_000_042);

    let averages = market.call("get_market_prices", json!({ "type_ids": [34] }));
    let expected =
        json!({ "type_id": 34, "name": "Tritanium", "average_sell": 4.34, "average_buy": 4.19 });
    assert_eq!(averages["prices"], json!([expected]));
    assert_eq!(market.call("get_market_prices", json!({}))["count"], 24);
}

/// The failure is marked as retryable, and the third call succeeds.
#[test]
fn r1_production_cost_fails_twice_and_then_succeeds() {
    for lifecycle in LIFECYCLES {
        let dir = TestDir::new();
        let mut market = dir.open(lifecycle);
        for _ in 0..2 {
            let result =
                market.call_with("get_production_cost", json!({ "type_id": 587 }), json!({}));
            let text = "temporary: price feed unavailable, try again";
            assert_eq!(result["isError"], true);
            assert_eq!(result["content"], json!([{ "type": "text", "text": text }]));
            let error = json!({ "code": "temporary", "message": text, "retryable": true });
            assert_eq!(result["structuredContent"], json!({ "error": error }));
            assert_eq!(result["_meta"], json!({ "greenroom/retryable": true }));
        }
        let cost = market.call("get_production_cost", json!({ "type_id": 587 }));
        assert_eq!(cost["total_cost"], 438_560.0);
        assert_eq!(cost["materials"].as_array().unwrap().len(), 4);
        // The default region, given explicitly, has the same count.
        let explicit = json!({ "region_id": 10_000_002, "type_id": 587 });
        assert_eq!(market.call("get_production_cost", explicit), cost);
        // Other arguments have their own count.
        let (error, _) =
            market.call_expecting_error("get_production_cost", json!({ "type_id": 622 }));
        assert_eq!(error["code"], "temporary");
    }
}

/// One type never succeeds.
#[test]
fn r3_production_cost_of_a_vexor_always_fails() {
    let dir = TestDir::new();
    let mut market = dir.open(ProtocolLifecycle::Stateless);
    for _ in 0..5 {
        let (error, _) =
            market.call_expecting_error("get_production_cost", json!({ "type_id": 626 }));
        assert_eq!(error["code"], "temporary");
        assert_eq!(error["retryable"], true);
    }
}

#[test]
fn economics_agree_with_the_ranking() {
    let dir = TestDir::new();
    let mut market = dir.open(ProtocolLifecycle::Handshake);
    let ranked =
        market.call("get_economic_opportunities", json!({ "region_id": 10_000_002, "limit": 3 }));
    let ranked = ranked["opportunities"].as_array().unwrap().clone();
    let ids: Vec<&Value> = ranked.iter().map(|entry| &entry["type_id"]).collect();
    assert_eq!(ids, [626, 622, 621]);
    for entry in ranked {
        let ask = json!({ "region_id": 10_000_002, "type_id": entry["type_id"] });
        let economics = market.call("get_production_economics", ask);
        assert_eq!(economics["profit"], entry["profit"]);
        assert_eq!(economics["profitable"], true);
    }
}

#[test]
fn errors_name_the_problem() {
    let dir = TestDir::new();
    let mut market = dir.open(ProtocolLifecycle::Handshake);
    let cases = [
        ("get_item_info", json!({ "type_id": 99_999 }), "unknown_type", "unknown type_id 99999"),
        (
            "get_market_stats",
            json!({ "region_id": 7, "type_id": 34 }),
            "unknown_region",
            "unknown region_id 7",
        ),
        ("get_production_cost", json!({ "type_id": 34 }), "no_blueprint", "type_id 34 (Tritanium)"),
        ("get_shopping_list", json!({ "list_id": 9 }), "unknown_list", "unknown list_id 9"),
        (
            "update_bookmark",
            json!({ "bookmark_id": 9, "name": "x" }),
            "unknown_bookmark",
            "unknown bookmark_id 9",
        ),
        ("get_item_info", json!({}), "invalid_arguments", "missing field `type_id`"),
        (
            "get_item_info",
            json!({ "type_id": "34" }),
            "invalid_arguments",
            "expected a nonzero u32",
        ),
        ("get_item_info", json!({ "type_id": 0 }), "invalid_arguments", "expected a nonzero u32"),
        ("list_bookmarks", json!({ "all": true }), "invalid_arguments", "unknown field `all`"),
        (
            "get_war_losses",
            json!({ "region_id": 10_000_002, "days": 91 }),
            "invalid_arguments",
            "days must be between 1 and 90, not 91",
        ),
        (
            "wallet_transfer",
            json!({ "to": "Aura", "amount": 0 }),
            "invalid_arguments",
            "must be between 0.01 and 1000000000000, not 0",
        ),
        (
            "market_order_create",
            json!({ "type_id": 34, "region_id": 10_000_002, "side": "hold", "quantity": 1 }),
            "invalid_arguments",
            "unknown variant `hold`",
        ),
    ];
    for (tool, arguments, code, fragment) in cases {
        let (error, text) = market.call_expecting_error(tool, arguments);
        assert_eq!(error["code"], code, "{tool}: {text}");
        assert_eq!(error["retryable"], false, "{tool}");
        assert!(text.contains(fragment), "{tool}: {text}");
    }
    assert_eq!(dir.records(), Vec::<Value>::new(), "no effect was recorded");
}
