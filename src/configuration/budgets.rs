//! Budgets (G6): from what is written for all agents and of one, to the list that sessions decide
//! by.

use greenroom_core::{
    budget::{Budget, Measure, Scope},
    limits::BUDGETS_MAX,
    policy::{Period, budget::check_unit},
};
use serde::Deserialize;
use std::collections::BTreeMap;

/// `[budgets]` and `[agents.NAME.budgets]`: for each scope, the limit of each measure: `tokens`,
/// `usd`, or a unit of tool costs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WrittenBudgets {
    run: BTreeMap<String, f64>,
    session: BTreeMap<String, f64>,
    user_day: BTreeMap<String, f64>,
    user_month: BTreeMap<String, f64>,
    user_total: BTreeMap<String, f64>,
}

impl WrittenBudgets {
    fn scopes(&self) -> [(&'static str, Scope, Period, &BTreeMap<String, f64>); 5] {
        [
            ("run", Scope::Run, Period::Total, &self.run),
            ("session", Scope::Session, Period::Total, &self.session),
            ("user_day", Scope::User, Period::Day, &self.user_day),
            ("user_month", Scope::User, Period::Month, &self.user_month),
            ("user_total", Scope::User, Period::Total, &self.user_total),
        ]
    }

    fn budgets(&self) -> Result<Vec<Budget>, String> {
        let mut budgets = Vec::new();
        for (name, scope, period, limits) in self.scopes() {
            for (measure, limit) in limits {
                let wrong = |problem: &str| Err(format!("budgets.{name}.{measure} {problem}"));
                if !(limit.is_finite() && *limit > 0.0) {
                    return wrong("must be greater than 0");
                }
                let measure = Measure::named(measure);
                if let Measure::Unit(unit) = &measure
                    && let Err(problem) = check_unit(unit)
                {
                    return wrong(&problem);
                }
                budgets.push(Budget { scope, period, measure, limit: *limit });
            }
        }
        Ok(budgets)
    }
}

/// The budgets of one agent: those for all, with its own laid over them.
pub(super) fn budgets(
    for_all: &WrittenBudgets,
    own: &WrittenBudgets,
) -> Result<Vec<Budget>, String> {
    let own = own.budgets()?;
    let mut budgets = for_all.budgets()?;
    budgets.retain(|budget| !own.iter().any(|other| other.is_of(budget)));
    budgets.extend(own);
    if budgets.len() > BUDGETS_MAX {
        return Err(format!("there may be at most {BUDGETS_MAX} budgets"));
    }
    Ok(budgets)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> WrittenBudgets {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn g6_an_agents_budgets_are_laid_over_those_for_all() {
        let for_all = written("run = { tokens = 1000, usd = 0.5 }\nuser_day = { ISK = 5 }");
        let own = written("run = { tokens = 10 }\nsession = { usd = 2 }");
        let found = budgets(&for_all, &own).unwrap();
        let budget = |scope, period, measure: &str, limit| Budget {
            scope,
            period,
            measure: Measure::named(measure),
            limit,
        };
        let expected = [
            budget(Scope::Run, Period::Total, "usd", 0.5),
            budget(Scope::User, Period::Day, "ISK", 5.0),
            budget(Scope::Run, Period::Total, "tokens", 10.0),
            budget(Scope::Session, Period::Total, "usd", 2.0),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn g6_budgets_that_make_no_sense_are_refused() {
        for (text, expected) in [
            ("run = { tokens = 0 }", "budgets.run.tokens must be greater than 0"),
            ("user_day = { usd = nan }", "budgets.user_day.usd must be greater than 0"),
            ("session = { \"\" = 1 }", "must have 1 to"),
        ] {
            let error = budgets(&written(text), &WrittenBudgets::default()).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
