//! Where a child comes from, and what it may do at most.

use crate::{
    agent::AgentProfile,
    budget::Budget,
    ids::{CallId, RunId, SessionId},
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;

/// A session that another one has started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parent {
    /// The session that started it.
    pub session_id: SessionId,
    /// Its run.
    pub run_id: RunId,
    /// The call that waits for the answer.
    pub call_id: CallId,
    /// The run in which it all began: the one that people watch.
    pub root: RootRun,
    /// How many sessions are above it: 1 for the child of one that people started.
    pub depth: u32,
    /// What it may do at most, beside its settings.
    pub bounds: ChildBounds,
}

/// A run of a session that people started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RootRun {
    /// The session.
    pub session_id: SessionId,
    /// Its run.
    pub run_id: RunId,
}

/// What a child may do at most: where its own profile says more, this holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChildBounds {
    /// Nobody is there to ask (G13).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub headless: bool,
    /// Globs over tools, where a workflow of those above it has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Arc<[String]>>,
    /// Its share of what budgets of those above it have left (G6).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<Budget>,
}

impl ChildBounds {
    /// The profile with no more than these allow.
    #[must_use]
    pub fn apply_to(&self, profile: &AgentProfile) -> AgentProfile {
        let mut narrowed = profile.clone();
        narrowed.headless |= self.headless;
        narrowed.inherited_tools.clone_from(&self.tools);
        narrowed.budgets.extend(self.budgets.iter().cloned());
        narrowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        budget::{BudgetMeasure, BudgetScope},
        ids::AgentName,
        policy::BudgetPeriod,
    };

    #[test]
    fn s8_bounds_only_narrow() {
        let mut profile = AgentProfile::new(AgentName::parse("researcher").unwrap());
        profile.tools = vec!["get_*".to_owned(), "buy".to_owned()];
        profile.headless = true;
        assert_eq!(ChildBounds::default().apply_to(&profile), profile);

        profile.headless = false;
        let budget = Budget {
            scope: BudgetScope::Parent,
            period: BudgetPeriod::Total,
            measure: BudgetMeasure::Tokens,
            limit: 10.0,
        };
        let bounds = ChildBounds {
            headless: true,
            tools: Some(["get_*".to_owned(), "sell".to_owned()].into()),
            budgets: vec![budget.clone()],
        };
        let narrowed = bounds.apply_to(&profile);
        assert!(narrowed.headless);
        assert_eq!(narrowed.budgets, [budget]);
        let may = ["get_price", "buy", "sell"].map(|tool| narrowed.can_use_tool(tool));
        assert_eq!(may, [true, false, false]);
    }
}
