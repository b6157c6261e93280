//! Both protocol lifecycles, the list of tools, and the catalog for these tools.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::harness::{LIFECYCLES, ProtocolLifecycle, TestDir};

const READ_ONLY: [&str; 14] = [
    "search_item",
    "get_item_info",
    "get_market_stats",
    "get_market_prices",
    "compare_regions",
    "get_war_losses",
    "get_production_cost",
    "get_production_economics",
    "get_economic_opportunities",
    "scan_opportunities",
    "list_bookmarks",
    "get_shopping_list",
    "export_shopping_list",
    "choose_hangar",
];

const WRITING: [&str; 7] = [
    "create_shopping_list",
    "add_shopping_item",
    "create_bookmark",
    "update_bookmark",
    "delete_shopping_list",
    "market_order_create",
    "wallet_transfer",
];

fn names(list: &Value) -> Vec<&str> {
    list["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[test]
fn handshake_era_is_supported() {
    for version in ["2024-11-05", "2025-06-18", "2025-11-25"] {
        let dir = TestDir::new();
        let mut market = dir.spawn(&[]);
        let response = market.initialize(version);
        assert_eq!(response["result"]["protocolVersion"], version);
        assert_eq!(response["result"]["serverInfo"]["name"], "greenroom-market");
        let list = market.request("tools/list", json!({}));
        assert_eq!(names(&list["result"]).len(), 21);
        assert!(list["result"].get("resultType").is_none(), "no new keys for an old client");
    }
}

#[test]
fn stateless_era_is_supported() {
    let dir = TestDir::new();
    let mut market = dir.open(ProtocolLifecycle::Stateless);
    let response = market.request("server/discover", json!({}));
    let versions = response["result"]["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&json!("2026-07-28")), "{versions:?}");
    let list = market.request("tools/list", json!({}));
    assert_eq!(list["result"]["resultType"], "complete");
    assert_eq!(names(&list["result"]).len(), 21);
}

#[test]
fn client_may_probe_before_the_handshake() {
    let dir = TestDir::new();
    let mut market = dir.spawn(&[]);
    let refused = market.request("server/discover", json!({}));
    assert_eq!(refused["error"]["code"], -32602, "a probe without metadata is refused");
    let response = market.initialize("2025-11-25");
    assert_eq!(response["result"]["protocolVersion"], "2025-11-25");
}

#[test]
fn tools_have_strict_schemas_and_correct_annotations() {
    for lifecycle in LIFECYCLES {
        let dir = TestDir::new();
        let mut market = dir.open(lifecycle);
        let list = market.request("tools/list", json!({}))["result"].clone();
        assert_eq!(names(&list), [&READ_ONLY[..], &WRITING[..]].concat());
        for tool in list["tools"].as_array().unwrap() {
            let name = tool["name"].as_str().unwrap();
            let schema = &tool["inputSchema"];
            assert_eq!(schema["type"], "object", "{name}");
            assert_eq!(schema["additionalProperties"], false, "{name}");
            let properties = schema["properties"].as_object().unwrap();
            for (property, described) in properties {
                assert!(described["description"].is_string(), "{name}.{property}");
            }
            assert!(!tool["description"].as_str().unwrap().is_empty(), "{name}");
            assert_eq!(tool["annotations"]["readOnlyHint"], READ_ONLY.contains(&name), "{name}");
        }
        let order = list["tools"].as_array().unwrap().iter();
        let order = order.clone().find(|tool| tool["name"] == "market_order_create").unwrap();
        let schema = &order["inputSchema"];
        assert_eq!(schema["required"], json!(["type_id", "region_id", "side", "quantity"]));
        assert_eq!(schema["properties"]["side"]["enum"], json!(["buy", "sell"]));
        assert_eq!(schema["properties"]["quantity"]["type"], "integer");
        assert_eq!(schema["properties"]["quantity"]["minimum"], 1);
        assert_eq!(schema["properties"]["type_id"]["minimum"], 1);
        assert_eq!(order["annotations"]["destructiveHint"], true);
        assert_eq!(order["annotations"]["idempotentHint"], false);
    }
}

#[test]
fn unknown_tool_is_a_protocol_error() {
    let dir = TestDir::new();
    let mut market = dir.open(ProtocolLifecycle::Handshake);
    let response = market.request("tools/call", json!({ "name": "test_crash", "arguments": {} }));
    assert_eq!(response["error"]["code"], -32602);
    assert_eq!(response["error"]["message"], "unknown tool: test_crash");
}

#[test]
fn server_exits_when_its_input_ends() {
    for lifecycle in LIFECYCLES {
        let dir = TestDir::new();
        let mut market = dir.open_with(lifecycle, &[("MARKET_HANG", "list_bookmarks")]);
        market.start_call("list_bookmarks", json!({}), json!({}));
        let scan = json!({ "region_id": 10_000_002, "seconds": 600 });
        market.start_call("scan_opportunities", scan, json!({}));
        market.call("get_item_info", json!({ "type_id": 34 }));
        let (status, errors) = market.close();
        assert!(status.success(), "{status}");
        assert_eq!(errors, "");
    }
}

#[derive(serde::Deserialize)]
struct Catalog {
    tools: BTreeMap<String, Entry>,
}

#[derive(serde::Deserialize)]
struct Entry {
    risk: String,
    #[serde(default)]
    idempotent: bool,
}

/// The catalog has the risk of exactly the tools that exist.
#[test]
fn g1_catalog_covers_every_tool() {
    let catalog: Catalog = toml::from_str(include_str!("../../catalog.toml")).unwrap();
    let listed: BTreeSet<&str> = READ_ONLY.into_iter().chain(WRITING).collect();
    let catalogued: BTreeSet<&str> = catalog.tools.keys().map(String::as_str).collect();
    assert_eq!(catalogued, listed);

    let with_risk = |risk: &str| -> BTreeSet<&str> {
        let tools = catalog.tools.iter().filter(|(_, entry)| entry.risk == risk);
        tools.map(|(name, _)| name.as_str()).collect()
    };
    assert_eq!(with_risk("read_only"), READ_ONLY.into_iter().collect());
    assert_eq!(with_risk("write_low_risk"), WRITING[..4].iter().copied().collect());
    assert_eq!(with_risk("write_high_risk"), WRITING[4..6].iter().copied().collect());
    assert_eq!(with_risk("critical"), WRITING[6..].iter().copied().collect());
    assert!(catalog.tools["market_order_create"].idempotent);
    assert!(!catalog.tools["wallet_transfer"].idempotent);
}
