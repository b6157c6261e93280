//! What servers and entries lead to what tools.

use super::*;
use crate::policy::RiskSource;
use serde_json::json;
use std::time::Duration;

fn catalog(tools: Value, unknown_tools: UnknownTools) -> Result<Catalog, String> {
    let entries: BTreeMap<String, CatalogEntry> =
        serde_json::from_value(tools).map_err(|error| error.to_string())?;
    Ok(Catalog::new(entries, unknown_tools))
}

fn remote(name: &str, annotations: Annotations) -> RemoteTool {
    RemoteTool {
        name: name.into(),
        input_schema: json!({"type": "object"}),
        annotations,
        ..RemoteTool::default()
    }
}

fn server(name: &str, trusted: bool) -> ServerFacts {
    ServerFacts { name: name.into(), trusted, unavailable: None }
}

fn described(tools: Value, trusted: bool, name: &str, annotations: Annotations) -> Tool {
    catalog(tools, UnknownTools::default()).unwrap().describe(
        &server("market", trusted),
        &remote(name, annotations),
        "tool".parse().unwrap(),
    )
}

const READS: Annotations = Annotations {
    read_only_hint: Some(true),
    destructive_hint: None,
    idempotent_hint: None,
    open_world_hint: None,
};

#[test]
fn g1_the_first_that_matches_wins() {
    let source = |tools: Value, trusted, name| {
        let tool = described(tools, trusted, name, READS);
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
    assert_eq!(source(json!({}), false, "get_list"), ("read_only", word("get")));
    assert_eq!(source(json!({}), false, "frobnicate"), ("write_high_risk", RiskSource::Default));
}

#[test]
fn g1_annotations_of_trusted_servers() {
    let hints = |read_only_hint, destructive_hint| Annotations {
        read_only_hint,
        destructive_hint,
        ..Annotations::default()
    };
    for (annotations, expected) in [
        (hints(Some(true), None), Risk::ReadOnly),
        (hints(Some(true), Some(true)), Risk::ReadOnly),
        (hints(None, Some(true)), Risk::WriteHighRisk),
        (hints(Some(false), Some(false)), Risk::WriteLowRisk),
        (hints(None, Some(false)), Risk::WriteLowRisk),
        (hints(Some(false), None), Risk::WriteHighRisk),
    ] {
        let tool = described(json!({}), true, "get_it", annotations);
        assert_eq!(tool.risk, expected, "{annotations:?}");
        assert!(matches!(tool.risk_source, RiskSource::Annotation { .. }));
        let ignored = described(json!({}), false, "get_it", annotations);
        assert_eq!(ignored.risk_source, RiskSource::NameWord { word: "get".into() });
    }
}

#[test]
fn r1_only_who_is_believed_makes_a_tool_repeatable() {
    let idempotent = Annotations { idempotent_hint: Some(true), ..Annotations::default() };
    for (tools, trusted, annotations, expected) in [
        (json!({}), false, Annotations::default(), false),
        (json!({}), false, READS, false),
        (json!({}), false, idempotent, false),
        (json!({}), true, READS, true),
        (json!({}), true, idempotent, true),
        (json!({"get_it": {"risk": "read_only"}}), false, Annotations::default(), true),
        (json!({"get_it": {"read_only": true}}), false, Annotations::default(), true),
        (json!({"get_*": {"idempotent": true}}), false, Annotations::default(), true),
        (json!({"get_it": {"idempotent": false}}), true, READS, false),
        (json!({"get_it": {"risk": "critical"}}), true, READS, false),
    ] {
        let tool = described(tools.clone(), trusted, "get_it", annotations);
        assert_eq!(tool.repeatable, expected, "{tools} {trusted} {annotations:?}");
    }
}

#[test]
fn t4_facts_come_from_the_most_specific_entry_that_states_them() {
    let tools = json!({
        "scan": {"timeout": "5m", "retry": {"max": 1, "base": "200ms"}},
        "sc*": {"timeout": "1s", "result_bytes_max": 10, "parallel": true, "description": "d"},
    });
    let tool = described(tools, false, "scan", Annotations::default());
    assert_eq!(tool.timeout, Some(Duration::from_secs(300)));
    let base = Duration::from_millis(200);
    assert_eq!(tool.retry, RetryPolicy { retries_max: 1, base, ..RetryPolicy::default() });
    assert_eq!((tool.result_bytes_max, tool.parallel), (10, true));
    assert_eq!(tool.description, "d");
    let unlimited = described(json!({"scan": {"timeout": "none"}}), false, "scan", READS);
    assert_eq!(unlimited.timeout, None);
    let usual = described(json!({}), false, "scan", READS);
    assert_eq!(usual.timeout, Some(limits::TOOL_TIMEOUT_DEFAULT));
    assert_eq!((usual.parallel, usual.retry), (false, RetryPolicy::default()));
}

#[test]
fn s3_read_only_tools_run_in_parallel() {
    assert!(described(json!({}), false, "get_it", READS).parallel);
    assert!(!described(json!({"get_it": {"parallel": false}}), false, "get_it", READS).parallel);
}

#[test]
fn an_entry_for_one_server_says_nothing_of_another_s_tool() {
    let tools = json!({"frob": {"server": "market", "risk": "read_only"}});
    let catalog = catalog(tools, UnknownTools::Deny).unwrap();
    let tool = |name| {
        let frob = remote("frob", READS);
        catalog.describe(&server(name, false), &frob, "frob".parse().unwrap())
    };
    assert_eq!((tool("market").risk, tool("market").denied), (Risk::ReadOnly, None));
    assert_eq!(tool("evil").risk, Risk::WriteHighRisk);
    assert!(tool("evil").denied.is_some());
}

#[test]
fn a_qualified_name_is_more_specific_than_a_plain_one() {
    let tools = json!({"market__frob": {"risk": "critical"}, "frob": {"risk": "low"}});
    assert_eq!(described(tools, false, "frob", READS).risk, Risk::Critical);
}

#[test]
fn g1_unknown_tools_can_be_denied_and_exempted() {
    let tools = json!({"blessed": {"deny": false}, "cursed": {"risk": "low", "deny": true}});
    let catalog = catalog(tools, UnknownTools::Deny).unwrap();
    let denied = |name: &str| {
        let remote = remote(name, Annotations::default());
        catalog.describe(&server("market", false), &remote, "tool".parse().unwrap()).denied
    };
    assert!(denied("frobnicate").unwrap().contains("unknown tools are denied"));
    assert!(denied("cursed").unwrap().contains("catalog"));
    assert_eq!((denied("get_it"), denied("blessed")), (None, None));
}

#[test]
fn g5_constraints_add_up_and_costs_come_from_the_most_specific_entry() {
    let tools = json!({
        "buy": {"constraints": ["args.amount < 5"], "cost": "args.amount", "cost_unit": "ISK"},
        "b*": {
            "constraints": [{"allow_if": "args.amount > 1", "reason": "too small"}],
            "cost": "7", "exclusive": "'wallet:' + user.id",
        },
    });
    let tool = described(tools.clone(), false, "buy", Annotations::default());
    let written: Vec<_> = tool.constraints.iter().map(|one| one.allow_if.source()).collect();
    assert_eq!(written, ["args.amount < 5", "args.amount > 1"]);
    let cost = tool.cost.as_ref().map(|rule| (rule.amount.source(), rule.unit.as_str()));
    assert_eq!(cost, Some(("args.amount", "ISK")));
    assert_eq!(tool.exclusive.as_ref().map(Expression::source), Some("'wallet:' + user.id"));
    let other = described(tools, false, "bid", Annotations::default());
    assert_eq!((other.constraints.len(), other.cost.unwrap().unit.as_str()), (1, "credits"));
    assert!(!described(json!({}), false, "buy", Annotations::default()).has_expressions());
}

#[test]
fn bad_entries_are_refused_by_name() {
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
        (json!({"cost_unit": "ISK"}), "there is none"),
        (json!({"cost": "1", "cost_unit": ""}), "cost_unit must have 1 to 16"),
        (json!({"exclusive": "user.name"}), "there is no `user.name`"),
    ] {
        let error = catalog(json!({"x": entry}), UnknownTools::default()).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_book_does_not_depend_on_the_order_of_arrival() {
    let lists = |name: &str, tools: &[&str]| ServerTools {
        server: server(name, false),
        tools: tools.iter().map(|tool| remote(tool, READS)).collect(),
    };
    let mut servers = [lists("b", &["search", "b1"]), lists("a", &["search", "a.1", "search"])];
    let names = |servers: &[ServerTools]| -> Vec<(String, String, String)> {
        let book = Catalog::default().book(servers);
        let facts = |tool: &std::sync::Arc<Tool>| {
            (tool.name.to_string(), tool.server.to_string(), tool.remote_name.clone())
        };
        book.iter().map(facts).collect()
    };
    let expected = [
        ("a__a_1", "a", "a.1"),
        ("a__search", "a", "search"),
        ("b1", "b", "b1"),
        ("b__search", "b", "search"),
    ]
    .map(|(name, server, remote)| (name.to_owned(), server.to_owned(), remote.to_owned()));
    assert_eq!(names(&servers), expected);
    servers.reverse();
    assert_eq!(names(&servers), expected);
}

#[test]
fn t2_tools_of_a_server_that_is_down_say_why() {
    let down = ServerFacts { unavailable: Some("exited".into()), ..server("market", false) };
    let book = Catalog::default()
        .book(&[ServerTools { server: down, tools: vec![remote("get_it", READS)] }]);
    assert_eq!(book.get("get_it").unwrap().unavailable.as_deref(), Some("exited"));
}

#[test]
fn an_invalid_schema_is_kept_as_the_reason() {
    let mut bad = remote("get_it", READS);
    bad.input_schema = json!({"type": "nonsense"});
    let tool = Catalog::default().describe(&server("m", false), &bad, "get_it".parse().unwrap());
    let error = tool.validate(&json!({})).unwrap_err();
    assert!(error.starts_with("the tool's input schema is not valid"), "{error}");
}

#[test]
fn t3_arguments_that_would_take_for_ever_to_check_are_refused() {
    let again = json!({"$ref": "#"});
    let mut tool = remote("get_it", READS);
    tool.input_schema = json!({"properties": {"x": {"allOf": [again, again]}}});
    let tool = Catalog::default().describe(&server("m", false), &tool, "get_it".parse().unwrap());
    let nested = |levels: usize| (1..levels).fold(json!({}), |inner, _| json!({"x": inner}));
    assert_eq!(tool.validate(&nested(8)), Ok(()));
    let error = tool.validate(&nested(60)).unwrap_err();
    assert_eq!(error, "the arguments are nested deeper than 16 levels");
}
