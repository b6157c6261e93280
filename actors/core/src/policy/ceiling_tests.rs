//! Tests of ceilings and of their combination.

use super::*;
use crate::amount::Amount;
use crate::policy::{CeilingBudget, OwnedLimit, Settings, SettingsPatch};
use proptest::prelude::*;
use serde_json::{Value, json};

fn ceilings(json: Value) -> Ceilings {
    serde_json::from_value(json).unwrap()
}

fn ceiling(json: Value) -> Ceiling {
    serde_json::from_value(json).unwrap()
}

fn agent(name: &str) -> AgentName {
    AgentName::parse(name).unwrap()
}

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

fn isk(amount: f64, period: BudgetPeriod) -> BudgetLimit {
    serde_json::from_value(json!({"amount": amount, "unit": "ISK", "period": period})).unwrap()
}

/// Ceilings on every level.
fn example() -> Ceilings {
    ceilings(json!({
        "autonomy_level": 2,
        "allowed_regions": [1, 2, 3],
        "budget_limits": [{"amount": 900, "unit": "ISK", "period": "day"}],
        "blocked_tools": ["wipe_*"],
        "roles": {"user": {
            "autonomy_level": 1, "require_confirmation": true, "allowed_regions": [2, 3, 4],
        }},
        "agents": {"trader": {"blocked_tools": ["buy"]}},
        "users": {"ann": {
            "autonomy_level": 1,
            "budget_limits": [{"amount": 100, "unit": "ISK", "period": "day"}],
        }},
    }))
}

#[test]
fn g17_combination_has_narrowest_value_of_each_field_with_its_owner() {
    let trader = agent("trader");
    let combined = example().combine([Role::User], [&trader], Some(&user("ann")));
    let role = CeilingScope::Role(Role::User);
    let installation = CeilingScope::Installation;
    let budget = |amount, scope| CeilingBudget {
        limit: isk(amount, BudgetPeriod::Day),
        scope,
        remaining: Amount::from_f64(amount).unwrap(),
    };
    let regions = |regions: [i64; 3], scope| OwnedLimit { value: BTreeSet::from(regions), scope };
    let expected = EffectiveCeiling {
        autonomy_level: Some(OwnedLimit { value: Autonomy::Recommendations, scope: role.clone() }),
        require_confirmation: Some(role.clone()),
        allowed_regions: vec![regions([1, 2, 3], installation.clone()), regions([2, 3, 4], role)],
        budgets: vec![
            budget(900.0, installation.clone()),
            budget(100.0, CeilingScope::User(user("ann"))),
        ],
        blocked_tools: BTreeMap::from([
            ("buy".parse().unwrap(), CeilingScope::Agent(trader.clone())),
            ("wipe_*".parse().unwrap(), installation.clone()),
        ]),
    };
    assert_eq!(combined, expected);
    assert_eq!(combined.allowed_regions(), Some(BTreeSet::from([2, 3])));

    let others = example().combine([Role::Admin], [&agent("default")], Some(&user("bob")));
    let only_installation = EffectiveCeiling {
        autonomy_level: Some(OwnedLimit { value: Autonomy::Assisted, scope: installation.clone() }),
        require_confirmation: None,
        allowed_regions: vec![regions([1, 2, 3], installation.clone())],
        budgets: vec![budget(900.0, installation.clone())],
        blocked_tools: BTreeMap::from([("wipe_*".parse().unwrap(), installation)]),
    };
    assert_eq!(others, only_installation);
}

#[test]
fn g17_request_beyond_ceiling_names_field_values_and_owner() {
    let trader = agent("trader");
    let combined = example().combine([Role::User], [&trader], Some(&user("ann")));
    let budget = |amount: u32, period: &str| json!({"budget_limit": {"amount": amount, "unit": "ISK", "period": period}});
    for (patch, expected) in [
        (
            json!({"autonomy_level": 3}),
            Some("autonomy_level: 3 exceeds 1, the ceiling of role `user`"),
        ),
        (json!({"autonomy_level": 1}), None),
        (
            json!({"require_confirmation": false}),
            Some("require_confirmation: it may not be switched off, the ceiling of role `user`"),
        ),
        (json!({"require_confirmation": true}), None),
        (
            json!({"allowed_regions": null}),
            Some("allowed_regions: null would allow all regions, the ceiling of the installation"),
        ),
        (
            json!({"allowed_regions": [1, 2]}),
            Some("allowed_regions: 1 is not among the regions, the ceiling of role `user`"),
        ),
        (json!({"allowed_regions": [2]}), None),
        (
            budget(101, "day"),
            Some("budget_limit: 101 ISK a day exceeds 100 ISK a day, the ceiling of user `ann`"),
        ),
        (budget(100, "day"), None),
        // A limit for a longer period and the ceiling's apply beside each other.
        (budget(2000, "month"), None),
        (json!({"budget_limit": {"amount": 1e15, "unit": "USD"}}), None),
        (json!({"budget_limit": null, "blocked_tools": []}), None),
    ] {
        let requested: SettingsPatch = serde_json::from_value(patch.clone()).unwrap();
        let error = combined.validate_patch(&requested).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), expected, "{patch}");
    }
}

#[test]
fn g17_settings_wider_than_ceiling_are_narrowed() {
    let settings: Settings = serde_json::from_value(json!({
        "autonomy_level": 3, "require_confirmation": false, "blocked_tools": ["sell"],
        "budget_limit": {"amount": 1e15, "unit": "ISK", "period": "day"}, "preflight": true,
    }))
    .unwrap();
    let trader = agent("trader");
    let combined = example().combine([Role::User], [&trader], Some(&user("ann")));
    let expected: Settings = serde_json::from_value(json!({
        "autonomy_level": 1, "require_confirmation": true,
        "blocked_tools": ["sell", "buy", "wipe_*"], "allowed_regions": [2, 3],
        "budget_limit": {"amount": 100, "unit": "ISK", "period": "day"}, "preflight": true,
    }))
    .unwrap();
    assert_eq!(*combined.narrow(&settings), expected);
    assert_eq!(*combined.narrow(&expected), expected);
    assert_eq!(*EffectiveCeiling::UNLIMITED.narrow(&settings), settings);
}

#[test]
fn g17_inner_ceiling_wider_than_outer_is_rejected_and_has_no_effect() {
    let outer = example();
    for (inner, field, owner) in [
        (json!({"autonomy_level": 3}), "autonomy_level", "installation"),
        (json!({"roles": {"admin": {"autonomy_level": 3}}}), "roles.admin.autonomy_level", "inst"),
        (json!({"roles": {"user": {"autonomy_level": 2}}}), "roles.user.autonomy_level", "`user`"),
        (
            json!({"agents": {"default": {"allowed_regions": [9]}}}),
            "agents.default.allowed_regions",
            "installation",
        ),
        (
            json!({"users": {"ann": {"budget_limits": [
                {"amount": 200, "unit": "ISK", "period": "day"},
            ]}}}),
            "users.ann.budget_limits",
            "user `ann`",
        ),
    ] {
        let inner = ceilings(inner);
        let error = inner.validate_within(&outer).unwrap_err();
        assert_eq!(error.field, field);
        assert!(error.to_string().contains(owner), "{error}");
        let narrowed = outer.narrowed_to(&inner);
        assert_eq!(outer.narrowed_to(&narrowed), narrowed, "{error}");
    }
    let narrower = ceilings(json!({
        "autonomy_level": 1, "roles": {"user": {"autonomy_level": 0}},
        "users": {"bob": {"budget_limits": [{"amount": 1, "unit": "ISK", "period": "day"}]}},
    }));
    assert_eq!(narrower.validate_within(&outer), Ok(()));
}

#[test]
fn g17_malformed_ceilings_are_rejected_with_field() {
    let many: Vec<_> = (0..=1000).collect();
    for (json, expected) in [
        (json!({"autonomy_level": 4}), "an autonomy level: 0, 1, 2 or 3"),
        (json!({"autonomy": 1}), "unknown field `autonomy`"),
        (json!({"roles": {"root": {}}}), "unknown variant `root`"),
        (json!({"roles": {"user": {"autonomy": 1}}}), "unknown field `autonomy`"),
        (json!({"users": {"": {}}}), "1 to 128 characters"),
        (json!({"blocked_tools": [""]}), "1 to 128 characters"),
        (
            json!({"budget_limits": [{"amount": 0, "unit": "ISK"}]}),
            "budget_limit.amount must be greater than 0",
        ),
    ] {
        let error = serde_json::from_value::<Ceilings>(json).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    for (json, field, expected) in [
        (
            json!({"roles": {"user": {"allowed_regions": many}}}),
            "roles.user.allowed_regions",
            "roles.user.allowed_regions: 1001 entries; the limit is 1000",
        ),
        (
            json!({"budget_limits": [
                {"amount": 1, "unit": "ISK", "period": "day"},
                {"amount": 2, "unit": "ISK", "period": "day"},
            ]}),
            "budget_limits",
            "budget_limits: two limits in ISK with the period `day`; give one",
        ),
    ] {
        let error = ceilings(json).validate().unwrap_err();
        assert_eq!((error.field().as_str(), error.to_string().as_str()), (field, expected));
    }
    let users: serde_json::Map<_, _> =
        (0..=1000).map(|number| (format!("u{number}"), json!({}))).collect();
    let error = ceilings(json!({"users": users})).validate().unwrap_err();
    assert_eq!(error.to_string(), "users: 1001 entries; the limit is 1000");
}

#[test]
fn g17_ceilings_keep_their_form() {
    let json = json!({
        "autonomy_level": 2, "require_confirmation": true, "allowed_regions": [1],
        "budget_limits": [{"amount": 5, "unit": "ISK", "period": "day"}],
        "blocked_tools": ["wipe_*"],
        "roles": {"approver": {"autonomy_level": 1}}, "agents": {"a": {}},
        "users": {"ann": {"blocked_tools": ["buy"]}},
    });
    assert_eq!(serde_json::to_value(ceilings(json.clone())).unwrap(), json);
    assert_eq!(serde_json::to_value(Ceilings::default()).unwrap(), json!({}));
}

fn any_ceiling() -> impl Strategy<Value = Ceiling> {
    let regions = prop::option::of(prop::collection::btree_set(0..5_i64, 0..4));
    let limit = (1..9_u32, prop::sample::select(vec!["ISK", "USD"]), 0..3_usize);
    let tools = prop::sample::subsequence(vec!["buy", "sell", "get_*"], 0..=3);
    (prop::option::of(0..4_u8), any::<Option<bool>>(), regions, prop::option::of(limit), tools)
        .prop_map(|(level, confirm, regions, limit, tools)| {
            let periods = ["day", "month", "total"];
            let limits: Vec<_> = limit
                .map(|(amount, unit, period)| {
                    json!({"amount": amount, "unit": unit, "period": periods[period]})
                })
                .into_iter()
                .collect();
            ceiling(json!({
                "autonomy_level": level, "require_confirmation": confirm,
                "allowed_regions": regions, "budget_limits": limits, "blocked_tools": tools,
            }))
        })
}

fn scopes() -> [CeilingScope; 4] {
    [
        CeilingScope::Installation,
        CeilingScope::Role(Role::User),
        CeilingScope::Agent(agent("trader")),
        CeilingScope::User(user("ann")),
    ]
}

fn any_settings() -> impl Strategy<Value = Settings> {
    any_ceiling().prop_map(|ceiling| Settings {
        autonomy_level: ceiling.autonomy_level.unwrap_or(Autonomy::Supervised),
        require_confirmation: ceiling.require_confirmation == Some(true),
        blocked_tools: ceiling.blocked_tools,
        allowed_regions: ceiling.allowed_regions,
        budget_limit: ceiling.budget_limits.into_iter().next(),
        preflight: false,
    })
}

proptest! {
    #[test]
    fn g17_combination_is_commutative_idempotent_and_only_narrows(
        parts in prop::collection::vec((0..4_usize, any_ceiling()), 0..5),
        settings in any_settings(),
    ) {
        let combine = |parts: &mut dyn Iterator<Item = &(usize, Ceiling)>| {
            let mut combined = EffectiveCeiling::default();
            parts.for_each(|(scope, ceiling)| combined.add(&scopes()[*scope], ceiling));
            combined
        };
        let combined = combine(&mut parts.iter());
        prop_assert_eq!(&combine(&mut parts.iter().rev()), &combined);
        prop_assert_eq!(&combine(&mut parts.iter().chain(&parts)), &combined);
        let narrowed = combined.narrow(&settings);
        prop_assert_eq!(&*combined.narrow(&narrowed), &*narrowed);
        prop_assert_eq!(&narrowed.narrowed_to(&settings), &*narrowed);
        for (scope, ceiling) in &parts {
            let mut alone = EffectiveCeiling::default();
            alone.add(&scopes()[*scope], ceiling);
            prop_assert_eq!(&*alone.narrow(&narrowed), &*narrowed);
        }
    }

    #[test]
    fn g17_narrowed_ceilings_are_commutative_idempotent_and_permit_less(
        left in any_ceiling(),
        right in any_ceiling(),
        settings in any_settings(),
    ) {
        let both = left.narrowed_to(&right);
        prop_assert_eq!(&right.narrowed_to(&left), &both);
        prop_assert_eq!(&both.narrowed_to(&left), &both);
        let of = |parts: &[&Ceiling]| {
            let mut combined = EffectiveCeiling::default();
            parts.iter().for_each(|part| combined.add(&CeilingScope::Installation, part));
            combined
        };
        let in_one = of(&[&both]).narrow(&settings).into_owned();
        prop_assert_eq!(&*of(&[&left, &right]).narrow(&settings), &in_one);
    }
}
