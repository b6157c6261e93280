//! The units of costs and their decimals (M2, G6).

use crate::{budget::BudgetMeasure, limits::AMOUNT_DECIMALS_MAX};
use serde::{Deserialize, Deserializer, de::Error};
use std::collections::BTreeMap;

/// The unit of model costs. The costs of tools can have the same unit.
pub const USD: &str = "USD";
/// The decimals of [`USD`] if it is not configured. A model call costs a fraction of a cent.
pub const USD_DECIMALS_DEFAULT: u8 = 6;
/// The decimals of other units that are not configured.
const DECIMALS_DEFAULT: u8 = 2;

/// The decimals of units, by name. Costs are rounded up to them, and the shares of child sessions
/// are rounded down.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Units(BTreeMap<String, Unit>);

/// `[units.NAME]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Unit {
    #[serde(deserialize_with = "deserialize_decimals")]
    decimals: u8,
}

impl Units {
    /// Returns the decimals of a unit of costs.
    pub fn decimals(&self, unit: &str) -> u8 {
        let default = if unit == USD { USD_DECIMALS_DEFAULT } else { DECIMALS_DEFAULT };
        self.0.get(unit).map_or(default, |unit| unit.decimals)
    }

    /// Returns the decimals of the amounts that a budget counts.
    pub fn decimals_of(&self, measure: &BudgetMeasure) -> u8 {
        match measure {
            BudgetMeasure::Tokens => 0,
            BudgetMeasure::Usd => self.decimals(USD),
            BudgetMeasure::Unit(unit) => self.decimals(unit),
        }
    }

    /// Returns the names of the configured units.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

fn deserialize_decimals<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u8, D::Error> {
    let decimals = i64::deserialize(deserializer)?;
    let in_range = u8::try_from(decimals).ok().filter(|decimals| *decimals <= AMOUNT_DECIMALS_MAX);
    in_range.ok_or_else(|| {
        let max = AMOUNT_DECIMALS_MAX;
        D::Error::custom(format_args!("decimals must be 0 to {max}, not {decimals}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn units(json: serde_json::Value) -> Result<Units, String> {
        serde_json::from_value(json).map_err(|error| error.to_string())
    }

    #[test]
    fn m2_unit_has_configured_or_default_decimals() {
        let units = units(json!({"ISK": {"decimals": 0}})).unwrap();
        let measures = ["ISK", "gold", "USD", "usd", "tokens"].map(BudgetMeasure::from_name);
        assert_eq!(measures.map(|measure| units.decimals_of(&measure)), [0, 2, 6, 6, 0]);
    }

    #[test]
    fn m2_invalid_decimals_are_rejected() {
        for (decimals, expected) in [
            (json!(10), "decimals must be 0 to 9, not 10"),
            (json!(-1), "decimals must be 0 to 9, not -1"),
            (json!(300), "decimals must be 0 to 9, not 300"),
        ] {
            assert_eq!(units(json!({"ISK": {"decimals": decimals}})).unwrap_err(), expected);
        }
        for invalid in [json!({"ISK": {}}), json!({"ISK": {"decimals": 2, "sign": "x"}})] {
            assert!(units(invalid).is_err());
        }
    }
}
