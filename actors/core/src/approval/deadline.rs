//! Deadlines of approvals, and the action when a deadline passes (G10).

use super::{ApprovalKind, Role};
use crate::{limits::APPROVAL_DEADLINE_DEFAULT, policy::Risk};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The action when a deadline passes without an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadlineAction {
    /// The approval expires, and the requested action does not happen.
    #[default]
    Deny,
    /// The approval moves to users of another role; after `within_ms` it expires.
    Escalate {
        /// The lowest role that may answer after the escalation.
        to: Role,
        /// The time they have, in milliseconds; `None` means no limit.
        within_ms: Option<u64>,
    },
    /// The approval stays open; the deadline only marks it as late.
    Wait,
}

impl DeadlineAction {
    /// Returns the wire name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Escalate { .. } => "escalate",
            Self::Wait => "wait",
        }
    }
}

/// The time limit of an approval and the action when it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadlineRule {
    /// The time limit, counted from the request; `None` means no limit.
    pub timeout: Option<Duration>,
    /// The action when the limit is reached.
    pub action: DeadlineAction,
}

impl Default for DeadlineRule {
    fn default() -> Self {
        Self { timeout: Some(APPROVAL_DEADLINE_DEFAULT), action: DeadlineAction::default() }
    }
}

/// The deadline rules of one agent, per approval kind and highest risk of the subject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApprovalDeadlines {
    rules: [[DeadlineRule; Risk::ALL.len()]; ApprovalKind::ALL.len()],
}

impl ApprovalDeadlines {
    /// Builds the table from a function that returns the rule of each cell.
    pub fn from_fn(rule: impl Fn(ApprovalKind, Risk) -> DeadlineRule) -> Self {
        let row = |kind| Risk::ALL.map(|risk| rule(kind, risk));
        Self { rules: ApprovalKind::ALL.map(row) }
    }

    /// Builds a table with the same rule for every approval.
    pub fn uniform(rule: DeadlineRule) -> Self {
        Self::from_fn(|_, _| rule)
    }

    /// Returns the rule for an approval of this kind and risk. An approval of an unknown outcome
    /// never expires, because waiting does not make the outcome known.
    pub fn rule(&self, kind: ApprovalKind, risk: Risk) -> DeadlineRule {
        if kind == ApprovalKind::UnknownOutcome {
            return DeadlineRule { timeout: None, action: DeadlineAction::Wait };
        }
        let index = |found: Option<usize>| found.unwrap_or_default();
        let row = index(ApprovalKind::ALL.iter().position(|other| *other == kind));
        let column = index(Risk::ALL.iter().position(|other| *other == risk));
        self.rules[row][column]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g10_each_kind_and_risk_has_its_own_deadline() {
        let rules = ApprovalDeadlines::from_fn(|kind, risk| DeadlineRule {
            timeout: (kind == ApprovalKind::Plan).then(|| Duration::from_secs(risk as u64)),
            action: DeadlineAction::Wait,
        });
        let timeout = |kind, risk| rules.rule(kind, risk).timeout;
        assert_eq!(timeout(ApprovalKind::Plan, Risk::Critical), Some(Duration::from_secs(3)));
        assert_eq!(timeout(ApprovalKind::Plan, Risk::WriteLowRisk), Some(Duration::from_secs(1)));
        assert_eq!(timeout(ApprovalKind::Budget, Risk::Critical), None);
    }

    #[test]
    fn g10_unknown_outcome_ignores_configured_deadline() {
        let rule = ApprovalDeadlines::default().rule(ApprovalKind::UnknownOutcome, Risk::Critical);
        assert_eq!(rule, DeadlineRule { timeout: None, action: DeadlineAction::Wait });
    }
}
