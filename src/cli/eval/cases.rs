//! The cases of an evaluation, as a file tells them (C6). Pure.

use regex::Regex;
use serde::Deserialize;
use serde_json::Value;
use std::{collections::BTreeMap, time::Duration};

/// Bytes of a file of cases.
pub(super) const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Cases of one file.
const CASES_MAX: usize = 1_000;
/// Calls that one case may expect.
const CALLS_MAX: usize = 64;
/// Time for one case where the file says nothing.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(120);

/// A file of cases.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseFile {
    /// Environment that the configuration is read with; `{folder}` is one that is gone afterwards.
    #[serde(default)]
    pub(super) environment: BTreeMap<String, String>,
    /// What cases have that don't say otherwise.
    #[serde(default)]
    pub(super) defaults: CaseDefaults,
    #[serde(default, rename = "case")]
    pub(super) cases: Vec<Case>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseDefaults {
    pub(super) agent: Option<String>,
    pub(super) autonomy_level: Option<u8>,
    pub(super) timeout_s: Option<u64>,
}

/// What is said, and what is to come of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) message: String,
    pub(super) agent: Option<String>,
    pub(super) autonomy_level: Option<u8>,
    pub(super) timeout_s: Option<u64>,
    /// The calls, in the order they are proposed; without the key they are not looked at.
    pub(super) calls: Option<Vec<ExpectedCall>>,
    /// Whether there may be other calls besides.
    #[serde(default)]
    pub(super) other_calls: bool,
    /// What a person says when they are asked; `reject` if nothing is said.
    #[serde(default)]
    pub(super) person: PersonReply,
    /// How the run ends.
    #[serde(default)]
    pub(super) outcome: ExpectedOutcome,
    #[serde(default)]
    pub(super) text: TextChecks,
}

/// A call as it is expected.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectedCall {
    pub(super) tool: String,
    /// Members that the arguments must have; there may be more.
    pub(super) arguments: Option<Value>,
    /// What the policy says of it.
    pub(super) decision: Option<ExpectedVerdict>,
    /// How it ends: `completed`, `denied`, or the reason of its failure.
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
pub(super) enum PersonReply {
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

/// What the last answer says, whatever its case.
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
    /// Reads a file's text; the error says what is wrong, and of which case.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let cases: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        if cases.cases.is_empty() || cases.cases.len() > CASES_MAX {
            return Err(format!("a file must have 1 to {CASES_MAX} tables [[case]]"));
        }
        for (index, case) in cases.cases.iter().enumerate() {
            let wrong = |what: String| Err(format!("case \"{}\": {what}", case.name));
            if cases.cases[..index].iter().any(|other| other.name == case.name) {
                return wrong("there is another one of that name".to_owned());
            }
            if case.calls.as_ref().is_some_and(|calls| calls.len() > CALLS_MAX) {
                return wrong(format!("it may expect at most {CALLS_MAX} calls"));
            }
            if case.calls.is_none() && case.text.is_empty() {
                return wrong("it expects nothing: say `calls`, or `text`".to_owned());
            }
            for pattern in &case.text.matches {
                if let Err(error) = Regex::new(pattern) {
                    return wrong(format!("text.matches: {error}"));
                }
            }
        }
        Ok(cases)
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
    fn c6_a_file_that_makes_no_sense_says_where() {
        let one = "[[case]]\nname = \"a\"\nmessage = \"hi\"\n";
        for (text, problem) in [
            ("", "1 to 1000"),
            (one, "case \"a\": it expects nothing"),
            (&format!("{one}calls = []\n{one}calls = []"), "another one of that name"),
            (&format!("{one}text.matches = ['(']"), "text.matches"),
            (&format!("{one}cals = []"), "unknown field `cals`"),
            (&format!("{one}calls = [{{ tool = \"t\", decision = \"maybe\" }}]"), "maybe"),
        ] {
            let error = CaseFile::parse(text).unwrap_err();
            assert!(error.contains(problem), "{problem} is not in {error}");
        }
        let read = CaseFile::parse(&format!("{one}text.contains = ['hello']")).unwrap();
        assert_eq!(read.cases[0].outcome, ExpectedOutcome::Completed);
        assert_eq!(read.cases[0].person, PersonReply::Reject);
    }
}
