//! What must hold of a tool's calls (G5).

use super::{Expression, ExpressionContext};
use crate::limits;
use serde::{Deserialize, Deserializer, de};
use std::fmt;

/// A condition that every call must meet. Written as an expression, or as `{ allow_if, reason }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraint {
    /// True of calls that are allowed.
    pub allow_if: Expression,
    /// Why others are not, for people and for the model.
    pub reason: Option<String>,
}

impl Constraint {
    /// Why a call is not allowed, if it isn't. What can't be evaluated is not allowed.
    pub fn violation(&self, facts: &ExpressionContext) -> Option<String> {
        match self.allow_if.evaluate_bool(facts) {
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
                let written =
                    ConstraintTable::deserialize(de::value::MapAccessDeserializer::new(map))?;
                let bytes_max = limits::REASON_BYTES_MAX;
                if written.reason.as_ref().is_some_and(|reason| reason.len() > bytes_max) {
                    let problem = format_args!("reason may have at most {bytes_max} bytes");
                    return Err(de::Error::custom(problem));
                }
                Ok(Constraint { allow_if: written.allow_if, reason: written.reason })
            }
        }
        deserializer.deserialize_any(ConstraintVisitor)
    }
}
