//! `[redaction]`: texts that must not leave, told by what they look like (E7).

use regex::Regex;
use serde::Deserialize;

/// Patterns: each is looked for in everything that leaves.
const PATTERNS_MAX: usize = 64;

/// As it is written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawRedaction {
    patterns: Vec<String>,
}

/// What is written, ready to be looked for.
pub(super) fn compile_patterns(written: &RawRedaction) -> Result<Vec<Regex>, String> {
    if written.patterns.len() > PATTERNS_MAX {
        return Err(format!("there may be at most {PATTERNS_MAX} patterns"));
    }
    written.patterns.iter().map(|pattern| compile_pattern(pattern)).collect()
}

fn compile_pattern(pattern: &str) -> Result<Regex, String> {
    let regex = Regex::new(pattern).map_err(|error| {
        // The rest of what it says is a drawing of the place.
        let said = error.to_string();
        let why = said.lines().last().unwrap_or_default().trim_start_matches("error: ");
        format!("the pattern `{pattern}` can't be used: {why}")
    })?;
    if regex.is_match("") {
        return Err(format!("the pattern `{pattern}` is found in every text"));
    }
    Ok(regex)
}
