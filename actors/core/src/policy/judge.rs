//! The judge: one pure function from what is known to a verdict with its reason.

use super::{Autonomy, Matrix, Settings, Tool};
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
pub fn judge(
    tool: &Tool,
    arguments: &Value,
    settings: &Settings,
    matrix: &Matrix,
    headless: bool,
) -> Verdict {
    let _ = (tool, arguments, settings, matrix, headless);
    Verdict::Deny(Denial { reason: String::new(), required_level: None })
}
