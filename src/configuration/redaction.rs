//! `[redaction]`: keys whose values are redacted, and patterns of texts that are redacted (E7).

use regex::Regex;
use serde::Deserialize;

/// Maximum number of patterns. Each is searched in all output.
const PATTERNS_MAX: usize = 64;
/// Maximum number of key words. Each is searched in every key.
const KEYS_MAX: usize = 64;
/// Maximum bytes of a key word.
const KEY_BYTES_MAX: usize = 64;
/// Minimum letters of a key word. Fewer would match abbreviations.
const KEY_LETTERS_MIN: usize = 2;

/// The raw `[redaction]` table.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawRedaction {
    patterns: Vec<String>,
    keys: Vec<String>,
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

/// Validates the configured key words: letters, and separators between words.
pub(super) fn validate_keys(raw: &RawRedaction) -> Result<Vec<String>, String> {
    if raw.keys.len() > KEYS_MAX {
        return Err(format!("keys has {} entries; the limit is {KEYS_MAX}", raw.keys.len()));
    }
    for key in &raw.keys {
        let separators = [' ', '-', '_', '.'];
        if key.len() > KEY_BYTES_MAX {
            return Err(format!(
                "the key `{key}` has {} bytes; the limit is {KEY_BYTES_MAX}",
                key.len()
            ));
        }
        if let Some(other) = key.chars().find(|c| !c.is_alphabetic() && !separators.contains(c)) {
            return Err(format!(
                "the key `{key}` contains `{other}`; only letters and ` -_.` match"
            ));
        }
        if key.chars().filter(|c| c.is_alphabetic()).count() < KEY_LETTERS_MIN {
            return Err(format!("the key `{key}` has fewer than {KEY_LETTERS_MIN} letters"));
        }
    }
    Ok(raw.keys.clone())
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
