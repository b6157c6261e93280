//! The limit a user sets on what tools may cost (G4). How much of it is spent is not known here.

use crate::{limits, time::Day};
use serde::{Deserialize, Deserializer, Serialize, de};
use std::fmt;
use utoipa::ToSchema;

/// The unit of a budget and of a cost that name none.
pub(super) const UNIT_DEFAULT: &str = "credits";

/// A limit on what tools may cost. A plain number is accepted for it: that amount of the default
/// unit, for ever.
// It is read by hand below; this is for its schema.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetLimit {
    /// Greater than 0.
    #[schema(exclusive_minimum = 0)]
    pub amount: f64,
    /// What is counted, e.g. `ISK` or `USD`.
    pub unit: String,
    /// The period it is for.
    pub period: BudgetPeriod,
}

/// The period of a budget, shortest first.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum BudgetPeriod {
    /// One calendar day (UTC).
    Day,
    /// One calendar month (UTC).
    Month,
    /// For ever.
    #[default]
    Total,
}

impl BudgetPeriod {
    /// The name in configuration and on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
            Self::Total => "total",
        }
    }

    /// The first day of the period that `day` is in; for ever has none.
    pub fn first_day(self, day: Day) -> Option<Day> {
        match self {
            Self::Day => Some(day),
            Self::Month => Some(day.first_of_month()),
            Self::Total => None,
        }
    }
}

impl BudgetLimit {
    /// Whether who keeps to this limit keeps to `limit`: no more of the same unit, over a period
    /// that is no shorter.
    pub fn is_within(&self, limit: &Self) -> bool {
        self.unit == limit.unit && self.amount <= limit.amount && self.period >= limit.period
    }

    /// The narrower of both. Amounts of different units can't be compared: then `limit` stands.
    #[must_use]
    pub fn narrowed_to(&self, limit: &Self) -> Self {
        if self.unit != limit.unit {
            return limit.clone();
        }
        Self {
            amount: self.amount.min(limit.amount),
            unit: limit.unit.clone(),
            period: self.period.max(limit.period),
        }
    }

    fn validated<E: de::Error>(amount: f64, unit: String, period: BudgetPeriod) -> Result<Self, E> {
        if !(amount.is_finite() && amount > 0.0) {
            return Err(E::custom(format_args!(
                "budget_limit.amount must be greater than 0, not {amount}"
            )));
        }
        validate_unit(&unit)
            .map_err(|problem| E::custom(format_args!("budget_limit.unit {problem}")))?;
        Ok(Self { amount, unit, period })
    }
}

impl fmt::Display for BudgetLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let period = match self.period {
            BudgetPeriod::Day => "a day",
            BudgetPeriod::Month => "a month",
            BudgetPeriod::Total => "in total",
        };
        write!(f, "{} {} {period}", self.amount, self.unit)
    }
}

impl<'de> Deserialize<'de> for BudgetLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct BudgetLimitTable {
            amount: f64,
            #[serde(default = "unit_default")]
            unit: String,
            #[serde(default)]
            period: BudgetPeriod,
        }

        struct BudgetLimitVisitor;
        impl<'de> de::Visitor<'de> for BudgetLimitVisitor {
            type Value = BudgetLimit;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("budget_limit: a number, or {amount, unit, period}")
            }
            fn visit_f64<E: de::Error>(self, amount: f64) -> Result<BudgetLimit, E> {
                BudgetLimit::validated(amount, unit_default(), BudgetPeriod::default())
            }
            #[expect(clippy::cast_precision_loss, reason = "amounts are floating point")]
            fn visit_i64<E: de::Error>(self, amount: i64) -> Result<BudgetLimit, E> {
                self.visit_f64(amount as f64)
            }
            #[expect(clippy::cast_precision_loss, reason = "amounts are floating point")]
            fn visit_u64<E: de::Error>(self, amount: u64) -> Result<BudgetLimit, E> {
                self.visit_f64(amount as f64)
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<BudgetLimit, A::Error> {
                let written =
                    BudgetLimitTable::deserialize(de::value::MapAccessDeserializer::new(map))?;
                BudgetLimit::validated(written.amount, written.unit, written.period)
            }
        }
        deserializer.deserialize_any(BudgetLimitVisitor)
    }
}

/// Whether that can be the unit of a budget or of a cost.
pub fn validate_unit(unit: &str) -> Result<(), String> {
    // What models cost is counted under these names.
    if matches!(unit, "tokens" | "usd") {
        return Err(format!("can't be `{unit}`, which counts what models cost"));
    }
    let fits = (1..=limits::BUDGET_UNIT_CHARS_MAX).contains(&unit.chars().count());
    // What models cost is counted under these names.
    if matches!(unit, "tokens" | "usd") {
        return Err(format!("can't be `{unit}`, which counts what models cost"));
    }
    if fits && !unit.chars().any(char::is_control) {
        return Ok(());
    }
    let chars_max = limits::BUDGET_UNIT_CHARS_MAX;
    Err(format!("must have 1 to {chars_max} characters and no control characters"))
}

fn unit_default() -> String {
    UNIT_DEFAULT.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(written: Value) -> Result<BudgetLimit, String> {
        serde_json::from_value(written).map_err(|error| error.to_string())
    }

    #[test]
    fn g4_a_plain_number_is_a_limit_for_ever() {
        let expected =
            BudgetLimit { amount: 5.0, unit: "credits".into(), period: BudgetPeriod::Total };
        assert_eq!(read(json!(5)), Ok(expected.clone()));
        assert_eq!(read(json!(5.0)), Ok(expected.clone()));
        assert_eq!(read(json!({"amount": 5})), Ok(expected.clone()));
        assert_eq!(read(serde_json::to_value(&expected).unwrap()), Ok(expected));
    }

    #[test]
    fn g4_amounts_are_greater_than_zero_and_units_are_named() {
        for wrong in [json!(0), json!(-1), json!({"amount": -0.5}), json!({"amount": 0})] {
            assert!(read(wrong).unwrap_err().contains("budget_limit.amount"));
        }
        assert!(read(json!({"amount": 1, "unit": ""})).unwrap_err().contains("budget_limit.unit"));
        assert!(read(json!("5")).unwrap_err().contains("budget_limit"));
        assert!(read(json!({"amount": 1, "period": "week"})).is_err());
    }
}
