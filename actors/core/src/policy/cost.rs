//! The cost of a tool's calls (G5). Budgets are defined in [`crate::budget`].

use super::{Expression, ExpressionContext};
use crate::amount::{Amount, format_amount};
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
    /// The decimals of the unit; a cost is rounded up to them.
    pub decimals: u8,
}

/// The cost of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Cost {
    /// The amount.
    pub amount: Amount,
    /// The unit, e.g. `ISK` or `USD`.
    pub unit: String,
}

impl CostRule {
    /// Returns the cost of the call, or the reason why it can't be determined.
    pub fn evaluate(&self, context: &ExpressionContext) -> Result<Cost, String> {
        let number = self.amount.evaluate_number(context)?;
        let amount = Amount::from_number(&number)
            .map_err(|problem| format!("the value of `{}` {problem}", self.amount))?;
        Ok(Cost { amount: amount.rounded_up(self.decimals), unit: self.unit.clone() })
    }
}

impl Cost {
    /// Returns true if the amount is 0.
    pub fn is_zero(&self) -> bool {
        !self.amount.is_positive()
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_amount(self.amount, &self.unit))
    }
}
