//! Deadlines of approvals (G10): merges the global rules, the rules of kinds and risks and those of
//! an agent into the table that sessions use.

use greenroom_core::{
    approval::{ApprovalDeadlines, ApprovalKind, DeadlineAction, DeadlineRule, Role},
    duration::DurationLimit,
    policy::Risk,
};
use serde::Deserialize;
use std::collections::BTreeMap;

/// `[approvals]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "RawApprovals")]
pub(super) struct ApprovalsSection {
    /// Minimum role for the approval of critical calls (G12).
    pub(super) critical_role: Option<Role>,
    pub(super) four_eyes: bool,
    pub(super) rules: RawApprovalRules,
}

/// The section as a flat table, so that an error in it has its line and key.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawApprovals {
    critical_role: Option<Role>,
    four_eyes: bool,
    deadline: Option<DurationLimit>,
    on_deadline: Option<RawDeadlineAction>,
    escalate_to: Option<Role>,
    escalate_deadline: Option<DurationLimit>,
    kinds: BTreeMap<ApprovalKind, RawApprovalTiming>,
    risks: BTreeMap<Risk, RawApprovalTiming>,
}

impl From<RawApprovals> for ApprovalsSection {
    fn from(raw: RawApprovals) -> Self {
        let RawApprovals { critical_role, four_eyes, deadline, on_deadline, .. } = raw;
        let RawApprovals { escalate_to, escalate_deadline, kinds, risks, .. } = raw;
        let rules = RawApprovalRules {
            deadline,
            on_deadline,
            escalate_to,
            escalate_deadline,
            kinds,
            risks,
        };
        Self { critical_role, four_eyes, rules }
    }
}

/// Deadline rules, in `[approvals]` and in `[agents.NAME.approvals]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawApprovalRules {
    deadline: Option<DurationLimit>,
    on_deadline: Option<RawDeadlineAction>,
    escalate_to: Option<Role>,
    escalate_deadline: Option<DurationLimit>,
    kinds: BTreeMap<ApprovalKind, RawApprovalTiming>,
    risks: BTreeMap<Risk, RawApprovalTiming>,
}

/// Deadline rules of one approval kind or one risk.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawApprovalTiming {
    deadline: Option<DurationLimit>,
    on_deadline: Option<RawDeadlineAction>,
    escalate_to: Option<Role>,
    escalate_deadline: Option<DurationLimit>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RawDeadlineAction {
    Deny,
    Escalate,
    Wait,
}

/// Merges the rules of `layers` into a table. Later layers override earlier ones; within a layer, a
/// rule of a risk overrides a rule of a kind.
pub(super) fn merge_rules(layers: &[&RawApprovalRules]) -> Result<ApprovalDeadlines, String> {
    layers.iter().try_for_each(|layer| layer.validate())?;
    Ok(ApprovalDeadlines::from_fn(|kind, risk| {
        let timings = layers.iter().flat_map(|layer| {
            let base = RawApprovalTiming {
                deadline: layer.deadline,
                on_deadline: layer.on_deadline,
                escalate_to: layer.escalate_to,
                escalate_deadline: layer.escalate_deadline,
            };
            let (by_kind, by_risk) = (layer.kinds.get(&kind), layer.risks.get(&risk));
            [Some(base), by_kind.copied(), by_risk.copied()].into_iter().flatten()
        });
        timings.fold(RawApprovalTiming::default(), RawApprovalTiming::overridden_by).into_timing()
    }))
}

impl RawApprovalRules {
    fn validate(&self) -> Result<(), String> {
        let timings = self.kinds.values().chain(self.risks.values());
        let deadlines = timings.flat_map(|timing| [timing.deadline, timing.escalate_deadline]);
        let mut all = deadlines.chain([self.deadline, self.escalate_deadline]).flatten();
        if all.any(|DurationLimit(limit)| limit.is_some_and(|limit| limit.is_zero())) {
            return Err("a deadline must be longer than 0, or \"none\"".to_owned());
        }
        if self.kinds.contains_key(&ApprovalKind::UnknownOutcome) {
            let kind = ApprovalKind::UnknownOutcome.name();
            return Err(format!("approvals.kinds.{kind}: an unknown outcome has no deadline"));
        }
        let timings = self.kinds.values().chain(self.risks.values());
        let mut roles =
            timings.map(|timing| timing.escalate_to).chain([self.escalate_to]).flatten();
        if roles.any(|role| role == Role::User) {
            return Err("escalate_to must be \"approver\" or \"admin\", not \"user\"".to_owned());
        }
        Ok(())
    }
}

impl RawApprovalTiming {
    fn overridden_by(self, other: Self) -> Self {
        Self {
            deadline: other.deadline.or(self.deadline),
            on_deadline: other.on_deadline.or(self.on_deadline),
            escalate_to: other.escalate_to.or(self.escalate_to),
            escalate_deadline: other.escalate_deadline.or(self.escalate_deadline),
        }
    }

    fn into_timing(self) -> DeadlineRule {
        let timeout =
            self.deadline.map_or(DeadlineRule::default().timeout, |DurationLimit(limit)| limit);
        let action = match self.on_deadline.unwrap_or(RawDeadlineAction::Deny) {
            RawDeadlineAction::Deny => DeadlineAction::Deny,
            RawDeadlineAction::Wait => DeadlineAction::Wait,
            RawDeadlineAction::Escalate => {
                // Without an own deadline, the escalation has the same duration again.
                let within = self.escalate_deadline.map_or(timeout, |DurationLimit(limit)| limit);
                let millis = |span: std::time::Duration| u64::try_from(span.as_millis()).ok();
                let to = self.escalate_to.unwrap_or(Role::Approver);
                DeadlineAction::Escalate { to, within_ms: within.and_then(millis) }
            }
        };
        DeadlineRule { timeout, action }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn parse_rules(text: &str) -> RawApprovalRules {
        toml::from_str(text).unwrap()
    }

    fn deadline_and_action(
        rules: &ApprovalDeadlines,
        kind: ApprovalKind,
        risk: Risk,
    ) -> (Option<u64>, &'static str) {
        let DeadlineRule { timeout, action } = rules.rule(kind, risk);
        (timeout.map(|timeout| timeout.as_secs()), action.name())
    }

    #[test]
    fn g10_default_deadline_is_one_minute_and_denies() {
        let rules = merge_rules(&[]).unwrap();
        assert_eq!(
            deadline_and_action(&rules, ApprovalKind::Plan, Risk::Critical),
            (Some(60), "deny")
        );
    }

    #[test]
    fn g10_risk_rules_override_kind_rules_and_agents_override_globals() {
        let global = parse_rules(
            "deadline = \"2m\"\non_deadline = \"escalate\"\n\
             [kinds.budget]\ndeadline = \"none\"\non_deadline = \"wait\"\n\
             [risks.critical]\ndeadline = \"10s\"",
        );
        let agent = parse_rules("[risks.write_high_risk]\non_deadline = \"deny\"");
        let rules = merge_rules(&[&global, &agent]).unwrap();
        for (kind, risk, expected) in [
            (ApprovalKind::Plan, Risk::WriteLowRisk, (Some(120), "escalate")),
            (ApprovalKind::Plan, Risk::WriteHighRisk, (Some(120), "deny")),
            (ApprovalKind::Plan, Risk::Critical, (Some(10), "escalate")),
            (ApprovalKind::Budget, Risk::ReadOnly, (None, "wait")),
            (ApprovalKind::UnknownOutcome, Risk::Critical, (None, "wait")),
        ] {
            assert_eq!(deadline_and_action(&rules, kind, risk), expected, "{kind:?} {risk}");
        }
        let escalated = rules.rule(ApprovalKind::Plan, Risk::WriteLowRisk).action;
        assert_eq!(
            escalated,
            DeadlineAction::Escalate { to: Role::Approver, within_ms: Some(120_000) }
        );
    }

    #[test]
    fn g10_invalid_deadlines_are_rejected() {
        for (text, expected) in [
            ("deadline = \"0s\"", "longer than 0"),
            ("[kinds.unknown_outcome]\ndeadline = \"5s\"", "has no deadline"),
            ("escalate_to = \"user\"", "escalate_to must be"),
        ] {
            let error = merge_rules(&[&parse_rules(text)]).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert!(toml::from_str::<RawApprovalRules>("dedline = \"5s\"").is_err());
        assert_eq!(Duration::from_secs(60), DeadlineRule::default().timeout.unwrap());
    }
}
