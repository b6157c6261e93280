//! `[redaction]`: patterns of texts that are redacted (E7).

use regex::Regex;
use serde::Deserialize;

/// Maximum number of patterns. Each is searched in all output.
const PATTERNS_MAX: usize = 64;

/// The raw `[redaction]` table.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawRedaction {
    patterns: Vec<String>,
}

/// Compiles the configured patterns.
pub(super) fn compile_patterns(raw: &RawRedaction) -> Result<Vec<Regex>, String> {
    if raw.patterns.len() > PATTERNS_MAX {
        return Err(format!(
            "patterns has {} entries; the limit is {PATTERNS_MAX}",
            raw.patterns.len()
        ));
    }
    raw.patterns.iter().map(|pattern| compile_pattern(pattern)).collect()
}

fn compile_pattern(pattern: &str) -> Result<Regex, String> {
    let regex = Regex::new(pattern).map_err(|error| {
        // The last line is the message; the lines before it show the position.
        let text = error.to_string();
        let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
        format!("invalid pattern `{pattern}`: {reason}")
    })?;
    if regex.is_match("") {
        return Err(format!("the pattern `{pattern}` matches every text"));
    }
    Ok(regex)
}
