//! The cases of an evaluation (C6): their file format and validation. Pure.

use regex::Regex;
use serde::Deserialize;
use serde_json::Value;
use std::{collections::BTreeMap, time::Duration};

/// Maximum bytes of a case file.
pub(super) const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Maximum number of cases in a file.
const CASES_MAX: usize = 1_000;
/// Maximum number of expected calls in a case.
const CALLS_MAX: usize = 64;
/// Timeout of a case if the file sets none.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(120);

/// A case file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseFile {
    /// Environment variables for the configuration. `{folder}` is replaced by a temporary folder.
    #[serde(default)]
    pub(super) environment: BTreeMap<String, String>,
    /// Values for cases that do not set their own.
    #[serde(default)]
    pub(super) defaults: CaseDefaults,
    #[serde(default, rename = "case")]
    pub(super) cases: Vec<Case>,
}

/// Values for cases that do not set their own.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseDefaults {
    pub(super) agent: Option<String>,
    pub(super) autonomy_level: Option<u8>,
    pub(super) timeout_s: Option<u64>,
}

/// A message and the expected result of its run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) message: String,
    pub(super) agent: Option<String>,
    pub(super) autonomy_level: Option<u8>,
    pub(super) timeout_s: Option<u64>,
    /// The expected calls, in the order of their proposal; `None` disables the check.
    pub(super) calls: Option<Vec<ExpectedCall>>,
    /// True if the run may have other calls.
    #[serde(default)]
    pub(super) other_calls: bool,
    /// The answer to every approval.
    #[serde(default, rename = "person")]
    pub(super) approver: ApproverReply,
    /// The expected outcome of the run.
    #[serde(default)]
    pub(super) outcome: ExpectedOutcome,
    #[serde(default)]
    pub(super) text: TextChecks,
}

/// An expected call.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectedCall {
    pub(super) tool: String,
    /// Members that the arguments must have; other members are ignored.
    pub(super) arguments: Option<Value>,
    /// The policy's verdict.
    pub(super) decision: Option<ExpectedVerdict>,
    /// The call's end: `completed`, `denied`, or the reason of its failure.
    pub(super) end: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ExpectedVerdict {
    Allow,
    Ask,
    Deny,
}

impl ExpectedVerdict {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ApproverReply {
    Approve,
    #[default]
    Reject,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ExpectedOutcome {
    #[default]
    Completed,
    Cancelled,
    Failed,
}

impl ExpectedOutcome {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }
}

/// Checks of the last answer. `contains` and `excludes` ignore case.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TextChecks {
    #[serde(default)]
    pub(super) contains: Vec<String>,
    #[serde(default)]
    pub(super) excludes: Vec<String>,
    /// Regular expressions.
    #[serde(default)]
    pub(super) matches: Vec<String>,
}

impl CaseFile {
    /// Parses and validates a file's text. An error names the case and its problem.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let file: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        if file.cases.is_empty() || file.cases.len() > CASES_MAX {
            return Err(format!("a file must have 1 to {CASES_MAX} tables [[case]]"));
        }
        for (index, case) in file.cases.iter().enumerate() {
            let invalid = |problem: String| Err(format!("case \"{}\": {problem}", case.name));
            if file.cases[..index].iter().any(|other| other.name == case.name) {
                return invalid("duplicate name".to_owned());
            }
            if let Some(calls) = case.calls.as_ref().filter(|calls| calls.len() > CALLS_MAX) {
                let count = calls.len();
                return invalid(format!("`calls`: {count} entries; the limit is {CALLS_MAX}"));
            }
            if case.calls.is_none() && case.text.is_empty() {
                return invalid("no expectation: set `calls` or `text`".to_owned());
            }
            for pattern in &case.text.matches {
                if let Err(error) = Regex::new(pattern) {
                    return invalid(format!("text.matches: {error}"));
                }
            }
        }
        Ok(file)
    }
}

impl TextChecks {
    fn is_empty(&self) -> bool {
        self.contains.is_empty() && self.excludes.is_empty() && self.matches.is_empty()
    }
}

impl Case {
    pub(super) fn timeout(&self, defaults: &CaseDefaults) -> Duration {
        let seconds = self.timeout_s.or(defaults.timeout_s);
        seconds.map_or(TIMEOUT_DEFAULT, Duration::from_secs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c6_invalid_file_is_rejected_with_its_problem() {
        let case = "[[case]]\nname = \"a\"\nmessage = \"hi\"\n";
        for (text, problem) in [
            ("", "1 to 1000"),
            (case, "case \"a\": no expectation"),
            (&format!("{case}calls = []\n{case}calls = []"), "duplicate name"),
            (&format!("{case}text.matches = ['(']"), "text.matches"),
            (&format!("{case}cals = []"), "unknown field `cals`"),
            (&format!("{case}calls = [{{ tool = \"t\", decision = \"maybe\" }}]"), "maybe"),
        ] {
            let error = CaseFile::parse(text).unwrap_err();
            assert!(error.contains(problem), "{problem} is not in {error}");
        }
        let file = CaseFile::parse(&format!("{case}text.contains = ['hello']")).unwrap();
        assert_eq!(file.cases[0].outcome, ExpectedOutcome::Completed);
        assert_eq!(file.cases[0].approver, ApproverReply::Reject);
    }
}
