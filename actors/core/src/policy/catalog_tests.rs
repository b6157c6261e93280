//! Tests of the catalog and of the tool registry built from it.

use super::*;
use crate::policy::RiskSource;
use serde_json::json;
use std::time::Duration;

fn catalog(tools: Value, unknown_tools: UnknownToolPolicy) -> Result<Catalog, String> {
    let entries: BTreeMap<String, CatalogEntry> =
        serde_json::from_value(tools).map_err(|error| error.to_string())?;
    Ok(Catalog::new(entries, unknown_tools))
}

fn remote(name: &str, annotations: ToolAnnotations) -> RemoteTool {
    RemoteTool {
        name: name.into(),
        input_schema: json!({"type": "object"}),
        annotations,
        ..RemoteTool::default()
    }
}

fn server(name: &str, trusted: bool) -> ServerProfile {
    ServerProfile { name: name.into(), trusted, unavailable_reason: None }
}

fn resolved_tool(tools: Value, trusted: bool, name: &str, annotations: ToolAnnotations) -> Tool {
    catalog(tools, UnknownToolPolicy::default()).unwrap().resolve_tool(
        &server("market", trusted),
        &remote(name, annotations),
        "tool".parse().unwrap(),
    )
}

const READ_ONLY_ANNOTATIONS: ToolAnnotations = ToolAnnotations {
    read_only_hint: Some(true),
    destructive_hint: None,
    idempotent_hint: None,
    open_world_hint: None,
};

#[test]
fn g1_first_matching_source_determines_risk() {
    let source = |tools: Value, trusted, name| {
        let tool = resolved_tool(tools, trusted, name, READ_ONLY_ANNOTATIONS);
        (tool.risk.name(), tool.risk_source)
    };
    let all = json!({
        "delete_list": {"risk": "critical"},
        "delete_*": {"risk": "low"},
        "*": {"risk": "moderate"},
    });
    assert_eq!(source(all.clone(), true, "delete_list"), ("critical", RiskSource::Catalog));
    let glob = |glob: &str| RiskSource::CatalogGlob { glob: glob.into() };
    assert_eq!(source(all.clone(), true, "delete_it"), ("write_low_risk", glob("delete_*")));
    assert_eq!(source(all, true, "other"), ("write_high_risk", glob("*")));
    let annotation = RiskSource::Annotation { hint: "readOnlyHint = true".into() };
    assert_eq!(source(json!({}), true, "delete_list"), ("read_only", annotation));
    let word = |word: &str| RiskSource::NameWord { word: word.into() };
    assert_eq!(source(json!({}), false, "delete_list"), ("write_high_risk", word("delete")));
    assert_eq!(source(json!({}), false, "frobnicate"), ("write_high_risk", RiskSource::Default));
}

/// Returns the risk and its source of a tool without annotations.
fn risk_of(tools: Value, trusted: bool, name: &str) -> (Risk, RiskSource) {
    let tool = resolved_tool(tools, trusted, name, ToolAnnotations::default());
    (tool.risk, tool.risk_source)
}

#[test]
fn g1_words_in_name_of_untrusted_server_never_lower_the_risk() {
    let word = |word: &str| RiskSource::NameWord { word: word.into() };
    for (name, trusted, untrusted) in [
        ("get_item", (Risk::ReadOnly, word("get")), RiskSource::Default),
        ("get-env", (Risk::ReadOnly, word("get")), RiskSource::Default),
        ("get_wallet_key", (Risk::ReadOnly, word("get")), RiskSource::Default),
        ("list_and_wipe", (Risk::WriteHighRisk, word("wipe")), word("wipe")),
        ("export_and_pay", (Risk::WriteHighRisk, word("pay")), word("pay")),
        ("frobnicate", (Risk::WriteHighRisk, RiskSource::Default), RiskSource::Default),
    ] {
        assert_eq!(risk_of(json!({}), true, name), trusted, "{name}");
        assert_eq!(risk_of(json!({}), false, name), (Risk::WriteHighRisk, untrusted), "{name}");
    }
}

#[test]
fn g19_entry_without_server_lowers_risk_only_on_trusted_servers() {
    use Risk::{Critical, ReadOnly, WriteHighRisk, WriteLowRisk};
    let server_entry = |risk: &str| json!({"server": "market", "risk": risk});
    for (tools, trusted, untrusted) in [
        (json!({"get_it": {"risk": "read_only"}}), ReadOnly, WriteHighRisk),
        (json!({"get_*": {"read_only": true}}), ReadOnly, WriteHighRisk),
        (json!({"get_it": {"risk": "critical"}}), Critical, Critical),
        (json!({"*": {"risk": "critical"}}), Critical, Critical),
        (json!({"get_it": server_entry("read_only")}), ReadOnly, ReadOnly),
        (json!({"get_*": server_entry("low")}), WriteLowRisk, WriteLowRisk),
        (json!({"market__get_it": {"risk": "low"}}), WriteLowRisk, WriteLowRisk),
        (json!({"market__get_*": {"risk": "low"}}), WriteLowRisk, WriteLowRisk),
        // The exact name without a server restricts every server, also one with its own entry.
        (
            json!({"market__get_it": {"risk": "low"}, "get_it": {"risk": "critical"}}),
            Critical,
            Critical,
        ),
        (json!({"get_it": {"risk": "low"}, "*": server_entry("critical")}), WriteLowRisk, Critical),
        // A more specific entry of the server overrides a glob.
        (
            json!({"get_it": server_entry("low"), "*": {"risk": "critical"}}),
            WriteLowRisk,
            WriteLowRisk,
        ),
        (
            json!({"get_*": server_entry("low"), "*": {"risk": "critical"}}),
            WriteLowRisk,
            WriteLowRisk,
        ),
        (json!({"get_*": {"risk": "critical"}, "*": server_entry("low")}), Critical, Critical),
    ] {
        assert_eq!(risk_of(tools.clone(), true, "get_it").0, trusted, "trusted: {tools}");
        assert_eq!(risk_of(tools.clone(), false, "get_it").0, untrusted, "untrusted: {tools}");
    }
}

#[test]
fn g19_entry_without_server_does_not_vouch_for_tool_of_untrusted_server() {
    let entry = json!({"idempotent": true, "deny": false, "description": "safe", "timeout": "5s",
        "cost": "1", "constraints": ["args.n < 5"]});
    let resolved = |server_name: Option<&str>| {
        let mut entry = entry.clone();
        entry["server"] = json!(server_name);
        let catalog = catalog(json!({"frob": entry}), UnknownToolPolicy::Deny).unwrap();
        let remote =
            RemoteTool { description: "own".into(), ..remote("frob", ToolAnnotations::default()) };
        let tool = catalog.resolve_tool(&server("market", false), &remote, "frob".parse().unwrap());
        (
            (tool.repeatable, tool.denial_reason.is_some(), tool.description),
            (tool.timeout, tool.cost.is_some(), tool.constraints.len()),
        )
    };
    let restricted = (Some(Duration::from_secs(5)), true, 1);
    assert_eq!(resolved(None), ((false, true, "own".to_owned()), restricted));
    assert_eq!(resolved(Some("market")), ((true, false, "safe".to_owned()), restricted));
}

#[test]
fn g19_qualified_key_matches_only_that_servers_tool() {
    let catalog =
        catalog(json!({"lab__both": {"risk": "read_only"}}), UnknownToolPolicy::default()).unwrap();
    let risk = |server_name: &str, name: &str| {
        let remote = remote(name, ToolAnnotations::default());
        catalog.resolve_tool(&server(server_name, false), &remote, "x".parse().unwrap()).risk
    };
    assert_eq!(risk("lab", "both"), Risk::ReadOnly);
    assert_eq!(risk("evil", "lab__both"), Risk::WriteHighRisk);
    assert_eq!(risk("evil", "both"), Risk::WriteHighRisk);
}

#[test]
fn g1_annotations_of_trusted_server_determine_risk() {
    let hints = |read_only_hint, destructive_hint| ToolAnnotations {
        read_only_hint,
        destructive_hint,
        ..ToolAnnotations::default()
    };
    for (annotations, expected) in [
        (hints(Some(true), None), Risk::ReadOnly),
        (hints(Some(true), Some(true)), Risk::ReadOnly),
        (hints(None, Some(true)), Risk::WriteHighRisk),
        (hints(Some(false), Some(false)), Risk::WriteLowRisk),
        (hints(None, Some(false)), Risk::WriteLowRisk),
        (hints(Some(false), None), Risk::WriteHighRisk),
    ] {
        let tool = resolved_tool(json!({}), true, "get_it", annotations);
        assert_eq!(tool.risk, expected, "{annotations:?}");
        assert!(matches!(tool.risk_source, RiskSource::Annotation { .. }));
        let ignored = resolved_tool(json!({}), false, "get_it", annotations);
        assert_eq!(ignored.risk_source, RiskSource::Default);
    }
}

#[test]
fn r1_only_trusted_source_makes_tool_repeatable() {
    let idempotent = ToolAnnotations { idempotent_hint: Some(true), ..ToolAnnotations::default() };
    for (tools, trusted, annotations, expected) in [
        (json!({}), false, ToolAnnotations::default(), false),
        (json!({}), false, READ_ONLY_ANNOTATIONS, false),
        (json!({}), false, idempotent, false),
        (json!({}), true, READ_ONLY_ANNOTATIONS, true),
        (json!({}), true, idempotent, true),
        (json!({"market__get_it": {"risk": "read_only"}}), false, ToolAnnotations::default(), true),
        (json!({"market__get_it": {"read_only": true}}), false, ToolAnnotations::default(), true),
        (json!({"market__get_*": {"idempotent": true}}), false, ToolAnnotations::default(), true),
        (json!({"get_it": {"risk": "read_only"}}), false, ToolAnnotations::default(), false),
        (json!({"get_it": {"risk": "read_only"}}), true, ToolAnnotations::default(), true),
        (json!({"get_it": {"idempotent": false}}), true, READ_ONLY_ANNOTATIONS, false),
        (json!({"get_it": {"risk": "critical"}}), true, READ_ONLY_ANNOTATIONS, false),
    ] {
        let tool = resolved_tool(tools.clone(), trusted, "get_it", annotations);
        assert_eq!(tool.repeatable, expected, "{tools} {trusted} {annotations:?}");
    }
}

#[test]
fn t4_property_is_taken_from_most_specific_entry() {
    let tools = json!({
        "scan": {"timeout": "5m", "retry": {"max": 1, "base": "200ms"}},
        "sc*": {"timeout": "1s", "result_bytes_max": 10, "parallel": true, "description": "d"},
    });
    let tool = resolved_tool(tools, true, "scan", ToolAnnotations::default());
    assert_eq!(tool.timeout, Some(Duration::from_secs(300)));
    let initial_delay = Duration::from_millis(200);
    assert_eq!(tool.retry, RetryPolicy { retries_max: 1, initial_delay, ..RetryPolicy::default() });
    assert_eq!((tool.result_bytes_max, tool.parallel), (10, true));
    assert_eq!(tool.description, "d");
    let unlimited =
        resolved_tool(json!({"scan": {"timeout": "none"}}), false, "scan", READ_ONLY_ANNOTATIONS);
    assert_eq!(unlimited.timeout, None);
    let default = resolved_tool(json!({}), false, "scan", READ_ONLY_ANNOTATIONS);
    assert_eq!(default.timeout, Some(limits::TOOL_TIMEOUT_DEFAULT));
    assert_eq!((default.parallel, default.retry), (false, RetryPolicy::default()));
}

#[test]
fn s3_read_only_tool_is_parallel_by_default() {
    assert!(resolved_tool(json!({}), true, "get_it", READ_ONLY_ANNOTATIONS).parallel);
    assert!(
        !resolved_tool(
            json!({"get_it": {"parallel": false}}),
            true,
            "get_it",
            READ_ONLY_ANNOTATIONS
        )
        .parallel
    );
}

#[test]
fn g1_entry_with_server_applies_only_to_that_server() {
    let tools = json!({"frob": {"server": "market", "risk": "read_only"}});
    let catalog = catalog(tools, UnknownToolPolicy::Deny).unwrap();
    let tool = |name| {
        let frob = remote("frob", READ_ONLY_ANNOTATIONS);
        catalog.resolve_tool(&server(name, false), &frob, "frob".parse().unwrap())
    };
    assert_eq!((tool("market").risk, tool("market").denial_reason), (Risk::ReadOnly, None));
    assert_eq!(tool("evil").risk, Risk::WriteHighRisk);
    assert!(tool("evil").denial_reason.is_some());
}

#[test]
fn g1_qualified_name_is_more_specific_than_plain_name() {
    let tools = json!({"market__frob": {"risk": "critical"}, "frob": {"risk": "low"}});
    assert_eq!(resolved_tool(tools, false, "frob", READ_ONLY_ANNOTATIONS).risk, Risk::Critical);
}

#[test]
fn g1_unknown_tools_are_denied_with_any_name_and_annotations() {
    let tools = json!({
        "blessed": {"server": "market", "deny": false},
        "cursed": {"server": "market", "risk": "low", "deny": true},
        "timed": {"server": "market", "timeout": "5s"},
        "named": {"server": "market", "risk": "low"},
        "glob_*": {"server": "market", "risk": "low"},
        "anywhere": {"risk": "read_only"},
        "nowhere": {"deny": true},
    });
    let catalog = catalog(tools, UnknownToolPolicy::Deny).unwrap();
    let denial = |server_name: &str, trusted, name: &str| {
        let remote = remote(name, READ_ONLY_ANNOTATIONS);
        let server = server(server_name, trusted);
        catalog.resolve_tool(&server, &remote, "tool".parse().unwrap()).denial_reason
    };
    let unknown = Some("the catalog does not name it, and unknown tools are denied".to_owned());
    let denied = Some("the catalog denies it".to_owned());
    for (name, expected) in [
        ("frobnicate", &unknown),
        ("get_it", &unknown),
        ("transfer_isk", &unknown),
        ("timed", &unknown),
        ("blessed", &None),
        ("named", &None),
        ("glob_it", &None),
        ("cursed", &denied),
        ("nowhere", &denied),
    ] {
        for trusted in [false, true] {
            assert_eq!(&denial("market", trusted, name), expected, "{name}");
        }
    }
    assert_eq!(denial("market", false, "anywhere"), unknown);
    assert_eq!(denial("market", true, "anywhere"), None);
    assert_eq!(denial("evil", false, "named"), unknown);
    assert_eq!(denial(crate::policy::BUILT_IN_SERVER, true, "delegate"), None);
}

#[test]
fn g5_constraints_accumulate_and_cost_is_most_specific() {
    let tools = json!({
        "buy": {"constraints": ["args.amount < 5"], "cost": "args.amount", "cost_unit": "ISK"},
        "b*": {
            "constraints": [{"allow_if": "args.amount > 1", "reason": "too small"}],
            "cost": "7", "exclusive": "'wallet:' + user.id",
        },
    });
    let tool = resolved_tool(tools.clone(), false, "buy", ToolAnnotations::default());
    let sources: Vec<_> =
        tool.constraints.iter().map(|constraint| constraint.allow_if.source()).collect();
    assert_eq!(sources, ["args.amount < 5", "args.amount > 1"]);
    let cost = tool.cost.as_ref().map(|rule| (rule.amount.source(), rule.unit.as_str()));
    assert_eq!(cost, Some(("args.amount", "ISK")));
    assert_eq!(tool.exclusive.as_ref().map(Expression::source), Some("'wallet:' + user.id"));
    let other = resolved_tool(tools, false, "bid", ToolAnnotations::default());
    assert_eq!((other.constraints.len(), other.cost.unwrap().unit.as_str()), (1, "credits"));
    assert!(!resolved_tool(json!({}), false, "buy", ToolAnnotations::default()).has_expressions());
}

#[test]
fn g1_invalid_catalog_entry_is_rejected() {
    for (entry, expected) in [
        (json!({"risk": "critical", "read_only": true}), "contradict"),
        (json!({"timeout": "0s"}), "timeout must"),
        (json!({"timeout": 30}), "invalid type"),
        (json!({"timeout": "30"}), "is not a duration"),
        (json!({"result_bytes_max": 0}), "result_bytes_max must"),
        (json!({"retry": {"max": 21}}), "at most 20"),
        (json!({"retry": {"base": "1h"}}), "retry.base must"),
        (json!({"risky": true}), "unknown field `risky`"),
        (json!({"constraints": ["args."]}), "the expression `args.` is not valid"),
        (json!({"constraints": [{"allow_if": "argz.x"}]}), "there is no `argz`"),
        (json!({"constraints": [{"allow_if": "true", "why": ""}]}), "unknown field `why`"),
        (json!({"constraints": [true]}), "an expression, or {allow_if, reason}"),
        (json!({"constraints": vec!["true"; 65]}), "at most 64"),
        (json!({"cost": "1 +"}), "the expression `1 +` is not valid"),
        (json!({"cost_unit": "ISK"}), "cost_unit requires cost"),
        (json!({"cost": "1", "cost_unit": ""}), "cost_unit must have 1 to 16"),
        (json!({"exclusive": "user.name"}), "there is no `user.name`"),
    ] {
        let error = catalog(json!({"x": entry}), UnknownToolPolicy::default()).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn g19_registry_is_independent_of_server_order() {
    let lists = |name: &str, tools: &[&str]| ServerTools {
        server: server(name, false),
        tools: tools.iter().map(|tool| remote(tool, READ_ONLY_ANNOTATIONS)).collect(),
    };
    let mut servers = [lists("b", &["search", "b1"]), lists("a", &["search", "a.1", "search"])];
    let names = |servers: &[ServerTools]| -> Vec<(String, String, String)> {
        let registry = Catalog::default().build_registry(servers);
        let names = |tool: &std::sync::Arc<Tool>| {
            (tool.name.to_string(), tool.server.to_string(), tool.remote_name.clone())
        };
        registry.iter().map(names).collect()
    };
    let expected = [
        ("a__a_1_7f603b6c", "a", "a.1"),
        ("b1", "b", "b1"),
        ("b__search", "b", "search"),
        ("search", "a", "search"),
    ]
    .map(|(name, server, remote)| (name.to_owned(), server.to_owned(), remote.to_owned()));
    assert_eq!(names(&servers), expected);
    servers.reverse();
    assert_eq!(names(&servers), expected);
}

#[test]
fn g19_listing_shows_entries_without_effect() {
    let tools = json!({
        "get_it": {"risk": "read_only"},
        "lab__get_it": {"risk": "low"},
        "gone": {"server": "market", "risk": "low"},
        "get_*": {"server": "market", "timeout": "5s"},
    });
    let catalog = catalog(tools, UnknownToolPolicy::default()).unwrap();
    let registry = catalog.build_registry(&[ServerTools {
        server: server("market", false),
        tools: vec![remote("get_it", ToolAnnotations::default())],
    }]);
    let listed = |trusted: bool| -> Vec<_> {
        let entries = catalog.list_entries(&registry, |_| trusted).into_iter();
        entries
            .map(|entry| (entry.name, entry.server, entry.tools, entry.not_lowered.is_some()))
            .collect()
    };
    let expected = |is_not_lowered| {
        [
            ("get_it", None, 1, is_not_lowered),
            ("gone", Some("market"), 0, false),
            ("lab__get_it", Some("lab"), 0, false),
            ("get_*", Some("market"), 1, false),
        ]
        .map(|(name, server, tools, flag)| {
            (name.to_owned(), server.map(str::to_owned), tools, flag)
        })
    };
    assert_eq!(listed(false), expected(true));
    assert_eq!(listed(true), expected(false));
}

#[test]
fn t2_tool_of_unavailable_server_has_reason() {
    let down =
        ServerProfile { unavailable_reason: Some("exited".into()), ..server("market", false) };
    let registry = Catalog::default().build_registry(&[ServerTools {
        server: down,
        tools: vec![remote("get_it", READ_ONLY_ANNOTATIONS)],
    }]);
    assert_eq!(registry.get("get_it").unwrap().unavailable_reason.as_deref(), Some("exited"));
}

#[test]
fn t3_invalid_schema_rejects_every_call_with_reason() {
    let mut bad = remote("get_it", READ_ONLY_ANNOTATIONS);
    bad.input_schema = json!({"type": "nonsense"});
    let tool =
        Catalog::default().resolve_tool(&server("m", false), &bad, "get_it".parse().unwrap());
    let error = tool.validate(&json!({})).unwrap_err();
    assert!(error.starts_with("the tool's input schema is not valid"), "{error}");
}

#[test]
fn t3_arguments_with_exponential_validation_are_rejected() {
    let recursive = json!({"$ref": "#"});
    let mut tool = remote("get_it", READ_ONLY_ANNOTATIONS);
    tool.input_schema = json!({"properties": {"x": {"allOf": [recursive, recursive]}}});
    let tool =
        Catalog::default().resolve_tool(&server("m", false), &tool, "get_it".parse().unwrap());
    let nested = |levels: usize| (1..levels).fold(json!({}), |inner, _| json!({"x": inner}));
    assert_eq!(tool.validate(&nested(8)), Ok(()));
    let error = tool.validate(&nested(60)).unwrap_err();
    assert_eq!(error, "the arguments are nested deeper than 16 levels");
}
