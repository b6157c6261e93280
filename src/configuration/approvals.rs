//! How long people have to answer, and what then (G10): from what is written globally, of each
//! kind and risk, and of the agent, to the table that sessions decide by.

use greenroom_core::{
    approval::{ApprovalKind, ApprovalRules, Overdue, Role, Timing},
    duration::Limit,
    policy::Risk,
};
use serde::Deserialize;
use std::collections::BTreeMap;

/// `[approvals]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "WrittenApprovals")]
pub(super) struct Approvals {
    /// Who may agree to critical steps (G12).
    pub(super) critical_role: Option<Role>,
    pub(super) four_eyes: bool,
    pub(super) rules: WrittenRules,
}

/// The same as it is written: in one table, so that a mistake in it has its line and its key.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WrittenApprovals {
    critical_role: Option<Role>,
    four_eyes: bool,
    deadline: Option<Limit>,
    on_deadline: Option<Then>,
    escalate_to: Option<Role>,
    escalate_deadline: Option<Limit>,
    kinds: BTreeMap<ApprovalKind, WrittenTiming>,
    risks: BTreeMap<Risk, WrittenTiming>,
}

impl From<WrittenApprovals> for Approvals {
    fn from(written: WrittenApprovals) -> Self {
        let WrittenApprovals { critical_role, four_eyes, deadline, on_deadline, .. } = written;
        let WrittenApprovals { escalate_to, escalate_deadline, kinds, risks, .. } = written;
        let rules =
            WrittenRules { deadline, on_deadline, escalate_to, escalate_deadline, kinds, risks };
        Self { critical_role, four_eyes, rules }
    }
}

/// What may be written of deadlines, in `[approvals]` and in `[agents.NAME.approvals]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WrittenRules {
    deadline: Option<Limit>,
    on_deadline: Option<Then>,
    escalate_to: Option<Role>,
    escalate_deadline: Option<Limit>,
    kinds: BTreeMap<ApprovalKind, WrittenTiming>,
    risks: BTreeMap<Risk, WrittenTiming>,
}

/// What may be written of one kind or one risk.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WrittenTiming {
    deadline: Option<Limit>,
    on_deadline: Option<Then>,
    escalate_to: Option<Role>,
    escalate_deadline: Option<Limit>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Then {
    Deny,
    Escalate,
    Wait,
}

/// The table that these rules make, each laid over those before it: what is said of a risk is
/// stronger than what is said of a kind, and what an agent says than what is said for all.
pub(super) fn rules(layers: &[&WrittenRules]) -> Result<ApprovalRules, String> {
    layers.iter().try_for_each(|layer| layer.check())?;
    Ok(ApprovalRules::by(|kind, risk| {
        let said = layers.iter().flat_map(|layer| {
            let of_all = WrittenTiming {
                deadline: layer.deadline,
                on_deadline: layer.on_deadline,
                escalate_to: layer.escalate_to,
                escalate_deadline: layer.escalate_deadline,
            };
            let (of_kind, of_risk) = (layer.kinds.get(&kind), layer.risks.get(&risk));
            [Some(of_all), of_kind.copied(), of_risk.copied()].into_iter().flatten()
        });
        said.fold(WrittenTiming::default(), WrittenTiming::under).timing()
    }))
}

impl WrittenRules {
    fn check(&self) -> Result<(), String> {
        let timings = self.kinds.values().chain(self.risks.values());
        let deadlines = timings.flat_map(|it| [it.deadline, it.escalate_deadline]);
        let mut all = deadlines.chain([self.deadline, self.escalate_deadline]).flatten();
        if all.any(|Limit(time)| time.is_some_and(|time| time.is_zero())) {
            return Err("a deadline must be longer than 0 (or \"none\")".to_owned());
        }
        if self.kinds.contains_key(&ApprovalKind::UnknownOutcome) {
            let kind = ApprovalKind::UnknownOutcome.name();
            return Err(format!("approvals.kinds.{kind}: an unknown outcome has no deadline"));
        }
        let timings = self.kinds.values().chain(self.risks.values());
        let mut roles = timings.map(|it| it.escalate_to).chain([self.escalate_to]).flatten();
        if roles.any(|role| role == Role::User) {
            return Err("escalate_to must be \"approver\" or \"admin\"".to_owned());
        }
        Ok(())
    }
}

impl WrittenTiming {
    fn under(self, over: Self) -> Self {
        Self {
            deadline: over.deadline.or(self.deadline),
            on_deadline: over.on_deadline.or(self.on_deadline),
            escalate_to: over.escalate_to.or(self.escalate_to),
            escalate_deadline: over.escalate_deadline.or(self.escalate_deadline),
        }
    }

    fn timing(self) -> Timing {
        let deadline = self.deadline.map_or(Timing::default().deadline, |Limit(time)| time);
        let then = match self.on_deadline.unwrap_or(Then::Deny) {
            Then::Deny => Overdue::Deny,
            Then::Wait => Overdue::Wait,
            Then::Escalate => {
                // They get as long again where nothing else is said.
                let within = self.escalate_deadline.map_or(deadline, |Limit(time)| time);
                let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).ok();
                let to = self.escalate_to.unwrap_or(Role::Approver);
                Overdue::Escalate { to, within_ms: within.and_then(millis) }
            }
        };
        Timing { deadline, then }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn written(text: &str) -> WrittenRules {
        toml::from_str(text).unwrap()
    }

    fn of(rules: &ApprovalRules, kind: ApprovalKind, risk: Risk) -> (Option<u64>, &'static str) {
        let Timing { deadline, then } = rules.timing(kind, risk);
        (deadline.map(|time| time.as_secs()), then.name())
    }

    #[test]
    fn g10_a_minute_and_no_where_nothing_is_said() {
        let rules = rules(&[]).unwrap();
        assert_eq!(of(&rules, ApprovalKind::Plan, Risk::Critical), (Some(60), "deny"));
    }

    #[test]
    fn g10_what_is_said_of_a_risk_or_by_an_agent_is_stronger() {
        let global = written(
            "deadline = \"2m\"\non_deadline = \"escalate\"\n\
             [kinds.budget]\ndeadline = \"none\"\non_deadline = \"wait\"\n\
             [risks.critical]\ndeadline = \"10s\"",
        );
        let agent = written("[risks.write_high_risk]\non_deadline = \"deny\"");
        let rules = rules(&[&global, &agent]).unwrap();
        for (kind, risk, expected) in [
            (ApprovalKind::Plan, Risk::WriteLowRisk, (Some(120), "escalate")),
            (ApprovalKind::Plan, Risk::WriteHighRisk, (Some(120), "deny")),
            (ApprovalKind::Plan, Risk::Critical, (Some(10), "escalate")),
            (ApprovalKind::Budget, Risk::ReadOnly, (None, "wait")),
            (ApprovalKind::UnknownOutcome, Risk::Critical, (None, "wait")),
        ] {
            assert_eq!(of(&rules, kind, risk), expected, "{kind:?} {risk}");
        }
        let escalated = rules.timing(ApprovalKind::Plan, Risk::WriteLowRisk).then;
        assert_eq!(escalated, Overdue::Escalate { to: Role::Approver, within_ms: Some(120_000) });
    }

    #[test]
    fn g10_deadlines_that_make_no_sense_are_refused() {
        for (text, expected) in [
            ("deadline = \"0s\"", "longer than 0"),
            ("[kinds.unknown_outcome]\ndeadline = \"5s\"", "has no deadline"),
            ("escalate_to = \"user\"", "escalate_to must be"),
        ] {
            let error = rules(&[&written(text)]).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert!(toml::from_str::<WrittenRules>("dedline = \"5s\"").is_err());
        assert_eq!(Duration::from_secs(60), Timing::default().deadline.unwrap());
    }
}
