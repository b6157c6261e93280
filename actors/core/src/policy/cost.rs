//! What a tool's calls cost (G5). What may be spent is [`super::budget`]'s.

use super::{Expression, ExpressionContext};
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// How the cost of a call follows from its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostRule {
    /// Gives the amount.
    pub amount: Expression,
    /// The unit of the amount.
    pub unit: String,
}

/// What a call costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Cost {
    /// Finite, 0 or more.
    pub amount: f64,
    /// What is counted, e.g. `ISK` or `USD`.
    pub unit: String,
}

impl CostRule {
    /// What the call costs; the error says why that is not known.
    pub fn evaluate(&self, facts: &ExpressionContext) -> Result<Cost, String> {
        let amount = self.amount.evaluate_number(facts)?;
        if amount.is_finite() && amount >= 0.0 {
            // Negative zero is zero.
            return Ok(Cost { amount: amount.abs(), unit: self.unit.clone() });
        }
        Err(format!("`{}` must give 0 or more, not {amount}", self.amount))
    }
}

impl Cost {
    /// Whether there is nothing to pay.
    pub fn is_zero(&self) -> bool {
        self.amount <= 0.0
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.amount, self.unit)
    }
}
