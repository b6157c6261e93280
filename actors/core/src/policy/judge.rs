//! The judge: one pure function from what is known to a verdict with its reason.
//!
//! It knows nothing of sessions, approvals or grants; who asks whom is the caller's business.

use super::{Autonomy, Matrix, Ruling, Settings, Tool};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What may happen with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It runs.
    Allow {
        /// Why, for people.
        why: String,
    },
    /// A person is asked.
    Ask {
        /// Why, for people.
        why: String,
    },
    /// It does not run.
    Deny(Denial),
}

/// Why a call does not run (G7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denial {
    /// For people and for the model.
    pub reason: String,
    /// The least autonomy level at which it would not be denied, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required_level: Option<Autonomy>,
}

/// Judges one call whose arguments fit the tool's schema.
///
/// `headless` says that nobody is there to ask. The table rules on the tool and the user alone;
/// no rule looks into the arguments.
pub fn judge(
    tool: &Tool,
    _arguments: &Value,
    settings: &Settings,
    matrix: &Matrix,
    headless: bool,
) -> Verdict {
    if let Some(reason) = standing_denial(tool, settings) {
        return Verdict::Deny(Denial { reason, required_level: None });
    }
    let autonomy = settings.autonomy_level;
    let because =
        || format!("{} is {} ({}), level {}", tool.name, tool.risk, tool.risk_source, autonomy);
    match matrix.ruling(autonomy, tool.risk, settings) {
        Ruling::Allow => Verdict::Allow { why: because() },
        Ruling::Ask if !headless => Verdict::Ask { why: because() },
        ruling @ (Ruling::Ask | Ruling::Deny) => {
            Verdict::Deny(denial(tool, settings, matrix, headless, ruling))
        }
    }
}

/// A denial that no autonomy level lifts.
fn standing_denial(tool: &Tool, settings: &Settings) -> Option<String> {
    // Two servers with the same tool make its name longer; that must not unblock it.
    let blocks = |name: &str| name == tool.name.as_str() || name == tool.remote_name;
    if settings.blocked_tools.iter().any(|blocked| blocks(blocked.as_str())) {
        return Some(format!("{} is blocked by the user's settings", tool.name));
    }
    tool.denied.as_ref().map(|reason| format!("{} is denied: {reason}", tool.name))
}

/// The denial of a call that the table denies, or that it asks for with nobody there (G13).
fn denial(
    tool: &Tool,
    settings: &Settings,
    matrix: &Matrix,
    headless: bool,
    ruling: Ruling,
) -> Denial {
    let denied_at = |level: &Autonomy| match matrix.ruling(*level, tool.risk, settings) {
        Ruling::Allow => false,
        Ruling::Ask => headless,
        Ruling::Deny => true,
    };
    let required_level = Autonomy::ALL.into_iter().find(|level| !denied_at(level));
    let needs = match required_level {
        None => "no autonomy level allows it".to_owned(),
        Some(level) => {
            // A table from configuration may take back at a higher level what a lower one gives.
            let monotone = !Autonomy::ALL.iter().any(|above| *above > level && denied_at(above));
            let or_higher = if monotone { " or higher" } else { "" };
            format!("requires autonomy level {level}{or_higher}")
        }
    };
    let nobody = match ruling {
        Ruling::Ask => {
            " needs a person's approval and this agent is headless, so nobody can give it;"
        }
        Ruling::Allow | Ruling::Deny => "",
    };
    let (name, risk, current) = (&tool.name, tool.risk, settings.autonomy_level.name());
    let reason = format!("{name} is {risk}:{nobody} {needs}; current level: {current}");
    Denial { reason, required_level }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{
        Risk,
        matrix::{Cell, Preset},
    };

    fn tool(risk: Risk) -> Tool {
        Tool::for_tests("wallet_transfer", risk)
    }

    fn settings(autonomy_level: Autonomy, require_confirmation: bool) -> Settings {
        Settings { autonomy_level, require_confirmation, ..Settings::default() }
    }

    fn judged(tool: &Tool, settings: &Settings, matrix: &Matrix, headless: bool) -> Verdict {
        judge(tool, &Value::Null, settings, matrix, headless)
    }

    fn letter(verdict: &Verdict) -> char {
        match verdict {
            Verdict::Allow { .. } => 'A',
            Verdict::Ask { .. } => '?',
            Verdict::Deny(_) => 'D',
        }
    }

    /// Rows L0 to L3; columns read_only, write_low_risk, write_high_risk, critical.
    fn table(preset: Preset, require_confirmation: bool, headless: bool) -> [String; 4] {
        Autonomy::ALL.map(|level| {
            let settings = settings(level, require_confirmation);
            Risk::ALL
                .map(|risk| letter(&judged(&tool(risk), &settings, &preset.into(), headless)))
                .iter()
                .collect()
        })
    }

    #[test]
    fn g3_every_cell_of_every_preset() {
        let cases = [
            (Preset::Interactive, true, false, ["ADDD", "AA?D", "AA??", "AAA?"]),
            (Preset::Interactive, false, false, ["ADDD", "AA?D", "AAA?", "AAA?"]),
            (Preset::Interactive, true, true, ["ADDD", "AADD", "AADD", "AAAD"]),
            (Preset::Interactive, false, true, ["ADDD", "AADD", "AAAD", "AAAD"]),
            (Preset::Strict, true, false, ["ADDD", "AADD", "AA?D", "AAAD"]),
            (Preset::Strict, false, false, ["ADDD", "AADD", "AAAD", "AAAD"]),
            (Preset::Strict, true, true, ["ADDD", "AADD", "AADD", "AAAD"]),
            (Preset::Strict, false, true, ["ADDD", "AADD", "AAAD", "AAAD"]),
            (Preset::AskFirst, true, false, ["A???", "AA??", "AA??", "AAA?"]),
            (Preset::AskFirst, false, false, ["A???", "AA??", "AAA?", "AAA?"]),
            (Preset::AskFirst, true, true, ["ADDD", "AADD", "AADD", "AAAD"]),
            (Preset::AskFirst, false, true, ["ADDD", "AADD", "AAAD", "AAAD"]),
        ];
        for (preset, require_confirmation, headless, expected) in cases {
            let found = table(preset, require_confirmation, headless);
            assert_eq!(found, expected, "{preset:?} {require_confirmation} {headless}");
        }
    }

    #[test]
    fn g4_a_blocked_tool_is_denied_in_every_cell() {
        for preset in Preset::ALL {
            for level in Autonomy::ALL {
                for risk in Risk::ALL {
                    let mut settings = settings(level, false);
                    settings.blocked_tools.insert("wallet_transfer".parse().unwrap());
                    for headless in [false, true] {
                        let found = judged(&tool(risk), &settings, &preset.into(), headless);
                        let reason = "wallet_transfer is blocked by the user's settings".into();
                        assert_eq!(found, Verdict::Deny(Denial { reason, required_level: None }));
                    }
                }
            }
        }
    }

    #[test]
    fn g4_a_longer_name_does_not_unblock_a_tool() {
        let mut tool = Tool::for_tests("market__wallet_transfer", Risk::ReadOnly);
        tool.remote_name = "wallet_transfer".into();
        let mut settings = Settings::default();
        settings.blocked_tools.insert("wallet_transfer".parse().unwrap());
        assert_eq!(letter(&judged(&tool, &settings, &Matrix::default(), false)), 'D');
    }

    fn denied(tool: &Tool, settings: &Settings, matrix: &Matrix, headless: bool) -> Denial {
        match judged(tool, settings, matrix, headless) {
            Verdict::Deny(denial) => denial,
            other @ (Verdict::Allow { .. } | Verdict::Ask { .. }) => panic!("{other:?}"),
        }
    }

    #[test]
    fn g7_denials_name_the_level_that_is_required() {
        use Autonomy::*;
        let asked = "wallet_transfer is write_high_risk: needs a person's approval and this agent is \
                     headless, so nobody can give it; requires autonomy level";
        let cases = [
            (Preset::Interactive, Recommendations, true, false, Risk::Critical, Some(Assisted),
             "wallet_transfer is critical: requires autonomy level ASSISTED (L2) or higher; \
              current level: RECOMMENDATIONS".to_owned()),
            (Preset::Interactive, ReadOnly, true, false, Risk::WriteLowRisk, Some(Recommendations),
             "wallet_transfer is write_low_risk: requires autonomy level RECOMMENDATIONS (L1) or \
              higher; current level: READ_ONLY".to_owned()),
            (Preset::Strict, Supervised, true, false, Risk::Critical, None,
             "wallet_transfer is critical: no autonomy level allows it; current level: SUPERVISED"
                 .to_owned()),
            (Preset::Interactive, Assisted, true, true, Risk::WriteHighRisk, Some(Supervised),
             format!("{asked} SUPERVISED (L3) or higher; current level: ASSISTED")),
            (Preset::Interactive, Recommendations, false, true, Risk::WriteHighRisk, Some(Assisted),
             format!("{asked} ASSISTED (L2) or higher; current level: RECOMMENDATIONS")),
        ];
        for (preset, level, require_confirmation, headless, risk, required_level, reason) in cases {
            let settings = settings(level, require_confirmation);
            let found = denied(&tool(risk), &settings, &preset.into(), headless);
            assert_eq!(found, Denial { reason, required_level });
        }
    }

    #[test]
    fn g7_or_higher_is_said_only_where_it_is_true() {
        let matrix = Matrix::default().with(Autonomy::Supervised, Risk::Critical, Cell::Deny);
        let settings = settings(Autonomy::Supervised, true);
        let found = denied(&tool(Risk::Critical), &settings, &matrix, false);
        assert_eq!(found.required_level, Some(Autonomy::Assisted));
        assert!(found.reason.contains("level ASSISTED (L2); current"), "{}", found.reason);
    }

    #[test]
    fn g7_the_required_level_is_the_least_that_is_not_denied() {
        for preset in Preset::ALL {
            for (headless, require_confirmation) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                for risk in Risk::ALL {
                    let verdict = |level| {
                        let settings = settings(level, require_confirmation);
                        judged(&tool(risk), &settings, &preset.into(), headless)
                    };
                    let least =
                        Autonomy::ALL.into_iter().find(|level| letter(&verdict(*level)) != 'D');
                    for level in Autonomy::ALL {
                        if let Verdict::Deny(denial) = verdict(level) {
                            assert_eq!(denial.required_level, least);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn g1_a_tool_the_catalog_denies_is_denied_with_its_reason() {
        let mut tool = tool(Risk::ReadOnly);
        tool.denied = Some("nothing describes it".into());
        let found =
            denied(&tool, &settings(Autonomy::Supervised, false), &Matrix::default(), false);
        let reason = "wallet_transfer is denied: nothing describes it".into();
        assert_eq!(found, Denial { reason, required_level: None });
    }
}
