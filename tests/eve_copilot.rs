//! Tests of the catalog of the EVE co-pilot, loaded as configuration (G15).

use greenroom::configuration::{Configuration, Environment};
use greenroom_core::policy::{
    Autonomy, EffectiveCeiling, JudgeContext, Risk, RiskSource, ServerProfile, ServerTools,
    Settings, Tool, ToolRegistry, Verdict, catalog::RemoteTool, judge_call,
};
use serde_json::{Value, json};
use std::path::Path;

/// The required tools: one name and risk per line, with comments for groups.
const LIST: &str = include_str!("fixtures/eve-tools.txt");

fn listed() -> Vec<(&'static str, &'static str)> {
    let lines = LIST.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| line.split_once(' ').expect("a name and a risk")).collect()
}

fn configuration() -> Configuration {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/eve-copilot.toml");
    Configuration::load(Some(&example), &Environment::new()).expect("the example is valid")
}

/// Builds the registry of a server with these tools, which provides only their names.
fn build_registry<'a>(
    configuration: &Configuration,
    names: impl IntoIterator<Item = &'a str>,
) -> ToolRegistry {
    let remote = |name: &str| RemoteTool {
        name: name.to_owned(),
        input_schema: json!({"type": "object"}),
        ..RemoteTool::default()
    };
    let server = ServerProfile { name: "eve".to_owned(), trusted: false, unavailable_reason: None };
    let tools = names.into_iter().map(remote).collect();
    configuration.catalog.build_registry(&[ServerTools { server, tools }])
}

fn verdict(
    configuration: &Configuration,
    tool: &Tool,
    settings: &Settings,
    call: Value,
) -> Verdict {
    let context = JudgeContext {
        settings,
        ceiling: EffectiveCeiling::UNLIMITED,
        matrix: &configuration.matrix,
        critical: configuration.critical,
        headless: false,
        user: "pilot",
        session: "session",
        agent: "default",
        remaining_budget: None,
    };
    judge_call(tool, &call, &context)
}

#[test]
fn g15_catalog_has_exactly_the_listed_tools_with_their_risks() {
    let configuration = configuration();
    let listed = listed();
    let registry = build_registry(&configuration, listed.iter().map(|(name, _)| *name));
    for (name, risk) in &listed {
        let tool = registry.get(name).expect("every tool has its own name");
        assert_eq!((tool.risk.name(), &tool.risk_source), (*risk, &RiskSource::Catalog), "{name}");
        assert!(!tool.description.is_empty() && tool.denial_reason.is_none(), "{name}");
    }
    let counts = Risk::ALL.map(|risk| registry.iter().filter(|tool| tool.risk == risk).count());
    assert_eq!((counts, registry.iter().count()), ([90, 21, 4, 0], 115));
    let example: toml::Table =
        include_str!("../examples/eve-copilot.toml").parse().expect("the example is TOML");
    assert_eq!(example["tools"].as_table().map(toml::Table::len), Some(115));
    // A tool that the server adds later is denied until it is in the catalog.
    let unknown = self::build_registry(&configuration, ["frobnicate"]);
    assert!(unknown.get("frobnicate").is_some_and(|tool| tool.denial_reason.is_some()));
}

#[test]
fn g15_level_1_allows_creating_lists_and_asks_before_deleting() {
    let configuration = configuration();
    let settings = Settings::default();
    assert_eq!(settings.autonomy_level, Autonomy::Recommendations);
    let registry = build_registry(&configuration, listed().into_iter().map(|(name, _)| name));
    let verdict = |name: &str| {
        let tool = registry.get(name).expect("the tool is listed");
        verdict(&configuration, tool, &settings, json!({"name": "Ships", "list_id": 7}))
    };
    assert!(matches!(verdict("create_shopping_list"), Verdict::Allow { .. }));
    for delete in
        ["delete_shopping_list", "delete_shopping_item", "delete_production_job", "delete_bookmark"]
    {
        assert!(matches!(verdict(delete), Verdict::Ask { .. }), "{delete}");
    }
}

#[test]
fn g15_tools_of_a_region_are_limited_to_allowed_regions() {
    let configuration = configuration();
    let registry = build_registry(&configuration, ["get_market_stats", "search_item"]);
    let restricted = Settings { allowed_regions: Some([10000002].into()), ..Settings::default() };
    for (tool, settings, call, is_allowed) in [
        ("get_market_stats", &restricted, json!({"type_id": 34, "region_id": 10000002}), true),
        ("get_market_stats", &restricted, json!({"type_id": 34, "region_id": 10000043}), false),
        ("get_market_stats", &restricted, json!({"type_id": 34}), false),
        ("get_market_stats", &Settings::default(), json!({"type_id": 34}), true),
        ("search_item", &restricted, json!({"query": "trit"}), true),
    ] {
        let tool_entry = registry.get(tool).expect("the tool is registered");
        match verdict(&configuration, tool_entry, settings, call) {
            Verdict::Allow { .. } => assert!(is_allowed, "{tool}"),
            Verdict::Deny(denial) => {
                assert!(!is_allowed && denial.reason.contains("does not allow this region"));
            }
            Verdict::Ask { .. } | Verdict::OverBudget { .. } => panic!("{tool} is read-only"),
        }
    }
}

#[test]
fn g15_analyst_has_only_read_only_tools() {
    let configuration = configuration();
    let name = "analyst".parse().expect("the name is valid");
    let analyst = &configuration.agents[&name];
    let tools: Vec<_> =
        listed().into_iter().filter(|(name, _)| analyst.can_use_tool(name)).collect();
    assert!(tools.len() > 60 && tools.iter().all(|(_, risk)| *risk == "read_only"), "{tools:?}");
}
