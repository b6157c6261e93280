//! Decodes floating point fields of types that serde buffers: those with `flatten`, and tagged or
//! untagged enums. A buffered number that does not fit an integer arrives as a map, because its text
//! is kept (`arbitrary_precision`); serde's own `f64` does not accept that.
//!
//! Use as `#[serde(deserialize_with = "float::deserialize")]`. Recorded logs and samples contain
//! each such field, so a field without it does not pass their tests.

use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Number;

/// Decodes a number.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    to_float(&Number::deserialize(deserializer)?)
}

/// Decodes a number or null.
pub fn deserialize_option<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<f64>, D::Error> {
    let number = Option::<Number>::deserialize(deserializer)?;
    number.as_ref().map(to_float).transpose()
}

fn to_float<E: Error>(number: &Number) -> Result<f64, E> {
    number.as_f64().ok_or_else(|| E::custom("the number is out of range"))
}
