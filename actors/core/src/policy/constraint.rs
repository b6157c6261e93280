//! Constraints on a tool's calls (G5).

use super::{Expression, ExpressionContext};
use crate::limits;
use serde::{Deserialize, Deserializer, de};
use std::fmt;

/// A condition that every call must meet. Configured as an expression, or as `{ allow_if, reason
/// }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraint {
    /// The expression; true for calls that are allowed.
    pub allow_if: Expression,
    /// The reason of the denial, for humans and for the model.
    pub reason: Option<String>,
}

impl Constraint {
    /// Returns the reason why the call is not allowed; `None` if it is. A constraint that can't be
    /// evaluated does not allow the call.
    pub fn violation(&self, context: &ExpressionContext) -> Option<String> {
        match self.allow_if.evaluate_bool(context) {
            Ok(true) => None,
            Ok(false) => Some(self.denial_text()),
            Err(problem) => Some(match &self.reason {
                Some(reason) => format!("{reason} ({problem})"),
                None => problem,
            }),
        }
    }

    fn denial_text(&self) -> String {
        match &self.reason {
            Some(reason) => reason.clone(),
            None => format!("the constraint `{}` does not hold", self.allow_if),
        }
    }
}

impl<'de> Deserialize<'de> for Constraint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct ConstraintTable {
            allow_if: Expression,
            reason: Option<String>,
        }

        struct ConstraintVisitor;
        impl<'de> de::Visitor<'de> for ConstraintVisitor {
            type Value = Constraint;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an expression, or {allow_if, reason}")
            }
            fn visit_str<E: de::Error>(self, source: &str) -> Result<Constraint, E> {
                let allow_if = Expression::compile(source).map_err(E::custom)?;
                Ok(Constraint { allow_if, reason: None })
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Constraint, A::Error> {
                let table =
                    ConstraintTable::deserialize(de::value::MapAccessDeserializer::new(map))?;
                let bytes_max = limits::REASON_BYTES_MAX;
                if let Some(bytes) = table.reason.as_ref().map(String::len)
                    && bytes > bytes_max
                {
                    let problem = format_args!("reason: {bytes} bytes; the limit is {bytes_max}");
                    return Err(de::Error::custom(problem));
                }
                Ok(Constraint { allow_if: table.allow_if, reason: table.reason })
            }
        }
        deserializer.deserialize_any(ConstraintVisitor)
    }
}
