//! Budgets: the spending limits of runs, sessions and users, and the recorded spending (G6).
//!
//! Pure bookkeeping. A session knows its own spending; [`UserSpending`] supplies the spending of
//! the user's other sessions. The store checks the user's limits again at commit, so that only one
//! of two sessions that race for the rest of a budget succeeds.

use crate::{
    amount::{Amount, format_amount},
    ids::UserId,
    policy::{BudgetLimit, BudgetPeriod},
    time::{Day, Timestamp},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{collections::BTreeMap, fmt, sync::Arc};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, Type},
};

/// The quantity that a budget counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BudgetMeasure {
    /// Tokens of model calls, input and output.
    Tokens,
    /// Money for model calls, in US dollars.
    Usd,
    /// The cost of tools, in this unit.
    Unit(Arc<str>),
}

impl BudgetMeasure {
    /// Returns the measure of tool costs in `unit`.
    pub fn from_unit(unit: &str) -> Self {
        Self::Unit(unit.into())
    }

    /// Returns the wire name.
    pub fn name(&self) -> &str {
        match self {
            Self::Tokens => "tokens",
            Self::Usd => "usd",
            Self::Unit(unit) => unit,
        }
    }

    /// Returns the measure of that name. A name other than `tokens` and `usd` is a unit of tool
    /// costs.
    pub fn from_name(name: &str) -> Self {
        match name {
            "tokens" => Self::Tokens,
            "usd" => Self::Usd,
            unit => Self::from_unit(unit),
        }
    }
}

impl PartialSchema for BudgetMeasure {
    fn schema() -> RefOr<Schema> {
        let description = "`tokens`, `usd`, or a unit of tool costs";
        ObjectBuilder::new().schema_type(Type::String).description(Some(description)).into()
    }
}

impl ToSchema for BudgetMeasure {}

impl fmt::Display for BudgetMeasure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usd => f.write_str("USD"),
            Self::Tokens | Self::Unit(_) => f.write_str(self.name()),
        }
    }
}

impl Serialize for BudgetMeasure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for BudgetMeasure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|name| Self::from_name(&name))
    }
}

/// The scope of a budget: the spending that it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BudgetScope {
    /// The spending of one run.
    Run,
    /// The spending of one session.
    Session,
    /// The spending of all sessions of one user.
    User,
    /// The spending of a child, limited to its share of the budgets of its ancestors (S8).
    Parent,
}

/// A limit on spending.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Budget {
    /// The scope.
    pub scope: BudgetScope,
    /// The period. Not used for a run, whose spending is always counted in total.
    #[serde(default)]
    pub period: BudgetPeriod,
    /// The measure.
    pub measure: BudgetMeasure,
    /// The limit; 0 or more.
    pub limit: Amount,
}

impl Budget {
    /// Creates the budget for a settings limit on tool costs, with the given scope.
    pub fn from_settings(limit: &BudgetLimit, scope: BudgetScope) -> Self {
        let measure = BudgetMeasure::from_unit(&limit.unit);
        Self { scope, period: limit.period, measure, limit: limit.amount }
    }

    /// Returns true if `other` limits the same spending, with the same or another limit.
    pub fn is_same_budget(&self, other: &Self) -> bool {
        self.scope == other.scope && self.period == other.period && self.measure == other.measure
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scope = match self.scope {
            BudgetScope::Run => "of this run",
            BudgetScope::Session => "of this session",
            BudgetScope::User => "of this user",
            BudgetScope::Parent => "allotted by its parent session",
        };
        let period = match self.period {
            BudgetPeriod::Day => " for today",
            BudgetPeriod::Month => " for this month",
            BudgetPeriod::Total => "",
        };
        let limit = format_amount(self.limit, &self.measure);
        write!(f, "budget of {limit} {scope}{period}")
    }
}

/// An item of spending.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Expense {
    /// The name of a tool, or another description of the item.
    #[serde(rename = "what")]
    pub item: String,
    /// The amount.
    pub amount: Amount,
}

/// A raised limit of a budget.
#[derive(Clone, Debug, PartialEq)]
pub struct BudgetRaise {
    /// The budget, with the raised limit.
    pub budget: Budget,
    /// The time of the raise. The raise applies to the period that contains this time.
    pub at: Timestamp,
}

impl BudgetRaise {
    /// Returns true if the raise applies to `budget` at `now`.
    pub fn applies_to(&self, budget: &Budget, now: Timestamp) -> bool {
        let first_day = budget.period.first_day(now.day());
        self.budget.is_same_budget(budget) && first_day.is_none_or(|first| self.at.day() >= first)
    }
}

/// The tool costs of one session, by unit, day and tool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolCosts(Arc<BTreeMap<ToolCostKey, Amount>>);

/// A unit, a day and a tool.
type ToolCostKey = (Arc<str>, Day, Arc<str>);

impl ToolCosts {
    /// Adds an amount. A negative amount releases an earlier one.
    pub fn add(&mut self, unit: &str, day: Day, tool: &str, amount: Amount) {
        let costs = Arc::make_mut(&mut self.0);
        *costs.entry((unit.into(), day, tool.into())).or_default() += amount;
    }

    /// Returns the amount spent in `unit` in the period that contains `today`.
    pub fn spent(&self, unit: &str, period: BudgetPeriod, today: Day) -> Amount {
        let first_day = period.first_day(today);
        let amounts = self.0.iter().filter(|((other, day, _), _)| {
            &**other == unit && first_day.is_none_or(|first| *day >= first)
        });
        amounts.map(|(_, amount)| *amount).sum()
    }

    /// Returns the expenses in `unit` in the period that contains `today`, largest first.
    pub fn expenses(&self, unit: &str, period: BudgetPeriod, today: Day) -> Vec<Expense> {
        let first_day = period.first_day(today);
        let mut by_tool: BTreeMap<&str, Amount> = BTreeMap::new();
        for ((other, day, tool), amount) in self.0.iter() {
            if &**other == unit && first_day.is_none_or(|first| *day >= first) {
                *by_tool.entry(tool).or_default() += *amount;
            }
        }
        let mut expenses: Vec<_> = by_tool
            .into_iter()
            .filter(|(_, amount)| amount.is_positive())
            .map(|(tool, amount)| Expense { item: tool.to_owned(), amount })
            .collect();
        expenses.sort_by_key(|expense| std::cmp::Reverse(expense.amount));
        expenses
    }

    /// Returns the changes since `before`, by unit and day.
    pub fn changes_since(&self, before: &Self) -> Vec<SpendingEntry> {
        if Arc::ptr_eq(&self.0, &before.0) {
            return Vec::new();
        }
        let mut changes: BTreeMap<(Arc<str>, Day), Amount> = BTreeMap::new();
        for (key @ (unit, day, _), amount) in self.0.iter() {
            let change = *amount - before.0.get(key).copied().unwrap_or_default();
            *changes.entry((unit.clone(), *day)).or_default() += change;
        }
        let changed = changes.into_iter().filter(|(_, amount)| !amount.is_zero());
        let to_entry = |((unit, day), amount)| SpendingEntry {
            measure: BudgetMeasure::Unit(unit),
            day,
            amount,
        };
        changed.map(to_entry).collect()
    }
}

/// An amount spent on one day: what a commit adds to the user's spending, negative if a reservation
/// is released, or the spending of a session that was forked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpendingEntry {
    /// The measure.
    pub measure: BudgetMeasure,
    /// The day to which the amount is charged.
    pub day: Day,
    /// The amount.
    pub amount: Amount,
}

/// A condition on the user's spending, checked at commit: including the commit, at most `limit` is
/// spent in the period. If another session has committed first, the commit fails and the decision
/// is repeated.
#[derive(Clone, Debug, PartialEq)]
pub struct SpendingPrecondition {
    /// The measure.
    pub measure: BudgetMeasure,
    /// The period.
    pub period: BudgetPeriod,
    /// The day of the decision.
    pub day: Day,
    /// The limit.
    pub limit: Amount,
}

impl SpendingPrecondition {
    /// Returns true if the condition holds when `spent`, including this commit, is spent in the
    /// period.
    pub fn is_met(&self, spent: Amount) -> bool {
        spent <= self.limit
    }

    /// Returns the first day of the period; `None` for the total.
    pub fn first_day(&self) -> Option<Day> {
        self.period.first_day(self.day)
    }
}

/// The changes of a commit to the user's spending, and their preconditions. If a precondition
/// fails, nothing is committed.
#[derive(Clone, Debug, PartialEq)]
pub struct SpendingUpdate {
    /// The user who is charged.
    pub user: UserId,
    /// The amounts to add.
    pub entries: Vec<SpendingEntry>,
    /// The conditions that must hold after the entries are added.
    pub preconditions: Vec<SpendingPrecondition>,
}

/// The spending of a user in one measure.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SpendingTotals {
    /// The spending of today.
    pub day: Amount,
    /// The spending of this month.
    pub month: Amount,
    /// The total spending.
    pub total: Amount,
}

impl SpendingTotals {
    /// Adds an amount that was spent on `day`.
    pub fn add(&mut self, day: Day, amount: Amount, today: Day) {
        self.total += amount;
        if day >= today.first_of_month() {
            self.month += amount;
        }
        if day >= today {
            self.day += amount;
        }
    }

    /// Returns the spending in a period.
    pub fn in_period(&self, period: BudgetPeriod) -> Amount {
        match period {
            BudgetPeriod::Day => self.day,
            BudgetPeriod::Month => self.month,
            BudgetPeriod::Total => self.total,
        }
    }
}

/// The spending limit of a user and the user's spending.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UserSpending {
    /// The budget limit of the user's settings.
    pub limit: Option<BudgetLimit>,
    /// The spending of all sessions of the user, by measure.
    pub totals: BTreeMap<BudgetMeasure, SpendingTotals>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timestamp(text: &str) -> Timestamp {
        serde_json::from_str(&format!("\"{text}\"")).unwrap()
    }

    #[test]
    fn g6_tool_costs_are_counted_per_period() {
        let mut costs = ToolCosts::default();
        let [old, first, today] =
            ["2026-10-31T23:59:59.999Z", "2026-11-01T00:00:00Z", "2026-11-22T12:00:00Z"]
                .map(|text| timestamp(text).day());
        costs.add("ISK", old, "buy", 1.into());
        costs.add("ISK", first, "buy", 10.into());
        costs.add("ISK", today, "sell", 100.into());
        costs.add("USD", today, "sell", 1000.into());
        assert_eq!(costs.spent("ISK", BudgetPeriod::Day, today), 100.into());
        assert_eq!(costs.spent("ISK", BudgetPeriod::Month, today), 110.into());
        assert_eq!(costs.spent("ISK", BudgetPeriod::Total, today), 111.into());
        let expected = [("sell", 100.into()), ("buy", 11.into())];
        let actual = costs.expenses("ISK", BudgetPeriod::Total, today);
        let actual: Vec<_> =
            actual.iter().map(|expense| (expense.item.as_str(), expense.amount)).collect();
        assert_eq!(actual, expected);
    }

    #[test]
    fn g6_changed_costs_are_grouped_by_unit_and_day() {
        let day = timestamp("2026-11-22T12:00:00Z").day();
        let mut before = ToolCosts::default();
        before.add("ISK", day, "buy", 5.into());
        let mut after = before.clone();
        assert_eq!(after.changes_since(&before), []);
        after.add("ISK", day, "buy", 2.into());
        after.add("ISK", day, "sell", -Amount::from_whole(1));
        let expected =
            SpendingEntry { measure: BudgetMeasure::from_unit("ISK"), day, amount: 1.into() };
        assert_eq!(after.changes_since(&before), [expected]);
    }

    #[test]
    fn g6_raise_applies_only_to_its_period() {
        let limit = |period| Budget {
            scope: BudgetScope::User,
            period,
            measure: BudgetMeasure::from_unit("ISK"),
            limit: 5.into(),
        };
        let raised =
            |period| BudgetRaise { budget: limit(period), at: timestamp("2026-11-22T12:00:00Z") };
        for (period, now, applies) in [
            (BudgetPeriod::Day, "2026-11-22T23:59:59Z", true),
            (BudgetPeriod::Day, "2026-11-23T00:00:00Z", false),
            (BudgetPeriod::Month, "2026-11-30T00:00:00Z", true),
            (BudgetPeriod::Month, "2026-12-01T00:00:00Z", false),
            (BudgetPeriod::Total, "2030-01-01T00:00:00Z", true),
        ] {
            assert_eq!(
                raised(period).applies_to(&limit(period), timestamp(now)),
                applies,
                "{period:?}"
            );
        }
        assert!(
            !raised(BudgetPeriod::Day)
                .applies_to(&limit(BudgetPeriod::Total), timestamp("2026-11-22T12:00:00Z"))
        );
    }
}
