//! How long people have to answer, and what happens when nobody does (G10).

use super::{ApprovalKind, Role};
use crate::{limits::APPROVAL_DEADLINE_DEFAULT, policy::Risk};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What happens when a deadline passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadlineAction {
    /// The question expires, and what it asks for does not happen.
    #[default]
    Deny,
    /// It goes to people of another role, who have this long; then it expires.
    Escalate {
        /// The least role that may answer from then on.
        to: Role,
        /// How long they have, in milliseconds; `None` means for ever.
        within_ms: Option<u64>,
    },
    /// It goes on waiting; the deadline only says that it is late.
    Wait,
}

impl DeadlineAction {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Escalate { .. } => "escalate",
            Self::Wait => "wait",
        }
    }
}

/// How long people have, and what then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadlineRule {
    /// The time from asking; `None` means for ever.
    pub timeout: Option<Duration>,
    /// What happens then.
    pub action: DeadlineAction,
}

impl Default for DeadlineRule {
    fn default() -> Self {
        Self { timeout: Some(APPROVAL_DEADLINE_DEFAULT), action: DeadlineAction::default() }
    }
}

/// The timing of every question of one agent: kind × the highest risk it is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApprovalDeadlines {
    rules: [[DeadlineRule; Risk::ALL.len()]; ApprovalKind::ALL.len()],
}

impl ApprovalDeadlines {
    /// The table in which every cell is what `timing` says of it.
    pub fn from_fn(timing: impl Fn(ApprovalKind, Risk) -> DeadlineRule) -> Self {
        let row = |kind| Risk::ALL.map(|risk| timing(kind, risk));
        Self { rules: ApprovalKind::ALL.map(row) }
    }

    /// The same for every question.
    pub fn uniform(timing: DeadlineRule) -> Self {
        Self::from_fn(|_, _| timing)
    }

    /// How long people have for a question of this kind about this risk. What a crash left unknown
    /// does not become known by waiting: such a question never expires.
    pub fn rule(&self, kind: ApprovalKind, risk: Risk) -> DeadlineRule {
        if kind == ApprovalKind::UnknownOutcome {
            return DeadlineRule { timeout: None, action: DeadlineAction::Wait };
        }
        let place = |found: Option<usize>| found.unwrap_or_default();
        let row = place(ApprovalKind::ALL.iter().position(|other| *other == kind));
        let column = place(Risk::ALL.iter().position(|other| *other == risk));
        self.rules[row][column]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g10_each_kind_and_risk_has_its_own_timing() {
        let rules = ApprovalDeadlines::from_fn(|kind, risk| DeadlineRule {
            timeout: (kind == ApprovalKind::Plan).then(|| Duration::from_secs(risk as u64)),
            action: DeadlineAction::Wait,
        });
        let of = |kind, risk| rules.rule(kind, risk).timeout;
        assert_eq!(of(ApprovalKind::Plan, Risk::Critical), Some(Duration::from_secs(3)));
        assert_eq!(of(ApprovalKind::Plan, Risk::WriteLowRisk), Some(Duration::from_secs(1)));
        assert_eq!(of(ApprovalKind::Budget, Risk::Critical), None);
    }

    #[test]
    fn g10_an_unknown_outcome_has_no_deadline_whatever_is_configured() {
        let timing =
            ApprovalDeadlines::default().rule(ApprovalKind::UnknownOutcome, Risk::Critical);
        assert_eq!(timing, DeadlineRule { timeout: None, action: DeadlineAction::Wait });
    }
}
