//! The cost of a tool's calls (G5). Budgets are defined in [`crate::budget`].

use super::{Expression, ExpressionContext};
use crate::json::float;
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// A rule that computes the cost of a call from its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostRule {
    /// The expression that yields the amount.
    pub amount: Expression,
    /// The unit of the amount.
    pub unit: String,
}

/// The cost of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Cost {
    /// The amount: finite, 0 or more.
    #[serde(deserialize_with = "float::deserialize")]
    pub amount: f64,
    /// The unit, e.g. `ISK` or `USD`.
    pub unit: String,
}

impl CostRule {
    /// Returns the cost of the call, or the reason why it can't be determined.
    pub fn evaluate(&self, context: &ExpressionContext) -> Result<Cost, String> {
        let amount = self.amount.evaluate_number(context)?;
        if amount.is_finite() && amount >= 0.0 {
            // `abs` turns negative zero into zero.
            return Ok(Cost { amount: amount.abs(), unit: self.unit.clone() });
        }
        Err(format!("`{}` must evaluate to 0 or more, not {amount}", self.amount))
    }
}

impl Cost {
    /// Returns true if the amount is 0.
    pub fn is_zero(&self) -> bool {
        self.amount <= 0.0
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.amount, self.unit)
    }
}
