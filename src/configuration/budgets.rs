//! Budgets (G6): merges the budgets of all agents with those of one agent into the list that sessions
//! use.

use greenroom_core::{
    budget::{Budget, BudgetMeasure, BudgetScope},
    limits::BUDGETS_MAX,
    policy::{BudgetPeriod, budget_limit::validate_unit},
};
use serde::Deserialize;
use std::collections::BTreeMap;

/// `[budgets]` and `[agents.NAME.budgets]`: for each scope, the limit by measure. A measure is
/// `tokens`, `usd` or a unit of tool costs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawBudgets {
    run: BTreeMap<String, f64>,
    session: BTreeMap<String, f64>,
    user_day: BTreeMap<String, f64>,
    user_month: BTreeMap<String, f64>,
    user_total: BTreeMap<String, f64>,
}

impl RawBudgets {
    fn scopes(&self) -> [(&'static str, BudgetScope, BudgetPeriod, &BTreeMap<String, f64>); 5] {
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
                if !(limit.is_finite() && *limit > 0.0) {
                    return invalid(&format!("must be greater than 0, not {limit}"));
                }
                let measure = BudgetMeasure::from_name(measure);
                if let BudgetMeasure::Unit(unit) = &measure
                    && let Err(problem) = validate_unit(unit)
                {
                    return invalid(&problem);
                }
                budgets.push(Budget { scope, period, measure, limit: *limit });
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
        let budget = |scope, period, measure: &str, limit| Budget {
            scope,
            period,
            measure: BudgetMeasure::from_name(measure),
            limit,
        };
        let expected = [
            budget(BudgetScope::Run, BudgetPeriod::Total, "usd", 0.5),
            budget(BudgetScope::User, BudgetPeriod::Day, "ISK", 5.0),
            budget(BudgetScope::Run, BudgetPeriod::Total, "tokens", 10.0),
            budget(BudgetScope::Session, BudgetPeriod::Total, "usd", 2.0),
        ];
        assert_eq!(budgets, expected);
    }

    #[test]
    fn g6_invalid_budgets_are_rejected() {
        for (text, expected) in [
            ("run = { tokens = 0 }", "budgets.run.tokens must be greater than 0"),
            ("user_day = { usd = nan }", "budgets.user_day.usd must be greater than 0"),
            ("session = { \"\" = 1 }", "must have 1 to"),
        ] {
            let error = merge_budgets(&parse_budgets(text), &RawBudgets::default()).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
