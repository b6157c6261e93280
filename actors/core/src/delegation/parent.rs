//! The parent of a child session, and the bounds of the child.

use crate::{
    agent::AgentProfile,
    budget::Budget,
    ids::{AgentName, CallId, RunId, SessionId},
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;

/// The origin of a child session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parent {
    /// The parent session.
    pub session_id: SessionId,
    /// The parent's run.
    pub run_id: RunId,
    /// The parent's call, which waits for the child's result.
    pub call_id: CallId,
    /// The run at the root of the delegation, which users follow.
    pub root: RootRun,
    /// The number of ancestor sessions; 1 for a child of a root session.
    pub depth: u32,
    /// The bounds of the child, in addition to its settings.
    pub bounds: ChildBounds,
}

/// A run of a root session. A root session has no parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RootRun {
    /// The session.
    pub session_id: SessionId,
    /// The run.
    pub run_id: RunId,
}

/// The bounds of a child. They override a wider agent profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChildBounds {
    /// True if no human is available to answer approvals (G13).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub headless: bool,
    /// Globs over tool names, if a workflow of an ancestor restricts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Arc<[String]>>,
    /// The agents of the ancestors, whose ceilings also apply to the child (G17).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<AgentName>,
    /// The child's shares of what the budgets of its ancestors have left (G6).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<Budget>,
}

impl ChildBounds {
    /// Returns the profile, restricted to these bounds.
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
    fn s8_child_bounds_only_narrow_profile() {
        let mut profile = AgentProfile::new(AgentName::parse("researcher").unwrap());
        profile.tools = vec!["get_*".to_owned(), "buy".to_owned()];
        profile.headless = true;
        assert_eq!(ChildBounds::default().apply_to(&profile), profile);

        profile.headless = false;
        let budget = Budget {
            scope: BudgetScope::Parent,
            period: BudgetPeriod::Total,
            measure: BudgetMeasure::Tokens,
            limit: 10.into(),
        };
        let bounds = ChildBounds {
            headless: true,
            tools: Some(["get_*".to_owned(), "sell".to_owned()].into()),
            agents: vec![AgentName::parse("trader").unwrap()],
            budgets: vec![budget.clone()],
        };
        let narrowed = bounds.apply_to(&profile);
        assert!(narrowed.headless);
        assert_eq!(narrowed.budgets, [budget]);
        let can_use = ["get_price", "buy", "sell"].map(|tool| narrowed.can_use_tool(tool));
        assert_eq!(can_use, [true, false, false]);
    }
}
