//! Budgets (G6): merges the budgets of all agents with those of one agent into the list that sessions
//! use.

use greenroom_core::{
    amount::{Amount, AmountError},
    budget::{Budget, BudgetMeasure, BudgetScope},
    limits::BUDGETS_MAX,
    policy::{BudgetPeriod, budget_limit::validate_unit},
};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, Unexpected},
};
use std::collections::BTreeMap;

/// `[budgets]` and `[agents.NAME.budgets]`: for each scope, the limit by measure. A measure is
/// `tokens`, `usd` or a unit of tool costs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawBudgets {
    run: BTreeMap<String, LimitInput>,
    session: BTreeMap<String, LimitInput>,
    user_day: BTreeMap<String, LimitInput>,
    user_month: BTreeMap<String, LimitInput>,
    user_total: BTreeMap<String, LimitInput>,
}

/// A configured limit, or its problem; the error then names the key.
#[derive(Clone, Debug)]
struct LimitInput(Result<Amount, AmountError>);

impl<'de> Deserialize<'de> for LimitInput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // TOML has numbers that are not finite.
        let limit = toml::Value::deserialize(deserializer)?;
        match limit {
            toml::Value::Integer(limit) => Ok(Self(Amount::from_number(&limit.into()))),
            toml::Value::Float(limit) => Ok(Self(Amount::from_f64(limit))),
            other @ (toml::Value::String(_)
            | toml::Value::Boolean(_)
            | toml::Value::Datetime(_)
            | toml::Value::Array(_)
            | toml::Value::Table(_)) => {
                Err(D::Error::invalid_type(Unexpected::Other(other.type_str()), &"a number"))
            }
        }
    }
}

impl RawBudgets {
    fn scopes(
        &self,
    ) -> [(&'static str, BudgetScope, BudgetPeriod, &BTreeMap<String, LimitInput>); 5] {
        [
            ("run", BudgetScope::Run, BudgetPeriod::Total, &self.run),
            ("session", BudgetScope::Session, BudgetPeriod::Total, &self.session),
            ("user_day", BudgetScope::User, BudgetPeriod::Day, &self.user_day),
            ("user_month", BudgetScope::User, BudgetPeriod::Month, &self.user_month),
            ("user_total", BudgetScope::User, BudgetPeriod::Total, &self.user_total),
        ]
    }

    fn to_budgets(&self) -> Result<Vec<Budget>, String> {
        let mut budgets = Vec::new();
        for (name, scope, period, limits) in self.scopes() {
            for (measure, limit) in limits {
                let invalid = |problem: &str| Err(format!("budgets.{name}.{measure} {problem}"));
                let limit = match &limit.0 {
                    Ok(limit) if limit.is_positive() => *limit,
                    Ok(_) => return invalid("must be greater than 0"),
                    Err(problem) => return invalid(&problem.to_string()),
                };
                let measure = BudgetMeasure::from_name(measure);
                if let BudgetMeasure::Unit(unit) = &measure
                    && let Err(problem) = validate_unit(unit)
                {
                    return invalid(&problem);
                }
                budgets.push(Budget { scope, period, measure, limit });
            }
        }
        Ok(budgets)
    }
}

/// Returns the budgets of one agent: `agent_budgets` replace those of `defaults` with the same scope,
/// period and measure.
pub(super) fn merge_budgets(
    defaults: &RawBudgets,
    agent_budgets: &RawBudgets,
) -> Result<Vec<Budget>, String> {
    let agent_budgets = agent_budgets.to_budgets()?;
    let mut budgets = defaults.to_budgets()?;
    budgets.retain(|budget| !agent_budgets.iter().any(|other| other.is_same_budget(budget)));
    budgets.extend(agent_budgets);
    if budgets.len() > BUDGETS_MAX {
        return Err(format!(
            "{} budgets are configured; the limit is {BUDGETS_MAX}",
            budgets.len()
        ));
    }
    Ok(budgets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_budgets(text: &str) -> RawBudgets {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn g6_agent_budgets_override_global_budgets() {
        let defaults = parse_budgets("run = { tokens = 1000, usd = 0.5 }\nuser_day = { ISK = 5 }");
        let agent_budgets = parse_budgets("run = { tokens = 10 }\nsession = { usd = 2 }");
        let budgets = merge_budgets(&defaults, &agent_budgets).unwrap();
        let budget = |scope, period, measure: &str, limit: &str| Budget {
            scope,
            period,
            measure: BudgetMeasure::from_name(measure),
            limit: Amount::parse(limit).unwrap(),
        };
        let expected = [
            budget(BudgetScope::Run, BudgetPeriod::Total, "usd", "0.5"),
            budget(BudgetScope::User, BudgetPeriod::Day, "ISK", "5"),
            budget(BudgetScope::Run, BudgetPeriod::Total, "tokens", "10"),
            budget(BudgetScope::Session, BudgetPeriod::Total, "usd", "2"),
        ];
        assert_eq!(budgets, expected);
    }

    #[test]
    fn g6_invalid_budgets_are_rejected() {
        for (text, expected) in [
            ("run = { tokens = 0 }", "budgets.run.tokens must be greater than 0"),
            ("user_day = { usd = nan }", "budgets.user_day.usd must be a number"),
            ("user_day = { usd = -0.5 }", "budgets.user_day.usd must be 0 or more, not -0.5"),
            (
                "user_day = { usd = 1e300 }",
                "budgets.user_day.usd must be at most 1,000,000,000,000,000,000,000,000",
            ),
            ("session = { \"\" = 1 }", "must have 1 to"),
        ] {
            let error = merge_budgets(&parse_budgets(text), &RawBudgets::default()).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
