//! Tests of the verdicts for tools, settings and policy tables.

use super::*;
use crate::policy::{
    Catalog, RemoteTool, Risk, ServerProfile, ToolRegistry, UnknownToolPolicy,
    matrix::{MatrixCell, MatrixPreset},
};
use proptest::prelude::*;
use serde_json::json;

fn tool(risk: Risk) -> Tool {
    Tool::for_tests("wallet_transfer", risk)
}

fn settings(autonomy_level: Autonomy, require_confirmation: bool) -> Settings {
    Settings { autonomy_level, require_confirmation, ..Settings::default() }
}

fn judge_context<'a>(
    settings: &'a Settings,
    matrix: &'a Matrix,
    headless: bool,
) -> JudgeContext<'a> {
    JudgeContext {
        settings,
        ceiling: EffectiveCeiling::UNLIMITED,
        matrix,
        critical: CriticalRule::default(),
        headless,
        user: "ann",
        session: "s-1",
        agent: "trader",
        remaining_budget: None,
    }
}

fn judge(tool: &Tool, settings: &Settings, matrix: &Matrix, headless: bool) -> Verdict {
    judge_call(tool, &Value::Null, &judge_context(settings, matrix, headless))
}

fn letter(verdict: &Verdict) -> char {
    match verdict {
        Verdict::Allow { .. } => 'A',
        Verdict::Ask { .. } => '?',
        Verdict::OverBudget { .. } => '$',
        Verdict::Deny(_) => 'D',
    }
}

/// Rows L0 to L3; columns read_only, write_low_risk, write_high_risk, critical.
fn table(preset: MatrixPreset, require_confirmation: bool, headless: bool) -> [String; 4] {
    Autonomy::ALL.map(|level| {
        let settings = settings(level, require_confirmation);
        Risk::ALL
            .map(|risk| letter(&judge(&tool(risk), &settings, &preset.into(), headless)))
            .iter()
            .collect()
    })
}

#[test]
fn g3_every_preset_yields_expected_verdicts() {
    let cases = [
        (MatrixPreset::Interactive, true, false, ["ADDD", "AA?D", "AA??", "AAA?"]),
        (MatrixPreset::Interactive, false, false, ["ADDD", "AA?D", "AAA?", "AAA?"]),
        (MatrixPreset::Interactive, true, true, ["ADDD", "AADD", "AADD", "AAAD"]),
        (MatrixPreset::Interactive, false, true, ["ADDD", "AADD", "AAAD", "AAAD"]),
        (MatrixPreset::Strict, true, false, ["ADDD", "AADD", "AA?D", "AAAD"]),
        (MatrixPreset::Strict, false, false, ["ADDD", "AADD", "AAAD", "AAAD"]),
        (MatrixPreset::Strict, true, true, ["ADDD", "AADD", "AADD", "AAAD"]),
        (MatrixPreset::Strict, false, true, ["ADDD", "AADD", "AAAD", "AAAD"]),
        (MatrixPreset::AskFirst, true, false, ["A???", "AA??", "AA??", "AAA?"]),
        (MatrixPreset::AskFirst, false, false, ["A???", "AA??", "AAA?", "AAA?"]),
        (MatrixPreset::AskFirst, true, true, ["ADDD", "AADD", "AADD", "AAAD"]),
        (MatrixPreset::AskFirst, false, true, ["ADDD", "AADD", "AAAD", "AAAD"]),
    ];
    for (preset, require_confirmation, headless, expected) in cases {
        let actual = table(preset, require_confirmation, headless);
        assert_eq!(actual, expected, "{preset:?} {require_confirmation} {headless}");
    }
}

#[test]
fn g4_blocked_tool_is_denied_in_every_cell() {
    for preset in MatrixPreset::ALL {
        for level in Autonomy::ALL {
            for risk in Risk::ALL {
                let mut settings = settings(level, false);
                settings.blocked_tools.insert("wallet_transfer".parse().unwrap());
                for headless in [false, true] {
                    let actual = judge(&tool(risk), &settings, &preset.into(), headless);
                    let reason = "wallet_transfer is blocked by the user's settings".into();
                    assert_eq!(actual, Verdict::Deny(Denial { reason, required_level: None }));
                }
            }
        }
    }
}

#[test]
fn g4_g19_block_applies_to_every_name_of_a_tool() {
    let tool = |name: &str| Tool {
        server: "lab".into(),
        remote_name: "delete_all".into(),
        ..Tool::for_tests(name, Risk::ReadOnly)
    };
    let verdict = |tool: &Tool, entry: &str| {
        let mut settings = Settings::default();
        settings.blocked_tools.insert(entry.parse().unwrap());
        letter(&judge(tool, &settings, &Matrix::default(), false))
    };
    for name in ["delete_all", "lab__delete_all", "lab__delete_all_e9e3a04e"] {
        for entry in [
            "delete_all",
            "lab__delete_all",
            "delete_*",
            "*_all",
            "lab__*",
            "*",
            // The name that versions before gave it while another server had a tool of its name.
            "lab__delete_all_e9e3a04e",
        ] {
            assert_eq!(verdict(&tool(name), entry), 'D', "{entry} blocks {name}");
        }
        for entry in ["delete", "lab", "DELETE_ALL", "delete_all ", "evil__delete_all", "evil__*"] {
            assert_eq!(verdict(&tool(name), entry), 'A', "{entry} does not block {name}");
        }
    }
    let mut illegal = tool("lab__delete_all_00000000");
    illegal.remote_name = "delete.all".into();
    for entry in ["delete.all", "lab__delete.all", "lab__delete_all", "delete.*"] {
        assert_eq!(verdict(&illegal, entry), 'D', "{entry}");
    }
    let registry = ToolRegistry::new([tool("delete_all"), illegal]);
    let blocked = ["delete_*", "nosuch", "high ", "lab__*"].map(|name| name.parse().unwrap());
    assert_eq!(registry.unmatched_globs(&blocked), [&blocked[1], &blocked[2]]);
}

fn denied(tool: &Tool, settings: &Settings, matrix: &Matrix, headless: bool) -> Denial {
    match judge(tool, settings, matrix, headless) {
        Verdict::Deny(denial) => denial,
        other @ (Verdict::Allow { .. } | Verdict::Ask { .. } | Verdict::OverBudget { .. }) => {
            panic!("{other:?}")
        }
    }
}

#[test]
fn g7_denial_names_required_autonomy_level() {
    use Autonomy::*;
    let headless = "wallet_transfer is write_high_risk: needs approval, and no approver is \
                    available because the agent is headless; requires autonomy level";
    let cases = [
        (
            MatrixPreset::Interactive,
            Recommendations,
            true,
            false,
            Risk::Critical,
            Some(Assisted),
            "wallet_transfer is critical: requires autonomy level ASSISTED (L2) or higher; \
          current level: RECOMMENDATIONS"
                .to_owned(),
        ),
        (
            MatrixPreset::Interactive,
            ReadOnly,
            true,
            false,
            Risk::WriteLowRisk,
            Some(Recommendations),
            "wallet_transfer is write_low_risk: requires autonomy level RECOMMENDATIONS (L1) or \
          higher; current level: READ_ONLY"
                .to_owned(),
        ),
        (
            MatrixPreset::Strict,
            Supervised,
            true,
            false,
            Risk::Critical,
            None,
            "wallet_transfer is critical: no autonomy level allows it; current level: SUPERVISED"
                .to_owned(),
        ),
        (
            MatrixPreset::Interactive,
            Assisted,
            true,
            true,
            Risk::WriteHighRisk,
            Some(Supervised),
            format!("{headless} SUPERVISED (L3) or higher; current level: ASSISTED"),
        ),
        (
            MatrixPreset::Interactive,
            Recommendations,
            false,
            true,
            Risk::WriteHighRisk,
            Some(Assisted),
            format!("{headless} ASSISTED (L2) or higher; current level: RECOMMENDATIONS"),
        ),
    ];
    for (preset, level, require_confirmation, headless, risk, required_level, reason) in cases {
        let settings = settings(level, require_confirmation);
        let actual = denied(&tool(risk), &settings, &preset.into(), headless);
        assert_eq!(actual, Denial { reason, required_level });
    }
}

#[test]
fn g7_denial_omits_or_higher_for_non_monotone_table() {
    let matrix =
        Matrix::default().with_cell(Autonomy::Supervised, Risk::Critical, MatrixCell::Deny);
    let settings = settings(Autonomy::Supervised, true);
    let actual = denied(&tool(Risk::Critical), &settings, &matrix, false);
    assert_eq!(actual.required_level, Some(Autonomy::Assisted));
    assert!(actual.reason.contains("level ASSISTED (L2); current"), "{}", actual.reason);
}

#[test]
fn g7_required_level_is_lowest_level_without_denial() {
    for preset in MatrixPreset::ALL {
        for (headless, require_confirmation) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            for risk in Risk::ALL {
                let verdict = |level| {
                    let settings = settings(level, require_confirmation);
                    judge(&tool(risk), &settings, &preset.into(), headless)
                };
                let lowest =
                    Autonomy::ALL.into_iter().find(|level| letter(&verdict(*level)) != 'D');
                for level in Autonomy::ALL {
                    if let Verdict::Deny(denial) = verdict(level) {
                        assert_eq!(denial.required_level, lowest);
                    }
                }
            }
        }
    }
}

#[test]
fn g1_tool_denied_by_catalog_is_denied_with_reason() {
    let mut tool = tool(Risk::ReadOnly);
    tool.denial_reason = Some("nothing describes it".into());
    let actual = denied(&tool, &settings(Autonomy::Supervised, false), &Matrix::default(), false);
    let reason = "wallet_transfer is denied: nothing describes it".into();
    assert_eq!(actual, Denial { reason, required_level: None });
}

/// Returns a tool of that risk with the properties of the catalog entry `entry`.
fn tool_from_entry(risk: Risk, mut entry: Value) -> Tool {
    entry["risk"] = risk.name().into();
    let entry = serde_json::from_value(entry).unwrap();
    let catalog =
        Catalog::new([("wallet_transfer".to_owned(), entry)], UnknownToolPolicy::default());
    let remote = RemoteTool {
        name: "wallet_transfer".into(),
        input_schema: json!({"type": "object"}),
        ..RemoteTool::default()
    };
    let server = ServerProfile { trusted: true, ..Default::default() };
    catalog.resolve_tool(&server, &remote, "wallet_transfer".parse().unwrap())
}

fn parse_settings(json: Value) -> Settings {
    serde_json::from_value(json).unwrap()
}

#[test]
fn g5_violated_constraint_denies_call_of_any_risk() {
    let regions = "user.allowed_regions == null || args.region_id in user.allowed_regions";
    let with_reason = json!([{"allow_if": regions, "reason": "this region is not allowed"}]);
    let restricted = json!({"autonomy_level": 3, "allowed_regions": [1, 2]});
    let free = json!({"autonomy_level": 3});
    let reason = |reason: &str| Some(format!("wallet_transfer is denied: {reason}"));
    for (constraints, settings, arguments, expected) in [
        (json!([regions]), &restricted, json!({"region_id": 2}), None),
        (json!([regions]), &free, json!({"region_id": 9}), None),
        (json!([regions]), &free, json!({}), None),
        (json!(["true", "args.n < 5"]), &free, json!({"n": 4}), None),
        (
            with_reason.clone(),
            &restricted,
            json!({"region_id": 3}),
            reason("this region is not allowed"),
        ),
        (
            with_reason,
            &restricted,
            json!({}),
            reason(&format!(
                "this region is not allowed (`{regions}` can't be evaluated: there is no `region_id`)"
            )),
        ),
        (
            json!([regions]),
            &restricted,
            json!({"region_id": "2"}),
            reason(&format!("the constraint `{regions}` does not hold")),
        ),
        (
            json!(["true", "args.n < 5"]),
            &free,
            json!({"n": 5}),
            reason("the constraint `args.n < 5` does not hold"),
        ),
        (
            json!(["args.n"]),
            &free,
            json!({"n": 5}),
            reason("`args.n` must evaluate to true or false, not int"),
        ),
        (
            json!(["args.n.size() > 1"]),
            &free,
            json!({"n": 5}),
            reason("`args.n.size() > 1` can't be evaluated: `size` does not accept int"),
        ),
    ] {
        for risk in [Risk::ReadOnly, Risk::WriteLowRisk, Risk::WriteHighRisk] {
            let tool = tool_from_entry(risk, json!({"constraints": constraints}));
            let (settings, matrix) = (parse_settings(settings.clone()), Matrix::default());
            let actual = judge_call(&tool, &arguments, &judge_context(&settings, &matrix, false));
            match (&expected, actual) {
                (None, Verdict::Allow { cost: None, .. }) => {}
                (Some(reason), Verdict::Deny(denial)) => {
                    assert_eq!((&denial.reason, denial.required_level), (reason, None));
                }
                (_, other) => panic!("{constraints} {arguments}: {other:?}"),
            }
            // Without a call there are no arguments, so constraints are not evaluated.
            let overview = judge_tool(&tool, &judge_context(&settings, &matrix, false));
            assert_eq!(letter(&overview), 'A');
        }
    }
}

#[test]
fn g4_blocked_tool_is_denied_before_constraints_are_evaluated() {
    let tool = tool_from_entry(Risk::ReadOnly, json!({"constraints": ["args.missing"]}));
    let settings = parse_settings(json!({"blocked_tools": ["wallet_transfer"]}));
    let denial = denied(&tool, &settings, &Matrix::default(), false);
    assert_eq!(denial.reason, "wallet_transfer is blocked by the user's settings");
}

#[test]
fn g5_evaluation_error_denies_call() {
    for (entry, arguments, expected) in [
        (json!({"cost": "args.amount"}), json!({}), "its cost: `args.amount` can't be evaluated"),
        (
            json!({"cost": "args.amount"}),
            json!({"amount": "5"}),
            "evaluate to a number, not string",
        ),
        (
            json!({"cost": "args.amount"}),
            json!({"amount": -1}),
            "its cost: the value of `args.amount` must be 0 or more, not -1",
        ),
        (
            json!({"cost": "0.0 / args.amount"}),
            json!({"amount": 0}),
            "must evaluate to a finite number, not NaN",
        ),
        (
            json!({"cost": "1 / args.amount"}),
            json!({"amount": 0.0}),
            "must evaluate to a finite number, not inf",
        ),
        (json!({"exclusive": "args.key"}), json!({}), "its exclusive key: `args.key`"),
        (json!({"exclusive": "args.key"}), json!({"key": 5}), "evaluate to a string, not int"),
        (json!({"exclusive": "args.key"}), json!({"key": ""}), "a string of 1 to 256 bytes"),
        (json!({"exclusive": "args.key"}), json!({"key": "x".repeat(257)}), "1 to 256 bytes"),
    ] {
        let tool = tool_from_entry(Risk::ReadOnly, entry);
        let (settings, matrix) = (Settings::default(), Matrix::default());
        match judge_call(&tool, &arguments, &judge_context(&settings, &matrix, false)) {
            Verdict::Deny(denial) => {
                assert!(denial.reason.contains(expected), "{}", denial.reason);
                assert_eq!(denial.required_level, None);
            }
            other @ (Verdict::Allow { .. } | Verdict::Ask { .. } | Verdict::OverBudget { .. }) => {
                panic!("{other:?}")
            }
        }
    }
}

#[test]
fn t8_exclusive_key_is_evaluated() {
    let tool = tool_from_entry(Risk::Critical, json!({"exclusive": "\"wallet:\" + user.id"}));
    let (settings, matrix) = (Settings::default(), Matrix::default());
    let context =
        ExpressionContext::new(&json!({}), &judge_context(&settings, &matrix, false)).unwrap();
    assert_eq!(tool.exclusive_key(&context), Ok(Some("wallet:ann".to_owned())));
    assert_eq!(self::tool(Risk::Critical).exclusive_key(&context), Ok(None));
}

/// The columns are: limit in the user's settings, remaining budget, amount, headless, and the
/// letters of the verdicts for write_high_risk and critical at L3.
#[test]
fn g3_g6_budget_cells_allow_only_affordable_critical_calls() {
    let isk = |amount: f64| json!({"amount": amount, "unit": "ISK"});
    for (limit, remaining, amount, headless, expected) in [
        (Value::Null, None, 5, false, "A?"),
        (Value::Null, Some(5.0), 5, false, "AA"),
        (Value::Null, Some(4.0), 5, false, "$?"),
        (isk(100.0), None, 5, false, "A?"),
        (isk(100.0), None, 101, false, "$?"),
        (isk(100.0), Some(50.0), 50, false, "AA"),
        (isk(100.0), Some(50.0), 51, false, "$?"),
        // The budget was raised.
        (isk(100.0), Some(500.0), 101, false, "AA"),
        (json!({"amount": 1, "unit": "USD"}), None, 5, false, "A?"),
        (isk(100.0), Some(50.0), 50, true, "AA"),
        (isk(100.0), Some(50.0), 51, true, "DD"),
    ] {
        let settings = parse_settings(json!({"autonomy_level": 3, "budget_limit": limit}));
        let matrix = Matrix::default();
        let context = JudgeContext {
            remaining_budget: remaining.map(|amount| Amount::from_f64(amount).unwrap()),
            ..judge_context(&settings, &matrix, headless)
        };
        let verdicts = [Risk::WriteHighRisk, Risk::Critical].map(|risk| {
            let tool = tool_from_entry(risk, json!({"cost": "args.amount", "cost_unit": "ISK"}));
            judge_call(&tool, &json!({"amount": amount}), &context)
        });
        let letters: String = verdicts.iter().map(letter).collect();
        assert_eq!(letters, expected, "{limit} {remaining:?} {amount} {verdicts:?}");
        for verdict in verdicts {
            match verdict {
                Verdict::Allow { cost, .. }
                | Verdict::Ask { cost, .. }
                | Verdict::OverBudget { cost, .. } => {
                    assert_eq!(
                        cost,
                        Some(Cost { amount: Amount::from_whole(amount), unit: "ISK".into() })
                    );
                }
                Verdict::Deny(denial) => {
                    let excess = "its cost of 51 ISK exceeds the remaining 50 ISK";
                    assert!(denial.reason.contains(excess), "{}", denial.reason);
                    assert_eq!(denial.required_level, None);
                }
            }
        }
    }
}

#[test]
fn g6_over_budget_verdict_states_excess() {
    let tool =
        tool_from_entry(Risk::WriteLowRisk, json!({"cost": "args.q * args.p", "cost_unit": "ISK"}));
    let settings = parse_settings(json!({"budget_limit": {"amount": 10, "unit": "ISK"}}));
    let matrix = Matrix::default();
    let actual =
        judge_call(&tool, &json!({"q": 5, "p": 2.5}), &judge_context(&settings, &matrix, false));
    let reason = "wallet_transfer is write_low_risk (catalog), level RECOMMENDATIONS (L1); its \
                  cost of 12.50 ISK exceeds the remaining 10 ISK";
    let cost = Some(Cost { amount: Amount::parse("12.5").unwrap(), unit: "ISK".into() });
    assert_eq!(actual, Verdict::OverBudget { reason: reason.into(), cost });
}

proptest! {
    /// A constraint that can't be evaluated denies the call, for any arguments and any level.
    #[test]
    fn g5_constraint_with_evaluation_error_never_allows(
        level in 0..4_u8,
        region in prop_oneof![Just(json!(null)), any::<i64>().prop_map(Value::from), ".*".prop_map(Value::from)],
        broken in prop::sample::select(vec![
            "args.region.x > 1", "args.missing == 1", "1 / 0 == 1", "args.region", "int('x') == 1",
            "[1].all(x, x + 'a' == 2)", "args.missing || false",
        ]),
    ) {
        let tool = tool_from_entry(Risk::ReadOnly, json!({"constraints": ["true", broken]}));
        let settings = parse_settings(json!({"autonomy_level": level}));
        let matrix = Matrix::default();
        let actual = judge_call(&tool, &json!({"region": region}), &judge_context(&settings, &matrix, false));
        prop_assert_eq!(letter(&actual), 'D');
    }
}

/// Rows L0 to L3 of a tool whose cost fits the budget; columns read_only, write_low_risk,
/// write_high_risk, critical.
fn affordable_table(preset: MatrixPreset, critical: CriticalRule, headless: bool) -> [String; 4] {
    let matrix = preset.into();
    Autonomy::ALL.map(|level| {
        let limit = json!({"amount": 1e15, "unit": "ISK", "period": "day"});
        let settings = parse_settings(json!({"autonomy_level": level, "budget_limit": limit}));
        let settings = Settings { require_confirmation: false, ..settings };
        let context = JudgeContext {
            remaining_budget: Some(crate::amount::Amount::from_whole(1_000_000_000_000_000)),
            critical,
            ..judge_context(&settings, &matrix, headless)
        };
        let verdict = |risk| {
            let tool = tool_from_entry(risk, json!({"cost": "args.amount", "cost_unit": "ISK"}));
            letter(&judge_call(&tool, &json!({"amount": 1000}), &context))
        };
        Risk::ALL.map(verdict).iter().collect()
    })
}

#[test]
fn g12_rule_turns_allow_of_critical_calls_into_ask() {
    let role = Some(crate::approval::Role::Approver);
    for rule in [
        CriticalRule { min_role: role, four_eyes: false },
        CriticalRule { min_role: None, four_eyes: true },
        CriticalRule { min_role: role, four_eyes: true },
    ] {
        for preset in MatrixPreset::ALL {
            for headless in [false, true] {
                let without_rule = affordable_table(preset, CriticalRule::default(), headless);
                let expected = without_rule.map(|row| {
                    let (lower, critical) = row.split_at(3);
                    let critical = match (critical, headless) {
                        ("A" | "?", false) => "?",
                        _denied => "D",
                    };
                    format!("{lower}{critical}")
                });
                let actual = affordable_table(preset, rule, headless);
                assert_eq!(actual, expected, "{preset:?} {rule:?} {headless}");
            }
        }
    }
    // V1: the user's own settings allow the call without the rule.
    let default_rule = CriticalRule::default();
    assert_eq!(affordable_table(MatrixPreset::Interactive, default_rule, false)[3], "AAAA");
}

#[test]
fn g12_reason_of_verdict_states_the_requirement() {
    let critical = CriticalRule { min_role: None, four_eyes: true };
    let mut settings = settings(Autonomy::Supervised, false);
    let matrix = Matrix::default();
    let (tool, context) = (tool(Risk::Critical), judge_context(&settings, &matrix, false));
    let verdict = judge_call(&tool, &Value::Null, &JudgeContext { critical, ..context });
    let Verdict::Ask { reason, .. } = verdict else { panic!("{verdict:?}") };
    let requirement = "critical calls require approval by a second user";
    let source = &tool.risk_source;
    let expected =
        format!("wallet_transfer is critical ({source}), level SUPERVISED (L3); {requirement}");
    assert_eq!(reason, expected);

    let context = judge_context(&settings, &matrix, true);
    let verdict = judge_call(&tool, &Value::Null, &JudgeContext { critical, ..context });
    let Verdict::Deny(denial) = verdict else { panic!("{verdict:?}") };
    let reason = format!(
        "wallet_transfer is critical: {requirement}; needs approval, and no approver is available \
         because the agent is headless; no autonomy level allows it; current level: SUPERVISED"
    );
    assert_eq!(denial, Denial { reason, required_level: None });

    settings.blocked_tools.insert("wallet_transfer".parse().unwrap());
    let context = judge_context(&settings, &matrix, false);
    let verdict = judge_call(&tool, &Value::Null, &JudgeContext { critical, ..context });
    assert_eq!(letter(&verdict), 'D', "deny stays deny");
}
