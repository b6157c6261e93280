//! Tests of expressions: results, errors, and bounds for hostile expressions.

use super::*;
use crate::policy::{CriticalRule, EffectiveCeiling, JudgeContext, Matrix, Settings};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

fn user() -> Settings {
    serde_json::from_value(json!({
        "autonomy_level": 2,
        "blocked_tools": ["wallet_transfer"],
        "allowed_regions": [10000002, 10000043],
        "budget_limit": {"amount": 1000, "unit": "ISK", "period": "day"},
    }))
    .unwrap()
}

fn try_context(arguments: &Json, settings: &Settings) -> Result<ExpressionContext, String> {
    let matrix = Matrix::default();
    let judge_context = JudgeContext {
        settings,
        ceiling: EffectiveCeiling::UNLIMITED,
        matrix: &matrix,
        critical: CriticalRule::default(),
        headless: false,
        user: "ann",
        session: "s-1",
        agent: "trader",
        remaining_budget: None,
    };
    ExpressionContext::new(arguments, &judge_context)
}

fn context(arguments: &Json) -> ExpressionContext {
    try_context(arguments, &user()).unwrap()
}

fn evaluate_bool(source: &str, arguments: &Json) -> Result<bool, String> {
    Expression::compile(source).unwrap().evaluate_bool(&context(arguments))
}

const REGIONS: &str = "user.allowed_regions == null || args.region_id in user.allowed_regions";

#[test]
fn g5_condition_over_arguments_user_and_session_is_evaluated() {
    let arguments = json!({
        "region_id": 10000002, "amount": 1000.5, "whole": 1000, "side": "sell",
        "items": [{"quantity": 2, "price": 1.5}, {"quantity": 1, "price": 4}], "note": null,
        "large": 18446744073709549568_u64,
    });
    for (source, expected) in [
        (REGIONS, true),
        ("args.region_id in [10000043]", false),
        ("args.amount > 1000 && args.whole >= 1000.0 && args.whole == 1000.0", true),
        ("args.whole > 1000", false),
        ("args.large > 1000 && args.large > 9007199254740993", true),
        ("args.note == null && has(args.side) && !has(args.region)", true),
        ("args.side.startsWith('s') && args.side in ['sell', 'buy']", true),
        ("args.items.all(item, item.quantity * item.price <= 4)", true),
        ("args.items.exists(item, item.price > 4)", false),
        ("args.items.map(item, item.quantity * item.price) == [3, 4]", true),
        ("args.items.filter(item, item.price == 4)[0].quantity == 1", true),
        ("args.items.exists_one(item, item.quantity == 2)", true),
        ("user.id == 'ann' && session.id == 's-1' && session.agent == 'trader'", true),
        ("user.autonomy_level == 2 && session.autonomy_level >= 1", true),
        ("user.require_confirmation && session.require_confirmation && !session.headless", true),
        ("'wallet_transfer' in user.blocked_tools", true),
        ("user.budget_limit.amount == 1000 && user.budget_limit.unit == 'ISK'", true),
        ("user.budget_limit.period == 'day' && size(user.allowed_regions) == 2", true),
        ("type(args.whole) == int && string(args.whole) == '1000'", true),
        ("args.whole / 3 == 333 && args.whole / 3.0 > 333 && args.whole % 3 == 1", true),
        ("args.amount - 1 == 999.5 && -args.whole < 0 && args.side + '!' == 'sell!'", true),
        ("(args.whole > 5 ? 'a' : 'b') == 'a'", true),
    ] {
        assert_eq!(evaluate_bool(source, &arguments), Ok(expected), "{source}");
    }
}

#[test]
fn g4_absent_restriction_is_null() {
    for source in [REGIONS, "user.allowed_regions == null && user.budget_limit == null"] {
        let context = try_context(&json!({}), &Settings::default()).unwrap();
        assert_eq!(
            Expression::compile(source).unwrap().evaluate_bool(&context),
            Ok(true),
            "{source}"
        );
    }
}

#[test]
fn g5_evaluation_error_states_reason_without_values() {
    let arguments = json!({"text": "secret", "number": 1, "list": [1], "most": i64::MAX});
    for (source, expected) in [
        (REGIONS, "there is no `region_id`"),
        ("args.text > 5", "`>` does not accept string and int"),
        ("args.text * 2 == 4", "`*` does not accept string and int"),
        ("args.number + args.text == 4", "`add` does not accept int and string"),
        ("args.number / 0 == 1", "division by zero"),
        ("args.most + 1 > 0", "numeric overflow"),
        ("args.list[5] == 1", "index out of bounds"),
        ("int(args.text) == 1", "function 'int'"),
        ("args.number.x == 1", "`args.number.x == 1` can't be evaluated"),
        ("args.number", "must evaluate to true or false, not int"),
        ("args.text", "must evaluate to true or false, not string"),
        ("null", "must evaluate to true or false, not null"),
    ] {
        let error = evaluate_bool(source, &arguments).unwrap_err();
        assert!(error.contains(expected), "{source}: {error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn g5_mixed_integers_and_floats_are_computed() {
    let number = |source: &str, arguments: Json| {
        Expression::compile(source).unwrap().evaluate_number(&context(&arguments))
    };
    let cost = "args.quantity * args.price";
    for (arguments, expected) in [
        (json!({"quantity": 5, "price": 2}), "10"),
        (json!({"quantity": 5, "price": 2.5}), "12.5"),
        (json!({"quantity": 2.5, "price": 2}), "5.0"),
        (json!({"quantity": 2.5, "price": 2.5}), "6.25"),
    ] {
        assert_eq!(number(cost, arguments).unwrap().to_string(), expected);
    }
    assert_eq!(number("1 + 0.5 - 1 + 2 / 4.0", json!({})).unwrap().to_string(), "1.0");
    let error = number("args.price", json!({"price": "5"})).unwrap_err();
    assert_eq!(error, "`args.price` must evaluate to a number, not string");
}

#[test]
fn g5_invalid_expression_is_rejected_at_compilation() {
    for (source, expected) in [
        ("", "is not valid"),
        ("args.", "is not valid"),
        ("args.x ==", "the expression `args.x ==` is not valid"),
        ("argz.x == 1", "there is no `argz`; there are args, user and session"),
        ("user.allowed_region == null", "there is no `user.allowed_region`"),
        ("session.user == 'ann'", "there is no `session.user`"),
        ("now() > 1", "there is no function `now`"),
        ("timestamp('2026-01-01T00:00:00Z') == 1", "there is no function `timestamp`"),
        ("args.text.matches('a')", "there is no function `matches`"),
        ("Message{field: 1} == 1", "message construction"),
        ("args.?x == 1", "is not valid"),
        ("args.a.all(x, args.b.all(y, args.c.all(z, x == z)))", "more than 2 nested or chained"),
        ("args.a.map(x, x).map(x, x).map(x, x) == []", "more than 2 nested or chained"),
        ("args.a.all(x, y)", "there is no `y`"),
        ("'\\uZZZZ' == ''", "is not valid"),
    ] {
        let error = Expression::compile(source).unwrap_err();
        assert!(error.contains(expected), "{source}: {error}");
    }
}

/// Evaluates every expression that compiles on a stack that is smaller than any production stack.
#[test]
fn g5_hostile_expression_is_rejected_or_harmless() {
    let mut sources = vec!["1+".repeat(100) + "1"];
    for (before, middle, after) in [
        ("(", "1", ")"),
        ("[", "1", "]"),
        ("{1:", "1", "}"),
        ("!", "true", ""),
        ("-", "1", ""),
        ("1+", "1", ""),
        ("1==", "1", ""),
        ("true&&", "true", ""),
        ("false||", "true", ""),
        ("true?1:", "1", ""),
        ("1 in [", "1", "]"),
        ("args.", "x", ""),
        ("args[", "1", "]"),
        ("size(", "args", ")"),
        ("[1].map(x,", "1", ")"),
        ("(", "", ""),
        ("[", "", ""),
        ("\"", "", ""),
        ("'''", "", ""),
        ("//", "", ""),
        ("{", "", ""),
        ("a(", "", ""),
        ("has(", "args.x", ")"),
        ("1in ", "1", ""),
        ("`", "", ""),
        ("0x", "", ""),
        ("r'", "", ""),
    ] {
        for times in [1, 3, 20, 23, 25, 250, 1_000, 10_000] {
            sources.push(before.repeat(times) + middle + &after.repeat(times));
        }
    }
    let evaluate_all = move || {
        let context = context(&json!({"x": 1}));
        let compiled: Vec<_> =
            sources.iter().filter_map(|source| Expression::compile(source).ok()).collect();
        compiled.iter().for_each(|expression| drop(expression.evaluate(&context)));
        (sources.len(), compiled.len())
    };
    let thread = std::thread::Builder::new().stack_size(1024 * 1024).spawn(evaluate_all).unwrap();
    let (total, compiled) = thread.join().unwrap();
    assert!(compiled > 20 && compiled < total / 2, "{compiled} of {total}");
    let parentheses = "(".repeat(10_000) + "true" + &")".repeat(10_000);
    assert!(Expression::compile(&parentheses).unwrap_err().contains("longer than 4096 bytes"));
}

#[test]
fn g5_work_of_expression_is_bounded() {
    let list = |length: usize| json!({"a": vec![1; length], "b": vec![2; length]});
    for (source, small, large) in [
        ("args.a.all(x, !(x in args.b))", 1_000, 100_000),
        ("args.a.all(x, args.b.all(y, x != y))", 30, 1_000),
        ("args.a.map(x, args.a).map(x, x + x).size() > 0", 30, 1_000),
        ("args.a.map(x, args.a + args.b).size() > 0", 100, 20_000),
    ] {
        assert_eq!(evaluate_bool(source, &list(small)), Ok(true), "{source}");
        let error = evaluate_bool(source, &list(large)).unwrap_err();
        assert!(error.contains("too long"), "{source}: {error}");
    }
    let doubled = "args.t + ".repeat(20) + "args.t != ''";
    let error = evaluate_bool(&doubled, &json!({"t": "x".repeat(64 * 1024 * 1024)})).unwrap_err();
    assert!(error.contains("too long"), "{error}");
    // An expression without loops accepts the largest arguments that a model can send.
    let largest = json!({"region_id": 10000002, "t": vec!["x".repeat(100); 2_000]});
    assert_eq!(evaluate_bool(REGIONS, &largest), Ok(true));
}

#[test]
fn g5_deeply_nested_arguments_are_rejected() {
    let nested = (0..127).fold(json!(1), |inner, _| json!([inner]));
    try_context(&nested, &user()).unwrap();
    let error = try_context(&json!([nested]), &user()).unwrap_err();
    assert_eq!(error, "the arguments are nested deeper than 128 levels");
}

#[test]
fn m2_number_that_an_expression_cannot_represent_is_rejected_with_its_path() {
    for (number, is_exact) in [
        ("123456789012345678901234567890", false),
        ("0.1000000000000000055511151231257827", false),
        ("18446744073709551615", false),
        ("1e400", false),
        ("1E5", true),
        ("-0", true),
        ("0.1", true),
    ] {
        let arguments = format!(r#"{{"a": [1, {{"wei": {number}}}]}}"#);
        let result = try_context(&serde_json::from_str(&arguments).unwrap(), &user());
        let problem = "`/a/1/wei`: an expression of the policy can't represent the number exactly";
        let expected = if is_exact { Ok(()) } else { Err(problem.to_owned()) };
        assert_eq!(result.map(drop), expected, "{number}");
    }
}

#[test]
fn g5_panic_of_evaluator_is_error() {
    let error = catch_panic::<()>(|| panic!("inside")).unwrap_err();
    assert_eq!(error, "internal error of the expression evaluator");
}

fn any_json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<u64>().prop_map(Json::from),
        any::<f64>().prop_map(Json::from),
        ".{0,12}".prop_map(Json::from),
    ];
    leaf.prop_recursive(4, 48, 6, |inner| {
        let name = prop_oneof![Just("region_id".to_owned()), Just("list".to_owned()), ".{0,4}"];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Json::from),
            prop::collection::btree_map(name, inner, 0..6)
                .prop_map(|members| Json::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    /// No arguments cause a panic, and a region is allowed only if it is one of the user's.
    #[test]
    fn g5_arbitrary_arguments_never_panic(arguments in any_json()) {
        // Some numbers can't be represented; such calls are denied.
        let Ok(context) = try_context(&arguments, &user()) else { return Ok(()) };
        for source in [
            "args.list.all(x, x.a + 1 > args.region_id * 2.5)",
            "args.list[0] - args.list[1] < args['region_id'] / 3",
            "size(args.list) % 2 == 0 || args.list.exists(x, string(x) == 'a')",
            "-args.region_id > double(args.region_id) && int(args.region_id) != 0",
            "args == args.list && args.list.map(x, [x, args]) == [args]",
        ] {
            drop(Expression::compile(source).unwrap().evaluate_bool(&context));
        }
        if Expression::compile(REGIONS).unwrap().evaluate_bool(&context) == Ok(true) {
            let region = arguments["region_id"].as_f64();
            prop_assert!(region == Some(10000002.0) || region == Some(10000043.0));
        }
    }

    /// No source causes a panic or a stack overflow.
    #[test]
    fn g5_arbitrary_sources_never_panic(
        parts in prop::collection::vec(prop_oneof![
            Just("args".to_owned()), Just(".x".to_owned()), Just("[".to_owned()),
            Just("]".to_owned()), Just("(".to_owned()), Just(")".to_owned()), Just("1".to_owned()),
            Just("2.5".to_owned()), Just(" in ".to_owned()), Just("+".to_owned()),
            Just("'".to_owned()), Just(" ? ".to_owned()), Just(":".to_owned()),
            Just(".all(x, ".to_owned()), Just("||".to_owned()), Just("{".to_owned()),
            Just("}".to_owned()), Just("\\".to_owned()), Just(",".to_owned()), ".{0,3}",
        ], 0..40)
    ) {
        if let Ok(expression) = Expression::compile(&parts.concat()) {
            drop(expression.evaluate_bool(&context(&json!({"x": [1, 2]}))));
        }
    }
}
