//! Budgets: what runs, sessions and users may spend, and what they have spent (G6).
//!
//! Pure bookkeeping. A session knows what it spent itself; what its user spent elsewhere comes in
//! as an [`Account`], and the store checks the user's limits once more when it commits, so that of
//! two sessions racing for the last of a budget one wins.

use crate::{
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

/// What is counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BudgetMeasure {
    /// Tokens of model calls, input and output.
    Tokens,
    /// Money for model calls, in US dollars.
    Usd,
    /// What tools cost, in this unit.
    Unit(Arc<str>),
}

impl BudgetMeasure {
    /// The measure of tool costs in `unit`.
    pub fn from_unit(unit: &str) -> Self {
        Self::Unit(unit.into())
    }

    /// The word for it.
    pub fn name(&self) -> &str {
        match self {
            Self::Tokens => "tokens",
            Self::Usd => "usd",
            Self::Unit(unit) => unit,
        }
    }

    /// The measure of that name; what is neither tokens nor dollars is a unit.
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
        let words = "`tokens`, `usd`, or the unit of what tools cost";
        ObjectBuilder::new().schema_type(Type::String).description(Some(words)).into()
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

/// Whose spending is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BudgetScope {
    /// One run's.
    Run,
    /// One session's.
    Session,
    /// All sessions' of one user.
    User,
    /// A child's, of what budgets above it had left for it (S8).
    Parent,
}

/// A limit on spending.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Budget {
    /// Whose spending.
    pub scope: BudgetScope,
    /// In which time; a run's is always counted whole.
    #[serde(default)]
    pub period: BudgetPeriod,
    /// What is counted.
    pub measure: BudgetMeasure,
    /// How much of it; 0 or more.
    pub limit: f64,
}

impl Budget {
    /// The limit that settings put on tool costs, for the spending of `scope`.
    pub fn from_settings(limit: &BudgetLimit, scope: BudgetScope) -> Self {
        let measure = BudgetMeasure::from_unit(&limit.unit);
        Self { scope, period: limit.period, measure, limit: limit.amount }
    }

    /// Whether `other` limits the same spending.
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
            BudgetScope::Parent => "that its parent session left it",
        };
        let period = match self.period {
            BudgetPeriod::Day => " for today",
            BudgetPeriod::Month => " for this month",
            BudgetPeriod::Total => "",
        };
        write!(f, "budget of {} {} {scope}{period}", rounded(self.limit), self.measure)
    }
}

/// The amount as people read it: with two decimals, and below one with three digits.
fn rounded(amount: f64) -> f64 {
    let scale = scale_of(amount);
    (amount * scale).round() / scale
}

/// The same, and not more than `amount`.
pub(crate) fn rounded_down(amount: f64) -> f64 {
    let scale = scale_of(amount);
    // What stands for a round number may be a little less.
    (amount * scale + 1e-6).floor() / scale
}

fn scale_of(amount: f64) -> f64 {
    let digits = if amount > 0.0 && amount < 1.0 { 2.0 - amount.log10().floor() } else { 2.0 };
    10_f64.powf(digits.min(12.0))
}

/// What something was spent on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Expense {
    /// A tool's name, or what else.
    pub what: String,
    /// How much.
    pub amount: f64,
}

/// A limit that a person raised.
#[derive(Clone, Debug, PartialEq)]
pub struct BudgetRaise {
    /// The budget, with the limit as it is now.
    pub budget: Budget,
    /// When; it holds for the period in which it was said.
    pub at: Timestamp,
}

impl BudgetRaise {
    /// Whether it still holds for `budget`.
    pub fn applies_to(&self, budget: &Budget, now: Timestamp) -> bool {
        let first = budget.period.first_day(now.day());
        self.budget.is_same_budget(budget) && first.is_none_or(|first| self.at.day() >= first)
    }
}

/// What tools have cost one session: by unit, day and tool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolCosts(Arc<BTreeMap<ToolCostKey, f64>>);

/// A unit, a day and a tool.
type ToolCostKey = (Arc<str>, Day, Arc<str>);

impl ToolCosts {
    /// Adds an amount, or takes a negative one back.
    pub fn add(&mut self, unit: &str, day: Day, tool: &str, amount: f64) {
        let costs = Arc::make_mut(&mut self.0);
        *costs.entry((unit.into(), day, tool.into())).or_default() += amount;
    }

    /// What was spent of that unit in the period of `today`.
    pub fn spent(&self, unit: &str, period: BudgetPeriod, today: Day) -> f64 {
        let first = period.first_day(today);
        let of_unit = self
            .0
            .iter()
            .filter(|((of, day, _), _)| &**of == unit && first.is_none_or(|first| *day >= first));
        // Not `sum`, whose nothing is negative zero, which people would read.
        of_unit.fold(0.0, |spent, (_, amount)| spent + amount)
    }

    /// What that unit was spent on in the period of `today`, the largest first.
    pub fn expenses(&self, unit: &str, period: BudgetPeriod, today: Day) -> Vec<Expense> {
        let first = period.first_day(today);
        let mut by_tool: BTreeMap<&str, f64> = BTreeMap::new();
        for ((of, day, tool), amount) in self.0.iter() {
            if &**of == unit && first.is_none_or(|first| *day >= first) {
                *by_tool.entry(tool).or_default() += amount;
            }
        }
        let mut expenses: Vec<_> = by_tool
            .into_iter()
            .filter(|(_, amount)| *amount > 0.0)
            .map(|(tool, amount)| Expense { what: tool.to_owned(), amount })
            .collect();
        expenses.sort_by(|one, two| two.amount.total_cmp(&one.amount));
        expenses
    }

    /// What changed from `before`, by unit and day.
    pub fn changes_since(&self, before: &Self) -> Vec<SpendingEntry> {
        if Arc::ptr_eq(&self.0, &before.0) {
            return Vec::new();
        }
        let mut changes: BTreeMap<(Arc<str>, Day), f64> = BTreeMap::new();
        for (key @ (unit, day, _), amount) in self.0.iter() {
            let change = amount - before.0.get(key).copied().unwrap_or_default();
            *changes.entry((unit.clone(), *day)).or_default() += change;
        }
        let changed = changes.into_iter().filter(|(_, amount)| *amount != 0.0);
        let spend = |((unit, day), amount)| SpendingEntry {
            measure: BudgetMeasure::Unit(unit),
            day,
            amount,
        };
        changed.map(spend).collect()
    }
}

/// What a commit adds to its user's spending; negative where a reservation is released.
#[derive(Clone, Debug, PartialEq)]
pub struct SpendingEntry {
    /// What is counted.
    pub measure: BudgetMeasure,
    /// The day it counts for.
    pub day: Day,
    /// How much.
    pub amount: f64,
}

/// What a commit takes for granted of its user's spending: with it, no more than `limit` is spent
/// in the period. Where another session was faster, the commit fails and is decided anew.
#[derive(Clone, Debug, PartialEq)]
pub struct SpendingPrecondition {
    /// What is counted.
    pub measure: BudgetMeasure,
    /// In which time.
    pub period: BudgetPeriod,
    /// The day of the decision.
    pub day: Day,
    /// The limit.
    pub limit: f64,
}

impl SpendingPrecondition {
    /// Whether it holds where `spent` is spent in its period, with this commit.
    pub fn is_met(&self, spent: f64) -> bool {
        is_within(spent, self.limit)
    }

    /// The first day of its period; for ever has none.
    pub fn first_day(&self) -> Option<Day> {
        self.period.first_day(self.day)
    }
}

/// Whether `spent` is no more than `limit`. Sums of the same amounts in another order may differ in
/// their last digits.
pub(crate) fn is_within(spent: f64, limit: f64) -> bool {
    spent <= limit + limit.abs() * 1e-9
}

/// What a commit adds to its user's spending, and what must hold of it; else nothing is committed.
#[derive(Clone, Debug, PartialEq)]
pub struct SpendingUpdate {
    /// Who pays.
    pub user: UserId,
    /// What is added.
    pub entries: Vec<SpendingEntry>,
    /// What must hold then.
    pub preconditions: Vec<SpendingPrecondition>,
}

/// What a user has spent of one measure.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SpendingTotals {
    /// Today.
    pub day: f64,
    /// This month.
    pub month: f64,
    /// Ever.
    pub total: f64,
}

impl SpendingTotals {
    /// Counts what was spent on `day`.
    pub fn add(&mut self, day: Day, amount: f64, today: Day) {
        self.total += amount;
        if day >= today.first_of_month() {
            self.month += amount;
        }
        if day >= today {
            self.day += amount;
        }
    }

    /// What was spent in that period.
    pub fn in_period(&self, period: BudgetPeriod) -> f64 {
        match period {
            BudgetPeriod::Day => self.day,
            BudgetPeriod::Month => self.month,
            BudgetPeriod::Total => self.total,
        }
    }
}

/// What a user may spend on tools, and has spent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UserSpending {
    /// The limit of their settings.
    pub limit: Option<BudgetLimit>,
    /// What is spent, by all of their sessions.
    pub totals: BTreeMap<BudgetMeasure, SpendingTotals>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        serde_json::from_str(&format!("\"{text}\"")).unwrap()
    }

    #[test]
    fn g6_costs_count_for_the_day_the_month_or_for_ever() {
        let mut costs = ToolCosts::default();
        let [old, first, today] =
            ["2026-10-31T23:59:59.999Z", "2026-11-01T00:00:00Z", "2026-11-22T12:00:00Z"]
                .map(|text| at(text).day());
        costs.add("ISK", old, "buy", 1.0);
        costs.add("ISK", first, "buy", 10.0);
        costs.add("ISK", today, "sell", 100.0);
        costs.add("USD", today, "sell", 1000.0);
        assert_eq!(costs.spent("ISK", BudgetPeriod::Day, today), 100.0);
        assert_eq!(costs.spent("ISK", BudgetPeriod::Month, today), 110.0);
        assert_eq!(costs.spent("ISK", BudgetPeriod::Total, today), 111.0);
        let expected = [("sell", 100.0), ("buy", 11.0)];
        let found = costs.expenses("ISK", BudgetPeriod::Total, today);
        let found: Vec<_> = found.iter().map(|it| (it.what.as_str(), it.amount)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn g6_cost_changes_are_grouped_by_unit_and_day() {
        let day = at("2026-11-22T12:00:00Z").day();
        let mut before = ToolCosts::default();
        before.add("ISK", day, "buy", 5.0);
        let mut after = before.clone();
        assert_eq!(after.changes_since(&before), []);
        after.add("ISK", day, "buy", 2.0);
        after.add("ISK", day, "sell", -1.0);
        let expected = SpendingEntry { measure: BudgetMeasure::from_unit("ISK"), day, amount: 1.0 };
        assert_eq!(after.changes_since(&before), [expected]);
    }

    #[test]
    fn g6_amounts_are_rounded_for_people() {
        for (amount, told, down) in [
            (50.0 / 3.0, 16.67, 16.66),
            (50.0 - 33.3, 16.7, 16.7),
            (0.87 / 3.0, 0.29, 0.29),
            (0.005 / 3.0, 0.001_67, 0.001_66),
            (1e12 + 0.125, 1e12 + 0.13, 1e12 + 0.12),
            (2.0, 2.0, 2.0),
            (0.0, 0.0, 0.0),
        ] {
            assert_eq!((rounded(amount), rounded_down(amount)), (told, down), "{amount}");
        }
    }

    #[test]
    fn g6_a_raise_holds_for_its_period() {
        let limit = |period| Budget {
            scope: BudgetScope::User,
            period,
            measure: BudgetMeasure::from_unit("ISK"),
            limit: 5.0,
        };
        let raised = |period| BudgetRaise { budget: limit(period), at: at("2026-11-22T12:00:00Z") };
        for (period, now, holds) in [
            (BudgetPeriod::Day, "2026-11-22T23:59:59Z", true),
            (BudgetPeriod::Day, "2026-11-23T00:00:00Z", false),
            (BudgetPeriod::Month, "2026-11-30T00:00:00Z", true),
            (BudgetPeriod::Month, "2026-12-01T00:00:00Z", false),
            (BudgetPeriod::Total, "2030-01-01T00:00:00Z", true),
        ] {
            assert_eq!(raised(period).applies_to(&limit(period), at(now)), holds, "{period:?}");
        }
        assert!(
            !raised(BudgetPeriod::Day)
                .applies_to(&limit(BudgetPeriod::Total), at("2026-11-22T12:00:00Z"))
        );
    }
}
