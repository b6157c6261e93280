//! The user's limit on the cost of tools (G4). The amount spent is not known here.

use crate::{
    amount::{Amount, format_amount},
    limits,
    time::Day,
};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, IntoDeserializer},
};
use serde_json::Value;
use std::fmt;
use utoipa::ToSchema;

/// The unit of a budget or cost that names no unit.
pub(super) const COST_UNIT_DEFAULT: &str = "credits";

/// A limit on the cost of tools. Also accepted as a plain number: that amount of the default unit,
/// without a period.
// Deserialized by hand below; the `serde` attribute is for the schema.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetLimit {
    /// The limit, greater than 0.
    #[schema(exclusive_minimum = 0)]
    pub amount: Amount,
    /// The unit, e.g. `ISK` or `USD`.
    pub unit: String,
    /// The period to which the limit applies.
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
    /// No period: the limit applies to the total.
    #[default]
    Total,
}

impl BudgetPeriod {
    /// Returns the name in configuration and on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
            Self::Total => "total",
        }
    }

    /// Returns the first day of the period that contains `day`; `None` for the total.
    pub fn first_day(self, day: Day) -> Option<Day> {
        match self {
            Self::Day => Some(day),
            Self::Month => Some(day.first_of_month()),
            Self::Total => None,
        }
    }
}

impl BudgetLimit {
    /// Returns true if adherence to this limit implies adherence to `limit`: the same unit, no
    /// larger amount, and no shorter period.
    pub fn is_within(&self, limit: &Self) -> bool {
        self.unit == limit.unit && self.amount <= limit.amount && self.period >= limit.period
    }

    /// Returns the narrower of both limits. Amounts of different units can't be compared; then
    /// returns `limit`.
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

    /// Returns the problem of an amount that exceeds the maximum. Stored limits can exceed it,
    /// because version 0.1 had no maximum.
    pub fn amount_problem(&self) -> Option<String> {
        let max = Amount::MAX;
        (self.amount > max)
            .then(|| format!("budget_limit.amount must be at most {max}, not {}", self.amount))
    }

    fn validated<E: de::Error>(
        amount: Amount,
        unit: String,
        period: BudgetPeriod,
    ) -> Result<Self, E> {
        if !amount.is_positive() {
            return Err(E::custom("budget_limit.amount must be greater than 0"));
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
        write!(f, "{} {period}", format_amount(self.amount, &self.unit))
    }
}

impl<'de> Deserialize<'de> for BudgetLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct BudgetLimitTable {
            amount: Amount,
            #[serde(default = "unit_default")]
            unit: String,
            #[serde(default)]
            period: BudgetPeriod,
        }

        fn from_amount<E: de::Error>(amount: Amount) -> Result<BudgetLimit, E> {
            BudgetLimit::validated(amount, unit_default(), BudgetPeriod::default())
        }

        struct BudgetLimitVisitor;
        impl<'de> de::Visitor<'de> for BudgetLimitVisitor {
            type Value = BudgetLimit;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("budget_limit: a number, or {amount, unit, period}")
            }
            fn visit_f64<E: de::Error>(self, amount: f64) -> Result<BudgetLimit, E> {
                from_amount(Amount::deserialize(amount.into_deserializer())?)
            }
            fn visit_i64<E: de::Error>(self, amount: i64) -> Result<BudgetLimit, E> {
                from_amount(Amount::deserialize(amount.into_deserializer())?)
            }
            fn visit_u64<E: de::Error>(self, amount: u64) -> Result<BudgetLimit, E> {
                from_amount(Amount::deserialize(amount.into_deserializer())?)
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<BudgetLimit, A::Error> {
                // A number that is not an integer also arrives as a map, because its text is kept.
                let value = Value::deserialize(de::value::MapAccessDeserializer::new(map))?;
                if value.is_number() {
                    return from_amount(Amount::deserialize(value).map_err(de::Error::custom)?);
                }
                let table = BudgetLimitTable::deserialize(value).map_err(de::Error::custom)?;
                BudgetLimit::validated(table.amount, table.unit, table.period)
            }
        }
        deserializer.deserialize_any(BudgetLimitVisitor)
    }
}

/// Validates the unit of a budget or cost.
pub fn validate_unit(unit: &str) -> Result<(), String> {
    // These names are reserved for the usage of models.
    if matches!(unit, "tokens" | "usd") {
        return Err(format!("can't be `{unit}`, which is reserved for model usage"));
    }
    let fits = (1..=limits::BUDGET_UNIT_CHARS_MAX).contains(&unit.chars().count());
    if fits && !unit.chars().any(char::is_control) {
        return Ok(());
    }
    let chars_max = limits::BUDGET_UNIT_CHARS_MAX;
    Err(format!("must have 1 to {chars_max} characters and no control characters"))
}

fn unit_default() -> String {
    COST_UNIT_DEFAULT.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn parse(json: Value) -> Result<BudgetLimit, String> {
        serde_json::from_value(json).map_err(|error| error.to_string())
    }

    #[test]
    fn g4_plain_number_is_total_limit() {
        let expected =
            BudgetLimit { amount: 5.into(), unit: "credits".into(), period: BudgetPeriod::Total };
        assert_eq!(parse(json!(5)), Ok(expected.clone()));
        assert_eq!(parse(json!(5.0)), Ok(expected.clone()));
        assert_eq!(parse(json!({"amount": 5})), Ok(expected.clone()));
        assert_eq!(parse(serde_json::to_value(&expected).unwrap()), Ok(expected));
    }

    #[test]
    fn g4_invalid_budget_limit_is_rejected() {
        for invalid in [json!(0), json!(-1), json!({"amount": -0.5}), json!({"amount": 0})] {
            assert!(parse(invalid).unwrap_err().contains("budget_limit.amount"));
        }
        assert!(parse(json!({"amount": 1, "unit": ""})).unwrap_err().contains("budget_limit.unit"));
        assert!(parse(json!("5")).unwrap_err().contains("budget_limit"));
        assert!(parse(json!({"amount": 1, "period": "week"})).is_err());
    }
}
