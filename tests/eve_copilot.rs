//! The catalog of the EVE co-pilot, as the configuration loader reads it (G15).

use greenroom::configuration::{Configuration, Environment};
use greenroom_core::policy::{
    Autonomy, JudgeContext, Risk, RiskSource, ServerProfile, ServerTools, Settings, Tool,
    ToolRegistry, Verdict, catalog::RemoteTool, judge_call,
};
use serde_json::{Value, json};
use std::path::Path;

/// The tools there are to be: a name and its risk a line, groups as comments.
const LIST: &str = include_str!("fixtures/eve-tools.txt");

fn listed() -> Vec<(&'static str, &'static str)> {
    let lines = LIST.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| line.split_once(' ').expect("a name and a risk")).collect()
}

fn configuration() -> Configuration {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/eve-copilot.toml");
    Configuration::load(Some(&example), &Environment::new()).expect("the example is good")
}

/// The book of a server that offers these tools and says nothing of them.
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
    let judging = JudgeContext {
        settings,
        matrix: &configuration.matrix,
        headless: false,
        user: "pilot",
        session: "session",
        agent: "default",
        remaining_budget: None,
    };
    judge_call(tool, &call, &judging)
}

#[test]
fn g15_every_tool_of_the_list_has_its_risk_and_there_are_no_others() {
    let configuration = configuration();
    let listed = listed();
    let book = build_registry(&configuration, listed.iter().map(|(name, _)| *name));
    for (name, risk) in &listed {
        let tool = book.get(name).expect("every tool has its own name");
        assert_eq!((tool.risk.name(), &tool.risk_source), (*risk, &RiskSource::Catalog), "{name}");
        assert!(!tool.description.is_empty() && tool.denial_reason.is_none(), "{name}");
    }
    let counts = Risk::ALL.map(|risk| book.iter().filter(|tool| tool.risk == risk).count());
    assert_eq!((counts, book.iter().count()), ([90, 21, 4, 0], 115));
    let written: toml::Table =
        include_str!("../examples/eve-copilot.toml").parse().expect("it is TOML");
    assert_eq!(written["tools"].as_table().map(toml::Table::len), Some(115));
    // What the server adds later is denied until somebody describes it.
    let unknown = self::build_registry(&configuration, ["frobnicate"]);
    assert!(unknown.get("frobnicate").is_some_and(|tool| tool.denial_reason.is_some()));
}

#[test]
fn g15_at_level_1_lists_are_created_at_once_and_deleted_after_asking() {
    let configuration = configuration();
    let settings = Settings::default();
    assert_eq!(settings.autonomy_level, Autonomy::Recommendations);
    let book = build_registry(&configuration, listed().into_iter().map(|(name, _)| name));
    let verdict = |name: &str| {
        let tool = book.get(name).expect("it is listed");
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
fn g15_tools_of_a_region_keep_to_the_user_s() {
    let configuration = configuration();
    let book = build_registry(&configuration, ["get_market_stats", "search_item"]);
    let restricted = Settings { allowed_regions: Some([10000002].into()), ..Settings::default() };
    for (tool, settings, call, is_allowed) in [
        ("get_market_stats", &restricted, json!({"type_id": 34, "region_id": 10000002}), true),
        ("get_market_stats", &restricted, json!({"type_id": 34, "region_id": 10000043}), false),
        ("get_market_stats", &restricted, json!({"type_id": 34}), false),
        ("get_market_stats", &Settings::default(), json!({"type_id": 34}), true),
        ("search_item", &restricted, json!({"query": "trit"}), true),
    ] {
        let found = verdict(&configuration, book.get(tool).expect("it is there"), settings, call);
        match found {
            Verdict::Allow { .. } => assert!(is_allowed, "{tool}"),
            Verdict::Deny(denial) => {
                assert!(!is_allowed && denial.reason.contains("does not allow this region"));
            }
            Verdict::Ask { .. } | Verdict::OverBudget { .. } => panic!("{tool} only reads"),
        }
    }
}

#[test]
fn g15_the_analyst_only_reads() {
    let configuration = configuration();
    let name = "analyst".parse().expect("it is a name");
    let analyst = &configuration.agents[&name];
    let used: Vec<_> =
        listed().into_iter().filter(|(name, _)| analyst.can_use_tool(name)).collect();
    assert!(used.len() > 60 && used.iter().all(|(_, risk)| *risk == "read_only"), "{used:?}");
}
