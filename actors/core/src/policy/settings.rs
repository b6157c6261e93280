//! What a user allows, and how a session may narrow it (G4).

use super::risk::Autonomy;
use crate::ids::ToolName;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A user's settings, or a session's. The default is the safe one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How much the agent may do by itself.
    pub autonomy_level: Autonomy,
    /// Whether L2 asks before `write_high_risk`.
    pub require_confirmation: bool,
    /// Tools that are always denied, read-only ones too.
    pub blocked_tools: BTreeSet<ToolName>,
    /// Regions that catalog constraints may use; `None` is no restriction.
    pub allowed_regions: Option<BTreeSet<i64>>,
    /// What tools may cost.
    pub budget_limit: Option<BudgetLimit>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            autonomy_level: Autonomy::default(),
            require_confirmation: true,
            blocked_tools: BTreeSet::new(),
            allowed_regions: None,
            budget_limit: None,
        }
    }
}

/// A limit on what tools may cost. A plain number is accepted for it: that amount of the default
/// unit, for ever.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BudgetLimit {
    /// Greater than 0.
    pub amount: f64,
    /// What is counted, e.g. `ISK` or `USD`.
    pub unit: String,
    /// The period it is for.
    pub period: Period,
}

/// The period of a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Period {
    /// One calendar day (UTC).
    Day,
    /// One calendar month (UTC).
    Month,
    /// For ever.
    #[default]
    Total,
}

impl<'de> Deserialize<'de> for BudgetLimit {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let _ = deserializer;
        Err(serde::de::Error::custom("not written yet"))
    }
}
